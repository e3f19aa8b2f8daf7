"""Cells of the model that each measured number sums, and rough estimates of their counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.least_squares import least_squares
from bayesprivmrf.inference.posterior.forest import JunctionForest
from bayesprivmrf.model.tables import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredCells:
    """Possible cells of the model and of the measured tables.

    Parameters
    ----------
    cells
        Flat positions of the model's possible cells, ascending.
    targets
        Positions of the possible measured cells in the flat view of the noisy tables.
    sources, sums, entries
        Possible cell ``sources[k]`` of the model counts ``entries[k]`` times in measured number ``sums[k]``. Cells
        and numbers are numbered as in `cells` and `targets`; entries are ordered by `sums`.
    """

    cells: IntArray
    targets: IntArray
    sources: IntArray
    sums: IntArray
    entries: FloatArray

    @classmethod
    def of(cls, evidence: Evidence) -> MeasuredCells:
        """Return the cells of one evidence; each measured table is summed in the first clique that contains it."""
        from scipy.sparse import eye_array

        cells = np.flatnonzero(evidence.supported_cells)
        rows = evidence.possible_rows()
        if rows is None:
            rows = eye_array(cells.size, format="csr")
        else:
            rows = rows[:, cells]
        entries = rows.tocoo()
        sums, sources = (np.asarray(place, dtype=int) for place in entries.coords)
        targets = np.flatnonzero(evidence.possible)
        return cls(cells=cells, targets=targets, sources=sources, sums=sums, entries=entries.data)

    def answers(self, counts: IntArray | FloatArray) -> FloatArray:
        """Return the exact values of the measured numbers, given the counts of the possible cells.

        Shape (..., cells) to (..., measured numbers).
        """
        from scipy.sparse import csr_array

        shape = self.targets.size, self.cells.size
        matrix = csr_array((self.entries, (self.sums, self.sources)), shape)
        flat = np.reshape(counts, (-1, self.cells.size))
        return (matrix @ flat.T).T.reshape(*np.shape(counts)[:-1], self.targets.size)

    @property
    def rows(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Sums as a sparse matrix by rows: the start of each measured number, the model's cells, and the entries."""
        starts = np.searchsorted(self.sums, np.arange(self.targets.size + 1))
        return starts, self.sources, self.entries


def rough_counts(
    evidence: Evidence, forest: JunctionForest, total: float
) -> tuple[FloatArray, FloatArray]:
    """Return the mean noisy count of each cell, and its precision, in the order of ``forest.cells``.

    Only tables of whole cliques are used. In cliques without one the total is spread evenly, with precision 0. If
    queries were measured, the counts are the least-squares solution of their answers.
    """
    if evidence.queries is not None:
        found = least_squares(evidence)
        counts = found.counts
        variance = np.where(found.undetermined, np.inf, found.variances)
        return forest.with_inner(counts), 1 / forest.with_inner(variance)
    precision, weighted = np.zeros((2, forest.offsets[-1]))
    for position, scope in enumerate(evidence.scopes):
        home = evidence.specification.parent(scope)
        if len(scope) == len(forest.scopes[home]):
            noisy = evidence.offsets[position] + forest.separator_states(home, scope)
            own = slice(*forest.offsets[home : home + 2])
            information = 1 / evidence.noise_scale[noisy] ** 2
            precision[own] += information
            weighted[own] += information * evidence.noisy_counts[noisy]
    sizes = np.diff(forest.offsets)
    even = np.repeat(total / np.maximum(sizes, 1), sizes)
    counts = np.divide(weighted, precision, out=even, where=precision > 0)
    variance = np.divide(1, precision, out=np.full_like(precision, np.inf), where=precision > 0)
    # variances of cells add up in the inner cells
    return forest.with_inner(counts), 1 / forest.with_inner(variance)
