r"""The number of records: initial records, births and deaths, compiled; and the sweep that keeps exact sums.

Let Z be the sum over x of the law of one more record given the others (`moves`). Under :math:`p(N) ∝ 1/N` a birth,
drawn from that law, is accepted with probability :math:`\min(1, Z N / (N + 1))`. A death, of any record alike, is
accepted with the inverse ratio :math:`\min(1, N / ((N - 1) Z))`, in which Z is that of the other records (Green
1995). Where a record was proposed by a simpler law than its own, the ratio is corrected by `excess`. With exact
sums, a birth or death that leaves a bound is refused.

References
----------
Green (1995). Reversible jump Markov chain Monte Carlo computation. Biometrika 82, 711-732.

Moves of whole records that keep exact sums, or sums within their bounds, compiled.

The law of a record given the others is that of `moves`, with one more factor for each set s of cells whose sum is
bounded: 1 where the sum is within its bounds, 0 elsewhere (`held` has the sets). So a record that leaves an exact sum
must come back into it.

**One record.** It is taken out, and a proposal is drawn by sums over the forest from all the others, in whose
weights a cell of a set that lacks a record counts :math:`e^{L}` times, and one of a set that is full :math:`e^{-L}`
times. A proposal that leaves some set out of its bounds is refused. The others are accepted with the ratio that
`moves` has for queries. Where each number reads one clique it is 1: the weights differ from the law by one factor.

**Two records** that agree on a separator exchange what is on one side of it. The exchange does not change how pair
and side are chosen, so that it is accepted with the ratio of the records' laws, one after the other.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, by_reference, kept, put
from bayesprivmrf.inference.posterior.records.moves import (
    change,
    collect,
    count,
    draw_new,
    draw_record,
    excess,
    log_gain,
    log_noise,
    log_sum,
)

# Bound of the log factor of a cell: its exponential is finite
_MOST_NATS = 300.0
# Random records tried for one that agrees with another on a separator; arbitrary
_TRIES = 64
# Passes of sums for the initial records, which are no draw yet
_FIRST = 1000
# Stands for a weight that underflows to 0, whose log would be infinite
_LEAST = 1e-300


@njit(nogil=True, inline="always")
def _log_factor(cell, state, tape, held):
    """Return the log factor of one more record in a cell, of noise and bounds, by its clique alone and bounded."""
    total = log_noise(cell, 1, state.sums, tape)
    for k in range(held.set_starts[cell], held.set_starts[cell + 1]):
        s = held.sets[k]
        if state.inside[s] < held.lowest[s]:
            total += held.strength
        elif state.inside[s] >= held.highest[s]:
            total -= held.strength
    return min(max(total, -_MOST_NATS), _MOST_NATS)


@njit(nogil=True, **INNER)
def weigh_cells(cells, size, state, tape, held):
    """Refresh the weights of some cells: n + α, times the factor of one more record."""
    counts, shapes, weights, gain = state.counts, state.shapes, state.weights, tape.gain
    for k in range(size):
        cell = cells[k]
        weights[cell] = (gain * counts[cell] + shapes[cell]) * math.exp(_log_factor(cell, state, tape, held))


@njit(nogil=True, **INNER)
def refresh(record, touched, state, tape, held):
    """Refresh the weights of all cells that share a number or a set with a record."""
    is_touched, size = state.block, 0
    starts, numbers, set_starts, sets = tape.table_starts, tape.table_cells, held.set_starts, held.sets
    for cell in record:
        if is_touched[cell] == 0:
            is_touched[cell] = 1
            touched[size] = cell
            size += 1
        for t in range(starts[cell], starts[cell + 1]):
            for k in range(tape.member_starts[numbers[t]], tape.member_starts[numbers[t] + 1]):
                other = tape.members[k]
                if is_touched[other] == 0:
                    is_touched[other] = 1
                    touched[size] = other
                    size += 1
        for t in range(set_starts[cell], set_starts[cell + 1]):
            for k in range(held.member_starts[sets[t]], held.member_starts[sets[t] + 1]):
                other = held.members[k]
                if is_touched[other] == 0:
                    is_touched[other] = 1
                    touched[size] = other
                    size += 1
    for k in range(size):
        is_touched[touched[k]] = 0
    weigh_cells(touched, size, state, tape, held)


@njit(nogil=True, **INNER)
def _add(record, by, state, tape, held):
    """Add a record, or take it out, and return the change of the log probability of records and noise."""
    counts, shapes, wholes, gained = state.counts, state.shapes, state.wholes, 0.0
    for cell in record:
        gained += log_noise(cell, by, state.sums, tape)
        # predictive probability of the cell in its row, without this record
        if by < 0:
            change(cell, by, state, tape)
        here, whole = tape.gain * counts[cell] + shapes[cell], wholes[tape.cell_rows[cell]]
        gained += by * math.log(max(here, _LEAST) / max(whole, _LEAST))
        if by > 0:
            change(cell, by, state, tape)
        for k in range(held.set_starts[cell], held.set_starts[cell + 1]):
            state.inside[held.sets[k]] += by
    return gained


@njit(nogil=True, **INNER)
def _are_within(record, inside, held):
    """Return whether the sum of every set that has a cell of the record is within its bounds."""
    are_within = True
    for cell in record:
        for k in range(held.set_starts[cell], held.set_starts[cell + 1]):
            s = held.sets[k]
            are_within &= held.lowest[s] <= inside[s] <= held.highest[s]
    return are_within


@njit(nogil=True, **INNER)
def add_within(record, by, state, tape, held):
    """Add a record, or take it out, and return True; leave the tables as they are where that would leave a bound."""
    _add(record, by, state, tape, held)
    if _are_within(record, state.inside, held):
        return True
    _add(record, -by, state, tape, held)
    return False


@njit(nogil=True, **INNER)
def exact_excess(record, state, tape, held):
    """Return the log density ratio of the noise at one more record, less the sum of its cells' own factors."""
    total = log_gain(record, np.full(record.size, -1), state, tape)
    for cell in record:
        total -= _log_factor(cell, state, tape, held)
    return total


