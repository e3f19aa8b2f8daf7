"""The four compiled entry points, kept by numba between processes.

Numba forgets a kept function when the file that defines it changes, but not when a file that it calls into
does. Each entry point therefore closes over a checksum of all the sources below it, which is part of the
key under which numba keeps it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from bayesprivmrf.marginals import kernels, tangents
from bayesprivmrf.source_checksum import checksum

__all__ = ["CHECKSUM", "build", "collect", "distribute", "prepare", "tangent"]

_prepare, _collect, _distribute = kernels.prepare, kernels.collect, kernels.distribute
_tangent = tangents.tangent


CHECKSUM = checksum(
    *(
        str(Path(__file__).with_name(f"{name}.py"))
        for name in ("columns", "products", "log_products", "kernels", "tangents")
    )
)
"""Checksum of the compiled sources; constant where there are no source files."""


def _entry_points(checksum: int) -> tuple[Any, ...]:
    @njit(cache=True, nogil=True)
    def prepare(theta, offsets, work, exponentiate):
        assert checksum >= 0
        return _prepare(theta, offsets, work, exponentiate)

    @njit(cache=True, nogil=True)
    def collect(code, steps, maps, work, scales, support, cells, mode):
        assert checksum >= 0
        return _collect(code, steps, maps, work, scales, support, cells, mode)

    @njit(cache=True, nogil=True)
    def distribute(code, steps, maps, work, scales, scratch, mode, mu):
        assert checksum >= 0
        _distribute(code, steps, maps, work, scales, scratch, mode, mu)

    @njit(cache=True, nogil=True)
    def tangent(code, steps, maps, work, scales, scratch, rooms, mode, mu, offsets, vector, gain, change):
        assert checksum >= 0
        _tangent(code, steps, maps, work, scales, scratch, rooms, mode, mu, offsets, vector, gain, change)

    return prepare, collect, distribute, tangent


prepare, collect, distribute, tangent = _entry_points(CHECKSUM)


def build(*names: str) -> None:
    """Compile entry points, or load those that were kept, by a call on a model without variables.

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
        globals()[name](*calls[name])
