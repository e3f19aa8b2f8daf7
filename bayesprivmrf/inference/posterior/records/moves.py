r"""Compiled moves of single records given all others and the noisy numbers.

The rows of the junction forest are Dirichlet(α), and integrated out. Let n be the tables of the other records, i(C)
the cell of clique C that contains x, and r(C) its row, with n_r records and shapes that sum to α_r. Let f be the
density of the noise. The conditional distribution of a record is

.. math:: \Pr(x) ∝ \prod_C \frac{n_{i(C)} + α_{i(C)}}{n_{r(C)} + α_{r(C)}}
          \prod_m \frac{f(y_m - n_m - 1)}{f(y_m - n_m)},

where the last product is over the measured cells m that contain x. A record is in one row of each clique, so the
predictive distributions of the rows multiply.

This distribution factors along the forest. Sums from the leaves to the roots, and draws on the way back, give the
record exactly (Carter and Kohn 1994). The sums are computed once for a block of a few dozen records, from the tables
of all records outside the block. Each record of the block then gets a proposal from these sums, which is accepted
with the ratio of the distribution above to that of the proposal. The factors of most cliques cancel, so a visit reads
one row of each clique. (If the sums included the block, the proposal would depend on the state that it moves, and no
distribution would be invariant.)

**Queries.** A record x adds :math:`a_m(x)` to the answer m, the sum of the weights of its cells in all cliques. Its
distribution therefore has the factor :math:`f(y_m - s_m - a_m(x)) / f(y_m - s_m)`, where s are the answers of the
other records. If each answer reads one clique, these are factors of the cliques. A pooled answer reads several
cliques, and the product of the factors of its cliques is only an approximation. It is good enough for proposals, and
so are factors that are bounded so that their products are finite: the acceptance ratio has the exact distribution.

References
----------
Carter and Kohn (1994). On Gibbs sampling for state space models. Biometrika 81, 541-553.
Ju, Awan, Gong, Rao (2022). Data augmentation MCMC for Bayesian inference from privatized data. NeurIPS.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, put
from bayesprivmrf.inference.posterior.records.bounds import log_step, log_step_within


@njit(nogil=True, inline="always")
def _weigh(cell, counts, shapes, boosts, weights, gain, table_starts, table_cells):
    """Write the weight of one cell: n + α, times the factors of one more record in its measured numbers."""
    weight = gain * counts[cell] + shapes[cell]
    for k in range(table_starts[cell], table_starts[cell + 1]):
        weight *= boosts[table_cells[k]]
    weights[cell] = weight


@njit(nogil=True, inline="always")
def _boost(gap, width, is_absolute, most):
    """Return the bounded factor of one more record: the noise density after it, over that before; `gap` is y - n."""
    return math.exp(min(max(log_step(gap, 1.0, width, is_absolute), -most), most))


@njit(nogil=True, inline="always")
def log_noise(cell, by, sums, data):
    """Return the log density ratio of the noise for `by` more records in a cell, by its own clique only."""
    total = 0.0
    for t in range(data.table_starts[cell], data.table_starts[cell + 1]):
        m = data.table_cells[t]
        total += log_step_within(
            data.noisy[m] - sums[m],
            by * data.table_weights[t],
            data.halves[m],
            data.widths[m],
            data.absolute[m],
        )
    return total


@njit(nogil=True, inline="always")
def _log_factor(cell, sums, data):
    """Return the bounded log density ratio of one more record in a cell, by its own clique only."""
    return min(max(log_noise(cell, 1, sums, data), -data.most_nats), data.most_nats)


@njit(nogil=True, **INNER)
def weigh_answers(counts, sums, weights, state, data):
    """Write the weight of every cell, n + α times the density ratio of one more record, for answers to queries."""
    for cell in range(weights.size):
        weights[cell] = (data.gain * counts[cell] + state.shapes[cell]) * math.exp(
            _log_factor(cell, sums, data)
        )


@njit(nogil=True, **INNER)
def weigh_all(state, data):
    """Compute all weights, and the sum of n + α of each row."""
    state.wholes[:] = 0.0
    # answers to queries: factors of cells
    if not data.is_direct:
        for cell in range(state.weights.size):
            state.wholes[data.cell_rows[cell]] += data.gain * state.counts[cell] + state.shapes[cell]
        weigh_answers(state.counts, state.sums, state.weights, state, data)
        return
    # tables: factors of measured numbers, then the weights of cells
    for m in range(state.sums.size):
        gap = data.noisy[m] - state.sums[m]
        state.boosts[m] = _boost(gap, data.widths[m], data.absolute[m], data.most_nats)
    for cell in range(state.weights.size):
        state.wholes[data.cell_rows[cell]] += data.gain * state.counts[cell] + state.shapes[cell]
        _weigh(
            cell, state.counts, state.shapes, state.boosts, state.weights, data.gain, data.table_starts,
            data.table_cells,
        )  # fmt: skip


@njit(nogil=True, inline="always")
def _change(
    cell, by, counts, shapes, sums, boosts, weights, wholes, cell_rows, table_starts, table_cells, member_starts,
    members, noisy, widths, absolute, gain, most,
):  # fmt: skip
    """Add a record to a cell or remove it, and update the weights; separate array arguments are faster here."""
    counts[cell] += by
    wholes[cell_rows[cell]] += gain * by
    first, last = table_starts[cell], table_starts[cell + 1]
    for t in range(first, last):
        m = table_cells[t]
        sums[m] += by
        boosts[m] = _boost(noisy[m] - sums[m], widths[m], absolute[m], most)
        # all cells that this number sums have new weights
        for k in range(member_starts[m], member_starts[m + 1]):
            _weigh(members[k], counts, shapes, boosts, weights, gain, table_starts, table_cells)
    # a cell that no number measures
    if first == last:
        _weigh(cell, counts, shapes, boosts, weights, gain, table_starts, table_cells)


@njit(nogil=True, **INNER)
def change(cell, by, state, data):
    """Add a record to a cell or remove it, without an update of the weights."""
    state.counts[cell] += by
    state.wholes[data.cell_rows[cell]] += data.gain * by
    for t in range(data.table_starts[cell], data.table_starts[cell + 1]):
        state.sums[data.table_cells[t]] += by * data.table_weights[t]


@njit(nogil=True, **INNER)
def log_gain(cells, other, state, data):
    """Return the log density ratio of all answers for one more record in the cells that `other` does not have."""
    moved, total = state.moved, 0.0
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
                    total += log_step_within(
                        data.noisy[m] - state.sums[m],
                        moved[m],
                        data.halves[m],
                        data.widths[m],
                        data.absolute[m],
                    )
                    moved[m] = 0
    return total


@njit(nogil=True, **INNER)
def excess(record, state, data):
    """Return the log density ratio of one more record, minus the log factors of its cells."""
    # compared with a record without cells, whose cells are -1
    total = log_gain(record, np.full(record.size, -1), state, data)
    for k in range(record.size):
        total -= _log_factor(record[k], state.sums, data)
    return total


@njit(nogil=True, **INNER)
def move_by_answers(record, proposal, state, data, rng):
    """Move a record to a proposal that was drawn by the weights `stale`, or keep it (Metropolis-Hastings)."""
    rows, gain, stale, stale_wholes = data.cell_rows, data.gain, state.stale, state.stale_wholes
    # remove the record from the cells that it would leave
    for k in range(record.size):
        if proposal[k] != record[k]:
            change(record[k], -1, state, data)
    # ratio of the distribution at the proposal to that at the record, times the inverse ratio of the proposal density
    ratio = log_gain(proposal, record, state, data) - log_gain(record, proposal, state, data)
    for k in range(record.size):
        old, new = record[k], proposal[k]
        if new != old:
            ratio += math.log((gain * state.counts[new] + state.shapes[new]) / stale[new])
            ratio -= math.log((gain * state.counts[old] + state.shapes[old]) / stale[old])
            ratio += math.log(state.wholes[rows[old]] / stale_wholes[rows[old]])
            ratio -= math.log(state.wholes[rows[new]] / stale_wholes[rows[new]])
    accepted = math.log(rng.random()) < ratio
    # add it to the new cells, or to the old ones
    for k in range(record.size):
        old, new = record[k], proposal[k]
        if new != old:
            record[k] = new if accepted else old
            change(record[k], 1, state, data)


@njit(nogil=True, **INNER)
def count(record, by, state, data):
    """Add a record to the tables, or remove it."""
    for k in range(record.size):
        if not data.is_direct:
            change(record[k], by, state, data)
            continue
        _change(
            record[k], by, state.counts, state.shapes, state.sums, state.boosts, state.weights, state.wholes,
            data.cell_rows, data.table_starts, data.table_cells, data.member_starts, data.members, data.noisy,
            data.widths, data.absolute, data.gain, data.most_nats,
        )  # fmt: skip


@njit(nogil=True, **INNER)
def collect(weights, wholes, state, data):
    """Sum the weights from the leaves to the roots into `values`, and return log Z.

    The message of a row is its sum divided by n_r + α_r; it multiplies the parent's cells (`sources`) of the row.
    """
    values, totals, messages = state.values, state.totals, state.messages
    clique_rows, row_starts, source_starts, sources = (
        data.clique_rows,
        data.row_starts,
        data.source_starts,
        data.sources,
    )
    put(values, weights)
    log_sum = 0.0
    for clique in range(clique_rows.size - 2, -1, -1):
        first, last = clique_rows[clique], clique_rows[clique + 1]
        # messages of the clique's rows; all are divided by the largest, against overflow
        top = 0.0
        for row in range(first, last):
            total = 0.0
            for i in range(row_starts[row], row_starts[row + 1]):
                total += values[i]
            totals[row] = total
            messages[row] = total / wholes[row]
            top = max(top, messages[row])
        log_sum += math.log(top)
        for row in range(first, last):
            share = messages[row] / top
            for k in range(source_starts[row], source_starts[row + 1]):
                values[sources[k]] *= share
    return log_sum


@njit(nogil=True, inline="always")
def draw_record(
    record, values, totals, current, clique_rows, row_starts, source_starts, child_starts, child_rows, row_cliques,
    rng,
):  # fmt: skip
    """Draw a record's cells from the roots to the leaves, in proportion to `values` within each row."""
    for clique in range(record.size):
        # a root has one row; in another clique the parent's cell determines the row
        row = clique_rows[clique]
        if source_starts[row] < source_starts[row + 1]:
            row = current[clique]
        # draw a cell of the row in proportion to its value
        left = rng.random() * totals[row]
        cell = row_starts[row]
        for i in range(row_starts[row], row_starts[row + 1]):
            if values[i] > 0.0:
                cell = i
                left -= values[i]
                if left < 0.0:
                    break
        record[clique] = cell
        # this cell determines the rows of the child cliques
        for k in range(child_starts[cell], child_starts[cell + 1]):
            child = child_rows[k]
            current[row_cliques[child]] = child


