r"""Compiled moves that change the number of records, and moves that keep exact or bounded sums of counts.

**Births and deaths.** Let Z be the sum over x of the unnormalized distribution of one more record given the others
(`moves`). Under :math:`p(N) ∝ 1/N`, a birth is drawn from that distribution and accepted with probability
:math:`\min(1, Z N / (N + 1))`. A death takes any record with equal probability and is accepted with the inverse ratio
:math:`\min(1, N / ((N - 1) Z))`, with the Z of the other records (Green 1995). If a record was proposed from a
simpler distribution than its own, `excess` corrects the ratio. With exact sums, a birth or death that violates a
bound is rejected.

**Exact and bounded sums.** The distribution of a record given the others is that of `moves`, times one factor for
each set s of cells whose sum is bounded (`exact_sums` has the sets). The factor is 1 if the sum is within its bounds,
and 0 otherwise. A record that leaves an exact sum must therefore return to it.

- *One record* is removed, and a proposal is drawn by sums over the forest, given all other records. In the weights, a
  cell counts :math:`e^{L}` times for each of its sets that lacks a record, and :math:`e^{-L}` times for each of its
  sets that is full. A proposal that violates some bound is rejected. Others are accepted with the ratio that `moves`
  has for queries. That ratio is 1 if each number reads one clique, because all weights then differ from the
  distribution by the same factor.
- *Two records* that agree on a separator exchange their values on one side of it. The exchange does not change the
  probability with which pair and side are chosen. It is accepted with the ratio of the records' distributions, one
  record after the other.

References
----------
Green (1995). Reversible jump Markov chain Monte Carlo computation. Biometrika 82, 711-732.
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

# Replaces a weight that underflows to 0, so that its log is finite
_LEAST = 1e-300


@njit(nogil=True, inline="always")
def _log_factor(cell, state, data, exact):
    """Return the bounded log factor, of noise and exact sums, of one more record in a cell, for its own clique."""
    total = log_noise(cell, 1, state.sums, data)
    for k in range(exact.set_starts[cell], exact.set_starts[cell + 1]):
        s = exact.sets[k]
        if state.inside[s] < exact.lowest[s]:
            total += exact.strength
        elif state.inside[s] >= exact.highest[s]:
            total -= exact.strength
    return min(max(total, -300.0), 300.0)  # the exponential is finite


@njit(nogil=True, **INNER)
def weigh_cells(cells, size, state, data, exact):
    """Update the weights of some cells: n + α, times the factor of one more record."""
    counts, shapes, weights, gain = state.counts, state.shapes, state.weights, data.gain
    for k in range(size):
        cell = cells[k]
        weights[cell] = (gain * counts[cell] + shapes[cell]) * math.exp(_log_factor(cell, state, data, exact))


@njit(nogil=True, **INNER)
def refresh(record, touched, state, data, exact):
    """Update the weights of all cells that share a measured number or a set with a record."""
    # collect the touched cells, each once; `block` marks them and is cleared at the end
    is_touched, size = state.block, 0
    starts, numbers, set_starts, sets = data.table_starts, data.table_cells, exact.set_starts, exact.sets
    for cell in record:
        if is_touched[cell] == 0:
            is_touched[cell] = 1
            touched[size] = cell
            size += 1
        # cells that share a measured number
        for t in range(starts[cell], starts[cell + 1]):
            for k in range(data.member_starts[numbers[t]], data.member_starts[numbers[t] + 1]):
                other = data.members[k]
                if is_touched[other] == 0:
                    is_touched[other] = 1
                    touched[size] = other
                    size += 1
        # cells that share a bounded set
        for t in range(set_starts[cell], set_starts[cell + 1]):
            for k in range(exact.member_starts[sets[t]], exact.member_starts[sets[t] + 1]):
                other = exact.members[k]
                if is_touched[other] == 0:
                    is_touched[other] = 1
                    touched[size] = other
                    size += 1
    for k in range(size):
        is_touched[touched[k]] = 0
    weigh_cells(touched, size, state, data, exact)


@njit(nogil=True, **INNER)
def _add(record, by, state, data, exact):
    """Add or remove a record, and return the change of the log probability of records and noise."""
    counts, shapes, wholes, gained = state.counts, state.shapes, state.wholes, 0.0
    for cell in record:
        gained += log_noise(cell, by, state.sums, data)
        # predictive probability of the cell in its row, without this record
        if by < 0:
            change(cell, by, state, data)
        here, whole = data.gain * counts[cell] + shapes[cell], wholes[data.cell_rows[cell]]
        gained += by * math.log(max(here, _LEAST) / max(whole, _LEAST))
        if by > 0:
            change(cell, by, state, data)
        for k in range(exact.set_starts[cell], exact.set_starts[cell + 1]):
            state.inside[exact.sets[k]] += by
    return gained


@njit(nogil=True, **INNER)
def _are_within(record, inside, exact):
    """Return True if the sum of every set that contains a cell of the record is within its bounds."""
    are_within = True
    for cell in record:
        for k in range(exact.set_starts[cell], exact.set_starts[cell + 1]):
            s = exact.sets[k]
            are_within &= exact.lowest[s] <= inside[s] <= exact.highest[s]
    return are_within


@njit(nogil=True, **INNER)
def add_within(record, by, state, data, exact):
    """Add or remove a record and return True; if that would violate a bound, change nothing and return False."""
    _add(record, by, state, data, exact)
    if _are_within(record, state.inside, exact):
        return True
    _add(record, -by, state, data, exact)
    return False


@njit(nogil=True, **INNER)
def exact_excess(record, state, data, exact):
    """Return the log density ratio of the noise for one more record, minus the log factors of its cells."""
    total = log_gain(record, np.full(record.size, -1), state, data)
    for cell in record:
        total -= _log_factor(cell, state, data, exact)
    return total


@njit(nogil=True, **INNER)
def visit_record(record, touched, state, data, exact, rng):
    """Move one record given all others."""
    # remove the record, and draw a proposal given all others
    _add(record, -1, state, data, exact)
    refresh(record, touched, state, data, exact)
    collect(state.weights, state.wholes, state, data)
    proposal = state.proposal
    draw_new(proposal, state, data, rng)
    # accept or reject by the exact distribution; reject if a bound would be violated
    gain = exact_excess(proposal, state, data, exact) - exact_excess(record, state, data, exact)
    is_taken = math.log(rng.random()) < gain
    if is_taken:
        _add(proposal, 1, state, data, exact)
        is_taken = _are_within(proposal, state.inside, exact) and _are_within(record, state.inside, exact)
        if not is_taken:
            _add(proposal, -1, state, data, exact)
    if is_taken:
        put(record, proposal)
    else:
        _add(record, 1, state, data, exact)
    refresh(record, touched, state, data, exact)


@njit(nogil=True, **INNER)
def exchange(turn, a, records, total, others, state, data, exact, rng):
    """Propose that two records that agree on a separator exchange their values on one side of it."""
    home, firsts, b = exact.homes[turn], state.proposal, a
    for _ in range(64):  # random records, until one agrees with `a` on the separator; the number is arbitrary
        b = int(rng.random() * total)
        if b != a and exact.shared[turn, records[a, home]] == exact.shared[turn, records[b, home]]:
            break
        b = a
    # the two records after the exchange
    is_same, is_other = True, True
    for k in range(firsts.size):
        one, two = records[a, k], records[b, k]
        move = exact.sides[turn, two] - exact.sides[turn, one]
        firsts[k] = exact.places[exact.flat[one] + move]
        others[k] = exact.places[exact.flat[two] - move]
        if firsts[k] < 0 or others[k] < 0:
            return
        is_same &= firsts[k] == one
        is_other &= firsts[k] == two
    if is_same or is_other:
        return
    # log ratio of the four records' distributions, one record after the other
    first, second = records[a], records[b]
    gain = _add(first, -1, state, data, exact) + _add(second, -1, state, data, exact)
    gain += _add(firsts, 1, state, data, exact) + _add(others, 1, state, data, exact)
    is_taken = math.log(rng.random()) < gain
    if is_taken:  # sets of the old records may violate their bounds too
        is_taken = _are_within(first, state.inside, exact) and _are_within(second, state.inside, exact)
        is_taken &= _are_within(firsts, state.inside, exact) and _are_within(others, state.inside, exact)
    if is_taken:
        put(first, firsts)
        put(second, others)
    else:
        _add(firsts, -1, state, data, exact)
        _add(others, -1, state, data, exact)
        _add(first, 1, state, data, exact)
        _add(second, 1, state, data, exact)


@njit(nogil=True, **INNER)
def fill(wanted, records, cells, state, data, exact, rng):
    """Draw initial records, each with its given cells (`wanted`) of the groups."""
    total = wanted.shape[0]
    for r in range(total):
        is_new = r == 0
        for g in range(wanted.shape[1]):
            is_new |= wanted[r, g] != wanted[r - 1, g]
        if (
            is_new or r % (1 + total // 1000) == 0
        ):  # about 1,000 passes of sums; these records are not a draw yet
            weigh_cells(cells, cells.size, state, data, exact)
            for g in range(wanted.shape[1]):
                for cell in range(cells.size):
                    if exact.codes[g, cell] >= 0 and exact.codes[g, cell] != wanted[r, g]:
                        state.weights[cell] = 0.0
            collect(state.weights, state.wholes, state, data)
        draw_new(records[r], state, data, rng)
        _add(records[r], 1, state, data, exact)


@njit(nogil=True, **INNER)
def first_records(records, total, every, state, data, rng):
    """Draw initial records sequentially, each conditional on the records drawn so far.

    The conditional distribution is updated after every `every` records. `records` has space for all records, or one
    row if only the tables are kept.
    """
    for k in range(total):
        if k % every == 0:
            log_sum(state, data)
        record = records[min(k, records.shape[0] - 1)]
        draw_new(record, state, data, rng)
        count(record, 1, state, data)


@njit(nogil=True, **INNER)
def take(records, state, data, rng):
    """Draw distinct records at random from the tables, which do not change."""
    # copy the tables, which are reduced as records are drawn without replacement
    values, totals, starts = state.values, state.totals, data.row_starts
    for row in range(totals.size):
        totals[row] = 0.0
        for cell in range(starts[row], starts[row + 1]):
            values[cell] = state.counts[cell]
            totals[row] += values[cell]
    for r in range(records.shape[0]):
        draw_record(
            records[r], values, totals, state.current, data.clique_rows, starts, data.source_starts,
            data.child_starts, data.child_rows, data.row_cliques, rng,
        )  # fmt: skip
        for cell in records[r]:
            values[cell] -= 1.0
            totals[data.cell_rows[cell]] -= 1.0


@njit(nogil=True, **INNER)
def _change(record, by, touched, state, data, exact):
    """Add or remove a record and return True; if that would violate a bound, change nothing and return False."""
    if exact is None:
        count(record, by, state, data)
        return True
    if not add_within(record, by, state, data, exact):
        return False
    refresh(record, touched, state, data, exact)
    return True


@njit(nogil=True, **INNER)
def _excess(record, state, data, exact):
    """Return the log ratio of a record's distribution to the one that proposes it."""
    if exact is not None:
        return exact_excess(record, state, data, exact)
    return 0.0 if data.is_direct else excess(record, state, data)


