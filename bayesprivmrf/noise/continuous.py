r"""Noise distributions for tables that others published, and the register by which files find a distribution.

`Laplace` and `Gaussian` are continuous, so that no mechanism of this library draws them. `Within` describes a count
that is known only to lie between two bounds: one withheld below a threshold, or bounded by a constraint.

An agency adds noise e to a count n and publishes "<10" where n + e is below 10. All that is known is that
:math:`l \le n + e \le u` with whole numbers l and u, so the likelihood is the probability

.. math:: P(l \le n + e \le u) = \sum_{k = l}^{u} P(e = k - n).

Without noise it is 1 for n between l and u, and 0 elsewhere: an inequality on the count. The value is the midpoint
:math:`y = (l + u)/2`, and the half-width is :math:`h = (u - l)/2`. The likelihood then depends on the residual y - n
alone, as the density of every noise distribution does. It is 2h + 1 times the probability of y under n + e + U, with
U uniform on the whole numbers (or halves) from -h to h; the class describes the distribution of e + U.

**The midpoint is no unbiased estimate of the count.** The interval does not move with the count, and where most
withheld counts are 0, the midpoint is too high for most of them. So no estimator may weight it by its variance, and
none derives the number of records from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import ArrayLike

from bayesprivmrf.checks import (
    at_least,
    generator,
    number_array,
    positive_finite,
    require,
    whole_number,
)
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.base import (
    NOISE_NAMES,
    WITHIN,
    Kernel,
    NoiseDistribution,
    ScaledNoise,
    shape,
)
from bayesprivmrf.noise.discrete import DiscreteGaussian as DiscreteGaussian
from bayesprivmrf.noise.discrete import DiscreteLaplace as DiscreteLaplace
from bayesprivmrf.noise.discrete import NoNoise as NoNoise
from bayesprivmrf.noise.kernels import KERNELS
from bayesprivmrf.noise.likelihood import Likelihood, likelihood_from_dict, named_likelihood
from bayesprivmrf.noise.sums import SummedNoise as SummedNoise

# Standard deviations of the noise beyond which terms of the sum are nothing beside the largest.
_FAR = 60.0
# Largest half of the distance of two bounds: larger floats are all whole numbers
_LARGEST_HALF = 2.0**52


@final
@dataclass(frozen=True, slots=True)
class Within(NoiseDistribution):
    """Distribution of a count that is known only to lie between two bounds; the value is their midpoint.

    `LatentCounts` reads such counts. Other estimators refuse them, because the midpoint is no estimate.

    Parameters
    ----------
    half_width
        Half the distance between the bounds, records: 4.5 for a count of 0 to 9. Twice this number is whole.
    base
        Distribution of the noise that the count had before it was compared with the bounds: a discrete distribution,
        or its name with `base_scale`. By default there was no noise.
    base_scale
        Scale of that distribution, records.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesprivmrf.privacy import DiscreteLaplace
    >>> value, distribution = Within.between(0, 9, DiscreteLaplace(2.0))
    >>> value, distribution.half_width
    (4.5, 4.5)
    >>> np.exp(distribution.log_density(value - np.array([3, 40]))).round(6).tolist()  # of counts 3 and 40
    [0.896963, 0.0]
    """

    half_width: float
    base: Any = "none"
    base_scale: float = 0.0

    name: ClassVar[str] = "within"
    kernel: ClassVar[Kernel | None] = WITHIN

    def __post_init__(self) -> None:
        half = positive_finite("half_width", self.half_width, "a count that is known is NoNoise()")
        remedy = "counts are whole, so give whole bounds to Within.between(lower, upper)"
        is_exact = half <= _LARGEST_HALF and 2 * half == round(2 * half)
        require(is_exact, "half_width", "be half a whole number, at most 2^52", half, remedy)
        object.__setattr__(self, "half_width", half)
        at_least("base_scale", self.base_scale, 0)
        if isinstance(self.base, NoiseDistribution):
            object.__setattr__(self, "base_scale", getattr(self.base, "scale", math.nan))
            object.__setattr__(self, "base", self.base.name)
        if isinstance(self.base, str):
            kind = NOISE_NAMES.find(self.base)
        else:
            kind = None
        is_own = kind is not None and _has_kernel(kind) and kind.is_discrete
        must = "be one of the library's discrete distributions, such as DiscreteLaplace(2.0)"
        remedy = "leave it out where no noise was added"
        require(is_own, "`base` of counts within bounds", must, "another kind", remedy)
        object.__setattr__(self, "base_scale", self.base_law.scale)

    @classmethod
    def between(
        cls, lower: float, upper: float, noise: NoiseDistribution | None = None
    ) -> tuple[float, Self | NoiseDistribution]:
        """Return the value and the distribution of a count known to lie between two whole bounds, both included.

        Equal bounds without noise give an exact number.

        Raises
        ------
        ArgumentError
            The bounds are not whole numbers, or the first is above the second.
        """
        must = "be whole numbers, the first at most the second"
        remedy = "for '<10' write 0 and 9"
        for one in (lower, upper):
            require(not isinstance(one, bool | np.bool_), "`lower` and `upper`", must, one, remedy)
        bounds = np.asarray(number_array("the bounds", [lower, upper]), float)
        is_right = (
            np.isfinite(bounds).all()
            and (bounds == np.rint(bounds)).all()
            and bounds[0] <= bounds[1]
        )
        remedy += ", and for a count without an upper bound the number of records"
        require(is_right, "`lower` and `upper`", must, "others", remedy)
        before = NoNoise() if noise is None else noise
        if bounds[0] == bounds[1]:
            return float(bounds[0]), before
        return float(bounds.mean()), cls(float(bounds[1] - bounds[0]) / 2, before)

    @property
    def base_law(self) -> NoiseDistribution:
        """Distribution of the noise before the bounds."""
        kind: Any = NOISE_NAMES.find(self.base)
        return kind(self.base_scale)

    @property
    def scale(self) -> float:  # type: ignore[override]
        """Scale of the noise before the bounds, records; 0 without noise."""
        return self.base_scale

    @property
    def hides(self) -> bool:
        """True if the count had noise before it was bounded."""
        return self.base_law.hides

    @property
    def variance(self) -> float:
        r"""Variance of e + U: the variance of the noise plus :math:`h(h+1)/3`, records squared."""
        return self.base_law.variance + self.half_width * (self.half_width + 1) / 3

    def summed(self, count: int) -> NoiseDistribution:
        """Return the bounds of a sum of counts that lie within such bounds: their half widths add up.

        Raises
        ------
        ArgumentError
            The counts had noise before they were bounded. Bounds on sums of noisy counts then hold, but the noise
            of a sum is that of several draws, which this class does not have. A normal distribution would be wrong
            for any number of counts, because a midpoint is no estimate of its count.
        """
        count = whole_number("count", count, 1)
        if count == 1:
            return self
        must = "be of counts without noise"
        remedy = "measure the sum itself, or keep the variable in the model"
        what = f"the sum of {count} counts within bounds"
        require(self.base_scale == 0, what, must, f"{self.base!r} noise", remedy)
        return Within(count * self.half_width)

    def log_density(self, residual: ArrayLike) -> np.ndarray:
        """Return the log probability that count and noise lie within bounds, nats; residual = midpoint - count."""
        return self._summed(residual, lambda terms, _: float(np.logaddexp.reduce(terms)), -np.inf)

    def score(self, residual: ArrayLike) -> np.ndarray:
        """Return the mean score of the noise, given that count and noise lie within the bounds."""

        def mean(terms: np.ndarray, noise: np.ndarray) -> float:
            if not np.isfinite(terms).any():
                return math.copysign(math.inf, noise[0])
            weights = np.exp(terms - terms.max())
            scores = np.where(weights > 0, self.base_law.score(noise), 0.0)
            return float(weights @ scores / weights.sum())

        return self._summed(residual, mean, math.nan)

    def _summed(
        self, residual: ArrayLike, of: Callable[[np.ndarray, np.ndarray], float], nothing: float
    ) -> np.ndarray:
        """Apply a function to the noise values that lead to within the bounds, and to their log probabilities."""
        given = number_array("residual", residual, float)
        law = self.base_law
        require(
            np.isfinite(given).all(),
            "residual",
            "be finite",
            "NaN or infinity",
            "leave such numbers out",
        )
        reach = math.ceil(_FAR * law.standard_deviation)
        different, places = np.unique(given, return_inverse=True)
        values = np.full(different.size, nothing)
        for place, one in enumerate(different):
            # noise values that lead from the count to within the bounds, without negligible terms
            low = math.ceil(one - self.half_width)
            high = math.floor(one + self.half_width)
            near = min(max(0, low), high)
            noise = np.arange(max(low, near - reach), min(high, near + reach) + 1)
            if noise.size:
                values[place] = of(law.log_density(noise), noise)
        return values[places].reshape(given.shape)

    def draw(self, size: int | tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Draw e + U, shape as given."""
        rng = generator(rng)
        return (
            self.base_law.draw(size, rng)
            + rng.integers(round(2 * self.half_width) + 1, size=shape(size))
            - self.half_width
        )


