"""Naive maximum likelihood, which uses the noisy tables as if they were exact."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from bayesprivmrf.checks import (
    NamedSettings,
    at_least,
    on_objects,
    one_of,
    positive_finite,
    whole_number,
)
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.criticism.verdict import verdict
from bayesprivmrf.inference.evidence import (
    Evidence,
    Inference,
    Population,
    family_of,
    require_inference,
)
from bayesprivmrf.inference.exact_answers import honoured, of_forest, refuse_shared, without_records
from bayesprivmrf.inference.given_model import GivenModel, refuse_loopy
from bayesprivmrf.inference.given_releases import gather
from bayesprivmrf.inference.least_squares import PooledTables, pool
from bayesprivmrf.inference.optimize import PotentialFamily, match_marginals, one_blas_thread
from bayesprivmrf.inference.projection import PROJECTIONS, pseudo_marginals
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.inference.transition_rows import TransitionRows
from bayesprivmrf.inference.transitions.mode import (
    exact_transitions,
    naive_transitions,
    refuse_loopy_transitions,
)
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.privacy import Gaussian, NoNoise
from bayesprivmrf.release import NoisyStatistics

# Records below which a count without noise, as found by least squares, is zero up to rounding
_NO_RECORD = 1e-6
# Smallest variance of a table's noise beside other noisy tables, records squared; arbitrary
_LEAST = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class NaiveMLE(NamedSettings):
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
        likelihood grows as the potentials of these cells fall without end. ``None`` takes the error of each
        noisy table (`PooledTables.ridges`), which uses the release alone, or 0 if no answer has noise.
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

    @on_objects
    @one_blas_thread()
    def fit(
        self,
        releases: NoisyStatistics | Sequence[NoisyStatistics],
        *,
        population: Population = "one",
        model: GivenModel | None = None,
    ) -> Solution:
        """Estimate the model of a release, or of several releases of one population or of several waves.

        Parameters
        ----------
        releases
            Noisy statistics.
        population
            ``"one"``: all releases are of the same people. ``"waves"``: each release is of people of its own, a wave,
            and all waves share the model; the result has the variable ``"wave"``, with the states 1, 2, ....
        model
            Model to fit: a list of cliques, a pgmpy network, or a `ModelSpecification`
            (`bayesprivmrf.inference.given_model`). None fits the model that the releases declare.

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
        given = gather(releases, needs_kernel=False, population=population, model=model)
        refuse_loopy(given.specification, self.inference)
        # the pooled tables of the interactions are all that this estimate reads
        evidence, pooled = _of_interactions(given, pool(given))
        specification = evidence.specification
        is_noisy = not evidence.is_exact[evidence.possible].all()
        if is_noisy:
            refuse_shared(evidence)
        # without noise and ridge the data's own zeros are structural zeros of the estimate
        is_exact = (
            not is_noisy and not self.ridge and evidence.is_exact.any() and evidence.has_total
        )
        undetermined = int(pooled.undetermined.sum())
        if evidence.wave_totals and undetermined:
            raise ModelError(
                "the naive estimate of waves needs tables of every clique from every wave, but "
                f"{undetermined} cells are not determined by their wave; use CGM or NoiseAwareMAP."
            )
        is_default = self.ridge is None
        ridges = np.full(len(specification.cliques), self.ridge or 0.0)
        if is_default and not is_exact:
            ridges = pooled.ridges(evidence)
        # B of θ = Bβ: that of the ties, or A' if answers leave cells open
        basis = evidence.family.basis
        if not specification.is_restricted and undetermined and evidence.matrix is not None:
            basis = evidence.matrix[evidence.possible].T.tocsr().astype(float)
        _require_told_sums(specification, pooled, basis)
        projection = self.projection
        if basis is not None and projection == "simplex":
            # cells may be negative if only sums of them matter, which the projection would change
            left = pseudo_marginals(evidence, "none", has_own_ridges=is_default, pooled=pooled)
            if not specification.is_restricted or (
                not specification.ordinal and (basis.T @ left >= 0).all()
            ):
                projection = "none"
        target = pseudo_marginals(evidence, projection, has_own_ridges=is_default, pooled=pooled)
        if is_exact:
            target = np.where(np.abs(target) * evidence.total < _NO_RECORD, 0.0, target)
        cells = np.repeat(ridges, np.diff(specification.offsets))
        engine = evidence.engine(self.inference)
        base = evidence.family.base
        is_table = target.min(initial=0.0) >= 0
        stats: dict[str, Any] = {"iterations": 0, "evaluations": 0}
        if specification.shares_transitions:
            rows = TransitionRows(model=specification)
            status = Status.CONVERGED
            refuse_loopy_transitions(self.inference)
            if is_exact:
                potentials = exact_transitions(rows, target)
            else:
                phi, status, stats = naive_transitions(
                    rows,
                    target,
                    float(ridges.mean()),
                    iterations=self.iterations,
                    tolerance=self.tolerance,
                )
                potentials = rows.potentials(phi)
        else:
            if is_exact and (is_table or not specification.is_restricted):
                if basis is None:
                    sums = eye_array(specification.size, format="csr")
                else:
                    sums = basis
                base = np.where(without_records(sums, sums.T @ target), -np.inf, base)
            if is_exact and not specification.is_restricted and (undetermined or is_table):
                # where answers leave cells open, the estimate of largest entropy: the nearest to the even one
                if undetermined:
                    potentials = base
                else:
                    potentials = of_forest(specification, target)
                status = Status.CONVERGED
            else:
                ridge = cells
                if basis is not None:
                    ridge = abs(basis).T @ cells / (abs(basis).T @ np.ones(specification.size))
                potentials, status, stats = match_marginals(
                    PotentialFamily(engine, base, basis),
                    target,
                    ridge=ridge,
                    iterations=self.iterations,
                    tolerance=self.tolerance,
                )
            if evidence.exact is not None and (
                is_noisy or (is_exact and not specification.is_restricted)
            ):
                potentials, is_feasible = honoured(evidence, engine, potentials)
                if not is_feasible:
                    status = Status.DIVERGED
        stats = {**stats, "seconds": time.perf_counter() - begin}
        on_cliques = given.family.on_cliques(potentials)
        fields = verdict(status, given, on_cliques, self, stats)
        fields["potentials"] = specification.tables(potentials)
        fields["stats"] |= {
            "ridge": float(ridges.mean()) if len(ridges) else 0.0,
            "projection": self.projection,
            **({"undetermined_cells": undetermined} if undetermined else {}),
        }
        if specification.shares_transitions:
            method = f"{self.method}, shared transitions"
        else:
            method = self.method
        return Solution(method=method, **fields)


