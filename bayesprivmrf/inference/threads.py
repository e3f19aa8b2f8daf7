"""One BLAS thread during a fit: its products are many and small, and threads that wait for each other cost more.

Measured on two busy cores, a fit took up to fifty times as long with the default two threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

__all__ = ["with_one_blas_thread"]


def with_one_blas_thread[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Decorated function, which limits BLAS to one thread while it runs and restores the limit after."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        with _controller().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return limited


@cache
def _controller() -> ThreadpoolController:
    """Handle of the loaded BLAS libraries; NumPy's and SciPy's are separate, so both are loaded first."""
    import scipy.linalg  # noqa: F401 (loads the BLAS that numba and L-BFGS use)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
