r"""Limits of a coupling between rare states: what the answers tell is a count of people, and bends with the coupling.

A search's mean answer is linear in the records' gradient, hence in the share c of people who have both states of a
pair, the margins q and r being measured. In the coupling a it is linear only near one value. With the margins fixed
and the pair by itself, c is the root of

.. math:: \frac{c\,(1 - q - r + c)}{(q - c)(r - c)} = e^{4a}, \qquad
    \frac{dc}{da} = 4 h(c), \qquad
    \frac{1}{h} = \frac1c + \frac1{q - c} + \frac1{r - c} + \frac1{1 - q - r + c} ,

and h changes by a factor of e in a quarter of a nat where c is small. An estimate that noise made too large has a
slope that is too large, and so a deviation that is too small: among pairs with fewer than five people expected, four
in five were held at 90 %, and all that were not lay below their limits.

**Law.** The linear theory (`bayesprivmrf.learning.frank_wolfe.interval`) gives the normal law of a coupling, mean m
and deviation s, under the prior :math:`N(0, \tau^2)`. Without the prior it is
:math:`N(m_0, s_0^2)`, :math:`s_0^{-2} = s^{-2} - \tau^{-2}` and :math:`m_0 = m s_0^2 / s^2`. That is what the records
tell to first order about m: as a share of people, :math:`\hat c = c(m) + 4 h(c(m)) (m_0 - m)` with the deviation
:math:`4 h(c(m)) s_0`. Let a share g of its variance be of the choices' noise, which does not depend on the coupling;
the rest is of sampling, which goes with h: in a table of N records with these margins :math:`\operatorname{Var} c
= h / N`. So the density of a is

.. math:: f(a) \propto \frac{1}{\sqrt v} \exp\Bigl(-\frac{(\hat c - c(a))^2}{2 v} - \frac{a^2}{2 \tau^2}\Bigr),
    \qquad v = (4 h(c(m)) s_0)^2 \Bigl( g + (1 - g) \frac{h(c(a))}{h(c(m))} \Bigr) .

Its lower quantile is the lower limit. Upwards the slope grows, so that a larger count is a coupling that is larger by
less; but there the choices' noise grows too, which no linear law tells, and upper quantiles of f alone held too
seldom. So the upper limit is the larger one of the two quantiles, that of f and that of the linear law. Where many
people have both states c is straight over the interval, and both limits are the linear ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.stats import norm

from bayesprivmrf.model.tables import FloatArray

_POINTS, _PASSES = 257, 4
_REACH = 8.0  # deviations about the mean, and of the prior about 0, at which a search for quantiles begins
_TAIL = 1e-7  # probability left out at each end of the range of integration, far below that of any limit
_LEAST_INFORMATION = 1e-6  # of the prior's
_LEAST_SHARE = 1e-100  # of records, in a cell: no division by 0


def curved_limits(
    mean: FloatArray,
    deviation: FloatArray,
    prior: float,
    shares: tuple[FloatArray, FloatArray],
    by_choices: FloatArray,
    prob: float,
) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper limits of couplings, each of shape (pairs,).

    Parameters
    ----------
    mean, deviation
        m and s of each coupling, nats.
    prior
        Its deviation, nats.
    shares
        q and r: the share of records with the second state of a pair's first and second variable, in (0, 1).
    by_choices
        g, the share of the choices in the variance of the answers, in [0, 1].
    prob
        Coverage, in (0, 1).
    """
    tail = (1 - prob) / 2
    information = np.maximum(1 / deviation**2 - 1 / prior**2, _LEAST_INFORMATION / prior**2)
    pull = 1 / (information * deviation**2)
    both, slope = share_of_both(mean, *shares)
    told = both + 4 * slope * mean * (pull - 1)
    variance = 16 * slope**2 / information

    def log_density(a: FloatArray) -> FloatArray:
        c, h = share_of_both(a, shares[0][:, None], shares[1][:, None])
        v = variance[:, None] * (by_choices[:, None] + (1 - by_choices[:, None]) * h / slope[:, None])
        return -((told[:, None] - c) ** 2 / v + np.log(v) + (a / prior) ** 2) / 2

    low = np.minimum(mean - _REACH * deviation, -_REACH * prior)
    high = np.maximum(mean + _REACH * deviation, _REACH * prior)
    for _ in range(_PASSES):  # ever closer to where the density is
        edges = _quantiles(log_density, low, high, (_TAIL, 1 - _TAIL))
        step = (high - low) / (_POINTS - 1)
        low, high = edges[0] - step, edges[1] + step
    lower, upper = _quantiles(log_density, low, high, (tail, 1 - tail))
    return lower, np.maximum(upper, mean + float(norm.isf(tail)) * deviation)


def _quantiles(
    log_density: Callable[[FloatArray], FloatArray],
    low: FloatArray,
    high: FloatArray,
    levels: tuple[float, float],
) -> list[FloatArray]:
    """Return quantiles of densities that are 0 outside their ends, one a pair for each level."""
    points = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, _POINTS)
    density = log_density(points)
    density = np.exp(density - density.max(axis=1, keepdims=True))
    mass = np.cumsum((density[:, 1:] + density[:, :-1]) / 2, axis=1)
    mass = np.column_stack([np.zeros(len(mass)), mass / mass[:, -1:]])
    return [
        np.array([np.interp(level, own, at) for own, at in zip(mass, points, strict=True)])
        for level in levels
    ]


def share_of_both(a: FloatArray, q: FloatArray, r: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return c, the share of records with both states, and h; see the module.

    Where most records have one of them at least, the share with neither, whose equation is the same in 1 - q and
    1 - r, is found instead: no digits cancel.
    """
    has_most = q + r > 1
    more = np.where(has_most, q + r - 1, 0.0)
    q, r = np.where(has_most, 1 - q, q), np.where(has_most, 1 - r, r)
    odds = np.exp(np.clip(4 * a, -60.0, 60.0))  # beyond, a cell is below 10^-26 of the records either way
    sums = 1 + (q + r) * (odds - 1)
    root = np.sqrt(np.maximum(sums**2 - 4 * q * r * odds * (odds - 1), 0.0))
    c = 2 * q * r * odds / (sums + root)
    cells = np.stack(np.broadcast_arrays(c, q - c, r - c, 1 - q - r + c))
    return c + more, 1 / (1 / np.maximum(cells, _LEAST_SHARE)).sum(axis=0)
