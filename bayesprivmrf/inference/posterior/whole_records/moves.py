r"""Compiled moves of whole records given the noisy numbers: one record, or two that exchange values.

The rows of the junction forest are Dirichlet(α), and integrated out. Let n be the tables of the other records, i(C)
the cell of clique C that contains x, and r(C) its row, with n_r records and shapes that sum to α_r. Let f be the
density of the noise. The conditional distribution of a record is

.. math:: \Pr(x) ∝ \prod_C \frac{n_{i(C)} + α_{i(C)}}{n_{r(C)} + α_{r(C)}}
          \prod_m \frac{f(y_m - s_m - a_m(x))}{f(y_m - s_m)},

where s are the measured sums of the other records, and :math:`a_m(x)` is what the record adds to them. A record is in
one row of each clique, so the predictive distributions of the rows multiply. If the parameters are given, n is
replaced by 0 and α by probabilities.

**One record.** If each number reads one clique, this distribution factors along the forest. Sums from the leaves to
the roots, and draws on the way back, give the record exactly (Carter and Kohn 1994). The sums are computed once for a
block of a few dozen records, from the tables of all records outside the block. Each record of the block then gets a
proposal from these sums, which is accepted with the ratio of the distribution above to that of the proposal. (If the
sums included the block, the proposal would depend on the state that it moves, and no distribution would be
invariant.) Numbers that read several cliques, and bounds of the factors that keep products finite, make the sums
approximate. The acceptance ratio has the exact distribution.

**Exact and bounded sums** (`exact_sums`) are measured numbers without noise: f is 1 within the bounds, and
:math:`e^{-10^9}` outside. A record that leaves an exact sum must return to it, so blocks have one record, and the
weight of a cell has the factor :math:`e^{30}` for each sum that lacks a record, and :math:`e^{-30}` for each that is
full. Two records that agree on a separator also exchange their values on one side of it. The exchange does not change
the probability with which pair and side are chosen. It is accepted with the ratio of the records' distributions, one
record after the other.

References
----------
Carter and Kohn (1994). On Gibbs sampling for state space models. Biometrika 81, 541-553.
Ju, Awan, Gong, Rao (2022). Data augmentation MCMC for Bayesian inference from privatized data. NeurIPS.
"""

from __future__ import annotations

import math

from numba import njit

from bayesprivmrf.compiled import INNER, put
from bayesprivmrf.inference.posterior.whole_records.bounds import log_step_of

# Replaces a weight that underflows to 0, so that its log is finite
_LEAST = 1e-300
# Bound of the log factor of a number in the weight of a cell; probabilities of e^-30 do not matter for proposals
_MOST_OF_NUMBER = 30.0
# Bound of the log factor of a cell, so that its exponential, and the square of that, are finite
_MOST_OF_CELL = 300.0


# weights of the cells


@njit(nogil=True, inline="always")
def log_noise(cell, by, sums, data):
    """Return the log density ratio of the noise for `by` more records in a cell, by its own clique only."""
    total = 0.0
    for t in range(data.table_starts[cell], data.table_starts[cell + 1]):
        m = data.table_cells[t]
        more = by * data.table_weights[t]
        total += log_step_of(m, sums[m], more, data)
    return total


@njit(nogil=True, **INNER)
def log_factor(cell, sums, data):
    """Return `log_noise` of one more record, with bounds for each number and for the cell."""
    total = 0.0
    for t in range(data.table_starts[cell], data.table_starts[cell + 1]):
        m = data.table_cells[t]
        more = data.table_weights[t]
        step = log_step_of(m, sums[m], more, data)
        total += min(max(step, -_MOST_OF_NUMBER), _MOST_OF_NUMBER)
    return min(max(total, -_MOST_OF_CELL), _MOST_OF_CELL)


@njit(nogil=True, **INNER)
def _weigh(cell, state, data):
    """Write the weight of one cell: n + α, times the factor of one more record."""
    weight = data.gain * state.counts[cell] + state.shapes[cell]
    state.weights[cell] = weight * math.exp(log_factor(cell, state.sums, data))


@njit(nogil=True, **INNER)
def weigh_all(state, data):
    """Compute all weights."""
    for cell in range(state.weights.size):
        _weigh(cell, state, data)


