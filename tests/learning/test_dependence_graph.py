"""Graphs with loops under approximate privacy: exact search, the distance over all neighbours, what comes out."""

from __future__ import annotations

from itertools import combinations, product
from typing import ClassVar

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from learning.released_graphs import PromiseOfStableStructure, neighbours
from mechanisms.contract import Silent, released

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.mechanisms import StableStructure
from bayesprivmrf.mechanisms.structure import (
    LARGEST,
    UNIT,
    GraphSearch,
    PackedRecords,
    dependence_graph,
    excess_range,
    stable_graph,
)
from bayesprivmrf.mechanisms.structure.dependence_graph import marginal_scores
from bayesprivmrf.privacy import Adjacency

CARDS = (2, 3, 2, 2)
CELLS = np.array(list(product(*map(range, CARDS))), dtype=np.uint8)
ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE


def table_of(counts, cards, cells: np.ndarray = CELLS):
    table = np.zeros(cards, dtype=object)  # Python's whole numbers
    for cell, count in zip(cells.tolist(), counts.tolist(), strict=True):
        table[tuple(cell)] += count
    return table


def direct_score(table, i, j, given):
    """The score in steps as it is written, in Python's whole numbers."""
    others = [v for v in range(table.ndim) if v not in (i, j)]
    own = np.transpose(table, [*others, i, j]).sum(
        axis=tuple(v for v in range(len(others)) if others[v] not in given)
    )
    score = 0
    for stratum in own.reshape(-1, *own.shape[-2:]):
        n = stratum.sum()
        if n:
            departure = np.abs(
                n * stratum - np.multiply.outer(stratum.sum(1), stratum.sum(0))
            ).sum()
            score += departure * UNIT // n
    return score


