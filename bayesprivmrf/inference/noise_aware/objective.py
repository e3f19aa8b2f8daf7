"""The objective of the noise-aware estimate, and its expansion at a point."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.inference.mean_counts import Linearized, MeanCounts, with_total_held
from bayesprivmrf.inference.noise_aware.curvature import DenseCurvature, SampledCurvature, weighted_square
from bayesprivmrf.inference.noise_aware.effects_prior import DENSE_LIMIT, EffectsPrior
from bayesprivmrf.inference.noise_aware.likelihood import NoiseLikelihood
from bayesprivmrf.model.tables import FloatArray

# Times that widths and curvature are computed from each other at the first point; twice later
_RENEWALS = 3

# Share of its Fisher information that a cell's curvature has at least, wherever its kink lies
_LEAST_WEIGHT = 0.02

# Change of a log scale below which it has settled: a fifth of its own uncertainty, or less
SETTLED_SCALE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How `noise_aware_mode` goes about it.

    Parameters
    ----------
    scale
        τ of all effects; None learns one for each.
    inference
        ``"exact"`` or ``"loopy"``.
    has_sampling_error
        Whether to count each cell's sampling variance as noise. Without, β are the parameters of the N people.
    rounds
        The most renewals of variances and scales.
    tolerance
        Converged when a renewal moves the coordinates by less than this many posterior standard deviations
        (root mean square).
    """

    scale: float | None = None
    inference: Inference = "exact"
    has_sampling_error: bool = False
    rounds: int = 25
    tolerance: float = 0.05


class Objective:
    """Expected loss of the noisy counts plus the prior's, as a function of (β, log N) with N held.

    Parameters
    ----------
    evidence
        The releases.
    settings
        Which marginals, and whether counts vary around their means.
    """

    def __init__(self, evidence: Evidence, settings: Settings) -> None:
        self.settings = settings
        self.means = MeanCounts(evidence=evidence, inference=settings.inference)
        self.likelihood = NoiseLikelihood.of(evidence)
        self.prior = EffectsPrior(effects=self.means.effects)
        self.is_dense = self.means.effects.size <= DENSE_LIMIT
        self.evaluations = 0

    def prior_precision(self, log_scales: FloatArray) -> FloatArray:
        """T⁻¹ of all coordinates, shape (d + 1,); the last stands for N, which is held."""
        return np.append(self.prior.precision(log_scales), 1.0)

    def hold(self, point: FloatArray) -> None:
        """Move the multipliers of the answers without noise by what the point misses of them.

        Such an answer e is a constraint on its mean m. Its loss, 6 (y - m)² with y = e to begin with, is the
        augmented Lagrangian's at the multiplier 12 (y - e): a step of the method of multipliers adds e - m to y, and
        where nothing moves any more, m is e, whatever the 6 (Hestenes 1969, see `noise_aware.mode`).
        """
        evidence = self.means.evidence
        if evidence.exact is None:
            return
        is_exact, given = evidence.is_exact[evidence.possible], evidence.noisy_counts[evidence.possible]
        missed = np.where(is_exact, given - self.means.at(point).mean, 0.0)
        moved = self.likelihood.noisy_counts + missed
        self.likelihood = replace(self.likelihood, noisy_counts=moved)

    def variance(self, linearized: Linearized) -> FloatArray:
        """Variance of each count around its mean, besides the noise, records squared."""
        if self.settings.has_sampling_error:
            return self.likelihood.sampling_variance(linearized.mean, linearized.total)
        variance = np.full(len(linearized.mean), 1 / 12)
        if linearized.unexplained is None:
            return variance
        return variance + np.maximum(np.diag(linearized.unexplained), 0.0)

    def penalised(
        self, point: FloatArray, log_scales: FloatArray, variance: FloatArray, width: FloatArray
    ) -> tuple[float, FloatArray]:
        """Objective and gradient; variances and widths held."""
        self.evaluations += 1
        linearized = self.means.at(point)
        value, slope = self.likelihood.expected_loss(linearized.mean, variance, width)
        gradient = linearized.backward(slope)
        precision = self.prior.precision(log_scales)
        beta = point[:-1]
        gradient[:-1] += precision * beta
        gradient[-1] = 0.0
        return value + float(0.5 * (precision * beta) @ beta), gradient


