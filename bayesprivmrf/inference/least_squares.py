r"""Tables of the cliques from all measurements, by generalized least squares.

Generalized least squares finds tables that agree on every shared margin and fit noisy answers to queries best.

Consistent tables of N records are :math:`n = n_0 + Jβ`: the uniform ones, plus zero-sum effects of each set of
variables inside a clique, spread evenly over what each table holds besides (`Effects.margins`). So

.. math:: \hatβ = \arg\min_β \lVert V^{-1/2} (y - A n_0 - A J β) \rVert^2, \qquad
          \operatorname{cov}(\hat n) = J (J'A'V^{-1}AJ)^+ J',

V being the noise's variances. Effects that no answer determines stay zero: their cells keep the uniform share.
Answers without noise, and cells that cannot occur, are linear constraints :math:`E J β = e - E n_0`: with a solution
:math:`β_0` of least norm and a basis Q of the null space of EJ, :math:`β = β_0 + Q γ`, and γ is found as β is above.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from bayesprivmrf.inference.agreement import effects_operator
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.model.cliques import consistent_projection
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

# Effects up to which the normal equations are formed: a few seconds for their eigenvectors
LARGEST_EQUATIONS = 1500
# Singular value of the constraints, as a share of the largest, below which they say nothing new
HELD = 1e-9
# Information in a direction, as a share of the largest, below which the answers do not determine it
_TOLD = 1e-11
# Share of a cell's effects in undetermined directions from which the cell is undetermined
_OPEN = 1e-9
# Standard deviation, as a share of the largest, below which an answer counts as exact
EXACT = 1e-7
# Tolerances of the least-norm solutions of constraints, and of least squares, where equations are not formed
_TIGHT, _USUAL = 1e-12, 1e-10
# Draws of the noise from which variances are estimated where equations are not formed: their standard error is 26 %
_PROBES = 30
# Share of an effect that least squares do not recover, from which a cell is undetermined
_MISSED = 1e-4
# Smallest variance of the noise of a pooled number, records squared: a smaller one dominates all others alike
_LEAST_VARIANCE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PooledTables:
    r"""Tables of the model's cliques that all measurements give together, and their variances.

    Parameters
    ----------
    counts, variances
        Counts of the model's cells, records, and their variances by the noise alone, records squared; shape (size,).
    undetermined
        Cells that the answers do not determine, shape (size,).
    unseen
        Changes of the cells that change no answer, which span all such, shape (directions, size); ``None`` where the
        equations are not formed.
    """

    counts: FloatArray
    variances: FloatArray
    undetermined: np.ndarray
    unseen: FloatArray | None = None

    def ridges(self, evidence: Evidence) -> FloatArray:
        r"""Return the ridge of each clique by the error of its noisy marginals, shape (cliques,).

        It is :math:`λ_C = K_C σ_C^2/N^2 + 1/N`. Near a maximum the naive likelihood is
        :math:`-\tfrac12 \sum_i (\barμ_i - μ_i)^2 / F_i`, F being their variance :math:`μ_i(1-μ_i) ≈ 1/K_C` for a
        table of :math:`K_C` cells. The error of a noisy marginal really has variance
        :math:`v = σ_C^2/N^2 + F/N` (:math:`σ_C^2` of the pooled noise, the mean over the table's cells), so the
        honest log-likelihood is F/v times the naive one, and a normal prior of variance τ² on each potential,
        :math:`-θ^2/(2τ^2)`, weighs as a ridge of :math:`\frac{v}{2 τ^2 F}` on the naive scale. With τ² = 1/2 that is
        the formula above. τ was chosen on 32 simulated releases, where the estimate came within 15 % of the best λ
        in hindsight (docs/explanation/estimators.md).
        """
        sums = np.array(
            [self.variances[a:b].sum() for a, b in pairwise(evidence.specification.offsets)]
        )
        return sums / evidence.total**2 + 1 / evidence.total


def least_squares(evidence: Evidence) -> PooledTables:
    """Return the consistent tables of the model's cliques that fit the evidence best, with N records."""
    model = evidence.specification
    effects = Effects.of(model.cardinalities, model.scopes)
    even = consistent_projection(
        model.cardinalities, model.scopes, np.zeros(model.size), total=evidence.total
    )
    rows, answers, deviations = noisy_rows(evidence)
    # beside noise that is nearly none, normal equations lose what the other numbers tell
    deviations = np.where(deviations > EXACT * deviations.max(initial=0.0), deviations, 0.0)
    if effects.size <= LARGEST_EQUATIONS:
        solve = by_equations
    else:
        solve = by_products
    found = solve(effects, rows, answers - rows @ even, deviations)
    return replace(found, counts=even + found.counts)


def pool(evidence: Evidence) -> PooledTables:
    """Average tables of the cliques by the precision of their noise, and fit others by generalized least squares."""
    model = evidence.specification
    cliques = set(map(frozenset, model.scopes))
    if evidence.queries is None and cliques.issuperset(map(frozenset, evidence.scopes)):
        precisions = 1 / np.maximum(evidence.noise_variance, _LEAST_VARIANCE)
        pooled = evidence.scattered(precisions)
        counts = evidence.scattered(precisions * evidence.noisy_counts) / pooled
        open_cells = np.zeros(model.size, bool)
        return PooledTables(counts=counts, variances=1 / pooled, undetermined=open_cells)
    return least_squares(evidence)


def noisy_rows(evidence: Evidence) -> tuple[Any, FloatArray, FloatArray]:
    """Return A, y and standard deviations, 0 without noise, of all answers that say something; and of empty cells."""
    from scipy.sparse import eye_array, vstack

    identity: Any = eye_array(evidence.specification.size, format="csr")
    zeros = identity[[] if evidence.supported is None else np.flatnonzero(~evidence.supported)]
    rows: Any = vstack([evidence.rows[evidence.possible], zeros], format="csr")
    empty = np.zeros(zeros.shape[0])
    variances = np.append(evidence.noise_variance[evidence.possible], empty)
    answers = np.append(evidence.noisy_counts[evidence.possible], empty)
    return rows, answers, np.sqrt(variances)


def by_equations(
    effects: Effects, rows: Any, wanted: FloatArray, deviations: FloatArray
) -> PooledTables:
    """Solve least squares by eigenvectors of the normal equations, in the null space of the constraints."""
    basis = effects.margins(np.eye(effects.size))
    first, free, design, left = unconstrained(rows, basis, wanted, deviations, deviations == 0)
    values, vectors = np.linalg.eigh(design.T @ design)
    is_told = values > _TOLD * values.max(initial=0.0)
    root = vectors[:, is_told] / np.sqrt(values[is_told])
    inverse_root = free @ root
    beta = first + inverse_root @ (root.T @ (design.T @ left))
    unseen = (free @ vectors[:, ~is_told]).T @ basis
    return PooledTables(
        counts=beta @ basis,
        variances=np.square(inverse_root.T @ basis).sum(axis=0),
        undetermined=np.square(unseen).sum(axis=0) > _OPEN * np.square(basis).sum(axis=0),
        unseen=unseen,
    )


def unconstrained(
    rows: Any, tables: FloatArray, wanted: FloatArray, deviations: FloatArray, is_exact: np.ndarray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Solve the constraints, and return least squares in what they leave free.

    Returns
    -------
    first, free, design, left
        The least-norm solution of the answers without noise, and a basis of the null space, shape (d, free); the
        design matrix of the other answers in that space, and what the solution leaves of them, in their deviations.
    """
    size = len(tables)
    if not is_exact.any():
        whole = (rows @ tables.T) / deviations[:, np.newaxis]
        return np.zeros(size), np.eye(size), whole, wanted / deviations
    held = rows[is_exact] @ tables.T
    told = wanted[is_exact]
    if len(held) > size:  # a smaller system of the same solutions
        turn, held = np.linalg.qr(held)
        told = turn.T @ told
    left, values, right = np.linalg.svd(held)
    rank = int((values > HELD * values.max(initial=1.0)).sum())
    first = right[:rank].T @ ((left.T @ told)[:rank] / values[:rank])
    free = right[rank:].T
    noise = deviations[~is_exact]
    whole = (rows[~is_exact] @ tables.T) / noise[:, np.newaxis]
    return first, free, whole @ free, wanted[~is_exact] / noise - whole @ first


def by_products(
    effects: Effects, rows: Any, wanted: FloatArray, deviations: FloatArray
) -> PooledTables:
    """Solve least squares by products with the design matrix; variances are estimated from seeded draws.

    The null space is reached by taking off what the constraints' rows span.
    """
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import LinearOperator, lsqr

    is_exact = deviations == 0
    noise = deviations[~is_exact]
    held = effects_operator(effects, rows[is_exact])

    def met(answers: FloatArray) -> FloatArray:
        """Return the effects of least norm that give some answers."""
        if is_exact.any():
            return lsqr(held, answers, atol=_TIGHT, btol=_TIGHT)[0]
        return np.zeros(effects.size)

    def freed(beta: FloatArray) -> FloatArray:
        """Return the part of some effects that changes no answer without noise."""
        if is_exact.any():
            return beta - met(held @ beta)
        return beta

    first = met(wanted[is_exact])
    scaled: Any = diags_array(1 / noise) @ rows[~is_exact]
    free: Any = LinearOperator((effects.size,) * 2, matvec=freed, rmatvec=freed, dtype=float)  # pyright: ignore[reportCallIssue]
    design = effects_operator(effects, scaled.tocsr()) @ free
    wanted = wanted[~is_exact] / noise - rows[~is_exact] @ effects.margins(first) / noise

    def solved(answers: FloatArray) -> FloatArray:
        return effects.margins(freed(lsqr(design, answers, atol=_USUAL, btol=_USUAL)[0]))

    rng = np.random.default_rng(0)
    probes = [np.square(solved(rng.standard_normal(len(wanted)))) for _ in range(_PROBES)]
    beta = freed(rng.standard_normal(effects.size))
    missed = np.abs(solved(design @ beta) - effects.margins(beta))
    return PooledTables(
        counts=effects.margins(first) + solved(wanted),
        variances=np.mean(probes, axis=0),
        undetermined=missed > _MISSED * np.abs(effects.margins(beta)).max(initial=0.0),
    )
