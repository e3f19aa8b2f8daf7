"""The compiled interpreter of a plan: the collect and distribute sweeps.

Compiled once an installation, see `compiled`; nothing is compiled for a model.

Every table of the linear mode has entries in [0, 1]: each factor is divided by its largest cell, each
message by its largest entry. ``docs/marginals.md`` proves that the answer is right when no possible entry
of a message falls below `SMALLEST` before that division, which `collect` checks. Inner loops run over
slices, because numba tests every other index for wrapping around, which keeps loops from being vectorised.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

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
    log_product,
    log_product_spread,
)
from bayesprivmrf.marginals.products import (
    OPTIONS,
    adjoint_left,
    adjoint_right,
    build,
    build_sum,
    matrix_product,
    spread,
    vector_adjoint,
    vector_product,
)

LINEAR, SUPPORT, LOGARITHMIC = 0, 1, 2
# Smallest raw entry of a message that the linear mode accepts, by the proof in docs/marginals.md
SMALLEST = 1e-260


@njit(**OPTIONS)
def prepare(theta, offsets, work, exponentiate):
    """Write θ less each factor's maximum, or its exponential; return Σ max and whether -inf was met."""
    total = 0.0
    has_zeros = False
    for f in range(offsets.size - 1):
        # the maximum is taken out of each factor; a minimum of minus infinity means impossible cells
        cells, out = theta[offsets[f] : offsets[f + 1]], work[offsets[f] : offsets[f + 1]]
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
    """The smallest and the largest entry; `nnan` lets the compiler take several at a time."""
    low, top = np.inf, -np.inf
    for c in range(entries.size):
        x = entries[c]
        low = x if x < low else low
        top = x if x > top else top
    return low, top


@njit(**OPTIONS)
def collect(code, steps, maps, work, scales, support, cells, mode):
    """Eliminate every variable; return A less the factors' maxima, and whether the answer can be trusted.

    `support` marks the possible entries of the messages; empty where no potential is minus infinity.
    """
    total = 0.0
    for step in range(steps):
        row = HEADER * step
        # the raw message m(s) = Σ_v Π_i item_i(s, v), or its logarithm
        if code[row + IS_PRODUCT]:
            _collect_product(code, row, maps, work, mode)
        elif mode == LOGARITHMIC:
            _collect_cells_log(code, row, maps, work)
        else:
            _collect_cells(code, row, maps, work)
        message, rows = code[row + MESSAGE], code[row + ROWS]
        entries = work[message : message + rows]
        # an entry of a message is possible if any of its terms is
        if mode == SUPPORT:
            for s in range(rows):
                entries[s] = 1.0 if entries[s] > 0.0 else 0.0
            continue
        low, top = _extremes(entries)
        scales[step] = top
        # log domain: store log m - max log m, and A gains max log m
        if mode == LOGARITHMIC:
            if top == -np.inf:
                return -np.inf, True
            entries -= top
            total += top
            continue
        # linear domain: trusted only if no possible entry is below SMALLEST
        if support.size > 0:
            low = _smallest_possible(entries, support[message - cells : message - cells + rows])
        if not low >= SMALLEST:
            return 0.0, False
        # store m / max m, and A gains log max m
        total += math.log(top)
        scale = 1.0 / top
        for s in range(rows):
            entries[s] *= scale
    return total, True


@njit(**OPTIONS)
def _smallest_possible(entries, possible):
    low = np.inf
    for s in range(entries.size):
        if possible[s]:
            low = min(low, entries[s])
    return low


