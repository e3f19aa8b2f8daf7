"""Estimates and bounds of a function of a chain: quantiles of draws, or the delta method."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bayesprivmrf.checks import probability
from bayesprivmrf.inference.interval_frame import POINT, Mark, RowStatus
from bayesprivmrf.inference.limits import cut_limits, limits_of_draws
from bayesprivmrf.inference.noise_aware.estimator import NoiseAwareSolution
from bayesprivmrf.inference.noise_aware.interval import coordinate_covariance
from bayesprivmrf.inference.posterior.results.intervals import prior_mark
from bayesprivmrf.inference.posterior.results.posterior import Posterior
from bayesprivmrf.inference.solution import Solution
from bayesprivmrf.inference.transitions.rows import TransitionRows
from bayesprivmrf.inference.transitions.solution import TransitionSolution
from bayesprivmrf.model.tables import FloatArray

type Bounds = tuple[FloatArray, FloatArray, FloatArray, tuple[Mark, ...]]
"""Estimates, lower and upper bounds, and marks for some of them."""
_MOST_OF_A_ROW = 0.4
"""Largest share of hidden transitions in a row: beyond it the coverage of the others is 0.78 (docs/benchmarks.md)."""
_STEP = 1e-3
"""Half the distance between the points of a difference, as a share of a standard deviation."""


def bounded(
    fit: Solution | Posterior,
    part: Callable[[FloatArray], FloatArray],
    part_of_rows: Callable[[TransitionRows, FloatArray, FloatArray], FloatArray],
    prob: float,
    function: Callable[[FloatArray], FloatArray],
    is_share: bool,
) -> Bounds:
    """Return the estimate of a function of a part of the marginals, such as a matrix, its bounds, and a mark.

    The part is given twice: from marginals of the cliques, and from π and P of a chain that shares them.
    """
    prob = probability("prob", prob, zero=False, remedy="0.9 is for 90 %")
    if isinstance(fit, Posterior):
        marginals = fit._draws.finished.marginals
        parts = part(marginals)
        drawn = function(parts)
        lower, upper = limits_of_draws(drawn, prob, (0, 1) if is_share else (-np.inf, np.inf))
        is_shared = fit.specification.shares_transitions
        center = parts.mean(axis=(0, 1)) if is_shared else part(marginals.mean(axis=(0, 1)))
        return function(center), lower, upper, (prior_mark(fit._draws, drawn),)
    values = function(part(fit.marginals.flat))
    if isinstance(fit, TransitionSolution):
        mode = fit.mode
        start = np.zeros(mode.rows.size)

        def shifted(moves: FloatArray) -> FloatArray:
            return function(part_of_rows(mode.rows, *mode.rows.shifted(mode.coordinates, moves)))

        errors = _errors(shifted, start, mode.covariance)
        of_sampling = _errors(shifted, start, mode.of_sampling)
    elif isinstance(fit, NoiseAwareSolution) and fit.inference == "exact":
        means = fit.mode.means

        def moved(points: FloatArray) -> FloatArray:
            flat = [means.engine.marginals(point)[1] for point in means.potentials(points)]
            return function(part(np.array(flat)))

        errors = of_sampling = _errors(moved, fit.mode.coordinates, coordinate_covariance(fit.mode))
    else:
        nothing = np.full(values.shape, np.nan)
        return values, nothing, nothing, (POINT,)
    return values, *_by_delta(values, errors, of_sampling, prob, is_share)


def _errors(
    function: Callable[[FloatArray], FloatArray], point: FloatArray, covariance: FloatArray
) -> FloatArray:
    """Standard errors of a function of coordinates, from its differences along the covariance's axes."""
    values, vectors = np.linalg.eigh(covariance)
    moves = _STEP * (vectors * np.sqrt(np.maximum(values, 0.0))).T
    slopes = (function(point + moves) - function(point - moves)) / (2 * _STEP)
    return np.sqrt(np.square(slopes).sum(axis=0))


def _by_delta(
    values: FloatArray, errors: FloatArray, of_sampling: FloatArray, prob: float, is_share: bool
) -> tuple[FloatArray, FloatArray, tuple[Mark, ...]]:
    """Bounds that are normal and cut at 0 and 1, or normal on the scale of logarithms; and which are doubtful.

    A normal law that reaches beyond a probability is no good one there; nor is one of a time whose rate, one over the
    time, might be 0 by it. Where the errors of sampling alone would reach as far, it is for want of records.
    """
    from scipy.special import ndtri

    reach, alone = (float(ndtri(0.5 + prob / 2)) * each for each in (errors, of_sampling))
    if is_share:
        lower, upper = cut_limits(values, errors, errors, prob)
        few = (values - alone <= 0) | (values + alone >= 1)
        hidden = ((lower <= 0) | (upper >= 1)) & ~few
        text, hides = "too few records: the normal interval reaches 0 or 1", "the interval reaches 0 or 1"
    else:
        factor = np.exp(np.divide(reach, values, out=np.zeros_like(values), where=values > 0))
        lower, upper = values / factor, values * factor
        few = (values > 0) & (alone >= values)
        hidden = (values > 0) & (reach >= values) & ~few
        text, hides = "too few records: no upper bound", "no upper bound"
    marks = [(text, few), (f"the noise hides it: {hides}", hidden)]
    if is_share and values.ndim == 2:  # the other transitions of such rows are unreliable as well
        share = hidden.mean(axis=1, keepdims=True)
        marks.append(("the noise hides most of this row", ~hidden & ~few & (share > _MOST_OF_A_ROW)))
    return lower, upper, tuple(Mark(RowStatus.DOUBTFUL, note, np.ravel(rows)) for note, rows in marks)
