"""Compiled products of two tables given by their logarithms.

As in `products`, a step's message is log Σ_v exp(L(b, i, v) + R(b, v, j)), and the table of the terms is never
made: every sweep goes over its cells anew.

Columns of a lowered step, of a group within it, and of an item: the instruction set of the interpreter.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.marginals.products import OPTIONS


@njit(**OPTIONS)
def log_product(work, left, lt, right, rt, message, shared, m, k, n):
    """Log Σ_v exp(L + R), the largest term taken out; the table of terms is never made."""
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
    """Both groups' marginals: each separator's probability times p(v | s), summed."""
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
                # the sum of p is one but for rounding, which would add up along a path of many steps
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
    """Collect: the message's derivative E[gain | s]. Distribute: P' p + P p (gain - E[gain | s]), summed."""
    # formulas: E[g | s] = Σ_v p(v | s) (g_L + g_R) on the way up, and on the way down
    # t'(i, v, j) = p (P' + P (g_L + g_R - E[g | s])), with P_L' = Σ_j t' and P_R' = Σ_i t'
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
                # E[g | s], and the sum of p as it comes out
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


HEADER = 24  # integers a step
IS_PRODUCT = 0  # 1 where the step is a product of two groups, 0 where it goes cell by cell
STATES = 1  # of the variable summed out
MESSAGE = 2  # offset of the message
ROWS = 3  # its cells
IS_ROOT = 4  # 1 where the separator is empty
LEFT = 5  # first column of the left group, or of the only one
RIGHT = 11  # first column of the right group
SHARED = 17  # joint states of the variables in both groups,
OUTER = 18  # in the left one only,
INNER = 19  # in the right one only
LEFT_TURNED = 20  # 1 where the left group is stored transposed
RIGHT_TURNED = 21  # the same of the right group
LEFT_MARGINAL = 22  # offset of the left group's marginal, where the group is not an item as it lies
RIGHT_MARGINAL = 23  # the same of the right group

# Within a group's columns, after the offset of its table.
ITEMS = 1  # its first item's record
COUNT = 2  # number of its items
CELLS = 3  # of its table
IS_ALIAS = 4  # 1 where the table is its one item as it lies, and is not made
LENGTH = 5  # of a row of the table

ITEM = 4  # integers an item's record: offset, place of its row map, stride along a row, cells
