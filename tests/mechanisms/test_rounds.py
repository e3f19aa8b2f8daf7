"""SelectMeasure without a degree: what its rounds spend, find, release and refuse."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.cli import main
from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError, NoiseWarning
from bayesprivmrf.inference import Status
from bayesprivmrf.learning import LearnedPotentials
from bayesprivmrf.learning.select_measure import Merging
from bayesprivmrf.mechanisms import SelectMeasure
from bayesprivmrf.mechanisms.reading import CodedRecords
from bayesprivmrf.mechanisms.select_measure import AdaptiveRounds, rounds
from bayesprivmrf.mechanisms.select_measure import misfits as pair_misfits
from bayesprivmrf.mechanisms.select_measure import plan as rounds_plan
from bayesprivmrf.privacy import Adjacency

from .contract import Recorder, neighbours_of, replayed

ADJACENCIES = ["add-or-remove-one", "replace-one"]
STATES = {"a": [0, 1, 2], "b": [0, 1, 2], "c": [0, 1], "d": list(range(12))}


def frame(records: int, seed: int = 0) -> pd.DataFrame:
    """Records in which b follows a, c follows b, and d, mostly 0, follows nothing."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 3, records)
    b = (a + (rng.random(records) < 0.3)) % 3
    c = (rng.random(records) < 0.2 + 0.2 * b).astype(int)
    d = rng.integers(0, 12, records) * (rng.random(records) < 0.1)
    return pd.DataFrame({"a": a, "b": b, "c": c, "d": d})


@pytest.fixture(scope="module")
def learned() -> LearnedPotentials:
    return SelectMeasure(rho=0.1).release(bpm.declare(states=STATES), frame(5000), rng=1)


# what a neighbour can change


def tables(records: list[tuple[int, ...]], scopes, shape) -> list[np.ndarray]:
    found = []
    for scope in scopes:
        table = np.zeros([shape[v] for v in scope], dtype=np.int64)
        for record in records:
            table[tuple(record[v] for v in scope)] += 1
        found.append(table.ravel())
    return found


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_neighbour_moves_a_misfit_or_an_order_statistic_by_more_than_is_paid_for(adjacency):
    shape, rng = (2, 3, 2), np.random.default_rng(3)
    scopes = [(0, 1), (0, 2), (1, 2), (0, 1, 2)]
    cells = list(itertools.product(*map(range, shape)))
    moved = rounds_plan.RoundsPlan(
        declared=shape, rho=1.0, adjacency=Adjacency(adjacency), inside=None, workload=None,
        maximum_cells=100, memory=10**6,
    ).moved * rounds_plan.MISFIT_STEPS  # fmt: skip
    largest = 0
    for _ in range(6):
        models = [rng.dirichlet(np.full(k, 0.5)) for k in (6, 4, 6, 12)]
        expected = [pair_misfits.expected_counts(model, 7.3) for model in models]
        allowance = rng.integers(0, 900, 4)
        data = [cells[k] for k in rng.integers(0, 12, 6)]

        def scores(records, expected=expected, allowance=allowance):
            found = zip(tables(records, scopes, shape), expected, strict=True)
            return np.array([pair_misfits.misfit(table, e) for table, e in found]) - allowance

        if adjacency == "replace-one":
            others = [[*data[:i], cell, *data[i + 1 :]] for i in range(6) for cell in cells]
        else:
            others = [[*data, cell] for cell in cells] + [
                data[:i] + data[i + 1 :] for i in range(6)
            ]
        here = scores(data)
        for other in others:
            there = scores(other)
            largest = max(largest, int(np.abs(here - there).max()))
            assert np.abs(np.sort(here) - np.sort(there)).max() <= moved
    assert largest == moved  # attained, and never exceeded


