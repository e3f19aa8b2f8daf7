"""Compiled loops of many Markov chains that run side by side on one network or one Markov random field.

Local fields, spins and states have one row per node and one column per chain. The chains share each look-up of a
neighbor, and vector instructions update a neighbor's field in all chains at once. The update after a flip takes
time in proportion to the node's degree; it is skipped if the node flips in no chain. Random bits are those of
xoshiro256+ (Blackman and Vigna 2021), one generator per chain.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, kept

# options of numba; error_model: a division by zero gives infinity, as in NumPy, and is not tested for
_OPTIONS = {"nogil": True, "error_model": "numpy", **INNER}

# xoshiro256+ shifts its second word by 17 bits and rotates its fourth by 45, which is 45 up and 19 down
_SHIFT = np.uint64(17)
_ROTATED_UP = np.uint64(45)
_ROTATED_DOWN = np.uint64(19)
# a uniform number has the upper 53 bits of a word, in units of 2^-53; a coin is the highest bit
_LOW_BITS = np.uint64(11)
_UNIT = 2.0**-53
_HIGHEST_BIT = np.uint64(63)


@njit(**_OPTIONS)
def _advance(state: Any, bits: Any) -> None:
    """Make one step of xoshiro256+ in each chain; `state` has shape (4, chains), `bits` shape (chains,)."""
    a = state[0]
    b = state[1]
    c = state[2]
    d = state[3]
    for lane in range(bits.size):
        # the output is the sum of two words, then the state moves by shifts and a rotation
        s0 = a[lane]
        s1 = b[lane]
        s2 = c[lane]
        s3 = d[lane]
        bits[lane] = s0 + s3
        shifted = s1 << _SHIFT
        s2 ^= s0
        s3 ^= s1
        s1 ^= s2
        s0 ^= s3
        s2 ^= shifted
        s3 = (s3 << _ROTATED_UP) | (s3 >> _ROTATED_DOWN)
        a[lane] = s0
        b[lane] = s1
        c[lane] = s2
        d[lane] = s3


@njit(**_OPTIONS)
def _unit(bits: Any) -> float:
    """Return a number in [0, 1) from the upper 53 of 64 random bits."""
    return np.float64(np.int64(bits >> _LOW_BITS)) * _UNIT


@njit(**_OPTIONS)
def _pass_on(fields: Any, indices: Any, data: Any, start: int, stop: int, change: Any) -> None:
    """Add J_ji times the change of node i to the field of each neighbor j, in all chains."""
    for k in range(start, stop):
        coupling = data[k]
        row = fields[np.uint64(indices[k])]
        for lane in range(change.size):
            row[lane] += coupling * change[lane]


@njit(**_OPTIONS)
def _sweep(
    matrix: Any,
    doubled: float,
    table: Any,
    spins: Any,
    fields: Any,
    state: Any,
    bits: Any,
    change: Any,
) -> None:
    """Draw the spin of each node in order, given the others; `sweep_network` describes the arguments."""
    indptr, indices, data = matrix
    for i in range(spins.shape[0]):
        m = fields[i]
        s = spins[i]
        _advance(state, bits)
        # draw the spin: P(+1) = 1 / (1 + exp(-2 beta m)), from the table if fields are whole numbers
        if table.size:
            for lane in range(bits.size):
                up = _unit(bits[lane]) < table[np.int64(m[lane]) + table.size // 2]
                change[lane] = (1 if up else -1) - s[lane]
        else:
            for lane in range(bits.size):
                up = _unit(bits[lane]) * (1.0 + math.exp(-doubled * m[lane])) < 1.0
                change[lane] = (1 if up else -1) - s[lane]
        # apply the change, and update the neighbors' fields if any chain flipped
        flips = 0
        for lane in range(bits.size):
            s[lane] += np.int8(change[lane])
            flips += change[lane] != 0
        if flips:
            _pass_on(fields, indices, data, indptr[i], indptr[i + 1], change)


@kept(error_model="numpy")
def sweep_network(
    matrix: Any,
    doubled: float,
    table: Any,
    component: Any,
    spins: Any,
    fields: Any,
    state: Any,
    trace: Any,
) -> None:
    """Sweep over all nodes in order, len(trace) times, and fill the trace.

    `matrix` is J as (indptr, indices, data) and `doubled` is 2 beta. If `table` is not empty, all couplings have
    one size and `matrix` holds their signs. Fields are then whole numbers, and `table` has the probability of +1
    for each.
    """
    chains = spins.shape[1]
    change = np.empty(chains, matrix[2].dtype)
    bits = np.empty(chains, np.uint64)
    order = np.empty((component.max() + 1, chains), np.int64)
    for t in range(trace.shape[0]):
        _sweep(matrix, doubled, table, spins, fields, state, bits, change)
        # record the energy s'Js = Σ_i s_i m_i, and the order: Σ over components of |Σ s|
        trace[t] = 0.0
        order[:] = 0
        for i in range(spins.shape[0]):
            energy = trace[t, 0]
            row = order[component[i]]
            m = fields[i]
            s = spins[i]
            for lane in range(chains):
                energy[lane] += m[lane] * s[lane]
                row[lane] += s[lane]
        for row in order:
            for lane in range(chains):
                trace[t, 1, lane] += abs(row[lane])


@kept(error_model="numpy")
def local_fields(matrix: Any, spins: Any, fields: Any) -> None:
    """Write the local fields J s of each chain to `fields`; spins and fields have shape (n, chains)."""
    indptr, indices, data = matrix
    for i in range(fields.shape[0]):
        m = fields[i]
        m[:] = 0
        for k in range(indptr[i], indptr[i + 1]):
            coupling = data[k]
            s = spins[np.uint64(indices[k])]
            for lane in range(m.size):
                m[lane] += coupling * s[lane]


@njit(**_OPTIONS)
def _bonded(
    bits: Any, threshold: Any, a: Any, b: Any, sign: int, is_bonded: Any, lanes: Any
) -> int:
    """Write the chains in which an edge between spins a and b is bonded to `lanes`; return their number."""
    # an edge is bonded with its probability if the spins satisfy it
    count = 0
    for lane in range(bits.size):
        is_bonded[lane] = (bits[lane] < threshold) & (a[lane] * b[lane] == sign)
        count += is_bonded[lane]
    if count:
        place = 0
        for lane in range(bits.size):
            lanes[place] = lane  # overwritten by the next chain unless this one is bonded
            place += is_bonded[lane]
    return count


@njit(**_OPTIONS)
def _root(parents: Any, lane: int, i: int) -> int:
    """Return the least node of i's cluster; halve the path for the next search."""
    while parents[i, lane] != i:
        parents[i, lane] = parents[parents[i, lane], lane]
        i = parents[i, lane]
    return i