@njit(**OPTIONS)
def _collect_cells(code, row, maps, work):
    """The table of p(v | s), the raw message in its place."""
    # formula: m(s) = Σ_v Π_i item_i(s, v) and p(v | s) = Π_i item_i(s, v) / m(s)
    k, message, rows = code[row + STATES], code[row + MESSAGE], code[row + ROWS]
    table, first, count = code[row + LEFT], code[row + LEFT + ITEMS], code[row + LEFT + COUNT]
    for s in range(rows):
        line = work[table + s * k : table + (s + 1) * k]
        # the product of the items: the first is copied, the others multiply
        at, stride = code[first] + maps[code[first + 1] + s], code[first + 2]
        for v in range(k):
            line[v] = work[at + v * stride]
        for i in range(1, count):
            item = first + ITEM * i
            at, stride = code[item] + maps[code[item + 1] + s], code[item + 2]
            for v in range(k):
                line[v] *= work[at + v * stride]
        # the message, and the conditional distribution in place of the product
        mass = 0.0
        for v in range(k):
            mass += line[v]
        work[message + s] = mass
        scale = 1.0 / mass if mass > 1e-300 else 0.0  # smaller ones are impossible, or fail the check
        for v in range(k):
            line[v] *= scale


@njit(**OPTIONS)
def _collect_cells_log(code, row, maps, work):
    """The same from logarithms."""
    # formula: log m(s) = log Σ_v exp(Σ_i item_i(s, v)), with the largest term taken out
    k, message, rows = code[row + STATES], code[row + MESSAGE], code[row + ROWS]
    table, first, count = code[row + LEFT], code[row + LEFT + ITEMS], code[row + LEFT + COUNT]
    for s in range(rows):
        line = work[table + s * k : table + (s + 1) * k]
        # the sum of the items
        line[:] = 0.0
        for i in range(count):
            item = first + ITEM * i
            at, stride = code[item] + maps[code[item + 1] + s], code[item + 2]
            for v in range(k):
                line[v] += work[at + v * stride]
        # the largest term; without a possible one p(v | s) is zero
        top = -np.inf
        for v in range(k):
            top = max(top, line[v])
        if top == -np.inf:
            line[:] = 0.0
            work[message + s] = top
            continue
        # the message, and the conditional distribution in place of the sum
        mass = 0.0
        for v in range(k):
            line[v] = math.exp(line[v] - top)
            mass += line[v]
        for v in range(k):
            line[v] /= mass
        work[message + s] = top + math.log(mass)


@njit(**OPTIONS)
def _collect_product(code, row, maps, work, mode):
    """The tables L and R, the raw message in its place."""
    # formula: m(b, i, j) = Σ_v L(b, i, v) R(b, v, j), each group L and R the product of its items
    left, right, message = code[row + LEFT], code[row + RIGHT], code[row + MESSAGE]
    shared, m, k, n = code[row + SHARED], code[row + OUTER], code[row + STATES], code[row + INNER]
    # a group that is one item as it lies is not made
    for at in (row + LEFT, row + RIGHT):
        if code[at + IS_ALIAS]:
            continue
        first, count, size, length = code[at + ITEMS], code[at + COUNT], code[at + CELLS], code[at + LENGTH]
        if mode == LOGARITHMIC:
            build_sum(work, code, first, count, maps, code[at], size, length)
        else:
            build(work, code, first, count, maps, code[at], size, length)
    # the product, by the kernel for its domain and shape
    lt, rt = code[row + LEFT_TURNED], code[row + RIGHT_TURNED]
    if mode == LOGARITHMIC:
        log_product(work, left, lt, right, rt, message, shared, m, k, n)
    elif m == 1:
        vector_product(work, left, right, rt, message, shared, k, n)
    else:
        matrix_product(work, left, lt, work, right, rt, work, message, shared, m, k, n)


@njit(**OPTIONS)
def clear(code, first, count, values):
    """Zero the cells of some items."""
    for i in range(count):
        start = code[first + ITEM * i]
        values[start : start + code[first + ITEM * i + 3]] = 0.0


@njit(**OPTIONS)
def divide(values, work, message, rows, scale, out, at):
    """Values of a separator over its raw message; an impossible entry has value zero and stays it."""
    # formula: D(s) = P(s) / m(s), where the message is stored as m / scale
    inverse = 1.0 / scale
    top, bottom, ratio = values[message : message + rows], work[message : message + rows], out[at : at + rows]
    for s in range(rows):
        x = bottom[s]
        ratio[s] = top[s] * inverse / (x if x > 0.0 else 1.0)


