"""The model of a release of couplings in coordinates of effects, with the covariance of one record's effects.

Intervals of couplings need the errors of the fit that made the release. They follow from the noise of the measurement
and from the covariance of the effects, which is exact or that of rows drawn from the released model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bayesprivmrf.inference.loglinear_fit.fit import PRIOR_DEVIATION
from bayesprivmrf.inference.loglinear_fit.moments import moments_of
from bayesprivmrf.inference.loglinear_fit.sampled import features_of
from bayesprivmrf.learning.select_measure.measurement import MeasurementPlan
from bayesprivmrf.learning.select_measure.pair_counts import pair_sums
from bayesprivmrf.learning.select_measure.targets import mean_precisions
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    from bayesprivmrf.learning.models.pairs import LearnedPairs

# Rows drawn from the model: this many, plus these for each coordinate, so that the covariance is accurate
LEAST_DRAWS = 20_000
DRAWS_OF_A_COORDINATE = 20

# Effects of rows that are multiplied at once: 16 MiB in single precision
EFFECTS_AT_ONCE = 1 << 22

# A number this much smaller than the largest one of its kind is rounding error
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The noise of one choice of pairs: the plan of its measurement, and the variance of the number of records."""

    plan: MeasurementPlan
    total_variance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOfFitting:
    """The way in which the couplings of a release were fitted, which decides how they err.

    Parameters
    ----------
    is_reweighted
        True if the fit was weighed by the curvature at the estimate.
    is_exact
        True if means were computed exactly, and not from Gibbs draws.
    """

    is_reweighted: bool
    is_exact: bool

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> Self:
        """Return the way of fitting that the details of a release describe, as files store them."""
        return cls(
            is_reweighted=details.get("penalty") is not None,
            is_exact=details.get("inference") == "exact",
        )


class RefitModel:
    """Coordinates of a release's effects, and the covariance of one record's effects."""

    def __init__(
        self,
        learned: LearnedPairs,
        noise: Noise,
        total: float,
        generator: np.random.Generator,
    ) -> None:
        self.plan = noise.plan
        self.total_variance = noise.total_variance
        self.total = total
        self.generator = generator
        way = WayOfFitting.of(learned.details)
        self.is_reweighted = way.is_reweighted
        self.cards = learned.domain.cardinalities
        self.first = np.cumsum([0, *self.cards])
        self.width = int(self.first[-1])
        self.kept = [scope for scope in learned.specification.scopes if len(scope) == 2]
        self.effects = Effects.of(self.cards, (*self.kept, *((v,) for v in range(len(self.cards)))))
        tables = [*(learned.block(*pair) for pair in self.kept), *learned.field_tables()]
        self.beta = self.effects.coordinates(np.concatenate([table.ravel() for table in tables]))
        size = max(round(total), LEAST_DRAWS + DRAWS_OF_A_COORDINATE * self.effects.size)
        self.codes, self.has_mixed = learned.solution.codes(size, generator)
        self.sums = pair_sums(self.codes, np.ones(size, dtype=np.int64), self.cards)
        self.shares = self.sums.single / size
        phi = features_of(self.effects)
        d = self.effects.size
        sums = np.zeros(d)
        squares = np.zeros((d, d))
        rows = max(EFFECTS_AT_ONCE // max(d, 1), 1)
        for start in range(0, size, rows):
            part = phi(self.codes[start : start + rows])
            sums += part.sum(axis=0, dtype=np.float64)
            squares += part.T @ part
        self.mean = sums / size
        self.covariance = squares / size - np.multiply.outer(self.mean, self.mean)
        if way.is_reweighted and way.is_exact:  # draws would miss what is rare
            moments = moments_of(self.effects, generator)
            if moments.has_covariance:
                self.covariance = moments.expanded(self.beta)[1]
        precision, variance = mean_precisions(noise.plan, self.kept)
        self.single_noise = 1 / (precision * total**2)
        self.pair_noise = variance / total**2

    def blocks(self) -> Iterator[tuple[tuple[int, ...], int, int]]:
        """Yield the variables of each effect, and the range of its coordinates."""
        return zip(
            self.effects.subsets, self.effects.offsets, self.effects.offsets[1:], strict=False
        )

    def normal_approximation(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return mean and covariance of the fitted coordinates, and a root of the covariance without a prior."""
        spread = self.covariance.diagonal()
        noise = np.empty(spread.size)
        expected = np.empty(spread.size)
        single = {
            subset[0]: spread[start:stop]
            for subset, start, stop in self.blocks()
            if len(subset) == 1
        }
        for subset, start, stop in self.blocks():
            is_pair = len(subset) == 2
            if is_pair:
                noise[start:stop] = self.pair_noise
            else:
                noise[start:stop] = self.single_noise[subset[0]]
            own = single[subset[0]]
            if is_pair:
                expected[start:stop] = np.multiply.outer(own, single[subset[1]]).ravel()
            else:
                expected[start:stop] = own
        # Cov t without the noise of N; the latter does not enter the weights
        of_means = self.covariance / self.total + np.diag(noise)
        if self.is_reweighted:
            weighed = np.linalg.solve(of_means, self.covariance).T  # ΣW
            information, directions = np.linalg.eigh(weighed @ self.covariance)
            prior = 1 / PRIOR_DEVIATION**2
            inverse = (directions / (np.maximum(information, 0.0) + prior)) @ directions.T
            pull = prior * inverse
            error = inverse @ weighed
            known = np.maximum(information, information.max(initial=1.0) * _ROUNDING)
            free = directions / np.sqrt(known)
        else:
            penalty = (
                np.diag(noise / np.maximum(expected, _ROUNDING) + 1 / self.total)
                / PRIOR_DEVIATION**2
            )
            error = np.linalg.inv(self.covariance + penalty)
            pull = error @ penalty
            free = np.zeros(of_means.shape)
        error = error + pull @ error
        of_means += self.total_variance / self.total**2 * np.multiply.outer(self.mean, self.mean)
        return self.beta + pull @ self.beta, error @ of_means @ error.T, free
