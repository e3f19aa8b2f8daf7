"""What the CGM paper proves or reports of the estimators, as tests with a stated level."""

import warnings

import numpy as np
import pytest
from inference.conftest import (
    noisy_release,
    probabilities,
    simulated_counts,
    specification,
    tables_of,
)

from bayesprivmrf.inference import CGM, NaiveMLE, uniform_solution
from bayesprivmrf.privacy import Laplace

CHAIN = specification(
    {name: list(range(3)) for name in "abcd"}, [("a", "b"), ("b", "c"), ("c", "d")]
)
THIRD = specification(
    {name: list(range(3)) for name in "abcdef"},
    [(x, y) for i, x in enumerate("abcdef") for y in "abcdef"[i + 1 : i + 4]],
)


def divergence(model, truth, solution):
    from inference.conftest import log_joint

    p = probabilities(model, truth)
    energies = log_joint(model, solution.potentials.flat)
    own = log_joint(model, truth)
    return float(p @ (own - np.logaddexp.reduce(own) - energies + np.logaddexp.reduce(energies)))


@pytest.mark.parametrize("records", [100, 1000, 10_000])
def test_mean_squared_error_of_noisy_marginals_is_proposition_4(records):
    rng = np.random.default_rng(records)
    _, truth = simulated_counts(CHAIN, 1, rng)
    p = probabilities(CHAIN, truth)
    mu = tables_of(CHAIN, p)
    scale = 3 / 0.5  # three tables, epsilon one half
    errors = np.empty((2000, CHAIN.size))
    for trial in errors:
        counts = tables_of(CHAIN, rng.multinomial(records, p))
        trial[:] = (counts + rng.laplace(0, scale, CHAIN.size)) / records - mu
    expected = mu * (1 - mu) / records + 2 * scale**2 / records**2
    squared = (errors**2).mean(axis=1)  # one average a trial: cells of a trial are dependent
    standard_error = squared.std() / np.sqrt(len(squared))
    assert abs(squared.mean() - expected.mean()) < 4.5 * standard_error  # level below 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [NaiveMLE(), CGM()], ids=["naive", "cgm"])
def test_estimates_converge_to_the_truth_at_the_rate_of_one_over_n(estimator):
    """Squared error, and so KL, falls tenfold or faster when N grows tenfold, both parts of Proposition 4."""
    medians = []
    for records in (1000, 10_000, 100_000):
        found = []
        for seed in range(15):
            rng = np.random.default_rng([seed, records])
            counts, truth = simulated_counts(CHAIN, records, rng)
            release = noisy_release(CHAIN, counts, Laplace(6.0), rng)
            found.append(divergence(CHAIN, truth, estimator.fit(release)))
        medians.append(np.median(found))
    assert medians[0] / medians[1] > 7
    assert medians[1] / medians[2] > 7


@pytest.mark.slow
def test_defaults_come_near_the_best_ridge_in_hindsight_and_beat_uniform():
    ratios = {"naive": [], "cgm": [], "uniform": []}
    for seed, (records, scale) in enumerate(
        [(n, b) for n in (300, 3000, 30_000) for b in (12.0, 40.0) for _ in range(2)]
    ):
        rng = np.random.default_rng([99, seed])
        counts, truth = simulated_counts(THIRD, records, rng)
        release = noisy_release(THIRD, counts, Laplace(scale), rng)
        with warnings.catch_warnings(action="ignore"):  # large ridges contradict the release
            best = min(
                divergence(THIRD, truth, NaiveMLE(ridge=10.0**power).fit(release))
                for power in (-4, -3, -2, -1, 0)
            )
        for name, solution in (
            ("naive", NaiveMLE().fit(release)),
            ("cgm", CGM().fit(release)),
            ("uniform", uniform_solution(THIRD)),
        ):
            ratios[name].append(divergence(THIRD, truth, solution) / best)
    means = {name: float(np.exp(np.mean(np.log(values)))) for name, values in ratios.items()}
    assert means["naive"] < 1.3
    assert means["cgm"] < 1.3
    assert means["uniform"] > 2
