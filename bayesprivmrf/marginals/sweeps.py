"""Compiled entry points of the marginal engines, which numba keeps between processes.

**Loopy belief propagation**, in the log domain. Messages have maximum zero. Entries of minus infinity are counted
apart from the finite ones, so that no message is computed as a difference of infinities.

**Exact inference**: the sweeps of `kernels` and `tangents`. numba optimizes a compiled function together with all
code that it calls, which takes half a minute for these sweeps. They are therefore C functions, which other compiled
code calls by name: such a call is compiled at once, and the calling code can be kept on disk as well. The name must
be registered before the calling code is loaded; `build` does this. Each C function takes one address, that of its
arguments in order: a number, or the address and the size of an array.
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

# options of numba; error_model: a division by zero gives infinity, as in NumPy, and is not tested for
OPTIONS = {"nogil": True, "error_model": "numpy"}


@njit(**OPTIONS)
def _totals(edges, cards, var_at, messages, finite, zeros):
    """Sum the messages into each variable: finite entries into `finite`, numbers of impossible ones into `zeros`."""
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
    """Write the messages from a factor's variables to the factor."""
    # formula: m_vf(x) = Σ_{g ≠ f} m_gv(x), as the sum over all factors g less the message of f itself
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
        # shift to maximum zero
        if top > -np.inf:
            for x in range(cards[v]):
                incoming[start + x] -= top
        start += cards[v]


