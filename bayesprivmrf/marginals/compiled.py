"""The four compiled entry points, kept by numba between processes.

A compiled function that calls another is optimised together with all of its code, half a minute for the sweeps. So
these lie behind C functions that others find by name: a call of a named symbol costs no such time, and code that
holds it can be kept as well. The name must be known before such code is loaded, which `build` sees to. Each C
function takes one address, of its arguments in order: a number, or the address and the size of an array.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import njit, types
from numba.extending import overload

from bayesprivmrf.compiled import carray, checksum, kept, kept_c_function, pointer
from bayesprivmrf.marginals import kernels, tangents

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
