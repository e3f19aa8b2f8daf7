"""Limits of rows that rest on published ranges which are wide for their counts.

Within a wide range a count is nearly as likely as its neighbors, while the normal approximation takes it for known to
the accuracy that the other numbers and the prior give. The limits are therefore widened to those of a reference: the
counts of the cells in wide ranges are independent and uniform between the ends that all numbers allow. A row's own
ends, if a number or a sum of cells bounds it, may be nearer. The reference leaves out what the prior says, so that
the interval is wide rather than wrong; `LatentCounts` gives shorter ones.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from bayesprivmrf.inference.allowed_counts import (
    StatesOfClique,
    allowed_cells,
    allowed_states,
)
from bayesprivmrf.inference.asked import Asked
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.published import are_wide


class RangeReference(NamedTuple):
    """Middles and variances of independent counts, records; the variance is 0 where no wide range bears on a count.

    Arrays of one shape. The middle is the noisy count where there is no range, and NaN where nothing tells the count.
    """

    middle: FloatArray
    variance: FloatArray

    def of_shares(self) -> RangeReference:
        """Return middles and variances of the shares of the counts, of which these are a sample."""
        total = self.middle.sum()
        share = self.middle / total
        # a share grows with its own count, and falls with the others
        noise = self.variance * (1 - 2 * share) + np.square(share) * self.variance.sum()
        variance = noise / total**2 + share * (1 - share) / total
        return RangeReference(share, np.where(noise > 0, variance, 0.0))

    def limits(self, prob: float) -> tuple[FloatArray, FloatArray]:
        """Return normal limits of the counts."""
        reach = norm.ppf(0.5 + prob / 2) * np.sqrt(self.variance)
        return np.maximum(self.middle - reach, 0.0), self.middle + reach

    def limits_of_shares(self, prob: float) -> tuple[FloatArray, FloatArray]:
        r"""Return limits of the shares of the counts, of which these are a sample, by Fieller's method.

        With the sum T of the middles m, and the sum V of the variances v, they contain the shares s for which

        .. math:: (m - s T)^2 \le z^2 \{v (1 - 2 s) + s^2 V + m (1 - m / T)\}.

        A normal share would not allow for its total, which is as uncertain as the count, and could exceed 1.
        """
        square = norm.ppf(0.5 + prob / 2) ** 2
        total = self.middle.sum()
        whole = self.variance.sum()
        # the shares are those between the roots of a s^2 - 2 b s + c
        leading = total**2 - square * whole
        if leading <= 0:
            return np.zeros(self.middle.shape), np.ones(self.middle.shape)
        half = self.middle * total - square * self.variance
        sampling = self.middle * (1 - self.middle / total)
        last = np.square(self.middle) - square * (self.variance + sampling)
        reach = np.sqrt(np.maximum(np.square(half) - leading * last, 0.0))
        lower = np.maximum((half - reach) / leading, 0.0)
        return lower, np.minimum((half + reach) / leading, 1.0)


@lru_cache(maxsize=4)
def _of_cells(evidence: Evidence) -> RangeReference | None:
    """Return the reference of each cell of the model, shape (model size,); None if no published range is wide."""
    cells = None
    if evidence.is_coarse:
        cells = allowed_cells(evidence)
    if cells is None:
        return None
    # a range that is published for one cell
    sizes = np.diff(evidence.rows.tocsr().indptr)
    of_cell = _is_coarse(evidence) & (sizes == 1)
    is_published = np.asarray(evidence.rows[of_cell].sum(axis=0)).ravel() > 0
    # other numbers may leave a narrow part of the range
    is_wide = is_published & are_wide(*cells)
    width = np.where(is_wide, cells.high - cells.low, 0.0)
    middle = (cells.low + cells.high) / 2
    noisy = np.clip(_noisy_counts(evidence), *cells)
    # a noisy count tells more than ends that follow from others; ends far apart that no wide range leaves open tell
    # nothing
    is_loose = (are_wide(*cells) | np.isfinite(noisy)) & ~is_wide
    return RangeReference(np.where(is_loose, noisy, middle), _of_uniform(width))


def _noisy_counts(evidence: Evidence) -> FloatArray:
    """Return the mean of the noisy counts of each cell of the model, shape (model size,); NaN without one."""
    sizes = np.diff(evidence.rows.tocsr().indptr)
    is_noisy = evidence.spread([law.is_additive and not law.is_bounded for law in evidence.noise])
    is_told = (is_noisy > 0) & evidence.is_count & evidence.possible & (sizes == 1)
    rows = evidence.rows[is_told]
    number = np.asarray(rows.sum(axis=0)).ravel()
    total = rows.T @ evidence.noisy_counts[is_told]
    return np.divide(total, number, out=np.full(number.size, np.nan), where=number > 0)


def _of_uniform(width: FloatArray) -> FloatArray:
    """Return the variance of a whole number that is uniform between two ends, given their distance."""
    return (np.square(width + 1) - 1) / 12


def _is_coarse(evidence: Evidence) -> np.ndarray:
    """Mask of the counts whose published range is wide for them, shape (numbers,)."""
    found = np.zeros(evidence.offsets[-1], dtype=bool)
    for law, (start, stop) in zip(evidence.noise, pairwise(evidence.offsets), strict=True):
        if law.is_tabled:
            found[start:stop] = law.is_coarse(evidence.published[start:stop])
    return found & evidence.is_count


def _of_states(evidence: Evidence, variables: tuple[int, ...]) -> RangeReference | None:
    """Return the reference of each joint state of some variables, in C order; None if no wide range bears on any."""
    cells = _of_cells(evidence)
    if cells is None:
        return None
    ends = allowed_states(evidence, variables)
    if ends is None:
        return None
    middle = (ends.low + ends.high) / 2
    variance = _of_uniform(ends.high - ends.low)
    is_far = np.isinf(ends.high) | are_wide(*ends)
    is_open = np.zeros(len(variance), dtype=bool)
    for home in StatesOfClique.of(evidence.specification, variables):
        of_sums = home.summed(cells.variance)
        states, _ = home.counted_by(evidence.rows[_is_coarse(evidence)])
        is_open |= of_sums > 0
        is_open[states] |= are_wide(*ends)[states]
        is_nearer = (of_sums > 0) & (of_sums < variance)
        variance = np.where(is_nearer, of_sums, variance)
        by_cells = home.summed(cells.middle)
        is_told = is_nearer | (is_far & ~is_open & np.isfinite(by_cells))
        middle = np.where(is_told, by_cells, middle)
        is_far = is_far & ~is_told
    variance = np.where(is_open & np.isfinite(variance), variance, 0.0)
    if not variance.any():
        return None
    return RangeReference(np.where(is_far & ~is_open, np.nan, middle), variance)


def widened(
    evidence: Evidence, asked: Asked, lower: FloatArray, upper: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return limits of the rows of a question, wide enough for the wide ranges that bear on them.

    Parameters
    ----------
    evidence, asked
        The measurements; the question.
    lower, upper
        Limits that those returned contain, shape (rows,).
    """
    counts = _of_question(evidence, asked)
    if counts is None:
        return lower, upper
    if asked.of == "population":
        is_open = counts.of_shares().variance > 0
        lowest, highest = counts.limits_of_shares(asked.prob)
    else:
        is_open = counts.variance > 0
        lowest, highest = counts.limits(asked.prob)
    lowest = np.where(is_open, np.minimum(lower, lowest), lower)
    return lowest, np.where(is_open, np.maximum(upper, highest), upper)


