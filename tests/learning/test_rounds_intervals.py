"""Intervals for the tables of a model that was learned in rounds."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from repeats import few
from scipy.stats import chi2

import bayesprivmrf as bpm
from bayesprivmrf.cli.fit import trusted_tables
from bayesprivmrf.errors import ArgumentError, ModelError, NoIntervalError, NoiseWarning
from bayesprivmrf.inference import Status
from bayesprivmrf.learning.select_measure import MeasuredTable, Merging
from bayesprivmrf.mechanisms import DPSGD, SelectMeasure

STATES = {"b": ["y", "x"], 0: [2, 0, 1], "a": [0, 1], "one": ["only"]}
ALL = [("b", 0), (0, "a"), ("b", "a")]


def records(size, seed=0):
    rng = np.random.default_rng(seed)
    b = rng.integers(0, 2, size)
    middle = np.where(rng.random(size) < 0.5, b, rng.integers(0, 3, size))
    a = np.where(rng.random(size) < 0.6, middle % 2, 0)
    return pd.DataFrame({"b": np.array(["x", "y"])[b], 0: middle, "a": a, "one": "only"})


@pytest.fixture(scope="module")
def learned():
    mechanism = SelectMeasure(rho=0.05, workload=[("b", 0), (0, "a")])
    return mechanism.release(bpm.declare(states=STATES), records(3000), rng=1)


def test_a_table_has_an_interval_a_cell_in_the_order_asked(learned):
    found = learned.solution.interval(["a", "b"])
    turned = learned.solution.interval(["b", "a"])
    assert list(found.index) == [(0, "y"), (0, "x"), (1, "y"), (1, "x")]
    assert found.loc[(1, "y")].to_numpy() == pytest.approx(turned.loc[("y", 1)].to_numpy())
    assert found["estimate"].to_numpy() == pytest.approx(
        learned.solution.marginal(["a", "b"]).values.ravel()
    )
    assert (found["lower"] <= found["estimate"]).all()
    assert found["lower"].min() >= 0
    assert found["upper"].max() <= 1
    assert learned.solution.interval("one")[["lower", "upper"]].to_numpy() == pytest.approx(1)


def test_tables_by_way_of_merged_states_are_those_of_the_declared_model():
    """A column of 40 states, most of them merged: the model's potentials, taken as they are, say the same."""
    rng = np.random.default_rng(5)
    job = np.where(rng.random(4000) < 0.95, rng.integers(0, 4, 4000), rng.integers(0, 40, 4000))
    data = pd.DataFrame(
        {"job": job, "sick": (rng.random(4000) < 0.2 + 0.2 * (job % 2)).astype(int)}
    )
    data["old"] = (rng.random(4000) < 0.3 + 0.4 * data["sick"]).astype(int)
    network = bpm.declare(states={"job": list(range(40)), "sick": [0, 1], "old": [0, 1]})
    learned = SelectMeasure(rho=0.05).release(network, data, rng=2)
    assert learned.details["merged_states"] > 10
    found, plain = (
        learned.solution,
        bpm.Solution(
            specification=learned.specification,
            potentials=learned.potentials,
            method="",
            status=learned.status,
        ),
    )
    assert found.log_partition == pytest.approx(plain.log_partition)
    assert found.marginals.flat == pytest.approx(plain.marginals.flat)
    for query in (["old", "job"], ["job"], ["sick", "job", "old"]):
        assert found.marginal(query).values == pytest.approx(plain.marginal(query).values)
    for given in (
        {"job": 39},
        {"job": 0, "old": 1},
        {"job": {0, 1, 20, 39}},
        {"job": list(range(2, 40)), "old": [1]},
    ):
        assert found.marginal("sick", given=given).values == pytest.approx(
            plain.marginal("sick", given=given).values
        )


def test_what_no_table_holds_together_is_named_and_wider(learned):
    unmeasured, measured = (
        learned.solution.interval(["a", "b"]),
        learned.solution.interval(["b", 0]),
    )
    assert (unmeasured["status"] == "not trusted").all()
    assert unmeasured["note"].str.endswith("not measured together: b × a").all()
    assert (measured["status"] == "ok").all()
    note = learned.solution.interval(list(STATES))["note"].iloc[0]
    assert note.endswith("not measured together: b × a; not measured together: b × 0 × a")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (Status.STOPPED_EARLY, "not trusted"),
        (Status.NOT_TRUSTED, "not trusted"),
        (Status.ITERATION_LIMIT, "doubtful"),
    ],
)
def test_intervals_about_a_fit_that_did_not_end_say_so(learned, status, said):
    assert (replace(learned.solution, status=status).interval(["b", 0])["status"] == said).all()


