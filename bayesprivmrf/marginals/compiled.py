"""The four compiled entry points, kept by numba between processes.

Numba forgets a kept function when the file that defines it changes, but not when a file that it calls into
does. Each entry point therefore closes over a checksum of all the sources below it, which is part of the
key under which numba keeps it.

A compiled function that calls another is optimised together with all of its code, half a minute for the sweeps. So
these lie behind C functions that others find by name: a call of a named symbol costs no such time, and code that
holds it can be kept as well. The name must be known before such code is loaded, which `build` sees to. Each C
function takes one address, of its arguments in order: a number, or the address and the size of an array.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import cfunc, njit, types
from numba.extending import overload

from bayesprivmrf.addresses import carray, pointer
from bayesprivmrf.marginals import kernels, tangents
from bayesprivmrf.source_checksum import checksum

_prepare, _collect, _distribute = kernels.prepare, kernels.collect, kernels.distribute
_tangent = tangents.tangent
_SIGNATURE = types.void(types.intp)

CHECKSUM = checksum(
    __file__,
    *(
        str(Path(__file__).with_name(f"{name}.py"))
        for name in ("columns", "products", "log_products", "kernels", "tangents")
    ),
)
"""Checksum of the compiled sources; constant where there are no source files."""


def _array(given, k, kind):
    """Array whose address and size are the numbers k and k + 1 of those given."""
    return carray(pointer(given[k]), given[k + 1], kind)


overload(_array)(lambda given, k, kind: _array)  # see `addresses`


@njit(nogil=True)
def _at(array):
    """The address of an array."""
    return np.int64(array.ctypes.data)


@njit(nogil=True)
def _keep(array, other):
    """Hold two arrays until here: compiled code frees what it no longer names, and an address names nothing."""
    return array.size + other.size


def _functions(checksum: int) -> dict[str, Any]:
    """What the C functions do, by name."""
    whole, short, real, byte = types.int64, types.int32, types.float64, types.uint8

    def collect(where):
        assert checksum >= 0
        given = carray(pointer(where), 15, whole)
        rest, is_trusted = _collect(
            _array(given, 0, whole), given[2], _array(given, 3, short), _array(given, 5, real),
            _array(given, 7, real), _array(given, 9, byte), given[11], given[12],
        )  # fmt: skip
        out = _array(given, 13, real)
        out[0], out[1] = rest, is_trusted

    def distribute(where):
        assert checksum >= 0
        given = carray(pointer(where), 13, whole)
        _distribute(
            _array(given, 0, whole), given[2], _array(given, 3, short), _array(given, 5, real),
            _array(given, 7, real), given[9], given[10], _array(given, 11, real),
        )  # fmt: skip

    def tangent(where):
        assert checksum >= 0
        given = carray(pointer(where), 24, whole)
        _tangent(
            _array(given, 0, whole), given[2], _array(given, 3, short), _array(given, 5, real),
            _array(given, 7, real), _array(given, 9, real), _array(given, 11, whole), given[13],
            _array(given, 14, real), _array(given, 16, whole), _array(given, 18, real), _array(given, 20, real),
            _array(given, 22, real),
        )  # fmt: skip

    return {"collect": collect, "distribute": distribute, "tangent": tangent}


def _symbol(name: str) -> Any:
    return types.ExternalFunction(f"bayesprivmrf_{name}_{CHECKSUM}", _SIGNATURE)


@cache
def _linked(name: str) -> Any:
    """The C function, compiled or loaded, and known by its name from here on; the cache holds its code."""
    function = cfunc(_SIGNATURE, cache=True)(_functions(CHECKSUM)[name])
    llvm.add_symbol(_symbol(name).symbol, function.address)
    return function


_collect_symbol, _distribute_symbol, _tangent_symbol = map(_symbol, ("collect", "distribute", "tangent"))


def _entry_points(checksum: int) -> tuple[Any, ...]:
    @njit(cache=True, nogil=True)
    def prepare(theta, offsets, work, exponentiate):
        assert checksum >= 0
        return _prepare(theta, offsets, work, exponentiate)

    @njit(cache=True, nogil=True)
    def collect(code, steps, maps, work, scales, support, cells, mode):
        assert checksum >= 0
        out = np.empty(2)
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

    @njit(cache=True, nogil=True)
    def distribute(code, steps, maps, work, scales, scratch, mode, mu):
        assert checksum >= 0
        given = np.array(
            [
                _at(code), code.size, steps, _at(maps), maps.size, _at(work), work.size,
                _at(scales), scales.size, scratch, mode, _at(mu), mu.size,
            ]
        )  # fmt: skip
        _distribute_symbol(_at(given))
        _keep(given, mu)

    @njit(cache=True, nogil=True)
    def tangent(code, steps, maps, work, scales, scratch, rooms, mode, mu, offsets, vector, gain, change):
        assert checksum >= 0
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

    return prepare, collect, distribute, tangent


prepare, collect, distribute, tangent = _entry_points(CHECKSUM)


def build(*names: str) -> None:
    """Compile entry points, or load those that were kept, by a call on a model without variables.

    An entry point, and compiled code that calls it, can be used only after this.

    It starts numba's run time too. Loading takes about 0.3 s once a process, here where the engine is loaded and
    not inside the first inference.
    """
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