@njit(**OPTIONS)
def distribute(code, steps, maps, work, scales, scratch, mode, mu):
    """Marginals of every cell and separator, from the roots down; `scratch` is an offset into `work`."""
    for step in range(steps - 1, -1, -1):
        row = HEADER * step
        # the separator of a root is empty, and its probability is one
        if code[row + IS_ROOT]:
            mu[code[row + MESSAGE]] = 1.0
        if code[row + IS_PRODUCT] == 0:
            _distribute_cells(code, row, maps, work, mu)
            continue
        # the marginal of a group that is one item goes to the cells themselves, else to the workspace
        left_out, left_at = (
            (mu, code[row + LEFT]) if code[row + LEFT + IS_ALIAS] else (work, code[row + LEFT_MARGINAL])
        )
        right_out, right_at = (
            (mu, code[row + RIGHT]) if code[row + RIGHT + IS_ALIAS] else (work, code[row + RIGHT_MARGINAL])
        )
        _distribute_product(
            code, row, work, scales[step], scratch, mode, mu, left_out, left_at, right_out, right_at
        )
        # sum the marginal of each other group onto the cells of its items
        for at, marginal in ((row + LEFT, left_at), (row + RIGHT, right_at)):
            if code[at + IS_ALIAS] == 0:
                first, count = code[at + ITEMS], code[at + COUNT]
                spread(work, marginal, code, first, count, maps, code[at + CELLS], code[at + LENGTH], mu)


@njit(**OPTIONS)
def _distribute_cells(code, row, maps, work, mu):
    """P(s) p(v | s), summed onto the items' cells."""
    # formula: μ_i += P(s) p(v | s), summed over the axes that item i lacks
    k, message = code[row + STATES], code[row + MESSAGE]
    table, first, count = code[row + LEFT], code[row + LEFT + ITEMS], code[row + LEFT + COUNT]
    clear(code, first, count, mu)
    for s in range(code[row + ROWS]):
        q = mu[message + s]
        line = work[table + s * k : table + (s + 1) * k]
        for i in range(count):
            item = first + ITEM * i
            at, stride = code[item] + maps[code[item + 1] + s], code[item + 2]
            for v in range(k):
                mu[at + v * stride] += q * line[v]


@njit(**OPTIONS)
def _distribute_product(code, row, work, scale, scratch, mode, mu, left_out, left_at, right_out, right_at):
    """Both groups' marginals, L ∘ (D Rᵀ) and R ∘ (Lᵀ D) with D = P(s) / m(s)."""
    left, right, message = code[row + LEFT], code[row + RIGHT], code[row + MESSAGE]
    lt, rt = code[row + LEFT_TURNED], code[row + RIGHT_TURNED]
    shared, m, k, n = code[row + SHARED], code[row + OUTER], code[row + STATES], code[row + INNER]
    left_size, right_size = code[row + LEFT + CELLS], code[row + RIGHT + CELLS]
    # log domain: both sums in one pass over the terms
    if mode == LOGARITHMIC:
        left_out[left_at : left_at + left_size] = 0.0
        right_out[right_at : right_at + right_size] = 0.0
        log_product_spread(
            work, left, lt, right, rt, message, scale, mu, left_out, left_at, right_out, right_at,
            shared, m, k, n,
        )  # fmt: skip
        return
    # linear domain: D, then the two products of matrices
    divide(mu, work, message, code[row + ROWS], scale, work, scratch)
    if m == 1:
        vector_adjoint(work, left, right, rt, scratch, left_out, left_at, right_out, right_at, shared, k, n)
        return
    adjoint_left(work, scratch, work, right, rt, left_out, left_at, lt, shared, m, k, n)
    adjoint_right(work, left, lt, work, scratch, right_out, right_at, rt, shared, m, k, n)
    _times(left_out, left_at, work, left, left_size)
    _times(right_out, right_at, work, right, right_size)


@njit(**OPTIONS)
def _times(values, at, work, table, size):
    """Values ∘ table, in place."""
    out, factor = values[at : at + size], work[table : table + size]
    for c in range(size):
        out[c] *= factor[c]