@kept(error_model="numpy")
def flip_clusters(low: Any, high: Any, signs: Any, thresholds: Any, spins: Any, state: Any) -> None:
    """Bond edges at random and flip each cluster by a fair coin, in every chain.

    The module `heat_bath` derives the probabilities.
    """
    nodes, chains = spins.shape
    # at first every node is a cluster by itself
    parents = np.empty((nodes, chains), np.int32)
    for i in range(nodes):
        parents[i] = i
    bits = np.empty(chains, np.uint64)
    is_bonded = np.empty(chains, np.int8)
    lanes = np.empty(chains + 1, np.int64)
    # bond the satisfied edges at random, and join the clusters of their ends
    for e in range(low.size):
        i = low[e]
        j = high[e]
        _advance(state, bits)
        count = _bonded(bits, thresholds[e], spins[i], spins[j], signs[e], is_bonded, lanes)
        for k in range(count):
            lane = lanes[k]
            a = _root(parents, lane, i)
            b = _root(parents, lane, j)
            parents[max(a, b), lane] = min(a, b)
    # each cluster flips by the coin of its root
    coins = np.empty((nodes, chains), np.int8)
    for i in range(nodes):
        _advance(state, bits)
        for lane in range(chains):
            coins[i, lane] = 1 - 2 * np.int8(bits[lane] >> _HIGHEST_BIT)
        for lane in range(chains):
            # the root: all lesser nodes point to theirs by now
            parent = parents[parents[i, lane], lane]
            parents[i, lane] = parent
            spins[i, lane] *= coins[parent, lane]


