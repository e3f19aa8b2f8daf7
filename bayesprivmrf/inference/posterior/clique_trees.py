"""Trees over the cliques of a declared model: which cliques are joined, and which of them is the root.

All of it is decided by the declaration: scopes and numbers of states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def spanning_forest(scopes: Sequence[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Edges of a maximum spanning forest over the cliques that share variables (Kruskal)."""
    holders: dict[int, list[int]] = {}
    for position, scope in enumerate(scopes):
        for v in scope:
            holders.setdefault(v, []).append(position)
    weights: dict[tuple[int, int], int] = {}
    for held in holders.values():
        for i, a in enumerate(held):
            for b in held[i + 1 :]:
                weights[a, b] = weights.get((a, b), 0) + 1
    component = list(range(len(scopes)))

    def find(c: int) -> int:
        while component[c] != c:
            component[c] = component[component[c]]
            c = component[c]
        return c

    kept = []
    for a, b in sorted(weights, key=lambda pair: (-weights[pair], pair)):
        if find(a) != find(b):
            component[find(a)] = find(b)
            kept.append((a, b))
    return kept


def rooted(
    cardinalities: Sequence[int], scopes: Sequence[tuple[int, ...]], neighbours: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Order, parents first, and parents of a forest, each tree rooted by the public rule."""
    cells = [math.prod(cardinalities[v] for v in scope) for scope in scopes]
    order: list[int] = []
    parents = [-1] * len(scopes)
    seen: set[int] = set()
    for first in range(len(scopes)):
        if first in seen:
            continue
        tree = [c for c, _, _ in _walk(first, neighbours)]
        seen.update(tree)
        largest = max(cells[c] for c in tree)
        reach = _reaches(first, neighbours)
        root = min((c for c in tree if cells[c] == largest), key=lambda c: (reach[c], c))
        for clique, parent, _ in _walk(root, neighbours):
            order.append(clique)
            parents[clique] = parent
    return tuple(order), tuple(parents)


def _walk(root: int, neighbours: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
    """Cliques of a tree with parent and depth, breadth first."""
    walked = [(root, -1, 0)]
    for clique, parent, depth in walked:
        walked += [(other, clique, depth + 1) for other in neighbours[clique] if other != parent]
    return walked


def _reaches(first: int, neighbours: Sequence[Sequence[int]]) -> dict[int, int]:
    """Distance of each clique of a tree to the one farthest from it, which is an end of a longest path."""
    one_end = _walk(first, neighbours)[-1][0]
    other_end = _walk(one_end, neighbours)[-1][0]
    distances = [{c: depth for c, _, depth in _walk(end, neighbours)} for end in (one_end, other_end)]
    return {c: max(distances[0][c], distances[1][c]) for c in distances[0]}
