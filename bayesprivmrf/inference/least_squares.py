r"""Generalized least squares: tables that agree on every shared margin and fit noisy answers to queries best.

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
from typing import Any

import numpy as np

from bayesprivmrf.inference.criticism.agreement import clean
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.model.cliques import consistent_projection
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

# Effects up to which the normal equations are formed
DENSE_LIMIT = 1500


# Singular value of the constraints, as a share of the largest, below which they say nothing new
_HELD = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeastSquares:
    """Least-squares tables and their variances.

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


def least_squares(evidence: Evidence) -> LeastSquares:
    """Return the consistent tables of the model's cliques that fit the evidence best, with N records."""
    model = evidence.specification
    effects = Effects.of(model.cardinalities, model.scopes)
    even = consistent_projection(
        model.cardinalities, model.scopes, np.zeros(model.size), total=evidence.total
    )
    rows, answers, deviations = noisy_rows(evidence)
    solve = by_equations if effects.size <= DENSE_LIMIT else by_products
    found = solve(effects, rows, answers - rows @ even, deviations)
    return replace(found, counts=even + found.counts)


def noisy_rows(evidence: Evidence) -> tuple[Any, FloatArray, FloatArray]:
    """Return A, y and standard deviations, 0 without noise, of all answers that say something; and of empty cells."""
    from scipy.sparse import eye_array, vstack

    identity: Any = eye_array(evidence.specification.size, format="csr")
    matrix = identity if evidence.matrix is None else evidence.matrix
    zeros = identity[[] if evidence.supported is None else np.flatnonzero(~evidence.supported)]
    rows: Any = vstack([matrix[evidence.possible], zeros], format="csr")
    empty = np.zeros(zeros.shape[0])
    variances = np.append(evidence.spread([law.variance for law in evidence.noise])[evidence.possible], empty)
    answers = np.append(evidence.noisy_counts[evidence.possible], empty)
    return rows, answers, np.sqrt(variances)


def by_equations(effects: Effects, rows: Any, wanted: FloatArray, deviations: FloatArray) -> LeastSquares:
    """Solve least squares by eigenvectors of the normal equations, in the null space of the constraints."""
    basis, is_exact = effects.margins(np.eye(effects.size)), deviations == 0
    held = rows[is_exact] @ basis.T
    first, free = _solutions(held, wanted[is_exact])
    noise = deviations[~is_exact]
    whole = (rows[~is_exact] @ basis.T) / noise[:, np.newaxis]
    left = wanted[~is_exact] / noise - whole @ first
    design = whole @ free
    values, vectors = np.linalg.eigh(design.T @ design)
    # with less information, relative to the largest, a direction counts as undetermined
    is_told = values > 1e-11 * values.max(initial=0.0)
    inverse_root = free @ (vectors[:, is_told] / np.sqrt(values[is_told]))
    beta = first + inverse_root @ (inverse_root.T @ (whole.T @ left))
    unseen = (free @ vectors[:, ~is_told]).T @ basis
    return LeastSquares(
        counts=beta @ basis,
        variances=np.square(inverse_root.T @ basis).sum(axis=0),
        undetermined=np.square(unseen).sum(axis=0) > 1e-9 * np.square(basis).sum(axis=0),
        unseen=unseen,
    )


