"""The base class of noise distributions: what releases, estimators, sources of noise and files need from one."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import ArrayLike

from bayesprivmrf.checks import instance_of, number_array, positive_finite, require, whole_number
from bayesprivmrf.errors import ArgumentError, PrivacyError
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.kernels import KERNELS
from bayesprivmrf.noise.kernels import Kernel as SmoothKernel
from bayesprivmrf.noise.likelihood import ENTRY_POINT_GROUP as ENTRY_POINT_GROUP
from bayesprivmrf.noise.likelihood import NOISE_NAMES as NOISE_NAMES
from bayesprivmrf.noise.likelihood import Likelihood

# A name in `noise.kernels.KERNELS`, or `WITHIN`
type Kernel = str

# Kernel of a value that is known only within bounds
WITHIN = "within"
# Name of the distribution of a sum of draws, `bayesprivmrf.noise.SummedNoise`
SUMMED = "summed"

# Source of randomness: as many independent uniform uint64 as it is asked for.
type Words = Callable[[int], np.ndarray]


class NoiseDistribution(Likelihood):
    """Distribution of the noise that is added independently to each cell of a table: residual = noisy - true.

    Every distribution is symmetric about zero and has a finite variance. Numbers are in the table's unit (records).

    A distribution of your own is a frozen dataclass that subclasses this class. Its fields are numbers and text, so
    that a file can store it, and its `name` is unique, so that a file can find it again. A package lists the class
    under this name in the entry-point group ``bayesprivmrf.noise_laws``; releases then load without an import of the
    package.

    Attributes
    ----------
    name
        The name of the distribution in a file.
    is_discrete
        True if the noise is of whole numbers.
    kernel
        Form of the log density. ``"absolute"``: :math:`-|r|/b` plus a constant, with b the `scale`. ``"square"``:
        :math:`-r^2/(2 s^2)` plus a constant, with s the `scale`, or the limit s = 0. ``"within"``: that of a value
        known only within bounds (`Within`). None: another form. Estimators whose formulas rest on one kernel refuse
        distributions with another.
    scale
        b or s, records. A distribution without a kernel needs none.
    half_width
        Half the distance between the bounds, records; only where the kernel is ``"within"``.
    """

    __slots__ = ()
    name: ClassVar[str]
    is_discrete: ClassVar[bool] = False
    is_additive: ClassVar[bool] = True
    kernel: ClassVar[Kernel | None] = None
    scale: float
    half_width: float
    _takes_words: ClassVar[bool] = True
    """True if `add_exactly` takes all randomness from `words`; OpenDP has its own generator."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """Variance, in records squared; exact up to rounding."""

    @property
    def base_law(self) -> NoiseDistribution:
        """Distribution of the noise before the count was bounded; the distribution itself if there are no bounds."""
        return self

    @property
    def hides(self) -> bool:
        """True if the noise hides the count; a number without noise protects nobody."""
        return self.variance > 0

    @property
    def mean_absolute(self) -> float:
        """Raise the error for a former attribute, which nothing used."""
        raise AttributeError(
            "noise has no `mean_absolute`; take `np.abs(law.draw(size, rng)).mean()`."
        )

    @abstractmethod
    def log_density(self, residual: ArrayLike) -> np.ndarray:
        """Return the log density (or log probability) at each residual, nats.

        A discrete distribution is extended to real residuals by its own formula and constant. The extension agrees
        with it at integers, and relaxations of the counts need it.
        """

    @abstractmethod
    def score(self, residual: ArrayLike) -> np.ndarray:
        """Return the derivative of ``log p(y | n)`` with respect to the true count n, at residual = y - n."""

    @abstractmethod
    def draw(self, size: int | tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Draw noise for a simulation, which protects nobody: int64 if the distribution is discrete, else float."""

    # the count plus noise, as a likelihood

    def log_probability(self, published: ArrayLike, counts: ArrayLike) -> np.ndarray:
        """Return the log density of the noise at the published numbers minus the counts, nats."""
        return self.log_density(np.subtract(published, counts))

    def draw_given(self, counts: ArrayLike, rng: np.random.Generator) -> np.ndarray:
        """Draw noise and add it to the counts."""
        return np.asarray(counts) + self.draw(np.shape(counts), rng)

    def mean_given(self, counts: ArrayLike) -> np.ndarray:
        """Return the counts, because the noise has mean zero."""
        return np.asarray(counts, dtype=float)

    def variance_given(self, counts: ArrayLike) -> np.ndarray:
        """Return the variance of the noise for each count."""
        return np.full(np.shape(counts), self.variance, dtype=float)

    def allowed(self, published: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers themselves if there is no noise, their bounds, or minus and plus infinity."""
        numbers = np.asarray(published, dtype=float)
        half = math.inf
        if self.is_exact:
            half = 0.0
        elif self.is_bounded and self.base_law.is_exact:
            half = self.half_width
        return numbers - half, numbers + half

    def estimate(self, published: ArrayLike) -> FloatArray:
        """Return the published numbers themselves."""
        return np.asarray(published, dtype=float)

    def error_variance(self, counts: ArrayLike) -> FloatArray:
        """Return the variance of the noise for each count."""
        return self.variance_given(counts)

    @property
    def smooth(self) -> SmoothKernel | None:
        """The kernel of the density; None if it has another form."""
        return KERNELS.get(self.kernel)

    def widths(self, counts: ArrayLike) -> FloatArray:
        """Return the `scale` of the kernel for each count; the standard deviation without a kernel."""
        width = self.standard_deviation if self.kernel is None else self.scale
        return np.full(np.shape(counts), width, dtype=float)

    @property
    def is_exact(self) -> bool:
        """True if there is no noise."""
        return self.variance == 0

    @property
    def is_bounded(self) -> bool:
        """True if the count is known only within bounds (`Within`)."""
        return self.kernel == WITHIN

    @property
    def is_tabled(self) -> bool:
        """False: the samplers compile the formulas of kernels."""
        return False

    def log_moment(self, rates: ArrayLike) -> np.ndarray:
        r"""Return upper bounds of :math:`\log E e^{t η}`, nats; infinite where none is known.

        The bound follows from the kernel.

        Parameters
        ----------
        rates
            Values of t, one over records.
        """
        rates = np.abs(np.asarray(rates, dtype=float))
        if self.variance == 0:
            return np.zeros_like(rates)
        form = self.smooth
        if form is None or self.is_tabled:
            return np.where(rates == 0, 0.0, np.inf)
        return form.log_moment(rates, self.scale, self.is_discrete)

    @classmethod
    def of_variance(cls, variance: float) -> Self:
        """Return the distribution that has this variance, records squared.

        Raises
        ------
        ArgumentError
            The variance is not positive and finite, or does not determine the distribution.
        """
        what = f"a variance must determine the noise distribution, which it does not for {cls.__name__}"
        raise ArgumentError(f"{what}; give the distribution itself.")

    def summed(self, count: int) -> NoiseDistribution:
        """Return the distribution of the sum of a number of independent draws.

        The sum of one draw has the distribution itself. That of several draws has a table of its density, or is
        normal if it is closer to normal than `bayesprivmrf.noise.sums.LARGEST_DISTANCE`.
        """
        count = whole_number("count", count, 1)
        if count == 1:
            return self
        # by its name, because the class rests on this one
        kind: Any = NOISE_NAMES.find(SUMMED)
        return kind.of_draws(self, count)

    def add_exactly(self, counts: IntArray, words: Words) -> IntArray:
        """Return whole numbers plus noise for a release.

        A distribution that a mechanism may release overrides this method. The noise must follow the distribution
        exactly, without rounding of its probabilities, and take all randomness from `words`. The method must not
        fail, because the budget is already spent when it is called.

        Parameters
        ----------
        counts
            Records, int64.
        words
            The source's random words.

        Raises
        ------
        PrivacyError
            The distribution has no exact draw.
        """
        raise no_exact_draw(self)

    @property
    @final
    def has_exact_draw(self) -> bool:
        """True if a release may be made with this distribution: it is discrete and supplies `add_exactly`."""
        return self.is_discrete and type(self).add_exactly is not NoiseDistribution.add_exactly

    @property
    @final
    def standard_deviation(self) -> float:
        """Standard deviation, in records."""
        return math.sqrt(self.variance)


# The name of the class before version 0.2.0
NoiseLaw = NoiseDistribution


def checked_noise(name: str, law: Any) -> NoiseDistribution:
    """Return the argument, after a check that it is a noise distribution."""
    remedy = "write DiscreteLaplace(2.0), for instance"
    return instance_of(name, law, NoiseDistribution, "be of noise distributions", remedy)  # type: ignore[type-abstract]


def check_variance(law: NoiseDistribution) -> None:
    """Raise an `ArgumentError` if a distribution's variance is negative, infinite or NaN."""
    must = "have a finite variance"
    remedy = "tables are weighted by it: bound its tails, or correct `variance`"
    is_finite = 0 <= law.variance < math.inf
    require(is_finite, f"the noise distribution {law.name!r}", must, law.variance, remedy)


def check_kernel(law: NoiseDistribution) -> None:
    """Raise an `ArgumentError` unless a distribution's density has the stated kernel, which estimators rely on."""
    if law.kernel is None or law.variance == 0:
        return
    if law.is_bounded:
        half_width = getattr(law, "half_width", math.nan)
        positive_finite("half_width", half_width, "a distribution within bounds has one")
        return
    what = f"the noise distribution {law.name!r}"
    known = " or ".join(map(repr, sorted(filter(None, KERNELS))))
    scale = getattr(law, "scale", math.nan)
    must = f"have a `kernel` of None, or {known} with a positive, finite `scale`"
    form = law.smooth
    if form is None or not 0 < scale < math.inf:
        raise ArgumentError(
            f"{what} must {must}, got {law.kernel!r} with the scale {scale!r}; correct it."
        )
    steps = scale * np.arange(1.0, 4.0)
    found = np.asarray(law.log_density(steps)) - law.log_density(np.zeros(3))
    falls = np.allclose(found, form.log(steps / scale), rtol=1e-6)
    must = f"have the density of its `kernel`, {law.kernel!r}, with its `scale`"
    remedy = "correct `log_density`, or leave out the kernel"
    require(falls, what, must, "one that falls differently", remedy)


# Number of standard errors between two numbers beyond which noise does not explain their distance.
#
# The largest tail is that of one Laplace variable, :math:`e^{-8 \sqrt 2} = 1.2 \cdot 10^{-5}`, as
# `SMALLEST_MARGIN_TAIL` of `bayesprivmrf.inference.criticism.verdict`; the tail of a sum is smaller.
CONTRADICTION = 8.0


def pooled_total(sums: np.ndarray, precisions: np.ndarray) -> float:
    """Return the unbiased combination of least variance; the first exact sum if there is one, NaN without sums."""
    if not len(sums):
        return math.nan
    if np.isinf(precisions).any():
        return float(sums[np.isinf(precisions)][0])
    return float(sums @ precisions / precisions.sum())


def contradiction(estimates: np.ndarray, errors: np.ndarray) -> tuple[int, int] | None:
    """Return the positions of two estimates of one number whose distance noise does not explain; None if it does.

    The most accurate, the smallest and the largest estimate are compared with all others.
    """
    if not len(estimates):
        return None
    known = np.array([errors.argmin(), estimates.argmin(), estimates.argmax()])
    # exact estimates may differ by rounding errors
    deviations = np.maximum(np.hypot(errors[known][:, np.newaxis], errors), 1e-6)
    gaps = np.abs(estimates[known][:, np.newaxis] - estimates) / deviations
    if gaps.max() <= CONTRADICTION:
        return None
    one, other = np.unravel_index(gaps.argmax(), gaps.shape)
    return int(known[one]), int(other)


def no_exact_draw(law: NoiseDistribution) -> PrivacyError:
    """Return the error for a distribution with which no release may be made."""
    if law.is_discrete:
        lacks = "which has no exact draw (`add_exactly`)"
    else:
        lacks = "which is continuous"
    must = "get noise of whole numbers, drawn exactly"
    remedy = "use DiscreteLaplace or DiscreteGaussian"
    return PrivacyError(
        f"counts must {must}, got the distribution {law.name!r}, {lacks}; {remedy}."
    )


def shape(size: Any) -> tuple[int, ...]:
    """Return the shape given by a number of draws or by a tuple of numbers."""
    return tuple(
        whole_number("size", count) for count in (size if isinstance(size, tuple) else (size,))
    )


# Records: the square of a larger scale, and so the variance, may be no float
LARGEST_SCALE = 1e150


@dataclass(frozen=True, slots=True)
class ScaledNoise(NoiseDistribution):
    """Abstract distribution with a kernel, whose only field is a positive scale s."""

    scale: float

    def __post_init__(self) -> None:
        scale = positive_finite("scale", self.scale)
        require(scale <= LARGEST_SCALE, "scale", f"be at most {LARGEST_SCALE:g}", scale)
        object.__setattr__(self, "scale", scale)

    @property
    def _form(self) -> SmoothKernel:
        return KERNELS[self.kernel]

    @property
    @abstractmethod
    def _log_peak(self) -> float:
        """The log density at zero, nats."""

    def log_density(self, residual: ArrayLike) -> np.ndarray:
        """Return the log density (or log probability) at each residual, nats."""
        steps = np.abs(number_array("residual", residual, float)) / self.scale
        return self._log_peak + self._form.log(steps)

    def score(self, residual: ArrayLike) -> np.ndarray:
        """Return the slope of the kernel over the scale."""
        steps = number_array("residual", residual, float) / self.scale
        return self._form.slope(steps) / self.scale
