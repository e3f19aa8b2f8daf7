"""`effects_engine` behind two C functions, which other compiled code finds by name.

A compiled function that calls another is optimised together with all of its code, half a minute for the sweeps.
A call of a named symbol costs no such time, and code that holds it can be kept between processes: the name is
looked up where it is loaded, which needs this module imported before.

Each takes one address, of a vector of addresses: those of its arrays, in the order of the arguments, the plan's
all in one vector of 64-bit words that `pack` makes.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from numba import cfunc, njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from bayesprivmrf.inference.posterior import effects_engine
from bayesprivmrf.inference.posterior.effects_engine import (
    _BOUNDS,
    _CELLS,
    _CODE,
    _CONSTANTS,
    _ENTRIES,
    _MAPS,
    _MESSAGES,
    _SIZE,
    _STEPS,
    _SUPPORT,
    _WORKSPACE,
    CHECKSUM,
    Tape,
)

__all__ = ["evaluate_symbol", "pack", "pull_back_symbol", "unpack"]

_evaluate, _pull_back = effects_engine.evaluate, effects_engine.pull_back
_SIGNATURE = types.void(types.intp)
carray: Any = numba.carray  # pyright: ignore[reportPrivateImportUsage]


def _as_pointer(typingctx: Any, address: Any) -> Any:
    """An address as a pointer."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.intp), codegen


_pointer: Any = intrinsic(_as_pointer)

_ARRAYS = len(Tape._fields)


def pack(tape: Tape) -> NDArray[np.int64]:
    """A plan's arrays in one: where each begins, then the arrays, each filled up to whole words."""
    words = [np.frombuffer(array.tobytes() + b"\0" * (-array.nbytes % 8), dtype=np.int64) for array in tape]
    starts = _ARRAYS + np.cumsum([0, *map(len, words[:-1])])
    return np.concatenate([starts, *words])


def unpack(packed: NDArray[np.int64]) -> Tape:
    """The arrays again."""
    starts, sizes = packed[:_ARRAYS], packed[packed[4] : packed[4] + 15]
    cells, entries = sizes[_CELLS], sizes[_ENTRIES]
    lengths = [
        sizes[_CODE], sizes[_MAPS], sizes[_BOUNDS], sizes[_CONSTANTS], 15, 2, sizes[_SUPPORT], cells + 1, cells + 1,
        entries, entries,
    ]  # fmt: skip
    kinds = "q", "i", "q", "q", "q", "q", "B", "d", "q", "q", "d"
    views = [
        packed[start:].view(kind)[:size] for start, kind, size in zip(starts, kinds, lengths, strict=True)
    ]
    return Tape(*(view.copy() for view in views))


@njit(nogil=True)
def _tape(packed):
    """The arrays of a plan that lies packed at an address."""
    starts = carray(_pointer(packed), _ARRAYS, types.int64)
    sizes = carray(_pointer(packed + 8 * starts[4]), 15, types.int64)
    cells, entries = sizes[_CELLS], sizes[_ENTRIES]
    return (
        carray(_pointer(packed + 8 * starts[0]), sizes[_CODE], types.int64),
        carray(_pointer(packed + 8 * starts[1]), sizes[_MAPS], types.int32),
        carray(_pointer(packed + 8 * starts[2]), sizes[_BOUNDS], types.int64),
        carray(_pointer(packed + 8 * starts[3]), sizes[_CONSTANTS], types.int64),
        sizes,
        carray(_pointer(packed + 8 * starts[5]), 2, types.int64),
        carray(_pointer(packed + 8 * starts[6]), sizes[_SUPPORT], types.uint8),
        carray(_pointer(packed + 8 * starts[7]), cells + 1, types.float64),
        carray(_pointer(packed + 8 * starts[8]), cells + 1, types.int64),
        carray(_pointer(packed + 8 * starts[9]), entries, types.int64),
        carray(_pointer(packed + 8 * starts[10]), entries, types.float64),
    )


def _functions(checksum: int) -> tuple[Any, Any]:
    @cfunc(_SIGNATURE, cache=True)
    def evaluate(where):
        """(β, μ, A, E t, E t², state, tape)."""
        assert checksum >= 0
        addresses = carray(_pointer(where), 7, types.intp)
        tape = _tape(addresses[6])
        sizes = tape[4]
        size, cells = sizes[_SIZE], sizes[_CELLS]
        beta = carray(_pointer(addresses[0]), size, types.float64)
        mu, log_partition, mean, square, state = _evaluate(beta, *tape)
        carray(_pointer(addresses[1]), cells, types.float64)[:] = mu
        carray(_pointer(addresses[2]), 1, types.float64)[0] = log_partition
        carray(_pointer(addresses[3]), size, types.float64)[:] = mean
        carray(_pointer(addresses[4]), size, types.float64)[:] = square
        carray(_pointer(addresses[5]), state.size, types.float64)[:] = state

    @cfunc(_SIGNATURE, cache=True)
    def pull_back(where):
        """(state, derivatives by μ, A, E t and E t², result, tape)."""
        assert checksum >= 0
        addresses = carray(_pointer(where), 7, types.intp)
        tape = _tape(addresses[6])
        sizes = tape[4]
        size, cells = sizes[_SIZE], sizes[_CELLS]
        length = sizes[_WORKSPACE] + sizes[_STEPS] + cells + sizes[_MESSAGES] + 1
        carray(_pointer(addresses[5]), size, types.float64)[:] = _pull_back(
            carray(_pointer(addresses[0]), length, types.float64),
            carray(_pointer(addresses[1]), cells, types.float64),
            carray(_pointer(addresses[2]), 1, types.float64)[0],
            carray(_pointer(addresses[3]), size, types.float64),
            carray(_pointer(addresses[4]), size, types.float64),
            *tape,
        )

    return evaluate, pull_back


def _named(name: str, function: Any) -> Any:
    symbol = f"bayesprivmrf_{name}_{CHECKSUM}"
    llvm.add_symbol(symbol, function.address)
    return types.ExternalFunction(symbol, _SIGNATURE)


_KEPT = _functions(CHECKSUM)  # holds the code that the symbols point to
evaluate_symbol, pull_back_symbol = _named("evaluate", _KEPT[0]), _named("pull_back", _KEPT[1])
