"""Compiled products of two tables, with their adjoints and tangents.

A step's message is m(b, i, j) = Σ_v L(b, i, v) R(b, v, j). There are `shared` states b, `m` states i, `k` states v
and `n` states j. A table is given as an array and an offset into it. A table stored transposed (`lt` or `rt` true)
has its last two blocks of axes exchanged.

A group is given by the place of its integers in `code`, which `lowering.CodeLayout` describes. A group that is read
in place is left alone. Stride 0 means that the item is constant along a row.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER
from bayesprivmrf.marginals.lowering import AT
from bayesprivmrf.marginals.planning import BLAS_FROM

# sums may be reordered, for vector instructions; a division by zero gives infinity and is not tested for
OPTIONS = {
    "nogil": True,
    "fastmath": {"reassoc", "contract", "nsz"},
    "error_model": "numpy",
    **INNER,
}


@njit(**OPTIONS)
def start(code, item, maps, row):
    """Return the place of an item's first cell in a row of the group's table."""
    return code[item] + maps[code[item + AT.row_map] + row]


@njit(**OPTIONS)
def _sum(values):
    """Return the sum of the values."""
    # A loop of its own. In a loop that also stores, whether the compiler adds several terms at a time, and so the
    # last bit of the sum, would depend on how close the arrays happen to lie in memory.
    total = 0.0
    for c in range(values.size):
        total += values[c]
    return total


@njit(**OPTIONS)
def build_product(work, code, group, maps):
    """Write the table of a group: the product of its items.

    Leading items of stride 0 and the items of stride 1 that follow them are multiplied by faster loops. The last loop
    takes items of any stride.
    """
    if code[group + AT.is_alias]:
        return
    first = code[group + AT.items]
    end = first + AT.per_item * code[group + AT.n_items]
    length = code[group + AT.length]
    table = code[group]
    for row in range(code[group + AT.cells] // length):
        out = work[table + row * length : table + (row + 1) * length]
        # leading items that are constant along the row: one number each
        x = 1.0
        item = first
        while item < end and code[item + AT.stride] == 0:
            x *= work[start(code, item, maps, row)]
            item += AT.per_item
        if item == end:
            out[:] = x
            continue
        # then items of stride 1, the first two in one pass
        started = False
        while item < end and code[item + AT.stride] == 1:
            at = start(code, item, maps, row)
            source = work[at : at + length]
            item += AT.per_item
            if started:
                for c in range(length):
                    out[c] *= source[c]
                continue
            started = True
            if item < end and code[item + AT.stride] == 1:
                at = start(code, item, maps, row)
                other = work[at : at + length]
                for c in range(length):
                    out[c] = x * source[c] * other[c]
                item += AT.per_item
            else:
                for c in range(length):
                    out[c] = x * source[c]
        if not started:
            out[:] = x
        # the other items, of any stride
        while item < end:
            at = start(code, item, maps, row)
            stride = code[item + AT.stride]
            for c in range(length):
                out[c] *= work[at + c * stride]
            item += AT.per_item


@njit(**OPTIONS)
def build_sum(work, code, group, maps):
    """Write the sum of the items of a group, for derivatives of logarithms."""
    if code[group + AT.is_alias]:
        return
    first = code[group + AT.items]
    end = first + AT.per_item * code[group + AT.n_items]
    length = code[group + AT.length]
    table = code[group]
    for row in range(code[group + AT.cells] // length):
        out = work[table + row * length : table + (row + 1) * length]
        # add each item to the row
        out[:] = 0.0
        for item in range(first, end, AT.per_item):
            at = start(code, item, maps, row)
            stride = code[item + AT.stride]
            if stride == 1:
                source = work[at : at + length]
                for c in range(length):
                    out[c] += source[c]
            else:
                for c in range(length):
                    out[c] += work[at + c * stride]


@njit(**OPTIONS)
def spread(source, table, code, group, maps, values):
    """Sum a group's table onto the cells of its items."""
    if code[group + AT.is_alias]:
        return
    first = code[group + AT.items]
    end = first + AT.per_item * code[group + AT.n_items]
    length = code[group + AT.length]
    for item in range(first, end, AT.per_item):
        # set the cells that receive sums to zero
        offset = code[item]
        values[offset : offset + code[item + AT.item_cells]] = 0.0
    for row in range(code[group + AT.cells] // length):
        part = source[table + row * length : table + (row + 1) * length]
        item = first
        # leading items that are constant along the row receive its total
        if code[first + AT.stride] == 0:
            total = _sum(part)
            while item < end and code[item + AT.stride] == 0:
                values[start(code, item, maps, row)] += total
                item += AT.per_item
        # the others receive it cell by cell
        while item < end:
            at = start(code, item, maps, row)
            stride = code[item + AT.stride]
            if stride == 1:
                target = values[at : at + length]
                for c in range(length):
                    target[c] += part[c]
            else:
                for c in range(length):
                    values[at + c * stride] += part[c]
            item += AT.per_item


@njit(**OPTIONS)
def _multiply(a, a_at, a_t, b, b_at, b_t, out, at, m, k, n):
    """Write the matrix product out (m, n) = a (m, k) b (k, n); `_t` means that a matrix is stored transposed."""
    # large: BLAS, with transposes as views
    if m * k * n >= BLAS_FROM:
        o = out[at : at + m * n].reshape(m, n)
        p = a[a_at : a_at + m * k]
        q = b[b_at : b_at + k * n]
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
    # small: plain loops, the inner one along memory
    a_row, a_column = (1, m) if a_t else (k, 1)
    for i in range(m):
        row = out[at + i * n : at + (i + 1) * n]
        if b_t:
            for j in range(n):
                column = b[b_at + j * k : b_at + (j + 1) * k]
                total = 0.0
                for v in range(k):
                    total += a[a_at + i * a_row + v * a_column] * column[v]
                row[j] = total
        else:
            row[:] = 0.0
            for v in range(k):
                x = a[a_at + i * a_row + v * a_column]
                factor = b[b_at + v * n : b_at + (v + 1) * n]
                for j in range(n):
                    row[j] += x * factor[j]


@njit(**OPTIONS)
def matrix_product(a, left, lt, b, right, rt, out, at, shared, m, k, n):
    """Write M = L R for each shared state."""
    for s in range(shared):
        _multiply(a, left + s * m * k, lt, b, right + s * k * n, rt, out, at + s * m * n, m, k, n)


@njit(**OPTIONS)
def adjoint_left(d, d_at, b, right, rt, out, at, lt, shared, m, k, n):
    """Write D Rᵀ for each shared state, stored as L is: R Dᵀ if L is transposed."""
    first, second = (b, d) if lt else (d, b)
    for s in range(shared):
        x = d_at + s * m * n
        y = right + s * k * n
        o = at + s * m * k
        if lt:
            one = y
            one_t = rt
            two = x
            two_t = 1
            rows = k
            columns = m
        else:
            one = x
            one_t = 0
            two = y
            two_t = 1 - rt
            rows = m
            columns = k
        _multiply(first, one, one_t, second, two, two_t, out, o, rows, n, columns)


@njit(**OPTIONS)
def adjoint_right(a, left, lt, d, d_at, out, at, rt, shared, m, k, n):
    """Write Lᵀ D for each shared state, stored as R is: Dᵀ L if R is transposed."""
    first, second = (d, a) if rt else (a, d)
    for s in range(shared):
        x = left + s * m * k
        y = d_at + s * m * n
        o = at + s * k * n
        if rt:
            one = y
            one_t = 1
            two = x
            two_t = lt
            rows = n
            columns = k
        else:
            one = x
            one_t = 1 - lt
            two = y
            two_t = 0
            rows = k
            columns = n
        _multiply(first, one, one_t, second, two, two_t, out, o, rows, m, columns)


@njit(**OPTIONS)
def vector_product(work, left, right, rt, message, shared, k, n):
    """Write the message if L is a vector for each shared state."""
    # formula: m(j) = Σ_v L(v) R(v, j)
    for s in range(shared):
        vector = work[left + s * k : left + (s + 1) * k]
        out = work[message + s * n : message + (s + 1) * n]
        # R is transposed: a scalar product for each j
        if rt:
            for j in range(n):
                at = right + (s * n + j) * k
                line = work[at : at + k]
                total = 0.0
                for v in range(k):
                    total += vector[v] * line[v]
                out[j] = total
        # R is not transposed: a multiple of a row for each v
        else:
            out[:] = 0.0
            for v in range(k):
                at = right + (s * k + v) * n
                line = work[at : at + n]
                x = vector[v]
                for j in range(n):
                    out[j] += x * line[j]


@njit(**OPTIONS)
def vector_adjoint(work, left, right, rt, d, left_out, left_at, right_out, right_at, shared, k, n):
    """Write the marginals L ∘ (D Rᵀ) and R ∘ (Lᵀ D) in one pass, if L is a vector for each shared state."""
    # formula: P_R(v, j) = D(j) L(v) R(v, j) and P_L(v) = Σ_j P_R(v, j)
    for s in range(shared):
        vector = work[left + s * k : left + (s + 1) * k]
        adjoint = work[d + s * n : d + (s + 1) * n]
        summed = left_out[left_at + s * k : left_at + (s + 1) * k]
        if rt:
            summed[:] = 0.0
            for j in range(n):
                at = (s * n + j) * k
                line = work[right + at : right + at + k]
                out = right_out[right_at + at : right_at + at + k]
                y = adjoint[j]
                for v in range(k):
                    t = y * line[v] * vector[v]
                    out[v] = t
                    summed[v] += t
        else:
            for v in range(k):
                at = (s * k + v) * n
                line = work[right + at : right + at + n]
                out = right_out[right_at + at : right_at + at + n]
                y = vector[v]
                for j in range(n):
                    out[j] = line[j] * adjoint[j] * y
                summed[v] = _sum(out)


@njit(**OPTIONS)
def vector_tangent_product(work, left, right, rt, gain, message, shared, k, n):
    """Write the derivative of the raw message, if L is a vector for each shared state."""
    # formula: m'(j) = Σ_v L(v) R(v, j) (g_L(v) + g_R(v, j)), with gains g the derivatives of logarithms
    for s in range(shared):
        vector = work[left + s * k : left + (s + 1) * k]
        rise = gain[left + s * k : left + (s + 1) * k]
        out = gain[message + s * n : message + (s + 1) * n]
        if rt:
            for j in range(n):
                at = right + (s * n + j) * k
                line = work[at : at + k]
                slope = gain[at : at + k]
                total = 0.0
                for v in range(k):
                    total += vector[v] * line[v] * (rise[v] + slope[v])
                out[j] = total
        else:
            out[:] = 0.0
            for v in range(k):
                at = right + (s * k + v) * n
                line = work[at : at + n]
                slope = gain[at : at + n]
                x = vector[v]
                y = rise[v]
                for j in range(n):
                    out[j] += x * line[j] * (y + slope[j])


@njit(**OPTIONS)
def vector_tangent_adjoint(
    work, left, right, rt, scratch, d, e, gain, left_out, left_at, right_out, right_at, shared, k, n
):
    """Write the derivatives of the two groups' marginals, if L is a vector for each shared state."""
    # formula: P_R' = L R (D (g_L + g_R) + D') and P_L' = Σ_j P_R'
    for s in range(shared):
        vector = work[left + s * k : left + (s + 1) * k]
        rise = gain[left + s * k : left + (s + 1) * k]
        adjoint = scratch[d + s * n : d + (s + 1) * n]
        moved = scratch[e + s * n : e + (s + 1) * n]
        summed = left_out[left_at + s * k : left_at + (s + 1) * k]
        if rt:
            summed[:] = 0.0
            for j in range(n):
                at = (s * n + j) * k
                line = work[right + at : right + at + k]
                slope = gain[right + at : right + at + k]
                out = right_out[right_at + at : right_at + at + k]
                f = adjoint[j]
                h = moved[j]
                for v in range(k):
                    t = vector[v] * line[v] * (f * (rise[v] + slope[v]) + h)
                    out[v] = t
                    summed[v] += t
        else:
            for v in range(k):
                at = (s * k + v) * n
                line = work[right + at : right + at + n]
                slope = gain[right + at : right + at + n]
                out = right_out[right_at + at : right_at + at + n]
                f = vector[v]
                h = rise[v]
                for j in range(n):
                    out[j] = f * line[j] * (adjoint[j] * (h + slope[j]) + moved[j])
                summed[v] = _sum(out)
