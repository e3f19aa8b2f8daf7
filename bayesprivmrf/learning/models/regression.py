"""Learned logistic regression of one two-state variable on the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.files import Json
from bayesprivmrf.learning.models.solution import NO_COUNTS
from bayesprivmrf.model import Domain
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release.base import Provenance, Released
from bayesprivmrf.release.codec import (
    Fields,
    details_content,
    domain_content,
    numbers,
    positions,
    restored_domain,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedRegression(Released):
    r"""A learned logistic regression: the log odds of the target's second state are :math:`c + \sum_j w_j(x_j)`.

    Each :math:`w_j` sums to 0. A regression has no intervals: they would need simulated records, and it has no
    distribution of the explanatory variables. `PrivateFrankWolfe` learns the joint distribution, with intervals.

    Parameters
    ----------
    domain
        Variables and states, as declared.
    target
        Dependent variable, with two states.
    guarantee
        Privacy guarantee of the release.
    provenance
        Mechanism, settings and library versions of the release.
    intercept
        Intercept c, nats.
    effects
        Effects w, nats, one for each state of all variables in declared order; 0 for the states of the target.
    total
        Number of records: public, noisy, or ``None`` if the mechanism did not buy it.
    details
        Public numbers about the release.

    Raises
    ------
    ModelError
        The target is not declared, or the effects do not fit the states or are not finite.

    Examples
    --------
    >>> from bayesprivmrf.learning import LearnedRegression
    >>> from bayesprivmrf.model import Domain
    >>> from bayesprivmrf.privacy import PrivacyGuarantee
    >>> from bayesprivmrf.release import Provenance
    >>> learned = LearnedRegression(
    ...     domain=Domain.from_states({"smokes": ["no", "yes"], "ill": ["no", "yes"]}),
    ...     target="ill",
    ...     guarantee=PrivacyGuarantee(rho=1.0, adjacency="replace-one"),
    ...     provenance=Provenance(mechanism="example"),
    ...     intercept=-1.0,
    ...     effects=[-0.5, 0.5, 0.0, 0.0],
    ... )
    >>> round(learned.probability({"smokes": "yes"}), 3)
    0.378
    """

    domain: Domain
    target: Variable
    guarantee: PrivacyGuarantee
    provenance: Provenance
    intercept: float
    effects: FloatArray
    total: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    kind = "learned-regression"
    _without_tables = "it is a regression of one variable, whose `coefficients` are released"
    format_version = 3

    def __post_init__(self) -> None:
        self.domain.index(self.target)
        effects = np.array(self.effects, dtype=float)
        fits = effects.shape == (sum(self.domain.cardinalities),)
        fits = fits and np.isfinite([*effects, self.intercept]).all()
        seen = f"an array of shape {effects.shape}"
        require(fits, "effects", "be one finite number a state", seen, error=ModelError)
        effects.flags.writeable = False
        object.__setattr__(self, "effects", effects)

    @property
    def coefficients(self) -> pd.Series:
        """Effects w by variable and state, nats, without the target."""
        import pandas as pd

        keys = [
            (v, label)
            for v, labels in zip(self.domain.variables, self.domain.states, strict=True)
            for label in labels
        ]
        kept = [place for place, (variable, _) in enumerate(keys) if variable != self.target]
        index = pd.MultiIndex.from_tuples(
            [keys[place] for place in kept], names=["variable", "state"]
        )
        return pd.Series(self.effects[kept], index=index, name="log odds")

    def probability(self, states: Mapping[Variable, Label]) -> float:
        """Return the probability of the target's second state given a state of each other variable.

        Parameters
        ----------
        states
            One state for each variable but the target.

        Raises
        ------
        ArgumentError
            `states` is not a mapping, or lacks a variable.
        ModelError
            A variable or a state is not declared.
        """
        remedy = "call it for one row after another, as a dict"
        states = instance_of("states", states, Mapping, "map each variable to one state", remedy)
        for variable in self.domain.variables:
            is_given = variable == self.target or variable in states
            require(
                is_given, "states", "name every variable but the target", f"none for {variable!r}"
            )
        starts = np.concatenate([[0], np.cumsum(self.domain.cardinalities)])
        log_odds = self.intercept
        for variable, label in states.items():
            log_odds += self.effects[
                starts[self.domain.index(variable)] + self.domain.code(variable, label)
            ]
        return float(np.exp(-np.logaddexp(0.0, -log_odds)))

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("target", repr(self.target)),
            ("intercept", f"{self.intercept:.3g}"),
            ("largest", f"{np.abs(self.effects).max():.3g} nats"),
            ("support", NO_COUNTS),
            ("privacy", self.privacy_statement()),
        ]

    def _content(self) -> dict[str, Json]:
        return {
            "target": self.domain.index(self.target),
            "total": self.total,
            "details": details_content(self.details),
            **domain_content(self.domain),
        }

    def _array(self) -> np.ndarray:
        return np.concatenate([[self.intercept], self.effects])

    @classmethod
    def _restored(cls, content: Fields, array: np.ndarray, **stamp: Any) -> Self:
        domain = restored_domain(content)
        (target,) = positions([content["target"]], len(domain.variables))
        intercept, *_ = numbers(array, (1 + sum(domain.cardinalities),))
        return cls(
            domain=domain,
            target=domain.variables[target],
            intercept=float(intercept),
            effects=array[1:],
            total=content.number("total", optional=True),
            details=content.mapping("details"),
            **stamp,
        )
