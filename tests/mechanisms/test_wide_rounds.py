"""Rounds of many variables: what a neighbour can change, what they find, and what they forecast and refuse."""

from __future__ import annotations

import itertools
import time
from fractions import Fraction

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from repeats import few

import bayesprivmrf as bpm
from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.learning.select_measure import GrowingForest, NoisyTable, fit_tables
from bayesprivmrf.marginals import forecast, marginal_of
from bayesprivmrf.mechanisms import SelectMeasure
from bayesprivmrf.mechanisms.reading import CodedRecords
from bayesprivmrf.mechanisms.select_measure import AdaptiveRounds, wide_rounds
from bayesprivmrf.mechanisms.select_measure import misfits as pair_misfits
from bayesprivmrf.mechanisms.select_measure import misfits as rounds_basis
from bayesprivmrf.mechanisms.select_measure import plan as rounds_plan
from bayesprivmrf.privacy import Adjacency

from .contract import Recorder, neighbours_of, replayed
from .test_rounds import ADJACENCIES, frame


class WidePlan(rounds_plan.RoundsPlan):
    """A plan whose rounds are those of many variables, however few there are."""

    is_wide = True


# the model: what a pair costs, and its table


def fitted(cardinalities, scopes, seed=0):
    rng = np.random.default_rng(seed)
    tables = [
        NoisyTable(scope=(v,), values=100 * rng.random(k) + 50, variance=np.full(k, 4.0))
        for v, k in enumerate(cardinalities)
    ]
    for scope in scopes:
        shape = tuple(cardinalities[v] for v in scope)
        tables.append(
            NoisyTable(
                scope=scope,
                values=200 * rng.dirichlet(np.full(shape, 0.5).ravel()).reshape(shape),
                variance=1.0,
            )
        )
    return fit_tables(tuple(cardinalities), tables, total=200.0, iterations=30)


MODELS = [
    ((2, 3, 2, 4, 2, 3), [(0, 1), (1, 2), (2, 3), (1, 4)]),
    ((2, 3, 2, 3, 2, 2, 3), [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4), (4, 5)]),
    ((2, 2, 3, 2, 2, 2), [(0, 1, 2), (2, 3), (1, 3), (3, 4, 5)]),
    ((3, 2, 2, 2, 2), [(0, 1), (0, 2), (0, 3), (0, 4)]),
]


@pytest.mark.parametrize(("cardinalities", "scopes"), MODELS)
def test_tables_of_near_pairs_are_those_of_the_model(cardinalities, scopes):
    fit = fitted(cardinalities, scopes)
    forest = GrowingForest(cardinalities, fit.effects.scopes)
    flat = fit.effects.potentials(fit.coordinates)
    found = {pair: table for pair, _, table in forest.near(fit.effects, fit.coordinates, 10**6)}
    graph = nx.Graph(pair for scope in scopes for pair in itertools.combinations(scope, 2))
    joined = {
        (u, v) for part in nx.connected_components(graph) for u in part for v in part if u < v
    }
    assert {scope for scope in found if len(scope) == 2} == joined
    assert {scope for scope in found if len(scope) == 3} == {
        triple for clique in forest.cliques for triple in itertools.combinations(sorted(clique), 3)
    }
    for scope, table in found.items():
        assert table == pytest.approx(
            marginal_of(cardinalities, fit.effects.scopes, flat, scope), abs=1e-12
        )


@pytest.mark.parametrize(("cardinalities", "scopes"), MODELS)
def test_pairs_that_are_added_cost_what_was_said_and_leave_a_junction_forest(cardinalities, scopes):
    rng = np.random.default_rng(1)
    alone = [(v,) for v in range(len(cardinalities))]
    forest, model = GrowingForest(cardinalities, [*scopes, *alone]), [*scopes, *alone]
    for u, v in rng.permutation(list(itertools.combinations(range(len(cardinalities)), 2)))[
        :6
    ].tolist():
        before, said = forest.cells, forest.cost(u, v)
        forest.add(u, v)
        model.append((u, v))
        assert forest.cells == before + said
        assert forest.cells == sum(np.prod([cardinalities[w] for w in c]) for c in forest.cliques)
        assert all(forest.holds(tuple(sorted(scope))) for scope in model)
        assert forest.cells >= forecast(cardinalities, model).total_cells  # the bound is one
        assert forest.cost(u, v) == 0
        for w in range(len(cardinalities)):  # the cliques of a variable hang together
            held = [place for place, clique in enumerate(forest.cliques) if w in clique]
            links = nx.Graph([(a, b) for a in held for b in forest.links[a] if b in held])
            links.add_nodes_from(held)
            assert nx.is_connected(links)
            assert nx.is_forest(links)


