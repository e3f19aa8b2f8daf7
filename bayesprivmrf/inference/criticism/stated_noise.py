r"""Tests of the stated noise by the released numbers alone, without a model: clipped, rounded or larger noise.

Each test has a p-value that is valid whatever the true counts are. Let y be a count n of records plus noise of a
symmetric unimodal distribution with scale b or σ, published on a grid of step g, the largest of which all numbers of
the measurement are multiples (`bayesprivmrf.noise.grid`).

**Numbers clipped at zero.** Two bounds are used.

- No number is negative, and m of them are 0. For (discrete) Laplace noise the part of y beyond 0 forgets the count:
  :math:`P(y < 0 \mid y \le 0) \ge e^{-g/b}` for every :math:`n \ge 0`. Equality holds for discrete noise, and for
  rounded continuous noise if :math:`n \ge g/2`; at n = 0 rounding makes the probability larger, because
  :math:`(1 - x)/(1 - x/2) \le 1 - x^2` for :math:`x = e^{-g/2b}`. So the p-value is :math:`(1 - e^{-g/b})^m`.
- m of K numbers are 0. Each is 0 with a probability of at most the largest mass :math:`p_0` of the noise, so that the
  p-value is the upper tail of a binomial variable of K trials and :math:`p_0`. It holds for every noise. Normal noise
  has no bound of the first kind: far from its center it falls so fast that a number that is at most 0 is almost
  surely 0.

Where whole numbers are rounded to a multiple of an even g, numpy and Python round ties to the even multiple, so that
g + 1 of them become 0. Both bounds therefore have g + 1 in place of g.

**Rounded numbers.** All m numbers of a measurement are multiples of k > 1. Noise moves a number into that class with
a probability of at most :math:`M_k`, the largest mass of the noise in one residue class, whatever the count. The
p-value is :math:`M_k^m` times the number of k that are tried (`_ROUNDED_TO`). Rounding is harmless beside large
noise, and is tested only where its variance :math:`k^2/12` is at least a tenth of that of the noise.

**Larger noise.** The m negative numbers are as far below 0 as noise reaches from counts of at least 0. Beyond its
center a log-concave density has a decreasing mean residual life, so that -y given y < 0 is stochastically largest at
n = 0. For Laplace noise it is exponential whatever the count, so that :math:`2 \sum |y| / b` has the
:math:`χ^2_{2m}` distribution; on a grid, :math:`\sum (|y|/g - 1)` has the negative binomial distribution with
:math:`a = e^{-g/b}`. For normal noise :math:`\sum y^2/σ^2` is stochastically smaller than :math:`χ^2_m`, on a grid
with :math:`|y| - g` in place of :math:`|y|`. If g is even, ties make the steps of the grid unequal. Then
:math:`|y| - g - 1`, or 0, takes the place of :math:`|y|`, and on steps of 1 of :math:`|y| - 1`. Summed noise is not
tested, because its tails are heavier than those of the normal density that stands for it.

**Larger noise in numbers that overlap.** The residuals r of least squares over all tables that agree with each other
(`bayesprivmrf.inference.noise_residuals`) are a projection of the noise, in its standard deviations:
:math:`r = P D^{-1/2} η`. The statistic is r'r. It has the mean :math:`\operatorname{tr} P` and the variance
:math:`2 \operatorname{tr} P + \sum_i κ_i P_{ii}^2`, κ being the excess kurtosis. If a scaled :math:`χ^2` with these
moments finds the statistic large, its p-value is the share of simulated draws of noise, of a fixed seed, with a
larger one. Far in the tail, where simulation counts no draw, the bounds of
`bayesprivmrf.inference.criticism.verdict` act.

The p-values of several measurements are independent and are combined as there: Fisher's combination, and the smallest
times their number; twice the smaller of the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from scipy.special import bdtrc, betainc, chdtrc, gammaincc

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.noise_residuals import NoiseResiduals
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.base import NoiseDistribution
from bayesprivmrf.noise.grid import MOST_DECIMALS, common_grids
from bayesprivmrf.noise.kernels import ABSOLUTE, SQUARE, code_of
from bayesprivmrf.noise.likelihood import Likelihood

# P-value, times the number of tests of the stated noise, below which the noise is not as stated. The levels of all
# tests of one fit add up to less than 0.01: docs/explanation/estimators.md has the table.
SMALLEST_NOISE_TAIL = 0.003
# Number of tests whose p-values share that level
_TESTS = 4
# Bases to which people round counts
_ROUNDED_TO = (2, 3, 4, 5, 6, 8, 10, 20, 25, 50, 100, 1000)
# Variance of rounding, as a share of that of the noise, below which rounding changes no answer
_HARMLESS = 0.1
# P-value of the scaled chi-squared approximation below which the statistic is simulated. Arbitrary: several times the
# level, because the approximation is poor so far in the tail.
_SIMULATED_BELOW = 0.005
# Simulated draws of noise: a p-value of 0.00075 is the share of 15 of them
_DRAWS = 20_000
# Draws of one block, after which a p-value that is surely not small is known
_BLOCK = 1000
# Seed of the simulated noise: equal releases have equal statuses
_SEED = 43
# Standard deviations on each side over which masses of residue classes are added up
_REACH = 60
# Excess kurtosis of Laplace noise; that of normal noise is 0, and discrete noise has 1/variance more, or less
_LAPLACE_KURTOSIS = 3.0


@dataclass(frozen=True, kw_only=True, eq=False)
class _Numbers:
    """Possible numbers of one measurement, with noise of a known kernel.

    Parameters
    ----------
    position
        Position of the measurement in the evidence.
    values
        The numbers that are counts or any answers, shape (numbers,), records.
    is_count
        Mask of the numbers that count records, none negatively, shape (numbers,).
    law
        Distribution of the noise.
    grid
        Step g of the published numbers, records.
    """

    position: int
    values: FloatArray
    is_count: np.ndarray
    law: NoiseDistribution
    grid: float

    @property
    def bin_width(self) -> float:
        """Largest number of records that are rounded to one multiple of the grid, ties included."""
        has_ties = self.grid > 1 and self.grid % 2 == 0
        return self.grid + has_ties

    @cached_property
    def counts(self) -> FloatArray:
        """The numbers that count records, shape (counts,)."""
        return self.values[self.is_count]

    @property
    def is_laplace(self) -> bool:
        """True for (discrete) Laplace noise, False for normal noise."""
        return code_of(self.law.smooth) == ABSOLUTE

    def mass(self, places: FloatArray, width: float) -> FloatArray:
        """Return upper bounds of the probability that noise is within half a width of each place."""
        if self.law.is_discrete and width == 1.0:
            return np.exp(self.law.log_density(places))
        nearest = np.maximum(np.abs(places) - width / 2, 0.0)
        return np.minimum(1.0, width * np.exp(self.law.log_density(nearest)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """Result of one test: its p-value, what is wrong, and what to do."""

    tail: float
    wrong: str
    remedy: str


def noise_contradictions(
    evidence: Evidence, residuals: NoiseResiduals | None
) -> tuple[tuple[str, ...], dict[str, float]]:
    """Describe how the released numbers contradict the stated noise, and return the test result.

    Parameters
    ----------
    evidence
        The releases.
    residuals
        `bayesprivmrf.inference.noise_residuals.noise_residuals`; None if there are too many numbers.

    Returns
    -------
    problems, stats
        At most one sentence; and ``noise_tail``, the smallest p-value times the number of tests, if a test applies.
    """
    if evidence.is_weighed:  # noise of weighted rows is stated in other units
        return (), {}
    numbers = _told(evidence)
    found = [
        each
        for each in (
            _clipped(evidence, numbers),
            _rounded(evidence, numbers),
            _too_far_below(evidence, numbers),
            _overlapping(evidence, residuals),
        )
        if each is not None
    ]
    if not found:
        return (), {"noise_tail": 1.0} if numbers else {}
    worst = min(found, key=lambda each: each.tail)
    tail = min(1.0, _TESTS * worst.tail)
    if tail >= SMALLEST_NOISE_TAIL:
        return (), {"noise_tail": tail}
    problem = (
        f"the noise is not as stated: {worst.wrong} (tail probability {tail:.1g}, smallest of {_TESTS} tests); "
        f"{worst.remedy}"
    )
    return (problem,), {"noise_tail": tail}


def _told(evidence: Evidence) -> list[_Numbers]:
    """Return the measurements with additive noise of a known kernel."""
    positions: list[int] = []
    places: list[IntArray] = []
    for position, law in enumerate(evidence.noise):
        if not law.is_additive or law.is_exact or law.is_bounded:
            continue
        if code_of(law.smooth) not in (ABSOLUTE, SQUARE):
            continue
        start, stop = evidence.offsets[position : position + 2]
        inside = start + np.flatnonzero(evidence.possible[start:stop])
        if inside.size:
            positions.append(position)
            places.append(inside)
    values = [evidence.noisy_counts[inside] for inside in places]
    found = []
    for position, inside, own, grid in zip(
        positions, places, values, common_grids(values), strict=True
    ):
        is_count = np.ones(own.size, dtype=bool)
        if evidence.table_at(position)[1] is None:
            is_count = evidence.is_count[inside]
        law = cast("NoiseDistribution", evidence.noise[position])
        found.append(_Numbers(position=position, values=own, is_count=is_count, law=law, grid=grid))
    return found


def _clipped(evidence: Evidence, numbers: list[_Numbers]) -> _Finding | None:
    tails: list[float] = []
    places: list[int] = []
    for each in numbers:
        counts = each.counts
        zeros = int((counts == 0).sum())
        if not zeros:
            continue
        largest = float(each.mass(np.zeros(1), each.bin_width)[0])
        tail = float(bdtrc(zeros - 1, counts.size, largest))
        if each.is_laplace:
            is_clipped = not (counts < 0).any()
            rate = each.bin_width / each.law.scale
            own = (-math.expm1(-rate)) ** zeros if is_clipped else 1.0
            tail = min(1.0, 2 * min(tail, own))
        tails.append(tail)
        places.append(each.position)
    return _finding(
        evidence,
        tails,
        places,
        "too many numbers are exactly zero, most of all",
        "as where negative numbers were set to zero; ask for the numbers before they were clipped, or, if these "
        "cells cannot occur, declare them `impossible`",
    )


def _rounded(evidence: Evidence, numbers: list[_Numbers]) -> _Finding | None:
    tails: list[float] = []
    places: list[int] = []
    for each in numbers:
        if each.grid == 1 or each.grid % 1 != 0 or not each.values.any():
            continue
        least = math.sqrt(12 * _HARMLESS * each.law.variance)
        harmful = [base for base in _ROUNDED_TO if each.grid % base == 0 and base >= least]
        if not harmful:
            continue
        log_mass = min(math.log(_largest_class(each, base)) for base in harmful)
        tails.append(min(1.0, len(_ROUNDED_TO) * math.exp(log_mass * each.values.size)))
        places.append(each.position)
    return _finding(
        evidence,
        tails,
        places,
        "all numbers are multiples of one number, most of all in",
        "as where the noisy numbers were rounded; ask for the numbers before they were rounded, or state noise whose "
        "variance is larger by that of rounding, the square of the step over 12",
    )


def _largest_class(numbers: _Numbers, base: int) -> float:
    """Return an upper bound of the largest mass of the noise in one residue class modulo a base."""
    # the class of 0 has the most, because the noise is symmetric and falls from 0
    last = math.ceil(_REACH * numbers.law.standard_deviation / base)
    places = base * np.arange(-last, last + 1.0)
    return min(1.0, float(numbers.mass(places, 1.0).sum()))


def _too_far_below(evidence: Evidence, numbers: list[_Numbers]) -> _Finding | None:
    tails: list[float] = []
    places: list[int] = []
    for each in numbers:
        below = -each.counts[each.counts < 0]
        # without a kernel the density is not normal: sums of Laplace noise have heavier tails
        if not below.size or each.law.kernel is None:
            continue
        tails.append(_tail_below(each, below))
        places.append(each.position)
    return _finding(
        evidence,
        tails,
        places,
        "negative numbers are farther below zero than noise takes any count, most of all in",
        "as where the noise is larger; ask for its scale, or, where the numbers were computed from others, state the "
        "noise of their sums",
    )


def _tail_below(numbers: _Numbers, below: FloatArray) -> float:
    """Return the p-value of the distances of negative numbers from zero, records, shape (numbers,)."""
    law = numbers.law
    size = below.size
    if not numbers.is_laplace:
        beyond = np.maximum(below - numbers.bin_width, 0.0) / law.scale
        return float(chdtrc(size, float(beyond @ beyond)))
    if numbers.grid <= 10.0**-MOST_DECIMALS:  # no grid
        return float(gammaincc(size, below.sum() / law.scale))
    if numbers.bin_width == numbers.grid:
        step = numbers.grid
        beyond = below - step
    else:
        # with ties the multiples are unequally far apart, so that whole records are the steps
        step = 1.0
        beyond = np.maximum(below - numbers.bin_width, 0.0)
    steps = max(round(float(beyond.sum() / step)), 0)
    if steps == 0:
        return 1.0
    return float(betainc(steps, size, math.exp(-step / law.scale)))


def _finding(
    evidence: Evidence, tails: list[float], places: list[int], wrong: str, remedy: str
) -> _Finding | None:
    """Return the combined result of one test over measurements; None where it applies to none."""
    if not tails:
        return None
    worst = evidence.name_of(places[int(np.argmin(tails))])
    return _Finding(tail=_combined(np.array(tails)), wrong=f"{wrong} {worst}", remedy=remedy)


def _combined(tails: FloatArray) -> float:
    """Combine independent p-values: Fisher's, and the smallest times their number; twice the smaller one."""
    if tails.size == 1:
        return float(tails[0])
    with np.errstate(divide="ignore"):
        together = chdtrc(2 * tails.size, -2 * np.log(tails).sum())
    return min(1.0, 2 * min(float(together), tails.size * float(tails.min())))


