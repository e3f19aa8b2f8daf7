r"""Metropolis moves of one table of whole counts, compiled.

A model whose one clique holds all variables has a single table n, and what is measured are sums of its cells. Given
the shapes α, with the row integrated out and :math:`p(N) \propto 1/N`,

.. math:: \log p(n \mid y) = \log Γ(N) - \log Γ(α_+ + N)
          + \sum_i \bigl[\log Γ(α_i + n_i) - \log Γ(n_i + 1)\bigr] + \sum_m \log f_m(y_m - a_m'n).

Two kinds of moves leave it invariant; d is uniform up to a power of two, itself uniform. A cell gains or loses d
records. Or d records go from cell i, drawn among the K that hold records, to a cell j, in one of three ways:

- j is drawn among all cells; with K' cells holding records after the move, the way back is proposed K / K' times as
  often.
- j is drawn among the K, and i is not left empty: the way back is proposed as often.
- A measured number m is drawn among those that i and other cells are part of, with weight :math:`w_m`, the larger
  the fewer they are, and j among its cells, so that m stays as it is. With :math:`W_i` the sum of i's weights, the
  way back by the same number is proposed :math:`K W_i / (K' W_j)` times as often.

The records of two such cells may also be parted anew, from their conditional law given their sum s: a number that is
known well and whose parts are not has many nearly empty cells, of which now the one and now the other holds all that
is there, and no step of a drawn size leads across. With :math:`a = [n_i > 0] / W_i + [n_j > 0] / W_j` the pair is
chosen with a probability proportional to a / K, so that what was drawn is accepted with probability
:math:`\min(1, a' K / (a K'))`. This costs s + 1 steps, and is left out where s is more than 32.

A number that is known within bounds alone has the probability of these bounds in place of f (`noise/continuous.py`).
Without noise that is 0 or 1, and a log of -10^9 stands for that of 0 (`noise`). `bounds` says when moves still reach
every table.

A move costs what two cells are measured by, not what the table holds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bayesprivmrf.compiled import INNER, by_reference, kept, put
from bayesprivmrf.inference.posterior.records.noise import log_step_within
from bayesprivmrf.inference.posterior.records.shape_moves import draw_rows, move_shapes
from bayesprivmrf.model.tables import FloatArray, IntArray

# Sweeps of the cells for each move of the shapes; arbitrary
_SWEEPS_BETWEEN_SHAPES = 4
# Least moves of cells in a sweep, and the most rounds over the cells for it (`benchmarks/table_rounds.py`)
_MOVES, _ROUNDS = 1000, 64
# Most records of two cells that are divided anew between them, which costs a step for each
_PARTED = 32


class TableTape(NamedTuple):
    """The arrays that never change."""

    clique_rows: IntArray  # the one row of the one clique: what moves of shapes read
    row_starts: IntArray
    entry_starts: IntArray  # of each cell, where its measured numbers begin
    entry_sums: IntArray
    entries: FloatArray  # how often one record of the cell counts there
    weights: FloatArray  # by which moves choose one of a cell's numbers, added up over the cell's
    member_starts: IntArray  # of each measured number, where its cells begin
    members: IntArray
    widths: FloatArray
    absolute: NDArray[np.bool_]
    halves: FloatArray  # of a number known within bounds, half their distance; negative for others
    scales: int  # powers of two up to which records change at once


class TableState(NamedTuple):
    """One chain's table and what follows from it; the arrays change in place."""

    shapes: FloatArray
    counts: IntArray
    residuals: FloatArray  # sums less noisy numbers
    occupied: IntArray  # cells that hold records, the first ones of it
    places: IntArray  # where each of them stands there, or -1
    sizes: IntArray  # how many there are


@njit(nogil=True, inline="always")
def _log_noise(cell, by, residuals, starts, sums, entries, widths, absolute, halves):
    """Return the change of the log density of the noise by some more records in a cell."""
    value = 0.0
    for k in range(starts[cell], starts[cell + 1]):
        m = sums[k]
        value += log_step_within(-residuals[m], by * entries[k], halves[m], widths[m], absolute[m])
    return value


