r"""Private choice of atoms for many regressions at once.

**Atoms.** The columns of a design form groups. An atom is a group with a sign for each of its columns. The convex
hull of all atoms is the :math:`\ell_{1,\infty}` ball :math:`\sum_g \max_{b \in g} |w_b| \le 1`, which is the
:math:`\ell_1` ball if each group is one column. The exponential mechanism chooses an atom.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from bayesprivmrf.learning.frank_wolfe.atoms import Atoms
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource

# Scales below the best atom at which a score is raised; less than the 300 at which `NoiseSource.choose` clamps
CLAMP = 290.0

# Steps of a score in one scale
_UNIT = 2.0**44

# Signed atoms that are scored at once: 32 MiB of scores
_ATOMS_AT_ONCE = 1 << 22


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
        count = max(_ATOMS_AT_ONCE >> int(width), 1)
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
