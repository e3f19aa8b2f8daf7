"""`PrivateFrankWolfe` for interactions of three or more two-state variables."""

from __future__ import annotations

from typing import Any

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.learning import LearnedMonomials
from bayesprivmrf.learning.frank_wolfe import MonomialsByRegressions, Target
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws
from bayesprivmrf.mechanisms.learning import LearningPlan
from bayesprivmrf.mechanisms.reading.coded_records import CodedRecords
from bayesprivmrf.model import Monomials
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.privacy import Adjacency, parity_l2_sensitivity

__all__ = ["learned_monomials", "monomial_map"]

_PARITY_SHARE = 0.5  # of the budget, for the parities of Algorithm 5
_BYTES = 80  # of sums, noise and iterates, for each coefficient of each regression


def monomial_map(
    plan: LearningPlan,
    *,
    order: int,
    width: float,
    adjacency: Adjacency,
    steps: int | None,
    target: Target,
) -> MonomialsByRegressions:
    """Return the map of a t-wise model, its budget shared between regressions and parities.

    Raises
    ------
    ArgumentError
        The order is above p, or the budget leaves no noise scale.
    ModelError
        A variable has not two states.
    ModelTooLargeError
        The monomials, or the sums of all regressions, would not fit in memory.
    """
    sets = Monomials.of(plan.specification, order)
    features = Monomials(variables=sets.variables, levels=sets.levels[:-1])
    memory = _BYTES * len(features) * sets.variables
    if memory > DEFAULT_MEMORY_LIMIT:
        raise ModelTooLargeError(
            f"{sets.variables} regressions on {len(features):,} monomials would take about {memory / 2**30:.3g} GiB, "
            f"more than {DEFAULT_MEMORY_LIMIT / 2**30:g}; take a smaller order, or declare the cliques that matter."
        )
    rho, law = plan.budget.learning, None
    if target == "linf":
        has_total = plan.is_total_public or plan.budget.total is not None
        sensitivity = parity_l2_sensitivity(features, adjacency, with_empty=not has_total)
        (law,) = discrete_gaussian_laws([1.0], _PARITY_SHARE * rho, sensitivity)
        rho -= _PARITY_SHARE * rho
    return MonomialsByRegressions(
        sets=sets, width=width, rho=rho, adjacency=adjacency, steps=steps, parity_law=law
    )


def learned_monomials(
    fitted: MonomialsByRegressions,
    records: CodedRecords,
    total: float | None,
    source: NoiseSource,
    common: dict[str, Any],
) -> LearnedMonomials:
    """Run the map and return its release."""
    (coefficients,) = fitted.learn(records.codes, records.counts, total, source)
    known: dict[str, Any] = {**common, "map": fitted}
    return LearnedMonomials(**known, sets=fitted.sets, coefficients=coefficients)
