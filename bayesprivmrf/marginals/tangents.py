"""The compiled tangent sweeps: the product of the marginals' derivative with a direction.

Collect carries derivatives of the messages' logarithms ("gains"), distribute derivatives of the separators'
probabilities ("changes"). With p(v | s) a bucket's conditional and g its items' summed gains,

    gain of the message  = E[g | s],
    change of the joint  = P'(s) p(v | s) + P(s) p(v | s) (g(s, v) - E[g | s]).
"""

from __future__ import annotations

from numba import njit

from bayesprivmrf.marginals.kernels import LOGARITHMIC, clear, divide
from bayesprivmrf.marginals.log_products import (
    CELLS,
    COUNT,
    HEADER,
    INNER,
    IS_ALIAS,
    IS_PRODUCT,
    IS_ROOT,
    ITEM,
    ITEMS,
    LEFT,
    LEFT_MARGINAL,
    LEFT_TURNED,
    LENGTH,
    MESSAGE,
    OUTER,
    RIGHT,
    RIGHT_MARGINAL,
    RIGHT_TURNED,
    ROWS,
    SHARED,
    STATES,
    log_product_tangent,
)
from bayesprivmrf.marginals.products import (
    OPTIONS,
    adjoint_left,
    adjoint_right,
    build_sum,
    matrix_product,
    spread,
    vector_tangent_adjoint,
    vector_tangent_product,
)


@njit(**OPTIONS)
def tangent(code, steps, maps, work, scales, scratch, rooms, mode, mu, offsets, vector, gain, change):
    """Derivative of the marginals along a direction.

    `gain` is laid out like the workspace's cells, messages and tables, `change` like `mu`. The workspace is
    only read, so that several threads may share it; `scratch` holds two messages and three groups, whose
    largest sizes are `rooms`.
    """
    # the direction, centered factor by factor
    _center(vector, mu, offsets, gain)
    # up: gains of the messages, children before parents
    for step in range(steps):
        row = HEADER * step
        if code[row + IS_PRODUCT]:
            _collect_product(code, row, maps, work, scales[step], scratch, rooms, mode, mu, gain, change)
        else:
            _collect_cells(code, row, maps, work, gain)
    # down: changes of the separators' probabilities and of the cells' marginals, from the roots
    for step in range(steps - 1, -1, -1):
        row = HEADER * step
        if code[row + IS_ROOT]:
            change[code[row + MESSAGE]] = 0.0
        if code[row + IS_PRODUCT]:
            _distribute_product(code, row, maps, work, scales[step], scratch, rooms, mode, mu, gain, change)
        else:
            _distribute_cells(code, row, maps, work, mu, gain, change)


@njit(**OPTIONS)
def _center(vector, mu, offsets, gain):
    """The direction less its mean under each factor's marginal: the product is the same, the sums smaller.

    Cells of probability zero do not count, whatever the direction holds there.
    """
    for f in range(offsets.size - 1):
        start, end = offsets[f], offsets[f + 1]
        weight, value, out = mu[start:end], vector[start:end], gain[start:end]
        # the mean under the marginal
        mean = 0.0
        for c in range(end - start):
            mean += weight[c] * value[c] if weight[c] > 0.0 else 0.0
        for c in range(end - start):
            out[c] = value[c] - mean if weight[c] > 0.0 else 0.0


@njit(**OPTIONS)
def _sum_gains(code, at, maps, gain):
    """Gains of a group's table."""
    if code[at + IS_ALIAS] == 0:
        first, count, size, length = code[at + ITEMS], code[at + COUNT], code[at + CELLS], code[at + LENGTH]
        build_sum(gain, code, first, count, maps, code[at], size, length)


@njit(**OPTIONS)
def _collect_cells(code, row, maps, work, gain):
    """The message's gain; p (g - E[g | s]) is left in the table's place."""
    k, message, table = code[row + STATES], code[row + MESSAGE], code[row + LEFT]
    # formula: g(s, v) = Σ_i g_i(s, v), then E[g | s] = Σ_v p(v | s) g(s, v)
    _sum_gains(code, row + LEFT, maps, gain)
    for s in range(code[row + ROWS]):
        line = work[table + s * k : table + (s + 1) * k]
        rise = gain[table + s * k : table + (s + 1) * k]
        mean = 0.0
        # the mean of the gains, which is the gain of the message
        for v in range(k):
            mean += line[v] * rise[v]
        # p (g - E[g | s]), kept for the way down
        for v in range(k):
            rise[v] = line[v] * (rise[v] - mean)
        gain[message + s] = mean


