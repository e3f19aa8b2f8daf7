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
first rounds estimate it from records drawn from the model; where even means are drawn, no step is halved. The prior
may learn its precisions in the first rounds, from the estimate and its variances. The rounds are those of
`bayesprivmrf.inference.loglinear_fit.search`, with the schedules of `phases_of`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from bayesprivmrf.inference.interval_frame import Status
from bayesprivmrf.inference.loglinear_fit.curvature import DenseCurvature
from bayesprivmrf.inference.loglinear_fit.fit import PairFit
from bayesprivmrf.inference.loglinear_fit.moments import Moments, moments_of
from bayesprivmrf.inference.loglinear_fit.priors import Prior
from bayesprivmrf.inference.loglinear_fit.search import (
    Descent,
    Last,
    Phase,
    Phases,
    Searched,
    Turn,
    iterate,
)
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

# Rounds that compute W anew, and all rounds at most
_WEIGHED = 20
_ROUNDS = 100

# Rounds in which a covariance of draws is drawn anew: with weights of ever new draws no search would settle
_DRAWN = 12

# Last rounds whose estimates are averaged where means are drawn
_AVERAGED = 20

# Largest change of a coordinate in a step, nats
_LARGEST_STEP = 0.5

# Share of a step that turns back late in the search, or whose curvature is of an earlier round
_DAMPED = 0.5

# Halvings after which a step is too short to matter
_HALVINGS = 12

# Largest remaining step, in posterior standard deviations, of a mode that is exact, and of one that is trusted
_NEAR = 0.1
_FAR = 1.0

# Largest start of a search, in prior deviations. It may end further out, where the curvature vanishes
_FARTHEST = 2.0

# Step at which a search has ended, nats
_ENDED = 1e-4

# A step shorter than this counts as this long where it divides, nats
_TINY = 1e-12

# Prior deviations beyond which a first fit is weighed again without further checks
_BEYOND = 2.0

# Standard deviations of a mean by which the penalty of a first fit may be wrong
_WRONG = 0.5

