"""Scores of a pair in the strata of other variables, from products of indicator matrices.

The indicators of all states but the first, beside a column of ones, give the counts of two states by one matrix
product; those of first states follow by subtraction. All counts are whole numbers that the products hold exactly, and
scores are whole numbers of 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Self

import numpy as np

from bayesprivmrf.model.tables import FloatArray, IntArray

# Steps of a score that are one record: a power of two, by which scores are rounded to a thousandth of a record
UNIT = 1024


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Strata:
    """Records, and the indicators of their states: sensitive.

    Parameters
    ----------
    codes, counts
        Distinct records, shape (rows, p), and how often each occurs.
    ones
        Indicators of all states but the first of each variable after a column of ones, shape (rows, 1 + sum (K - 1)).
    states
        Number of states of each variable, shape (p,).
    """

    codes: np.ndarray
    counts: IntArray
    ones: np.ndarray
    states: IntArray

    @classmethod
    def of(cls, codes: np.ndarray, counts: IntArray, cardinalities: Sequence[int]) -> Self:
        """Return the indicators of distinct records and how often they occur."""
        columns = [np.ones(len(codes), dtype=bool)]
        columns += [codes[:, v] == state for v, k in enumerate(cardinalities) for state in range(1, k)]
        return cls(
            codes=codes,
            counts=counts,
            ones=np.column_stack(columns),
            states=np.asarray(cardinalities, dtype=np.int64),
        )

    def least_of_largest(self, i: int, j: int, given: int, more: int, top: int) -> int:
        """Return the smallest, over sets of `given` others, of a pair's largest score given these and at most `more`.

        Where it is at least `top`, any number of at least `top` may be returned; so it is where there is no such set.

        The counts beside the pair hold two of all these variables; the strata of the others are gone through.
        """
        within = min(2 - given, more)
        others = np.delete(np.arange(len(self.states)), [i, j])
        if len(others) < given:
            return top
        places = np.r_[0, others + 1]
        held = np.zeros((len(places), len(places) if given + within == 2 else 1), dtype=np.int64)
        apart = ~np.eye(len(others), dtype=bool)
        # a set with fewer is met as one that holds some of those given
        for some in combinations(others.tolist(), min(more - within, len(others))):
            found = self._scores(i, j, some, with_two=given + within == 2)
            held = np.maximum(held, found[places][:, places[: held.shape[1]]])
            if given == 2 and held[1:, 1:][apart].min() >= top:
                break
        if given == 2:
            return int(held[1:, 1:][apart].min())
        return int(held[1:].max(axis=1).min() if given else held.max())

    def _scores(self, i: int, j: int, some: Sequence[int], *, with_two: bool) -> IntArray:
        """Return the scores of a pair given some variables and one or two more, shape (1 + p, 1 or 1 + p).

        Place 0 stands for none, so that the first column has the scores given one more.
        """
        shape = [int(self.states[v]) for v in (*some, i, j)]
        strata = np.ravel_multi_index(tuple(self.codes[:, v] for v in (*some, i, j)), shape)
        order = np.argsort(strata, kind="stable")
        ends = np.searchsorted(strata[order], np.arange(math.prod(shape) + 1)).tolist()
        # single precision is exact for whole numbers up to 2^24
        kind = np.float32 if self.counts.sum() <= 2**24 else np.float64
        width = self.ones.shape[1]
        counts = np.empty((len(ends) - 1, width, width if with_two else 1))
        for cell, own in enumerate(counts):
            rows = order[ends[cell] : ends[cell + 1]]
            ones = self.ones[rows].astype(kind)
            own[:] = (ones * self.counts[rows, None].astype(kind)).T @ ones[:, : own.shape[1]]
        counts = self._with_first(counts.swapaxes(1, 2)).swapaxes(1, 2)
        if with_two:
            counts = self._with_first(counts)
        counts = counts.astype(np.int64).reshape(-1, *shape[-2:], *counts.shape[1:])
        total = counts.sum(axis=(1, 2))
        product = counts.sum(axis=2, keepdims=True) * counts.sum(axis=1, keepdims=True)
        departure = np.abs(total[:, None, None] * counts - product).sum(axis=(1, 2))
        # in steps, rounded down; no product leaves 64 bits
        whole, rest = np.divmod(departure, np.maximum(total, 1))
        scores = (whole * UNIT + rest * UNIT // np.maximum(total, 1)).sum(axis=0)
        starts = np.concatenate([[0], 1 + np.cumsum(self.states) - self.states])  # of each variable's states
        blocks = np.add.reduceat(scores, starts, axis=0)
        return np.add.reduceat(blocks, starts, axis=1) if with_two else blocks

    def _with_first(self, counts: FloatArray) -> FloatArray:
        """Return counts by state along the last axis, the first states of all variables with them."""
        ends = np.cumsum(self.states - 1)
        starts = ends - (self.states - 1)
        sums = np.cumsum(counts, axis=-1) - counts[..., :1]
        first = counts[..., :1] - (sums[..., ends] - sums[..., starts])
        return np.insert(counts, 1 + starts, first, axis=-1)

    def __repr__(self) -> str:
        return "Strata(sensitive)"
