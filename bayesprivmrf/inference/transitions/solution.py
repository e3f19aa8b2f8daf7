"""The result of the noise-aware estimate of a chain with one transition matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.inference.asked import asked_of
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.interval_frame import Mark, RowStatus
from bayesprivmrf.inference.limits import cut_limits
from bayesprivmrf.inference.solution import Solution
from bayesprivmrf.inference.transitions.bounds import Bounds, ChainFunction, delta_bounds, delta_errors
from bayesprivmrf.inference.transitions.mode import TransitionMode
from bayesprivmrf.marginals import clamped, marginal_engine
from bayesprivmrf.marginals.arrays import ImpossibleError
from bayesprivmrf.model.conditions import Given, given_error
from bayesprivmrf.model.domain import Variable
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.queries import Query

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TransitionSolution(Solution):
    """Solution of a chain with one transition matrix, with approximate intervals.

    Parameters
    ----------
    mode
        The estimate in unconstrained coordinates, with its covariance.
    """

    mode: TransitionMode = field(kw_only=True)
    _evidence: Evidence = field(kw_only=True)

    def interval(
        self,
        variables: Variable | Sequence[Variable] | Query,
        prob: float = 0.9,
        *,
        of: Literal["population"] = "population",
        given: Given | None = None,
    ) -> pd.DataFrame:
        """Return approximate intervals for the probabilities of joint states, or for a query's answers.

        Normal, by the delta method, and cut at 0 and 1, or at the ends of one record's answer; parameters and result
        as those of a `NoiseAwareMAP` of another model. `bayesprivmrf.sequences` has those of the transition matrix.
        """
        require(
            of == "population",
            "of",
            "be 'population' here",
            of,
            "intervals of='records', for the tables of the people themselves, are those of "
            "LatentCounts().fit(release)",
        )
        asked = asked_of(self._evidence, variables, prob, of, given)
        model, mode, phi = self.specification, self.mode, self.mode.coordinates
        # estimates, and their derivatives by the contrasts c of π and P
        if asked.bound is not None:
            matrix = asked.bound.in_cliques
            estimates, rows = (
                matrix @ self.marginals.flat,
                matrix @ mode.rows.mean_derivatives(phi, linear=True),
            )
        else:
            engine = marginal_engine(model.cardinalities, (*model.scopes, asked.variables))
            start = engine.offsets[-2]
            held = clamped(model.cardinalities, model.scopes, self.potentials.flat, asked.given)
            try:
                _, marginals, product = engine.linearize(np.append(held, np.zeros(engine.size - start)))
            except ImpossibleError:
                raise given_error(model.domain, asked.given) from None
            changes = np.array([product(unit)[:start] for unit in np.eye(engine.size)[start:]])
            estimates, rows = marginals[start:], changes @ mode.rows.linear_derivatives(phi)
        errors = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", rows, mode.covariance, rows), 0.0))
        lower, upper = cut_limits(estimates, errors, errors, asked.prob, asked.ends)
        is_cut = (lower <= asked.ends[0]) | (upper >= asked.ends[1])
        note = "the normal interval reaches an end of the possible range"
        return self._framed(asked, estimates, lower, upper, [Mark(RowStatus.DOUBTFUL, note, is_cut)])

    def _chain_bounds(self, asked: ChainFunction, prob: float) -> Bounds:
        mode, start = self.mode, np.zeros(self.mode.rows.size)

        def shifted(moves: FloatArray) -> FloatArray:
            parts = asked.part_of_rows(mode.rows, *mode.rows.shifted(mode.coordinates, moves))
            return asked.function(parts)

        errors, of_sampling = (
            delta_errors(shifted, start, each) for each in (mode.covariance, mode.of_sampling)
        )
        return delta_bounds(
            asked.of_marginals(self.marginals.flat), errors, of_sampling, prob, asked.is_share
        )
