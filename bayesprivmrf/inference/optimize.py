"""Minimization by L-BFGS and by damped Gauss-Newton steps with a `Status`; maximum likelihood from marginals.

`one_blas_thread` limits BLAS while a fit runs, or while the library's own threads share the work. A fit computes
many small matrix products, and BLAS threads spin while they wait for each other in each of them. On busy cores this
makes a fit many times slower. The library's own threads each sum over their own records, and wait for each other
only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.inference.interval_frame import Status
from bayesprivmrf.marginals import MarginalEngine
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


type Expanded = tuple[float, FloatArray, FloatArray]
"""Value, gradient and positive semidefinite curvature at a point."""

type Means = Callable[[FloatArray], tuple[float, FloatArray]]
"""Log partition, and means of all effects, at some coordinates."""

# A potential beyond this says that the likelihood has no finite maximum
_LARGEST_POTENTIAL = 1e4

# Steps, and gradients, that are kept outside a box
UPDATES_KEPT = 40
# The same within a box, where an iteration costs their square
_KEPT_IN_BOX = 10

# Largest number of damped Gauss-Newton steps; searches that settle take 5 to 30
_DAMPED_STEPS = 60

# Damping of the first step, in units of the curvature's diagonal; the least damping; and the most, at which steps are
# so short that the objective cannot fall any more
_FIRST_DAMPING = 1e-6
_LEAST_DAMPING = 1e-9
_MOST_DAMPING = 1e6

# Least entry of the curvature's diagonal that is damped, in units of the largest
_LEAST_SIZE = 1e-9

# Fall of the objective, relative to its size, at which Gauss-Newton steps have converged
_SMALLEST_FALL = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """End point of a minimization."""

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
    gradient_tolerance: float,
    iterations: int,
    memory: int = UPDATES_KEPT,
    is_enough: Callable[[FloatArray, FloatArray], bool] | None = None,
) -> Optimum:
    """Minimise a smooth function of many variables.

    Parameters
    ----------
    objective
        Value and gradient at a point.
    start
        The starting point, shape (d,).
    gradient_tolerance
        Converged when no entry of the gradient exceeds this.
    iterations
        The most iterations.
    memory
        Gradients that are kept.
    is_enough
        Whether to end at a point, given it and its gradient, whatever the tolerance says; asked after each iteration.
    """
    options = _options(gradient_tolerance, iterations, memory)
    result = _searched(objective, start, options, is_enough=is_enough)
    return _optimum(result, np.asarray(result.jac), gradient_tolerance)


def minimize_in_box(
    objective: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    bounds: tuple[FloatArray, FloatArray],
    *,
    gradient_tolerance: float,
    iterations: int,
    memory: int = _KEPT_IN_BOX,
) -> Optimum:
    """Minimise a smooth function of many variables within a box.

    Parameters
    ----------
    objective, start, iterations, memory
        As for `minimize`.
    bounds
        Lowest and highest value of each variable; infinite where there is none.
    gradient_tolerance
        Converged when no entry of the projected gradient exceeds this.
    """
    options = _options(gradient_tolerance, iterations, memory)
    result = _searched(objective, start, options, bounds=bounds)
    point = np.asarray(result.x)
    projected = point - np.clip(point - np.asarray(result.jac), *bounds)
    return _optimum(result, projected, gradient_tolerance)


def _options(gradient_tolerance: float, iterations: int, memory: int) -> dict[str, float]:
    """Return SciPy's options of a search."""
    return {
        "maxiter": iterations,
        "maxfun": 3 * iterations + 100,
        "maxcor": memory,
        # nearly flat objectives exhaust SciPy's default of 20 evaluations in a line search
        "maxls": 40,
        "ftol": 0.0,
        "gtol": gradient_tolerance,
    }


def _searched(
    objective: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    options: dict[str, float],
    *,
    bounds: tuple[FloatArray, FloatArray] | None = None,
    is_enough: Callable[[FloatArray, FloatArray], bool] | None = None,
) -> Any:
    """Return SciPy's result of a search."""
    from scipy.optimize import Bounds
    from scipy.optimize import minimize as scipy_minimize

    box: Any = None if bounds is None else Bounds(*bounds)  # type: ignore[arg-type]
    last = np.zeros(0)

    def evaluated(point: FloatArray) -> tuple[float, FloatArray]:
        nonlocal last
        value, last = objective(point)
        return value, last

    def stop(point: FloatArray) -> None:  # an iteration ends at the point that was evaluated last
        if is_enough is not None and is_enough(point, last):
            raise StopIteration

    return scipy_minimize(
        evaluated,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=box,
        callback=stop,
        options=options,
    )


def _optimum(result: Any, projected: FloatArray, gradient_tolerance: float) -> Optimum:
    """Return the end of a search, judged by the gradient itself: a line search also ends where rounding stops it."""
    point = np.asarray(result.x)
    gradient = np.asarray(result.jac)
    value = float(result.fun)
    status = Status.ITERATION_LIMIT
    if not (np.isfinite(value) and np.isfinite(point).all() and np.isfinite(gradient).all()):
        status = Status.DIVERGED
    elif np.abs(projected).max(initial=0.0) <= 10 * gradient_tolerance:
        status = Status.CONVERGED
    return Optimum(
        point=point,
        value=value,
        gradient=gradient,
        status=status,
        iterations=int(result.nit),
        evaluations=int(result.nfev),
    )


