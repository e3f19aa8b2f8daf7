"""The formulas of each kernel against its log density alone: integrals, suprema and differences."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import chi2, norm

from bayesprivmrf.noise import kernels

every_kernel = pytest.mark.parametrize(
    "kernel", kernels.KERNELS.values(), ids=lambda kernel: type(kernel).__name__
)
# standard deviations of the sampling error beside noise of scale 2
deviations = pytest.mark.parametrize("deviation", [0.05, 0.7, 3.0, 40.0])
SCALE = 2.0


def density(kernel, r):
    return np.exp(kernel.log(r / SCALE) - kernel.log_constant) / SCALE


def summed_density(kernel, r, deviation):
    """The density of noise plus a normal error, by quadrature."""
    points = sorted({0.0, r} if abs(r) < 12 * deviation else {0.0})
    ends = -12 * deviation, 12 * deviation
    return quad(
        lambda e: norm.pdf(e, 0, deviation) * density(kernel, r - e),
        *ends, points=points, limit=400, epsabs=0, epsrel=1e-10,
    )[0]  # fmt: skip


@every_kernel
def test_the_kernel_is_that_of_a_density_with_the_stated_constant_and_variance(kernel):
    assert kernel.log(0.0) == 0
    moments = [2 * quad(lambda r, p=p: r**p * density(kernel, r), 0, 200)[0] for p in (0, 2)]
    np.testing.assert_allclose(moments, [1, kernel.variance * SCALE**2], rtol=1e-7)


@every_kernel
def test_the_slope_is_the_derivative(kernel):
    ratio = np.array([-3.0, -0.4, 0.2, 5.0])
    found = (kernel.log(ratio - 1e-6) - kernel.log(ratio + 1e-6)) / 2e-6
    np.testing.assert_allclose(kernel.slope(ratio), found, rtol=1e-6)


@every_kernel
def test_the_log_moment_is_no_less_than_the_integral(kernel):
    for rate in (0.0, 0.1, 0.3):
        exact = quad(lambda r, rate=rate: 2 * np.cosh(rate * r) * density(kernel, r), 0, 300)[0]
        assert float(kernel.log_moment(np.array(rate), SCALE, False)) >= np.log(exact) - 1e-7


@every_kernel
def test_the_conjugate_is_the_supremum(kernel):
    reach = min(float(kernel.reach(np.array([SCALE]))[0]), 3.0)
    for tilt in (-0.9 * reach, 0.0, 0.4 * reach):
        best = minimize_scalar(lambda r, g=tilt: -(kernel.log(r / SCALE) + g * r), bounds=(-50, 50))
        value, slope = kernel.conjugate(np.array([tilt]), np.array([SCALE]))
        assert float(value[0]) == pytest.approx(-best.fun, abs=1e-4)
        assert float(slope[0]) == pytest.approx(best.x, abs=1e-3)


@every_kernel
@deviations
def test_the_sum_with_a_normal_error_has_the_density_of_the_convolution(kernel, deviation):
    residual = np.array([-30.0, -1.0, 0.0, 0.3, 9.0])
    at = np.full(5, deviation**2), np.full(5, SCALE)
    wanted = [
        -np.log(summed_density(kernel, r, deviation))
        for r in residual
        if abs(r) < 15 * (1 + deviation)
    ]
    found = kernel.convolved(residual, *at)[0][np.abs(residual) < 15 * (1 + deviation)]
    np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-7)


@every_kernel
@deviations
def test_slope_and_curvature_are_derivatives_of_the_density_of_the_sum(kernel, deviation):
    residual, step = np.array([-20.0, -1.0, 0.4, 9.0]), 1e-4
    at = np.full(4, deviation**2), np.full(4, SCALE)
    up, down = kernel.convolved(residual + step, *at), kernel.convolved(residual - step, *at)
    np.testing.assert_allclose(
        kernel.convolved(residual, *at)[1], -(up[0] - down[0]) / (2 * step), atol=1e-6
    )
    curvature = kernel.convolved_curvature(residual, *at)
    np.testing.assert_allclose(curvature, -(up[1] - down[1]) / (2 * step), atol=1e-5)


@every_kernel
@deviations
def test_information_and_expected_residual_are_integrals_over_the_sum(kernel, deviation):
    variance, scale = np.array([deviation**2]), np.array([SCALE])

    def mean(function):
        def integrand(r):
            loss, slope = kernel.convolved(np.array([r]), variance, scale)
            return float(np.exp(-loss[0]) * function(r, slope[0]))

        reach = 10 * deviation + 40 * SCALE
        return 2 * quad(integrand, 0, reach, points=[deviation, 4 * deviation], limit=400)[0]

    assert kernel.information(variance, scale)[0] == pytest.approx(
        mean(lambda _, slope: slope**2), rel=0.02
    )
    assert kernel.expected_residual(scale, variance)[0] == pytest.approx(
        mean(lambda r, _: r), rel=1e-6
    )


@every_kernel
def test_strain_has_the_distribution_that_its_degrees_of_freedom_name(kernel):
    r = np.linspace(0.5, 8, 5) * SCALE
    values, degrees = kernel.strain(r, np.full(5, SCALE), None)
    for point, value, number in zip(r, values, degrees, strict=True):
        beyond = 2 * quad(lambda x: density(kernel, x), point, point + 60, epsabs=0)[0]
        assert chi2.sf(value, number) == pytest.approx(beyond, rel=1e-6, abs=1e-12)


@every_kernel
def test_compiled_functions_agree_with_the_class(kernel):
    gap, by = 3.5, 2.0
    value = kernels.log_kernel(kernel.code, gap / SCALE)
    assert value == pytest.approx(kernel.log(gap / SCALE))
    step = kernels.log_step(kernel.code, gap, by, SCALE)
    assert step == pytest.approx(kernel.log((gap - by) / SCALE) - value)
    if not kernel.has_kink:
        assert kernels.kernel_slope(kernel.code, 1.5) == pytest.approx(kernel.slope(1.5))


def test_numbers_of_mixed_kernels_are_each_evaluated_under_their_own():
    names = ["absolute", "square", "absolute", "square"]
    codes = np.array([kernels.code_of(kernels.KERNELS[name]) for name in names])
    ratio = np.array([[1.0, 2.0, -3.0, 0.5], [0.0, 1.0, 2.0, 4.0]])
    found = kernels.by_kernel(codes, lambda kernel, at: (kernel.log(at), kernel.slope(at)), ratio)
    for k, name in enumerate(names):
        np.testing.assert_array_equal(found[0, :, k], kernels.KERNELS[name].log(ratio[:, k]))
        np.testing.assert_array_equal(found[1, :, k], kernels.KERNELS[name].slope(ratio[:, k]))
    assert kernels.code_of(kernels.KERNELS.get("within")) == kernels.code_of(None) == -1
    assert kernels.by_kernel(
        np.zeros(0, int), lambda kernel, at: kernel.log(at), np.zeros((3, 0))
    ).shape == (3, 0)
