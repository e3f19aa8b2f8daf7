"""Naive maximum likelihood, which uses the noisy tables as if they were exact."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bayesprivmrf.checks import at_least, one_of, positive_finite, whole_number
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.criticism.verdict import verdict
from bayesprivmrf.inference.evidence import Evidence, Inference, Population, gather, require_inference
from bayesprivmrf.inference.exact_answers import given_back, honoured, refuse_shared, without_records
from bayesprivmrf.inference.optimize import minimize
from bayesprivmrf.inference.projection import PROJECTIONS, Pooled, pool, pseudo_marginals
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.inference.transitions.mode import (
    exact_transitions,
    naive_transitions,
    refuse_loopy_transitions,
)
from bayesprivmrf.inference.transitions.rows import TransitionRows
from bayesprivmrf.marginals import MarginalEngine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.release import NoisyStatistics
from bayesprivmrf.threads import one_blas_thread

# A potential beyond this says that the likelihood has no finite maximum
LARGEST_POTENTIAL = 1e4

# Records below which a count without noise, as found by least squares, is zero up to rounding
_NO_RECORD = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class NaiveMLE:
    r"""Naive maximum likelihood, as if the noisy tables were exact (Bernstein et al. 2017, section 3.1).

    The estimate maximizes, per record,

    .. math:: \tildeμ'θ - A(θ) - λ \lVert θ \rVert^2,

    where :math:`\tildeμ` are the projected tables divided by N. The gradient is :math:`\tildeμ - μ(θ) - 2λθ`. If only
    some answers have noise, the estimate is the nearest distribution that gives the others exactly. If no answer has
    noise, the default ridge is 0 and the estimate has the tables of the data, zero cells included
    (`bayesprivmrf.inference.exact_answers`).

    Parameters
    ----------
    ridge
        λ, nats per record, at least 0. With 0 the estimate often does not exist: projected tables have zeros, and the
        likelihood grows as the potentials of these cells fall without end. ``None`` takes `default_ridge`, which uses
        the release alone, or 0 if no answer has noise.
    projection
        Projection of the tables: ``"simplex"`` as in the paper, ``"none"``, or ``"consistent"``.
    inference
        ``"exact"`` or ``"loopy"`` marginals.
    iterations
        Largest number of L-BFGS iterations.
    tolerance
        Largest error of a marginal in the optimality condition, a probability. The fit counts as converged below it,
        or below ten times as much if rounding ends the line search.

    Notes
    -----
    With tied potentials, θ = Bβ, the ridge is on β, and the weight of a tied table is the mean over its cliques. The
    estimate then matches :math:`B'\tildeμ` (`bayesprivmrf.model.ties`). Tables are projected on the simplex only if
    one of these sums is negative, because the projection would change the sums. If answers to queries leave cells of
    a clique undetermined, B is A' and no table is projected. But for the ridge, the estimate is then the
    distribution of largest entropy among those that give the fitted answers.

    References
    ----------
    Bernstein, McKenna, Sun, Sheldon, Hay, Miklau (2017). Differentially private learning of undirected graphical
    models using collective graphical models. ICML. Section 3.1.

    Examples
    --------
    >>> NaiveMLE(ridge=0.01)
    NaiveMLE(ridge=0.01, projection='simplex', inference='exact', iterations=2000, tolerance=1e-07)
    """

    ridge: float | None = None
    projection: str = "simplex"
    inference: Inference = "exact"
    iterations: int = 2000
    tolerance: float = 1e-7

    method: ClassVar[str] = "naive MLE"
    offers_loopy: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.ridge is not None:
            at_least("ridge", self.ridge, 0)
        one_of("projection", self.projection, PROJECTIONS)
        require_inference(self.inference)
        whole_number("iterations", self.iterations, 1)
        positive_finite("tolerance", self.tolerance)

    @one_blas_thread()
    def fit(
        self,
        releases: NoisyStatistics | Sequence[NoisyStatistics],
        *,
        population: Population = "one",
    ) -> Solution:
        """Estimate the model of a release, or of several releases of one population or of several waves.

        Parameters
        ----------
        releases
            Noisy statistics.
        population
            ``"one"``: all releases are of the same people. ``"waves"``: each release is of people of its own, a wave,
            and all waves share the model; the result has the variable ``"wave"``, with the states 1, 2, ....

        Returns
        -------
        Solution
            `stats` holds iterations, evaluations, seconds, the total used and the ridge;
            ``undetermined_cells``, the number of cells of the cliques that no measurement determines, where there
            are some; and ``margin_tail``, the p-value of the worst disagreement among numbers that were measured
            more than once.

        Raises
        ------
        ModelError
            A wave leaves cells undetermined that others measured.

        Warns
        -----
        ConsistencyWarning
            Released tables disagree by more than their noise. The fit is ``not_trusted``.
        """
        from scipy.sparse import eye_array

        begin = time.perf_counter()
        evidence = gather(releases, needs_kernel=False, population=population)
        model = evidence.specification
        is_noisy = not evidence.is_exact[evidence.possible].all()
        if is_noisy:
            refuse_shared(evidence)
        # without noise and ridge the data's own zeros are structural zeros of the estimate
        is_exact = not is_noisy and not self.ridge and evidence.is_exact.any() and evidence.has_total
        pooled = pool(evidence)
        if evidence.wave_totals and pooled.undetermined:
            raise ModelError(
                "the naive estimate of waves needs tables of every clique from every wave, but "
                f"{pooled.undetermined} cells are not determined by their wave; use CGM or NoiseAwareMAP."
            )
        is_default = self.ridge is None
        ridges = np.full(len(model.cliques), self.ridge or 0.0)
        if is_default and not is_exact:
            ridges = default_ridge(evidence, pooled)
        basis = _basis(evidence, pooled)
        _require_told_sums(model, pooled, basis)
        target = self._target(evidence, pooled, is_default, basis)
        if is_exact:
            target = np.where(np.abs(target) * evidence.total < _NO_RECORD, 0.0, target)
        cells = np.repeat(ridges, np.diff(model.offsets))
        engine = evidence.engine(self.inference)
        if model.shares_transitions:
            rows = TransitionRows(model=model)
            refuse_loopy_transitions(self.inference)
            if is_exact:
                given = exact_transitions(rows, target)
                return self._solution(evidence, pooled, given, Status.CONVERGED, {}, ridges, begin)
            phi, status, stats = naive_transitions(
                rows, target, float(ridges.mean()), iterations=self.iterations, tolerance=self.tolerance
            )
            return self._solution(evidence, pooled, rows.potentials(phi), status, stats, ridges, begin)
        base, is_table = evidence.family.base, target.min(initial=0.0) >= 0
        if is_exact and basis is None and is_table and self.inference == "exact":
            given = given_back(model, engine, target)
            return self._solution(evidence, pooled, *given, ridges, begin)
        if is_exact and (is_table or not model.is_restricted):
            sums = eye_array(model.size, format="csr") if basis is None else basis
            base = np.where(without_records(sums, sums.T @ target), -np.inf, base)
        if is_exact and pooled.undetermined and not model.is_restricted:
            # of largest entropy: the nearest to the even distribution
            potentials, status, stats = base, Status.CONVERGED, {}
        else:
            potentials, status, stats = match_marginals(
                engine,
                base,
                target,
                ridge=cells if basis is None else abs(basis).T @ cells / (abs(basis).T @ np.ones(model.size)),
                basis=basis,
                iterations=self.iterations,
                tolerance=self.tolerance,
            )
        if evidence.exact is not None and (is_noisy or (is_exact and not model.is_restricted)):
            potentials, is_feasible = honoured(evidence, engine, potentials)
            status = status if is_feasible else Status.DIVERGED
        return self._solution(evidence, pooled, potentials, status, stats, ridges, begin)

    def _target(
        self, evidence: Evidence, pooled: Pooled, has_own_ridges: bool, basis: Any | None
    ) -> FloatArray:
        """Return the tables to match; cells may be negative if only sums of them matter."""
        if basis is not None and self.projection == "simplex":
            left = pseudo_marginals(evidence, "none", has_own_ridges=has_own_ridges, pooled=pooled)
            model = evidence.specification
            if not model.is_restricted or (not model.ordinal and (basis.T @ left >= 0).all()):
                return left
        return pseudo_marginals(evidence, self.projection, has_own_ridges=has_own_ridges, pooled=pooled)

    def _solution(
        self,
        evidence: Evidence,
        pooled: Pooled,
        potentials: FloatArray,
        status: Status,
        stats: dict[str, Any],
        ridges: FloatArray,
        begin: float,
    ) -> Solution:
        model = evidence.specification
        found = verdict(status, evidence, potentials, self.inference, stacklevel=4)
        stats = {
            **stats,
            "seconds": time.perf_counter() - begin,
            **found.stats,
            "ridge": float(ridges.mean()) if len(ridges) else 0.0,
            "projection": self.projection,
            **({"undetermined_cells": pooled.undetermined} if pooled.undetermined else {}),
        }
        return Solution(
            specification=model,
            potentials=model.tables(potentials),
            method=f"{self.method}, shared transitions" if model.shares_transitions else self.method,
            references=("cgm",),
            status=found.status,
            problems=found.problems,
            stats=stats,
            inference=self.inference,
            is_simulated=evidence.is_simulated,
            of_records=evidence.of_records,
            _evidence=evidence,
        )


def _require_told_sums(model: ModelSpecification, pooled: Pooled, basis: Any | None) -> None:
    """Raise if shared parameters rest on sums of cells that the answers leave undetermined."""
    if pooled.unseen is None or not (model.is_restricted or model.shares_transitions):
        return
    sums, sizes = pooled.unseen, np.abs(pooled.unseen)
    if model.shares_transitions:
        rows = TransitionRows(model=model)
        sums, sizes = rows.sums(sums), rows.sums(sizes)
    elif basis is not None:
        sums, sizes = (basis.T @ sums.T).T, (abs(basis).T @ sizes.T).T
    if (np.abs(sums) > _NO_RECORD * sizes.max(initial=0.0)).any():
        raise ModelError(
            "the naive estimate of shared parameters needs the sums of the cells that share them, and "
            f"{pooled.undetermined} cells are not determined by the answers; use NoiseAwareMAP, which takes any, or "
            "measure the tables of all cliques, or their sums (queries.pooled)."
        )


def _basis(evidence: Evidence, pooled: Pooled) -> Any | None:
    """Return the sparse B of θ = Bβ: that of the ties, or A' if answers leave cells open."""
    if evidence.specification.is_restricted:
        return evidence.family.basis
    rows = evidence.possible_rows() if pooled.undetermined else None
    return None if rows is None else rows.T.tocsr().astype(float)


