"""Exact engine: compiled sweeps, or plain NumPy in the log domain if the linear domain is not safe.

The compiled entry points are kept by numba between processes. numba optimizes a compiled function together with all
code that it calls, which takes half a minute for the sweeps of `kernels` and `tangents`. They are therefore C
functions, which other compiled code calls by name: such a call is compiled at once, and the calling code can be kept
on disk as well. The name must be registered before the calling code is loaded; `build` does this. Each C function
takes one address, that of its arguments in order: a number, or the address and the size of an array.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import njit, types
from numba.extending import overload
from numpy.typing import NDArray

from bayesprivmrf.compiled import (
    announce_compiling,
    carray,
    checksum,
    kept,
    kept_c_function,
    pointer,
)
from bayesprivmrf.marginals import kernels, tangents
from bayesprivmrf.marginals.arrays import array_engine, impossible
from bayesprivmrf.marginals.layout import MarginalEngine
from bayesprivmrf.marginals.lowering import lower
from bayesprivmrf.marginals.planning import BucketTree, Step
from bayesprivmrf.model.tables import FloatArray

announce_compiling()  # the modules imported above compile at their first call


# workspaces that an engine keeps: enough for the usual number of threads
_WORKSPACES = 4
# cells from which NumPy's vectorized exponential is faster than a call per cell (benchmarks/marginals.py)
_VECTORIZED = 2048
# tables of a group that `tangents.tangent` needs as scratch
_GROUP_SCRATCH = 3
# the support of a model without impossible cells
_EVERYTHING = np.zeros(0, dtype=np.uint8)

_prepare = kernels.prepare
_collect = kernels.collect
_distribute = kernels.distribute
_tangent = tangents.tangent
_SIGNATURE = types.void(types.intp)  # of every C function here: one address
# types of the arrays' entries
_WHOLE = types.int64
_SHORT = types.int32
_REAL = types.float64
_BYTE = types.uint8

# Places of the arguments in the array of whole numbers that a C function receives. An array takes two places, its
# address and its size. Every function has the plan and the workspace first, and the others as the entry points below
# write them.
_CODE = 0
_STEPS = 2
_MAPS = 3
_WORK = 5
_SCALES = 7
# of `collect`
_SUPPORT = 9
_CELLS = 11
_IS_SUPPORT = 12
_ANSWER = 13
_COLLECT_SIZE = 15
# of `distribute`
_SCRATCH_AT = 9
_MU_OUT = 10
_DISTRIBUTE_SIZE = 12
# of `tangent`
_SCRATCH = 9
_LARGEST = 11
_MU = 13
_OFFSETS = 15
_VECTOR = 17
_GAIN = 19
_CHANGE = 21
_TANGENT_SIZE = 23

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
    given = carray(pointer(where), _COLLECT_SIZE, _WHOLE)
    _array(given, _ANSWER, _REAL)[0] = _collect(
        _array(given, _CODE, _WHOLE),
        given[_STEPS],
        _array(given, _MAPS, _SHORT),
        _array(given, _WORK, _REAL),
        _array(given, _SCALES, _REAL),
        _array(given, _SUPPORT, _BYTE),
        given[_CELLS],
        given[_IS_SUPPORT],
    )


def _c_distribute(where):
    """Run `kernels.distribute` on the arguments at an address."""
    given = carray(pointer(where), _DISTRIBUTE_SIZE, _WHOLE)
    _distribute(
        _array(given, _CODE, _WHOLE),
        given[_STEPS],
        _array(given, _MAPS, _SHORT),
        _array(given, _WORK, _REAL),
        _array(given, _SCALES, _REAL),
        given[_SCRATCH_AT],
        _array(given, _MU_OUT, _REAL),
    )


def _c_tangent(where):
    """Run `tangents.tangent` on the arguments at an address."""
    given = carray(pointer(where), _TANGENT_SIZE, _WHOLE)
    _tangent(
        _array(given, _CODE, _WHOLE),
        given[_STEPS],
        _array(given, _MAPS, _SHORT),
        _array(given, _WORK, _REAL),
        _array(given, _SCALES, _REAL),
        _array(given, _SCRATCH, _REAL),
        _array(given, _LARGEST, _WHOLE),
        _array(given, _MU, _REAL),
        _array(given, _OFFSETS, _WHOLE),
        _array(given, _VECTOR, _REAL),
        _array(given, _GAIN, _REAL),
        _array(given, _CHANGE, _REAL),
    )


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


_collect_symbol, _distribute_symbol, _tangent_symbol = map(
    _symbol, ("collect", "distribute", "tangent")
)


@kept()
def prepare(theta, offsets, work, exponentiate):
    """Write the potentials to the workspace; see `kernels.prepare`."""
    return _prepare(theta, offsets, work, exponentiate)


@kept()
def collect(code, steps, maps, work, scales, support, cells, is_support):
    """Pass messages to the roots and return the log-partition function; see `kernels.collect`."""
    out = np.empty(1)
    # addresses and sizes, in the order in which `_c_collect` reads them
    given = np.array(
        [
            _at(code), code.size, steps, _at(maps), maps.size, _at(work), work.size,
            _at(scales), scales.size, _at(support), support.size, cells, is_support,
            _at(out), out.size,
        ]
    )  # fmt: skip
    _collect_symbol(_at(given))
    _keep(given, out)
    return out[0]


@kept()
def distribute(code, steps, maps, work, scales, scratch, mu):
    """Pass messages back from the roots and write the marginals to `mu`; see `kernels.distribute`."""
    # addresses and sizes, in the order in which `_c_distribute` reads them
    given = np.array(
        [
            _at(code), code.size, steps, _at(maps), maps.size, _at(work), work.size,
            _at(scales), scales.size, scratch, _at(mu), mu.size,
        ]
    )  # fmt: skip
    _distribute_symbol(_at(given))
    _keep(given, mu)


@kept()
def tangent(code, steps, maps, work, scales, scratch, largest, mu, offsets, vector, gain, change):
    """Write the derivative of the marginals along a vector to `change`; see `tangents.tangent`."""
    # addresses and sizes, in the order in which `_c_tangent` reads them
    given = np.array(
        [
            _at(code), code.size, steps, _at(maps), maps.size, _at(work), work.size,
            _at(scales), scales.size, _at(scratch), scratch.size, _at(largest), largest.size,
            _at(mu), mu.size, _at(offsets), offsets.size, _at(vector), vector.size,
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
    code = np.zeros(0, dtype=np.int64)
    maps = np.zeros(0, dtype=np.int32)
    support = np.zeros(0, dtype=np.uint8)
    floats = np.zeros(1)
    bounds = np.array([0, 1], dtype=np.int64)
    largest = np.zeros(2, dtype=np.int64)
    plan = (code, 0, maps, floats, floats)
    calls: dict[str, tuple[Any, ...]] = {
        "prepare": (floats, bounds, floats, True),
        "collect": (*plan, support, 0, False),
        "distribute": (*plan, 0, floats),
        "tangent": (*plan, floats, largest, floats, bounds, floats, np.zeros(1), np.zeros(1)),
    }
    for name in names:
        if name != "prepare":
            _linked(name)
        globals()[name](*calls[name])


@dataclass(frozen=True, slots=True)
class _State:
    """State of the workspace after the first sweep, which the second sweep and the tangent read."""

    log_partition: float
    work: FloatArray
    scales: FloatArray


class CompiledEngine(MarginalEngine):
    """Exact inference by compiled sweeps that interpret a plan.

    Parameters
    ----------
    tree : BucketTree
        Buckets in the order of elimination.
    steps : list of Step, optional
        How each bucket is summed; by default the cheapest way by the cost model of `planning`.

    The attributes are for compiled code that calls the sweeps itself, which must not write to them.
    """

    def __init__(self, tree: BucketTree, steps: list[Step] | None = None) -> None:
        self.layout = tree.layout
        self.program = lower(tree, steps)
        # cells of the largest message and of the largest group, for the tangent's scratch
        self.largest = np.array(
            [self.program.largest_message, self.program.largest_group], dtype=np.int64
        )
        # first cell of each factor, and the end of the last; cells of factors without a free variable
        self.bounds = np.array(tree.layout.offsets, dtype=np.int64)
        self.constants = np.array([tree.layout.offsets[f] for f in tree.constants], dtype=np.int64)
        # contribution to A of variables in no factor, nats
        self.free_log_count = tree.free_log_count
        self._pool: list[FloatArray] = []  # workspaces that no call uses; append and pop are atomic
        self._known_support: tuple[NDArray[np.bool_], NDArray[np.uint8]] | None = None

    def logarithmic(self) -> MarginalEngine:
        """Return the engine that answers where the linear domain is not safe."""
        return array_engine(self.layout)

    def log_partition(self, potentials: FloatArray) -> float:
        """Return A(θ), in nats.

        Raises
        ------
        ModelError
            If no configuration is possible.
        """
        state = self._collect(potentials)
        if state is None:
            return self.logarithmic().log_partition(potentials)
        self._keep(state.work)
        return state.log_partition

    def marginals(self, potentials: FloatArray) -> tuple[float, FloatArray]:
        """Return A(θ) and the probability of every cell."""
        state = self._collect(potentials)
        if state is None:
            return self.logarithmic().marginals(potentials)
        mu = self._distribute(state)
        self._keep(state.work)
        return state.log_partition, mu[: self.size]

    def linearize(
        self, potentials: FloatArray
    ) -> tuple[float, FloatArray, Callable[[FloatArray], FloatArray]]:
        """Return A(θ), μ and v → Σv."""
        state = self._collect(potentials)
        if state is None:
            return self.logarithmic().linearize(potentials)
        build("tangent")
        mu = self._distribute(state)
        program = self.program

        def product(vector: FloatArray) -> FloatArray:
            gain = np.empty(program.cells + program.messages + program.tables)
            change = np.empty(program.cells + program.messages)
            change[self.constants] = 0.0
            scratch = np.empty(2 * program.largest_message + _GROUP_SCRATCH * program.largest_group)
            direction = self.layout.flat(vector, "vector")
            tangent(
                *program.plan, state.work, state.scales, scratch, self.largest,
                mu, self.bounds, direction, gain, change,
            )  # fmt: skip
            return change[: self.size]

        return state.log_partition, mu[: self.size].copy(), product

    def _keep(self, work: FloatArray) -> None:
        """Keep a workspace for the next call.

        An engine keeps at most `_WORKSPACES`, so that an idle engine needs little memory.
        """
        if len(self._pool) < _WORKSPACES:
            self._pool.append(work)

    def _collect(self, potentials: FloatArray) -> _State | None:
        """Run the first sweep; return None if the linear domain is not safe.

        Raises
        ------
        ModelError
            If no configuration is possible.
        """
        build("prepare", "collect", "distribute")
        theta = self.layout.flat(potentials)
        program = self.program
        try:
            work = self._pool.pop()
        except IndexError:
            work = np.empty(program.workspace)
        large = program.cells >= _VECTORIZED
        tops, has_zeros = prepare(theta, self.bounds, work, not large)
        if tops == -math.inf:
            raise impossible()
        if large:
            cells = work[: program.cells]
            np.exp(cells, out=cells)
        if has_zeros:
            support = self.support(theta)
        else:
            support = _EVERYTHING
        scales = np.empty(program.steps)
        rest = collect(*program.plan, work, scales, support, program.cells, False)
        if math.isnan(rest):
            return None
        return _State(tops + rest + self.free_log_count, work, scales)

    def support(self, theta: FloatArray) -> NDArray[np.uint8]:
        """Return a mask of the entries of the messages that are possible.

        Cells with a potential of minus infinity are impossible. The last answer is kept for the next call, because
        impossible cells rarely change.

        Raises
        ------
        ModelError
            If no configuration is possible.
        """
        possible = theta > -np.inf
        known = self._known_support
        if known is not None and np.array_equal(known[0], possible):
            return known[1]
        build("prepare", "collect", "distribute")
        program = self.program
        work = np.empty(program.workspace)
        work[: program.cells] = possible
        scales = np.empty(program.steps)
        collect(*program.plan, work, scales, _EVERYTHING, program.cells, True)
        support = (work[program.cells : program.cells + program.messages] > 0).astype(np.uint8)
        if not all(support[message - program.cells] for message in program.roots()):
            raise impossible()
        self._known_support = possible, support
        return support

    def _distribute(self, state: _State) -> FloatArray:
        """Run the second sweep; return the marginals of the cells, then those of the separators."""
        program = self.program
        mu = np.empty(program.cells + program.messages)
        mu[self.constants] = 1.0
        distribute(*program.plan, state.work, state.scales, program.scratch, mu)
        return mu
