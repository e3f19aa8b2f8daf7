"""The public part of releases by private Frank-Wolfe: checks of settings, cost of steps, maps of monomials."""

from __future__ import annotations

import math
from typing import Any

from bayesprivmrf.audit import Choices
from bayesprivmrf.checks import positive_finite, require, require_memory, whole_number
from bayesprivmrf.learning.frank_wolfe import (
    LARGEST_STEPS,
    ByRegressions,
    MonomialsByRegressions,
    SparseLogistic,
    Target,
)
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws
from bayesprivmrf.mechanisms.learning import LearningPlan
from bayesprivmrf.model import Monomials
from bayesprivmrf.planning import Outlay
from bayesprivmrf.privacy import Adjacency, DiscreteGaussian, parity_l2_sensitivity
from bayesprivmrf.privacy.selection import GUMBEL_DEVIATION


def choices_outlay(fitted: ByRegressions | SparseLogistic, rho: float, total: float | None) -> Outlay:
    r"""Return the cost of the steps and the noise of their choices.

    At 0 the score of a single coupling w is about :math:`N w B / a` records, where B is the largest residual and a is
    the map's `reference`. Scores of pairs without a coupling are near 0. An atom is chosen with a weight of
    :math:`e^{u / \kappa B}`, so the atom of the coupling is chosen among K atoms in half of all cases if
    :math:`w = a \kappa \log K / N`. For much smaller couplings the steps are nearly uniform draws.
    """
    if total is None and fitted.steps is None:
        return Outlay(step="choices, in a number of steps that depends on the number of records", rho=rho)
    steps = fitted.steps_for(total)
    multiple = fitted.multiple(steps)
    moved = 4.0 if fitted.adjacency is Adjacency.REPLACE_ONE else 2.0  # bounds of residuals, see `Exposure`
    found = None if total is None else fitted.reference * multiple * math.log(fitted.atoms) / max(total, 1.0)
    return Outlay(
        step=f"{steps} steps of {fitted.exposure.choices} choice{'' if fitted.exposure.choices == 1 else 's'}",
        rho=rho,
        count=steps * fitted.exposure.choices,
        noise_sd=multiple * GUMBEL_DEVIATION,
        draws=(Choices(scale=multiple, score_range=moved, copies=steps * fitted.exposure.squares),),
        smallest_coupling=found,
    )


def checked_size(name: str, value: Any) -> float:
    """Return a checked bound of coefficients: positive, and at most 1000 nats."""
    size = positive_finite(name, value)
    require(size <= 1000, name, "be at most 1000", size, "log-odds of ten are nearly certain already")
    return size


def checked_steps(steps: Any) -> int | None:
    """Return a checked number of steps, or ``None`` for the default."""
    if steps is None:
        return None
    return whole_number("steps", steps, 1, LARGEST_STEPS, remedy="leave it out for a default")


def monomial_map(
    plan: LearningPlan,
    *,
    order: int,
    width: float,
    rho: float,
    adjacency: Adjacency,
    steps: int | None,
    target: Target,
    singles: DiscreteGaussian | None,
) -> MonomialsByRegressions:
    """Return the map of a t-wise model, with its budget `rho` divided between regressions and parities.

    Raises
    ------
    ArgumentError
        The order is above p, or the budget gives no noise scale.
    ModelError
        A variable does not have two states.
    ModelTooLargeError
        The monomials, or the sums of all regressions, would not fit in memory.
    """
    sets = Monomials.of(plan.specification, order)
    features = Monomials(variables=sets.variables, levels=sets.levels[:-1])
    what = f"{sets.variables} regressions on {len(features):,} monomials"
    remedy = "take a smaller order, or declare the cliques that matter"
    # 80 bytes of sums, noise and iterates for each coefficient of each regression
    require_memory(what, 80 * len(features) * sets.variables, remedy, DEFAULT_MEMORY_LIMIT)
    law = None
    if target == "linf":
        sensitivity = parity_l2_sensitivity(features, adjacency, with_empty=not plan.knows_total)
        # half of the budget for the parities of Algorithm 5
        (law,) = discrete_gaussian_laws([1.0], 0.5 * rho, sensitivity)
        rho -= 0.5 * rho
    return MonomialsByRegressions(
        sets=sets,
        width=width,
        rho=rho,
        adjacency=adjacency,
        steps=steps,
        parity_law=law,
        singles=singles,
    )
