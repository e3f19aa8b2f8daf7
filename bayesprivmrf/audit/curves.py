"""Exact privacy curves of additive noise, with which an audit compares its results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.checks import finite, positive_finite, probability, require, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.domain import listed
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.base import checked_noise
from bayesprivmrf.privacy import NoiseDistribution

# The number that stands for an infinite loss, nats.
CERTAIN = 1e6

# Decimals to which losses are rounded, so that equal losses of equal distributions do not multiply the support.
_DECIMALS = 11
# Largest product of two supports for which a convolution is computed term by term; beyond it a grid is used.
_EXACT_PRODUCTS = 2**22
# Number of grid points over the whole range of the losses.
_GRID = 2**18
# The same for grids of equal steps, whose equal sums need not be searched for.
_LARGEST_EVEN = 2**26
# Probability of each tail of such a sum that is cut off.
_CUT = 1e-30
# Relative rounding error of a sum of probabilities.
_SUM_ERROR = 1e-12
# Largest difference of counts: no data set has as many records.
_MOST_RECORDS = 10**12
# Log probability up to which the support of noise is doubled, and below which probabilities, and with them their
# losses, vanish in double precision.
_LOG_NEGLIGIBLE = math.log(1e-18)
_LOG_VANISHING = -700.0
# Farthest end of the support, a standard deviation of about 10^5 records.
_FARTHEST = 2**23
# Error of an epsilon that is found by a root, nats.
_CLOSE = 1e-14

type Atoms = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PrivacyLoss:
    r"""Distribution of the privacy loss :math:`L = \log (P(y) / Q(y))`, y drawn from P, of two output distributions.

    Parameters
    ----------
    losses
        Support, nats, shape (k,).
    probabilities
        Probability of each loss, shape (k,).
    excess
        Upper bound on how much too large an epsilon read off this distribution is, nats: 0 where no loss was rounded
        up to a grid.
    """

    losses: FloatArray
    probabilities: FloatArray
    excess: float = 0.0

    def delta(self, epsilon: float) -> float:
        r"""Return the smallest delta at epsilon, :math:`E \max(0, 1 - e^{\epsilon - L})`."""
        epsilon = finite("epsilon", epsilon)
        above = self.losses > epsilon
        return float(self.probabilities[above] @ -np.expm1(epsilon - self.losses[above]))

    def epsilon(self, delta: float) -> float:
        r"""Return the smallest epsilon >= 0 at delta; infinite if no finite epsilon is enough.

        The event that distinguishes P from Q best is a loss of at least some l, so

        .. math:: \epsilon(\delta) = \max\Bigl(0, \max_l \log \frac{P(L \ge l) - \delta}{Q(L \ge l)}\Bigr)
        """
        delta = probability("delta", delta, zero=True)
        raising = np.flatnonzero((self.losses > 0) & (self.probabilities > 0))
        order = raising[np.argsort(self.losses[raising])[::-1]]
        losses = self.losses[order]
        weights = self.probabilities[order]
        within = np.cumsum(weights) > delta * (1 + _SUM_ERROR)
        if not within.any():
            return 0.0
        # log(P(L >= l) - delta) and log Q(L >= l) at each loss l, largest first
        rest = np.log(np.cumsum(weights)[within] - delta)
        log_others = np.logaddexp.accumulate(np.log(weights) - losses)[within]
        return max(0.0, float(np.max(rest - log_others)))


def privacy_loss(laws: Sequence[NoiseDistribution], shifts: Sequence[int]) -> PrivacyLoss:
    r"""Return the privacy loss of independent integer noise on cells that differ by given shifts.

    With cell i at 0 under P and at :math:`s_i` under Q, :math:`L = \sum_i \log p_i(k_i) - \log p_i(k_i - s_i)` for
    :math:`k_i` drawn from the noise distribution :math:`p_i`: the convolution of the cells' losses. The distributions
    are symmetric, so exchanging P and Q gives the same curve.

    Parameters
    ----------
    laws
        Discrete noise distribution of each cell in which the neighbors differ.
    shifts
        Number of records by which the neighbors differ in each of these cells.

    Returns
    -------
    PrivacyLoss
        Exact but for tails of probability 10^-18 a cell, counted as an infinite loss nowhere, and losses
        rounded to 10^-11 nats. Where the losses of many cells of different distributions have too many sums, they are
        rounded up to a grid of 2^18 steps over their whole range: an upper bound of the curve, too large in
        epsilon by at most one step for each of those cells.

    Raises
    ------
    ArgumentError
        A distribution is not discrete, or the shifts are not one whole number for each distribution.

    Examples
    --------
    >>> from bayesprivmrf.noise import DiscreteLaplace
    >>> round(privacy_loss([DiscreteLaplace(2.0)], [1]).epsilon(0.0), 6)
    0.5
    """
    laws = [checked_noise("laws", law) for law in listed("`laws`", laws, error=ArgumentError)]
    shifts = [
        checked_shift("shifts", one) for one in listed("`shifts`", shifts, error=ArgumentError)
    ]
    given = f"{len(shifts)} for {len(laws)}"
    require(len(laws) == len(shifts), "shifts", "hold one number for each distribution", given)
    return convolved([losses_of(law, shift) for law, shift in zip(laws, shifts, strict=True)])


def checked_shift(name: str, shift: Any) -> int:
    """Return a difference of counts, after a check that it is a whole number of at most 10^12 records in size."""
    return whole_number(name, shift, -_MOST_RECORDS, _MOST_RECORDS)


def convolved(cells: Sequence[Atoms]) -> PrivacyLoss:
    """Return the distribution of the sum of independent losses, as `privacy_loss` does for those of noise."""
    total: Atoms = (np.zeros(1), np.ones(1))
    cells = _even_together(_merged(np.round(losses, _DECIMALS), each) for losses, each in cells)
    for position, cell in enumerate(cells):
        # beyond this the rest is convolved on a grid
        if total[0].size * cell[0].size > _EXACT_PRODUCTS:
            return _on_a_grid([total, *cells[position:]])
        sums = np.round(np.add.outer(total[0], cell[0]).ravel(), _DECIMALS)
        total = _merged(sums, np.multiply.outer(total[1], cell[1]).ravel())
    return PrivacyLoss(losses=total[0], probabilities=total[1])


def losses_of(law: NoiseDistribution, shift: int) -> Atoms:
    """Return the privacy losses of one cell, not rounded, with their probabilities.

    Raises
    ------
    ArgumentError
        The distribution is not discrete, or is so wide that its support does not fit in memory.
    """
    k = support_of(law)
    return log_ratio(law, k, k - shift), np.exp(law.log_density(k))


def log_ratio(law: NoiseDistribution, noise: IntArray, other: IntArray) -> FloatArray:
    """Return the log-likelihood ratio of two values of noise, within +-`CERTAIN`; NaN if both are impossible."""
    with np.errstate(invalid="ignore"):
        return np.clip(law.log_density(noise) - law.log_density(other), -CERTAIN, CERTAIN)


def support_of(law: NoiseDistribution) -> IntArray:
    """Return the whole numbers in the support of a distribution, without tails of probability 10^-18 or less.

    Raises
    ------
    ArgumentError
        As for `losses_of`.
    """
    if not law.is_discrete or law.variance == 0:
        raise ArgumentError(
            f"`laws` must be noise of whole numbers, got {law.name!r}; use gaussian_epsilon."
        )
    reach = 1
    while float(law.log_density(reach)) > _LOG_NEGLIGIBLE:
        reach *= 2
    deviation = f"{law.standard_deviation:.3g}"
    must = "have a standard deviation of at most about 10^5 records"
    require(reach <= _FARTHEST, "laws", must, deviation)
    k = np.arange(-reach, reach + 1)
    return k[law.log_density(k) > _LOG_VANISHING]


def _even_together(cells: Iterable[Atoms]) -> list[Atoms]:
    """Return loss distributions, smallest first, after summing those on even grids with equal steps.

    Losses of Gaussian noise have such grids. The tails of each sum are cut again, so that its support grows as the
    square root of the number of cells.
    """
    close = 10.0**-_DECIMALS
    apart: list[Atoms] = []
    even: list[tuple[float, float, Any]] = []  # the least loss, the step, and probabilities
    for losses, weights in cells:
        step = float(losses[-1] - losses[0]) / max(losses.size - 1, 1)
        is_grid = 0 < step < math.inf
        if not is_grid or np.abs(losses - losses[0] - step * np.arange(losses.size)).max() > close:
            apart.append((losses, weights))
            continue
        # a sum of losses on grids of one step is a convolution of their weights
        for place, (least, other, known) in enumerate(even):
            rows = known.size + weights.size
            if abs(step - other) * rows <= close and known.size * weights.size <= _LARGEST_EVEN:
                sums = np.convolve(known, weights)
                # without tails of negligible probability on either side
                first = int(np.searchsorted(np.cumsum(sums), _CUT))
                rest = int(np.searchsorted(np.cumsum(sums[::-1]), _CUT))
                last = sums.size - rest
                even[place] = (least + float(losses[0]) + other * first, other, sums[first:last])
                break
        else:
            even.append((float(losses[0]), step, weights))
    apart += [
        (np.round(least + step * np.arange(each.size), _DECIMALS), each)
        for least, step, each in even
    ]
    return sorted(apart, key=lambda cell: cell[0].size)


def _merged(losses: FloatArray, probabilities: FloatArray) -> Atoms:
    """Return losses without duplicates and without probability 0."""
    support, place = np.unique(losses, return_inverse=True)
    weights = np.bincount(place, weights=probabilities, minlength=support.size)
    return support[weights > 0], weights[weights > 0]


def _on_a_grid(parts: Sequence[Atoms]) -> PrivacyLoss:
    """Return the convolution of loss distributions, each rounded up to a multiple of one step above its least."""
    step = sum(float(losses.max() - losses.min()) for losses, _ in parts) / _GRID
    size = 2 ** (_GRID + len(parts)).bit_length()  # no sum may wrap around
    transform = np.ones(size // 2 + 1, dtype=complex)
    least = 0.0
    most = 0
    for losses, probabilities in parts:
        place = np.ceil((losses - losses.min()) / step).astype(np.int64)
        transform *= np.fft.rfft(np.bincount(place, weights=probabilities, minlength=size))
        least = least + float(losses.min())
        most = most + int(place.max())
    weights: FloatArray = np.asarray(np.fft.irfft(transform, size), dtype=np.float64)
    # the transform has rounding errors of about 1e-17; beyond the largest sum there is nothing else
    kept = np.flatnonzero(weights[: most + 1] > 0)
    losses = np.asarray(least + step * kept, dtype=np.float64)
    return PrivacyLoss(losses=losses, probabilities=weights[kept], excess=step * len(parts))


def gaussian_epsilon(mu: float, delta: float) -> float:
    r"""Return the smallest epsilon at delta of Gaussian noise, where mu is the distance over the scale.

    .. math:: \delta(\epsilon) = \Phi(\mu/2 - \epsilon/\mu) - e^{\epsilon} \Phi(-\mu/2 - \epsilon/\mu)

    A Gaussian mechanism of zero-concentrated cost rho has :math:`\mu = \sqrt{2 \rho}`.

    Parameters
    ----------
    mu
        Distance between neighbors divided by the standard deviation of the noise, positive.
    delta
        Probability, in (0, 1).

    References
    ----------
    Balle, Wang 2018, Theorem 8. Dong, Roth, Su 2022, Corollary 2.13.

    Examples
    --------
    >>> round(gaussian_epsilon(1.0, 1e-6), 3)
    4.887
    """
    from scipy.optimize import brentq
    from scipy.special import log_ndtr, ndtr

    mu = positive_finite("mu", mu)
    delta = probability("delta", delta, zero=False)

    def excess(epsilon: float) -> float:
        return (
            ndtr(mu / 2 - epsilon / mu)
            - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
            - delta
        )

    if excess(0.0) <= 0:
        return 0.0
    most = 1.0
    while excess(most) > 0:
        most *= 2
    return float(brentq(excess, 0.0, most, xtol=_CLOSE))  # type: ignore[arg-type]
