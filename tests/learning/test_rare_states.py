"""Limits of couplings between rare states: the slope, the straight case, what bends, and how often they hold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, norm

from bayesprivmrf.learning.frank_wolfe import curved_limits, share_of_both

LEVEL = 1e-4


def test_the_share_of_both_has_the_odds_ratio_and_the_slope_of_the_module():
    a, q, r, step = np.array([0.3, -1.0]), np.array([0.1, 0.3]), np.array([0.2, 0.6]), 1e-6
    c, h = share_of_both(a, q, r)
    np.testing.assert_allclose(c * (1 - q - r + c) / ((q - c) * (r - c)), np.exp(4 * a))
    slope = (share_of_both(a + step, q, r)[0] - share_of_both(a - step, q, r)[0]) / (2 * step)
    np.testing.assert_allclose(slope, 4 * h, rtol=1e-6)


def test_a_coupling_of_frequent_states_is_that_of_their_complements():
    """Of states that nearly all have, however strong the coupling: digits that cancel would leave 0 / 0."""
    a, q, r = np.array([-12.0, -3.0, 0.4, 12.0]), np.full(4, 0.97), np.full(4, 0.9)
    c, h = share_of_both(a, q, r)
    neither, same = share_of_both(a, 1 - q, 1 - r)
    np.testing.assert_allclose(c, q + r - 1 + neither, rtol=1e-12)
    np.testing.assert_allclose(h, same, rtol=1e-9)
    assert (np.diff(c) > 0).all()
    limits = curved_limits(a, np.full(4, 0.3), 0.5, (q, r), np.full(4, 0.3), 0.9)
    assert np.isfinite(limits).all()
    assert (limits[0] < limits[1]).all()


def test_limits_are_the_linear_ones_where_the_share_of_both_is_straight():
    mean, deviation = np.array([0.3, -0.2]), np.array([0.001, 0.002])
    shares = np.array([0.4, 0.5]), np.array([0.5, 0.3])
    limits = curved_limits(mean, deviation, 0.5, shares, np.array([0.2, 0.9]), 0.9)
    half = norm.isf(0.05) * deviation
    np.testing.assert_allclose(limits, (mean - half, mean + half), atol=2e-2 * deviation.max())


def test_where_nothing_is_told_limits_are_those_of_the_prior():
    ones, rare = np.ones(1), (np.full(1, 0.01), np.full(1, 0.02))
    limits = curved_limits(0 * ones, 0.5 * ones, 0.5, rare, ones, 0.9)
    np.testing.assert_allclose(
        np.ravel(limits), 0.5 * norm.isf(0.05) * np.array([-1, 1]), rtol=2e-3
    )


@pytest.mark.parametrize("people", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_limits_hold_the_couplings_of_few_people_where_linear_ones_do_not(people):
    """Couplings of the prior, a count of people with noise: the linear law holds too few from below."""
    rng, size, prior = np.random.default_rng(people), 4_000, 0.3
    q = np.full(size, np.sqrt(people / 30_000))
    truth = rng.normal(0, prior, size)
    c, h = share_of_both(truth, q, q)
    noise = 6.0 / 30_000
    told = c + rng.normal(0, np.sqrt(noise**2 + h / 30_000))
    # Newton steps to the mode of the normal law at the estimate, as the search for it goes
    mean = np.zeros(size)
    for _ in range(200):
        c, h = share_of_both(mean, q, q)
        variance = noise**2 + h / 30_000
        information = 16 * h**2 / variance
        mean += np.clip(
            (4 * h * (told - c) / variance - mean / prior**2) / (information + prior**-2), -0.1, 0.1
        )
    h = share_of_both(mean, q, q)[1]
    variance = noise**2 + h / 30_000
    deviation = 1 / np.sqrt(16 * h**2 / variance + prior**-2)
    lower, upper = curved_limits(mean, deviation, prior, (q, q), noise**2 / variance, 0.9)
    straight = mean - norm.isf(0.05) * deviation
    assert (truth < straight).mean() > 0.06
    assert (truth < lower).sum() <= binom.isf(LEVEL, size, 0.055)
    assert ((lower <= truth) & (truth <= upper)).sum() >= binom.ppf(LEVEL, size, 0.9)
