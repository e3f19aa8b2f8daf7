"""Counts known within bounds: the law is the sum over what may have been, and the sampler's kernel is that law."""

import math

import numpy as np
import pytest

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.posterior.whole_records.bounds import log_within
from bayesprivmrf.noise import Within
from bayesprivmrf.noise.kernels import code_of
from bayesprivmrf.privacy import (
    DiscreteGaussian,
    DiscreteLaplace,
    Laplace,
    NoNoise,
    noise_from_dict,
)

BASES = [
    NoNoise(),
    DiscreteLaplace(0.4),
    DiscreteLaplace(7.0),
    DiscreteGaussian(0.6),
    DiscreteGaussian(5.0),
]
BOUNDS = [(0, 9), (0, 1), (12, 40)]


@pytest.mark.parametrize("base", BASES, ids=repr)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_the_likelihood_is_the_probability_that_count_and_noise_lie_within_the_bounds(base, bounds):
    value, law = Within.between(*bounds, base)
    counts = np.arange(60)
    inside = np.arange(bounds[0], bounds[1] + 1)
    with np.errstate(divide="ignore"):
        wanted = np.log(np.exp(base.log_density(inside - counts[:, np.newaxis])).sum(axis=1))
    shown = wanted > -600
    np.testing.assert_allclose(
        law.log_density(value - counts)[shown], wanted[shown], rtol=1e-10, atol=1e-12
    )
    scale, code = float(base.scale), code_of(base.smooth)
    kernel = np.array([log_within(value - count, law.half_width, scale, code) for count in counts])
    if base.variance > 0:
        np.testing.assert_allclose(
            np.diff(kernel), np.diff(law.log_density(value - counts)), atol=1e-8
        )
    else:
        np.testing.assert_array_equal(
            kernel, np.where((counts >= bounds[0]) & (counts <= bounds[1]), 0, -1e9)
        )
    assert noise_from_dict(law.as_dict()) == law
    assert law.hides is (base.variance > 0)


def test_score_is_the_derivative_of_the_sum():
    law, base = Within(4.5, DiscreteGaussian(3.0)), DiscreteGaussian(3.0)
    for residual in (-20.5, -4.5, 0.5, 8.5):
        noise = np.arange(residual - 4.5, residual + 5.5)

        def log_sum(shift, noise=noise):
            return np.logaddexp.reduce(base.log_density(noise - shift))

        wanted = (log_sum(1e-5) - log_sum(-1e-5)) / 2e-5
        assert float(law.score(residual)) == pytest.approx(wanted, rel=1e-6)
    assert Within(1.0).score([-5, 0, 5]).tolist() == [-math.inf, 0.0, math.inf]


@pytest.mark.parametrize(
    "law", [Within(4.5), Within(3, DiscreteLaplace(2.0)), Within(0.5, DiscreteGaussian(2.0))]
)
def test_moments_are_those_of_draws(law):
    drawn = law.draw(40_000, np.random.default_rng(1))
    error = np.std(drawn**2) / 200
    assert np.mean(drawn**2) == pytest.approx(law.variance, abs=4 * error)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Within(0), "`half_width` must be positive"),
        (lambda: Within(1.3), "half a whole number"),
        (lambda: Within(1.5, Laplace(2.0)), "discrete distributions"),
        (lambda: Within(1.5, "laplace", 2.0), "discrete distributions"),
        (lambda: Within(1.5, "nothing"), "discrete distributions"),
        (lambda: Within(1.5, Within(1.5)), "discrete distributions"),
        (lambda: Within.between(9, 0), "the first at most the second"),
        (lambda: Within.between(0, math.inf), "a count without an upper bound"),
        (lambda: Within.between(0, 9.5), "whole numbers"),
    ],
)
def test_bad_bounds_are_refused(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


def test_equal_bounds_are_an_exact_number_or_a_noisy_one():
    assert Within.between(7, 7) == (7.0, NoNoise())
    assert Within.between(7, 7, DiscreteLaplace(2.0)) == (7.0, DiscreteLaplace(2.0))


@pytest.mark.parametrize("count", [2, 50, 1000])
def test_a_sum_of_bounded_counts_with_noise_is_refused_however_many_they_are(count):
    """Its midpoint is far from the sum: of empty cells within 0 to 9 it is 4.5 records a cell too large."""
    law = Within(4.5, DiscreteLaplace(2.0))
    with pytest.raises(ArgumentError, match="be of counts without noise"):
        law.summed(count)
    assert law.summed(1) == law
    assert Within(4.5).summed(count) == Within(4.5 * count)
