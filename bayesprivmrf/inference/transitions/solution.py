"""Result of the noise-aware estimate of a chain with one transition matrix, and limits of functions of a chain.

Each type of fit answers by its method `_chain_limits`: a posterior by quantiles of its draws, an estimate with a
covariance by the delta method, and any other without limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.inference.answers import (
    AnswersPerRecord,
    FittedPotentials,
    answers_per_record,
)
from bayesprivmrf.inference.asked import Asked, asked_marks
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.interval_frame import Mark, RowStatus
from bayesprivmrf.inference.joint_estimate import (
    Covariances,
    JointEstimate,
    joint_estimate,
    normal_table,
)
from bayesprivmrf.inference.limits import ChainFunction, Limits, cut_limits, half_width
from bayesprivmrf.inference.solution import Solution
from bayesprivmrf.inference.transitions.mode import TransitionMode
from bayesprivmrf.model.tables import FloatArray

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


def delta_limits(
    values: FloatArray, errors: FloatArray, of_sampling: FloatArray, prob: float, is_share: bool
) -> Limits:
    """Return limits from standard errors: normal and cut at 0 and 1, or normal on the scale of logarithms.

    Limits are doubtful where the normal interval reaches 0 or 1, or, for a time, where that of the rate, one over the
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
    return Limits(
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

    def _limits(self, asked: Asked) -> Limits:
        """Return normal limits by the delta method, cut at 0 and 1, or at the ends of one record's answer.

        `bayesprivmrf.sequences` has those of the transition matrix.
        """
        remedy = "LatentCounts().fit(release) has intervals of='records', for the tables of the people themselves"
        require(asked.of == "population", "of", "be 'population' here", asked.of, remedy)
        mode = self.mode
        answers = self._answers(asked)
        estimates = answers.values
        rows = answers.rows
        errors = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", rows, mode.covariance, rows), 0.0))
        lower, upper = cut_limits(estimates, errors, errors, asked.prob, asked.ends)
        is_cut = (lower <= asked.ends[0]) | (upper >= asked.ends[1])
        # short, so that the remark on untested memory fits beside it
        note = "the interval is cut at an end"
        marks = (Mark(RowStatus.DOUBTFUL, note, is_cut), *asked_marks(self._evidence, asked))
        return Limits(estimates, lower, upper, marks)

    def _answers(self, asked: Asked) -> AnswersPerRecord:
        """Return the answers per record, with their derivatives by the contrasts c of π and P."""
        mode = self.mode
        derivatives = mode.rows.derivatives(mode.coordinates, linear=True)
        fit = FittedPotentials(
            evidence=self._evidence, potentials=self.potentials.flat, inference="exact"
        )
        return answers_per_record(asked, fit, derivatives.T.dot)

    def _joint_estimate(self, asked: Asked) -> JointEstimate:
        """Return a joint table with the covariance of π and P."""
        answers = self._answers(asked)
        covariance = answers.rows @ self.mode.covariance @ answers.rows.T
        shape = [asked.model.cardinalities[v] for v in asked.variables]
        uncertainty = normal_table(answers.values, shape, Covariances(whole=covariance))
        return joint_estimate(asked, self._evidence, uncertainty, self.status)

    def _chain_limits(self, asked: ChainFunction, prob: float) -> Limits:
        mode = self.mode
        start = np.zeros(self.mode.rows.size)

        def shifted(moves: FloatArray) -> FloatArray:
            parts = asked.part_of_rows(mode.rows, *mode.rows.shifted(mode.coordinates, moves))
            return asked.function(parts)

        errors, of_sampling = (
            delta_errors(shifted, start, each) for each in (mode.covariance, mode.of_sampling)
        )
        return delta_limits(
            asked.of_marginals(self.marginals.flat), errors, of_sampling, prob, asked.is_share
        )
