"""The test of independence counts the noise in, and refuses what it cannot judge."""

import contextlib
import io
import re
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2, chi2_contingency, kstest

import bayesprivmrf as bpm
from bayesprivmrf import analysis
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.mechanisms import LaplaceStatistics
from bayesprivmrf.noise import DiscreteLaplace, Gaussian, NoNoise, RandomRounding, Within

STATES = {"age": ["<30", "30-60", ">60"], "smokes": ["no", "yes"], "ill": ["no", "yes"]}
INDEPENDENT = np.einsum(
    "k,ki,kj->kij",
    [0.3, 0.4, 0.3],
    [[0.7, 0.3], [0.5, 0.5], [0.4, 0.6]],
    [[0.9, 0.1], [0.7, 0.3], [0.5, 0.5]],
)
DEPENDENT = INDEPENDENT + 0.015 * np.array([[1, -1], [-1, 1]])
RECORDS = 4000


def release_of(shares, scale=5.0, total=RECORDS, seed=0, cliques=None):
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(RECORDS, shares.ravel()).reshape(shares.shape)
    noise = DiscreteLaplace(scale)
    noisy = counts + noise.draw(counts.shape, rng)
    network = bpm.declare(states=STATES, cliques=cliques or [tuple(STATES)])
    return bpm.NoisyStatistics.from_tables(
        network, {tuple(STATES): noisy}, noise=noise, total=total
    )


def test_dependence_is_found_and_conditional_independence_is_not():
    found = analysis.independence_test(
        release_of(DEPENDENT), "smokes", "ill", given=["age"], draws=199, rng=1
    )
    assert found.p_value == pytest.approx(1 / 200)
    assert found.df == 3
    assert found.expected.shape == (3, 2, 2)
    assert found.expected.sum() == pytest.approx(RECORDS)
    release = release_of(INDEPENDENT)
    given = analysis.independence_test(release, "smokes", "ill", given=["age"], draws=199, rng=1)
    assert given.p_value > 0.05
    # smoking and illness both rise with age, so that they depend on each other without it
    alone = analysis.independence_test(release, "smokes", "ill", draws=199, rng=1)
    assert alone.p_value == pytest.approx(1 / 200)
    assert alone.df == 1


def pair_release(table, noise, total=None):
    network = bpm.declare(states={"a": [0, 1], "b": [0, 1]}, cliques=[("a", "b")])
    return bpm.NoisyStatistics.from_tables(network, {("a", "b"): table}, noise=noise, total=total)


def test_without_noise_the_statistic_is_that_of_pearson():
    counts = np.array([[320, 180], [210, 290]])
    found = analysis.independence_test(pair_release(counts, NoNoise()), "a", "b", draws=99, rng=1)
    expected = chi2_contingency(counts, correction=False)
    assert found.statistic == pytest.approx(expected.statistic, rel=2e-3)
    assert found.pearson_p_value == pytest.approx(expected.pvalue, rel=1e-3)
    assert found.expected == pytest.approx(expected.expected_freq, rel=1e-3)


@pytest.mark.slow
def test_the_statistic_is_about_chi_square_under_the_null_and_p_values_uniform():
    rng = np.random.default_rng(3)
    noise = DiscreteLaplace(5.0)
    found = []
    for _ in range(100):
        counts = rng.multinomial(RECORDS, np.full(4, 0.25))
        noisy = counts.reshape(2, 2) + noise.draw((2, 2), rng)
        found.append(
            analysis.independence_test(pair_release(noisy, noise), "a", "b", draws=99, rng=rng)
        )
    # level 1e-4 each
    assert kstest([one.statistic for one in found], chi2(1).cdf).pvalue > 1e-4
    assert kstest([one.p_value for one in found], "uniform").pvalue > 1e-4


def test_a_private_total_is_that_of_the_table():
    release = release_of(INDEPENDENT, total=None)
    found = analysis.independence_test(release, "smokes", "ill", given=["age"], draws=199, rng=1)
    assert found.expected.sum() == pytest.approx(release.flat.sum(), abs=1)


def test_order_of_the_variables_only_moves_the_axes():
    release = release_of(DEPENDENT)
    one = analysis.independence_test(release, "age", "ill", draws=99, rng=1)
    other = analysis.independence_test(release, "ill", "age", draws=99, rng=1)
    assert one.statistic == pytest.approx(other.statistic)
    assert one.expected == pytest.approx(other.expected.T)


