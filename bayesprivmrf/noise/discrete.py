"""Discrete noise distributions, on whole numbers: mechanisms release with these, and OpenDP draws them exactly."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import ArrayLike

from bayesprivmrf.checks import (
    finite,
    generator,
    number_array,
    positive_finite,
    require,
    whole_number,
)
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise.base import (
    LARGEST_SCALE,
    Kernel,
    NoiseDistribution,
    ScaledNoise,
    Words,
    shape,
)


class _OpenDPNoise(ScaledNoise):
    """Abstract distribution that OpenDP draws by exact arithmetic, with the operating system's randomness."""

    __slots__ = ()
    is_discrete: ClassVar[bool] = True
    _takes_words: ClassVar[bool] = False

    @abstractmethod
    def _added_to(self, vector: Any) -> Any:
        """Return OpenDP's measurement on a domain of vectors."""

    @final
    def measurement(self) -> Any:
        """Return OpenDP's measurement that adds this noise to a vector of whole numbers.

        Its map turns the sensitivity of the vector into the privacy loss: the L1 distance (an integer) into epsilon
        for discrete Laplace noise, the L2 distance (a float) into rho for discrete Gaussian noise.
        """
        return opendp_measurement(self)

    @final
    def add_exactly(self, counts: IntArray, words: Words) -> IntArray:
        """Return counts plus noise from OpenDP's own generator; see `NoiseDistribution.add_exactly`."""
        flat = np.asarray(counts, dtype=np.int64)
        return np.array(self.measurement()(flat.ravel().tolist()), dtype=np.int64).reshape(
            flat.shape
        )


# A draw exceeds 60 of these scales, about the largest 64-bit integer, with a probability below 1e-26
_LARGEST_DRAWN = 2.0**57


def _require_drawable(law: ScaledNoise) -> None:
    """Raise an error unless the draws of a distribution are 64-bit integers."""
    must = f"be at most {_LARGEST_DRAWN:.2g} for draws that are 64-bit integers"
    require(law.scale <= _LARGEST_DRAWN, "scale", must, law.scale)


@functools.lru_cache(maxsize=256)
def opendp_measurement(law: _OpenDPNoise) -> Any:
    """Return the OpenDP measurement of a distribution, on vectors of integers."""
    from opendp import domains
    from opendp.mod import enable_features

    enable_features("contrib")
    return law._added_to(domains.vector_domain(domains.atom_domain(T="i64")))


@final
@dataclass(frozen=True, slots=True)
class DiscreteLaplace(_OpenDPNoise):
    r"""Two-sided geometric noise, :math:`P(k) = \frac{1-a}{1+a} a^{|k|}` with :math:`a = e^{-1/b}`.

    The constant follows from :math:`\sum_k a^{|k|} = 1 + 2a/(1-a) = (1+a)/(1-a)`. It is the difference of two
    independent geometric counts of mean :math:`a/(1-a)` and variance :math:`a/(1-a)^2`, so its variance is
    :math:`2a/(1-a)^2 = 1 / (2 \sinh^2(1/(2b)))`.

    Parameters
    ----------
    scale
        b > 0, records.

    References
    ----------
    Ghosh, Roughgarden, Sundararajan 2012, Definition 2.1.

    Examples
    --------
    >>> round(DiscreteLaplace(1.0).variance, 6)
    1.841347
    """

    name: ClassVar[str] = "discrete-laplace"
    kernel: ClassVar[Kernel | None] = "absolute"

    @property
    def variance(self) -> float:
        """:math:`2a/(1-a)^2`, records squared."""
        return 2 * math.exp(-1 / self.scale) / math.expm1(-1 / self.scale) ** 2

    @property
    def _log_peak(self) -> float:
        return math.log(math.tanh(0.5 / self.scale))  # (1-a)/(1+a)

    @classmethod
    def of_variance(cls, variance: float) -> Self:
        r"""Return the distribution of scale :math:`1 / (2 \operatorname{arsinh}(1 / \sqrt{2 \,\text{variance}}))`."""
        return cls(0.5 / math.asinh(math.sqrt(0.5 / positive_finite("variance", variance))))

    def draw(self, size: int | tuple[int, ...], rng: np.random.Generator) -> IntArray:
        """Draw int64 numbers as the difference of two geometric ones, whose tail is a^k."""
        _require_drawable(self)
        success = -math.expm1(-1 / self.scale)
        rng = generator(rng)
        size = shape(size)
        return rng.geometric(success, size) - rng.geometric(success, size)

    def _added_to(self, vector: Any) -> Any:
        from opendp import measurements, metrics

        return measurements.make_laplace(vector, metrics.l1_distance(T="i64"), scale=self.scale)


