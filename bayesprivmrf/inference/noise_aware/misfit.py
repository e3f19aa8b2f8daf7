r"""Whether what was measured contradicts potentials that are tied, or restricted to scores.

With r the residuals :math:`y - A\hat n` of m noisy numbers, and :math:`V = D + U`, D the noise's variances and U what
numbers vary by sampling beside the model's own statistics (`MeanCounts`), let

.. math:: Q = \min_δ (r - J δ)'V^{-1}(r - J δ),

J the derivative by the coordinates, and by log N where it is private: the estimate's own shrinkage is no misfit. If
the model holds, Q has the mean m less the rank of J, and about the variance

.. math:: 2 (m - \operatorname{rank} J) + \sum_i κ_i \bigl(D_i (V^{-1})_{ii}\bigr)^2,

κ being the noise's excess kurtosis, 3 for a Laplace law. A model without restrictions has a coordinate for each cell,
and nothing to contradict.
"""

from __future__ import annotations

import numpy as np

from bayesprivmrf.inference.noise_aware.curvature import DenseCurvature
from bayesprivmrf.inference.noise_aware.mode import Mode

__all__ = ["MISFIT", "misfit_of"]

MISFIT = 4.0
"""Standard deviations of Q above its mean from which a restricted model is said not to fit."""

_LAPLACE_KURTOSIS = 3.0


def misfit_of(mode: Mode) -> float | None:
    """Standard deviations by which Q exceeds its mean; None where the potentials are free.

    Parameters
    ----------
    mode
        The estimate.
    """
    means, evidence = mode.means, mode.means.evidence
    if means.tells_all or not isinstance(mode.curvature, DenseCurvature):
        return None
    linearized = means.at(mode.point)
    assert linearized.unexplained is not None
    seen = evidence.possible
    noise = evidence.spread([law.variance for law in evidence.noise])[seen]
    inverse = np.linalg.pinv(np.diag(noise) + linearized.unexplained, hermitian=True)
    residual = evidence.noisy_counts[seen] - linearized.mean
    fitted = means.jacobian(linearized)
    fitted = fitted if evidence.total_standard_error > 0 else fitted[:-1]
    pull = fitted @ inverse @ residual
    information = fitted @ inverse @ fitted.T
    least = float(residual @ inverse @ residual - pull @ np.linalg.pinv(information, hermitian=True) @ pull)
    degrees = len(noise) - np.linalg.matrix_rank(information, hermitian=True)
    kurtosis = np.where(evidence.is_absolute[seen], _LAPLACE_KURTOSIS, 0.0)
    variance = 2 * degrees + float(kurtosis @ np.square(noise * np.diag(inverse)))
    return float((least - degrees) / np.sqrt(variance))