def _of_interactions(evidence: Evidence, pooled: PooledTables) -> tuple[Evidence, PooledTables]:
    """Return the evidence and the pooled tables of a model's interactions, unchanged if it omits none.

    Raises
    ------
    ModelError
        The model omits interactions of measured tables, and the measurements do not determine all cells of its
        cliques' tables.
    """
    model = evidence.specification
    own = model.believed
    if own is model:
        return evidence, pooled
    if pooled.unseen is None:
        is_open = model.on_interactions(pooled.undetermined.astype(float)) > 0
    else:
        moved = model.on_interactions(pooled.unseen)
        is_open = (np.abs(moved) > _NO_RECORD).any(axis=0)
    if is_open.any():
        raise ModelError(
            "the naive estimate needs the tables of the model's cliques, and the measurements leave "
            f"{int(is_open.sum())} of their cells undetermined; use CGM or NoiseAwareMAP, which take any, or a model "
            "whose cliques were measured."
        )
    variances = model.on_interactions(pooled.variances)
    is_exact = evidence.is_exact[evidence.possible].all()
    of_tables = [float(variances[a:b].mean()) for a, b in pairwise(own.offsets)]
    laws = [NoNoise() if is_exact else Gaussian(math.sqrt(max(v, _LEAST))) for v in of_tables]
    tables = replace(
        evidence,
        specification=own,
        scopes=own.scopes,
        queries=None,
        noisy_counts=model.on_interactions(pooled.counts),
        noise=tuple(laws),
        possible=np.isfinite(family_of(own).base),
    )
    determined = np.zeros(own.size, bool)
    return tables, PooledTables(
        counts=tables.noisy_counts, variances=variances, undetermined=determined
    )


def _require_told_sums(model: ModelSpecification, pooled: PooledTables, basis: Any | None) -> None:
    """Raise if shared parameters rest on sums of cells that the answers leave undetermined."""
    if pooled.unseen is None or not (model.is_restricted or model.shares_transitions):
        return
    sums = pooled.unseen
    sizes = np.abs(pooled.unseen)
    if model.shares_transitions:
        rows = TransitionRows(model=model)
        sums = rows.sums(sums)
        sizes = rows.sums(sizes)
    elif basis is not None:
        sums = (basis.T @ sums.T).T
        sizes = (abs(basis).T @ sizes.T).T
    if (np.abs(sums) > _NO_RECORD * sizes.max(initial=0.0)).any():
        raise ModelError(
            "the naive estimate of shared parameters needs the sums of the cells that share them, and "
            f"{pooled.undetermined.sum()} cells are not determined by the answers; use NoiseAwareMAP, which takes "
            "any, or measure the tables of all cliques, or their sums (queries.pooled)."
        )
