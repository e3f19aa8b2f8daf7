r"""The work of an effective draw by each engine: what `auto` compares, counted in operations and not by a clock.

An operation takes about a nanosecond on a core of 2026; only ratios matter. The work of an effective draw is that of
one draw times the number of draws to an effective one.

**Whole records.** A sweep visits V = min(N, 2000) records. A cell that holds the share p of the records loses or
gains one at a visit with probability 2 p (1 - p), so that its count diffuses by 2 p (1 - p) a visit. A random walk
whose stationary variance is s² then has an autocorrelation time of s² / (p (1 - p)) visits, and an effective draw
takes twice that. With n = pN, and a factor for moves that a kink of Laplace noise of scale b refuses,

.. math:: 1 + 2 \bigl(1 + 1/b\bigr) \frac{N}{V} \max_i \frac{s_i^2}{n_i}

sweeps are needed, 1/b being at most 5. The last factor is about b where a cell is nearly empty, and grows as N where
a cell is measured as a part of a sum alone. So beyond V records the work grows in proportion to N b, and without a
bound. Births and deaths, at most 1,000 a sweep, move a private N, whose variance is e², by a random walk of one
record a step.

**One table.** Its moves are of up to two standard deviations of the noise at once, so that the work hardly depends on
N, up to some hundred million, from where on the first table is far off. Cells whose noise exceeds what they hold, and
parts of sums, take longer.

**Relaxed counts.** NUTS needs about four draws to an effective one, of some ten gradients each; kinks of Laplace
noise need shorter steps, the more of them there are and the narrower they are.

The constants are fits to the benchmark *Choice of the engine*, which checks that the engine chosen takes at most
twice the time of the better one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.measured_cells import MeasuredCells
from bayesprivmrf.model.tables import FloatArray

__all__ = [
    "WORK",
    "CellSpread",
    "gradient_operations",
    "relaxed_work",
    "sweeps_of_records",
    "sweeps_of_table",
]

WORK = 1.2e11
"""Operations of all chains beyond which a sampling does not go on: about a minute on two cores of 2026."""

_STEP, _NUMBER = 2000.0, 300.0
"""Operations of one gradient: of the sampler itself, and for each latent number."""
_DRAWS, _GRADIENTS = 4.0, 10.0
"""Draws to an effective one, and gradients of a draw where the density is smooth."""
_KINK = 0.012
"""Growth of the number of gradients with the latent numbers, for noise whose scale is one record."""
_NARROWEST, _SHARPEST = 0.3, 0.2
"""Scale of noise, in records, below which gradients, and refusals of whole records, do not grow."""
_BIRTH = 6.0
"""Births and deaths to an effective draw of N, for each record of its variance: some of them are refused."""
_RARE = 1e-3
"""Variance of a count below which it hardly changes in thousands of draws."""
_WIDE, _REACH = 2.0, 40
"""Scale of noise from which sums over whole numbers are integrals, to 4 %; and how far the sums go."""
_PARTED = 2.0
"""Moves between the parts of a sum that one round over a table's cells makes, a cell."""
_START = 200.0
"""Effective draws over which the sweeps are spread that lead away from the first table."""
_DROWNED = 12.0
"""Most sweeps that learned shapes take where noise exceeds what the cells hold."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellSpread:
    """Rough posterior means and variances of a model's counts, by the sharpest number that measures each cell.

    Parameters
    ----------
    means, variances
        Of each possible cell's count, records and records squared.
    noise
        Variance that the noise alone leaves each count, records squared.
    is_part
        Whether only sums with other cells tell a cell's count.
    even
        Records in each cell if all held equally many.
    scale, deviation
        Smallest scale of Laplace noise, infinite where there is none; and largest standard deviation of any noise.
    """

    means: FloatArray
    variances: FloatArray
    noise: FloatArray
    is_part: NDArray[np.bool_]
    even: float
    scale: float
    deviation: float

    @classmethod
    def of(cls, evidence: Evidence, measured: MeasuredCells, total: float) -> CellSpread:
        """Spread of the model's possible cells, given what was measured and a public or estimated total."""
        laws, cells = evidence.noise, max(measured.cells.size, 1)
        is_laplace = [law.base_law.kernel == "absolute" for law in laws]
        widths = evidence.spread([law.scale for law in laws])[measured.targets]
        absolute = evidence.spread(is_laplace)[measured.targets] > 0
        own = _variances(evidence.noisy_counts[measured.targets], widths, absolute)
        entries = np.maximum(np.abs(measured.entries), 1e-9)
        members = np.bincount(measured.sums, minlength=measured.targets.size)[measured.sums]
        numbers = np.maximum(evidence.noisy_counts[measured.targets], 0.0)[measured.sums]
        shares = numbers / (members * entries)
        # the parts of a sum may be anything between nothing and all of it
        spread = own[measured.sums] / entries**2
        spread += np.where(members > 1, shares**2, 0.0)
        order = np.lexsort((spread, measured.sources))
        seen, first = np.unique(measured.sources[order], return_index=True)
        best, even = order[first], total / cells
        means, noise, is_part = np.full(cells, even), np.full(cells, even**2), np.ones(cells, bool)
        means[seen], noise[seen], is_part[seen] = shares[best], spread[best], members[best] > 1
        scales = [law.scale for law, one in zip(laws, is_laplace, strict=True) if one and law.scale > 0]
        return cls(
            means=means,
            variances=np.minimum(noise, np.maximum(means, even) ** 2),
            noise=noise,
            is_part=is_part,
            even=even,
            scale=min(scales, default=math.inf),
            deviation=max((law.standard_deviation for law in laws), default=0.0),
        )


