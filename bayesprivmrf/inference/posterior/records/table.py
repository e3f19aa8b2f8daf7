r"""Engine for models with one clique: the whole counts of a single table move cell by cell.

The posterior is that of `RecordEngine` with the prior `Rows`, and no count is relaxed. With one clique no tables have
to agree, so counts can move one at a time (`table_moves`). The cost of a sweep depends on the number of measurements
of the cells, and not on N. The engine is meant for large tables that are mostly empty, and measured by tables,
coarsenings and sums. It supports all queries and both noise kernels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bayesprivmrf.inference.posterior.formulation import CellSpread, sweeps_of_table
from bayesprivmrf.inference.posterior.records.bounds import (
    CrossingError,
    NestedSums,
    bounded_sums,
    half_widths,
)
from bayesprivmrf.inference.posterior.records.chains import Kept, RecordChain, grouped
from bayesprivmrf.inference.posterior.records.engine import RecordEngine
from bayesprivmrf.inference.posterior.records.prior import Rows
from bayesprivmrf.inference.posterior.records.shape_moves import MANY
from bayesprivmrf.inference.posterior.records.table_moves import (
    TableData,
    TableState,
    advance_table,
    rounds_of,
)
from bayesprivmrf.model.tables import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class TableEngine(RecordEngine):
    """Posterior over the whole counts of a model with one clique; parameters are those of `RecordEngine`."""

    prior: Rows

    @cached_property
    def _table_data(self) -> TableData:
        measured, cells = self.prior.measured, self.prior.forest.cells.size
        order = np.argsort(measured.sources, kind="stable")
        starts = np.searchsorted(measured.sources[order], np.arange(cells + 1))
        member_starts, members = grouped(measured.sums, measured.sources, measured.targets.size)
        distributions = self.evidence.noise
        widths = self.evidence.spread([distribution.scale for distribution in distributions])[
            measured.targets
        ]
        deviations = np.sqrt(
            self.evidence.spread([distribution.variance for distribution in distributions])[measured.targets]
        )
        bases = [distribution.base_law for distribution in distributions]
        shared = np.diff(member_starts)[measured.sums[order]]
        weights = np.cumsum(np.where(shared > 1, 1.0 / np.sqrt(np.maximum(shared, 2)), 0.0))
        before = np.concatenate([[0.0], weights])[starts[:-1]]
        return TableData(
            clique_rows=np.array([0, 1]),
            row_starts=np.array([0, cells]),
            entry_starts=starts,
            entry_sums=measured.sums[order],
            entries=measured.entries[order],
            weights=weights - np.repeat(before, np.diff(starts)),
            member_starts=member_starts,
            members=members,
            widths=widths,
            absolute=self.evidence.spread([distribution.kernel == "absolute" for distribution in bases])[
                measured.targets
            ]
            > 0,
            halves=half_widths(self.evidence)[measured.targets],
            scales=1 + max(math.ceil(math.log2(2.0 * deviations.max(initial=0.5))), 0),
        )

    @property
    def operations_a_sweep(self) -> float:
        """Operations of one sweep of one chain (`effort`)."""
        cells = self.prior.forest.cells.size
        margins = np.diff(self.prior.shape_prior.data.group_starts)
        passes = np.where(margins > MANY, 2, margins).sum() + 1 if self.prior.shape_prior.size else 0
        moved = 4.0 * self.prior.measured.entries.size + passes * cells / 4
        # 130 operations for each number that a moved cell is part of, and for each cell that a move of shapes reads
        return 130.0 * moved * rounds_of(cells)

    @property
    def work(self) -> float:
        """Operations per effective draw (`effort`)."""
        spread = CellSpread.of(self.evidence, self.prior.measured, self.first_total)
        return self.operations_a_sweep * sweeps_of_table(spread, rounds_of(self.prior.forest.cells.size))

    @property
    def bytes_a_record(self) -> int:
        """Memory of one record: 0, since only the table is stored."""
        return 0

    def chain(self, rng: np.random.Generator) -> RecordChain:
        """Return a chain with initial counts near the most detailed noisy numbers; cells with small ones are 0."""
        start, counts = self.prior.start(rng), self._first_counts(rng)
        state = TableState(
            shapes=start.shapes,
            counts=counts,
            residuals=self.prior.measured.answers(counts)
            - self.evidence.noisy_counts[self.prior.measured.targets],
            occupied=np.concatenate([np.flatnonzero(counts), np.zeros(np.sum(counts == 0), np.int64)]),
            places=np.where(counts > 0, np.cumsum(counts > 0) - 1, -1),
            sizes=np.array([np.count_nonzero(counts)]),
        )
        return RecordChain(
            sweep=self._sweep,
            kept=start.kept,
            rng=rng,
            total=int(counts.sum()),
            latent=np.zeros((0, 0), np.int32),
            state=state,
            births=0,
            parts=start.parts,
        )

    def _sweep(self, chain: RecordChain, out: Kept, thin: int) -> int:
        prior = self.prior
        return advance_table(
            chain.total, self.total is not None, prior.total_bounds, chain.parts["position"], chain.state,
            self._table_data, prior.shape_prior.data, chain.rng, thin, tuple(out.values()),
        )  # fmt: skip

    @cached_property
    def _start(self) -> tuple[FloatArray, IntArray, FloatArray]:
        """Expected initial counts, the number that each cell was assigned, and the standard deviation of each number.

        A cell is assigned the measured number that it shares with the fewest other cells, and its expected count is
        an equal share of it. Numbers below two standard deviations of their noise give an expected count of nearly 0
        (arbitrary: chains leave such a start). Cells that no number measures have an additional number.
        """
        measured, distributions = self.prior.measured, self.evidence.noise
        deviations = np.sqrt(
            self.evidence.spread([distribution.variance for distribution in distributions])[measured.targets]
        )
        numbers, cells = self.evidence.noisy_counts[measured.targets], np.bincount(measured.sums)
        order = np.lexsort((deviations[measured.sums], cells[measured.sums], measured.sources))
        own, first = np.unique(measured.sources[order], return_index=True)
        number = measured.sums[order][first]
        result, chosen = np.full(measured.cells.size, 1e-9), np.full(measured.cells.size, numbers.size)
        result[own] += np.where(
            numbers[number] > 2.0 * deviations[number], numbers[number] / cells[number], 0.0
        )
        chosen[own] = number
        return result, chosen, np.append(deviations, np.inf)

    def _first_counts(self, rng: np.random.Generator) -> np.ndarray:
        """Draw initial counts within all bounds, that differ between chains by sampling and noise.

        They are multinomial, but the sum behind each measured number deviates from it only by a few standard
        deviations of its noise. Moves have that size, and would need many sweeps to correct larger deviations.
        """
        assert self._bounds is not None
        total = self.prior.nearest_total(*self._bounds.extent)
        start, chosen, deviations = self._start
        drawn = rng.multinomial(total, start / start.sum()).astype(np.float64)
        sums, size = np.bincount(chosen, drawn, deviations.size), deviations.size
        expected = np.bincount(chosen, total * start / start.sum(), size)
        nearer = np.minimum(1.0, deviations / np.sqrt(np.maximum(expected, 1.0)))
        moved = np.divide((1.0 - nearer) * (expected - sums), sums, out=np.zeros(size), where=sums > 0)
        return self._bounds.table(total, drawn + drawn * moved[chosen])

    @property
    def first_total(self) -> int:
        """Number of records with which chains start, before bounds are taken into account."""
        return self.prior.nearest_total(0, None)

    @property
    def reaches_all(self) -> bool:
        """True if moves of one cell and between two cells reach every table within the exact bounds."""
        return self._bounds is not None

    @cached_property
    def _bounds(self) -> NestedSums | None:
        """Exact bounds, and the number of records if it is public; None if they cross."""
        try:
            sums = bounded_sums(self.evidence, self.prior.measured, self.total)
            return NestedSums(self.prior.forest.cells.size, sums)
        except CrossingError:
            return None
