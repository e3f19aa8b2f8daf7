"""Compiled sweeps of loopy belief propagation, in the log domain.

Messages are kept with maximum zero. A message's zeros (minus infinity) are counted apart from its finite
entries, so that what a variable tells a factor is never a difference of infinities.

The four compiled entry points, kept by numba between processes.

A compiled function that calls another is optimised together with all of its code, half a minute for the sweeps. So
these lie behind C functions that others find by name: a call of a named symbol costs no such time, and code that
holds it can be kept as well. The name must be known before such code is loaded, which `build` sees to. Each C
function takes one address, of its arguments in order: a number, or the address and the size of an array.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import njit, types
from numba.extending import overload

from bayesprivmrf.compiled import carray, checksum, kept, kept_c_function, pointer
from bayesprivmrf.marginals import kernels, tangents

# error_model: a division by zero gives infinity, as in NumPy, and is not tested for
OPTIONS = {"nogil": True, "error_model": "numpy"}


@njit(**OPTIONS)
def _totals(edges, cards, var_at, messages, finite, zeros):
    """Sums of the messages into each variable: the finite entries, and the number of zeros."""
    finite[:] = 0.0
    zeros[:] = 0
    for e in range(edges.shape[0]):
        v, at = edges[e, 0], edges[e, 2]
        for x in range(cards[v]):
            m = messages[at + x]
            if m == -np.inf:
                zeros[var_at[v] + x] += 1
            else:
                finite[var_at[v] + x] += m


@njit(**OPTIONS)
def _incoming(edges, first, last, cards, var_at, messages, finite, zeros, incoming):
    """What a factor's variables tell it: everything they hear, less what it told them itself."""
    # formula: what v tells the factor is Σ over the other factors of v, its own message taken out
    start = 0
    for e in range(first, last):
        v, at = edges[e, 0], edges[e, 2]
        top = -np.inf
        for x in range(cards[v]):
            own = messages[at + x]
            blocked = zeros[var_at[v] + x] - (1 if own == -np.inf else 0)
            value = -np.inf
            if blocked == 0:
                value = finite[var_at[v] + x] - (0.0 if own == -np.inf else own)
            incoming[start + x] = value
            top = max(top, value)
        # maximum zero
        if top > -np.inf:
            for x in range(cards[v]):
                incoming[start + x] -= top
        start += cards[v]


