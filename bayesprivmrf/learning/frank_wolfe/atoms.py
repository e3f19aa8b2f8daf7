r"""Choosing an atom of an :math:`\ell_{1,\infty}` ball by the exponential mechanism, for many regressions at once.

Columns of a design come in groups. An atom is a group and a sign for each of its columns. The convex hull of all
atoms is the ball :math:`\sum_g \max_{b \in g} |w_b| \le 1`: the :math:`\ell_1` ball where each group is one column.

The compiled loops of node-wise regressions: margins moved on, residuals looked up.

All numbers are whole, so a record's contribution does not depend on its place among the others, on vector
instructions or on the order of sums. (The one division, of whole numbers in double precision, is rounded alike
everywhere.) Indices are unsigned, because a signed one is tested for wrapping around. All compiled code is in this
one file, because numba keeps it between processes as long as this file is unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource

CLAMP = 290.0  # scales; below the -300 at which a choice would clamp again
_UNIT = 2.0**44  # steps of a score in one scale


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Atoms:
    """One atom a regression.

    Parameters
    ----------
    groups
        Shape (rows,).
    signs
        -1 or +1 for each column of the group, 0 beyond its width: int8 of shape (rows, widest).
    """

    groups: np.ndarray
    signs: np.ndarray


def choose_atoms(
    sums: IntArray, starts: IntArray, scales: FloatArray, source: NoiseSource, eligible: np.ndarray
) -> Atoms:
    r"""Return one atom a row with :math:`P(g, s) \propto \exp(\sum_{b \in g} s_b G_b / \beta)`.

    Parameters
    ----------
    sums
        G, whole numbers below 2^53 in size, shape (rows, columns).
    starts
        First column of each group, and the number of columns: shape (groups + 1,), each group at least one wide.
    scales
        :math:`\beta`, one a row, positive.
    source
        Source of the random choices.
    eligible
        Public mask of shape (rows, groups), at least one group a row.

    Notes
    -----
    An atom's score, less that of the best atom, is held up at -290 scales. As in `NoiseSource.choose`, this keeps the
    range of the change between neighbours, being a maximum with a constant.

    The group is drawn first, by its mass :math:`v_g = \log \sum_s e^{\text{score}_{g,s}}`, then the signs within it,
    by their held-up scores: exactly the law over all atoms, with one Gumbel number a group instead of :math:`2^k`.
    Where no atom of a group is held up, :math:`v_g = \sum_b |G_b|/\beta + \log(1 + e^{-2|G_b|/\beta})`; where all
    are, it is :math:`k \log 2 - 290`; in between the atoms are summed. Scores enter both draws as whole multiples of
    :math:`2^{-44}` scales. With the division, the sum and this rounding each mass is off by less than
    :math:`2^{-42.5}`, so that it errs by at most twice what `NoiseSource.choose` accounts for; the second draw errs
    once more. Hence three `ROUNDING` a choice.
    """
    widths = np.diff(starts)
    absolute = np.abs(sums)
    best_of = absolute if widths.max() == 1 else np.add.reduceat(absolute, starts[:-1], axis=1)
    best_of = np.where(eligible, best_of, 0)
    best = best_of.max(axis=1)
    masses = log_masses(sums, absolute, best_of, best, starts, scales[:, None])
    groups = source.choose(_whole(masses), _UNIT, eligible)
    return Atoms(groups=groups, signs=_signs(sums, starts, groups, best, scales, source))


def log_masses(
    sums: IntArray,
    absolute: IntArray,
    best_of: IntArray,
    best: IntArray,
    starts: IntArray,
    scales: FloatArray,
) -> FloatArray:
    """Return v of each group, relative to the best atom of its row."""
    high = (best_of - best[:, None]) / scales
    low = (-best_of - best[:, None]) / scales
    widths = np.diff(starts)
    if widths.max() == 1:
        high, low = np.maximum(high, -CLAMP), np.maximum(low, -CLAMP)
        return high + np.log1p(np.exp(low - high))
    spread = np.log1p(np.exp(absolute * (-2 / scales)))
    masses = high + np.add.reduceat(spread, starts[:-1], axis=1)
    masses = np.where(high <= -CLAMP, widths * np.log(2.0) - CLAMP, masses)
    rows, groups = np.nonzero((low < -CLAMP) & (high > -CLAMP))
    for part, scores in _atom_scores(sums, starts, rows, groups, best):
        held = np.maximum(scores / scales[rows[part]], -CLAMP)
        masses[rows[part], groups[part]] = np.log(np.exp(held).sum(axis=1))
    return masses


def _signs(
    sums: IntArray,
    starts: IntArray,
    groups: np.ndarray,
    best: IntArray,
    scales: FloatArray,
    source: NoiseSource,
) -> np.ndarray:
    """Return the signs within the chosen group of each row, zeros beyond its width."""
    rows = np.arange(groups.size)
    signs = np.zeros((groups.size, int(np.diff(starts).max())), dtype=np.int8)
    for part, scores in _atom_scores(sums, starts, rows, groups, best):
        held = np.maximum(scores / scales[part, None], -CLAMP)
        chosen = source.choose(_whole(held), _UNIT)
        table = sign_table(scores.shape[1].bit_length() - 1)
        signs[part, : table.shape[1]] = table[chosen]
    return signs


def _atom_scores(
    sums: IntArray, starts: IntArray, rows: np.ndarray, groups: np.ndarray, best: IntArray
) -> Iterator[tuple[np.ndarray, IntArray]]:
    """Yield positions in `rows` of groups of one width, and their atoms' scores less the best of the row."""
    widths = np.diff(starts)[groups]
    for width in np.unique(widths):
        table = sign_table(int(width)).astype(np.int64)
        positions = np.flatnonzero(widths == width)
        # score at most 2^22 signed atoms at a time
        count = max((1 << 22) >> int(width), 1)
        for start in range(0, positions.size, count):
            part = positions[start : start + count]
            columns = starts[groups[part], None] + np.arange(width)
            yield part, sums[rows[part, None], columns] @ table.T - best[rows[part], None]


