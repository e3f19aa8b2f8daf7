r"""The prior of a log-linear model: normal effects, with a scale for each order that is learned.

.. math:: β_S \mid τ \sim N(0, τ_{|S|}^2 I), \qquad
          \log τ_g = \log τ_0 + σ_c z_0 + σ_o z_g, \qquad z \sim N(0, I).

Main effects, interactions of pairs, of triples, ... each have a scale :math:`τ_g` of their own, which share what is
known of them: on the logarithmic scale their common part has the standard deviation :math:`σ_c`, each one's own
part :math:`σ_o`.

The scales are learned by their evidence. With the likelihood replaced by its expansion at a point, of precision
F, :math:`C = (F + T^{-1})^{-1}`, and :math:`\hat β` the mode, the evidence is stationary where

.. math:: \lVert \hatβ_g \rVert^2 / τ_g^2 = γ_g + \bigl(P (\log τ - \log τ_0)\bigr)_g, \qquad
          γ_g = d_g - \operatorname{tr} C_{gg} / τ_g^2,

P being the prior precision of log τ: but for the prior, the sum of squares that the data show equals the effective
number of coordinates that they determine (MacKay 1992, equation 4.9). Keeping γ and solving for τ, a convex problem
in as many variables as there are orders, and repeating converges in a few steps.

References
----------
MacKay (1992). Bayesian interpolation. Neural Computation 4, 415-447.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.model.ties import TiedEffects

__all__ = ["LOCATION", "SPREAD_BETWEEN_ORDERS", "SPREAD_IN_COMMON", "EffectsPrior"]

LOCATION = 0.4
"""τ_0: the scale expected before any release, nats."""

SPREAD_IN_COMMON = 0.6
"""σ_c: standard deviation of what all orders' log scales have in common."""

SPREAD_BETWEEN_ORDERS = 0.2
"""σ_o: standard deviation of each order's own part."""

_NEWTON = 50
_LARGEST_STEP = 1.0


@dataclass(frozen=True, eq=False, kw_only=True)
class EffectsPrior:
    """The prior of one model's coordinates.

    Parameters
    ----------
    effects
        The coordinates.
    location, spread_in_common, spread_between_orders
        τ_0, σ_c and σ_o of the module's formula; the spreads are positive, the second may be 0.
    """

    effects: Effects | TiedEffects
    location: float = LOCATION
    spread_in_common: float = SPREAD_IN_COMMON
    spread_between_orders: float = SPREAD_BETWEEN_ORDERS

    @cached_property
    def orders(self) -> tuple[int | str, ...]:
        """Orders that occur, ascending, or orders and parts; scale k is that of ``orders[k]``."""
        return tuple(np.unique(self.effects.kinds).tolist())

    @cached_property
    def levels(self) -> IntArray:
        """Position in `orders` of each coordinate's order, shape (d,)."""
        return np.unique(self.effects.kinds, return_inverse=True)[1]

    @property
    def expected_log_scales(self) -> FloatArray:
        """Prior mean of log τ, shape (orders,)."""
        return np.full(len(self.orders), math.log(self.location))

    def precision(self, log_scales: FloatArray) -> FloatArray:
        """1/τ² of each coordinate, shape (d,)."""
        return np.exp(-2 * np.asarray(log_scales))[self.levels]

    def log_density(self, log_scales: FloatArray) -> float:
        """Log-density of log τ up to a constant, nats."""
        gap = log_scales - self.expected_log_scales
        return float(-0.5 * gap @ self._hyper_precision @ gap)

    @cached_property
    def _hyper_precision(self) -> FloatArray:
        count = len(self.orders)
        own = max(self.spread_between_orders, 1e-3) ** 2
        return np.linalg.inv(own * np.eye(count) + self.spread_in_common**2 * np.ones((count, count)))

    def updated(self, log_scales: FloatArray, beta: FloatArray, variances: FloatArray) -> FloatArray:
        """Log scales after one step of the fixed point.

        Parameters
        ----------
        log_scales
            Present log τ, shape (orders,).
        beta
            Mode at these scales, shape (d,).
        variances
            Diagonal of C, shape (d,).

        Returns
        -------
        ndarray
            Shape (orders,); no entry moves by more than 1.
        """
        count = len(self.orders)
        if count == 0:
            return np.zeros(0)
        now = np.asarray(log_scales, dtype=float)
        sizes = np.bincount(self.levels, minlength=count)
        shrunk = np.bincount(self.levels, weights=variances, minlength=count) * np.exp(-2 * now)
        effective = np.clip(sizes - shrunk, 0.0, sizes)
        squares = np.bincount(self.levels, weights=beta**2, minlength=count)
        log_scales = now.copy()
        for _ in range(_NEWTON):  # minimises γ't + |β|²exp(-2t)/2 + (t - t0)'P(t - t0)/2, which is convex
            weighted = squares * np.exp(-2 * log_scales)
            pull = self._hyper_precision @ (log_scales - self.expected_log_scales)
            hessian = np.diag(2 * weighted) + self._hyper_precision
            step = np.linalg.solve(hessian, effective - weighted + pull)
            log_scales = log_scales - np.clip(step, -0.5, 0.5)
            if np.abs(step).max() < 1e-8:
                break
        return now + np.clip(log_scales - now, -_LARGEST_STEP, _LARGEST_STEP)