@final
@dataclass(frozen=True, slots=True)
class Laplace(ScaledNoise):
    r"""Laplace noise, density :math:`e^{-|r|/b} / (2b)`; variance :math:`2b^2`.

    Parameters
    ----------
    scale
        b > 0, records.
    """

    name: ClassVar[str] = "laplace"
    kernel: ClassVar[Kernel | None] = "absolute"

    @property
    def variance(self) -> float:
        """:math:`2 b^2`, records squared."""
        return 2 * self.scale**2

    @property
    def _log_peak(self) -> float:
        return -math.log(2 * self.scale)

    @classmethod
    def of_variance(cls, variance: float) -> Self:
        r"""Return the distribution of scale :math:`\sqrt{\text{variance} / 2}`."""
        return cls(math.sqrt(positive_finite("variance", variance) / 2))

    def draw(self, size: int | tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Draw float64 numbers."""
        return generator(rng).laplace(0.0, self.scale, shape(size))


@final
@dataclass(frozen=True, slots=True)
class Gaussian(ScaledNoise):
    r"""Normal noise of mean zero; density :math:`e^{-r^2/(2s^2)} / (s \sqrt{2\pi})`.

    Parameters
    ----------
    scale
        Standard deviation s > 0, records.
    """

    name: ClassVar[str] = "gaussian"
    kernel: ClassVar[Kernel | None] = "square"

    @property
    def variance(self) -> float:
        """:math:`s^2`, records squared."""
        return self.scale**2

    @property
    def _log_peak(self) -> float:
        return -(math.log(self.scale) + 0.5 * math.log(2 * math.pi))

    @classmethod
    def of_variance(cls, variance: float) -> Self:
        """Return the distribution whose scale is the square root of the variance."""
        return cls(math.sqrt(positive_finite("variance", variance)))

    def summed(self, count: int) -> Gaussian:
        """Return the normal distribution whose variance is `count` times as large."""
        return Gaussian(self.scale * math.sqrt(whole_number("count", count, 1)))

    def draw(self, size: int | tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Draw float64 numbers."""
        return generator(rng).normal(0.0, self.scale, shape(size))


def _has_kernel(kind: Any) -> bool:
    """Return True for a class of noise distributions that has one of the library's kernels."""
    is_noise = isinstance(kind, type) and issubclass(kind, NoiseDistribution)
    return is_noise and kind.kernel in KERNELS


def noise_from_dict(values: Mapping[str, Any]) -> Likelihood:
    """Return the noise distribution, or other likelihood, that `as_dict` described.

    Raises
    ------
    ArgumentError
        No distribution of that name was defined or installed, or the distribution refuses the value of a field.

    Examples
    --------
    >>> noise_from_dict({"name": "laplace", "scale": 2.0})
    Laplace(scale=2.0)
    """
    return likelihood_from_dict(values)


def named_law(name: str) -> type[NoiseDistribution]:
    """Return the class of the noise distribution with a given name in files.

    Raises
    ------
    ArgumentError
        No distribution of that name was defined or installed, or the name is that of a likelihood that adds no noise.
    """
    found = named_likelihood(name)
    if not issubclass(found, NoiseDistribution):
        must = "be that of noise that is added to counts"
        remedy = "pass the likelihood itself"
        raise ArgumentError(f"`name` must {must}, got {name!r}, a rule that adds none; {remedy}.")
    return found
