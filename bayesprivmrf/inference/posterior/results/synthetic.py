r"""Inference from several synthetic data sets, each drawn from its own draw of the posterior.

Let Q be a quantity of the population. Data set l holds n records drawn from :math:`p(x; θ_l)`, with
:math:`θ_l` an independent draw of the posterior given the release, and gives an estimate :math:`q_l` with its
sampling variance :math:`u_l`, found as if it were a simple random sample. Then

.. math:: q_l \mid θ_l \sim N(Q(θ_l), U), \qquad Q(θ_l) \mid \text{release} \sim N(\hat Q, V),

so the estimates vary around :math:`\hat Q` with variance :math:`B = V + U`, and given all m of them the posterior
of Q, :math:`N(\hat Q, V)` with :math:`\hat Q` known from :math:`\bar q` up to a variance of B/m, is

.. math:: Q \sim N\bigl(\bar q,\; V + B/m\bigr), \qquad V + B/m = (1 + 1/m) B - U.

With B estimated by the variance b of the estimates and U by :math:`\bar u`, that is the rule
:math:`T = (1 + 1/m)\, b - \bar u` for fully synthetic data (Raghunathan, Reiter and Rubin 2003, equation 4). The
rule :math:`b/m + \bar u` for partially synthetic data would be wrong here: it takes the spread between data sets
for nothing but the synthesis, and would leave out what the release leaves uncertain. So would any rule for
multiple imputation, :math:`(1 + 1/m)\, b + \bar u`, count U twice.

T may be negative, because b is noisy when m is small. Nothing is patched here: with the flat prior on log B that
gives :math:`(m - 1)\, b / B \sim χ^2_{m-1}`, and with the knowledge that :math:`B ≥ \bar u`, B is integrated out,

.. math:: P(Q ≤ x) = E\Bigl[Φ\Bigl(\frac{x - \bar q}{\sqrt{(1 + 1/m) B - \bar u}}\Bigr) \Bigm| B ≥ \bar u\Bigr],

which is a proper distribution whatever b is. In simulations with V at least U, as it is where the synthetic data
sets are no smaller than the data, nominal 90 % intervals cover 90 % from twenty data sets on, and 96 % with five:
so few do not tell B, and the interval says so.

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

from bayesprivmrf.checks import probability, same_labels
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.model.tables import FloatArray

# Quantiles of B over which the mixture is averaged
_POINTS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedEstimate:
    """A population quantity as several synthetic data sets together tell it.

    Parameters
    ----------
    estimate
        Mean of the estimates.
    lower, upper
        Equal-tailed interval.
    prob
        Probability that it holds the quantity.
    between, within
        b and ū: the estimates' variance, and their mean sampling variance.
    variance
        T = (1 + 1/m) b - ū; may be negative, and is not what the interval is made of.
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
    """Combine one estimate from each data set of `Posterior.synthetic`.

    Parameters
    ----------
    estimates
        q_l, one for each synthetic data set; at least two. More than ten are worth having.
    variances
        u_l: the sampling variance of each, computed as if its data were a simple random sample.
    prob
        Probability of the interval.

    Raises
    ------
    ArgumentError
        There are fewer than two, their numbers differ, or one is not finite; or a variance is negative.

    Examples
    --------
    >>> combined = combine_estimates([0.31, 0.28, 0.35, 0.30, 0.33], [0.0002] * 5)
    >>> round(combined.estimate, 3), round(combined.variance, 5)
    (0.314, 0.00068)
    """
    if not same_labels([estimates, variances]):
        raise ArgumentError(
            "`estimates` and `variances` must have one index, in the same order, got two; write "
            "`variances.reindex(estimates.index)`."
        )
    try:
        q, u = np.asarray(estimates, dtype=float), np.asarray(variances, dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(
            "`estimates` and `variances` must hold numbers; write two lists of them."
        ) from None
    if q.ndim != 1 or q.shape != u.shape or len(q) < 2:
        raise ArgumentError(
            "`estimates` and `variances` must hold one number for each of at least two synthetic data sets, got "
            f"shapes {q.shape} and {u.shape}."
        )
    if not (np.isfinite(q).all() and np.isfinite(u).all() and (u >= 0).all()):
        raise ArgumentError("`estimates` must be finite, and `variances` finite and at least 0.")
    prob = probability("prob", prob, zero=False, remedy="0.9 is for 90 %")
    m, centre = len(q), float(q.mean())
    between, within = float(q.var(ddof=1)), float(u.mean())
    half = _half_width(m, between, within, prob)
    return CombinedEstimate(
        estimate=centre,
        lower=centre - half,
        upper=centre + half,
        prob=prob,
        between=between,
        within=within,
        variance=(1 + 1 / m) * between - within,
    )


def _half_width(m: int, between: float, within: float, prob: float) -> float:
    """Half of the interval: the quantile of a scale mixture of normal laws around 0."""
    from scipy.optimize import brentq
    from scipy.special import gammainc, gammaincinv, ndtr

    if between == 0 and within == 0:
        return 0.0
    # B >= ū cuts the chi-squared variable (m - 1) b / B off above; half of it is a gamma variable
    shape, rate = 0.5 * (m - 1), 0.5 * (m - 1) * between
    most = float(gammainc(shape, rate / within)) if within > 0 else 1.0
    if most > 0:
        levels = most * (np.arange(_POINTS) + 0.5) / _POINTS
        spread = rate / gammaincinv(shape, levels)
    else:  # no variance between the data sets: B is at its lower end
        spread = np.full(1, within)
    deviations = np.sqrt(np.maximum((1 + 1 / m) * spread - within, within / m))

    def excess(x: float) -> float:
        return float(ndtr(x / deviations).mean()) - 0.5 * (1 + prob)

    # the mixture's tails are those of its widest part
    root: Any = brentq(excess, 0.0, 40.0 * float(deviations.max()))
    return float(root)


def records_of(evidence: Evidence, total: FloatArray) -> int:
    """Return the posterior median of N from its draws, which is robust to a long upper tail.

    Raises
    ------
    ArgumentError
        The release does not distinguish its number of records from zero.
    """
    if not evidence.has_total:
        raise ArgumentError(
            "`size` must be given here: the release's own estimate of the number of records, "
            f"{evidence.estimated_total:,.0f} ± {evidence.total_standard_error:,.0f}, cannot be told from "
            "zero, and its posterior is mostly the prior."
        )
    return round(float(np.median(total)))
