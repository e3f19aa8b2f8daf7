r"""Approximate intervals from the curvature at the noise-aware estimate.

The errors below are those of a model whose cliques are its tables. If the model is smaller than its tables, β is the
population's, and its covariance has noise and sampling together. Nothing is then added for sampling, and the answers
of the records have the formulas of `bayesprivmrf.inference.noise_aware.smaller`.

**Population probabilities** have two errors, which add up. The noise leaves the parameters θ' of the N people who
answered uncertain, with the covariance :math:`C = (J'WJ + T^{-1})^{-1}`. W holds one over the variance of each
count's noise, which is 2b² for Laplace noise.
The Fisher information 1/b² would suit many noisy counts a parameter. A released table has about one count a
parameter, so the error of a count passes into its parameter as it is.

The population differs from those N people by sampling:
:math:`θ \mid θ' ∼ N(θ', (N Σ + T^{-1})^{-1})`, where Σ is the covariance of the model's
statistics. A probability p of any cell has the derivative :math:`\operatorname{Cov}(1_{cell}, \cdot)` by the
potentials. Given states of other variables, p and the covariance are those of the distribution that is clamped to
them, which has the same derivative. A query's answer per record, the sum of the query's weights over its scopes'
probabilities, has the derivative that the sum has. It lies between the least and the greatest answer of one record,
which take the place of 0 and 1 below.

On each side the interval has the farther limit of two: that of a normal distribution on the scale of
:math:`\log \frac{p}{1-p}`, and that of one on the scale of p, cut off at 0 and 1. Noise is as large below a count as
above it, and the limit of log-odds towards the nearer end would lie too close to the estimate. Where noise is a
fourth to all of the expected count, up to a fifth of the cells would be below their lower limit
(`benchmarks/marks.py` measures the coverage).

Loopy inference has beliefs of cliques alone. The variables, and those given, must lie in one clique. With b the
beliefs of its cells, the probability is :math:`p = \sum_{cell} b / \sum_{given} b`, and its derivative is that of the
ratio.

Answers without noise leave nothing unknown of θ' in their directions: C is conditioned on them, where its matrix is
formed; for larger models they count as rounded to whole numbers.

There, and for functions of tables such as odds ratios, C includes the uncertainty of the learned scales
(`bayesprivmrf.inference.noise_aware.scale_uncertainty`). Other probabilities leave it out, because the farther one of
two limits is far enough without it.

**Answers of the N records themselves** have the first error alone. The estimate β is that of the parameters θ' whose
mean counts are the records' own (`noise_aware.mode`), so that the records' number in a cell is :math:`n = N p(θ')`
where a clique holds the cell's variables: what is unknown of it is what the noise leaves unknown of θ' and N. The
search holds N at the pooled estimate of the release, whose variance :math:`s^2` is known and whose error is
independent of that of β given N. With the derivative r of p by the coordinates, C the covariance of β given N, and m
the mean counts,

.. math:: \operatorname{Var} n = N^2 r C r' + (p - r C J'W m)^2 s^2 .

A cell whose variables no clique holds together varies around :math:`N p(θ')` besides, for the tables of the cliques
do not tell it. Under the model the records given those tables have the law of N draws conditional on their statistics
t, normal where N is large, and of the variance

.. math:: N \bigl( p (1 - p) - r' Σ^{-1} r \bigr), \qquad Σ = \operatorname{Cov} t, \quad
          r = \operatorname{Cov}(1_{cell}, t) .

Where Σ is not formed, for more coordinates than `DENSE_LIMIT`, it is N p (1 - p), which is never too small.

Where N is public an answer lies between N times the least and N times the greatest of one record. As for a
probability, the interval has the farther limits of the scale of log-odds and of that of the answer. Where N is
private and no record's answer is negative, it has those of the scale of logarithms and of that of the answer;
otherwise it is normal on the scale of answers. In a cell that noise hides, the upper limit of logarithms is beyond
all records. It is therefore at most the estimate and the reach of the noise of the measured numbers that add up to
the answer. Bounds are rounded to whole numbers, as the answers are.

Where N is so large that a prior is a rounding error of J'WJ, both variances and estimate come from the root of that
matrix (`RootCurvature`).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from bayesprivmrf.errors import ForecastWarning, ModelError, ModelTooLargeError, warn_caller
from bayesprivmrf.inference.answers import (
    AnswersPerRecord,
    FittedPotentials,
    answers_per_record,
)
from bayesprivmrf.inference.asked import Asked
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.joint_estimate import Covariances
from bayesprivmrf.inference.limits import Ends, half_width, standard_limits, whole_limits
from bayesprivmrf.inference.loglinear_fit.curvature import (
    DenseCurvature,
    RootCurvature,
    weighted_square,
)
from bayesprivmrf.inference.loglinear_fit.scale_prior import DENSE_LIMIT
from bayesprivmrf.inference.mean_counts import Linearized
from bayesprivmrf.inference.noise_aware.curvature import (
    CONJUGATE_GRADIENTS,
    PATIENCE,
    SampledCurvature,
    product_seconds,
)
from bayesprivmrf.inference.noise_aware.mode import Mode
from bayesprivmrf.inference.noise_aware.scale_uncertainty import scale_uncertainty
from bayesprivmrf.inference.noise_aware.smaller import (
    RecordsAsked,
    population_precision,
    records_given_release,
    whole_limits_between,
)
from bayesprivmrf.model.tables import FloatArray

# Prior standard deviation of each coordinate of a sampling error, nats: it bounds what empty cells leave unknown
_WIDE_SCALE = 3.0

# Coordinates up to which a precision is formed for many cells, and products with J that a system takes else
_FORMED, _PRODUCTS = 4000, 50


def standard_errors(mode: Mode, answers: AnswersPerRecord, ends: Ends = (0.0, 1.0)) -> FloatArray:
    """Return the standard errors of answers per record on the scale of log-odds, shape (rows,); 0 at the ends."""
    variances = noise_variances(mode, answers.rows)
    variances += sampling_variances(mode, answers.rows, answers.single)
    return _on_log_odds(np.sqrt(variances), answers.values, ends)


def _on_log_odds(deviations: FloatArray, values: FloatArray, ends: Ends) -> FloatArray:
    """Return deviations of answers on the scale of log-odds between two ends; 0 at the ends."""
    least, most = ends
    spread = np.maximum(values - least, 0.0) * np.maximum(most - values, 0.0)
    scaled = deviations * np.subtract(most, least)
    return np.divide(scaled, spread, out=np.zeros_like(spread), where=spread > 0)


def limits_on_log_odds(
    estimates: FloatArray, errors: FloatArray, prob: float, ends: Ends = (0.0, 1.0)
) -> tuple[FloatArray, FloatArray]:
    """Return the farther ones of limits that are normal on the scale of log-odds and on that of the answers.

    A standard error s of the log-odds of p is a standard error s p (1 - p) of p, which gives the distances to the
    ends.
    """
    from scipy.special import expit, logit

    least, most = ends
    inside = (estimates > least) & (estimates < most) & (errors > 0)
    width = np.where(inside, np.subtract(most, least), 1.0)
    place = np.where(inside, (estimates - least) / width, 0.5)
    errors = np.where(inside, errors, 1.0)
    below, above = standard_limits(1 / (errors * (1 - place)), 1 / (errors * place), prob)
    deviations = np.maximum(errors * place * (1 - place), np.finfo(float).tiny)
    lowest = np.maximum(place + below * deviations, 0.0)
    highest = np.minimum(place + above * deviations, 1.0)
    lower = np.minimum(expit(logit(place) + below * errors), lowest)
    upper = np.maximum(expit(logit(place) + above * errors), highest)
    return (
        np.where(inside, least + width * lower, estimates),
        np.where(inside, least + width * upper, estimates),
    )


def noise_variances(
    mode: Mode, rows: FloatArray, *, by_total: FloatArray | None = None
) -> FloatArray:
    """Return the variance of each probability from the uncertainty of β and N that the noise leaves.

    Parameters
    ----------
    mode
        Where `noise_aware_mode` ended.
    rows
        Derivatives by the coordinates, shape (rows, d).
    by_total
        Derivatives by log N, shape (rows,), which count where N is private; a probability has none.

    Notes
    -----
    The search holds N at the pooled estimate of the release, whose error is independent of that of β given N. With N
    held, β has the covariance C, and moves by :math:`-C J'W m` with log N. A variance is that of β given N, and the
    square of the answer's whole derivative by log N times the variance of log N. If cells are empty, the pooled N has
    the noise of all cells, and a larger variance than an N that was fitted with β would have.
    """
    evidence = mode.means.evidence
    relative = evidence.total_standard_error / float(np.exp(mode.log_total))
    if by_total is None:
        by_total = np.zeros(len(rows))
    if not _is_least_squares(mode):
        padded = np.column_stack([rows, by_total * (relative > 0)])
        covariance = _noise_covariance(mode)
        if not mode.means.is_smaller and mode.means.tells_all:
            covariance = _with_scales(mode, covariance)
        return np.maximum(np.einsum("ij,ij->i", padded @ covariance, padded), 0.0)
    held = mode.means.at(mode.point, holds_total=True)
    size = mode.means.effects.size
    is_wide = size > _FORMED or size >= _PRODUCTS * len(rows)
    if mode.curvature.formed is not None or not is_wide:
        curvature = _held_curvature(mode, held)
        variances = curvature.mean_variances(rows.T)
        moved = curvature.step(-held.mean * np.sqrt(noise_weights(mode)), np.zeros(size))
    else:
        _warn_of_many_systems(mode, len(rows))
        prior = np.append(mode.prior.precision(mode.log_scales), 1.0)
        sampled = SampledCurvature(linearized=held, weights=noise_weights(mode), prior=prior)
        padded = np.column_stack([rows, np.zeros(len(rows))])
        # one linear system a row
        variances = np.array([row @ sampled.solve(row) for row in padded])
        moved = -sampled.solve(held.backward(noise_weights(mode) * held.mean))[:-1]
    along_total = by_total + rows @ moved
    return np.maximum(variances, 0.0) + np.square(relative * along_total)


def _is_least_squares(mode: Mode) -> bool:
    """Return True if β given N has the covariance C: free potentials, and no constraint on a formed matrix."""
    evidence = mode.means.evidence
    is_exact = evidence.is_exact[evidence.possible]
    is_constrained = mode.curvature.formed is not None and bool(is_exact.any())
    return not mode.means.is_smaller and mode.means.tells_all and not is_constrained


def _held_curvature(mode: Mode, held: Linearized) -> RootCurvature:
    """Return the precision J'WJ + T⁻¹ of β with N held."""
    root = mode.means.jacobian(held)[:-1] * np.sqrt(noise_weights(mode))
    return RootCurvature(root=root, prior=mode.prior.precision(mode.log_scales))


