"""`PrivateFrankWolfe` for interactions of three or more two-state variables."""

from __future__ import annotations

from bayesprivmrf.checks import require_memory
from bayesprivmrf.learning.frank_wolfe import MonomialsByRegressions, Target
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws
from bayesprivmrf.mechanisms.learning import LearningPlan
from bayesprivmrf.model import Monomials
from bayesprivmrf.privacy import Adjacency, DiscreteGaussian, parity_l2_sensitivity

_PARITY_SHARE = 0.5  # of the budget, for the parities of Algorithm 5
_BYTES = 80  # of sums, noise and iterates, for each coefficient of each regression


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
    """Return the map of a t-wise model, its budget `rho` shared between regressions and parities.

    Raises
    ------
    ArgumentError
        The order is above p, or the budget leaves no noise scale.
    ModelError
        A variable does not have two states.
    ModelTooLargeError
        The monomials, or the sums of all regressions, would not fit in memory.
    """
    sets = Monomials.of(plan.specification, order)
    features = Monomials(variables=sets.variables, levels=sets.levels[:-1])
    what = f"{sets.variables} regressions on {len(features):,} monomials"
    remedy = "take a smaller order, or declare the cliques that matter"
    require_memory(what, _BYTES * len(features) * sets.variables, remedy, DEFAULT_MEMORY_LIMIT)
    law = None
    if target == "linf":
        sensitivity = parity_l2_sensitivity(features, adjacency, with_empty=not plan.knows_total)
        (law,) = discrete_gaussian_laws([1.0], _PARITY_SHARE * rho, sensitivity)
        rho -= _PARITY_SHARE * rho
    return MonomialsByRegressions(
        sets=sets,
        width=width,
        rho=rho,
        adjacency=adjacency,
        steps=steps,
        parity_law=law,
        singles=singles,
    )
