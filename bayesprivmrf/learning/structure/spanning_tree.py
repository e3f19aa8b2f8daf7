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

So it is a distance in the sense of `bayesprivmrf.learning.structure.spanning_tree`.

References: Chow, Liu 1968.

Release of an answer where it is stable: propose, test, release.

Let every data set have an answer and a **distance** k, a whole number, so that for neighbors

1. the distances differ by at most 1;
2. where the answers differ, both distances are at most 1.

The noisy distance :math:`k - 1 + Z` is let out, with discrete Laplace noise Z of scale :math:`b \ge 1/\epsilon`, and
the answer with it if it reaches :math:`\tau \ge 1`. For :math:`a = e^{-1/b}`,

.. math:: P(Z \ge \tau) = \frac{a^\tau}{1 + a},

and the smallest :math:`\tau` at which this is at most :math:`\delta` gives :math:`(\epsilon, \delta)`: by the first
condition the noisy distance is :math:`\epsilon`-private. The answer adds nothing to it where neighbors have the
same. Where they have not, k - 1 is at most 0 on both by the second condition, so that either answer is let out with
probability at most :math:`\delta`, and any event that lets none out is one of the noisy distance.

**Whole numbers.** Scores of many records may not fit in 64 bits. So a distance is at most `LARGEST` - n, and from
`LARGEST` records on it is 0 and there is no answer. Both conditions stay, and no error tells of n.

References: Dwork, Lei 2009; Vadhan 2017, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bayesprivmrf.learning.select_measure.measurement import absolute_sums, pair_sums
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise import DiscreteLaplace
from bayesprivmrf.privacy import Adjacency

#: Records from which on no answer is let out: twice the square of the number, a scaled score, fits in 64 bits.
LARGEST = 2**31 - 1

type StableAnswer = tuple[tuple[tuple[int, int], ...], int]
"""Edges of a graph, ascending, and its distance."""


def release_threshold(law: DiscreteLaplace, delta: float) -> int:
    """Return the least threshold of at least 1 that the noise reaches with probability at most delta."""
    tail = math.log(delta) + math.log1p(math.exp(-1 / law.scale))
    least = max(1, math.ceil(-tail * law.scale))
    # a relative slack far above the error of the logarithms; at most one more unit of distance
    return least if -least / law.scale <= tail - 1e-12 * (1 + abs(tail)) else least + 1


def largest_distance(law: DiscreteLaplace, threshold: int) -> int:
    """Return a distance beyond which an answer is withheld with probability below 1/2000.

    Larger distances need not be computed.
    """
    return threshold + 1 + math.ceil(law.scale * math.log(1000))


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
