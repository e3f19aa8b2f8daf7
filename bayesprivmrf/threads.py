"""One BLAS thread while a fit runs, or while our own threads share its work.

The products of a fit are many and small, and BLAS threads wait for each other by spinning, at every product.
Measured on two busy cores, a fit took up to fifty times as long with the default two threads, and a step of
Frank-Wolfe several times as long. Threads of our own that each sum over their own records meet once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


@contextmanager
def one_blas_thread() -> Iterator[int]:
    """Limit BLAS to one thread, and give the number that it had: how many threads of our own may run.

    It is a decorator as well: ``@one_blas_thread()``.
    """
    controller = _controller()
    threads = max((pool["num_threads"] for pool in controller.info()), default=1)
    with controller.limit(limits=1, user_api="blas"):
        yield threads


@cache
def _controller() -> ThreadpoolController:
    """Handle of the loaded BLAS libraries; NumPy's and SciPy's are separate, so both are loaded first."""
    import scipy.linalg  # noqa: F401 (loads the BLAS that numba and L-BFGS use)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