def noise_residuals(evidence: Evidence, limit: int) -> tuple[FloatArray, FloatArray, np.ndarray] | None:
    r"""Return the residuals of the noisy answers as a linear map of their noise, in standard deviations of the noise.

    With U an orthonormal basis of what consistent tables can answer, among those that give the answers without noise,
    and of the change with N where that is private: :math:`r = (1 - U U') D^{-1/2} (y - A n_1)`, which is
    :math:`(1 - U U') D^{-1/2} η` whatever the true tables are.

    Returns
    -------
    residuals, weights, seen
        Shape (answers,); 1 - UU'; and the answers' places in the evidence. None of more than `limit` answers or
        effects.
    """
    model = evidence.specification
    effects = Effects.of(model.cardinalities, model.scopes)
    if max(int(evidence.possible.sum()), effects.size) > limit:
        return None
    even = consistent_projection(model.cardinalities, model.scopes, np.zeros(model.size), total=1.0)
    rows, answers, deviations = noisy_rows(evidence)
    tables = effects.margins(np.eye(effects.size))
    if evidence.total_standard_error > 0:
        tables = np.vstack([tables, even])
    # an answer with a smaller share of the largest deviation counts as exact
    is_noisy = deviations > 1e-7 * deviations.max(initial=0.0)
    noise = deviations[is_noisy]
    wanted = answers - evidence.total * (rows @ even)
    first, free = _solutions(rows[~is_noisy] @ tables.T, wanted[~is_noisy])
    design = (rows[is_noisy] @ tables.T) / noise[:, np.newaxis]
    left, values, _ = np.linalg.svd(design @ free, full_matrices=False)
    basis = left[:, values > _HELD * values.max(initial=0.0)]
    weights = np.eye(len(noise)) - basis @ basis.T
    residuals = weights @ (wanted[is_noisy] / noise - design @ first)
    return residuals, weights, np.flatnonzero(evidence.possible)[is_noisy[: int(evidence.possible.sum())]]


def _solutions(held: FloatArray, wanted: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the least-norm solution of linear equations, and a basis of the null space, shape (d, free)."""
    size = held.shape[1]
    if len(held) > size:  # a smaller system of the same solutions
        turn, held = np.linalg.qr(held)
        wanted = turn.T @ wanted
    left, values, right = np.linalg.svd(held)
    rank = int((values > _HELD * values.max(initial=1.0)).sum())
    first = right[:rank].T @ ((left.T @ wanted)[:rank] / values[:rank])
    return first, right[rank:].T


def by_products(effects: Effects, rows: Any, wanted: FloatArray, deviations: FloatArray) -> LeastSquares:
    """Solve least squares by products with the design matrix; variances are estimated from seeded draws.

    The null space is reached by taking off what the constraints' rows span.
    """
    from scipy.sparse.linalg import LinearOperator, lsqr

    operator: Any = LinearOperator
    is_exact = deviations == 0
    noise = deviations[~is_exact]

    def map_of(some: Any, over: FloatArray | float, project: Any) -> Any:
        transposed = some.T.tocsr()
        return operator(
            (some.shape[0], effects.size),
            matvec=lambda beta: some @ effects.margins(project(np.ravel(beta))) / over,
            rmatvec=lambda answers: project(
                clean(effects.coordinates(transposed @ (np.ravel(answers) / over)))
            ),
            dtype=float,
        )

    held = map_of(rows[is_exact], 1.0, lambda beta: beta)

    def met(answers: FloatArray) -> FloatArray:
        """Return the effects of least norm that give some answers."""
        return lsqr(held, answers, atol=1e-12, btol=1e-12)[0] if is_exact.any() else np.zeros(effects.size)

    def freed(beta: FloatArray) -> FloatArray:
        """Return the part of some effects that changes no answer without noise."""
        return beta - met(held @ beta) if is_exact.any() else beta

    first = met(wanted[is_exact])
    design = map_of(rows[~is_exact], noise, freed)
    wanted = wanted[~is_exact] / noise - rows[~is_exact] @ effects.margins(first) / noise

    def solved(answers: FloatArray) -> FloatArray:
        return effects.margins(freed(lsqr(design, answers, atol=1e-10, btol=1e-10)[0]))

    rng = np.random.default_rng(0)
    # where the equations are not formed, variances are estimated from 30 draws of the noise
    probes = [np.square(solved(rng.standard_normal(len(wanted)))) for _ in range(30)]
    beta = freed(rng.standard_normal(effects.size))
    missed = np.abs(solved(design @ beta) - effects.margins(beta))
    return LeastSquares(
        counts=effects.margins(first) + solved(wanted),
        variances=np.mean(probes, axis=0),
        undetermined=missed > 1e-4 * np.abs(effects.margins(beta)).max(initial=0.0),
    )
