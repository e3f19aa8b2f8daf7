"""Compiled tangent sweeps: the product of the marginals' derivative with a direction.

The first sweep computes derivatives of the messages' logarithms, called gains. The second computes derivatives of
probabilities, called changes. With p(v | s) the conditional distribution of a step and g(s, v) the sum of its items'
gains,

    gain of the message:  E[g | s] = Σ_v p(v | s) g(s, v),
    change of the joint:  P'(s) p(v | s) + P(s) p(v | s) (g(s, v) - E[g | s]).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bayesprivmrf.marginals.kernels import clear, divide
from bayesprivmrf.marginals.lowering import AT
from bayesprivmrf.marginals.products import (
    OPTIONS,
    adjoint_left,
    adjoint_right,
    build_sum,
    matrix_product,
    spread,
    start,
    vector_tangent_adjoint,
    vector_tangent_product,
)


@njit(**OPTIONS)
def tangent(code, steps, maps, work, scales, scratch, largest, mu, offsets, vector, gain, change):
    """Write the derivative of the marginals along the direction `vector` to `change`.

    `gain` has the layout of the workspace's cells, messages and tables, `change` that of `mu`. The workspace is only
    read, so several threads may share it. `scratch` holds two messages and three groups; `largest` has the number of
    cells of the largest message and of the largest group.
    """
    # the direction, centered factor by factor
    _center(vector, mu, offsets, gain)
    # up: gains of the messages, children before parents
    for step in range(steps):
        row = AT.per_step * step
        if code[row + AT.is_product]:
            _collect_product(code, row, maps, work, scales[step], scratch, largest, gain)
        else:
            _collect_cells(code, row, maps, work, gain)
    # down: changes of the separators' probabilities and of the cells' marginals, from the roots
    for step in range(steps - 1, -1, -1):
        row = AT.per_step * step
        if code[row + AT.is_root]:
            change[code[row + AT.message]] = 0.0
        if code[row + AT.is_product]:
            _distribute_product(
                code, row, maps, work, scales[step], scratch, largest, mu, gain, change
            )
        else:
            _distribute_cells(code, row, maps, work, mu, gain, change)


@njit(**OPTIONS)
def _center(vector, mu, offsets, gain):
    """Subtract from the direction its mean under each factor's marginal.

    The product does not change, and its sums lose less to rounding. Cells of probability zero are ignored.
    """
    for f in range(offsets.size - 1):
        start = offsets[f]
        end = offsets[f + 1]
        weight = mu[start:end]
        value = vector[start:end]
        out = gain[start:end]
        # the mean under the marginal
        mean = 0.0
        for c in range(end - start):
            mean += weight[c] * value[c] if weight[c] > 0.0 else 0.0
        for c in range(end - start):
            if weight[c] > 0.0:
                out[c] = value[c] - mean
            else:
                out[c] = 0.0


@njit(**OPTIONS)
def _collect_cells(code, row, maps, work, gain):
    """Write the gain of the message; overwrite the gains of the table by p (g - E[g | s])."""
    k = code[row + AT.states]
    message = code[row + AT.message]
    table = code[row + AT.left]
    # formula: g(s, v) = Σ_i g_i(s, v), then E[g | s] = Σ_v p(v | s) g(s, v)
    build_sum(gain, code, row + AT.left, maps)
    for s in range(code[row + AT.rows]):
        line = work[table + s * k : table + (s + 1) * k]
        rise = gain[table + s * k : table + (s + 1) * k]
        mean = 0.0
        # the mean of the gains, which is the gain of the message
        for v in range(k):
            mean += line[v] * rise[v]
        # p (g - E[g | s]), for the way down
        for v in range(k):
            rise[v] = line[v] * (rise[v] - mean)
        gain[message + s] = mean


@njit(**OPTIONS)
def _distribute_cells(code, row, maps, work, mu, gain, change):
    """Sum the change of the joint onto the cells of the items."""
    # formula: μ_i' += P'(s) p(v | s) + P(s) p(v | s) (g - E[g | s])
    k = code[row + AT.states]
    message = code[row + AT.message]
    group = row + AT.left
    table = code[group]
    first = code[group + AT.items]
    count = code[group + AT.n_items]
    clear(code, first, count, change)
    for s in range(code[row + AT.rows]):
        q = mu[message + s]
        dq = change[message + s]
        line = work[table + s * k : table + (s + 1) * k]
        rise = gain[table + s * k : table + (s + 1) * k]
        for i in range(count):
            item = first + AT.per_item * i
            at = start(code, item, maps, s)
            stride = code[item + AT.stride]
            for v in range(k):
                change[at + v * stride] += dq * line[v] + q * rise[v]


@njit(**OPTIONS)
def _collect_product(code, row, maps, work, scale, scratch, largest, gain):
    """Write the gain of the message of a product."""
    # formula: gain = M' / m with M' = L' R + L R', where L' = L ∘ g_L and R' = R ∘ g_R
    left = code[row + AT.left]
    right = code[row + AT.right]
    message = code[row + AT.message]
    lt = code[row + AT.left_turned]
    rt = code[row + AT.right_turned]
    shared = code[row + AT.shared]
    m = code[row + AT.outer]
    k = code[row + AT.states]
    n = code[row + AT.inner]
    # gains of both groups
    build_sum(gain, code, row + AT.left, maps)
    build_sum(gain, code, row + AT.right, maps)
    # M' = L' R + L R'
    rows = code[row + AT.rows]
    if m == 1:
        vector_tangent_product(work, left, right, rt, gain, message, shared, k, n)
    else:
        # L' R
        x = 2 * largest[0]
        _table_change(work, gain, left, code[row + AT.left + AT.cells], scratch, x)
        matrix_product(scratch, x, lt, work, right, rt, gain, message, shared, m, k, n)
        # L R', at a place that is a number: numba compiles a function again for each literal that it is called with
        first = np.int64(0)
        _table_change(work, gain, right, code[row + AT.right + AT.cells], scratch, x)
        matrix_product(work, left, lt, scratch, x, rt, scratch, first, shared, m, k, n)
        # their sum, divided by m below because a gain is the derivative of a logarithm
        out = gain[message : message + rows]
        more = scratch[:rows]
        for s in range(rows):
            out[s] += more[s]
    divide(gain, work, message, rows, scale, gain, message)


@njit(**OPTIONS)
def _distribute_product(code, row, maps, work, scale, scratch, largest, mu, gain, change):
    """Sum the changes of both groups' marginals onto the cells of their items."""
    # formula: D = P(s) / m(s) and D' = P'(s) / m(s) - D g(s), with g(s) the gain of the message
    left = code[row + AT.left]
    right = code[row + AT.right]
    message = code[row + AT.message]
    rows = code[row + AT.rows]
    rt = code[row + AT.right_turned]
    first = np.int64(0)  # a number, and no literal
    divide(mu, work, message, rows, scale, scratch, first)
    divide(change, work, message, rows, scale, scratch, largest[0])
    d = scratch[:rows]
    moved = scratch[largest[0] : largest[0] + rows]
    rise = gain[message : message + rows]
    for s in range(rows):
        moved[s] -= d[s] * rise[s]
    # the marginals of both groups
    if code[row + AT.outer] > 1:
        _matrix_sides(code, row, maps, work, scratch, largest, mu, gain, change)
        return
    # the change of a group read in place goes to the cells themselves, any other to the scratch
    x = 2 * largest[0]
    z = 2 * largest[0] + 2 * largest[1]
    if code[row + AT.left + AT.is_alias]:
        left_out = change
        left_at = left
    else:
        left_out = scratch
        left_at = x
    if code[row + AT.right + AT.is_alias]:
        right_out = change
        right_at = right
    else:
        right_out = scratch
        right_at = z
    vector_tangent_adjoint(
        work, left, right, rt, scratch, first, largest[0], gain, left_out, left_at, right_out, right_at,
        code[row + AT.shared], code[row + AT.states], code[row + AT.inner],
    )  # fmt: skip
    spread(scratch, x, code, row + AT.left, maps, change)
    spread(scratch, z, code, row + AT.right, maps, change)


