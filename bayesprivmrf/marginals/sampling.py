"""Exact records: independent ones, or balanced ones whose tables are nearly the model's."""

from __future__ import annotations

import numpy as np

from bayesprivmrf.marginals.arrays import ArrayEngine
from bayesprivmrf.marginals.protocol import FloatArray, IntArray

CHUNK = 1 << 20  # random numbers and cumulative probabilities held at once


def draw(
    engine: ArrayEngine,
    potentials: FloatArray,
    size: int,
    rng: np.random.Generator,
    *,
    is_balanced: bool = False,
) -> IntArray:
    """Records from the model, by backward sampling along the elimination order.

    The last variable eliminated is drawn first; each earlier one is drawn from p(v | s), its separator s
    being drawn already. A state of probability zero is never drawn.

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


def _cumulative(conditional: FloatArray) -> FloatArray:
    """Cumulative probabilities of each row; the last is one exactly, so that nothing falls beyond the states."""
    cumulative = np.cumsum(conditional, axis=1)
    np.divide(cumulative, cumulative[:, -1:], out=cumulative, where=cumulative[:, -1:] > 0)
    return cumulative


def _independent(conditional: FloatArray, row: IntArray, rng: np.random.Generator) -> IntArray:
    """State of each record from its row of conditional probabilities, by inversion."""
    cumulative = _cumulative(conditional)
    states = np.empty(row.size, dtype=np.int64)
    step = max(CHUNK // conditional.shape[1], 1)
    for start in range(0, row.size, step):
        here = slice(start, start + step)
        uniform = rng.random(row[here].size)
        states[here] = np.sum(cumulative[row[here]] <= uniform[:, None], axis=1)
    return states


def _balanced(conditional: FloatArray, row: IntArray, rng: np.random.Generator) -> IntArray:
    r"""State of each record: within a row, each state as often as its probability says, up to rounding.

    The n records of a row get :math:`\lfloor n F_v + u \rfloor - \lfloor n F_{v-1} + u \rfloor` times the state v,
    with F the cumulative probabilities and one uniform u a row (systematic rounding): whole numbers that sum to n,
    each less than one from :math:`n p_v`, whose expectation it is. Which records get them is a random permutation,
    so that a state is independent of everything but the row.
    """
    records = np.bincount(row, minlength=len(conditional))[:, None]
    ends = np.floor(records * _cumulative(conditional) + rng.random(records.shape))
    ends = np.minimum(ends, records)  # n + u may round up
    counts = np.diff(ends, axis=1, prepend=0.0).astype(np.int64)
    states = np.empty(row.size, dtype=np.int64)
    codes = np.tile(np.arange(conditional.shape[1]), len(conditional))
    states[np.lexsort((rng.random(row.size), row))] = np.repeat(codes, counts.ravel())
    return states
