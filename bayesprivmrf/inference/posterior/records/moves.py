r"""Records of a decomposable model given noisy tables, one record at a time and exactly, in compiled code.

Rows of the junction forest are Dirichlet(α), and integrated out. With n the tables of the other records, i(C) the
cell of clique C that x falls into, r(C) its row, of n_r records and shapes that sum to α_r, and f the density of
the noise, a record's conditional law is

.. math:: \Pr(x) ∝ \prod_C \frac{n_{i(C)} + α_{i(C)}}{n_{r(C)} + α_{r(C)}}
          \prod_m \frac{f(y_m - n_m - 1)}{f(y_m - n_m)},

the last product being over the measured cells m that x falls into (`answer_moves` has it for queries): a record is
in one row of each clique, so that the rows' predictive laws multiply. It factors along the forest: sums from the
leaves to the roots, and draws on the way back, give the record exactly (Carter and Kohn 1994). The sums are made
once for a block of some dozen records, from the tables of all records outside it. What they draw for a record of
the block is a proposal, which is accepted with the ratio of the law above to theirs: most cliques' factors cancel,
so that a visit reads a row of each clique and no more. (Sums that saw the block would choose the proposal by the
state it moves, which leaves no law in place.)

The sum Z of the right-hand side is what the number of records needs. Under :math:`p(N) ∝ 1/N` a birth, by the law
above, is accepted with probability :math:`\min(1, Z N / (N + 1))`, and a death, of any record alike, with the
inverse ratio :math:`\min(1, N / ((N - 1) Z))`, Z being that of the other records (Green 1995).

References
----------
Carter and Kohn (1994). On Gibbs sampling for state space models. Biometrika 81, 541-553.
Green (1995). Reversible jump Markov chain Monte Carlo computation. Biometrika 82, 711-732.
Ju, Awan, Gong, Rao (2022). Data augmentation MCMC for Bayesian inference from privatized data. NeurIPS.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, by_reference, kept, put
from bayesprivmrf.inference.posterior.records.answer_moves import (
    change,
    excess,
    move_by_answers,
    weigh_answers,
)
from bayesprivmrf.inference.posterior.records.shape_moves import move_shapes

_BLOCK = 40
"""Records that share one sweep of sums; an eighth of few."""


@njit(nogil=True, inline="always")
def _weigh(cell, counts, shapes, boosts, weights, gain, table_starts, table_cells):
    """Refresh the weight of one cell: n + α, times what its measured cells gain by one more record."""
    weight = gain * counts[cell] + shapes[cell]
    for k in range(table_starts[cell], table_starts[cell + 1]):
        weight *= boosts[table_cells[k]]
    weights[cell] = weight


@njit(nogil=True, inline="always")
def _boost(gap, width, is_absolute, most):
    """Density of the noise after one more record in a measured cell, over that before; `gap` is y - n."""
    gain = (abs(gap) - abs(gap - 1.0)) / width if is_absolute else (gap - 0.5) / (width * width)
    return math.exp(min(max(gain, -most), most))


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
    """Add a record to one cell, or take it out; taking the arrays out of tuples would cost more than this."""
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
    """Sums from the leaves to the roots, left in `values`; log Z."""
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
    """Draw a record's cells from the roots to the leaves."""
    for clique in range(record.size):
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
    """Sums by the tables of all records but a block, whose weights are left in `stale`."""
    cells, sums, stale = state.block, state.block_sums, state.stale
    cells[:] = 0
    sums[:] = 0
    for r in range(first, stop):
        record = records[r]
        for k in range(record.size):
            cell = record[k]
            cells[cell] += 1
            for t in range(tape.table_starts[cell], tape.table_starts[cell + 1]):
                sums[tape.table_cells[t]] += tape.table_weights[t]
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
        for k in range(record.size):
            if proposal[k] != record[k]:
                _change(
                    record[k], -1, counts, shapes, sums, boosts, weights, wholes, rows, table_starts,
                    table_cells, member_starts, members, noisy, widths, absolute, gain, most,
                )  # fmt: skip
        ratio = 1.0
        for k in range(record.size):
            old, new = record[k], proposal[k]
            if new != old:
                ratio *= (weights[new] * stale[old]) / (weights[old] * stale[new])
                ratio *= (wholes[rows[old]] * stale_wholes[rows[new]]) / (
                    wholes[rows[new]] * stale_wholes[rows[old]]
                )
        accepted = rng.random() < ratio
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
    """Draw a record by sums that `_collect` has just made."""
    draw_record(
        record, state.values, state.totals, state.current, tape.clique_rows, tape.row_starts,
        tape.source_starts, tape.child_starts, tape.child_rows, tape.row_cliques, rng,
    )  # fmt: skip


