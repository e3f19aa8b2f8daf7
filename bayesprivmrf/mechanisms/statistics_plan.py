"""The public part of a release of noisy statistics: its plan, its limits, and warnings before any data is read."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.errors import (
    ArgumentError,
    DeclarationWarning,
    ModelError,
    ModelTooLargeError,
    NoiseWarning,
)
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT, forecast
from bayesprivmrf.mechanisms.query_noise import QueryNoise, fitted_deviations
from bayesprivmrf.mechanisms.settings import RecordPlan
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.specification import LARGEST_TABLE
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.planning import drowned_queries, drowned_tables
from bayesprivmrf.privacy import NoiseDistribution
from bayesprivmrf.queries import BoundQuery, Query, weighted
from bayesprivmrf.release import Measurement, NoisyStatistics, Provenance

if TYPE_CHECKING:
    import pandas as pd

# Largest weight of one record in an answer; fixed without data, so that 64 bits hold sums over 2^35 records
LARGEST_WEIGHT = 2**26
# Largest exact answer; the rest of the range of 64 bits is for noise
LARGEST_ANSWER = 2**61


@dataclass(frozen=True, kw_only=True)
class StatisticsPlan(RecordPlan):
    """The public part of a release: model, queries, noise distributions, and codes of redirected values."""

    noise: tuple[NoiseDistribution, ...]
    queries: tuple[BoundQuery, ...] | None = None
    query_noise: QueryNoise | None = None
    of_units: tuple[BoundQuery, ...] | None = None
    knows_total: bool = False

    @property
    def offsets(self) -> Sequence[int]:
        """Position of the first number of each table, or of each query's answers; the last entry is their number."""
        if self.queries is None:
            return self.specification.offsets
        return np.cumsum([0, *map(len, self.queries)]).tolist()

    def answers(self, counts: IntArray) -> IntArray:
        """Return the exact answers from the counts of all cells: whole numbers, shape (offsets[-1],)."""
        if self.queries is None:
            return counts
        return np.concatenate([query.in_cliques @ counts for query in self.of_units or self.queries])

    @cached_property
    def is_public_zero(self) -> np.ndarray | None:
        """Mask of the numbers that count impossible cells only, so that they are zero; None if all are possible."""
        possible = self.specification.possible
        if possible is None or self.queries is None:
            return None if possible is None else ~possible
        return np.concatenate(
            [abs(query.in_cliques) @ possible.astype(np.int64) == 0 for query in self.queries]
        )

    def released(self, noisy: IntArray, **stamp: Any) -> NoisyStatistics:
        """Return the release of noisy tables or of noisy answers."""
        model = self.specification
        if self.queries is None:
            return NoisyStatistics(specification=model, tables=model.tables(noisy), noise=self.noise, **stamp)
        parts = np.split(noisy, self.offsets[1:-1])
        given = zip(self.queries, parts, self.noise, strict=True)
        measured = [Measurement(one.query, part, law) for one, part, law in given]
        return NoisyStatistics(specification=model, measurements=measured, bound=self.queries, **stamp)

    @cached_property
    def deviations(self) -> tuple[float, ...]:
        """Forecast standard deviation of one answer to each query, from all answers together, records."""
        queries = tuple(query.query for query in self.queries or ())
        return fitted_deviations(self.specification, queries, self.noise, knows_total=self.knows_total)

    def drowned(self, total: float, what: str) -> str | None:
        """Return the text of a warning if the noise hides tables or answers at this number of records.

        A table is judged by its own noise, and the answers to a query by their forecast from all answers together:
        the total of a table, for instance, is known from the table however noisy its own measurement is.
        """
        if self.queries is None:
            drowned: Sequence[object] = drowned_tables(self.specification, self.noise, total)
            problem = f"an even cell in {len(drowned)} of {len(self.noise)} tables"
            remedy = "declare fewer or smaller tables"
        else:
            drowned = drowned_queries(self.queries, self.deviations, total)
            problem = (
                f"the mean answer to {len(drowned)} of {len(self.noise)} queries, even with all combined"
            )
            remedy = "ask for fewer or coarser queries, choose their `weights`"
        if not drowned:
            return None
        shown = ", ".join(map(repr, drowned[:3])) + (", ..." if len(drowned) > 3 else "")
        return f"at {what} the noise is larger than {problem} ({shown}); {remedy}, spend more, or take more records."

    def rehearse(self) -> None:
        """Make and serialize a release of zeros, so that queries that no release can hold are refused in advance."""
        release = self.released(
            np.zeros(self.offsets[-1], dtype=np.int64),
            guarantee=None,
            provenance=Provenance(mechanism="rehearsal"),
        )
        # whatever `_randomise` needs later is computed here, before the charge
        _ = self.is_public_zero, self.deviations, release.estimated_total, release._content()


