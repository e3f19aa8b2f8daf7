r"""Sweeps of whole records of a chain whose steps share one matrix of transitions, compiled.

Given the law π of the first states and the matrix P, records are independent but for what was measured, and their law

.. math:: p(x) = π(x_1) \prod_t P(x_t, x_{t+1})

factors along the windows of the chain: `moves` draws them with the weights of the cells given by π and P. A record
goes through a row of P several times, so that with P integrated out its own steps would change each other's law. So
P is not integrated out. Given the records it needs their sums alone, the first states' table F and the transitions
added up over all steps, C,

.. math:: π \sim \operatorname{Dirichlet}(α + F), \qquad P_i \sim \operatorname{Dirichlet}(α_i + C_i),

and the learned shapes α move before, with π and P integrated out (`shape_moves`): both are one draw from the law of
shapes and rows given the records.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, by_reference, kept, put
from bayesprivmrf.inference.posterior.records.births import first_records, move_total, take
from bayesprivmrf.inference.posterior.records.moves import change, log_noise, move_records, weigh_all
from bayesprivmrf.inference.posterior.records.shape_moves import draw_rows, move_shapes
from bayesprivmrf.model.tables import FloatArray, IntArray

# Exchanges of tails in a sweep, beside four a step of the chain; arbitrary
_EXCHANGES = 200
# Passes of sums for the initial records, which are no draw yet
_FIRST = 1000


class SharedTape(NamedTuple):
    """Which cells share a probability; π's cells come first, then those of P, row after row."""

    places: IntArray  # of each cell of the chain's windows, its transition
    firsts: IntArray  # of each cell of the first window, its first states
    clique_rows: IntArray
    row_starts: IntArray
    steps: IntArray  # of each transition, its cell among those of P that can be, or -1
    windows: IntArray  # the chain's cell of each step and transition
    states: int
    scales: int  # powers of two up to which pairs of records exchange at once


class SharedRows(NamedTuple):
    """π, P and what they are drawn by, of one chain; the arrays change in place."""

    shapes: FloatArray
    counts: IntArray  # F and C
    log_rows: FloatArray


@njit(nogil=True, **INNER)
def _spread_out(log_rows, state, shared):
    """Write π and P into the cells of the windows."""
    for cell in range(shared.places.size):
        state.shapes[cell] = math.exp(log_rows[shared.places[cell]])
    for cell in range(shared.firsts.size):
        state.shapes[cell] *= math.exp(log_rows[shared.firsts[cell]])


@njit(nogil=True, **INNER)
def _add_up(state, rows, shared):
    """Add up the records' tables to the sums F and C."""
    rows.counts[:] = 0
    for cell in range(shared.places.size):
        rows.counts[shared.places[cell]] += state.counts[cell]
    for cell in range(shared.firsts.size):
        rows.counts[shared.firsts[cell]] += state.counts[cell]


@njit(nogil=True, **INNER)
def _step(cell, by, state, tape):
    """Add a record to a cell, or take it out, and return the change of the log density of the noise."""
    gain = log_noise(cell, by, state.sums, tape)
    change(cell, by, state, tape)
    return gain


@njit(nogil=True, **INNER)
def _pairs(a, b, windows, counts):
    """Return how many pairs of records make two transitions at the same step."""
    total = 0.0
    for t in range(windows.shape[0]):
        total += float(counts[windows[t, a]]) * counts[windows[t, b]]
    return total


@njit(nogil=True, **INNER)
def _exchange(size, old, new, steps, state, tape, shared, rng):
    """Let pairs of records exchange what follows a step; return how many did, and the log ratio without the prior."""
    windows, counts, ratio = shared.windows, state.counts, 0.0
    for k in range(size):
        ways = _pairs(old[0], old[1], windows, counts)
        if ways == 0.0:
            return k, -np.inf
        # a step, in proportion to the pairs that can exchange there
        left, t = rng.random() * ways, -1
        while left >= 0.0 and t + 1 < windows.shape[0]:
            t += 1
            left -= float(counts[windows[t, old[0]]]) * counts[windows[t, old[1]]]
        while counts[windows[t, old[0]]] == 0 or counts[windows[t, old[1]]] == 0:  # rounding of the sum
            t -= 1
        steps[k] = t
        for i in range(2):
            ratio += _step(windows[t, old[i]], -1, state, tape)
            ratio += _step(windows[t, new[i]], 1, state, tape)
        ratio += math.log(ways / _pairs(new[0], new[1], windows, counts))
    return size, ratio