def _warn_of_many_systems(mode: Mode, answers: int) -> None:
    """Warn with a forecast where so many linear systems by products will take long."""
    seconds = answers * CONJUGATE_GRADIENTS * product_seconds(mode.means)
    if seconds > PATIENCE:
        warn_caller(
            f"intervals of {answers:,} numbers in a model of this size are forecast to take up to "
            f"{math.ceil(seconds / 60):,} minutes on one ordinary core; wait for them, ask for fewer variables "
            "at a time, condition on states with `given`, ask a smaller query, or declare smaller cliques.",
            ForecastWarning,
        )


def _noise_covariance(mode: Mode) -> FloatArray:
    r"""Return the covariance of (β, log N) that the noise leaves, shape (d + 1, d + 1).

    Under a model that omits interactions of measured tables, sampling is part of it (`noise_aware.smaller`).

    In a tied model, whose statistics leave the measured counts a covariance, the loss adds up the counts one by one,
    each weighted by one over its variance. Its minimum therefore has the covariance
    :math:`C (J' W^{1/2} P W^{1/2} J + T^{-1}) C`, P being the correlations of the noisy counts: C itself where there
    are none.
    """
    linearized = _linearized(mode)
    prior = _precision(mode)
    if mode.means.is_smaller:
        return population_precision(mode, linearized, prior)[0].covariance
    jacobian = mode.means.jacobian(linearized)
    unexplained = linearized.unexplained
    if unexplained is not None:
        own = np.maximum(np.diag(unexplained), 0.0) + 1 / 12
        deviations = np.sqrt(own + mode.likelihood.noise_variance)
        correlations = unexplained / np.outer(deviations, deviations)
        np.fill_diagonal(correlations, 1.0)
        weighted = jacobian / deviations
        inverse = DenseCurvature(information=weighted @ weighted.T, prior=prior).covariance
        return inverse @ (weighted @ correlations @ weighted.T + np.diag(prior)) @ inverse
    curvature = DenseCurvature(
        information=weighted_square(jacobian, noise_weights(mode)), prior=prior
    )
    is_exact = mode.means.evidence.is_exact[mode.means.evidence.possible]
    if mode.curvature.formed is None or not is_exact.any():
        return curvature.covariance
    # answers without noise, B'x = 0, take C B (B'C B)⁺ B'C off the covariance C, the limit of ever less noise
    held = jacobian[:, is_exact]
    solved = curvature.solve(held)
    return (
        curvature.covariance
        - solved @ np.linalg.pinv(held.T @ solved, rcond=1e-10, hermitian=True) @ solved.T
    )