@final
@dataclass(frozen=True, slots=True)
class DiscreteGaussian(_OpenDPNoise):
    r"""Discrete Gaussian noise, :math:`P(k) = e^{-k^2/(2s^2)} / Z(s)` on the integers.

    Poisson's summation formula gives a second form of the constant,

    .. math:: Z(s) = \sum_k e^{-k^2/(2 s^2)} = s \sqrt{2\pi} \sum_j e^{-2 \pi^2 s^2 j^2},

    which needs one term where s is large, while the first form needs few terms where s is small. The variance is the
    derivative of :math:`\log Z` with respect to :math:`-1/(2s^2)`; by the second form,

    .. math:: \sigma^2 = s^2 - 4 \pi^2 s^4 \frac{\sum_j j^2 e^{-2\pi^2 s^2 j^2}}{\sum_j e^{-2\pi^2 s^2 j^2}},

    which is below :math:`s^2`, by a visible amount only for s under one.

    Parameters
    ----------
    scale
        s > 0, records; close to the standard deviation from s = 1 on.

    References
    ----------
    Canonne, Kamath, Steinke 2020, Definition 1 and Fact 18.

    Examples
    --------
    >>> DiscreteGaussian(3.0).variance
    9.0
    >>> round(DiscreteGaussian(0.3).variance, 6)
    0.007673
    """

    name: ClassVar[str] = "discrete-gaussian"
    kernel: ClassVar[Kernel | None] = "square"

    def _sums(self) -> tuple[float, float]:
        """Return the sums of q^(j^2) and of j^2 q^(j^2) over the integers j, in the form that converges at once."""
        # the square of a tiny scale would be 0, so the smallest float takes its place
        if self.scale < 0.5:
            half = 0.5 / max(self.scale**2, math.ulp(0.0))
        else:
            half = 2 * math.pi**2 * self.scale**2
        terms = [(j, math.exp(-half * j * j)) for j in range(1, 8)]
        return 1 + 2 * sum(q for _, q in terms), 2 * sum(j * j * q for j, q in terms)

    @property
    def _log_peak(self) -> float:
        total, _ = self._sums()
        return -(
            math.log(total)
            + (0.0 if self.scale < 0.5 else math.log(self.scale * math.sqrt(2 * math.pi)))
        )

    @property
    def variance(self) -> float:
        """The exact variance, records squared."""
        total, second = self._sums()
        if self.scale < 0.5:
            return second / total
        if second == 0:  # the fourth power of a large scale would be no float
            return self.scale**2
        return self.scale**2 - 4 * math.pi**2 * self.scale**4 * second / total

    @classmethod
    def of_variance(cls, variance: float) -> Self:
        """Return the distribution with this variance; its scale is found by bisection.

        The variance grows with the scale. It is at most the square of the scale, and 1 to seven digits at scale 1. So
        the scale lies between the root of the variance and that root plus one.
        """
        low = math.sqrt(positive_finite("variance", variance))
        require(low < LARGEST_SCALE, "variance", f"be below {LARGEST_SCALE**2:g}", low**2)
        high = low + 1
        while low < (middle := low + (high - low) / 2) < high:
            if cls(middle).variance < variance:
                low = middle
            else:
                high = middle
        return cls(high if cls(low).variance < variance else low)

    def summed(self, count: int) -> NoiseDistribution:
        r"""Return the distribution of scale :math:`s \sqrt{k}` for a sum of k draws, from s = 1.5 on.

        With scales :math:`s\sqrt m` and s the sum's probability of x is, completing the square,
        :math:`e^{-x^2/(2 (m+1) s^2)}` times :math:`\sum_j e^{-(j - x m/(m+1))^2 / (2τ^2)}`, with
        :math:`τ^2 = s^2 m/(m+1) \ge s^2/2`. By Poisson's formula that sum is :math:`τ\sqrt{2π}` up to a factor within
        :math:`1 \pm 2.1 e^{-π^2 s^2}` of one, whatever x is: from s = 1.5 on, :math:`5 \cdot 10^{-10}` a draw.
        """
        count = whole_number("count", count, 1)
        if count == 1 or self.scale < 1.5:
            return super(DiscreteGaussian, self).summed(count)
        return DiscreteGaussian(self.scale * math.sqrt(count))

    def draw(self, size: int | tuple[int, ...], rng: np.random.Generator) -> IntArray:
        r"""Draw int64 numbers by rejection from the discrete Laplace distribution of scale t = floor(s) + 1.

        :math:`e^{-k^2/(2 s^2)} = c\, e^{-|k|/t} e^{-(|k| - s^2/t)^2 / (2 s^2)}` with a constant c, so the last
        factor, at most one, is the probability to accept. Canonne, Kamath, Steinke 2020, Algorithm 3.
        """
        _require_drawable(self)
        s = self.scale
        t = math.floor(self.scale) + 1
        rng = generator(rng)
        draws = np.empty(shape(size), dtype=np.int64)
        flat = draws.reshape(-1)
        filled = 0
        while filled < flat.size:
            # more proposals than are missing, so that few rounds are needed
            proposal = DiscreteLaplace(t).draw(2 * (flat.size - filled) + 16, rng)
            accept = np.exp(-0.5 * ((np.abs(proposal) - s * s / t) / s) ** 2)
            kept = proposal[rng.random(proposal.size) < accept][: flat.size - filled]
            flat[filled : filled + kept.size] = kept
            filled += kept.size
        return draws

    def _added_to(self, vector: Any) -> Any:
        from opendp import measurements, metrics

        return measurements.make_gaussian(vector, metrics.l2_distance(T=float), scale=self.scale)


