r"""Discrepancy of a model and its measurements, by which the path of CGM stops.

The path stops by its residuals, relative to the size that noise and sampling explain. If the model is
right, a noisy count is :math:`y_i = N μ_i + s_i Z_i + η_i`: the sampling of N records, of variance
:math:`s_i^2 = N μ_i (1 - μ_i)` and nearly normal, plus the privacy noise η. (The answer to a query adds up cells with
weights a, so that :math:`N a'μ` is its mean and :math:`N a'Σa` its variance, Σ being the covariance of one record's
cells: :math:`N (\sum_i a_i^2 μ_i - (a'μ)^2)` where a record is in one of them at most. An answer without noise, which
every point of the path gives, is left out.) The discrepancy of a model is

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

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.marginals import MarginalEngine
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.kernels import by_kernel

# Power of the number of steps in `balance`, chosen among four on 32 simulated releases; see the module
EXPONENT = 1 / 3


def balance(discrepancy: float, steps: float) -> float:
    """Return log D plus a third of log t, which decreases as long as the path is worth following."""
    with np.errstate(divide="ignore"):
        return float(np.log(discrepancy) + EXPONENT * np.log(steps))


def slope(before: float, steps_before: float, after: float, steps_after: float) -> float:
    r"""Return the rate at which D falls, :math:`-Δ\log D / Δ\log t`."""
    with np.errstate(divide="ignore"):
        return float(
            (np.log(before) - np.log(after)) / (np.log(steps_after) - np.log(steps_before))
        )


class Discrepancy:
    """Discrepancy D of models against one evidence; call it with marginals and potentials, shape (model size,).

    It takes every possible number that has noise.
    """

    def __init__(self, evidence: Evidence, engine: MarginalEngine) -> None:
        inside = evidence.possible & ~evidence.is_exact
        self.total = evidence.total
        self.engine = engine
        self.noisy_counts = evidence.noisy_counts[inside]
        self.rows = evidence.rows[inside]
        self.scale = evidence.noise_width[inside]
        self.kernels = evidence.kernels[inside]
        # numbers that add up cells of several cliques
        row, column = self.rows.tocoo().coords
        home = np.searchsorted(evidence.specification.offsets, column, side="right")
        read = np.unique(np.stack([row, home]), axis=1)
        self.pooled = np.flatnonzero(np.bincount(read[0], minlength=1) > 1)

    def __call__(self, marginals: FloatArray, potentials: FloatArray) -> float:
        """Return the sum of absolute residuals over its expectation; 1 without any number or noise."""
        mean = self.rows @ marginals
        residual = np.abs(self.noisy_counts - self.total * mean).sum()
        variance = self.total * self._variance(mean, marginals, potentials)
        expected = expected_residual(self.scale, self.kernels, variance).sum()
        if expected > 0:
            return float(residual / expected)
        return 1.0

    def _variance(
        self, mean: FloatArray, marginals: FloatArray, potentials: FloatArray
    ) -> FloatArray:
        """Return the variance of one record's contribution to each number."""
        variance = self.rows.power(2) @ marginals - mean**2
        if self.pooled.size:
            product = self.engine.linearize(potentials)[2]
            for row in self.pooled:
                weights = self.rows[[row]].toarray().ravel()
                variance[row] = weights @ product(weights)
        return variance


def expected_residual(
    scale: FloatArray, kernels: IntArray, sampling_variance: FloatArray
) -> FloatArray:
    """Return the mean absolute value of noise plus normal sampling error, records; all arguments of one shape."""
    variance = np.maximum(sampling_variance, 0.0)
    return by_kernel(kernels, lambda kernel, *at: kernel.expected_residual(*at), scale, variance)
