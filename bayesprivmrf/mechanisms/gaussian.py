"""`GaussianStatistics`: tables or queries with discrete Gaussian noise, under zero-concentrated privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from bayesprivmrf.checks import positive_finite
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws
from bayesprivmrf.mechanisms.query_noise import QueryNoise, noise_of_queries
from bayesprivmrf.mechanisms.statistics import StatisticsMechanism
from bayesprivmrf.mechanisms.statistics_plan import checked_weights, shares
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import Clique
from bayesprivmrf.privacy import DiscreteGaussian, PrivacyGuarantee
from bayesprivmrf.queries import Query


@final
@dataclass(frozen=True, kw_only=True)
class GaussianStatistics(StatisticsMechanism):
    r"""Release the declared tables with discrete Gaussian noise: rho-zero-concentrated differential privacy.

    Table C gets noise of scale :math:`\sigma_C`, :math:`\sigma_C^2 = \Delta^2 / (2 w_C \rho)`, with
    :math:`\Delta^2` = 1 under add-or-remove-one and 2 under replace-one; with even weights over m tables
    :math:`\sigma^2 = m \Delta^2 / (2 \rho)`. `discrete_gaussian_laws` derives the scale, and
    `StatisticsMechanism` the sensitivity. With `queries` their answers are released, with scales from their joint
    sensitivity (`bayesprivmrf.mechanisms.query_noise`).

    Parameters
    ----------
    rho
        Joint budget of all tables, nats, positive.
    weights
        Share of each table in the budget: a mapping from clique (its variables in any order) to a positive number,
        normalized; even by default. With `queries` a list of positive numbers, one for each query; by default the
        shares that minimize the forecast variance of the model's tables.
    adjacency, missing, other, queries, person, at_most, grid
        See `StatisticsMechanism`.

    Raises
    ------
    ArgumentError
        A setting is out of range.

    References
    ----------
    Canonne, Kamath, Steinke 2020, Theorem 4. Bun, Steinke 2016, Lemma 1.7.

    Examples
    --------
    >>> round(GaussianStatistics(rho=0.5, adjacency="replace-one").l2_sensitivity, 6)
    1.414214
    """

    takes_grid: ClassVar[bool] = True

    rho: float
    weights: Mapping[Clique, float] | Sequence[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(rho=positive_finite("rho", self.rho), weights=checked_weights(self.weights, self.queries))

    def _noise(self, specification: ModelSpecification) -> tuple[DiscreteGaussian, ...]:
        return discrete_gaussian_laws(shares(specification, self.weights), self.rho, self.l2_sensitivity)

    def _query_noise(self, specification: ModelSpecification, queries: tuple[Query, ...]) -> QueryNoise:
        given = {"budget": self.rho, "adjacency": self.adjacency, "at_most": self.contribution}
        return noise_of_queries(specification, queries, DiscreteGaussian, self.weights, **given)

    def _promise(self, specification: ModelSpecification) -> PrivacyGuarantee:
        return PrivacyGuarantee(rho=self.rho, adjacency=self.adjacency, unit=self.unit)
