r"""Kernels: the forms of a log density around its center, and what each part of the library asks of one.

Noise of scale s has the density :math:`e^{k(r/s)} / (s e^{c})` at the residual r = noisy - true. Its kernel k is
symmetric and falls from k(0) = 0, and c is the log of its integral. A discrete distribution has the kernel of the
continuous one of its scale, up to the constant.

A kernel is written here once: as a class for arrays, and as a branch of the functions for single numbers at the end,
which the samplers compile. Releases, files, mechanisms and estimators then take distributions that name it.

Estimators need the density of the noise η plus a normal sampling error of variance :math:`s^2`. For normal noise of
scale σ it is normal, of variance :math:`s^2 + σ^2`. For Laplace noise of scale b it is at a residual r, with a = s/b,

.. math:: f(r) = \frac{e^{a^2/2}}{2b} \Bigl[ e^{-r/b} Φ\Bigl(\frac{r}{s} - a\Bigr)
                 + e^{r/b} Φ\Bigl(-\frac{r}{s} - a\Bigr) \Bigr],

so that, with the two terms' shares :math:`p_1 + p_2 = 1` of f,

.. math:: \frac{d}{dr} \log f = \frac{p_2 - p_1}{b}, \qquad
          -\frac{d^2}{dr^2} \log f = \frac{φ(r/s)}{s b^2 f(r)} + \Bigl(\frac{p_2 - p_1}{b}\Bigr)^2 - \frac{1}{b^2}.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from bayesprivmrf.model.tables import FloatArray, IntArray

# Codes of the kernels in compiled functions; numbers without noise have the limit of the square kernel
SQUARE, ABSOLUTE = 0, 1
# Codes of numbers without a kernel, and of those whose probability is a table over counts
NO_KERNEL, TABLED = -1, -2


class Kernel(ABC):
    """Form of a log density, and its formulas; arrays have the shape (..., numbers), scales (numbers,), in records.

    Attributes
    ----------
    code
        Number of the kernel in compiled functions.
    variance
        Variance of the continuous distribution of scale 1.
    log_constant
        c, nats.
    has_kink
        True if the slope jumps at zero.
    """

    code: ClassVar[int]
    variance: ClassVar[float]
    log_constant: ClassVar[float]
    has_kink: ClassVar[bool] = False

    @abstractmethod
    def log(self, ratio: Any) -> Any:
        """Return k at a residual over the scale: a number, an array, or an expression of PyTensor."""

    @abstractmethod
    def slope(self, ratio: FloatArray) -> FloatArray:
        """Return -k', the score of the true number times the scale."""

    def log_moment(self, rates: FloatArray, scale: float, is_discrete: bool) -> FloatArray:
        r"""Return upper bounds of :math:`\log E e^{t η}` for rates t >= 0, nats; infinite where none is known."""
        return np.where(rates == 0, 0.0, np.inf)

    @abstractmethod
    def conjugate(self, tilt: FloatArray, scale: FloatArray) -> tuple[FloatArray, FloatArray]:
        r"""Return :math:`c(g) = \sup_r \{k(r/s) + g r\}` and its derivative, for g within `reach`."""

    @abstractmethod
    def reach(self, scale: FloatArray) -> FloatArray:
        """Return the largest |g| with a finite conjugate, one over records."""

    @abstractmethod
    def convolved(
        self, residual: FloatArray, variance: FloatArray, scale: FloatArray
    ) -> tuple[Any, Any]:
        """Return -log f(r) and its derivative by the mean, r = y - mean; the variance is that of the sampling."""

    @abstractmethod
    def convolved_curvature(
        self, residual: FloatArray, variance: FloatArray, scale: FloatArray
    ) -> FloatArray:
        """Return the second derivative of -log f, nats per record squared; arguments as for `convolved`."""

    @abstractmethod
    def information(self, variance: FloatArray, scale: FloatArray) -> FloatArray:
        """Return the Fisher information of f about its center, per record squared."""

    @abstractmethod
    def expected_residual(self, scale: FloatArray, variance: FloatArray) -> FloatArray:
        """Return the mean absolute value of noise plus normal sampling error of a variance, records."""

    def strain(
        self, residual: FloatArray, scale: FloatArray, sampling: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """Return a measure of each residual, and its degrees of freedom as a chi-squared variable.

        `sampling` is the variance of the sampling error, None for noise alone.
        """
        variance = self.variance * scale**2 + (0.0 if sampling is None else sampling)
        return residual**2 / variance, np.ones_like(residual)


class Square(Kernel):
    r"""The kernel :math:`-r^2/2` of normal noise."""

    code = SQUARE
    variance = 1.0
    log_constant = 0.5 * math.log(2 * math.pi)

    def log(self, ratio: Any) -> Any:
        """Return the log kernel."""
        return -0.5 * ratio**2

    def slope(self, ratio: FloatArray) -> FloatArray:
        """Return the ratio itself."""
        return ratio

    def log_moment(self, rates: FloatArray, scale: float, is_discrete: bool) -> FloatArray:
        """Return the bound, exact for the normal distribution (discrete: Canonne, Kamath and Steinke 2020)."""
        return 0.5 * np.square(scale * rates)

    def conjugate(self, tilt: FloatArray, scale: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return a parabola, and its slope."""
        pulled = scale**2 * tilt
        return 0.5 * tilt * pulled, pulled

    def reach(self, scale: FloatArray) -> FloatArray:
        """Return infinite bounds."""
        return np.full(len(scale), np.inf)

    def convolved(
        self, residual: FloatArray, variance: FloatArray, scale: FloatArray
    ) -> tuple[Any, Any]:
        """Return the terms of a normal density."""
        spread = variance + scale**2
        return 0.5 * residual**2 / spread + 0.5 * np.log(2 * math.pi * spread), -residual / spread

    def convolved_curvature(
        self, residual: FloatArray, variance: FloatArray, scale: FloatArray
    ) -> FloatArray:
        """Return the inverse variance of the sum."""
        return np.broadcast_to(1 / (variance + scale**2), residual.shape)

    def information(self, variance: FloatArray, scale: FloatArray) -> FloatArray:
        """Return the inverse variance of the sum."""
        return 1 / (variance + scale**2)

    def expected_residual(self, scale: FloatArray, variance: FloatArray) -> FloatArray:
        """Return the mean absolute value of a normal variable."""
        return np.sqrt(2 * (variance + scale**2) / np.pi)

    def strain(
        self, residual: FloatArray, scale: FloatArray, sampling: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """Return the squared residual over the variance."""
        if sampling is None:
            width = scale
        else:
            width = np.sqrt(scale**2 + sampling)
        return (np.abs(residual) / width) ** 2, np.ones_like(residual)


class Absolute(Kernel):
    """The kernel -|r| of Laplace noise."""

    code = ABSOLUTE
    variance = 2.0
    has_kink = True
    log_constant = math.log(2)

    def log(self, ratio: Any) -> Any:
        """Return the log kernel."""
        return -abs(ratio)

    def slope(self, ratio: FloatArray) -> FloatArray:
        """Return the sign."""
        return np.sign(ratio)

    def log_moment(self, rates: FloatArray, scale: float, is_discrete: bool) -> FloatArray:
        r"""Return the exact values, infinite from 1/b on.

        They are :math:`-\log(1 - b^2 t^2)`, or on the whole numbers
        :math:`2 \log(1-a) - \log(1 - a e^t) - \log(1 - a e^{-t})` with :math:`a = e^{-1/b}`.
        """
        fall = 1 / scale
        inside = np.minimum(rates, fall)  # at the end itself both are infinite
        with np.errstate(divide="ignore"):
            if not is_discrete:
                return -np.log1p(-np.square(inside * scale))
            constant = 2 * math.log(-math.expm1(-fall))
            return constant - np.log(-np.expm1(inside - fall)) - np.log(-np.expm1(-inside - fall))

    def conjugate(self, tilt: FloatArray, scale: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return zeros: the conjugate is flat within `reach`."""
        return np.zeros_like(tilt), np.zeros_like(tilt)

    def reach(self, scale: FloatArray) -> FloatArray:
        """Return the inverse scale."""
        with np.errstate(divide="ignore"):
            return 1 / scale

    def convolved(
        self, residual: FloatArray, variance: FloatArray, scale: FloatArray
    ) -> tuple[Any, Any]:
        r"""Return -log f and its derivative, from :math:`\operatorname{erfcx}(x) = e^{x^2} \operatorname{erfc}(x)`.

        Nothing large cancels in either term of f; but the first is taken as it stands where Φ is above one half.
        Noise that is negligible beside the sampling error is replaced by normal noise of its variance.
        """
        from scipy.special import erfcx, log_ndtr

        is_seen = scale > 1e-4 * np.sqrt(variance)
        if not is_seen.all():
            value, slope = NORMAL.convolved(residual, variance, math.sqrt(2) * scale)
            if is_seen.any():
                seen = self.convolved(residual[..., is_seen], variance[is_seen], scale[is_seen])
                value[..., is_seen], slope[..., is_seen] = seen
            return value, slope
        deviation = np.sqrt(variance)
        a = deviation / scale
        standard = np.abs(residual) / deviation
        far = a - standard
        bell = -0.5 * standard**2
        first = bell + np.log(0.5 * erfcx(np.maximum(far, 0.0) * math.sqrt(0.5)))
        with np.errstate(divide="ignore"):
            second = bell + np.log(0.5 * erfcx((a + standard) * math.sqrt(0.5)))
        beyond = far < 0
        wide = np.broadcast_to(a, far.shape)[beyond]
        first[beyond] = 0.5 * wide**2 - standard[beyond] * wide + log_ndtr(-far[beyond])
        log_density = np.logaddexp(first, second) - np.log(2 * scale)
        return -log_density, np.sign(residual) * np.tanh(0.5 * (second - first)) / scale

    def convolved_curvature(
        self, residual: FloatArray, variance: FloatArray, scale: FloatArray
    ) -> FloatArray:
        """Return the second derivative of -log f, or that of a normal variable where the noise is negligible."""
        found = NORMAL.convolved_curvature(residual, variance, math.sqrt(2) * scale).copy()
        is_seen = scale > 1e-4 * np.sqrt(variance)
        residual = residual[..., is_seen]
        deviation = np.sqrt(variance[is_seen])
        scale = scale[is_seen]
        loss, slope = self.convolved(residual, variance[is_seen], scale)
        log_kink = (
            loss
            - 0.5 * (residual / deviation) ** 2
            - np.log(math.sqrt(2 * math.pi) * deviation * scale**2)
        )
        found[..., is_seen] = np.maximum(np.exp(log_kink) + slope**2 - 1 / scale**2, 0.0)
        return found

    def information(self, variance: FloatArray, scale: FloatArray) -> FloatArray:
        r"""Return an approximation of the information, whose integral has no closed form.

        It is :math:`1 / \bigl(s^2 + b^2 (2 - e^{-2s/(b\sqrtπ)})\bigr)`: within 2 % everywhere, and exact in both
        limits, :math:`1/b^2` without sampling error and :math:`1/(s^2 + 2b^2)` where it is large.
        """
        with np.errstate(divide="ignore", over="ignore"):
            ratio = np.sqrt(variance) / np.maximum(scale, 1e-300)
        return 1 / (variance + scale**2 * (2 - np.exp(-2 / math.sqrt(math.pi) * ratio)))

    def expected_residual(self, scale: FloatArray, variance: FloatArray) -> FloatArray:
        """Return the mean absolute value of the sum."""
        from scipy.special import erfcx

        with np.errstate(divide="ignore", invalid="ignore"):
            return np.sqrt(2 * variance / np.pi) + scale * erfcx(np.sqrt(variance / 2) / scale)

    def strain(
        self, residual: FloatArray, scale: FloatArray, sampling: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """Return twice the absolute residual over its mean, which has 2 degrees of freedom."""
        if sampling is None:
            width = scale
        else:
            width = self.expected_residual(scale, sampling)
        return 2 * np.abs(residual) / width, np.full(len(scale), 2.0)


# The kernel of normal noise, and that of Laplace noise; neither has a state
NORMAL = Square()
LAPLACE = Absolute()
# Kernels by the names that noise distributions give them
KERNELS: dict[str | None, Kernel] = {"square": NORMAL, "absolute": LAPLACE}
# The same by their codes
_BY_CODE: dict[int, Kernel] = {kernel.code: kernel for kernel in KERNELS.values()}


def code_of(kernel: Kernel | None) -> int:
    """Return the code of a kernel, -1 of none."""
    if kernel is None:
        return NO_KERNEL
    return kernel.code


def by_kernel(codes: IntArray, formula: Callable[..., Any], *arrays: Any) -> Any:
    """Evaluate ``formula(kernel, *arrays)`` for the numbers of each kernel.

    Parameters
    ----------
    codes
        Kernel of each number, shape (numbers,); a number without one (-1) is treated as normal.
    formula
        A function that returns one or several arrays whose last axis is that of the numbers.
    arrays
        Arrays whose last axis is that of the numbers, or None.
    """
    known = np.maximum(codes, SQUARE)
    present = [code for code in _BY_CODE if (known == code).any()] or [SQUARE]
    if len(present) == 1:
        return formula(_BY_CODE[present[0]], *arrays)
    whole = np.zeros(0)
    for code in present:
        own = known == code
        found = np.asarray(
            formula(_BY_CODE[code], *(each if each is None else each[..., own] for each in arrays))
        )
        if not whole.size:
            whole = np.empty((*found.shape[:-1], len(codes)))
        whole[..., own] = found
    return whole


# Single numbers: the samplers compile these functions, which may use `math` but cannot call each other


def log_kernel(code, ratio):
    """Return the log kernel at a residual over the scale."""
    if code == ABSOLUTE:
        return -abs(ratio)
    return -0.5 * ratio * ratio


def kernel_slope(code, ratio):
    """Return the slope of a kernel without a kink, with its sign turned."""
    return ratio


def log_step(code, gap, by, width):
    """Return the change of the log kernel when the true number grows by `by`; `gap` is noisy - true before."""
    if code == ABSOLUTE:
        return (abs(gap) - abs(gap - by)) / width
    return by * (gap - 0.5 * by) / (width * width)