# the whole release, replayed on a neighbour


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_release_replayed_on_neighbours_is_the_same_and_costs_no_more_than_promised(adjacency):
    """Of six variables, in all rounds; `test_replay.py` has the same of four, with a twin that fails."""
    network = bpm.declare(
        states={name: STATES[name[0]] for name in ("a", "b", "c", "a2", "b2", "c2")}
    )
    data = pd.concat(
        [frame(400)[["a", "b", "c"]], frame(400, 1)[["a", "b", "c"]].add_suffix("2")], axis=1
    )
    outlier = pd.DataFrame({"a": [0], "b": [2], "c": [1], "a2": [1], "b2": [0], "c2": [1]})
    source, others = Recorder(5), neighbours_of(data, outlier, Adjacency(adjacency))
    found = replayed(SelectMeasure(rho=0.5, adjacency=adjacency), network, data, others, source)
    assert {np.ndim(answer) for answer in source.answers} == {1, 2}  # sums, and choices
    assert Fraction(0.5) / 3 < found <= Fraction(0.5)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_whatever_is_answered_the_filter_is_charged_no_more_than_the_budget(adjacency):
    codes = frame(300)[["a", "b", "c"]].to_numpy()
    for seed, rho in enumerate((1e-4, 0.3, 7.7)):
        plan = rounds_plan.RoundsPlan(
            declared=(3, 3, 2), rho=rho, adjacency=Adjacency(adjacency), inside=None, workload=None,
            maximum_cells=1000, memory=10**8,
        )  # fmt: skip
        records = CodedRecords.of(codes, np.ones(300, dtype=np.int64))
        run = AdaptiveRounds(plan=plan).run(records, Recorder(seed))
        assert run.spent <= Fraction(rho)
        assert (
            run.spent > 0.9 * rho or max(run.merging.cardinalities) == 1
        )  # nothing but rare states


@pytest.mark.slow
def test_an_audit_refutes_rounds_with_too_little_noise(monkeypatch, capsys):
    given = ["audit", "select-measure", "--rho", "1", "--runs", "100"]
    assert main(given) == 0
    laws, scale = rounds_plan.discrete_gaussian_laws, rounds_plan.selection_scale
    twins = {
        "discrete_gaussian_laws": lambda shares, rho, moved: laws(shares, rho, 0.9 * moved),
        "selection_scale": lambda moved, rho: 0.9 * scale(moved, rho),
    }
    for name, twin in twins.items():
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(rounds_plan, name, twin)
            assert main(given) == 3, name
        assert "round 1" in capsys.readouterr().out


# what is released


def test_tables_of_the_model_are_close_to_those_of_the_records(learned):
    data = frame(5000)
    assert learned.status == "converged"
    for pair in (("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")):
        shape = [STATES[v] for v in pair]
        counts = (
            pd.crosstab(data[pair[0]], data[pair[1]])
            .reindex(index=shape[0], columns=shape[1])
            .fillna(0)
        )
        off = (
            0.5
            * np.abs(learned.solution.marginal(list(pair)).values - counts.to_numpy() / 5000).sum()
        )
        assert off < 0.03, pair


def test_what_is_printed_says_how_the_fit_ended_and_what_to_do(learned):
    def shown(status: str) -> str:
        lines = repr(replace(learned, details=learned.details | {"status": status})).splitlines()
        return next(line for line in lines if line.strip().startswith("status"))

    assert shown("converged").split() == ["status", "converged"]
    assert "not trusted: do not use its numbers" in shown("not trusted")
    assert "iteration limit: the fit had not settled" in shown("iteration limit")
    assert "stopped early: the last fit failed" in shown("stopped early")
    assert "diverged: do not use its numbers" in shown("diverged")


def test_rare_states_are_merged_for_the_fit_and_given_back(learned):
    assert learned.details["merged_states"] > 0
    shares = learned.solution.marginal("d").values
    counts = np.bincount(frame(5000)["d"], minlength=12) / 5000
    assert np.abs(shares - counts).max() < 5 * 15.8 / 5000  # noise on a count, deviation 15.8
    assert (shares > 0).all()


def test_what_was_measured_is_read_by_the_estimators(learned):
    again = bpm.NoiseAwareMAP().fit(learned.statistics)
    pair = again.marginal(["a", "b"]) - learned.solution.marginal(["a", "b"])
    assert 0.5 * np.abs(pair.values).sum() < 0.02
    assert learned.statistics.guarantee == learned.guarantee
    assert learned.statistics.total is None
    assert abs(learned.statistics.estimated_total - 5000) < 60


def test_the_release_is_saved_with_what_was_measured(learned, tmp_path):
    learned.save(tmp_path / "x")
    again = bpm.load_release(tmp_path / "x")
    assert again.statistics == learned.statistics
    assert np.array_equal(again.tables.flat, learned.tables.flat)
    assert again.details == learned.details
    assert again.status == learned.status


def test_a_seed_gives_the_same_release(learned):
    network = bpm.declare(states=STATES)
    again = SelectMeasure(rho=0.1).release(network, frame(5000), rng=1)
    assert np.array_equal(again.tables.flat, learned.tables.flat)
    assert again.provenance.simulated


