"""Result of the noise-aware estimate of a chain with one transition matrix, and bounds of functions of a chain.

Each type of fit answers by its method `_chain_bounds`: a posterior by quantiles of its draws, an estimate with a
covariance by the delta method, and any other without bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.inference.asked import asked_of
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.interval_frame import Mark, RowStatus
from bayesprivmrf.inference.limits import Bounds, ChainFunction, cut_limits, half_width
from bayesprivmrf.inference.noise_aware.interval import answers_per_record
from bayesprivmrf.inference.solution import Solution
from bayesprivmrf.inference.transitions.mode import TransitionMode
from bayesprivmrf.model.domain import Given, Variable
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.queries import Query

if TYPE_CHECKING:
    import pandas as pd


# Half the distance between the points of a difference, in standard deviations; the error is of its square
_STEP = 1e-3


def delta_errors(
    function: Callable[[FloatArray], FloatArray], point: FloatArray, covariance: FloatArray
) -> FloatArray:
    """Return standard errors of a function of coordinates, by differences along the axes of their covariance."""
    values, vectors = np.linalg.eigh(covariance)
    moves = _STEP * (vectors * np.sqrt(np.maximum(values, 0.0))).T
    slopes = (function(point + moves) - function(point - moves)) / (2 * _STEP)
    return np.sqrt(np.square(slopes).sum(axis=0))


def delta_bounds(
    values: FloatArray, errors: FloatArray, of_sampling: FloatArray, prob: float, is_share: bool
) -> Bounds:
    """Return bounds from standard errors: normal and cut at 0 and 1, or normal on the scale of logarithms.

    Bounds are doubtful where the normal interval reaches 0 or 1, or, for a time, where that of the rate, one over the
    time, reaches 0. Where the errors of sampling alone reach as far, there are too few records.
    """
    reach, alone = (half_width(each, prob) for each in (errors, of_sampling))
    if is_share:
        lower, upper = cut_limits(values, errors, errors, prob)
        few = (values - alone <= 0) | (values + alone >= 1)
        hidden = ((lower <= 0) | (upper >= 1)) & ~few
        text = "too few records: the normal interval reaches 0 or 1"
        hides = "the interval reaches 0 or 1"
    else:
        factor = np.exp(np.divide(reach, values, out=np.zeros_like(values), where=values > 0))
        lower = values / factor
        upper = values * factor
        few = (values > 0) & (alone >= values)
        hidden = (values > 0) & (reach >= values) & ~few
        text = "too few records: no upper bound"
        hides = "no upper bound"
    marks = [(text, few), (f"the noise hides it: {hides}", hidden)]
    if is_share and values.ndim == 2:  # the other transitions of such rows are unreliable as well
        share = hidden.mean(axis=1, keepdims=True)
        # beyond this share, coverage of the other transitions is 0.78 (hidden-transitions-row.csv)
        marks.append(("the noise hides most of this row", ~hidden & ~few & (share > 0.4)))
    return Bounds(
        values,
        lower,
        upper,
        tuple(Mark(RowStatus.DOUBTFUL, note, np.ravel(rows)) for note, rows in marks),
    )


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
        asked = asked_of(self._evidence, variables, prob, of, given)
        remedy = "LatentCounts().fit(release) has intervals of='records', for the tables of the people themselves"
        require(asked.of == "population", "of", "be 'population' here", of, remedy)
        mode = self.mode
        # estimates, and their derivatives by the contrasts c of π and P
        derivatives = mode.rows.derivatives(mode.coordinates, linear=True)
        answers = answers_per_record(asked, self.potentials.flat, "exact", derivatives.T.dot)
        estimates = answers.values
        rows = answers.rows
        errors = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", rows, mode.covariance, rows), 0.0))
        lower, upper = cut_limits(estimates, errors, errors, asked.prob, asked.ends)
        is_cut = (lower <= asked.ends[0]) | (upper >= asked.ends[1])
        note = "the normal interval reaches an end of the possible range"
        return self._framed(
            asked, estimates, lower, upper, [Mark(RowStatus.DOUBTFUL, note, is_cut)]
        )

    def _chain_bounds(self, asked: ChainFunction, prob: float) -> Bounds:
        mode = self.mode
        start = np.zeros(self.mode.rows.size)

        def shifted(moves: FloatArray) -> FloatArray:
            parts = asked.part_of_rows(mode.rows, *mode.rows.shifted(mode.coordinates, moves))
            return asked.function(parts)

        errors, of_sampling = (
            delta_errors(shifted, start, each) for each in (mode.covariance, mode.of_sampling)
        )
        return delta_bounds(
            asked.of_marginals(self.marginals.flat), errors, of_sampling, prob, asked.is_share
        )
