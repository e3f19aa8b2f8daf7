r"""Test of the measured number that is farthest from an estimate.

A sum over all numbers (`bayesprivmrf.inference.criticism.noise_misfit`) does not see an estimate that is far from one
number and close to all others: there each other residual is smaller than its expectation. The largest residual is
therefore judged beside the sum.

If the estimate is right, a residual :math:`r = y - N μ` is the sum of noise η, of the sampling of N records, and of
the error of N where it is private. The N records are independent, and each moves its number by at most w above its
mean, and by at most w below it; let V be the variance of the sampling. Then Bennett's inequality and the noise's
moments, :math:`K(t) \ge \log E e^{t η}`, give Chernoff's bound

.. math:: P(|r| \ge x) \le 2 \exp \min_t \Bigl\{ K(t) + \frac{V}{w^2} (e^{t w} - 1 - t w)
          + \frac{1}{2} (t μ s_N)^2 - t x \Bigr\},

with :math:`s_N` the standard error of N. It holds for any expected count, also where the normal distribution
understates the probability of a few records in a rare cell. The p-value of the largest residual is the smallest bound
times the number of residuals (Bonferroni). V has :math:`1/4` added, as elsewhere in criticism: fits are not exact.

The residual of a range is that to the nearest count in it, without noise. An estimate may be beyond its ends, and V
has the variance of a uniform count on the range added (`noise_misfit`).

References
----------
Bennett (1962). Probability inequalities for the sum of independent random variables. JASA 57, 33-45.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.likelihood import Likelihood

# Added variance of each number, records squared: that of half a record, the least noise that fits are compared with
_LEAST_VARIANCE = 0.25
# Residual, in standard deviations, from which its p-value is computed; a smaller one has a p-value of 1
_LOOKED_AT = 4.0
# Most residuals that are judged, the farthest ones in standard deviations: the others count as explained
_MOST_JUDGED = 50
# Rates at which Chernoff's bound is taken, over the standard deviation of the residual; any rate gives a bound
_RATES = np.geomspace(0.3, 80.0, 80)
# Largest exponent of a record's moment: beyond it the bound is no use, and must not overflow
_LARGEST_EXPONENT = 500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Expectations of the measured numbers under an estimate.

    Parameters
    ----------
    mean
        N A μ, shape (size,), records.
    sampling
        Variance of each number by sampling, and of a range also that of a uniform count on it, shape (size,), squared
        records.
    reach
        Most that one person moves a number, shape (size,), records.
    """

    mean: FloatArray
    sampling: FloatArray
    reach: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Farthest:
    """The measured number that is farthest from an estimate.

    Parameters
    ----------
    place
        Its position among all numbers.
    nearest
        The number itself, or the nearest count of its range, records.
    tail
        P-value of the largest residual, at most 1.
    """

    place: int
    nearest: float
    tail: float


def farthest_number(
    evidence: Evidence, expected: Expected, is_tested: np.ndarray
) -> Farthest | None:
    """Return the number that an estimate misses most, with its p-value; None where none is far.

    Parameters
    ----------
    evidence
        The releases.
    expected
        What the estimate expects.
    is_tested
        Mask of the numbers whose noise has a density, shape (size,).
    """
    nearest = evidence.nearest(expected.mean)
    residual = np.where(is_tested, np.abs(nearest - expected.mean), 0.0)
    noise = np.where(evidence.is_range, 0.0, evidence.noise_variance)
    sampling = expected.sampling + _LEAST_VARIANCE
    relative = evidence.total_standard_error / evidence.total
    of_total = np.square(relative * expected.mean)
    deviation = np.sqrt(noise + sampling + of_total)
    far = np.flatnonzero(residual > _LOOKED_AT * deviation)
    if not far.size:
        return None
    judged = far[np.argsort(-residual[far] / deviation[far], kind="stable")][:_MOST_JUDGED]
    owners = np.searchsorted(evidence.offsets, judged, side="right") - 1
    logs = []
    for place, owner in zip(judged, owners, strict=True):
        one = _Residual(
            value=float(residual[place]),
            deviation=float(deviation[place]),
            sampling=float(sampling[place]),
            reach=float(expected.reach[place]),
            of_total=float(of_total[place]),
        )
        law = None if evidence.is_range[place] else evidence.noise[owner]
        logs.append(_log_tail(one, law))
    smallest = int(np.argmin(logs))
    tail = min(1.0, float(np.exp(logs[smallest])) * int(is_tested.sum()))
    place = int(judged[smallest])
    return Farthest(place=place, nearest=float(nearest[place]), tail=tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Residual:
    """One residual, and the variances of what it consists of besides noise, records and squared records."""

    value: float
    deviation: float
    sampling: float
    reach: float
    of_total: float


def _log_tail(residual: _Residual, law: Likelihood | None) -> float:
    """Return the log of the bound on the p-value of a residual, at most 0; a range adds no noise to it."""
    rates = _RATES / residual.deviation
    step = rates * residual.reach
    inside = np.minimum(step, _LARGEST_EXPONENT)
    of_records = residual.sampling / residual.reach**2 * (np.expm1(inside) - step)
    of_total = 0.5 * residual.of_total * rates**2
    of_noise = 0.0
    if law is not None:
        of_noise = law.log_moment(rates)
    bounds = of_noise + of_records + of_total - rates * residual.value
    return min(0.0, float(np.log(2) + bounds.min()))
