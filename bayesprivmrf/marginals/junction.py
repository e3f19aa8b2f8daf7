r"""Junction forests over the declared cliques: their edges and their roots.

A model is decomposable if the maximum spanning forest over its cliques, with edges weighted by the number of shared
variables, has the running-intersection property: the variables that two cliques share lie in each clique between
them. This holds if and only if

.. math:: \sum_{C} |C| - \sum_{S} |S| = |V|

with S the separators along the forest (Jensen and Jensen 1994, Theorem 1; each variable then induces a tree). The
distribution is then the root's table times the conditional tables of the other cliques,

.. math:: p(x) = \prod_{C} p(x_{C \setminus S(C)} \mid x_{S(C)}).

The forest depends on the declaration alone, that is, on the scopes and the numbers of states.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

type Scope = tuple[int, ...]


class JunctionTrees(NamedTuple):
    """Rooted trees over the cliques of a model.

    Parameters
    ----------
    order
        Numbers of the cliques, parents first.
    parents
        Parent of each clique; -1 for a root.
    separators
        Variables that each clique shares with its parent, in increasing order; empty for a root.
    """

    order: tuple[int, ...]
    parents: tuple[int, ...]
    separators: tuple[Scope, ...]


def junction_trees(cardinalities: Sequence[int], scopes: Sequence[Scope]) -> JunctionTrees | None:
    """Return rooted trees over the cliques, or None if the model is not decomposable.

    The root of a tree is the clique with most cells. Among several such cliques it is the one with the shortest
    distance to the clique farthest from it, then the first. The rule depends on the declared model alone.

    Parameters
    ----------
    cardinalities
        Number of states of each variable.
    scopes
        Variables of each clique; no clique is inside another.

    Examples
    --------
    >>> junction_trees((2, 3, 2), ((0, 1), (1, 2)))
    JunctionTrees(order=(0, 1), parents=(-1, 0), separators=((), (1,)))
    >>> junction_trees((2, 2, 2), ((0, 1), (1, 2), (0, 2))) is None
    True
    """
    import networkx as nx

    cliques_of: dict[int, list[int]] = {}
    for position, scope in enumerate(scopes):
        for v in scope:
            cliques_of.setdefault(v, []).append(position)
    # the number of shared variables of each pair of cliques that share any
    weights = Counter(pair for cliques in cliques_of.values() for pair in combinations(cliques, 2))
    graph = nx.Graph()
    graph.add_nodes_from(range(len(scopes)))
    graph.add_weighted_edges_from((*pair, -weights[pair]) for pair in sorted(weights))
    # pairs of equal weight are joined in increasing order
    forest = nx.minimum_spanning_tree(graph)
    if sum(map(len, scopes)) + int(forest.size("weight")) != len(cliques_of):
        return None
    neighbors = [list(forest[clique]) for clique in range(len(scopes))]
    order, parents = rooted(cardinalities, scopes, neighbors)
    separators = tuple(
        tuple(sorted(set(scopes[c]) & set(scopes[p]))) if p >= 0 else ()
        for c, p in enumerate(parents)
    )
    return JunctionTrees(order, parents, separators)


def rooted(
    cardinalities: Sequence[int], scopes: Sequence[Scope], neighbors: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the cliques in an order with parents first, and their parents.

    `junction_trees` states the rule for the roots.
    """
    cells = [math.prod(cardinalities[v] for v in scope) for scope in scopes]
    order: list[int] = []
    parents = [-1] * len(scopes)
    seen: set[int] = set()
    for first in range(len(scopes)):
        if first in seen:
            continue
        tree = [c for c, _, _ in _walk(first, neighbors)]
        seen.update(tree)
        largest = max(cells[c] for c in tree)
        # The distance of each clique of a tree to the clique farthest from it
        # the farthest clique is always an end of a longest path
        one_end = _walk(first, neighbors)[-1][0]
        other_end = _walk(one_end, neighbors)[-1][0]
        distances = [
            {c: depth for c, _, depth in _walk(end, neighbors)} for end in (one_end, other_end)
        ]
        reach = {c: max(distances[0][c], distances[1][c]) for c in distances[0]}
        root = min((c for c in tree if cells[c] == largest), key=lambda c: (reach[c], c))
        for clique, parent, _ in _walk(root, neighbors):
            order.append(clique)
            parents[clique] = parent
    return tuple(order), tuple(parents)


def _walk(root: int, neighbors: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
    """Return the cliques of a tree with their parents and depths, breadth first."""
    walked = [(root, -1, 0)]
    for clique, parent, depth in walked:
        walked += [(other, clique, depth + 1) for other in neighbors[clique] if other != parent]
    return walked
