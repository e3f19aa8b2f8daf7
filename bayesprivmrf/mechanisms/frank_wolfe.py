"""Couplings of a Markov random field by private Frank-Wolfe, without a declared graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.learning import LearnedIsing
from bayesprivmrf.maps.frank_wolfe import LARGEST_STEPS
from bayesprivmrf.maps.pairwise_regressions import IsingByRegressions
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.mechanisms.coded_records import CodedRecords
from bayesprivmrf.mechanisms.learning import LearningMechanism, LearningPlan
from bayesprivmrf.mechanisms.randomness import NoiseSource
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.privacy.checks import positive_finite
from bayesprivmrf.privacy.frank_wolfe import step_scale

__all__ = ["PrivateFrankWolfe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrankWolfePlan(LearningPlan):
    """What is public about a release, with the map from records to couplings."""

    map: IsingByRegressions


@final
@dataclass(frozen=True, kw_only=True)
class PrivateFrankWolfe(LearningMechanism[FrankWolfePlan, LearnedIsing]):
    r"""Learn the couplings of all pairs by one private sparse regression a node: rho-zero-concentrated privacy.

    Parameters
    ----------
    rho
        Budget, nats, positive.
    width
        :math:`\lambda`, public: bounds :math:`\sum_j |A_{ij}| + |h_i|` for every node i. The fields count.
    order
        Size of the largest interactions, 2.
    steps
        Of Frank-Wolfe, a public number; by default chosen from the number of records, public or noisy.
    adjacency, missing, other
        See `LearningMechanism`.

    Raises
    ------
    ArgumentError
        A setting is out of range.

    References
    ----------
    Zhang, Kamath, Kulkarni, Wu 2020, Algorithms 1 and 2.
    """

    width: float
    order: int = 2
    steps: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "width", positive_finite("width", self.width))
        object.__setattr__(self, "steps", checked_steps(self.steps))

    @property
    def needs_total(self) -> bool:
        """Whether the number of records chooses the steps."""
        return self.steps is None

    def _plan(self, plan: LearningPlan) -> FrankWolfePlan:
        specification = plan.specification
        if any(k != 2 for k in specification.cardinalities):
            raise ModelError("`network` must have two states a variable.")
        return FrankWolfePlan(
            specification=specification,
            budget=plan.budget,
            is_total_public=plan.is_total_public,
            missing=plan.missing,
            other=plan.other,
            map=IsingByRegressions(
                eligible=eligible_pairs(specification),
                width=self.width,
                rho=plan.budget.learning,
                adjacency=self.adjacency,
                steps=self.steps,
            ),
        )

    def _randomise(
        self, plan: FrankWolfePlan, exact: CodedRecords, source: NoiseSource, stamp: Stamp
    ) -> LearnedIsing:
        total = self._total(plan, exact, source)
        A, h = plan.map.learn(exact.codes, exact.counts, total, source)
        steps = plan.map.steps_for(total)
        assert stamp.guarantee is not None
        return LearnedIsing(
            domain=plan.specification.domain,
            guarantee=stamp.guarantee,
            provenance=stamp.provenance,
            total=total,
            details={
                "steps": steps,
                "noise_multiple": step_scale(plan.map.exposure, plan.map.rho, steps, self.adjacency),
            },
            coupling_matrix=A,
            field_vector=h,
        )


def eligible_pairs(specification: ModelSpecification) -> np.ndarray:
    """Return the pairs to learn: those inside a declared clique, or all; bool of shape (p, p)."""
    p = len(specification.domain.variables)
    eligible = np.zeros((p, p), dtype=bool)
    for scope in specification.scopes if specification.cliques_declared else [range(p)]:
        eligible[np.ix_(scope, scope)] = True
    np.fill_diagonal(eligible, False)
    return eligible


def checked_steps(steps: Any) -> int | None:
    """Return the number of steps, or ``None`` for the default."""
    if steps is None:
        return None
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or not 1 <= steps <= LARGEST_STEPS:
        raise ArgumentError(
            f"`steps` must be a whole number from 1 to {LARGEST_STEPS:,}, got {steps!r}; leave it out for a default."
        )
    return int(steps)
