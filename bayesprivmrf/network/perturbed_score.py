"""Arithmetic of objective perturbation on one network, for given noise.

The mechanism calls this module with noise from the secure source. Simulations of the estimate's distribution call it
with simulated outcomes and noise. The arithmetic alone has no privacy guarantee.

Terms are rounded to whole steps of a lattice, and their sums are exact integers, as the privacy proof assumes.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from bayesprivmrf.checks import finite_pair, require, whole_number
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.privacy.external_field import ExternalField
from bayesprivmrf.privacy.objective_perturbation import CouplingNorms
from bayesprivmrf.privacy.score_lattice import (
    PerturbationConstants,
    lattice_coupling,
    lattice_offsets,
)

# betas of a grid: 80 leave gaps that the interpolation of quantiles does not show
GRID_POINTS = 80
FEWEST_POINTS = 4
# part of the critical beta's neighborhood that has half of the points, in units of that beta
_NEAR_CRITICAL = (0.6, 1.6)
# position up to which the midpoints of the grid are exact in double precision
_FARTHEST = 2**52
# configurations whose distinct local fields are counted, and the number of nodes for each distinct field from which
# nodes are counted by their field
_PROBED = 4
_GROUPED_FROM = 4
# entries of a table of terms in memory; one by one, they stay within a processor's cache
_GROUPED_ENTRIES = 2**19
_ENTRIES = 2**15
# no score without the pull is larger than this many times the sum of all couplings and offsets
_LARGEST_SHARE = 4
# sums below this cannot overflow 64 bits; a term is below 2^48, so this many terms have a sum below 2^60
_SAFE_SUM = 2**61
_SAFE_TERMS = 2**12
# every third step of the search bisects, in case Newton's method converges slowly
_BISECTED = 3


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PerturbedEstimator:
    """Estimator of objective perturbation on one network, for given outcomes and noise.

    Make one with `NetworkEstimate.estimator` or `PerturbedEstimator.of`.

    Parameters
    ----------
    coupling
        J in whole steps, a SciPy matrix of int64.
    constants
        Step of the scores, grid of the estimates, and `pull`: Delta times half a spacing of the grid, in steps.
    low, high
        Smallest and largest grid position, as multiples of the spacing. ``high`` is None without an upper bound.
    offsets
        Numbers that the external field subtracts from the local fields, in whole steps, shape (n,).
    strength
        Strength of the external field, in nats.
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
            The bounds contain fewer than two points of the grid, or points too large to be exact in double precision.
        """
        low = 0
        high = None
        if bounds is not None:
            low = math.ceil(bounds[0] / constants.grid)
            high = math.floor(bounds[1] / constants.grid)
            spacing = f"the public grid, of spacing {constants.grid:g}"
            require(low < high, "bounds", f"be wider than {spacing}", bounds)
            farthest = _FARTHEST * constants.grid
            must = f"lie within {farthest:.3g} of 0: {spacing}, is not exact beyond"
            remedy = "choose a realistic range, or None for [0, inf)"
            require(max(-low, high) <= _FARTHEST, "bounds", must, bounds, remedy)
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
        """Return the perturbed score of one configuration, an array of -1 and +1 of shape (n,)."""
        signs = np.asarray(spins, dtype=np.int64)
        fields = np.asarray(self.coupling @ signs, dtype=np.int64) - self.offsets
        return PerturbedScore(estimator=self, fields=fields, agreement=_exact_sum(fields * signs))

    def estimates(self, spins: np.ndarray, noise: ArrayLike, near: float = 0.0) -> FloatArray:
        """Return the estimates of many configurations at once.

        They are exactly those of ``score(...).estimates(...)``, which is slower.

        Parameters
        ----------
        spins
            Outcomes of -1 and +1, shape (C, n).
        noise
            Noise in whole steps, shape (C, R): R draws for each configuration.
        near
            Start of the search. A beta near most estimates makes the search shorter, and does not change the result.
        """
        spins = np.asarray(spins, dtype=np.int64)
        noise = np.asarray(noise, dtype=np.int64)
        # if there are few distinct local fields, nodes are counted by their field; otherwise they are summed one by
        # one
        probe = np.unique((self.coupling @ spins[:_PROBED].T).T - self.offsets)
        is_grouped = _GROUPED_FROM * probe.size <= spins.shape[1]  # as with couplings of one size
        entries = _GROUPED_ENTRIES if is_grouped else _ENTRIES
        width = max(entries // (spins.shape[1] * noise.shape[1]), 1)
        blocks = [slice(first, first + width) for first in range(0, len(spins), width)]
        found = [
            self._positions(spins[block], noise[block], is_grouped, near / self.constants.grid)
            for block in blocks
        ]
        return np.asarray(np.concatenate(found) * self.constants.grid, dtype=np.float64)

    def _positions(
        self, spins: IntArray, noise: IntArray, is_grouped: bool, start: float
    ) -> IntArray:
        """Return the grid position at which each configuration's score equals each noise.

        The search is Newton's method within a bracket. The answer is the last position, within the bounds, at which
        the score is at least the noise. The score falls from one position to the next, so the answer does not
        depend on the positions that the search visits.
        """
        # no score without the pull is as large as this
        largest = int(abs(self.coupling).sum() + np.abs(self.offsets).sum())
        most = _LARGEST_SHARE * largest + int(np.abs(noise).max())
        if most >= _SAFE_SUM:  # the sums might overflow 64 bits: use Python's integers
            rows = zip(spins, noise, strict=True)
            return np.array([self.score(each).positions(steps) for each, steps in rows])
        pull = self.constants.pull
        last = most // self.constants.pull + 1
        low = np.full(noise.size, max(self.low, -last))
        high = np.full(noise.size, last if self.high is None else min(self.high, last))
        fields = (self.coupling @ spins.T).T - self.offsets
        agreement = (fields * spins).sum(axis=1)
        owner = np.arange(noise.size) // noise.shape[1]
        if is_grouped:
            sizes, counts = _grouped(fields)
        else:
            sizes = fields
            counts = None
        steps = noise.ravel()
        guess = np.full(noise.size, start)
        round_number = 0
        while (left := np.flatnonzero(low < high)).size:
            if round_number % _BISECTED == _BISECTED - 1:
                middle = (low[left] + high[left] + 1) // 2
            else:
                middle = np.floor(guess[left])
            position = np.clip(middle, low[left] + 1, high[left]).astype(np.int64)
            # the exact score at the midpoint below the position, in whole steps
            own = owner[left]
            halves = 2 * position - 1
            if counts is not None:
                size = sizes
            else:
                size = sizes[own]
            at = (halves * (self.constants.grid / 2))[:, None]
            tanh = np.tanh(at * (size * self.constants.step) + self.strength)
            terms = np.rint(size * tanh).astype(np.int64)
            falls = size * (size * (self.constants.step * self.constants.grid)) * (1 - tanh * tanh)
            if counts is not None:
                terms = terms * counts[own]
                falls = falls * counts[own]
            gap = agreement[own] - terms.sum(axis=1) - halves * pull - steps[left]
            low[left] = np.where(gap >= 0, position, low[left])
            high[left] = np.where(gap >= 0, high[left], position - 1)
            # Newton's step, with the slope of the score before rounding
            guess[left] = position + gap / (falls.sum(axis=1) + 2 * pull)
            round_number += 1
        return low.reshape(noise.shape)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PerturbedScore:
    r"""Perturbed score of one configuration, in whole steps, at the midpoints of the grid.

    Parameters
    ----------
    estimator
        Estimator of the network.
    fields
        Local fields :math:`m_i` less the offsets, in whole steps, shape (n,).
    agreement
        Sum :math:`\sum_i m_i s_i` of these fields times the outcomes, in whole steps.
    """

    estimator: PerturbedEstimator
    fields: IntArray
    agreement: int
    _known: dict[int, int] = field(default_factory=dict, repr=False)

    def at(self, position: int) -> int:
        r"""Return S(a) - Delta a in whole steps at a = (position - 1/2) h, with h the spacing of the grid.

        This score falls from one position to the next. Rounding changes each of its terms by at most one step, and
        `pull` is larger than the sum of these changes.
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
        """Return the grid position nearest to the root for each noise, clipped to the bounds.

        Without bounds, the position is 0 if there is no root in [0, inf).

        Parameters
        ----------
        noise
            Noise in whole steps, of any shape.
        """
        noise = np.asarray(noise, dtype=np.int64)
        different, index = np.unique(noise, return_inverse=True)
        values = different.tolist()
        found = np.empty(different.size, dtype=np.int64)
        if values:
            parts = [(self.estimator.low, self._last(values[0]), 0, len(values))]
        else:
            parts = []
        # bisect for all noises at once: those of a part have positions from low to high, in reverse order
        while parts:
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
        """Return a position at or beyond that of the smallest noise: the upper bound if there is one."""
        low = self.estimator.low
        high = self.estimator.high
        if high is not None:
            return high
        reach = 1
        while self.at(low + reach + 1) >= noise:
            reach *= 2
        return low + reach

    def estimates(self, noise: ArrayLike) -> FloatArray:
        """Return the inverse temperature on the grid at which the score equals each noise."""
        return np.asarray(self.positions(noise) * self.estimator.constants.grid, dtype=np.float64)