@njit(nogil=True, **INNER)
def refresh(record, state, data):
    """Update the weights of a record's cells, and of all cells that share a measured number with one of them."""
    for cell in record:
        _weigh(cell, state, data)
        for t in range(data.table_starts[cell], data.table_starts[cell + 1]):
            m = data.table_cells[t]
            for k in range(data.member_starts[m], data.member_starts[m + 1]):
                _weigh(data.members[k], state, data)


@njit(nogil=True, **INNER)
def sum_rows(state, data):
    """Compute the sum of n + α of each row."""
    state.wholes[:] = 0.0
    for cell in range(state.counts.size):
        state.wholes[data.cell_rows[cell]] += data.gain * state.counts[cell] + state.shapes[cell]


# changes of the tables


@njit(nogil=True, **INNER)
def change(cell, by, state, data):
    """Add records to a cell or remove them, without an update of the weights."""
    state.counts[cell] += by
    state.wholes[data.cell_rows[cell]] += data.gain * by
    for t in range(data.table_starts[cell], data.table_starts[cell + 1]):
        state.sums[data.table_cells[t]] += by * data.table_weights[t]


@njit(nogil=True, **INNER)
def step(cell, by, state, data):
    """Add records to a cell or remove them, and return the change of the log density of the noise."""
    gained = log_noise(cell, by, state.sums, data)
    change(cell, by, state, data)
    return gained


@njit(nogil=True, **INNER)
def count(record, by, state, data):
    """Add a record to the tables, or remove it."""
    for cell in record:
        change(cell, by, state, data)


@njit(nogil=True, **INNER)
def _add(record, by, state, data):
    """Add a record or remove it, and return the change of the log probability of records and noise."""
    gained = 0.0
    for cell in record:
        if by < 0:
            gained += step(cell, by, state, data)
        # predictive probability of the cell in its row, without this record
        here = data.gain * state.counts[cell] + state.shapes[cell]
        gained += by * math.log(max(here, _LEAST) / max(state.wholes[data.cell_rows[cell]], _LEAST))
        if by > 0:
            gained += step(cell, by, state, data)
    return gained


@njit(nogil=True, **INNER)
def log_gain(cells, other, state, data):
    """Return the log density ratio of all answers for one more record in the cells that `other` does not have."""
    moved = state.moved
    total = 0.0
    # the total that the record's cells add to each answer
    for k in range(cells.size):
        if cells[k] != other[k]:
            for t in range(data.table_starts[cells[k]], data.table_starts[cells[k] + 1]):
                moved[data.table_cells[t]] += data.table_weights[t]
    # the change of each such answer, counted once; `moved` is cleared meanwhile
    for k in range(cells.size):
        if cells[k] != other[k]:
            for t in range(data.table_starts[cells[k]], data.table_starts[cells[k] + 1]):
                m = data.table_cells[t]
                if moved[m] != 0:
                    total += log_step_of(m, state.sums[m], moved[m], data)
                    moved[m] = 0
    return total


# draws along the forest


@njit(nogil=True, **INNER)
def collect(state, data):
    """Sum the weights from the leaves to the roots into `values`, and return log Z.

    The message of a row is its sum divided by n_r + α_r; it multiplies the parent's cells (`sources`) of the row.
    """
    values = state.values
    totals = state.totals
    messages = state.messages
    row_starts = data.row_starts
    source_starts = data.source_starts
    sources = data.sources
    put(values, state.weights)
    log_sum = 0.0
    for clique in range(data.clique_rows.size - 2, -1, -1):
        first = data.clique_rows[clique]
        last = data.clique_rows[clique + 1]
        # messages of the clique's rows; all are divided by the largest, against overflow
        top = 0.0
        for row in range(first, last):
            total = 0.0
            for i in range(row_starts[row], row_starts[row + 1]):
                total += values[i]
            totals[row] = total
            messages[row] = total / state.wholes[row]
            top = max(top, messages[row])
        log_sum += math.log(top)
        for row in range(first, last):
            share = messages[row] / top
            for k in range(source_starts[row], source_starts[row + 1]):
                values[sources[k]] *= share
    return log_sum


@njit(nogil=True, **INNER)
def draw_record(record, state, data, rng):
    """Draw a record's cells from the roots to the leaves, in proportion to `state.values` within each row."""
    values = state.values
    row_starts = data.row_starts
    current = state.current
    for clique in range(record.size):
        # a root has one row; in another clique the parent's cell determines the row
        row = data.clique_rows[clique]
        if data.source_starts[row] < data.source_starts[row + 1]:
            row = current[clique]
        # draw a cell of the row in proportion to its value
        left = rng.random() * state.totals[row]
        cell = row_starts[row]
        for i in range(row_starts[row], row_starts[row + 1]):
            if values[i] > 0.0:
                cell = i
                left -= values[i]
                if left < 0.0:
                    break
        record[clique] = cell
        # this cell determines the rows of the child cliques
        for k in range(data.child_starts[cell], data.child_starts[cell + 1]):
            child = data.child_rows[k]
            current[data.row_cliques[child]] = child


