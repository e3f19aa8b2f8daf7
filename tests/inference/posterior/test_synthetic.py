import numpy as np
import pytest

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference import combine_estimates


def simulated(generator, *, posterior_sd, sampling_sd, sets):
    """One release with a flat prior: the posterior of Q is N(q_hat, V), and Q - q_hat has that law too."""
    truth = generator.normal()
    q_hat = truth + posterior_sd * generator.normal()
    drawn = q_hat + posterior_sd * generator.normal(size=sets)
    return truth, drawn + sampling_sd * generator.normal(size=sets), np.full(sets, sampling_sd**2)


def coverage(seed, repetitions, prob=0.9, **settings):
    generator = np.random.default_rng(seed)
    held = 0
    for _ in range(repetitions):
        truth, estimates, variances = simulated(generator, **settings)
        combined = combine_estimates(estimates, variances, prob=prob)
        held += combined.lower <= truth <= combined.upper
    return held / repetitions


# Coverage of a nominal 90 % at 900 repetitions has a standard error of one point; the bound is three and a half.
@pytest.mark.parametrize(
    ("posterior_sd", "sets"), [(5.0, 5), pytest.param(1.0, 20, marks=pytest.mark.slow)]
)
def test_combined_intervals_cover_what_they_say(posterior_sd, sets):
    found = coverage(11, 900, posterior_sd=posterior_sd, sampling_sd=1.0, sets=sets)
    assert found == pytest.approx(0.9, abs=0.035)


def test_few_data_sets_make_wide_intervals_where_they_tell_little():
    assert 0.9 < coverage(11, 1000, posterior_sd=1.0, sampling_sd=1.0, sets=5) < 0.99


def test_combined_intervals_are_wide_but_proper_where_the_synthetic_data_are_too_small_to_tell():
    """V far below U: a negative T in about half of all cases, never a negative width."""
    generator = np.random.default_rng(12)
    negative = held = 0
    for _ in range(600):
        truth, estimates, variances = simulated(
            generator, posterior_sd=0.2, sampling_sd=1.0, sets=5
        )
        combined = combine_estimates(estimates, variances)
        negative += combined.variance < 0
        held += combined.lower <= truth <= combined.upper
        assert combined.lower < combined.estimate < combined.upper
    assert negative > 150
    assert held / 600 > 0.9 - 0.043


def test_the_rules_for_partial_synthesis_and_for_imputation_would_not_cover():
    """The same simulation tells the right rule from its neighbours: the test of the rule has power."""
    generator = np.random.default_rng(13)
    sets, held = 20, {"partial": 0, "imputation": 0}
    for _ in range(1500):
        truth, q, u = simulated(generator, posterior_sd=1.0, sampling_sd=1.0, sets=sets)
        b, within = q.var(ddof=1), u.mean()
        for name, variance in (
            ("partial", b / sets + within),
            ("imputation", (1 + 1 / sets) * b + within),
        ):
            held[name] += abs(q.mean() - truth) <= 1.645 * np.sqrt(variance)
    assert held["imputation"] / 1500 > 0.97
    generator = np.random.default_rng(13)
    held = 0
    for _ in range(1500):
        truth, q, u = simulated(generator, posterior_sd=5.0, sampling_sd=1.0, sets=sets)
        held += abs(q.mean() - truth) <= 1.645 * np.sqrt(q.var(ddof=1) / sets + u.mean())
    assert held / 1500 < 0.4


def test_with_many_data_sets_the_interval_is_the_normal_one_of_variance_t():
    generator = np.random.default_rng(14)
    estimates = generator.normal(3.0, 2.0, 5000)
    combined = combine_estimates(estimates, np.ones(5000), prob=0.95)
    half = 1.959964 * np.sqrt(combined.variance)
    assert combined.upper - combined.estimate == pytest.approx(half, rel=2e-3)


def test_combining_says_what_is_wrong_with_its_arguments():
    for estimates, variances, words in (
        ([1.0], [1.0], "at least two"),
        ([1.0, 2.0], [1.0], "at least two"),
        ([1.0, np.nan], [1.0, 1.0], "finite"),
        ([1.0, 2.0], [1.0, -1.0], "at least 0"),
    ):
        with pytest.raises(ArgumentError, match=words):
            combine_estimates(estimates, variances)
    with pytest.raises(ArgumentError, match="prob"):
        combine_estimates([1.0, 2.0], [1.0, 1.0], prob=1.0)
    assert combine_estimates([1.0, 1.0], [0.0, 0.0]).lower == 1.0
    alike = combine_estimates([1.0, 1.0], [0.5, 0.5])
    assert alike.lower < 1 < alike.upper
