r"""Mode of a pairwise model from noisy means that no model could have exactly.

Noise can make a rare event impossible: a cell of eight records gets a count below zero, or three strong correlations
contradict each other. The penalty of `bayesprivmrf.inference.effects_fit.fit`, weighed by the curvature at
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
first rounds estimate it from records drawn from the model; where even means are drawn, no step is halved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from bayesprivmrf.inference.effects_fit.fit import PairFit
from bayesprivmrf.inference.effects_fit.moments import Inference, moments_of
from bayesprivmrf.inference.effects_fit.sampled import Sampled
from bayesprivmrf.inference.noise_aware.curvature import DenseCurvature
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

# Rounds that compute W anew, and all rounds at most
_WEIGHED, _ROUNDS = 20, 100

# Rounds in which a covariance of draws is drawn anew: with weights of ever new draws no search would settle
_DRAWN = 12

# Last rounds whose estimates are averaged where means are drawn
_AVERAGED = 20

# Largest change of a coordinate, nats; share of a step whose curvature is that of an earlier round
_LARGEST_STEP, _DAMPED = 0.5, 0.5


# Largest remaining step, in posterior standard deviations, of a mode that is exact, and of one that is trusted
_NEAR, _FAR = 0.1, 1.0

# Largest start of a search, in prior deviations. It may end further out, where the curvature vanishes
_FARTHEST = 2.0

# Step at which a search has ended, nats
_ENDED = 1e-4


# Coordinates up to which the first fit is checked with an exact covariance, and up to which it is weighed again
_LARGEST_EXACT, _LARGEST = 500, 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    r"""The weights :math:`W = (\Sigma/N + V)^{-1} = (L L')^{-1}` of noisy means, and a step of Fisher's scoring.

    Parameters
    ----------
    factor
        L, lower triangular, shape (d, d).
    inner
        :math:`L^{-1} \Sigma`, shape (d, d).
    """

    factor: FloatArray
    inner: FloatArray

    @classmethod
    def by(cls, covariance: FloatArray, noise: FloatArray, total: float) -> Self:
        """Return the weights by the covariance of one record's effects, that of the noise, and N records."""
        return cls.keeping(cholesky(covariance / total + noise, lower=True), covariance)

    @classmethod
    def keeping(cls, factor: FloatArray, covariance: FloatArray) -> Self:
        """Return the same weights together with another covariance."""
        return cls(factor=factor, inner=solve_triangular(factor, covariance, lower=True))

    @property
    def information(self) -> FloatArray:
        """ΣWΣ, shape (d, d)."""
        return self.inner.T @ self.inner

    def whitened(self, missed: FloatArray) -> FloatArray:
        """Return L⁻¹ times the differences of noisy means from those of the model."""
        return solve_triangular(self.factor, missed, lower=True)

    def score(self, missed: FloatArray) -> FloatArray:
        """Return ΣW times the differences of the means: the gradient of the log likelihood."""
        return self.inner.T @ self.whitened(missed)


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
) -> PairFit:
    """Return the mode, with weights that are updated at the estimate.

    Parameters
    ----------
    effects
        The model's coordinates.
    means, noises
        t, and the variance of the noise on it, shape (d,).
    total
        N, records.
    prior
        τ, nats.
    generator
        Generator of the Gibbs sampler.
    inference
        How means and covariances are found.
    start
        β to begin at, held to two prior deviations; 0 by default.
    """
    sampled = None if inference == "exact" else Sampled(effects, generator)
    is_exact, moments = sampled is None, sampled or moments_of(effects, generator)
    most_weighed = _WEIGHED if moments.has_covariance else _DRAWN
    precision = np.full(effects.size, 1 / prior**2)
    beta = np.clip(np.zeros(effects.size) if start is None else start, -_FARTHEST * prior, _FARTHEST * prior)
    average, moved, rounds = np.zeros(effects.size), np.inf, 0
    weighed, curvature = None, None

    def value(at: FloatArray, mu: FloatArray) -> float:
        assert weighed is not None
        strain = weighed.whitened(means - mu)
        return float(strain @ strain + at @ at / prior**2) / 2

    def scored(at: FloatArray, factor: FloatArray | None) -> tuple[FloatArray, Weighed, DenseCurvature]:
        """Return means, weights, those of a factor where one is given, and the curvature at a point."""
        mu, covariance = moments.expanded(at)
        if factor is None:
            weighed = Weighed.by(covariance, np.diag(noises), total)
        else:
            weighed = Weighed.keeping(factor, covariance)
        return mu, weighed, DenseCurvature(information=weighed.information, prior=precision)

    for rounds in range(1, _ROUNDS + 1):
        is_weighed = rounds <= most_weighed
        is_fresh = is_weighed or moments.has_covariance
        if is_fresh or weighed is None or curvature is None:
            # later rounds keep W, so that Q is one function and they can end
            kept = None if is_weighed or weighed is None else weighed.factor
            mu, weighed, curvature = scored(beta, kept)
        else:
            mu = moments.means(beta)[1]
        step = curvature.solve(weighed.score(means - mu) - precision * beta)
        moved = float(np.abs(step).max(initial=0.0))
        share = min(1.0 if is_fresh else _DAMPED, _LARGEST_STEP / max(moved, 1e-12))
        # far from the mode a full step may end where nothing has a curvature; drawn means do not show a fall of Q
        if is_exact and is_fresh and moved >= _ENDED:
            here = value(beta, mu)
            # after twelve halvings a step is too short to matter
            for _ in range(12):
                if value(beta + share * step, moments.means(beta + share * step)[1]) < here:
                    break
                share /= 2
        beta = beta + share * step
        if rounds > _ROUNDS - _AVERAGED:  # drawn means never settle: the average has less of their noise
            average += beta / _AVERAGED
        if is_exact and moved < _ENDED and (moments.has_covariance or not is_weighed):
            break
    found = np.nan_to_num(beta if is_exact else average)
    if sampled is None:
        well, ended = "converged", moved < _ENDED
    else:
        well, ended = "approximate", moved < _LARGEST_STEP and sampled.is_mixed(found)
    # later rounds kept an older W: a mode is one where the estimate's own W leaves no step either
    off = 0.0
    if is_exact and moments.has_covariance:  # the largest step that remains, in posterior standard deviations
        mu, weighed, curvature = scored(found, None)
        step = curvature.solve(weighed.score(means - mu) - precision * found)
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
