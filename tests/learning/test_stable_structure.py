"""The graph under approximate privacy: the distance over all neighbours, the threshold, and what comes out."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
from learning.released_graphs import PromiseOfStableStructure, neighbours

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.mechanisms import StableStructure
from bayesprivmrf.mechanisms.structure import (
    LARGEST,
    gap_range,
    release_threshold,
    scaled_scores,
    stable_tree,
    tree_and_distance,
)
from bayesprivmrf.noise import DiscreteLaplace
from bayesprivmrf.privacy import Adjacency

CARDS = (2, 3, 2)
CELLS = np.array(list(product(*map(range, CARDS))), dtype=np.uint8)


def scores_of(counts):
    held = counts > 0
    return scaled_scores(CELLS[held], counts[held], CARDS)


def test_scores_are_the_distance_of_tables_from_independence():
    counts = np.random.default_rng(1).integers(0, 9, len(CELLS))
    n, found = counts.sum(), scores_of(counts)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        joint = np.zeros((CARDS[i], CARDS[j]), dtype=np.int64)
        np.add.at(joint, (CELLS[:, i], CELLS[:, j]), counts)
        direct = np.abs(n * joint - np.outer(joint.sum(1), joint.sum(0))).sum()
        assert found[i, j] == found[j, i] == direct


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_one_neighbour_moves_the_distance_by_one_and_changes_a_tree_only_at_one(adjacency):
    rng = np.random.default_rng(2)
    moved = gap_range(adjacency)
    changed = 0
    for round_ in range(20):
        counts = rng.integers(0, (2, 4, 60)[round_ % 3], len(CELLS)) * (
            rng.random(len(CELLS)) < 0.5
        )
        own = scores_of(counts)
        tree, distance = tree_and_distance(own, counts.sum() * moved)
        for other in neighbours(counts, adjacency):
            theirs = scores_of(other)
            if counts.sum() and other.sum():
                shift = np.abs(own / counts.sum() - theirs / other.sum())
                assert shift.max() <= moved / 2 + 1e-9
            tree_, distance_ = tree_and_distance(theirs, other.sum() * moved)
            if tree == tree_:
                assert abs(distance - distance_) <= 1
            else:
                changed += 1
                assert max(distance, distance_) <= 1
    assert changed > 10


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 0.01, 0.4])
def test_the_threshold_is_the_least_whose_tail_is_at_most_delta(epsilon, delta):
    law = DiscreteLaplace(1 / epsilon)
    threshold = release_threshold(law, delta)
    far = threshold + math.ceil(60 / epsilon)
    tail = float(np.exp(law.log_density(np.arange(threshold, far))).sum())
    assert tail <= delta
    assert threshold == 1 or tail + float(np.exp(law.log_density(threshold - 1))) > delta


def test_a_chain_is_recovered_saved_and_ready_for_another_release(tmp_path):
    rng = np.random.default_rng(3)
    chain = [rng.integers(0, 3, 5000)]
    for _ in range(4):
        chain.append(np.where(rng.random(5000) < 0.6, chain[-1], rng.integers(0, 3, 5000)))
    data = pd.DataFrame(np.column_stack(chain), columns=list("abcde"))
    model = bpm.declare(states={v: [0, 1, 2] for v in "abcde"})
    graph = StableStructure(epsilon=1.0, delta=1e-6).release(model, data, rng=1)
    assert graph.edges == (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"))
    assert set(map(frozenset, graph.network.edges())) == set(map(frozenset, graph.edges))
    graph.save(tmp_path / "graph.release")
    assert bpm.load_release(tmp_path / "graph.release").edges == graph.edges


@pytest.mark.parametrize("rows", [0, 1, 2000])
def test_unstable_data_are_refused_by_a_release_that_can_be_saved(rows, tmp_path):
    column = np.arange(rows) % 2
    data = pd.DataFrame(
        {"a": column, "copy": column, "c": (column + np.arange(rows) // 3) % 2, "flat": 0 * column}
    )
    model = bpm.declare(states={v: [0, 1] for v in data})
    graph = StableStructure(epsilon=1.0, delta=1e-6).release(model, data, rng=1)
    assert graph.is_refusal
    with pytest.raises(ModelError, match="structure='graph'"):
        graph.edges  # noqa: B018
    with pytest.raises(ModelError, match="refusal"):
        _ = graph.network
    graph.save(tmp_path / "graph.release")
    assert bpm.load_release(tmp_path / "graph.release").is_refusal


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 0.0},
        {"delta": 0.0},
        {"delta": 1.0},
        {"delta": math.nan},
        {"certificate": "trees"},
    ],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ArgumentError, match=f"`{next(iter(settings))}`"):
        StableStructure(**({"epsilon": 1.0, "delta": 1e-6} | settings))


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_scores_are_exact_at_the_most_records_that_are_told_apart_and_none_are_beyond(adjacency):
    codes, cards = np.array([[0, 0, 0], [1, 1, 1], [0, 0, 1], [0, 1, 1]], dtype=np.uint8), (2, 2, 2)

    def counted(records):
        counts = np.array([0, 9 * records // 20, records // 20, records // 30])
        return counts + np.array([records - counts.sum(), 0, 0, 0])

    counts = counted(LARGEST - 1)
    scores = scaled_scores(codes, counts, cards)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        both, one, two = (
            sum(int(n) for n, row in zip(counts, codes, strict=True) if row[list(columns)].all())
            for columns in ((i, j), (i,), (j,))
        )
        exact = 4 * abs((LARGEST - 1) * both - one * two)  # Python's whole numbers have no end
        assert int(scores[i, j]) == exact > 2**61
    tree = stable_tree(codes, counted(10**6), cards, adjacency)[0]
    assert stable_tree(codes, counts, cards, adjacency) == (
        tree,
        1,
    )  # one record from where none are told apart
    for beyond in (LARGEST, LARGEST + 5):
        assert stable_tree(codes, counted(beyond), cards, adjacency) == ((), 0)
    even = np.array([LARGEST // 2, LARGEST // 2, 0, 0])
    assert int(scaled_scores(codes, even, cards).max()) == 8 * (LARGEST // 2) ** 2 // 2


def test_a_noisy_distance_comes_with_every_graph_and_refusal():
    rng = np.random.default_rng(5)
    data = pd.DataFrame(rng.integers(0, 2, (400, 3)), columns=list("abc"))
    data["d"] = np.where(rng.random(400) < 0.9, data["c"], 1 - data["c"])
    model = bpm.declare(states={v: [0, 1] for v in data})
    graph = StableStructure(epsilon=1.0, delta=1e-6).release(model, data, rng=1)
    assert graph.is_refusal
    assert graph.details["noisy_distance"] < graph.details["needed"] == 14
    assert f"(noisy distance {graph.details['noisy_distance']}, 14 needed)" in str(graph)
    far = StableStructure(epsilon=1e3, delta=1e-6).release(model.copy(), data, rng=1)
    assert far.is_refusal or far.details["noisy_distance"] >= far.details["needed"] == 1


def test_two_variables_have_one_distance_whatever_the_records():
    found = {tree_and_distance(np.full((2, 2), n * n, dtype=np.int64), n * 8) for n in (0, 1, 50)}
    assert len(found) == 1


def test_a_record_that_moves_two_scores_apart_needs_the_whole_range():
    """Of 10,000 records one with all three states raises the score of one pair by four, and lowers another's."""
    cells = np.array(list(product(range(2), repeat=3)))
    counts = np.array([9738, 67, 95, 0, 62, 33, 5, 0])
    found = {}
    for unit in (8, 6):
        for added in (0, 1):
            now = counts + added * np.eye(8, dtype=np.int64)[7]
            scores = scaled_scores(cells[now > 0], now[now > 0], (2, 2, 2))
            found[unit, added] = tree_and_distance(scores, unit * int(now.sum()))
    assert found[8, 0][0] == found[8, 1][0]
    assert abs(found[8, 0][1] - found[8, 1][1]) <= 1
    assert abs(found[6, 0][1] - found[6, 1][1]) > 1
    assert gap_range(Adjacency.ADD_OR_REMOVE_ONE) == 8
    assert gap_range(Adjacency.REPLACE_ONE) == 16  # one removed, one added