@njit(nogil=True, **INNER)
def move_total(moves, bounds, records, total, touched, state, data, exact, rng):
    """Try births and deaths of records between two bounds, and return the new number of records.

    `records` has all records and space for more, or one row if only the tables are kept. `exact` has the exact sums
    and their bounds, or is None. With exact sums `touched` needs space for every cell.
    """
    # a list of records limits their number by its space; tables alone do not
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
            take(records, state, data, rng)
        record = records[place]
        if not is_birth and not _change(record, -1, touched, state, data, exact):
            continue
        # log acceptance ratio of adding this record to the other ones, whose number is `fewer`
        fewer = total if is_birth else total - 1
        # the ratio does not depend on the record, which is drawn only after acceptance
        is_late = exact is None and data.is_direct and is_listed
        ratio = log_sum(state, data) if exact is None else collect(state.weights, state.wholes, state, data)
        ratio += math.log(max(fewer, 1) / (fewer + 1.0))
        if is_birth and not is_late:
            draw_new(record, state, data, rng)
        ratio += _excess(record, state, data, exact)
        # the record is in if its birth is accepted, or its death rejected
        is_in = (math.log(rng.random()) < (ratio if is_birth else -ratio)) == is_birth
        if is_in and is_birth and is_late:
            draw_new(record, state, data, rng)
        if is_in:
            is_in = _change(record, 1, touched, state, data, exact)
        if not is_in and not is_birth and is_listed:
            put(record, records[total - 1])
        total = fewer + 1 if is_in else fewer
    return total


