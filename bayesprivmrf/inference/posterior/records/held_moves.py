r"""Moves of whole records that leave sums without noise as they are, or within their bounds, compiled.

The law of a record given the others is that of `moves`, with a factor more for each set s of cells that is
held between two bounds: 1 where its sum is within, 0 elsewhere (`held_sums` has the sets). So a record that leaves an
exact sum must come back into it.

**One record.** It is taken out, and a proposal is drawn by sums over the forest from all the others, in whose
weights a cell of a set that lacks a record counts :math:`e^{L}` times, and one of a set that is full :math:`e^{-L}`
times. A proposal that leaves some set out of its bounds is refused, and what remains is the ratio of `answer_moves`:
where each number reads one clique it is 1, as the weights differ from the law by one factor for all that may be.

**Two records** that agree on a separator exchange what is on one side of it. Pair and side are chosen in a way that
does not change by the exchange, so that it is accepted with the ratio of the records' laws, one after the other.

**Births and deaths** are those of `moves`, and are refused where they leave a bound.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, kept, put
from bayesprivmrf.inference.posterior.records.answer_moves import log_step
from bayesprivmrf.inference.posterior.records.moves import collect, draw_new
from bayesprivmrf.inference.posterior.records.table_moves import log_within
from bayesprivmrf.model.tables import FloatArray, IntArray

_MOST_NATS = 300.0
"""Bound of the log factor of a cell."""
_TRIES = 64
"""Records that are looked at for one which agrees with another on a separator."""
_FIRST = 1000
"""Sums made for the first records, which are no draw yet."""
_INNER: Any = {"nogil": True, **INNER}
_LEAST = 1e-300
"""In place of a weight that underflows."""


class HeldTape(NamedTuple):
    """The arrays that never change, beside a `RecordTape`."""

    halves: FloatArray  # of each measured number, half the distance of the bounds after its noise, or -1
    set_starts: IntArray  # of each cell, where the sets that hold it begin in `sets`
    sets: IntArray
    member_starts: IntArray  # of each set, where its cells begin in `members`
    members: IntArray
    lowest: IntArray  # the bounds of each set
    highest: IntArray
    strength: float  # L
    codes: IntArray  # of each group and cell of its home, the cell of the group; -1 elsewhere
    sides: IntArray  # of each exchange and cell, the part of `flat` that is of the variables exchanged
    shared: IntArray  # of each exchange and cell of its home, the state of the separator
    homes: IntArray  # of each exchange, the clique that tells the separator
    flat: IntArray  # of each cell, its place in the model
    places: IntArray  # of each place in the model, its cell, or -1


@njit(nogil=True, inline="always")
def _step(gap, by, half, width, is_absolute):
    """Log density of the noise after an answer grew by a number, over that before; `gap` is y - s."""
    if half < 0.0:
        return log_step(gap, by, width, is_absolute)
    return log_within(gap - by, half, width, is_absolute) - log_within(gap, half, width, is_absolute)


@njit(nogil=True, inline="always")
def _log_factor(
    cell, sums, inside, starts, numbers, entries, noisy, widths, absolute, halves, set_starts, sets, lowest, highest,
    strength,
):  # fmt: skip
    """What one more record in a cell changes, by its clique alone, bounded."""
    total = 0.0
    for t in range(starts[cell], starts[cell + 1]):
        m = numbers[t]
        total += _step(noisy[m] - sums[m], float(entries[t]), halves[m], widths[m], absolute[m])
    for k in range(set_starts[cell], set_starts[cell + 1]):
        s = sets[k]
        if inside[s] < lowest[s]:
            total += strength
        elif inside[s] >= highest[s]:
            total -= strength
    return min(max(total, -_MOST_NATS), _MOST_NATS)


@njit(**_INNER)
def _weigh(cells, size, state, inside, tape, held):
    """Refresh the weights of some cells: n + α, times what one more record changes."""
    counts, shapes, weights, gain = state.counts, state.shapes, state.weights, tape.gain
    sums, starts, numbers, entries = state.sums, tape.table_starts, tape.table_cells, tape.table_weights
    noisy, widths, absolute, halves = tape.noisy, tape.widths, tape.absolute, held.halves
    set_starts, sets, lowest, highest = held.set_starts, held.sets, held.lowest, held.highest
    strength = held.strength
    for k in range(size):
        cell = cells[k]
        log_factor = _log_factor(
            cell, sums, inside, starts, numbers, entries, noisy, widths, absolute, halves, set_starts, sets, lowest,
            highest, strength,
        )  # fmt: skip
        weights[cell] = (gain * counts[cell] + shapes[cell]) * math.exp(log_factor)


@njit(**_INNER)
def _refresh(record, touched, state, inside, tape, held):
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
    _weigh(touched, size, state, inside, tape, held)


@njit(**_INNER)
def _add(record, by, state, inside, tape, held):
    """Add a record, or take it out; what that changes in the log law of records and noise."""
    counts, shapes, wholes, sums, gain = state.counts, state.shapes, state.wholes, state.sums, tape.gain
    starts, numbers, entries, noisy = tape.table_starts, tape.table_cells, tape.table_weights, tape.noisy
    widths, absolute, halves = tape.widths, tape.absolute, held.halves
    set_starts, sets, change = held.set_starts, held.sets, 0.0
    for cell in record:
        row = tape.cell_rows[cell]
        if by < 0:
            counts[cell] -= 1
            wholes[row] -= gain
        here, whole = gain * counts[cell] + shapes[cell], wholes[row]
        change += by * math.log(max(here, _LEAST) / max(whole, _LEAST))
        if by > 0:
            counts[cell] += 1
            wholes[row] += gain
        for t in range(starts[cell], starts[cell + 1]):
            m, move = numbers[t], by * entries[t]
            change += _step(noisy[m] - sums[m], float(move), halves[m], widths[m], absolute[m])
            sums[m] += move
        for k in range(set_starts[cell], set_starts[cell + 1]):
            inside[sets[k]] += by
    return change


@njit(**_INNER)
def _are_within(record, inside, held):
    """Whether every set that holds a cell of the record is within its bounds."""
    are_within = True
    for cell in record:
        for k in range(held.set_starts[cell], held.set_starts[cell + 1]):
            s = held.sets[k]
            are_within &= held.lowest[s] <= inside[s] <= held.highest[s]
    return are_within


@njit(**_INNER)
def _excess(record, state, inside, tape, held):
    """Log of what one more record changes in the noise, over what the cliques' factors say."""
    total, moved, sums = 0.0, state.moved, state.sums
    starts, numbers, entries, noisy = tape.table_starts, tape.table_cells, tape.table_weights, tape.noisy
    widths, absolute, halves = tape.widths, tape.absolute, held.halves
    for cell in record:
        total -= _log_factor(
            cell, sums, inside, starts, numbers, entries, noisy, widths, absolute, halves, held.set_starts, held.sets,
            held.lowest, held.highest, held.strength,
        )  # fmt: skip
        for t in range(starts[cell], starts[cell + 1]):
            moved[numbers[t]] += entries[t]
    for cell in record:
        for t in range(starts[cell], starts[cell + 1]):
            m = numbers[t]
            if moved[m] != 0:
                total += _step(noisy[m] - sums[m], float(moved[m]), halves[m], widths[m], absolute[m])
                moved[m] = 0
    return total


