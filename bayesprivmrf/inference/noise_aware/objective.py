r"""The objective of the noise-aware estimate, and its expansion at a point.

The prior of a log-linear model: normal effects, each with a scale of its own that is learned.

.. math:: β_S \mid τ \sim N(0, τ_S^2 I), \qquad
          \log τ_S = \log τ_0 + σ_c z_0 + σ_o z_{|S|} + σ_e z_S, \qquad z \sim N(0, I).

An effect is the main effect of a variable, or the interaction of a pair, a triple, ... of variables S. What is known
of their scales is shared: on the logarithmic scale all have a part in common, of standard deviation :math:`σ_c`,
those of one order another, :math:`σ_o`, and each effect its own, :math:`σ_e`. So strong interactions beside none are
likely too. Parts of an effect, those of scores and levels, count as orders and as effects of their own. With
:math:`σ_e = 0` there is one scale an order, and so it is in models of more coordinates than `DENSE_LIMIT`, of which
the evidence is not known effect by effect.

The scales are learned by their evidence. With the likelihood replaced by its expansion at a point, of precision
F, :math:`C = (F + T^{-1})^{-1}`, and :math:`\hat β` the mode, the evidence is stationary where

.. math:: \lVert \hatβ_g \rVert^2 / τ_g^2 = γ_g + \bigl(P (\log τ - \log τ_0)\bigr)_g, \qquad
          γ_g = d_g - \operatorname{tr} C_{gg} / τ_g^2,

P being the prior precision of log τ: but for the prior, the sum of squares that the data show equals the effective
number of coordinates that they determine (MacKay 1992, equation 4.9). Keeping γ and solving for τ, a convex problem
in as many variables as there are scales, and repeating converges in a few steps.

The prior covariance of log τ is :math:`v I + U U'`, U having a column for what all share and one for each order. So
with :math:`K = I + U'U / v` its inverse is :math:`P = (I - U K^{-1} U' / v) / v`, and Newton's steps of that problem
take time in proportion to the number of scales.

References
----------
MacKay (1992). Bayesian interpolation. Neural Computation 4, 415-447.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.inference.noise_aware.curvature import (
    DenseCurvature,
    SampledCurvature,
    weighted_square,
)
from bayesprivmrf.inference.noise_aware.likelihood import Linearized, MeanCounts, NoiseLikelihood
from bayesprivmrf.inference.noise_aware.smaller import decorrelated
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, IntArray

# τ_0: the scale expected before any release, nats
LOCATION = 0.4

# σ_c: standard deviation of what all log scales have in common
SPREAD_IN_COMMON = 0.6

# σ_o: standard deviation of what those of one order have in common beside
SPREAD_BETWEEN_ORDERS = 0.2

# σ_e: standard deviation of each effect's own part: a factor of 2.3 up or down holds nine in ten
SPREAD_BETWEEN_EFFECTS = 0.5

# Coordinates up to which the information matrix is formed, and each effect has a scale of its own
DENSE_LIMIT = 1500

# Shifts of correlated numbers that are taken whole; usual searches settle within three
_FREE_SHIFTS = 5

# Largest change of log τ in an update: the expansion is valid only near its point, and updates continue
_LARGEST_STEP = 1.0
# Smallest standard deviation between log scales; arbitrary. It keeps the prior's precision finite if the declared
# spread is 0.
_LEAST_SPREAD = 1e-3


@dataclass(frozen=True, eq=False, kw_only=True)
class EffectsPrior:
    """The prior of one model's coordinates.

    Parameters
    ----------
    effects
        The coordinates.
    location, spread_in_common, spread_between_orders, spread_between_effects
        τ_0, σ_c, σ_o and σ_e of the module's formula; the first is positive, the others may be 0.
    """

    effects: Effects
    location: float = LOCATION
    spread_in_common: float = SPREAD_IN_COMMON
    spread_between_orders: float = SPREAD_BETWEEN_ORDERS
    spread_between_effects: float = SPREAD_BETWEEN_EFFECTS

    @property
    def _is_apart(self) -> bool:
        """True if effects of one order may differ in scale."""
        return self.spread_between_effects > 0 and self.effects.size <= DENSE_LIMIT

    @cached_property
    def _scaled(self) -> tuple[tuple[tuple[int, int], ...], IntArray]:
        """Effect (-1: all of an order) and order (and part) of each scale, and the scale of each coordinate."""
        effects = self.effects
        owners = np.repeat(np.arange(len(effects.subsets)), np.diff(effects.offsets))
        kinds = np.unique(effects.kinds, return_inverse=True)[1]
        pairs = np.column_stack([owners if self._is_apart else np.full(effects.size, -1), kinds])
        distinct, levels = np.unique(pairs.reshape(-1, 2), axis=0, return_inverse=True)
        return tuple((int(own), int(kind)) for own, kind in distinct), levels.reshape(-1)

    @property
    def count(self) -> int:
        """Number of scales."""
        return len(self._scaled[0])

    @property
    def levels(self) -> IntArray:
        """Position of each coordinate's scale, shape (d,)."""
        return self._scaled[1]

    @cached_property
    def orders(self) -> tuple[int | str, ...]:
        """Order of each scale's effects, or order and part as text, shape (count,)."""
        names = np.unique(self.effects.kinds).tolist()
        return tuple(names[kind] for _, kind in self._scaled[0])

    @property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        """Variable positions of each scale's effect; none where it is that of all effects of an order."""
        return tuple(() if own < 0 else self.effects.subsets[own] for own, _ in self._scaled[0])

    @property
    def expected_log_scales(self) -> FloatArray:
        """Prior mean of log τ, shape (count,)."""
        return np.full(self.count, math.log(self.location))

    @cached_property
    def _shared(self) -> tuple[float, FloatArray]:
        """The v and U of the covariance v I + U U' of log τ."""
        common = np.full((self.count, 1), self.spread_in_common)
        if not self._is_apart:
            return max(self.spread_between_orders, _LEAST_SPREAD) ** 2, common
        kinds = np.array([kind for _, kind in self._scaled[0]], dtype=int)
        members = self.spread_between_orders * np.eye(kinds.max(initial=-1) + 1)[kinds]
        return max(self.spread_between_effects, _LEAST_SPREAD) ** 2, np.hstack([common, members])

    @property
    def scale_covariance(self) -> FloatArray:
        """Prior covariance of log τ, shape (count, count)."""
        own, shared = self._shared
        return own * np.eye(self.count) + shared @ shared.T

    def precision(self, log_scales: FloatArray) -> FloatArray:
        """Return 1/τ² of each coordinate, shape (d,)."""
        return np.exp(-2 * np.asarray(log_scales))[self.levels]

    def log_density(self, log_scales: FloatArray) -> float:
        """Return the log-density of log τ up to a constant, nats."""
        gap = log_scales - self.expected_log_scales
        return float(-0.5 * gap @ self._pull(gap))

    def _pull(self, gap: FloatArray) -> FloatArray:
        """Return P times a deviation of log τ."""
        own, shared = self._shared
        inner = np.eye(shared.shape[1]) + shared.T @ shared / own
        return (gap - shared @ np.linalg.solve(inner, shared.T @ gap) / own) / own

    def _step(self, diagonal: FloatArray, slope: FloatArray) -> FloatArray:
        """Return the Newton step for the curvature P plus a diagonal."""
        own, shared = self._shared
        inverse = 1 / (diagonal + 1 / own)
        pulled = shared / own
        inner = (
            np.eye(shared.shape[1])
            + shared.T @ pulled
            - pulled.T @ (inverse[:, np.newaxis] * pulled)
        )
        return inverse * (slope + pulled @ np.linalg.solve(inner, pulled.T @ (inverse * slope)))

    def updated(
        self, log_scales: FloatArray, beta: FloatArray, variances: FloatArray
    ) -> FloatArray:
        """Return the log scales after one step of the fixed point.

        Parameters
        ----------
        log_scales
            Present log τ, shape (count,).
        beta
            Mode at these scales, shape (d,).
        variances
            Diagonal of C, shape (d,).

        Returns
        -------
        ndarray
            Shape (count,); no entry moves by more than 1.
        """
        count = self.count
        if count == 0:
            return np.zeros(0)
        now = np.asarray(log_scales, dtype=float)
        sizes = np.bincount(self.levels, minlength=count)
        shrunk = np.bincount(self.levels, weights=variances, minlength=count) * np.exp(-2 * now)
        effective = np.clip(sizes - shrunk, 0.0, sizes)
        squares = np.bincount(self.levels, weights=beta**2, minlength=count)
        log_scales = now.copy()
        # Newton steps; the number is arbitrary, as the function is convex in few variables
        for _ in range(
            50
        ):  # minimises γ't + |β|²exp(-2t)/2 + (t - t0)'P(t - t0)/2, which is convex
            weighted = squares * np.exp(-2 * log_scales)
            slope = effective - weighted + self._pull(log_scales - self.expected_log_scales)
            step = self._step(2 * weighted, slope)
            log_scales = log_scales - np.clip(step, -0.5, 0.5)  # damped; the objective is convex
            if np.abs(step).max() < 1e-8:
                break
        return now + np.clip(log_scales - now, -_LARGEST_STEP, _LARGEST_STEP)