# moves


@njit(nogil=True, **INNER)
def move_records(moves, records, total, state, data, rng):
    """Visit the records block by block: each of them in turn, or random ones if there are more than `moves`."""
    proposal = state.proposal
    stale = state.weights
    stale_wholes = state.stale_wholes
    rows = data.cell_rows
    gain = data.gain
    size = max(min(data.block, total // 8), 1)
    place = 0
    stop = 0
    for visit in range(min(moves, total)):
        if place == stop:
            if total <= moves:
                place = visit
            else:
                place = int(rng.random() * total)
            stop = min(place + size, total)
            # sums over the forest, from all records outside the block
            for r in range(place, stop):
                count(records[r], -1, state, data)
            if data.block == 1 and visit:
                refresh(records[place], state, data)
            else:
                weigh_all(state, data)
            collect(state, data)
            put(stale_wholes, state.wholes)
            for r in range(place, stop):
                count(records[r], 1, state, data)
        record = records[place]
        place += 1
        draw_record(proposal, state, data, rng)
        # remove the record from the cells that it would leave
        for k in range(record.size):
            if proposal[k] != record[k]:
                change(record[k], -1, state, data)
        # ratio of the distribution at the proposal to that at the record, times the inverse ratio of the proposal
        # density; cliques whose cell does not change cancel
        ratio = log_gain(proposal, record, state, data) - log_gain(record, proposal, state, data)
        for k in range(record.size):
            old = record[k]
            new = proposal[k]
            if new != old:
                here = rows[old]
                there = rows[new]
                share = (gain * state.counts[new] + state.shapes[new]) / stale[new]
                share *= stale[old] / (gain * state.counts[old] + state.shapes[old])
                share *= (state.wholes[here] / stale_wholes[here]) * (
                    stale_wholes[there] / state.wholes[there]
                )
                ratio += math.log(share)
        is_accepted = math.log(rng.random()) < ratio
        # add the record to its new cells, or to the old ones if the proposal is rejected
        for k in range(record.size):
            if proposal[k] != record[k]:
                if is_accepted:
                    record[k] = proposal[k]
                change(record[k], 1, state, data)
        if data.block == 1:
            refresh(record, state, data)
    # exchanges between two records, for each separator of tables with exact sums
    for visit in range(min(moves, total)):
        for turn in range(data.homes.size):
            _exchange(
                turn,
                visit if total <= moves else int(rng.random() * total),
                records,
                total,
                state,
                data,
                rng,
            )


@njit(nogil=True, **INNER)
def _exchange(turn, a, records, total, state, data, rng):
    """Propose that two records that agree on a separator exchange their values on one side of it."""
    home = data.homes[turn]
    b = a
    # random records, until one agrees with `a` on the separator; the number is arbitrary
    for _ in range(64):
        b = int(rng.random() * total)
        if b != a and data.shared[turn, records[a, home]] == data.shared[turn, records[b, home]]:
            break
        b = a
    # the two records after the exchange
    first = records[a]
    second = records[b]
    firsts = state.proposal
    seconds = state.current
    is_same = True
    is_other = True
    for k in range(firsts.size):
        move = data.sides[turn, second[k]] - data.sides[turn, first[k]]
        firsts[k] = data.places[data.flat[first[k]] + move]
        seconds[k] = data.places[data.flat[second[k]] - move]
        if firsts[k] < 0 or seconds[k] < 0:
            return
        is_same &= firsts[k] == first[k]
        is_other &= firsts[k] == second[k]
    if is_same or is_other:
        return
    # log ratio of the four records' distributions, one record after the other
    gain = _add(first, -1, state, data) + _add(second, -1, state, data)
    gain += _add(firsts, 1, state, data) + _add(seconds, 1, state, data)
    if math.log(rng.random()) < gain:
        put(first, firsts)
        put(second, seconds)
    else:
        count(firsts, -1, state, data)
        count(seconds, -1, state, data)
        count(first, 1, state, data)
        count(second, 1, state, data)
