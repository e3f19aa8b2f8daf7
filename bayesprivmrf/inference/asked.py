"""Arguments of `interval`, checked and labeled in the same way for every result over variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from bayesprivmrf.checks import one_of, probability, require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.criticism.assumptions import query_marks, variable_marks
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.interval_frame import Mark, joint_index
from bayesprivmrf.inference.limits import Ends
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Condition, Given, Variable, conditions
from bayesprivmrf.queries import BoundQuery, Query

if TYPE_CHECKING:
    import pandas as pd

type Whose = Literal["population", "records"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """Checked arguments of `interval`: joint states of some variables, or the answers to a query.

    Parameters
    ----------
    evidence
        The measurements of the fit.
    prob
        Probability of each interval.
    of
        Target of the intervals: ``"population"`` or ``"records"``.
    bound
        The query on the model; None where variables were asked for.
    variables
        Positions of the variables; empty for a query.
    given
        States of other variables, by position.
    """

    evidence: Evidence
    prob: float
    of: Whose
    bound: BoundQuery | None
    variables: tuple[int, ...] = ()
    given: Condition

    @cached_property
    def index(self) -> pd.Index:
        """Labels of the rows: joint states in C order, or the answers of the query."""
        import pandas as pd

        if self.bound is not None:
            return pd.Index(self.bound.labels, name="answer")
        domain = self.evidence.specification.domain
        return joint_index(domain, [domain.variables[v] for v in self.variables])

    @property
    def ends(self) -> Ends:
        """Smallest and largest answer of one record."""
        if self.bound is None:
            return (0.0, 1.0)
        return self.bound.ends

    @property
    def marks(self) -> list[Mark]:
        """Marks for the assumptions behind each row."""
        if self.bound is not None:
            return query_marks(self.evidence, self.bound)
        return variable_marks(self.evidence, [*self.variables, *self.given])


def asked_of(
    evidence: Evidence,
    variables: Variable | Sequence[Variable] | Query,
    prob: float,
    of: Whose = "population",
    given: Given | None = None,
    *,
    beside: str = "",
) -> Asked:
    """Check the arguments of an `interval` method.

    Parameters
    ----------
    evidence
        The measurements of the fit.
    variables, prob, of, given
        As `interval` has them.
    beside
        Text of the error for a query of variables that share no clique: what answers it besides `interval`.
    """
    model = evidence.specification
    one_of("of", of, ("population", "records"))
    prob = coverage(prob)
    if not isinstance(variables, Query):
        _, query = model.positions_of(variables)
        condition = conditions(model.domain, given, query)
        return Asked(
            evidence=evidence, prob=prob, of=of, bound=None, variables=tuple(query), given=condition
        )
    require(
        not given,
        "given",
        "be for variables",
        "a query",
        "ask for the variables with `given`, or give a posterior's `quantity` a function that divides the two within "
        "a draw",
    )
    return Asked(
        evidence=evidence, prob=prob, of=of, bound=_bound(variables, model, beside), given={}
    )


def coverage(prob: float) -> float:
    """Return the probability of an interval as a number in (0, 1)."""
    return probability("prob", prob, zero=False, remedy="0.9 is for 90 %")


def _bound(query: Query, model: ModelSpecification, beside: str) -> BoundQuery:
    """Return the query on the model; if no clique has its variables, the error names `interval` of variables."""
    try:
        return query.bind(model)
    except ModelError as error:
        if "together in no clique" not in str(error):
            raise
        raise ModelError(
            f"{error} Of variables that no clique holds together, `interval` takes the variables{beside}."
        ) from None