def answers_covariances(mode: Mode, answers: AnswersPerRecord) -> Covariances:
    r"""Return the covariances of probabilities of joint states, for functions of them such as log odds ratios.

    The estimate is that of the N people, which no prior draws towards 0 for their sampling. The sampling error
    therefore has no prior either, but for one so wide that it only bounds what empty cells leave unknown. With the
    learned scales in its place, 90 % intervals of conditional odds ratios covered 0.79 in tables of 24 cells with 500
    records (benchmarks/odds_ratios.py). In models whose matrices are not formed, the sampling is that of a model
    without constraints.
    """
    rows = answers.rows
    if mode.means.is_smaller or mode.curvature.formed is not None:
        return _covariances_of(mode, rows)
    padded = np.column_stack([rows, np.zeros(len(rows))])
    if mode.means.effects.size <= _FORMED or not mode.means.tells_all:
        noise = padded @ _noise_covariance(mode) @ padded.T
    else:
        sampled = SampledCurvature(
            linearized=_linearized(mode), weights=noise_weights(mode), prior=_precision(mode)
        )
        noise = padded @ np.array([sampled.solve(row) for row in padded]).T
    variances = 1 / mode.prior.precision(mode.log_scales)
    prior = (rows * variances) @ rows.T
    values = answers.values
    # the variance of one record's cell is larger by one over the share of the people who have the states given
    is_free = answers.single > 0
    share = (values * (1 - values))[is_free] / answers.single[is_free]
    people = float(np.exp(mode.log_total)) * float(np.median(share))
    sampling = (np.diag(values) - np.outer(values, values)) / people
    return Covariances(whole=noise + sampling, noise=noise, prior=prior)