class TestPromise(PromiseOfStableStructure):
    cards, unit = CARDS, 1.0

    def sets(self, adjacency):
        rng = np.random.default_rng(4)
        return [
            rng.multinomial(rng.integers(20, 150), rng.dirichlet(np.full(len(CELLS), 0.3)))
            for _ in range(15)
        ]

    def answer(self, counts, adjacency):
        return tree_and_distance(
            scores_of(counts), counts.sum() * max(int(self.unit * gap_range(adjacency)), 1)
        )

    def scale_scores(self, unit, monkeypatch):
        self.unit = unit


@pytest.mark.parametrize("step", ["structure.mechanism.stable_tree", "reading.coded._merged"])
def test_memory_that_runs_out_says_nothing_of_the_number_of_records(step, monkeypatch):
    def full(*_, **__):
        raise MemoryError("Unable to allocate an array with shape (3, 1000003)")

    monkeypatch.setattr(f"bayesprivmrf.mechanisms.{step}", full)
    network = bpm.declare(states={name: [0, 1] for name in "abc"})
    data = pd.DataFrame([[0, 1, 0]], columns=list("abc"))
    with pytest.raises(MemoryError) as caught:
        StableStructure(epsilon=1.0, delta=1e-6).release(network, data)
    assert "1000003" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_refused_graph_names_another_threshold():
    network = bpm.declare(states={"a": [0, 1], "b": [0, 1]})
    data = pd.DataFrame({"a": [0, 1] * 5, "b": [0, 1] * 5})
    graph = StableStructure(epsilon=0.1, delta=1e-9, structure="graph", threshold=0.25).release(
        network, data, rng=1
    )
    with pytest.raises(ModelError, match=r"`threshold` than 0\.25, or threshold='gap'"):
        graph.edges  # noqa: B018