def default_ridge(evidence: Evidence, pooled: Pooled | None = None) -> FloatArray:
    r"""Return the ridge of each clique, by the error of its noisy marginals: :math:`λ_C = K_C σ_C^2/N^2 + 1/N`.

    Near a maximum the naive likelihood is :math:`-\tfrac12 \sum_i (\barμ_i - μ_i)^2 / F_i`, F being the
    marginals' own variance :math:`μ_i(1-μ_i) ≈ 1/K_C` for a table of :math:`K_C` cells. The error of a noisy
    marginal really has variance :math:`v = σ_C^2/N^2 + F/N` (:math:`σ_C^2` of the noise, pooled over the releases
    that measured the table), so the honest log-likelihood is F/v times the naive one, and a normal prior of
    variance τ² on each potential, :math:`-θ^2/(2τ^2)`, weighs as a ridge of :math:`\frac{v}{2 τ^2 F}` on the naive
    scale. With τ² = 1/2 that is the formula above. τ was chosen on 32 simulated releases, where the estimate came
    within 15 % of the best λ in hindsight (docs/explanation/estimators.md).

    Returns
    -------
    ndarray
        Shape (cliques of the model,).
    """
    pooled = pool(evidence) if pooled is None else pooled
    found = {frozenset(scope): ridge for scope, ridge in zip(pooled.scopes, pooled.ridges, strict=True)}
    return np.array([found[frozenset(scope)] for scope in evidence.specification.scopes])


