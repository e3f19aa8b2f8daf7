"""Exact tables: the reference without privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from bayesprivmrf.mechanisms.query_noise import QueryNoise
from bayesprivmrf.mechanisms.statistics import StatisticsMechanism
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.privacy import NoNoise, PrivacyGuarantee
from bayesprivmrf.queries import Query

__all__ = ["ExactStatistics"]


@final
@dataclass(frozen=True, kw_only=True)
class ExactStatistics(StatisticsMechanism):
    """Return the declared tables as they are: no noise, no privacy, no guarantee.

    They are the reference for private results. The result says that nothing is promised, is saved only where that is
    allowed by name, and must not leave the place where the data may be.

    Parameters
    ----------
    adjacency
        The neighbouring relation; nothing here depends on it but `total`, which replace-one states.
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