@cache
def sign_table(width: int) -> np.ndarray:
    """Return all vectors of signs, int8 of shape (2^width, width)."""
    bits = (np.arange(2**width)[:, None] >> np.arange(width)) & 1
    return (2 * bits - 1).astype(np.int8)


def _whole(scores: FloatArray) -> IntArray:
    return np.rint(scores * _UNIT).astype(np.int64)


@njit(cache=True, nogil=True, error_model="numpy")
def logistic_residuals(
    margins: Any,
    codes: Any,
    labels: Any,
    counts: Any,
    nodes: Any,
    positive: Any,
    negative: Any,
    groups: Any,
    steps: Any,
    table: Any,
    shift: int,
    out: Any,
) -> None:
    """Add each record's step to its margins, and write its signed residuals y P(-y margin) times its count.

    ``steps[r, c]`` is what regression r adds where the record's code in group ``groups[r]`` is c. The table holds P,
    its middle at margin 0. A record in neither state of a regression has residual 0.
    """
    middle = table.size // 2
    for m in range(margins.shape[0]):
        count = counts[m]
        for r in range(margins.shape[1]):
            margin = np.int32(margins[m, r]) + steps[r, codes[m, np.uint64(groups[r])]]
            margins[m, r] = margin
            label = labels[m, np.uint64(nodes[r])]
            y = np.int32(label == positive[r]) - np.int32(label == negative[r])
            out[m, r] = y * table[np.uint64(middle + ((-y * margin) >> shift))] * count


@njit(cache=True, nogil=True, error_model="numpy")
def softmax_residuals(
    margins: Any,
    codes: Any,
    labels: Any,
    counts: Any,
    nodes: Any,
    starts: Any,
    groups: Any,
    steps: Any,
    table: Any,
    shift: int,
    unit: float,
    out: Any,
) -> None:
    """Add each record's step to its margins, and write its signed residuals e_y - pi, whole parts of `unit`.

    Node v has the regressions from ``starts[v]`` to ``starts[v + 1]``, one a state of column ``nodes[v]`` of the
    labels. The table holds exp(margin), whole numbers, its middle at margin 0. The residual of the record's own state
    is minus the sum of the others, each rounded to the nearest.
    """
    middle = table.size // 2
    for m in range(margins.shape[0]):
        for v in range(nodes.size):
            total = 0.0
            for r in range(starts[v], starts[v + 1]):
                margin = np.int32(margins[m, r]) + steps[r, codes[m, np.uint64(groups[r])]]
                margins[m, r] = margin
                total += table[np.uint64(middle + (margin >> shift))]
            own = starts[v] + labels[m, np.uint64(nodes[v])]
            rest = 0.0
            for r in range(starts[v], starts[v + 1]):
                if r != own:
                    mass = table[np.uint64(middle + (np.int32(margins[m, r]) >> shift))]
                    part = math.floor(unit * mass / total + 0.5)
                    rest += part
                    out[m, r] = -part * counts[m]
            out[m, own] = rest * counts[m]
