"""Numbers of an evidence that have no noise, exact or within bounds, and the sums of cells among them."""

from __future__ import annotations

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.measured_cells import MeasuredCells
from bayesprivmrf.inference.posterior.records.nested_sums import Bounded, CrossingError
from bayesprivmrf.model.tables import FloatArray


def half_widths(evidence: Evidence) -> FloatArray:
    """Half the distance of each number's bounds, 0 for an exact one and -1 for noisy ones, shape (numbers,)."""
    return evidence.spread(
        [
            law.half_width if law.kernel == "within" else 0.0 if law.variance == 0 else -1.0
            for law in evidence.noise
        ]
    )


def held_numbers(evidence: Evidence) -> np.ndarray:
    """Mask of the possible numbers that have no noise, exact or within bounds, shape (numbers,)."""
    scale = evidence.spread([law.scale for law in evidence.noise])
    return evidence.possible & (half_widths(evidence) >= 0) & (scale == 0)


def bounded_sums(evidence: Evidence, measured: MeasuredCells, total: float | None) -> list[Bounded]:
    """The bounds of sums of cells without noise, and the number of records where that is public.

    Raises
    ------
    CrossingError
        A number is no sum of cells, each counted once.
    """
    is_held, halves = (values[measured.targets] for values in (held_numbers(evidence), half_widths(evidence)))
    middle, found = evidence.noisy_counts[measured.targets], []
    for number in np.flatnonzero(is_held):
        own = measured.sums == number
        if (measured.entries[own] != 1).any():
            raise CrossingError
        ends = np.ceil(middle[number] - halves[number]), np.floor(middle[number] + halves[number])
        found.append(Bounded(measured.sources[own], max(int(ends[0]), 0), int(ends[1])))
    if total is not None:
        found.append(Bounded(np.arange(measured.cells.size), round(total), round(total)))
    return found
