r"""The mode of a pairwise model where noisy means lie outside what any model could have.

Noise can make a rare event impossible: a cell of eight records gets a count below zero, or three strong correlations
contradict each other. The penalty of `bayesprivmrf.learning.pair_fit`, weighed by the curvature at independence, then
hardly holds the estimate, for the curvature vanishes along the direction in which the event becomes rarer. With
:math:`\Sigma(\beta)` the covariance of one record's effects, V the variances of the noise on the means and a normal
prior of deviation τ, the mode of

.. math:: t \sim \mathcal N\bigl(\mu(\beta),\, \Sigma / N + V\bigr), \qquad \beta \sim \mathcal N(0, \tau^2 I),

solves, for Σ taken as known where it is, :math:`\Sigma (\Sigma/N + V)^{-1} (t - \mu) = \beta / \tau^2`, that is

.. math:: t - \mu(\beta) = P \beta, \qquad P = \frac{1}{\tau^2} \Bigl( \frac{I}{N} + V \Sigma^{-1} \Bigr) .

P grows where the curvature vanishes. Each round takes one Newton step,
:math:`(\Sigma + P)^{-1} (t - \mu - P \beta)`, from β = 0: the first ones with Σ and P weighed anew by records drawn
from the model, the later ones, to an end, with what they were.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bayesprivmrf.learning.gibbs import Chains
from bayesprivmrf.learning.pair_fit import Inference, PairFit, features_of
from bayesprivmrf.marginals import marginal_engine, sample
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

__all__ = ["needs_reweighting", "reweighted_fit"]

_WEIGHED, _ROUNDS = 12, 100
_AVERAGED = 20  # where means are drawn, the last rounds' estimates are averaged
_LARGEST_STEP, _DAMPED = 0.5, 0.5  # nats; share of a step whose curvature is that of an earlier round
_ENDED = 1e-4  # nats
_DRAWS, _CELLS = 20_000, 1 << 25
_STRAIN = 0.5  # standard deviations of a mean
_LARGEST_EXACT, _LARGEST = 500, 2000  # coordinates
_IMPLAUSIBLE = 2.0  # prior deviations
_SWEEPS = 256

type Look = Callable[[FloatArray, bool], tuple[FloatArray, FloatArray | None]]


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
    _, covariance = _exact(fit.effects, generator)(fit.coordinates, True)
    assert covariance is not None
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
        For Gibbs sampling.
    inference
        How means and covariances are found.
    """
    look = _exact(effects, generator) if inference == "exact" else _sampled(effects, generator)
    beta, average, moved = np.zeros(effects.size), np.zeros(effects.size), np.inf
    curvature = pull = np.eye(effects.size)
    rounds = 0
    for rounds in range(1, _ROUNDS + 1):
        mu, covariance = look(beta, rounds <= _WEIGHED)
        if covariance is not None:
            pull = _pull(covariance, noises, total, prior)
            curvature = covariance + pull
        step = np.linalg.solve(curvature, means - mu - pull @ beta)
        moved = float(np.abs(step).max(initial=0.0))
        damped = 1.0 if covariance is not None else _DAMPED
        beta = beta + step * min(damped, _LARGEST_STEP / max(moved, 1e-12))
        if rounds > _ROUNDS - _AVERAGED:
            average += beta / _AVERAGED
        if inference == "exact" and covariance is None and moved < _ENDED:
            break
    is_exact = inference == "exact"
    found = beta if is_exact else average
    ended = bool(np.isfinite(found).all()) and (moved < _ENDED if is_exact else moved < _LARGEST_STEP)
    well = "converged" if is_exact else "approximate"
    return PairFit(
        effects=effects,
        coordinates=np.nan_to_num(found),
        inference=inference,
        status=well if ended else "not trusted",
        details={"iterations": rounds, "penalty": "curvature at the estimate"},
    )


def _exact(effects: Effects, generator: np.random.Generator) -> Look:
    engine, features = marginal_engine(effects.cardinalities, effects.scopes), features_of(effects)
    draws = min(_DRAWS, max(_CELLS // max(effects.size, 1), 1000))

    def look(beta: FloatArray, is_weighed: bool) -> tuple[FloatArray, FloatArray | None]:
        potentials = effects.potentials(beta)
        mu = effects.pull_back(engine.marginals(potentials)[1])
        if not is_weighed:
            return mu, None
        codes = sample(effects.cardinalities, effects.scopes, potentials, draws, generator)
        return mu, _covariance(features(codes))

    return look


def _sampled(effects: Effects, generator: np.random.Generator) -> Look:
    chains, features = Chains(effects.cardinalities, effects.scopes, generator), features_of(effects)

    def look(beta: FloatArray, is_weighed: bool) -> tuple[FloatArray, FloatArray | None]:
        codes = chains.advance(effects.potentials(beta), _SWEEPS + 10)[10:]
        drawn = features(codes.transpose(0, 2, 1).reshape(-1, codes.shape[1]))
        return drawn.mean(axis=0, dtype=float), _covariance(drawn) if is_weighed else None

    return look


def _covariance(drawn: np.ndarray) -> FloatArray:
    """Covariance of rows of features; what fewer than one draw could tell from none is taken for that."""
    found = np.atleast_2d(np.cov(drawn, rowvar=False, dtype=float))
    found[np.diag_indices_from(found)] += (found.diagonal() + 1e-9) / len(drawn)
    return found