def test_an_interruption_is_named_in_place_of_a_failure(learned):
    stopped = replace(learned.solution, status=Status.STOPPED_EARLY)
    assert stopped.interval(["b", 0])["note"].str.startswith("simulated; the last fit failed").all()
    stopped = replace(stopped, stats={**stopped.stats, "interrupted_by": "KeyboardInterrupt"})
    note = stopped.interval(["b", 0])["note"]
    assert note.str.startswith("simulated; a KeyboardInterrupt interrupted the release").all()


def test_intervals_of_a_loaded_release_are_the_same(learned, tmp_path):
    learned.save(tmp_path / "learned.release")
    again = bpm.load_release(tmp_path / "learned.release").solution.interval([0, "a"])
    pd.testing.assert_frame_equal(again, learned.solution.interval([0, "a"]))


@pytest.mark.parametrize("rare", [2.0, 6.0])
def test_a_release_keeps_the_groups_that_it_was_made_with(rare, tmp_path, monkeypatch):
    """A file may be older than the rule by which states are rare."""
    rng = np.random.default_rng(0)
    many = rng.geometric(0.25, 4_000).clip(max=60)
    data = pd.DataFrame({"many": many, "few": np.where(rng.random(4_000) < 0.7, many % 3, 0)})
    network = bpm.declare(states={"many": range(1, 61), "few": range(3)})
    made = SelectMeasure(rho=0.1).release(network, data, rng=1)
    before, told = made.solution.interval(["few", "many"]), trusted_tables(made.solution)
    made.save(tmp_path / "made.release")
    monkeypatch.setattr("bayesprivmrf.learning.select_measure.measured_tables.RARE", rare)
    again = bpm.load_release(tmp_path / "made.release")
    own = Merging.released(again.domain, again.statistics.measurements)
    measured = [MeasuredTable.of(each, again.domain) for each in again.statistics.measurements]
    assert own.cardinalities != Merging.by(again.domain.cardinalities, measured).cardinalities
    pd.testing.assert_frame_equal(again.solution.interval(["few", "many"]), before)
    assert trusted_tables(again.solution) == told


def test_intervals_of_couplings_are_refused_with_those_that_there_are(learned):
    with pytest.raises(
        ModelError, match=r"after SelectMeasure\(rho\) .* `learned.interval.* degree="
    ):
        learned.couplings_interval()
    pd.testing.assert_frame_equal(
        learned.interval(["a", "b"]), learned.solution.interval(["a", "b"])
    )
    pairs = SelectMeasure(rho=1.0, degree=1).release(
        bpm.declare(states=STATES), records(3000), rng=1
    )
    assert len(pairs.couplings_interval()) > 0


def test_tables_of_a_model_of_couplings_have_the_intervals_of_what_was_measured():
    pairs = SelectMeasure(rho=1.0, degree=1).release(
        bpm.declare(states=STATES), records(3000), rng=1
    )
    fitted = bpm.NoiseAwareMAP().fit(pairs.statistics)
    for asked in ({}, {"of": "records"}, {"given": {0: 2}}, {"given": {0: {1, 2}}}):
        found = pairs.interval(["b", "a"], 0.8, **asked)
        pd.testing.assert_frame_equal(found, fitted.interval(["b", "a"], 0.8, **asked))
    assert list(found.columns) == ["estimate", "lower", "upper", "status", "note"]
    assert pairs.interval(0)["estimate"].sum() == pytest.approx(
        1
    )  # a variable may be named by a number
    with pytest.raises(NoIntervalError, match=r"ask the release: `learned.interval"):
        pairs.solution.interval(["a"])


def test_settings_of_couplings_are_no_arguments_of_an_interval(learned):
    for asked in ({}, {"variables": ["a"], "rng": 1}, {"method": "linearised"}):
        with pytest.raises(TypeError, match="interval"):
            learned.interval(**asked)
    with pytest.raises(ModelError, match=r"variable 0.9 is not declared"):
        learned.interval(0.9)


def test_potentials_that_no_rounds_learned_have_no_intervals_and_say_what_has():
    network = bpm.declare(states=STATES, cliques=[*ALL, ("one",)])
    fitted = DPSGD(epsilon=1.0, delta=1e-5, steps=2).release(network, records(300), rng=1)
    with pytest.raises(ModelError, match=r"after DPSGD measure its cliques .* NoiseAwareMAP"):
        fitted.couplings_interval()


