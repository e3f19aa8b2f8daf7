"""Interval limits near the ends of a range, compared with known densities."""

import numpy as np
import pytest
from scipy.stats import expon, norm

from bayesprivmrf.inference import limits_of_draws, standard_limits

PROB = 0.9
EVEN = (np.arange(4000) + 0.5) / 4000  # probabilities of evenly spread draws


def limits(values, ends=(0.0, 1.0), **settings):
    lower, upper = limits_of_draws(
        np.asarray(values, float).reshape(1, -1, 1), PROB, ends, **settings
    )
    return lower.item(), upper.item()


def cut_off(mean):
    """Draws of a normal distribution of deviation 0.01 above 0."""
    return mean + 0.01 * norm.ppf(norm.cdf(-mean / 0.01) + EVEN * norm.sf(-mean / 0.01))


def test_a_density_that_falls_from_its_end_has_an_interval_that_holds_the_end():
    draws = expon.ppf(EVEN, scale=0.01)
    assert limits(draws) == (0.0, pytest.approx(expon.ppf(0.95, scale=0.01), rel=1e-3))
    assert limits(1 - draws) == (pytest.approx(1 - expon.ppf(0.95, scale=0.01), abs=1e-4), 1.0)


@pytest.mark.parametrize("ends", [(0.0, 1.0), (-np.inf, np.inf)])
def test_draws_far_from_the_ends_have_equal_tails(ends):
    draws = np.random.default_rng(1).beta(30, 60, size=(4, 250, 3))
    lower, upper = limits_of_draws(draws, PROB, ends)
    assert lower == pytest.approx(np.quantile(draws, 0.05, axis=(0, 1)), abs=1e-15)
    assert upper == pytest.approx(np.quantile(draws, 0.95, axis=(0, 1)), abs=1e-15)


def test_limits_move_continuously_from_two_sided_to_one_sided_as_a_cell_empties():
    means = np.linspace(0.06, -0.02, 201)
    found = np.array([limits(cut_off(mean)) for mean in means])
    assert (
        np.abs(np.diff(found, axis=0)).max() < 2.4e-3
    )  # six times as far as the distribution moves
    assert found[0] == pytest.approx(np.quantile(cut_off(means[0]), [0.05, 0.95]))
    assert (found[means < 0.01, 0] == 0).all()
    by_error = np.array(
        [standard_limits(np.array(m / 0.01), np.array(np.inf), PROB) for m in means]
    )
    assert (by_error[means < 0.0133, 0] == -np.inf).all()  # where Φ(d) is below 1 / 1.1
    assert by_error[means < 0.0133, 1] == pytest.approx(norm.ppf(0.9))
    assert by_error[0] == pytest.approx(norm.ppf([0.05, 0.95]), abs=1e-5)
    assert np.abs(np.diff(by_error[:, 1])).max() < 0.04


def test_every_interval_holds_its_probability_and_a_mirrored_one_mirrors():
    rng = np.random.default_rng(3)
    for shape in ((0.05, 5), (0.6, 40), (1.5, 60), (0.3, 0.3), (3, 100)):
        draws = rng.beta(*shape, size=2000)
        lower, upper = limits(draws)
        held = ((lower <= draws) & (draws <= upper)).mean()
        assert (
            PROB - 2e-3 < held < 1.0 + 2e-3
            if shape == (0.3, 0.3)
            else PROB - 2e-3 < held < 0.95 + 2e-3
        )
        assert limits(1 - draws) == pytest.approx((1 - upper, 1 - lower), abs=1e-12)


def test_limits_of_counts_are_whole_and_those_of_equal_tails_away_from_the_ends():
    rng = np.random.default_rng(4)
    few, many = rng.poisson(0.7, 1000), rng.poisson(40, 1000)
    ends = (0.0, np.inf)
    assert limits(few, ends, is_whole=True) == (0.0, np.quantile(few, 0.95, method="inverted_cdf"))
    expected = np.quantile(many, [0.05, 0.95], method="inverted_cdf")
    assert limits(many, ends, is_whole=True) == tuple(expected)
    assert limits(np.zeros(10), (0.0, 10.0), is_whole=True) == (0.0, 0.0)
    assert limits(np.full(10, 10.0), (0.0, 10.0), is_whole=True) == (10.0, 10.0)


@pytest.mark.parametrize("noise", [norm(), expon()], ids=["normal", "Laplace"])
@pytest.mark.parametrize("truth", [0.0, 0.1, 1.0, 2.5, 4.0, 8.0])
def test_limits_about_a_count_under_a_flat_prior_hold_it_wherever_it_is(noise, truth):
    """0.89 at least, where equal tails hold a true 0 never: draws of the posterior of a count y with known noise."""
    rng = np.random.default_rng(5)
    y = truth + (
        noise.rvs(400, random_state=rng) if noise.dist.name == "norm" else rng.laplace(size=400)
    )
    grid = np.linspace(0, 30, 3001)
    log_density = (
        -np.abs(grid - y[:, None])
        if noise.dist.name == "expon"
        else -((grid - y[:, None]) ** 2) / 2
    )
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    share = np.cumsum(density, axis=1) / density.sum(axis=1, keepdims=True)
    draws = np.array([np.interp(EVEN[::4], own, grid) for own in share]).T[np.newaxis]
    lower, upper = limits_of_draws(draws, PROB, (0.0, np.inf))
    assert ((lower <= truth) & (truth <= upper)).mean() > 0.89 - 2 * 0.0175
