"""Compiled steps of the cells of one table, shared by its moves, and the arrays that they read."""

from __future__ import annotations

import math
from typing import NamedTuple

from numba import njit

from bayesprivmrf.compiled import INNER
from bayesprivmrf.inference.posterior.whole_records.crossing import SumGraph
from bayesprivmrf.inference.posterior.whole_records.moves import step
from bayesprivmrf.model.tables import FloatArray, IntArray


class MoveCells(NamedTuple):
    """Cells of the table as moves choose them; the first three arrays change in place."""

    occupied: IntArray  # the first `sizes[0]` entries are the occupied cells
    places: IntArray  # position of each cell in `occupied`, or -1
    sizes: IntArray  # number of occupied cells, shape (1,)
    weights: FloatArray  # cumulative weights w_m of the measured numbers of each cell
    scales: int  # number of powers of two for the size of a move
    graph: SumGraph  # graph of sums in two directions; without arcs where simpler moves reach every table


@njit(nogil=True, inline="always")
def log_cell(count, by, shape):
    """Return the change of the log prior of a cell, log Γ(α + n) / n!, when it gains `by` records."""
    return (
        math.lgamma(shape + count + by)
        - math.lgamma(shape + count)
        - math.lgamma(count + by + 1.0)
        + math.lgamma(count + 1.0)
    )


@njit(nogil=True, inline="always")
def log_total(total, by, whole):
    """Return the change of the log prior of N and of the row's normalization when N grows by `by` records."""
    ratio = math.lgamma(total + by) - math.lgamma(total)
    return ratio - math.lgamma(whole + total + by) + math.lgamma(whole + total)


@njit(nogil=True, inline="always")
def size_of_move(scales, rng):
    """Draw the size of a move: uniform up to a random power of two."""
    return 1 + int(rng.random() * (1 << int(rng.random() * scales)))


@njit(nogil=True, **INNER)
def add(cell, by, state, table, data):
    """Add records to a cell, update the list of occupied cells, and return the change of the log noise density."""
    gained = step(cell, by, state, data)
    occupied = table.occupied
    places = table.places
    sizes = table.sizes
    is_occupied = state.counts[cell] > 0
    if is_occupied and places[cell] < 0:
        places[cell] = sizes[0]
        occupied[sizes[0]] = cell
        sizes[0] += 1
    elif not is_occupied and places[cell] >= 0:
        sizes[0] -= 1
        last = occupied[sizes[0]]
        occupied[places[cell]] = last
        places[last] = places[cell]
        places[cell] = -1
    return gained
