r"""The prior of a log-linear model: normal effects, each with a scale of its own that is learned.

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
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bayesprivmrf.inference.loglinear_fit.curvature import DenseCurvature
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

# Largest change of log τ in an update: the expansion is valid only near its point, and updates continue
_LARGEST_STEP = 1.0

# Newton's method for log τ with γ fixed: the most steps, which is arbitrary, as the problem is convex in few
# variables; the longest step, as a damping; and the step at which it ends
_NEWTON_STEPS = 50
_LONGEST_NEWTON_STEP = 0.5
_NEWTON_ENDED = 1e-8

# Smallest standard deviation between log scales; arbitrary. It keeps the prior's precision finite if the declared
# spread is 0.
_LEAST_SPREAD = 1e-3

# Change of a log scale below which it has settled: a fifth of its own uncertainty, or less
SETTLED_SCALE = 0.05


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
    def is_dense(self) -> bool:
        """True if the information matrix of the coordinates is formed."""
        return self.effects.size <= DENSE_LIMIT

    @property
    def _is_apart(self) -> bool:
        """True if effects of one order may differ in scale."""
        return self.spread_between_effects > 0 and self.is_dense

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
            Shape (count,); no entry moves by more than 1, a factor e.
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
        # Newton's method for the least γ't + |β|² exp(-2t)/2 + (t - t0)'P(t - t0)/2, which is convex
        for _ in range(_NEWTON_STEPS):
            weighted = squares * np.exp(-2 * log_scales)
            slope = effective - weighted + self._pull(log_scales - self.expected_log_scales)
            step = self._step(2 * weighted, slope)
            log_scales = log_scales - np.clip(step, -_LONGEST_NEWTON_STEP, _LONGEST_NEWTON_STEP)
            if np.abs(step).max() < _NEWTON_ENDED:
                break
        return now + np.clip(log_scales - now, -_LARGEST_STEP, _LARGEST_STEP)


def learned_scales(
    prior: EffectsPrior,
    log_scales: FloatArray,
    information: FloatArray,
    point: FloatArray,
    slope: FloatArray,
    steps: int = 3,
) -> FloatArray:
    """Return log scales after some steps of the fixed point, for a quadratic loss of given slope and curvature.

    Parameters
    ----------
    prior, log_scales
        The prior of the coordinates, and the present log τ, shape (count,).
    information, point, slope
        The loss: its curvature, shape (d + 1, d + 1), a point (β, log N), and its gradient there, shape (d + 1,).
    steps
        Most steps of the fixed point.
    """
    # whatever the scales, the mode under a quadratic loss is C @ shift
    shift = information @ point - slope
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
    # the expansion holds near its point alone
    return first + np.clip(log_scales - first, -_LARGEST_STEP, _LARGEST_STEP)
