r"""Private choice of atoms for many regressions at once, and the compiled loops over their records.

**Atoms.** The columns of a design form groups. An atom is a group with a sign for each of its columns. The convex
hull of all atoms is the :math:`\ell_{1,\infty}` ball :math:`\sum_g \max_{b \in g} |w_b| \le 1`, which is the
:math:`\ell_1` ball if each group is one column. The exponential mechanism chooses an atom.

**Compiled loops.** They update margins and look up residuals. All numbers are whole, so the contribution of a record
does not depend on its position, on vector instructions or on the order of sums. (The only division, of whole numbers
in double precision, is rounded alike everywhere.) Indices are unsigned, because signed ones are tested for wrapping
around. All compiled code is in this file, because numba caches it as long as the file is unchanged.
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

CLAMP = 290.0  # scales; less than the 300 at which `NoiseSource.choose` clamps
_UNIT = 2.0**44  # steps of a score in one scale


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Atoms:
    """Atoms, one for each regression.

    Parameters
    ----------
    groups
        Group of each atom, shape (rows,).
    signs
        Sign -1 or +1 for each column of the group, 0 beyond its width: int8 of shape (rows, widest).
    """

    groups: np.ndarray
    signs: np.ndarray


def choose_atoms(
    sums: IntArray, starts: IntArray, scales: FloatArray, source: NoiseSource, eligible: np.ndarray
) -> Atoms:
    r"""Draw one atom for each row with :math:`P(g, s) \propto \exp(\sum_{b \in g} s_b G_b / \beta)`.

    Parameters
    ----------
    sums
        Scores G, whole numbers below 2^53 in size, shape (rows, columns).
    starts
        First column of each group, and the number of columns: shape (groups + 1,). Each group has a column.
    scales
        Scale :math:`\beta` of each row, positive.
    source
        Source of the random choices.
    eligible
        Public mask of shape (rows, groups), with at least one group in each row.

    Notes
    -----
    The score of an atom, minus that of the best atom, is at least -290 scales: lower scores are raised. As in
    `NoiseSource.choose`, this maximum with a constant does not increase the difference between neighbors.

    The group is drawn first, by its log mass :math:`v_g = \log \sum_s e^{\text{score}_{g,s}}`, then the signs within
    it, by their scores. This is exactly the distribution over all atoms, with one Gumbel number for each group
    instead of :math:`2^k`. If no score of a group is raised,
    :math:`v_g = \sum_b |G_b|/\beta + \log(1 + e^{-2|G_b|/\beta})`; if all are, :math:`v_g = k \log 2 - 290`;
    otherwise the atoms are summed. Scores enter both draws as whole multiples of :math:`2^{-44}` scales. Division,
    sum and rounding change each mass by less than :math:`2^{-42.5}`, at most twice the error that
    `NoiseSource.choose` accounts for. The second draw adds that error once. A choice therefore costs three
    `ROUNDING`.
    """
    widths = np.diff(starts)
    absolute = np.abs(sums)
    if widths.max() == 1:
        best_of = absolute
    else:
        best_of = np.add.reduceat(absolute, starts[:-1], axis=1)
    best_of = np.where(eligible, best_of, 0)
    best = best_of.max(axis=1)
    masses = log_masses(sums, absolute, best_of, best, starts, scales[:, None])
    groups = source.choose(_whole(masses), _UNIT, eligible)
    # the signs within the chosen group of each row, zeros beyond its width
    signs = np.zeros((groups.size, int(widths.max())), dtype=np.int8)
    for part, scores in _atom_scores(sums, starts, np.arange(groups.size), groups, best):
        raised = np.maximum(scores / scales[part, None], -CLAMP)
        chosen = source.choose(_whole(raised), _UNIT)
        table = sign_table(scores.shape[1].bit_length() - 1)
        signs[part, : table.shape[1]] = table[chosen]
    return Atoms(groups=groups, signs=signs)


def log_masses(
    sums: IntArray,
    absolute: IntArray,
    best_of: IntArray,
    best: IntArray,
    starts: IntArray,
    scales: FloatArray,
) -> FloatArray:
    """Return the log mass v of each group, relative to the best atom of its row."""
    high = (best_of - best[:, None]) / scales
    low = (-best_of - best[:, None]) / scales
    widths = np.diff(starts)
    if widths.max() == 1:
        high = np.maximum(high, -CLAMP)
        low = np.maximum(low, -CLAMP)
        return high + np.log1p(np.exp(low - high))
    spread = np.log1p(np.exp(absolute * (-2 / scales)))
    masses = high + np.add.reduceat(spread, starts[:-1], axis=1)
    masses = np.where(high <= -CLAMP, widths * np.log(2.0) - CLAMP, masses)
    rows, groups = np.nonzero((low < -CLAMP) & (high > -CLAMP))
    for part, scores in _atom_scores(sums, starts, rows, groups, best):
        raised = np.maximum(scores / scales[rows[part]], -CLAMP)
        masses[rows[part], groups[part]] = np.log(np.exp(raised).sum(axis=1))
    return masses


def _atom_scores(
    sums: IntArray, starts: IntArray, rows: np.ndarray, groups: np.ndarray, best: IntArray
) -> Iterator[tuple[np.ndarray, IntArray]]:
    """Yield positions in `rows` of groups of one width, and their atoms' scores minus the best of the row."""
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
    """Add the last step to all margins, and write the signed residuals y P(-y margin) times the counts.

    Regression r adds ``steps[r, c]`` to the margin of a record with code c in group ``groups[r]``. The table holds P,
    with margin 0 in the middle. A record in neither state of a regression has residual 0.
    """
    middle = table.size // 2
    for m in range(margins.shape[0]):
        count = counts[m]
        for r in range(margins.shape[1]):
            # the last step's atom moves the margin
            margin = np.int32(margins[m, r]) + steps[r, codes[m, np.uint64(groups[r])]]
            margins[m, r] = margin
            # y is +1, -1, or 0 for a record in neither state
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
    """Add the last step to all margins, and write the signed residuals e_y - pi in whole parts of `unit`.

    Node v has the regressions from ``starts[v]`` to ``starts[v + 1]``, one for each state of column ``nodes[v]`` of
    the labels. The table holds exp(margin) in whole numbers, with margin 0 in the middle. Residuals of other states
    are rounded to the nearest; that of the record's own state is minus their sum.
    """
    middle = table.size // 2
    for m in range(margins.shape[0]):
        for v in range(nodes.size):
            # sum of exp(margin) over the states
            total = 0.0
            for r in range(starts[v], starts[v + 1]):
                margin = np.int32(margins[m, r]) + steps[r, codes[m, np.uint64(groups[r])]]
                margins[m, r] = margin
                total += table[np.uint64(middle + (margin >> shift))]
            # residuals -pi of the other states; the own state balances them
            own = starts[v] + labels[m, np.uint64(nodes[v])]
            rest = 0.0
            for r in range(starts[v], starts[v + 1]):
                if r != own:
                    mass = table[np.uint64(middle + (np.int32(margins[m, r]) >> shift))]
                    part = math.floor(unit * mass / total + 0.5)
                    rest += part
                    out[m, r] = -part * counts[m]
            out[m, own] = rest * counts[m]