@kept()
def sweep_exact_sums(total, moves, births, bounds, records, wanted, state, data, exact, rng):
    """Sweep records and their number once in place, keeping exact sums, and return the number of records.

    `wanted` has the cells of the groups for each initial record; it has no rows if there are records already.
    """
    state, data, exact = by_reference(state), by_reference(data), by_reference(exact)
    state.wholes[:] = 0.0
    state.block[:] = 0
    # sums of n + α of each row, then initial records if there are none
    cells = np.arange(state.weights.size)
    for cell in cells:
        state.wholes[data.cell_rows[cell]] += data.gain * state.counts[cell] + state.shapes[cell]
    fill(wanted, records, cells, state, data, exact, rng)
    weigh_cells(cells, cells.size, state, data, exact)
    # each record given all others; if there are more than `moves`, random ones
    for visit in range(min(moves, total)):
        place = visit if total <= moves else int(rng.random() * total)
        visit_record(records[place], cells, state, data, exact, rng)
    total = move_total(births, bounds, records, total, cells, state, data, exact, rng)
    # exchanges between two records, for each separator
    others = state.proposal.copy()
    for visit in range(min(moves, total)):
        for turn in range(exact.homes.size):
            a = visit if total <= moves else int(rng.random() * total)
            exchange(turn, a, records, total, others, state, data, exact, rng)
    return total