def match_marginals(
    engine: MarginalEngine,
    base: FloatArray,
    target: FloatArray,
    *,
    ridge: float | FloatArray = 0.0,
    iterations: int = 2000,
    tolerance: float = 1e-7,
    start: FloatArray | None = None,
    basis: Any = None,
) -> tuple[FloatArray, Status, dict[str, float]]:
    """Return the potentials θ_0 + β that minimize A - target'β + Σ ridge_i β_i²: maximum likelihood from marginals.

    θ_0 is the base, minus infinity at impossible cells, and the start is one of θ. With a basis B, sparse, θ is
    θ_0 + B β, and the start one of β: the solution of B'μ(θ_0 + Bβ) + 2 ridge β = B'target.

    Returns
    -------
    potentials, status, stats
        Shape (size,), minus infinity where the base is; how it ended; iterations and evaluations. Without
        a ridge, a target of zero or less at a possible cell has no finite maximum: the status is DIVERGED.
    """
    free, full = np.isfinite(base), base.copy()
    origin = base[free]
    rows = None if basis is None else basis[free]
    columns = None if rows is None else rows.T.tocsr()

    def summed(cells: FloatArray) -> FloatArray:
        return cells[free] if columns is None else columns @ cells[free]

    wanted = summed(target)
    weight = np.asarray(ridge, dtype=float)
    weight = (
        np.broadcast_to(weight, engine.size)[free] if basis is None else np.broadcast_to(weight, wanted.size)
    )

    def objective(beta: FloatArray) -> tuple[float, FloatArray]:
        full[free] = origin + (beta if rows is None else rows @ beta)
        log_partition, marginals = engine.marginals(full)
        value = float(log_partition - wanted @ beta + beta @ (weight * beta))
        return value, summed(marginals) - wanted + 2 * weight * beta

    begin = np.zeros(len(wanted)) if start is None else start if basis is not None else start[free] - origin
    optimum = minimize(objective, begin, gradient_tolerance=tolerance, iterations=iterations)
    potentials = base.copy()
    potentials[free] = origin + (optimum.point if rows is None else rows @ optimum.point)
    status = optimum.status
    counted = np.ones(len(wanted), bool)
    if columns is not None:  # sums of cells alone: of signed ones zero is no edge
        counted = (columns @ np.ones(int(free.sum())) > 0) & (columns.min(axis=1).toarray().ravel() >= 0)
    has_no_maximum = bool(((wanted <= 0) & (weight == 0) & counted).any())
    if has_no_maximum or np.abs(optimum.point).max(initial=0.0) > LARGEST_POTENTIAL:
        status = Status.DIVERGED
    return potentials, status, {"iterations": optimum.iterations, "evaluations": optimum.evaluations}
