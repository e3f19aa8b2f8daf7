"""Dirichlet shapes of a junction forest's rows: one for each possible cell, at a position of their own prior.

`row_shapes` and `row_shapes_pullback` are all that the density knows of that prior. Its positions are the last of the
sampler's, standard in scale; there are none where the shapes are fixed.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["row_shapes", "row_shapes_pullback"]


@njit(nogil=True, error_model="numpy")
def row_shapes(position, fixed):
    """α of each possible cell, in the order of ``forest.cells``, and the log prior density of the position."""
    return fixed.copy(), 0.0


@njit(nogil=True, error_model="numpy")
def row_shapes_pullback(position, fixed, by_shapes, by_density):
    """Derivative by the position, from those by α and by the log prior density."""
    return np.zeros(position.size)
