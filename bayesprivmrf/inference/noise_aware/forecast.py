"""Forecasts of how long the noise-aware search and its intervals take, from counted operations.

A search evaluates the objective, and forms or samples the curvature once a round. Both visit every cell of the
elimination and every noisy count. Their number is known beforehand, and a constant pace turns it into seconds on an
ordinary core. No clock is read, so a forecast is given on every machine or on none. The optimizer's own work, which
visits all the steps and gradients that it keeps, is counted as well.

The number of evaluations is not known beforehand where the curvature is sampled: searches took from 5 to 22 rounds.
The forecast therefore has two ends: the least that a search needs, and the time of the largest number of rounds if
each goes to its limits.
"""

from __future__ import annotations

import math
import warnings

from bayesprivmrf.errors import ForecastWarning
from bayesprivmrf.inference.family import MeanCounts
from bayesprivmrf.inference.noise_aware.objective import Objective
from bayesprivmrf.inference.optimize import MEMORY
from bayesprivmrf.marginals import forecast

# Seconds from which a search says how long it will take
PATIENCE = 60.0

# What a search needs where the curvature is formed, in each round by one product a coordinate
DENSE_EVALUATIONS, DENSE_ROUNDS = 100, 10

# What it needs at least, about, where the curvature is sampled
EVALUATIONS, PRODUCTS = 500, 6000

# What one round needs there at most: 400 steps and their line searches; 3 times 12 systems of 100 products each
EVALUATIONS_OF_A_ROUND, PRODUCTS_OF_A_ROUND = 450, 3600


# Seconds of a product with the derivative: fixed, for a cell of a clique, for a multiplication of the elimination.
#
# Fitted within a factor of two to 13 models of 10 to 100,000 cells on one core (2.9 GHz, November 2026).
_CALL, _CELL, _MULTIPLICATION = 2e-5, 2.5e-8, 3e-9

# Seconds of one noisy count's expected loss and slope, by its distribution; measured on the same models
_NORMAL_COUNT, _LAPLACE_COUNT = 8e-8, 7.5e-7

# Seconds of one pass over one number that the optimizer stores
_KEPT = 1e-9


def warn_if_slow(objective: Objective) -> None:
    """Warn with a forecast where a search will take longer than a minute, in the middle of what it may take.

    Parameters
    ----------
    objective
        The function that the search minimizes.
    """
    least, most = _forecast(objective)
    if math.sqrt(least * most) <= PATIENCE:  # the middle of a range of several times
        return
    few, many = (f"{math.ceil(seconds / 60):,}" for seconds in (least, most))
    minutes = f"{f'about {many}' if few == many else f'from {few} to {many}'} minutes on one ordinary core"
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


def _forecast(objective: Objective) -> tuple[float, float]:
    """Return approximate lower and upper bounds on the seconds of a search."""
    is_laplace, product = objective.likelihood.is_laplace, product_seconds(objective.means)
    counts = _LAPLACE_COUNT * is_laplace.sum() + _NORMAL_COUNT * (~is_laplace).sum()
    evaluation = float(counts) + 1.5 * product  # the marginals and one product back
    if objective.is_dense:
        both = DENSE_EVALUATIONS * evaluation + DENSE_ROUNDS * objective.means.size * product
        return both, both
    # an evaluation goes about six times over the gradients that the optimizer keeps; measured 5.4 to 8.2
    evaluation += 6 * 2 * MEMORY * objective.means.size * _KEPT
    least = EVALUATIONS * evaluation + PRODUCTS * product
    a_round = EVALUATIONS_OF_A_ROUND * evaluation + PRODUCTS_OF_A_ROUND * product
    return least, max(least, objective.settings.rounds * a_round)


def product_seconds(means: MeanCounts) -> float:
    """Return approximate seconds of a product with the derivative of the mean counts and one with its transpose."""
    model = means.evidence.specification
    if means.inference == "loopy":  # its messages visit the declared tables alone
        return _CALL + _CELL * model.size
    cost = forecast(model.cardinalities, model.scopes)
    return _CALL + _CELL * cost.total_cells + _MULTIPLICATION * cost.multiplications
