r"""Rank-normalized R-hat and effective sample sizes of many numbers at once.

The formulas are those of Vehtari et al. (2021), as ArviZ computes them for one number after the other; a test
compares the two. Every chain is first split into its two halves.

**Normal scores.** The value of rank r among all S draws of a number becomes
:math:`z = Φ^{-1}((r - 3/8) / (S + 1/4))`.

**R-hat.** With W the mean variance within a half, B the variance of the means of the halves and n the draws of a
half, :math:`\hat R = \sqrt{B/W + (n - 1)/n}`. It is computed from the scores of the draws and from those of their
distances to the median, and the larger value counts.

**Effective sample size.** With the autocorrelations :math:`ρ_t` of m halves of n draws each,

.. math:: \frac{mn}{τ}, \qquad τ = -1 + 2 \sum_{k < K} \min_{j \le k} (ρ_{2j} + ρ_{2j+1}) + \max(ρ_{2K}, 0),

where K is the first pair :math:`ρ_{2K} + ρ_{2K+1}` that is not positive (Geyer's initial monotone sequence). The
bulk's is that of the scores. That of the tails is the smaller of those of the indicators of two quantiles.

References
----------
Geyer (1992). Practical Markov chain Monte Carlo. Statistical Science 7, 473-483.
Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021). Rank-normalization, folding, and localization: an improved
R-hat. Bayesian Analysis 16, 667-718.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bayesprivmrf.model.tables import FloatArray

# Quantiles that bound the tails: the ends of ArviZ's default probability of an interval, whatever a session sets
_TAILS = (0.11, 0.89)
# Number of values that are treated at once; they and their copies stay in a processor's cache
_TOGETHER = 2**17
# Smallest range of a number that varies
_RESOLUTION = np.finfo(float).resolution


class Convergence(NamedTuple):
    """Diagnostics of several numbers, each of shape (numbers,)."""

    r_hat: FloatArray
    bulk: FloatArray
    tail: FloatArray


def convergence_of(numbers: FloatArray) -> Convergence:
    """Return R-hat, and the effective sample sizes in the bulk and in the tails.

    Parameters
    ----------
    numbers
        Draws of several chains, finite, shape (chain, draw, numbers); at least two chains of four draws.
    """
    chains, draws, count = numbers.shape
    together = max(_TOGETHER // (chains * draws), 1)
    parts = [
        _convergence(
            np.ascontiguousarray(np.moveaxis(numbers[..., start : start + together], -1, 0))
        )
        for start in range(0, count, together)
    ]
    return Convergence(*map(np.concatenate, zip(*parts, strict=True)))


def _convergence(series: FloatArray) -> Convergence:
    """Return the diagnostics of numbers of shape (numbers, chain, draw)."""
    halves = _halves(series)
    medians = np.median(halves, axis=(1, 2), keepdims=True)
    scores = _normal_scores(halves)
    by_location = _r_hat(scores)
    by_spread = _r_hat(_normal_scores(np.abs(halves - medians)))
    quantiles = np.quantile(series, _TAILS, axis=(1, 2), keepdims=True)
    tails = [_effective_size(_halves(series <= quantile).astype(float)) for quantile in quantiles]
    return Convergence(
        # distances to the median that are all equal have no R-hat
        r_hat=np.where(np.isnan(by_spread), by_location, np.maximum(by_location, by_spread)),
        bulk=_effective_size(scores),
        tail=np.minimum(*tails),
    )


def _halves(series: np.ndarray) -> np.ndarray:
    """Return the halves of all chains as chains; the middle draw of an odd number is left out."""
    half = series.shape[-1] // 2
    return np.concatenate([series[..., :half], series[..., -half:]], axis=-2)


def _normal_scores(halves: FloatArray) -> FloatArray:
    """Return the normal scores of each number's ranks among all its draws; equal values share their mean rank."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    flat = halves.reshape(len(halves), -1)
    ranks = rankdata(flat, axis=-1)
    return ndtri((ranks - 3 / 8) / (flat.shape[-1] + 1 / 4)).reshape(halves.shape)


def _r_hat(scores: FloatArray) -> FloatArray:
    """Return R-hat of each number; NaN if no draw differs from another."""
    draws = scores.shape[-1]
    within = scores.var(axis=-1, ddof=1).mean(axis=-1)
    between = scores.mean(axis=-1).var(axis=-1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(between / within + (draws - 1) / draws)


def _effective_size(halves: FloatArray) -> FloatArray:
    """Return the effective sample size of each number; the number of draws if none differs from another."""
    _, chains, draws = halves.shape
    covariance = _mean_autocovariance(halves)
    within = covariance[:, :1] * draws / (draws - 1)
    total = covariance[:, :1] + halves.mean(axis=-1).var(axis=-1, ddof=1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1 - (within - covariance) / total
    correlation[:, 0] = 1.0

    # pairs of neighboring lags, and the first pair without a positive sum
    last = max(draws - 3, 0) // 2
    pairs = correlation[:, : 2 * last + 2].reshape(len(halves), last + 1, 2).sum(axis=-1)
    is_end = pairs <= 0
    is_end[:, last] = True
    end = is_end.argmax(axis=1)

    # sum the pairs before it as a sequence that never rises, and the even lag of that pair
    monotone = np.minimum.accumulate(pairs, axis=1)
    before = np.where(np.arange(last + 1) < end[:, None], monotone, 0.0).sum(axis=1)
    rows = np.arange(len(halves))
    even = correlation[rows, 2 * end]
    remainder = np.where(pairs[rows, end] > 0, even, np.maximum(even, 0.0))

    size = chains * draws
    # antithetic chains have more effective draws than draws, up to a limit
    time = np.maximum(-1.0 + 2.0 * before + remainder, 1 / np.log10(size))
    is_constant = np.ptp(halves, axis=(1, 2)) < _RESOLUTION
    return np.where(is_constant, float(size), size / time)


def _mean_autocovariance(halves: FloatArray) -> FloatArray:
    """Return the autocovariance of each number at every lag, the mean over its chains, shape (numbers, draw)."""
    from scipy.fft import irfft, next_fast_len, rfft

    _, chains, draws = halves.shape
    # zeros behind the draws keep the end of a chain from its beginning
    length = next_fast_len(2 * draws, real=True)
    waves: Any = rfft(halves - halves.mean(axis=-1, keepdims=True), n=length)
    power = (waves.real**2 + waves.imag**2).sum(axis=1)
    summed: Any = irfft(power, n=length)
    return summed[:, :draws] / (chains * draws)