@njit(**_INNER)
def _visit(record, touched, state, inside, tape, held, rng):
    """Move one record, given all others."""
    _add(record, -1, state, inside, tape, held)
    _refresh(record, touched, state, inside, tape, held)
    collect(state.weights, state.wholes, state, tape)
    proposal = state.proposal
    draw_new(proposal, state, tape, rng)
    gain = _excess(proposal, state, inside, tape, held) - _excess(record, state, inside, tape, held)
    is_taken = math.log(rng.random()) < gain
    if is_taken:
        _add(proposal, 1, state, inside, tape, held)
        is_taken = _are_within(proposal, inside, held) and _are_within(record, inside, held)
        if not is_taken:
            _add(proposal, -1, state, inside, tape, held)
    if is_taken:
        put(record, proposal)
    else:
        _add(record, 1, state, inside, tape, held)
    _refresh(record, touched, state, inside, tape, held)


@njit(**_INNER)
def _exchange(turn, a, records, total, others, state, inside, tape, held, rng):
    """Two records that agree on a separator exchange what is on one side of it, or stay."""
    home, firsts, b = held.homes[turn], state.proposal, a
    for _ in range(_TRIES):
        b = int(rng.random() * total)
        if b != a and held.shared[turn, records[a, home]] == held.shared[turn, records[b, home]]:
            break
        b = a
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
    gain = _add(first, -1, state, inside, tape, held) + _add(second, -1, state, inside, tape, held)
    gain += _add(firsts, 1, state, inside, tape, held) + _add(others, 1, state, inside, tape, held)
    is_taken = math.log(rng.random()) < gain
    if is_taken:  # the sets that the old records were in are looked at too
        is_taken = _are_within(first, inside, held) and _are_within(second, inside, held)
        is_taken &= _are_within(firsts, inside, held) and _are_within(others, inside, held)
    if is_taken:
        put(first, firsts)
        put(second, others)
    else:
        _add(firsts, -1, state, inside, tape, held)
        _add(others, -1, state, inside, tape, held)
        _add(first, 1, state, inside, tape, held)
        _add(second, 1, state, inside, tape, held)


