"""Compiled sweeps of loopy belief propagation, in the log domain.

Messages are kept with maximum zero. A message's zeros (minus infinity) are counted apart from its finite
entries, so that what a variable tells a factor is never a difference of infinities.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.compiled import kept

# error_model: a division by zero gives infinity, as in NumPy, and is not tested for
OPTIONS = {"nogil": True, "error_model": "numpy"}


@njit(**OPTIONS)
def _totals(edges, cards, var_at, messages, finite, zeros):
    """Sums of the messages into each variable: the finite entries, and the number of zeros."""
    finite[:] = 0.0
    zeros[:] = 0
    for e in range(edges.shape[0]):
        v, at = edges[e, 0], edges[e, 2]
        for x in range(cards[v]):
            m = messages[at + x]
            if m == -np.inf:
                zeros[var_at[v] + x] += 1
            else:
                finite[var_at[v] + x] += m


@njit(**OPTIONS)
def _incoming(edges, first, last, cards, var_at, messages, finite, zeros, incoming):
    """What a factor's variables tell it: everything they hear, less what it told them itself."""
    # formula: what v tells the factor is Σ over the other factors of v, its own message taken out
    start = 0
    for e in range(first, last):
        v, at = edges[e, 0], edges[e, 2]
        top = -np.inf
        for x in range(cards[v]):
            own = messages[at + x]
            blocked = zeros[var_at[v] + x] - (1 if own == -np.inf else 0)
            value = -np.inf
            if blocked == 0:
                value = finite[var_at[v] + x] - (0.0 if own == -np.inf else own)
            incoming[start + x] = value
            top = max(top, value)
        # maximum zero
        if top > -np.inf:
            for x in range(cards[v]):
                incoming[start + x] -= top
        start += cards[v]


@njit(**OPTIONS)
def _term(edges, first, last, cards, incoming, cell, skip):
    """Σ of the incoming messages at a cell, all but one edge's."""
    total, start = 0.0, 0
    for e in range(first, last):
        k = cards[edges[e, 0]]
        if e != skip:
            total += incoming[start + (cell // edges[e, 1]) % k]
        start += k
    return total


@kept(error_model="numpy")
def sweep(theta, offsets, starts, edges, cards, var_at, messages, finite, zeros, room, damping, forward):
    """Update every message once, in place; return the largest change of a message, infinite where all is zero.

    `room` holds the incoming messages and two vectors of states.
    """
    # sums of all messages into each variable, kept up to date below
    _totals(edges, cards, var_at, messages, finite, zeros)
    incoming, tops, sums = room[0], room[1], room[2]
    residual = 0.0
    factors = starts.size - 1
    for i in range(factors):
        f = i if forward else factors - 1 - i
        # what the variables of the factor tell it
        first, last = starts[f], starts[f + 1]
        _incoming(edges, first, last, cards, var_at, messages, finite, zeros, incoming)
        for e in range(first, last):
            v, stride, at = edges[e, 0], edges[e, 1], edges[e, 2]
            k = cards[v]
            # formula: m_fv(x) = log Σ_{x_f with x_v = x} exp(θ_f + Σ_{w ≠ v} incoming_w), by running maxima
            tops[:k] = -np.inf
            sums[:k] = 0.0
            for c in range(offsets[f], offsets[f + 1]):
                cell = c - offsets[f]
                x = (cell // stride) % k
                value = theta[c] + _term(edges, first, last, cards, incoming, cell, e)
                if value > tops[x]:
                    sums[x] = sums[x] * math.exp(tops[x] - value) + 1.0
                    tops[x] = value
                elif value > -np.inf:
                    sums[x] += math.exp(value - tops[x])
            # the logarithms, and their maximum
            best = -np.inf
            for x in range(k):
                if sums[x] > 0.0:
                    tops[x] += math.log(sums[x])
                best = max(best, tops[x])
            if best == -np.inf:
                return np.inf
            mixed = -np.inf
            for x in range(k):
                new, old = tops[x] - best, messages[at + x]
                # damping mixes the logarithms where both messages are finite
                if damping > 0.0 and old > -np.inf and new > -np.inf:
                    new = (1.0 - damping) * new + damping * old
                tops[x] = new
                mixed = max(mixed, new)
            # store the message with maximum zero, and note how far it moved
            for x in range(k):
                new, old = tops[x] - mixed, messages[at + x]
                residual = max(residual, abs(math.exp(new) - math.exp(old)))
                if old > -np.inf:
                    finite[var_at[v] + x] -= old
                else:
                    zeros[var_at[v] + x] -= 1
                if new > -np.inf:
                    finite[var_at[v] + x] += new
                else:
                    zeros[var_at[v] + x] += 1
                messages[at + x] = new
    return residual


@njit(**OPTIONS)
def _log_sum(values):
    top = values.max()
    if top == -np.inf:
        return top
    total = 0.0
    for x in values:
        total += math.exp(x - top)
    return top + math.log(total)


@kept(error_model="numpy")
def finish(theta, offsets, starts, edges, cards, var_at, messages, finite, zeros, room, mu):
    """Factors' beliefs into `mu`; return Bethe's A, Σ log Z_f + Σ log Z_v - Σ log Z_fv.

    The shifts of the messages cancel between the three sums.
    """
    _totals(edges, cards, var_at, messages, finite, zeros)
    incoming, pair = room[0], room[1]
    total = 0.0
    for f in range(starts.size - 1):
        # log Z_f and the belief of each factor
        first, last = starts[f], starts[f + 1]
        _incoming(edges, first, last, cards, var_at, messages, finite, zeros, incoming)
        cells = mu[offsets[f] : offsets[f + 1]]
        for c in range(cells.size):
            cells[c] = theta[offsets[f] + c] + _term(edges, first, last, cards, incoming, c, -1)
        mass = _log_sum(cells)
        if mass == -np.inf:
            return mass
        total += mass
        for c in range(cells.size):
            cells[c] = math.exp(cells[c] - mass)
        # less log Z_fv of each edge: the product of the two messages along it
        start = 0
        for e in range(first, last):
            k, at = cards[edges[e, 0]], edges[e, 2]
            for x in range(k):
                pair[x] = incoming[start + x] + messages[at + x]
            mass = _log_sum(pair[:k])
            if mass == -np.inf:
                return mass
            total -= mass
            start += k
    # log Z_v of each variable
    for v in range(cards.size):
        out = pair[: cards[v]]
        for x in range(cards[v]):
            out[x] = -np.inf if zeros[var_at[v] + x] > 0 else finite[var_at[v] + x]
        total += _log_sum(out)
    return total
