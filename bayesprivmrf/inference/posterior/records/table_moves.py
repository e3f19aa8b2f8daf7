r"""Compiled Metropolis moves of one table of whole counts.

A model whose only clique contains all variables has a single table n, and measured numbers are sums of its cells.
Given the shapes α, with the row integrated out and :math:`p(N) \propto 1/N`,

.. math:: \log p(n \mid y) = \log Γ(N) - \log Γ(α_+ + N)
          + \sum_i \bigl[\log Γ(α_i + n_i) - \log Γ(n_i + 1)\bigr] + \sum_m \log f_m(y_m - a_m'n).

Several moves leave this distribution invariant. The size d of a move is uniform up to a power of two, which is itself
drawn uniformly. A cell gains or loses d records. Or d records move from cell i, drawn among the K occupied cells, to
a cell j, which is drawn in one of three ways:

- among all cells. With K' occupied cells after the move, the reverse move is proposed K / K' times as often.
- among the K occupied cells, if i is not emptied. The reverse move is proposed equally often.
- among the cells of a measured number m, which therefore does not change. The number is drawn among those that
contain
  i and other cells, with weight :math:`w_m`, which is larger the fewer cells it has. If :math:`W_i` is the sum of the
  weights of i, the reverse move by the same number is proposed :math:`K W_i / (K' W_j)` times as often.

The records of two such cells may also be divided anew, from their conditional distribution given their sum s. This is
needed for a sum that is known well while its parts are not: many of its cells are nearly empty, the records may be in
one or another of them, and no move of fixed size connects these states. The pair is chosen with a probability
proportional to a / K, where :math:`a = [n_i > 0] / W_i + [n_j > 0] / W_j`, so the new division is accepted with
probability :math:`\min(1, a' K / (a K'))`. It takes s + 1 steps, and is made only for s up to 32.

For a number that is known only within bounds, f is the probability of these bounds (`bounds`). Without noise that is
0 or 1, and -10^9 replaces the log of 0. The module `bounds` also states when moves still reach every table.

The cost of a move depends on the number of measurements of two cells, and not on the size of the table.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from numba import njit

from bayesprivmrf.compiled import INNER, by_reference, kept, put
from bayesprivmrf.inference.posterior.records.moves import log_noise, step
from bayesprivmrf.inference.posterior.records.shape_moves import draw_rows, move_shapes
from bayesprivmrf.model.tables import FloatArray, IntArray


class Cells(NamedTuple):
    """Cells of the table as moves choose them; the first three arrays change in place."""

    occupied: IntArray  # the first `sizes[0]` entries are the occupied cells
    places: IntArray  # position of each cell in `occupied`, or -1
    sizes: IntArray  # number of occupied cells, shape (1,)
    weights: FloatArray  # cumulative weights w_m of the measured numbers of each cell
    scales: int  # number of powers of two for the size of a move


@njit(nogil=True, inline="always")
def _log_cell(count, by, shape):
    """Return the change of the log prior of a cell, log Γ(α + n) / n!, when it gains `by` records."""
    return (
        math.lgamma(shape + count + by)
        - math.lgamma(shape + count)
        - math.lgamma(count + by + 1.0)
        + math.lgamma(count + 1.0)
    )


@njit(nogil=True, inline="always")
def _size(scales, rng):
    """Draw the size of a move: uniform up to a random power of two."""
    return 1 + int(rng.random() * (1 << int(rng.random() * scales)))


@njit(nogil=True, **INNER)
def _add(cell, by, state, table, data):
    """Add records to a cell, update the list of occupied cells, and return the change of the log noise density."""
    gained = step(cell, by, state, data)
    occupied, places, sizes, is_occupied = table.occupied, table.places, table.sizes, state.counts[cell] > 0
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


@njit(nogil=True, **INNER)
def _change_cells(least, most, total, state, table, data, rng):
    """Add records to each cell or remove some, once one record and once several, and return the number of records."""
    counts, whole = state.counts, state.shapes.sum()
    for cell in range(counts.size):
        for turn in range(2):
            by = 1 if turn == 0 else _size(table.scales, rng)
            if rng.random() < 0.5:
                by = -by
            if counts[cell] + by < 0 or not least <= total + by <= most:
                continue
            # log ratio: prior of the cell, prior of N and normalization of the row, noise
            ratio = _log_cell(counts[cell], by, state.shapes[cell])
            ratio += math.lgamma(total + by) - math.lgamma(total)
            ratio -= math.lgamma(whole + total + by) - math.lgamma(whole + total)
            ratio += log_noise(cell, by, state.sums, data)
            if math.log(rng.random()) < ratio:
                _add(cell, by, state, table, data)
                total += by
    return total


@njit(nogil=True, **INNER)
def _partner(i, way, state, table, data, rng):
    """Draw the cell to which records of cell i move; i itself if there is none."""
    if way == 0:
        return int(rng.random() * state.counts.size)
    if way == 1:
        return table.occupied[int(rng.random() * table.sizes[0])]
    # draw a measured number of cell i by its weight, then one of the number's cells
    k, last = data.table_starts[i], data.table_starts[i + 1] - 1
    if last < k or table.weights[last] == 0.0:
        return i
    mark = rng.random() * table.weights[last]
    while table.weights[k] <= mark:
        k += 1
    first, stop = data.member_starts[data.table_cells[k]], data.member_starts[data.table_cells[k] + 1]
    return data.members[first + int(rng.random() * (stop - first))]


@njit(nogil=True, **INNER)
def _part(i, j, state, table, data, rng):
    """Divide the records of two cells anew, from their conditional distribution given their sum."""
    counts, shapes, occupied = state.counts, state.shapes, table.sizes[0]
    old, both = counts[i], counts[i] + counts[j]
    by_i, by_j = (
        1.0 / table.weights[data.table_starts[i + 1] - 1],
        1.0 / table.weights[data.table_starts[j + 1] - 1],
    )
    before = ((counts[i] > 0) * by_i + (counts[j] > 0) * by_j) / occupied
    # move all records to j, then one by one to i; the Gumbel trick draws a division from all log weights
    _add(i, -old, state, table, data)
    _add(j, old, state, table, data)
    chosen, log_weight, best = 0, 0.0, -math.log(rng.standard_exponential())
    for k in range(1, both + 1):
        log_weight += math.log((shapes[i] + k - 1.0) * (both - k + 1.0) / (k * (shapes[j] + both - k)))
        log_weight += _add(i, 1, state, table, data) + _add(j, -1, state, table, data)
        mark = log_weight - math.log(rng.standard_exponential())
        if mark > best:
            chosen, best = k, mark
    _add(i, chosen - both, state, table, data)
    _add(j, both - chosen, state, table, data)
    # the pair is chosen with other probabilities after the move: accept or restore
    after = ((counts[i] > 0) * by_i + (counts[j] > 0) * by_j) / table.sizes[0]
    if rng.random() * before >= after:
        _add(i, old - chosen, state, table, data)
        _add(j, chosen - old, state, table, data)


@njit(nogil=True, **INNER)
def move_between(turn, state, table, data, rng):
    """Move records from an occupied cell to another; four of eight turns choose a cell with a shared number."""
    counts, occupied, way = state.counts, table.sizes[0], min(turn % 4, 2)
    if not occupied:
        return
    i = table.occupied[int(rng.random() * occupied)]
    j = _partner(i, way, state, table, data, rng)
    if turn % 8 == 3 and i != j and counts[i] + counts[j] <= 32:
        _part(i, j, state, table, data, rng)
        return
    by = _size(table.scales, rng)
    if i == j or by > counts[i] or (way == 1 and by == counts[i]):
        return
    # log ratio: priors of both cells, noise, then the ratio of the proposals
    ratio = _log_cell(counts[i], -by, state.shapes[i]) + _log_cell(counts[j], by, state.shapes[j])
    ratio += _add(i, -by, state, table, data) + _add(j, by, state, table, data)
    ratio += math.log(occupied / table.sizes[0])
    if way == 2:
        starts = data.table_starts
        ratio += math.log(table.weights[starts[i + 1] - 1] / table.weights[starts[j + 1] - 1])
    if not math.log(rng.random()) < ratio:
        _add(j, -by, state, table, data)
        _add(i, by, state, table, data)


@njit(nogil=True)
def rounds_of(cells):
    """Return the rounds over the cells in a sweep: about 1,000 moves of cells, at most 64 rounds.

    The numbers are from `benchmarks/table_rounds.py`: consecutive draws of small tables are then nearly independent.
    """
    return min(1 + 1000 // max(cells, 1), 64)


@kept()
def advance_table(total, is_fixed, bounds, position, state, table, data, prior, rng, thin, out):
    """Sweep one table in place, store every `thin`-th sweep, and return the number of records.

    `out` has arrays of counts, log rows, totals and positions, one draw per row.
    """
    state, table, data, prior = (
        by_reference(state),
        by_reference(table),
        by_reference(data),
        by_reference(prior),
    )
    counts, rows, totals, positions = out
    rounds = thin * rounds_of(counts.shape[1])
    for draw in range(totals.size):
        for sweep in range(rounds):
            if not is_fixed:
                total = _change_cells(bounds[0], bounds[1], total, state, table, data, rng)
            for turn in range(2 * counts.shape[1]):
                move_between(turn, state, table, data, rng)
            if position.size and (sweep + draw * rounds) % 4 == 0:  # shapes in every fourth round; arbitrary
                move_shapes(position, state, data, prior, rng)
        draw_rows(rows[draw], state, data, rng)
        put(counts[draw], state.counts)
        put(positions[draw], position)
        totals[draw] = total
    return total
