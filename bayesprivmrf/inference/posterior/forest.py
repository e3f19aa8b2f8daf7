r"""Rows of a junction forest: conditional distributions of the cliques' tables, and draws along the forest.

`bayesprivmrf.marginals.junction` decides which cliques are joined and which one is the root. A *row* is one
distribution: the table of the root, or the cells of another clique that share one state of its separator.

A table of two variables u and v with the same states, such as two visits of a panel, may be divided into two steps
instead. Then v given u is drawn as

.. math:: p(v \mid u) = p(v = u \mid u) \quad\text{or}\quad p(v \ne u \mid u)\, p(v \mid u, v \ne u),

The first step decides whether the state stays, and the second where it moves. Each step is a row, and the *inner*
cells "stay" and "move" are sums of cells of the model. This is the forest of a larger model that has "v = u" as
another variable, so all operations on rows apply to these steps too. Dirichlet rows of rows are a Dirichlet tree
(Dennis 1991).

Arrays of draws have the shape (cells, draws), with the forest's cells in the order of ``forest.cells``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from bayesprivmrf.marginals.junction import junction_trees
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, IntArray, cells_within


class RowTable(NamedTuple):
    """Table of rows: the conditional table of a clique, or one step of it.

    Parameters
    ----------
    clique
        Position of the clique.
    scope
        Variables of the table: those of the clique, or u and v.
    step
        ``""`` for a whole table. Otherwise ``"start"`` for the part before the two steps, ``"stay"`` or ``"move"``.
    start, stop
        First cell, and the cell after the last one, in ``JunctionForest.cells``.
    margins
        For each variable that the rows are distributions of: the number of states, and the state of each cell.
    """

    clique: int
    scope: tuple[int, ...]
    step: str
    start: int
    stop: int
    margins: tuple[tuple[int, IntArray], ...]


type _Step = tuple[tuple[int, ...], str, list[tuple[int, IntArray]]]
"""Variables, name and margins of a step of a clique's table, before its cells are numbered."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JunctionForest:
    """Junction forest of the cliques of a decomposable model, parents before children.

    Parameters
    ----------
    cardinalities
        Number of states of each variable.
    scopes
        Variables of each clique, in the axis order of its table.
    order
        Cliques, parents first.
    parents
        Parent of each clique; -1 for a root.
    separators
        Variables that each clique shares with its parent, ascending; empty for a root.
    supported
        Mask of the possible cells, flat over the cliques; None if all are possible.
    states
        States of each variable. A table of two variables with the same three or more states is divided into two
        steps. With None no table is divided.

    Attributes
    ----------
    tables
        Tables of rows, parents first; every record is in one cell of each table.
    cells
        Flat position of each cell, row after row, parents first; inner cells are numbered after the model's.
    row_starts
        Start of each row in `cells`, followed by the number of cells; shape (rows + 1,).
    source_starts
        Start of each row in `sources`, followed by the length of `sources`; shape (rows + 1,).
    sources
        Cells of the parent whose sum is the total of each row, as positions in `cells`; none for a root.
    """

    cardinalities: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    parents: tuple[int, ...]
    separators: tuple[tuple[int, ...], ...]
    supported: np.ndarray | None
    states: tuple[Hashable, ...] | None = None

    tables: tuple[RowTable, ...] = field(init=False)
    cells: IntArray = field(init=False)
    row_starts: IntArray = field(init=False)
    source_starts: IntArray = field(init=False)
    sources: IntArray = field(init=False)

    @property
    def roots(self) -> tuple[int, ...]:
        """Cliques without a parent, one for each connected part of the graph."""
        return tuple(c for c in self.order if self.parents[c] < 0)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Position of each clique's first cell in the flat view, followed by the number of cells."""
        sizes = (math.prod(self.cardinalities[v] for v in scope) for scope in self.scopes)
        return tuple(accumulate(sizes, initial=0))

    @cached_property
    def places(self) -> IntArray:
        """Position in `cells` of each possible cell of the model, by its flat position; shape (possible cells,)."""
        return np.argsort(self.cells)[: np.count_nonzero(~self.is_inner)]

    @cached_property
    def is_inner(self) -> np.ndarray:
        """Mask of the inner cells, which are sums of other cells; shape (cells,)."""
        return self.cells >= self.offsets[-1]

    @property
    def row_sizes(self) -> IntArray:
        """Number R of cells of each row, shape (rows,)."""
        return np.diff(self.row_starts)

    def separator_states(self, clique: int, separator: Sequence[int]) -> IntArray:
        """Return the state of a separator at each cell of a clique, as one number (C order), shape (cells,)."""
        return cells_within(self.cardinalities, separator, self.scopes[clique])

    def with_inner(self, flat: FloatArray) -> FloatArray:
        """Return the values of all `cells`, with sums in the inner cells, from those of the model's cells.

        Shape (..., offsets[-1]) to (..., cells).
        """
        whole = np.zeros((*flat.shape[:-1], self.cells.size))
        whole[..., ~self.is_inner] = flat[..., self.cells[~self.is_inner]]
        for row, inner in reversed(self._inner_rows):
            whole[..., inner] = whole[..., row].sum(axis=-1)
        return whole

    def along_steps(self, log_rows: FloatArray) -> FloatArray:
        """Return log probabilities of cells given their separators, from those within rows, shape (cells, ...)."""
        if not self._inner_rows:
            return log_rows
        whole = log_rows.copy()
        for row, inner in self._inner_rows:
            whole[row] += whole[inner]
        return whole

    @cached_property
    def _inner_rows(self) -> list[tuple[slice, int]]:
        """Rows whose sum is an inner cell, each with that cell."""
        return [
            (slice(start, stop), int(sources[0]))
            for start, stop, sources in _rows(self)
            if sources.size == 1 and self.is_inner[sources[0]]
        ]

    def __post_init__(self) -> None:
        tables: list[RowTable] = []
        # each begins with no number, so that a forest without cells has arrays too
        cells, sizes, sources = ([np.zeros(0, np.int64)] for _ in range(3))
        place = np.full(self.offsets[-1], -1, dtype=np.int64)
        filled = 0
        inner = self.offsets[-1]
        for clique in self.order:
            flat = self._possible(clique)
            parent = self.parents[clique]
            if parent >= 0:
                above = self._above(clique, place)
            else:
                above = {}
            row_of = self.separator_states(clique, self.separators[clique])[
                flat - self.offsets[clique]
            ]
            steps = self._steps(clique, flat)
            for number, (scope, step, parts) in enumerate(steps):
                code = row_of
                for states, of_cell in parts:
                    code = code * states + of_cell
                _, firsts, code = np.unique(code, return_index=True, return_inverse=True)
                is_last = number == len(steps) - 1
                if is_last:
                    own = flat[firsts]
                else:
                    own = inner + np.arange(firsts.size)
                rows, counts = np.unique(row_of[firsts], return_counts=True)
                margins = tuple((states, of_cell[firsts]) for states, of_cell in parts)
                tables.append(RowTable(clique, scope, step, filled, filled + own.size, margins))
                cells.append(own)
                sizes.append(counts)
                sources += [above.get(int(row), np.zeros(0, np.int64)) for row in rows]
                above = {k: np.array([filled + k]) for k in range(own.size)}
                if is_last:
                    place[own] = filled + np.arange(own.size)
                else:
                    inner += own.size
                filled = filled + own.size
                row_of = code
        vars(self).update(
            tables=tuple(tables),
            cells=np.concatenate(cells),
            row_starts=np.cumsum([0, *np.concatenate(sizes)]),
            source_starts=np.cumsum([part.size for part in sources]),
            sources=np.concatenate(sources),
        )

    def _steps(self, clique: int, flat: IntArray) -> list[_Step]:
        """Return the steps in which the given cells of a clique are drawn, conditional on its separator.

        Variables are taken in the order of declaration, so the prior does not depend on how the clique is written.
        """
        scope = self.scopes[clique]
        given = list(self.separators[clique])
        state = {v: self.separator_states(clique, (v,))[flat - self.offsets[clique]] for v in scope}
        plain = []
        steps = []
        for v in sorted(set(scope) - set(self.separators[clique])):
            # with two states there is one way to move
            may_stay = self.states is not None and self.cardinalities[v] >= 3
            alike = [u for u in given if may_stay and self.states[u] == self.states[v]]
            if alike:
                u = min(alike, key=lambda u: (abs(u - v), u))
                stay = (state[u] != state[v]).astype(np.int64)
                steps += [
                    ((u, v), "stay", [(2, stay)]),
                    ((u, v), "move", [(self.cardinalities[v], state[v])]),
                ]
            else:
                plain.append(v)
            given.append(v)
        if plain or not steps:
            margins = [(self.cardinalities[v], state[v]) for v in scope if v in plain]
            steps.insert(0, (scope, "start" if steps else "", margins))
        return steps

    def _possible(self, clique: int) -> IntArray:
        """Return the flat positions of a clique's possible cells, ascending."""
        start, stop = self.offsets[clique : clique + 2]
        flat = np.arange(start, stop)
        if self.supported is None:
            return flat
        return flat[self.supported[start:stop]]

    def _above(self, clique: int, place: IntArray) -> dict[int, IntArray]:
        """Return the parent's cells at each state of a clique's separator, as positions in `cells`."""
        parent = self.parents[clique]
        flat = self._possible(parent)
        states = self.separator_states(parent, self.separators[clique])[flat - self.offsets[parent]]
        ranks = np.argsort(states, kind="stable")
        values, firsts = np.unique(states[ranks], return_index=True)
        parts = np.split(place[flat[ranks]], firsts[1:])
        return {int(state): part for state, part in zip(values, parts, strict=True)}


