"""SelectMeasure in rounds: the first tables are a forest, and the model's room is given out by and by."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.learning.select_measure.measured_tables import parts_of
from bayesprivmrf.mechanisms import SelectMeasure
from bayesprivmrf.mechanisms.reading import CodedRecords
from bayesprivmrf.mechanisms.select_measure import AdaptiveRounds, rounds
from bayesprivmrf.mechanisms.select_measure import misfits as rounds_basis
from bayesprivmrf.mechanisms.select_measure import plan as rounds_plan
from bayesprivmrf.mechanisms.select_measure import size as rounds_size
from bayesprivmrf.privacy import Adjacency

from .contract import Recorder
from .test_wide_rounds import WidePlan


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
    found = SelectMeasure(rho=0.05).release(
        bpm.declare(states={v: range(3) for v in data}), data, rng=1
    )
    first = found.details["tables_by_round"][0]
    pairs = [
        each.query.scope for each in found.statistics.measurements if len(each.query.scope) > 1
    ][:first]
    assert {frozenset(pair) for pair in pairs} == {
        frozenset((f"v{i}", f"v{i + 1}")) for i in range(7)
    }


def test_whatever_stands_out_the_first_round_closes_no_ring():
    rng = np.random.default_rng(2)
    kind = rng.integers(0, 4, 3_000)  # all depend on all
    data = pd.DataFrame(
        {f"v{i}": np.where(rng.random(3_000) < 0.6, kind % 3, i % 3) for i in range(7)}
    )
    found = SelectMeasure(rho=1.0).release(
        bpm.declare(states={v: range(3) for v in data}), data, rng=3
    )
    first = found.details["tables_by_round"][0]
    pairs = [
        each.query.scope for each in found.statistics.measurements if len(each.query.scope) > 1
    ][:first]
    assert all(len(pair) == 2 for pair in pairs)
    assert nx.is_forest(nx.Graph(pairs))
    assert found.details["tables_measured"] > first  # rings and triples come later


def test_a_table_of_three_that_no_pair_tells_of_is_found_after_the_first_round():
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 2, (2, 4_000))
    data = pd.DataFrame({"a": a, "b": b, "c": a ^ b, "d": rng.integers(0, 2, 4_000)})
    found = SelectMeasure(rho=0.5).release(
        bpm.declare(states={v: [0, 1] for v in data}), data, rng=4
    )
    table = found.solution.marginal(["a", "b", "c"]).values
    assert (
        np.abs(table[tuple(np.nonzero(np.indices((2, 2, 2)).sum(axis=0) % 2 == 0))] - 0.25).max()
        < 0.02
    )


def test_parts_are_joined_by_tables_of_any_size():
    parts = parts_of(7, [(0,), (1, 4), (2, 5), (3, 4, 5)])
    assert parts.tolist() == [0, 1, 1, 1, 1, 1, 6]
    ends = rounds_basis.ends_across([(0, 6), (1, 5), (0, 1, 6), (2, 6)], parts)
    assert ends.tolist() == [[0, 6], [-1, -1], [-1, -1], [1, 6]]


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 1.0])
def test_a_model_is_within_a_share_of_the_size(share):
    """A clique of n variables of four states has 4^n cells."""
    size = rounds_size.Size((4,) * 12, (4,) * 12, 4**6, 1 << 40)
    pairs = [(i, j) for j in range(6) for i in range(j)]
    borne = [n for n in range(2, 7) if size.bears([c for c in pairs if max(c) < n], share)]
    assert borne
    assert size.share([c for c in pairs if max(c) < max(borne)]) <= share
    assert 4 ** max(borne) <= share * 4**6 < 2 * 4 ** (max(borne) + 1)


def random_run(seed: int):
    """A function of records that runs rounds over a small model with random settings; and records, and neighbours."""
    rng = np.random.default_rng(seed)
    relation = Adjacency(rng.choice(["add-or-remove-one", "replace-one"]))
    cards = (2, *rng.choice([1, 2, 3], 4).tolist(), 2)
    codes = rng.integers(0, cards, (60, 6))
    takes = rng.random(codes.shape) < 0.7
    codes = np.where(takes, codes[:, :1] % cards, codes)  # all depend on the first
    scopes = [c for size in (2, 3, 4) for c in itertools.combinations(range(6), size)]
    some = (*(scopes[k] for k in rng.integers(0, len(scopes), 3)), (0, 5))
    inside, workload = [(None, None), (some, None), (None, some), (some, some)][seed % 4]
    kind = WidePlan if seed % 8 == 0 else rounds_plan.RoundsPlan
    plan = kind(
        declared=cards, rho=10 ** rng.uniform(-1, 1), adjacency=relation, inside=inside, workload=workload,
        maximum_cells=int(rng.choice([20, 40, 200, 1 << 18])), memory=1 << 29,
    )  # fmt: skip
    source = Recorder(seed)

    def run(records):
        total = len(records) if relation is Adjacency.REPLACE_ONE else None
        codes = np.asfortranarray(records.astype(np.uint8))
        coded = CodedRecords.of(codes, np.ones(len(records), dtype=np.int64))
        found = AdaptiveRounds(plan=plan).run(coded, source, total)
        assert found.spent <= plan.rho
        released = [(each.scope, each.values.tolist(), each.law) for each in found.drawn.tables]
        return (released, found.drawn.by_round, found.fit.coordinates.tolist()), source.rewind()

    others = rng.integers(0, cards, (4, 6))
    if relation is Adjacency.REPLACE_ONE:
        return plan.rho, run, codes, [np.vstack([codes[1:], one]) for one in others]
    return plan.rho, run, codes, [codes[1:], *(np.vstack([codes, one]) for one in others)]


def costs_by_promise(seeds) -> Iterator[float]:
    """What the worst neighbour of each random run costs, as a share of the promise; all release the same."""
    for seed in seeds:
        rho, run, codes, neighbours = random_run(seed)
        released, here = run(codes)
        worst = 0.0
        for other in neighbours:
            same, there = run(other)
            assert same == released
            assert [step.public for step in there] == [step.public for step in here]
            worst = max(worst, float(sum(a.rho(b) for a, b in zip(here, there, strict=True))))
        yield worst / rho


def test_no_neighbour_of_random_models_workloads_and_declared_cliques_costs_more_than_is_promised():
    assert 0.99 < max(costs_by_promise(range(12))) <= 1 + 1e-12


def test_a_twin_whose_basis_is_not_a_heaviest_one_costs_more_than_is_promised(monkeypatch):
    """A forest by another order of the scores jumps where two of them change places."""

    def by_distance(scores, ends):
        across = np.flatnonzero(ends[:, 0] >= 0)
        middle = np.median(scores[across]) if across.size else 0
        order = across[np.argsort(np.abs(scores[across] - middle), kind="stable")]
        forest, kept = nx.Graph(), []
        for place in order:
            one, other = ends[place].tolist()
            if not {one, other} <= forest.nodes or not nx.has_path(forest, one, other):
                forest.add_edge(one, other)
                kept.append(place)
        return np.sort(np.concatenate([scores[ends[:, 0] < 0], scores[np.array(kept, dtype=int)]]))

    monkeypatch.setattr(rounds, "basis_scores", by_distance)
    assert any(cost > 1.01 for cost in costs_by_promise(range(0, 80, 4)))


def test_a_thousand_columns_have_a_size():
    """Their joint states, and those of a clique of all of them, are beyond what a float holds."""
    states = (10,) * 1_000
    size = rounds_size.Size(states, states, 1 << 20, 1 << 40)
    assert size.bears([(i, i + 1) for i in range(999)], 0.5)
    assert not size.bears([(i, j) for j in range(400) for i in range(j)])
    plan = SelectMeasure(rho=1.0).preview(
        bpm.declare(states={f"v{i}": range(10) for i in range(1_000)})
    )
    assert len(plan) == 1 + len(rounds_plan.ROUND_SHARES)


def test_little_room_bears_the_forest_first_and_what_fits_later():
    """Fourteen pairs of a chain of 15 have 126 cells; 200 leave a few for the rounds after the first."""
    data = chain(4_000, 15, 3)
    mechanism = SelectMeasure(rho=0.3, maximum_cells=200)
    found = mechanism.release(bpm.declare(states={v: range(3) for v in data}), data, rng=1)
    assert found.details["tables_by_round"][0] == 14
    assert len(found.details["tables_by_round"]) == len(rounds_plan.SIZE_SHARES)
