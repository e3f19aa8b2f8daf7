r"""Records of a decomposable model given noisy tables, one record at a time and exactly, in compiled code.

Rows of the junction forest are Dirichlet(α), and integrated out. With n the tables of the other records, i(C) the
cell of clique C that x falls into, r(C) its row, of n_r records and shapes that sum to α_r, and f the density of
the noise, a record's conditional law is

.. math:: \Pr(x) ∝ \prod_C \frac{n_{i(C)} + α_{i(C)}}{n_{r(C)} + α_{r(C)}}
          \prod_m \frac{f(y_m - n_m - 1)}{f(y_m - n_m)},

the last product being over the measured cells m that x falls into: a record is in one row of each clique, so that
the rows' predictive distributions multiply. It factors along the forest: sums from the
leaves to the roots, and draws on the way back, give the record exactly (Carter and Kohn 1994). The sums are made
once for a block of some dozen records, from the tables of all records outside the block. A record of the block then
gets a proposal from these sums, which is accepted with the ratio of the law above to the proposal's: most cliques'
factors cancel, so that a visit reads one row of each clique. (Sums that included the block would let the proposal
depend on the state that it moves, which leaves no distribution invariant.)

**Queries.** A record x adds :math:`a_m(x)` to the answer m, the sum of the weights of its cells in all cliques, so
that its law has the factor :math:`f(y_m - s_m - a_m(x)) / f(y_m - s_m)`, with s the answers of the other records.
Where each answer reads one clique, these are factors of the cliques. A pooled answer reads several, and the product
of what each clique alone would change is another number. It is good enough to propose by, as are factors bounded so
that products of many stay finite: the ratio that accepts a proposal has the law itself.

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
from bayesprivmrf.inference.posterior.records.noise import log_step, log_step_within

# Records that share one pass of sums over the forest, or an eighth of all where they are few; arbitrary: more of
# them share its cost, and make the proposals older.
_BLOCK = 40


@njit(nogil=True, inline="always")
def _weigh(cell, counts, shapes, boosts, weights, gain, table_starts, table_cells):
    """Write the weight of one cell: n + α, times the density ratios of its measured cells at one more record."""
    weight = gain * counts[cell] + shapes[cell]
    for k in range(table_starts[cell], table_starts[cell + 1]):
        weight *= boosts[table_cells[k]]
    weights[cell] = weight


@njit(nogil=True, inline="always")
def _boost(gap, width, is_absolute, most):
    """Return the density of the noise after one more record in a measured cell, over that before; `gap` is y - n."""
    return math.exp(min(max(log_step(gap, 1.0, width, is_absolute), -most), most))


@njit(nogil=True, inline="always")
def log_noise(cell, by, sums, tape):
    """Return the log density ratio of the noise as `by` records more are in a cell, by its clique alone."""
    total = 0.0
    for t in range(tape.table_starts[cell], tape.table_starts[cell + 1]):
        m = tape.table_cells[t]
        total += log_step_within(
            tape.noisy[m] - sums[m],
            by * tape.table_weights[t],
            tape.halves[m],
            tape.widths[m],
            tape.absolute[m],
        )
    return total


@njit(nogil=True, inline="always")
def _log_factor(cell, sums, tape):
    """Return the log density ratio of one more record in a cell, by its clique alone and bounded."""
    return min(max(log_noise(cell, 1, sums, tape), -tape.most_nats), tape.most_nats)


@njit(nogil=True, **INNER)
def weigh_answers(counts, sums, weights, state, tape):
    """Write the weight of every cell, n + α times the density ratio at one more record, where numbers are answers."""
    for cell in range(weights.size):
        weights[cell] = (tape.gain * counts[cell] + state.shapes[cell]) * math.exp(
            _log_factor(cell, sums, tape)
        )


@njit(nogil=True, **INNER)
def weigh_all(state, tape):
    """Refresh every weight, and the rows' sums of n + α."""
    state.wholes[:] = 0.0
    if not tape.is_direct:
        for cell in range(state.weights.size):
            state.wholes[tape.cell_rows[cell]] += tape.gain * state.counts[cell] + state.shapes[cell]
        weigh_answers(state.counts, state.sums, state.weights, state, tape)
        return
    for m in range(state.sums.size):
        gap = tape.noisy[m] - state.sums[m]
        state.boosts[m] = _boost(gap, tape.widths[m], tape.absolute[m], tape.most_nats)
    for cell in range(state.weights.size):
        state.wholes[tape.cell_rows[cell]] += tape.gain * state.counts[cell] + state.shapes[cell]
        _weigh(
            cell, state.counts, state.shapes, state.boosts, state.weights, tape.gain, tape.table_starts,
            tape.table_cells,
        )  # fmt: skip


