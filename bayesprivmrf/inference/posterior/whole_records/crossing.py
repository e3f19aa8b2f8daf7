r"""Bounded sums of one table in two directions, such as cells, row totals and column totals.

Sets of cells that are pairwise nested or disjoint form a tree. If all bounded sets form two such trees, a table is a
circulation in a directed graph: records flow from the root of the first tree along its sets to a cell, from the cell
along the sets of the second tree to its root, and back to the first root. The flow of an arc is the sum of its set,
and the flow of a cell is its count. Two whole circulations within the same bounds differ by a sum of simple cycles,
and each of these cycles can be added without leaving the bounds (Ahuja, Magnanti and Orlin 1993, chapter 3). So steps
along simple cycles link all tables within the bounds. With exact totals of rows and columns, these cycles alternate
between cells that gain and cells that lose records. The longest have twice as many cells as the shorter side of the
table: a 3 x 3 table with a fixed diagonal has one cycle only, of six cells.

Sums whose cells are determined by others are removed first, so that few hidden cells of a larger table often form
two trees although all sums together do not.

References
----------
Ahuja, Magnanti, Orlin (1993). Network flows. Prentice Hall.
Diaconis and Sturmfels (1998). Algebraic algorithms for sampling from conditional distributions. Annals of Statistics
26, 363-397.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.allowed_counts import MOST, Ends, Members, tightened
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.measured import MeasuredCells
from bayesprivmrf.inference.posterior.whole_records.bounds import (
    NO_TABLE,
    Bounded,
    CrossingError,
    grouped,
)
from bayesprivmrf.model.tables import FloatArray, IntArray

# Largest number of free sets that are compared with each other, which takes a square matrix
_MOST_SETS = 4000
# Most counts that an error names, and most from which it selects them, by an integer program for each
_MOST_NAMED = 6
_MOST_FILTERED = 1000


class SumGraph(NamedTuple):
    """Arcs that can change, as compiled moves read them; arcs and nodes outside every cycle are left out."""

    arc_nodes: IntArray  # tail and head of each arc, shape (arcs, 2)
    arc_cells: IntArray  # cell of each arc, or -1 of an arc that is a sum
    node_starts: IntArray  # where the arcs of each node begin in `node_arcs`
    node_arcs: IntArray
    # work space of a walk: position of each node on the path, or -1; arcs of the path, and their directions
    places: IntArray
    path: IntArray
    signs: IntArray

    def for_one_chain(self) -> SumGraph:
        """Return the graph with work space of its own: chains run at the same time."""
        return self._replace(
            places=self.places.copy(), path=self.path.copy(), signs=self.signs.copy()
        )


# A graph without edges, whose walks are empty
NO_GRAPH = SumGraph(
    arc_nodes=np.zeros((0, 2), np.int64),
    arc_cells=np.zeros(0, np.int64),
    node_starts=np.zeros(1, np.int64),
    node_arcs=np.zeros(0, np.int64),
    places=np.zeros(0, np.int64),
    path=np.zeros(0, np.int64),
    signs=np.zeros(0, np.int64),
)


class CrossingSums:
    """Bounded sums that form two trees of nested or disjoint sets.

    Parameters
    ----------
    cells
        Number of cells.
    family
        Bounded sets of cells.

    Raises
    ------
    ModelError
        No table satisfies all bounds.
    CrossingError
        The free sets do not form two trees.
    """

    def __init__(self, cells: int, family: Sequence[Bounded]) -> None:
        self._cells = cells
        self._family = list(family)
        ends = cell_ends(cells, family)
        if ends is None:
            raise ModelError(NO_TABLE)
        self._ends = ends
        self._free = _free_sets(self._family, ends)
        self._trees = _two_trees(self._free, cells)

    @cached_property
    def extent(self) -> tuple[int, int]:
        """Smallest and largest number of records in all cells together."""
        ends = self._ends
        least = self._cheapest(ends, 1.0)
        if (ends.high >= MOST).any():
            return least, int(MOST)
        return least, self._cheapest(ends, -1.0)

    def _cheapest(self, ends: Ends, cost: float) -> int:
        """Return the number of records of a table, where each of them has a cost."""
        costs = _Costs(ends.low, np.full(self._cells, cost), np.zeros(self._cells))
        found = _cheapest(self._family, ends, costs)
        if found is None:
            raise ModelError(NO_TABLE)
        return int(found.sum())

    def table(self, total: int, wanted: FloatArray) -> IntArray:
        """Return a table with a given number of records that is within all bounds and close to `wanted`.

        Raises
        ------
        ModelError
            No such table exists.
        """
        family = [*self._family, Bounded(np.arange(self._cells), total, total)]
        ends = cell_ends(self._cells, family)
        if ends is None:
            raise ModelError(NO_TABLE)
        reference = np.clip(np.rint(wanted), ends.low, ends.high)
        # a record counts less in a cell with many
        cost = 1 / np.sqrt(reference + 1)
        found = _cheapest(family, ends, _Costs(reference, cost, cost))
        if found is None:
            raise ModelError(NO_TABLE)
        return found

    @cached_property
    def graph(self) -> SumGraph:
        """Graph whose simple cycles are the moves."""
        tails, heads, cells = _arcs(self._free, self._trees, self._ends)
        is_kept = _in_cycles(tails, heads)
        tails, heads, cells = tails[is_kept], heads[is_kept], cells[is_kept]
        names, ends = np.unique(np.stack([tails, heads]), return_inverse=True)
        ends = ends.reshape(2, -1)
        arcs = np.arange(tails.size)
        starts, node_arcs = grouped(ends.ravel(), np.concatenate([arcs, arcs]), names.size)
        return SumGraph(
            arc_nodes=np.ascontiguousarray(ends.T.astype(np.int64)),
            arc_cells=cells.astype(np.int64),
            node_starts=starts,
            node_arcs=node_arcs,
            places=np.full(names.size, -1),
            path=np.zeros(names.size + 1, np.int64),
            signs=np.zeros(names.size + 1, np.int64),
        )


def _members(family: Sequence[Bounded]) -> Members:
    """Return pairs of a set and one of its cells."""
    sizes = [each.cells.size for each in family]
    cells = [np.zeros(0, np.int64), *(each.cells for each in family)]
    return Members(np.repeat(np.arange(len(family)), sizes), np.concatenate(cells))


def cell_ends(cells: int, family: Sequence[Bounded]) -> Ends | None:
    """Return bounds of each cell that follow from the sums one by one; None if they contradict each other."""
    lowest = np.array([each.lowest for each in family], dtype=float)
    highest = np.minimum(np.array([each.highest for each in family], dtype=float), MOST)
    every = Ends(np.zeros(cells), np.full(cells, MOST))
    return tightened(_members(family), Ends(lowest, highest), every)


def _free_sets(family: Sequence[Bounded], ends: Ends) -> list[Bounded]:
    """Return the sets of free cells whose bounds do not follow from those of the cells, each once."""
    is_free = ends.low < ends.high
    found: dict[bytes, Bounded] = {}
    for each in family:
        cells = np.sort(each.cells[is_free[each.cells]])
        known = int(ends.low[each.cells[~is_free[each.cells]]].sum())
        lowest = each.lowest - known
        highest = each.highest - known
        is_told = ends.low[cells].sum() >= lowest and ends.high[cells].sum() <= highest
        if cells.size < 2 or is_told:
            continue
        key = cells.tobytes()
        if key in found:
            lowest = max(lowest, found[key].lowest)
            highest = min(highest, found[key].highest)
        found[key] = Bounded(cells, lowest, highest)
    return list(found.values())


def _two_trees(sets: Sequence[Bounded], cells: int) -> list[int]:
    """Return the tree, 0 or 1, of each set, so that the sets of one tree are nested or disjoint."""
    from scipy.sparse import csr_array

    if len(sets) > _MOST_SETS:
        raise CrossingError
    owners, members = _members(sets)
    shape = (len(sets), cells)
    incidence = csr_array((np.ones(owners.size), (owners, members)), shape)
    shared = (incidence @ incidence.T).toarray()
    sizes = shared.diagonal()
    is_crossing = (shared > 0) & (shared < np.minimum(sizes[:, np.newaxis], sizes))
    trees = [-1] * len(sets)
    for first in range(len(sets)):
        if trees[first] >= 0:
            continue
        trees[first] = 0
        left = [first]
        while left:
            one = left.pop()
            for other in np.flatnonzero(is_crossing[one]).tolist():
                if trees[other] == trees[one]:
                    raise CrossingError
                if trees[other] < 0:
                    trees[other] = 1 - trees[one]
                    left.append(other)
    return trees


def _arcs(
    sets: Sequence[Bounded], trees: Sequence[int], ends: Ends
) -> tuple[IntArray, IntArray, IntArray]:
    """Return tail, head and cell of the arcs that can change; nodes 0 and 1 are the roots of the trees."""
    arcs = [(1, 0, -1)]
    nodes = np.zeros((2, ends.low.size), np.int64)
    nodes[1] = 1
    for place in np.argsort([-each.cells.size for each in sets], kind="stable").tolist():
        each = sets[place]
        own = nodes[trees[place]]
        node = place + 2
        parent = int(own[each.cells[0]])
        own[each.cells] = node
        if each.lowest == each.highest:
            continue
        if trees[place] == 0:
            arcs.append((parent, node, -1))
        else:
            arcs.append((node, parent, -1))
    arcs += [
        (int(nodes[0, cell]), int(nodes[1, cell]), cell)
        for cell in np.flatnonzero(ends.low < ends.high).tolist()
    ]
    tails, heads, cells = np.array(arcs).T
    return tails, heads, cells


def _in_cycles(tails: IntArray, heads: IntArray) -> np.ndarray:
    """Return a mask without the arcs that end at a node with no other arc, again and again."""
    is_kept = np.ones(tails.size, bool)
    while True:
        both = np.concatenate([tails[is_kept], heads[is_kept]])
        degrees = np.bincount(both, minlength=int(max(tails.max(), heads.max())) + 1)
        is_end = is_kept & ((degrees[tails] < 2) | (degrees[heads] < 2))
        if not is_end.any():
            return is_kept
        is_kept &= ~is_end


# feasible tables by integer programming


class _Costs(NamedTuple):
    """Cost of each record more and of each record less than a reference table, shape (cells,)."""

    reference: FloatArray
    more: FloatArray
    fewer: FloatArray


def _cheapest(family: Sequence[Bounded], ends: Ends, costs: _Costs) -> IntArray | None:
    """Return a table within all bounds with the smallest cost; None if there is none.

    The table is the reference plus u minus d, for whole u and d.
    """
    from scipy.optimize import milp
    from scipy.sparse import csr_array, hstack

    owners, members = _members(family)
    matrix = csr_array(
        (np.ones(owners.size), (owners, members)), (len(family), costs.reference.size)
    )
    known = matrix @ costs.reference
    lowest = np.array([each.lowest for each in family], dtype=float)
    highest = np.array([min(each.highest, MOST) for each in family], dtype=float)
    room = np.concatenate([ends.high - costs.reference, costs.reference - ends.low])
    solve: Any = milp  # SciPy's stubs know scalar bounds only
    found = solve(
        np.concatenate([costs.more, costs.fewer]),
        integrality=np.ones(room.size),
        bounds=(0.0, room),
        constraints=(hstack([matrix, -matrix]), lowest - known, highest - known),
    )
    if found.x is None:
        return None
    up, down = np.rint(found.x).reshape(2, -1)
    return (costs.reference + up - down).astype(np.int64)


def is_possible(cells: int, family: Sequence[Bounded]) -> bool:
    """Return True if a table of whole counts is within all bounds."""
    ends = cell_ends(cells, family)
    if ends is None:
        return False
    return _cheapest(family, ends, _Costs(ends.low, np.ones(cells), np.zeros(cells))) is not None


def contradiction(evidence: Evidence, family: Sequence[Bounded]) -> ModelError:
    """Return the error that no table satisfies all bounds, which names numbers that contradict each other.

    The model has one clique.
    """
    if len(family) > _MOST_FILTERED:
        return ModelError(NO_TABLE)
    measured = MeasuredCells.of(evidence)
    found = contradicting(measured.cells.size, family)
    if not found:
        return ModelError(NO_TABLE)
    names = [_name_of(evidence, measured.cells[family[place].cells]) for place in found]
    some = ", ".join(dict.fromkeys(names[:_MOST_NAMED]))
    if len(names) > _MOST_NAMED:
        some += f" and {len(names) - _MOST_NAMED} more"
    return ModelError(
        "bounds and numbers without noise must allow at least one table, but those of these counts contradict each "
        f"other: {some}; correct one of them, or its rule."
    )


def _name_of(evidence: Evidence, cells: IntArray) -> str:
    """Name a set of cells by the variables whose state is the same in all of them, such as "a=0"."""
    domain = evidence.specification.domain
    (scope,) = evidence.specification.scopes
    (shape,) = evidence.specification.shapes
    if cells.size == math.prod(shape):
        return "all records"
    states = np.unravel_index(cells, shape)
    labels = [
        f"{domain.variables[v]}={domain.states[v][own[0]]}"
        for v, own in zip(scope, states, strict=True)
        if (own == own[0]).all()
    ]
    return f"({', '.join(labels)})" if labels else f"a sum of {cells.size} cells"


def contradicting(cells: int, family: Sequence[Bounded]) -> list[int]:
    """Return the positions of sets that no table satisfies together, and of which none can be left out.

    Each set is left out in turn, and stays out if the others still contradict each other (deletion filter of
    Chinneck 2008, chapter 6). The list is empty if there is a table.
    """
    if is_possible(cells, family):
        return []
    # large sets are left out first: a contradiction among small ones says more
    kept = sorted(range(len(family)), key=lambda place: -family[place].cells.size)
    for place in list(kept):
        others = [each for each in kept if each != place]
        if not is_possible(cells, [family[each] for each in others]):
            kept = others
    return kept