def test_tables_count_by_their_accuracy():
    table = DEPENDENT.sum(axis=0) * RECORDS
    network = bpm.declare(states=STATES, cliques=[tuple(STATES)])
    noise = DiscreteLaplace(200.0).draw(DEPENDENT.shape, np.random.default_rng(1))
    release = bpm.NoisyStatistics.from_tables(
        network,
        {tuple(STATES): np.rint(DEPENDENT * RECORDS) + noise, ("ill", "smokes"): np.rint(table.T)},
        noise={tuple(STATES): DiscreteLaplace(200.0), ("ill", "smokes"): DiscreteLaplace(1.0)},
        total=RECORDS,
    )
    found = analysis.independence_test(release, "smokes", "ill", draws=199, rng=1)
    alone = analysis.independence_test(
        bpm.NoisyStatistics.from_tables(
            bpm.declare(
                states={v: STATES[v] for v in ("smokes", "ill")}, cliques=[("smokes", "ill")]
            ),
            {("smokes", "ill"): np.rint(table)},
            noise=DiscreteLaplace(1.0),
            total=RECORDS,
        ),
        "smokes",
        "ill",
        draws=199,
        rng=1,
    )
    assert found.statistic == pytest.approx(alone.statistic, rel=0.05)
    assert found.p_value == pytest.approx(1 / 200)


def test_a_seed_repeats_the_result_and_is_stored():
    release = release_of(INDEPENDENT)
    drawn = analysis.independence_test(release, "smokes", "ill", draws=99)
    again = analysis.independence_test(release, "smokes", "ill", draws=99, rng=drawn.seed)
    assert drawn.p_value == again.p_value
    frame = drawn.frame
    assert list(frame) == ["statistic", "df", "p_value", "mc_error", "status", "note", "method"]
    assert len(frame) == 1


def test_noise_beyond_the_counts_is_said():
    hidden = release_of(INDEPENDENT, scale=2000.0)
    found = analysis.independence_test(hidden, "smokes", "ill", given=["age"], draws=99, rng=1)
    assert found.status == "doubtful"
    assert "noise" in found.note


def test_chosen_tables_are_refused():
    from bayesprivmrf.mechanisms import SelectMeasure

    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 2000)
    data = pd.DataFrame({"a": a, "b": np.where(rng.random(2000) < 0.8, a, 1 - a)})
    network = bpm.declare(states={name: [0, 1] for name in "ab"})
    learned = SelectMeasure(rho=1.0).release(network, data, rng=1)
    with pytest.raises(ArgumentError, match="give noisy tables, as LaplaceStatistics"):
        analysis.independence_test(learned, "a", "b")
    with pytest.raises(ArgumentError, match="release the table afresh"):
        analysis.independence_test(learned.statistics, "a", "b")


def test_odd_questions_are_refused():
    release = release_of(INDEPENDENT)
    with pytest.raises(ModelError, match="not declared"):
        analysis.independence_test(release, "smoke", "ill")
    with pytest.raises(ModelError):
        analysis.independence_test(release, "ill", "ill")
    with pytest.raises(ArgumentError, match="given"):
        analysis.independence_test(release, "smokes", "ill", given="age")
    with pytest.raises(ArgumentError, match="draws"):
        analysis.independence_test(release, "smokes", "ill", draws=10)
    with pytest.raises(ArgumentError, match="release"):
        analysis.independence_test(bpm.NoiseAwareMAP().fit(release), "smokes", "ill")
    apart = bpm.NoisyStatistics.from_tables(
        bpm.declare(states=STATES, cliques=[("age",), ("smokes",), ("ill",)]),
        {"age": [1200, 1600, 1200], "smokes": [2000, 2000], "ill": [2800, 1200]},
        noise=DiscreteLaplace(2.0),
        total=RECORDS,
    )
    with pytest.raises(ModelError, match="release the joint table"):
        analysis.independence_test(apart, "smokes", "ill")
    rounded = bpm.NoisyStatistics.from_tables(
        bpm.declare(states=STATES, cliques=[tuple(STATES)]),
        {tuple(STATES): np.full((3, 2, 2), 300)},
        noise=RandomRounding(3),
    )
    with pytest.raises(ModelError, match="a table of smokes, ill and no other variable"):
        analysis.independence_test(rounded, "smokes", "ill")
    nobody = bpm.NoisyStatistics.from_tables(
        bpm.declare(states={"a": [0, 1], "b": [0, 1]}, cliques=[("a", "b")]),
        {("a", "b"): [[-5, -3], [-2, 1]]},
        noise=DiscreteLaplace(20.0),
    )
    with pytest.raises(ArgumentError, match="cannot be simulated"):
        analysis.independence_test(nobody, "a", "b")


