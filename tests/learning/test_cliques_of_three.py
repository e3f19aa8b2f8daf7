"""Graphs whose cliques have three and more variables: scores, what they find, the distance, what comes out."""

from __future__ import annotations

from functools import cache, partial
from itertools import combinations, product
from typing import ClassVar

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from learning.released_graphs import PromiseOfStableStructure, neighbours
from learning.test_dependence_graph import direct_score, made_up, table_of

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.learning.structure import ReleasedGraph
from bayesprivmrf.mechanisms import StableStructure
from bayesprivmrf.mechanisms.structure import (
    UNIT,
    GraphSearch,
    PairScores,
    dependence_graph,
    excess_range,
    stable_graph,
)
from bayesprivmrf.privacy import Adjacency
from benchmarks.papers.block_structure import BlockStructure

CARDS = (2, 3, 2, 2)
CELLS = np.array(list(product(*map(range, CARDS))), dtype=np.uint8)
ADD = Adjacency.ADD_OR_REMOVE_ONE


def subsets(items, most):
    return [some for size in range(most + 1) for some in combinations(items, size)]


def least_of_largest(score, i, j, size, given, order):
    """The score of a pair as it is written, from that of a pair given a set."""
    others = [v for v in range(size) if v not in (i, j)]
    return min(
        max(score(i, j, tuple(sorted({*some, *more}))) for more in subsets(others, order - 2))
        for some in subsets(others, given)
    )


@pytest.mark.parametrize(
    ("cards", "order"),
    [
        ((3, 1, 2, 3, 2), 3),
        (CARDS, 4),
        *(
            pytest.param(cards, order, marks=pytest.mark.slow)
            for cards, order in (((3, 2), 3), ((2,) * 5, 4), ((2, 2, 3), 4))
        ),
    ],
    ids=str,
)
def test_scores_are_those_of_all_sets(cards, order):
    rng = np.random.default_rng([len(cards), order])
    rows = np.column_stack([rng.integers(0, k, 150) for k in cards])
    rows[:, -1] = np.where(rng.random(150) < 0.7, rows.sum(axis=1) % cards[-1], rows[:, -1])
    cells, counts = np.unique(rows, axis=0, return_counts=True)
    table = table_of(counts, cards, cells)
    score = cache(partial(direct_score, table))
    for given in range(3):
        rule = {"search": GraphSearch(given=given, order=order)}
        found = PairScores.of(cells, counts, cards, threshold=0, **rule)
        direct = [
            least_of_largest(score, i, j, len(cards), given, order) for i, j in found.pairs.tolist()
        ]
        assert found.scores.tolist() == direct
        cut = PairScores.of(cells, counts, cards, threshold=205, enough=100 * UNIT, **rule)
        for steps, most in ((205, 20), (205, 2)):
            assert cut.graph(steps, ADD, most) == found.graph(steps, ADD, most)


def answer(counts, adjacency, order=3):
    held = counts > 0
    settings = {"threshold": 0.25, "search": GraphSearch(given=1, most=10**6, order=order)}
    return stable_graph(CELLS[held], counts[held], CARDS, adjacency, **settings)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_one_neighbour_moves_the_distance_by_one_and_changes_a_graph_only_at_one(adjacency):
    rng = np.random.default_rng(3)
    changed, far = 0, 0
    for _ in range(8 if adjacency is ADD else 2):
        counts = made_up(rng, most=300 if adjacency is ADD else 2_000)
        edges, distance = answer(counts, adjacency)
        far = max(far, distance)
        for other in neighbours(counts, adjacency):
            edges_, distance_ = answer(other, adjacency)
            assert abs(distance - distance_) <= 1
            if edges != edges_:
                changed += 1
                assert distance == distance_ == 1
    assert changed > 5
    assert far > 1


class TestPromise(PromiseOfStableStructure):
    settings: ClassVar = {"structure": "graph", "order": 3}

    def sets(self, adjacency):
        rng = np.random.default_rng(5)
        return [made_up(rng) for _ in range(5 if adjacency is ADD else 1)]

    def answer(self, counts, adjacency):
        return answer(counts, adjacency)

    def scale_scores(self, unit, monkeypatch):
        monkeypatch.setattr(
            dependence_graph, "excess_range", lambda *rule: int(unit * excess_range(*rule))
        )


FOREST = ((0, 1, 2), (2, 3, 4), (4, 5))


def law_of(cliques, cards, rng):
    """The exact law of a field with random potentials."""
    cells = np.array(list(product(*map(range, cards))))
    energy = np.zeros(len(cells))
    for clique in cliques:
        table = rng.normal(0, 1, [cards[v] for v in clique])
        energy += table[tuple(cells[:, clique].T)]
    law = np.exp(energy).reshape(cards)
    return law / law.sum()


def limit(law, i, j, given):
    """How far a pair is from independence in the strata of those given, as a share."""
    others = [v for v in range(law.ndim) if v not in (i, j, *given)]
    table = np.moveaxis(
        law.sum(axis=tuple(others)), [sorted((i, j, *given)).index(v) for v in (i, j)], [-2, -1]
    )
    own = table / table.sum(axis=(-2, -1), keepdims=True)
    apart = own - own.sum(-1, keepdims=True) * own.sum(-2, keepdims=True)
    return float((table.sum(axis=(-2, -1), keepdims=True) * np.abs(apart)).sum())


