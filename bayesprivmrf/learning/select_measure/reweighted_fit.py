r"""The mode of a pairwise model where noisy means lie outside what any model could have.

Noise can make a rare event impossible: a cell of eight records gets a count below zero, or three strong correlations
contradict each other. The penalty of `bayesprivmrf.learning.select_measure.fit`, weighed by the curvature at
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

from abc import ABC, abstractmethod

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular

from bayesprivmrf.chains.gibbs import Chains, mixing_of
from bayesprivmrf.learning.models.monomials import effect_scales
from bayesprivmrf.learning.parities.moments import ALWAYS_LISTED, Spectrum
from bayesprivmrf.learning.select_measure.fit import Inference, PairFit, features_of
from bayesprivmrf.marginals import forecast, marginal_engine, sample
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

_WEIGHED, _ROUNDS = 20, 100
_DRAWN = 12  # rounds in which a covariance of draws is drawn anew
_AVERAGED = 20  # where means are drawn, the last rounds' estimates are averaged
_LARGEST_STEP, _DAMPED = 0.5, 0.5  # nats; share of a step whose curvature is that of an earlier round
_HALVINGS = 12
_NEAR, _FAR = 0.1, 1.0  # deviations of what is left to know
# prior deviations, at which a search begins at most: it may end further out, but far out nothing has a curvature
_FARTHEST = 2.0
_ENDED = 1e-4  # nats
_DRAWS, _CELLS = 20_000, 1 << 25
_STRAIN = 0.5  # standard deviations of a mean
_LARGEST_EXACT, _LARGEST = 500, 2000  # coordinates
_IMPLAUSIBLE = 2.0  # prior deviations
_SWEEPS = 256
_LARGEST_WORK = 3e7  # multiplications for an exact covariance: about as long as draws take


def needs_reweighting(
    fit: PairFit,
    ridges: FloatArray,
    noises: FloatArray,
    total: float,
    prior: float,
    generator: np.random.Generator,
) -> bool:
    """Whether the penalty of a fit is far from what it is with the curvature at the estimate.

    Where inference is exact and there are at most 500 coordinates: by half a standard deviation of a mean. Elsewhere,
    where that is costly, only if an effect is beyond two of the prior's.
    """
    size = fit.effects.size
    beyond = bool(np.abs(fit.coordinates).max(initial=0.0) > _IMPLAUSIBLE * prior)
    if size == 0 or size > _LARGEST or beyond or fit.inference != "exact" or size > _LARGEST_EXACT:
        return beyond and size <= _LARGEST
    covariance = moments_of(fit.effects, generator, "exact").covariance(fit.coordinates)
    pull = _pull(covariance, noises, total, prior) @ fit.coordinates - ridges * fit.coordinates
    return bool((np.abs(pull) > _STRAIN * np.sqrt(noises + covariance.diagonal() / total)).any())


def _pull(covariance: FloatArray, noises: FloatArray, total: float, prior: float) -> FloatArray:
    return (np.eye(len(noises)) / total + noises[:, None] * np.linalg.inv(covariance)) / prior**2


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
    """Return the mode.

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
    moments, is_exact = moments_of(effects, generator, inference), inference == "exact"
    weighed = _WEIGHED if moments.has_covariance else _DRAWN
    precision = np.eye(effects.size) / prior**2
    beta = np.clip(np.zeros(effects.size) if start is None else start, -_FARTHEST * prior, _FARTHEST * prior)
    average, moved, rounds = np.zeros(effects.size), np.inf, 0
    factor = inner = precision
    curvature = cho_factor(precision)

    def value(at: FloatArray, mu: FloatArray) -> float:
        strain = solve_triangular(factor, means - mu, lower=True)
        return float(strain @ strain + at @ at / prior**2) / 2

    for rounds in range(1, _ROUNDS + 1):
        is_weighed = rounds <= weighed
        is_fresh = is_weighed or moments.has_covariance
        mu = moments.means(beta)
        if is_fresh:
            covariance = moments.covariance(beta)
            if is_weighed:  # later rounds keep W, so that Q is one function and they can end
                factor = cholesky(covariance / total + np.diag(noises), lower=True)
            inner = solve_triangular(factor, covariance, lower=True)  # L^-1 Σ, W being (L L')^-1
            curvature = cho_factor(inner.T @ inner + precision)  # ΣWΣ + I/τ²
        downhill = inner.T @ solve_triangular(factor, means - mu, lower=True) - beta / prior**2
        step = cho_solve(curvature, downhill)
        moved = float(np.abs(step).max(initial=0.0))
        share = min(1.0 if is_fresh else _DAMPED, _LARGEST_STEP / max(moved, 1e-12))
        # far from the mode a full step may end where nothing has a curvature; drawn means do not show a fall of Q
        if is_exact and is_fresh and moved >= _ENDED:
            here = value(beta, mu)
            for _ in range(_HALVINGS):
                if value(beta + share * step, moments.means(beta + share * step)) < here:
                    break
                share /= 2
        beta = beta + share * step
        if rounds > _ROUNDS - _AVERAGED:  # drawn means never settle: the average has less of their noise
            average += beta / _AVERAGED
        if is_exact and moved < _ENDED and (moments.has_covariance or not is_weighed):
            break
    found = np.nan_to_num(beta if is_exact else average)
    if is_exact:
        well, ended = "converged", moved < _ENDED
    else:
        well, ended = "approximate", moved < _LARGEST_STEP and moments.is_mixed(found)
    # later rounds kept an older W: a mode is one where the estimate's own W leaves no step either
    off = _strain(moments, found, means, noises, total, prior) if is_exact and moments.has_covariance else 0.0
    if off > _NEAR:
        well = "approximate"
    return PairFit(
        effects=effects,
        coordinates=found,
        inference=inference,
        status=well if ended and off < _FAR and np.isfinite(beta).all() else "not trusted",
        details={"iterations": rounds, "penalty": "curvature at the estimate"},
    )


