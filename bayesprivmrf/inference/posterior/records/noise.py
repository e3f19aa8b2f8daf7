r"""Density of the noise at whole counts, compiled: what a change of the counts does to it.

With y a released number, s its true value and w the width of the noise, the kernels are

.. math:: \log f(y - s) = -|y - s| / w \quad\text{or}\quad -(y - s)^2 / (2 w^2),

each but for its constant. A number that is known only within bounds has the probability of these bounds in place
of f.
"""

from __future__ import annotations

import math

from numba import njit

from bayesprivmrf.compiled import INNER

# Log of the density at a sum out of its bounds, in place of minus infinity: moves out and back must add up to zero.
# It is far below any log density of noise, and leaves six digits for them.
_FORBIDDEN = -1e9


@njit(nogil=True, inline="always")
def log_step(gap, by, width, is_absolute):
    """Return the log density of the noise after a sum grew by a number, less that before; `gap` is y - s."""
    return (abs(gap) - abs(gap - by)) / width if is_absolute else by * (gap - 0.5 * by) / (width * width)


@njit(cache=True, nogil=True)
def log_within(residual, half, width, is_absolute):
    """Return the log of the noise's kernel summed over the whole numbers within bounds; without noise, 0 or -1e9.

    The answer is known only to lie within `half` of the released number, and `residual` is the true sum less that
    number, so that the noise k satisfies residual - half <= k <= residual + half. The kernel is
    exp(-|k| / width), or exp(-k^2 / (2 width^2)).
    """
    low, high = math.ceil(residual - half), math.floor(residual + half)
    near = min(max(0.0, low), high)  # the noise of largest density
    if width == 0.0:
        return 0.0 if near == 0.0 else _FORBIDDEN
    if not is_absolute:
        # Gaussian: add terms outward from the largest, until they no longer count
        top, total = 0.5 * near * near, 0.0
        for way in (-1.0, 1.0):
            k = near if way > 0.0 else near - 1.0
            while low <= k <= high:
                term = math.exp((top - 0.5 * k * k) / (width * width))
                total += term
                if term < 1e-18 * total:  # below the rounding of the sum
                    break
                k += way
        return math.log(total) - top / (width * width)
    # Laplace: geometric sums, two tails less than the whole where 0 lies within the bounds
    ratio = math.exp(-1.0 / width)
    if near == 0.0:
        tails = math.exp(-(high + 1.0) / width) + math.exp((low - 1.0) / width)
        return math.log((1.0 + ratio - tails) / (1.0 - ratio))
    terms = -math.expm1(-(high - low + 1.0) / width) / (1.0 - ratio)
    return math.log(terms) - abs(near) / width


@njit(nogil=True, inline="always")
def log_step_within(gap, by, half, width, is_absolute):
    """Return `log_step`, also for a number known within bounds, where `half` is not negative."""
    if half < 0.0:
        return log_step(gap, by, width, is_absolute)
    return log_within(by - gap, half, width, is_absolute) - log_within(-gap, half, width, is_absolute)


@njit(nogil=True, **INNER)
def log_density(counts, sums, tape):
    """Return the log density of all noise, except its constant; writes the measured sums of the counts to `sums`."""
    value = 0.0
    for m in range(sums.size):
        sums[m] = 0
        for k in range(tape.member_starts[m], tape.member_starts[m + 1]):
            sums[m] += tape.member_weights[k] * counts[tape.members[k]]
        ratio = abs(tape.noisy[m] - sums[m]) / tape.widths[m]
        value -= ratio if tape.absolute[m] else 0.5 * ratio * ratio
    return value
