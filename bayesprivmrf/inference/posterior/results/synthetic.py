r"""Combining rules for synthetic data sets, each drawn from its own draw of the posterior.

Let Q be a quantity of the population. Data set l has n records that are drawn from :math:`p(x; θ_l)`, where
:math:`θ_l` is an independent draw of the posterior given the release. It gives an estimate :math:`q_l` with the
sampling variance :math:`u_l`, computed as for a simple random sample. Then

.. math:: q_l \mid θ_l \sim N(Q(θ_l), U), \qquad Q(θ_l) \mid \text{release} \sim N(\hat Q, V),

so the estimates vary around :math:`\hat Q` with the variance :math:`B = V + U`. The mean :math:`\bar q` of m
estimates determines :math:`\hat Q` up to a variance of B/m. Given all m estimates, the posterior of Q is therefore

.. math:: Q \sim N\bigl(\bar q,\; V + B/m\bigr), \qquad V + B/m = (1 + 1/m) B - U.

With B estimated by the variance b of the estimates, and U by :math:`\bar u`, this is the rule :math:`T = (1 + 1/m)\,
b - \bar u` for fully synthetic data (Raghunathan, Reiter and Rubin 2003, equation 4). The rule :math:`b/m + \bar u`
for partially synthetic data would be wrong here, because it attributes the variation between data sets to the
synthesis alone, and ignores the uncertainty that the release leaves. The rule for multiple imputation, :math:`(1 +
1/m)\, b + \bar u`, would count U twice.

T may be negative, because b is noisy if m is small. The interval does not use T. With a flat prior on log B,
:math:`(m - 1)\, b / B \sim χ^2_{m-1}`, and B is integrated out under the constraint :math:`B ≥ \bar u`,

.. math:: P(Q ≤ x) = E\Bigl[Φ\Bigl(\frac{x - \bar q}{\sqrt{(1 + 1/m) B - \bar u}}\Bigr) \Bigm| B ≥ \bar u\Bigr],

which is a proper distribution for every b. If V is at least U, as with synthetic data sets that are at least as large
as the data, nominal 90 % intervals have a coverage of 90 % with twenty or more data sets. With five data sets they
are conservative (96 %), because so few determine B poorly.

References
----------
Raghunathan, Reiter, Rubin (2003). Multiple imputation for statistical disclosure limitation. Journal of Official
Statistics 19, 1-16.
Reiter (2003). Inference for partially synthetic, public use microdata sets. Survey Methodology 29, 181-188.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.checks import number_array, probability, require, same_labels
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.model.tables import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedEstimate:
    """Estimate of a population quantity, combined from several synthetic data sets.

    Parameters
    ----------
    estimate
        Mean of the estimates.
    lower, upper
        Limits of the equal-tailed interval.
    prob
        Posterior probability of the interval.
    between, within
        Variance b of the estimates between data sets, and their mean sampling variance ū.
    variance
        T = (1 + 1/m) b - ū. It may be negative, and the interval does not use it.
    """

    estimate: float
    lower: float
    upper: float
    prob: float
    between: float
    within: float
    variance: float


def combine_estimates(
    estimates: Sequence[float] | FloatArray, variances: Sequence[float] | FloatArray, *, prob: float = 0.9
) -> CombinedEstimate:
    """Combine the estimates from the data sets of `Posterior.synthetic`, one for each data set.

    Parameters
    ----------
    estimates
        Estimates q_l, one for each synthetic data set, shape (m,), at least two; twenty or more are recommended.
    variances
        Sampling variance u_l of each estimate, shape (m,), computed as if its data were a simple random sample.
    prob
        Posterior probability of the interval, between 0 and 1.

    Returns
    -------
    CombinedEstimate
        The combined estimate with its interval.

    Raises
    ------
    ArgumentError
        There are fewer than two estimates, their number differs from that of the variances, a number is not finite,
        or a variance is negative.

    References
    ----------
    Raghunathan, Reiter, Rubin (2003). Multiple imputation for statistical disclosure limitation. Journal of Official
    Statistics 19, 1-16.

    Examples
    --------
    >>> combined = combine_estimates([0.31, 0.28, 0.35, 0.30, 0.33], [0.0002] * 5)
    >>> round(combined.estimate, 3), round(combined.variance, 5)
    (0.314, 0.00068)
    """
    both, must = "`estimates` and `variances`", "have the same index in the same order"
    remedy = "write `variances.reindex(estimates.index)`"
    require(same_labels([estimates, variances]), both, must, "two", remedy)
    q = number_array("estimates", estimates, float)
    u = number_array("variances", variances, float)
    must = "have one number for each of at least two synthetic data sets"
    require(q.ndim == 1 and q.shape == u.shape and len(q) > 1, both, must, f"shapes {q.shape} and {u.shape}")
    is_finite = np.isfinite(q).all() and np.isfinite(u).all() and (u >= 0).all()
    require(is_finite, both, "be finite, and `variances` at least 0", "others")
    prob = probability("prob", prob, zero=False, remedy="0.9 is for 90 %")
    m, center = len(q), float(q.mean())
    between, within = float(q.var(ddof=1)), float(u.mean())
    half = _half_width(m, between, within, prob)
    return CombinedEstimate(
        estimate=center,
        lower=center - half,
        upper=center + half,
        prob=prob,
        between=between,
        within=within,
        variance=(1 + 1 / m) * between - within,
    )


def _half_width(m: int, between: float, within: float, prob: float) -> float:
    """Return half the width of the interval, a quantile of a scale mixture of normal distributions around 0."""
    from scipy.optimize import brentq
    from scipy.special import gammainc, gammaincinv, ndtr

    if between == 0 and within == 0:
        return 0.0
    # B >= ū truncates the chi-squared variable (m - 1) b / B from above; half of it is a gamma variable
    shape, rate = 0.5 * (m - 1), 0.5 * (m - 1) * between
    most = float(gammainc(shape, rate / within)) if within > 0 else 1.0
    if most > 0:
        levels = most * (np.arange(500) + 0.5) / 500  # the mixture is averaged over 500 quantiles of B
        spread = rate / gammaincinv(shape, levels)
    else:  # no variance between the data sets: B is at its lower end
        spread = np.full(1, within)
    deviations = np.sqrt(np.maximum((1 + 1 / m) * spread - within, within / m))

    def excess(x: float) -> float:
        return float(ndtr(x / deviations).mean()) - 0.5 * (1 + prob)

    # the widest component determines the tails of the mixture
    root: Any = brentq(excess, 0.0, 40.0 * float(deviations.max()))
    return float(root)


def records_of(evidence: Evidence, total: FloatArray) -> int:
    """Return the posterior median of N, which is robust to a long upper tail.

    Raises
    ------
    ArgumentError
        The release's own estimate of the number of records is not distinguishable from 0.
    """
    if not evidence.has_total:
        raise ArgumentError(
            "`size` must be given here, because the release's own estimate of the number of records, "
            f"{evidence.estimated_total:,.0f} ± {evidence.total_standard_error:,.0f}, cannot be distinguished from "
            "0, and its posterior is mostly the prior."
        )
    return round(float(np.median(total)))
