r"""Mode of a pairwise model from noisy means that no model could have exactly.

Noise can make a rare event impossible: a cell of eight records gets a count below zero, or three strong correlations
contradict each other. The penalty of `bayesprivmrf.inference.loglinear_fit.fit`, weighed by the curvature at
independence, then hardly holds the estimate, because the curvature vanishes along the direction in which the event
becomes rarer. With :math:`\Sigma(\beta)` the covariance of one record's effects, V the variances of the noise on
the means and a normal prior of deviation τ, the mode of

.. math:: t \sim \mathcal N\bigl(\mu(\beta),\, \Sigma / N + V\bigr), \qquad \beta \sim \mathcal N(0, \tau^2 I),

solves, for Σ taken as known where it is, :math:`\Sigma (\Sigma/N + V)^{-1} (t - \mu) = \beta / \tau^2`, that is

.. math:: t - \mu(\beta) = P \beta, \qquad P = \frac{1}{\tau^2} \Bigl( \frac{I}{N} + V \Sigma^{-1} \Bigr) .

P grows where the curvature vanishes. With :math:`W = (\Sigma/N + V)^{-1}` taken as known, the gradient of

.. math:: Q(\beta) = \tfrac12 (t - \mu)^\top W (t - \mu) + \frac{1}{2 \tau^2} \|\beta\|^2

is 0 there. Each round takes the Gauss-Newton step
:math:`(\Sigma W \Sigma + I/\tau^2)^{-1} (\Sigma W (t - \mu) - \beta/\tau^2) = (\Sigma + P)^{-1} (t - \mu - P \beta)`,
halved until Q falls: far from the mode, a full one may well end where all variables agree and nothing has a
curvature. The first rounds compute W anew, the later ones keep it and run to convergence. Where Σ is too costly, the
first rounds estimate it from records drawn from the model; where even means are drawn, no step is halved. A caller
may learn the precisions of the prior in the first rounds, from the estimate and its variances.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from bayesprivmrf.inference.loglinear_fit.curvature import DenseCurvature
from bayesprivmrf.inference.loglinear_fit.fit import PairFit
from bayesprivmrf.inference.loglinear_fit.moments import Inference, moments_of
from bayesprivmrf.inference.loglinear_fit.sampled import Sampled
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

# Rounds that compute W anew, and all rounds at most
_WEIGHED, _ROUNDS = 20, 100

# Rounds in which a covariance of draws is drawn anew: with weights of ever new draws no search would settle
_DRAWN = 12

# Last rounds whose estimates are averaged where means are drawn
_AVERAGED = 20

# Largest change of a coordinate, nats; share of a step that turns back or whose curvature is of an earlier round
_LARGEST_STEP, _DAMPED = 0.5, 0.5


# Largest remaining step, in posterior standard deviations, of a mode that is exact, and of one that is trusted
_NEAR, _FAR = 0.1, 1.0

# Largest start of a search, in prior deviations. It may end further out, where the curvature vanishes
_FARTHEST = 2.0

# Step at which a search has ended, nats
_ENDED = 1e-4


# Coordinates up to which the first fit is checked with an exact covariance, and up to which it is weighed again
_LARGEST_EXACT, _LARGEST = 500, 2000


def needs_reweighting(
    fit: PairFit,
    ridges: FloatArray,
    noises: FloatArray,
    total: float,
    prior: float,
    generator: np.random.Generator,
) -> bool:
    """Return True if a fit's penalty differs much from the one with the curvature at the estimate.

    Where inference is exact and there are at most 500 coordinates: by half a standard deviation of a mean. Elsewhere,
    where that is costly, only if an effect is beyond two of the prior's.
    """
    size = fit.effects.size
    # an estimate this far out in its prior is weighed again without further checks
    beyond = bool(np.abs(fit.coordinates).max(initial=0.0) > 2.0 * prior)
    if size == 0 or size > _LARGEST or beyond or fit.inference != "exact" or size > _LARGEST_EXACT:
        return beyond and size <= _LARGEST
    covariance = moments_of(fit.effects, generator).expanded(fit.coordinates)[1]
    penalty = (np.eye(size) / total + noises[:, None] * np.linalg.inv(covariance)) / prior**2
    pull = penalty @ fit.coordinates - ridges * fit.coordinates
    # the penalty of the first fit may be wrong by half a standard deviation of a mean
    return bool((np.abs(pull) > 0.5 * np.sqrt(noises + covariance.diagonal() / total)).any())


def reweighted_fit(
    effects: Effects,
    means: FloatArray,
    noises: FloatArray,
    total: float,
    prior: float,
    generator: np.random.Generator,
    inference: Inference,
    start: FloatArray | None = None,
    *,
    learned: Callable[[FloatArray, FloatArray], FloatArray] | None = None,
) -> PairFit:
    """Return the mode, with weights that are updated at the estimate.

    Parameters
    ----------
    effects
        The model's coordinates.
    means, noises
        t, and the variance of the noise on it, shape (d,), or its covariance.
    total
        N, records.
    prior
        τ, nats; where scales are learned, the one to begin with.
    generator
        Generator of the Gibbs sampler.
    inference
        How means and covariances are found.
    start
        β to begin at, held to two prior deviations; 0 by default.
    learned
        Precision of each coordinate's prior given the estimate and the diagonal of its covariance, for the rounds
        that compute W anew; by default it stays.
    """
    if noises.ndim == 1:
        covariance_of_noise = np.diag(noises)
    else:
        covariance_of_noise = noises
    if inference == "exact":
        sampled = None
    else:
        sampled = Sampled(effects, generator)
    is_exact = sampled is None
    moments = sampled or moments_of(effects, generator)
    most_learned = most_weighed = _WEIGHED if moments.has_covariance else _DRAWN
    if learned is not None and moments.has_covariance:
        most_weighed = (
            _ROUNDS  # the scales are those of these weights, which follow the estimate to its end
        )
    precision = np.full(effects.size, 1 / prior**2)
    beta = np.clip(
        np.zeros(effects.size) if start is None else start, -_FARTHEST * prior, _FARTHEST * prior
    )
    average = np.zeros(effects.size)
    last = np.zeros(effects.size)
    moved = np.inf
    rounds = 0
    factor = inner = np.zeros((0, 0))  # L of Σ/N + V = L L', so that W = (L L')⁻¹, and L⁻¹ Σ
    curvature = None

    def whitened(mu: FloatArray) -> FloatArray:
        return solve_triangular(factor, means - mu, lower=True)

    def value(at: FloatArray, mu: FloatArray) -> float:
        strain = whitened(mu)
        return float(strain @ strain + precision @ at**2) / 2

    for rounds in range(1, _ROUNDS + 1):
        is_weighed = rounds <= most_weighed
        is_fresh = is_weighed or moments.has_covariance
        if is_fresh or curvature is None:
            mu, covariance = moments.expanded(beta)
            if (
                is_weighed or curvature is None
            ):  # later rounds keep W, so that Q is one function and they can end
                factor = cholesky(covariance / total + covariance_of_noise, lower=True)
            inner = solve_triangular(factor, covariance, lower=True)
            information = inner.T @ inner  # ΣWΣ
            curvature = DenseCurvature(information=information, prior=precision)
            if learned is not None and 1 < rounds <= most_learned:
                precision = learned(beta, curvature.variances)
                curvature = DenseCurvature(information=information, prior=precision)
        else:
            mu = moments.means(beta)[1]
        step = curvature.solve(inner.T @ whitened(mu) - precision * beta)
        moved = float(np.abs(step).max(initial=0.0))
        is_full = is_fresh and (rounds <= _WEIGHED or step @ last >= 0)  # late steps may alternate
        share = min(1.0 if is_full else _DAMPED, _LARGEST_STEP / max(moved, 1e-12))
        last = step
        # far from the mode a full step may end where nothing has a curvature; drawn means do not show a fall of Q
        if is_exact and is_fresh and moved >= _ENDED:
            here = value(beta, mu)
            # after twelve halvings a step is too short to matter
            for _ in range(12):
                if value(beta + share * step, moments.means(beta + share * step)[1]) < here:
                    break
                share /= 2
        beta = beta + share * step
        if (
            rounds > _ROUNDS - _AVERAGED
        ):  # drawn means never settle: the average has less of their noise
            average += beta / _AVERAGED
        is_settled = moments.has_covariance and (learned is None or rounds > most_learned)
        if is_exact and moved < _ENDED and (is_settled or not is_weighed):
            break
    found = np.nan_to_num(beta if is_exact else average)
    if sampled is None:
        well = "converged"
        ended = moved < _ENDED
    else:
        well = "approximate"
        ended = moved < _LARGEST_STEP and sampled.is_mixed(found)
    # later rounds kept an older W: a mode is one where the estimate's own W leaves no step either
    off = 0.0
    if (
        is_exact and moments.has_covariance
    ):  # the largest step that remains, in posterior standard deviations
        mu, covariance = moments.expanded(found)
        factor = cholesky(covariance / total + covariance_of_noise, lower=True)
        inner = solve_triangular(factor, covariance, lower=True)
        curvature = DenseCurvature(information=inner.T @ inner, prior=precision)
        step = curvature.solve(inner.T @ whitened(mu) - precision * found)
        off = float((np.abs(step) / np.sqrt(curvature.variances)).max(initial=0.0))
    if off > _NEAR:
        well = "approximate"
    return PairFit(
        effects=effects,
        coordinates=found,
        inference=inference,
        status=well if ended and off < _FAR and np.isfinite(beta).all() else "not trusted",
        details={"iterations": rounds, "penalty": "curvature at the estimate"},
    )
