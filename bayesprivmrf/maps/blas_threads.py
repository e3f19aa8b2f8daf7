"""Work shared by our own threads, with one BLAS thread each.

BLAS threads wait for each other by spinning, at every product: on cores that others use as well a step of
Frank-Wolfe took several times as long with two of them. Threads that each sum over their own records meet once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

__all__ = ["one_blas_thread"]


@contextmanager
def one_blas_thread() -> Iterator[int]:
    """Limit BLAS to one thread, and give the number that it had: how many of our own may run."""
    controller = _controller()
    threads = max((pool["num_threads"] for pool in controller.info()), default=1)
    with controller.limit(limits=1, user_api="blas"):
        yield threads


@cache
def _controller() -> ThreadpoolController:
    from threadpoolctl import ThreadpoolController

    np.dot(np.ones(2), np.ones(2))  # so that NumPy's BLAS is loaded
    return ThreadpoolController().select(user_api="blas")