def test_only_declared_tables_are_measured():
    data = frame(2000)
    network = bpm.declare(states=STATES)
    asked = SelectMeasure(rho=1.0, workload=[("b", "a"), ("c", "d")]).release(network, data, rng=2)
    assert {frozenset(clique) for clique in asked.model.cliques} <= {
        frozenset("ab"),
        frozenset("cd"),
    } | {frozenset(v) for v in "abcd"}
    inside = SelectMeasure(rho=1.0).release(
        bpm.declare(states=STATES, cliques=[("a", "b"), ("c",), ("d",)]), data, rng=2
    )
    assert {frozenset(clique) for clique in inside.model.cliques} == {
        frozenset("ab"),
        *map(frozenset, "cd"),
    }


@pytest.mark.slow
def test_a_model_is_kept_within_the_size_asked_for():
    variables = {f"v{i}": [0, 1, 2, 3] for i in range(7)}
    rng = np.random.default_rng(4)
    base_column = rng.integers(0, 4, 3000)
    noise = rng.integers(0, 4, (3000, 7))
    kept = rng.random((3000, 7)) < 0.7
    data = pd.DataFrame(np.where(kept, base_column[:, None], noise), columns=list(variables))
    small = SelectMeasure(rho=5.0, maximum_cells=120).release(
        bpm.declare(states=variables), data, rng=1
    )
    large = SelectMeasure(rho=5.0).release(bpm.declare(states=variables), data, rng=1)
    from bayesprivmrf.marginals import forecast

    assert forecast((4,) * 7, small.model.scopes).total_cells <= 120
    assert small.graph().number_of_edges() < large.graph().number_of_edges()


def diverging(monkeypatch, fails):
    """Let the fits diverge whose number `fails` accepts, and return the list of all fits."""
    fits, real = [], rounds.fit_tables

    def failing(*given, **named):
        found = real(*given, **named)
        fits.append(found)
        lost = {
            "coordinates": np.full_like(found.coordinates, np.nan),
            "off": np.nan,
            "status": Status.DIVERGED,
        }
        return replace(found, **lost) if fails(len(fits)) else found

    monkeypatch.setattr(rounds, "fit_tables", failing)
    return fits


def test_a_fit_that_diverges_is_dropped_and_said(monkeypatch):
    fits = diverging(monkeypatch, lambda number: number > 2)
    release = SelectMeasure(rho=0.1).release(bpm.declare(states=STATES), frame(3000), rng=1)
    assert release.status == "stopped early"
    assert release.details["distance_from_optimum"] is None  # of the newest tables it is not known
    assert release.details["refits_that_failed"] == len(fits) - 2 > 0
    assert np.isfinite(release.tables.flat).all()
    assert len(release.statistics.measurements) > 4  # nothing that was measured is lost


@pytest.mark.parametrize("last", [False, True])
def test_a_first_fit_that_diverges_leaves_even_variables_and_finite_misfits(
    last, monkeypatch, tmp_path
):
    fits = diverging(monkeypatch, lambda number: last or number == 1)
    release = SelectMeasure(rho=0.1).release(bpm.declare(states=STATES), frame(3000), rng=1)
    assert release.details["refits_that_failed"] == (len(fits) if last else 1)
    assert release.status == ("diverged" if last else "converged")
    assert np.isfinite(release.tables.flat).all()
    assert len(release.statistics.measurements) > 4  # what was measured is kept
    release.save(tmp_path / "x")
    assert bpm.load_release(tmp_path / "x").details == release.details
    assert (release.details["distance_from_optimum"] is None) == last


def test_states_beyond_what_a_fit_bears_are_merged_even_if_they_are_not_rare():
    noisy = np.arange(2000.0) + 1000
    merging = Merging.of([noisy], [1.0])
    assert merging.cardinalities == (512,)
    assert (
        merging.groups[0][-511:] == np.arange(1, 512)
    ).all()  # the most frequent ones are by themselves
    assert merging.shares[0][:1489].sum() == pytest.approx(1)


# odd data


@pytest.mark.parametrize("records", [0, 1, 10])
def test_hardly_any_records_give_a_release_with_a_true_status(records):
    with pytest.warns(NoiseWarning, match="no table.*how many records"):
        release = SelectMeasure(rho=0.1).release(bpm.declare(states=STATES), frame(records), rng=1)
    assert release.status == "not trusted"
    assert np.isfinite(release.tables.flat).all()
    assert release.total < 200


