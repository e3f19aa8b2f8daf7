r"""Likelihood of measured numbers given whole counts: noise densities, and exact or bounded sums of cells.

**Noise.** Let y be a released number, s its true value and w the width of the noise. Except for constants, the log
densities are

.. math:: \log f(y - s) = -|y - s| / w \quad\text{or}\quad -(y - s)^2 / (2 w^2).

For a number that is known only within bounds, f is replaced by the probability of these bounds.

**Bounds without noise.** The tables :math:`n \ge 0` with :math:`l_S \le \sum_{i \in S} n_i \le u_S`, for sets S that
are pairwise nested or disjoint, are an M♮-convex set of integer vectors. Steps :math:`\pm e_i` and :math:`e_i - e_j`
link any two of them inside the set. For tables with the same sum, steps :math:`e_i - e_j` suffice (Murota 2003,
chapters 4 and 6). The possible sums of a set form an interval. Its lower end is the larger of the set's lower bound
and the smallest sum of its parts; its upper end is the smaller of the upper bound and the largest sum of the parts.

References
----------
Murota (2003). Discrete convex analysis. SIAM.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, kept
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.allowed_counts import allowed_numbers
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.measured import MeasuredCells
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise import kernels
from bayesprivmrf.noise.kernels import ABSOLUTE, TABLED

# Error message if no table satisfies the bounds and the exact numbers
NO_TABLE = (
    "bounds and numbers without noise must allow at least one table, but contradict each other; "
    "correct one."
)
# Larger than any number of records, and small enough for sums in 64 bits
_MANY = np.int64(1) << 60


# Rounding error up to which a solution of linear equations counts as exact
_ROUNDING = 1e-6


class CrossingError(Exception):
    """Error for two sets that overlap without one containing the other."""


@dataclass(frozen=True, slots=True, eq=False)
class Bounded:
    """Set of cells with bounds of their sum; by default from 0 to any number."""

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
        No table satisfies all bounds.
    CrossingError
        Two sets overlap, and neither contains the other.
    """

    def __init__(self, cells: int, family: Sequence[Bounded]) -> None:
        self._parts: dict[int, IntArray] = {}
        self._low, self._high = [0] * cells, [int(_MANY)] * cells
        # largest block so far that contains each cell
        block_of = np.arange(cells)
        sizes = [1] * cells
        for each in sorted(family, key=lambda each: each.cells.size):
            parts, found = np.unique(block_of[each.cells], return_counts=True)
            if any(
                sizes[part] != count
                for part, count in zip(parts.tolist(), found.tolist(), strict=True)
            ):
                raise CrossingError
            block = len(sizes)
            self._low.append(max(each.lowest, sum(self._low[part] for part in parts)))
            self._high.append(min(each.highest, sum(self._high[part] for part in parts)))
            if self._low[-1] > self._high[-1]:
                raise ModelError(NO_TABLE)
            sizes.append(each.cells.size)
            self._parts[block], block_of[each.cells] = parts, block
        self._tops = np.unique(block_of)
        self._cells = cells

    @property
    def extent(self) -> tuple[int, int]:
        """Smallest and largest number of records in all cells together."""
        low, high = (sum(ends[top] for top in self._tops) for ends in (self._low, self._high))
        return low, min(high, int(_MANY))

    def table(self, total: int, wanted: FloatArray) -> IntArray:
        """Return a table with a given number of records that is within all bounds and close to `wanted`.

        Raises
        ------
        ModelError
            No such table exists.
        """
        if not self.extent[0] <= total <= self.extent[1]:
            raise ModelError(NO_TABLE)
        near = [*wanted.tolist()]
        for parts in self._parts.values():
            near.append(sum(near[part] for part in parts.tolist()))
        counts = np.zeros(self._cells, np.int64)
        left = [(self._tops, total)]
        while left:
            parts, number = left.pop()
            low, high = (
                np.array([ends[part] for part in parts]) for ends in (self._low, self._high)
            )
            shares = _parted(number, np.array([near[part] for part in parts], float), low, high)
            for part, share in zip(parts.tolist(), shares.tolist(), strict=True):
                if part < self._cells:
                    counts[part] = share
                else:
                    left.append((self._parts[part], share))
        return counts


def _parted(number: int, wanted: FloatArray, low: IntArray, high: IntArray) -> IntArray:
    """Return whole numbers with a given sum, within bounds and roughly proportional to the wanted numbers."""
    high = np.minimum(high, number)
    if wanted.sum() > 0:
        scale = number / wanted.sum()
    else:
        scale = 0.0
    found = np.clip(np.rint(wanted * scale).astype(np.int64), low, high)
    missing = number - int(found.sum())
    if missing > 0:
        spare = high - found
    else:
        spare = found - low
    before = np.concatenate([[0], np.cumsum(spare.astype(float))[:-1]])
    moved = np.clip(abs(missing) - before, 0, spare).astype(np.int64)
    if missing > 0:
        return found + moved
    return found - moved