def contrast_covariances(mode: Mode, rows: FloatArray) -> Covariances:
    """Return the covariances of linear functions of the coordinates, such as effects, as `answers_covariances`.

    Parameters
    ----------
    mode
        Where `noise_aware_mode` ended.
    rows
        The functions, shape (rows, d).
    """
    require_few_coordinates(mode)
    return _covariances_of(mode, rows)


def _covariances_of(mode: Mode, rows: FloatArray) -> Covariances:
    """Return the covariances of functions of the coordinates, given their derivatives, shape (rows, d)."""
    variances = 1 / mode.prior.precision(mode.log_scales)
    covariance = _noise_covariance(mode)
    widened = _with_scales(mode, covariance)[:-1, :-1]
    return Covariances(
        whole=rows @ widened @ rows.T + _sampling_of(mode, rows),
        noise=rows @ covariance[:-1, :-1] @ rows.T,
        prior=(rows * variances) @ rows.T,
    )


def coordinate_noise(mode: Mode) -> FloatArray:
    """Return the covariance of the coordinates that the noise leaves, given the scales, shape (d, d)."""
    return _noise_covariance(mode)[:-1, :-1]


def _with_scales(mode: Mode, covariance: FloatArray) -> FloatArray:
    """Return a covariance of (β, log N) that noise leaves with the uncertainty of learned scales, same shape."""
    if mode.has_given_scale or mode.curvature.formed is None:
        return covariance
    found = scale_uncertainty(mode, covariance[:-1, :-1])
    if mode.means.tells_all or mode.means.is_smaller:
        # the inverse of the covariance changes by that of the prior, also where it is singular
        prior = mode.prior.precision(found.log_scales) - mode.prior.precision(mode.log_scales)
        change = covariance * np.append(prior, 0.0)
        solved = np.linalg.solve(np.eye(len(covariance)) + change, covariance)
        widened = 0.5 * (solved + solved.T)
    else:
        widened = _noise_covariance(replace(mode, log_scales=found.log_scales))
    widened[:-1, :-1] += found.moved
    return widened


