r"""Work per effective draw of each engine, which `auto` compares, and the memory that a posterior needs.

Work is counted in operations instead of seconds.

An operation takes about a nanosecond on a core of 2026; only ratios matter. The work per effective draw is the work
of one draw times the number of draws per effective draw, those of tuning included.

**Whole records.** A sweep visits V = min(N, 2000) records. A cell that holds the share p of the records loses or
gains one at a visit with probability 2 p (1 - p), the variance of its random walk per visit. A random walk whose
stationary variance is s² then has an autocorrelation time of s² / (p (1 - p)) visits, and an effective draw takes
twice that. With n = pN, C cliques, and a factor for moves that are rejected at a kink of Laplace noise of scale b,
the number of sweeps is

.. math:: \frac{3}{2} + 2 \frac{N}{V} \Bigl(1 + \frac{1}{b^2}\Bigr) \Bigl(\frac{C}{2}\Bigr)^3
          \max_i \frac{s_i^2}{n_i},

where b is at least 0.3. The factors of b and C are fitted: the state of a separator changes in all cliques that share
it at once, so that kinks of several tables reject a move. The ratio s²/n is about b where a cell is nearly empty, and
grows as N where a cell is measured only as a part of a sum. Beyond V records the work therefore grows in proportion
to N b, without a bound. It is then far too low, by a factor of 100 for a million records, but relaxed counts are
faster there by more than that.

A count that narrow noise fixes at k but for a small probability, s² < 0.05, flips between k and a neighbor instead of
walking. From k - 1 it returns at nearly every proposal, for the noise pulls records in. From k + 1 it returns when
one of the k + 1 records is visited, so that 1 / (k + 1) replaces the terms in s². Births and deaths, at most 1,000
per sweep, move a private N, whose variance is e², by a random walk of one record per step.

**One table.** Each move changes a count by up to two standard deviations of the noise, and chains start within the
noise. The work therefore does not depend on N. Cells whose noise exceeds their count, and parts of sums, take longer.

**Relaxed counts.** NUTS needs about 100 gradients per effective draw. Kinks of Laplace noise need shorter steps; the
more kinks there are and the narrower they are, the shorter.

The constants are fitted to the benchmark *Choice of the engine*, which checks that the chosen engine takes at most
twice the time of the better one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayesprivmrf.checks import require_memory
from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.measured import MeasuredCells
from bayesprivmrf.marginals import forecast
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

# Bytes that the draws may take
MEMORY = 4 * 2**30
# Numbers per cell and draw: marginals, counts, effects, potentials, replicates and arrays of the sampler
_TABLES_A_DRAW = 10
# Largest number of effects of a log-linear model: its preconditioner is dense, 200 MB at this limit
LARGEST_DIMENSION = 5000

# Operations of all chains beyond which sampling is not continued: about a minute on two cores of 2026
WORK = 1.2e11

# Operations of one gradient: of the sampler itself, and for each latent number
_STEP, _NUMBER = 2500.0, 170.0
# Gradients per effective draw where the density is smooth, those of tuning included
_GRADIENTS = 105.0
# Growth of the number of gradients per latent number, for noise whose scale is one record
_KINK = 0.012
# Noise scale, in records, below which gradients, and rejections of whole records, do not grow further
_NARROWEST, _SHARPEST = 0.2, 0.3
# Sweeps per draw: half as many sweeps of tuning as of draws are the default
_SWEEPS = 1.5
# Births and deaths per effective draw of N and unit of its variance; some of them are rejected
_BIRTH = 6.0
# Variance of a count below which it hardly changes in thousands of draws
_RARE = 1e-3
# Variance of a count below which one value is so likely that the count leaves it alone and returns at once
_FLIPS = 0.05
# Noise scale from which integrals replace sums over whole numbers, to 4 %; and the range of the sums
_WIDE, _REACH = 2.0, 40
# Moves between the parts of a sum per cell, in one round over a table's cells
_PARTED = 2.0
# Largest number of sweeps that learned shapes need where noise exceeds the counts of the cells
_DROWNED = 12.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellSpread:
    """Rough posterior means and variances of a model's counts, from the most precise measurement of each cell.

    Parameters
    ----------
    means, variances
        Of each possible cell's count, records and records squared.
    noise
        Variance of each count given its noisy measurement alone, records squared.
    is_part
        Whether a cell's count is measured only in sums with other cells.
    even
        Records in each cell if all cells had the same number.
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
        """Return the spread of the model's possible cells, given the measurements and a public or estimated total."""
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
    """Return the variance of the whole number behind each noisy one, given that noisy number alone."""
    variances = np.where(absolute, 2.0, 1.0) * scales**2
    # under narrow noise the distance of the noisy number from whole numbers matters
    for m in np.flatnonzero((scales > 0.0) & (scales < _WIDE)):
        ratio = np.abs(np.arange(-_REACH, _REACH + 1) - noisy[m] + np.rint(noisy[m])) / scales[m]
        log_weights = -ratio if absolute[m] else -0.5 * ratio * ratio
        weights = np.exp(log_weights - log_weights.max())
        mean = np.average(np.arange(-_REACH, _REACH + 1), weights=weights)
        variances[m] = np.average((np.arange(-_REACH, _REACH + 1) - mean) ** 2, weights=weights)
    return variances