def _variances(noisy: FloatArray, scales: FloatArray, absolute: NDArray[np.bool_]) -> FloatArray:
    """Variance of the whole number behind each noisy one, before anything else is known."""
    variances = np.where(absolute, 2.0, 1.0) * scales**2
    # where noise is narrow, it matters how far the noisy number is from whole ones
    for m in np.flatnonzero((scales > 0.0) & (scales < _WIDE)):
        ratio = np.abs(np.arange(-_REACH, _REACH + 1) - noisy[m] + np.rint(noisy[m])) / scales[m]
        log_weights = -ratio if absolute[m] else -0.5 * ratio * ratio
        weights = np.exp(log_weights - log_weights.max())
        mean = np.average(np.arange(-_REACH, _REACH + 1), weights=weights)
        variances[m] = np.average((np.arange(-_REACH, _REACH + 1) - mean) ** 2, weights=weights)
    return variances


def sweeps_of_records(spread: CellSpread, total: float, visits: int, births: int, error: float) -> float:
    """Return the sweeps of whole records to an effective draw; `error` is the standard error of a private N."""
    moving = np.where(spread.variances > _RARE, np.maximum(spread.variances, 1.0), 0.0)
    held = np.maximum(np.maximum(spread.means, np.sqrt(spread.variances)), 1.0)
    walk = 2.0 * (1.0 + 1.0 / max(spread.scale, _SHARPEST)) * float((moving / held).max(initial=0.0))
    return (
        1.0 + walk * total / max(min(total, visits), 1.0) + _BIRTH * min(error, total) ** 2 / max(births, 1)
    )


def sweeps_of_table(spread: CellSpread, total: float, rounds: int) -> float:
    """Return the sweeps of one table's counts to an effective draw; a sweep is so many rounds over its cells."""
    step = max(2.0 * spread.deviation, 1.0)
    # the first table is off by the deviation of multinomial counts
    first = 0.5 * math.sqrt(total) / (step * rounds) / _START
    apart = float(spread.variances[spread.is_part].max(initial=0.0)) / (step * step * _PARTED * rounds)
    drowned = spread.deviation / max(spread.even, 1.0)
    shapes = min(drowned * math.sqrt(spread.deviation) / 2.0, _DROWNED) if drowned > 0.5 else 0.0
    return 1.0 + first + shapes + apart


def gradient_operations(numbers: int) -> float:
    """Return the operations of one gradient by so many latent numbers."""
    return _STEP + _NUMBER * numbers


def relaxed_work(numbers: int, scale: float) -> float:
    """Return the operations to an effective draw of so many latent numbers, given the smallest Laplace scale."""
    gradients = _GRADIENTS * (1.0 + _KINK * numbers / max(scale, _NARROWEST))
    return _DRAWS * gradients * gradient_operations(numbers)
