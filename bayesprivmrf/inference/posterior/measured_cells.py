"""Which cells of the model's cliques the measured numbers are sums of, and how often they count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.model.tables import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredCells:
    """Cells that may occur, of the model and of the measured tables.

    Parameters
    ----------
    cells
        Flat positions of the model's possible cells, ascending.
    targets
        Positions of the possible measured cells in the flat view of the noisy tables.
    sources, sums, entries
        Possible cell ``sources[k]`` of the model counts ``entries[k]`` times in measured number ``sums[k]``; both as
        numbered above, by rows.
    """

    cells: IntArray
    targets: IntArray
    sources: IntArray
    sums: IntArray
    entries: FloatArray

    @classmethod
    def of(cls, evidence: Evidence) -> MeasuredCells:
        """The cells of one evidence; each measured table is summed from the first clique that holds it."""
        from scipy.sparse import eye_array

        cells, targets = evidence.supported, np.flatnonzero(evidence.possible)
        cells = np.arange(evidence.specification.size) if cells is None else np.flatnonzero(cells)
        rows = evidence.possible_rows()
        rows = eye_array(cells.size, format="csr") if rows is None else rows[:, cells]
        entries = rows.tocoo()
        sums, sources = (np.asarray(place, dtype=int) for place in entries.coords)
        return cls(cells=cells, targets=targets, sources=sources, sums=sums, entries=entries.data)

    def answers(self, counts: IntArray | FloatArray) -> FloatArray:
        """Return the measured numbers of the possible cells' counts, shape (..., measured numbers)."""
        from scipy.sparse import csr_array

        shape = self.targets.size, self.cells.size
        matrix = csr_array((self.entries, (self.sums, self.sources)), shape)
        flat = np.reshape(counts, (-1, self.cells.size))
        return (matrix @ flat.T).T.reshape(*np.shape(counts)[:-1], self.targets.size)

    @property
    def rows(self) -> tuple[IntArray, IntArray, FloatArray]:
        """The sums as a sparse matrix by rows: where each measured number begins, the model's cells, and entries."""
        starts = np.searchsorted(self.sums, np.arange(self.targets.size + 1))
        return starts, self.sources, self.entries
