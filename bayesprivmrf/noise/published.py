r"""Rules by which agencies protect published counts: rounding, random rounding, ranges, cell keys, suppression.

Each rule is a distribution of the published number y given the count n (`bayesprivmrf.noise.Likelihood`). In most of
them y is certain to lie near n, so that a number allows few counts. Estimators that draw whole records use the
probabilities themselves.

**Normal densities in place of a rule.** The other estimators need a normal density of n for each number. Where a fit
expects the count μ, n is about a Poisson variable. Let m and s² be its mean and variance given y,

.. math:: m = \frac{\sum_n n\, P(y \mid n)\, e^{-μ} μ^n / n!}{\sum_n P(y \mid n)\, e^{-μ} μ^n / n!} .

The normal density with mean :math:`\hat n` and variance v that has this effect on a normal variable with mean and
variance μ has

.. math:: \frac 1 v = \frac 1 {s^2} - \frac 1 μ, \qquad \hat n = v \left( \frac m {s^2} - 1 \right) .

It is found at the fit's own means, and the fit is repeated (`Evidence.at_fit`). This is one step of expectation
propagation (Minka 2001) with the model as the cavity. Where μ is far above the counts that y allows, it is the
uniform or triangular density of the rule. No variance is below 1/12, also where y allows one count only.

**Tests of fit** compare the count that y estimates, :math:`\hat n(y)`, with μ. Its mean square error
:math:`E\,(\hat n(y) - n)^2` is averaged over a Poisson count with mean μ, and so has none of the steps of a rule. If
the error depends on n modulo the base b alone, it has a closed form, because

.. math:: P(n \equiv j \bmod b) = \frac 1 b \sum_{k=0}^{b-1} e^{-2 π i j k / b}\, \exp\{μ (e^{2 π i k / b} - 1)\} .

A range, or a number whose base is wide for its counts, is compared with the nearest count that it allows instead
(`Evidence.nearest`).
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from scipy.stats import poisson, truncnorm

from bayesprivmrf.checks import one_of, require, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.likelihood import LEAST_VARIANCE, Likelihood

# Published instead of a count that is suppressed
HIDDEN = -1
# Upper ends of the counts, and bases, of graduated random rounding
_GRADES = ((18, 3), (19, 2), (99, 5), (999, 10), (math.inf, 100))
# Expected count up to which a variance is averaged over a Poisson distribution, and largest count of that average,
# which a Poisson variable of this mean exceeds with probability 1e-11
_MOST_AVERAGED = 60.0
_LARGEST_AVERAGED = 120
# Least expected count at which a rule is replaced by a normal density; below it, numbers above 0 would be impossible
_LEAST_MEAN = 0.01
# Most counts that are summed for one published number; a wider range is treated as a truncated normal
_MOST_SUMMED = 500
# Largest share of the variance that a number may leave: the density of a number that says nothing stays finite
_LARGEST_SHARE = 0.99
# Share of the variance of an exponential count that a range leaves, above which it has about the whole upper tail:
# its upper end is 6 means from the lower one. Arbitrary: ranges whose ends double leave less
_LARGEST_TAIL = 0.9
# Variance of a uniform count on a range, in that of a Poisson count in its middle, from which the range is wide:
# cells of ranges below it were held more than .92 of the time (benchmarks/published/rounding.py)
_WIDE = 2.0
# Width of a range in means of an exponential count below which the count is uniform, to five digits, and above which
# the upper end has no weight
_EVEN = 0.01
_STEEP = 50.0
# Rows of a perturbation table that serve all larger counts; those of the Office for National Statistics
_REUSED = 250
# Largest count of a perturbation table, which bounds its memory; published tables end at 750 or below
_MOST_ROWS = 100_000
# Perturbation tables that are kept in memory; a release has one or two
_MOST_TABLES = 16
# Largest count of a range, and largest change; sums of such counts are exact in floats
_LARGEST_COUNT = 2**52
# Largest base of rounding, and entries of a block of averages over its residues, which bound memory
_LARGEST_BASE = 100_000
_BLOCK = 2**22
# Largest error of the sum of a row of a perturbation table: such tables are rounded to eight digits
_SUM_ERROR = 1e-6


def _by_interpolation(of: Callable[[np.ndarray], FloatArray], counts: ArrayLike) -> FloatArray:
    """Return a function of whole counts at real counts, linear between whole ones."""
    counts = np.maximum(np.asarray(counts, dtype=float), 0.0)
    below = np.floor(counts)
    share = counts - below
    low = of(below)
    return np.where(share > 0, (1 - share) * low + share * of(below + 1), low)


def _averaged_over_residues(means: FloatArray, values: FloatArray) -> FloatArray:
    """Return the mean of a value of each residue of a Poisson variable, for each of its means.

    Parameters
    ----------
    means
        Means of the Poisson variables, records.
    values
        Values of the residues 0, 1, ..., b - 1 modulo the base b.
    """
    base = len(values)
    exponents = np.exp(2j * np.pi * np.arange(base) / base) - 1
    flat = means.ravel()
    found = np.empty(flat.shape)
    step = max(_BLOCK // base, 1)
    for start in range(0, flat.size, step):
        own = slice(start, start + step)
        transformed = np.exp(flat[own, np.newaxis] * exponents)
        # the discrete Fourier transform divided by b is the formula of the module
        shares = np.real(np.fft.fft(transformed, axis=-1)) / base
        found[own] = np.clip(shares, 0.0, 1.0) @ values
    return found.reshape(means.shape)


def _averaged_over_counts(means: FloatArray, of: Callable[[np.ndarray], FloatArray]) -> FloatArray:
    """Return the mean of a function of a Poisson count, for each of its means, which are at most 60."""
    counts = np.arange(_LARGEST_AVERAGED + 1)
    weights = poisson.pmf(counts, means[..., np.newaxis])
    return weights @ of(counts.astype(float))


def are_wide(first: FloatArray, last: FloatArray) -> np.ndarray:
    """Mask of the ranges that are wide for the counts from their first to their last one.

    A uniform distribution on such a range has twice the variance of a Poisson count in its middle, so that its ends
    matter, which a normal density does not have.
    """
    variance = (np.square(last - first + 1) - 1) / 12
    return variance > _WIDE * np.maximum((first + last) / 2, 1.0)


def _without_prior(
    moments: tuple[FloatArray, FloatArray], means: FloatArray, spread: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the normal density that gives a normal variable, of some mean and variance, some moments.

    Parameters
    ----------
    moments
        Mean and variance of the product, shape (numbers,) each.
    means, spread
        Mean and variance of the variable, shape (numbers,).
    """
    mean, variance = moments
    share = np.minimum(variance / spread, _LARGEST_SHARE)
    odds = share / (1 - share)
    return mean + odds * (mean - means), np.maximum(odds * spread, LEAST_VARIANCE)


