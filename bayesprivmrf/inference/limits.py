r"""Limits of intervals near the ends of an answer's range, where a probability may be 0 or 1.

An equal-tailed interval of a probability excludes 0 by construction, however empty the cell is. The interval of
highest density contains the end if the density there is no less than at the other limit of a one-sided interval. With
f the density of the answer, :math:`α = 1 - \text{prob}`, and U the limit of the one-sided interval, beyond which the
probability is α, the end has the weight

.. math:: w = \min\Bigl(1, \frac{f(\text{end})}{f(U)}\Bigr),

and the tail beside the end is :math:`\frac{α}{2} (1 - w)`. It is α/2 where the density vanishes at the end, and 0
where the interval of highest density contains the end. In between, the limit moves continuously.

**The far tail of an estimate** with a standard error is :math:`\frac{α}{2} (1 + w)`, so that the interval is that of
highest density at w = 1, and both tails are α together. The density is that of a normal distribution that is cut
off at the end, d standard errors away: :math:`f(\text{end}) / f(U) = φ(d) / φ(u)` with
:math:`u = Φ^{-1}(1 - α Φ(d))`.

**The far tail of draws** stays α/2, so that near an end the interval has up to :math:`1 - α/2` of the posterior.
With the far tail of highest density, intervals would cover too few small probabilities: where a cell has hardly a
record the prior's pole at 0 draws the posterior down, and the truth lies above the far limit
(benchmarks/results/empty-cells-posterior.csv). The density at the end is estimated by its mean over the first half
of the lower tail, :math:`F(q) / q` with :math:`q = Q(α/2) / 2`, where F and Q are the distribution function and the
quantiles of the distance from the end. The density at U is estimated by its mean between the quantiles
:math:`1 - 3α/2` and :math:`1 - α/2`. If no draw comes half as near to the end as the equal-tailed limit, tails are
exactly equal. A count n stands for the values from n - 1/2 to n + 1/2, among which its draws are spread evenly.

**Coverage.** Let y be a count with symmetric, log-concave noise, and the prior flat above the end. The interval
covers a true 0 where :math:`f(0) \ge f(U)`, which has the probability :math:`1 / (1 + α)`, 0.909 at 90 % (Zhang and
Woodroofe 2002; Marchand and Strawderman 2006 have bounds elsewhere). Equal tails never cover it. With the densities
estimated from draws, 90 % intervals cover 0 with a probability of 0.927, and other values with at least 0.89, under
Laplace and Gaussian noise; they are at most 8 % wider than with equal tails.

References
----------
Zhang, Woodroofe (2002). Credible and confidence sets for restricted parameter spaces. Journal of Statistical Planning
and Inference 115, 479-490.
Marchand, Strawderman (2006). On the behavior of Bayesian credible intervals for some restricted parameter space
problems. IMS Lecture Notes 50, 112-126.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bayesprivmrf.inference.interval_frame import Mark, Status
from bayesprivmrf.model.tables import FloatArray

# Rounding error of a whole number of records
_WHOLE = 1e-6


type Ends = tuple[FloatArray | float, FloatArray | float]
"""Smallest and largest possible answer; infinite where there is none, or where it is not known."""


def limits_of_draws(
    draws: FloatArray, prob: float, ends: Ends = (-np.inf, np.inf), *, is_whole: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper limits over the first two axes of draws.

    Parameters
    ----------
    draws
        Shape (chain, draw, ...).
    prob
        Probability of each interval.
    ends
        Range of the answers, of the shape of one draw or to be broadcast to it.
    is_whole
        Whether answers are whole numbers. Each limit is then one of the draws, or an end.
    """
    shape = draws.shape[2:]
    flat = draws.reshape(-1, int(np.prod(shape)))
    least, most = (np.broadcast_to(end, shape).ravel() for end in ends)
    # at most four million draws are sorted at once
    found = np.empty((2, flat.shape[1]))
    step = max((1 << 22) // len(flat), 1)
    tail = 1 - prob
    half = 0.5 if is_whole else 0.0
    for start in range(0, flat.shape[1], step):
        part = slice(start, start + step)
        ordered = np.sort(flat[:, part], axis=0)
        low = least[part]
        high = most[part]
        if is_whole:
            spread = _spread(ordered)
        else:
            spread = ordered
        below = tail / 2 * (1 - _weights(spread - low + half, tail))
        above = tail / 2 * (1 - _weights((high - spread + half)[::-1], tail))
        found[0, part] = np.where(below > 0, _quantile(ordered, below, is_whole), low)
        found[1, part] = np.where(above > 0, _quantile(ordered, 1 - above, is_whole), high)
    return found[0].reshape(shape), found[1].reshape(shape)


def standard_limits(
    below: FloatArray, above: FloatArray, prob: float
) -> tuple[FloatArray, FloatArray]:
    """Return limits in standard errors from an estimate, the lower one negative; infinite where they are an end.

    Parameters
    ----------
    below, above
        Distance from the estimate to the smallest and the largest answer, in standard errors, at least 0.
    prob
        Probability of each interval.
    """
    from scipy.special import ndtri

    half = (1 - prob) / 2
    shift = half * (_normal_weights(below, 1 - prob) - _normal_weights(above, 1 - prob))
    return ndtri(half - shift), -ndtri(half + shift)


def half_width(errors: FloatArray, prob: float) -> FloatArray:
    """Return half the width of normal intervals, from standard errors."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + prob / 2)) * errors


def cut_limits(
    estimates: FloatArray,
    below: FloatArray,
    above: FloatArray,
    prob: float,
    ends: Ends = (0.0, 1.0),
    *,
    plain: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return normal limits around estimates, on their own scale, cut off at the ends.

    A limit reaches an end as soon as the end lies within the half-width, so that 90 % limits cover a true 0 with the
    probability 0.95. No tail is moved, because errors on this scale are rather too small where a cell is nearly
    empty.

    Parameters
    ----------
    estimates, below, above
        Estimates, and their standard errors towards the smallest and towards the largest answer.
    prob, ends
        As `limits_of_draws` has them.
    plain
        Standard errors without a prior; None for those given. A prior of finite effects excludes an empty cell,
        whatever was measured. A limit is therefore the end itself where these errors reach it, and moves away from
        the end over a quarter of that distance.
    """
    least, most = ends
    lower = np.maximum(estimates - half_width(below, prob), least)
    upper = np.minimum(estimates + half_width(above, prob), most)
    if plain is not None:
        reach = half_width(plain, prob)
        lower = least + (lower - least) * excluded(estimates - least, reach)
        upper = most - (most - upper) * excluded(most - estimates, reach)
    return lower, upper


def excluded(distance: FloatArray, reach: FloatArray) -> FloatArray:
    """Return the degree to which an end is excluded, from 0 to 1, given its distance and a half-width."""
    beyond = np.divide(distance, reach, out=np.full_like(distance, np.inf), where=reach > 0)
    # a limit leaves the end over a quarter of the half-width; arbitrary, for continuity
    return np.clip((beyond - 1) / 0.25, 0.0, 1.0)


def whole_limits(
    estimates: FloatArray, lower: FloatArray, upper: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return rounded limits of whole numbers that enclose the estimate, which need not be whole."""
    below = np.floor(estimates + _WHOLE)
    above = np.ceil(estimates - _WHOLE)
    return np.minimum(np.round(lower), below), np.maximum(np.round(upper), above)


def _normal_weights(distance: FloatArray, tail: float) -> FloatArray:
    from scipy.special import ndtr, ndtri

    at_far_limit = ndtri(1 - tail * ndtr(distance))
    return np.exp(np.minimum(0.0, (at_far_limit**2 - distance**2) / 2))


def _weights(distance: FloatArray, tail: float) -> FloatArray:
    """Return the weight of an end, from sorted distances of draws to it, shape (draws, cells)."""
    found = np.zeros(distance.shape[1])
    is_known = np.isfinite(distance[0])
    distance = distance[:, is_known]
    low = max(1 - 1.5 * tail, 0.0)
    near, middle, far = (_quantile(distance, p, False) for p in (tail / 2, low, 1 - tail / 2))
    at_end = (distance < near / 2).mean(axis=0) * (far - middle)
    at_limit = (1 - tail / 2 - low) * near / 2
    share = np.divide(at_end, at_limit, out=np.ones_like(near), where=at_limit > 0)
    found[is_known] = np.minimum(1.0, share)
    return found


def _quantile(ordered: FloatArray, prob: FloatArray | float, is_whole: bool) -> FloatArray:
    """Return a quantile of each column of sorted draws; for whole numbers, one of the draws."""
    size, columns = ordered.shape
    place = np.broadcast_to(
        size * np.asarray(prob) - 1 if is_whole else (size - 1) * np.asarray(prob), columns
    )
    place = np.clip(np.ceil(place - 1e-9) if is_whole else place, 0, size - 1)
    before = np.floor(place).astype(int)
    after = np.minimum(before + 1, size - 1)
    every = np.arange(columns)
    step = ordered[after, every] - ordered[before, every]
    return ordered[before, every] + (place - before) * step


def _spread(ordered: FloatArray) -> FloatArray:
    """Return sorted whole numbers with the draws of one number n spread evenly from n - 1/2 to n + 1/2."""
    size = len(ordered)
    rows = np.arange(size)[:, np.newaxis]
    is_first = np.vstack([np.ones((1, ordered.shape[1]), bool), ordered[1:] != ordered[:-1]])
    first = np.maximum.accumulate(np.where(is_first, rows, 0), axis=0)
    is_last = np.vstack([is_first[1:], np.ones((1, ordered.shape[1]), bool)])
    last = np.minimum.accumulate(np.where(is_last, rows, size)[::-1], axis=0)[::-1]
    return ordered - 0.5 + (rows - first + 0.5) / (last - first + 1)


class Limits(NamedTuple):
    """Estimates, lower and upper limits of their intervals, and marks for some of the rows.

    Parameters
    ----------
    estimates, lower, upper
        One number for each row, of one shape.
    marks
        Remarks on the rows.
    status
        Status of the fit that computed the limits, where it is not the result that was asked.
    """

    estimates: FloatArray
    lower: FloatArray
    upper: FloatArray
    marks: tuple[Mark, ...] = ()
    status: Status | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ChainFunction:
    """Function of a part of a chain's marginals, such as a step's matrix of transitions.

    Parameters
    ----------
    part
        The part, from marginals of the cliques, shape (..., cells).
    part_of_rows
        The part, from a `TransitionRows`, π and P of a chain that shares them.
    function
        Function of the part, of arrays with leading axes as well.
    is_share
        Whether its values are probabilities, which lie between 0 and 1; else they are times above 0.
    """

    part: Callable[[FloatArray], FloatArray]
    part_of_rows: Callable[[Any, FloatArray, FloatArray], FloatArray]
    function: Callable[[FloatArray], FloatArray]
    is_share: bool

    def of_marginals(self, flat: FloatArray) -> FloatArray:
        """Return the function's values at marginals of the cliques."""
        return self.function(self.part(flat))
