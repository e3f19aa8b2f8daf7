"""Counts of single states and of pairs of states in coded rows, and scores of dependence, in whole numbers.

The functions are arithmetic on rows, whatever these are. A mechanism applies them to records, and an interval to rows
that were drawn from a released model. `bayesprivmrf.learning.select_measure.measurement` derives the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.learning.select_measure.measurement import STEPS
from bayesprivmrf.model.tables import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSums:
    """Sensitive exact counts of single states, and of pairs of states without first states.

    Parameters
    ----------
    total
        Number of rows, each as often as it counts.
    single
        Number of records in each state of all variables, shape (sum of K,).
    joint
        Number of records in each pair of states without first states, shape (sum of (K - 1), sum of (K - 1)).
    """

    total: int
    single: IntArray
    joint: IntArray

    def __repr__(self) -> str:
        return "PairSums(sensitive)"


def pair_sums(codes: np.ndarray, counts: IntArray, cardinalities: Sequence[int]) -> PairSums:
    """Count single states and pairs of states by products of indicator matrices, exactly.

    Float32 sums of zeros and ones are exact below 2^24 terms, float64 sums of counts below 2^53.
    """
    cards = np.asarray(cardinalities)
    width = int((cards - 1).sum())
    is_plain = bool((counts == 1).all())
    kind = np.float32 if is_plain else np.float64
    joint = np.zeros((width, width), dtype=np.int64)
    # at most 2^24 indicators at a time, so that float32 sums of ones are exact
    rows = max((1 << 24) // max(width, 1), 1)
    single = np.zeros(int(cards.sum()), dtype=np.int64)
    first = np.cumsum([0, *cards])[:-1]
    for start in range(0, len(codes), rows):
        part = codes[start : start + rows]
        weight = counts[start : start + rows]
        inside = _indicators(part, cards, kind)
        if is_plain:
            weighted = inside
        else:
            weighted = inside * weight[:, None]
        joint += (inside.T @ weighted).astype(np.int64)
    later = np.delete(np.arange(single.size), first)
    single[later] = joint.diagonal()
    records = int(counts.sum())
    single[first] = records - (np.add.reduceat(single, first) if first.size else 0)
    return PairSums(total=records, single=single, joint=joint)


def _indicators(codes: np.ndarray, cards: np.ndarray, kind: Any) -> np.ndarray:
    """Return the indicators of all states but the first, shape (rows, sum of (K - 1))."""
    if (cards == 2).all():
        return codes.astype(kind)
    columns = [codes[:, v, None] == np.arange(1, k) for v, k in enumerate(cards) if k > 1]
    if columns:
        return np.concatenate(columns, axis=1).astype(kind)
    return np.zeros((len(codes), 0), dtype=kind)


def dependence_scores(
    sums: PairSums, cardinalities: Sequence[int], shares: Sequence[IntArray]
) -> IntArray:
    """Return the dependence scores u, shape (p, p); 0 for variables with one state and on the diagonal."""
    cards = np.asarray(cardinalities)
    free = np.flatnonzero(cards > 1)
    u = np.zeros((cards.size, cards.size), dtype=np.int64)
    if free.size < 2:
        return u
    D = int(shares[0].sum())
    first = np.cumsum([0, *cards])[:-1]
    later = np.delete(np.arange(sums.single.size), first)
    n = sums.single[later]
    Q = np.concatenate(shares)[later]
    cross = np.multiply.outer(D * n, Q)
    T = D * D * sums.joint - cross - cross.T + sums.total * np.multiply.outer(Q, Q)
    starts = np.cumsum([0, *(cards[free] - 1)])[:-1]
    bound = np.array([2 * (D - int(shares[v].min())) for v in free.tolist()], dtype=np.int64)
    unit = -(-np.multiply.outer(bound, bound) // STEPS)
    u[np.ix_(free, free)] = absolute_sums(T, starts) // unit
    np.fill_diagonal(u, 0)
    return u


def absolute_sums(tables: IntArray, starts: IntArray) -> IntArray:
    """Return the sum of absolute values of each centered table, given without first rows and columns.

    Such tables sum to zero along both axes, so that what is left out is minus the sums of what is there.

    Parameters
    ----------
    tables
        The tables of all pairs of variables, side by side, symmetric.
    starts
        Where each variable's rows begin.
    """
    rows = np.add.reduceat(tables, starts, axis=0)
    border = np.add.reduceat(np.abs(rows), starts, axis=1)
    inner = np.add.reduceat(np.add.reduceat(np.abs(tables), starts, axis=0), starts, axis=1)
    return inner + np.abs(np.add.reduceat(rows, starts, axis=1)) + border + border.T


def product_sums(sums: PairSums, pairs: IntArray) -> IntArray:
    """Return sums of products of spins: n - 2 n_i - 2 n_j + 4 n_ij with counts of second states."""
    i, j = pairs.T
    n = sums.joint.diagonal()
    return sums.total - 2 * n[i] - 2 * n[j] + 4 * sums.joint[i, j]


def pair_tables(sums: PairSums, pairs: IntArray, cardinalities: Sequence[int]) -> IntArray:
    """Return the tables of pairs as one flat array, each in C order."""
    cards = np.asarray(cardinalities)
    first = np.cumsum([0, *cards])[:-1]
    reduced = np.cumsum([0, *(cards - 1)])[:-1]
    tables = [np.zeros(0, dtype=np.int64)]
    for i, j in pairs.tolist():
        table = np.empty((cards[i], cards[j]), dtype=np.int64)
        table[1:, 1:] = sums.joint[
            reduced[i] : reduced[i] + cards[i] - 1, reduced[j] : reduced[j] + cards[j] - 1
        ]
        table[1:, 0] = sums.single[first[i] + 1 : first[i] + cards[i]] - table[1:, 1:].sum(axis=1)
        table[0] = sums.single[first[j] : first[j] + cards[j]] - table[1:].sum(axis=0)
        tables.append(table.ravel())
    return np.concatenate(tables)
