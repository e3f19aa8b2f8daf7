r"""The number of records: initial records, births and deaths, compiled; and the sweep that keeps exact sums.

Let Z be the sum over x of the law of one more record given the others (`moves`). Under :math:`p(N) ∝ 1/N` a birth,
drawn from that law, is accepted with probability :math:`\min(1, Z N / (N + 1))`. A death, of any record alike, is
accepted with the inverse ratio :math:`\min(1, N / ((N - 1) Z))`, in which Z is that of the other records (Green
1995). Where a record was proposed by a simpler law than its own, the ratio is corrected by `excess`. With exact
sums, a birth or death that leaves a bound is refused.

References
----------
Green (1995). Reversible jump Markov chain Monte Carlo computation. Biometrika 82, 711-732.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, by_reference, kept, put
from bayesprivmrf.inference.posterior.records.held_moves import (
    add_within,
    exact_excess,
    exchange,
    fill,
    refresh,
    visit_record,
    weigh_cells,
)
from bayesprivmrf.inference.posterior.records.moves import (
    collect,
    count,
    draw_new,
    draw_record,
    excess,
    log_sum,
)


@njit(nogil=True, **INNER)
def first_records(records, total, every, state, tape, rng):
    """Draw initial records one by one, each given those before it; the law is brought up to date every few records.

    `records` has space for all of them, or for one, where only the tables are kept.
    """
    for k in range(total):
        if k % every == 0:
            log_sum(state, tape)
        record = records[min(k, records.shape[0] - 1)]
        draw_new(record, state, tape, rng)
        count(record, 1, state, tape)


@njit(nogil=True, **INNER)
def take(records, state, tape, rng):
    """Draw distinct records at random from all records of the tables, which are left as they are."""
    values, totals, starts = state.values, state.totals, tape.row_starts
    for row in range(totals.size):
        totals[row] = 0.0
        for cell in range(starts[row], starts[row + 1]):
            values[cell] = state.counts[cell]
            totals[row] += values[cell]
    for r in range(records.shape[0]):
        draw_record(
            records[r], values, totals, state.current, tape.clique_rows, starts, tape.source_starts,
            tape.child_starts, tape.child_rows, tape.row_cliques, rng,
        )  # fmt: skip
        for cell in records[r]:
            values[cell] -= 1.0
            totals[tape.cell_rows[cell]] -= 1.0


@njit(nogil=True, **INNER)
def _change(record, by, touched, state, tape, held):
    """Add a record, or take it out, and return True; leave the tables as they are where that would leave a bound."""
    if held is None:
        count(record, by, state, tape)
        return True
    if not add_within(record, by, state, tape, held):
        return False
    refresh(record, touched, state, tape, held)
    return True


@njit(nogil=True, **INNER)
def _excess(record, state, tape, held):
    """Return the log of what a record's own law says over the law that proposes it."""
    if held is not None:
        return exact_excess(record, state, tape, held)
    return 0.0 if tape.is_direct else excess(record, state, tape)


@njit(nogil=True, **INNER)
def move_total(moves, bounds, records, total, touched, state, tape, held, rng):
    """Try births and deaths of records between two bounds, and return the new number of records.

    `records` holds all records and space for more, or one row where only the tables are kept. `held` has the exact
    sums and their bounds, or is None; `touched` has space for every cell where there are some.
    """
    is_listed = records.shape[0] > 1
    most = min(bounds[1], records.shape[0]) if is_listed else bounds[1]
    for _ in range(moves):
        is_birth = rng.random() < 0.5
        if (is_birth and total >= most) or not (is_birth or total > bounds[0]):
            continue
        place = 0
        if is_listed:
            place = total if is_birth else int(rng.random() * total)
        elif not is_birth:
            take(records, state, tape, rng)
        record = records[place]
        if not is_birth and not _change(record, -1, touched, state, tape, held):
            continue
        # log ratio of a birth of this record to the other ones, whose number is `fewer`
        fewer = total if is_birth else total - 1
        is_late = held is None and tape.is_direct and is_listed  # the ratio does not depend on the record
        ratio = log_sum(state, tape) if held is None else collect(state.weights, state.wholes, state, tape)
        ratio += math.log(max(fewer, 1) / (fewer + 1.0))
        if is_birth and not is_late:
            draw_new(record, state, tape, rng)
        ratio += _excess(record, state, tape, held)
        # a birth is accepted, or a death refused
        is_in = (math.log(rng.random()) < (ratio if is_birth else -ratio)) == is_birth
        if is_in and is_birth and is_late:
            draw_new(record, state, tape, rng)
        if is_in:
            is_in = _change(record, 1, touched, state, tape, held)
        if not is_in and not is_birth and is_listed:
            put(record, records[total - 1])
        total = fewer + 1 if is_in else fewer
    return total


@kept()
def move_held(total, moves, births, bounds, records, wanted, state, tape, held, rng):
    """Sweep records and their number once, in place, and return their number.

    `wanted` holds the groups' cells of the initial records; it has no rows once there are records.
    """
    state, tape, held = by_reference(state), by_reference(tape), by_reference(held)
    state.wholes[:] = 0.0
    state.block[:] = 0
    cells = np.arange(state.weights.size)
    for cell in cells:
        state.wholes[tape.cell_rows[cell]] += tape.gain * state.counts[cell] + state.shapes[cell]
    fill(wanted, records, cells, state, tape, held, rng)
    weigh_cells(cells, cells.size, state, tape, held)
    # each record given all others, or some at random where there are more
    for visit in range(min(moves, total)):
        place = visit if total <= moves else int(rng.random() * total)
        visit_record(records[place], cells, state, tape, held, rng)
    total = move_total(births, bounds, records, total, cells, state, tape, held, rng)
    # exchanges between two records, for each separator
    others = state.proposal.copy()
    for visit in range(min(moves, total)):
        for turn in range(held.homes.size):
            a = visit if total <= moves else int(rng.random() * total)
            exchange(turn, a, records, total, others, state, tape, held, rng)
    return total
