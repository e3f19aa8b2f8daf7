r"""Compiled sweeps of whole records of a Markov chain with shared transitions.

Given the distribution π of the first states and the transition matrix P, records are independent except through the
measurements. Their distribution

.. math:: p(x) = π(x_1) \prod_t P(x_t, x_{t+1})

factors along the windows of the chain, so `moves` draws them with cell weights that follow from π and P. A record
passes a row of P several times. If P were integrated out, each of its steps would change the distribution of the
others; therefore P is not integrated out. Given the records, P depends only on their sums: the table F of the first
states, and the transitions C added up over all steps,

.. math:: π \sim \operatorname{Dirichlet}(α + F), \qquad P_i \sim \operatorname{Dirichlet}(α_i + C_i).

The learned shapes α move first, with π and P integrated out (`shape_moves`). Together this is one draw from the
distribution of shapes and rows given the records.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, by_reference, kept, put
from bayesprivmrf.inference.posterior.records.births import first_records, move_total, take
from bayesprivmrf.inference.posterior.records.moves import move_records, step, sum_rows
from bayesprivmrf.inference.posterior.records.shape_moves import draw_rows, move_shapes
from bayesprivmrf.model.tables import FloatArray, IntArray


class SharedData(NamedTuple):
    """Constant arrays that map cells to shared probabilities: the cells of π, then those of P, row after row."""

    places: IntArray  # transition of each cell of the chain's windows
    firsts: IntArray  # first states of each cell of the first window
    clique_rows: IntArray
    row_starts: IntArray
    steps: IntArray  # cell of each transition among the possible ones of P, or -1
    windows: IntArray  # cell of the chain for each step and transition
    states: int
    scales: int  # number of powers of two for the pairs of records that exchange at once


class SharedRows(NamedTuple):
    """Rows π and P of one chain, with their shapes and sums; the arrays change in place."""

    shapes: FloatArray
    counts: IntArray  # F and C
    log_rows: FloatArray  # log π and log P


@njit(nogil=True, **INNER)
def _spread_out(log_rows, state, shared):
    """Write the probabilities of π and P to the cells of the windows."""
    for cell in range(shared.places.size):
        state.shapes[cell] = math.exp(log_rows[shared.places[cell]])
    for cell in range(shared.firsts.size):
        state.shapes[cell] *= math.exp(log_rows[shared.firsts[cell]])


@njit(nogil=True, **INNER)
def _add_up(state, rows, shared):
    """Add up the tables of the records to the sums F and C."""
    rows.counts[:] = 0
    for cell in range(shared.places.size):
        rows.counts[shared.places[cell]] += state.counts[cell]
    for cell in range(shared.firsts.size):
        rows.counts[shared.firsts[cell]] += state.counts[cell]


@njit(nogil=True, **INNER)
def _pairs(a, b, windows, counts):
    """Return the number of pairs of records that make two given transitions at the same step."""
    total = 0.0
    for t in range(windows.shape[0]):
        total += float(counts[windows[t, a]]) * counts[windows[t, b]]
    return total


@njit(nogil=True, **INNER)
def _exchange(size, old, new, steps, state, data, shared, rng):
    """Let pairs of records exchange their states after a step.

    Return the number of pairs that did, and the log acceptance ratio without the prior.
    """
    windows, counts, ratio = shared.windows, state.counts, 0.0
    for k in range(size):
        ways = _pairs(old[0], old[1], windows, counts)
        if ways == 0.0:
            return k, -np.inf
        # draw a step, with probability proportional to the number of pairs that can exchange there
        left, t = rng.random() * ways, -1
        while left >= 0.0 and t + 1 < windows.shape[0]:
            t += 1
            left -= float(counts[windows[t, old[0]]]) * counts[windows[t, old[1]]]
        while counts[windows[t, old[0]]] == 0 or counts[windows[t, old[1]]] == 0:  # rounding of the sum
            t -= 1
        steps[k] = t
        # both records take the other's transition; the reverse move has other numbers of pairs
        for i in range(2):
            ratio += step(windows[t, old[i]], -1, state, data)
            ratio += step(windows[t, new[i]], 1, state, data)
        ratio += math.log(ways / _pairs(new[0], new[1], windows, counts))
    return size, ratio


@njit(nogil=True, **INNER)
def _exchange_tails(tries, rows, state, data, shared, rng):
    """Move the sums C by exchanges between many records at once, which keep the margins of every step."""
    windows, states = shared.windows, shared.states
    pasts = windows.shape[1] // states
    old, new, steps = np.empty(2, np.int64), np.empty(2, np.int64), np.empty(1 << shared.scales, np.int64)
    alpha, cells = rows.shapes, shared.steps
    for _ in range(tries):
        # draw two pasts with the same last states, two states that follow them, and a number of pairs
        a = int(rng.random() * pasts)
        b = (a + pasts // states * (1 + int(rng.random() * (states - 1)))) % pasts
        j = int(rng.random() * states)
        k = (j + 1 + int(rng.random() * (states - 1))) % states
        size = 1 + int(rng.random() * (1 << int(rng.random() * shared.scales)))
        old[0], old[1], new[0], new[1] = a * states + k, b * states + j, a * states + j, b * states + k
        if min(cells[old[0]], cells[old[1]], cells[new[0]], cells[new[1]]) < 0:
            continue  # nobody leaves the end state; other transitions are possible at every step
        if min(rows.counts[cells[old[0]]], rows.counts[cells[old[1]]]) < size:
            continue
        done, ratio = _exchange(size, old, new, steps, state, data, shared, rng)
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
        # rejected: undo every exchange
        for n in range(done):
            for i in range(2):
                step(windows[steps[n], old[i]], 1, state, data)
                step(windows[steps[n], new[i]], -1, state, data)


@kept()
def advance_transitions(
    total, moves, births, bounds, wanted, records, position, rows, state, data, shared, prior, rng, thin, out
):
    """Sweep records, their number, the shapes and the rows in place, and store every `thin`-th sweep.

    `out` has arrays of counts, log rows, totals and positions, one draw per row. `records` has space for `moves`
    records. Return the number of records.
    """
    rows, state, data, shared, prior = (
        by_reference(rows),
        by_reference(state),
        by_reference(data),
        by_reference(shared),
        by_reference(prior),
    )
    counts, log_rows, totals, positions = out
    _spread_out(rows.log_rows, state, shared)
    sum_rows(state, data)
    if not state.counts.any():
        first_records(wanted, records[:1], total, state, data, rng)
    for draw in range(totals.size):
        for _ in range(thin):
            # random records given π and P
            visited = records[: min(moves, total)]
            take(visited, state, data, rng)
            move_records(moves, visited, visited.shape[0], state, data, rng)
            total = move_total(births, bounds, records[:1], total, state, data, rng)
            # the sums, then the shapes with the rows integrated out, then the rows; the number of exchanges is
            # arbitrary
            _add_up(state, rows, shared)
            _exchange_tails(200 + 4 * shared.windows.shape[1], rows, state, data, shared, rng)
            if position.size:
                move_shapes(position, rows, shared, prior, rng)
            draw_rows(rows.log_rows, rows, shared, rng)
            _spread_out(rows.log_rows, state, shared)
            sum_rows(state, data)
        put(counts[draw], state.counts)
        put(log_rows[draw], rows.log_rows)
        put(positions[draw], position)
        totals[draw] = total
    return total