def ridge_mode(
    means_at: Means,
    means: FloatArray,
    ridges: FloatArray,
    start: FloatArray,
    *,
    unit: FloatArray | float = 1.0,
    **search: Any,
) -> Optimum:
    """Return the minimum of A(β) - t'β + Σ λ_i β_i² / 2; its point and gradient are by coordinates over their units.

    Parameters
    ----------
    means_at
        Log partition A and means of the model, its gradient.
    means, ridges
        t and λ, shape (d,).
    start
        β to begin at.
    unit
        Scale of each coordinate in the search.
    search
        Settings of `minimize`; or those of `minimize_in_box`, among them `bounds` of β over its units.
    """

    def objective(point: FloatArray) -> tuple[float, FloatArray]:
        beta = unit * point
        log_partition, found = means_at(beta)
        pull = ridges * beta
        return float(log_partition - means @ beta + 0.5 * pull @ beta), unit * (
            found - means + pull
        )

    if "bounds" in search:
        return minimize_in_box(objective, start / unit, **search)
    return minimize(objective, start / unit, **search)


@dataclass(frozen=True, eq=False)
class PotentialFamily:
    """The potentials θ_0 + B β, and what finds their marginals.

    Parameters
    ----------
    engine
        Finds the marginals of potentials.
    base
        θ_0, minus infinity at impossible cells, shape (size,).
    basis
        B, sparse, shape (size, d); None for the identity.
    """

    engine: MarginalEngine
    base: FloatArray
    basis: Any = None


def match_marginals(
    family: PotentialFamily,
    target: FloatArray,
    *,
    ridge: float | FloatArray = 0.0,
    iterations: int = 2000,
    tolerance: float = 1e-7,
    start: FloatArray | None = None,
) -> tuple[FloatArray, Status, dict[str, float]]:
    """Return the potentials of a family that minimize A - target'β + Σ ridge_i β_i²: likelihood from marginals.

    With a basis B the start is one of β: the solution of B'μ(θ_0 + Bβ) + 2 ridge β = B'target. Without one it is one
    of θ.

    Returns
    -------
    potentials, status, stats
        Shape (size,), minus infinity where the base is; how it ended; iterations and evaluations. Without
        a ridge, a target of zero or less at a possible cell has no finite maximum: the status is DIVERGED.
    """
    from scipy.sparse import eye_array

    engine = family.engine
    base = family.base
    basis: Any = family.basis
    free = np.isfinite(base)
    full = base.copy()
    is_plain = basis is None and bool(free.all())  # β is then θ - θ_0 itself
    if basis is None:  # each cell by itself
        basis = eye_array(engine.size, format="csr")
        if start is not None:
            start = np.where(free, start, 0.0) - np.where(free, base, 0.0)
    rows = basis[free]
    columns = rows.T.tocsr()
    wanted = columns @ target[free]
    weight = np.broadcast_to(np.asarray(ridge, dtype=float), wanted.size)

    def means_at(beta: FloatArray) -> tuple[float, FloatArray]:
        full[free] = base[free] + (beta if is_plain else rows @ beta)
        log_partition, marginals = engine.marginals(full)
        return log_partition, marginals if is_plain else columns @ marginals[free]

    if start is None:
        begin = np.zeros(len(wanted))
    else:
        begin = start
    search = {"gradient_tolerance": tolerance, "iterations": iterations}
    optimum = ridge_mode(means_at, wanted, 2 * weight, begin, **search)
    full[free] = base[free] + rows @ optimum.point
    # zero is an edge of sums of some free cells, but none of signed sums
    sizes, signed = (each @ np.ones(int(free.sum())) for each in (abs(columns), columns))
    counted = (sizes > 0) & (sizes == signed)
    has_no_maximum = bool(((wanted <= 0) & (weight == 0) & counted).any())
    is_lost = has_no_maximum or np.abs(optimum.point).max(initial=0.0) > _LARGEST_POTENTIAL
    if is_lost:
        status = Status.DIVERGED
    else:
        status = optimum.status
    return full, status, {"iterations": optimum.iterations, "evaluations": optimum.evaluations}


def damped_steps(
    expanded: Callable[[FloatArray], Expanded], point: FloatArray, is_free: np.ndarray
) -> tuple[FloatArray, FloatArray]:
    """Take Gauss-Newton steps to the minimum, damped where they would not descend (Levenberg and Marquardt).

    Parameters
    ----------
    expanded
        Expansion of the objective at a point.
    point
        The starting point, shape (d,).
    is_free
        Mask of the coordinates that move.

    Returns
    -------
    point, curvature
        The last point, and the curvature there.
    """
    value, gradient, curvature = expanded(point)
    damping = _FIRST_DAMPING
    growth = 2.0
    free = np.ix_(is_free, is_free)
    for _ in range(_DAMPED_STEPS):
        sizes = np.diag(curvature)  # next to nothing where a probability is 0 but for rounding
        added = damping * np.maximum(sizes, _LEAST_SIZE * sizes.max())
        step = np.zeros(len(point))
        step[is_free] = np.linalg.solve((curvature + np.diag(added))[free], gradient[is_free])
        trial = expanded(point - step)
        fall = value - trial[0]
        if fall >= 0:
            gain = fall / (0.5 * step @ (added * step + gradient))  # 1 where the model is exact
            point = point - step
            value, gradient, curvature = trial
            # a good step lowers the damping, to a third at most, and a poor one raises it
            damping = max(damping * max(1 / 3, 1 - (2 * gain - 1) ** 3), _LEAST_DAMPING)
            growth = 2.0
            if fall < _SMALLEST_FALL * (1 + abs(value)):
                break
        else:
            damping = damping * growth
            growth = 2 * growth
            if damping > _MOST_DAMPING:
                break
    return point, curvature


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
