r"""Graphs of dependence and their stability: pairs dependent given every few others, and the maximum spanning tree.

**The score** of a pair i, j given variables S is the L1 distance from independence in the strata s of S,

.. math:: W_{ij \mid S} = \sum_s \sum_{a,b} |n_{abs} - n_{as} n_{bs} / n_s|,

and for cliques of t variables, with at most m of the others in S,

.. math:: W_{ij} = \min_{|S| \le m} \; \max_{|K| \le t - 2} W_{ij \mid S \cup K}.

The graph joins pairs with :math:`W_{ij} > \theta n`. For t = 2, K is empty: an edge is a pair that stays dependent
given any m other variables. For t = 3 the dependence may show only in the strata of one more variable. Suppose that
a third variable says whether two others are equal. Then all three pairs have an edge, although any two variables are
independent.

**Population graph.** Consider a Markov random field whose cliques have at most t variables, and let
:math:`w_{ij \mid T}` be the limit of :math:`W_{ij \mid T} / n`.

- If S separates i and j in the graph, so does :math:`S \cup K`, and :math:`w_{ij \mid S \cup K} = 0` for all K by the
  global Markov property. So :math:`w_{ij} = 0` for a pair that m variables separate, whatever the couplings.
- Let i and j lie in a clique I with potential :math:`\phi_I`, and let the cliques form a forest: they share at most
  one variable and have no cycle. Given S and :math:`K = I \setminus \{i, j\} \setminus S`, the distribution of i and
  j in a stratum is proportional to :math:`\phi_I(x_i, x_j, x_K) \, a(x_i) \, b(x_j)`, because i and j meet nowhere
  else. Their odds ratios are those of :math:`\phi_I`. So :math:`w_{ij} > 0` unless all of them are 1, in which case I
  does not really join i and j. Here m = 1 separates every other pair.

For forests of cliques the graph therefore converges to the graph of the field as n grows, for any :math:`\theta`
below :math:`w_{ij}` of all edges. With cycles both statements hold approximately if a few variables nearly separate i
and j and edges are clearly above :math:`\theta` (local separation for t = 2: Anandkumar, Tan, Huang, Willsky 2012).
Hamilton, Koehler, Moitra 2017 need no such assumption. They condition on a whole neighborhood, with exponentially
many strata.

**Sensitivity.** A record lies in one stratum of :math:`S \cup K` and moves its table by less than 4 in L1 norm, as is
derived below for a tree, for any number of variables. Maxima and minima of scores with this sensitivity have it as
well. Each stratum's norm is rounded down to steps of 1/`UNIT` record. As one stratum
changes, by less than 4 `UNIT`, a score in steps moves by at most 4 `UNIT`. Let :math:`u = \theta` `UNIT` be a whole
number and :math:`h_{ij} = W_{ij} - u n`. Adding or removing a record moves h by at most
:math:`M = 4\,\text{UNIT} + u`. Replacing a record, which removes one and adds one and keeps n, moves it by at most M
= 8 `UNIT`.

**The distance** is the minimum over pairs of :math:`\lceil h / M \rceil` for edges, where h is at least 1, and of
:math:`\lceil (1 - h) / M \rceil` for other pairs. Both are at least 1. A neighbor moves each by at most 1 if the pair
stays on its side. If a pair changes sides, :math:`1 \le h \le h' + M \le M`, so its value is 1 in both data sets, and
both distances are 1. The distance may be cut at a public number, because a minimum with a constant keeps both
conditions.

**The widest gap.** One of the public thresholds :math:`u_1 < u_2 < \dots` (`THRESHOLDS`) is chosen that is far from
all scores relative to its size. Its clearness is

.. math:: c_g = \left\lfloor \frac{u_1}{M_1} \min\left(\min_{ij} \frac{|W_{ij} - u_g n|}{u_g},\, n\right)
   \right\rfloor,

where :math:`M_1` is M at :math:`u_1`. Between neighbors :math:`|W_{ij} - u n| / u` moves by at most
:math:`M / u \le M_1 / u_1`, and so does n. So each c moves by at most 1. The exponential mechanism with
:math:`P(g) \propto \exp(\epsilon_1 c_g / 2)` is :math:`\epsilon_1`-private. Given g, the test above is private for
every threshold. Both together cost :math:`\epsilon_1 + \epsilon_2` and :math:`\delta`. If the strongest pair without
an edge has score a and the weakest edge b, the best c of all thresholds is proportional to :math:`(b - a) / (b + a)`:
the gap is measured as a ratio. Clearness is cut at `LARGEST` - n, and 0 beyond, like a distance.

**The search** is exact. It leaves a pair as soon as one S shows that the pair is no edge and no nearer to the
threshold than another pair.

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

**The score for a tree** is the L1 distance of a pair's table from independence, :math:`W_{ij} = \sum_{a,b} |n_{ab}
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
from dataclasses import dataclass
from typing import Self

import numpy as np

from bayesprivmrf.learning.select_measure.pair_counts import absolute_sums, pair_sums
from bayesprivmrf.mechanisms.structure.packed_records import UNIT, PackedRecords
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
    if -least / law.scale <= tail - 1e-12 * (1 + abs(tail)):
        return least
    return least + 1


def largest_distance(law: DiscreteLaplace, threshold: int) -> int:
    """Return a distance beyond which an answer is withheld with probability below 1/2000.

    Larger distances need not be computed.
    """
    return threshold + 1 + math.ceil(law.scale * math.log(1000))


# Largest distance; the noisy distance then stays within 64-bit integers
_MOST = 10**9


def gap_range(adjacency: Adjacency) -> int:
    """Return the sensitivity of the difference of two scores, records; see the module."""
    if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        return 8
    return 16


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
    table = int(sums.total) * sums.joint.astype(np.int64) - np.multiply.outer(n, n)
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
    best = scores[0].copy()
    link = np.zeros(size, dtype=np.int64)
    outside = np.ones(size, dtype=bool)
    outside[0] = False
    # smallest edge on the path between two variables
    weakest = np.full((size, size), np.iinfo(np.int64).max)
    edges = []
    for _ in range(size - 1):  # Prim's algorithm
        new = int(np.argmax(np.where(outside, best, -1)))
        old = int(link[new])
        inside = np.flatnonzero(~outside)
        weakest[new, inside] = weakest[inside, new] = np.minimum(weakest[old, inside], best[new])
        outside[new] = False
        edges.append((min(old, new), max(old, new)))
        better = outside & (scores[new] > best)
        best[better] = scores[new][better]
        link[better] = new
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


# Thresholds to choose from, in steps, about a factor of 2^(1/3) apart: from 0.031 to 0.157
THRESHOLDS = (32, 40, 51, 64, 81, 102, 128, 161)


def excess_range(steps: int, adjacency: Adjacency) -> int:
    """Return M, the sensitivity of a pair's excess over a threshold of so many steps; see the module."""
    if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        return 4 * UNIT + steps
    return 8 * UNIT


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSearch:
    """Settings of the search for a stable graph.

    Parameters
    ----------
    given
        Largest number m of variables to condition on: 0, 1 or 2.
    order
        Largest number t of variables in a clique: 2, 3 or 4.
    most
        Largest distance; larger ones are cut.
    """

    given: int
    order: int = 2
    most: int = LARGEST


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class PairScores:
    """Sensitive scores of all pairs.

    Parameters
    ----------
    pairs
        Variables of the pairs, ascending, shape (pairs, 2).
    scores
        Scores in steps, shape (pairs,). Those of pairs that the search left early are upper bounds. They do not
        exceed the level below which scores need not be exact, or an exact score below the threshold.
    number
        Number of records n.
    """

    pairs: IntArray
    scores: IntArray
    number: int

    @classmethod
    def of(
        cls,
        codes: np.ndarray,
        counts: IntArray,
        cardinalities: Sequence[int],
        *,
        threshold: int,
        search: GraphSearch,
        enough: int | None = None,
    ) -> Self:
        """Return the scores of fewer than `LARGEST` records.

        Parameters
        ----------
        codes, counts
            Distinct records and their counts.
        cardinalities
            Number of states of each variable.
        threshold
            Smallest threshold that the scores are compared with, in steps. Of all scores below it, only the largest
            must be exact.
        search
            Settings m and t.
        enough
            Distance below the threshold, in steps, from which no score need be exact; by default there is none.
        """
        records = int(counts.sum())
        level = threshold * records
        packed = PackedRecords.of(codes, counts, cardinalities)
        marginal = marginal_scores(codes, counts, cardinalities)
        stop = -1 if enough is None else level - enough
        found = []
        pairs = _in_order(marginal, level)
        for i, j in pairs:
            score = _score(packed, i, j, int(marginal[i, j]), search, stop)
            found.append(score)
            if score <= level:
                stop = max(stop, score)
        return cls(
            pairs=np.array(pairs).reshape(-1, 2),
            scores=np.array(found, dtype=np.int64),
            number=records,
        )

    def graph(self, steps: int, adjacency: Adjacency, most: int) -> StableAnswer:
        """Return the edges at a threshold, ascending, and the distance from another graph, at most `most`."""
        excess = self.scores - steps * self.number
        nearest = int(np.where(excess > 0, excess, 1 - excess).min())
        edges = sorted((int(i), int(j)) for i, j in self.pairs[excess > 0])
        return tuple(edges), min(
            -(-nearest // excess_range(steps, adjacency)), most, LARGEST - self.number
        )

    def clearness(self, adjacency: Adjacency) -> IntArray:
        """Return the clearness of each of `THRESHOLDS`; see the module."""
        steps = np.array(THRESHOLDS)
        level = steps * self.number
        nearest = np.minimum(np.abs(self.scores - level[:, None]).min(axis=1), level)
        clear = nearest * steps[0] // (steps * excess_range(int(steps[0]), adjacency))
        return np.minimum(clear, LARGEST - self.number)

    def __repr__(self) -> str:
        return "PairScores(sensitive)"


def stable_graph(
    codes: np.ndarray,
    counts: IntArray,
    cardinalities: Sequence[int],
    adjacency: Adjacency,
    *,
    threshold: float,
    search: GraphSearch,
) -> StableAnswer:
    """Return the edges of the graph, ascending, and its distance from another graph.

    Parameters
    ----------
    codes, counts
        Distinct records and their counts.
    cardinalities
        Number of states of each variable.
    adjacency
        Neighboring relation.
    threshold
        Threshold theta, in whole steps of 1/`UNIT`.
    search
        Settings of the search.
    """
    if int(counts.sum()) >= LARGEST:
        return (), 0
    steps = round(threshold * UNIT)
    enough = excess_range(steps, adjacency) * (search.most - 1)
    scores = PairScores.of(
        codes, counts, cardinalities, threshold=steps, search=search, enough=enough
    )
    return scores.graph(steps, adjacency, search.most)


def graphs_to_choose(
    codes: np.ndarray,
    counts: IntArray,
    cardinalities: Sequence[int],
    adjacency: Adjacency,
    search: GraphSearch,
) -> tuple[IntArray, list[StableAnswer]]:
    """Return the clearness of each of `THRESHOLDS`, and its graph and distance; see `stable_graph`."""
    if int(counts.sum()) >= LARGEST:
        return np.zeros(len(THRESHOLDS), dtype=np.int64), [((), 0)] * len(THRESHOLDS)
    scores = PairScores.of(codes, counts, cardinalities, threshold=THRESHOLDS[0], search=search)
    return scores.clearness(adjacency), [
        scores.graph(steps, adjacency, search.most) for steps in THRESHOLDS
    ]


def marginal_scores(codes: np.ndarray, counts: IntArray, cardinalities: Sequence[int]) -> IntArray:
    """Return the scores of all pairs, nothing given, in steps rounded down, shape (p, p)."""
    scaled = scaled_scores(codes, counts, cardinalities)
    records = max(int(counts.sum()), 1)
    # no product leaves 64 bits
    return scaled // records * UNIT + scaled % records * UNIT // records


def _score(
    packed: PackedRecords, i: int, j: int, marginal: int, search: GraphSearch, stop: int
) -> int:
    """Return the score of a pair, or any number between the score and `stop`."""
    # with pairs alone nothing else is given, and the score given nothing is the marginal one
    if search.order == 2:
        score = marginal
    else:
        score = max(marginal, packed.least_of_largest(i, j, 0, search.order - 2, 2**62))
    for size in range(1, search.given + 1):
        if score > stop:
            score = min(score, packed.least_of_largest(i, j, size, search.order - 2, score))
    return score


def _in_order(scores: IntArray, level: int) -> list[tuple[int, int]]:
    """Return all pairs in search order: possible edges by variable, then the others by decreasing score."""
    rows, columns = np.triu_indices(len(scores), 1)
    found = scores[rows, columns]
    order = np.argsort(np.where(found > level, np.iinfo(np.int64).min, -found), kind="stable")
    return list(zip(rows[order].tolist(), columns[order].tolist(), strict=True))
