"""L-BFGS on the free potentials, with what it says turned into a `Status`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.inference.solution import Status
from bayesprivmrf.model.tables import FloatArray

MEMORY = 40
"""Steps, and gradients, that are kept outside a box."""
_MEMORY_IN_BOX = 10  # each box iteration costs the square of it
_LINE_SEARCH = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """Where a minimisation ended."""

    point: FloatArray
    value: float
    gradient: FloatArray
    status: Status
    iterations: int
    evaluations: int


def minimize(
    objective: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    *,
    bounds: tuple[FloatArray, FloatArray] | None = None,
    gradient_tolerance: float,
    iterations: int,
    memory: int | None = None,
    is_enough: Callable[[FloatArray, FloatArray], bool] | None = None,
) -> Optimum:
    """Minimise a smooth function of many variables, within a box if one is given.

    Parameters
    ----------
    objective
        Value and gradient at a point.
    start
        The starting point, shape (d,).
    bounds
        Lowest and highest value of each variable; infinite where there is none.
    gradient_tolerance
        Converged when no entry of the (projected) gradient exceeds this.
    iterations
        The most iterations.
    memory
        Gradients that are kept; by default fewer in a box than outside one.
    is_enough
        Whether to end at a point, given it and its gradient, whatever the tolerance says; asked after each iteration.
    """
    from scipy.optimize import Bounds
    from scipy.optimize import minimize as scipy_minimize

    if memory is None:
        memory = MEMORY if bounds is None else _MEMORY_IN_BOX
    box: Any = None if bounds is None else Bounds(*bounds)  # type: ignore[arg-type]
    gradient = np.zeros(0)

    def evaluated(point: FloatArray) -> tuple[float, FloatArray]:
        nonlocal gradient
        value, gradient = objective(point)
        return value, gradient

    def stop(point: FloatArray) -> None:  # an iteration ends at the point that was evaluated last
        if is_enough is not None and is_enough(point, gradient):
            raise StopIteration

    result = scipy_minimize(
        objective if is_enough is None else evaluated,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=box,
        callback=None if is_enough is None else stop,
        options={
            "maxiter": iterations,
            "maxfun": 3 * iterations + 100,
            "maxcor": memory,
            "maxls": _LINE_SEARCH,
            "ftol": 0.0,
            "gtol": gradient_tolerance,
        },
    )
    return Optimum(
        point=np.asarray(result.x),
        value=float(result.fun),
        gradient=np.asarray(result.jac),
        status=_status(result, bounds, gradient_tolerance),
        iterations=int(result.nit),
        evaluations=int(result.nfev),
    )


def _status(
    result: object, bounds: tuple[FloatArray, FloatArray] | None, gradient_tolerance: float
) -> Status:
    """Judge by the gradient itself, since a line search also ends where rounding stops all progress."""
    point, gradient, value = (np.asarray(getattr(result, name)) for name in ("x", "jac", "fun"))
    if not (np.isfinite(value) and np.isfinite(point).all() and np.isfinite(gradient).all()):
        return Status.DIVERGED
    projected = gradient
    if bounds is not None:
        projected = point - np.clip(point - gradient, bounds[0], bounds[1])
    if np.abs(projected).max(initial=0.0) <= 10 * gradient_tolerance:
        return Status.CONVERGED
    return Status.ITERATION_LIMIT
