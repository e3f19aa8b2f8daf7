r"""Intervals for beta from a released estimate: post-processing, so no budget is spent.

Test inversion. At each beta of the law's grid the released values t with :math:`q_-(\beta) \le t \le q_+(\beta)` are
accepted, with quantiles of the simulated law, so that a fraction of at least `prob` is. The interval for t holds the
betas that accept it. Tails are equal, each (1 - prob)/2. Where a value at an end of the released range (0, say) has
more probability than a tail, no value is cut off on that side, and the other tail is all of 1 - prob: without that,
intervals would hold weak interactions too often.

The betas that accept a value need not be an interval: below the transition estimates scatter so widely that the upper
quantile falls once order sets in. The ends are the least and the largest beta that accept, found from the least
increasing curve above :math:`q_+` and the largest one below :math:`q_-`: both err on the side of holding beta. An
isotonic regression would average over such a fall, and hold too few betas on its low side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.checks import probability
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.network.estimate_law import EstimateLaw, checked_law


@dataclass(frozen=True, kw_only=True, slots=True)
class BetaInterval:
    """Interval for the inverse temperature.

    Parameters
    ----------
    lower, upper
        Ends; NaN where no beta of the span accepts the estimate.
    open_below, open_above
        True if the end is that of the span, so that the interval may extend beyond it.
    """

    lower: float
    upper: float
    open_below: bool
    open_above: bool

    @property
    def is_empty(self) -> bool:
        """True if no beta of the span makes such an estimate likely: the model fits badly, or the span is short."""
        return math.isnan(self.lower)

    def __contains__(self, beta: float) -> bool:
        return self.lower <= beta <= self.upper


def quantile_curves(law: EstimateLaw, prob: float) -> tuple[FloatArray, FloatArray]:
    """Return the least and largest accepted value at each beta of the law, both made increasing; shape (B,) each.

    Parameters
    ----------
    law
        Simulated estimates.
    prob
        Fraction of estimates that is accepted at each beta, in (0, 1).

    Raises
    ------
    ArgumentError
        `prob` is not in (0, 1).
    """
    lower, upper = accepted_values(law, prob)
    return np.minimum.accumulate(lower[::-1])[::-1], np.maximum.accumulate(upper)


def accepted_values(law: EstimateLaw, prob: float) -> tuple[FloatArray, FloatArray]:
    """Return the least and largest accepted value at each beta, as simulated: `quantile_curves` before the last step.

    Raises
    ------
    ArgumentError
        `prob` is not in (0, 1).
    """
    tail = (1 - probability("prob", prob, zero=False, remedy="0.9 is for 90 %")) / 2
    rows, half = checked_law(law).sorted_rows, law.spacing / 2
    first = (rows < law.ends[0] + half).mean(axis=1) > tail
    last = (rows > law.ends[1] - half).mean(axis=1) > tail
    below, above = np.where(last & ~first, 2 * tail, tail), np.where(first & ~last, 2 * tail, tail)
    index, count = np.arange(len(rows)), rows.shape[1]
    lower = rows[index, _cut(below, count)]
    upper = rows[index, count - 1 - _cut(above, count)]
    return lower, upper


def interval(law: EstimateLaw, value: float, prob: float = 0.9) -> BetaInterval:
    r"""Return an interval that holds beta in a fraction `prob` of releases, whatever beta is, up to simulation error.

    It holds beta more often where an end of the range has much probability.

    Parameters
    ----------
    law
        Law of the released estimate.
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
    half, tail = law.spacing / 2, (1 - prob) / 2
    first = (law.sorted_rows < law.ends[0] + half).mean(axis=1)
    last = (law.sorted_rows > law.ends[1] - half).mean(axis=1)
    # the same rule for both ends: with all signs and orders turned round, the largest beta becomes the least
    lower = _first_reaching(*_with_corner(law.betas, largest + half, law.ends[1], last, tail), value)
    turned = -law.betas[::-1], half - least[::-1], -law.ends[0], first[::-1], tail
    upper = -_first_reaching(*_with_corner(*turned), -value)
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
    """Add the corner at which an increasing curve reaches the end of the range: where its share is a tail.

    A straight line to the next grid point would cut off betas between the corner and that point.
    """
    after = int(np.searchsorted(curve, end))
    if not 0 < after < curve.size:
        return betas, curve
    before, there = min(share[after - 1], tail), max(share[after], tail)
    part = (tail - before) / (there - before) if there > before else 1.0
    corner = betas[after - 1] + part * (betas[after] - betas[after - 1])
    return np.insert(betas, after, corner), np.insert(curve, after, curve[after])


def _first_reaching(betas: FloatArray, curve: FloatArray, value: float) -> float:
    """Least beta at which an increasing curve, straight between grid points, is at least `value`; NaN if nowhere."""
    after = int(np.searchsorted(curve, value))
    if after == curve.size:
        return math.nan
    if after == 0:
        return float(betas[0])
    share = (value - curve[after - 1]) / (curve[after] - curve[after - 1])
    return float(betas[after - 1] + share * (betas[after] - betas[after - 1]))


def _cut(tail: FloatArray, count: int) -> np.ndarray:
    """How many of `count` sorted estimates may be cut off: never more than the tail's share."""
    return np.floor(tail * count * (1 + 1e-12)).astype(np.int64)