@pytest.mark.parametrize("at_most", [1, 3])
def test_rows_of_the_same_people_are_not_taken_for_independent_records(at_most):
    rng = np.random.default_rng(1)
    codes = np.repeat(rng.integers(0, 2, (200, 2)), at_most, axis=0)
    frame = pd.DataFrame({"a": codes[:, 0], "b": codes[:, 1]})
    frame["id"] = np.repeat(np.arange(200), at_most)
    network = bpm.declare({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    mechanism = LaplaceStatistics(epsilon=20.0, person="id", at_most=at_most)
    release = mechanism.release(network, frame, rng=1)
    if at_most == 1:
        assert analysis.independence_test(release, "a", "b", draws=99, rng=1).p_value > 0.01
    else:
        with pytest.raises(ArgumentError, match="one row a person"):
            analysis.independence_test(release, "a", "b", draws=99, rng=1)


def test_bounds_alone_are_refused():
    """The middle of two bounds is no estimate of a count, so that a p-value of it would mean nothing."""
    network = bpm.declare(states={"a": [0, 1], "b": [0, 1]}, cliques=[("a", "b")])
    middle, within = Within.between(0, 9)
    table = np.full((2, 2), middle)
    release = bpm.NoisyStatistics.from_tables(network, {("a", "b"): table}, noise=within, total=20)
    with pytest.raises(ModelError, match="got only bounds"):
        analysis.independence_test(release, "a", "b", draws=99, rng=1)


@pytest.fixture
def terminal(monkeypatch):
    # of another test: a notebook draws otherwise
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")


class Screen(io.StringIO):
    """A standard error that may be a terminal."""

    def __init__(self, is_watched):
        super().__init__()
        self.is_watched = is_watched

    def isatty(self):
        return self.is_watched


@pytest.mark.parametrize(
    ("is_watched", "progress_bar"), [(True, None), (True, False), (False, None)]
)
def test_a_terminal_shows_how_many_replicates_are_done(terminal, is_watched, progress_bar):
    release = release_of(INDEPENDENT)
    asked = {"given": ["age"], "draws": 2500, "rng": 1, "progress_bar": progress_bar}
    with contextlib.redirect_stderr(Screen(is_watched)) as screen:
        analysis.independence_test(release, "smokes", "ill", **asked)
    said = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    is_shown = is_watched and progress_bar is None
    assert ("Replicates of the release" in said and "2500/2500" in said) == is_shown
    assert is_shown or said == ""


@pytest.mark.parametrize(
    "ask",
    [
        partial(analysis.independence_test, a="a", b="b"),
        partial(analysis.equal_odds_test, a="a", b="b", over=["c"]),
        partial(analysis.goodness_of_fit, model=[("a", "b"), ("c",)]),
        partial(analysis.compare_groups, by="a"),
        partial(analysis.symmetry, a="a", b="b"),
        analysis.homogeneity,
        analysis.stationarity_test,
    ],
)
def test_every_test_can_be_silent(terminal, ask):
    network = bpm.declare({name: [0, 1] for name in "abc"}, [("a", "b", "c")])
    counts = {("a", "b", "c"): np.full((2, 2, 2), 250)}
    noise = DiscreteLaplace(2.0)
    release = bpm.NoisyStatistics.from_tables(network, counts, noise=noise, total=2000)
    with contextlib.redirect_stderr(Screen(True)) as screen:
        ask(release, draws=99, rng=1, progress_bar=False)
    assert screen.getvalue() == ""
    with pytest.raises(ArgumentError, match="`progress_bar` must be True or False"):
        ask(release, draws=99, rng=1, progress_bar="no")


def test_many_tables_of_the_same_cells_give_the_statistic_of_their_weighted_mean():
    network = bpm.declare(states={"a": [0, 1], "b": [0, 1]}, cliques=[("a", "b")])
    precise = DiscreteLaplace(3.0)
    coarse = DiscreteLaplace(12.0)
    one = np.array([[320, 180], [210, 290]])
    other = np.array([[290, 211], [190, 335]])
    tables = [
        bpm.NoisyStatistics.from_tables(network, {("a", "b"): table}, noise=noise, total=1000)
        for table, noise in ((one, precise), (other, coarse))
    ]
    both = analysis.independence_test(tables, "a", "b", draws=99, rng=1)
    weights = np.array([1 / precise.variance, 1 / coarse.variance])
    mean = (weights[0] * one + weights[1] * other) / weights.sum()
    pooled = pair_release(mean, Gaussian(1 / np.sqrt(weights.sum())), total=1000)
    alone = analysis.independence_test(pooled, "a", "b", draws=99, rng=1)
    assert both.df == alone.df == 1
    assert both.statistic == pytest.approx(alone.statistic, rel=1e-3)
