"""The compiled loops of node-wise regressions: margins moved on, residuals looked up.

All numbers are whole, so a record's contribution does not depend on its place among the others, on vector
instructions or on the order of sums. (The one division, of whole numbers in double precision, is rounded alike
everywhere.) Indices are unsigned, because a signed one is tested for wrapping around. All compiled code is in this
one file, because numba keeps it between processes as long as this file is unchanged.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit


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
