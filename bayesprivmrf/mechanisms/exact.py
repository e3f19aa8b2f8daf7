"""Exact tables and the exact solution, without privacy: references for private results."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, final

from bayesprivmrf.inference import NaiveMLE, Solution
from bayesprivmrf.mechanisms.query_noise import QueryNoise
from bayesprivmrf.mechanisms.statistics import StatisticsMechanism
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.privacy import NoNoise, PrivacyGuarantee
from bayesprivmrf.queries import Query

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from pgmpy.models import DiscreteMarkovNetwork


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

    def _query_noise(self, specification: ModelSpecification, queries: tuple[Query, ...]) -> QueryNoise:
        return QueryNoise(laws=tuple(NoNoise() for _ in queries))

    def _promise(self, specification: ModelSpecification) -> PrivacyGuarantee | None:
        return None


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Reference(Solution):
    """Maximum likelihood estimate from unprotected data, as `reference` returns it.

    The printed form, the marginals and the samples are marked as unprotected.
    """

    guarantee: ClassVar[None] = None

    @property
    def _mark(self) -> str:
        return EXACT

    @property
    def _promise(self) -> str:
        return "none: fitted to the unprotected data"

    def marginal(
        self, variables: Variable | Sequence[Variable], *, given: Mapping[Variable, Label] | None = None
    ) -> xr.DataArray:
        """Return probabilities of joint states, as `Solution.marginal` does; ``attrs["privacy"]`` is the mark."""
        return super().marginal(variables, given=given).assign_attrs(privacy=EXACT)

    def sample(self, size: int, **settings: Any) -> pd.DataFrame:
        """Draw records from the distribution, as `Solution.sample` does; ``attrs["privacy"]`` is the mark."""
        records = super().sample(size, **settings)
        records.attrs["privacy"] = EXACT
        return records


# Mark of all results from the data without noise
EXACT = "exact, unprotected"


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
