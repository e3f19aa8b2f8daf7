r"""Residuals of a fitted model, relative to the size that noise and sampling explain.

If the model is right, a noisy count is :math:`y_i = N μ_i + s_i Z_i + η_i`: the sampling of N records, of
variance :math:`s_i^2 = N μ_i (1 - μ_i)` and nearly normal, plus the privacy noise η. (The answer to a query adds up
cells with weights a, so that :math:`N a'μ` is its mean and :math:`N a'Σa` its variance, Σ being the covariance of one
record's cells: :math:`N (\sum_i a_i^2 μ_i - (a'μ)^2)` where a record is in one of them at most. An answer without
noise, which every point of the path gives, is left out.) The discrepancy of a model is

.. math:: D = \sum_i |y_i - N μ_i| \Big/ \sum_i E|s_i Z_i + η_i|,

about 1 at the truth. A path that begins at the uniform distribution starts above 1 where there is signal to
find, and should not stop before it reaches 1 (Morozov's discrepancy principle). Without the sampling term, the path
would never reach 1 where sampling error exceeds the noise.

At D = 1 a fit can still improve, because its many free potentials make its residuals smaller than the truth's.
Further along, D falls ever more slowly while the potentials grow with every step, and then fit noise.
The path is therefore continued past D = 1 as long as

.. math:: \log D + \tfrac13 \log t

falls, t being the number of EM steps, which bounds every potential by :math:`t/b`: the product of residual and
solution size that Regińska (1996) minimises to find the corner of the L-curve. The exponent 1/3 was chosen among
1/4, 1/3, 1/2 and 7/10 on 32 simulated releases (docs/explanation/estimators.md), on which it came within 5 % of the
best point of the path in geometric mean.

Where the estimated number of records is far off, no model may reach D = 1. The fall of D then begins slowly, is
fastest where the signal is found, and dies away: once it is below half of its fastest, and below 1/3, the path
goes back to the point where it was fastest. All of this uses the release alone.

For Laplace noise of scale b, with :math:`u = s / (b\sqrt2)`,

.. math:: E|sZ + η| = s\sqrt{2/π} + b\, e^{u^2} \operatorname{erfc}(u),

since for the density :math:`f_s` of the sum, :math:`\frac{d}{ds} E|X| = 2 s f_s(0)` (the heat equation), and
:math:`2 s f_s(0) = \frac{s}{b} e^{u^2} \operatorname{erfc}(u)`, which is the derivative of the right-hand side.
For normal noise, :math:`\sqrt{2(s^2+σ^2)/π}`.

References
----------
Regińska (1996). A regularization parameter in discrete ill-posed problems. SIAM J. Sci. Comput. 17, 740-749.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.marginals import MarginalEngine
from bayesprivmrf.model.tables import FloatArray, IntArray

# Power of the number of steps in `balance`, chosen among four on 32 simulated releases; see the module
EXPONENT = 1 / 3


def balance(discrepancy: float, steps: float) -> float:
    """Return log D plus a third of log t, which decreases as long as the path is worth following."""
    with np.errstate(divide="ignore"):
        return float(np.log(discrepancy) + EXPONENT * np.log(steps))


def slope(before: float, steps_before: float, after: float, steps_after: float) -> float:
    r"""Return the rate at which D falls, :math:`-Δ\log D / Δ\log t`."""
    with np.errstate(divide="ignore"):
        return float((np.log(before) - np.log(after)) / (np.log(steps_after) - np.log(steps_before)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrepancy:
    """Discrepancy D of models against one evidence; call it with marginals and potentials, shape (model size,).

    Parameters
    ----------
    noisy_counts, scale, is_laplace
        For each possible number with noise: y; the noise law's scale, or standard deviation; whether its kernel is
        absolute, as a (discrete) Laplace law's.
    rows
        Their rows of A, sparse; None where it is the identity, and all cells have noise and may occur.
    pooled
        Which of the numbers add up cells of several cliques.
    total, engine
        The number of records, as in `Evidence`, and the marginals of its cliques.
    """

    noisy_counts: FloatArray
    scale: FloatArray
    is_laplace: np.ndarray
    rows: Any | None
    pooled: IntArray
    total: float
    engine: MarginalEngine

    @classmethod
    def of(cls, evidence: Evidence, engine: MarginalEngine) -> Discrepancy:
        """Return the measure for every possible number of the evidence that has noise."""
        from scipy.sparse import eye_array

        inside, rows = evidence.possible & ~evidence.is_exact, evidence.matrix
        if rows is not None or not inside.all():
            identity: Any = eye_array(inside.size, format="csr")
            rows = (identity if rows is None else rows)[inside]
        return cls(
            noisy_counts=evidence.noisy_counts[inside],
            scale=evidence.noise_width[inside],
            is_laplace=evidence.is_absolute[inside],
            rows=rows,
            pooled=_pooled(rows, evidence.specification.offsets),
            total=evidence.total,
            engine=engine,
        )

    def __call__(self, marginals: FloatArray, potentials: FloatArray) -> float:
        """Return the sum of absolute residuals over its expectation; 1 without any number or noise."""
        mean = marginals if self.rows is None else self.rows @ marginals
        residual = np.abs(self.noisy_counts - self.total * mean).sum()
        variance = self.total * self._variance(mean, marginals, potentials)
        expected = expected_residual(self.scale, self.is_laplace, variance).sum()
        return float(residual / expected) if expected > 0 else 1.0

    def _variance(self, mean: FloatArray, marginals: FloatArray, potentials: FloatArray) -> FloatArray:
        """Return the variance of one record's contribution to each number."""
        if self.rows is None:
            return mean * (1 - mean)
        variance = self.rows.power(2) @ marginals - mean**2
        if self.pooled.size:
            product = self.engine.linearize(potentials)[2]
            for row in self.pooled:
                weights = self.rows[[row]].toarray().ravel()
                variance[row] = weights @ product(weights)
        return variance


def _pooled(rows: Any | None, offsets: Sequence[int]) -> IntArray:
    """Return the rows that read several cliques."""
    if rows is None:
        return np.zeros(0, int)
    row, column = rows.tocoo().coords
    read = np.unique(np.stack([row, np.searchsorted(offsets, column, side="right")]), axis=1)
    return np.flatnonzero(np.bincount(read[0], minlength=1) > 1)


def expected_residual(scale: FloatArray, is_laplace: np.ndarray, sampling_variance: FloatArray) -> FloatArray:
    """Return the mean absolute value of noise plus normal sampling error, records; all arguments of one shape."""
    from scipy.special import erfcx

    variance = np.maximum(sampling_variance, 0.0)
    normal = np.sqrt(2 * (variance + scale**2) / np.pi)
    with np.errstate(divide="ignore", invalid="ignore"):
        laplace = np.sqrt(2 * variance / np.pi) + scale * erfcx(np.sqrt(variance / 2) / scale)
    return np.where(is_laplace, laplace, normal)
