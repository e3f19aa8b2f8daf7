"""The result of the noise-aware estimate of a chain with one transition matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.inference.asked import Asked, asked_of
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.interval_frame import Mark, RowStatus
from bayesprivmrf.inference.limits import cut_limits
from bayesprivmrf.inference.solution import Solution
from bayesprivmrf.inference.transitions.bounds import Bounds, ChainFunction, delta_bounds, delta_errors
from bayesprivmrf.inference.transitions.mode import TransitionMode
from bayesprivmrf.marginals import clamped, marginal_engine
from bayesprivmrf.marginals.arrays import ImpossibleError
from bayesprivmrf.model.domain import Given, Variable, given_error
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
        model, flat = self.specification, self.potentials.flat
        if asked.bound is not None:
            engine = marginal_engine(model.cardinalities, model.scopes)
            _, marginals, product = engine.linearize(flat)
            changes = np.array([product(unit) for unit in asked.bound.in_cliques.toarray()])
            return self._interval(asked, asked.bound.in_cliques @ marginals, changes)
        engine = marginal_engine(model.cardinalities, (*model.scopes, asked.variables))
        start = engine.offsets[-2]
        held = clamped(model.cardinalities, model.scopes, flat, asked.given)
        try:
            _, marginals, product = engine.linearize(np.append(held, np.zeros(engine.size - start)))
        except ImpossibleError:
            raise given_error(model.domain, asked.given) from None
        changes = np.array([product(unit)[:start] for unit in np.eye(engine.size)[start:]])
        return self._interval(asked, marginals[start:], changes)

    def _interval(self, asked: Asked, estimates: FloatArray, changes: FloatArray) -> pd.DataFrame:
        """Return intervals of numbers, from their derivatives with respect to the potentials."""
        rows = changes @ self.mode.rows.linear_derivatives(self.mode.coordinates)
        variances = np.einsum("ij,jk,ik->i", rows, self.mode.covariance, rows)
        errors = np.sqrt(np.maximum(variances, 0.0))
        (least, most), (lower, upper) = (
            asked.ends,
            cut_limits(estimates, errors, errors, asked.prob, asked.ends),
        )
        cut = Mark(
            RowStatus.DOUBTFUL,
            "the normal interval reaches an end of the possible range",
            (lower <= least) | (upper >= most),
        )
        return self._framed(asked, estimates, lower, upper, [cut])

    def _chain_bounds(self, asked: ChainFunction, prob: float) -> Bounds:
        mode = self.mode
        start = np.zeros(mode.rows.size)

        def shifted(moves: FloatArray) -> FloatArray:
            parts = asked.part_of_rows(mode.rows, *mode.rows.shifted(mode.coordinates, moves))
            return asked.function(parts)

        errors = delta_errors(shifted, start, mode.covariance)
        of_sampling = delta_errors(shifted, start, mode.of_sampling)
        values = asked.of_marginals(self.marginals.flat)
        return delta_bounds(values, errors, of_sampling, prob, asked.is_share)
