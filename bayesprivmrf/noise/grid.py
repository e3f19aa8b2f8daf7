"""The grid of published numbers: their last decimal, or the base to which they were rounded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bayesprivmrf.model.tables import FloatArray

# Decimals that are looked for in published numbers; numbers with more of them are treated as having this many
MOST_DECIMALS = 6
# Distance from a multiple of the grid, in steps of the grid, that is a rounding error
_OFF_GRID = 1e-3
# Largest number of steps that are compared: above it, they are no exact floats
_LARGEST = 2.0**53


def grid_of(values: FloatArray) -> float:
    """Return the largest step of which all numbers are multiples, records, down to six decimals.

    Numbers that are all zero have the step 1.

    Examples
    --------
    >>> grid_of(np.array([3.0, 7.0])), grid_of(np.array([0.25, 1.5])), grid_of(np.array([200.0, 500.0]))
    (1.0, 0.25, 100.0)
    """
    finest = 10.0**MOST_DECIMALS
    for steps_of_one in (1.0, finest):
        steps = np.abs(values) * steps_of_one
        whole = np.rint(steps)
        if steps.max(initial=0.0) < _LARGEST and (np.abs(steps - whole) < _OFF_GRID).all():
            divisor = int(np.gcd.reduce(whole.astype(np.int64)))
            if divisor == 0:  # all are zero
                return 1.0
            return divisor / steps_of_one
    return 1 / finest


def common_grids(parts: Sequence[np.ndarray]) -> list[float]:
    """Return the step of each of several arrays, as `grid_of` does; for whole numbers in one operation.

    Examples
    --------
    >>> common_grids([np.array([3.0, 7.0]), np.array([200.0, 500.0])])
    [1.0, 100.0]
    """
    if not parts:
        return []
    sizes = [part.size for part in parts]
    steps = np.abs(np.concatenate(parts))
    whole = np.rint(steps)
    is_whole = steps.max(initial=0.0) < _LARGEST and (np.abs(steps - whole) < _OFF_GRID).all()
    if not is_whole or not all(sizes):
        return [grid_of(part) for part in parts]
    starts = np.cumsum([0, *sizes[:-1]])
    divisors = np.gcd.reduceat(whole.astype(np.int64), starts)
    return np.maximum(divisors, 1).astype(float).tolist()
