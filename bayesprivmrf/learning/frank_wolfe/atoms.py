"""Atoms of many regressions at once, and the compiled loops over the rows of these.

**Compiled loops.** They update margins and look up residuals. All numbers are whole, so the contribution of a record
does not depend on its position, on vector instructions or on the order of sums. (The only division, of whole numbers
in double precision, is rounded alike everywhere.) Indices are unsigned, because signed ones are tested for wrapping
around. All compiled code is in this file, because numba caches it as long as the file is unchanged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit


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
