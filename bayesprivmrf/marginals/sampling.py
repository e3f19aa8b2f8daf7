"""Exact draws from a model: independent records, balanced records, or tables of independent records.

Each sampler follows the elimination order backward. The variable eliminated last is drawn first, and each other
variable v is drawn from p(v | s), given the states s of its separator.
"""

from __future__ import annotations

import numpy as np

from bayesprivmrf.marginals.arrays import ArrayEngine, array_engine
from bayesprivmrf.marginals.layout import Layout
from bayesprivmrf.model.tables import FloatArray, IntArray, project


def draw(
    engine: ArrayEngine,
    potentials: FloatArray,
    size: int,
    rng: np.random.Generator,
    *,
    is_balanced: bool = False,
) -> IntArray:
    """Draw records from the model, independent or balanced; see `marginals.sample`.

    A state of probability zero is never drawn.

    Returns
    -------
    IntArray
        Shape (size, number of variables), states as numbers from 0.
    """
    tree = engine.tree
    cards = tree.layout.cardinalities
    states = np.zeros((size, len(cards)), dtype=np.int64)
    assign = _balanced if is_balanced else _independent
    for v in tree.free:
        if is_balanced:
            uniform = np.full((1, cards[v]), 1 / cards[v])
            states[:, v] = _balanced(uniform, np.zeros(size, dtype=np.int64), rng)
        else:
            states[:, v] = rng.integers(cards[v], size=size)
    conditionals = engine.collect(potentials).conditionals
    for bucket, conditional in zip(reversed(tree.buckets), reversed(conditionals), strict=True):
        row = np.zeros(size, dtype=np.int64)
        for v in bucket.separator:
            row = row * cards[v] + states[:, v]
        states[:, bucket.variable] = assign(conditional.reshape(-1, cards[bucket.variable]), row, rng)
    return states


def draw_tables(
    cardinalities: tuple[int, ...],
    scopes: tuple[tuple[int, ...], ...],
    potentials: FloatArray,
    total: int,
    rng: np.random.Generator,
) -> IntArray:
    """Draw the clique tables of N independent records, without drawing the records.

    The rows of each bucket are multinomial given the counts of its separator. The time depends on the sizes of the
    tables along the elimination order, not on N.

    Parameters
    ----------
    cardinalities, scopes
        The model, as for `marginal_engine`.
    potentials
        Shape (cells,), nats.
    total
        Number of records N, at least 0.
    rng
        Source of randomness.

    Returns
    -------
    ndarray
        Counts, shape (cells,): one table after the other, each in C order.
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
    """Return the counts over a scope, from the first table that contains it; axes in the scope's order."""
    own, table = next((own, table) for own, table in drawn if set(own) >= set(scope))
    return project(table, own, scope)


def _cumulative(conditional: FloatArray) -> FloatArray:
    """Return the cumulative probabilities of each row, scaled so that the last is exactly one."""
    cumulative = np.cumsum(conditional, axis=1)
    np.divide(cumulative, cumulative[:, -1:], out=cumulative, where=cumulative[:, -1:] > 0)
    return cumulative


def _independent(conditional: FloatArray, row: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw the state of each record from its row of conditional probabilities, by inversion."""
    cumulative = _cumulative(conditional)
    states = np.empty(row.size, dtype=np.int64)
    step = max(2**20 // conditional.shape[1], 1)  # at most 8 MiB of cumulative probabilities at once
    for start in range(0, row.size, step):
        here = slice(start, start + step)
        uniform = rng.random(row[here].size)
        states[here] = np.sum(cumulative[row[here]] <= uniform[:, None], axis=1)
    return states


def _balanced(conditional: FloatArray, row: IntArray, rng: np.random.Generator) -> IntArray:
    r"""Draw the state of each record so that each row has each state as often as expected, up to rounding.

    Systematic rounding: with F the cumulative probabilities and one uniform number u per row,
    :math:`\lfloor n F_v + u \rfloor - \lfloor n F_{v-1} + u \rfloor` of the n records of a row get state v. These
    whole numbers sum to n. Each differs from :math:`n p_v` by less than one and has it as expectation. A random
    permutation decides which records get which state, so the state of a record depends on its row alone.
    """
    records = np.bincount(row, minlength=len(conditional))[:, None]
    ends = np.floor(records * _cumulative(conditional) + rng.random(records.shape))
    ends = np.minimum(ends, records)  # n + u may round up
    counts = np.diff(ends, axis=1, prepend=0.0).astype(np.int64)
    states = np.empty(row.size, dtype=np.int64)
    codes = np.tile(np.arange(conditional.shape[1]), len(conditional))
    states[np.lexsort((rng.random(row.size), row))] = np.repeat(codes, counts.ravel())
    return states
