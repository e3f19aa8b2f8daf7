r"""How large the residuals of a fitted model are, against what noise and sampling make them.

If the model is right, a noisy count is :math:`y_i = N μ_i + s_i Z_i + η_i`: the sampling of N records, of
variance :math:`s_i^2 = N μ_i (1 - μ_i)` and nearly normal, plus the privacy noise η. The discrepancy of a model is

.. math:: D = \sum_i |y_i - N μ_i| \Big/ \sum_i E|s_i Z_i + η_i|,

about 1 at the truth. A path that begins at the uniform distribution starts above 1 where there is signal to
find, and is stopped when it first reaches 1 (Morozov's discrepancy principle): beyond it, only noise is left to
fit. It uses the release alone. Without the sampling term, the rule never stops once sampling outweighs noise.

For Laplace noise of scale b, with :math:`u = s / (b\sqrt2)`,

.. math:: E|sZ + η| = s\sqrt{2/π} + b\, e^{u^2} \operatorname{erfc}(u),

since for the density :math:`f_s` of the sum, :math:`\frac{d}{ds} E|X| = 2 s f_s(0)` (the heat equation), and
:math:`2 s f_s(0) = \frac{s}{b} e^{u^2} \operatorname{erfc}(u)`, which is the derivative of the right-hand side.
For normal noise, :math:`\sqrt{2(s^2+σ^2)/π}`.
"""

from __future__ import annotations

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy import DiscreteLaplace, Laplace, NoiseLaw

__all__ = ["discrepancy", "expected_residual"]


def discrepancy(evidence: Evidence, marginals: FloatArray) -> float:
    """D of a model with these marginals, shape (size,); 1 where there is no cell to judge by."""
    expected = summed = 0.0
    for position, law in enumerate(evidence.noise):
        block = slice(evidence.offsets[position], evidence.offsets[position + 1])
        inside = evidence.possible[block]
        mu = marginals[block][inside]
        residual = evidence.noisy_counts[block][inside] - evidence.total * mu
        summed += float(np.abs(residual).sum())
        expected += float(expected_residual(law, evidence.total * mu * (1 - mu)).sum())
    return summed / expected if expected > 0 else 1.0


def expected_residual(law: NoiseLaw, sampling_variance: FloatArray) -> FloatArray:
    """Mean absolute value of noise plus normal sampling error, records; shape of `sampling_variance`."""
    from scipy.special import erfcx

    variance = np.maximum(sampling_variance, 0.0)
    if isinstance(law, Laplace | DiscreteLaplace):
        u = np.sqrt(variance / 2) / law.scale
        return np.sqrt(2 * variance / np.pi) + law.scale * erfcx(u)
    return np.sqrt(2 * (variance + law.variance) / np.pi)