@njit(**OPTIONS)
def _term(edges, first, last, cards, incoming, cell, skip):
    """Return the sum of the incoming messages at a cell, without that of the edge `skip`."""
    total, start = 0.0, 0
    for e in range(first, last):
        k = cards[edges[e, 0]]
        if e != skip:
            total += incoming[start + (cell // edges[e, 1]) % k]
        start += k
    return total


@kept(error_model="numpy")
def sweep(theta, offsets, starts, edges, cards, var_at, messages, finite, zeros, scratch, damping, forward):
    """Update every message once, in place, and return the largest change of a message.

    The change is infinite if a message has no possible entry. `scratch` holds the incoming messages and two vectors
    of states.
    """
    # sums of all messages into each variable, updated below with each message
    _totals(edges, cards, var_at, messages, finite, zeros)
    incoming, tops, sums = scratch[0], scratch[1], scratch[2]
    residual = 0.0
    factors = starts.size - 1
    for i in range(factors):
        f = i if forward else factors - 1 - i
        # messages from the variables to the factor
        first, last = starts[f], starts[f + 1]
        _incoming(edges, first, last, cards, var_at, messages, finite, zeros, incoming)
        for e in range(first, last):
            v, stride, at = edges[e, 0], edges[e, 1], edges[e, 2]
            k = cards[v]
            # formula: m_fv(x) = log Σ_{x_f with x_v = x} exp(θ_f(x_f) + Σ_{w ≠ v} m_wf(x_w)), with running maxima
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
            # store the message with maximum zero, and update the largest change
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
    """Return log Σ exp(values), computed relative to the largest value."""
    top = values.max()
    if top == -np.inf:
        return top
    total = 0.0
    for x in values:
        total += math.exp(x - top)
    return top + math.log(total)


@kept(error_model="numpy")
def finish(theta, offsets, starts, edges, cards, var_at, messages, finite, zeros, scratch, mu):
    """Write the beliefs of the factors to `mu`; return Bethe's A = Σ log Z_f + Σ log Z_v - Σ log Z_fv.

    The shifts of the messages to maximum zero cancel between the three sums.
    """
    _totals(edges, cards, var_at, messages, finite, zeros)
    incoming, pair = scratch[0], scratch[1]
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
_SIGNATURE = types.void(types.intp)  # of every C function here: one address
# types of the arrays' entries
_WHOLE, _SHORT, _REAL, _BYTE = types.int64, types.int32, types.float64, types.uint8

# part of the symbols' names, so that code of another version is never linked
_CHECKSUM = checksum(_prepare, _collect, _distribute, _tangent)


def _array(given, k, kind):
    """Return the array whose address and size are the numbers k and k + 1 of `given`."""
    return carray(pointer(given[k]), given[k + 1], kind)


overload(_array)(lambda given, k, kind: _array)  # see `bayesprivmrf.compiled`


@njit(nogil=True)
def _at(array):
    """Return the address of an array."""
    return np.int64(array.ctypes.data)


@njit(nogil=True)
def _keep(array, other):
    """Keep two arrays alive until this call.

    Compiled code frees an array after the last use of its name, and does not know that an address refers to it.
    """
    return array.size + other.size


def _c_collect(where):
    """Run `kernels.collect` on the arguments at an address."""
    given = carray(pointer(where), 15, _WHOLE)
    rest, is_trusted = _collect(
        _array(given, 0, _WHOLE), given[2], _array(given, 3, _SHORT), _array(given, 5, _REAL),
        _array(given, 7, _REAL), _array(given, 9, _BYTE), given[11], given[12],
    )  # fmt: skip
    out = _array(given, 13, _REAL)
    out[0], out[1] = rest, is_trusted


def _c_distribute(where):
    """Run `kernels.distribute` on the arguments at an address."""
    given = carray(pointer(where), 13, _WHOLE)
    _distribute(
        _array(given, 0, _WHOLE), given[2], _array(given, 3, _SHORT), _array(given, 5, _REAL),
        _array(given, 7, _REAL), given[9], given[10], _array(given, 11, _REAL),
    )  # fmt: skip


def _c_tangent(where):
    """Run `tangents.tangent` on the arguments at an address."""
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
    """Return the C function of a name as compiled code calls it."""
    return types.ExternalFunction(f"bayesprivmrf_{name}_{_CHECKSUM}", _SIGNATURE)


@cache
def _linked(name: str) -> Any:
    """Compile or load a C function and register its name; the cache keeps its code alive."""
    function = kept_c_function(_SIGNATURE)(_C_FUNCTIONS[name])
    llvm.add_symbol(_symbol(name).symbol, function.address)
    return function


_collect_symbol, _distribute_symbol, _tangent_symbol = map(_symbol, ("collect", "distribute", "tangent"))


@kept()
def prepare(theta, offsets, work, exponentiate):
    """Write the potentials to the workspace; see `kernels.prepare`."""
    return _prepare(theta, offsets, work, exponentiate)


@kept()
def collect(code, steps, maps, work, scales, support, cells, mode):
    """Pass messages to the roots and return the log-partition function; see `kernels.collect`."""
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
    """Pass messages back from the roots and write the marginals to `mu`; see `kernels.distribute`."""
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
def tangent(code, steps, maps, work, scales, scratch, largest, mode, mu, offsets, vector, gain, change):
    """Write the derivative of the marginals along a vector to `change`; see `tangents.tangent`."""
    # addresses and sizes, in the order in which `_c_tangent` reads them
    given = np.array(
        [
            _at(code), code.size, steps, _at(maps), maps.size, _at(work), work.size,
            _at(scales), scales.size, _at(scratch), scratch.size, _at(largest), largest.size,
            mode, _at(mu), mu.size, _at(offsets), offsets.size, _at(vector), vector.size,
            _at(gain), gain.size, _at(change), change.size,
        ]
    )  # fmt: skip
    _tangent_symbol(_at(given))
    _keep(given, scratch)


@cache
def build(*names: str) -> None:
    """Compile entry points, or load them from disk, by calling each on a model without variables.

    Call this before the first use of an entry point or of compiled code that calls one. Engines do so before their
    first inference, not at import, because loading takes a fraction of a second in each process.
    """
    # the arguments of a model without variables, whose types are those of every model
    code, maps = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
    support, floats, linear = np.zeros(0, dtype=np.uint8), np.zeros(1), kernels.LINEAR
    bounds, largest = np.array([0, 1], dtype=np.int64), np.zeros(2, dtype=np.int64)
    plan = (code, 0, maps, floats, floats)
    calls: dict[str, tuple[Any, ...]] = {
        "prepare": (floats, bounds, floats, True),
        "collect": (*plan, support, 0, linear),
        "distribute": (*plan, 0, linear, floats),
        "tangent": (*plan, floats, largest, linear, floats, bounds, floats, np.zeros(1), np.zeros(1)),
    }
    for name in names:
        if name != "prepare":
            _linked(name)
        globals()[name](*calls[name])