@njit(nogil=True, inline="always")
def _change(
    cell, by, counts, shapes, sums, boosts, weights, wholes, cell_rows, table_starts, table_cells, member_starts,
    members, noisy, widths, absolute, gain, most,
):  # fmt: skip
    """Add a record to one cell, or take it out, and refresh the weights; arrays one by one, which is faster here."""
    counts[cell] += by
    wholes[cell_rows[cell]] += gain * by
    first, last = table_starts[cell], table_starts[cell + 1]
    for t in range(first, last):
        m = table_cells[t]
        sums[m] += by
        boosts[m] = _boost(noisy[m] - sums[m], widths[m], absolute[m], most)
        for k in range(member_starts[m], member_starts[m + 1]):
            _weigh(members[k], counts, shapes, boosts, weights, gain, table_starts, table_cells)
    if first == last:
        _weigh(cell, counts, shapes, boosts, weights, gain, table_starts, table_cells)


@njit(nogil=True, **INNER)
def change(cell, by, state, tape):
    """Add a record to one cell, or take it out; the weights are not refreshed."""
    state.counts[cell] += by
    state.wholes[tape.cell_rows[cell]] += tape.gain * by
    for t in range(tape.table_starts[cell], tape.table_starts[cell + 1]):
        state.sums[tape.table_cells[t]] += by * tape.table_weights[t]


@njit(nogil=True, **INNER)
def log_gain(cells, other, state, tape):
    """Log density of all answers with one more record in the cells that `other` has not, over that without."""
    moved, total = state.moved, 0.0
    # what the record adds to each answer, of all its cells
    for k in range(cells.size):
        if cells[k] != other[k]:
            for t in range(tape.table_starts[cells[k]], tape.table_starts[cells[k] + 1]):
                moved[tape.table_cells[t]] += tape.table_weights[t]
    # the noise of each such answer, once; `moved` is cleared on the way
    for k in range(cells.size):
        if cells[k] != other[k]:
            for t in range(tape.table_starts[cells[k]], tape.table_starts[cells[k] + 1]):
                m = tape.table_cells[t]
                if moved[m] != 0:
                    total += log_step_within(
                        tape.noisy[m] - state.sums[m],
                        moved[m],
                        tape.halves[m],
                        tape.widths[m],
                        tape.absolute[m],
                    )
                    moved[m] = 0
    return total


@njit(nogil=True, **INNER)
def excess(record, state, tape):
    """Return the log density ratio of one more record, less the sum of its cells' own factors."""
    # against no cells at all: -1 is none
    total = log_gain(record, np.full(record.size, -1), state, tape)
    for k in range(record.size):
        total -= _log_factor(record[k], state.sums, tape)
    return total


@njit(nogil=True, **INNER)
def move_by_answers(record, proposal, state, tape, rng):
    """Move a record to a proposal drawn by the weights `stale`, or leave it (Metropolis-Hastings)."""
    rows, gain, stale, stale_wholes = tape.cell_rows, tape.gain, state.stale, state.stale_wholes
    for k in range(record.size):
        if proposal[k] != record[k]:
            change(record[k], -1, state, tape)
    # the law at the proposal over that at the record, times the proposal's probability of the record over its own
    ratio = log_gain(proposal, record, state, tape) - log_gain(record, proposal, state, tape)
    for k in range(record.size):
        old, new = record[k], proposal[k]
        if new != old:
            ratio += math.log((gain * state.counts[new] + state.shapes[new]) / stale[new])
            ratio -= math.log((gain * state.counts[old] + state.shapes[old]) / stale[old])
            ratio += math.log(state.wholes[rows[old]] / stale_wholes[rows[old]])
            ratio -= math.log(state.wholes[rows[new]] / stale_wholes[rows[new]])
    accepted = math.log(rng.random()) < ratio
    for k in range(record.size):
        old, new = record[k], proposal[k]
        if new != old:
            record[k] = new if accepted else old
            change(record[k], 1, state, tape)


@njit(nogil=True, **INNER)
def count(record, by, state, tape):
    """Add a record to the tables, or take it out."""
    for k in range(record.size):
        if not tape.is_direct:
            change(record[k], by, state, tape)
            continue
        _change(
            record[k], by, state.counts, state.shapes, state.sums, state.boosts, state.weights, state.wholes,
            tape.cell_rows, tape.table_starts, tape.table_cells, tape.member_starts, tape.members, tape.noisy,
            tape.widths, tape.absolute, tape.gain, tape.most_nats,
        )  # fmt: skip


@njit(nogil=True, **INNER)
def collect(weights, wholes, state, tape):
    """Sum the weights from the leaves to the roots, into `values`, and return log Z.

    The message of a row is its sum over n_r + α_r; it multiplies the parent's cells (`sources`) that lead to the row.
    """
    values, totals, messages = state.values, state.totals, state.messages
    clique_rows, row_starts, source_starts, sources = (
        tape.clique_rows,
        tape.row_starts,
        tape.source_starts,
        tape.sources,
    )
    put(values, weights)
    log_sum = 0.0
    for clique in range(clique_rows.size - 2, -1, -1):
        first, last = clique_rows[clique], clique_rows[clique + 1]
        # messages of the clique's rows, and the largest, by which all are divided against overflow
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
        # a root has one row; below it, the row is the one that the parent's cell leads to
        row = clique_rows[clique]
        if source_starts[row] < source_starts[row + 1]:
            row = current[clique]
        left = rng.random() * totals[row]
        cell = row_starts[row]
        for i in range(row_starts[row], row_starts[row + 1]):
            if values[i] > 0.0:
                cell = i
                left -= values[i]
                if left < 0.0:
                    break
        record[clique] = cell
        for k in range(child_starts[cell], child_starts[cell + 1]):
            child = child_rows[k]
            current[row_cliques[child]] = child