# Change of a log scale below which it has settled: a fifth of its own uncertainty, or less
SETTLED_SCALE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of `noise_aware_mode`.

    Parameters
    ----------
    scale
        τ of all effects; None learns one for each.
    inference
        ``"exact"`` or ``"loopy"``.
    rounds
        The most renewals of variances and scales.
    tolerance
        Converged when a renewal moves the coordinates by less than this many posterior standard deviations
        (root mean square).
    """

    scale: float | None = None
    inference: Inference = "exact"
    rounds: int = 25
    tolerance: float = 0.05


class Objective:
    """Expected loss of the noisy counts plus that of the prior, as a function of (β, log N) with N fixed.

    Parameters
    ----------
    evidence
        The releases.
    settings
        Which marginals, and the limits of the search.
    """

    def __init__(self, evidence: Evidence, settings: Settings) -> None:
        self.settings = settings
        self.means = MeanCounts(evidence=evidence, inference=settings.inference)
        self.likelihood = NoiseLikelihood.of(evidence)
        self.prior = EffectsPrior(effects=self.means.effects)
        self.is_dense = self.means.effects.size <= DENSE_LIMIT
        self.evaluations = 0
        self.shifts = 0

    def prior_precision(self, log_scales: FloatArray) -> FloatArray:
        """Return T⁻¹ of all coordinates, shape (d + 1,); the last stands for N, which is fixed."""
        return np.append(self.prior.precision(log_scales), 1.0)

    def hold(self, point: FloatArray) -> None:
        """Move the multipliers of the answers without noise by their errors at the point.

        Under a model smaller than its tables, the numbers are shifted by their correlations (`noise_aware.smaller`).

        Such an answer e is a constraint on its mean m. Its loss, 6 (y - m)² with y = e to begin with, is the
        augmented Lagrangian's at the multiplier 12 (y - e): a step of the method of multipliers adds e - m to y, and
        where nothing moves any more, m is e, whatever the 6 (Hestenes 1969, see `noise_aware.mode`).
        """
        evidence = self.means.evidence
        if self.means.is_smaller:
            linearized = self.means.at(point, holds_total=True)
            noisy = evidence.noisy_counts[evidence.possible]
            shifted = decorrelated(self.means, self.likelihood, linearized, noisy)
            # where shift and point chase each other, the mean of two shifts ends it
            if self.shifts >= _FREE_SHIFTS:
                shifted = 0.5 * (shifted + self.likelihood.noisy_counts)
            self.shifts += 1
            self.likelihood = replace(self.likelihood, noisy_counts=shifted)
        if evidence.constraints is None:
            return
        is_exact = evidence.is_exact[evidence.possible]
        given = evidence.noisy_counts[evidence.possible]
        missed = np.where(is_exact, given - self.means.at(point).mean, 0.0)
        moved = self.likelihood.noisy_counts + missed
        self.likelihood = replace(self.likelihood, noisy_counts=moved)

    def variance(self, linearized: Linearized) -> FloatArray:
        """Return the variance of each count around its mean, noise left out, records squared."""
        # 1/12, the variance of a count's fraction, keeps an empty cell from being certain
        variance = np.full(len(linearized.mean), 1 / 12)
        if linearized.sampling is not None:
            return variance + linearized.sampling
        if linearized.unexplained is None:
            return variance
        return variance + np.maximum(np.diag(linearized.unexplained), 0.0)

    def penalised(
        self, point: FloatArray, log_scales: FloatArray, variance: FloatArray, width: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return the objective and its gradient for fixed variances and widths."""
        self.evaluations += 1
        linearized = self.means.at(point, holds_total=True)
        value, slope = self.likelihood.expected_loss(linearized.mean, variance, width)
        gradient = linearized.backward(slope)
        precision = self.prior.precision(log_scales)
        beta = point[:-1]
        gradient[:-1] += precision * beta
        return value + float(0.5 * (precision * beta) @ beta), gradient