def test_copies_one_state_and_ten_thousand_rare_states_are_borne():
    rng = np.random.default_rng(6)
    first = rng.integers(0, 3, 3000)
    data = pd.DataFrame(
        {"x": first, "copy": first, "one": 7, "many": rng.integers(0, 10_000, 3000), "zero": 0}
    )
    states = {
        "x": [0, 1, 2],
        "copy": [0, 1, 2],
        "one": [7],
        "many": list(range(10_000)),
        "zero": [0, 1, 2],
    }
    release = SelectMeasure(rho=1.0).release(bpm.declare(states=states), data, rng=1)
    table = release.solution.marginal(["x", "copy"]).values
    assert release.status == "converged"
    assert np.trace(table) > 0.97
    assert release.solution.marginal("zero").values[0] > 0.98


@pytest.mark.parametrize(
    ("settings", "kind", "match"),
    [
        ({"workload": []}, ArgumentError, "at least"),
        ({"workload": "ab"}, ArgumentError, "list of tables"),
        ({"workload": ["ab"]}, ArgumentError, "tuples"),
        ({"workload": [("a",)]}, ArgumentError, "two or more different variables"),
        ({"workload": [("a", "a")]}, ArgumentError, "two or more different variables"),
        ({"workload": [("a", "b")], "degree": 1}, ArgumentError, "`workload`"),
        ({"measure": "tables"}, ArgumentError, "`measure`"),
        ({"seconds": 10}, ArgumentError, "no `seconds` anymore.*`maximum_cells`"),
        ({"maximum_cells": 2}, ArgumentError, "`maximum_cells`"),
        ({"rho": 1e-30}, ArgumentError, "`rho`"),
        ({"rho": 1e300}, ArgumentError, "`rho`"),
        ({"workload": [("a", "nobody")]}, ModelError, "nobody"),
        ({"maximum_cells": 16}, ModelTooLargeError, "`maximum_cells`"),
    ],
)
def test_what_cannot_be_is_refused_before_the_data_are_read(settings, kind, match):
    with pytest.raises(kind, match=match):
        SelectMeasure(**{"rho": 1.0} | settings).release(
            bpm.declare(states=STATES), "no data at all"
        )


def test_a_table_that_does_not_fit_however_states_are_merged_is_refused_by_name():
    network = bpm.declare(states={f"v{i}": [0, 1] for i in range(30)})
    for workload in (
        [tuple(f"v{i}" for i in range(30))],
        [("v0", "v1"), tuple(f"v{i}" for i in range(20))],
    ):
        with pytest.raises(ModelTooLargeError, match=r"`workload`.*v0, v1, v2.*`maximum_cells`"):
            SelectMeasure(rho=1.0, workload=workload).release(network, "no data at all")
    long = bpm.declare(
        states={f"v{i}": range(500) for i in range(4)}
    )  # 2^4 cells merged, 500^4 declared
    with pytest.raises(ModelTooLargeError, match="MiB for declared states"):
        SelectMeasure(rho=1.0, workload=[tuple(f"v{i}" for i in range(4))]).preview(long)
    SelectMeasure(rho=1.0, workload=[tuple(f"v{i}" for i in range(15))]).preview(network)


def test_asked_tables_that_do_not_fit_are_named():
    data = pd.DataFrame({f"v{i}": np.arange(4000) // 4**i % 8 for i in range(4)})
    network = bpm.declare(states={name: range(8) for name in data})
    asking = SelectMeasure(rho=1.0, maximum_cells=100, workload=[("v0", "v1"), ("v0", "v1", "v2")])
    with pytest.warns(NoiseWarning, match=r"did not fit.*\(v0, v1, v2\)"):
        found = asking.release(network, data, rng=1)
    assert found.details["left_out"] == [["v0", "v1", "v2"]]


def test_nothing_to_couple_is_said_before_a_degree_that_is_too_large():
    with pytest.raises(ModelError, match="two variables with two or more states"):
        SelectMeasure(rho=1.0, degree=2).preview(bpm.declare(states={"a": [0], "b": [0]}))


def test_too_many_variables_within_declared_tables_are_refused_with_the_remedy():
    network = bpm.declare(states={f"v{i}": [0, 1] for i in range(200)})
    with pytest.raises(ModelTooLargeError, match="leave those out"):
        SelectMeasure(rho=1.0, workload=[("v0", "v1")]).preview(network)


def test_the_preview_adds_up_to_the_promise():
    mechanism = SelectMeasure(rho=0.3)
    shown = mechanism.preview(bpm.declare(states=STATES))
    assert shown["rho"].sum() == pytest.approx(0.3)
    assert mechanism.promise(bpm.declare(states=STATES)).rho == 0.3
