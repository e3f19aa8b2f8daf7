"""Draws along a junction forest: rows of probabilities, integer tables, marginals and zero-sum effects.

Arrays are over the forest's cells, in the order of ``forest.cells``, times draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from bayesprivmrf.inference.posterior.forest import JunctionForest
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, IntArray


def draw_log_rows(forest: JunctionForest, shapes: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Logarithms of Dirichlet rows with the given parameters, shape (cells, draws).

    A Gamma(a) variable is Gamma(a + 1) times U^(1/a), of which the logarithm is finite at any a > 0.

    Raises
    ------
    FloatingPointError
        A parameter is not positive: there is no such law, and going on would favour the emptiest state.
    """
    if not (shapes > 0).all():
        raise FloatingPointError(
            "a row's Dirichlet parameters must be positive; the relaxed counts are wrong."
        )
    logs = np.log(rng.standard_gamma(shapes + 1.0)) - rng.standard_exponential(shapes.shape) / shapes
    for start, stop in pairwise(forest.row_starts):
        row = logs[start:stop]
        row -= row.max(axis=0)
        row -= np.log(np.exp(row).sum(axis=0))
    return logs


def draw_tables(
    forest: JunctionForest, log_rows: FloatArray, total: IntArray, rng: np.random.Generator
) -> IntArray:
    """Tables of `total` records drawn from each column's distribution, shape (cells, draws)."""
    tables = np.zeros(log_rows.shape, dtype=np.int64)
    for start, stop, sources in _rows(forest):
        margin = tables[sources].sum(axis=0) if sources.size else total
        row = np.exp(log_rows[start:stop])
        tables[start:stop] = rng.multinomial(margin, (row / row.sum(axis=0)).T).T
    return tables


def marginals_of(forest: JunctionForest, log_rows: FloatArray) -> FloatArray:
    """Probabilities of the cliques' cells, products along the forest, shape (cells, draws)."""
    margins = np.exp(log_rows)
    for start, stop, sources in _rows(forest):
        if sources.size:
            margins[start:stop] *= margins[sources].sum(axis=0)
    return margins


def effects_of(forest: JunctionForest, log_rows: FloatArray) -> FloatArray:
    """Zero-sum coordinates (`Effects`) of each draw's distribution, shape (draws, d), nats.

    The sum of all rows' log-probabilities is log p(x), so they are potentials already. An effect on variables of
    a clique with structural zeros does not exist and is NaN.
    """
    effects = Effects.of(forest.cardinalities, forest.scopes)
    flat = np.zeros((log_rows.shape[1], forest.offsets[-1]))
    own = ~forest.is_inner
    flat[:, forest.cells[own]] = forest.along_steps(log_rows)[own].T
    result = effects.coordinates(flat)
    for scope in _limited_scopes(forest):
        for position, subset in enumerate(effects.subsets):
            if set(subset) <= scope:
                result[:, effects.offsets[position] : effects.offsets[position + 1]] = np.nan
    return result


def _rows(forest: JunctionForest) -> Iterator[tuple[int, int, IntArray]]:
    """First and last cell of each row, and the cells of its parent that sum to its total."""
    bounds = zip(pairwise(forest.row_starts), pairwise(forest.source_starts), strict=True)
    for (start, stop), (first, last) in bounds:
        yield int(start), int(stop), forest.sources[first:last]


def _limited_scopes(forest: JunctionForest) -> list[set[int]]:
    """Cliques with cells that cannot occur."""
    if forest.supported is None:
        return []
    return [
        set(scope)
        for scope, (start, stop) in zip(forest.scopes, pairwise(forest.offsets), strict=True)
        if not forest.supported[start:stop].all()
    ]
