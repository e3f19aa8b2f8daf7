r"""Forecast of the accuracy of tables that are fitted to noisy answers by generalized least squares.

The forecast needs no data. Consistent tables are :math:`n = Jβ` (`Effects.margins`): zero-sum effects and, if the
number of records is not public, that number spread evenly over each table. If each answer to query q has noise of
precision :math:`t_q`, the information about β is :math:`M(t) = \sum_q t_q M_q` with :math:`M_q = J'A_q'A_qJ`. The
fitted tables and the fitted answers have the total variances

.. math:: f(t) = \operatorname{tr}\bigl(G\, M(t)^+\bigr), \quad G = J'J, \qquad
          \operatorname{tr}\bigl(M_q M(t)^+\bigr), \qquad -∂f/∂t_q = \operatorname{tr}\bigl(G\, M^+ M_q M^+\bigr).

Directions of β that no query determines are left out. They do not depend on the noise. Some queries give information
about each effect separately: whole tables, tables with all states of a variable merged, and parities of variables
with two states. Then all :math:`M_q` are diagonal, with one number for each set of variables S, and no matrix is
made. This number is :math:`\prod_{v∈T∖S} 1/K_v` for a table on T that includes S, 0 for any other table, and
:math:`2^{|S|}` for the parity of S.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.effects import Effects, subsets_inside
from bayesprivmrf.model.tables import FloatArray, subsets
from bayesprivmrf.queries.query import Query, Sparse, Subset

# Largest number of free parameters for which information matrices are made
LARGEST_EFFECTS = 500

# Largest number of subsets of all cliques together that are listed
LARGEST_SUBSETS = 2**18

# Relative eigenvalue below which no query determines a direction; larger than the rounding of the matrices
_RANK = 1e-10


def forecast(
    model: ModelSpecification, queries: Sequence[Query], *, knows_total: bool
) -> Forecast | None:
    """Return the forecast of queries on a model; None if it would be too large.

    The forecast uses that impossible cells are empty, unless the information matrices would be too large.
    """
    if (
        sum(2.0 ** sum(model.cardinalities[v] > 1 for v in scope) for scope in model.scopes)
        > LARGEST_SUBSETS
    ):
        return None
    sets = subsets_inside(model.cardinalities, model.scopes)
    kept = sets[1:] if knows_total else sets
    diagonals = [query._effect_information(query._asked_of(model)) for query in queries]
    size = sum(math.prod(model.cardinalities[v] - 1 for v in one) for one in kept)
    # the matrices of all queries together hold at most 2^24 numbers, 128 MiB
    is_small = size <= LARGEST_EFFECTS and len(queries) * size**2 <= 2**24
    if is_small and (model.possible is not None or None in diagonals):
        return by_matrices(model, queries, knows_total)
    if None in diagonals:
        return None
    return _by_effects(model, kept, [one for one in diagonals if one is not None])


# Both have one method, the variances of tables that are fitted to noisy answers
type Forecast = ByEffects | _ByMatrices


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ByEffects:
    """Forecast from diagonal information.

    Parameters
    ----------
    information
        Information of each query about one coordinate of each set's effect, shape (queries, sets).
    counts
        Number of coordinates of each set's effect, shape (sets,).
    spreads
        Sum of the variances of all cells for one coordinate of unit variance, shape (sets,).
    """

    information: Sparse
    counts: FloatArray
    spreads: FloatArray

    def variance(self, precisions: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return the forecast for given precisions of the noise, one positive number for each query.

        Returns
        -------
        total
            Sum of the variances of all cells of the model's tables, records squared; infinite if the precisions
            differ too much for the computation.
        slopes
            Minus the derivative of `total` by each precision, shape (queries,).
        answers
            Sum of the variances of all fitted answers to each query, shape (queries,).
        """
        # each effect's variance is its number of coordinates over its information
        each = self.counts / (self.information.T @ precisions)
        slopes = self.information @ (self.spreads * each**2 / self.counts)
        return float(self.spreads @ each), slopes, self.information @ each


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ByMatrices:
    """Forecast from the matrix G and the information of each query, shape (queries, r, r).

    Both are in a basis of the r directions that the queries determine.
    """

    spread: FloatArray
    information: FloatArray

    def variance(self, precisions: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return the forecast; see `ByEffects.variance`."""
        from scipy.linalg import cho_factor, cho_solve

        size = len(self.spread)
        if not size:
            return 0.0, np.zeros(len(precisions)), np.zeros(len(precisions))
        try:
            factor = cho_factor(np.tensordot(precisions, self.information, 1))
        # the smallest precision vanishes by rounding beside the largest
        except np.linalg.LinAlgError:
            return math.inf, np.zeros(len(precisions)), np.full(len(precisions), math.inf)
        inverse = cho_solve(factor, np.eye(size))
        # -df/dt_q = tr(G M^-1 M_q M^-1)
        weighed = inverse @ self.spread @ inverse
        flat = self.information.reshape(len(precisions), -1)
        return float((inverse * self.spread).sum()), flat @ weighed.ravel(), flat @ inverse.ravel()


def _by_effects(
    model: ModelSpecification, sets: Sequence[Subset], diagonals: Sequence[dict[Subset, float]]
) -> Forecast:
    """Return a forecast from the diagonal information of each query, by set of variables."""
    from scipy.sparse import csr_array

    at = {one: number for number, one in enumerate(sets)}
    # the diagonal of each query's information, by set of variables
    entries = [
        (query, at[one], amount)
        for query, diagonal in enumerate(diagonals)
        for one, amount in diagonal.items()
        if one in at and amount > 0
    ]
    rows, columns, amounts = np.array(entries, dtype=float).reshape(-1, 3).T
    information: Sparse = csr_array(
        (amounts, (rows.astype(int), columns.astype(int))), (len(diagonals), len(sets))
    )
    is_determined = np.asarray(information.sum(axis=0)).ravel() > 0
    # G's diagonal: what a coordinate of each effect adds to the variance of all cells
    cards = model.cardinalities
    spreads = np.zeros(len(sets))
    for scope in model.scopes:
        free = sorted(v for v in scope if cards[v] > 1)
        for one in subsets(free):
            if one in at:
                spreads[at[one]] += 1 / math.prod(cards[v] for v in free if v not in one)
    counts = np.array([math.prod(cards[v] - 1 for v in one) for one in sets], dtype=float)
    return ByEffects(
        information=information[:, is_determined],
        counts=counts[is_determined],
        spreads=spreads[is_determined],
    )


def by_matrices(model: ModelSpecification, queries: Sequence[Query], knows_total: bool) -> Forecast:
    """Return a forecast from the information matrices of any queries."""
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
    # A direction that no query determines has eigenvalue 0 for all precisions. Traces make queries comparable.
    largest = np.array([max(float(np.trace(one)), 1e-300) for one in information])
    values, vectors = np.linalg.eigh(np.tensordot(1 / largest, information, 1))
    determined = vectors[:, values > _RANK * max(values.max(initial=0.0), 1e-300)]
    spread = determined.T @ (basis @ basis.T) @ determined
    return _ByMatrices(spread=spread, information=determined.T @ information @ determined)


def _null_space(rows: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the null space of a matrix, shape (columns, basis)."""
    values, vectors = np.linalg.eigh(rows.T @ rows)
    return vectors[:, values <= _RANK * max(values.max(initial=0.0), 1e-300)]