class Expansion:
    """Curvature and widths at a point that agree with each other."""

    def __init__(
        self,
        objective: Objective,
        point: FloatArray,
        log_scales: FloatArray,
        width: FloatArray | None,
        *,
        share: float = 1.0,
    ) -> None:
        self._objective, self._point, self._share = objective, point, share
        self._linearized = objective.means.at(point)
        self.variance = objective.variance(self._linearized)
        self._jacobian = objective.means.jacobian(self._linearized) if objective.is_dense else None
        if self._jacobian is not None:
            self._jacobian[-1] = 0.0  # N is held
        self.width: FloatArray = np.zeros(len(self.variance)) if width is None else width
        self.curvature: DenseCurvature | SampledCurvature
        # widths follow from the curvature, and the curvature from the widths: a few renewals make them agree
        for _ in range(_RENEWALS if width is None else 2):
            self._renew(log_scales)

    def _renew(self, log_scales: FloatArray) -> None:
        objective = self._objective
        weights = objective.likelihood.information(self.variance)
        if self.width.any():
            curvature = objective.likelihood.expected_curvature(
                self._linearized.mean, self.variance, self.width
            )
            # an averaged Laplace loss hardly curves far from its kink; the floor keeps such cells from vanishing
            weights = np.maximum(curvature, _LEAST_WEIGHT * weights)
        self.weights = weights
        prior = objective.prior_precision(log_scales)
        if self._jacobian is not None:
            information = weighted_square(self._jacobian, weights)
            self.curvature = DenseCurvature(information=information, prior=prior)
            variances = self.curvature.mean_variances(self._jacobian)
        else:
            held = with_total_held(self._linearized)
            self.curvature = SampledCurvature(linearized=held, weights=weights, prior=prior)
            variances = self.curvature.mean_variances()
        # damped on the variance; see `Search.settle`
        self.width = np.sqrt(self._share * variances + (1 - self._share) * self.width**2)

    def learned(self, log_scales: FloatArray) -> FloatArray:
        """Log scales that the expansion's evidence supports; curvature and widths follow."""
        objective = self._objective
        if isinstance(self.curvature, DenseCurvature):
            _, slope = objective.likelihood.expected_loss(self._linearized.mean, self.variance, self.width)
            gradient = self._linearized.backward(slope)
            gradient[-1] = 0.0
            information = self.curvature.information
            following = learned_scales(objective.prior, log_scales, information, self._point, gradient)
        else:
            following = objective.prior.updated(log_scales, self._point[:-1], self.curvature.variances[:-1])
        log_scales = log_scales + self._share * (following - log_scales)
        self._renew(log_scales)
        return log_scales


def learned_scales(
    prior: EffectsPrior,
    log_scales: FloatArray,
    information: FloatArray,
    point: FloatArray,
    slope: FloatArray,
    steps: int = 3,
) -> FloatArray:
    """Log scales after some steps of the fixed point, the loss being quadratic of given slope and curvature."""
    shift = information @ point - slope  # of a quadratic loss the mode is C @ shift, whatever the scales
    first = log_scales
    for _ in range(steps):
        precision = np.append(prior.precision(log_scales), 1.0)
        curvature = DenseCurvature(information=information, prior=precision)
        beta = curvature.solve(shift)[:-1]
        following = prior.updated(log_scales, beta, curvature.variances[:-1])
        has_settled = np.abs(following - log_scales).max(initial=0.0) < 0.5 * SETTLED_SCALE
        log_scales = following
        if has_settled:
            break
    # the expansion holds near its point alone: no scale moves by more than a factor e before the next one
    return first + np.clip(log_scales - first, -1.0, 1.0)