@njit(nogil=True, **INNER)
def log_sum(state, tape):
    """Log Z of the law of one more record; its sums are left for `draw_new`."""
    if not tape.is_direct:
        weigh_all(state, tape)
    return collect(state.weights, state.wholes, state, tape)


@njit(nogil=True, **INNER)
def move_total(moves, least, most, records, total, state, tape, rng):
    """Births and deaths of records under p(N) ∝ 1/N between two bounds; the new number."""
    for _ in range(moves):
        if rng.random() < 0.5:
            if total < min(most, records.shape[0]):
                ratio = log_sum(state, tape) + math.log(max(total, 1) / (total + 1.0))
                if not tape.is_direct:
                    draw_new(records[total], state, tape, rng)
                    ratio += excess(records[total], state, tape)
                if math.log(rng.random()) < ratio:
                    if tape.is_direct:
                        draw_new(records[total], state, tape, rng)
                    count(records[total], 1, state, tape)
                    total += 1
        elif total > least:
            k = int(rng.random() * total)
            count(records[k], -1, state, tape)
            ratio = math.log(total / max(total - 1.0, 1.0)) - log_sum(state, tape)
            if not tape.is_direct:
                ratio -= excess(records[k], state, tape)
            if math.log(rng.random()) < ratio:
                records[k] = records[total - 1]
                total -= 1
            else:
                count(records[k], 1, state, tape)
    return total


@njit(nogil=True, **INNER)
def draw_rows(log_rows, state, tape, rng):
    """Draw the logarithms of the rows' probabilities from Dirichlet(α + n)."""
    for row in range(tape.row_starts.size - 1):
        start, stop = tape.row_starts[row], tape.row_starts[row + 1]
        top, total = -np.inf, 0.0
        for i in range(start, stop):
            shape = state.shapes[i] + state.counts[i]
            # a Gamma(a) variable is Gamma(a + 1) times U^(1/a), of which the logarithm is finite
            log_rows[i] = math.log(rng.standard_gamma(shape + 1.0)) - rng.standard_exponential() / shape
            top = max(top, log_rows[i])
        for i in range(start, stop):
            total += math.exp(log_rows[i] - top)
        for i in range(start, stop):
            log_rows[i] -= top + math.log(total)


@kept()
def advance(total, moves, births, bounds, records, position, state, tape, prior, rng, thin, out):
    """Sweep records, their number and the rows' shapes in place, and keep every `thin`-th sweep.

    `out` holds arrays of counts, log rows, totals and positions, one draw a row. `records` has space for `births`
    more records a sweep. Returns the number of records.
    """
    state, tape, prior = by_reference(state), by_reference(tape), by_reference(prior)
    counts, rows, totals, positions = out
    weigh_all(state, tape)
    if not state.counts.any():  # the first records, one after the other, each given those before it
        for k in range(total):
            log_sum(state, tape)
            draw_new(records[k], state, tape, rng)
            count(records[k], 1, state, tape)
    for draw in range(totals.size):
        for _ in range(thin):
            move_records(moves, records, total, state, tape, rng)
            total = move_total(births, bounds[0], bounds[1], records, total, state, tape, rng)
            if position.size:
                move_shapes(position, state, tape, prior, rng)
                weigh_all(state, tape)
        draw_rows(rows[draw], state, tape, rng)
        put(counts[draw], state.counts)
        put(positions[draw], position)
        totals[draw] = total
    return total
