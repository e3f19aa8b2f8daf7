"""Tables or queries with noise of one kind, and without noise.

`LaplaceStatistics` satisfies pure differential privacy, and `GaussianStatistics` zero-concentrated privacy.
`ExactStatistics` and `reference` give the exact tables and the exact solution, without privacy, for comparison.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, final

from bayesprivmrf.cards import UNPROTECTED as EXACT
from bayesprivmrf.checks import positive_finite
from bayesprivmrf.inference import NaiveMLE, Solution
from bayesprivmrf.inference.asked import GivenOrEach
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws, discrete_laplace_laws
from bayesprivmrf.mechanisms.query_noise import QueryNoise, noise_of_queries
from bayesprivmrf.mechanisms.statistics import StatisticsMechanism
from bayesprivmrf.mechanisms.statistics_plan import checked_weights, shares
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.model.tables import Clique
from bayesprivmrf.privacy import DiscreteGaussian, DiscreteLaplace, NoNoise, PrivacyGuarantee
from bayesprivmrf.queries import Query

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from pgmpy.models import DiscreteMarkovNetwork


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
        return discrete_laplace_laws(
            shares(specification, self.weights), self.epsilon, self.l1_sensitivity
        )

    def _query_noise(
        self, specification: ModelSpecification, queries: tuple[Query, ...]
    ) -> QueryNoise:
        given = {"budget": self.epsilon, "adjacency": self.adjacency, "at_most": self.contribution}
        return noise_of_queries(specification, queries, DiscreteLaplace, self.weights, **given)

    def _promise(self, specification: ModelSpecification) -> PrivacyGuarantee:
        return PrivacyGuarantee(epsilon=self.epsilon, adjacency=self.adjacency, unit=self.unit)


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
        self._keep(
            rho=positive_finite("rho", self.rho),
            weights=checked_weights(self.weights, self.queries),
        )

    def _noise(self, specification: ModelSpecification) -> tuple[DiscreteGaussian, ...]:
        return discrete_gaussian_laws(
            shares(specification, self.weights), self.rho, self.l2_sensitivity
        )

    def _query_noise(
        self, specification: ModelSpecification, queries: tuple[Query, ...]
    ) -> QueryNoise:
        given = {"budget": self.rho, "adjacency": self.adjacency, "at_most": self.contribution}
        return noise_of_queries(specification, queries, DiscreteGaussian, self.weights, **given)

    def _promise(self, specification: ModelSpecification) -> PrivacyGuarantee:
        return PrivacyGuarantee(rho=self.rho, adjacency=self.adjacency, unit=self.unit)


@final
@dataclass(frozen=True, kw_only=True)
class ExactStatistics(StatisticsMechanism):
    """Return the exact tables: no noise, no privacy, no guarantee.

    The tables are a reference for private results. The release states that nothing is promised. It is saved only
    under an explicit option, and must be stored and shared only where the data themselves may be.

    Parameters
    ----------
    adjacency
        The neighboring relation; under replace-one the release states its `total`, and nothing else depends on it.
    missing, other, queries, person, at_most, grid
        See `StatisticsMechanism`.

    Examples
    --------
    >>> import pandas as pd
    >>> from bayesprivmrf.model import Domain, ModelSpecification
    >>> domain = Domain.from_states({"ill": ["no", "yes"]})
    >>> model = ModelSpecification(domain=domain, cliques=(("ill",),))
    >>> ExactStatistics().release(model, pd.DataFrame({"ill": ["no", "yes", "no"]})).tables["ill"]
    array([2, 1])
    """

    takes_grid: ClassVar[bool] = True

    def _noise(self, specification: ModelSpecification) -> tuple[NoNoise, ...]:
        return tuple(NoNoise() for _ in specification.cliques)

    def _query_noise(
        self, specification: ModelSpecification, queries: tuple[Query, ...]
    ) -> QueryNoise:
        return QueryNoise(laws=tuple(NoNoise() for _ in queries))

    def _promise(self, specification: ModelSpecification) -> PrivacyGuarantee | None:
        return None


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Reference(Solution):
    """Maximum likelihood estimate from unprotected data, as `reference` returns it.

    The printed form, the marginals, the samples and the network are marked as unprotected.
    """

    guarantee: ClassVar[None] = None
    is_unprotected: ClassVar[bool] = True

    @property
    def _mark(self) -> str:
        return EXACT

    @property
    def _promise(self) -> str:
        return "none: fitted to the unprotected data"

    def marginal(
        self,
        variables: Variable | Sequence[Variable],
        *,
        given: GivenOrEach | None = None,
    ) -> xr.DataArray:
        """Return probabilities of joint states, as `Solution.marginal` does; ``attrs["privacy"]`` is the mark."""
        return super().marginal(variables, given=given).assign_attrs(privacy=EXACT)

    def sample(self, size: int, **settings: Any) -> pd.DataFrame:
        """Draw records from the distribution, as `Solution.sample` does; ``attrs["privacy"]`` is the mark."""
        records = super().sample(size, **settings)
        records.attrs["privacy"] = EXACT
        return records

    @cached_property
    def network(self) -> DiscreteMarkovNetwork:
        """Pgmpy network with exactly this distribution; ``graph["privacy"]`` is the mark."""
        network = super().network
        network.graph["privacy"] = EXACT
        return network


def reference(
    network: DiscreteMarkovNetwork | ModelSpecification,
    data: Any,
    *,
    missing: Label | Mapping[Variable, Label] | None = None,
    other: Label | Mapping[Variable, Label] | None = None,
    person: Hashable | None = None,
    at_most: int | None = None,
    count: Hashable | None = None,
) -> Reference:
    """Fit the model to the data without noise, only for comparison with private results.

    The tables of the declared cliques equal those of the data to the last digit, empty cells included. A model with
    ties, scores or shared transitions is fitted to them by maximum likelihood. The result is not protected: it must
    be stored and shared only where the data themselves may be.

    Parameters
    ----------
    network, data
        The declared model and the records, as for `Mechanism.release`.
    missing, other, person, at_most
        Settings of `StatisticsMechanism`.
    count
        Name of the column of a frequency table with the number of records for each row, as for `Mechanism.release`.

    Notes
    -----
    A cell that is empty in the data has probability 0, so the log-likelihood of held-out records may be minus
    infinity. To score such records, fit a release of `ExactStatistics` with ``NaiveMLE(ridge=1 / N)``, which gives
    every cell a positive probability.

    Examples
    --------
    >>> import bayesprivmrf as bpm, pandas as pd
    >>> network = bpm.declare({"ill": ["no", "yes"]}, [("ill",)])
    >>> solution = reference(network, pd.DataFrame({"ill": ["no", "yes"], "Freq": [3, 1]}), count="Freq")
    >>> solution.marginal("ill").values, solution.guarantee
    (array([0.75, 0.25]), None)
    """
    mechanism = ExactStatistics(missing=missing, other=other, person=person, at_most=at_most)
    fitted = NaiveMLE().fit(mechanism.release(network, data, count=count))
    made: dict[str, Any] = {one.name: getattr(fitted, one.name) for one in fields(fitted)}
    made["method"] = f"maximum likelihood, {EXACT}"
    return Reference(**made)
