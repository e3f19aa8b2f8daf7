"""The compiled interpreter of a plan: collect, distribute and tangent sweeps.

Compiled once an installation (numba keeps the machine code beside this file or in ``NUMBA_CACHE_DIR``);
nothing is compiled for a model. The columns of a step are those of `lowering`.

Every table of the linear mode has entries in [0, 1]: each factor is divided by its largest cell, each
message by its largest entry. ``docs/marginals.md`` proves that the answer is right when no possible entry
of a message falls below `SMALLEST` before that division, which `collect` checks.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.marginals.products import (
    adjoint_left,
    adjoint_right,
    build,
    log_product,
    log_product_spread,
    log_product_tangent,
    matrix_product,
    spread,
    vector_adjoint,
    vector_product,
    vector_tangent_adjoint,
    vector_tangent_product,
)

__all__ = ["LINEAR", "LOGARITHMIC", "SMALLEST", "SUPPORT", "collect", "distribute", "prepare", "tangent"]

LINEAR, SUPPORT, LOGARITHMIC = 0, 1, 2
SMALLEST = 1e-260
"""Smallest raw entry of a message that the linear mode accepts."""

HEADER = 24
OPTIONS = {"nogil": True, "fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy"}


@njit(cache=True, **OPTIONS)
def prepare(theta, offsets, work, exponentiate):
    """Write θ less each factor's maximum, or its exponential; return Σ max and whether -inf was met."""
    total = 0.0
    has_zeros = False
    for f in range(offsets.size - 1):
        start, end = offsets[f], offsets[f + 1]
        top = -np.inf
        low = np.inf
        for c in range(start, end):
            top = max(top, theta[c])
            low = min(low, theta[c])
        total += top
        if low == -np.inf:
            has_zeros = True
            if top == -np.inf:
                top = 0.0
        if exponentiate:
            for c in range(start, end):
                work[c] = math.exp(theta[c] - top)
        else:
            for c in range(start, end):
                work[c] = theta[c] - top
    return total, has_zeros


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz", "nnan"}, error_model="numpy")
def _extremes(work, message, rows):
    """The smallest and the largest entry; `nnan` lets the compiler take several at a time."""
    low, top = np.inf, -np.inf
    for s in range(message, message + rows):
        x = work[s]
        low = x if x < low else low
        top = x if x > top else top
    return low, top


@njit(**OPTIONS)
def _collect_cells(code, row, maps, work, mode):
    """The table of p(v | s), the raw message in its place."""
    k, message, rows = code[row + 1], code[row + 2], code[row + 3]
    first, count = code[row + 6], code[row + 7]
    table = code[row + 5]
    for s in range(rows):
        at = table + s * k
        offset, stride = code[first] + maps[code[first + 1] + s], code[first + 2]
        for v in range(k):
            work[at + v] = work[offset + v * stride]
        for i in range(1, count):
            item = first + 4 * i
            offset, stride = code[item] + maps[code[item + 1] + s], code[item + 2]
            if mode == LOGARITHMIC:
                for v in range(k):
                    work[at + v] += work[offset + v * stride]
            else:
                for v in range(k):
                    work[at + v] *= work[offset + v * stride]
        mass = 0.0
        top = 0.0
        if mode == LOGARITHMIC:
            top = -np.inf
            for v in range(k):
                top = max(top, work[at + v])
            shift = top if top > -np.inf else 0.0
            for v in range(k):
                work[at + v] = math.exp(work[at + v] - shift)
        for v in range(k):
            mass += work[at + v]
        if mass > 0.0:
            scale = 1.0 / mass if mass > 1e-300 else 0.0  # smaller ones fail the guard anyway
            for v in range(k):
                work[at + v] *= scale
        if mode == LOGARITHMIC:
            mass = top + math.log(mass) if mass > 0.0 else -np.inf
        work[message + s] = mass


