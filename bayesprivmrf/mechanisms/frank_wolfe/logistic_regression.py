"""`PrivateLogisticRegression`: sparse logistic regression by private Frank-Wolfe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.interruption import stopped_details
from bayesprivmrf.learning.frank_wolfe import OneRegression
from bayesprivmrf.learning.models.regression import LearnedRegression
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.mechanisms.frank_wolfe.mechanism import (
    checked_size,
    checked_steps,
    choices_outlay,
)
from bayesprivmrf.mechanisms.frank_wolfe.search import log_odds
from bayesprivmrf.mechanisms.record_mechanisms import CodedRecords, LearningMechanism, LearningPlan
from bayesprivmrf.model.domain import Variable
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.planning import Outlay


@final
@dataclass(frozen=True, kw_only=True)
class PrivateLogisticRegression(LearningMechanism[OneRegression, LearnedRegression]):
    r"""Log-odds of one two-state variable given all other declared variables: rho-zero-concentrated privacy.

    The error grows with the radius, and only with the logarithm of the number of variables.

    Parameters
    ----------
    rho
        Budget, nats, positive.
    radius
        R, public and positive: a bound on :math:`|c| + \sum_j \max_b |w_j(b)|`, the largest log-odds of any record.
    target
        The variable to explain, of two states; its second state is the event.
    steps
        Number of Frank-Wolfe steps, public; by default chosen from the number of records, which is public under
        replace-one and otherwise takes 2 % of the budget.
    adjacency, missing, other
        See `LearningMechanism`.

    Raises
    ------
    ArgumentError
        A setting is out of range.
    ModelError
        The target is not declared, or does not have two states; raised at release.

    References
    ----------
    Zhang, Kamath, Kulkarni, Wu 2020, Corollary 3.4.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> import bayesprivmrf as bpm
    >>> smokes = np.tile(["no", "yes"], 2000)
    >>> ill = np.where(np.arange(4000) % 10 < 8, smokes, "no")
    >>> variables = bpm.declare(states={"smokes": ["no", "yes"], "ill": ["no", "yes"]})
    >>> mechanism = PrivateLogisticRegression(rho=1.0, radius=6.0, target="ill")
    >>> fitted = mechanism.release(variables, pd.DataFrame({"smokes": smokes, "ill": ill}), rng=1)
    >>> fitted.probability({"smokes": "yes"}) > 0.6 > 0.2 > fitted.probability({"smokes": "no"})
    True
    """

    releases = (LearnedRegression,)
    _sought: ClassVar[str] = "effects"
    _remedy: ClassVar[str] = "spend more, declare fewer variables, or take a smaller radius"

    radius: float
    target: Variable
    steps: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(radius=checked_size("radius", self.radius), steps=checked_steps(self.steps))

    @property
    def needs_total(self) -> bool:
        """True if the number of records chooses the steps."""
        return self.steps is None

    def _twin(self) -> PrivateLogisticRegression:
        return PrivateLogisticRegression(rho=1.0, radius=1.0, target="a", steps=2)

    def _map(self, plan: LearningPlan[Any]) -> OneRegression:
        domain = plan.specification.domain
        target = domain.index(self.target)
        p = len(domain.variables)
        states = domain.cardinalities[target]
        remedy = "merge states, or choose another variable"
        given = f"{states} for {self.target!r}"
        require(states == 2, "target", "have two states", given, remedy, error=ModelError)
        fitted = OneRegression(
            cardinalities=domain.cardinalities,
            eligible=np.broadcast_to(np.arange(p) != target, (p, p)),
            target=target,
            width=self.radius / 2,
            rho=plan.learning,
            adjacency=self.adjacency,
            steps=self.steps,
        )
        # a budget that leaves no scale is refused before anything is read
        fitted.multiple(fitted.steps_for(1.0))
        return fitted

    def _outlays(self, plan: LearningPlan[OneRegression], total: float | None) -> list[Outlay]:
        return [*self._total_outlay(plan), choices_outlay(plan.map, plan.map.rho, total)]

    def _randomise(
        self,
        plan: LearningPlan[OneRegression],
        exact: CodedRecords,
        source: NoiseSource,
        stamp: Stamp,
    ) -> LearnedRegression:
        total = self._total(plan, exact, source)
        effects, intercept = log_odds(plan.map, exact, total, source)
        steps = plan.map.steps_for(total)
        domain = plan.specification.domain
        release = LearnedRegression(
            domain=domain,
            target=domain.variables[plan.map.target],
            intercept=intercept,
            effects=effects,
            total=total,
            details={
                "steps": steps,
                "noise_multiple": plan.map.multiple(steps),
                **stopped_details(),
            },
            **stamp.fields,
        )
        self._warn(plan, total)
        return release