def _overlapping(evidence: Evidence, found: NoiseResiduals | None) -> _Finding | None:
    """Test whether numbers that overlap differ by more than their noise, in all their residuals together."""
    if found is None or not _has_stated_noise(evidence):
        return None
    degrees = float(found.own.sum())
    if degrees < 0.5:  # a projection has a whole trace
        return None
    value = float(found.residuals @ found.residuals)
    if (
        value <= degrees
    ):  # no larger than expected; noise that is nearly always 0 leaves rounding errors
        return None
    places = np.searchsorted(evidence.offsets, found.seen, side="right") - 1
    kurtosis = _kurtosis(evidence.noise, places)
    variance = 2 * degrees + float(kurtosis @ found.own**2)
    scale = variance / (2 * degrees)
    tail = float(chdtrc(degrees / scale, value / scale))
    if tail < _SIMULATED_BELOW:
        laws = [cast("NoiseDistribution", evidence.noise[place]) for place in places]
        tail = _simulated(found.projection, laws, value)
    return _Finding(
        tail=tail,
        wrong=(
            f"numbers that overlap differ by {math.sqrt(value / degrees):.1f} times as much as their noise explains"
        ),
        remedy="ask who made the numbers for its scale, and whether all are of the same records",
    )


def _has_stated_noise(evidence: Evidence) -> bool:
    """Return True if all numbers are exact or have noise that does not depend on the count."""
    return all(law.is_additive and not law.is_bounded for law in evidence.noise)


