r"""Junction forest of a model's own cliques, and its tables cut into rows.

Cliques are the bags of a junction forest where their maximum spanning forest, edges weighted by the number of
shared variables, has the running-intersection property: the shared variables of every pair lie in each clique
between them. That holds if and only if

.. math:: \sum_{C} |C| - \sum_{S} |S| = |V|

with S the separators along the forest (Jensen and Jensen 1994, Theorem 1; each variable then induces a tree).
The joint law is then the root's table times the conditional tables of the others,

.. math:: p(x) = \prod_{C} p(x_{C \setminus S(C)} \mid x_{S(C)}),

and a *row* is one of those distributions: the cells of a clique that share one state of its separator. A root
is one row, whose separator is empty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bayesprivmrf.model.tables import IntArray, cells_within

__all__ = ["JunctionForest", "junction_forest"]


@dataclass(frozen=True, kw_only=True, eq=False)
class JunctionForest:
    """Cliques of a decomposable model, parents before children.

    Parameters
    ----------
    cardinalities
        States of each variable.
    scopes
        Variables of each clique, in the axis order of its table.
    order
        Cliques, parents first.
    parents
        Each clique's parent, by clique; -1 for a root.
    separators
        Variables that each clique shares with its parent, ascending; empty for a root.
    supported
        Cells that may occur, flat over the cliques; None where all may.
    """

    cardinalities: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    parents: tuple[int, ...]
    separators: tuple[tuple[int, ...], ...]
    supported: np.ndarray | None

    @property
    def roots(self) -> tuple[int, ...]:
        """Cliques without a parent, one for each part of the graph."""
        return tuple(c for c in self.order if self.parents[c] < 0)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Position of each clique's first cell in the flat view, and the size last."""
        offsets = [0]
        for scope in self.scopes:
            offsets.append(offsets[-1] + math.prod(self.cardinalities[v] for v in scope))
        return tuple(offsets)

    @cached_property
    def cells(self) -> IntArray:
        """Flat position of each possible cell, row after row, parents' rows first; shape (possible cells,)."""
        return self._rows[0]

    @cached_property
    def row_starts(self) -> IntArray:
        """Where each row begins in `cells`, and the number of possible cells last; shape (rows + 1,)."""
        return self._rows[1]

    @cached_property
    def source_starts(self) -> IntArray:
        """Where each row begins in `sources`, and the length of that last; shape (rows + 1,)."""
        return self._rows[2]

    @cached_property
    def sources(self) -> IntArray:
        """The parent's cells that sum to each row's total, as positions in `cells`; none for a root's row."""
        return self._rows[3]

    @property
    def row_sizes(self) -> IntArray:
        """R, the number of possible cells of each row."""
        return np.diff(self.row_starts)

    def separator_states(self, clique: int, separator: Sequence[int]) -> IntArray:
        """State of the separator at each cell of a clique, as one number (C order), shape (cells,)."""
        return cells_within(self.cardinalities, separator, self.scopes[clique])

    @cached_property
    def _rows(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        cells: list[np.ndarray] = []
        sources: list[np.ndarray] = []
        place = np.full(self.offsets[-1], -1, dtype=np.int64)
        filled = 0
        for clique in self.order:
            parent, separator = self.parents[clique], self.separators[clique]
            own = self._possible_cells_by_state(clique, separator)
            states = math.prod(self.cardinalities[v] for v in separator)
            theirs = {} if parent < 0 else self._possible_cells_by_state(parent, separator)
            for state in range(states):
                row = own.get(state)
                if row is None:
                    continue
                cells.append(row)
                sources.append(place[theirs[state]] if parent >= 0 else np.zeros(0, np.int64))
                place[row] = filled + np.arange(row.size)
                filled += row.size
        return _concatenated(cells), _starts(cells), _starts(sources), _concatenated(sources)

    def _possible_cells_by_state(self, clique: int, separator: Sequence[int]) -> dict[int, IntArray]:
        start, stop = self.offsets[clique : clique + 2]
        states = self.separator_states(clique, separator)
        flat = np.arange(start, stop)
        if self.supported is not None:
            mask = self.supported[start:stop]
            states, flat = states[mask], flat[mask]
        ranks = np.argsort(states, kind="stable")
        values, firsts = np.unique(states[ranks], return_index=True)
        return {int(state): row for state, row in zip(values, np.split(flat[ranks], firsts[1:]), strict=True)}


def junction_forest(
    cardinalities: Sequence[int], scopes: Sequence[tuple[int, ...]], supported: np.ndarray | None = None
) -> JunctionForest | None:
    """Junction forest whose bags are the given cliques, or None where the model is not decomposable.

    Each part of the graph is rooted at its clique of most cells; among equals at the one from which the
    farthest clique is nearest, then at the first. The rule sees the declared model alone.

    Parameters
    ----------
    cardinalities
        States of each variable.
    scopes
        Cliques, none inside another.
    supported
        Mask of the cells that some possible joint state reaches; None where all do.

    Examples
    --------
    >>> forest = junction_forest((2, 3, 2), ((0, 1), (1, 2)))
    >>> forest.parents, forest.separators
    ((-1, 0), ((), (1,)))
    >>> junction_forest((2, 2, 2), ((0, 1), (1, 2), (0, 2))) is None
    True
    """
    edges = _spanning_forest(scopes)
    covered = len({v for scope in scopes for v in scope})
    shared = sum(len(set(scopes[a]) & set(scopes[b])) for a, b in edges)
    if sum(map(len, scopes)) - shared != covered:
        return None
    neighbours: list[list[int]] = [[] for _ in scopes]
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    order, parents = _rooted(cardinalities, scopes, neighbours)
    separators = tuple(
        tuple(sorted(set(scopes[c]) & set(scopes[p]))) if p >= 0 else () for c, p in enumerate(parents)
    )
    return JunctionForest(
        cardinalities=tuple(cardinalities),
        scopes=tuple(scopes),
        order=order,
        parents=parents,
        separators=separators,
        supported=supported,
    )


def _spanning_forest(scopes: Sequence[tuple[int, ...]]) -> list[tuple[int, int]]:
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


def _rooted(
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


def _concatenated(parts: list[np.ndarray]) -> IntArray:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _starts(parts: list[np.ndarray]) -> IntArray:
    return np.concatenate([[0], np.cumsum([part.size for part in parts], dtype=np.int64)]).astype(np.int64)