@kept(error_model="numpy")
def sweep_spins(
    matrix: Any,
    spins: Any,
    fields: Any,
    state: Any,
    draws: int,
    thin: int,
    out: Any,
    pairs: Any,
    sums: Any,
) -> None:
    """Sweep chains of two-state variables, and record them `draws` times, after every `thin` sweeps.

    `spins` and `fields` have shape (p, chains). A field is h_i + sum_j A_ij s_j, updated with each flip. Recording
    writes the codes 0 and 1 to `out`, shape (draws, p, chains), unless that is empty. It also adds the spins of each
    variable, and the products of spins of each row of `pairs`, to `sums`, shape (p + pairs,).
    """
    variables, chains = spins.shape
    bits = np.empty(chains, np.uint64)
    change = np.empty(chains)
    table = np.empty(0)
    for draw in range(draws):
        for _ in range(thin):
            _sweep(matrix, 2.0, table, spins, fields, state, bits, change)
        # record: sums of spins, of their products, and the codes
        for i in range(variables):
            total = 0.0
            for lane in range(chains):
                total += spins[i, lane]
            sums[i] += total
        for k in range(pairs.shape[0]):
            left = spins[pairs[k, 0]]
            right = spins[pairs[k, 1]]
            total = 0.0
            for lane in range(chains):
                total += left[lane] * right[lane]
            sums[variables + k] += total
        if out.size:
            for i in range(variables):
                for lane in range(chains):
                    out[draw, i, lane] = spins[i, lane] > 0


@kept(error_model="numpy")
def sweep_states(
    cards: Any,
    theta: Any,
    layout: Any,
    codes: Any,
    state: Any,
    draws: int,
    thin: int,
    out: Any,
    counts: Any,
) -> None:
    """Sweep chains of variables with any number of states, and record them `draws` times, after every `thin` sweeps.

    `codes` has shape (p, chains). `layout` has one entry for each factor of each variable; those of variable i are
    ``first[i]:first[i + 1]``. Entry e gives the first cell of the factor's table, the stride of variable i in it, and
    the other variables with their strides, at ``others[e]:others[e + 1]``. ``leads[e]`` is 1 for the first entry of a
    table. Recording adds the visits of each cell to `counts`, and writes the codes to `out` unless that is empty.
    """
    first, cell, own, others, other, stride, leads = layout
    variables, chains = codes.shape
    bits = np.empty(chains, np.uint64)
    place = np.empty(chains, np.int64)
    weights = np.empty((cards.max(), chains))
    for draw in range(draws):
        for _ in range(thin):
            for i in range(variables):
                # log weights of the states of variable i: the sum over its factors
                states = cards[i]
                weights[:states] = 0.0
                for e in range(first[i], first[i + 1]):
                    place[:] = cell[e]
                    for k in range(others[e], others[e + 1]):
                        row = codes[other[k]]
                        for lane in range(chains):
                            place[lane] += stride[k] * row[lane]
                    for a in range(states):
                        for lane in range(chains):
                            weights[a, lane] += theta[place[lane] + a * own[e]]
                # draw its state
                _advance(state, bits)
                for lane in range(chains):
                    codes[i, lane] = _state_at(weights, states, lane, _unit(bits[lane]))
        # record: count the visited cell of each table once, and write the codes
        for i in range(variables):
            for e in range(first[i], first[i + 1]):
                if leads[e]:
                    for lane in range(chains):
                        at = cell[e] + own[e] * codes[i, lane]
                        for k in range(others[e], others[e + 1]):
                            at += stride[k] * codes[other[k], lane]
                        counts[at] += 1.0
            if out.size:
                for lane in range(chains):
                    out[draw, i, lane] = codes[i, lane]


@njit(**_OPTIONS)
def _state_at(weights: Any, states: int, lane: int, uniform: float) -> int:
    """Return a state drawn in proportion to the exponentials of its log weights, by inversion."""
    # exponentials relative to the largest weight
    top = weights[0, lane]
    for a in range(1, states):
        top = max(top, weights[a, lane])
    total = 0.0
    for a in range(states):
        weights[a, lane] = math.exp(weights[a, lane] - top)
        total += weights[a, lane]
    # inversion of the cumulative weights
    left = uniform * total
    for a in range(states - 1):
        left -= weights[a, lane]
        if left < 0.0:
            return a
    return states - 1
