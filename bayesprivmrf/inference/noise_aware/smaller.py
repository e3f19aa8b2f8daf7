r"""Errors of the noise-aware estimate under a model that omits interactions of measured tables.

The N records have tables n, and a their measured numbers, :math:`y = a + η`. If the model is smaller than a measured
table, its statistics t do not determine a. With the mean :math:`m = N μ_A(β)`, the covariance :math:`Λ` of a, the
derivative :math:`J = \operatorname{Cov}(a, t)` (of all N records), :math:`S = \operatorname{Cov}(t)` and the diagonal
variances D of the noise,

.. math:: y = m(β) + ε + η, \qquad \operatorname{Cov}(ε + η) = V = Λ + D .

**The search.** Given the records' own parameters θ', the covariance of y is :math:`V - J S^{-1} J'`. By Woodbury's
formula, :math:`(V - J S^{-1} J')^{-1} J = V^{-1} J\,(1 - S^{-1} J' V^{-1} J)^{-1}`. The equations that θ' and β solve
are therefore the same but for the prior, and V takes the place of the conditional covariance, which is singular
without noise:

.. math:: J' V^{-1} (y - m) = T^{-1} β .

Without noise these are the equations of maximum likelihood: the margins of the interactions match. The search itself
adds up the numbers one by one, with the weights W of 1 over :math:`E_i + D_i`, E being the sums of squares of what
the records add to a number: m for counts. Within a table of counts :math:`Λ = \operatorname{diag}(m) - m m' / N`, so
W lacks only the second term. That term enters by a shift of the numbers, which is renewed with the weights,

.. math:: y + W^{-1} V^{-1} (y - m) - (y - m),

with which the equations of the search, :math:`J'W(y - m) = T^{-1} β`, are the ones above where nothing moves any
more. Where N is private, y - m is first freed of the part that another N explains: :math:`y - m - α m` with
:math:`m' V^{-1} (y - m - α m) = 0`.

**Error of β.** With :math:`P = J'V^{-1}J + T^{-1}`, the covariance of the population's (β, log N) is
:math:`P^{-1}`: it has the noise and the sampling in it. T is the prior's variance.

**Answers of the records** :math:`n_q`, with the mean :math:`N p_q(β)`, derivative r and covariances :math:`Λ_{qa}`,
are normal with ε. Given y and β they have the mean :math:`N p_q + K (y - m)` and the variance
:math:`Λ_{qq} - K Λ_{aq}`, with :math:`K = Λ_{qa} V^{-1}`. With one step
:math:`δ = P^{-1}(J'V^{-1}(y - m) - T^{-1}β)` from the estimate, which is near 0,

.. math:: \hat n_q = N p_q + r δ + K (y - m - J δ), \qquad
          \operatorname{Var} n_q = Λ_{qq} - K Λ_{aq} + (r - K J) P^{-1} (r - K J)' .

So a measured cell with little noise has the number that was released, whatever the model omits. The numbers lie
between N times the least and the greatest answer of one record, and the normal distribution is cut off there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.inference.limits import Ends, whole_limits
from bayesprivmrf.inference.loglinear_fit.curvature import DenseCurvature
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    from bayesprivmrf.inference.mean_counts import (
        Linearized,
        MeanCounts,
        NoiseLikelihood,
    )
    from bayesprivmrf.inference.noise_aware.mode import Mode

# Relative error of a solved system, and most products with V: V is near its diagonal, and ten usually suffice
_SOLVED = 1e-8
_MOST_PRODUCTS = 200
# Variance of a count's fraction, records squared: no number is more certain
_ROUNDING = 1 / 12


class MeasuredCovariance:
    """The covariance V of the measured numbers at a point, which is never formed: products and systems with it.

    Parameters
    ----------
    means, likelihood
        The map to mean counts, and their noise.
    linearized
        The means and their products at the point.
    """

    def __init__(
        self, means: MeanCounts, likelihood: NoiseLikelihood, linearized: Linearized
    ) -> None:
        from scipy.sparse.linalg import LinearOperator

        assert linearized.sampling is not None
        noise = np.maximum(likelihood.noise_variance, _ROUNDING)
        self.diagonal = linearized.sampling + likelihood.noise_variance + _ROUNDING
        """W⁻¹, shape (cells,), records squared."""
        operator: Any = LinearOperator
        size = len(noise)
        self._products = operator(
            (size, size),
            matvec=lambda x: linearized.along(means.spread(np.ravel(x))) + noise * np.ravel(x),
            dtype=float,
        )
        self._scaling = operator(
            (size, size), matvec=lambda x: np.ravel(x) / self.diagonal, dtype=float
        )

    def solve(self, numbers: FloatArray) -> FloatArray:
        """Return V⁻¹ times a vector, shape (cells,), by conjugate gradients."""
        from scipy.sparse.linalg import cg

        if not numbers.any():
            return np.zeros(len(numbers))
        return cg(self._products, numbers, rtol=_SOLVED, maxiter=_MOST_PRODUCTS, M=self._scaling)[0]

    def solve_rows(self, rows: FloatArray) -> FloatArray:
        """Return V⁻¹ times each row, shape (rows, cells)."""
        return np.array([self.solve(row) for row in rows]).reshape(rows.shape)


def decorrelated(
    means: MeanCounts, likelihood: NoiseLikelihood, linearized: Linearized, noisy: FloatArray
) -> FloatArray:
    """Return the noisy numbers with the shift that stands for their correlations, shape (cells,), records."""
    if not len(noisy):
        return noisy
    covariance = MeasuredCovariance(means, likelihood, linearized)
    residual = noisy - linearized.mean
    weighted = covariance.solve(residual)
    if means.evidence.total_standard_error > 0:
        by_total = covariance.solve(linearized.mean)
        other = (linearized.mean @ weighted) / (linearized.mean @ by_total)
        weighted = weighted - other * by_total
    return noisy + covariance.diagonal * weighted - residual


def population_precision(
    mode: Mode, linearized: Linearized, prior: FloatArray
) -> tuple[DenseCurvature, FloatArray]:
    """Return the precision P of the population's (β, log N), and V⁻¹J as rows, shape (d + 1, cells).

    Parameters
    ----------
    mode, linearized
        Where the search ended, and the means there.
    prior
        Prior precision of all coordinates, shape (d + 1,).
    """
    covariance = MeasuredCovariance(mode.means, mode.likelihood, linearized)
    jacobian = mode.means.jacobian(linearized)
    solved = covariance.solve_rows(jacobian)
    information = jacobian @ solved.T
    return DenseCurvature(information=0.5 * (information + information.T), prior=prior), solved


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RecordsAsked:
    """Answers of the records that were asked for, at the estimate.

    Parameters
    ----------
    means
        N p_q, shape (rows,), records.
    by_coordinates
        Derivatives r by (β, log N), shape (rows, d + 1).
    with_measured
        Λ_qa, covariances with the measured numbers, shape (rows, cells), records squared.
    variances
        Λ_qq, shape (rows,), records squared.
    """

    means: FloatArray
    by_coordinates: FloatArray
    with_measured: FloatArray
    variances: FloatArray


def records_given_release(
    mode: Mode, linearized: Linearized, prior: FloatArray, asked: RecordsAsked
) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the variance of answers of the records given the release, shape (rows,) each."""
    means = mode.means
    precision, solved = population_precision(mode, linearized, prior)
    jacobian = means.jacobian(linearized)
    noisy = means.evidence.noisy_counts[means.evidence.possible]
    residual = noisy - linearized.mean
    pull = np.append(prior[:-1] * mode.coordinates, 0.0)
    step = precision.solve(solved @ residual - pull)
    covariance = MeasuredCovariance(means, mode.likelihood, linearized)
    gains = covariance.solve_rows(asked.with_measured)
    left = asked.by_coordinates - gains @ jacobian.T
    beyond = residual - step @ jacobian
    centers = asked.means + asked.by_coordinates @ step + gains @ beyond
    variances = asked.variances - (gains * asked.with_measured).sum(axis=1)
    return centers, np.maximum(variances, 0.0) + precision.mean_variances(left.T)


def whole_limits_between(
    centers: FloatArray, deviations: FloatArray, prob: float, ends: Ends
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the means and the equal-tailed limits of normal distributions cut off at two ends, whole numbers."""
    from scipy.special import ndtr, ndtri

    least, most = (np.broadcast_to(end, centers.shape) for end in ends)
    deviations = np.maximum(deviations, 1e-9)
    # a center far outside would leave no mass between the ends
    centers = np.clip(centers, least - 8 * deviations, most + 8 * deviations)
    low = (least - centers) / deviations
    high = (most - centers) / deviations
    mass = ndtr(high) - ndtr(low)
    density = np.exp(-0.5 * low**2) - np.exp(-0.5 * np.minimum(high, 1e9) ** 2)
    estimates = centers + deviations * density / (np.sqrt(2 * np.pi) * mass)
    estimates = np.clip(estimates, least, most)
    lower, upper = (
        np.clip(centers + deviations * ndtri(ndtr(low) + share * mass), least, most)
        for share in (0.5 - prob / 2, 0.5 + prob / 2)
    )
    return estimates, *whole_limits(estimates, lower, upper)