def bound_queries(queries: Sequence[Query], specification: ModelSpecification) -> tuple[BoundQuery, ...]:
    """Return the queries bound to the model; an error names the query that does not fit."""
    bound = []
    for position, query in enumerate(queries):
        try:
            bound.append(query.bind(specification))
        except (ArgumentError, ModelError) as error:
            raise type(error)(
                f"`queries[{position}]`, {query!r}, must fit the declared model: {error}"
            ) from None
    for position, one in enumerate(bound):
        if largest_weight(one) > LARGEST_WEIGHT:
            raise ArgumentError(
                f"`queries[{position}]` must have weights of at most {LARGEST_WEIGHT:,}, got "
                f"{largest_weight(one):,}; take smaller weights, and read the answers in the coarser unit."
            )
    if sum(map(len, bound)) > LARGEST_TABLE:
        raise ModelTooLargeError(
            f"`queries` must have at most {LARGEST_TABLE:,} answers together, got {sum(map(len, bound)):,}; ask for "
            "fewer or coarser queries."
        )
    return tuple(bound)


def times(query: BoundQuery, units: int) -> Query:
    """Return a query on one scope multiplied by a whole number."""
    several = len(query.scopes)
    if several > 1:
        raise ArgumentError(
            f"`queries` must be on one scope each where `grid` is given, got {query.query!r}, which reads "
            f"{several} scopes; ask for each scope by a query of its own, queries.table or "
            "queries.weighted, or leave `grid` out."
        )
    return weighted(*query.scopes[0], matrix=query.matrix * units, labels=query.labels)


def largest_weight(query: BoundQuery) -> int:
    """Return an upper bound of the change of an answer by one record."""
    return sum(int(np.abs(block.data).max(initial=0)) for block in query.blocks)


def warn_of_bounds(noise: QueryNoise) -> None:
    """Warn, before anything is spent, if the noise is calibrated to an upper bound of the sensitivity."""
    if noise.is_bound:
        warnings.warn(
            "the noise is calibrated to an upper bound of the sensitivity of `queries`, so the guarantee holds with "
            "more noise than it may need; ask for fewer or smaller queries, whose sensitivity is exact.",
            NoiseWarning,
            stacklevel=4,
        )


def warn_of_width(specification: ModelSpecification) -> None:
    """Warn, before anything is spent, if exact inference from the release would not fit in memory."""
    cost = forecast(specification.cardinalities, specification.scopes)
    if cost.memory_bytes > DEFAULT_MEMORY_LIMIT:
        warning = DeclarationWarning(
            f"exact inference in this model will not fit (it needs cliques of {cost.treewidth + 1} variables)",
            remedy="fit its release with inference='loopy' only, which approximates, or declare smaller cliques",
            option="fit its release with `--inference loopy` only, which approximates, or declare smaller cliques",
        )
        warnings.warn(warning, stacklevel=4)


def warn_of_starved_queries(frame: pd.DataFrame, *, is_default: bool) -> None:
    """Warn if the default weights make the answers to some query much less precise than even weights would."""
    # twice the error: smaller differences are the price of a smaller error of the tables as a whole
    starved = np.flatnonzero(frame["forecast_sd"] > 2 * frame["even_forecast_sd"]).tolist()
    if is_default and starved:
        shown = ", ".join(f"`queries[{at}]`" for at in starved[:3]) + (", ..." if len(starved) > 3 else "")
        warnings.warn(
            f"the default `weights` give {len(starved)} of {len(frame)} queries so small a share of the budget that "
            f"their answers have more than twice the error of an even split ({shown}); compare `forecast_sd` with "
            f"`even_forecast_sd`, and pass weights={[1.0] * len(frame) if len(frame) < 5 else '[1.0, ...]'} "
            "if these answers matter by themselves.",
            NoiseWarning,
            stacklevel=3,
        )
