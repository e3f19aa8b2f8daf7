"""How long the noise-aware search will take, by the pace of what it does most often.

A search evaluates the objective, and forms or samples the curvature once a round. Both go over every cell, and how
long a cell takes depends on the model's widest table, the law and the machine. So each is timed once, before the
search, and multiplied by how often searches need it. The optimiser's own work, which goes over all the steps and
gradients that it keeps, is as much again where coordinates are many, and is timed as well.

How often is not known beforehand where the curvature is sampled. A table of 16,900 cells needed 505 evaluations and
15,944 products in five rounds; three tables of 8,000 cells, with noise larger than most counts, 3,385 and 79,200 in
22 rounds; a tract of 11,340 cells, most of them empty, 430 and 3,560 in each round (docs/benchmarks.md, "Blocks, by
the mode"). So the forecast has two ends: what searches need at least, and what the most rounds take if each goes to
its limits.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable

import numpy as np

from bayesprivmrf.errors import ForecastWarning
from bayesprivmrf.inference.noise_aware.objective import Objective
from bayesprivmrf.inference.optimize import MEMORY
from bayesprivmrf.model.tables import FloatArray

__all__ = ["warn_if_slow"]

PATIENCE = 60.0
"""Seconds from which a search says how long it will take."""

DENSE_EVALUATIONS, DENSE_ROUNDS = 100, 10
"""What a search needs where the curvature is formed, in each round by one product a coordinate."""

EVALUATIONS, PRODUCTS = 500, 6000
"""What it needs at least, about, where the curvature is sampled."""

EVALUATIONS_OF_A_ROUND, PRODUCTS_OF_A_ROUND = 450, 3600
"""What one round needs there at most: 400 steps and their line searches; 3 times 12 systems of 100 products each."""

PASSES = 6
"""Times that an evaluation's share of the optimiser's work goes over what it keeps; measured 5.4 to 8.2."""


def warn_if_slow(objective: Objective, point: FloatArray) -> None:
    """Warn with a forecast where a search will take longer than a minute, in the middle of what it may take.

    Parameters
    ----------
    objective
        The function that the search minimises.
    point
        The starting point, shape (d + 1,).
    """
    least, most = _forecast(objective, point)
    if least + most <= 2 * PATIENCE:
        return
    few, many = (f"{math.ceil(seconds / 60):,}" for seconds in (least, most))
    minutes = f"about {many} minutes here" if few == many else f"from {few} to {many} minutes here"
    if few != many:
        minutes += f", the more if all of at most {objective.settings.rounds} rounds are needed"
    warnings.warn(
        f"the noise-aware estimate of {objective.likelihood.noisy_counts.size:,} noisy counts and "
        f"{objective.means.effects.size:,} coordinates, from which posteriors begin as well, is forecast to take "
        f"{minutes}; wait for it, declare smaller cliques or fewer states, or use "
        "CGM, whose evaluations are fewer. A model learned in rounds has its own fit: `solution`.",
        ForecastWarning,
        stacklevel=5,
    )


def _forecast(objective: Objective, point: FloatArray) -> tuple[float, float]:
    """Seconds that a search takes at least, about, and at most."""
    linearized, likelihood = objective.means.at(point), objective.likelihood
    variance = objective.variance(linearized)
    width, cells = np.sqrt(variance), np.ones(len(variance))

    def evaluate() -> None:
        _, slope = likelihood.expected_loss(objective.means.at(point).mean, variance, width)
        linearized.backward(slope)

    evaluation = _seconds(evaluate)
    product = _seconds(lambda: linearized.forward(linearized.backward(cells)))
    if objective.is_dense:
        both = DENSE_EVALUATIONS * evaluation + DENSE_ROUNDS * objective.means.size * product
        return both, both
    kept = np.ones((2 * MEMORY, point.size))
    evaluation += PASSES * _seconds(lambda: kept @ point)
    least = EVALUATIONS * evaluation + PRODUCTS * product
    a_round = EVALUATIONS_OF_A_ROUND * evaluation + PRODUCTS_OF_A_ROUND * product
    return least, max(least, objective.settings.rounds * a_round)


def _seconds(call: Callable[[], object]) -> float:
    """Seconds of this thread's own work, whatever else the machine does."""
    begin = time.thread_time()
    call()
    return time.thread_time() - begin
