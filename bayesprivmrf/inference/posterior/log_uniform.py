"""A private number of records, log-uniform between two ends: at a logistic position, and drawn from its prior."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER
from bayesprivmrf.model.tables import IntArray


@njit(nogil=True, error_model="numpy", **INNER)
def log_uniform(place, low, high):
    """Return log N at a logistic position, the log density of the position, and the derivatives of both by it."""
    power = math.exp(-abs(place))
    share = 1.0 / (1.0 + power) if place > 0 else power / (1.0 + power)
    log_density = -abs(place) - 2.0 * math.log1p(power)
    return low + (high - low) * share, log_density, (high - low) * share * (1.0 - share), 1.0 - 2.0 * share


def draw_totals(
    total: float | None, bounds: tuple[float, float], size: int, rng: np.random.Generator, *, is_whole: bool
) -> IntArray:
    r"""Return numbers of records: the public one, or draws of a prior that is log-uniform on `bounds`, rounded.

    Where `is_whole`, the prior is in proportion to 1/N on the whole numbers within the bounds: draws of
    :math:`\lfloor e^U \rfloor`, in proportion to log(1 + 1/N), most of which are accepted.
    """
    if total is not None:
        return np.full(size, round(total))
    if not is_whole:
        return np.rint(np.exp(rng.uniform(float(np.log(bounds[0])), float(np.log(bounds[1])), size))).astype(
            np.int64
        )
    low, high = max(math.ceil(bounds[0]), 1), math.floor(bounds[1])
    found = np.zeros(0, np.int64)
    while found.size < size:
        tried = np.exp(rng.uniform(math.log(low), math.log(high + 1), 2 * size))
        tried = np.clip(np.floor(tried), low, high)
        share = low * math.log1p(1 / low) / (tried * np.log1p(1 / tried))
        found = np.append(found, tried[rng.random(tried.size) < share].astype(np.int64))
    return found[:size]
