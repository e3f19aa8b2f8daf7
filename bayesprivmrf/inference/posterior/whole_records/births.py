r"""Compiled moves that change the number of records, and draws of records from tables and weights.

Let Z be the sum over x of the unnormalized distribution of one more record given the others (`moves`). Under
:math:`p(N) ∝ 1/N`, a birth is drawn from that distribution and accepted with probability
:math:`\min(1, Z N / (N + 1))`. A death takes any record with equal probability and is accepted with the inverse ratio
:math:`\min(1, N / ((N - 1) Z))`, with the Z of the other records (Green 1995). `_excess` corrects the ratio where
sums over the forest are approximate.

References
----------
Green (1995). Reversible jump Markov chain Monte Carlo computation. Biometrika 82, 711-732.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, put
from bayesprivmrf.inference.posterior.whole_records.moves import (
    collect,
    count,
    draw_record,
    log_factor,
    log_gain,
    refresh,
    weigh_all,
)

# Number of moves of N by many records in a sweep, where an engine has them
FAR = 4


@njit(nogil=True, **INNER)
def take(records, state, data, rng):
    """Draw distinct records at random from the tables, which do not change."""
    # copy the tables, which are reduced as records are drawn without replacement
    values = state.values
    totals = state.totals
    totals[:] = 0.0
    for cell in range(values.size):
        values[cell] = state.counts[cell]
        totals[data.cell_rows[cell]] += values[cell]
    for r in range(records.shape[0]):
        draw_record(records[r], state, data, rng)
        for cell in records[r]:
            values[cell] -= 1.0
            totals[data.cell_rows[cell]] -= 1.0


@njit(nogil=True, **INNER)
def first_records(wanted, records, total, state, data, rng):
    """Draw initial records sequentially, each conditional on the records drawn so far.

    The conditional distribution is updated about 1,000 times, because these records are not a draw yet. `records` has
    space for all records, or one row if only the tables are kept. `wanted` has the cells of each record in the groups
    of tables with exact sums; the weights of these tables have no prior.
    """
    groups = wanted.shape[1]
    for r in range(total):
        is_new = r % (1 + total // 1000) == 0
        for g in range(groups):
            is_new |= wanted[r, g] != wanted[r - 1, g]
        if is_new:
            weigh_all(state, data)
            for cell in range(state.weights.size if groups else 0):
                is_inside = False
                is_wanted = True
                for g in range(groups):
                    is_inside |= data.codes[g, cell] >= 0
                    is_wanted &= data.codes[g, cell] < 0 or data.codes[g, cell] == wanted[r, g]
                if is_inside:
                    state.weights[cell] = is_wanted * math.exp(log_factor(cell, state.sums, data))
            collect(state, data)
        record = records[min(r, records.shape[0] - 1)]
        draw_record(record, state, data, rng)
        count(record, 1, state, data)


@njit(nogil=True, **INNER)
def _excess(record, state, data):
    """Return the log density ratio of one more record, minus the log factors of its cells."""
    # compared with a record without cells, whose cells are -1
    total = log_gain(record, np.full(record.size, -1), state, data)
    for cell in record:
        total -= log_factor(cell, state.sums, data)
    return total


@njit(nogil=True, **INNER)
def move_total(moves, bounds, records, total, state, data, rng):
    """Try births and deaths of records between two bounds, and return the new number of records.

    `records` has all records and space for more, or one row if only the tables are kept.
    """
    # a list of records limits their number by its space; tables alone do not
    is_listed = records.shape[0] > 1
    if is_listed:
        most = min(bounds[1], records.shape[0])
    else:
        most = bounds[1]
    if moves:
        weigh_all(state, data)
    for _ in range(moves):
        is_birth = rng.random() < 0.5
        if (is_birth and total >= most) or not (is_birth or total > bounds[0]):
            continue
        place = 0
        if is_listed:
            if is_birth:
                place = total
            else:
                place = int(rng.random() * total)
        elif not is_birth:
            take(records, state, data, rng)
        record = records[place]
        if not is_birth:
            count(record, -1, state, data)
            refresh(record, state, data)
        # log acceptance ratio of adding this record to the other ones, whose number is `fewer`
        fewer = total if is_birth else total - 1
        ratio = collect(state, data) + math.log(max(fewer, 1) / (fewer + 1.0))
        if is_birth:
            draw_record(record, state, data, rng)
        ratio += _excess(record, state, data)
        # the record is in if its birth is accepted, or its death rejected
        is_in = (math.log(rng.random()) < (ratio if is_birth else -ratio)) == is_birth
        if is_in:
            count(record, 1, state, data)
            refresh(record, state, data)
        elif is_listed:
            put(record, records[total - 1])
        total = fewer + 1 if is_in else fewer
    return total