@njit(nogil=True, inline="always")
def _log_cell(count, by, shape):
    """Return the change of the log prior of a cell, of Γ(α + n) / n!, by some more records."""
    return (
        math.lgamma(shape + count + by)
        - math.lgamma(shape + count)
        - math.lgamma(count + by + 1.0)
        + math.lgamma(count + 1.0)
    )


@njit(nogil=True, inline="always")
def _size(scales, rng):
    """Draw how many records change at once: uniform up to a random power of two."""
    return 1 + int(rng.random() * (1 << int(rng.random() * scales)))


@njit(nogil=True, **INNER)
def _add(cell, by, state, tape):
    """Add records to a cell, and keep the list of occupied cells."""
    counts, occupied, places = state.counts, state.occupied, state.places
    counts[cell] += by
    for k in range(tape.entry_starts[cell], tape.entry_starts[cell + 1]):
        state.residuals[tape.entry_sums[k]] += by * tape.entries[k]
    if counts[cell] > 0 and places[cell] < 0:
        places[cell] = state.sizes[0]
        occupied[state.sizes[0]] = cell
        state.sizes[0] += 1
    elif counts[cell] == 0 and places[cell] >= 0:
        state.sizes[0] -= 1
        last = occupied[state.sizes[0]]
        occupied[places[cell]] = last
        places[last] = places[cell]
        places[cell] = -1


@njit(nogil=True, **INNER)
def _change_cells(least, most, total, whole, state, tape, rng):
    """Add records to each cell or take some out, once one and once more of them, and return the number of records."""
    counts, shapes, starts = state.counts, state.shapes, tape.entry_starts
    for cell in range(counts.size):
        for turn in range(2):
            by = 1 if turn == 0 else _size(tape.scales, rng)
            if rng.random() < 0.5:
                by = -by
            if counts[cell] + by < 0 or not least <= total + by <= most:
                continue
            ratio = _log_cell(counts[cell], by, shapes[cell])
            ratio += math.lgamma(total + by) - math.lgamma(total)
            ratio -= math.lgamma(whole + total + by) - math.lgamma(whole + total)
            ratio += _log_noise(
                cell, by, state.residuals, starts, tape.entry_sums, tape.entries, tape.widths, tape.absolute,
                tape.halves,
            )  # fmt: skip
            if math.log(rng.random()) < ratio:
                _add(cell, by, state, tape)
                total += by
    return total


@njit(nogil=True, **INNER)
def _partner(i, way, state, tape, rng):
    """Draw a cell to move records to from cell i; i itself where there is none."""
    if way == 0:
        return int(rng.random() * state.counts.size)
    if way == 1:
        return state.occupied[int(rng.random() * state.sizes[0])]
    k, last = tape.entry_starts[i], tape.entry_starts[i + 1] - 1
    if last < k or tape.weights[last] == 0.0:
        return i
    mark = rng.random() * tape.weights[last]
    while tape.weights[k] <= mark:
        k += 1
    first, stop = tape.member_starts[tape.entry_sums[k]], tape.member_starts[tape.entry_sums[k] + 1]
    return tape.members[first + int(rng.random() * (stop - first))]