@njit(nogil=True, **INNER)
def _collect_outside(records, first, stop, state, data):
    """Compute the sums over the forest from all records outside a block; their weights are in `stale` afterwards."""
    cells, sums, stale = state.block, state.block_sums, state.stale
    cells[:] = 0
    sums[:] = 0
    # tables of the block
    for r in range(first, stop):
        record = records[r]
        for k in range(record.size):
            cell = record[k]
            cells[cell] += 1
            for t in range(data.table_starts[cell], data.table_starts[cell + 1]):
                sums[data.table_cells[t]] += data.table_weights[t]
    # tables of the other records: all records minus the block
    put(state.stale_wholes, state.wholes)
    for cell in range(cells.size):
        state.stale_wholes[data.cell_rows[cell]] -= data.gain * cells[cell]
        cells[cell] = state.counts[cell] - cells[cell]
    if not data.is_direct:
        for m in range(sums.size):
            sums[m] = state.sums[m] - sums[m]
        weigh_answers(cells, sums, stale, state, data)
        collect(stale, state.stale_wholes, state, data)
        return
    for m in range(sums.size):
        gap = data.noisy[m] - (state.sums[m] - sums[m])
        state.block_boosts[m] = _boost(gap, data.widths[m], data.absolute[m], data.most_nats)
    for cell in range(cells.size):
        _weigh(
            cell, cells, state.shapes, state.block_boosts, stale, data.gain, data.table_starts, data.table_cells
        )  # fmt: skip
    collect(stale, state.stale_wholes, state, data)


