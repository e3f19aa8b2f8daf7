r"""The objective of the noise-aware estimate, and its expansion at a point.

The objective is the expected loss of the noisy counts plus that of the prior
(`bayesprivmrf.inference.loglinear_fit.scale_prior`). `bayesprivmrf.inference.noise_aware.mode` minimizes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.inference.loglinear_fit.curvature import DenseCurvature, weighted_square
from bayesprivmrf.inference.loglinear_fit.scale_prior import EffectsPrior, learned_scales
from bayesprivmrf.inference.noise_aware.curvature import SampledCurvature
from bayesprivmrf.inference.noise_aware.likelihood import Linearized, MeanCounts, NoiseLikelihood
from bayesprivmrf.model.tables import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of `noise_aware_mode`.

    Parameters
    ----------
    scale
        τ of all effects; None learns one for each.
    inference
        ``"exact"`` or ``"loopy"``.
    rounds
        The most renewals of variances and scales.
    tolerance
        Converged when a renewal moves the coordinates by less than this many posterior standard deviations
        (root mean square).
    """

    scale: float | None = None
    inference: Inference = "exact"
    rounds: int = 25
    tolerance: float = 0.05


class Objective:
    """Expected loss of the noisy counts plus that of the prior, as a function of (β, log N) with N fixed.

    Parameters
    ----------
    evidence
        The releases.
    settings
        Which marginals, and the limits of the search.
    """

    def __init__(self, evidence: Evidence, settings: Settings) -> None:
        self.settings = settings
        self.means = MeanCounts(evidence=evidence, inference=settings.inference)
        self.likelihood = NoiseLikelihood.of(evidence)
        self.prior = EffectsPrior(effects=self.means.effects)
        self.is_dense = self.prior.is_dense
        self.evaluations = 0

    def prior_precision(self, log_scales: FloatArray) -> FloatArray:
        """Return T⁻¹ of all coordinates, shape (d + 1,); the last stands for N, which is fixed."""
        return np.append(self.prior.precision(log_scales), 1.0)

    def hold(self, point: FloatArray) -> None:
        """Move the multipliers of the answers without noise by their errors at the point.

        Such an answer e is a constraint on its mean m. Its loss, 6 (y - m)² with y = e to begin with, is the
        augmented Lagrangian's at the multiplier 12 (y - e): a step of the method of multipliers adds e - m to y, and
        where nothing moves any more, m is e, whatever the 6 (Hestenes 1969, see `noise_aware.mode`).
        """
        evidence = self.means.evidence
        if evidence.exact is None:
            return
        is_exact = evidence.is_exact[evidence.possible]
        given = evidence.noisy_counts[evidence.possible]
        missed = np.where(is_exact, given - self.means.at(point).mean, 0.0)
        moved = self.likelihood.noisy_counts + missed
        self.likelihood = replace(self.likelihood, noisy_counts=moved)

    def variance(self, linearized: Linearized) -> FloatArray:
        """Return the variance of each count around its mean, noise left out, records squared."""
        # 1/12, the variance of a count's fraction, keeps an empty cell from being certain
        variance = np.full(len(linearized.mean), 1 / 12)
        if linearized.unexplained is None:
            return variance
        return variance + np.maximum(np.diag(linearized.unexplained), 0.0)

    def penalised(
        self, point: FloatArray, log_scales: FloatArray, variance: FloatArray, width: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return the objective and its gradient for fixed variances and widths."""
        self.evaluations += 1
        linearized = self.means.at(point, holds_total=True)
        value, slope = self.likelihood.expected_loss(linearized.mean, variance, width)
        gradient = linearized.backward(slope)
        precision = self.prior.precision(log_scales)
        beta = point[:-1]
        gradient[:-1] += precision * beta
        return value + float(0.5 * (precision * beta) @ beta), gradient


class Expansion:
    """Curvature and widths at a point, consistent with each other."""

    def __init__(
        self,
        objective: Objective,
        point: FloatArray,
        log_scales: FloatArray,
        width: FloatArray | None,
        *,
        share: float = 1.0,
    ) -> None:
        self._objective = objective
        self._point = point
        self._share = share
        self._linearized = objective.means.at(point, holds_total=True)
        self.variance = objective.variance(self._linearized)
        if objective.is_dense:
            self._jacobian = objective.means.jacobian(self._linearized)
        else:
            self._jacobian = None
        self.width: FloatArray = np.zeros(len(self.variance)) if width is None else width
        self.curvature: DenseCurvature | SampledCurvature
        # widths follow from the curvature, and the curvature from the widths: a few renewals make them agree
        # widths and curvature are computed from each other three times at the first point, twice later
        for _ in range(3 if width is None else 2):
            self._renew(log_scales)

    def _renew(self, log_scales: FloatArray) -> None:
        objective = self._objective
        weights = objective.likelihood.information(self.variance)
        if self.width.any():
            curvature = objective.likelihood.expected_curvature(
                self._linearized.mean, self.variance, self.width
            )
            # an averaged Laplace loss hardly curves far from its kink; the floor keeps such cells from vanishing
            # the curvature of a cell is at least a fiftieth of its Fisher information, wherever its kink lies
            weights = np.maximum(curvature, 0.02 * weights)
        self.weights = weights
        prior = objective.prior_precision(log_scales)
        if self._jacobian is not None:
            information = weighted_square(self._jacobian, weights)
            self.curvature = DenseCurvature(information=information, prior=prior)
            variances = self.curvature.mean_variances(self._jacobian)
        else:
            self.curvature = SampledCurvature(
                linearized=self._linearized, weights=weights, prior=prior
            )
            variances = self.curvature.mean_variances()
        # damped on the variance; see `Search.settle`
        self.width = np.sqrt(self._share * variances + (1 - self._share) * self.width**2)

    def learned(self, log_scales: FloatArray) -> FloatArray:
        """Return the log scales that the expansion's evidence supports; update the curvature and the widths."""
        objective = self._objective
        if (dense := self.curvature.formed) is not None:
            _, slope = objective.likelihood.expected_loss(
                self._linearized.mean, self.variance, self.width
            )
            gradient = self._linearized.backward(slope)
            following = learned_scales(
                objective.prior, log_scales, dense.information, self._point, gradient
            )
        else:
            following = objective.prior.updated(
                log_scales, self._point[:-1], self.curvature.variances[:-1]
            )
        log_scales = log_scales + self._share * (following - log_scales)
        self._renew(log_scales)
        return log_scales
