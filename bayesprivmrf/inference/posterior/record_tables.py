"""Clique tables of N independent records of a log-linear model, drawn without drawing the records."""

from __future__ import annotations

import numpy as np

from bayesprivmrf.marginals import array_engine
from bayesprivmrf.marginals.layout import Layout
from bayesprivmrf.model.tables import FloatArray, IntArray, project


def draw_tables(
    cardinalities: tuple[int, ...],
    scopes: tuple[tuple[int, ...], ...],
    potentials: FloatArray,
    total: int,
    rng: np.random.Generator,
) -> IntArray:
    """Exact clique tables of N records: each bucket's rows are multinomial given its separator's counts.

    The time does not depend on N, but on the tables of the elimination.

    Parameters
    ----------
    cardinalities, scopes
        The model, as for `marginal_engine`.
    potentials
        Shape (cells,), nats.
    total
        N ≥ 0.
    rng
        Source of randomness.

    Returns
    -------
    ndarray
        Counts, shape (cells,), one table after the other in C order.
    """
    engine = array_engine(Layout.build(cardinalities, scopes))
    conditionals = engine.collect(potentials).conditionals
    drawn: list[tuple[tuple[int, ...], IntArray]] = [((), np.array(total, dtype=np.int64))]
    for bucket, conditional in zip(reversed(engine.tree.buckets), reversed(conditionals), strict=True):
        margin = _margin(drawn, bucket.separator)
        drawn.append((bucket.scope, rng.multinomial(margin, conditional)))
    tables = [np.zeros(0, dtype=np.int64)]
    for scope in scopes:
        free = tuple(v for v in scope if cardinalities[v] > 1)
        tables.append(_margin(drawn, free).ravel())
    return np.concatenate(tables)


def _margin(drawn: list[tuple[tuple[int, ...], IntArray]], scope: tuple[int, ...]) -> IntArray:
    """Counts over a scope, from the first table that holds it; axes in the scope's order."""
    own, table = next((own, table) for own, table in drawn if set(own) >= set(scope))
    return project(table, own, scope)
