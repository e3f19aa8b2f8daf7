"""How long the noise-aware search will take, by the pace of what it does most often.

A search evaluates the objective, and forms or samples the curvature once a round. Both go over every cell, and how
long a cell takes depends on the model's widest table, the law and the machine. So each is timed once, before the
search, and multiplied by how often searches need it.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable

import numpy as np

from bayesprivmrf.errors import ForecastWarning
from bayesprivmrf.inference.noise_aware.objective import Objective
from bayesprivmrf.model.tables import FloatArray

__all__ = ["warn_if_slow"]

PATIENCE = 60.0
"""Seconds from which a search says how long it will take."""

DENSE_EVALUATIONS, DENSE_ROUNDS = 100, 10
"""What a search needs where the curvature is formed, in each round by one product a coordinate."""

EVALUATIONS, PRODUCTS = 800, 6000
"""What it needs where the curvature is sampled; measured from 600 to 1,100 and from 1,800 to 31,000."""


def warn_if_slow(objective: Objective, point: FloatArray) -> None:
    """Warn with a forecast where a search will take longer than a minute.

    Parameters
    ----------
    objective
        The function that the search minimises.
    point
        The starting point, shape (d + 1,).
    """
    linearized, likelihood = objective.means.at(point), objective.likelihood
    variance = objective.variance(linearized)
    width, cells = np.sqrt(variance), np.ones(len(variance))

    def evaluate() -> None:
        _, slope = likelihood.expected_loss(objective.means.at(point).mean, variance, width)
        linearized.backward(slope)

    needed = (DENSE_EVALUATIONS, DENSE_ROUNDS * objective.means.size)
    evaluations, products = needed if objective.is_dense else (EVALUATIONS, PRODUCTS)
    seconds = evaluations * _seconds(evaluate)
    seconds += products * _seconds(lambda: linearized.forward(linearized.backward(cells)))
    if seconds > PATIENCE:
        warnings.warn(
            f"the noise-aware estimate of {len(variance):,} noisy counts and {objective.means.effects.size:,} "
            f"coordinates, from which posteriors begin as well, is forecast to take about "
            f"{math.ceil(seconds / 60):,} minutes here; wait for it, declare smaller cliques or fewer states, or use "
            "CGM, whose evaluations are fewer. A model learned in rounds has its own fit: `solution`.",
            ForecastWarning,
            stacklevel=5,
        )


def _seconds(call: Callable[[], object]) -> float:
    """Seconds of this thread's own work, whatever else the machine does."""
    begin = time.thread_time()
    call()
    return time.thread_time() - begin