def _grouped(fields: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct fields, shape (K,), and the number of nodes with each, by configuration, shape (C, K)."""
    sizes = np.unique(fields)
    places = np.searchsorted(sizes, fields) + sizes.size * np.arange(len(fields))[:, None]
    return sizes, np.bincount(places.ravel(), minlength=sizes.size * len(fields)).reshape(
        len(fields), -1
    )


def _exact_sum(terms: IntArray) -> int:
    """Return the sum of whole numbers without overflow."""
    # Python's integers add the sums of parts
    return sum(np.add.reduceat(terms, np.arange(0, terms.size, _SAFE_TERMS)).tolist())


def public_grid(
    coupling: sparse.csr_array, span: tuple[float, float] | None, points: int = GRID_POINTS
) -> FloatArray:
    r"""Return a grid of betas over a span, made from the public network alone.

    Half of the betas are evenly spaced. The other half are near :math:`\pm 1/\lambda`, if these lie in the span,
    where :math:`\lambda` is the spectral norm of :math:`|J|`. In mean-field theory outcomes become ordered at that
    beta, and the distribution of an estimate changes fastest there.

    Parameters
    ----------
    coupling
        Coupling matrix J.
    span
        First and last beta.
    points
        Number of betas, at least 4.

    Raises
    ------
    ArgumentError
        The span is not two finite increasing numbers, or there are fewer than four points.
    """
    remedy = "pass `span=(0, 5)`, for instance"
    require(span is not None, "span", "be given for an estimate without bounds", span, remedy)
    low, high = finite_pair("span", span)
    points = whole_number("points", points, least=FEWEST_POINTS)
    # half of the points are near the critical beta, of either sign
    critical = 1 / CouplingNorms.of(coupling).spectral
    first, last = _NEAR_CRITICAL
    near = [(first * critical, last * critical), (-last * critical, -first * critical)]
    pieces = [(max(a, low), min(b, high)) for a, b in near]
    pieces = [(a, b) for a, b in pieces if a < b]
    if not pieces:
        return np.linspace(low, high, points)
    dense = points // 2 // len(pieces)
    parts = [np.linspace(low, high, points - dense * len(pieces))]
    parts += [np.linspace(a, b, dense + 2)[1:-1] for a, b in pieces]
    return np.unique(np.concatenate(parts))
