r"""Forecast of the accuracy of a model's tables from noisy answers, by generalized least squares, before any data.

Consistent tables are :math:`n = Jβ` (`Effects.margins`): zero-sum effects, and the even tables times the number of
records where that is not public. Noise of precision :math:`t_q` on each answer to query q tells β with information
:math:`M(t) = \sum_q t_q M_q`, :math:`M_q = J'A_q'A_qJ`, so that fitted tables and fitted answers have variances

.. math:: f(t) = \operatorname{tr}\bigl(G\, M(t)^+\bigr), \quad G = J'J, \qquad
          \operatorname{tr}\bigl(M_q M(t)^+\bigr), \qquad -∂f/∂t_q = \operatorname{tr}\bigl(G\, M^+ M_q M^+\bigr).

Directions that no query tells are left out; which these are does not depend on the noise. Whole tables, tables with
states all merged, and parities of two states tell each effect by itself: there all :math:`M_q` are diagonal, with
one number for each set of variables S, so that no matrix is made. A table on T has :math:`\prod_{v∈T∖S} 1/K_v` there
for S inside T and 0 otherwise, the parity of S has :math:`2^{|S|}`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.effects import Effects, subsets_inside
from bayesprivmrf.model.tables import FloatArray, subsets
from bayesprivmrf.queries.query import Query, Sparse, Subset

# Largest number of free parameters for which matrices are made for queries that do not determine each effect alone.
LARGEST_EFFECTS = 500

# Subsets of all cliques together up to which they are listed.
LARGEST_SUBSETS = 2**18

# Numbers in the matrices of all queries together.
_LARGEST_MATRICES = 2**24

# Relative eigenvalue below which no query is taken to determine a direction; above the rounding of the
# matrices.
_RANK = 1e-10


class Forecast(ABC):
    """Expected variances of tables that are fitted to noisy answers; abstract."""

    @abstractmethod
    def variance(self, precisions: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return the forecast for noise of these precisions, one a query, positive.

        Returns
        -------
        total
            Variance of all cells of the model's tables together, records squared; infinite where the precisions lie
            too far apart to tell.
        slopes
            Its derivatives: how much a precision lowers it, shape (queries,).
        answers
            Variance of all fitted answers to each query together, shape (queries,).
        """


def forecast(model: ModelSpecification, queries: Sequence[Query], *, knows_total: bool) -> Forecast | None:
    """Return the forecast of queries on a model; None where it would be too large.

    Cells declared impossible are known to be empty, except where only the effects one by one are not too many.
    """
    if sum(2.0 ** sum(model.cardinalities[v] > 1 for v in scope) for scope in model.scopes) > LARGEST_SUBSETS:
        return None
    sets = subsets_inside(model.cardinalities, model.scopes)
    kept = sets[1:] if knows_total else sets
    told = [query._effect_information(model) for query in queries]
    size = sum(math.prod(model.cardinalities[v] - 1 for v in one) for one in kept)
    is_small = size <= LARGEST_EFFECTS and len(queries) * size**2 <= _LARGEST_MATRICES
    if is_small and (model.possible is not None or None in told):
        return by_matrices(model, queries, knows_total)
    if None in told:
        return None
    return _by_effects(model, kept, [one for one in told if one is not None])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ByEffects(Forecast):
    """Information by set of variables: shape (queries, sets), of each coordinate; its number and spread."""

    information: Sparse
    counts: FloatArray
    spreads: FloatArray

    def variance(self, precisions: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return the summed variance, its derivatives and the variance of each effect."""
        # each effect's variance is its number of coordinates over its information
        each = self.counts / (self.information.T @ precisions)
        slopes = self.information @ (self.spreads * each**2 / self.counts)
        return float(self.spreads @ each), slopes, self.information @ each


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ByMatrices(Forecast):
    """Matrix G, and each query's information, shape (queries, r, r), in a basis of what the queries determine."""

    spread: FloatArray
    information: FloatArray

    def variance(self, precisions: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        from scipy.linalg import cho_factor, cho_solve

        size = len(self.spread)
        if not size:
            return 0.0, np.zeros(len(precisions)), np.zeros(len(precisions))
        try:
            factor = cho_factor(np.tensordot(precisions, self.information, 1))
        except np.linalg.LinAlgError:  # precisions so far apart that the least one is rounded away
            return math.inf, np.zeros(len(precisions)), np.full(len(precisions), math.inf)
        inverse = cho_solve(factor, np.eye(size))
        # -df/dt_q = tr(G M^-1 M_q M^-1)
        weighed = inverse @ self.spread @ inverse
        flat = self.information.reshape(len(precisions), -1)
        return float((inverse * self.spread).sum()), flat @ weighed.ravel(), flat @ inverse.ravel()


def _by_effects(
    model: ModelSpecification, sets: Sequence[Subset], told: Sequence[dict[Subset, float]]
) -> Forecast:
    from scipy.sparse import csr_array

    at = {one: number for number, one in enumerate(sets)}
    # the diagonal of each query's information, by set of variables
    entries = [
        (query, at[one], amount)
        for query, by in enumerate(told)
        for one, amount in by.items()
        if one in at and amount > 0
    ]
    rows, columns, amounts = np.array(entries, dtype=float).reshape(-1, 3).T
    information: Sparse = csr_array(
        (amounts, (rows.astype(int), columns.astype(int))), (len(told), len(sets))
    )
    is_told = np.asarray(information.sum(axis=0)).ravel() > 0
    # G's diagonal: what a coordinate of each effect adds to the variance of all cells
    cards, spreads = model.cardinalities, np.zeros(len(sets))
    for scope in model.scopes:
        free = sorted(v for v in scope if cards[v] > 1)
        for one in subsets(free):
            if one in at:
                spreads[at[one]] += 1 / math.prod(cards[v] for v in free if v not in one)
    counts = np.array([math.prod(cards[v] - 1 for v in one) for one in sets], dtype=float)
    return ByEffects(information=information[:, is_told], counts=counts[is_told], spreads=spreads[is_told])


def by_matrices(model: ModelSpecification, queries: Sequence[Query], knows_total: bool) -> Forecast:
    """Return a forecast from the information matrices of the queries, for any queries."""
    effects = Effects.of(model.cardinalities, model.scopes)
    basis = effects.margins(np.eye(effects.size))
    if not knows_total:
        sizes = np.diff(model.offsets)
        basis = np.vstack([np.repeat(1 / sizes, sizes), basis])
    if model.possible is not None:
        basis = _null_space(basis[:, ~model.possible].T).T @ basis
    # M_q = J'A_q'A_qJ in the coordinates of consistent tables
    matrices = [query.bind(model).in_cliques.astype(float) for query in queries]
    grams: list[Any] = [matrix.T @ matrix for matrix in matrices]
    information = np.array([basis @ (gram @ basis.T) for gram in grams])
    # directions that no query determines have eigenvalue 0 whatever the precisions; traces make queries comparable
    largest = np.array([max(float(np.trace(one)), 1e-300) for one in information])
    values, vectors = np.linalg.eigh(np.tensordot(1 / largest, information, 1))
    told = vectors[:, values > _RANK * max(values.max(initial=0.0), 1e-300)]
    spread = told.T @ (basis @ basis.T) @ told
    return _ByMatrices(spread=spread, information=told.T @ information @ told)


def _null_space(rows: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the vectors that all rows turn into zero, shape (columns, basis)."""
    values, vectors = np.linalg.eigh(rows.T @ rows)
    return vectors[:, values <= _RANK * max(values.max(initial=0.0), 1e-300)]