@njit(**OPTIONS)
def _distribute_cells(code, row, maps, work, mu, gain, change):
    # formula: μ_i' += P'(s) p(v | s) + P(s) p(v | s) (g - E[g | s])
    k, message = code[row + STATES], code[row + MESSAGE]
    table, first, count = code[row + LEFT], code[row + LEFT + ITEMS], code[row + LEFT + COUNT]
    clear(code, first, count, change)
    for s in range(code[row + ROWS]):
        q, dq = mu[message + s], change[message + s]
        line = work[table + s * k : table + (s + 1) * k]
        rise = gain[table + s * k : table + (s + 1) * k]
        for i in range(count):
            item = first + ITEM * i
            at, stride = code[item] + maps[code[item + 1] + s], code[item + 2]
            for v in range(k):
                change[at + v * stride] += dq * line[v] + q * rise[v]


@njit(**OPTIONS)
def _collect_product(code, row, maps, work, scale, scratch, rooms, mode, mu, gain, change):
    """M' = L' R + L R', over m; L' = L ∘ gain."""
    left, right, message = code[row + LEFT], code[row + RIGHT], code[row + MESSAGE]
    lt, rt = code[row + LEFT_TURNED], code[row + RIGHT_TURNED]
    shared, m, k, n = code[row + SHARED], code[row + OUTER], code[row + STATES], code[row + INNER]
    # gains of both groups
    _sum_gains(code, row + LEFT, maps, gain)
    _sum_gains(code, row + RIGHT, maps, gain)
    if mode == LOGARITHMIC:
        log_product_tangent(
            work, left, lt, right, rt, message, scale, mu, gain, change, False,
            scratch, 0, scratch, 0, shared, m, k, n,
        )  # fmt: skip
        return
    # linear domain: M' = L' R + L R'
    rows = code[row + ROWS]
    if m == 1:
        vector_tangent_product(work, left, right, rt, gain, message, shared, k, n)
    else:
        # L' R
        x = 2 * rooms[0]
        _table_change(work, gain, left, code[row + LEFT + CELLS], scratch, x)
        matrix_product(scratch, x, lt, work, right, rt, gain, message, shared, m, k, n)
        # L R'
        _table_change(work, gain, right, code[row + RIGHT + CELLS], scratch, x)
        matrix_product(work, left, lt, scratch, x, rt, scratch, 0, shared, m, k, n)
        # their sum, and as the gain of a logarithm divided by m
        out, more = gain[message : message + rows], scratch[:rows]
        for s in range(rows):
            out[s] += more[s]
    divide(gain, work, message, rows, scale, gain, message)


@njit(**OPTIONS)
def _distribute_product(code, row, maps, work, scale, scratch, rooms, mode, mu, gain, change):
    """Changes of both groups' marginals, spread on their items."""
    left, right, message = code[row + LEFT], code[row + RIGHT], code[row + MESSAGE]
    lt, rt = code[row + LEFT_TURNED], code[row + RIGHT_TURNED]
    shared, m, k, n = code[row + SHARED], code[row + OUTER], code[row + STATES], code[row + INNER]
    left_size, right_size = code[row + LEFT + CELLS], code[row + RIGHT + CELLS]
    # where the changes of the two groups are made: in place for one item as it lies, else in the scratch
    x, z = 2 * rooms[0], 2 * rooms[0] + 2 * rooms[1]
    left_out, left_at = (change, left) if code[row + LEFT + IS_ALIAS] else (scratch, x)
    right_out, right_at = (change, right) if code[row + RIGHT + IS_ALIAS] else (scratch, z)
    if mode == LOGARITHMIC:
        left_out[left_at : left_at + left_size] = 0.0
        right_out[right_at : right_at + right_size] = 0.0
        log_product_tangent(
            work, left, lt, right, rt, message, scale, mu, gain, change, True,
            left_out, left_at, right_out, right_at, shared, m, k, n,
        )  # fmt: skip
    else:
        _adjoints(code, row, work, scale, scratch, rooms, mu, gain, change)
        if m > 1:
            _matrix_sides(code, row, maps, work, scratch, rooms, mu, gain, change)
            return
        vector_tangent_adjoint(
            work, left, right, rt, scratch, 0, rooms[0], gain, left_out, left_at, right_out, right_at,
            shared, k, n,
        )  # fmt: skip
    # sum the changes onto the items
    _spread_change(code, row + LEFT, maps, scratch, x, change)
    _spread_change(code, row + RIGHT, maps, scratch, z, change)


