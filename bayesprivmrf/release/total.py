"""The number of records that noisy measurements tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.queries import BoundQuery
from bayesprivmrf.release.measurement import Measurement


def told_totals(
    measurements: Sequence[Measurement], bound: Sequence[BoundQuery] | None, informative: np.ndarray
) -> tuple[FloatArray, FloatArray]:
    """Return the number of records by each measurement that tells it, and its precision; infinite for an exact one.

    Queries of one scope, none of which tells the number by itself, may tell it together; these come first. A count
    within bounds tells nothing, as its midpoint is no estimate.

    Parameters
    ----------
    measurements
        What was measured.
    bound
        The queries on the model; None where each is a whole table.
    informative
        The numbers that count some possible cell: others have no noise.
    """
    masks = np.split(informative, np.cumsum([each.values.size for each in measurements]))[:-1]
    alone, scopes = [], {}
    for position, (one, mask) in enumerate(zip(measurements, masks, strict=True)):
        if one.noise.kernel == "within":
            continue
        if bound is None:
            alone.append(_estimate(float(one.values.sum()), float(mask.sum()) * one.noise.variance, one))
        elif (weights := bound[position].total_weights) is not None:
            squares = float(weights[mask] @ weights[mask])
            alone.append(_estimate(float(weights @ one.values), squares * one.noise.variance, one))
        elif len(bound[position].scopes) == 1:
            scopes.setdefault(bound[position].scopes[0], []).append((one, mask, bound[position].matrix))
    together = [found for rows in scopes.values() if (found := _of_one_scope(rows)) is not None]
    found = np.array(together + alone, dtype=float).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _estimate(total: float, variance: float, one: Measurement) -> tuple[float, float]:
    """Return an estimate and its precision; an exact number of records is whole but for rounding."""
    is_exact = not one.noise.variance > 0
    return round(total, 6) if is_exact else total, 1 / variance if variance > 0 else math.inf


def _of_one_scope(rows: Sequence[tuple[Measurement, np.ndarray, Any]]) -> tuple[float, float] | None:
    r"""Return what rows of one scope, none of whose queries does alone, tell of the number of records.

    Among the sums :math:`w'y` with :math:`A'w = 1` the one of least variance :math:`\sum_i w_i^2 σ_i^2` has
    :math:`w = V^{-1/2} z` with z of least norm in :math:`A' V^{-1/2} z = 1`. An exact row counts as one of a
    hundred-millionth of the largest variance.
    """
    from scipy.sparse import diags_array, vstack
    from scipy.sparse.linalg import lsqr

    values = np.concatenate([one.values.astype(float) for one, _, _ in rows])
    mask = np.concatenate([mask for _, mask, _ in rows])
    variances = np.concatenate([np.full(one.values.size, one.noise.variance) for one, _, _ in rows])
    widths = np.sqrt(np.maximum(variances, 1e-8 * variances.max() or 1.0))
    columns = vstack([matrix for _, _, matrix in rows]).T.tocsr().astype(float)
    scaled = columns @ diags_array(1 / widths)
    weights = lsqr(scaled, np.ones(columns.shape[0]), atol=1e-14, btol=1e-14)[0] / widths
    # the rows tell the number of records only if each record counts once in their weighted sum
    if np.abs(columns @ weights - 1).max() > 1e-9:
        return None
    variance = float(np.square(weights[mask]) @ variances[mask])
    total = float(weights @ values)
    return (total, 1 / variance) if variance > 0 else (round(total, 6), math.inf)


def pooled_total(sums: FloatArray, precisions: FloatArray) -> float:
    """Return the unbiased combination of least variance; the first exact one where there is one, NaN for none."""
    if not len(sums):
        return math.nan
    if np.isinf(precisions).any():
        return float(sums[np.isinf(precisions)][0])
    return float(sums @ precisions / precisions.sum())
