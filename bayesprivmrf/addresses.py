"""Arrays by their addresses, for compiled functions that C code calls."""

from __future__ import annotations

from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

carray: Any = numba.carray  # pyright: ignore[reportPrivateImportUsage]


def _as_pointer(typingctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.intp), codegen


pointer: Any = intrinsic(_as_pointer)
"""An address as a pointer."""


def vector_at(given, k, kind):
    """Array of one axis: its address and length are the first two of three numbers at 3k."""
    return carray(pointer(given[3 * k]), (given[3 * k + 1],), kind)


def table_at(given, k, kind):
    """Array of two axes: its address and lengths are the three numbers at 3k."""
    return carray(pointer(given[3 * k]), (given[3 * k + 1], given[3 * k + 2]), kind)


# overloads and not compiled functions, of which numba would make one for each number k that is written out
overload(vector_at)(lambda given, k, kind: vector_at)
overload(table_at)(lambda given, k, kind: table_at)
