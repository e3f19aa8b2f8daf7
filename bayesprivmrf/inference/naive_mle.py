"""Naive maximum likelihood: the noisy tables used as if they were the true ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.evidence import Inference, gather, require_inference
from bayesprivmrf.inference.optimize import minimize
from bayesprivmrf.inference.projection import PROJECTIONS, pseudo_marginals
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.release import NoisyStatistics

__all__ = ["NaiveMLE"]

LARGEST_POTENTIAL = 1e4
"""A potential beyond this says that the likelihood has no finite maximum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NaiveMLE:
    r"""Maximum likelihood as if the noisy tables were exact (Bernstein et al. 2017, section 3.1).

    Maximises, per record,

    .. math:: \tildeμ'θ - A(θ) - λ \lVert θ \rVert^2,

    with :math:`\tildeμ` the tables divided by N and projected. The gradient is :math:`\tildeμ - μ(θ) - 2λθ`.

    Parameters
    ----------
    ridge
        λ, nats a record; at least 0. Without it the estimate often does not exist: the noise leaves zeros, and
        the likelihood then grows as their potentials fall without end. The paper gives no value; the right one
        falls with N ε (docs/inference.md).
    projection
        ``"simplex"`` (the paper's), ``"none"``, or ``"consistent"``.
    inference
        ``"exact"`` or ``"loopy"`` marginals.
    iterations
        The most L-BFGS iterations.
    tolerance
        Converged when no marginal misses the optimality condition by more than this probability.

    References
    ----------
    .. [1] Bernstein, McKenna, Sun, Sheldon, Hay, Miklau (2017). Differentially private learning of undirected
       graphical models using collective graphical models. ICML. Section 3.1.
    """

    ridge: float = 1e-3
    projection: str = "simplex"
    inference: Inference = "exact"
    iterations: int = 2000
    tolerance: float = 1e-7

    def __post_init__(self) -> None:
        if not (self.ridge >= 0 and np.isfinite(self.ridge)):
            raise ArgumentError(f"`ridge` must be at least 0 and finite, got {self.ridge}.")
        if self.projection not in PROJECTIONS:
            raise ArgumentError(
                f"`projection` must be one of {', '.join(PROJECTIONS)}, got {self.projection!r}."
            )
        require_inference(self.inference)
        if not self.iterations >= 1:
            raise ArgumentError(f"`iterations` must be at least 1, got {self.iterations}.")
        if not self.tolerance > 0:
            raise ArgumentError(f"`tolerance` must be positive, got {self.tolerance}.")

    def fit(self, releases: NoisyStatistics | Sequence[NoisyStatistics]) -> Solution:
        """Estimate the model of a release, or of several releases of one population.

        Returns
        -------
        Solution
            `stats` holds iterations, evaluations, seconds, the total used and the ridge.
        """
        begin = time.perf_counter()
        evidence = gather(releases)
        model = evidence.specification
        target = pseudo_marginals(evidence, self.projection)
        potentials, status, stats = match_marginals(
            model.cardinalities,
            model.scopes,
            target,
            possible=model.possible,
            ridge=self.ridge,
            inference=self.inference,
            iterations=self.iterations,
            tolerance=self.tolerance,
        )
        stats = {
            **stats,
            "seconds": time.perf_counter() - begin,
            "total": evidence.total,
            "ridge": self.ridge,
            "projection": self.projection,
        }
        return Solution(
            specification=model,
            potentials=model.tables(potentials),
            method="naive MLE",
            status=status,
            stats=stats,
            inference=self.inference,
        )


def match_marginals(
    cardinalities: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    target: FloatArray,
    *,
    possible: np.ndarray | None = None,
    ridge: float = 0.0,
    inference: Inference = "exact",
    iterations: int = 2000,
    tolerance: float = 1e-7,
    start: FloatArray | None = None,
) -> tuple[FloatArray, Status, dict[str, float]]:
    """Potentials that minimise A(θ) - target'θ + ridge |θ|²: maximum likelihood from marginals.

    Returns
    -------
    potentials, status, stats
        Shape (size,), minus infinity where `possible` is False; how it ended; iterations and evaluations.
    """
    engine = marginal_engine(cardinalities, scopes, kind=inference)
    free = np.ones(engine.size, bool) if possible is None else possible
    full = np.full(engine.size, -np.inf)
    wanted = target[free]

    def objective(theta: FloatArray) -> tuple[float, FloatArray]:
        full[free] = theta
        log_partition, marginals = engine.marginals(full)
        value = float(log_partition - wanted @ theta + ridge * (theta @ theta))
        return value, marginals[free] - wanted + 2 * ridge * theta

    begin = np.zeros(int(free.sum())) if start is None else start[free]
    optimum = minimize(objective, begin, gradient_tolerance=tolerance, iterations=iterations)
    potentials = np.full(engine.size, -np.inf)
    potentials[free] = optimum.point
    status = optimum.status
    if np.abs(optimum.point).max(initial=0.0) > LARGEST_POTENTIAL:
        status = Status.DIVERGED
    elif inference == "loopy" and status is Status.CONVERGED:
        status = Status.APPROXIMATE
    return potentials, status, {"iterations": optimum.iterations, "evaluations": optimum.evaluations}
