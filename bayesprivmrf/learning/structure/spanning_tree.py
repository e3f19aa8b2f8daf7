r"""The spanning tree of largest dependence, and a lower bound on the records that change it.

**The score** of a pair is the L1 norm of its table's distance from independence, :math:`W_{ij} = \sum_{a,b} |n_{ab}
- n_a n_b / n|`, and 0 without records. Let a record with cells :math:`a, b`, as unit vectors e and f, join n
records with shares q and r. The signed table moves by

.. math:: ef^T - \frac{(nq+e)(nr+f)^T}{n+1} + n q r^T = \frac{n}{n+1} (e-q)(f-r)^T,

whose L1 norm is that of its factors multiplied, below :math:`2 \cdot 2`. So a score moves by less than 4 where a
record is added or removed, and by less than 8 where one is replaced. No bound uses the number of records.

**The distance.** The gap g of a tree is the least :math:`W_e - W_f` over pairs f outside it and edges e on the path
that f closes. One neighbour moves each difference by at most :math:`r = 8` (16). The distance is :math:`k = \lceil
g / r \rceil`. For neighbours with one tree it differs by at most 1, for g is a minimum of the same differences. For
neighbours with two trees it is at most 1 on both: the tree of the one is no unique optimum of the other, where one
of its differences is at most 0, so that it is at most r on its own. And fewer than k changes leave every difference
positive, hence the tree as it is.

**Whole numbers.** Scores are computed times n, at most :math:`2 n^2`, which 64 bits hold up to `LARGEST` records. The
distance is at most `LARGEST` - n, and 0 beyond, so that it moves by at most 1 there as well, and no error tells of n.

So it is a distance in the sense of `bayesprivmrf.learning.structure.stability`.

References: Chow, Liu 1968.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bayesprivmrf.learning.select_measure.measurement import absolute_sums, pair_sums
from bayesprivmrf.learning.structure.stability import LARGEST
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.privacy import Adjacency

# Largest distance stated; it keeps a noisy one inside the integers.
_MOST = 10**9


def gap_range(adjacency: Adjacency) -> int:
    """Return how far one neighbour moves the difference of two scores, records; see the module."""
    return 8 if adjacency is Adjacency.ADD_OR_REMOVE_ONE else 16


def scaled_scores(codes: np.ndarray, counts: IntArray, cardinalities: Sequence[int]) -> IntArray:
    """Return the scores times the number of records, whole numbers of shape (p, p), 0 on the diagonal.

    Parameters
    ----------
    codes, counts
        Distinct records and how often they occur.
    cardinalities
        Number of states of each variable.
    """
    cards = np.asarray(cardinalities)
    u = np.zeros((cards.size, cards.size), dtype=np.int64)
    free = np.flatnonzero(cards > 1)
    if not len(counts) or not free.size:
        return u
    sums = pair_sums(codes, counts, cardinalities)
    later = np.delete(np.arange(sums.single.size), np.cumsum([0, *cards])[:-1])
    n = sums.single[later].astype(np.int64)
    table = int(sums.records) * sums.joint.astype(np.int64) - np.multiply.outer(n, n)
    starts = np.cumsum([0, *(cards[free] - 1)])[:-1]
    u[np.ix_(free, free)] = absolute_sums(table, starts)
    np.fill_diagonal(u, 0)
    return u


def stable_tree(
    codes: np.ndarray, counts: IntArray, cardinalities: Sequence[int], adjacency: Adjacency
) -> tuple[tuple[tuple[int, int], ...], int]:
    """Return the tree of records, given as for `scaled_scores`, and its distance; see the module."""
    records = int(counts.sum())
    if records >= LARGEST:
        return (), 0
    scores = scaled_scores(codes, counts, cardinalities)
    pairs, distance = tree_and_distance(scores, records * gap_range(adjacency))
    return pairs, min(distance, LARGEST - records)


def tree_and_distance(scores: IntArray, unit: int) -> tuple[tuple[tuple[int, int], ...], int]:
    """Return the edges of the spanning tree of largest scores, ascending, and its distance from another.

    Parameters
    ----------
    scores
        Symmetric whole numbers, shape (p, p).
    unit
        How far one neighbour moves the difference of two; 0 without records, where the distance is 0.
    """
    size = len(scores)
    best, link = scores[0].copy(), np.zeros(size, dtype=np.int64)
    outside = np.ones(size, dtype=bool)
    outside[0] = False
    weakest = np.full((size, size), np.iinfo(np.int64).max)  # the least edge on the path of two variables
    edges = []
    for _ in range(size - 1):  # Prim
        new = int(np.argmax(np.where(outside, best, -1)))
        old = int(link[new])
        inside = np.flatnonzero(~outside)
        weakest[new, inside] = weakest[inside, new] = np.minimum(weakest[old, inside], best[new])
        outside[new] = False
        edges.append((min(old, new), max(old, new)))
        better = outside & (scores[new] > best)
        best[better], link[better] = scores[new][better], new
    gaps = weakest - scores
    rows, columns = np.array(edges).T
    others = np.triu(np.ones((size, size), dtype=bool), 1)
    others[rows, columns] = False
    tree = tuple(sorted(edges))
    if not others.any():
        return tree, _MOST  # two variables have one tree, which no record changes
    if unit == 0:
        return tree, 0
    return tree, min(-(-int(gaps[others].min()) // unit), _MOST)