# Coordinates up to which the first fit is checked with an exact covariance, and up to which it is weighed again
_LARGEST_EXACT = 500
_LARGEST = 2000


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
    beyond = bool(np.abs(fit.coordinates).max(initial=0.0) > _BEYOND * prior)
    if size == 0 or size > _LARGEST or beyond or fit.inference != "exact" or size > _LARGEST_EXACT:
        return beyond and size <= _LARGEST
    covariance = moments_of(fit.effects, generator).expanded(fit.coordinates)[1]
    penalty = (np.eye(size) / total + noises[:, None] * np.linalg.inv(covariance)) / prior**2
    pull = penalty @ fit.coordinates - ridges * fit.coordinates
    deviations = np.sqrt(noises + covariance.diagonal() / total)
    return bool((np.abs(pull) > _WRONG * deviations).any())


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyMeans[P: Prior]:
    """Noisy means of a model's effects, whose weights W depend on the estimate.

    Parameters
    ----------
    moments
        Means and covariances of the model's effects.
    means
        t, shape (d,).
    noise
        V, the covariance of the noise on t, shape (d, d).
    total
        N, records.
    prior
        The prior of the coordinates before any scale is learned.
    """

    moments: Moments
    means: FloatArray
    noise: FloatArray
    total: float
    prior: P

    def renewed(
        self, beta: FloatArray, last: Last[GaussNewton[P]] | None, turn: Turn
    ) -> GaussNewton[P]:
        """Return the Gauss-Newton model of Q at an estimate, with what the phase renews computed anew."""
        phase = turn.phase
        if last is not None and not phase.expands:
            mean = self.moments.means(beta)[1]
            return replace(last.weighted, beta=beta, mean=mean, before=last.descent.step)
        mean, covariance = self.moments.expanded(beta)
        if last is None or phase.weighs:
            root = cholesky(covariance / self.total + self.noise, lower=True)
        else:
            root = last.weighted.root
        whitened = solve_triangular(root, covariance, lower=True)
        information = whitened.T @ whitened
        before = None
        prior = self.prior
        if last is not None:
            before = last.descent.step
            prior = last.weighted.prior
        curvature = DenseCurvature(information=information, prior=prior.precision)
        if phase.learns:
            prior = prior.learned(beta, curvature.variances)
            curvature = DenseCurvature(information=information, prior=prior.precision)
        return GaussNewton(
            noisy=self,
            beta=beta,
            mean=mean,
            root=root,
            whitened=whitened,
            curvature=curvature,
            prior=prior,
            before=before,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class GaussNewton[P: Prior]:
    r"""Gauss-Newton model of Q at an estimate, with W held fixed.

    Parameters
    ----------
    noisy
        What was measured.
    beta, mean
        The estimate, and the means :math:`\mu` there, shape (d,).
    root
        L of :math:`\Sigma/N + V = L L'`, so that :math:`W = (L L')^{-1}`, shape (d, d).
    whitened
        :math:`L^{-1} \Sigma`, shape (d, d).
    curvature
        :math:`\Sigma W \Sigma` plus the prior's precision.
    prior
        The prior of the coordinates.
    before
        The step of the last round, shape (d,); None in the first.
    """

    noisy: NoisyMeans[P]
    beta: FloatArray
    mean: FloatArray
    root: FloatArray
    whitened: FloatArray
    curvature: DenseCurvature
    prior: P
    before: FloatArray | None

    @property
    def has_settled(self) -> bool:
        """Return False: a search by single steps is judged by its steps alone."""
        return False

    def step(self) -> FloatArray:
        """Return the full Gauss-Newton step, shape (d,)."""
        pull = self.whitened.T @ self._residual(self.mean)
        return self.curvature.solve(pull - self.prior.precision * self.beta)

    def descended(self, turn: Turn) -> Descent:
        """Return the estimate after one step, shortened as the phase says."""
        phase = turn.phase
        step = self.step()
        moved = float(np.abs(step).max(initial=0.0))
        turns_back = self.before is not None and step @ self.before < 0
        share = phase.share_back if turns_back else phase.share
        share = min(share, _LARGEST_STEP / max(moved, _TINY))
        if phase.halves and moved >= _ENDED:
            share = self._falling(step, share)
        return Descent(
            point=self.beta + share * step, has_settled=moved < _ENDED, moved=moved, step=step
        )

    def _falling(self, step: FloatArray, share: float) -> float:
        """Return the share of a step, halved until Q falls.

        Far from the mode a full step may end where nothing has a curvature.
        """
        here = self._value(self.beta, self.mean)
        for _ in range(_HALVINGS):
            trial = self.beta + share * step
            if self._value(trial, self.noisy.moments.means(trial)[1]) < here:
                break
            share /= 2
        return share

    def _value(self, beta: FloatArray, mean: FloatArray) -> float:
        """Return Q at coordinates whose means are given."""
        residual = self._residual(mean)
        return float(residual @ residual + self.prior.precision @ beta**2) / 2

    def _residual(self, mean: FloatArray) -> FloatArray:
        """Return L⁻¹ (t - μ)."""
        return solve_triangular(self.root, self.noisy.means - mean, lower=True)


def phases_of[P: Prior](noisy: NoisyMeans[P]) -> Phases:
    """Return the phases of a search, by what the moments can do and whether the prior learns its scales.

    With exact covariances W is computed anew in the first rounds and then kept. Where scales are learned W follows
    the estimate to the end, because the scales are those of these weights. Where covariances are drawn, W and the
    curvature are kept after some rounds, for with ever new draws no search would settle. Where even means are drawn,
    no search settles: its last estimates are averaged.
    """
    moments = noisy.moments
    learns = noisy.prior.is_learned
    if not moments.has_covariance:
        halves = moments.has_means
        drawn = (
            Phase(rounds=1, may_end=False, halves=halves),
            Phase(rounds=_DRAWN - 1, learns=learns, may_end=False, halves=halves),
        )
        kept = Phase(
            rounds=_ROUNDS - _DRAWN,
            weighs=False,
            expands=False,
            share=_DAMPED,
            share_back=_DAMPED,
        )
        if moments.has_means:
            return (*drawn, kept)
        settling = replace(kept, rounds=kept.rounds - _AVERAGED, may_end=False)
        averaged = replace(kept, rounds=_AVERAGED, may_end=False, averages=True)
        return (*drawn, settling, averaged)
    late = Phase(rounds=_ROUNDS - _WEIGHED, weighs=learns, share_back=_DAMPED, halves=True)
    if not learns:
        return (Phase(rounds=_WEIGHED, halves=True), late)
    return (
        Phase(rounds=1, may_end=False, halves=True),
        Phase(rounds=_WEIGHED - 1, learns=True, may_end=False, halves=True),
        late,
    )


def reweighted_fit[P: Prior](
    effects: Effects, noisy: NoisyMeans[P], start: FloatArray | None = None
) -> tuple[PairFit, P]:
    """Return the mode, with weights that are updated at the estimate, and the prior with its learned scales.

    Parameters
    ----------
    effects
        The model's coordinates.
    noisy
        The noisy means, with the moments of the model and the prior.
    start
        β to begin at, held to two prior deviations; 0 by default.
    """
    begin = np.zeros(effects.size)
    if start is not None:
        farthest = _FARTHEST / np.sqrt(noisy.prior.precision)
        begin = np.clip(start, -farthest, farthest)
    found = iterate(noisy.renewed, begin, phases_of(noisy))
    point = np.nan_to_num(found.point if noisy.moments.has_means else found.average)
    fit = PairFit(
        effects=effects,
        coordinates=point,
        inference="exact" if noisy.moments.has_means else "gibbs",
        status=_status_of(noisy, found, point),
        details={"iterations": found.rounds, "penalty": "curvature at the estimate"},
    )
    return fit, found.weighted.prior


def _status_of[P: Prior](
    noisy: NoisyMeans[P], found: Searched[GaussNewton[P]], point: FloatArray
) -> Status:
    """Return how a search ended: by its last step, and by the step that the weights at its end would leave.

    The last rounds may have kept weights of an earlier estimate. A mode is one where its own weights leave no step
    either.
    """
    moments = noisy.moments
    moved = found.last.descent.moved
    if moments.has_means:
        has_ended = moved < _ENDED
    else:
        has_ended = moved < _LARGEST_STEP and moments.is_mixed(point)
    left = 0.0
    if moments.has_means and moments.has_covariance:
        own = noisy.renewed(point, found.last, _AT_THE_END)
        # in posterior standard deviations
        left = float((np.abs(own.step()) / np.sqrt(own.curvature.variances)).max(initial=0.0))
    if not (has_ended and left < _FAR and np.isfinite(found.point).all()):
        return Status.NOT_TRUSTED
    if moments.has_means and left <= _NEAR:
        return Status.CONVERGED
    return Status.APPROXIMATE


# The renewal by which the end of a search is judged: all weights are those of the estimate
_AT_THE_END = Turn(1, Phase(rounds=1))
