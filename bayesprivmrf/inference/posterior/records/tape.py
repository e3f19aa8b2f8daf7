"""The arrays that moves of whole records take: what never changes, and the state of one chain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.forest import JunctionForest
from bayesprivmrf.inference.posterior.measured_cells import MeasuredCells
from bayesprivmrf.model.tables import FloatArray, IntArray

_MOST_NATS = 300.0
"""Bound of what one more record in a cell changes; its exponential and that of twice as many are finite."""
_MOST_TABLES = 10
"""Measured cells that a cell may be part of for the bound of each to be far from what matters."""


class RecordTape(NamedTuple):
    """The arrays that the compiled functions take; cells are in the order of ``forest.cells``."""

    row_starts: IntArray
    clique_rows: IntArray  # first row of each of the forest's tables, and the number of rows last
    row_cliques: IntArray
    cell_rows: IntArray
    source_starts: IntArray
    sources: IntArray
    child_starts: IntArray  # of each cell, where its children's rows begin in `child_rows`
    child_rows: IntArray
    table_starts: IntArray  # of each cell, where its measured cells begin in `table_cells`
    table_cells: IntArray
    table_weights: IntArray  # how often it counts there
    member_starts: IntArray  # of each measured cell, where its cells begin in `members`
    members: IntArray
    member_weights: IntArray
    noisy: FloatArray
    widths: FloatArray
    absolute: NDArray[np.bool_]
    gain: (
        float  # what a record adds to the weight of its cell: 1 where rows are integrated out, 0 where given
    )
    most_nats: (
        float  # bound of a measured cell's log ratio, or of all ratios of a cell: exponentials are finite
    )
    is_direct: (
        bool  # whether each number counts records of one clique, and a cell is in few: without `answer_moves`
    )


class ChainState(NamedTuple):
    """Tables of one chain and what follows from them; the arrays change in place."""

    shapes: FloatArray  # α of each cell
    counts: IntArray  # n of each cell
    sums: IntArray  # and of each measured cell
    boosts: FloatArray  # of each measured cell, the ratio of the noise's densities at one more record
    weights: FloatArray
    wholes: FloatArray  # n + α of each row
    values: FloatArray  # room for sweeps
    totals: FloatArray
    messages: FloatArray
    block: IntArray  # tables of a block of records, then of the others
    block_sums: IntArray
    block_boosts: FloatArray
    stale: FloatArray  # weights and wholes of the tables without the block
    stale_wholes: FloatArray
    proposal: IntArray
    current: IntArray
    moved: IntArray  # room for what a record adds to each measured cell

    @classmethod
    def empty(cls, tape: RecordTape, shapes: FloatArray) -> ChainState:
        """Tables without records."""
        cells, rows, cliques = shapes.size, len(tape.row_cliques), len(tape.clique_rows) - 1
        return cls(
            shapes=shapes,
            counts=np.zeros(cells, np.int64),
            sums=np.zeros(tape.noisy.size, np.int64),
            boosts=np.zeros(tape.noisy.size),
            weights=np.zeros(cells),
            wholes=np.zeros(rows),
            values=np.zeros(cells),
            totals=np.zeros(rows),
            messages=np.zeros(rows),
            block=np.zeros(cells, np.int64),
            block_sums=np.zeros(tape.noisy.size, np.int64),
            block_boosts=np.zeros(tape.noisy.size),
            stale=np.zeros(cells),
            stale_wholes=np.zeros(rows),
            proposal=np.zeros(cliques, np.int64),
            current=np.zeros(cliques, np.int64),
            moved=np.zeros(tape.noisy.size, np.int64),
        )


def record_tape(evidence: Evidence, forest: JunctionForest, *, gain: float = 1.0) -> RecordTape:
    """The arrays of one evidence, whose model's cliques are the forest's."""
    measured = MeasuredCells.of(evidence)
    place, row_starts = forest.places, forest.row_starts
    clique_rows = np.searchsorted(row_starts, [0, *(table.stop for table in forest.tables)])
    row_cliques = np.repeat(np.arange(len(forest.tables)), np.diff(clique_rows))
    cell_rows = np.repeat(np.arange(row_cliques.size), forest.row_sizes)
    rows = np.repeat(np.arange(row_cliques.size), np.diff(forest.source_starts))
    child_starts, child_rows = grouped(forest.sources, rows, forest.cells.size)
    own = place[measured.sources]
    weights = np.rint(measured.entries).astype(np.int64)
    table_starts, table_cells = grouped(own, measured.sums, forest.cells.size)
    member_starts, members = grouped(measured.sums, own, measured.targets.size)
    most = int(np.diff(table_starts).max(initial=0))
    is_direct = most <= _MOST_TABLES and not _is_pooled(measured.sums, row_cliques[cell_rows[own]])
    is_direct &= bool((weights == 1).all())
    return RecordTape(
        row_starts=row_starts,
        clique_rows=clique_rows,
        row_cliques=row_cliques,
        cell_rows=cell_rows,
        source_starts=forest.source_starts,
        sources=forest.sources,
        child_starts=child_starts,
        child_rows=child_rows,
        table_starts=table_starts,
        table_cells=table_cells,
        table_weights=grouped(own, weights, forest.cells.size)[1],
        member_starts=member_starts,
        members=members,
        member_weights=grouped(measured.sums, weights, measured.targets.size)[1],
        noisy=evidence.noisy_counts[measured.targets],
        widths=evidence.spread([law.scale for law in evidence.noise])[measured.targets],
        absolute=evidence.is_absolute[measured.targets],
        gain=gain,
        most_nats=_MOST_NATS / max(1, most) if is_direct else _MOST_NATS,
        is_direct=is_direct,
    )


def _is_pooled(sums: IntArray, cliques: IntArray) -> bool:
    """Whether a measured number reads cells of several cliques."""
    read = np.unique(np.stack([sums, cliques]), axis=1)
    return bool(np.bincount(read[0], minlength=1).max() > 1)


def grouped(keys: IntArray, values: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """Values sorted by key, and where each key's begin."""
    order = np.argsort(keys, kind="stable")
    starts = np.searchsorted(keys[order], np.arange(size + 1))
    return starts.astype(np.int64), np.asarray(values, np.int64)[order]
