"""Compiled products of two tables in the log domain.

With L and R the logarithms of two tables, a step's message is log Σ_v exp(L(b, i, v) + R(b, v, j)). The table of the
terms is never stored: each sweep computes its cells again.

Arguments are those of `products`: an array `work`, the offsets `left`, `right` and `message` into it, flags `lt` and
`rt` for tables stored transposed, and the numbers of states `shared` (b), `m` (i), `k` (v) and `n` (j).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.marginals.products import OPTIONS


@njit(**OPTIONS)
def log_product(work, left, lt, right, rt, message, shared, m, k, n):
    """Write the message log Σ_v exp(L + R), computed relative to its largest term."""
    # formula: log m(i, j) = top + log Σ_v exp(L(i, v) + R(v, j) - top)
    li, lv = (1, m) if lt else (k, 1)
    rv, rj = (1, k) if rt else (n, 1)
    for s in range(shared):
        for i in range(m):
            p = left + s * m * k + i * li
            for j in range(n):
                q = right + s * k * n + j * rj
                # the largest term
                top = -np.inf
                for v in range(k):
                    top = max(top, work[p + v * lv] + work[q + v * rv])
                # the sum of the terms relative to it
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
    """Add to the marginals of both groups: the probability of each separator state times p(v | s)."""
    # formula: t(i, v, j) = P(i, j) p(v | i, j), with p = exp(L + R) / m; P_L = Σ_j t and P_R = Σ_i t
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
                # the sum of p differs from one by rounding, which would build up along a path of many steps
                mass = 0.0
                for v in range(k):
                    mass += math.exp(work[left + p + v * lv] + work[right + q + v * rv] - log_mass)
                weight /= mass
                for v in range(k):
                    # t, added to both marginals
                    t = weight * math.exp(work[left + p + v * lv] + work[right + q + v * rv] - log_mass)
                    left_out[left_at + p + v * lv] += t
                    right_out[right_at + q + v * rv] += t


@njit(**OPTIONS)
def log_product_tangent(
    work, left, lt, right, rt, message, scale, mu, gain, change, backward,
    left_out, left_at, right_out, right_at, shared, m, k, n,
):  # fmt: skip
    """Write the message's gain, or if `backward` add to the changes of both groups' marginals."""
    # formula, collect: E[g | s] = Σ_v p(v | s) (g_L + g_R)
    # formula, distribute: t'(i, v, j) = p (P' + P (g_L + g_R - E[g | s])), with P_L' = Σ_j t' and P_R' = Σ_i t'
    li, lv = (1, m) if lt else (k, 1)
    rv, rj = (1, k) if rt else (n, 1)
    for s in range(shared):
        for i in range(m):
            p = s * m * k + i * li
            for j in range(n):
                q = s * k * n + j * rj
                at = message + (s * m + i) * n + j
                log_mass = work[at] + scale
                # an impossible separator state has no gain and no change
                if log_mass == -np.inf:
                    if not backward:
                        gain[at] = 0.0
                    continue
                mean = gain[at] if backward else 0.0
                # E[g | s], and the sum of p with its rounding error
                total, mass = 0.0, 0.0
                for v in range(k):
                    x, y = left + p + v * lv, right + q + v * rv
                    probability = math.exp(work[x] + work[y] - log_mass)
                    mass += probability
                    total += probability * (gain[x] + gain[y])
                if not backward:
                    gain[at] = total / mass
                    continue
                # t', added to both changes
                weight, moved = mu[at] / mass, change[at] / mass
                for v in range(k):
                    x, y = p + v * lv, q + v * rv
                    probability = math.exp(work[left + x] + work[right + y] - log_mass)
                    t = probability * (moved + weight * (gain[left + x] + gain[right + y] - mean))
                    left_out[left_at + x] += t
                    right_out[right_at + y] += t