@njit(nogil=True, **INNER)
def _part(i, j, state, tape, rng):
    """Draw anew what of the records of two cells is in which of them."""
    counts, shapes, starts, sums = state.counts, state.shapes, tape.entry_starts, tape.entry_sums
    widths, absolute = tape.widths, tape.absolute
    old, both, occupied = counts[i], counts[i] + counts[j], state.sizes[0]
    by_i, by_j = 1.0 / tape.weights[starts[i + 1] - 1], 1.0 / tape.weights[starts[j + 1] - 1]
    before = ((counts[i] > 0) * by_i + (counts[j] > 0) * by_j) / occupied
    _add(i, -old, state, tape)
    _add(j, old, state, tape)
    chosen, log_weight, best = 0, 0.0, -math.log(rng.standard_exponential())
    for k in range(1, both + 1):
        log_weight += math.log((shapes[i] + k - 1.0) * (both - k + 1.0) / (k * (shapes[j] + both - k)))
        log_weight += _log_noise(
            i, 1, state.residuals, starts, sums, tape.entries, widths, absolute, tape.halves
        )
        _add(i, 1, state, tape)
        log_weight += _log_noise(
            j, -1, state.residuals, starts, sums, tape.entries, widths, absolute, tape.halves
        )
        _add(j, -1, state, tape)
        mark = log_weight - math.log(rng.standard_exponential())
        if mark > best:
            chosen, best = k, mark
    _add(i, chosen - both, state, tape)
    _add(j, both - chosen, state, tape)
    after = ((counts[i] > 0) * by_i + (counts[j] > 0) * by_j) / state.sizes[0]
    if rng.random() * before >= after:
        _add(i, old - chosen, state, tape)
        _add(j, chosen - old, state, tape)


@njit(nogil=True, **INNER)
def move_between(turn, state, tape, rng):
    """Records go from an occupied cell to another, in the way that the turn says; four of eight share a number."""
    counts, shapes, starts, sums = state.counts, state.shapes, tape.entry_starts, tape.entry_sums
    widths, absolute = tape.widths, tape.absolute
    occupied, way = state.sizes[0], min(turn % 4, 2)
    if not occupied:
        return
    i = state.occupied[int(rng.random() * occupied)]
    j = _partner(i, way, state, tape, rng)
    if turn % 8 == 3 and i != j and counts[i] + counts[j] <= _PARTED:
        _part(i, j, state, tape, rng)
        return
    by = _size(tape.scales, rng)
    if i == j or by > counts[i] or (way == 1 and by == counts[i]):
        return
    ratio = _log_cell(counts[i], -by, shapes[i]) + _log_cell(counts[j], by, shapes[j])
    ratio += _log_noise(i, -by, state.residuals, starts, sums, tape.entries, widths, absolute, tape.halves)
    _add(i, -by, state, tape)
    ratio += _log_noise(j, by, state.residuals, starts, sums, tape.entries, widths, absolute, tape.halves)
    _add(j, by, state, tape)
    ratio += math.log(occupied / state.sizes[0])
    if way == 2:
        ratio += math.log(tape.weights[starts[i + 1] - 1] / tape.weights[starts[j + 1] - 1])
    if not math.log(rng.random()) < ratio:
        _add(j, -by, state, tape)
        _add(i, by, state, tape)


@njit(nogil=True)
def rounds_of(cells):
    """Return the rounds over the cells in a sweep: several where cells are few, until draws hardly depend."""
    return min(1 + _MOVES // max(cells, 1), _ROUNDS)


@kept()
def advance_table(total, is_fixed, bounds, position, state, tape, prior, rng, thin, out):
    """Sweep one table in place, keep every `thin`-th sweep, and return the number of records.

    `out` holds arrays of counts, log rows, totals and positions, one draw a row.
    """
    state, tape, prior = by_reference(state), by_reference(tape), by_reference(prior)
    counts, rows, totals, positions = out
    rounds = thin * rounds_of(counts.shape[1])
    for draw in range(totals.size):
        for sweep in range(rounds):
            if not is_fixed:
                whole = state.shapes.sum()
                total = _change_cells(bounds[0], bounds[1], total, whole, state, tape, rng)
            for turn in range(2 * counts.shape[1]):
                move_between(turn, state, tape, rng)
            if position.size and (sweep + draw * rounds) % _SWEEPS_BETWEEN_SHAPES == 0:
                move_shapes(position, state, tape, prior, rng)
        draw_rows(rows[draw], state, tape, rng)
        put(counts[draw], state.counts)
        put(positions[draw], position)
        totals[draw] = total
    return total
