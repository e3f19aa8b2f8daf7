"""`LaplaceStatistics`: tables or queries with discrete Laplace noise, under pure differential privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from bayesprivmrf.checks import positive_finite
from bayesprivmrf.mechanisms.calibration import discrete_laplace_laws
from bayesprivmrf.mechanisms.query_noise import QueryNoise, noise_of_queries
from bayesprivmrf.mechanisms.statistics import StatisticsMechanism
from bayesprivmrf.mechanisms.statistics_plan import checked_weights, shares
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import Clique
from bayesprivmrf.privacy import DiscreteLaplace, PrivacyGuarantee
from bayesprivmrf.queries import Query


@final
@dataclass(frozen=True, kw_only=True)
class LaplaceStatistics(StatisticsMechanism):
    r"""Release the declared tables with discrete Laplace noise: pure epsilon-differential privacy.

    Table C gets noise of scale :math:`b_C = \Delta / (w_C \epsilon)`, with :math:`\Delta` = 1 record under
    add-or-remove-one and 2 under replace-one; with even weights over m tables, :math:`b = m \Delta / \epsilon`.
    `discrete_laplace_laws` derives the scale, and `StatisticsMechanism` the sensitivity. With `queries` their answers
    are released, with scales from their joint sensitivity (`bayesprivmrf.mechanisms.query_noise`).

    Parameters
    ----------
    epsilon
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
    Ghosh, Roughgarden, Sundararajan 2012. Bernstein, McKenna, Sun, Sheldon, Hay, Miklau 2017, Section 3.

    Examples
    --------
    >>> LaplaceStatistics(epsilon=1.0).l1_sensitivity
    1
    """

    takes_grid: ClassVar[bool] = True

    epsilon: float
    weights: Mapping[Clique, float] | Sequence[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(
            epsilon=positive_finite("epsilon", self.epsilon),
            weights=checked_weights(self.weights, self.queries),
        )

    def _noise(self, specification: ModelSpecification) -> tuple[DiscreteLaplace, ...]:
        return discrete_laplace_laws(shares(specification, self.weights), self.epsilon, self.l1_sensitivity)

    def _query_noise(self, specification: ModelSpecification, queries: tuple[Query, ...]) -> QueryNoise:
        given = {"budget": self.epsilon, "adjacency": self.adjacency, "at_most": self.contribution}
        return noise_of_queries(specification, queries, DiscreteLaplace, self.weights, **given)

    def _promise(self, specification: ModelSpecification) -> PrivacyGuarantee:
        return PrivacyGuarantee(epsilon=self.epsilon, adjacency=self.adjacency, unit=self.unit)