def test_what_is_no_level_or_variable_is_refused(learned):
    with pytest.raises(ArgumentError, match="`prob`"):
        learned.solution.interval("a", prob=1.5)
    with pytest.raises(ArgumentError, match="`of`"):
        learned.solution.interval("a", of="people")
    with pytest.raises(ModelError, match="sex"):
        learned.solution.interval(["a", "sex"])


@pytest.mark.slow
def test_the_width_of_an_interval_is_the_spread_of_estimates_of_the_same_records():
    """Of 60 releases: each ratio of deviations within 5 standard errors, .09 each, of one, and their mean within .2.

    A workload of all pairs is measured whole in each round, so that what varies is the noise alone.
    """
    network, data = bpm.declare(states=STATES), records(40_000)
    mechanism = SelectMeasure(rho=0.05, workload=ALL)
    found = [mechanism.release(network, data, rng=seed).solution for seed in range(60)]
    for table in (["b"], ["b", 0], ["a", "b"]):
        frames = [solution.interval(table, of="records") for solution in found]
        spread = np.std([frame["estimate"] for frame in frames], axis=0)
        stated = np.mean([frame["upper"] - frame["lower"] for frame in frames], axis=0) / (
            2 * 1.645
        )
        assert spread / stated == pytest.approx(np.ones(len(spread)), abs=0.45)
        assert np.mean(spread / stated) == pytest.approx(1, abs=0.2)


@pytest.mark.filterwarnings(
    "ignore:the noise hides all dependence"
)  # of two columns that do not depend
@pytest.mark.slow
def test_intervals_of_rare_states_that_were_merged_hold_their_shares():
    """Of 30 states 24 are rare; 90 % intervals of 20 releases: at least .8 of 480 (level below 1e-6 if .9 hold)."""
    rng = np.random.default_rng(3)
    codes = np.where(rng.random(5000) < 0.95, rng.integers(0, 6, 5000), rng.integers(0, 30, 5000))
    data = pd.DataFrame(
        {"job": codes, "sick": (rng.random(5000) < 0.2 + 0.1 * (codes % 2)).astype(int)}
    )
    network = bpm.declare(states={"job": list(range(30)), "sick": [0, 1]})
    truth, held = np.bincount(codes, minlength=30), []
    for seed in range(20):
        frame = (
            SelectMeasure(rho=0.02)
            .release(network, data, rng=seed)
            .solution.interval("job", of="records")
        )
        held.append((frame["lower"] <= truth) & (truth <= frame["upper"]))
    assert np.mean(held) > 0.8
    assert np.mean(held, axis=0).min() > 0.6


