"""The number of records that noisy tables tell."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy import NoiseLaw


def sums_of_tables(
    model: ModelSpecification, flat: FloatArray, noise: Sequence[NoiseLaw]
) -> tuple[FloatArray, FloatArray]:
    """Return the sum of each table's cells and its precision; infinite for an exact one.

    Parameters
    ----------
    model
        The declared model, whose impossible cells have no noise.
    flat
        All noisy counts, shape (size,).
    noise
        The law of each table.
    """
    possible = np.ones(model.size, bool) if model.possible is None else model.possible
    sums, precisions = [], []
    for start, stop, law in zip(model.offsets, model.offsets[1:], noise, strict=False):
        if law.kernel == "within":
            continue  # a midpoint is no estimate
        cells = int(possible[start:stop].sum())
        sums.append(float(flat[start:stop].sum()))
        precisions.append(1 / (cells * law.variance) if law.variance > 0 else math.inf)
    return np.array(sums), np.array(precisions)


def pooled_total(sums: FloatArray, precisions: FloatArray) -> float:
    """Return the unbiased combination of least variance; the first exact one where there is one, NaN for none."""
    if not len(sums):
        return math.nan
    if np.isinf(precisions).any():
        return float(sums[np.isinf(precisions)][0])
    return float(sums @ precisions / precisions.sum())