def _sampling_of(mode: Mode, rows: FloatArray) -> FloatArray:
    """Return the covariance of functions of the coordinates from sampling, without the learned prior."""
    if mode.means.is_smaller:
        return np.zeros((len(rows), len(rows)))
    information = float(np.exp(mode.log_total)) * statistics_covariance(mode)
    wide = np.full(len(information), _WIDE_SCALE**-2)
    return rows @ DenseCurvature(information=information, prior=wide).covariance @ rows.T


def coordinate_covariance(mode: Mode) -> FloatArray:
    """Return the covariance of the population's coordinates from noise and sampling, shape (d, d)."""
    require_few_coordinates(mode)
    covariance = coordinate_noise(mode)
    if mode.means.is_smaller:
        return covariance
    return covariance + _sampling_curvature(mode).covariance


def require_few_coordinates(mode: Mode) -> None:
    """Raise a ModelTooLargeError if the covariance of the coordinates is too large to be formed."""
    if (size := mode.means.effects.size) > DENSE_LIMIT:
        raise ModelTooLargeError(
            f"intervals of effects, or of a transition matrix, take up to {DENSE_LIMIT:,} parameters, got {size:,}; "
            "ask for single tables by `interval`, or, after a step of a chain, given the state before."
        )


def noise_weights(mode: Mode) -> FloatArray:
    """Return the inverse noise variance of each noisy count, per records squared, at most 12 as for rounding."""
    return 1 / np.maximum(mode.likelihood.noise_variance, 1 / 12)


def _precision(mode: Mode) -> FloatArray:
    is_free = mode.means.evidence.total_standard_error > 0
    # a nearly flat prior of log N where only the tables determine it
    return np.append(mode.prior.precision(mode.log_scales), 1e-6 if is_free else 1.0)


def _linearized(mode: Mode) -> Linearized:
    return mode.means.at(mode.point, holds_total=mode.means.evidence.total_standard_error == 0)


def sampling_variances(mode: Mode, rows: FloatArray, single: FloatArray) -> FloatArray:
    """Return the variance of each number of the population given the N people, by NΣ + T⁻¹.

    For models whose matrices are not formed, that of one record over N: of a model without constraints, never below.
    For a probability that is p(1 - p), over the share of the people who have the states given. It is 0 under a model
    that omits interactions of measured tables, where `noise_variances` has it already.
    """
    if mode.means.is_smaller:
        return np.zeros(len(rows))
    if mode.curvature.formed is None:
        return single / float(np.exp(mode.log_total))
    return _sampling_curvature(mode).mean_variances(rows.T)


def _sampling_curvature(mode: Mode) -> DenseCurvature:
    """Return the curvature NΣ + T⁻¹.

    The prior stays here, and not in `answers_covariances`. Intervals of single and of conditional probabilities cover
    at their level with it (benchmarks/marks.py); without it, those of rare cells are a quarter wider. Functions of
    many cells, such as odds ratios, are drawn together by the prior's errors in all of them.
    """
    information = float(np.exp(mode.log_total)) * statistics_covariance(mode)
    return DenseCurvature(information=information, prior=mode.prior.precision(mode.log_scales))


