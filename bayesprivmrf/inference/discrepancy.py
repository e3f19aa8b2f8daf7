r"""How large the residuals of a fitted model are, against what noise and sampling make them.

If the model is right, a noisy count is :math:`y_i = N μ_i + s_i Z_i + η_i`: the sampling of N records, of
variance :math:`s_i^2 = N μ_i (1 - μ_i)` and nearly normal, plus the privacy noise η. The discrepancy of a model is

.. math:: D = \sum_i |y_i - N μ_i| \Big/ \sum_i E|s_i Z_i + η_i|,

about 1 at the truth. A path that begins at the uniform distribution starts above 1 where there is signal to
find, and should not stop before it reaches 1 (Morozov's discrepancy principle). Without the sampling term, it
would never reach it once sampling outweighs noise.

At 1 a fit still gains: with as many free potentials as there are, its residuals are smaller than the truth's.
Further on, D falls ever more slowly while the potentials grow with every step, and what they then fit is noise.
The path is therefore continued past D = 1 as long as

.. math:: \log D + \tfrac13 \log t

falls, t being the number of EM steps, which bounds every potential by :math:`t/b`: the product of residual and
solution size that Regińska (1996) minimises to find the corner of the L-curve. The exponent 1/3 was chosen
among 1/4, 1/3, 1/2 and 7/10 on 32 simulated releases (docs/inference.md), on which it came within 5 % of the
best point of the path in geometric mean. Both rules use the release alone.

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
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy import DiscreteLaplace, Laplace, NoiseLaw

__all__ = ["balance", "discrepancy", "expected_residual"]

_EXPONENT = 1 / 3


def balance(discrepancy: float, steps: float) -> float:
    """Log of residual times a power of the path's length; the path is worth following while it falls."""
    with np.errstate(divide="ignore"):
        return float(np.log(discrepancy) + _EXPONENT * np.log(steps))


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
