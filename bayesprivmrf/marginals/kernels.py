"""The collect and distribute sweeps of exact inference, compiled.

Both sweeps interpret the integers of a `Program`, so they are compiled once per installation and not once per model.
A step eliminates one variable v. With s the states of the separator, and the items the potentials and messages that
contain v,

    collect:     m(s) = Σ_v Π_i item_i(s, v)  and  p(v | s) = Π_i item_i(s, v) / m(s),
    distribute:  P(s, v) = P(s) p(v | s), summed onto the cells of each item.

Every table has entries in [0, 1], because each factor is divided by its largest cell and each
message by its largest entry. ``docs/explanation/marginals.md`` proves that the answer is right if no possible entry
of a message is below `SMALLEST` before that division. `collect` checks this condition; where it fails, the engine in
plain NumPy computes in the log domain.

Inner loops run over slices. numba tests any other index for wrapping around, which keeps the compiler from using
vector instructions.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.marginals.lowering import AT
from bayesprivmrf.marginals.products import (
    OPTIONS,
    adjoint_left,
    adjoint_right,
    build_product,
    matrix_product,
    spread,
    start,
    vector_adjoint,
    vector_product,
)

# Smallest raw entry of a message that `collect` accepts, by the proof in docs/explanation/marginals.md
SMALLEST = 1e-260
# Mass up to which cells count as impossible, so that 1 / mass stays finite
_IMPOSSIBLE = 1e-300


@njit(**OPTIONS)
def prepare(theta, offsets, work, exponentiate):
    """Write θ less each factor's maximum, or the exponential of that.

    Returns the sum of the maxima, and True if some potential is minus infinity.
    """
    total = 0.0
    has_zeros = False
    for f in range(offsets.size - 1):
        # the maximum is taken out of each factor; a minimum of minus infinity means impossible cells
        cells = theta[offsets[f] : offsets[f + 1]]
        out = work[offsets[f] : offsets[f + 1]]
        low, top = _extremes(cells)
        total += top
        if low == -np.inf:
            has_zeros = True
            if top == -np.inf:
                top = 0.0
        # exp(θ - max θ), in [0, 1], or its exponent
        if exponentiate:
            for c in range(cells.size):
                out[c] = math.exp(cells[c] - top)
        else:
            for c in range(cells.size):
                out[c] = cells[c] - top
    return total, has_zeros


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz", "nnan"}, error_model="numpy")
def _extremes(entries):
    """Return the smallest and the largest entry."""
    # the option `nnan` above lets the compiler compare several entries at a time
    low = np.inf
    top = -np.inf
    for c in range(entries.size):
        x = entries[c]
        low = x if x < low else low
        top = x if x > top else top
    return low, top


@njit(**OPTIONS)
def collect(code, steps, maps, work, scales, support, cells, is_support):
    """Eliminate every variable; return A less the factors' maxima, or NaN if that cannot be trusted.

    `support` marks the possible entries of the messages. It is empty if no potential is minus infinity. If
    `is_support` is true, the cells are zeros and ones, and the sweep writes that mask to the messages.
    """
    total = 0.0
    for step in range(steps):
        row = AT.per_step * step
        # the raw message m(s) = Σ_v Π_i item_i(s, v)
        if code[row + AT.is_product]:
            _collect_product(code, row, maps, work)
        else:
            _collect_cells(code, row, maps, work)
        message = code[row + AT.message]
        rows = code[row + AT.rows]
        entries = work[message : message + rows]
        # an entry of a message is possible if any of its terms is
        if is_support:
            for s in range(rows):
                entries[s] = 1.0 if entries[s] > 0.0 else 0.0
            continue
        low, top = _extremes(entries)
        scales[step] = top
        # trusted only if no possible entry is below SMALLEST
        if support.size > 0:
            low = _smallest_possible(entries, support[message - cells : message - cells + rows])
        if not low >= SMALLEST:
            return np.nan
        # store m / max m, and A gains log max m
        total += math.log(top)
        scale = 1.0 / top
        for s in range(rows):
            entries[s] *= scale
    return total


@njit(**OPTIONS)
def _smallest_possible(entries, possible):
    """Return the smallest of the possible entries."""
    low = np.inf
    for s in range(entries.size):
        if possible[s]:
            low = min(low, entries[s])
    return low


@njit(**OPTIONS)
def _collect_cells(code, row, maps, work):
    """Write the table p(v | s) and the raw message m(s)."""
    # formula: m(s) = Σ_v Π_i item_i(s, v) and p(v | s) = Π_i item_i(s, v) / m(s)
    k = code[row + AT.states]
    message = code[row + AT.message]
    rows = code[row + AT.rows]
    group = row + AT.left
    table = code[group]
    first = code[group + AT.items]
    count = code[group + AT.n_items]
    for s in range(rows):
        line = work[table + s * k : table + (s + 1) * k]
        # the product of the items: the first is copied, the others multiply
        at = start(code, first, maps, s)
        stride = code[first + AT.stride]
        for v in range(k):
            line[v] = work[at + v * stride]
        for i in range(1, count):
            item = first + AT.per_item * i
            at = start(code, item, maps, s)
            stride = code[item + AT.stride]
            for v in range(k):
                line[v] *= work[at + v * stride]
        # the message, and the conditional distribution in place of the product
        mass = 0.0
        for v in range(k):
            mass += line[v]
        work[message + s] = mass
        # a mass of at most `_IMPOSSIBLE` is impossible, or fails the check in `collect`
        scale = 1.0 / mass if mass > _IMPOSSIBLE else 0.0
        for v in range(k):
            line[v] *= scale


@njit(**OPTIONS)
def _collect_product(code, row, maps, work):
    """Write the tables L and R of the two groups, and the raw message."""
    # formula: m(b, i, j) = Σ_v L(b, i, v) R(b, v, j), with L and R the products of the items of each group
    left = code[row + AT.left]
    right = code[row + AT.right]
    message = code[row + AT.message]
    shared = code[row + AT.shared]
    m = code[row + AT.outer]
    k = code[row + AT.states]
    n = code[row + AT.inner]
    build_product(work, code, row + AT.left, maps)
    build_product(work, code, row + AT.right, maps)
    # the product, by the kernel for its shape
    lt = code[row + AT.left_turned]
    rt = code[row + AT.right_turned]
    if m == 1:
        vector_product(work, left, right, rt, message, shared, k, n)
    else:
        matrix_product(work, left, lt, work, right, rt, work, message, shared, m, k, n)


@njit(**OPTIONS)
def clear(code, first, count, values):
    """Set the cells of some items to zero."""
    for i in range(count):
        item = first + AT.per_item * i
        values[code[item] : code[item] + code[item + AT.item_cells]] = 0.0


@njit(**OPTIONS)
def divide(values, work, message, rows, scale, out, at):
    """Divide the values of a separator by its raw message; impossible entries are zero and stay zero."""
    # formula: D(s) = P(s) / m(s), where the message is stored as m / scale
    inverse = 1.0 / scale
    top = values[message : message + rows]
    bottom = work[message : message + rows]
    ratio = out[at : at + rows]
    for s in range(rows):
        x = bottom[s]
        ratio[s] = top[s] * inverse / (x if x > 0.0 else 1.0)


@njit(**OPTIONS)
def distribute(code, steps, maps, work, scales, scratch, mu):
    """Write the marginals of all cells and separators, from the roots down; `scratch` is an offset into `work`."""
    for step in range(steps - 1, -1, -1):
        row = AT.per_step * step
        # the separator of a root is empty, and its probability is one
        if code[row + AT.is_root]:
            mu[code[row + AT.message]] = 1.0
        if code[row + AT.is_product]:
            _distribute_product(code, row, maps, work, scales[step], scratch, mu)
        else:
            _distribute_cells(code, row, maps, work, mu)


@njit(**OPTIONS)
def _distribute_cells(code, row, maps, work, mu):
    """Sum P(s) p(v | s) onto the cells of the items."""
    # formula: μ_i += P(s) p(v | s), summed over the axes that item i lacks
    k = code[row + AT.states]
    message = code[row + AT.message]
    group = row + AT.left
    table = code[group]
    first = code[group + AT.items]
    count = code[group + AT.n_items]
    clear(code, first, count, mu)
    for s in range(code[row + AT.rows]):
        q = mu[message + s]
        line = work[table + s * k : table + (s + 1) * k]
        for i in range(count):
            item = first + AT.per_item * i
            at = start(code, item, maps, s)
            stride = code[item + AT.stride]
            for v in range(k):
                mu[at + v * stride] += q * line[v]


@njit(**OPTIONS)
def _distribute_product(code, row, maps, work, scale, scratch, mu):
    """Sum the marginals of both groups onto the cells of their items."""
    # formula: P_L = L ∘ (D Rᵀ) and P_R = R ∘ (Lᵀ D), with D = P(s) / m(s)
    left = code[row + AT.left]
    right = code[row + AT.right]
    message = code[row + AT.message]
    lt = code[row + AT.left_turned]
    rt = code[row + AT.right_turned]
    shared = code[row + AT.shared]
    m = code[row + AT.outer]
    k = code[row + AT.states]
    n = code[row + AT.inner]
    # the marginal of a group read in place goes to the cells themselves, any other to the workspace
    if code[row + AT.left + AT.is_alias]:
        left_out = mu
        left_at = left
    else:
        left_out = work
        left_at = code[row + AT.left_marginal]
    if code[row + AT.right + AT.is_alias]:
        right_out = mu
        right_at = right
    else:
        right_out = work
        right_at = code[row + AT.right_marginal]
    # D, then the two products of matrices
    divide(mu, work, message, code[row + AT.rows], scale, work, scratch)
    if m == 1:
        vector_adjoint(
            work, left, right, rt, scratch, left_out, left_at, right_out, right_at, shared, k, n
        )
    else:
        adjoint_left(work, scratch, work, right, rt, left_out, left_at, lt, shared, m, k, n)
        adjoint_right(work, left, lt, work, scratch, right_out, right_at, rt, shared, m, k, n)
        _times(left_out, left_at, work, left, code[row + AT.left + AT.cells])
        _times(right_out, right_at, work, right, code[row + AT.right + AT.cells])
    spread(work, left_at, code, row + AT.left, maps, mu)
    spread(work, right_at, code, row + AT.right, maps, mu)


@njit(**OPTIONS)
def _times(values, at, work, table, size):
    """Multiply values by a table, entry by entry, in place."""
    out = values[at : at + size]
    factor = work[table : table + size]
    for c in range(size):
        out[c] *= factor[c]
