r"""Records given answers to queries: what one record's move changes in sums of weighted cells, compiled.

A record x adds :math:`a_m(x)` to the answer m, the sum of the weights of its cells in all cliques. Given the other
records, whose answers are s, its law is

.. math:: \Pr(x) ∝ \prod_C \frac{n_{i(C)} + α_{i(C)}}{n_{r(C)} + α_{r(C)}}
          \prod_m \frac{f(y_m - s_m - a_m(x))}{f(y_m - s_m)}

as in `moves`, where f is the density of the noise. Where each answer reads one clique, the last product is of
factors of the cliques. A pooled answer reads several, and the product of what each alone would change is another
number: good enough to propose by, as are factors bounded so that products of many stay finite. Whatever was
proposed, the law above is in the ratio that accepts it; births and deaths have the same correction.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER


@njit(nogil=True, inline="always")
def log_step(gap, by, width, is_absolute):
    """Log density of the noise after an answer grew by a number, over that before; `gap` is y - s."""
    return (abs(gap) - abs(gap - by)) / width if is_absolute else by * (gap - 0.5 * by) / (width * width)


@njit(nogil=True, inline="always")
def _log_factor(cell, sums, tape):
    """What one more record in a cell changes, by its clique alone, bounded."""
    total = 0.0
    for t in range(tape.table_starts[cell], tape.table_starts[cell + 1]):
        m = tape.table_cells[t]
        total += log_step(tape.noisy[m] - sums[m], tape.table_weights[t], tape.widths[m], tape.absolute[m])
    return min(max(total, -tape.most_nats), tape.most_nats)


@njit(nogil=True, **INNER)
def weigh_answers(counts, sums, weights, state, tape):
    """Write the weight of every cell: n + α, times what one more record changes."""
    for cell in range(weights.size):
        weights[cell] = (tape.gain * counts[cell] + state.shapes[cell]) * math.exp(
            _log_factor(cell, sums, tape)
        )


@njit(nogil=True, **INNER)
def change(cell, by, state, tape):
    """Add a record to one cell, or take it out; the weights are left as they were."""
    state.counts[cell] += by
    state.wholes[tape.cell_rows[cell]] += tape.gain * by
    for t in range(tape.table_starts[cell], tape.table_starts[cell + 1]):
        state.sums[tape.table_cells[t]] += by * tape.table_weights[t]


@njit(nogil=True, **INNER)
def _log_gain(cells, other, state, tape):
    """Log density of all answers with one more record in the cells that `other` has not, over that without."""
    moved, total = state.moved, 0.0
    for k in range(cells.size):
        if cells[k] != other[k]:
            for t in range(tape.table_starts[cells[k]], tape.table_starts[cells[k] + 1]):
                moved[tape.table_cells[t]] += tape.table_weights[t]
    for k in range(cells.size):
        if cells[k] != other[k]:
            for t in range(tape.table_starts[cells[k]], tape.table_starts[cells[k] + 1]):
                m = tape.table_cells[t]
                if moved[m] != 0:
                    total += log_step(
                        tape.noisy[m] - state.sums[m], moved[m], tape.widths[m], tape.absolute[m]
                    )
                    moved[m] = 0
    return total


@njit(nogil=True, **INNER)
def excess(record, state, tape):
    """Log of what one more record changes, over what the cliques' factors say."""
    total = _log_gain(record, np.full(record.size, -1), state, tape)
    for k in range(record.size):
        total -= _log_factor(record[k], state.sums, tape)
    return total


@njit(nogil=True, **INNER)
def move_by_answers(record, proposal, state, tape, rng):
    """Move a record to the proposal, drawn by the weights `stale`, or leave it."""
    rows, gain, stale, stale_wholes = tape.cell_rows, tape.gain, state.stale, state.stale_wholes
    for k in range(record.size):
        if proposal[k] != record[k]:
            change(record[k], -1, state, tape)
    ratio = _log_gain(proposal, record, state, tape) - _log_gain(record, proposal, state, tape)
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
