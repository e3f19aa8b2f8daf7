r"""Intervals for beta from a released estimate, by inversion of tests.

They are post-processing of the release and spend no privacy budget. At each simulated beta, a test accepts the
released values t with :math:`q_-(\beta) \le t \le q_+(\beta)`. These are quantiles of the simulated distribution,
chosen so that at least a fraction `prob` of estimates is accepted. The interval for t contains the betas that
accept t.

Tails are equal, each (1 - prob)/2. If an end of the released range (0, for instance) has more probability than a
tail, no value is cut off on that side, and the other tail gets all of 1 - prob. Otherwise intervals would contain
weak interactions too often.

The betas that accept a value need not form an interval. Estimates vary so widely below the transition that the
upper quantile falls where outcomes become ordered. The limits are therefore the smallest and the largest beta that
accept t. They are found from the least increasing curve above :math:`q_+` and the largest increasing curve below
:math:`q_-`, both of which can only raise the coverage. An isotonic regression would average over such a fall and
undercover on its low side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.checks import probability
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.network.estimate_law import EstimateLaw, end_shares

# relative rounding error of a tail's share: a whole number of estimates must not be cut for it
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class BetaInterval:
    """Interval for the inverse temperature.

    Parameters
    ----------
    lower, upper
        Limits; NaN if no beta of the simulated span accepts the estimate.
    open_below, open_above
        True if the limit is an end of the simulated span, so that the interval may extend beyond it.
    """

    lower: float
    upper: float
    open_below: bool
    open_above: bool

    @property
    def is_empty(self) -> bool:
        """True if no beta of the span makes the estimate likely: the model fits badly, or the span is too short."""
        return math.isnan(self.lower)

    def __contains__(self, beta: float) -> bool:
        return self.lower <= beta <= self.upper


def quantile_curves(law: EstimateLaw, prob: float) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and largest accepted value at each simulated beta, both made increasing.

    A plot of the two curves against beta shows the interval of every released value.

    Parameters
    ----------
    law
        Simulated distribution of the estimate.
    prob
        Fraction of estimates that is accepted at each beta, in (0, 1).

    Returns
    -------
    lower, upper : FloatArray
        Shape (B,) each.

    Raises
    ------
    ArgumentError
        `prob` is not in (0, 1).
    """
    lower, upper = accepted_values(law, prob)
    # the largest increasing curve below, and the least increasing curve above
    return np.minimum.accumulate(lower[::-1])[::-1], np.maximum.accumulate(upper)


def accepted_values(law: EstimateLaw, prob: float) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and largest accepted value at each simulated beta, before they are made increasing.

    Raises
    ------
    ArgumentError
        `prob` is not in (0, 1).
    """
    tail = (1 - probability("prob", prob, zero=False, remedy="0.9 is for 90 %")) / 2
    rows = EstimateLaw.checked(law).sorted_rows
    first, last = (share > tail for share in end_shares(law))
    below = np.where(last & ~first, 2 * tail, tail)
    above = np.where(first & ~last, 2 * tail, tail)
    index = np.arange(len(rows))
    count = rows.shape[1]
    lower = rows[index, _cut(below, count)]
    upper = rows[index, count - 1 - _cut(above, count)]
    return lower, upper


def interval(law: EstimateLaw, value: float, prob: float = 0.9) -> BetaInterval:
    r"""Return an interval that contains beta in a fraction `prob` of releases, whatever beta is.

    This holds up to the error of the simulation. The coverage is higher if an end of the range has much probability.

    Parameters
    ----------
    law
        Simulated distribution of the estimate.
    value
        The released number.
    prob
        Coverage, in (0, 1).

    Raises
    ------
    ArgumentError
        `prob` is not in (0, 1).
    """
    least, largest = quantile_curves(law, prob)
    half = law.spacing / 2
    tail = (1 - prob) / 2
    first, last = end_shares(law)
    # one rule for both limits: with all signs and orders reversed, the largest beta becomes the smallest
    lower = _first_reaching(
        *_with_corner(law.betas, largest + half, law.ends[1], last, tail), value
    )
    reversed_ = -law.betas[::-1], half - least[::-1], -law.ends[0], first[::-1], tail
    upper = -_first_reaching(*_with_corner(*reversed_), -value)
    if not lower <= upper:
        lower = upper = math.nan
    return BetaInterval(
        lower=lower,
        upper=upper,
        open_below=lower == law.betas[0],
        open_above=upper == law.betas[-1],
    )


def _with_corner(
    betas: FloatArray, curve: FloatArray, end: float, share: FloatArray, tail: float
) -> tuple[FloatArray, FloatArray]:
    """Add to an increasing curve the beta at which it reaches the end of the range.

    That is where the share of estimates at the end equals the tail. Without this corner, the straight line to the
    next grid point would cut off betas between the corner and that point.
    """
    after = int(np.searchsorted(curve, end))
    if not 0 < after < curve.size:
        return betas, curve
    before = min(share[after - 1], tail)
    there = max(share[after], tail)
    if there > before:
        part = (tail - before) / (there - before)
    else:
        part = 1.0
    corner = betas[after - 1] + part * (betas[after] - betas[after - 1])
    return np.insert(betas, after, corner), np.insert(curve, after, curve[after])


def _first_reaching(betas: FloatArray, curve: FloatArray, value: float) -> float:
    """Return the smallest beta at which an increasing piecewise linear curve is at least `value`; NaN if none is."""
    after = int(np.searchsorted(curve, value))
    if after == curve.size:
        return math.nan
    if after == 0:
        return float(betas[0])
    share = (value - curve[after - 1]) / (curve[after] - curve[after - 1])
    return float(betas[after - 1] + share * (betas[after] - betas[after - 1]))


def _cut(tail: FloatArray, count: int) -> np.ndarray:
    """Return the number of `count` sorted estimates that a tail may cut off: at most the tail's share of them."""
    return np.floor(tail * count * (1 + _ROUNDING)).astype(np.int64)