def junction_forest(
    cardinalities: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    supported: np.ndarray | None = None,
    states: Sequence[Hashable] | None = None,
) -> JunctionForest | None:
    """Return the junction forest whose bags are the given cliques, or None if the model is not decomposable.

    Parameters
    ----------
    cardinalities
        Number of states of each variable.
    scopes
        Cliques, none inside another.
    supported
        Mask of the cells of possible joint states; None if all cells are possible.
    states
        States of each variable, to divide tables of two variables with the same states into two steps; None to divide
        none.

    Examples
    --------
    >>> forest = junction_forest((2, 3, 2), ((0, 1), (1, 2)))
    >>> forest.parents, forest.separators
    ((-1, 0), ((), (1,)))
    >>> junction_forest((2, 2, 2), ((0, 1), (1, 2), (0, 2))) is None
    True
    """
    trees = junction_trees(cardinalities, scopes)
    if trees is None:
        return None
    return JunctionForest(
        cardinalities=tuple(cardinalities),
        scopes=tuple(scopes),
        **trees._asdict(),
        supported=supported,
        states=None if states is None else tuple(states),
    )


def draw_log_rows(
    forest: JunctionForest, shapes: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw the logarithms of Dirichlet rows with the given parameters, shape (cells, draws).

    A Gamma(a) variable is Gamma(a + 1) times U^(1/a), of which the logarithm is finite at any a > 0.

    Raises
    ------
    FloatingPointError
        A parameter is not positive, so there is no such distribution.
    """
    if not (shapes > 0).all():
        raise FloatingPointError(
            "Dirichlet parameters must be positive; the relaxed counts are wrong."
        )
    logs = (
        np.log(rng.standard_gamma(shapes + 1.0)) - rng.standard_exponential(shapes.shape) / shapes
    )
    for start, stop in pairwise(forest.row_starts):
        row = logs[start:stop]
        row -= row.max(axis=0)
        row -= np.log(np.exp(row).sum(axis=0))
    return logs


def draw_tables(
    forest: JunctionForest, log_rows: FloatArray, total: IntArray, rng: np.random.Generator
) -> IntArray:
    """Draw a table of `total` records for each draw of the rows, shape (cells, draws)."""
    tables = np.zeros(log_rows.shape, dtype=np.int64)
    for start, stop, sources in _rows(forest):
        if sources.size:
            margin = tables[sources].sum(axis=0)
        else:
            margin = total
        row = np.exp(log_rows[start:stop])
        tables[start:stop] = rng.multinomial(margin, (row / row.sum(axis=0)).T).T
    return tables


def marginals_of(forest: JunctionForest, log_rows: FloatArray) -> FloatArray:
    """Return the marginal probabilities of the cliques' cells, shape (cells, draws)."""
    margins = np.exp(log_rows)
    for start, stop, sources in _rows(forest):
        if sources.size:
            margins[start:stop] *= margins[sources].sum(axis=0)
    return margins


def effects_of(forest: JunctionForest, log_rows: FloatArray) -> FloatArray:
    """Return the zero-sum coordinates (`Effects`) of each draw's distribution, shape (draws, d), nats.

    The log probabilities of all rows add up to log p(x), so they are potentials. An effect on variables of a clique
    with structural zeros does not exist and is NaN.
    """
    effects = Effects.of(forest.cardinalities, forest.scopes)
    flat = np.zeros((log_rows.shape[1], forest.offsets[-1]))
    own = ~forest.is_inner
    flat[:, forest.cells[own]] = forest.along_steps(log_rows)[own].T
    result = effects.coordinates(flat)
    if forest.supported is None:
        supported = np.ones(forest.offsets[-1], bool)
    else:
        supported = forest.supported
    for scope, (start, stop) in zip(forest.scopes, pairwise(forest.offsets), strict=True):
        for position, subset in enumerate(effects.subsets):
            if set(subset) <= set(scope) and not supported[start:stop].all():
                result[:, effects.offsets[position] : effects.offsets[position + 1]] = np.nan
    return result


def _rows(forest: JunctionForest) -> Iterator[tuple[int, int, IntArray]]:
    """Yield the first cell of each row, the cell after its last, and the parent's cells that sum to its total."""
    bounds = zip(pairwise(forest.row_starts), pairwise(forest.source_starts), strict=True)
    for (start, stop), (first, last) in bounds:
        yield int(start), int(stop), forest.sources[first:last]