@pytest.mark.filterwarnings("ignore:the noise hides all dependence")
@pytest.mark.parametrize("rho", few([0.03, 0.1, 0.01]))
@pytest.mark.parametrize(("of", "occupied", "size"), [("population", 20, 60), ("records", 5, 150)])
def test_intervals_hold_the_few_states_of_a_group_that_are_not_empty(rho, of, occupied, size):
    """One state has nearly all records, some have a few each, the others none: 120 intervals, nominal .9.

    Below .75 of them with probability 1e-6 if .9 hold. The noise of empty states must not take from the others.
    """
    gain = np.repeat(np.arange(occupied + 1), [50_000 - occupied * size, *[size] * occupied])
    truth = np.bincount(gain, minlength=100) / (gain.size if of == "population" else 1)
    data = pd.DataFrame({"gain": gain, "sex": np.arange(gain.size) % 2})
    network, held = bpm.declare(states={"gain": list(range(100)), "sex": [0, 1]}), []
    for seed in range(120 // occupied):
        solution = SelectMeasure(rho=rho).release(network, data, rng=seed).solution
        frame = solution.interval("gain", of=of)
        assert (frame["lower"] <= frame["estimate"]).all()
        assert (frame["estimate"] <= frame["upper"]).all()
        held.append(((frame["lower"] <= truth) & (truth <= frame["upper"]))[1 : occupied + 1])
    assert np.mean(held) > 0.75


def test_rows_of_merged_states_are_doubtful_in_tables_of_several_variables():
    gain = np.repeat(np.arange(4), [4_000, 800, 3, 2])
    place = np.arange(gain.size)
    data = pd.DataFrame(
        {"gain": gain, "sex": np.where(gain == 1, place % 10 > 0, place % 2).astype(int)}
    )
    network = bpm.declare(states={"gain": list("abcd"), "sex": [0, 1]})
    data["gain"] = np.array(list("abcd"))[gain]
    solution = SelectMeasure(rho=0.01).release(network, data, rng=1).solution
    for asked, rows in (
        ("gain", []),
        ("sex", []),
        (["sex", "gain"], [(0, "c"), (0, "d"), (1, "c"), (1, "d")]),
    ):
        frame = solution.interval(asked)
        assert frame.index[frame["status"] == "doubtful"].tolist() == rows


def test_a_model_of_no_records_is_not_trusted_nor_are_its_intervals():
    network = bpm.declare(states={"a": [0, 1, 2], "b": [0, 1]})
    data = pd.DataFrame({"a": [0], "b": [1]}).iloc[:0]
    with pytest.warns(NoiseWarning, match="hides all dependence"):
        learned = SelectMeasure(rho=0.1).release(network, data, rng=1)
    assert learned.status is bpm.Status.NOT_TRUSTED
    frame = learned.solution.interval(["a", "b"])
    assert (frame["status"] == "not trusted").all()


@pytest.mark.parametrize(
    ("records", "rho", "rare"),
    [
        (4_000, 2.0, None),
        pytest.param(4_000, 0.002, None, marks=pytest.mark.slow),
        pytest.param(20_000, 0.05, 0.02, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_errors_of_effects_are_their_spread_over_records_and_noise(records, rho, rare):
    """Chi-square limits of a standard deviation of 24 releases, level 1e-4, a tenth wider for the first order.

    Sampling alone; noise and sampling; and both beside a third variable of which one state is rare.
    """
    states = {"a": [0, 1], "b": [0, 1, 2]} | ({} if rare is None else {"c": [0, 1]})
    network, rng = bpm.declare(states=states), np.random.default_rng(8)
    couplings, errors = [], []
    for seed in range(24):
        b = rng.integers(0, 3, records)
        data = pd.DataFrame({"a": (rng.random(records) < 0.3 + 0.2 * b).astype(int), "b": b})
        if rare is not None:
            data["c"] = (rng.random(records) < rare).astype(int)
        found = SelectMeasure(rho=rho).release(network, data, rng=seed).summary()["couplings"]
        (pair,) = [each for each in found if each["variables"] == ["a", "b"]]
        couplings.append(pair["coupling"])
        errors.append(pair["error"])
    low, high = np.sqrt(chi2.ppf([5e-5, 1 - 5e-5], 23) / 23)
    assert low / 1.1 < np.std(couplings, ddof=1) / np.median(errors) < high * 1.1


def test_of_many_states_that_nobody_has_hardly_one_passes_for_one_that_somebody_has():
    """Half a one of 10,000 is expected; three deviations would let 67 pass in five draws. Of 300 nothing changes."""
    rng = np.random.default_rng(8)
    alone = [Merging.of([rng.normal(0, 4.0, 10_000)], [4.0]).cardinalities[0] - 1 for _ in range(5)]
    assert sum(alone) <= 15  # level 1e-8
    few = np.append(np.zeros(298), [12.1, 11.9])  # a little above and below three deviations of 4
    assert Merging.of([few], [4.0]).cardinalities == (2,)


@pytest.mark.slow
@pytest.mark.parametrize("rho", few([1.0, 100.0]))
@pytest.mark.parametrize("seed", few(range(3)))
def test_a_fit_that_has_converged_is_off_by_less_than_the_noise_where_sampling_is_much_more(
    seed, rho
):
    """Of a million sparse records each share is known to .0001 or less: a tenth of sampling is a whole interval."""
    rng = np.random.default_rng([7, seed])
    kind = rng.choice(4, 1_000_000, p=[0.7, 0.2, 0.07, 0.03])
    shares = 0.5 / np.arange(1, 11) ** 1.3 * np.exp(rng.normal(0, 1.5, (4, 10)))
    sites = (rng.random((kind.size, 10)) < np.clip(shares, 3e-4, 0.95)[kind]).astype(int)
    for v in range(2, 10, 3):  # mostly both of the two before it
        sites[:, v] = np.where(
            rng.random(kind.size) < 0.8, sites[:, v - 1] * sites[:, v - 2], sites[:, v]
        )
    data = pd.DataFrame(sites, columns=list("abcdefghij"))
    learned = SelectMeasure(rho=rho).release(
        bpm.declare(states={v: [0, 1] for v in data}), data, rng=seed
    )
    assert learned.status == "converged"
    held = []
    for pair in combinations(data, 2):
        frame = learned.solution.interval(list(pair), of="records")
        truth = np.bincount(2 * data[pair[0]] + data[pair[1]], minlength=4)
        held.append((frame["lower"] <= truth) & (truth <= frame["upper"]))
    # .9 promised, of 180 cells of one release that depend on each other; fits that ended too early held .27 to .44
    assert np.mean(held) > 0.75