@njit(**OPTIONS)
def _collect_product(code, row, maps, work, mode):
    """The tables L and R, the raw message in its place."""
    k, message = code[row + 1], code[row + 2]
    left, right = code[row + 5], code[row + 11]
    shared, m, n = code[row + 17], code[row + 18], code[row + 19]
    logs = mode == LOGARITHMIC
    for at in (row + 5, row + 11):
        if code[at + 4] == 0:
            build(work, code, code[at + 1], code[at + 2], maps, code[at], code[at + 3], code[at + 5], logs)
    if logs:
        log_product(work, left, code[row + 20], right, code[row + 21], message, shared, m, k, n)
    elif m == 1:
        vector_product(work, left, right, code[row + 21], message, shared, k, n)
    else:
        matrix_product(
            work, left, code[row + 20], work, right, code[row + 21], work, message, shared, m, k, n
        )


@njit(cache=True, **OPTIONS)
def collect(code, steps, maps, work, scales, support, cells, mode):
    """Eliminate every variable; return A less the factors' maxima, and whether the answer can be trusted.

    `support` marks the possible entries of the messages; empty where no potential is minus infinity.
    """
    total = 0.0
    trusted = True
    for step in range(steps):
        row = HEADER * step
        if code[row] == 0:
            _collect_cells(code, row, maps, work, mode)
        else:
            _collect_product(code, row, maps, work, mode)
        message, rows = code[row + 2], code[row + 3]
        if mode == SUPPORT:
            for s in range(message, message + rows):
                work[s] = 1.0 if work[s] > 0.0 else 0.0
            continue
        low, top = _extremes(work, message, rows)
        if mode == LOGARITHMIC:
            if top == -np.inf:
                return -np.inf, True
            for s in range(message, message + rows):
                work[s] -= top
            scales[step] = top
            total += top
            continue
        if support.size > 0:
            low = np.inf
            for s in range(message, message + rows):
                if support[s - cells]:
                    low = min(low, work[s])
        if not (low >= SMALLEST and top <= 1e9):
            return 0.0, False
        scales[step] = top
        total += math.log(top)
        scale = 1.0 / top
        for s in range(message, message + rows):
            work[s] *= scale
    return total, trusted


@njit(**OPTIONS)
def _clear(code, first, count, values):
    for i in range(count):
        start = code[first + 4 * i]
        values[start : start + code[first + 4 * i + 3]] = 0.0


@njit(**OPTIONS)
def _divide(values, work, message, rows, scale, out, at):
    """Probabilities of a separator over its raw message; zero where it is impossible."""
    inverse = 1.0 / scale
    for s in range(rows):
        q = values[message + s]
        m = work[message + s]
        out[at + s] = q * inverse / (m if m > 0.0 else 1.0)


@njit(cache=True, **OPTIONS)
def distribute(code, steps, maps, work, scales, scratch, mode, mu):
    """Marginals of every cell and separator, from the roots down."""
    for step in range(steps - 1, -1, -1):
        row = HEADER * step
        k, message, rows = code[row + 1], code[row + 2], code[row + 3]
        if code[row + 4]:
            mu[message] = 1.0
        if code[row] == 0:
            first, count, table = code[row + 6], code[row + 7], code[row + 5]
            _clear(code, first, count, mu)
            for s in range(rows):
                q = mu[message + s]
                at = table + s * k
                for i in range(count):
                    item = first + 4 * i
                    offset, stride = code[item] + maps[code[item + 1] + s], code[item + 2]
                    for v in range(k):
                        mu[offset + v * stride] += q * work[at + v]
            continue
        left, right = code[row + 5], code[row + 11]
        shared, m, n = code[row + 17], code[row + 18], code[row + 19]
        lt, rt = code[row + 20], code[row + 21]
        left_out = mu if code[row + 9] else work
        left_at = left if code[row + 9] else code[row + 22]
        right_out = mu if code[row + 15] else work
        right_at = right if code[row + 15] else code[row + 23]
        if mode == LOGARITHMIC:
            left_out[left_at : left_at + code[row + 8]] = 0.0
            right_out[right_at : right_at + code[row + 14]] = 0.0
            log_product_spread(
                work, left, lt, right, rt, message, scales[step], mu, left_out, left_at, right_out, right_at,
                shared, m, k, n,
            )  # fmt: skip
        else:
            _divide(mu, work, message, rows, scales[step], work, scratch)
            if m == 1:
                vector_adjoint(
                    work, left, right, rt, scratch, left_out, left_at, right_out, right_at, shared, k, n
                )
            else:
                adjoint_left(work, scratch, work, right, rt, left_out, left_at, lt, shared, m, k, n)
                adjoint_right(work, left, lt, work, scratch, right_out, right_at, rt, shared, m, k, n)
                for c in range(code[row + 8]):
                    left_out[left_at + c] *= work[left + c]
                for c in range(code[row + 14]):
                    right_out[right_at + c] *= work[right + c]
        if code[row + 9] == 0:
            spread(work, left_at, code, code[row + 6], code[row + 7], maps, code[row + 8], code[row + 10], mu)
        if code[row + 15] == 0:
            spread(
                work, right_at, code, code[row + 12], code[row + 13], maps, code[row + 14], code[row + 16], mu
            )