def test_a_reach_leaves_out_pairs_that_add_more():
    fit = fitted((2,) * 6, [(v, v + 1) for v in range(5)])
    forest = GrowingForest((2,) * 6, fit.effects.scopes)
    near = {pair: cost for pair, cost, _ in forest.near(fit.effects, fit.coordinates, 8)}
    assert near == {
        (u, v): forest.cost(u, v)
        for u, v in itertools.combinations(range(6), 2)
        if forest.cost(u, v) <= 8
    }
    assert 5 < len(near) < 15


# what a neighbour can change


def neighbours(records, cells, adjacency):
    if adjacency == "replace-one":
        return [
            [*records[:i], cell, *records[i + 1 :]] for i in range(len(records)) for cell in cells
        ]
    return [[*records, cell] for cell in cells] + [
        records[:i] + records[i + 1 :] for i in range(len(records))
    ]


@pytest.mark.parametrize("adjacency", few(["replace-one", "add-or-remove-one"]))
def test_no_neighbour_moves_a_score_of_a_heaviest_basis_by_more_than_is_paid_for(adjacency):
    shape, steps, rng = (2, 3, 2, 2), rounds_plan.MISFIT_STEPS, np.random.default_rng(2)
    cells = list(itertools.product(*map(range, shape)))
    pairs = list(itertools.combinations(range(4), 2))
    moved = (1 if adjacency == "add-or-remove-one" else 2) * steps
    ends = np.array(pairs)
    ends[5] = -1  # this one is within a part
    largest = 0
    for _ in range(8):
        shares = [rng.dirichlet(np.ones(k)) for k in shape]
        allowance = rng.integers(0, 200, len(pairs))
        expected = [
            pair_misfits.expected_counts(np.outer(shares[u], shares[v]), 5.5) for u, v in pairs
        ]

        def scores(records, shares=shares, allowance=allowance, expected=expected):
            codes, ones = np.array(records, dtype=np.uint8), np.ones(len(records), dtype=np.int64)
            found = pair_misfits.independent_misfits(codes, ones, shares, 5.5)[
                tuple(np.array(pairs).T)
            ]
            again = pair_misfits.pair_misfits(codes, ones, shape, pairs, expected)
            assert np.array_equal(found, again)
            tables = [
                np.bincount(codes[:, u] * shape[v] + codes[:, v], minlength=shape[u] * shape[v])
                for u, v in pairs
            ]
            assert found.tolist() == [
                pair_misfits.misfit(t, e) for t, e in zip(tables, expected, strict=True)
            ]
            return found - allowance

        here = [cells[k] for k in rng.integers(0, len(cells), 5)]
        ours = scores(here)
        for other in neighbours(here, cells, adjacency):
            theirs = scores(other)
            assert np.abs(ours - theirs).max() <= moved
            change = rounds_basis.basis_scores(ours, ends) - rounds_basis.basis_scores(theirs, ends)
            largest = max(largest, int(np.abs(change).max()))
            assert np.abs(change).max() <= moved
    assert largest == moved  # attained, and never exceeded


def test_the_basis_is_the_heaviest_one():
    rng = np.random.default_rng(3)
    pairs = np.array(list(itertools.combinations(range(5), 2)))
    for _ in range(20):
        scores = rng.integers(-50, 50, len(pairs))
        graph = nx.Graph()
        graph.add_weighted_edges_from(
            (u, v, s) for (u, v), s in zip(pairs.tolist(), scores.tolist(), strict=True)
        )
        best = sorted(edge["weight"] for *_, edge in nx.maximum_spanning_edges(graph))
        assert rounds_basis.basis_scores(scores, pairs).tolist() == best