@final
@dataclass(frozen=True, slots=True)
class NoNoise(NoiseDistribution):
    """No noise at all: the table is exact, or a public constant."""

    name: ClassVar[str] = "none"
    is_discrete: ClassVar[bool] = True
    kernel: ClassVar[Kernel | None] = "square"

    scale: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        require(
            finite("scale", self.scale) == 0,
            "`scale` of no noise",
            "be 0",
            self.scale,
            "leave it out",
        )

    @property
    def variance(self) -> float:
        """Zero."""
        return 0.0

    def log_density(self, residual: ArrayLike) -> np.ndarray:
        """Return zero where the residual is zero, minus infinity elsewhere."""
        return np.where(number_array("residual", residual, float) == 0, 0.0, -np.inf)

    def score(self, residual: ArrayLike) -> np.ndarray:
        """Return zero where the residual is zero, infinity with the residual's sign elsewhere."""
        residual = number_array("residual", residual, float)
        return np.where(residual == 0, 0.0, np.copysign(np.inf, residual))

    @classmethod
    def of_variance(cls, variance: float) -> Self:
        """Return the distribution, for a variance of zero."""
        return cls(variance)

    def summed(self, count: int) -> NoiseDistribution:
        """Return the distribution itself: a sum of exact numbers is exact."""
        whole_number("count", count, 1)
        return self

    def draw(self, size: int | tuple[int, ...], rng: np.random.Generator) -> IntArray:
        """Return zeros; the generator does not advance."""
        generator(rng)
        return np.zeros(shape(size), dtype=np.int64)

    def add_exactly(self, counts: IntArray, words: Words) -> IntArray:
        """Return a copy of the counts."""
        return np.array(counts, dtype=np.int64)