@njit(**OPTIONS)
def _center(vector, mu, offsets, gain):
    """The direction less its mean under each factor's marginal: the product is the same, the sums smaller.

    Cells of probability zero do not count, whatever the direction holds there.
    """
    for f in range(offsets.size - 1):
        mean = 0.0
        for c in range(offsets[f], offsets[f + 1]):
            if mu[c] > 0.0:
                mean += mu[c] * vector[c]
        for c in range(offsets[f], offsets[f + 1]):
            gain[c] = vector[c] - mean if mu[c] > 0.0 else 0.0


@njit(cache=True, **OPTIONS)
def tangent(
    code,
    steps,
    maps,
    work,
    scales,
    scratch,
    message_room,
    group_room,
    mode,
    mu,
    offsets,
    vector,
    gain,
    change,
):
    """Derivative of the marginals along a direction.

    `gain` carries derivatives of logarithms, laid out like the workspace's cells, messages and tables;
    `change` receives derivatives of the marginals, laid out like `mu`. The workspace is only read: the
    scratch is the caller's.
    """
    _center(vector, mu, offsets, gain)
    d, e = 0, message_room
    x, y, z = 2 * message_room, 2 * message_room + group_room, 2 * message_room + 2 * group_room
    for step in range(steps):
        row = HEADER * step
        k, message, rows = code[row + 1], code[row + 2], code[row + 3]
        for at in (row + 5, row + 11):
            if at == row + 11 and code[row] == 0:
                continue
            if code[at + 4] == 0:
                build(
                    gain, code, code[at + 1], code[at + 2], maps, code[at], code[at + 3], code[at + 5], True
                )
        left, right = code[row + 5], code[row + 11]
        if code[row] == 0:
            for s in range(rows):
                at = left + s * k
                mean = 0.0
                for v in range(k):
                    mean += work[at + v] * gain[at + v]
                for v in range(k):
                    gain[at + v] = work[at + v] * (gain[at + v] - mean)
                gain[message + s] = mean
            continue
        shared, m, n = code[row + 17], code[row + 18], code[row + 19]
        lt, rt = code[row + 20], code[row + 21]
        if mode == LOGARITHMIC:
            log_product_tangent(
                work, left, lt, right, rt, message, scales[step], mu, gain, change, False,
                scratch, 0, scratch, 0, shared, m, k, n,
            )  # fmt: skip
            continue
        if m == 1:
            vector_tangent_product(work, left, right, rt, gain, message, shared, k, n)
        else:
            for c in range(code[row + 8]):
                scratch[x + c] = work[left + c] * gain[left + c]
            for c in range(code[row + 14]):
                scratch[y + c] = work[right + c] * gain[right + c]
            matrix_product(scratch, x, lt, work, right, rt, gain, message, shared, m, k, n)
            matrix_product(work, left, lt, scratch, y, rt, scratch, d, shared, m, k, n)
            for s in range(rows):
                gain[message + s] += scratch[d + s]
        _divide(gain, work, message, rows, scales[step], gain, message)
    for step in range(steps - 1, -1, -1):
        row = HEADER * step
        k, message, rows = code[row + 1], code[row + 2], code[row + 3]
        left, right = code[row + 5], code[row + 11]
        if code[row + 4]:
            change[message] = 0.0
        if code[row] == 0:
            first, count = code[row + 6], code[row + 7]
            _clear(code, first, count, change)
            for s in range(rows):
                q, dq = mu[message + s], change[message + s]
                at = left + s * k
                for i in range(count):
                    item = first + 4 * i
                    offset, stride = code[item] + maps[code[item + 1] + s], code[item + 2]
                    for v in range(k):
                        change[offset + v * stride] += dq * work[at + v] + q * gain[at + v]
            continue
        shared, m, n = code[row + 17], code[row + 18], code[row + 19]
        lt, rt = code[row + 20], code[row + 21]
        left_size, right_size = code[row + 8], code[row + 14]
        left_alias, right_alias = code[row + 9], code[row + 15]
        left_out = change if left_alias else scratch
        left_at = left if left_alias else x
        right_out = change if right_alias else scratch
        right_at = right if right_alias else z
        if mode == LOGARITHMIC:
            left_out[left_at : left_at + left_size] = 0.0
            right_out[right_at : right_at + right_size] = 0.0
            log_product_tangent(
                work, left, lt, right, rt, message, scales[step], mu, gain, change, True,
                left_out, left_at, right_out, right_at, shared, m, k, n,
            )  # fmt: skip
        else:
            _divide(mu, work, message, rows, scales[step], scratch, d)
            _divide(change, work, message, rows, scales[step], scratch, e)
            for s in range(rows):
                scratch[e + s] -= scratch[d + s] * gain[message + s]
            if m == 1:
                vector_tangent_adjoint(
                    work, left, right, rt, scratch, d, e, gain, left_out, left_at, right_out, right_at,
                    shared, k, n,
                )  # fmt: skip
            else:
                # dL' = D' Rᵀ + D R'ᵀ, then L ∘ dL' + gain ∘ P_L; likewise for R.
                for c in range(right_size):
                    scratch[y + c] = work[right + c] * gain[right + c]
                adjoint_left(scratch, d, scratch, y, rt, scratch, x, lt, shared, m, k, n)
                adjoint_left(scratch, e, work, right, rt, scratch, z, lt, shared, m, k, n)
                known, known_at = (mu, left) if left_alias else (work, code[row + 22])
                for c in range(left_size):
                    left_out[left_at + c] = (
                        work[left + c] * (scratch[x + c] + scratch[z + c])
                        + gain[left + c] * known[known_at + c]
                    )
                if not left_alias:
                    spread(
                        scratch,
                        x,
                        code,
                        code[row + 6],
                        code[row + 7],
                        maps,
                        left_size,
                        code[row + 10],
                        change,
                    )
                for c in range(left_size):
                    scratch[x + c] = work[left + c] * gain[left + c]
                adjoint_right(scratch, x, lt, scratch, d, scratch, y, rt, shared, m, k, n)
                adjoint_right(work, left, lt, scratch, e, scratch, z, rt, shared, m, k, n)
                known, known_at = (mu, right) if right_alias else (work, code[row + 23])
                for c in range(right_size):
                    right_out[right_at + c] = (
                        work[right + c] * (scratch[y + c] + scratch[z + c])
                        + gain[right + c] * known[known_at + c]
                    )
                if not right_alias:
                    spread(
                        scratch, z, code, code[row + 12], code[row + 13], maps, right_size, code[row + 16],
                        change,
                    )  # fmt: skip
                continue
        if not left_alias:
            spread(scratch, x, code, code[row + 6], code[row + 7], maps, left_size, code[row + 10], change)
        if not right_alias:
            spread(scratch, z, code, code[row + 12], code[row + 13], maps, right_size, code[row + 16], change)


def load() -> None:
    """Start numba's run time, about a quarter of a second once a process, before anything is timed or asked."""
    prepare(np.zeros(1), np.array([0, 1]), np.zeros(1), True)


load()