@pytest.mark.parametrize("cards", [(2,) * 6, (3, 2, 3, 2, 2, 3)], ids=str)
def test_a_forest_of_cliques_has_its_own_graph_in_the_limit(cards):
    """Of exact laws: pairs that one variable parts have score 0, and all others a positive one."""
    joined = {pair for clique in FOREST for pair in combinations(clique, 2)}
    for seed in range(4):
        law = law_of(FOREST, cards, np.random.default_rng(seed))
        for pair in combinations(range(6), 2):
            score = least_of_largest(lambda *pair, law=law: limit(law, *pair), *pair, 6, 1, 3)
            assert (score > 1e-3) if pair in joined else (score < 1e-12)


def parity_law(cards):
    """Any two of the first three are independent, and the three together are not."""
    cells = np.array(list(product(*map(range, cards))))
    law = np.where(cells[:, :3].sum(axis=1) % cards[0] == 0, 0.8, 0.2 / (cards[0] - 1)).reshape(
        cards
    )
    return law / law.sum()


def test_a_clique_whose_pairs_are_independent_shows_at_three_and_not_at_two():
    law = parity_law((3, 3, 3, 2))
    for pair in combinations(range(3), 2):
        scores = [
            least_of_largest(lambda *pair: limit(law, *pair), *pair, 4, 1, order)
            for order in (2, 3)
        ]
        assert scores[0] < 1e-12
        assert scores[1] > 0.5


def together(rows, states, rng):
    """Records of seven variables: two threes, each of which depends only all together, that share one; and a pair."""
    codes = rng.integers(0, states, (rows, 7))
    for a, b, c in ((0, 1, 2), (2, 3, 4)):
        codes[:, c] = np.where(
            rng.random(rows) < 0.6, -(codes[:, a] + codes[:, b]) % states, codes[:, c]
        )
    codes[:, 5] = np.where(rng.random(rows) < 0.6, codes[:, 4], codes[:, 5])
    return pd.DataFrame(codes, columns=list("abcdefg"))


@pytest.mark.parametrize(("states", "rows"), [(2, 8_000), (3, 16_000)])
def test_three_that_interact_only_all_together_are_recovered_saved_and_declared(
    states, rows, tmp_path
):
    data = together(rows, states, np.random.default_rng(6))
    model = bpm.declare(states={name: list(range(states)) for name in data})
    pairs = StableStructure(epsilon=1.0, delta=1e-6, structure="graph").release(model, data, rng=1)
    assert pairs.edges == (("e", "f"),)
    found = StableStructure(epsilon=1.0, delta=1e-6, structure="graph", order=3).release(
        model, data, rng=1
    )
    assert found.cliques == (("a", "b", "c"), ("c", "d", "e"), ("e", "f"), ("g",))
    assert found.specification.cliques == found.cliques
    assert {len(factor.variables) for factor in found.network.factors} == {1, 2, 3}
    found.save(tmp_path / "graph.release")
    again = bpm.load_release(tmp_path / "graph.release")
    assert (again.cliques, again.details, again.order) == (found.cliques, found.details, 3)


def test_blocks_find_three_that_interact_only_all_together():
    data = together(36 * 900, 2, np.random.default_rng(7))
    model = bpm.declare(states={name: [0, 1] for name in data})
    rule = {"structure": "graph", "order": 3, "given": 1, "threshold": 0.25}
    found = BlockStructure(epsilon=1.0, delta=1e-6, **rule).release(model, data, rng=1)
    assert found.cliques == (("a", "b", "c"), ("c", "d", "e"), ("e", "f"), ("g",))


@pytest.mark.parametrize("order", [2, 3, 4])
def test_cliques_are_the_largest_sets_of_joined_variables_up_to_the_order(order):
    mechanism = StableStructure(epsilon=1.0, delta=1e-6)
    model = bpm.declare(states={v: [0, 1] for v in range(9)})
    stamp = mechanism.release(model, pd.DataFrame(np.zeros((1, 9), dtype=int)), rng=1)
    for seed in range(6):
        graph = nx.gnp_random_graph(9, 0.15 * (seed + 1), seed=seed)
        released = ReleasedGraph(
            domain=stamp.domain,
            pairs=tuple(sorted(map(tuple, map(sorted, graph.edges)))),
            guarantee=stamp.guarantee,
            provenance=stamp.provenance,
            order=order,
        )
        full = [
            set(some)
            for some in subsets(range(9), order)
            if some and all(graph.has_edge(*pair) for pair in combinations(some, 2))
        ]
        largest = [some for some in full if not any(some < more for more in full)]
        assert sorted(map(sorted, released.cliques)) == sorted(map(sorted, largest))


@pytest.mark.parametrize(
    "settings",
    [{"order": 3}, {"structure": "graph", "order": 1}, {"structure": "graph", "order": 5}],
)
def test_orders_out_of_range_are_refused(settings):
    with pytest.raises(ArgumentError, match="`order`"):
        StableStructure(epsilon=1.0, delta=1e-6, **settings)
