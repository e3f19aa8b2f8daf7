r"""Engine for models with one clique: the whole counts of a single table move cell by cell.

The posterior is that of `Rows`, and no count is relaxed. With one clique no tables have
to agree, so counts can move one at a time. The cost of a move depends on the number of measurements of two cells, and
not on N or on the size of the table. The engine is meant for large tables that are mostly empty, and measured by
tables, coarsenings and sums. It supports all queries and both noise kernels.

Let n be the table, whose sums are measured. Given the shapes α, with the row integrated out and
:math:`p(N) \propto 1/N`,

.. math:: \log p(n \mid y) = \log Γ(N) - \log Γ(α_+ + N)
          + \sum_i \bigl[\log Γ(α_i + n_i) - \log Γ(n_i + 1)\bigr] + \sum_m \log f_m(y_m - a_m'n).

Several moves leave this distribution invariant. The size d of a move is uniform up to a power of two, which is itself
drawn uniformly. A cell gains or loses d records. Or d records move from cell i, drawn among the K occupied cells, to
a cell j, which is drawn in one of three ways:

- among all cells. With K' occupied cells after the move, the reverse move is proposed K / K' times as often.
- among the K occupied cells, if i is not emptied. The reverse move is proposed equally often.
- among the cells of a measured number m, which therefore does not change. The number is drawn among those that
  contain i and other cells, with weight :math:`w_m`, which is larger the fewer cells it has. If :math:`W_i` is the
  sum of the weights of i, the reverse move by the same number is proposed :math:`K W_i / (K' W_j)` times as often.

The records of two such cells may also be divided anew, from their conditional distribution given their sum s. This is
needed for a sum that is known well while its parts are not: many of its cells are nearly empty, the records may be in
one or another of them, and no move of fixed size connects these states. The pair is chosen with a probability
proportional to a / K, where :math:`a = [n_i > 0] / W_i + [n_j > 0] / W_j`, so the new division is accepted with
probability :math:`\min(1, a' K / (a K'))`. It takes s + 1 steps, and is made only for s up to 32.

For a number that is known only within bounds, f is the probability of these bounds (`bounds`). Without noise that is
0 or 1, and -10^9 replaces the log of 0. The module `bounds` also states when moves still reach every table. Where
bounds of two directions cross, such as totals of rows and of columns, records also move along cycles of cells
(`crossing`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, by_reference, kept
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.posterior.whole_records.bounds import (
    Bounded,
    CrossingError,
    NestedSums,
    allowed_sums,
    bounded_sums,
)
from bayesprivmrf.inference.posterior.whole_records.cell_steps import (
    MoveCells,
    add,
    log_cell,
    log_total,
    size_of_move,
)
from bayesprivmrf.inference.posterior.whole_records.chains import (
    RecordChain,
    RecordData,
    record_data,
)
from bayesprivmrf.inference.posterior.whole_records.crossing import (
    NO_GRAPH,
    CrossingSums,
    SumGraph,
    contradiction,
)
from bayesprivmrf.inference.posterior.whole_records.cycle_moves import move_along_cycle
from bayesprivmrf.inference.posterior.whole_records.engine import Rows
from bayesprivmrf.inference.posterior.whole_records.exact_sums import ExactSums
from bayesprivmrf.inference.posterior.whole_records.moves import log_noise
from bayesprivmrf.inference.posterior.whole_records.shape_moves import draw_rows, move_shapes

# Most rounds of a sweep with moves along cycles; arbitrary: chains that have not mixed are continued
_ROUNDS_OF_CYCLES = 8


@njit(nogil=True, **INNER)
def _change_cells(least, most, total, state, table, data, rng):
    """Add records to each cell or remove some, once one record and once several, and return the number of records."""
    counts = state.counts
    whole = state.shapes.sum()
    for cell in range(counts.size):
        for turn in range(2):
            if turn == 0:
                by = 1
            else:
                by = size_of_move(table.scales, rng)
            if rng.random() < 0.5:
                by = -by
            if counts[cell] + by < 0 or not least <= total + by <= most:
                continue
            # log ratio: prior of the cell, prior of N and normalization of the row, noise
            ratio = log_cell(counts[cell], by, state.shapes[cell])
            ratio += log_total(total, by, whole)
            ratio += log_noise(cell, by, state.sums, data)
            if math.log(rng.random()) < ratio:
                add(cell, by, state, table, data)
                total += by
    return total


@njit(nogil=True, **INNER)
def _partner(i, way, state, table, data, rng):
    """Draw the cell to which records of cell i move; i itself if there is none."""
    if way == 0:
        return int(rng.random() * state.counts.size)
    if way == 1:
        return table.occupied[int(rng.random() * table.sizes[0])]
    # draw a measured number of cell i by its weight, then one of the number's cells
    k = data.table_starts[i]
    last = data.table_starts[i + 1] - 1
    if last < k or table.weights[last] == 0.0:
        return i
    mark = rng.random() * table.weights[last]
    while table.weights[k] <= mark:
        k += 1
    first = data.member_starts[data.table_cells[k]]
    stop = data.member_starts[data.table_cells[k] + 1]
    return data.members[first + int(rng.random() * (stop - first))]


@njit(nogil=True, **INNER)
def _part(i, j, state, table, data, rng):
    """Divide the records of two cells anew, from their conditional distribution given their sum."""
    counts = state.counts
    shapes = state.shapes
    occupied = table.sizes[0]
    old = counts[i]
    both = counts[i] + counts[j]
    by_i = 1.0 / table.weights[data.table_starts[i + 1] - 1]
    by_j = 1.0 / table.weights[data.table_starts[j + 1] - 1]
    before = ((counts[i] > 0) * by_i + (counts[j] > 0) * by_j) / occupied
    # move all records to j, then one by one to i; the Gumbel trick draws a division from all log weights
    add(i, -old, state, table, data)
    add(j, old, state, table, data)
    chosen = 0
    log_weight = 0.0
    best = -math.log(rng.standard_exponential())
    for k in range(1, both + 1):
        log_weight += math.log(
            (shapes[i] + k - 1.0) * (both - k + 1.0) / (k * (shapes[j] + both - k))
        )
        log_weight += add(i, 1, state, table, data) + add(j, -1, state, table, data)
        mark = log_weight - math.log(rng.standard_exponential())
        if mark > best:
            chosen = k
            best = mark
    add(i, chosen - both, state, table, data)
    add(j, both - chosen, state, table, data)
    # the pair is chosen with other probabilities after the move: accept or restore
    after = ((counts[i] > 0) * by_i + (counts[j] > 0) * by_j) / table.sizes[0]
    if rng.random() * before >= after:
        add(i, old - chosen, state, table, data)
        add(j, chosen - old, state, table, data)


@njit(nogil=True, **INNER)
def move_between(turn, state, table, data, rng):
    """Move records from an occupied cell to another; four of eight turns choose a cell with a shared number."""
    counts = state.counts
    occupied = table.sizes[0]
    way = min(turn % 4, 2)
    if not occupied:
        return
    i = table.occupied[int(rng.random() * occupied)]
    j = _partner(i, way, state, table, data, rng)
    if turn % 8 == 3 and i != j and counts[i] + counts[j] <= 32:
        _part(i, j, state, table, data, rng)
        return
    by = size_of_move(table.scales, rng)
    if i == j or by > counts[i] or (way == 1 and by == counts[i]):
        return
    # log ratio: priors of both cells, noise, then the ratio of the proposals
    ratio = log_cell(counts[i], -by, state.shapes[i]) + log_cell(counts[j], by, state.shapes[j])
    ratio += add(i, -by, state, table, data) + add(j, by, state, table, data)
    ratio += math.log(occupied / table.sizes[0])
    if way == 2:
        starts = data.table_starts
        ratio += math.log(table.weights[starts[i + 1] - 1] / table.weights[starts[j + 1] - 1])
    if not math.log(rng.random()) < ratio:
        add(j, -by, state, table, data)
        add(i, by, state, table, data)


@njit(nogil=True)
def rounds_of(cells):
    """Return the rounds over the cells in a sweep: about 1,000 moves of cells, at most 64 rounds.

    The numbers are from `benchmarks/table_rounds.py`: consecutive draws of small tables are then nearly independent.
    """
    return min(1 + 1000 // max(cells, 1), 64)


@kept()
def advance_table(
    total, is_fixed, bounds, position, log_rows, state, table, data, prior, rng, first, last
):
    """Make some rounds over one table in place, then draw its row, and return the number of records."""
    state = by_reference(state)
    data = by_reference(data)
    prior = by_reference(prior)
    table = by_reference(table)
    cells = state.counts.size
    least = total if is_fixed else bounds[0]
    most = total if is_fixed else bounds[1]
    for rounds in range(first, last):
        if not is_fixed:
            total = _change_cells(bounds[0], bounds[1], total, state, table, data, rng)
        for turn in range(2 * cells):
            move_between(turn, state, table, data, rng)
        for _ in range(table.graph.arc_cells.size):
            total = move_along_cycle(least, most, total, state, table, data, rng)
        if position.size and rounds % 4 == 0:  # shapes in every fourth round; arbitrary
            move_shapes(position, state, data, prior, rng)
    draw_rows(log_rows, state, data, rng)
    return total


@dataclass(frozen=True, kw_only=True, eq=False)
class TableEngine(Rows):
    """Posterior over the whole counts of a model with one clique; parameters are those of `Rows`."""

    is_listed: ClassVar[bool] = False

    @cached_property
    def sums(self) -> ExactSums:
        """No sums: numbers without noise are measured numbers here."""
        return ExactSums(evidence=self.noisy, forest=self.forest, total=None)

    @cached_property
    def data(self) -> RecordData:
        """Arrays that moves read, with the numbers without noise."""
        return record_data(self.evidence, self.sums, self.gain)

    @property
    def operations_a_sweep(self) -> float:
        """Operations of one sweep of one chain."""
        cells = self.forest.cells.size
        # each margin, and the level, by two steps
        if self.shape_prior.size:
            passes = 2 * self.shape_prior.data.group_starts.size
        else:
            passes = 0
        moved = 4.0 * self.measured.entries.size + passes * cells / 4
        # 130 operations for each number that a moved cell is part of, and for each cell that a move of shapes reads
        return 130.0 * moved * self._rounds

    def chain(self, rng: np.random.Generator) -> RecordChain:
        """Return a chain with initial counts near the most detailed noisy numbers; cells with small ones are 0."""
        chain = super().chain(rng)
        counts = self._first_counts(rng)
        data = self.data
        is_occupied = counts > 0
        chain.total = int(counts.sum())
        chain.state.counts[:], chain.state.sums[:] = counts, np.rint(self.measured.answers(counts))
        # cumulative weights of the numbers of each cell
        sizes = np.diff(data.member_starts)[data.table_cells]
        starts = data.table_starts
        weights = np.cumsum(np.where(sizes > 1, 1.0 / np.sqrt(np.maximum(sizes, 2)), 0.0))
        before = np.concatenate([[0.0], weights])[starts[:-1]]
        deviation = self.evidence.noise_deviation.max(
            initial=0.5 if not self.evidence.noise else 0.0
        )
        chain.parts["cells"] = MoveCells(
            occupied=np.concatenate([np.flatnonzero(is_occupied), np.flatnonzero(~is_occupied)]),
            places=np.where(is_occupied, np.cumsum(is_occupied) - 1, -1),
            sizes=np.array([np.count_nonzero(is_occupied)]),
            weights=weights - np.repeat(before, np.diff(starts)),
            scales=1 + max(math.ceil(math.log2(2.0 * max(deviation, 0.5))), 0),
            graph=self._graph.for_one_chain(),
        )
        return chain

    def sweep(self, chain: RecordChain, sweeps: int) -> int:
        """Make the rounds of some sweeps, and draw the row."""
        rounds = self._rounds
        return advance_table(
            chain.total, self.total is not None, self.total_bounds, chain.kept["shape_position"],
            chain.kept["log_rows"], chain.state, chain.parts["cells"], self.data, self.shape_prior.data, chain.rng,
            rounds * chain.sweeps, rounds * (chain.sweeps + sweeps),
        )  # fmt: skip

    def _first_counts(self, rng: np.random.Generator) -> np.ndarray:
        """Draw initial counts within all bounds, that differ between chains by sampling and noise.

        A cell is assigned the measured number that it shares with the fewest other cells, and its expected count is
        an equal share of it. Numbers below two standard deviations of their noise give an expected count of nearly 0
        (arbitrary: chains leave such a start). Cells that no number measures have an additional number.
        """
        measured = self.measured
        cells = np.bincount(self.measured.sums)
        deviations = self.evidence.noise_deviation[measured.targets]
        numbers = self.evidence.noisy_counts[measured.targets]
        size = deviations.size
        order = np.lexsort((deviations[measured.sums], cells[measured.sums], measured.sources))
        own, first = np.unique(measured.sources[order], return_index=True)
        number = measured.sums[order][first]
        start = np.full(measured.cells.size, 1e-9)
        chosen = np.full(measured.cells.size, size)
        start[own] += np.where(
            numbers[number] > 2.0 * deviations[number], numbers[number] / cells[number], 0.0
        )
        chosen[own] = number
        # multinomial counts, but the sum behind each measured number deviates from it only by a few standard
        # deviations of its noise: moves have that size, and would need many sweeps to correct larger deviations
        assert self.bounds is not None
        total = self.first_total
        shares = start / start.sum()
        drawn = rng.multinomial(total, shares).astype(np.float64)
        sums, expected = (np.bincount(chosen, each, size + 1) for each in (drawn, total * shares))
        nearer = np.minimum(1.0, np.append(deviations, np.inf) / np.sqrt(np.maximum(expected, 1.0)))
        moved = np.divide(
            (1.0 - nearer) * (expected - sums), sums, out=np.zeros(size + 1), where=sums > 0
        )
        return self.bounds.table(total, drawn + drawn * moved[chosen])

    @property
    def first_total(self) -> int:
        """Number of records with which chains start, within all bounds."""
        assert self.bounds is not None
        return self.nearest_total(*self.bounds.extent)

    @cached_property
    def bounds(self) -> NestedSums | CrossingSums | None:
        """Bounds of sums, and N if it is public; None if moves would not reach every table."""
        try:
            hard = bounded_sums(self.evidence, self.measured, self.total)
            allowed = hard + allowed_sums(self.evidence, self.measured)
        except CrossingError:
            return None
        try:
            found = self._bounds_of(hard, allowed)
            if found is not None:
                _ = (
                    found.extent
                )  # raises an error if bounds of two directions contradict each other
        except ModelError:
            raise contradiction(self.evidence, allowed) from None
        return found

    def _bounds_of(
        self, hard: list[Bounded], allowed: list[Bounded]
    ) -> NestedSums | CrossingSums | None:
        """Return all bounds, or else those without the rules' bounds, which a start may leave; None if they cross."""
        cells = self.forest.cells.size
        kinds = ((NestedSums, allowed), (CrossingSums, allowed), (NestedSums, hard))
        for kind, family in (*kinds, (CrossingSums, hard)):
            try:
                return kind(cells, family)
            except CrossingError:
                continue
        return None

    @property
    def _rounds(self) -> int:
        """Number of rounds of a sweep: few where most moves are along cycles, which change several cells."""
        rounds = rounds_of(self.forest.cells.size)
        if self._graph.arc_cells.size:
            return min(rounds, _ROUNDS_OF_CYCLES)
        return rounds

    @property
    def _graph(self) -> SumGraph:
        """Graph of sums in two directions; without arcs where moves of one cell and of two reach every table."""
        if isinstance(self.bounds, CrossingSums):
            return self.bounds.graph
        return NO_GRAPH


def engine_of_rows(**parameters: Any) -> Rows:
    """Return the engine of Dirichlet rows over whole records; the parameters are those of `Rows`.

    With one clique it is the engine of a single table, unless bounds cross in three directions, so that its moves
    would not reach every table.
    """
    rows = Rows(**parameters)
    if len(rows.evidence.specification.scopes) != 1:
        return rows
    table = TableEngine(**parameters)
    if table.bounds is None:
        return rows
    return table
