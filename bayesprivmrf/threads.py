"""Limit of BLAS to one thread while a fit runs, or while the library's own threads share the work.

A fit computes many small matrix products, and BLAS threads spin while they wait for each other in each of them. On
busy cores this makes a fit many times slower. The library's own threads each sum over their own records, and wait for
each other only once.
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
    """Limit BLAS to one thread in a context; yield its previous number of threads, which our own threads may use.

    The context manager also works as a decorator: ``@one_blas_thread()``.
    """
    controller = _controller()
    threads = max((pool["num_threads"] for pool in controller.info()), default=1)
    with controller.limit(limits=1, user_api="blas"):
        yield threads


@cache
def _controller() -> ThreadpoolController:
    """Return the controller of the loaded BLAS libraries, after those of NumPy and of SciPy are both loaded."""
    import scipy.linalg  # noqa: F401 (loads the BLAS that numba and L-BFGS use)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