@njit(**OPTIONS)
def _matrix_sides(code, row, maps, work, scratch, largest, mu, gain, change):
    """Write the changes of the marginals of both groups of a matrix product, and spread them on their items."""
    # formula: P_L' = L ∘ (D' Rᵀ + D R'ᵀ) + g_L ∘ P_L and P_R' = R ∘ (Lᵀ D' + L'ᵀ D) + g_R ∘ P_R
    left = code[row + AT.left]
    right = code[row + AT.right]
    lt = code[row + AT.left_turned]
    rt = code[row + AT.right_turned]
    shared = code[row + AT.shared]
    m = code[row + AT.outer]
    k = code[row + AT.states]
    n = code[row + AT.inner]
    left_size = code[row + AT.left + AT.cells]
    right_size = code[row + AT.right + AT.cells]
    # places in the scratch: D, D', and three groups
    d = np.int64(0)
    e = largest[0]
    x = 2 * largest[0]
    y = 2 * largest[0] + largest[1]
    z = 2 * largest[0] + 2 * largest[1]

    # left group: x = D R'ᵀ, y = D' Rᵀ
    _table_change(work, gain, right, right_size, scratch, z)
    adjoint_left(scratch, d, scratch, z, rt, scratch, x, lt, shared, m, k, n)
    adjoint_left(scratch, e, work, right, rt, scratch, y, lt, shared, m, k, n)
    if code[row + AT.left + AT.is_alias]:
        out = change
        at = left
        joint = mu
        lies = left
    else:
        out = scratch
        at = x
        joint = work
        lies = code[row + AT.left_marginal]
    _combine(work, gain, left, left_size, scratch, x, y, joint, lies, out, at)
    spread(scratch, x, code, row + AT.left, maps, change)

    # right group: x = L'ᵀ D, y = Lᵀ D'
    _table_change(work, gain, left, left_size, scratch, z)
    adjoint_right(scratch, z, lt, scratch, d, scratch, x, rt, shared, m, k, n)
    adjoint_right(work, left, lt, scratch, e, scratch, y, rt, shared, m, k, n)
    if code[row + AT.right + AT.is_alias]:
        out = change
        at = right
        joint = mu
        lies = right
    else:
        out = scratch
        at = x
        joint = work
        lies = code[row + AT.right_marginal]
    _combine(work, gain, right, right_size, scratch, x, y, joint, lies, out, at)
    spread(scratch, x, code, row + AT.right, maps, change)


@njit(**OPTIONS)
def _table_change(work, gain, table, size, out, at):
    """Write L ∘ gain, the derivative of a table."""
    result = out[at : at + size]
    factor = work[table : table + size]
    rise = gain[table : table + size]
    for c in range(size):
        result[c] = factor[c] * rise[c]


@njit(**OPTIONS)
def _combine(work, gain, table, size, scratch, x, y, joint, lies, out, at):
    """Write L ∘ (one + two) + gain ∘ joint."""
    result = out[at : at + size]
    factor = work[table : table + size]
    rise = gain[table : table + size]
    one = scratch[x : x + size]
    two = scratch[y : y + size]
    known = joint[lies : lies + size]
    for c in range(size):
        result[c] = factor[c] * (one[c] + two[c]) + rise[c] * known[c]