@njit(**OPTIONS)
def _term(edges, first, last, cards, incoming, cell, skip):
    """Σ of the incoming messages at a cell, all but one edge's."""
    total, start = 0.0, 0
    for e in range(first, last):
        k = cards[edges[e, 0]]
        if e != skip:
            total += incoming[start + (cell // edges[e, 1]) % k]
        start += k
    return total


@kept(error_model="numpy")
def sweep(theta, offsets, starts, edges, cards, var_at, messages, finite, zeros, room, damping, forward):
    """Update every message once, in place; return the largest change of a message, infinite where all is zero.

    `room` holds the incoming messages and two vectors of states.
    """
    # sums of all messages into each variable, kept up to date below
    _totals(edges, cards, var_at, messages, finite, zeros)
    incoming, tops, sums = room[0], room[1], room[2]
    residual = 0.0
    factors = starts.size - 1
    for i in range(factors):
        f = i if forward else factors - 1 - i
        # what the variables of the factor tell it
        first, last = starts[f], starts[f + 1]
        _incoming(edges, first, last, cards, var_at, messages, finite, zeros, incoming)
        for e in range(first, last):
            v, stride, at = edges[e, 0], edges[e, 1], edges[e, 2]
            k = cards[v]
            # formula: m_fv(x) = log Σ_{x_f with x_v = x} exp(θ_f + Σ_{w ≠ v} incoming_w), by running maxima
            tops[:k] = -np.inf
            sums[:k] = 0.0
            for c in range(offsets[f], offsets[f + 1]):
                cell = c - offsets[f]
                x = (cell // stride) % k
                value = theta[c] + _term(edges, first, last, cards, incoming, cell, e)
                if value > tops[x]:
                    sums[x] = sums[x] * math.exp(tops[x] - value) + 1.0
                    tops[x] = value
                elif value > -np.inf:
                    sums[x] += math.exp(value - tops[x])
            # the logarithms, and their maximum
            best = -np.inf
            for x in range(k):
                if sums[x] > 0.0:
                    tops[x] += math.log(sums[x])
                best = max(best, tops[x])
            if best == -np.inf:
                return np.inf
            mixed = -np.inf
            for x in range(k):
                new, old = tops[x] - best, messages[at + x]
                # damping mixes the logarithms where both messages are finite
                if damping > 0.0 and old > -np.inf and new > -np.inf:
                    new = (1.0 - damping) * new + damping * old
                tops[x] = new
                mixed = max(mixed, new)
            # store the message with maximum zero, and note how far it moved
            for x in range(k):
                new, old = tops[x] - mixed, messages[at + x]
                residual = max(residual, abs(math.exp(new) - math.exp(old)))
                if old > -np.inf:
                    finite[var_at[v] + x] -= old
                else:
                    zeros[var_at[v] + x] -= 1
                if new > -np.inf:
                    finite[var_at[v] + x] += new
                else:
                    zeros[var_at[v] + x] += 1
                messages[at + x] = new
    return residual


@njit(**OPTIONS)
def _log_sum(values):
    top = values.max()
    if top == -np.inf:
        return top
    total = 0.0
    for x in values:
        total += math.exp(x - top)
    return top + math.log(total)


@kept(error_model="numpy")
def finish(theta, offsets, starts, edges, cards, var_at, messages, finite, zeros, room, mu):
    """Factors' beliefs into `mu`; return Bethe's A, Σ log Z_f + Σ log Z_v - Σ log Z_fv.

    The shifts of the messages cancel between the three sums.
    """
    _totals(edges, cards, var_at, messages, finite, zeros)
    incoming, pair = room[0], room[1]
    total = 0.0
    for f in range(starts.size - 1):
        # log Z_f and the belief of each factor
        first, last = starts[f], starts[f + 1]
        _incoming(edges, first, last, cards, var_at, messages, finite, zeros, incoming)
        cells = mu[offsets[f] : offsets[f + 1]]
        for c in range(cells.size):
            cells[c] = theta[offsets[f] + c] + _term(edges, first, last, cards, incoming, c, -1)
        mass = _log_sum(cells)
        if mass == -np.inf:
            return mass
        total += mass
        for c in range(cells.size):
            cells[c] = math.exp(cells[c] - mass)
        # less log Z_fv of each edge: the product of the two messages along it
        start = 0
        for e in range(first, last):
            k, at = cards[edges[e, 0]], edges[e, 2]
            for x in range(k):
                pair[x] = incoming[start + x] + messages[at + x]
            mass = _log_sum(pair[:k])
            if mass == -np.inf:
                return mass
            total -= mass
            start += k
    # log Z_v of each variable
    for v in range(cards.size):
        out = pair[: cards[v]]
        for x in range(cards[v]):
            out[x] = -np.inf if zeros[var_at[v] + x] > 0 else finite[var_at[v] + x]
        total += _log_sum(out)
    return total


_prepare, _collect, _distribute = kernels.prepare, kernels.collect, kernels.distribute
_tangent = tangents.tangent
_SIGNATURE = types.void(types.intp)  # of a C function: one address
# kinds of numbers in the arrays that C functions are given
_WHOLE, _SHORT, _REAL, _BYTE = types.int64, types.int32, types.float64, types.uint8

# part of the symbols' names, so that code of another version is never linked
_CHECKSUM = checksum(_prepare, _collect, _distribute, _tangent)


def _array(given, k, kind):
    """Return the array whose address and size are the numbers k and k + 1 of those given."""
    return carray(pointer(given[k]), given[k + 1], kind)


overload(_array)(lambda given, k, kind: _array)  # see `bayesprivmrf.compiled`


@njit(nogil=True)
def _at(array):
    """Return the address of an array."""
    return np.int64(array.ctypes.data)


@njit(nogil=True)
def _keep(array, other):
    """Hold two arrays until here: compiled code frees what it no longer names, and an address names nothing."""
    return array.size + other.size


def _c_collect(where):
    given = carray(pointer(where), 15, _WHOLE)
    rest, is_trusted = _collect(
        _array(given, 0, _WHOLE), given[2], _array(given, 3, _SHORT), _array(given, 5, _REAL),
        _array(given, 7, _REAL), _array(given, 9, _BYTE), given[11], given[12],
    )  # fmt: skip
    out = _array(given, 13, _REAL)
    out[0], out[1] = rest, is_trusted


def _c_distribute(where):
    given = carray(pointer(where), 13, _WHOLE)
    _distribute(
        _array(given, 0, _WHOLE), given[2], _array(given, 3, _SHORT), _array(given, 5, _REAL),
        _array(given, 7, _REAL), given[9], given[10], _array(given, 11, _REAL),
    )  # fmt: skip


def _c_tangent(where):
    given = carray(pointer(where), 24, _WHOLE)
    _tangent(
        _array(given, 0, _WHOLE), given[2], _array(given, 3, _SHORT), _array(given, 5, _REAL),
        _array(given, 7, _REAL), _array(given, 9, _REAL), _array(given, 11, _WHOLE), given[13],
        _array(given, 14, _REAL), _array(given, 16, _WHOLE), _array(given, 18, _REAL), _array(given, 20, _REAL),
        _array(given, 22, _REAL),
    )  # fmt: skip


# C functions by the names of their entry points
_C_FUNCTIONS = {"collect": _c_collect, "distribute": _c_distribute, "tangent": _c_tangent}


def _symbol(name: str) -> Any:
    return types.ExternalFunction(f"bayesprivmrf_{name}_{_CHECKSUM}", _SIGNATURE)


@cache
def _linked(name: str) -> Any:
    """Compile or load a C function, and make it known by its name; the cache keeps its code alive."""
    function = kept_c_function(_SIGNATURE)(_C_FUNCTIONS[name])
    llvm.add_symbol(_symbol(name).symbol, function.address)
    return function


_collect_symbol, _distribute_symbol, _tangent_symbol = map(_symbol, ("collect", "distribute", "tangent"))


@kept()
def prepare(theta, offsets, work, exponentiate):
    """Write the potentials to the workspace: see `kernels.prepare`."""
    return _prepare(theta, offsets, work, exponentiate)


@kept()
def collect(code, steps, maps, work, scales, support, cells, mode):
    """Pass messages to the root and return the log-partition function: see `kernels.collect`."""
    out = np.empty(2)
    # addresses and sizes, in the order in which `_c_collect` reads them
    given = np.array(
        [
            _at(code), code.size, steps, _at(maps), maps.size, _at(work), work.size,
            _at(scales), scales.size, _at(support), support.size, cells, mode,
            _at(out), out.size,
        ]
    )  # fmt: skip
    _collect_symbol(_at(given))
    _keep(given, out)
    return out[0], out[1] > 0.0


@kept()
def distribute(code, steps, maps, work, scales, scratch, mode, mu):
    """Pass messages back from the root, and write the marginals to `mu`: see `kernels.distribute`."""
    # addresses and sizes, in the order in which `_c_distribute` reads them
    given = np.array(
        [
            _at(code), code.size, steps, _at(maps), maps.size, _at(work), work.size,
            _at(scales), scales.size, scratch, mode, _at(mu), mu.size,
        ]
    )  # fmt: skip
    _distribute_symbol(_at(given))
    _keep(given, mu)


@kept()
def tangent(code, steps, maps, work, scales, scratch, rooms, mode, mu, offsets, vector, gain, change):
    """Write the derivative of the marginals along a vector to `change`: see `tangents.tangent`."""
    # addresses and sizes, in the order in which `_c_tangent` reads them
    given = np.array(
        [
            _at(code), code.size, steps, _at(maps), maps.size, _at(work), work.size,
            _at(scales), scales.size, _at(scratch), scratch.size, _at(rooms), rooms.size,
            mode, _at(mu), mu.size, _at(offsets), offsets.size, _at(vector), vector.size,
            _at(gain), gain.size, _at(change), change.size,
        ]
    )  # fmt: skip
    _tangent_symbol(_at(given))
    _keep(given, scratch)


@cache
def build(*names: str) -> None:
    """Compile entry points, or load those that were kept, by a call on a model without variables.

    An entry point, and compiled code that calls it, can be used only after this: an engine calls it before its first
    inference, never at import. Loading takes about 0.3 s once a process.
    """
    # the arguments of a model without variables, whose types are those of every model
    code, maps = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
    support, floats, linear = np.zeros(0, dtype=np.uint8), np.zeros(1), kernels.LINEAR
    bounds, rooms = np.array([0, 1], dtype=np.int64), np.zeros(2, dtype=np.int64)
    plan = (code, 0, maps, floats, floats)
    calls: dict[str, tuple[Any, ...]] = {
        "prepare": (floats, bounds, floats, True),
        "collect": (*plan, support, 0, linear),
        "distribute": (*plan, 0, linear, floats),
        "tangent": (*plan, floats, rooms, linear, floats, bounds, floats, np.zeros(1), np.zeros(1)),
    }
    for name in names:
        if name != "prepare":
            _linked(name)
        globals()[name](*calls[name])
