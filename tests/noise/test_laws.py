"""Noise laws against brute-force sums and quadrature."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.privacy import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    NoNoise,
    noise_from_dict,
)

DISCRETE = [DiscreteLaplace, DiscreteGaussian]
CONTINUOUS = [Laplace, Gaussian]
SCALES = [0.05, 0.3, 0.49, 0.51, 0.9, 1.0, 3.7, 49.9, 50.1, 400.0]


def log_kernel(law, r):
    return -np.abs(r) / law.scale if law.kernel == "absolute" else -0.5 * (r / law.scale) ** 2


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("family", DISCRETE)
def test_moments_and_probabilities_of_integer_laws_match_direct_sums(family, scale):
    law = family(scale)
    k = np.arange(-math.ceil(60 * scale) - 2, math.ceil(60 * scale) + 3).astype(float)
    weight = np.exp(log_kernel(law, k))
    probability = weight / weight.sum()
    np.testing.assert_allclose(np.exp(law.log_density(k)), probability, rtol=1e-10, atol=1e-300)
    np.testing.assert_allclose(law.variance, (probability * k**2).sum(), rtol=1e-10)
    assert law.standard_deviation == math.sqrt(law.variance)


@pytest.mark.parametrize("scale", [0.3, 1.0, 25.0])
@pytest.mark.parametrize("family", CONTINUOUS)
def test_moments_and_mass_of_real_laws_match_quadrature(family, scale):
    law = family(scale)

    def expect(f):
        return 2 * integrate.quad(lambda r: f(r) * math.exp(float(law.log_density(r))), 0, 60 * scale, limit=400,
                                  points=[scale, 5 * scale])[0]  # fmt: skip

    assert expect(lambda r: 1.0) == pytest.approx(1, rel=1e-8)
    assert expect(lambda r: r * r) == pytest.approx(law.variance, rel=1e-7)


@pytest.mark.parametrize("variance", [1e-6, 0.01, 0.3, 1.0, 4.063041, 7963.25, 1e8])
@pytest.mark.parametrize("family", [*DISCRETE, *CONTINUOUS])
def test_a_law_of_a_variance_has_it(family, variance):
    assert family.of_variance(variance).variance == pytest.approx(variance, rel=1e-9)
    for wrong in (0, -1.0, math.nan, math.inf):
        with pytest.raises(ArgumentError, match="`variance` must be positive"):
            family.of_variance(wrong)


def test_no_noise_has_no_other_variance_than_zero():
    assert NoNoise.of_variance(0) == NoNoise()
    with pytest.raises(ArgumentError, match="no noise must be 0"):
        NoNoise.of_variance(1.0)


def test_log_densities_match_scipy():
    r = np.linspace(-7, 7, 29)
    np.testing.assert_allclose(Laplace(1.7).log_density(r), stats.laplace(scale=1.7).logpdf(r))
    np.testing.assert_allclose(Gaussian(1.7).log_density(r), stats.norm(scale=1.7).logpdf(r))
    k = np.arange(-7, 8)
    np.testing.assert_allclose(
        DiscreteLaplace(1.7).log_density(k), stats.dlaplace(1 / 1.7).logpmf(k)
    )


@pytest.mark.parametrize("family", DISCRETE + CONTINUOUS)
def test_score_is_the_derivative_of_the_log_density_in_the_true_count(family):
    law, step = family(1.3), 1e-6
    r = np.array([-4.2, -1.0, -0.3, 0.4, 2.0, 9.5])
    numerical = (law.log_density(r - step) - law.log_density(r + step)) / (
        2 * step
    )  # n up, residual down
    np.testing.assert_allclose(law.score(r), numerical, rtol=1e-7)


@pytest.mark.parametrize("family", DISCRETE + CONTINUOUS)
def test_the_kernel_and_the_scale_say_how_the_log_density_falls(family):
    law, r = family(1.7), np.array([-6.0, -2.0, -0.5, 0.0, 1.0, 3.0])
    np.testing.assert_allclose(
        law.log_density(r) - law.log_density(0.0), log_kernel(law, r), atol=1e-13
    )


@pytest.mark.parametrize("scale", [0.3, 3.0, 2.0**20])
@pytest.mark.parametrize("family", DISCRETE + CONTINUOUS)
def test_simulated_draws_have_the_laws_moments_and_type(family, scale):
    law = family(scale)
    noise = law.draw((400, 500), np.random.default_rng(6))
    assert noise.shape == (400, 500)
    assert noise.dtype == (np.int64 if law.is_discrete else np.float64)
    noise = noise.astype(float).ravel()
    square = noise**2
    assert abs(noise.mean()) <= 4.5 * law.standard_deviation / np.sqrt(noise.size)
    assert square.mean() == pytest.approx(
        law.variance, abs=4.5 * square.std() / np.sqrt(noise.size)
    )


def test_the_discrete_gaussian_is_narrower_than_its_scale_says():
    for scale in (0.2, 0.4, 0.6, 0.8):
        assert DiscreteGaussian(scale).variance < scale**2 * (1 - 1e-6)


@pytest.mark.parametrize("law", [*(f(2.5) for f in DISCRETE + CONTINUOUS), NoNoise()])
def test_as_dict_round_trips(law):
    assert noise_from_dict(law.as_dict()) == law


def test_a_law_that_nobody_defined_is_refused_with_the_remedy():
    with pytest.raises(
        ArgumentError, match="'cauchy'; import or install the package that defines it"
    ):
        noise_from_dict({"name": "cauchy", "scale": 1.0})


def test_no_noise_has_no_scale():
    assert repr(NoNoise()) == "NoNoise()"
    with pytest.raises(ArgumentError, match="must be 0"):
        NoNoise(2.0)


@pytest.mark.parametrize("scale", [0, -1, math.nan, math.inf, True, "2"])
@pytest.mark.parametrize("family", DISCRETE + CONTINUOUS)
def test_a_scale_that_is_no_positive_finite_number_is_refused(family, scale):
    with pytest.raises(ArgumentError, match="scale"):
        family(scale)


def test_no_noise_is_a_point_mass():
    law = NoNoise()
    assert law.variance == law.scale == 0
    np.testing.assert_array_equal(law.log_density([-1, 0, 2]), [-np.inf, 0, -np.inf])
    np.testing.assert_array_equal(law.score([-1, 0, 2]), [-np.inf, 0, np.inf])
