"""P-values of weighted sums of noise: bounds on each, and their combination.

`bayesprivmrf.inference.criticism.verdict` derives them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from scipy.special import chdtrc

from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.likelihood import Likelihood

# P-value below which numbers that count no possible record contradict that; arbitrary: so small that no user meets it
# by chance
SMALLEST_IMPOSSIBLE_TAIL = 1e-6
# Standard deviations from which a contrast is judged
LOOKED_AT = 2.0
# Rates at which Chernoff's bound is taken, over the standard deviation of the contrast; any rate gives a bound
_RATES = np.geomspace(0.3, 80.0, 80)
# Largest number of moments that are computed at once: 8 MB
_MOST_TOGETHER = 1_000_000


def log_tails(
    contrasts: FloatArray,
    deviation: FloatArray,
    laws: Sequence[Likelihood],
    weights: FloatArray,
    counts: FloatArray,
) -> FloatArray:
    """Return logs of p-values of contrasts, shape (..., cells), by Chernoff's and Chebyshev's bounds.

    The contrast in a cell has a standard deviation, and adds up weighted numbers of draws of some distributions:
    weights and numbers have the shape (laws, cells).
    """
    result = np.zeros(contrasts.shape)
    far = np.abs(contrasts) > LOOKED_AT * deviation
    places = np.flatnonzero(far.reshape(-1, far.shape[-1]).any(axis=0) & (deviation > 0))
    together = max(1, _MOST_TOGETHER // (len(laws) * len(_RATES)))
    for start in range(0, len(places), together):
        block = places[start : start + together]
        rates = _RATES / deviation[block, np.newaxis]  # t in the module's formula
        moments = _log_moments(laws, weights[:, block], counts[:, block], rates)
        for place, of_sum, rate in zip(block, moments, rates, strict=True):
            own = np.abs(contrasts[..., place][far[..., place]])
            chernoff = np.log(2) + (of_sum - own[..., np.newaxis] * rate).min(axis=-1)
            chebyshev = 2 * np.log(deviation[place] / own)
            result[..., place][far[..., place]] = np.minimum(0.0, np.minimum(chernoff, chebyshev))
    return result


def _log_moments(
    laws: Sequence[Likelihood], weights: FloatArray, counts: FloatArray, rates: FloatArray
) -> FloatArray:
    """Return bounds of the log moments of weighted sums of draws, shape (cells, rates)."""
    draws_of: defaultdict[Likelihood, list[int]] = defaultdict(list)
    for place, law in enumerate(laws):
        draws_of[law].append(place)
    found = np.zeros(rates.shape)
    for law, draws in draws_of.items():
        count = counts[draws]
        # a law without a bound has an infinite moment at any rate but 0
        at = np.where(count > 0, weights[draws], 0.0)[:, :, np.newaxis] * rates
        moments = np.reshape(law.log_moment(at.ravel()), at.shape)
        found += (count[:, :, np.newaxis] * moments).sum(axis=0)
    return found


def combined(log_tails: FloatArray) -> FloatArray:
    """Combine independent p-values, given by their logs, over the last axis; the result may exceed 1."""
    count = log_tails.shape[-1]
    if count == 0:
        return np.ones(log_tails.shape[:-1])
    together = chdtrc(2 * count, -2 * log_tails.sum(axis=-1))
    smallest = count * np.exp(log_tails.min(axis=-1))
    if count > 1:
        return 2 * np.minimum(together, smallest)
    return np.exp(log_tails[..., 0])


def log_tails_of_zeros(law: Likelihood, numbers: FloatArray) -> FloatArray:
    """Return logs of p-values of numbers that were published of counts of 0, shape (numbers,).

    The p-value of added noise is a bound on both of its tails. Exact numbers, bounds, and rules that do not add noise
    have 0 where they do not allow a count of 0, and 1 elsewhere.
    """
    low, high = law.allowed(numbers)
    logs = np.where((low > 0) | (high < 0), -np.inf, 0.0)
    noise = law.base_law
    if not law.is_additive or noise.is_exact:
        return logs
    beyond = np.abs(numbers)
    if law.is_bounded:
        beyond = np.maximum(beyond - law.half_width, 0.0)
    deviation = np.sqrt(noise.error_variance(np.zeros(numbers.size)))
    weights = np.ones((1, numbers.size))
    return np.minimum(logs, log_tails(beyond, deviation, [noise], weights, weights))
