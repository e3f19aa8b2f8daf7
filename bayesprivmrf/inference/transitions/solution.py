"""What the noise-aware estimate of a chain of one transition matrix returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.checks import probability
from bayesprivmrf.inference.marked_rows import mark_rows
from bayesprivmrf.inference.noise_aware.interval import LARGEST_ERROR, interval_of_log_odds
from bayesprivmrf.inference.solution import Solution
from bayesprivmrf.inference.transitions.mode import TransitionMode
from bayesprivmrf.marginals import clamped, marginal_engine
from bayesprivmrf.marginals.brute_force import ImpossibleError
from bayesprivmrf.model.conditions import conditions, given_error
from bayesprivmrf.model.domain import Label, Variable

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TransitionSolution"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TransitionSolution(Solution):
    """A chain of one transition matrix, with how far off its probabilities may be.

    Parameters
    ----------
    mode
        The estimate in unconstrained coordinates, with its covariance.
    """

    mode: TransitionMode = field(kw_only=True)

    def interval(
        self,
        variables: Variable | Sequence[Variable],
        prob: float = 0.9,
        *,
        given: Mapping[Variable, Label] | None = None,
    ) -> pd.DataFrame:
        """Approximate intervals for the population's probabilities of the joint states of some variables.

        Normal on the scale of log-odds, by the delta method; parameters and result as those of a `NoiseAwareMAP` of
        another model. `bayesprivmrf.sequences` has the intervals of the transition matrix.
        """
        prob = probability("prob", prob, zero=False, remedy="0.9 is for 90 %")
        model = self.specification
        names, query = model.positions_of(variables)
        condition = conditions(model.domain, given, query)
        engine = marginal_engine(model.cardinalities, (*model.scopes, tuple(query)))
        start = engine.offsets[-2]
        held = clamped(model.cardinalities, model.scopes, self.potentials.flat, condition)
        try:
            _, marginals, product = engine.linearize(np.append(held, np.zeros(engine.size - start)))
        except ImpossibleError:
            raise given_error(model.domain, condition) from None
        probabilities = marginals[start:]
        slopes = self.mode.rows.derivatives(self.mode.coordinates)
        units = np.eye(engine.size)[start:]
        rows = np.array([product(unit)[:start] @ slopes for unit in units])
        variances = np.einsum("ij,jk,ik->i", rows, self.mode.covariance[:-1, :-1], rows)
        odds = probabilities * (1 - probabilities)
        errors = np.divide(np.sqrt(np.maximum(variances, 0.0)), odds, out=np.zeros_like(odds), where=odds > 0)
        frame = interval_of_log_odds(probabilities, errors, prob, model, names, query)
        return mark_rows(frame, ~(errors <= LARGEST_ERROR), "doubtful", "doubtful in")
