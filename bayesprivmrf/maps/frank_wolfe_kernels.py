"""The compiled loops of node-wise regressions: margins moved on, residuals looked up.

Everything is a whole number, so that what a record contributes does not depend on where it stands among the others,
on vector instructions or on how sums are ordered. All compiled code is in this one file, for numba keeps it between
processes as long as this file is unchanged.
"""

from __future__ import annotations

from typing import Any

from numba import njit

__all__ = ["logistic_residuals"]


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
        for r in range(margins.shape[1]):
            margin = margins[m, r] + steps[r, codes[m, groups[r]]]
            margins[m, r] = margin
            label = labels[m, nodes[r]]
            y = int(label == positive[r]) - int(label == negative[r])
            out[m, r] = y * table[middle + ((-y * margin) >> shift)] * counts[m]