@njit(nogil=True, **INNER)
def move_records(moves, records, total, state, data, rng):
    """Visit the records block by block: each of them in turn, or random ones if there are more than `moves`."""
    weights, wholes, stale, stale_wholes = state.weights, state.wholes, state.stale, state.stale_wholes
    counts, shapes, sums, boosts, proposal = (
        state.counts,
        state.shapes,
        state.sums,
        state.boosts,
        state.proposal,
    )
    values, totals, current, rows = state.values, state.totals, state.current, data.cell_rows
    table_starts, table_cells, noisy, widths = data.table_starts, data.table_cells, data.noisy, data.widths
    member_starts, members, absolute = data.member_starts, data.members, data.absolute
    clique_rows, row_starts, source_starts = data.clique_rows, data.row_starts, data.source_starts
    gain, most = data.gain, data.most_nats
    child_starts, child_rows, row_cliques = data.child_starts, data.child_rows, data.row_cliques
    # up to 40 records share one pass of sums; arbitrary: larger blocks share its cost and make proposals older
    size = max(min(40, total // 8), 1)
    place, stop = 0, 0
    for visit in range(min(moves, total)):
        if place == stop:
            place = visit if total <= moves else int(rng.random() * total)
            stop = min(place + size, total)
            _collect_outside(records, place, stop, state, data)
        record = records[place]
        place += 1
        draw_record(
            proposal, values, totals, current, clique_rows, row_starts, source_starts, child_starts, child_rows,
            row_cliques, rng,
        )  # fmt: skip
        if not data.is_direct:
            move_by_answers(record, proposal, state, data, rng)
            continue
        # remove the record from the cells that it would leave
        for k in range(record.size):
            if proposal[k] != record[k]:
                _change(
                    record[k], -1, counts, shapes, sums, boosts, weights, wholes, rows, table_starts,
                    table_cells, member_starts, members, noisy, widths, absolute, gain, most,
                )  # fmt: skip
        # acceptance ratio, clique by clique; cliques whose cell does not change cancel
        ratio = 1.0
        for k in range(record.size):
            old, new = record[k], proposal[k]
            if new != old:
                ratio *= (weights[new] * stale[old]) / (weights[old] * stale[new])
                ratio *= (wholes[rows[old]] * stale_wholes[rows[new]]) / (
                    wholes[rows[new]] * stale_wholes[rows[old]]
                )
        accepted = rng.random() < ratio
        # add the record to its new cells, or to the old ones if the proposal is rejected
        for k in range(record.size):
            old, new = record[k], proposal[k]
            if new != old:
                kept = new if accepted else old
                record[k] = kept
                _change(
                    kept, 1, counts, shapes, sums, boosts, weights, wholes, rows, table_starts, table_cells,
                    member_starts, members, noisy, widths, absolute, gain, most,
                )  # fmt: skip


@njit(nogil=True, **INNER)
def draw_new(record, state, data, rng):
    """Draw a record from the sums that `collect` has just computed."""
    draw_record(
        record, state.values, state.totals, state.current, data.clique_rows, data.row_starts,
        data.source_starts, data.child_starts, data.child_rows, data.row_cliques, rng,
    )  # fmt: skip


@njit(nogil=True, **INNER)
def log_sum(state, data):
    """Return log Z of the distribution of one more record, and prepare the sums for `draw_new`."""
    if not data.is_direct:
        weigh_all(state, data)
    return collect(state.weights, state.wholes, state, data)
