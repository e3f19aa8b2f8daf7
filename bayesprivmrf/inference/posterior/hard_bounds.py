r"""Sums of cells that are known exactly, or within bounds: which the sampler of tables takes, and where it starts.

Moves of one cell, and of records between two cells, must reach every table within the bounds. They do where the
bounds are of sums of cells, each counted once, that are pairwise nested or disjoint: the tables are then an M♮-convex
set of whole vectors, any two of which are linked inside it by steps of :math:`\pm e_i` and :math:`e_i - e_j`. Where
the number of records is public, it is one more such sum, and the steps :math:`e_i - e_j` suffice (Murota 2003,
chapters 4 and 6). Row and column sums together are no such family: a table with both fixed moves by four cells at
once alone.

A table within the bounds is found from the smallest sums to the largest. Every sum is first raised to its own lower
bound, where those inside it have room: as these hold the least that they can, so does it, and a sum above its upper
bound means that no table meets all of them.

References
----------
Murota (2003). Discrete convex analysis. SIAM.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.measured_cells import MeasuredCells
from bayesprivmrf.model.tables import FloatArray, IntArray

__all__ = ["HardBounds", "half_widths"]

_CONTRADICTION = (
    "bounds and numbers without noise must leave some table of counts, but contradict each other; correct "
    "one."
)


def half_widths(evidence: Evidence) -> FloatArray:
    """Half the distance of each number's bounds, 0 for an exact one and -1 for noisy ones, shape (numbers,)."""
    return evidence.spread(
        [
            law.half_width if law.kernel == "within" else 0.0 if law.variance == 0 else -1.0
            for law in evidence.noise
        ]
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class HardBounds:
    """Bounds of sums of cells that are nested or disjoint, the smallest first.

    Parameters
    ----------
    members
        Which cells each sum has, shape (sums, cells).
    lowest, highest
        The bounds of each, whole numbers.
    """

    members: np.ndarray
    lowest: IntArray
    highest: IntArray

    @classmethod
    def of(cls, evidence: Evidence, measured: MeasuredCells, total: float | None) -> HardBounds | None:
        """The bounds of an evidence; None where it has none.

        Raises
        ------
        ModelError
            They are not of sums of cells that are nested or disjoint, or a bound is infinite.
        """
        scale = evidence.spread([law.scale for law in evidence.noise])[measured.targets]
        halves = half_widths(evidence)[measured.targets]
        held = np.flatnonzero((halves >= 0) & (scale == 0))
        if not held.size:
            return None
        members = np.zeros((measured.targets.size, measured.cells.size), bool)
        members[measured.sums, measured.sources] = True
        is_sum = np.bincount(measured.sums, measured.entries != 1, measured.targets.size) == 0
        middle = evidence.noisy_counts[measured.targets]
        lowest, highest = np.ceil(middle - halves)[held], np.floor(middle + halves)[held]
        members, is_sum = members[held], is_sum[held]
        if total is not None:
            members = np.vstack([members, np.ones((1, members.shape[1]), bool)])
            lowest, highest, is_sum = (
                np.append(lowest, total),
                np.append(highest, total),
                np.append(is_sum, True),
            )
        order = np.argsort(members.sum(axis=1), kind="stable")
        members = members[order]
        shared = members.astype(int) @ members.T.astype(int)
        sizes = np.diag(shared)
        if not is_sum.all() or not ((shared == 0) | (shared == np.minimum.outer(sizes, sizes))).all():
            raise ModelError(
                "counts within bounds, and numbers without noise beside them, must be of cells or of sums of cells "
                "that are nested or disjoint, each cell counted once, or else the sampler would not reach every "
                "table; leave out the others, state the noise before the bounds, or, without bounds, "
                "use NoiseAwareMAP."
            )
        return cls(
            members=members, lowest=lowest[order].astype(np.int64), highest=highest[order].astype(np.int64)
        )

    def table_near(self, wanted: IntArray) -> IntArray:
        """A table within the bounds, with counts up to those wanted where that is possible.

        Raises
        ------
        ModelError
            There is none.
        """
        counts = np.zeros_like(wanted)
        for position, lowest in enumerate(self.lowest):
            for most in (wanted, None):
                self._raise_to(lowest, position, counts, most)
            if not lowest <= counts[self.members[position]].sum() <= self.highest[position]:
                raise ModelError(_CONTRADICTION)
        for cell in np.flatnonzero(wanted > counts).tolist():
            counts[cell] += min(wanted[cell] - counts[cell], self._room(cell, counts, len(self.lowest)))
        return counts

    def _raise_to(self, lowest: int, position: int, counts: IntArray, most: IntArray | None) -> None:
        """Add records to the cells of a sum until it is at its lower bound, none beyond `most` in a cell."""
        for cell in np.flatnonzero(self.members[position]).tolist():
            need = lowest - counts[self.members[position]].sum()
            if need <= 0:
                return
            room = need if most is None else max(most[cell] - counts[cell], 0)
            counts[cell] += min(need, room, self._room(cell, counts, position))

    def _room(self, cell: int, counts: IntArray, before: int) -> int:
        """How many records a cell may still get by the first sums alone."""
        own = np.flatnonzero(self.members[:before, cell])
        left = [self.highest[place] - counts[self.members[place]].sum() for place in own]
        return min(left, default=int(np.iinfo(np.int64).max))