def test_weighted_records_count_as_often_as_they_occur():
    codes = np.array([[0, 1], [1, 1], [0, 0]], dtype=np.uint8)
    counts = np.array([3, 1, 2])
    shares = [np.array([0.5, 0.5]), np.array([0.25, 0.75])]
    repeated = pair_misfits.independent_misfits(
        np.repeat(codes, counts, axis=0), np.ones(6, dtype=np.int64), shares, 6.0
    )
    assert np.array_equal(pair_misfits.independent_misfits(codes, counts, shares, 6.0), repeated)


def wide_data(records: int) -> pd.DataFrame:
    return pd.concat(
        [frame(records, seed)[["a", "b", "c"]].add_suffix(str(seed)) for seed in range(3)], axis=1
    )


STATES = {f"{name}{seed}": range(2 if name == "c" else 3) for seed in range(3) for name in "abc"}


@pytest.mark.parametrize("adjacency", few(ADJACENCIES))
def test_a_wide_release_replayed_on_neighbours_is_the_same_and_costs_no_more_than_promised(
    adjacency, monkeypatch
):
    monkeypatch.setattr(rounds_plan, "MOST_VARIABLES", 5)
    monkeypatch.setattr(wide_rounds, "BATCHES", 3)
    network, data = bpm.declare(states=STATES), wide_data(600)
    outlier = pd.DataFrame([{name: len(states) - 1 for name, states in STATES.items()}])
    source, others = Recorder(3), neighbours_of(data, outlier, Adjacency(adjacency))
    found = replayed(SelectMeasure(rho=0.7, adjacency=adjacency), network, data, others, source)
    assert any(
        np.ndim(answer) == 2 and answer.shape[1] > 1 for answer in source.answers
    )  # several at once
    assert Fraction(0.7) / 4 < found <= Fraction(0.7)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_whatever_is_answered_the_filter_is_charged_no_more_than_the_budget(adjacency):
    codes = wide_data(300).to_numpy().astype(np.uint8)
    for seed, rho in enumerate((1e-4, 0.3, 7.7)):
        plan = WidePlan(
            declared=(3, 3, 2) * 3, rho=rho, adjacency=Adjacency(adjacency), inside=None, workload=None,
            maximum_cells=300, memory=10**8,
        )  # fmt: skip
        records = CodedRecords.of(codes, np.ones(300, dtype=np.int64))
        run = AdaptiveRounds(plan=plan).run(records, Recorder(seed))
        assert run.spent <= Fraction(rho)
        assert forecast(run.merging.cardinalities, run.fit.effects.scopes).total_cells <= 300


def test_rounds_whose_tables_do_not_fit_leave_the_rest_to_single_variables():
    """Tables are found not to fit once they are chosen: the choices are paid for, and no table of theirs is."""
    plan = WidePlan(
        declared=(3, 3, 2) * 3, rho=1.0, adjacency=Adjacency("add-or-remove-one"), inside=None, workload=None,
        maximum_cells=300, memory=1,
    )  # fmt: skip
    codes = wide_data(300).to_numpy().astype(np.uint8)
    records = CodedRecords.of(codes, np.ones(300, dtype=np.int64))
    run = AdaptiveRounds(plan=plan).run(records, Recorder(1))
    assert not run.drawn.measured
    assert not run.drawn.by_round
    assert [each.scope for each in run.drawn.again] == [(v,) for v in range(9)]
    assert run.drawn.again[0].law.variance < run.drawn.singles[0].law.variance / 5
    assert 1 - 1e-9 < run.spent <= 1


# what is released, forecast and refused


def chain(variables: int, records: int) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    columns = [rng.integers(0, 2, records)]
    for _ in range(variables - 1):
        columns.append(
            np.where(rng.random(records) < 0.8, columns[-1], rng.integers(0, 2, records))
        )
    return pd.DataFrame({f"v{i}": column for i, column in enumerate(columns)})


