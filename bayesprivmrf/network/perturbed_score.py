"""Objective perturbation of one network's outcomes once its noise is given: pure arithmetic.

The mechanism calls it with secure noise, an interval by simulation with simulated outcomes and noise. It protects
nobody by itself.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.privacy.external_field import ExternalField
from bayesprivmrf.privacy.score_lattice import (
    PerturbationConstants,
    lattice_coupling,
    lattice_offsets,
)

_CHUNK = 2**12  # terms below 2^48 steps: their sums stay below 2^60, in 64 bits
_BLOCK = {True: 2**19, False: 2**15}  # entries of a table of terms: grouped, and node by node within a cache
# Sums below this fit into 64 bits with room for the pull of one more step
_LARGEST = 2**61
_FARTHEST = 2**52  # up to here the midpoints of the grid are exact in double precision


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PerturbedEstimator:
    """The estimator on one network: the coupling in whole steps, and the grid positions inside the bounds.

    Parameters
    ----------
    coupling
        J in whole steps, a SciPy matrix of int64.
    constants
        The steps, the grid and the pull.
    low, high
        First and last position on the grid, a multiple of the spacing; ``high`` is None where there is no upper
        bound.
    offsets
        Numbers that the external field subtracts from the local fields, in whole steps, shape (n,).
    strength
        Strength of the external field, nats.
    """

    coupling: Any
    constants: PerturbationConstants
    low: int
    high: int | None
    offsets: IntArray
    strength: float

    @classmethod
    def of(
        cls,
        coupling: Any,
        constants: PerturbationConstants,
        bounds: tuple[float, float] | None,
        field: ExternalField | None = None,
    ) -> Self:
        """Return the estimator for a coupling matrix and an external field; ``bounds=None`` means [0, inf).

        Raises
        ------
        ArgumentError
            Fewer than two points of the grid lie within the bounds, or so many that doubles cannot tell them apart.
        """
        low, high = 0, None
        if bounds is not None:
            low, high = math.ceil(bounds[0] / constants.grid), math.floor(bounds[1] / constants.grid)
            require(
                low < high, "bounds", f"be wider than the public grid, of spacing {constants.grid:g}", bounds
            )
            if max(-low, high) > _FARTHEST:
                raise ArgumentError(
                    f"`bounds` must lie within {_FARTHEST * constants.grid:.3g} of 0, got {bounds!r}; the grid of "
                    f"spacing {constants.grid:g} is not exact beyond. Choose what beta can be, or None for [0, inf)."
                )
        lattice = lattice_coupling(coupling, constants.step)
        return cls(
            coupling=lattice,
            constants=constants,
            low=low,
            high=high,
            offsets=lattice_offsets(lattice, field),
            strength=0.0 if field is None else field.strength,
        )

    def score(self, spins: np.ndarray) -> PerturbedScore:
        """Return the score of outcomes, an array of -1 and +1 of shape (n,)."""
        signs = np.asarray(spins, dtype=np.int64)
        fields = np.asarray(self.coupling @ signs, dtype=np.int64) - self.offsets
        return PerturbedScore(estimator=self, fields=fields, agreement=_exact_sum(fields * signs))

    def estimates(self, spins: np.ndarray, noise: ArrayLike, near: float = 0.0) -> FloatArray:
        """Return the estimates of many configurations at once, exactly those of `score(...).estimates(...)`.

        Parameters
        ----------
        spins
            Outcomes of -1 and +1, shape (C, n).
        noise
            Steps, whole numbers, shape (C, R): R noises for each configuration.
        near
            Start of the search; a beta near most estimates makes it shorter, and changes no result.
        """
        spins, noise = np.asarray(spins, dtype=np.int64), np.asarray(noise, dtype=np.int64)
        # few distinct fields are tabulated by size, many are summed node by node
        probe = np.unique((self.coupling @ spins[:4].T).T - self.offsets)
        is_grouped = 4 * probe.size <= spins.shape[1]  # as where all couplings have one size
        width = max(_BLOCK[is_grouped] // (spins.shape[1] * noise.shape[1]), 1)
        blocks = [slice(first, first + width) for first in range(0, len(spins), width)]
        found = [
            self._positions(spins[block], noise[block], is_grouped, near / self.constants.grid)
            for block in blocks
        ]
        return np.asarray(np.concatenate(found) * self.constants.grid, dtype=np.float64)

    def _positions(self, spins: IntArray, noise: IntArray, is_grouped: bool, start: float) -> IntArray:
        """Return the grid position where each configuration's score meets each noise, by a bracketed Newton search.

        The score falls from one position to the next, so the answer does not depend on the positions that are tried:
        it is the last one, within the bounds, at which the score is at least the noise.
        """
        most = 4 * int(abs(self.coupling).sum() + np.abs(self.offsets).sum()) + int(
            np.abs(noise).max()
        )  # no score without pull is as large
        if most >= _LARGEST:  # 64 bits might not hold the sums
            rows = zip(spins, noise, strict=True)
            return np.array([self.score(each).positions(steps) for each, steps in rows])
        pull, last = self.constants.pull, most // self.constants.pull + 1
        low = np.full(noise.size, max(self.low, -last))
        high = np.full(noise.size, last if self.high is None else min(self.high, last))
        fields = (self.coupling @ spins.T).T - self.offsets
        agreement, owner = (fields * spins).sum(axis=1), np.arange(noise.size) // noise.shape[1]
        sizes, counts = _grouped(fields) if is_grouped else (fields, None)
        steps, guess, round_number = noise.ravel(), np.full(noise.size, start), 0
        while (left := np.flatnonzero(low < high)).size:
            # every third time the middle, in case Newton's method does not close in
            middle = (low[left] + high[left] + 1) // 2 if round_number % 3 == 2 else np.floor(guess[left])
            position = np.clip(middle, low[left] + 1, high[left]).astype(np.int64)
            # the exact score at the midpoint below the position, in whole steps
            own, halves = owner[left], 2 * position - 1
            size = sizes if counts is not None else sizes[own]
            at = (halves * (self.constants.grid / 2))[:, None]
            tanh = np.tanh(at * (size * self.constants.step) + self.strength)
            terms = np.rint(size * tanh).astype(np.int64)
            falls = size * (size * (self.constants.step * self.constants.grid)) * (1 - tanh * tanh)
            if counts is not None:
                terms, falls = terms * counts[own], falls * counts[own]
            gap = agreement[own] - terms.sum(axis=1) - halves * pull - steps[left]
            low[left], high[left] = (
                np.where(gap >= 0, position, low[left]),
                np.where(gap >= 0, high[left], position - 1),
            )
            # Newton's step with the slope of the unrounded score
            guess[left] = position + gap / (falls.sum(axis=1) + 2 * pull)
            round_number += 1
        return low.reshape(noise.shape)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PerturbedScore:
    r"""The perturbed score of one configuration, in whole steps, at the midpoints of the grid.

    Parameters
    ----------
    estimator
        The network's estimator.
    fields
        :math:`m_i` in steps, less the offsets, exact, shape (n,).
    agreement
        :math:`\sum_i m_i s_i` in steps, with those fields, exact.
    """

    estimator: PerturbedEstimator
    fields: IntArray
    agreement: int
    _known: dict[int, int] = field(default_factory=dict, repr=False)

    def at(self, position: int) -> int:
        r"""Return S(a) - Delta a in steps at a = (position - 1/2) h.

        It falls from one position to the next: its terms lose at most one step each by rounding, and `pull` is
        larger than that.
        """
        if position not in self._known:
            constants = self.estimator.constants
            halves = 2 * position - 1
            at = halves * (constants.grid / 2)
            x = at * (self.fields * constants.step) + self.estimator.strength
            terms = np.rint(self.fields * np.tanh(x)).astype(np.int64)
            self._known[position] = self.agreement - _exact_sum(terms) - halves * constants.pull
        return self._known[position]

    def positions(self, noise: ArrayLike) -> IntArray:
        """Return where on the grid the score meets each noise: the root to the nearest, held to the bounds.

        No root in [0, inf) means position 0 where there are no bounds.

        Parameters
        ----------
        noise
            Steps, whole numbers, any shape.
        """
        noise = np.asarray(noise, dtype=np.int64)
        different, index = np.unique(noise, return_inverse=True)
        values, found = different.tolist(), np.empty(different.size, dtype=np.int64)
        parts = [(self.estimator.low, self._last(values[0]), 0, len(values))] if values else []
        while parts:  # the noises of a part have positions from low to high, the larger noise the smaller one
            low, high, start, stop = parts.pop()
            if low >= high:
                found[start:stop] = low
                continue
            middle = (low + high) // 2
            cut = bisect_right(values, self.at(middle + 1), start, stop)
            if start < cut:
                parts.append((middle + 1, high, start, cut))
            if cut < stop:
                parts.append((low, middle, cut, stop))
        return found[index].reshape(noise.shape)

    def _last(self, noise: int) -> int:
        """Return a position beyond that of the least noise: the upper bound, where there is one."""
        low, high = self.estimator.low, self.estimator.high
        if high is not None:
            return high
        reach = 1
        while self.at(low + reach + 1) >= noise:
            reach *= 2
        return low + reach

    def estimates(self, noise: ArrayLike) -> FloatArray:
        """Return the inverse temperatures at which the score meets each noise, on the grid."""
        return np.asarray(self.positions(noise) * self.estimator.constants.grid, dtype=np.float64)


def _grouped(fields: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct fields, shape (K,), and how many nodes of each configuration have each, shape (C, K)."""
    sizes = np.unique(fields)
    places = np.searchsorted(sizes, fields) + sizes.size * np.arange(len(fields))[:, None]
    return sizes, np.bincount(places.ravel(), minlength=sizes.size * len(fields)).reshape(len(fields), -1)


def _exact_sum(terms: IntArray) -> int:
    """Sum of whole numbers, in Python's where 64 bits might not hold it."""
    if terms.size <= _CHUNK:
        return int(terms.sum())
    return sum(np.add.reduceat(terms, np.arange(0, terms.size, _CHUNK)).tolist())
