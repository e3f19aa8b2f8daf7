"""Exact independent draws."""

from __future__ import annotations

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.marginals.arrays import ArrayEngine
from bayesprivmrf.marginals.protocol import FloatArray, IntArray

__all__ = ["draw"]

CHUNK = 1 << 20  # random numbers and cumulative probabilities held at once


def draw(engine: ArrayEngine, potentials: FloatArray, size: int, rng: np.random.Generator) -> IntArray:
    """Independent draws from the model, by backward sampling along the elimination order.

    The last variable eliminated is drawn first; each earlier one is drawn from p(v | s), its separator s
    being drawn already, by inversion of the cumulative probabilities. A state of probability zero is
    never drawn.

    Returns
    -------
    IntArray
        Shape (size, number of variables), states as numbers from 0.
    """
    if not size >= 0:
        raise ModelError(f"`size` must not be negative, got {size}.")
    tree = engine.tree
    cards = tree.layout.cardinalities
    states = np.zeros((size, len(cards)), dtype=np.int64)
    for v in tree.free:
        states[:, v] = rng.integers(cards[v], size=size)
    conditionals = engine.collect(potentials).conditionals
    for bucket, conditional in zip(reversed(tree.buckets), reversed(conditionals), strict=True):
        k = cards[bucket.variable]
        cumulative = np.cumsum(conditional.reshape(-1, k), axis=1)
        # The last entry is one exactly, so that a uniform number below one always falls in a state.
        np.divide(cumulative, cumulative[:, -1:], out=cumulative, where=cumulative[:, -1:] > 0)
        row = np.zeros(size, dtype=np.int64)
        for v in bucket.separator:
            row = row * cards[v] + states[:, v]
        step = max(CHUNK // k, 1)
        for start in range(0, size, step):
            here = slice(start, start + step)
            uniform = rng.random(row[here].size)
            states[here, bucket.variable] = np.sum(cumulative[row[here]] <= uniform[:, None], axis=1)
    return states
