"""What the noise-aware estimate of a chain of one transition matrix returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from bayesprivmrf.checks import probability
from bayesprivmrf.inference.judgement import require_population
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
        of: Literal["population"] = "population",
        given: Mapping[Variable, Label] | None = None,
    ) -> pd.DataFrame:
        """Approximate intervals for the population's probabilities of the joint states of some variables.

        Normal, by the delta method, and cut at 0 and 1; parameters and result as those of a `NoiseAwareMAP` of
        another model. `bayesprivmrf.sequences` has the intervals of the transition matrix.
        """
        import pandas as pd
        from scipy.special import ndtri

        require_population(of)
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
        slopes = self.mode.rows.linear_derivatives(self.mode.coordinates)
        units = np.eye(engine.size)[start:]
        rows = np.array([product(unit)[:start] @ slopes for unit in units])
        variances = np.einsum("ij,jk,ik->i", rows, self.mode.covariance, rows)
        reach = float(ndtri(0.5 + prob / 2)) * np.sqrt(np.maximum(variances, 0.0))
        frame = pd.DataFrame(
            {
                "estimate": probabilities,
                "lower": np.maximum(probabilities - reach, 0.0),
                "upper": np.minimum(probabilities + reach, 1.0),
            },
            index=pd.MultiIndex.from_product([model.domain.states[v] for v in query], names=names),
        )
        frame.attrs["status"] = "approximate"
        return frame
