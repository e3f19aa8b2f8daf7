"""The result of the noise-aware estimate of a chain with one transition matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from bayesprivmrf.checks import probability
from bayesprivmrf.inference.asked_queries import answer_index, bound_for_interval, refuse_given
from bayesprivmrf.inference.criticism.assumptions import query_marks, variable_marks
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.interval_frame import Mark, RowStatus, interval_frame, joint_index
from bayesprivmrf.inference.judgement import require_population
from bayesprivmrf.inference.limits import Ends, cut_limits
from bayesprivmrf.inference.solution import Solution
from bayesprivmrf.inference.transitions.mode import TransitionMode
from bayesprivmrf.marginals import clamped, marginal_engine
from bayesprivmrf.marginals.brute_force import ImpossibleError
from bayesprivmrf.model.conditions import conditions, given_error
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.queries import Query

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TransitionSolution(Solution):
    """A chain of one transition matrix, with how far off its probabilities may be.

    Parameters
    ----------
    mode
        The estimate in unconstrained coordinates, with its covariance.
    evidence
        The measurements that it was fitted to.
    """

    evidence: Evidence = field(kw_only=True)
    mode: TransitionMode = field(kw_only=True)

    @property
    def _evidence(self) -> Evidence:
        return self.evidence

    def interval(
        self,
        variables: Variable | Sequence[Variable] | Query,
        prob: float = 0.9,
        *,
        of: Literal["population"] = "population",
        given: Mapping[Variable, Label] | None = None,
    ) -> pd.DataFrame:
        """Approximate intervals for the population's probabilities of joint states, or for a query's answers.

        Normal, by the delta method, and cut at 0 and 1, or at the ends of one record's answer; parameters and result
        as those of a `NoiseAwareMAP` of another model. `bayesprivmrf.sequences` has those of the transition matrix.
        """
        require_population(of)
        prob = probability("prob", prob, zero=False, remedy="0.9 is for 90 %")
        model = self.specification
        if isinstance(variables, Query):
            refuse_given(given)
            bound = bound_for_interval(variables, model)
            engine = marginal_engine(model.cardinalities, model.scopes)
            _, marginals, product = engine.linearize(self.potentials.flat)
            changes = np.array([product(unit) for unit in bound.in_cliques.toarray()])
            marks = query_marks(self.evidence, bound)
            return self._interval(
                bound.in_cliques @ marginals, changes, prob, answer_index(bound), bound.ends, marks
            )
        names, query = model.positions_of(variables)
        condition = conditions(model.domain, given, query)
        engine = marginal_engine(model.cardinalities, (*model.scopes, tuple(query)))
        start = engine.offsets[-2]
        held = clamped(model.cardinalities, model.scopes, self.potentials.flat, condition)
        try:
            _, marginals, product = engine.linearize(np.append(held, np.zeros(engine.size - start)))
        except ImpossibleError:
            raise given_error(model.domain, condition) from None
        changes = np.array([product(unit)[:start] for unit in np.eye(engine.size)[start:]])
        marks = variable_marks(self.evidence, [*query, *condition])
        index = joint_index(model.domain, names)
        return self._interval(marginals[start:], changes, prob, index, (0.0, 1.0), marks)

    def _interval(
        self,
        estimates: FloatArray,
        changes: FloatArray,
        prob: float,
        index: pd.Index,
        ends: Ends,
        marks: Sequence[Mark],
    ) -> pd.DataFrame:
        """Return intervals of numbers, from their derivatives with respect to the potentials."""
        rows = changes @ self.mode.rows.linear_derivatives(self.mode.coordinates)
        variances = np.einsum("ij,jk,ik->i", rows, self.mode.covariance, rows)
        errors = np.sqrt(np.maximum(variances, 0.0))
        lower, upper = cut_limits(estimates, errors, errors, prob, ends)
        cut = Mark(
            RowStatus.DOUBTFUL,
            "the normal interval reaches an end of the possible range",
            (lower <= ends[0]) | (upper >= ends[1]),
        )
        return interval_frame(
            estimates,
            lower,
            upper,
            index,
            status=self.status,
            marks=[cut, *marks],
            is_simulated=self.is_simulated,
        )