@njit(nogil=True, **INNER)
def visit_record(record, touched, state, tape, held, rng):
    """Move one record, given all others."""
    _add(record, -1, state, tape, held)
    refresh(record, touched, state, tape, held)
    collect(state.weights, state.wholes, state, tape)
    proposal = state.proposal
    draw_new(proposal, state, tape, rng)
    gain = exact_excess(proposal, state, tape, held) - exact_excess(record, state, tape, held)
    is_taken = math.log(rng.random()) < gain
    if is_taken:
        _add(proposal, 1, state, tape, held)
        is_taken = _are_within(proposal, state.inside, held) and _are_within(record, state.inside, held)
        if not is_taken:
            _add(proposal, -1, state, tape, held)
    if is_taken:
        put(record, proposal)
    else:
        _add(record, 1, state, tape, held)
    refresh(record, touched, state, tape, held)


@njit(nogil=True, **INNER)
def exchange(turn, a, records, total, others, state, tape, held, rng):
    """Two records that agree on a separator exchange what is on one side of it, or stay."""
    home, firsts, b = held.homes[turn], state.proposal, a
    for _ in range(_TRIES):
        b = int(rng.random() * total)
        if b != a and held.shared[turn, records[a, home]] == held.shared[turn, records[b, home]]:
            break
        b = a
    # the two records after the exchange
    is_same, is_other = True, True
    for k in range(firsts.size):
        one, two = records[a, k], records[b, k]
        move = held.sides[turn, two] - held.sides[turn, one]
        firsts[k] = held.places[held.flat[one] + move]
        others[k] = held.places[held.flat[two] - move]
        if firsts[k] < 0 or others[k] < 0:
            return
        is_same &= firsts[k] == one
        is_other &= firsts[k] == two
    if is_same or is_other:
        return
    first, second = records[a], records[b]
    gain = _add(first, -1, state, tape, held) + _add(second, -1, state, tape, held)
    gain += _add(firsts, 1, state, tape, held) + _add(others, 1, state, tape, held)
    is_taken = math.log(rng.random()) < gain
    if is_taken:  # the sets of the old records can be out of their bounds too
        is_taken = _are_within(first, state.inside, held) and _are_within(second, state.inside, held)
        is_taken &= _are_within(firsts, state.inside, held) and _are_within(others, state.inside, held)
    if is_taken:
        put(first, firsts)
        put(second, others)
    else:
        _add(firsts, -1, state, tape, held)
        _add(others, -1, state, tape, held)
        _add(first, 1, state, tape, held)
        _add(second, 1, state, tape, held)


@njit(nogil=True, **INNER)
def fill(wanted, records, cells, state, tape, held, rng):
    """Draw initial records, each with the wanted cells of the groups."""
    total = wanted.shape[0]
    for r in range(total):
        is_new = r == 0
        for g in range(wanted.shape[1]):
            is_new |= wanted[r, g] != wanted[r - 1, g]
        if is_new or r % (1 + total // _FIRST) == 0:
            weigh_cells(cells, cells.size, state, tape, held)
            for g in range(wanted.shape[1]):
                for cell in range(cells.size):
                    if held.codes[g, cell] >= 0 and held.codes[g, cell] != wanted[r, g]:
                        state.weights[cell] = 0.0
            collect(state.weights, state.wholes, state, tape)
        draw_new(records[r], state, tape, rng)
        _add(records[r], 1, state, tape, held)


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
