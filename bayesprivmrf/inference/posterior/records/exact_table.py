r"""The exact posterior of a model of one clique: its table of whole counts, moved cell by cell.

The posterior is that of `ExactRecords`, and no count is relaxed here either. With one clique there is nothing that
tables must agree on, so that counts move by themselves (`table_moves`), and a sweep costs what the cells are measured
by, whatever N: large tables that are mostly empty, measured by tables, coarsenings and sums of theirs. Any query and
both kernels of noise are read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.posterior.effort import CellSpread, sweeps_of_table
from bayesprivmrf.inference.posterior.records.bounds import (
    CONTRADICTION,
    CrossingError,
    NestedSums,
    bounded_sums,
    half_widths,
)
from bayesprivmrf.inference.posterior.records.chains import Kept, RecordChain
from bayesprivmrf.inference.posterior.records.engine import ExactRecords
from bayesprivmrf.inference.posterior.records.shape_moves import MANY
from bayesprivmrf.inference.posterior.records.table_moves import (
    TableState,
    TableTape,
    advance_table,
    rounds_of,
)
from bayesprivmrf.inference.posterior.records.tape import grouped
from bayesprivmrf.model.tables import FloatArray, IntArray

_OPERATIONS = 130.0
"""Operations of moves of one cell for each number that it is part of, and of one move of the shapes for each cell."""

_SURE = 2.0
"""Standard deviations of the noise below which a chain may start with a cell empty."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactTable(ExactRecords):
    """The posterior of a model of one clique; parameters are those of `HyperDirichlet`."""

    @cached_property
    def _table_tape(self) -> TableTape:
        measured, cells = self._measured, self.forest.cells.size
        order = np.argsort(measured.sources, kind="stable")
        starts = np.searchsorted(measured.sources[order], np.arange(cells + 1))
        member_starts, members = grouped(measured.sums, measured.sources, measured.targets.size)
        laws = self.evidence.noise
        widths = self.evidence.spread([law.scale for law in laws])[measured.targets]
        deviations = np.sqrt(self.evidence.spread([law.variance for law in laws])[measured.targets])
        bases = [law.base_law for law in laws]
        shared = np.diff(member_starts)[measured.sums[order]]
        weights = np.cumsum(np.where(shared > 1, 1.0 / np.sqrt(np.maximum(shared, 2)), 0.0))
        before = np.concatenate([[0.0], weights])[starts[:-1]]
        return TableTape(
            clique_rows=np.array([0, 1]),
            row_starts=np.array([0, cells]),
            entry_starts=starts,
            entry_sums=measured.sums[order],
            entries=measured.entries[order],
            weights=weights - np.repeat(before, np.diff(starts)),
            member_starts=member_starts,
            members=members,
            widths=widths,
            absolute=self.evidence.spread([law.kernel == "absolute" for law in bases])[measured.targets] > 0,
            halves=half_widths(self.evidence)[measured.targets],
            scales=1 + max(math.ceil(math.log2(2.0 * deviations.max(initial=0.5))), 0),
        )

    @property
    def operations_a_sweep(self) -> float:
        """Operations of one sweep of one chain (`effort`)."""
        cells = self.forest.cells.size
        margins = np.diff(self.prior.tape.group_starts)
        passes = np.where(margins > MANY, 2, margins).sum() + 1 if self.prior.size else 0
        moved = 4.0 * self._measured.entries.size + passes * cells / 4
        return _OPERATIONS * moved * rounds_of(cells)

    @property
    def work(self) -> float:
        """Operations per effective draw (`effort`)."""
        spread = CellSpread.of(self.evidence, self._measured, self.first_total)
        return self.operations_a_sweep * sweeps_of_table(spread, rounds_of(self.forest.cells.size))

    @property
    def bytes_a_record(self) -> int:
        """Memory of one record: none, since only the table is kept."""
        return 0

    def chain(self, rng: np.random.Generator) -> RecordChain:
        """Whole counts near the finest noisy numbers, the small ones empty; shapes drawn from their prior."""
        cells, positions = self.forest.cells.size, self.prior.size
        position = rng.standard_normal(positions)
        counts = self._first_counts(rng)
        state = TableState(
            shapes=self.prior.shapes(position),
            counts=counts,
            residuals=self._sums(counts) - self.evidence.noisy_counts[self._measured.targets],
            occupied=np.concatenate([np.flatnonzero(counts), np.zeros(np.sum(counts == 0), np.int64)]),
            places=np.where(counts > 0, np.cumsum(counts > 0) - 1, -1),
            sizes=np.array([np.count_nonzero(counts)]),
        )
        return RecordChain(
            sweep=self._sweep,
            kept={"counts": (cells,), "log_rows": (cells,), "total": (), "shape_position": (positions,)},
            rng=rng,
            total=int(counts.sum()),
            latent=np.zeros((0, 0), np.int32),
            state=state,
            births=0,
            parts={"position": position},
        )

    def _sweep(self, chain: RecordChain, out: Kept, thin: int) -> int:
        return advance_table(
            chain.total, self.total is not None, self.total_bounds, chain.parts["position"], chain.state,
            self._table_tape, self.prior.tape, chain.rng, thin, tuple(out.values()),
        )  # fmt: skip

    @cached_property
    def _start(self) -> tuple[FloatArray, IntArray, FloatArray]:
        """Expected initial counts, each cell's share of the number that it shares with fewest others.

        Where that number is hardly more than noise, nearly nothing is expected. Also returns which number each cell
        was given, and the standard deviation of each number; cells that no number tells of have one of their own.
        """
        measured, laws = self._measured, self.evidence.noise
        deviations = np.sqrt(self.evidence.spread([law.variance for law in laws])[measured.targets])
        numbers, cells = self.evidence.noisy_counts[measured.targets], np.bincount(measured.sums)
        order = np.lexsort((deviations[measured.sums], cells[measured.sums], measured.sources))
        own, first = np.unique(measured.sources[order], return_index=True)
        number = measured.sums[order][first]
        result, chosen = np.full(measured.cells.size, 1e-9), np.full(measured.cells.size, numbers.size)
        result[own] += np.where(
            numbers[number] > _SURE * deviations[number], numbers[number] / cells[number], 0.0
        )
        chosen[own] = number
        return result, chosen, np.append(deviations, np.inf)

    def _first_counts(self, rng: np.random.Generator) -> np.ndarray:
        """Draw initial counts, within all bounds, that are apart by no more than sampling and noise explain.

        They are multinomial, except that the sum behind each number deviates from it by a few standard deviations of
        the noise at most: the moves are of that size, and would take long to cover the many of a large table.
        """
        assert self._bounds is not None
        low, high = self._bounds.extent
        if self.total is None:
            low, high = max(low, int(self.total_bounds[0])), min(high, int(self.total_bounds[1]))
        if low > high:
            raise ModelError(CONTRADICTION)
        total = min(max(self.first_total, low), high)
        start, chosen, deviations = self._start
        drawn = rng.multinomial(total, start / start.sum()).astype(np.float64)
        sums, size = np.bincount(chosen, drawn, deviations.size), deviations.size
        expected = np.bincount(chosen, total * start / start.sum(), size)
        nearer = np.minimum(1.0, deviations / np.sqrt(np.maximum(expected, 1.0)))
        moved = np.divide((1.0 - nearer) * (expected - sums), sums, out=np.zeros(size), where=sums > 0)
        return self._bounds.table(total, drawn + drawn * moved[chosen])

    @property
    def reaches_all(self) -> bool:
        """Whether moves of one cell and between two cells reach every table within the bounds without noise."""
        return self._bounds is not None

    @cached_property
    def _bounds(self) -> NestedSums | None:
        """Bounds without noise, and the number of records where that is public; None where they cross."""
        try:
            return NestedSums(self.forest.cells.size, bounded_sums(self.evidence, self._measured, self.total))
        except CrossingError:
            return None

    def model(self) -> Any:
        """A PyMC model of the same posterior with relaxed counts; counts within bounds have none."""
        if self.evidence.has_bounds or self.evidence.is_exact.any():
            raise ModelError(
                "a model of PyMC relaxes the counts, which those known within bounds or without noise do not allow; "
                "leave it out, or leave out the bounds and the exact numbers."
            )
        return super().model()

    def _sums(self, counts: np.ndarray) -> FloatArray:
        """The measured numbers of tables, shape (..., measured numbers)."""
        from scipy.sparse import csr_array

        measured = self._measured
        rows = csr_array(
            (measured.entries, (measured.sums, measured.sources)),
            (measured.targets.size, measured.cells.size),
        )
        return np.moveaxis(rows @ np.moveaxis(counts, -1, 0).reshape(measured.cells.size, -1), 0, -1).reshape(
            *np.shape(counts)[:-1], measured.targets.size
        )
