r"""Sums of independent draws of one noise distribution.

Let :math:`f_k` be the distribution of the sum of k draws, of variance :math:`k σ^2` each way. It is tabulated by
repeated convolution on a grid, by sums of positive products, so that its tails have small relative errors as well.
Discrete noise with a standard deviation below 64 has a grid of whole numbers, on which the table is exact up to
rounding. Otherwise there are 32 to 64 grid points in a standard deviation σ. For Laplace noise, whose density has a
kink, that changes the log density by at most 0.002 within four standard deviations (`tests/noise/test_sums.py`
measures it). Between grid points the log density is interpolated.

**Normal approximation.** With the excess kurtosis :math:`κ` of one draw, which is symmetric, the sum
has the excess kurtosis κ/k. By Edgeworth's expansion its density is, with the standardized sum z,

.. math:: f_k(z) = φ(z) \Bigl[1 + \frac{κ}{24 k} (z^4 - 6 z^2 + 3) + O(k^{-2})\Bigr],

so that its total variation distance to the normal distribution is about

.. math:: \frac{|κ|}{48 k} E|Z^4 - 6 Z^2 + 3| = 0.0583 \frac{|κ|}{k}.

`NoiseDistribution.summed` returns the normal distribution of the same variance where this distance is at most
`LARGEST_DISTANCE`, from 176 draws on for Laplace noise. No analysis of one number changes a probability by more than
that distance.

References
----------
Feller (1971). An introduction to probability theory and its applications, volume 2. Chapter XVI.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike

from bayesprivmrf.checks import generator, number_array, require, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.base import NOISE_NAMES, SUMMED, NoiseDistribution, shape
from bayesprivmrf.noise.discrete import DiscreteGaussian
from bayesprivmrf.noise.kernels import NORMAL, Kernel
from bayesprivmrf.noise.likelihood import likelihood_from_dict

# Largest total variation distance between a sum and the normal distribution that stands for it
LARGEST_DISTANCE = 0.001

# E|Z^4 - 6 Z^2 + 3| / 48 for a standard normal Z, by numerical integration
_DISTANCE_OF_KURTOSIS = 0.0583
# Grid points in a standard deviation of one draw, at least; the module states the error
_POINTS = 32
# Standard deviations of the sum on each side that a table covers; beyond, the log density goes on with its last slope
_REACH = 12.0
# Points on each side that a table has at least, for noise that is mostly zero
_FEWEST = 40
# Most points on each side: a convolution takes seconds
_MOST = 2**16
# Standard deviations of one draw on each side in the sum for its kurtosis: e^-56 remains of Laplace noise
_FAR = 40.0
# Stands for minus infinity in an interpolation
_NEVER = -1e300


class _Grid(NamedTuple):
    """Tabulated log density of a sum: positions of the points, records; and nats."""

    points: FloatArray
    log_density: FloatArray


@final
@dataclass(frozen=True, slots=True)
class SummedNoise(NoiseDistribution):
    """Sum of independent draws of one noise distribution, with a tabulated density.

    `NoiseDistribution.summed` returns it. All estimators support it: the engine of whole records reads its table, and
    the others use a normal density of its variance.

    Parameters
    ----------
    base
        Distribution of one draw, or its content in a file (`as_dict`) as JSON.
    count
        Number of draws, at least 1.

    Examples
    --------
    >>> from bayesprivmrf.noise import Laplace
    >>> sum_of_two = Laplace(1.0).summed(2)
    >>> sum_of_two.variance
    4.0
    >>> round(float(sum_of_two.log_density(0.0)), 3)  # the density at zero is 1/4
    -1.386
    """

    base: Any
    count: int

    name: ClassVar[str] = SUMMED

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", whole_number("count", self.count, 1))
        if isinstance(self.base, NoiseDistribution):
            object.__setattr__(self, "base", json.dumps(self.base.as_dict()))
        must = "be a noise distribution, or its content as JSON"
        remedy = "write SummedNoise(Laplace(2.0), 3)"
        try:
            one = _distribution(self.base)
        except (TypeError, ValueError):  # no text, or no JSON
            raise ArgumentError(
                f"`base` of a sum must {must}, got another text; {remedy}."
            ) from None
        is_noise = one.is_additive and not (one.is_bounded or one.is_exact)
        seen = "counts within bounds, or no noise"
        require(is_noise, "`base` of a sum", must, seen, remedy)
        must = "describe a sum whose table has at most 131,073 numbers"
        remedy = "use a Gaussian of its variance"
        is_small = _reach_of(one, self.count) <= _MOST
        require(is_small, "`base` and `count`", must, "a longer one", remedy)

    @classmethod
    def of_draws(cls, one: NoiseDistribution, count: int) -> NoiseDistribution:
        """Return the distribution of the sum of two or more draws: tabulated, or the normal one that stands for it.

        Raises
        ------
        ArgumentError
            The distribution of one draw cannot be written to a file, or has tails so heavy that neither a table nor a
            normal distribution describes the sum.
        """
        if one.is_exact:
            return one
        if _DISTANCE_OF_KURTOSIS * abs(_excess_kurtosis(one)) / count > LARGEST_DISTANCE:
            return cls(one, count)
        normal: Any = DiscreteGaussian
        if not one.is_discrete:
            normal = NOISE_NAMES.find("gaussian")
        return normal.of_variance(count * one.variance)

    @property
    def one(self) -> NoiseDistribution:
        """Distribution of one draw."""
        return _distribution(self.base)

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        """True if the noise is of whole numbers."""
        return self.one.is_discrete

    @property
    def variance(self) -> float:
        """Variance of the sum, records squared."""
        return self.count * self.one.variance

    @property
    def smooth(self) -> Kernel | None:
        """Normal density with the variance of the sum, for estimators that need derivatives."""
        return NORMAL

    @property
    def is_tabled(self) -> bool:
        """True: the engine of whole records reads the table."""
        return True

    @property
    def hides(self) -> bool:
        """True if one draw hides the count."""
        return self.one.hides

    def log_density(self, residual: ArrayLike) -> np.ndarray:
        """Return the tabulated log density (or log probability) at each residual, nats."""
        grid = _tabulated(self.base, self.count)
        wanted = number_array("residual", residual, float)
        table = np.maximum(grid.log_density, _NEVER)
        inside = np.interp(wanted, grid.points, table)
        last = grid.points[-1]
        slope = (table[-1] - table[-2]) / (last - grid.points[-2])
        found = inside + slope * np.maximum(np.abs(wanted) - last, 0.0)
        return np.where(found < 0.5 * _NEVER, -np.inf, found)

    def score(self, residual: ArrayLike) -> np.ndarray:
        """Return the slope of the table, with its sign turned; that of the last points beyond it."""
        grid = _tabulated(self.base, self.count)
        wanted = number_array("residual", residual, float)
        with np.errstate(invalid="ignore"):
            slopes = np.nan_to_num(
                np.gradient(grid.log_density, grid.points), posinf=0.0, neginf=0.0
            )
        return -np.interp(wanted, grid.points, slopes)

    def log_moment(self, rates: ArrayLike) -> np.ndarray:
        r"""Return the bounds of one draw times the number of draws, which is exact where that of one draw is."""
        return self.count * self.one.log_moment(rates)

    def summed(self, count: int) -> NoiseDistribution:
        """Return the distribution of the sum of a number of such sums."""
        return self.one.summed(self.count * whole_number("count", count, 1))

    def draw(self, size: int | tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Draw each term of the sum."""
        rng = generator(rng)
        one = self.one
        found = one.draw(shape(size), rng)
        for _ in range(1, self.count):
            found = found + one.draw(shape(size), rng)
        return found


