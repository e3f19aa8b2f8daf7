"""Exact privacy curves of additive noise, to hold an audit against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy import NoiseLaw
from bayesprivmrf.privacy.checks import positive_finite, probability

__all__ = ["PrivacyLoss", "gaussian_epsilon", "privacy_loss"]

_NEGLIGIBLE = 1e-18  # tail probability left out of each cell's law
_DECIMALS = 11  # losses closer than this are one, so that equal laws do not multiply the support


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PrivacyLoss:
    r"""Law of the privacy loss :math:`L = \log (P(y) / Q(y))`, y drawn from P, of two output laws.

    Parameters
    ----------
    losses
        Support, nats.
    probabilities
        Probability of each.
    """

    losses: FloatArray
    probabilities: FloatArray

    def delta(self, epsilon: float) -> float:
        r"""Return the smallest delta at epsilon, :math:`E \max(0, 1 - e^{\epsilon - L})`."""
        above = self.losses > epsilon
        return float(self.probabilities[above] @ -np.expm1(epsilon - self.losses[above]))

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 at delta."""
        delta = probability("delta", delta, zero=True)
        low, high = 0.0, max(float(self.losses.max()), 0.0)
        if self.delta(low) <= delta:
            return 0.0
        for _ in range(100):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high


def privacy_loss(laws: Sequence[NoiseLaw], shifts: Sequence[int]) -> PrivacyLoss:
    r"""Return the privacy loss of independent integer noise on cells that differ by given shifts.

    With cell i at 0 under P and at :math:`s_i` under Q,
    :math:`L = \sum_i \log p_i(k_i) - \log p_i(k_i - s_i)` for :math:`k_i` drawn from the noise law
    :math:`p_i`: the convolution of the cells' losses. The laws are symmetric, so exchanging P and Q gives the
    same curve.

    Parameters
    ----------
    laws
        Integer law of each cell in which the neighbours differ.
    shifts
        By how much, records.

    Returns
    -------
    PrivacyLoss
        Exact but for tails of probability 10^-18 a cell, counted as an infinite loss nowhere, and losses
        rounded to 10^-11 nats.

    Raises
    ------
    ArgumentError
        A law is not of whole numbers, or there is not one shift a law.
    """
    if len(laws) != len(shifts):
        raise ArgumentError(f"`shifts` must hold one number a law, got {len(shifts)} for {len(laws)}.")
    losses, probabilities = np.zeros(1), np.ones(1)
    for law, shift in zip(laws, shifts, strict=True):
        if not law.is_discrete or law.variance == 0:
            raise ArgumentError(
                f"`laws` must be noise of whole numbers, got {law.name!r}; use gaussian_epsilon."
            )
        reach = 1
        while float(law.log_density(reach)) > math.log(_NEGLIGIBLE):
            reach *= 2
        k = np.arange(-reach, reach + 1)
        cell = law.log_density(k) - law.log_density(k - shift)
        sums = np.round(np.add.outer(losses, cell).ravel(), _DECIMALS)
        losses, place = np.unique(sums, return_inverse=True)
        products = np.multiply.outer(probabilities, np.exp(law.log_density(k))).ravel()
        probabilities = np.bincount(place, weights=products, minlength=losses.size)
        kept = probabilities > 0
        losses, probabilities = losses[kept], probabilities[kept]
    return PrivacyLoss(losses=losses, probabilities=probabilities)


def gaussian_epsilon(mu: float, delta: float) -> float:
    r"""Return the smallest epsilon at delta of Gaussian noise with distance over scale mu.

    .. math:: \delta(\epsilon) = \Phi(\mu/2 - \epsilon/\mu) - e^{\epsilon} \Phi(-\mu/2 - \epsilon/\mu)

    A Gaussian mechanism of zero-concentrated cost rho has :math:`\mu = \sqrt{2 \rho}`.

    References
    ----------
    Balle, Wang 2018, Theorem 8. Dong, Roth, Su 2022, Corollary 2.13.

    Examples
    --------
    >>> round(gaussian_epsilon(1.0, 1e-6), 3)
    4.887
    """
    from scipy.special import log_ndtr, ndtr

    mu, delta = positive_finite("mu", mu), probability("delta", delta, zero=False)

    def excess(epsilon: float) -> float:
        return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)) - delta

    if excess(0.0) <= 0:
        return 0.0
    low, high = 0.0, 1.0
    while excess(high) > 0:
        low, high = high, 2 * high
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if excess(middle) <= 0 else (middle, high)
    return high