class Expansion:
    """Curvature and widths at a point, consistent with each other."""

    def __init__(
        self,
        objective: Objective,
        point: FloatArray,
        log_scales: FloatArray,
        width: FloatArray | None,
        *,
        share: float = 1.0,
    ) -> None:
        self._objective = objective
        self._point = point
        self._share = share
        self._linearized = objective.means.at(point, holds_total=True)
        self.variance = objective.variance(self._linearized)
        if objective.is_dense:
            self._jacobian = objective.means.jacobian(self._linearized)
        else:
            self._jacobian = None
        self.width: FloatArray = np.zeros(len(self.variance)) if width is None else width
        self.curvature: DenseCurvature | SampledCurvature
        # widths follow from the curvature, and the curvature from the widths: a few renewals make them agree
        # widths and curvature are computed from each other three times at the first point, twice later
        for _ in range(3 if width is None else 2):
            self._renew(log_scales)

    def _renew(self, log_scales: FloatArray) -> None:
        objective = self._objective
        weights = objective.likelihood.information(self.variance)
        if self.width.any():
            curvature = objective.likelihood.expected_curvature(
                self._linearized.mean, self.variance, self.width
            )
            # an averaged Laplace loss hardly curves far from its kink; the floor keeps such cells from vanishing
            # the curvature of a cell is at least a fiftieth of its Fisher information, wherever its kink lies
            weights = np.maximum(curvature, 0.02 * weights)
        self.weights = weights
        prior = objective.prior_precision(log_scales)
        if self._jacobian is not None:
            information = weighted_square(self._jacobian, weights)
            self.curvature = DenseCurvature(information=information, prior=prior)
            variances = self.curvature.mean_variances(self._jacobian)
        else:
            self.curvature = SampledCurvature(
                linearized=self._linearized, weights=weights, prior=prior
            )
            variances = self.curvature.mean_variances()
        # damped on the variance; see `Search.settle`
        self.width = np.sqrt(self._share * variances + (1 - self._share) * self.width**2)

    def learned(self, log_scales: FloatArray) -> FloatArray:
        """Return the log scales that the expansion's evidence supports; update the curvature and the widths."""
        objective = self._objective
        if (dense := self.curvature.formed) is not None:
            _, slope = objective.likelihood.expected_loss(
                self._linearized.mean, self.variance, self.width
            )
            gradient = self._linearized.backward(slope)
            following = learned_scales(
                objective.prior, log_scales, dense.information, self._point, gradient
            )
        else:
            following = objective.prior.updated(
                log_scales, self._point[:-1], self.curvature.variances[:-1]
            )
        log_scales = log_scales + self._share * (following - log_scales)
        self._renew(log_scales)
        return log_scales


def learned_scales(
    prior: EffectsPrior,
    log_scales: FloatArray,
    information: FloatArray,
    point: FloatArray,
    slope: FloatArray,
    steps: int = 3,
) -> FloatArray:
    """Return log scales after some steps of the fixed point, for a quadratic loss of given slope and curvature."""
    shift = (
        information @ point - slope
    )  # of a quadratic loss the mode is C @ shift, whatever the scales
    first = log_scales
    for _ in range(steps):
        precision = np.append(prior.precision(log_scales), 1.0)
        curvature = DenseCurvature(information=information, prior=precision)
        beta = curvature.solve(shift)[:-1]
        following = prior.updated(log_scales, beta, curvature.variances[:-1])
        has_settled = np.abs(following - log_scales).max(initial=0.0) < 0.5 * SETTLED_SCALE
        log_scales = following
        if has_settled:
            break
    # the expansion holds near its point alone: no scale moves by more than a factor e before the next one
    return first + np.clip(log_scales - first, -1.0, 1.0)