@njit(**OPTIONS)
def _adjoints(code, row, work, scale, scratch, rooms, mu, gain, change):
    """D = P(s) / m(s) and its change D' = P'(s) / m(s) - D gain(s), into the scratch."""
    message, rows = code[row + MESSAGE], code[row + ROWS]
    # D, and P' / m
    divide(mu, work, message, rows, scale, scratch, 0)
    divide(change, work, message, rows, scale, scratch, rooms[0])
    # D' = P' / m - D g(m)
    d, moved, rise = scratch[:rows], scratch[rooms[0] : rooms[0] + rows], gain[message : message + rows]
    for s in range(rows):
        moved[s] -= d[s] * rise[s]


@njit(**OPTIONS)
def _matrix_sides(code, row, maps, work, scratch, rooms, mu, gain, change):
    """L ∘ (D' Rᵀ + D R'ᵀ) + gain ∘ P_L, and R ∘ (Lᵀ D' + L'ᵀ D) + gain ∘ P_R."""
    left, right = code[row + LEFT], code[row + RIGHT]
    lt, rt = code[row + LEFT_TURNED], code[row + RIGHT_TURNED]
    shared, m, k, n = code[row + SHARED], code[row + OUTER], code[row + STATES], code[row + INNER]
    left_size, right_size = code[row + LEFT + CELLS], code[row + RIGHT + CELLS]
    # places in the scratch: D, D', and three groups
    d, e = 0, rooms[0]
    x, y, z = 2 * rooms[0], 2 * rooms[0] + rooms[1], 2 * rooms[0] + 2 * rooms[1]

    # left group: x = D R'ᵀ, y = D' Rᵀ
    _table_change(work, gain, right, right_size, scratch, z)
    adjoint_left(scratch, d, scratch, z, rt, scratch, x, lt, shared, m, k, n)
    adjoint_left(scratch, e, work, right, rt, scratch, y, lt, shared, m, k, n)
    out, at = (change, left) if code[row + LEFT + IS_ALIAS] else (scratch, x)
    joint, lies = (mu, left) if code[row + LEFT + IS_ALIAS] else (work, code[row + LEFT_MARGINAL])
    _combine(work, gain, left, left_size, scratch, x, y, joint, lies, out, at)
    _spread_change(code, row + LEFT, maps, scratch, x, change)

    # right group: x = L'ᵀ D, y = Lᵀ D'
    _table_change(work, gain, left, left_size, scratch, z)
    adjoint_right(scratch, z, lt, scratch, d, scratch, x, rt, shared, m, k, n)
    adjoint_right(work, left, lt, scratch, e, scratch, y, rt, shared, m, k, n)
    out, at = (change, right) if code[row + RIGHT + IS_ALIAS] else (scratch, x)
    joint, lies = (mu, right) if code[row + RIGHT + IS_ALIAS] else (work, code[row + RIGHT_MARGINAL])
    _combine(work, gain, right, right_size, scratch, x, y, joint, lies, out, at)
    _spread_change(code, row + RIGHT, maps, scratch, x, change)


@njit(**OPTIONS)
def _spread_change(code, at, maps, scratch, table, change):
    if code[at + IS_ALIAS] == 0:
        first, count, size, length = code[at + ITEMS], code[at + COUNT], code[at + CELLS], code[at + LENGTH]
        spread(scratch, table, code, first, count, maps, size, length, change)


@njit(**OPTIONS)
def _table_change(work, gain, table, size, out, at):
    """L ∘ gain, the derivative of a table."""
    result, factor, rise = out[at : at + size], work[table : table + size], gain[table : table + size]
    for c in range(size):
        result[c] = factor[c] * rise[c]


@njit(**OPTIONS)
def _combine(work, gain, table, size, scratch, x, y, joint, lies, out, at):
    """L ∘ (one + two) + gain ∘ joint."""
    result, factor, rise = out[at : at + size], work[table : table + size], gain[table : table + size]
    one, two, known = scratch[x : x + size], scratch[y : y + size], joint[lies : lies + size]
    for c in range(size):
        result[c] = factor[c] * (one[c] + two[c]) + rise[c] * known[c]
