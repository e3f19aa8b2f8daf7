"""The compiled loops of Gibbs sampling: many chains side by side on one Markov random field.

States lie variable by variable, with all chains in a row, so that the chains share each look-up. Random bits are
those of xoshiro256+ (Blackman and Vigna 2021), one generator a chain. All compiled code is in this one file, for
numba keeps it between processes as long as this file is unchanged.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

__all__ = ["sweep_spins", "sweep_states"]

_TO_UNIT = 2.0**-53  # a double below one from the upper 53 of 64 random bits


@njit(nogil=True, error_model="numpy")
def _uniforms(state: Any, out: Any) -> None:
    """One step of each chain's generator, `state` of shape (4, chains), as numbers in [0, 1)."""
    a, b, c, d = state[0], state[1], state[2], state[3]
    for lane in range(out.size):
        s0, s1, s2, s3 = a[lane], b[lane], c[lane], d[lane]
        out[lane] = np.float64(np.int64((s0 + s3) >> np.uint64(11))) * _TO_UNIT
        shifted = s1 << np.uint64(17)
        s2 ^= s0
        s3 ^= s1
        s1 ^= s2
        s0 ^= s3
        s2 ^= shifted
        s3 = (s3 << np.uint64(45)) | (s3 >> np.uint64(19))
        a[lane], b[lane], c[lane], d[lane] = s0, s1, s2, s3


@njit(cache=True, nogil=True, error_model="numpy")
def sweep_spins(
    indptr: Any,
    indices: Any,
    data: Any,
    spins: Any,
    fields: Any,
    state: Any,
    draws: int,
    thin: int,
    out: Any,
    pairs: Any,
    sums: Any,
) -> None:
    """Sweep two-state chains, and look at them `draws` times, after every `thin` sweeps.

    `spins` and `fields` have shape (p, chains); a field is h_i + sum_j A_ij s_j, and kept up to date by flips. A look
    writes the codes 0 and 1 into `out`, (draws, p, chains), unless that is empty, and adds up all spins and, for each
    row of `pairs`, products of spins, in `sums`, (p + pairs,).
    """
    variables, chains = spins.shape
    uniform = np.empty(chains)
    change = np.empty(chains)
    for draw in range(draws):
        for _ in range(thin):
            for i in range(variables):
                _uniforms(state, uniform)
                m, s = fields[i], spins[i]
                flips = 0
                for lane in range(chains):
                    up = uniform[lane] * (1.0 + math.exp(-2.0 * m[lane])) < 1.0
                    new = 1.0 if up else -1.0
                    change[lane] = new - s[lane]
                    flips += new != s[lane]
                    s[lane] = new
                if flips:
                    for k in range(indptr[i], indptr[i + 1]):
                        coupling = data[k]
                        row = fields[indices[k]]
                        for lane in range(chains):
                            row[lane] += coupling * change[lane]
        for i in range(variables):
            total = 0.0
            for lane in range(chains):
                total += spins[i, lane]
            sums[i] += total
        for k in range(pairs.shape[0]):
            left, right, total = spins[pairs[k, 0]], spins[pairs[k, 1]], 0.0
            for lane in range(chains):
                total += left[lane] * right[lane]
            sums[variables + k] += total
        if out.size:
            for i in range(variables):
                for lane in range(chains):
                    out[draw, i, lane] = spins[i, lane] > 0


@njit(cache=True, nogil=True, error_model="numpy")
def sweep_states(
    cards: Any,
    theta: Any,
    first: Any,
    cell: Any,
    own: Any,
    others: Any,
    other: Any,
    stride: Any,
    leads: Any,
    codes: Any,
    state: Any,
    draws: int,
    thin: int,
    out: Any,
    counts: Any,
) -> None:
    """As `sweep_spins`, for any number of states and any factors; `codes` has shape (p, chains).

    Variable i is in the entries ``first[i]:first[i + 1]``. Entry e has its table's first cell, the variable's own
    stride in it, and the other variables with theirs in ``others[e]:others[e + 1]``; ``leads[e]`` says whether it is
    the first entry of its table. A look adds up the visits of each cell in `counts`.
    """
    variables, chains = codes.shape
    uniform = np.empty(chains)
    place = np.empty(chains, np.int64)
    weights = np.empty((cards.max(), chains))
    for draw in range(draws):
        for _ in range(thin):
            for i in range(variables):
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
                _uniforms(state, uniform)
                for lane in range(chains):
                    codes[i, lane] = _state_at(weights, states, lane, uniform[lane])
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


@njit(nogil=True, error_model="numpy")
def _state_at(weights: Any, states: int, lane: int, uniform: float) -> int:
    """State whose interval of the cumulated exponentials holds the uniform number."""
    top = weights[0, lane]
    for a in range(1, states):
        top = max(top, weights[a, lane])
    total = 0.0
    for a in range(states):
        weights[a, lane] = math.exp(weights[a, lane] - top)
        total += weights[a, lane]
    left = uniform * total
    for a in range(states - 1):
        left -= weights[a, lane]
        if left < 0.0:
            return a
    return states - 1
