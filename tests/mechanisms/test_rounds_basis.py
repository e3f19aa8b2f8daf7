"""SelectMeasure in rounds: the first tables are a forest, and the model's room is given out by and by."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.mechanisms import SelectMeasure, rounds_basis, rounds_plan, rounds_size


def chain(records: int, variables: int, seed: int) -> pd.DataFrame:
    """Each variable copies the one before it with probability .7."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, (records, variables))
    for v in range(1, variables):
        codes[:, v] = np.where(rng.random(records) < 0.7, codes[:, v - 1], codes[:, v])
    return pd.DataFrame(codes, columns=[f"v{i}" for i in range(variables)])


def test_the_first_round_measures_a_forest_and_of_a_chain_the_chain():
    """Variables two steps apart depend on each other strongly too, and are not measured: the chain says it."""
    data = chain(4_000, 8, 1)
    found = SelectMeasure(rho=0.05).release(bpm.declare(states={v: range(3) for v in data}), data, rng=1)
    first = found.details["tables_by_round"][0]
    pairs = [each.query.scope for each in found.statistics.measurements if len(each.query.scope) > 1][:first]
    assert {frozenset(pair) for pair in pairs} == {frozenset((f"v{i}", f"v{i + 1}")) for i in range(7)}


def test_whatever_stands_out_the_first_round_closes_no_ring():
    rng = np.random.default_rng(2)
    kind = rng.integers(0, 4, 3_000)  # all depend on all
    data = pd.DataFrame({f"v{i}": np.where(rng.random(3_000) < 0.6, kind % 3, i % 3) for i in range(7)})
    found = SelectMeasure(rho=1.0).release(bpm.declare(states={v: range(3) for v in data}), data, rng=3)
    first = found.details["tables_by_round"][0]
    pairs = [each.query.scope for each in found.statistics.measurements if len(each.query.scope) > 1][:first]
    assert all(len(pair) == 2 for pair in pairs)
    assert nx.is_forest(nx.Graph(pairs))
    assert found.details["tables_measured"] > first  # rings and triples come later


def test_a_table_of_three_that_no_pair_tells_of_is_found_after_the_first_round():
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 2, (2, 4_000))
    data = pd.DataFrame({"a": a, "b": b, "c": a ^ b, "d": rng.integers(0, 2, 4_000)})
    found = SelectMeasure(rho=0.5).release(bpm.declare(states={v: [0, 1] for v in data}), data, rng=4)
    table = found.solution.marginal(["a", "b", "c"]).values
    assert np.abs(table[tuple(np.nonzero(np.indices((2, 2, 2)).sum(axis=0) % 2 == 0))] - 0.25).max() < 0.02


def test_parts_are_joined_by_tables_of_any_size():
    parts = rounds_basis.parts_of(7, [(0,), (1, 4), (2, 5), (3, 4, 5)])
    assert parts.tolist() == [0, 1, 1, 1, 1, 1, 6]
    ends = rounds_basis.ends_across([(0, 6), (1, 5), (0, 1, 6), (2, 6)], parts)
    assert ends.tolist() == [[0, 6], [-1, -1], [-1, -1], [1, 6]]


@pytest.mark.parametrize("share", rounds_plan.ROOM_SHARES)
def test_a_round_has_its_share_of_the_room(share):
    """A clique of n variables of four states has 4^n cells."""
    size = rounds_size.Size((4,) * 12, (4,) * 12, 4**6, 1 << 40)
    pairs = [(i, j) for j in range(6) for i in range(j)]
    borne = [n for n in range(2, 7) if size.bears([c for c in pairs if max(c) < n], share)]
    assert borne
    assert 4 ** max(borne) <= share * 4**6 < 2 * 4 ** (max(borne) + 1)
