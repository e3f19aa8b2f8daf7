r"""Approximate intervals for the answers of the N records themselves, from the noise-aware estimate.

The estimate β is that of the parameters θ' whose mean counts are the records' own (`noise_aware.mode`), so that the
records' number in a cell is :math:`n = N p(θ')` where a clique holds the cell's variables: what is unknown of it is
what the noise leaves unknown of θ' and N. With the derivative r of p by the coordinates and C the covariance of
(β, log N) given the noisy counts,

.. math:: \operatorname{Var} n = N^2 \, (r, p) \, C \, (r, p)' .

A cell whose variables no clique holds together varies around :math:`N p(θ')` besides, for the tables of the cliques
do not tell it. Under the model the records given those tables have the law of N draws conditional on their statistics
t, normal where N is large, and of the variance

.. math:: N \bigl( p (1 - p) - r' Σ^{-1} r \bigr), \qquad Σ = \operatorname{Cov} t, \quad
          r = \operatorname{Cov}(1_{cell}, t) .

Where Σ is not formed, for more coordinates than `DENSE_LIMIT`, it is N p (1 - p), which is never too small.

Where N is public an answer lies between N times the least and N times the greatest of one record, and the interval is
normal on the scale of log-odds between them. Where N is private, it is normal on the scale of logarithms if no
record's answer is negative, and on that of the answers else. In a cell that noise hides the upper bound of logarithms
is beyond all records: it is at most the greatest answer of one record times the upper bound of N, normal on the same
scale with the standard error of the releases. Bounds are rounded to whole numbers, as the answers are:
on the first two scales none reaches 0, which many cells have.
"""

from __future__ import annotations

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.limits import Ends, standard_limits, whole_limits
from bayesprivmrf.inference.noise_aware.curvature import DenseCurvature
from bayesprivmrf.inference.noise_aware.interval import (
    AnswersPerRecord,
    limits_on_log_odds,
    noise_variances,
    on_log_odds,
    statistics_covariance,
)
from bayesprivmrf.inference.noise_aware.mode import Mode
from bayesprivmrf.model.tables import FloatArray


def refuse_other_records(mode: Mode) -> None:
    """Raise where the tables of the records are not those of free potentials of one group of records."""
    evidence = mode.means.evidence
    weighed, waves = evidence.is_weighed, bool(evidence.wave_totals)
    if evidence.specification.is_restricted or waves or weighed:
        seen = "rows of weight 1/K" if weighed else "several waves" if waves else "ties or linear scores"
        raise ModelError(
            f"`of='records'` needs a model without ties, linear scores or waves, and rows that weigh 1, got {seen}: "
            "the records' tables are not those of the fit; ask of='population', or fit LatentCounts()."
        )


def interval_of_records(
    mode: Mode, answers: AnswersPerRecord, prob: float, *, is_told: bool, ends: Ends = (0.0, 1.0)
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return the records' answers, their lower and upper limits, and their standard errors on log-odds.

    Parameters
    ----------
    mode, answers
        Where `noise_aware_mode` ended, and the answers per record, with their derivatives.
    prob
        Probability that each interval should hold.
    is_told
        Whether the tables of the cliques tell the answers.
    ends
        The least and the greatest answer of one record.
    """
    from scipy.special import ndtri

    total, (least, most) = float(np.exp(mode.log_total)), ends
    variances = total**2 * noise_variances(mode, answers.rows, by_total=answers.values)
    if not is_told and mode.curvature.formed is None:
        variances += total * answers.single
    elif not is_told:  # the variance of one record's answer given the statistics of the model
        covariance = statistics_covariance(mode)
        # cells that hardly occur leave Σ singular but for rounding
        floor = 1e-9 * float(np.diag(covariance).max(initial=1e-300))
        inverse = DenseCurvature(information=covariance, prior=np.full(len(covariance), floor))
        variances += total * np.maximum(answers.single - inverse.mean_variances(answers.rows.T), 0.0)
    deviations = np.sqrt(variances)
    spread = np.maximum(answers.values - least, 0.0) * np.maximum(most - answers.values, 0.0)
    errors = on_log_odds(deviations / total * np.subtract(most, least), spread)
    relative = mode.means.evidence.total_standard_error / total
    estimates = total * answers.values
    if relative == 0:
        lower, upper = (total * end for end in limits_on_log_odds(answers.values, errors, prob, ends))
        return estimates, *whole_limits(estimates, lower, upper), errors
    # of a private number, limits are normal on the scale of logarithms, or of answers that may be negative
    z = float(ndtri(0.5 + prob / 2))
    deviations = np.maximum(deviations, np.finfo(float).tiny)
    is_positive = (np.asarray(least) >= 0) & (estimates > 0)
    base = np.where(is_positive, estimates, 1.0)
    to_end = np.where(is_positive & (np.asarray(least) == 0), base / deviations, np.inf)
    below, above = standard_limits(to_end, np.full_like(to_end, np.inf), prob)
    with np.errstate(over="ignore"):
        lower, upper = base * np.exp(below * deviations / base), base * np.exp(above * deviations / base)
        upper = np.minimum(upper, most * np.exp(mode.log_total + z * relative))
    lower = np.where(is_positive, lower, estimates + below * deviations)
    upper = np.where(is_positive, np.maximum(upper, estimates), estimates + above * deviations)
    return estimates, *whole_limits(estimates, lower, upper), errors
