"""Compiled products of two tables, their adjoints and tangents, linear and logarithmic.

A step's message is m(b, i, j) = Σ_v L(b, i, v) R(b, v, j). A table stored transposed has its last two
blocks of axes exchanged. Tables are given as an array and an offset into it.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

__all__ = [
    "adjoint_left",
    "adjoint_right",
    "build",
    "log_product",
    "log_product_spread",
    "log_product_tangent",
    "matrix_product",
    "spread",
    "vector_adjoint",
    "vector_product",
    "vector_tangent_adjoint",
    "vector_tangent_product",
]

OPTIONS = {"nogil": True, "fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy"}
BLAS_FROM = 256  # multiplications from which a call of BLAS pays


@njit(**OPTIONS)
def build(work, code, first, count, maps, table, size, length, add):
    """A group's table: the product of its items, or their sum."""
    for row in range(size // length):
        at = table + row * length
        source, stride = code[first] + maps[code[first + 1] + row], code[first + 2]
        if stride == 1:
            for c in range(length):
                work[at + c] = work[source + c]
        else:
            for c in range(length):
                work[at + c] = work[source + c * stride]
        for i in range(1, count):
            item = first + 4 * i
            source, stride = code[item] + maps[code[item + 1] + row], code[item + 2]
            if add:
                for c in range(length):
                    work[at + c] += work[source + c * stride]
            elif stride == 0:
                x = work[source]
                for c in range(length):
                    work[at + c] *= x
            elif stride == 1:
                for c in range(length):
                    work[at + c] *= work[source + c]
            else:
                for c in range(length):
                    work[at + c] *= work[source + c * stride]


@njit(**OPTIONS)
def spread(source, table, code, first, count, maps, size, length, values):
    """Sum a group's table onto the cells of its items."""
    for i in range(count):
        offset = code[first + 4 * i]
        values[offset : offset + code[first + 4 * i + 3]] = 0.0
    for row in range(size // length):
        at = table + row * length
        for i in range(count):
            item = first + 4 * i
            target, stride = code[item] + maps[code[item + 1] + row], code[item + 2]
            if stride == 0:
                total = 0.0
                for c in range(length):
                    total += source[at + c]
                values[target] += total
            elif stride == 1:
                for c in range(length):
                    values[target + c] += source[at + c]
            else:
                for c in range(length):
                    values[target + c * stride] += source[at + c]


@njit(**OPTIONS)
def _multiply(a, a_at, a_t, b, b_at, b_t, out, at, m, k, n):
    """One product of matrices, out (m, n) = a (m, k) b (k, n); `_t` means stored as the transpose."""
    if m * k * n >= BLAS_FROM:
        o = out[at : at + m * n].reshape(m, n)
        p, q = a[a_at : a_at + m * k], b[b_at : b_at + k * n]
        if a_t:
            if b_t:
                np.dot(p.reshape(k, m).T, q.reshape(n, k).T, o)
            else:
                np.dot(p.reshape(k, m).T, q.reshape(k, n), o)
        elif b_t:
            np.dot(p.reshape(m, k), q.reshape(n, k).T, o)
        else:
            np.dot(p.reshape(m, k), q.reshape(k, n), o)
        return
    a_row, a_column = (1, m) if a_t else (k, 1)
    for i in range(m):
        o = at + i * n
        if b_t:
            for j in range(n):
                total = 0.0
                for v in range(k):
                    total += a[a_at + i * a_row + v * a_column] * b[b_at + j * k + v]
                out[o + j] = total
        else:
            for j in range(n):
                out[o + j] = 0.0
            for v in range(k):
                x = a[a_at + i * a_row + v * a_column]
                for j in range(n):
                    out[o + j] += x * b[b_at + v * n + j]


@njit(**OPTIONS)
def matrix_product(a, left, lt, b, right, rt, out, at, shared, m, k, n):
    """M = L R for each shared state."""
    for s in range(shared):
        _multiply(a, left + s * m * k, lt, b, right + s * k * n, rt, out, at + s * m * n, m, k, n)


@njit(**OPTIONS)
def adjoint_left(d, d_at, b, right, rt, out, at, lt, shared, m, k, n):
    """D Rᵀ, stored like L."""
    for s in range(shared):
        x, y, o = d_at + s * m * n, right + s * k * n, at + s * m * k
        if lt:
            _multiply(b, y, rt, d, x, 1, out, o, k, n, m)
        else:
            _multiply(d, x, 0, b, y, 1 - rt, out, o, m, n, k)


@njit(**OPTIONS)
def adjoint_right(a, left, lt, d, d_at, out, at, rt, shared, m, k, n):
    """Lᵀ D, stored like R."""
    for s in range(shared):
        x, y, o = left + s * m * k, d_at + s * m * n, at + s * k * n
        if rt:
            _multiply(d, y, 1, a, x, lt, out, o, n, m, k)
        else:
            _multiply(a, x, 1 - lt, d, y, 0, out, o, k, m, n)


@njit(**OPTIONS)
def vector_product(work, left, right, rt, message, shared, k, n):
    """The message where L is a vector."""
    for s in range(shared):
        p, q, o = left + s * k, right + s * k * n, message + s * n
        if rt:
            for j in range(n):
                total = 0.0
                for v in range(k):
                    total += work[p + v] * work[q + j * k + v]
                work[o + j] = total
        else:
            for j in range(n):
                work[o + j] = 0.0
            for v in range(k):
                x = work[p + v]
                for j in range(n):
                    work[o + j] += x * work[q + v * n + j]


@njit(**OPTIONS)
def vector_adjoint(work, left, right, rt, d, left_out, left_at, right_out, right_at, shared, k, n):
    """L ∘ (D Rᵀ) and R ∘ (Lᵀ D) in one pass, where L is a vector."""
    for s in range(shared):
        p, q, x = left + s * k, right + s * k * n, d + s * n
        u, w = left_at + s * k, right_at + s * k * n
        if rt:
            for v in range(k):
                left_out[u + v] = 0.0
            for j in range(n):
                y = work[x + j]
                for v in range(k):
                    t = y * work[q + j * k + v] * work[p + v]
                    right_out[w + j * k + v] = t
                    left_out[u + v] += t
        else:
            for v in range(k):
                y = work[p + v]
                total = 0.0
                for j in range(n):
                    t = work[q + v * n + j] * work[x + j] * y
                    right_out[w + v * n + j] = t
                    total += t
                left_out[u + v] = total


@njit(**OPTIONS)
def vector_tangent_product(work, left, right, rt, gain, message, shared, k, n):
    """Derivative of the raw message, where L is a vector."""
    for s in range(shared):
        p, q, o = left + s * k, right + s * k * n, message + s * n
        for j in range(n):
            gain[o + j] = 0.0
        if rt:
            for j in range(n):
                total = 0.0
                for v in range(k):
                    at = q + j * k + v
                    total += work[p + v] * work[at] * (gain[p + v] + gain[at])
                gain[o + j] = total
        else:
            for v in range(k):
                x, y = work[p + v], gain[p + v]
                for j in range(n):
                    at = q + v * n + j
                    gain[o + j] += x * work[at] * (y + gain[at])


@njit(**OPTIONS)
def vector_tangent_adjoint(
    work, left, right, rt, scratch, d, e, gain, left_out, left_at, right_out, right_at, shared, k, n
):
    """Derivative of the two groups' marginals, where L is a vector: L R (D (gain) + D')."""
    for s in range(shared):
        p, q, x, x2 = left + s * k, right + s * k * n, d + s * n, e + s * n
        u, w = left_at + s * k, right_at + s * k * n
        for v in range(k):
            left_out[u + v] = 0.0
        if rt:
            for j in range(n):
                f, h = scratch[x + j], scratch[x2 + j]
                for v in range(k):
                    at = q + j * k + v
                    t = work[p + v] * work[at] * (f * (gain[p + v] + gain[at]) + h)
                    right_out[w + j * k + v] = t
                    left_out[u + v] += t
        else:
            for v in range(k):
                f, h = work[p + v], gain[p + v]
                total = 0.0
                for j in range(n):
                    at = q + v * n + j
                    t = f * work[at] * (scratch[x + j] * (h + gain[at]) + scratch[x2 + j])
                    right_out[w + v * n + j] = t
                    total += t
                left_out[u + v] = total


@njit(**OPTIONS)
def log_product(work, left, lt, right, rt, message, shared, m, k, n):
    """Log Σ_v exp(L + R), the largest term taken out; the table of terms is never made."""
    li, lv = (1, m) if lt else (k, 1)
    rv, rj = (1, k) if rt else (n, 1)
    for s in range(shared):
        for i in range(m):
            p = left + s * m * k + i * li
            for j in range(n):
                q = right + s * k * n + j * rj
                top = -np.inf
                for v in range(k):
                    top = max(top, work[p + v * lv] + work[q + v * rv])
                total = 0.0
                if top > -np.inf:
                    for v in range(k):
                        total += math.exp(work[p + v * lv] + work[q + v * rv] - top)
                    top += math.log(total)
                work[message + (s * m + i) * n + j] = top


@njit(**OPTIONS)
def log_product_spread(
    work, left, lt, right, rt, message, scale, mu, left_out, left_at, right_out, right_at, shared, m, k, n
):
    """Both groups' marginals: each separator's probability times p(v | s), summed."""
    li, lv = (1, m) if lt else (k, 1)
    rv, rj = (1, k) if rt else (n, 1)
    for s in range(shared):
        for i in range(m):
            p = s * m * k + i * li
            for j in range(n):
                q = s * k * n + j * rj
                at = message + (s * m + i) * n + j
                weight = mu[at]
                if weight == 0.0:
                    continue
                log_mass = work[at] + scale
                mass = 0.0  # one but for rounding, which would add up along a path of many steps
                for v in range(k):
                    mass += math.exp(work[left + p + v * lv] + work[right + q + v * rv] - log_mass)
                weight /= mass
                for v in range(k):
                    t = weight * math.exp(work[left + p + v * lv] + work[right + q + v * rv] - log_mass)
                    left_out[left_at + p + v * lv] += t
                    right_out[right_at + q + v * rv] += t


@njit(**OPTIONS)
def log_product_tangent(
    work, left, lt, right, rt, message, scale, mu, gain, change, backward,
    left_out, left_at, right_out, right_at, shared, m, k, n,
):  # fmt: skip
    """Collect: the message's derivative E[gain | s]. Distribute: P' p + P p (gain - E[gain | s]), summed."""
    li, lv = (1, m) if lt else (k, 1)
    rv, rj = (1, k) if rt else (n, 1)
    for s in range(shared):
        for i in range(m):
            p = s * m * k + i * li
            for j in range(n):
                q = s * k * n + j * rj
                at = message + (s * m + i) * n + j
                log_mass = work[at] + scale
                if log_mass == -np.inf:
                    if not backward:
                        gain[at] = 0.0
                    continue
                mean = gain[at] if backward else 0.0
                total, mass = 0.0, 0.0
                for v in range(k):
                    x, y = left + p + v * lv, right + q + v * rv
                    probability = math.exp(work[x] + work[y] - log_mass)
                    mass += probability
                    total += probability * (gain[x] + gain[y])
                if not backward:
                    gain[at] = total / mass
                    continue
                weight, moved = mu[at] / mass, change[at] / mass
                for v in range(k):
                    x, y = p + v * lv, q + v * rv
                    probability = math.exp(work[left + x] + work[right + y] - log_mass)
                    t = probability * (moved + weight * (gain[left + x] + gain[right + y] - mean))
                    left_out[left_at + x] += t
                    right_out[right_at + y] += t
