"""Copies of arrays in compiled code, number by number.

Where one array is assigned to a part of another, numba compiles the text of an error of shapes besides, with all that
it needs of strings, into each function that does so: a second or more each time.
"""

from __future__ import annotations

from numba import njit

from bayesprivmrf.marginals.products import INNER


@njit(nogil=True, **INNER)
def put(out, values):
    """Write the numbers of one vector into another of the same length."""
    for k in range(out.size):
        out[k] = values[k]