def reference_of(evidence: Evidence, asked: Asked) -> RangeReference | None:
    """Return the reference of the rows of a question, of their shares if it is of the population; None if none."""
    counts = _of_question(evidence, asked)
    if counts is not None and asked.of == "population":
        return counts.of_shares()
    return counts


def _of_question(evidence: Evidence, asked: Asked) -> RangeReference | None:
    """Return the reference of the counts of the rows of a question.

    None if no wide range bears on them, or the question is of more than the joint states of a clique.
    """
    if asked.bound is not None:
        return None
    found = _of_states(evidence, (*asked.variables, *asked.given))
    if found is None:
        return None
    cards = asked.model.cardinalities
    codes = [range(cards[v]) for v in asked.variables]
    kept = np.ix_(*codes, *asked.given.values())
    shape = [cards[v] for v in (*asked.variables, *asked.given)]
    rows = math.prod(map(len, codes))
    own = RangeReference(
        *(part.reshape(shape)[kept].reshape(rows, -1).sum(axis=1) for part in found)
    )
    if not own.variance.any():
        return None
    return own


def is_beyond(evidence: Evidence, asked: Asked) -> bool:
    """Return True if rows of a question may rest on a wide range for which their limits do not allow."""
    if asked.bound is not None or asked.apart:
        return is_open(evidence)
    counts = _of_question(evidence, asked)
    return asked.of == "population" and counts is not None and bool(np.isnan(counts.middle).any())


def is_open(evidence: Evidence) -> bool:
    """Return True if the numbers together leave the count of some cell in a wide range."""
    cells = _of_cells(evidence)
    return cells is not None and bool(cells.variance.any())