def half_widths(evidence: Evidence) -> FloatArray:
    """Return half the width of each number's bounds, shape (numbers,): 0 for exact numbers, -1 for noisy ones."""
    halves = [
        law.half_width if law.is_bounded else -float(not law.is_exact) for law in evidence.noise
    ]
    return evidence.spread(halves)


def noiseless_numbers(evidence: Evidence) -> np.ndarray:
    """Return the mask of the possible numbers without noise, exact or bounded, shape (numbers,)."""
    return evidence.possible & (half_widths(evidence) >= 0) & (evidence.noise_scale == 0)


def grouped(keys: IntArray, values: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """Return the start of each key's values, and the values sorted by key."""
    order = np.argsort(keys, kind="stable")
    starts = np.searchsorted(keys[order], np.arange(size + 1))
    return starts.astype(np.int64), np.asarray(values, np.int64)[order]


def bounded_sums(evidence: Evidence, measured: MeasuredCells, total: float | None) -> list[Bounded]:
    """Return the exact and bounded sums of cells, and the number of records if it is public.

    Raises
    ------
    CrossingError
        A number is not a sum of cells that each count once.
    """
    is_noiseless, halves = (
        values[measured.targets] for values in (noiseless_numbers(evidence), half_widths(evidence))
    )
    middle = evidence.noisy_counts[measured.targets]
    found = []
    for number in np.flatnonzero(is_noiseless):
        own = measured.sums == number
        if (measured.entries[own] != 1).any():
            raise CrossingError
        ends = np.ceil(middle[number] - halves[number]), np.floor(middle[number] + halves[number])
        found.append(Bounded(measured.sources[own], max(int(ends[0]), 0), int(ends[1])))
    if total is not None:
        found.append(Bounded(np.arange(measured.cells.size), round(total), round(total)))
    return found


def allowed_sums(evidence: Evidence, measured: MeasuredCells) -> list[Bounded]:
    """Return the sums that published numbers bound by the rules that protect them."""
    low, high = allowed_numbers(evidence)
    starts, cells, _ = measured.rows
    found = []
    for number in np.flatnonzero(evidence.is_tabled[measured.targets]).tolist():
        target = measured.targets[number]
        own = cells[slice(*starts[number : number + 2])]
        found.append(Bounded(own, int(low[target]), int(high[target])))
    return found


# Log density of a sum outside its bounds, instead of minus infinity, so that moves out and back add up to zero. It is
# far below any log density of noise, and leaves six digits for these.
_FORBIDDEN = -1e9


# the formulas of the noise's kernels, compiled into the samplers
log_step = njit(nogil=True, inline="always")(kernels.log_step)
log_kernel = njit(nogil=True, inline="always")(kernels.log_kernel)


@kept()
def log_within(residual, half, width, kernel):
    """Return the log of the noise kernel summed over the whole numbers within bounds; without noise, 0 or -1e9.

    The noisy answer is within `half` of the released number, and `residual` is the true sum minus that number. The
    noise k therefore satisfies residual - half <= k <= residual + half.
    """
    # smallest and largest noise within the bounds
    low = math.ceil(residual - half)
    high = math.floor(residual + half)
    near = min(max(0.0, low), high)  # the noise with the largest density
    if width == 0.0:
        return 0.0 if near == 0.0 else _FORBIDDEN
    if kernel != ABSOLUTE:
        # add terms outward from the largest, until they are negligible
        top = log_kernel(kernel, near / width)
        total = 0.0
        for way in (-1.0, 1.0):
            k = near if way > 0.0 else near - 1.0
            while low <= k <= high:
                term = math.exp(log_kernel(kernel, k / width) - top)
                total += term
                if term < 1e-18 * total:  # below the rounding of the sum
                    break
                k += way
        return math.log(total) + top
    # Laplace: geometric sums; if 0 is within the bounds, the whole sum minus two tails
    ratio = math.exp(-1.0 / width)
    if near == 0.0:
        tails = math.exp(-(high + 1.0) / width) + math.exp((low - 1.0) / width)
        return math.log((1.0 + ratio - tails) / (1.0 - ratio))
    terms = -math.expm1(-(high - low + 1.0) / width) / (1.0 - ratio)
    return math.log(terms) - abs(near) / width


@njit(nogil=True, **INNER)
def log_tabled(m, count, data):
    """Return the tabulated log probability of a number given its count; beyond the table it falls linearly."""
    start = data.entry_starts[m]
    last = data.entry_starts[m + 1] - start - 1
    place = count - data.entry_firsts[m]
    if place < 0:
        return data.entries[start] - place * data.entry_slopes[m, 0]
    if place > last:
        return data.entries[start + last] + (place - last) * data.entry_slopes[m, 1]
    return data.entries[start + place]


@njit(nogil=True, inline="always")
def log_step_of(m, count, by, data):
    """Return the change of a number's log probability when its count grows by `by` records.

    The number has noise with a kernel; or a table, or bounds, in which case its half-width is not negative.
    """
    half = data.halves[m]
    width = data.widths[m]
    kernel = data.kernels[m]
    gap = data.noisy[m] - count
    if half < 0.0:
        return log_step(kernel, gap, by, width)
    if kernel == TABLED:
        return log_tabled(m, count + by, data) - log_tabled(m, count, data)
    return log_within(by - gap, half, width, kernel) - log_within(-gap, half, width, kernel)


@njit(nogil=True, **INNER)
def log_density(counts, sums, data):
    """Return the log density of all noise except for its constant, and write the measured sums to `sums`."""
    value = 0.0
    for m in range(sums.size):
        sums[m] = 0
        for k in range(data.member_starts[m], data.member_starts[m + 1]):
            sums[m] += data.member_weights[k] * counts[data.members[k]]
        if data.kernels[m] == TABLED:
            value += log_tabled(m, sums[m], data)
        else:
            value += log_kernel(data.kernels[m], (data.noisy[m] - sums[m]) / data.widths[m])
    return value


@dataclass(kw_only=True, eq=False)
class TableSums:
    """Exact and bounded sums of the cells of one table.

    Parameters
    ----------
    scope
        Variables of the table, ascending.
    home
        First clique that contains these variables.
    possible
        Mask of the possible cells of the table.
    rows, answers
        Weights of each exact number on the cells, and the exact numbers.
    bounded
        Bounded sets of cells.
    """

    scope: tuple[int, ...]
    home: int
    possible: np.ndarray
    rows: list[FloatArray] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)
    bounded: list[Bounded] = field(default_factory=list)

    def determined_sum(self, row: FloatArray) -> float | None:
        """Return the weighted sum of the table if the exact numbers determine it; None otherwise."""
        if not self.rows:
            return None
        design = np.array(self.rows)[:, self.possible].T
        weights = np.linalg.lstsq(design, row[self.possible], rcond=1e-10)[0]
        is_determined = np.abs(design @ weights - row[self.possible]).max(initial=0.0) < _ROUNDING
        if is_determined:
            return float(weights @ self.answers)
        return None

    def family(self) -> list[Bounded]:
        """Return the atoms whose counts the exact numbers determine, and the bounded sets.

        Raises
        ------
        CrossingError
            The exact numbers determine only sums of atoms.
        """
        if not self.rows:
            return self.bounded
        columns, place = np.unique(
            np.array(self.rows)[:, self.possible], axis=1, return_inverse=True
        )
        is_determined = columns.any(axis=0)
        counts, _, rank, _ = np.linalg.lstsq(
            columns[:, is_determined], np.array(self.answers), rcond=1e-10
        )
        if rank < is_determined.sum():
            raise CrossingError
        whole = np.rint(counts)
        near = _ROUNDING * max(1.0, np.abs(whole).max(initial=0.0))
        missed = np.abs(columns[:, is_determined] @ whole - self.answers).max(initial=0.0)
        if np.abs(counts - whole).max(initial=0.0) > near or missed > near or (whole < 0).any():
            raise ModelError(NO_TABLE)
        cells = np.flatnonzero(self.possible)
        atoms = [
            Bounded(cells[np.ravel(place) == atom], int(count), int(count))
            for atom, count in zip(np.flatnonzero(is_determined), whole, strict=True)
        ]
        return atoms + self.bounded


def reduced(weights: FloatArray, scope: tuple[int, ...]) -> tuple[tuple[int, ...], FloatArray]:
    """Return the variables that weights depend on, ascending, and the weights on their cells."""
    first = [weights.take([0], axis=axis) for axis in range(weights.ndim)]
    kept = [axis for axis, one in enumerate(first) if not (weights == one).all()]
    table = weights[tuple(slice(None) if axis in kept else 0 for axis in range(weights.ndim))]
    order = np.argsort([scope[axis] for axis in kept])
    return tuple(sorted(scope[axis] for axis in kept)), np.transpose(table, order).ravel()


def part(family: list[Bounded], cells: IntArray, size: int) -> NestedSums:
    """Return the sums inside a slice, with its cells renumbered; sets that are not inside it are left out."""
    place = np.full(size, -1)
    place[cells] = np.arange(cells.size)
    inside = [
        Bounded(place[each.cells], each.lowest, each.highest)
        for each in family
        if (place[each.cells] >= 0).all()
    ]
    return NestedSums(cells.size, inside)


def indicator(cells: IntArray, size: int) -> FloatArray:
    """Return the vector with 1 in the given cells and 0 elsewhere."""
    row = np.zeros(size)
    row[cells] = 1.0
    return row