def sweeps_of_records(
    spread: CellSpread, total: float, visits: int, births: int, error: float, cliques: int
) -> float:
    """Return the sweeps of whole records per effective draw; `error` is the standard error of a private N."""
    kinks = (1.0 + 1.0 / max(spread.scale, _SHARPEST) ** 2) * (cliques / 2) ** 3
    walk = kinks * spread.variances / np.maximum(np.maximum(spread.means, np.sqrt(spread.variances)), 1.0)
    likely = np.rint(spread.means)
    flips = np.where((spread.variances > _RARE) & (spread.means >= likely), 1.0 / (likely + 1.0), 0.0)
    walk = np.where(spread.variances < _FLIPS, flips, walk)
    slowest = 2.0 * float(walk.max(initial=0.0)) * total / max(min(total, visits), 1.0)
    return _SWEEPS + slowest + _BIRTH * min(error, total) ** 2 / max(births, 1)


def sweeps_of_table(spread: CellSpread, rounds: int) -> float:
    """Return the sweeps of one table's counts per effective draw, for a given number of rounds per sweep."""
    step = max(2.0 * spread.deviation, 1.0)
    apart = float(spread.variances[spread.is_part].max(initial=0.0)) / (step * step * _PARTED * rounds)
    drowned = spread.deviation / max(spread.even, 1.0)
    shapes = min(drowned * math.sqrt(spread.deviation) / 2.0, _DROWNED) if drowned > 0.5 else 0.0
    return _SWEEPS + shapes + apart


def gradient_operations(numbers: int) -> float:
    """Return the operations of one gradient with respect to a given number of latent numbers."""
    return _STEP + _NUMBER * numbers


def relaxed_work(numbers: int, scale: float) -> float:
    """Return the operations per effective draw of latent numbers, given the smallest Laplace scale."""
    gradients = _GRADIENTS * (1.0 + _KINK * numbers / max(scale, _NARROWEST))
    return gradients * gradient_operations(numbers)


def require_room(evidence: Evidence, draws: int, *, needs_marginals: bool) -> None:
    """Raise an error that names a remedy if draws, effects or exact inference would not fit in memory."""
    model = evidence.specification
    cells = max(model.size, evidence.offsets[-1])
    needed = 8 * _TABLES_A_DRAW * cells * draws
    remedy = "take fewer `draws` or `chains`, or NoiseAwareMAP, which keeps none"
    require_memory(f"{draws:,} draws of {cells:,} cells", needed, remedy, MEMORY)
    states = max(model.cardinalities, default=1)
    effects = f"the effects of a variable of {states:,} states"
    require_memory(effects, 8 * states**2, "declare fewer states, or merge the rare ones", MEMORY)
    if needs_marginals and cells:
        cost = forecast(model.cardinalities, model.scopes)
        if not cost.memory_bytes <= MEMORY:
            raise ModelTooLargeError(
                "the log-linear formulation needs exact inference in every step, here with a table of "
                f"{cost.largest_table:,} cells",
                remedy="use NoiseAwareMAP(inference='loopy'), CGM(inference='loopy') or "
                "NaiveMLE(inference='loopy'), or fewer or smaller cliques",
                option="use `--method cgm --inference loopy`, or fewer or smaller cliques",
            )
        size = Effects.of(model.cardinalities, model.scopes).size
        if not size <= LARGEST_DIMENSION:
            raise ModelTooLargeError(
                f"the log-linear formulation has {size:,} effects here, more than {LARGEST_DIMENSION:,}; use "
                "NoiseAwareMAP, or fewer or smaller cliques."
            )
