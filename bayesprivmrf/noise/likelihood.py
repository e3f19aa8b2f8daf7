r"""Likelihoods: distributions of a published number y given the true count n.

A likelihood is a family of distributions :math:`P(y \mid n)`, one for each count. Noise that is added to a count, a
count that is published exactly, and a count that is known only within bounds are likelihoods
(`bayesprivmrf.noise.NoiseDistribution`). So are rules that depend on the count, such as a table from which each
person was dropped with some probability.

**Moments.** Let :math:`m(n)` and :math:`v(n)` be the mean and the variance of y. Estimators that work by moments
replace y by the count whose mean it is, :math:`\hat n = m^{-1}(y)`. To first order,

.. math:: \hat n \approx n + \frac{y - m(n)}{m'(n)}, \qquad
          \operatorname{var}(\hat n \mid n) \approx \frac{v(n)}{m'(n)^2},

exactly so where m is linear. The first relation says that :math:`\hat n` has mean n, so that a sum of such numbers
estimates a sum of counts.

**Tables.** The engine of whole records asks for :math:`\log P(y \mid n)` at each count near :math:`\hat n`, and uses
no approximation.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError
from bayesprivmrf.kinds import Kinds, is_redefined
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.kernels import NORMAL, Kernel

# Group of entry points under which packages list their noise distributions and other likelihoods
ENTRY_POINT_GROUP = "bayesprivmrf.noise_laws"
# Likelihoods by their name in files
NOISE_NAMES: Kinds[Likelihood] = Kinds(ENTRY_POINT_GROUP, "name")

# Smallest variance of an estimated count, records squared: that of a uniform rounding error
LEAST_VARIANCE = 1 / 12
# Halvings of an interval of counts in the search for the count with a given mean: from 2^60 to 1e-5 records
_HALVINGS = 77
# Largest count in that search, far above any number of records
_MANY = 2.0**60
# Standard deviations on each side of the estimated count that a table covers; a normal density falls by 72 nats
_REACH = 12.0
# Counts by which a table extends further on each side, for rules whose standard deviation is below a record
_MARGIN = 20
# Slope at the end of the allowed counts, and least height of a gap between them, nats: so unlikely that no chain
# goes there, and finite, so that a chain that starts elsewhere is led back
_STEEP = 1e3
# Most counts of a table: 32 MiB for each number that is published under a rule
_LONGEST_TABLE = 2**22


@dataclass(frozen=True, slots=True, eq=False)
class CountTable:
    """Log probabilities of one published number over consecutive counts.

    Parameters
    ----------
    first
        Count of the first entry.
    log_probabilities
        Log probabilities up to a constant, nats, all finite, shape (counts,).
    below, above
        Change of the log probability for each count further below the first entry, or above the last one, nats.
    """

    first: int
    log_probabilities: FloatArray
    below: float
    above: float


class Likelihood(ABC):
    """Distribution of a published number given the true count, in records.

    Subclass it to fit numbers that were published by a rule of another kind than the library has. Given the counts,
    different numbers are published independently of each other. Your class is a frozen dataclass. Its fields are
    numbers and text, so that a file can store it, and its `name` is unique, so that a file can find it again. A
    package lists the class under this name in the entry-point group ``bayesprivmrf.noise_laws``; releases then load
    without an import of the package.

    Estimators read the properties of a likelihood, and never its class. By default they use its moments and its table
    of log probabilities; override a property below only if its default is wrong for your rule.

    Attributes
    ----------
    name
        The name of the likelihood in a file.
    is_discrete
        True if the published numbers are whole.
    is_additive
        True if the published number is the count plus noise that does not depend on it (`NoiseDistribution`). Other
        likelihoods apply only to counts: to queries that count each record of a cell equally often, none negatively.
    is_exact
        True if the published number is the count.
    is_bounded
        True if the published number is the middle of two bounds of the count. It is then no estimate of the count.
    is_tabled
        True if the engine of whole records reads `table`. Such numbers have no relaxed counts.
    gives_one_number
        True if the number of a group of records is the same in every table, as under rounding without chance.
    gives_range
        True if a number says between which ends the count lies, and no more, as a range of counts does. Tests of fit
        then compare an expected count with the nearest count that the number allows.
    hides
        True if the likelihood hides the count, so that a release may have a privacy guarantee.
    scale, half_width
        Scale of the kernel, and half the distance between the bounds, records; needed only by likelihoods with a
        kernel or bounds.

    Examples
    --------
    >>> from bayesprivmrf.noise import DiscreteLaplace, Within
    >>> law = DiscreteLaplace(2.0)
    >>> law.log_probability([3, 9], [3, 3]).round(3).tolist()
    [-1.407, -4.407]
    >>> [law.is_additive, law.is_exact, law.is_tabled]
    [True, False, False]
    >>> value, bounds = Within.between(2, 7)  # one published number: "2 to 7"
    >>> [float(end) for end in bounds.allowed(value)]
    [2.0, 7.0]
    """

    __slots__ = ()
    name: ClassVar[str]
    is_discrete: ClassVar[bool] = True
    is_additive: ClassVar[bool] = False
    gives_one_number: ClassVar[bool] = False
    gives_range: ClassVar[bool] = False
    scale: float
    half_width: float

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Register a likelihood under its name, so that files can find it."""
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            NOISE_NAMES.add(cls.name, cls)

    # what a likelihood says of a published number

    @abstractmethod
    def log_probability(self, published: ArrayLike, counts: ArrayLike) -> np.ndarray:
        """Return the log probability (or log density) of published numbers given counts, nats.

        The arrays broadcast. The log probability is minus infinity where the count does not allow the number.
        """

    @abstractmethod
    def draw_given(self, counts: ArrayLike, rng: np.random.Generator) -> np.ndarray:
        """Draw one published number for each count, for a simulation, which protects nobody."""

    @abstractmethod
    def mean_given(self, counts: ArrayLike) -> np.ndarray:
        """Return the mean of the published number for each count, which may be real; it increases with the count."""

    @abstractmethod
    def variance_given(self, counts: ArrayLike) -> np.ndarray:
        """Return the variance of the published number for each count, which may be real."""

    @abstractmethod
    def allowed(self, published: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and the largest count that allow each published number.

        The largest count may be infinite. Where no count allows a number, the smallest count is above the largest.
        """

    # what follows from it; a likelihood may have better answers

    def log_moment(self, rates: ArrayLike) -> np.ndarray:
        r"""Return upper bounds of :math:`\log E e^{t (\hat n - n)}` for every count n, nats.

        The bounds are infinite where none is known. Tests of a release against itself then use the variance alone.

        Parameters
        ----------
        rates
            Values of t, one over records.
        """
        return np.where(np.asarray(rates, dtype=float) == 0, 0.0, np.inf)

    def estimate(self, published: ArrayLike) -> FloatArray:
        """Return the counts whose means are the published numbers: the inverse of `mean_given`, by bisection.

        Numbers below the mean of a count of zero give zero.
        """
        wanted = np.asarray(published, dtype=float)
        low = np.zeros(wanted.shape)
        high = np.full(wanted.shape, _MANY)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            is_below = self.mean_given(middle) < wanted
            low = np.where(is_below, middle, low)
            high = np.where(is_below, high, middle)
        return np.where(self.mean_given(np.zeros(wanted.shape)) >= wanted, 0.0, (low + high) / 2)

    def error_variance(self, counts: ArrayLike) -> FloatArray:
        r"""Return the variance of `estimate` for each count, :math:`v(n) / m'(n)^2`, records squared.

        The derivative is a difference over one record. The variance is at least 1/12, that of a uniform rounding
        error.
        """
        counts = np.asarray(counts, dtype=float)
        slope = self.mean_given(counts + 1) - self.mean_given(counts)
        # where the mean stands still the variance is infinite, or NaN if the number is certain: releases refuse both
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = self.variance_given(counts) / np.square(slope)
        return np.maximum(variance, LEAST_VARIANCE)

    def normal_given(self, published: ArrayLike, means: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the variance of a normal density of the count that stands for each published number.

        By default they are `estimate` and `error_variance`. A rule that allows few counts may do better.

        Parameters
        ----------
        published
            Published numbers, shape (numbers,).
        means
            Counts that a fit expects, shape (numbers,).
        """
        return self.estimate(published), self.error_variance(means)

    def is_coarse(self, published: ArrayLike) -> np.ndarray:
        """Mask of the numbers for which a normal density is a poor stand-in; False by default."""
        return np.zeros(np.shape(published), dtype=bool)

    def summed(self, count: int) -> Likelihood:
        """Return the distribution of the sum of several published numbers, given the sum of their counts.

        Raises
        ------
        ArgumentError
            The distribution depends on more than the sum of the counts, or is not known.
        """
        what = f"a sum of {count} numbers with {self.name} noise"
        remedy = "measure the numbers, on their own variables"
        require(count == 1, what, "have added noise", "a rule that depends on each count", remedy)
        return self

    def of_cells(self, published: ArrayLike) -> list[Likelihood] | None:
        """Return the likelihood of each published number if they differ, as where a rule shows some exactly.

        None, the default, says that they are all this one.
        """
        return None

    # what it can do

    @property
    def base_law(self) -> Likelihood:
        """Likelihood before the count was bounded; the likelihood itself if there are no bounds."""
        return self

    @property
    def smooth(self) -> Kernel | None:
        """Smooth form of the log density around the estimated count, with derivatives; None if there is none.

        Estimators that need derivatives use it. By default it is a normal density with the likelihood's moments.
        """
        return NORMAL

    def widths(self, counts: ArrayLike) -> FloatArray:
        """Return the scale of `smooth` for each count, records."""
        return np.sqrt(self.error_variance(counts))

    @property
    def is_exact(self) -> bool:
        """True if the published number is the count."""
        return False

    @property
    def is_bounded(self) -> bool:
        """True if the published number is the middle of two bounds of the count."""
        return False

    @property
    def is_tabled(self) -> bool:
        """True if the engine of whole records reads `table`."""
        return True

    @property
    def hides(self) -> bool:
        """True if the likelihood hides the count; the library knows of no protection by a rule."""
        return False

    def table(self, published: float) -> CountTable:
        """Return the log probabilities of one published number over all counts that matter.

        The table covers the allowed counts within 12 standard deviations of the estimated count, which is where the
        number is likely. Outside, the log probability continues with the slope at the end. Below the smallest allowed
        count and above the largest one, it falls by 1,000 nats for each record.

        Raises
        ------
        ModelTooLargeError
            The table would have more than 4,194,304 counts.
        ModelError
            `log_probability` is not finite at any of the counts, or is NaN.
        """
        (lowest,), (highest,) = self.allowed(np.array([published]))
        (center,) = np.clip(self.estimate(np.array([published])), lowest, highest)
        (width,) = np.sqrt(self.error_variance(np.array([max(center, 0.0) + 1])))
        reach = math.ceil(_REACH * width) + _MARGIN
        first = math.ceil(max(lowest, center - reach))
        last = math.floor(min(highest, center + reach))
        must = f"cover at most {_LONGEST_TABLE:,} counts in an estimate by whole records"
        what = f"a number under the rule {self.name!r}"
        remedy = "use NoiseAwareMAP, or state a narrower range"
        is_short = last - first < _LONGEST_TABLE
        require(is_short, what, must, "more", remedy, error=ModelTooLargeError)
        counts = np.arange(first, last + 1)
        found = np.asarray(self.log_probability(published, counts), dtype=float)
        # the comparisons are false for NaN
        is_right = found.shape == counts.shape and -np.inf < found.max() < np.inf
        must = "be finite or minus infinity at every allowed count, and finite at one"
        what = f"`log_probability` of the likelihood {self.name!r}"
        remedy = "correct it, or `allowed`"
        require(is_right, what, must, "others", remedy, error=ModelError)
        found = np.maximum(found, found.max() - _STEEP)
        steps = np.diff(found, prepend=found[0], append=found[-1])
        is_first = first - 1 < lowest
        is_last = last + 1 > highest
        return CountTable(
            first=first,
            log_probabilities=found,
            below=-_STEEP if is_first else min(-float(steps[1]), 0.0),
            above=-_STEEP if is_last else min(float(steps[-2]), 0.0),
        )

    # files

    def _lacks_for_files(self) -> str:
        """Return what the class lacks to be found and made again by its name in a file; empty if nothing."""
        settings = getattr(type(self), "__dataclass_params__", None)
        if settings is None:
            return "a class that is no dataclass"
        if not settings.frozen:
            return "a dataclass that is not frozen"
        named = NOISE_NAMES.find(getattr(self, "name", ""))
        if named is None:
            return "none with a registered name"
        # a class that was defined anew, in a notebook for instance, still reads what its predecessor wrote
        if not is_redefined(named, type(self)):
            return f"the name {self.name!r} of {named.__name__}"
        return ""

    @final
    def as_dict(self) -> dict[str, Any]:
        """Return the name and the fields; `noise_from_dict` is the inverse.

        Raises
        ------
        ArgumentError
            The distribution could not be read again: the class is no frozen dataclass or has no name of its own, or a
            field is neither a finite number nor text.
        """
        must = "be a frozen dataclass with a `name` of its own, so that a release with it can be read again"
        remedy = "write `@dataclass(frozen=True)` and `name: ClassVar[str] = ...`"
        lacks = self._lacks_for_files()
        require(not lacks, type(self).__name__, must, lacks, remedy)
        values = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        for name, value in values.items():
            must = "be a finite number or text, which a file can store"
            is_plain = isinstance(value, str | int) or (
                isinstance(value, float) and math.isfinite(value)
            )
            what = f"`{name}` of the noise distribution {self.name!r}"
            remedy = "convert it in `__post_init__`"
            require(is_plain, what, must, type(value).__name__, remedy)
        written = {"name": self.name, **values}
        try:
            json.dumps(written, ensure_ascii=False).encode()
        except ValueError:  # half of a surrogate pair, or a number of thousands of digits
            must = "be numbers and text that JSON in UTF-8 can hold; shorten or encode them"
            raise ArgumentError(
                f"the fields of the noise distribution {self.name!r} must {must}."
            ) from None
        return written


def checked_likelihood(name: str, law: Any) -> Likelihood:
    """Return the argument, after a check that it is a noise distribution or another likelihood."""
    remedy = "write DiscreteLaplace(2.0), for instance"
    must = "be a NoiseDistribution, or another Likelihood"
    return instance_of(name, law, Likelihood, must, remedy)  # type: ignore[type-abstract]


def likelihood_from_dict(values: Mapping[str, Any]) -> Likelihood:
    """Return the likelihood that `Likelihood.as_dict` described; the errors are those of `noise.noise_from_dict`."""
    is_named = isinstance(values, Mapping) and isinstance(values.get("name"), str)
    require(
        is_named, "values", "map `name` and a distribution's fields", f"a {type(values).__name__}"
    )
    settings = dict(values)
    name = settings.pop("name")
    law = named_likelihood(name)
    try:
        return law(**settings)
    except TypeError as error:
        must = f"hold the fields of the noise distribution {name!r}"
        raise ArgumentError(f"`values` must {must}: {error}.") from None


def named_likelihood(name: str) -> type[Likelihood]:
    """Return the class of a name in files; the error is that of `noise.continuous.named_law`."""
    found = NOISE_NAMES.find(name)
    must = f"be a known noise distribution ({', '.join(NOISE_NAMES)})"
    remedy = "import or install the package that defines it under an entry point of this name, or update this package"
    if found is None:
        raise ArgumentError(f"`name` must {must}, got {name!r}; {remedy}.")
    return found
