r"""Bounds of nested or disjoint sums of cells, as a tree that decides whether a table satisfies them, and finds one.

The tables :math:`n \ge 0` with :math:`l_S \le \sum_{i \in S} n_i \le u_S`, for sets S of a laminar family, are an
M♮-convex set of whole vectors: any two of them are linked inside it by steps :math:`\pm e_i` and :math:`e_i - e_j`,
and by steps :math:`e_i - e_j` alone where they have one sum (Murota 2003, chapters 4 and 6). The possible sums of a
set form an interval. It reaches from the larger of the set's lower bound and the least sum of its parts, to the
smaller of its upper bound and their largest sum.

References
----------
Murota (2003). Discrete convex analysis. SIAM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.measured import MeasuredCells
from bayesprivmrf.model.tables import FloatArray, IntArray

# Error message if no table satisfies the bounds and the exact numbers
CONTRADICTION = (
    "bounds and numbers without noise must leave some table, but contradict each other; correct one."
)
# More than any number of records, and small enough to add a few in 64 bits
_MANY = np.int64(1) << 60


class CrossingError(Exception):
    """Error for two sets that overlap without one containing the other."""


@dataclass(frozen=True, slots=True, eq=False)
class Bounded:
    """Set of cells with the bounds of their sum; by default from 0 to any number."""

    cells: IntArray
    lowest: int = 0
    highest: int = int(_MANY)


class NestedSums:
    """Tree of a family of bounded sums; its first blocks are the cells themselves.

    Parameters
    ----------
    cells
        Number of cells.
    family
        Bounded sets of cells.

    Raises
    ------
    ModelError
        No table meets all bounds.
    CrossingError
        Two sets overlap, and neither holds the other.
    """

    def __init__(self, cells: int, family: Sequence[Bounded]) -> None:
        self._parts: dict[int, IntArray] = {}
        self._low, self._high = [0] * cells, [int(_MANY)] * cells
        held, sizes = np.arange(cells), [1] * cells
        for each in sorted(family, key=lambda each: each.cells.size):
            parts, found = np.unique(held[each.cells], return_counts=True)
            if any(sizes[part] != count for part, count in zip(parts.tolist(), found.tolist(), strict=True)):
                raise CrossingError
            block = len(sizes)
            self._low.append(max(each.lowest, sum(self._low[part] for part in parts)))
            self._high.append(min(each.highest, sum(self._high[part] for part in parts)))
            if self._low[-1] > self._high[-1]:
                raise ModelError(CONTRADICTION)
            sizes.append(each.cells.size)
            self._parts[block], held[each.cells] = parts, block
        self._tops = np.unique(held)
        self._cells = cells

    @property
    def extent(self) -> tuple[int, int]:
        """Least and largest number of records in all cells together."""
        low, high = (sum(ends[top] for top in self._tops) for ends in (self._low, self._high))
        return low, min(high, int(_MANY))

    def table(self, total: int, wanted: FloatArray) -> IntArray:
        """Return a table with a given number of records, within all bounds and near a wanted table.

        Raises
        ------
        ModelError
            There is none.
        """
        if not self.extent[0] <= total <= self.extent[1]:
            raise ModelError(CONTRADICTION)
        near = [*wanted.tolist()]
        for parts in self._parts.values():
            near.append(sum(near[part] for part in parts.tolist()))
        counts = np.zeros(self._cells, np.int64)
        left = [(self._tops, total)]
        while left:
            parts, number = left.pop()
            low, high = (np.array([ends[part] for part in parts]) for ends in (self._low, self._high))
            shares = _parted(number, np.array([near[part] for part in parts], float), low, high)
            for part, share in zip(parts.tolist(), shares.tolist(), strict=True):
                if part < self._cells:
                    counts[part] = share
                else:
                    left.append((self._parts[part], share))
        return counts


def _parted(number: int, wanted: FloatArray, low: IntArray, high: IntArray) -> IntArray:
    """Return whole numbers with a given sum, between the ends and about in proportion to the wanted ones."""
    high = np.minimum(high, number)
    scale = number / wanted.sum() if wanted.sum() > 0 else 0.0
    found = np.clip(np.rint(wanted * scale).astype(np.int64), low, high)
    missing = number - int(found.sum())
    spare = high - found if missing > 0 else found - low
    before = np.concatenate([[0], np.cumsum(spare.astype(float))[:-1]])
    moved = np.clip(abs(missing) - before, 0, spare).astype(np.int64)
    return found + moved if missing > 0 else found - moved


def half_widths(evidence: Evidence) -> FloatArray:
    """Return half the width of each number's bounds, 0 for exact and -1 for noisy ones, shape (numbers,)."""
    return evidence.spread(
        [
            law.half_width if law.kernel == "within" else 0.0 if law.variance == 0 else -1.0
            for law in evidence.noise
        ]
    )


def held_numbers(evidence: Evidence) -> np.ndarray:
    """Return the mask of the possible numbers without noise, exact or within bounds, shape (numbers,)."""
    scale = evidence.spread([law.scale for law in evidence.noise])
    return evidence.possible & (half_widths(evidence) >= 0) & (scale == 0)


def bounded_sums(evidence: Evidence, measured: MeasuredCells, total: float | None) -> list[Bounded]:
    """Return the bounds of sums of cells without noise, and the number of records where that is public.

    Raises
    ------
    CrossingError
        A number is no sum of cells, each counted once.
    """
    is_held, halves = (values[measured.targets] for values in (held_numbers(evidence), half_widths(evidence)))
    middle, found = evidence.noisy_counts[measured.targets], []
    for number in np.flatnonzero(is_held):
        own = measured.sums == number
        if (measured.entries[own] != 1).any():
            raise CrossingError
        ends = np.ceil(middle[number] - halves[number]), np.floor(middle[number] + halves[number])
        found.append(Bounded(measured.sources[own], max(int(ends[0]), 0), int(ends[1])))
    if total is not None:
        found.append(Bounded(np.arange(measured.cells.size), round(total), round(total)))
    return found