def direct_answer(table, cards, steps, given, adjacency):
    n, edges, distances = table.sum(), [], []
    for i, j in combinations(range(len(cards)), 2):
        others = [v for v in range(len(cards)) if v not in (i, j)]
        sets = [some for size in range(given + 1) for some in combinations(others, size)]
        excess = min(direct_score(table, i, j, some) for some in sets) - steps * n
        edges += [(i, j)] if excess > 0 else []
        distances.append(
            -(-(excess if excess > 0 else 1 - excess) // excess_range(steps, adjacency))
        )
    return tuple(edges), min(distances)


def made_up(rng, cells=CELLS, most=300):
    weights = rng.dirichlet(np.full(len(cells), rng.choice([0.2, 1.0, 5.0])))
    return rng.multinomial(rng.integers(1, most), weights)


def answer(counts, adjacency, threshold=0.25, given=2, most=10**6):
    held = counts > 0
    search = GraphSearch(given=given, most=most)
    return stable_graph(
        CELLS[held], counts[held], CARDS, adjacency, threshold=threshold, search=search
    )


@pytest.mark.parametrize("given", [0, 1, 2])
def test_the_graph_and_its_distance_are_those_of_all_sets_and_a_cut_changes_no_edge(given):
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(60):
        counts = made_up(rng)
        table, adjacency = table_of(counts, CARDS), list(Adjacency)[rng.integers(2)]
        edges, distance = direct_answer(table, CARDS, 154, given, adjacency)
        assert answer(counts, adjacency, 0.15, given) == (edges, distance)
        assert answer(counts, adjacency, 0.15, given, most=2) == (edges, min(distance, 2))
        seen.add((len(edges), distance))
    assert len(seen) > 8


@pytest.mark.parametrize("cards", [(3, 1, 4, 2, 3), (2, 2, 2, 2, 2)], ids=str)
def test_five_variables_and_rows_in_any_order_give_what_a_table_gives(cards):
    rng = np.random.default_rng(2)
    for _ in range(10):
        rows = np.column_stack([rng.integers(0, k, 200) for k in cards])
        rows[:, 4] = np.where(rng.random(200) < 0.6, rows[:, 0] % cards[4], rows[:, 4])
        rows[:, 3] = np.where(rng.random(200) < 0.4, rows[:, 4] % 2, rows[:, 3])
        cells, counts = np.unique(rows, axis=0, return_counts=True)
        expected = direct_answer(table_of(counts, cards, cells), cards, 205, 2, ADD)
        settings = {"threshold": 0.2, "search": GraphSearch(given=2, most=10**6)}
        assert stable_graph(cells, counts, cards, ADD, **settings) == expected
        assert stable_graph(rows, np.ones(200, dtype=np.int64), cards, ADD, **settings) == expected


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_one_neighbour_moves_the_distance_by_one_and_changes_a_graph_only_at_one(adjacency):
    rng = np.random.default_rng(3)
    changed, far = 0, 0
    for _ in range(12 if adjacency is ADD else 3):
        counts = made_up(rng)
        edges, distance = answer(counts, adjacency)
        far = max(far, distance)
        for other in neighbours(counts, adjacency):
            edges_, distance_ = answer(other, adjacency)
            assert abs(distance - distance_) <= 1
            if edges != edges_:
                changed += 1
                assert distance == distance_ == 1
    assert changed > 10
    assert far > 1


def test_a_record_moves_a_score_by_at_most_four_and_nearly_by_four():
    """Beside many alike, one that differs in both variables, whatever is given."""
    for given in range(3):
        before = np.array([0, 999])
        cells = np.array([[0, 0, 0, 0], [1, 1, 0, 0]], dtype=np.uint8)
        moved = []
        for counts in (before, np.array([1, 999])):
            records = cells[counts > 0], counts[counts > 0], (2, 2, 2, 2)
            alone = int(marginal_scores(*records)[0, 1])
            packed = PackedRecords.of(*records)
            moved.append(packed.least_of_largest(0, 1, given, 0, 2**62) if given else alone)
        assert 3.99 * UNIT < moved[1] - moved[0] <= 4 * UNIT


@pytest.mark.parametrize("cards", [CARDS, (2, 2, 2, 2)], ids=str)
def test_scores_of_very_many_records_are_exact(cards):
    rng = np.random.default_rng(4)
    cells = np.array(list(product(*map(range, cards))), dtype=np.uint8)
    counts = rng.multinomial(LARGEST - 10**9, rng.dirichlet(np.full(len(cells), 0.5)))
    counts[0] += LARGEST - 1 - counts.sum()
    table = table_of(counts, cards, cells)
    packed = PackedRecords.of(cells, counts, cards)
    for i, j in combinations(range(4), 2):
        others = [v for v in range(4) if v not in (i, j)]
        assert marginal_scores(cells, counts, cards)[i, j] == direct_score(table, i, j, ())
        for given in (1, 2):
            direct = min(direct_score(table, i, j, some) for some in combinations(others, given))
            assert packed.least_of_largest(i, j, given, 0, 2**62) == direct


def test_records_beyond_a_number_are_not_told_apart():
    counts = np.full(len(CELLS), LARGEST // len(CELLS))
    counts[0] += LARGEST - 1 - counts.sum()
    assert answer(counts, ADD)[1] == 1
    counts[0] += 1
    assert answer(counts, ADD) == answer(counts + 5, REPLACE) == ((), 0)


def test_a_record_that_leaves_one_stratum_for_another_needs_the_whole_range(monkeypatch):
    """Replaced in 202,925 records, it lowers the score by almost four in either stratum."""
    counts = np.array([1, 96_000, 0, 2_000, 0, 2_000, 102_924, 0])
    changed = counts + np.array([-1, 0, 0, 0, 0, 0, 0, 1])
    cells, moved = np.array(list(product(range(2), repeat=3)), dtype=np.uint8), {}
    for steps in (8 * UNIT, 6 * UNIT):
        monkeypatch.setattr(dependence_graph, "excess_range", lambda *_, steps=steps: steps)
        (graph, distance), (other, after) = (
            stable_graph(
                cells[now > 0], now[now > 0], (2, 2, 2), Adjacency.REPLACE_ONE, threshold=1 / UNIT,
                search=GraphSearch(given=1, most=10**6),
            )
            for now in (counts, changed)
        )  # fmt: skip
        assert graph == other
        moved[steps] = abs(distance - after)
    assert moved[8 * UNIT] <= 1 < moved[6 * UNIT]
    monkeypatch.undo()
    assert excess_range(7, Adjacency.REPLACE_ONE) == 8 * UNIT
    assert excess_range(7, Adjacency.ADD_OR_REMOVE_ONE) == 4 * UNIT + 7


class TestPromise(PromiseOfStableStructure):
    settings: ClassVar = {"structure": "graph"}

    def sets(self, adjacency):
        rng = np.random.default_rng(5)
        return [made_up(rng) for _ in range(6 if adjacency is ADD else 1)]

    def answer(self, counts, adjacency):
        return answer(counts, adjacency)

    def scale_scores(self, unit, monkeypatch):
        monkeypatch.setattr(
            dependence_graph, "excess_range", lambda *rule: int(unit * excess_range(*rule))
        )


def ising(graph, size, rows, rng):
    """Spins 0 and 1 of couplings of this size and random signs, by Gibbs sampling."""
    codes = rng.choice([-1, 1], (rows, graph.number_of_nodes()))
    couplings = {frozenset(edge): size * rng.choice([-1, 1]) for edge in graph.edges}
    for _ in range(40):
        for v in graph:
            pull = sum(couplings[frozenset((v, u))] * codes[:, u] for u in graph[v])
            codes[:, v] = np.where(rng.random(rows) < 1 / (1 + np.exp(-2 * pull)), 1, -1)
    return (codes + 1) // 2


def test_a_graph_with_loops_is_recovered_saved_and_ready_for_another_release(tmp_path):
    rng = np.random.default_rng(6)
    graph = nx.random_regular_graph(3, 16, seed=1)
    data = pd.DataFrame(ising(graph, 0.4, 5_000, rng), columns=[f"v{i}" for i in range(16)])
    model = bpm.declare(states={name: [0, 1] for name in data})
    found = StableStructure(epsilon=1.0, delta=1e-6, structure="graph").release(model, data, rng=1)
    assert {frozenset(edge) for edge in found.edges} == {
        frozenset((f"v{a}", f"v{b}")) for a, b in graph.edges
    }
    assert set(map(frozenset, found.network.edges())) == set(map(frozenset, found.edges))
    assert (found.details["threshold"], found.details["given"]) == (0.1, 2)
    found.save(tmp_path / "graph.release")
    again = bpm.load_release(tmp_path / "graph.release")
    assert (again.edges, again.details) == (found.edges, found.details)
    tree = StableStructure(epsilon=1.0, delta=1e-6).release(model, data, rng=1)
    assert tree.is_refusal or len(tree.edges) == 15


def test_a_ring_of_three_states_and_a_variable_without_an_edge_are_recovered():
    rng = np.random.default_rng(7)
    size = 5
    cells = np.array(list(product(range(3), repeat=size)))
    weights = np.exp(1.0 * sum(cells[:, v] == cells[:, v - 1] for v in range(size)))
    rows = cells[rng.choice(len(cells), 6_000, p=weights / weights.sum())]
    data = pd.DataFrame(np.column_stack([rows, rng.integers(0, 3, 6_000)]), columns=list("abcdef"))
    model = bpm.declare(states={name: [0, 1, 2] for name in data})
    found = StableStructure(epsilon=1.0, delta=1e-6, structure="graph").release(model, data, rng=1)
    assert set(found.edges) == {("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("a", "e")}
    assert set(found.network.nodes) == set("abcdef")


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("given", [0, 2])
def test_a_release_is_of_the_distance_under_its_own_relation_and_rule(given, adjacency):
    rng = np.random.default_rng(9)
    rows = rng.integers(0, 2, (3_000, 4))
    rows[:, 1] = np.where(rng.random(3_000) < 0.7, rows[:, 0], rows[:, 1])
    data = pd.DataFrame(rows, columns=list("abcd"))
    model = bpm.declare(states={name: [0, 1] for name in data})
    rule = {"threshold": 0.3, "given": given}
    mechanism = StableStructure(
        epsilon=0.1, delta=1e-6, structure="graph", adjacency=adjacency, **rule
    )
    graph = released(mechanism, model, data, Silent())
    ones = np.ones(len(rows), dtype=np.int64)
    search = GraphSearch(given=given, most=10**6)
    edges, distance = stable_graph(
        rows, ones, (2, 2, 2, 2), adjacency, threshold=0.3, search=search
    )
    assert edges == ((0, 1),)
    assert graph.details["noisy_distance"] == distance - 1 > 50


def test_records_that_depend_on_nothing_have_a_graph_without_edges():
    data = pd.DataFrame(np.random.default_rng(8).integers(0, 2, (5_000, 4)), columns=list("abcd"))
    model = bpm.declare(states={name: [0, 1] for name in data})
    found = StableStructure(epsilon=1.0, delta=1e-6, structure="graph").release(model, data, rng=1)
    assert found.edges == ()
    assert "no edges" in str(found)
    assert len(found.specification.cliques) == 4
    assert not found.is_refusal


@pytest.mark.parametrize("rows", [0, 1, 40])
def test_few_records_are_refused(rows):
    data = pd.DataFrame(
        {"a": np.arange(rows) % 2, "b": np.arange(rows) % 2, "c": np.arange(rows) // 2 % 2}
    )
    model = bpm.declare(states={name: [0, 1] for name in data})
    graph = StableStructure(epsilon=1.0, delta=1e-6, structure="graph").release(model, data, rng=1)
    assert graph.is_refusal


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"structure": "forest"}, "structure"),
        ({"threshold": 0.1}, "threshold"),
        ({"given": 1}, "given"),
        ({"structure": "graph", "threshold": 0.0}, "threshold"),
        ({"structure": "graph", "threshold": 2.0}, "threshold"),
        ({"structure": "graph", "threshold": float("nan")}, "threshold"),
        ({"structure": "graph", "given": 3}, "given"),
        ({"structure": "graph", "given": True}, "given"),
    ],
)
def test_settings_out_of_range_are_refused(settings, name):
    with pytest.raises(ArgumentError, match=f"`{name}`"):
        StableStructure(epsilon=1.0, delta=1e-6, **settings)