@njit(nogil=True, **INNER)
def _collect_outside(records, first, stop, state, tape):
    """Sum the forest by the tables of all records outside a block; their weights are left in `stale`."""
    cells, sums, stale = state.block, state.block_sums, state.stale
    cells[:] = 0
    sums[:] = 0
    # tables of the block
    for r in range(first, stop):
        record = records[r]
        for k in range(record.size):
            cell = record[k]
            cells[cell] += 1
            for t in range(tape.table_starts[cell], tape.table_starts[cell + 1]):
                sums[tape.table_cells[t]] += tape.table_weights[t]
    # tables of the other records: all less the block
    put(state.stale_wholes, state.wholes)
    for cell in range(cells.size):
        state.stale_wholes[tape.cell_rows[cell]] -= tape.gain * cells[cell]
        cells[cell] = state.counts[cell] - cells[cell]
    if not tape.is_direct:
        for m in range(sums.size):
            sums[m] = state.sums[m] - sums[m]
        weigh_answers(cells, sums, stale, state, tape)
        collect(stale, state.stale_wholes, state, tape)
        return
    for m in range(sums.size):
        gap = tape.noisy[m] - (state.sums[m] - sums[m])
        state.block_boosts[m] = _boost(gap, tape.widths[m], tape.absolute[m], tape.most_nats)
    for cell in range(cells.size):
        _weigh(
            cell, cells, state.shapes, state.block_boosts, stale, tape.gain, tape.table_starts, tape.table_cells
        )  # fmt: skip
    collect(stale, state.stale_wholes, state, tape)


@njit(nogil=True, **INNER)
def move_records(moves, records, total, state, tape, rng):
    """Visit the records, block by block: each in turn, or `moves` of them at random where there are more."""
    weights, wholes, stale, stale_wholes = state.weights, state.wholes, state.stale, state.stale_wholes
    counts, shapes, sums, boosts, proposal = (
        state.counts,
        state.shapes,
        state.sums,
        state.boosts,
        state.proposal,
    )
    values, totals, current, rows = state.values, state.totals, state.current, tape.cell_rows
    table_starts, table_cells, noisy, widths = tape.table_starts, tape.table_cells, tape.noisy, tape.widths
    member_starts, members, absolute = tape.member_starts, tape.members, tape.absolute
    clique_rows, row_starts, source_starts = tape.clique_rows, tape.row_starts, tape.source_starts
    gain, most = tape.gain, tape.most_nats
    child_starts, child_rows, row_cliques = tape.child_starts, tape.child_rows, tape.row_cliques
    size = max(min(_BLOCK, total // 8), 1)
    place, stop = 0, 0
    for visit in range(min(moves, total)):
        if place == stop:
            place = visit if total <= moves else int(rng.random() * total)
            stop = min(place + size, total)
            _collect_outside(records, place, stop, state, tape)
        record = records[place]
        place += 1
        draw_record(
            proposal, values, totals, current, clique_rows, row_starts, source_starts, child_starts, child_rows,
            row_cliques, rng,
        )  # fmt: skip
        if not tape.is_direct:
            move_by_answers(record, proposal, state, tape, rng)
            continue
        # take the record out where it would move
        for k in range(record.size):
            if proposal[k] != record[k]:
                _change(
                    record[k], -1, counts, shapes, sums, boosts, weights, wholes, rows, table_starts,
                    table_cells, member_starts, members, noisy, widths, absolute, gain, most,
                )  # fmt: skip
        # the law over the proposal's, clique by clique: those that stay cancel
        ratio = 1.0
        for k in range(record.size):
            old, new = record[k], proposal[k]
            if new != old:
                ratio *= (weights[new] * stale[old]) / (weights[old] * stale[new])
                ratio *= (wholes[rows[old]] * stale_wholes[rows[new]]) / (
                    wholes[rows[new]] * stale_wholes[rows[old]]
                )
        accepted = rng.random() < ratio
        # put it in where it goes, or back
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
def draw_new(record, state, tape, rng):
    """Draw a record by the sums that `collect` has just made."""
    draw_record(
        record, state.values, state.totals, state.current, tape.clique_rows, tape.row_starts,
        tape.source_starts, tape.child_starts, tape.child_rows, tape.row_cliques, rng,
    )  # fmt: skip


@njit(nogil=True, **INNER)
def log_sum(state, tape):
    """Return log Z of the law of one more record; its sums are left for `draw_new`."""
    if not tape.is_direct:
        weigh_all(state, tape)
    return collect(state.weights, state.wholes, state, tape)