@njit(**_INNER)
def _move_total(moves, least, most, records, total, touched, state, inside, tape, held, rng):
    """Births and deaths of records under p(N) ∝ 1/N within all bounds; the new number."""
    for _ in range(moves):
        is_birth = rng.random() < 0.5
        if (is_birth and total >= min(most, records.shape[0])) or not (is_birth or total > least):
            continue
        place = total if is_birth else int(rng.random() * total)
        record = records[place]
        if not is_birth:
            _add(record, -1, state, inside, tape, held)
            if not _are_within(record, inside, held):
                _add(record, 1, state, inside, tape, held)
                continue
            _refresh(record, touched, state, inside, tape, held)
        fewer = total if is_birth else total - 1
        ratio = collect(state.weights, state.wholes, state, tape) + math.log(max(fewer, 1) / (fewer + 1.0))
        if is_birth:
            draw_new(record, state, tape, rng)
        ratio += _excess(record, state, inside, tape, held)
        is_in = (math.log(rng.random()) < (ratio if is_birth else -ratio)) == is_birth
        if is_in:
            _add(record, 1, state, inside, tape, held)
            if is_birth and not _are_within(record, inside, held):
                _add(record, -1, state, inside, tape, held)
                is_in = False
            _refresh(record, touched, state, inside, tape, held)
        if not is_in and not is_birth:
            put(record, records[total - 1])
        total = fewer + 1 if is_in else fewer
    return total


@njit(**_INNER)
def _fill(wanted, records, cells, state, inside, tape, held, rng):
    """The first records, each with the cells of the groups that are wanted."""
    total = wanted.shape[0]
    for r in range(total):
        is_new = r == 0
        for g in range(wanted.shape[1]):
            is_new |= wanted[r, g] != wanted[r - 1, g]
        if is_new or r % (1 + total // _FIRST) == 0:
            _weigh(cells, cells.size, state, inside, tape, held)
            for g in range(wanted.shape[1]):
                for cell in range(cells.size):
                    if held.codes[g, cell] >= 0 and held.codes[g, cell] != wanted[r, g]:
                        state.weights[cell] = 0.0
            collect(state.weights, state.wholes, state, tape)
        draw_new(records[r], state, tape, rng)
        _add(records[r], 1, state, inside, tape, held)


@kept()
def move_held(total, moves, births, bounds, records, wanted, state, inside, tape, held, rng):
    """Sweep records and their number once, in place, together with `inside`, the sums of the sets.

    `wanted` holds the groups' cells of the first records; it has no rows once there are records. Returns the number
    of records.
    """
    state.wholes[:] = 0.0
    state.block[:] = 0
    cells = np.arange(state.weights.size)
    for cell in cells:
        state.wholes[tape.cell_rows[cell]] += tape.gain * state.counts[cell] + state.shapes[cell]
    _fill(wanted, records, cells, state, inside, tape, held, rng)
    _weigh(cells, cells.size, state, inside, tape, held)
    for visit in range(min(moves, total)):
        place = visit if total <= moves else int(rng.random() * total)
        _visit(records[place], cells, state, inside, tape, held, rng)
    total = _move_total(births, bounds[0], bounds[1], records, total, cells, state, inside, tape, held, rng)
    others = state.proposal.copy()
    for visit in range(min(moves, total)):
        for turn in range(held.homes.size):
            a = visit if total <= moves else int(rng.random() * total)
            _exchange(turn, a, records, total, others, state, inside, tape, held, rng)
    return total