@njit(nogil=True, **INNER)
def _exchange_tails(tries, rows, state, tape, shared, rng):
    """Move sums of transitions, by many records at once, that leave every step's margins as they are."""
    windows, states = shared.windows, shared.states
    pasts = windows.shape[1] // states
    old, new, steps = np.empty(2, np.int64), np.empty(2, np.int64), np.empty(1 << shared.scales, np.int64)
    alpha, cells = rows.shapes, shared.steps
    for _ in range(tries):
        # two pasts that lead to the same one after them, two states that follow, and how many pairs exchange
        a = int(rng.random() * pasts)
        b = (a + pasts // states * (1 + int(rng.random() * (states - 1)))) % pasts
        j = int(rng.random() * states)
        k = (j + 1 + int(rng.random() * (states - 1))) % states
        size = 1 + int(rng.random() * (1 << int(rng.random() * shared.scales)))
        old[0], old[1], new[0], new[1] = a * states + k, b * states + j, a * states + j, b * states + k
        if min(cells[old[0]], cells[old[1]], cells[new[0]], cells[new[1]]) < 0:
            continue  # the end state is not left, and what can follow others can do so at every step
        if min(rows.counts[cells[old[0]]], rows.counts[cells[old[1]]]) < size:
            continue
        done, ratio = _exchange(size, old, new, steps, state, tape, shared, rng)
        # the prior, with π and P integrated out
        if done == size:
            for i in range(2):
                here, there = cells[old[i]], cells[new[i]]
                ratio += math.lgamma(alpha[here] + rows.counts[here] - size)
                ratio -= math.lgamma(alpha[here] + rows.counts[here])
                ratio += math.lgamma(alpha[there] + rows.counts[there] + size)
                ratio -= math.lgamma(alpha[there] + rows.counts[there])
        if math.log(rng.random()) < ratio:
            for i in range(2):
                rows.counts[cells[old[i]]] -= size
                rows.counts[cells[new[i]]] += size
            continue
        # refused: undo every exchange
        for n in range(done):
            for i in range(2):
                _step(windows[steps[n], old[i]], 1, state, tape)
                _step(windows[steps[n], new[i]], -1, state, tape)


@kept()
def advance_transitions(
    total, moves, births, bounds, records, position, rows, state, tape, shared, prior, rng, thin, out
):
    """Sweep records, their number, the shapes and the rows in place, and keep every `thin`-th sweep.

    `out` holds arrays of counts, log rows, totals and positions, one draw a row; `records` has space for `moves`
    records. Returns the number of records.
    """
    rows, state, tape, shared, prior = (
        by_reference(rows),
        by_reference(state),
        by_reference(tape),
        by_reference(shared),
        by_reference(prior),
    )
    counts, log_rows, totals, positions = out
    _spread_out(rows.log_rows, state, shared)
    weigh_all(state, tape)
    if not state.counts.any():
        first_records(records[:1], total, 1 + total // _FIRST, state, tape, rng)
    nothing = np.zeros(0, np.int64)
    for draw in range(totals.size):
        for _ in range(thin):
            # some records at random, given π and P
            visited = records[: min(moves, total)]
            take(visited, state, tape, rng)
            move_records(moves, visited, visited.shape[0], state, tape, rng)
            total = move_total(births, bounds, records[:1], total, nothing, state, tape, None, rng)
            # the sums, the shapes with the rows integrated out, and the rows
            _add_up(state, rows, shared)
            _exchange_tails(_EXCHANGES + 4 * shared.windows.shape[1], rows, state, tape, shared, rng)
            if position.size:
                move_shapes(position, rows, shared, prior, rng)
            draw_rows(rows.log_rows, rows, shared, rng)
            _spread_out(rows.log_rows, state, shared)
            weigh_all(state, tape)
        put(counts[draw], state.counts)
        put(log_rows[draw], rows.log_rows)
        put(positions[draw], position)
        totals[draw] = total
    return total