def _strain(
    moments: _Moments,
    beta: FloatArray,
    means: FloatArray,
    noises: FloatArray,
    total: float,
    prior: float,
) -> float:
    """Return the largest step that remains with W taken at the estimate, in posterior standard deviations."""
    mu, covariance = moments.means(beta), moments.covariance(beta)
    factor = cholesky(covariance / total + np.diag(noises), lower=True)
    inner = solve_triangular(factor, covariance, lower=True)
    left = np.linalg.inv(inner.T @ inner + np.eye(beta.size) / prior**2)
    step = left @ (inner.T @ solve_triangular(factor, means - mu, lower=True) - beta / prior**2)
    return float((np.abs(step) / np.sqrt(left.diagonal())).max(initial=0.0))


class _Moments(ABC):
    """Abstract map from coordinates to means and covariance of one record's effects."""

    has_covariance: bool = False
    """Whether covariances are exact and cheap, not those of draws."""

    @abstractmethod
    def means(self, beta: FloatArray) -> FloatArray:
        """Return μ, shape (d,)."""

    @abstractmethod
    def covariance(self, beta: FloatArray) -> FloatArray:
        """Return Σ, shape (d, d); `means` was asked for there just before."""

    def is_mixed(self, beta: FloatArray) -> bool:
        """Whether what was drawn may be trusted: always, where nothing is."""
        return True


def moments_of(effects: Effects, generator: np.random.Generator, inference: Inference) -> _Moments:
    """Return the moments of a model: listed, eliminated or sampled, by its size and the wanted inference."""
    if inference != "exact":
        return _Sampled(effects, generator)
    varying = sum(k > 1 for k in effects.cardinalities)
    is_binary = max(effects.cardinalities, default=1) <= 2
    return _Listed(effects) if is_binary and varying <= ALWAYS_LISTED else _Eliminated(effects, generator)


class _Listed(_Moments):
    """Moments of a model of few two-state variables, by listing all states."""

    has_covariance = True

    def __init__(self, effects: Effects) -> None:
        varying = [v for v, k in enumerate(effects.cardinalities) if k > 1]
        place = {v: bit for bit, v in enumerate(varying)}
        masks = np.array([sum(1 << place[v] for v in subset) for subset in effects.subsets], dtype=np.int64)
        self.spectrum, self.scales = Spectrum(masks, len(varying)), effect_scales(effects)

    def means(self, beta: FloatArray) -> FloatArray:
        return self.spectrum.at(beta / self.scales).means / self.scales

    def covariance(self, beta: FloatArray) -> FloatArray:
        found = self.spectrum.at(beta / self.scales).covariance()
        return _regular(found / np.multiply.outer(self.scales, self.scales))


class _Eliminated(_Moments):
    """Moments by exact inference; covariances by its derivatives, or from exact draws where those are too many."""

    def __init__(self, effects: Effects, generator: np.random.Generator) -> None:
        self.effects, self.generator = effects, generator
        self.engine = marginal_engine(effects.cardinalities, effects.scopes)
        work = forecast(effects.cardinalities, effects.scopes).multiplications * effects.size
        self.has_covariance = work <= _LARGEST_WORK

    def means(self, beta: FloatArray) -> FloatArray:
        return self.effects.pull_back(self.engine.marginals(self.effects.potentials(beta))[1])

    def covariance(self, beta: FloatArray) -> FloatArray:
        effects, potentials = self.effects, self.effects.potentials(beta)
        if not self.has_covariance:
            draws = min(_DRAWS, max(_CELLS // max(effects.size, 1), 1000))
            codes = sample(effects.cardinalities, effects.scopes, potentials, draws, self.generator)
            return _covariance(features_of(effects)(codes))
        product = self.engine.linearize(potentials)[2]
        rows = np.eye(effects.size)
        return _regular(np.array([effects.pull_back(product(effects.potentials(row))) for row in rows]))


class _Sampled(_Moments):
    """Moments by Gibbs sampling: means and covariance from the same draws."""

    def __init__(self, effects: Effects, generator: np.random.Generator) -> None:
        self.chains = Chains(effects.cardinalities, effects.scopes, generator)
        self.features, self.effects = features_of(effects), effects
        self.drawn = np.zeros((0, effects.size))

    def means(self, beta: FloatArray) -> FloatArray:
        codes = self.chains.advance(self.effects.potentials(beta), _SWEEPS + 10)[10:]
        self.drawn = self.features(codes.transpose(0, 2, 1).reshape(-1, codes.shape[1]))
        return self.drawn.mean(axis=0, dtype=float)

    def covariance(self, beta: FloatArray) -> FloatArray:
        return _covariance(self.drawn)

    def is_mixed(self, beta: FloatArray) -> bool:
        potentials, chains = self.effects.potentials(beta), self.chains
        codes = chains.advance(potentials, _SWEEPS + 10)[10:]
        return mixing_of(codes, chains.cards, chains.scopes, potentials).trusted


def _regular(covariance: FloatArray) -> FloatArray:
    """Covariance, kept positive definite against rounding."""
    found = (covariance + covariance.T) / 2
    found[np.diag_indices_from(found)] += 1e-12
    return found


def _covariance(drawn: np.ndarray) -> FloatArray:
    """Covariance of rows of features, with less than one draw's worth added to the diagonal to keep it regular."""
    found = np.atleast_2d(np.cov(drawn, rowvar=False, dtype=float))
    found[np.diag_indices_from(found)] += (found.diagonal() + 1e-9) / len(drawn)
    return found
