r"""The maximum spanning tree of dependence, its stability, and the private release of stable answers.

**Propose, test, release.** Let every data set have an answer and a **distance** k, a whole number, such that for
neighbors

1. the distances differ by at most 1;
2. if the answers differ, both distances are at most 1.

The noisy distance :math:`k - 1 + Z` is released, with discrete Laplace noise Z of scale :math:`b \ge 1/\epsilon`. The
answer is released if the noisy distance is at least :math:`\tau \ge 1`. For :math:`a = e^{-1/b}`,

.. math:: P(Z \ge \tau) = \frac{a^\tau}{1 + a},

and the smallest :math:`\tau` for which this is at most :math:`\delta` gives :math:`(\epsilon, \delta)`-privacy. By
the first condition the noisy distance is :math:`\epsilon`-private. If neighbors have the same answer, the answer adds
nothing. If they have different answers, k - 1 is at most 0 for both by the second condition. Either answer is then
released with probability at most :math:`\delta`, and all other events depend on the noisy distance only.

**The score** of a pair is the L1 distance of its table from independence, :math:`W_{ij} = \sum_{a,b} |n_{ab}
- n_a n_b / n|`, and 0 without records. Let a record with cells :math:`a, b`, as unit vectors e and f, join n
records with shares q and r. The signed table moves by

.. math:: ef^T - \frac{(nq+e)(nr+f)^T}{n+1} + n q r^T = \frac{n}{n+1} (e-q)(f-r)^T,

whose L1 norm is the product of those of its factors, below :math:`2 \cdot 2`. So adding or removing a record moves a
score by less than 4, and replacing one by less than 8. No bound depends on the number of records.

**The distance of a tree.** Its gap g is the smallest :math:`W_e - W_f` over pairs f outside the tree and edges e on
the path between the variables of f. A neighbor moves each difference by at most r = 8 (16 for replacement). The
distance is :math:`k = \lceil g / r \rceil`. It satisfies both conditions. For neighbors with the same tree, g is a
minimum of the same differences, so the distances differ by at most 1. For neighbors with different trees, the tree of
one is not the unique optimum of the other, where one of its differences is at most 0. That difference is at most r in
its own data, so both distances are at most 1. Fewer than k changes of records keep every difference positive, and so
the tree.

**Whole numbers.** Scores are multiplied by n. They are then at most :math:`2 n^2`, which fits in 64 bits up to
`LARGEST` records. A distance is at most `LARGEST` - n. From `LARGEST` records on it is 0 and there is no answer. Both
conditions still hold, and no error reveals n.

References
----------
Chow, Liu 1968. Dwork, Lei 2009. Vadhan 2017, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bayesprivmrf.learning.select_measure.measurement import absolute_sums, pair_sums
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise import DiscreteLaplace
from bayesprivmrf.privacy import Adjacency

# Number of records from which no answer is released: a scaled score, twice its square, must fit in 64 bits
LARGEST = 2**31 - 1

type StableAnswer = tuple[tuple[tuple[int, int], ...], int]
"""Edges of a graph, ascending, and its distance."""


def release_threshold(law: DiscreteLaplace, delta: float) -> int:
    """Return the smallest threshold, at least 1, that the noise reaches with probability at most delta."""
    tail = math.log(delta) + math.log1p(math.exp(-1 / law.scale))
    least = max(1, math.ceil(-tail * law.scale))
    # a relative slack far above the error of the logarithms; at most one more unit of distance
    return least if -least / law.scale <= tail - 1e-12 * (1 + abs(tail)) else least + 1


def largest_distance(law: DiscreteLaplace, threshold: int) -> int:
    """Return a distance beyond which an answer is withheld with probability below 1/2000.

    Larger distances need not be computed.
    """
    return threshold + 1 + math.ceil(law.scale * math.log(1000))


# Largest distance; the noisy distance then stays within 64-bit integers
_MOST = 10**9


def gap_range(adjacency: Adjacency) -> int:
    """Return the sensitivity of the difference of two scores, records; see the module."""
    return 8 if adjacency is Adjacency.ADD_OR_REMOVE_ONE else 16


def scaled_scores(codes: np.ndarray, counts: IntArray, cardinalities: Sequence[int]) -> IntArray:
    """Return the scores times the number of records, whole numbers of shape (p, p), 0 on the diagonal.

    Parameters
    ----------
    codes, counts
        Distinct records and their counts.
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
    """Return the maximum spanning tree and its distance; the arguments are those of `scaled_scores`."""
    records = int(counts.sum())
    if records >= LARGEST:
        return (), 0
    scores = scaled_scores(codes, counts, cardinalities)
    pairs, distance = tree_and_distance(scores, records * gap_range(adjacency))
    return pairs, min(distance, LARGEST - records)


def tree_and_distance(scores: IntArray, unit: int) -> tuple[tuple[tuple[int, int], ...], int]:
    """Return the edges of the maximum spanning tree, ascending, and its distance from another tree.

    Parameters
    ----------
    scores
        Symmetric whole numbers, shape (p, p).
    unit
        Sensitivity of the difference of two scores; 0 without records, where the distance is 0.
    """
    size = len(scores)
    best, link = scores[0].copy(), np.zeros(size, dtype=np.int64)
    outside = np.ones(size, dtype=bool)
    outside[0] = False
    weakest = np.full((size, size), np.iinfo(np.int64).max)  # smallest edge on the path between two variables
    edges = []
    for _ in range(size - 1):  # Prim's algorithm
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
        return tree, _MOST  # two variables have only one tree, which no record can change
    if unit == 0:
        return tree, 0
    return tree, min(-(-int(gaps[others].min()) // unit), _MOST)
