r"""The graph of pairs that stay dependent whatever few others are held fixed, and how far it is from another.

**The score** of a pair i, j given variables S is the L1 norm of the distance from independence in the strata s of S,

.. math:: W_{ij \mid S} = \sum_s \sum_{a,b} |n_{abs} - n_{as} n_{bs} / n_s|,

and :math:`W_{ij}` is the least over all S of at most m variables other than i and j. The graph joins pairs with
:math:`W_{ij} > \theta n`. Where every two variables without an edge are nearly parted by few others, as in sparse
graphs whose cycles are long or whose couplings are not strong, this finds the graph of a Markov random field
(Anandkumar, Tan, Huang, Willsky 2012, local separation); for m = 0 it is the graph of dependent pairs.

**One record.** It lies in one stratum of S, whose table it moves as `bayesprivmrf.learning.structure.spanning_tree`
derives, by less than 4 in L1 norm, however many variables S has. The least of scores that move by less than 4 moves
by less than 4. In whole steps of 1/`UNIT` record each stratum's norm is rounded down; as one stratum changes, by less
than 4 `UNIT`, a score in steps moves by at most 4 `UNIT`. With :math:`t = \theta` `UNIT`, a whole number,
:math:`h_{ij} = W_{ij} - t n` moves by at most :math:`M = 4\,\text{UNIT} + t` where a record is added or removed,
and by at most 8 `UNIT` where one is replaced, for that is one removed and one added, and n stays.

**The distance** is the least over pairs of :math:`\lceil h / M \rceil` for an edge, h at least 1, and of
:math:`\lceil (1 - h) / M \rceil` for another pair, both at least 1. One neighbour moves each by at most 1 where it
does not cross. Where a pair crosses, :math:`1 \le h \le h' + M \le M`, so that it has 1 on both, and then both
distances are 1. A distance may be cut at a public number, for a minimum with a constant keeps both conditions.

**The search** is exact: a pair is left as soon as one S shows that it is no edge, and is no nearer than another pair.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bayesprivmrf.learning.structure.packed_records import UNIT, PackedRecords
from bayesprivmrf.learning.structure.stability import LARGEST, StableAnswer
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.privacy import Adjacency

__all__ = ["excess_range", "stable_graph"]


def excess_range(steps: int, adjacency: Adjacency) -> int:
    """Return M, how far one neighbour moves a pair's excess over the threshold of so many steps; see the module."""
    return 4 * UNIT + steps if adjacency is Adjacency.ADD_OR_REMOVE_ONE else 8 * UNIT


def stable_graph(
    codes: np.ndarray,
    counts: IntArray,
    cardinalities: Sequence[int],
    adjacency: Adjacency,
    *,
    threshold: float,
    given: int,
    most: int,
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
        Where the distance is cut.
    """
    records = int(counts.sum())
    if records >= LARGEST:
        return (), 0
    steps = round(threshold * UNIT)
    level, move = steps * records, excess_range(steps, adjacency)
    packed = PackedRecords.of(codes, counts, cardinalities)
    scores = packed.marginal_scores()
    edges, distance = [], min(most, LARGEST - records)
    for i, j in _in_order(scores, level):
        stop = level - move * (distance - 1)  # a pair with no higher score is no nearer than that
        score = int(scores[i, j])
        for size in range(1, given + 1):
            if score > stop:
                score = min(score, packed.lowest(i, j, size, stop))
        excess = score - level
        if excess > 0:
            edges.append((i, j))
        distance = min(distance, -(-max(excess, 1 - excess) // move))
    return tuple(sorted(edges)), distance


def _in_order(scores: IntArray, level: int) -> list[tuple[int, int]]:
    """Return all pairs: those that may be edges variable by variable, then the others, largest scores first."""
    rows, columns = np.triu_indices(len(scores), 1)
    found = scores[rows, columns]
    order = np.argsort(np.where(found > level, np.iinfo(np.int64).min, -found), kind="stable")
    return list(zip(rows[order].tolist(), columns[order].tolist(), strict=True))