@pytest.mark.slow
def test_a_chain_of_40_variables_is_found():
    data = chain(40, 4000)
    found = SelectMeasure(rho=1.0).release(
        bpm.declare(states={name: [0, 1] for name in data}), data, rng=1
    )
    right = {frozenset((f"v{i}", f"v{i + 1}")) for i in range(39)}
    assert found.status == "converged"
    assert right <= {frozenset(edge) for edge in found.graph().edges}
    for pair in (("v3", "v4"), ("v3", "v5"), ("v10", "v35")):
        counts = pd.crosstab(data[pair[0]], data[pair[1]]).to_numpy() / 4000
        assert 0.5 * np.abs(found.solution.marginal(list(pair)).values - counts).sum() < 0.03, pair


def test_a_forecast_grows_with_variables_and_records_and_says_time_memory_and_noise():
    def shown(variables=150, states=4, total=10_000.0, rho=1.0):
        network = bpm.declare(states={f"v{i}": range(states) for i in range(variables)})
        return SelectMeasure(rho=rho).preview(network, total=total)

    least = shown()
    assert (least["seconds"] > 0).all()
    assert least["noise_sd"].notna().all()
    assert least["rho"].sum() == pytest.approx(1.0)
    for more in ({"variables": 300}, {"total": 100_000.0}):
        assert shown(**more)["seconds"].sum() > least["seconds"].sum(), more
        assert shown(**more)["memory_bytes"].max() >= least["memory_bytes"].max(), more
    assert shown(rho=4.0)["noise_sd"].tolist() == pytest.approx(
        (least["noise_sd"] / 2).tolist(), rel=1e-3
    )


@pytest.mark.parametrize(("settings", "match"), [({"maximum_cells": 10**9}, "GiB")])
def test_what_does_not_fit_is_refused_before_the_data_are_read(settings, match):
    network = bpm.declare(states={f"v{i}": range(10) for i in range(150)})
    with pytest.raises(ModelTooLargeError, match=match):
        SelectMeasure(rho=1.0, **settings).release(network, "no data at all")


def test_a_number_of_records_that_does_not_fit_is_refused_by_the_preview():
    network = bpm.declare(states={f"v{i}": range(3) for i in range(150)})
    with pytest.raises(ModelTooLargeError, match="records would take"):
        SelectMeasure(rho=1.0).preview(network, total=10**8)


def test_a_forecast_counts_the_last_fit_of_small_models_alone():
    """The last fit learns scales, and only of the effects that declared cliques or a workload allow."""
    names = [f"v{i}" for i in range(11)]
    states = {name: range(2 + i % 3) for i, name in enumerate(names)}

    def last(states, cliques=None, **settings):
        shown = SelectMeasure(rho=0.1, **settings).preview(bpm.declare(states, cliques), total=1500)
        return shown["seconds"].diff().iloc[-1]

    whole = last(states)
    assert whole > 0.5
    assert last(states, workload=[("v0", "v1")]) < whole / 3
    assert last(states, list(itertools.pairwise(names))) < whole / 3


def test_columns_up_to_a_hundred_are_forecast_to_take_seconds_whatever_their_number():
    for variables in (31, 69, 100, 101):
        network = bpm.declare(states={f"v{i}": [0, 1] for i in range(variables)})
        assert SelectMeasure(rho=0.5).preview(network, total=5_000)["seconds"].sum() < 40, variables


@pytest.mark.slow
def test_a_release_of_fifty_columns_takes_seconds_and_about_as_long_as_forecast():
    data = chain(49, 3000)
    network = bpm.declare(states={name: [0, 1] for name in data})
    mechanism = SelectMeasure(rho=0.5)
    begin = time.process_time()
    mechanism.release(network, data, rng=1)
    taken, said = (
        time.process_time() - begin,
        mechanism.preview(network, total=3000)["seconds"].sum(),
    )
    assert taken < 30
    assert said / 5 < taken < 5 * said  # CPU seconds beside another worker