def _of_wide_ranges(
    first: FloatArray, last: FloatArray, means: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the variance of the normal density that stands for each wide range of counts.

    A count in a wide range varies with the unknown mean more than a Poisson count around a known one. It is therefore
    taken as exponential. If the range has the whole upper tail of such a count, the density has its mean far above
    all likely counts: it only says that the count is larger. A normal count with the variance μ + μ² then takes its
    place.
    """
    exponential = _exponential_moments(first, last, means)
    center, variance = _without_prior(exponential, means, np.square(means))
    has_tail = exponential[1] > _LARGEST_TAIL * np.square(means)
    is_beyond = has_tail | (center < first) | (center > last)
    own = means[is_beyond]
    spread = own + np.square(own)
    normal = _normal_moments(first[is_beyond], last[is_beyond], own, spread)
    center[is_beyond], variance[is_beyond] = _without_prior(normal, own, spread)
    return center, variance


def _exponential_moments(
    first: FloatArray, last: FloatArray, means: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the variance of exponential counts with some means, within ranges."""
    begin = first - 0.5
    width = last + 0.5 - begin
    # in means: near 0 the distribution is even, and far up the upper end has no weight
    ratio = np.clip(width / means, _EVEN, _STEEP)
    decay = np.expm1(ratio)
    mean = begin + means * (1 - ratio / decay)
    variance = np.square(means) * (1 - np.square(ratio) * np.exp(ratio) / np.square(decay))
    is_even = width <= _EVEN * means
    mean = np.where(is_even, begin + width / 2, mean)
    return mean, np.where(is_even, np.square(width) / 12, variance)


def _normal_moments(
    first: FloatArray, last: FloatArray, means: FloatArray, spread: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the variance of normal counts with some means and variances, within ranges."""
    deviation = np.sqrt(spread)
    ends = [(end - means) / deviation for end in (first - 0.5, last + 0.5)]
    mean = np.array(truncnorm.mean(*ends, loc=means, scale=deviation), dtype=float)
    variance = np.array(truncnorm.var(*ends, loc=means, scale=deviation), dtype=float)
    return mean, variance


class PublishedRule(Likelihood):
    """Base of the rules by which agencies change counts.

    A subclass states the numbers that may be published for a whole count, with their probabilities.
    """

    __slots__ = ()

    @abstractmethod
    def log_probability(self, published: ArrayLike, counts: ArrayLike) -> np.ndarray:
        """Return the log probability of published numbers given whole counts, nats."""

    @abstractmethod
    def squared_error(self, means: FloatArray) -> FloatArray:
        """Return the mean square of the estimate's error for a Poisson count with each mean, records squared."""

    def error_variance(self, counts: ArrayLike) -> FloatArray:
        """Return the mean square of the estimate's error where a fit expects these counts, at least 1/12."""
        means = np.maximum(np.asarray(counts, dtype=float), 0.0)
        return np.maximum(self.squared_error(means), LEAST_VARIANCE)

    def normal_given(self, published: ArrayLike, means: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the variance of the normal density that stands for each published number.

        Its product with the distribution of a count around the expected one has the moments of the count given the
        number. That distribution is Poisson; for numbers whose range is wide (`is_coarse`) see `_of_wide_ranges`.
        """
        published = np.asarray(published, dtype=float)
        means = np.maximum(np.asarray(means, dtype=float), _LEAST_MEAN)
        is_coarse = np.asarray(self.is_coarse(published))
        center = np.empty(published.shape)
        variance = np.empty(published.shape)
        own = ~is_coarse
        moments = self._moments_given(published[own], means[own])
        center[own], variance[own] = _without_prior(moments, means[own], means[own])
        ends = self.allowed(published[is_coarse])
        center[is_coarse], variance[is_coarse] = _of_wide_ranges(*ends, means[is_coarse])
        return center, variance

    def _moments_given(
        self, published: FloatArray, means: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the variance of Poisson counts given their published numbers."""
        first, last = self.allowed(published)
        is_summed = last - first < _MOST_SUMMED
        # a range of more counts has about the moments of a normal variable between its ends
        mean, variance = _normal_moments(first, last, means, means)
        if is_summed.any():
            size = int((last - first)[is_summed].max()) + 1
            counts = first[is_summed][:, np.newaxis] + np.arange(size)
            weights = self.log_probability(published[is_summed][:, np.newaxis], counts)
            weights = weights + poisson.logpmf(counts, means[is_summed][:, np.newaxis])
            weights = softmax(weights, axis=-1)
            own = (weights * counts).sum(axis=-1)
            mean[is_summed] = own
            variance[is_summed] = (weights * np.square(counts - own[:, np.newaxis])).sum(axis=-1)
        return mean, variance


# ---------------------------------------------------------------------------------------------------- rounding


@dataclass(frozen=True)
class Rounded(PublishedRule):
    r"""Counts rounded to a multiple of a base by a rule without chance.

    Parameters
    ----------
    base
        The base b, from 2 to 100,000.
    kind
        ``"nearest"`` publishes the nearest multiple, the larger one of two: :math:`b\lfloor n/b + 1/2 \rfloor`.
        ``"down"`` publishes :math:`b\lfloor n/b\rfloor`. ``"midpoint"`` publishes the middle of the b counts above a
        multiple, :math:`b\lceil n/b\rceil - \lfloor b/2\rfloor`, and 0 for 0, as OpenSAFELY does with base 6.

    Notes
    -----
    A number is estimated by the middle of the b counts for which it is published, also where some of them are
    negative: 0 rounded to the nearest 5 is estimated by 0.

    Source: NHS England, "Disclosure control" (nearest 5); OpenSAFELY, "Statistical disclosure control: midpoint
    rounding".

    Examples
    --------
    >>> rule = Rounded(5)
    >>> [float(end) for end in rule.allowed(10)]
    [8.0, 12.0]
    >>> Rounded(6, kind="midpoint").publish([0, 1, 6, 7]).tolist()
    [0.0, 3.0, 3.0, 9.0]
    """

    base: int
    kind: str = "nearest"

    name: ClassVar[str] = "rounded"
    gives_one_number: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", whole_number("base", self.base, 2, _LARGEST_BASE))
        one_of("kind", self.kind, ("nearest", "down", "midpoint"))

    @property
    def _reach_below(self) -> int:
        """Distance of the smallest count that gives a number below it."""
        if self.kind == "nearest":
            return self.base // 2
        if self.kind == "down":
            return 0
        return self.base - 1 - self.base // 2

    def publish(self, counts: ArrayLike) -> FloatArray:
        """Return the number that is published for each whole count."""
        counts = np.asarray(counts, dtype=float)
        if self.kind == "nearest":
            return self.base * np.floor((counts + self.base // 2) / self.base)
        if self.kind == "down":
            return self.base * np.floor(counts / self.base)
        middle = self.base * np.ceil(counts / self.base) - self.base // 2
        return np.where(counts > 0, middle, 0.0)

    def log_probability(self, published: ArrayLike, counts: ArrayLike) -> np.ndarray:
        """Return the log probability: 0 where the number is published for the count, else minus infinity."""
        return np.where(self.publish(counts) == np.asarray(published, dtype=float), 0.0, -np.inf)

    def draw_given(self, counts: ArrayLike, rng: np.random.Generator) -> np.ndarray:
        """Return the published number of each count; nothing is drawn."""
        return self.publish(counts).astype(np.int64)

    def mean_given(self, counts: ArrayLike) -> np.ndarray:
        """Return the published number of each count, linear between whole counts."""
        return _by_interpolation(self.publish, counts)

    def variance_given(self, counts: ArrayLike) -> np.ndarray:
        """Return the variance of the published number of each count, which is 0."""
        return np.zeros(np.shape(counts))

    def allowed(self, published: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and the largest count that are rounded to each number."""
        published = np.asarray(published, dtype=float)
        first = published - self._reach_below
        last = first + self.base - 1
        is_zero = published == 0
        if self.kind == "midpoint":
            first = np.where(is_zero, 0.0, first)
            last = np.where(is_zero, 0.0, last)
        first = np.maximum(first, 0.0)
        is_possible = (last >= 0) & (self.publish(first) == published)
        return np.where(is_possible, first, np.inf), np.where(is_possible, last, -np.inf)

    def estimate(self, published: ArrayLike) -> FloatArray:
        """Return the middle of the counts that are rounded to each number, negative counts included."""
        published = np.asarray(published, dtype=float)
        middle = published - self._reach_below + (self.base - 1) / 2
        if self.kind == "midpoint":
            return np.where(published == 0, 0.0, middle)
        return middle

    def is_coarse(self, published: ArrayLike) -> np.ndarray:
        """Mask of the numbers whose base is wide for the counts that they allow."""
        return are_wide(*self.allowed(published))

    def squared_error(self, means: FloatArray) -> FloatArray:
        """Return the mean square of the estimate's error for a Poisson count with each mean, records squared."""
        # counts of one period; in the midpoint kind, that of zero is exact, which the error below ignores
        counts = np.arange(self.base, 2 * self.base)
        errors = np.square(self.estimate(self.publish(counts)) - counts)
        found = _averaged_over_residues(means, errors)
        if self.kind == "midpoint":
            return found - np.exp(-means) * errors[0]
        return found

    def log_moment(self, rates: ArrayLike) -> np.ndarray:
        """Return the largest log moment of the estimate's error over all counts, nats."""
        counts = np.arange(2 * self.base)
        errors = self.estimate(self.publish(counts)) - counts
        rates = np.asarray(rates, dtype=float)
        return np.max(rates[..., np.newaxis] * errors, axis=-1)


@dataclass(frozen=True)
class RandomRounding(PublishedRule):
    r"""Counts rounded at random to one of the two nearest multiples of a base.

    A count n with remainder r modulo the base b is published as n - r with probability :math:`1 - r/b`, and as
    :math:`n - r + b` otherwise. So the published number has mean n and variance :math:`r (b - r)`, and
    :math:`P(y \mid n) = 1 - |y - n| / b` for multiples y at most b from n. Each number, totals included, is rounded
    by itself, which is why the parts of a table need not add up.

    Parameters
    ----------
    base
        The base b, from 2 to 100,000: 3 at Statistics New Zealand, 5 at Statistics Canada. With graduated rounding it
        is 3.
    kind
        ``"unbiased"``, as above; or ``"graduated"``: the base is 3 up to 18 records, 2 at 19, 5 up to 99, 10 up to
        999, and 100 above.

    Notes
    -----
    Source: Statistics New Zealand, "Microdata output guide" (both kinds); Statistics Canada, "Random rounding" in the
    guide to the census.

    Examples
    --------
    >>> rule = RandomRounding(3)
    >>> [float(end) for end in rule.allowed(6)]
    [4.0, 8.0]
    >>> import numpy as np
    >>> np.exp(rule.log_probability(18, [15, 16, 17, 18])).round(3).tolist()
    [0.0, 0.333, 0.667, 1.0]
    """

    base: int
    kind: str = "unbiased"

    name: ClassVar[str] = "random-rounding"

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", whole_number("base", self.base, 2, _LARGEST_BASE))
        one_of("kind", self.kind, ("unbiased", "graduated"))
        is_right = self.kind == "unbiased" or self.base == _GRADES[0][1]
        remedy = "write RandomRounding(3, kind='graduated')"
        require(is_right, "base", "be 3 with graduated rounding", self.base, remedy)

    @property
    def _grades(self) -> tuple[tuple[float, int], ...]:
        """Upper ends of the counts, and bases."""
        if self.kind == "graduated":
            return _GRADES
        return ((math.inf, self.base),)

    def _bases(self, counts: np.ndarray) -> np.ndarray:
        """Return the base for each count."""
        ends = [end for end, _ in self._grades]
        bases = np.array([base for _, base in self._grades])
        return bases[np.searchsorted(ends, counts)]

    def log_probability(self, published: ArrayLike, counts: ArrayLike) -> np.ndarray:
        """Return the log probability of published numbers given whole counts, nats."""
        counts = np.asarray(counts, dtype=float)
        published = np.asarray(published, dtype=float)
        bases = self._bases(counts)
        distance = np.abs(published - counts)
        is_multiple = np.mod(published, bases) == 0
        probability = np.where(is_multiple, np.maximum(1 - distance / bases, 0.0), 0.0)
        with np.errstate(divide="ignore"):
            return np.log(probability)

    def draw_given(self, counts: ArrayLike, rng: np.random.Generator) -> np.ndarray:
        """Round whole counts at random."""
        counts = np.asarray(counts, dtype=np.int64)
        bases = self._bases(counts)
        remainders = counts % bases
        is_up = rng.random(counts.shape) * bases < remainders
        return counts - remainders + bases * is_up

    def mean_given(self, counts: ArrayLike) -> np.ndarray:
        """Return the counts: the rule is unbiased."""
        return np.asarray(counts, dtype=float) + 0.0

    def variance_given(self, counts: ArrayLike) -> np.ndarray:
        """Return r (b - r) for each count, linear between whole counts."""

        def of_whole(whole: np.ndarray) -> FloatArray:
            bases = self._bases(whole)
            remainders = np.mod(whole, bases)
            return remainders * (bases - remainders)

        return _by_interpolation(of_whole, counts)

    def allowed(self, published: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and the largest count that may be rounded to each number."""
        published = np.asarray(published, dtype=float)
        first = np.full(published.shape, np.inf)
        last = np.full(published.shape, -np.inf)
        low = 0.0
        for high, base in self._grades:
            # counts of this base that are less than a base away
            own_first = np.maximum(published - base + 1, low)
            own_last = np.minimum(published + base - 1, high)
            is_given = (np.mod(published, base) == 0) & (own_first <= own_last)
            first = np.where(is_given, np.minimum(first, own_first), first)
            last = np.where(is_given, np.maximum(last, own_last), last)
            low = high + 1
        return first, last

    def estimate(self, published: ArrayLike) -> FloatArray:
        """Return the published numbers, whose means are the counts."""
        return np.asarray(published, dtype=float) + 0.0

    def squared_error(self, means: FloatArray) -> FloatArray:
        """Return the mean square of the error for a Poisson count with each mean, records squared.

        With graduated rounding and means above 60, the remainder and the base of a count are taken as independent.
        """
        # counts near a change of base have one of two bases, whose variances differ up to a hundredfold
        found = np.zeros(means.shape)
        below = np.zeros(means.shape)
        for end, base in self._grades:
            remainders = np.arange(base, dtype=float)
            variances = _averaged_over_residues(means, remainders * (base - remainders))
            up_to = poisson.cdf(end, means)
            found += (up_to - below) * variances
            below = up_to
        if self.kind == "unbiased":
            return found
        is_small = means <= _MOST_AVERAGED
        found[is_small] = _averaged_over_counts(means[is_small], self.variance_given)
        return found

    def log_moment(self, rates: ArrayLike) -> np.ndarray:
        """Return the largest log moment of the error over all counts, nats."""
        rates = np.asarray(rates, dtype=float)[..., np.newaxis]
        found = []
        for _, base in self._grades:
            up = np.arange(base) / base
            with np.errstate(divide="ignore"):
                down_term = np.log1p(-up) - rates * base * up
                up_term = np.log(up) + rates * base * (1 - up)
            found.append(np.logaddexp(down_term, up_term).max(axis=-1))
        return np.max(found, axis=0)


# ------------------------------------------------------------------------------------------- ranges and suppression


class _Range(NamedTuple):
    """A range of counts, both ends included."""

    low: int
    high: int


def _parsed_ranges(text: str) -> tuple[_Range, ...]:
    """Return the ranges of a text such as ``"0-0, 1-9"``."""
    return tuple(_Range(*map(int, part.split("-"))) for part in text.split(", "))


@dataclass(frozen=True)
class Coarsened(PublishedRule):
    """Counts of which only a range is published, such as "1 to 9".

    The published number is the smallest count of its range.

    Parameters
    ----------
    ranges
        Smallest and largest count of each range, both included: ``[(0, 0), (1, 9), (10, 50)]``. The ranges do not
        overlap, and each count that can occur lies in one. The largest count of the last range may be the number of
        records. Stored as text, ``"0-0, 1-9, 10-50"``.

    Notes
    -----
    A range is estimated by its middle, with the variance of a uniform distribution on it.

    Examples
    --------
    >>> rule = Coarsened([(0, 0), (1, 9), (10, 50)])
    >>> rule.publish([0, 4, 12]).tolist()
    [0.0, 1.0, 10.0]
    >>> [float(end) for end in rule.allowed(1)]
    [1.0, 9.0]
    """

    ranges: Any

    name: ClassVar[str] = "coarsened"
    gives_one_number: ClassVar[bool] = True
    gives_range: ClassVar[bool] = True

    def __post_init__(self) -> None:
        must = "be pairs of whole numbers from 0 to 2^52, smallest first, in increasing order without overlap"
        remedy = "write Coarsened([(0, 0), (1, 9), (10, 50)])"
        try:
            if isinstance(self.ranges, str):
                given = _parsed_ranges(self.ranges)
            else:
                given = tuple(_Range(*map(_whole, pair)) for pair in self.ranges)
        except (TypeError, ValueError, OverflowError):
            given = ()
        ends = [end for pair in given for end in pair]
        is_sorted = all(pair.low <= pair.high for pair in given) and all(
            one.high < other.low for one, other in pairwise(given)
        )
        is_right = bool(given) and is_sorted and ends[0] >= 0 and ends[-1] <= _LARGEST_COUNT
        require(is_right, "ranges", must, "others", remedy)
        object.__setattr__(self, "ranges", ", ".join(f"{low}-{high}" for low, high in given))

    @property
    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest counts of the ranges."""
        pairs = np.array(_parsed_ranges(self.ranges), dtype=float)
        return pairs[:, 0], pairs[:, 1]

    def _places(self, counts: FloatArray) -> np.ndarray:
        """Return the position of the range that begins at or below each count."""
        lows, _ = self._ends
        return np.maximum(np.searchsorted(lows, counts, side="right") - 1, 0)

    def publish(self, counts: ArrayLike) -> FloatArray:
        """Return the number that is published for each whole count; NaN for counts in no range."""
        counts = np.asarray(counts, dtype=float)
        lows, highs = self._ends
        places = self._places(counts)
        is_inside = (lows[places] <= counts) & (counts <= highs[places])
        return np.where(is_inside, lows[places], np.nan)

    def log_probability(self, published: ArrayLike, counts: ArrayLike) -> np.ndarray:
        """Return the log probability: 0 where the count lies in the range of the number, else minus infinity."""
        return np.where(self.publish(counts) == np.asarray(published, dtype=float), 0.0, -np.inf)

    def draw_given(self, counts: ArrayLike, rng: np.random.Generator) -> np.ndarray:
        """Return the published number of each count; nothing is drawn."""
        found = self.publish(counts)
        remedy = "let the last range end at the number of records"
        require(not np.isnan(found).any(), "counts", "lie in the ranges", "others", remedy)
        return found.astype(np.int64)

    def mean_given(self, counts: ArrayLike) -> np.ndarray:
        """Return the number of the range of each count; that of the last range above it."""
        lows, _ = self._ends
        return _by_interpolation(lambda whole: lows[self._places(whole)], counts)

    def variance_given(self, counts: ArrayLike) -> np.ndarray:
        """Return the variance of the published number of each count, which is 0."""
        return np.zeros(np.shape(counts))

    def allowed(self, published: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the range of each number."""
        published = np.asarray(published, dtype=float)
        lows, highs = self._ends
        places = self._places(published)
        is_known = lows[places] == published
        return (
            np.where(is_known, lows[places], np.inf),
            np.where(is_known, highs[places], -np.inf),
        )

    def estimate(self, published: ArrayLike) -> FloatArray:
        """Return the middle of the range of each number."""
        lows, highs = self._ends
        return ((lows + highs) / 2)[self._places(np.asarray(published, dtype=float))]

    def is_coarse(self, published: ArrayLike) -> np.ndarray:
        """Mask of the ranges that are wide for the counts that they allow."""
        return are_wide(*self.allowed(published))

    def squared_error(self, means: FloatArray) -> FloatArray:
        """Return the variance of a uniform distribution on the range of each mean, records squared."""
        lows, highs = self._ends
        sizes = highs - lows + 1
        variances = (np.square(sizes) - 1) / 12

        def of_whole(whole: np.ndarray) -> FloatArray:
            return variances[self._places(whole)]

        return _by_interpolation(of_whole, means)


def _whole(value: Any) -> int:
    """Return a whole number as an integer; raise a ValueError for others."""
    if isinstance(value, bool | np.bool_) or value != int(value):
        raise ValueError
    return int(value)


@dataclass(frozen=True)
class Suppressed(PublishedRule):
    """Counts that are published unless they are small.

    A suppressed count is published as -1, which stands for the agency's symbol. Write it into the table in place of
    the symbol. Other counts are exact.

    Parameters
    ----------
    low, below
        A count n is suppressed if low ≤ n < below. By default zeros are shown, and "<5" stands for 1 to 4; with
        ``low=0`` zeros are suppressed as well.

    Notes
    -----
    In `NoisyStatistics.from_tables` each cell that is shown becomes an exact number. Cells that were suppressed to
    protect others (secondary suppression) may have any count: give them ``Suppressed(low=0, below=total + 1)`` by an
    array of rules. That they were chosen because of other cells is ignored, which loses information and biases
    nothing as long as the choice depends on published numbers alone.

    Examples
    --------
    >>> rule = Suppressed(low=1, below=5)
    >>> rule.publish([0, 3, 12]).tolist()
    [0.0, -1.0, 12.0]
    >>> [float(end) for end in rule.allowed(-1)]
    [1.0, 4.0]
    """

    low: int = 1
    below: int = 5

    name: ClassVar[str] = "suppressed"
    gives_one_number: ClassVar[bool] = True
    gives_range: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", whole_number("low", self.low, 0))
        object.__setattr__(self, "below", whole_number("below", self.below, self.low + 1))

    def _is_hidden(self, counts: ArrayLike) -> np.ndarray:
        """Return True for the counts that are suppressed."""
        counts = np.asarray(counts, dtype=float)
        return (self.low <= counts) & (counts < self.below)

    def publish(self, counts: ArrayLike) -> FloatArray:
        """Return the number that is published for each whole count: the count, or -1."""
        counts = np.asarray(counts, dtype=float)
        return np.where(self._is_hidden(counts), HIDDEN, counts)

    def of_cells(self, published: ArrayLike) -> list[Likelihood]:
        """Return the likelihood of each published number: exact, or a range.

        Parameters
        ----------
        published
            Published numbers, flat.
        """
        from bayesprivmrf.noise.continuous import NoNoise

        published = np.asarray(published, dtype=float)
        # a number that the rule cannot show keeps the rule, so that the check of a measurement refuses it
        is_shown = (published >= 0) & ~self._is_hidden(published)
        exact = NoNoise()
        return [exact if shown else self for shown in is_shown]

    def log_probability(self, published: ArrayLike, counts: ArrayLike) -> np.ndarray:
        """Return the log probability: 0 where the number is published for the count, else minus infinity."""
        return np.where(self.publish(counts) == np.asarray(published, dtype=float), 0.0, -np.inf)

    def draw_given(self, counts: ArrayLike, rng: np.random.Generator) -> np.ndarray:
        """Return the published number of each count; nothing is drawn."""
        return self.publish(counts).astype(np.int64)

    def mean_given(self, counts: ArrayLike) -> np.ndarray:
        """Return what `estimate` makes of the published number, linear between whole counts."""
        return _by_interpolation(lambda whole: self.estimate(self.publish(whole)), counts)

    def variance_given(self, counts: ArrayLike) -> np.ndarray:
        """Return the variance of the published number of each count, which is 0."""
        return np.zeros(np.shape(counts))

    def allowed(self, published: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the counts that each number allows: the count itself, or the suppressed ones."""
        published = np.asarray(published, dtype=float)
        is_hidden = published == HIDDEN
        first = np.where(is_hidden, self.low, published)
        last = np.where(is_hidden, self.below - 1, published)
        is_impossible = ~is_hidden & (self._is_hidden(published) | (published < 0))
        return np.where(is_impossible, np.inf, first), np.where(is_impossible, -np.inf, last)

    def estimate(self, published: ArrayLike) -> FloatArray:
        """Return the published counts, and the middle of the suppressed ones for -1."""
        published = np.asarray(published, dtype=float)
        return np.where(published == HIDDEN, (self.low + self.below - 1) / 2, published)

    def is_coarse(self, published: ArrayLike) -> np.ndarray:
        """Mask of the suppressed counts whose range is wide for the counts that they allow."""
        return are_wide(*self.allowed(published))

    def squared_error(self, means: FloatArray) -> FloatArray:
        """Return the variance of a uniform distribution on the suppressed counts, records squared.

        A number that is shown is exact. Its likelihood is therefore another one (`of_cells`).
        """
        size = self.below - self.low
        return np.full(means.shape, (size**2 - 1) / 12)


# ----------------------------------------------------------------------------------------------------- cell keys


class _Perturbation(NamedTuple):
    """A perturbation table: the changes that may occur, and their probabilities for counts 0, 1, ...

    Shapes (changes,) and (counts, changes).
    """

    changes: np.ndarray
    chances: np.ndarray


@lru_cache(maxsize=_MOST_TABLES)
def _perturbation(text: str) -> _Perturbation:
    """Return the perturbation table that `CellKey` stores as text."""
    rows = json.loads(text)
    changes = np.array(rows["changes"], dtype=np.int64)
    numerators = np.array(rows["chances"], dtype=float)
    return _Perturbation(changes, numerators / numerators.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class CellKey(PublishedRule):
    r"""Counts changed by a cell key: a table states how often each change is made to each count.

    Every record has a random key. The keys of the records of a cell, added modulo the number of keys, choose a row of
    the agency's perturbation table, and this row states the change. So a cell is changed alike wherever it is
    published, and a total is changed by itself. For whoever does not know the keys, the change of a count n is random
    with the table's frequencies.

    Parameters
    ----------
    ptable
        The perturbation table as a DataFrame, in one of two layouts, or the text that `CellKey` stores.
        Columns ``pcv``, ``ckey``, ``pvalue``: the change for each count and key, as the Office for National
        Statistics publishes it; counts and keys that are left out are not changed. Keys begin at 0, and their number
        is the largest key of the table plus 1. Columns ``i``, ``p``, ``v``: the probability p of a change v of each
        count i, as the R package ptable gives it.

    Notes
    -----
    A count above the last of the table uses one of its last 250 rows (`period`), or the last row if the table has
    fewer than 500: the Office for National Statistics reads row 501 for 751, 502 for 752, and so on. If the mean
    change is 0 for each count, a number estimates itself. Otherwise it is estimated by the mean of the counts that
    allow it, weighted by their probabilities.

    Cells with the same records in several tables have the same key, and are one number. Give it once.

    Source: Office for National Statistics, "Cell key perturbation: method documentation"; Thompson, Broadfoot and
    Elazar (2013), "Methodology for the automatic confidentialisation of statistical outputs from remote servers at
    the Australian Bureau of Statistics".

    Examples
    --------
    >>> import pandas as pd
    >>> keys = pd.DataFrame({"pcv": [1, 1, 2, 2], "ckey": [0, 1, 0, 1], "pvalue": [-1, 1, 0, 0]})
    >>> rule = CellKey(keys)
    >>> [float(end) for end in rule.allowed(2)]
    [1.0, 2.0]
    """

    # left out of `repr`: the text of a real table has thousands of characters
    ptable: Any = field(repr=False)

    name: ClassVar[str] = "cell-key"
    gives_one_number: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.ptable, str):
            text = _checked_text(self.ptable)
        else:
            text = _text_of_table(self.ptable)
        object.__setattr__(self, "ptable", text)

    @property
    def period(self) -> int:
        """Number of last rows that serve larger counts in turn."""
        rows = len(_perturbation(self.ptable).chances)
        if rows > 2 * _REUSED:
            return _REUSED
        return 1

    def _rows(self, counts: np.ndarray) -> np.ndarray:
        """Return the row of the perturbation table for each whole count."""
        size = len(_perturbation(self.ptable).chances)
        first = size - self.period
        counts = counts.astype(np.int64)
        return np.where(counts < size, counts, first + (counts - first) % self.period)

    def log_probability(self, published: ArrayLike, counts: ArrayLike) -> np.ndarray:
        """Return the log probability of published numbers given whole counts, nats."""
        published, counts = np.broadcast_arrays(
            np.asarray(published, dtype=float), np.asarray(counts, dtype=float)
        )
        changes, chances = _perturbation(self.ptable)
        change = published - counts
        places = np.minimum(np.searchsorted(changes, change), len(changes) - 1)
        found = chances[self._rows(counts), places]
        with np.errstate(divide="ignore"):
            return np.log(np.where(changes[places] == change, found, 0.0))

    def draw_given(self, counts: ArrayLike, rng: np.random.Generator) -> np.ndarray:
        """Change whole counts at random, each by itself."""
        counts = np.asarray(counts, dtype=np.int64)
        changes, chances = _perturbation(self.ptable)
        cumulative = chances.cumsum(axis=1)[self._rows(counts)]
        places = (rng.random(counts.shape)[..., np.newaxis] >= cumulative).sum(axis=-1)
        return counts + changes[np.minimum(places, len(changes) - 1)]

    def mean_given(self, counts: ArrayLike) -> np.ndarray:
        """Return the mean of the published number, linear between whole counts."""
        changes, chances = _perturbation(self.ptable)
        means = np.asarray(chances @ changes, dtype=float)
        return _by_interpolation(lambda whole: whole + means[self._rows(whole)], counts)

    def variance_given(self, counts: ArrayLike) -> np.ndarray:
        """Return the variance of the published number, linear between whole counts."""
        changes, chances = _perturbation(self.ptable)
        variances = chances @ np.square(changes) - np.square(chances @ changes)
        return _by_interpolation(lambda whole: variances[self._rows(whole)], counts)

    def _near(self, published: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the counts that may allow each number, and their probabilities, shape (*shape, changes)."""
        published = np.asarray(published, dtype=float)[..., np.newaxis]
        counts = published - _perturbation(self.ptable).changes
        chances = np.exp(self.log_probability(published, np.maximum(counts, 0.0)))
        return counts, np.where(counts >= 0, chances, 0.0)

    def allowed(self, published: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and the largest count that may be changed into each number."""
        counts, chances = self._near(published)
        first = np.where(chances > 0, counts, np.inf).min(axis=-1)
        last = np.where(chances > 0, counts, -np.inf).max(axis=-1)
        return first, last

    @property
    def _is_unbiased(self) -> bool:
        """True if no count is changed on average."""
        changes, chances = _perturbation(self.ptable)
        return bool(np.abs(chances @ changes).max() < _SUM_ERROR)

    def estimate(self, published: ArrayLike) -> FloatArray:
        """Return the count that each number estimates: itself, or the weighted mean of the counts that allow it."""
        published = np.asarray(published, dtype=float)
        if self._is_unbiased:
            return published + 0.0
        counts, chances = self._near(published)
        weight = chances.sum(axis=-1)
        mean = (counts * chances).sum(axis=-1) / np.where(weight > 0, weight, 1.0)
        return np.where(weight > 0, mean, published)

    def _squared_errors(self, counts: np.ndarray) -> FloatArray:
        """Return the mean square of the estimate's error for each whole count."""
        changes, chances = _perturbation(self.ptable)
        published = counts[..., np.newaxis] + changes
        errors = np.square(self.estimate(published) - counts[..., np.newaxis])
        return (chances[self._rows(counts)] * errors).sum(axis=-1)

    def squared_error(self, means: FloatArray) -> FloatArray:
        """Return the mean square of the error for a Poisson count with each mean, records squared."""
        found = _by_interpolation(self._squared_errors, means)
        is_small = means <= _MOST_AVERAGED
        found[is_small] = _averaged_over_counts(means[is_small], self._squared_errors)
        return found


def _checked_text(text: str) -> str:
    """Return the text of a perturbation table after the checks of a table; a file may hold any text."""
    try:
        rows = json.loads(text)
        changes = np.array(rows["changes"], dtype=float)
        chances = np.array(rows["chances"], dtype=float)
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError):
        changes, chances = np.zeros(0), np.zeros(())
    is_right = changes.ndim == 1 and chances.shape[1:] == changes.shape
    require(is_right, "ptable", "be a DataFrame, or a text that CellKey stored", "another text")
    counts = np.repeat(np.arange(len(chances)), len(changes))
    return _stored(counts, np.tile(changes, len(chances)), chances.ravel())


def _text_of_table(table: Any) -> str:
    """Return a perturbation table as the text that `CellKey` stores."""
    columns = {str(name): np.asarray(table[name]) for name in getattr(table, "columns", ())}
    layouts = (("pcv", "ckey", "pvalue"), ("i", "v", "p"))
    layout = next((names for names in layouts if set(names) <= set(columns)), ())
    must = "have the columns pcv, ckey and pvalue, or i, p and v"
    seen = sorted(columns) or type(table).__name__
    require(layout, "ptable", must, seen, "name the columns so")
    try:
        first, second, third = (columns[name].astype(float) for name in layout)
    except (TypeError, ValueError):
        raise ArgumentError("`ptable` must have numbers in its columns, got others.") from None
    if "ckey" in layout:
        return _stored(*_by_keys(first, second, third))
    return _stored(first, second, third)


def _by_keys(
    counts: np.ndarray, keys: np.ndarray, changes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a table of keys as counts, changes and probabilities."""
    # the largest key gives the number of keys, so a table of keys 1, 2, ... would have one key too many
    is_right = keys.min(initial=np.inf) == 0 and np.array_equal(keys, np.rint(keys))
    remedy = "subtract 1 if they begin at 1; if key 0 changes nothing, list it with pvalue 0"
    require(is_right, "ptable", "have whole keys that begin at 0", "others", remedy)
    size = int(keys.max()) + 1
    pairs, times = np.unique(np.column_stack([counts, keys]), axis=0, return_counts=True)
    require((times == 1).all(), "ptable", "state each count and key once", "some twice")
    # keys that are left out change nothing
    listed, rows = np.unique(pairs[:, 0], return_counts=True)
    rest = size - rows
    counts = np.concatenate([counts, listed[rest > 0]])
    changes = np.concatenate([changes, np.zeros((rest > 0).sum(), dtype=changes.dtype)])
    weights = np.concatenate([np.ones(len(pairs)), rest[rest > 0]])
    return counts, changes, weights / size


def _stored(counts: np.ndarray, changes: np.ndarray, chances: np.ndarray) -> str:
    """Return counts, changes and probabilities as text, after checks."""
    must = (
        f"have rows with whole counts from 0 to {_MOST_ROWS:,}, whole changes up to 2^52, and probabilities from 0 "
        "to 1"
    )
    is_right = (
        counts.size > 0
        and np.array_equal(counts, np.rint(counts))
        and np.array_equal(changes, np.rint(changes))
        and 0 <= counts.min() <= counts.max() <= _MOST_ROWS
        and np.abs(changes).max() <= _LARGEST_COUNT
        and bool(((chances >= 0) & (chances <= 1 + _SUM_ERROR)).all())
    )
    require(is_right, "ptable", must, "others")
    values, places = np.unique(np.append(changes, 0).astype(np.int64), return_inverse=True)
    size = int(counts.max()) + 1
    full = np.zeros((size, len(values)))
    np.add.at(full, (counts.astype(np.int64), places[:-1]), chances)
    # counts that are left out are not changed
    is_absent = ~np.isin(np.arange(size), counts)
    full[is_absent, int(np.flatnonzero(values == 0)[0])] = 1.0
    sums = full.sum(axis=1)
    is_one = np.abs(sums - 1).max() <= _SUM_ERROR
    remedy = "give every change of each count"
    require(is_one, "ptable", "have probabilities that sum to 1 for each count", "others", remedy)
    lowest = np.arange(size) + np.where(full > 0, values, 0).min(axis=1)
    require((lowest >= 0).all(), "ptable", "change no count below 0", "others")
    return json.dumps({"changes": values.tolist(), "chances": full.tolist()})
