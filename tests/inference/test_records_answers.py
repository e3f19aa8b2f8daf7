"""Quick intervals for the records' own answers, against closed forms and simulated records."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from inference.conftest import noisy_release, simulated_counts, specification
from scipy.stats import norm

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference import NoiseAwareMAP
from bayesprivmrf.noise import Coarsened
from bayesprivmrf.privacy import DiscreteLaplace, Gaussian, Laplace
from bayesprivmrf.release import NoisyStatistics

CYCLE = specification(
    {"b": [2, 0, 1], 0: ["y", "x"], "a": [2, 0, 1], "d": [2, 0, 1], "alone": [1], "e": [0, 1]},
    [("a", "b"), ("b", 0), (0, "d"), ("d", "a"), ("alone",), ("e",)],
)
REACH = norm.ppf(0.95)

NUMBERS = ["estimate", "lower", "upper"]


def table_fit(law, total, counts=(400_000.0, 300_000.0, 200_000.0, 100_000.0), scale=50.0):
    """One table, measured as it is, and a prior that hardly counts."""
    model = specification({"a": [0, 1, 2, 3]}, [("a",)])
    release = NoisyStatistics.from_tables(model, {"a": np.array(counts)}, noise=law, total=total)
    return NoiseAwareMAP(scale=scale).fit(release)


@pytest.mark.parametrize(
    "law", [Gaussian(4000.0), Laplace(1000 * 2.0**1.5)], ids=["normal", "Laplace"]
)
def test_one_table_has_the_error_of_its_noise(law):
    private = table_fit(law, None).interval("a", of="records")
    above = private["upper"] - private["estimate"]
    below = private["estimate"] - private["lower"]
    assert above.to_numpy() == pytest.approx(np.full(4, 4000 * REACH), rel=1e-3)
    assert below.to_numpy() == pytest.approx(np.full(4, 4000 * REACH), rel=1e-3)
    assert private["estimate"].to_numpy() == pytest.approx(
        [400_000, 300_000, 200_000, 100_000], abs=500
    )
    public = table_fit(law, 1_000_000).interval("a", of="records")
    share = public["estimate"] / 1e6
    log_odds = np.log(public["upper"] / (1e6 - public["upper"])) - np.log(share / (1 - share))
    # the four errors are known to add up to nothing
    expected = 4000 * 0.75**0.5 * REACH / (1e6 * share * (1 - share))
    assert log_odds.to_numpy() == pytest.approx(expected.to_numpy(), rel=1e-3)


def test_a_cell_that_no_table_tells_varies_as_a_table_of_given_margins():
    model, n = specification({"a": [0, 1], "b": [0, 1]}, [("a",), ("b",)]), 10**7
    margins = {"a": np.array([0.3, 0.7]) * n, "b": np.array([0.6, 0.4]) * n}
    release = NoisyStatistics.from_tables(model, margins, noise=Gaussian(0.1), total=n)
    frame = NoiseAwareMAP(scale=50.0).fit(release).interval(["a", "b"], of="records")
    assert (frame["estimate"] / n).to_numpy() == pytest.approx([0.18, 0.12, 0.42, 0.28], rel=1e-6)
    deviation = (0.3 * 0.7 * 0.6 * 0.4 * n) ** 0.5  # hypergeometric, but for N / (N - 1)
    assert (frame["upper"] - frame["lower"]).to_numpy() == pytest.approx(
        2 * REACH * deviation, rel=5e-3
    )
    assert (frame["status"] == "model").all()


def test_bounds_of_counts_are_whole_numbers_and_reach_empty_cells():
    frame = table_fit(Laplace(3.0), None, counts=(4000.0, 3000.0, 2000.0, 1.0), scale=5.0).interval(
        "a", of="records"
    )
    bounds = frame[["lower", "upper"]].to_numpy()
    assert (bounds == np.rint(bounds)).all()
    assert frame["lower"].iloc[3] == 0
    assert frame["estimate"].iloc[3] > 0


def nearly_deterministic(records, rng):
    """Return the counts and the noisy counts of a table with few records off its diagonal."""
    counts = np.zeros((3, 3))
    counts[np.arange(3), np.arange(3)] = np.round(records * rng.dirichlet(np.full(3, 3.0)))
    counts[0, 1] = 20.0
    return counts, counts + np.rint(rng.laplace(scale=10.0, size=counts.shape))


@pytest.mark.parametrize("records", [1e3, 1e12])
def test_nearly_deterministic_tables_hold_their_counts_however_many_records(records):
    model = specification({"a": [0, 1, 2], "b": [0, 1, 2]}, [("a", "b")])
    rng = np.random.default_rng([73, int(np.log10(records))])
    held = []
    for _ in range(8):
        counts, noisy = nearly_deterministic(records, rng)
        release = NoisyStatistics.from_tables(model, {("a", "b"): noisy}, noise=DiscreteLaplace(10))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = NoiseAwareMAP(scale=3.0).fit(release)
        if (
            fit.status is not bpm.Status.CONVERGED
        ):  # beyond 1e9 records the search may fail, and says so
            continue
        frame = fit.interval(["a", "b"], of="records")
        truth = counts.ravel()
        held.append(((frame["lower"] <= truth) & (truth <= frame["upper"])).mean())
        # no limit is farther from its estimate than two reaches of the noise
        assert (frame["upper"] - frame["lower"]).max() < 4 * REACH * 10 * 2**0.5
    assert len(held) >= 4
    # 90 % are expected; three standard errors, clustered by release
    assert np.mean(held) > 0.9 - 3 * np.std(held) / len(held) ** 0.5


def test_the_error_of_a_pooled_total_counts_where_cells_are_empty():
    model = specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    table = np.array([[600_000.0, -150.0], [-150.0, 400_000.0]])
    release = NoisyStatistics.from_tables(model, {("a", "b"): table}, noise=Gaussian(100.0))
    frame = NoiseAwareMAP(scale=3.0).fit(release).interval(["a", "b"], of="records")
    below = (frame["estimate"] - frame["lower"]).to_numpy()[[0, 3]] / (100 * REACH)
    # a full cell has its own noise, and up to half of that of both empty ones
    assert ((below > 1.05) & (below < 1.01 * 1.5**0.5)).all()


@pytest.mark.parametrize(
    ("law", "is_public"),
    [
        (Gaussian(11.0), True),
        (Laplace(8.0), False),
        pytest.param(Gaussian(11.0), False, marks=pytest.mark.slow),
        pytest.param(Laplace(8.0), True, marks=pytest.mark.slow),
    ],
    ids=["normal, public", "Laplace, private", "normal, private", "Laplace, public"],
)
def test_intervals_hold_the_records_answers_and_are_narrower_than_the_populations(law, is_public):
    rng, held, widths = np.random.default_rng(5), [], []
    for _ in range(12):
        counts, _ = simulated_counts(CYCLE, 20_000, rng, scale=0.4)
        release = noisy_release(CYCLE, counts, law, rng, total=20_000 if is_public else None)
        fit = NoiseAwareMAP().fit(release)
        frame, population = fit.interval(["a", "b"], of="records"), fit.interval(["a", "b"])
        truth = CYCLE.tables(counts)["a", "b"].ravel()
        held.append(((frame["lower"] <= truth) & (truth <= frame["upper"])).mean())
        widths.append(
            (frame["upper"] - frame["lower"]).median()
            / (population["upper"] - population["lower"]).median()
        )
    # four standard errors, clustered by release, and the five points that quick intervals may be short
    reach = 4 * np.std(held) / 12**0.5
    assert 0.9 - 0.05 - reach < np.mean(held) < 0.9 + 0.05 + reach
    assert np.median(widths) < 0.4 * 20_000


def fitted(total=None):
    rng = np.random.default_rng(3)
    counts, _ = simulated_counts(CYCLE, 3_000, rng, scale=0.6)
    return NoiseAwareMAP().fit(noisy_release(CYCLE, counts, Laplace(8.0), rng, total=total))


@pytest.mark.parametrize("total", [None, 3_000], ids=["private", "public"])
def test_a_table_has_the_intervals_of_its_variables(total):
    fit = fitted(total)
    asked, known = (
        fit.interval(q.table("a", "b"), of="records"),
        fit.interval(["a", "b"], of="records"),
    )
    assert asked[NUMBERS].to_numpy() == pytest.approx(known[NUMBERS].to_numpy(), rel=1e-9)
    assert known["estimate"].sum() == pytest.approx(fit.stats["total"])
    assert (asked["status"] == known["status"].to_numpy()).all()


def test_the_number_of_records_is_as_uncertain_as_the_tables_leave_it_and_known_where_it_is_public():
    everybody = q.weighted("a", matrix=[[1, 1, 1]])
    private = fitted().interval(everybody, of="records").iloc[0]
    assert private["lower"] < private["estimate"] < private["upper"]
    public = fitted(3_000).interval(everybody, of="records")
    assert public[NUMBERS].to_numpy() == pytest.approx(np.full((1, 3), 3_000.0))


def test_no_cell_that_noise_hides_is_said_to_hold_more_than_all_records():
    """Its logarithm has a deviation of several, so that its own bound is beyond a hundred thousand records."""
    model = specification({"a": [0, 1, 2], "b": [0, 1, 2]}, [("a", "b")])
    counts = {("a", "b"): np.diag([600.0, 300.0, 100.0]) + 0.25}
    release = NoisyStatistics.from_tables(model, counts, noise=Gaussian(60.0))
    frame = NoiseAwareMAP(scale=5.0).fit(release).interval(["a", "b"], of="records")
    assert frame["estimate"].min() < 10
    assert frame["upper"].max() < 1_000 + 4 * release.total_standard_error
    assert (frame["lower"] <= frame["upper"]).all()


def test_answers_that_may_be_negative_have_intervals_on_their_own_scale():
    frame = fitted().interval(q.weighted("b", 0, matrix=[[3, -1, 0, 2, 0, -2]]), of="records")
    assert (frame["upper"] - frame["estimate"]).to_numpy() == pytest.approx(
        (frame["estimate"] - frame["lower"]).to_numpy(), abs=1.0
    )


def test_large_models_give_cells_that_no_clique_holds_the_sampling_of_a_model_without_constraints():
    fit = fitted()
    large = replace(fit, mode=replace(fit.mode, curvature=SimpleNamespace(formed=None)))
    told, known = (each.interval(["a", "b"], of="records") for each in (large, fit))
    assert told[NUMBERS].to_numpy() == pytest.approx(known[NUMBERS].to_numpy(), abs=1.0)
    wide, narrow = (each.interval(["a", "e"], of="records") for each in (large, fit))
    assert (wide["upper"] >= narrow["upper"]).all()
    assert (wide["upper"] - wide["lower"]).median() > 1.1 * (
        narrow["upper"] - narrow["lower"]
    ).median()


def test_what_cannot_be_asked_of_the_records_is_refused_with_the_remedy():
    fit = fitted()
    with pytest.raises(ArgumentError, match="`of` must be 'population' or 'records', got 'people'"):
        fit.interval(["a"], of="people")
    with pytest.raises(ArgumentError, match="`given` must be left out with of='records'"):
        fit.interval(["a"], of="records", given={"b": 1})
    network = bpm.markov_chain(range(2), 3)
    tables = {("x1", "x2"): np.full((2, 2), 50.0), ("x2", "x3"): np.full((2, 2), 50.0)}
    release = NoisyStatistics.from_tables(network, tables, noise=Laplace(2.0))
    with pytest.raises(ModelError, match=r"without ties, linear scores or waves.*, got "):
        NoiseAwareMAP().fit(release).interval("x1", of="records")


def test_levels_of_areas_restrict_nothing_and_are_taken():
    """Counts of 40 a cell under noise of scale 2: all intervals lie within eight deviations of the noisy counts."""
    areas, levels = list("abcd"), {"area": {"region": {"R": ["a", "b"], "S": ["c", "d"]}}}
    network = bpm.declare({"area": areas, "sex": [0, 1]}, [("area", "sex")], levels=levels)
    noisy = np.array([[40.0, 44], [37, 41], [39, 42], [43, 40]])
    release = NoisyStatistics.from_tables(network, {("area", "sex"): noisy}, noise=Laplace(2.0))
    frame = NoiseAwareMAP().fit(release).interval(["area", "sex"], of="records")
    assert (frame["lower"] < frame["upper"]).all()
    assert (
        np.abs(frame[["lower", "upper"]].to_numpy() - noisy.reshape(-1, 1)) < 8 * 2 * 2**0.5
    ).all()


def test_a_wide_range_beside_narrow_ones_keeps_its_own_upper_limit():
    # the variance of the widest range is eight times the mean over the table
    rule = Coarsened([(0, 9), (10, 19), (20, 49), (50, 99), (100, 999), (1000, 5000)])
    network = bpm.declare({"a": list(range(8))}, [("a",)])
    published = rule.publish([3, 5, 12, 15, 30, 14, 3000, 8])
    release = bpm.NoisyStatistics.from_tables(network, {"a": published}, noise=rule)
    row = bpm.NoiseAwareMAP().fit(release).interval("a", of="records").loc[6]
    # 95 % of a uniform count in the range
    assert row["upper"] > 1000 + 0.95 * 4000
