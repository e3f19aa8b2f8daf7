"""A private number of records, log-uniform between two ends, at a logistic position."""

from __future__ import annotations

import math

from numba import njit

__all__ = ["log_uniform"]


@njit(nogil=True, error_model="numpy")
def log_uniform(place, low, high):
    """Log N at a position, the log density of the position, and the derivatives of both by it."""
    power = math.exp(-abs(place))
    share = 1.0 / (1.0 + power) if place > 0 else power / (1.0 + power)
    log_density = -abs(place) - 2.0 * math.log1p(power)
    return low + (high - low) * share, log_density, (high - low) * share * (1.0 - share), 1.0 - 2.0 * share
