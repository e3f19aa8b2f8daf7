"""A posterior's compiled density, driven by data: nothing is compiled for a network.

A formulation has one C function, which numba compiles once an installation and keeps on disk,

    ``visit(size, position, gradient, value, given) -> 0, or not where the density is not a number``.

`given` is an array of whole numbers: the task, the addresses of the latent numbers and of derivatives by them, and
then three for each array of the data, its address and its lengths. For the task `POSTERIOR`, whose signature is
that of nutpie's own densities, so that its threads call it without Python, `value` becomes the log density of the
position under the prior plus that of the noisy counts, and `gradient` its gradient, with the likelihood's force in
place of its derivative. For `FORWARD` the latent numbers at the position are written, and `value` is the log prior
density. For `PULLBACK` `gradient` becomes the exact derivative by the position, given those by the latent numbers
and, in `value`, by the log prior density. Latent numbers are flat: counts first, then whatever else follows from
the position. It is one function, since each would be compiled with all that it calls.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit, types

from bayesprivmrf.compiled import INNER, carray, kept_c_function, pointer, put
from bayesprivmrf.model.tables import FloatArray, IntArray

FORWARD, POSTERIOR, PULLBACK = range(3)
# arrays among those given that come before the data: the latent numbers, and the derivatives by them
FIRST = 2
# numbers that come before the data: the task, and three for each of those arrays
_HEAD = 1 + 3 * FIRST
# types of the C function: see the module's docstring
_REAL = types.CPointer(types.double)
# result, number of positions, position, gradient, value, and address of what is given
_SIGNATURE = types.int64(types.uint64, _REAL, _REAL, _REAL, types.voidptr)


def compiled_visit(function: Callable[..., Any]) -> Any:
    """Return the C function of a formulation, loaded from disk or compiled."""
    return kept_c_function(_SIGNATURE)(function)


@njit(nogil=True, **INNER)
def finished(found, task, given, gradient, value):
    """Write the results of a formulation's `_visit` to the addresses that its task needs; return the status."""
    latent, prior, likelihood, slope = found
    value[0] = prior + likelihood
    if task == FORWARD:
        out = carray(pointer(given[1]), (latent.size,), types.float64)
        put(out, latent)
        return 0
    put(gradient, slope)
    return 0 if np.isfinite(value[0]) and np.isfinite(slope).all() else 3


@dataclass(frozen=True, eq=False, kw_only=True)
class Density:
    """The compiled density of one posterior.

    Parameters
    ----------
    visit
        Returns the C function, which is loaded or compiled at the first call.
    kinds
        Type and number of axes of each array of the data, one letter and digit each: ``f1 i1 f2 ...``.
    arrays
        The data: arrays, and tuples of arrays.
    size
        Number of the sampler's positions.
    shapes
        Shape of each group of latent numbers, by name, in the order of the flat vector.
    """

    visit: Callable[[], Any]
    kinds: str
    arrays: tuple[Any, ...]
    size: int
    shapes: Mapping[str, tuple[int, ...]]

    @cached_property
    def places(self) -> dict[str, slice]:
        """Slice of each group among the latent numbers."""
        stops = np.cumsum([math.prod(shape) for shape in self.shapes.values()]).tolist()
        return {
            name: slice(start, stop)
            for name, start, stop in zip(self.shapes, [0, *stops], stops, strict=False)
        }

    @property
    def latent_size(self) -> int:
        """Number of latent numbers."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @cached_property
    def given(self) -> IntArray:
        """Numbers for the C function with the task `POSTERIOR`; they must outlive every call."""
        numbers, arrays, kinds = [POSTERIOR, *[0] * (_HEAD - 1)], _leaves(self.arrays), self.kinds.split()
        for array, kind in zip(arrays, kinds, strict=True):
            if (_KINDS[array.dtype.str[1:]] + str(array.ndim), array.flags.c_contiguous) != (kind, True):
                raise TypeError(
                    f"the density takes a contiguous {kind}, got {array.dtype} of {array.ndim} axes."
                )
            numbers += [array.ctypes.data, *array.shape, *[1] * (2 - array.ndim)]
        return np.array(numbers, np.int64)

    def posterior(self, position: FloatArray) -> tuple[float, FloatArray]:
        """Return the log density at a position, and the vector that a sampler follows as its gradient."""
        gradient, value = np.empty(self.size), np.zeros(1)
        self._call(self.given, position, gradient, value)
        return float(value[0]), gradient

    def forward(self, position: FloatArray) -> tuple[FloatArray, float]:
        """Return the latent numbers at a position, and the log prior density of the position."""
        latent, value, given = np.empty(self.latent_size), np.zeros(1), self.given.copy()
        given[:2] = FORWARD, latent.ctypes.data
        self._call(given, position, np.empty(0), value)
        return latent, float(value[0])

    def pullback(self, position: FloatArray, by_latent: FloatArray, by_prior: float) -> FloatArray:
        """Return the derivative by the position, from those by the latent numbers and by the log prior density."""
        gradient, value, given = np.empty(self.size), np.array([float(by_prior)]), self.given.copy()
        by_latent = np.ascontiguousarray(by_latent, dtype=float)
        given[0], given[4] = PULLBACK, by_latent.ctypes.data
        self._call(given, position, gradient, value)
        return gradient

    def _call(self, given: IntArray, position: FloatArray, gradient: FloatArray, value: FloatArray) -> None:
        position = np.ascontiguousarray(position, dtype=float)
        addresses = (_address(array) for array in (position, gradient, value))
        self.visit().ctypes(self.size, *addresses, given.ctypes.data)

    def expand(self, positions: FloatArray, names: Sequence[str]) -> dict[str, FloatArray]:
        """Return groups of latent numbers, (chain, draw, ...), at positions of shape (chain, draw, size)."""
        lead, flat = positions.shape[:2], np.ascontiguousarray(positions.reshape(-1, self.size))
        expanded = {name: np.empty((len(flat), *self.shapes[name])) for name in names}
        for place, position in enumerate(flat):
            latent, _ = self.forward(position)
            for name, values in expanded.items():
                values[place] = latent[self.places[name]].reshape(self.shapes[name])
        return {name: values.reshape(*lead, *self.shapes[name]) for name, values in expanded.items()}


# letter of each type of array, as `Density.kinds` has them
_KINDS = {"f8": "f", "i8": "i", "i4": "h", "u1": "b"}


def _address(array: FloatArray) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_double))


def _leaves(arrays: Any) -> list[Any]:
    """Return the arrays of nested tuples, in order."""
    return [leaf for part in arrays for leaf in _leaves(part)] if isinstance(arrays, tuple) else [arrays]