def _kurtosis(noise: Sequence[Likelihood], places: IntArray) -> FloatArray:
    """Return the excess kurtosis of the distribution at each place, shape (places,)."""
    found = np.zeros(len(noise))
    for place in np.unique(places):
        law = cast("NoiseDistribution", noise[place])
        is_laplace = code_of(law.smooth) != SQUARE
        found[place] = _LAPLACE_KURTOSIS * is_laplace + law.is_discrete / law.variance
    return found[places]


def _simulated(weights: FloatArray, laws: list[NoiseDistribution], value: float) -> float:
    """Return the share of simulated draws of noise whose residuals are as large as a value."""
    rng = np.random.default_rng(_SEED)
    blocks = {law: np.array([each == law for each in laws]) for law in laws}
    larger = 0
    tail = 1.0
    for drawn in range(_BLOCK, _DRAWS + 1, _BLOCK):
        noise = np.empty((_BLOCK, len(laws)))
        for law, own in blocks.items():
            noise[:, own] = law.draw((_BLOCK, int(own.sum())), rng) / law.standard_deviation
        residuals = noise @ weights
        larger += int((np.square(residuals).sum(axis=1) >= value).sum())
        tail = (larger + 1) / (drawn + 1)
        if tail > SMALLEST_NOISE_TAIL:  # four times the level of this test
            break
    return tail
