r"""The graph of pairs that stay dependent whatever few others are held fixed, and how far it is from another.

**The score** of a pair i, j given variables S is the L1 norm of the distance from independence in the strata s of S,

.. math:: W_{ij \mid S} = \sum_s \sum_{a,b} |n_{abs} - n_{as} n_{bs} / n_s|,

and for cliques of t variables, with at most m of the others held fixed,

.. math:: W_{ij} = \min_{|S| \le m} \; \max_{|K| \le t - 2} W_{ij \mid S \cup K}.

The graph joins pairs with :math:`W_{ij} > \theta n`. For t = 2, K is empty: an edge is a pair that stays dependent
whatever m others are held fixed. For t = 3 it need only show in the strata of one more: of three variables of which
the third tells whether the other two are alike, each pair has an edge, though any two are independent.

**What it finds** of a Markov random field whose cliques have at most t variables. Let :math:`w_{ij \mid T}` be the
limit of :math:`W_{ij \mid T} / n`.

- Where S parts i from j in the graph, so does :math:`S \cup K`, and :math:`w_{ij \mid S \cup K} = 0` for all K (the
  global Markov property). So a pair that m variables part has :math:`w_{ij} = 0`, whatever the couplings.
- Let i, j lie in a clique I, with potential :math:`\phi_I`, and let the cliques form a forest: they share at most one
  variable and have no cycle. Given S and :math:`K = I \setminus \{i, j\} \setminus S`, the law of i and j in a
  stratum is proportional to :math:`\phi_I(x_i, x_j, x_K) \, a(x_i) \, b(x_j)`, as i and j meet nowhere else. So
  their odds ratios are those of :math:`\phi_I`, and :math:`w_{ij} > 0` unless these are all 1, when I is no clique
  that joins i and j. Here m = 1 parts every other pair.

Hence on forests of cliques the graph is the field's, for any :math:`\theta` below all edges' :math:`w_{ij}`, as n
grows. With cycles both lines hold approximately where a few variables nearly part i and j, and edges stay clear of
:math:`\theta` (for t = 2 Anandkumar, Tan, Huang, Willsky 2012, local separation). Hamilton, Koehler, Moitra 2017
need no such assumption: they condition on a whole neighbourhood, with strata in numbers that are exponential in it.

**One record.** It lies in one stratum of :math:`S \cup K`, whose table it moves as
`bayesprivmrf.learning.structure.spanning_tree` derives, by less than 4 in L1 norm, however many variables these are.
The largest of scores that move by less than 4 moves by less than 4, and so does the least of such largest ones. In
whole steps of 1/`UNIT` record each stratum's norm is rounded down; as one stratum changes, by less than 4 `UNIT`, a
score in steps moves by at most 4 `UNIT`. With :math:`u = \theta` `UNIT`, a whole number, :math:`h_{ij} = W_{ij} - u
n` moves by at most :math:`M = 4\,\text{UNIT} + u` where a record is added or removed, and by at most 8 `UNIT` where
one is replaced, for that is one removed and one added, and n stays.

**The distance** is the least over pairs of :math:`\lceil h / M \rceil` for an edge, h at least 1, and of
:math:`\lceil (1 - h) / M \rceil` for another pair, both at least 1. One neighbour moves each by at most 1 where it
does not cross. Where a pair crosses, :math:`1 \le h \le h' + M \le M`, so that it has 1 on both, and then both
distances are 1. A distance may be cut at a public number, for a minimum with a constant keeps both conditions.

**The widest gap.** Of public thresholds :math:`u_1 < u_2 < \dots` (`THRESHOLDS`) one is chosen that is far from all
scores in proportion to itself. Its clearness is

.. math:: c_g = \left\lfloor \frac{u_1}{M_1} \min\left(\min_{ij} \frac{|W_{ij} - u_g n|}{u_g},\, n\right)
   \right\rfloor,

:math:`M_1` being M at :math:`u_1`. Between neighbours :math:`|W_{ij} - u n| / u` moves by at most :math:`M / u \le
M_1 / u_1`, as does n, so that each c moves by at most 1. The exponential mechanism with :math:`P(g) \propto
\exp(\epsilon_1 c_g / 2)` is :math:`\epsilon_1`-private. Given g, the test above is private for every threshold, so
that both together cost :math:`\epsilon_1 + \epsilon_2` and :math:`\delta`. Where the strongest pair without an edge
has score a and the weakest edge b, the best c of all thresholds is in proportion to :math:`(b - a) / (b + a)`: the
gap is measured as a ratio. It is cut at `LARGEST` - n, and 0 beyond, like a distance.

**The search** is exact: a pair is left as soon as one S shows that it is no edge, and is no nearer than another pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from bayesprivmrf.learning.structure.packed_records import UNIT, PackedRecords
from bayesprivmrf.learning.structure.spanning_tree import LARGEST, StableAnswer
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.privacy import Adjacency

#: Thresholds to choose from, in steps, about a factor of 2^(1/3) apart: from 0.031 to 0.157.
THRESHOLDS = (32, 40, 51, 64, 81, 102, 128, 161)


def excess_range(steps: int, adjacency: Adjacency) -> int:
    """Return M, how far one neighbour moves a pair's excess over the threshold of so many steps; see the module."""
    return 4 * UNIT + steps if adjacency is Adjacency.ADD_OR_REMOVE_ONE else 8 * UNIT


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class PairScores:
    """Scores of all pairs: sensitive.

    Parameters
    ----------
    pairs
        Their variables, ascending, shape (pairs, 2).
    scores
        In steps, shape (pairs,). Those that were not worth the search are too high, and no higher than `level` or
        another score that is not.
    number
        n, the number of records.
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
        given: int,
        order: int,
        enough: int | None = None,
    ) -> Self:
        """Return the scores of records, fewer than `LARGEST`.

        Parameters
        ----------
        codes, counts
            Distinct records and how often they occur.
        cardinalities
            Number of states of each variable.
        threshold
            The least that they are compared with, in steps: of all scores below it one must be right, the largest.
        given, order
            m and t.
        enough
            How far below the threshold, in steps, no score need be right; by default none.
        """
        records = int(counts.sum())
        level = threshold * records
        packed = PackedRecords.of(codes, counts, cardinalities)
        marginal = packed.marginal_scores()
        stop = -1 if enough is None else level - enough
        found = []
        pairs = _in_order(marginal, level)
        for i, j in pairs:
            score = _score(packed, i, j, int(marginal[i, j]), given, order, stop)
            found.append(score)
            if score <= level:
                stop = max(stop, score)
        return cls(
            pairs=np.array(pairs).reshape(-1, 2), scores=np.array(found, dtype=np.int64), number=records
        )

    def graph(self, steps: int, adjacency: Adjacency, most: int) -> StableAnswer:
        """Return the edges at a threshold, ascending, and their distance from others, at most `most`."""
        excess = self.scores - steps * self.number
        nearest = int(np.where(excess > 0, excess, 1 - excess).min())
        edges = sorted((int(i), int(j)) for i, j in self.pairs[excess > 0])
        return tuple(edges), min(-(-nearest // excess_range(steps, adjacency)), most, LARGEST - self.number)

    def clearness(self, adjacency: Adjacency) -> IntArray:
        """Return how far each of `THRESHOLDS` is from all scores; see the module."""
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
    given: int,
    most: int,
    order: int = 2,
) -> StableAnswer:
    """Return the edges of the graph, ascending, and its distance from another.

    Parameters
    ----------
    codes, counts
        Distinct records and how often they occur.
    cardinalities
        Number of states of each variable.
    adjacency
        The neighbouring relation.
    threshold
        Theta, in whole steps of 1/`UNIT`.
    given
        m: how many variables are held fixed at most, 0, 1 or 2.
    most
        The largest distance; beyond it the distance is cut.
    order
        t: how many variables a clique has at most, 2, 3 or 4.
    """
    if int(counts.sum()) >= LARGEST:
        return (), 0
    steps = round(threshold * UNIT)
    enough = excess_range(steps, adjacency) * (most - 1)
    scores = PairScores.of(
        codes, counts, cardinalities, threshold=steps, given=given, order=order, enough=enough
    )
    return scores.graph(steps, adjacency, most)


def graphs_to_choose(
    codes: np.ndarray,
    counts: IntArray,
    cardinalities: Sequence[int],
    adjacency: Adjacency,
    *,
    given: int,
    most: int,
    order: int,
) -> tuple[IntArray, list[StableAnswer]]:
    """Return how clear each of `THRESHOLDS` is, and its graph and distance; arguments as for `stable_graph`."""
    if int(counts.sum()) >= LARGEST:
        return np.zeros(len(THRESHOLDS), dtype=np.int64), [((), 0)] * len(THRESHOLDS)
    scores = PairScores.of(codes, counts, cardinalities, threshold=THRESHOLDS[0], given=given, order=order)
    return scores.clearness(adjacency), [scores.graph(steps, adjacency, most) for steps in THRESHOLDS]


def _score(packed: PackedRecords, i: int, j: int, marginal: int, given: int, order: int, stop: int) -> int:
    """Return the score of a pair, or any number from it to `stop`."""
    if order == 2:
        score = marginal
        for size in range(1, given + 1):
            if score > stop:
                score = min(score, packed.lowest(i, j, size, stop))
        return score
    score = max(marginal, packed.least_of_largest(i, j, 0, order - 2, 2**62))
    for size in range(1, given + 1):
        if score > stop:
            score = min(score, packed.least_of_largest(i, j, size, order - 2, score))
    return score


def _in_order(scores: IntArray, level: int) -> list[tuple[int, int]]:
    """Return all pairs: those that may be edges variable by variable, then the others, largest scores first."""
    rows, columns = np.triu_indices(len(scores), 1)
    found = scores[rows, columns]
    order = np.argsort(np.where(found > level, np.iinfo(np.int64).min, -found), kind="stable")
    return list(zip(rows[order].tolist(), columns[order].tolist(), strict=True))
