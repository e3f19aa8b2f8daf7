"""Which cells of the model's cliques the cells of the measured tables are sums of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.model.tables import FloatArray, IntArray, cells_within

__all__ = ["MeasuredCells"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredCells:
    """Cells that may occur, of the model and of the measured tables.

    Parameters
    ----------
    cells
        Flat positions of the model's possible cells, ascending.
    targets
        Positions of the possible measured cells in the flat view of the noisy tables.
    sources, sums
        Possible cell ``sources[k]`` of the model counts in measured cell ``sums[k]``; both as numbered above.
    """

    cells: IntArray
    targets: IntArray
    sources: IntArray
    sums: IntArray

    @classmethod
    def of(cls, evidence: Evidence) -> MeasuredCells:
        """The cells of one evidence; each measured table is summed from the first clique that holds it."""
        model = evidence.specification
        supported = evidence.supported
        cells = np.arange(model.size) if supported is None else np.flatnonzero(supported)
        targets = np.flatnonzero(evidence.possible)
        number = np.full(model.size, -1)
        number[cells] = np.arange(cells.size)
        rank = np.full(evidence.offsets[-1], -1)
        rank[targets] = np.arange(targets.size)
        sources, sums = [np.zeros(0, int)], [np.zeros(0, int)]
        for position, scope in enumerate(evidence.scopes):
            home = model.parent(scope)
            measured = cells_within(model.cardinalities, scope, model.scopes[home])
            mine = number[model.offsets[home] : model.offsets[home + 1]]
            sources.append(mine[mine >= 0])
            sums.append(rank[evidence.offsets[position] + measured[mine >= 0]])
        return cls(cells=cells, targets=targets, sources=np.concatenate(sources), sums=np.concatenate(sums))

    @property
    def rows(self) -> tuple[IntArray, IntArray, FloatArray]:
        """The sums as a sparse matrix by rows: where each measured cell begins, the model's cells, and ones."""
        order = np.argsort(self.sums, kind="stable")
        starts = np.searchsorted(self.sums[order], np.arange(self.targets.size + 1))
        return starts, self.sources[order], np.ones(order.size)