@functools.lru_cache(maxsize=256)
def _distribution(written: str) -> Any:
    return likelihood_from_dict(json.loads(written))


def _spacing(one: NoiseDistribution) -> float:
    """Return the distance of two grid points: whole for discrete noise."""
    step = one.standard_deviation / _POINTS
    if one.is_discrete:
        return float(max(math.floor(step), 1))
    return step


def _reach_of(one: NoiseDistribution, count: int) -> int:
    """Return the number of grid points on each side."""
    deviation = math.sqrt(count) * one.standard_deviation
    return max(math.ceil(_REACH * deviation / _spacing(one)), _FEWEST)


def _probabilities(one: NoiseDistribution, reach: int) -> FloatArray:
    """Return the probabilities of one draw at the grid points, normalized."""
    points = _spacing(one) * np.arange(-reach, reach + 1)
    found = np.exp(np.asarray(one.log_density(points), dtype=float))
    return found / found.sum()


def _excess_kurtosis(one: NoiseDistribution) -> float:
    """Return the fourth cumulant of one draw over its squared variance, by a sum over the grid."""
    reach = max(math.ceil(_FAR * one.standard_deviation / _spacing(one)), _FEWEST)
    found = _probabilities(one, reach)
    squares = np.square(np.arange(-reach, reach + 1.0))
    variance = float(found @ squares)
    if variance == 0:
        return 0.0
    return float(found @ np.square(squares)) / variance**2 - 3.0


@functools.lru_cache(maxsize=64)
def _tabulated(written: str, count: int) -> _Grid:
    """Return the table of the sum of a number of draws."""
    one = _distribution(written)
    reach = _reach_of(one, count)
    power = _probabilities(one, reach)
    # the sum of `count` draws from sums of 1, 2, 4, ... draws, by the binary digits of the number
    found: FloatArray | None = None
    left = count
    while True:
        if left % 2:
            found = power if found is None else np.convolve(found, power, mode="same")
        left //= 2
        if not left:
            break
        power = np.convolve(power, power, mode="same")
    assert found is not None
    found = 0.5 * (found + found[::-1])  # symmetric also in its last digits
    spacing = _spacing(one)
    with np.errstate(divide="ignore"):
        log_density = np.log(found / (found.sum() * spacing))
    return _Grid(points=spacing * np.arange(-reach, reach + 1.0), log_density=log_density)