def statistics_covariance(mode: Mode) -> FloatArray:
    """Return Σ, the covariance of one record's statistics, shape (d, d)."""
    potentials = mode.means.evidence.family.potentials(mode.coordinates)
    return mode.means.statistics_covariance(mode.means.engine.linearize(potentials)[2])


def refuse_other_records(mode: Mode) -> None:
    """Raise where the tables of the records are not those of free potentials of one group of records."""
    evidence = mode.means.evidence
    weighed = evidence.is_weighed
    waves = bool(evidence.wave_totals)
    if evidence.specification.believed.is_restricted or waves or weighed:
        if weighed:
            seen = "rows of weight 1/K"
        elif waves:
            seen = "several waves"
        else:
            seen = "ties or linear scores"
        raise ModelError(
            f"`of='records'` needs a model without ties, linear scores or waves, and rows that weigh 1, got {seen}: "
            "the records' tables are not those of the fit; ask of='population', or fit LatentCounts()."
        )


def interval_of_records(
    mode: Mode, answers: AnswersPerRecord, asked: Asked
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the records' answers, and their lower and upper limits.

    Parameters
    ----------
    mode, answers
        Where `noise_aware_mode` ended, and the answers per record, with their derivatives.
    asked
        The question.
    """
    total = float(np.exp(mode.log_total))
    variances = total**2 * noise_variances(mode, answers.rows, by_total=answers.values)
    if asked.apart:
        variances += _variances_given_statistics(mode, answers)
    deviations = np.sqrt(variances)
    if mode.means.evidence.total_standard_error == 0:
        errors = _on_log_odds(deviations / total, answers.values, asked.ends)
        limits = limits_on_log_odds(answers.values, errors, asked.prob, asked.ends)
        estimates = total * answers.values
        lower, upper = (total * end for end in limits)
    else:
        means = _refined_means(mode, answers)
        estimates, lower, upper = _limits_of_private(mode, asked, means, deviations)
    return estimates, *whole_limits(estimates, lower, upper)


def _variances_given_statistics(mode: Mode, answers: AnswersPerRecord) -> FloatArray:
    """Return the variances of the N records' answers given the statistics of the model, shape (rows,)."""
    total = float(np.exp(mode.log_total))
    if mode.curvature.formed is None:
        return total * answers.single
    covariance = statistics_covariance(mode)
    # cells that hardly occur leave Σ singular but for rounding
    floor = 1e-9 * float(np.diag(covariance).max(initial=1e-300))
    inverse = DenseCurvature(information=covariance, prior=np.full(len(covariance), floor))
    return total * np.maximum(answers.single - inverse.mean_variances(answers.rows.T), 0.0)


def _refined_means(mode: Mode, answers: AnswersPerRecord) -> FloatArray:
    """Return the records' answers, shape (rows,), records, after one more step of the search where N is very large.

    The search takes its steps from the matrix J'WJ. If N is so large that the prior is a rounding error of this
    matrix, it ends a few standard deviations of the noise away from its optimum. A least-squares step by the root of
    the matrix goes there.
    """
    total = float(np.exp(mode.log_total))
    means = total * answers.values
    if mode.curvature.formed is None or not _is_least_squares(mode):
        return means
    held = mode.means.at(mode.point, holds_total=True)
    curvature = _held_curvature(mode, held)
    if not curvature.hides_prior:
        return means
    residual = mode.likelihood.noisy_counts - held.mean
    pull = mode.coordinates * np.sqrt(curvature.prior)
    shift = total * (answers.rows @ curvature.step(residual * np.sqrt(noise_weights(mode)), pull))
    # an answer above 0 stays there
    base = np.where(means > 0, means, 1.0)
    factor = np.exp(np.clip(shift / base, -1.0, 1.0))
    return np.where(means > 0, means * factor, means + shift)


def _limits_of_private(
    mode: Mode, asked: Asked, estimates: FloatArray, deviations: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return answers of the records and their limits where N is private.

    Limits are normal on the scale of answers, or on that of logarithms too if no record's answer is negative, where
    the farther ones count. The upper limit of logarithms is at most what the noise of the measured numbers leaves
    possible.

    Parameters
    ----------
    mode, asked
        Where `noise_aware_mode` ended, and the question.
    estimates, deviations
        The records' answers and their standard deviations, shape (rows,).
    """
    least, most = asked.ends
    evidence = mode.means.evidence
    z = float(half_width(np.ones(1), asked.prob)[0])
    deviations = np.maximum(deviations, np.finfo(float).tiny)
    is_positive = (np.asarray(least) >= 0) & (estimates > 0)
    base = np.where(is_positive, estimates, 1.0)
    with np.errstate(over="ignore"):
        to_end = np.where(is_positive & (np.asarray(least) == 0), base / deviations, np.inf)
        below, above = standard_limits(to_end, np.full_like(to_end, np.inf), asked.prob)
        lowest = base * np.exp(below * deviations / base)
        highest = base * np.exp(above * deviations / base)
    relative = evidence.total_standard_error / np.exp(mode.log_total)
    lower = estimates + below * deviations
    upper = estimates + above * deviations
    highest = np.minimum(highest, estimates + z * np.sqrt(answer_noise(evidence, asked)))
    # rules leave the cells of a table unequally uncertain, and their mean may be less than this answer's own
    highest = np.maximum(highest, upper)
    highest = np.minimum(highest, most * np.exp(mode.log_total + z * relative))
    lower = np.where(is_positive, np.minimum(np.maximum(lower, 0.0), lowest), lower)
    upper = np.where(is_positive, np.maximum(highest, estimates), upper)
    return estimates, lower, upper


def answer_noise(evidence: Evidence, asked: Asked) -> FloatArray | float:
    """Return the noise variance of the measured numbers that tell each answer; infinite where none does.

    Parameters
    ----------
    evidence
        The evidence of the fit.
    asked
        The question.

    Returns
    -------
    ndarray or float
        Records squared, shape (rows,), or one number for all rows.
    """
    if asked.bound is None:
        return evidence.table_noise(asked.variables, len(asked.index))
    noise = evidence.noise_variance
    for query, start in zip(evidence.queries or (), evidence.offsets, strict=False):
        if query.query == asked.bound.query:
            return noise[start : start + len(query)]
    # numbers that are not one a cell of the cliques
    is_other = evidence.queries is not None or evidence.matrix is not None
    if is_other or asked.apart:
        return np.inf
    return asked.bound.in_cliques.power(2) @ noise


def interval_of_records_beyond(
    mode: Mode, asked: Asked, fit: FittedPotentials
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return what `interval_of_records` does, under a model that omits interactions of measured tables.

    Parameters
    ----------
    mode, asked
        Where `noise_aware_mode` ended, and what was asked for.
    fit
        The potentials of the tables of the evidence.
    """
    from scipy.special import ndtri

    means = mode.means
    size = means.effects.size
    total = float(np.exp(mode.log_total))

    def by_both(change: FloatArray) -> FloatArray:
        """Return derivatives by the coordinates, and then covariances with the measured numbers, of one record."""
        return np.concatenate([means.effects.pull_back(change), means.gathered(change)])

    answers = answers_per_record(asked, fit, by_both)
    by_total = total * answers.values[:, np.newaxis]
    if means.evidence.total_standard_error == 0:
        by_total = np.zeros_like(by_total)
    about = RecordsAsked(
        means=total * answers.values,
        by_coordinates=np.hstack([total * answers.rows[:, :size], by_total]),
        with_measured=total * answers.rows[:, size:],
        variances=total * answers.single,
    )
    centers, variances = records_given_release(mode, _linearized(mode), _precision(mode), about)
    (least, most) = asked.ends
    reach = float(ndtri(0.5 + asked.prob / 2)) * means.evidence.total_standard_error
    ends = (np.multiply(least, total), np.multiply(most, total + reach))
    deviations = np.sqrt(variances)
    return whole_limits_between(centers, deviations, asked.prob, ends)
