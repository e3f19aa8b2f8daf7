r"""Tables that agree on every shared margin and fit noisy answers to queries best: generalised least squares.

Consistent tables of N records are :math:`n = n_0 + Jβ`: the uniform ones, plus zero-sum effects of each set of
variables inside a clique, spread evenly over what each table holds besides (`Effects.margins`). So

.. math:: \hatβ = \arg\min_β \lVert V^{-1/2} (y - A n_0 - A J β) \rVert^2, \qquad
          \operatorname{cov}(\hat n) = J (J'A'V^{-1}AJ)^+ J',

V being the noise's variances. Effects that no answer determines stay zero: their cells keep the uniform share.
Answers without noise are given a ten-thousandth of the largest standard deviation, and cells that cannot occur are
answers of zero of that kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.model.consistency import consistent_projection
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

__all__ = ["LeastSquares", "least_squares"]

DENSE_LIMIT = 1500
"""Effects up to which the normal equations are formed."""

_EXACT = 1e-8
"""Least variance of an answer, as a share of the largest."""

_RANK = 1e-11
"""Information about a direction, as a share of the largest, below which it counts as undetermined."""

_PROBES = 30
"""Draws of the noise by which variances are estimated where the equations are not formed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeastSquares:
    """The tables, and how far off they may be.

    Parameters
    ----------
    counts, variances
        Of the model's cells, shape (size,), records and records squared; the variance is the noise's alone.
    undetermined
        Cells that the answers do not determine, shape (size,).
    """

    counts: FloatArray
    variances: FloatArray
    undetermined: np.ndarray


def least_squares(evidence: Evidence) -> LeastSquares:
    """Consistent tables of the model's cliques that fit the evidence best, with N records."""
    model = evidence.specification
    effects = Effects.of(model.cardinalities, model.scopes)
    even = consistent_projection(
        model.cardinalities, model.scopes, np.zeros(model.size), total=evidence.total
    )
    rows, answers, deviations = _rows(evidence)
    wanted = (answers - rows @ even) / deviations
    solve = _by_equations if effects.size <= DENSE_LIMIT else _by_products
    found = solve(effects, rows, wanted, deviations)
    return LeastSquares(
        counts=even + found.counts, variances=found.variances, undetermined=found.undetermined
    )


def _rows(evidence: Evidence) -> tuple[Any, FloatArray, FloatArray]:
    """Return A, y and standard deviations of all answers that say something, impossible cells among them."""
    from scipy.sparse import eye_array, vstack

    identity: Any = eye_array(evidence.specification.size, format="csr")
    matrix = identity if evidence.matrix is None else evidence.matrix
    zeros = identity[[] if evidence.supported is None else np.flatnonzero(~evidence.supported)]
    rows: Any = vstack([matrix[evidence.possible], zeros], format="csr")
    empty = np.zeros(zeros.shape[0])
    variances = np.append(evidence.spread([law.variance for law in evidence.noise])[evidence.possible], empty)
    least = _EXACT * variances.max(initial=0.0) or 1.0
    answers = np.append(evidence.noisy_counts[evidence.possible], empty)
    return rows, answers, np.sqrt(np.maximum(variances, least))


def _by_equations(effects: Effects, rows: Any, wanted: FloatArray, deviations: FloatArray) -> LeastSquares:
    """Least squares by the eigenvectors of the normal equations."""
    basis = effects.margins(np.eye(effects.size))
    design = (rows @ basis.T) / deviations[:, np.newaxis]
    values, vectors = np.linalg.eigh(design.T @ design)
    is_told = values > _RANK * values.max(initial=0.0)
    inverse_root = vectors[:, is_told] / np.sqrt(values[is_told])
    beta = inverse_root @ (inverse_root.T @ (design.T @ wanted))
    unseen = np.square(vectors[:, ~is_told].T @ basis).sum(axis=0)
    return LeastSquares(
        counts=beta @ basis,
        variances=np.square(inverse_root.T @ basis).sum(axis=0),
        undetermined=unseen > 1e-9 * np.square(basis).sum(axis=0),
    )


def _by_products(effects: Effects, rows: Any, wanted: FloatArray, deviations: FloatArray) -> LeastSquares:
    """Least squares by products with the design; variances and what is undetermined by seeded draws."""
    from scipy.sparse.linalg import LinearOperator, lsqr

    transposed = rows.T.tocsr()
    operator: Any = LinearOperator
    design = operator(
        (len(wanted), effects.size),
        matvec=lambda beta: rows @ effects.margins(np.ravel(beta)) / deviations,
        rmatvec=lambda answers: effects.coordinates(transposed @ (np.ravel(answers) / deviations)),
        dtype=float,
    )

    def solved(answers: FloatArray) -> FloatArray:
        return effects.margins(lsqr(design, answers, atol=1e-10, btol=1e-10)[0])

    rng = np.random.default_rng(0)
    probes = [np.square(solved(rng.standard_normal(len(wanted)))) for _ in range(_PROBES)]
    beta = rng.standard_normal(effects.size)
    missed = np.abs(solved(design @ beta) - effects.margins(beta))
    return LeastSquares(
        counts=solved(wanted),
        variances=np.mean(probes, axis=0),
        undetermined=missed > 1e-4 * np.abs(effects.margins(beta)).max(initial=0.0),
    )
