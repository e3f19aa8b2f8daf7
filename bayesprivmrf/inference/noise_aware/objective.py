r"""The objective of the noise-aware estimate, and its expansion at a point.

The objective is the expected loss of the noisy counts plus that of the prior
(`bayesprivmrf.inference.loglinear_fit.scale_prior`). `bayesprivmrf.inference.noise_aware.mode` minimizes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.inference.loglinear_fit.curvature import (
    DenseCurvature,
    weighted_square,
    whitened_minimum,
)
from bayesprivmrf.inference.loglinear_fit.scale_prior import (
    SETTLED_SCALE,
    EffectsPrior,
    learned_scales,
)
from bayesprivmrf.inference.loglinear_fit.search import Descent, Last, Phase, Turn
from bayesprivmrf.inference.mean_counts import Linearized, MeanCounts, NoiseLikelihood
from bayesprivmrf.inference.noise_aware.curvature import SampledCurvature
from bayesprivmrf.inference.noise_aware.smaller import decorrelated
from bayesprivmrf.model.tables import FloatArray

# Variance of a count's fraction, records squared: it keeps an empty cell from being certain
_FRACTION = 1 / 12

# Largest number of quasi-Newton steps of a round: where the curvature is formed, and where it is known by products
_STEPS = 60
_STEPS_BY_PRODUCTS = 400

# Gradient at which a round ends, by coordinates in posterior standard deviations
_GRADIENT = 1e-2

# Times that widths and curvature are computed from each other at the first point, and at later ones
_FIRST_RENEWALS = 3
_LATER_RENEWALS = 2

# Least curvature of a cell's expected loss, wherever its kink lies, in units of its Fisher information
_LEAST_CURVATURE = 0.02

# A round by itself, whose renewal counts in full
_ALONE = Turn(1, Phase(rounds=1))

# Shifts of correlated numbers that count in full; most searches settle within three
_FREE_SHIFTS = 5


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
        self.shifts = 0

    def prior_precision(self, log_scales: FloatArray) -> FloatArray:
        """Return T⁻¹ of all coordinates, shape (d + 1,); the last stands for N, which is fixed."""
        return np.append(self.prior.precision(log_scales), 1.0)

    def hold(self, point: FloatArray) -> None:
        """Move the multipliers of the answers without noise by their errors at the point.

        Under a model smaller than its tables, the numbers are shifted by their correlations (`noise_aware.smaller`).

        Such an answer e is a constraint on its mean m. Its loss, 6 (y - m)² with y = e to begin with, is the
        augmented Lagrangian's at the multiplier 12 (y - e): a step of the method of multipliers adds e - m to y, and
        where nothing moves any more, m is e, whatever the 6 (Hestenes 1969, see `noise_aware.mode`).
        """
        evidence = self.means.evidence
        if self.means.is_smaller:
            linearized = self.means.at(point, holds_total=True)
            noisy = evidence.noisy_counts[evidence.possible]
            shifted = decorrelated(self.means, self.likelihood, linearized, noisy)
            # where shift and point chase each other, the mean of two shifts ends it
            if self.shifts >= _FREE_SHIFTS:
                shifted = 0.5 * (shifted + self.likelihood.noisy_counts)
            self.shifts += 1
            self.likelihood = replace(self.likelihood, noisy_counts=shifted)
        if evidence.constraints is None:
            return
        is_exact = evidence.is_exact[evidence.possible]
        given = evidence.noisy_counts[evidence.possible]
        missed = np.where(is_exact, given - self.means.at(point).mean, 0.0)
        moved = self.likelihood.noisy_counts + missed
        self.likelihood = replace(self.likelihood, noisy_counts=moved)

    def variance(self, linearized: Linearized) -> FloatArray:
        """Return the variance of each count around its mean, noise left out, records squared."""
        variance = np.full(len(linearized.mean), _FRACTION)
        if linearized.sampling is not None:
            return variance + linearized.sampling
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
    """Curvature and widths at a point, consistent with each other: the weights of one round of a search.

    Parameters
    ----------
    objective
        The objective.
    point
        (β, log N), shape (d + 1,).
    log_scales
        log τ before this renewal, shape (scales,).
    last
        The last round, whose widths are the first ones here; None in the first round.
    turn
        The present round; its phase says whether scales are learned, and how much the renewal counts.

    Attributes
    ----------
    log_scales
        log τ, updated by the evidence of the expansion, shape (scales,).
    variance, width
        Of each count around its mean, and the standard deviation of that mean, shape (cells,).
    curvature
        Curvature of the objective.
    has_settled
        Whether the last descent and this renewal changed hardly anything.
    """

    def __init__(
        self,
        objective: Objective,
        point: FloatArray,
        log_scales: FloatArray,
        last: Last[Expansion] | None = None,
        turn: Turn = _ALONE,
    ) -> None:
        self._objective = objective
        self._point = point
        self._share = turn.renewal_share
        self._linearized = objective.means.at(point, holds_total=True)
        self._jacobian: FloatArray | None = None
        if objective.is_dense:
            self._jacobian = objective.means.jacobian(self._linearized)
        self.log_scales = log_scales
        self.variance = objective.variance(self._linearized)
        self.width: FloatArray = np.zeros(len(self.variance))
        self.curvature: DenseCurvature | SampledCurvature
        self.has_settled = False
        if last is None:
            self._agree(_FIRST_RENEWALS)
            return
        self.width = last.weighted.width
        self._agree(_LATER_RENEWALS)
        if turn.phase.learns:
            self.log_scales = self._learned()
            self._agree(1)
        change = np.abs(self.log_scales - log_scales).max(initial=0.0)
        is_still = last.descent.moved <= objective.settings.tolerance
        self.has_settled = bool(is_still and change <= SETTLED_SCALE)

    def minimum(self) -> Descent:
        """Return the minimum of the objective with these variances, widths and scales fixed."""
        objective = self._objective

        def penalised(point: FloatArray) -> tuple[float, FloatArray]:
            return objective.penalised(point, self.log_scales, self.variance, self.width)

        point, optimum = whitened_minimum(
            penalised,
            self._point,
            self.curvature,
            gradient_tolerance=_GRADIENT,
            iterations=_STEPS if objective.is_dense else _STEPS_BY_PRODUCTS,
        )
        moved = float(np.sqrt(np.mean(optimum.point**2)))
        return Descent(point=point, moved=moved, status=optimum.status)

    def descended(self, turn: Turn) -> Descent:
        """Return the minimum of the objective, and move the multipliers of answers without noise."""
        found = self.minimum()
        self._objective.hold(found.point)
        return found

    def _agree(self, times: int) -> None:
        """Compute the curvature from the widths, and the widths from the curvature, so that they agree."""
        for _ in range(times):
            self.curvature, variances = self._curved()
            # damped on the variance
            width = self._share * variances + (1 - self._share) * self.width**2
            self.width = np.sqrt(width)

    def _curved(self) -> tuple[DenseCurvature | SampledCurvature, FloatArray]:
        """Return the curvature at the present widths, and the variance of each mean that follows from it."""
        objective = self._objective
        weights = objective.likelihood.information(self.variance)
        if self.width.any():
            curvature = objective.likelihood.expected_curvature(
                self._linearized.mean, self.variance, self.width
            )
            # an averaged Laplace loss hardly curves far from its kink; the floor keeps such cells from vanishing
            weights = np.maximum(curvature, _LEAST_CURVATURE * weights)
        prior = objective.prior_precision(self.log_scales)
        if self._jacobian is None:
            sampled = SampledCurvature(linearized=self._linearized, weights=weights, prior=prior)
            return sampled, sampled.mean_variances()
        information = weighted_square(self._jacobian, weights)
        dense = DenseCurvature(information=information, prior=prior)
        return dense, dense.mean_variances(self._jacobian)

    def _learned(self) -> FloatArray:
        """Return the log scales that the expansion's evidence supports."""
        objective = self._objective
        if (dense := self.curvature.formed) is not None:
            _, slope = objective.likelihood.expected_loss(
                self._linearized.mean, self.variance, self.width
            )
            gradient = self._linearized.backward(slope)
            following = learned_scales(
                objective.prior, self.log_scales, dense.information, self._point, gradient
            )
        else:
            following = objective.prior.updated(
                self.log_scales, self._point[:-1], self.curvature.variances[:-1]
            )
        return self.log_scales + self._share * (following - self.log_scales)
