"""The public part of a release of noisy statistics: its plan, its limits, and warnings before any data is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import is_labeled, positive_finite, require, whole_number
from bayesprivmrf.errors import (
    ArgumentError,
    DeclarationWarning,
    ModelError,
    ModelTooLargeError,
    warn_caller,
)
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT, forecast
from bayesprivmrf.mechanisms.query_noise import QueryNoise, fitted_deviations
from bayesprivmrf.mechanisms.record_mechanisms import FrozenMapping, RecordPlan
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import listed, require_hashable
from bayesprivmrf.model.specification import LARGEST_TABLE
from bayesprivmrf.model.tables import Clique, IntArray
from bayesprivmrf.planning import drowned_queries, drowned_tables
from bayesprivmrf.privacy import NoiseDistribution
from bayesprivmrf.queries import BoundQuery, Query, weighted
from bayesprivmrf.queries.query import measured_model
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
        return np.concatenate(
            [query.in_cliques @ counts for query in self.of_units or self.queries]
        )

    @cached_property
    def is_public_zero(self) -> np.ndarray | None:
        """Mask of the numbers that count impossible cells only, so that they are zero; None if all are possible."""
        possible = self.specification.possible
        if possible is None or self.queries is None:
            return None if possible is None else ~possible
        counted = possible.astype(np.int64)
        return np.concatenate([abs(query.in_cliques) @ counted == 0 for query in self.queries])

    def released(self, noisy: IntArray, **stamp: Any) -> NoisyStatistics:
        """Return the release of noisy tables or of noisy answers."""
        model = self.specification
        if self.queries is None:
            return NoisyStatistics(
                specification=model, tables=model.tables(noisy), noise=self.noise, **stamp
            )
        parts = np.split(noisy, self.offsets[1:-1])
        given = zip(self.queries, parts, self.noise, strict=True)
        measured = [Measurement(one.query, part, law) for one, part, law in given]
        return NoisyStatistics(
            specification=model, measurements=measured, bound=self.queries, **stamp
        )

    @cached_property
    def deviations(self) -> tuple[float, ...]:
        """Forecast standard deviation of one answer to each query, from all answers together, records."""
        queries = tuple(query.query for query in self.queries or ())
        return fitted_deviations(
            self.specification, queries, self.noise, knows_total=self.knows_total
        )

    def drowned(self, total: float, what: str) -> list[str]:
        """Return a warning if the noise hides tables or answers at this number of records, which `what` describes."""
        if self.queries is None:
            drowned: Sequence[object] = drowned_tables(self.specification, self.noise, total)
            problem = "an even cell in {} of {} tables"
            remedy = "declare fewer or smaller tables"
        else:
            drowned = drowned_queries(self.queries, self.deviations, total)
            problem = "the mean answer to {} of {} queries, even with all combined"
            remedy = "ask for fewer or coarser queries, choose their `weights`"
        if not drowned:
            return []
        problem = problem.format(len(drowned), len(self.noise))
        shown = ", ".join(map(repr, drowned[:3])) + (", ..." if len(drowned) > 3 else "")
        return [
            f"at {what} the noise is larger than {problem} ({shown}); {remedy}, spend more, or take more records."
        ]

    def rehearse(self) -> None:
        """Make and serialize a release of zeros, so that queries that no release can hold are refused in advance."""
        zeros = np.zeros(self.offsets[-1], dtype=np.int64)
        stamp = Provenance(mechanism="rehearsal")
        release = self.released(zeros, guarantee=None, provenance=stamp)
        # whatever `_randomise` needs later is computed here, before the charge
        _ = self.is_public_zero, self.deviations, release.estimated_total, release._content()


def bound_queries(
    queries: Sequence[Query], specification: ModelSpecification
) -> tuple[BoundQuery, ...]:
    """Return the queries bound to the model; an error names the query that does not fit."""
    bound = []
    for position, query in enumerate(queries):
        name = f"queries[{position}]"
        try:
            bound.append(query.bind(specification))
        except (ArgumentError, ModelError) as error:
            raise type(error)(
                f"`{name}`, {query!r}, must fit the declared model: {error}"
            ) from None
        largest = largest_weight(bound[-1])
        remedy = "take smaller weights, and read the answers in the coarser unit"
        must = f"have weights of at most {LARGEST_WEIGHT:,}"
        require(largest <= LARGEST_WEIGHT, name, must, f"{largest:,}", remedy)
    answers = sum(map(len, bound))
    must = f"have at most {LARGEST_TABLE:,} answers together"
    remedy = "ask for fewer or coarser queries"
    require(
        answers <= LARGEST_TABLE, "queries", must, f"{answers:,}", remedy, error=ModelTooLargeError
    )
    return tuple(bound)


def measured_beyond(
    queries: Sequence[Query], specification: ModelSpecification
) -> ModelSpecification:
    """Return the model with tables of queries that read scopes in no declared clique.

    Raises
    ------
    ModelTooLargeError
        Exact inference over the declared cliques and the measured scopes would not fit in memory. No other inference
        can use such measurements.
    """
    model = measured_model(specification, queries)
    cost = forecast(model.cardinalities, model.scopes)
    seen = f"{cost.memory_bytes / 2**30:,.3g} GiB, with cliques of {cost.treewidth + 1} variables"
    require(
        cost.memory_bytes <= DEFAULT_MEMORY_LIMIT,
        "`queries` whose scopes lie in no declared clique",
        f"leave a model that takes at most {DEFAULT_MEMORY_LIMIT / 2**30:,.3g} GiB",
        seen,
        "ask for smaller scopes, or for scopes inside the declared cliques",
        error=ModelTooLargeError,
    )
    return model


def times(query: BoundQuery, units: int) -> Query:
    """Return a query on one scope multiplied by a whole number."""
    must = "be on one scope each where `grid` is given"
    given = f"{query.query!r}, which reads {len(query.scopes)} scopes"
    remedy = "ask for each scope by a query of its own, or leave `grid` out"
    require(len(query.scopes) == 1, "queries", must, given, remedy)
    return weighted(*query.scopes[0], matrix=query.matrix * units, labels=query.labels)


def largest_weight(query: BoundQuery) -> int:
    """Return an upper bound of the change of an answer by one record."""
    return sum(int(np.abs(block.data).max(initial=0)) for block in query.blocks)


def warn_of_width(specification: ModelSpecification) -> None:
    """Warn, before anything is spent, if exact inference from the release would not fit in memory."""
    cost = forecast(specification.cardinalities, specification.scopes)
    if cost.memory_bytes > DEFAULT_MEMORY_LIMIT:
        warning = DeclarationWarning(
            f"exact inference in this model will not fit (it needs cliques of {cost.treewidth + 1} variables)",
            remedy="fit its release with inference='loopy' only, which approximates, or declare smaller cliques",
            option="fit its release with `--inference loopy` only, which approximates, or declare smaller cliques",
        )
        warn_caller(warning)


def starved_queries(frame: pd.DataFrame) -> list[str]:
    """Return a warning if default weights make the answers to some query much less precise than even weights."""
    # twice the error: smaller differences are the price of a smaller error of the tables as a whole
    starved = np.flatnonzero(frame["forecast_sd"] > 2 * frame["even_forecast_sd"]).tolist()
    if not starved:
        return []
    shown = ", ".join(f"`queries[{at}]`" for at in starved[:3]) + (
        ", ..." if len(starved) > 3 else ""
    )
    if len(frame) < 5:
        even = [1.0] * len(frame)
    else:
        even = "[1.0, ...]"
    return [
        f"the default `weights` give {len(starved)} of {len(frame)} queries so small a share of the budget that "
        f"their answers have more than twice the error of an even split ({shown}); compare `forecast_sd` with "
        f"`even_forecast_sd`, and pass weights={even} if these answers matter by themselves."
    ]


def checked_weights(
    weights: Any, queries: Sequence[Query] | None = None
) -> FrozenMapping[Clique, float] | tuple[float, ...] | None:
    """Return checked weights: a mapping from tuples of variables to numbers, or one number for each query."""
    if weights is None:
        return None
    kind = f"a {type(weights).__name__}"
    remedy = "leave them out for equal shares"
    if queries is None:
        must = "be a mapping from clique to positive share"
        require(isinstance(weights, Mapping), "weights", must, kind, remedy)
        keyed = {key if isinstance(key, tuple) else (key,): value for key, value in weights.items()}
        return FrozenMapping(
            {key: positive_finite(f"weights[{key!r}]", value) for key, value in keyed.items()}
        )
    is_text = (
        isinstance(weights, str | Set) or is_labeled(weights) or not isinstance(weights, Iterable)
    )
    must = "be one positive number for each of `queries`, in their order"
    require(not is_text, "weights", must, kind, "write a list")
    given = enumerate(listed("`weights`", weights))
    checked = tuple(positive_finite(f"weights[{at}]", weight) for at, weight in given)
    remedy = "leave them out for the split of least forecast variance"
    must = f"be one number for each of {len(queries)} queries"
    require(len(checked) == len(queries), "weights", must, len(checked), remedy)
    return checked


def shares(specification: ModelSpecification, weights: Any) -> tuple[float, ...]:
    """Return the share of each measured table in the budget; the shares add up to one, up to rounding.

    Raises
    ------
    ArgumentError
        A weight is for no measured table, two weights are for the same table, a table has no weight, or the weights
        are so different or so large that a share is not above zero.
    """
    cliques = specification.cliques
    if weights is None:
        return tuple(1 / len(cliques) for _ in cliques)
    by_scope = {frozenset(clique): weight for clique, weight in weights.items()}
    is_once = len(by_scope) == len(weights) and by_scope.keys() == set(map(frozenset, cliques))
    tables = f"the measured tables are {', '.join(map(repr, cliques))}"
    require(is_once, "weights", "have each measured table once", repr([*weights]), tables)
    total = sum(by_scope.values())
    found = tuple(by_scope[frozenset(clique)] / total for clique in cliques)
    given = f"{min(by_scope.values())!r} in a sum of {total!r}"
    must = "leave every table a share above zero"
    remedy = "choose weights nearer to one"
    require(min(found) > 0, "weights", must, given, remedy)
    return found


# Largest bound on the rows of one person; arbitrary, far more than any use
LARGEST_BOUND = 2**20


def checked_bound(person: Any, at_most: Any) -> int | None:
    """Return the setting `at_most`, which goes with `person`."""
    # noise hides a person only if the number of their rows is bounded
    remedy = "write person='id', at_most=3, say"
    given = f"{person!r} and {at_most!r}"
    require(
        (person is None) == (at_most is None),
        "`person` and `at_most`",
        "be given together",
        given,
        remedy,
    )
    if person is None:
        return None
    require_hashable("`person`, the name of a column,", person, ArgumentError)
    remedy = "it is the number of rows of one person that are counted"
    return whole_number("at_most", at_most, 1, LARGEST_BOUND, remedy=remedy)


def checked_grid(grid: Any, at_most: int | None, queries: Any) -> int | None:
    """Return the setting `grid`, which goes with `person`, `at_most` and `queries`."""
    if grid is None:
        return None
    # the counted rows of one person share its units, and the release holds sums of units
    must = "be given with `person`, `at_most` and `queries`"
    remedy = "write queries=[queries.table(...)], say"
    require(at_most is not None and queries is not None, "grid", must, f"{grid!r} alone", remedy)
    remedy = (
        "a person with more rows than units would have no weight; 720720 divides by all of 1 to 16"
    )
    return whole_number("grid", grid, at_most or 1, LARGEST_BOUND, remedy=remedy)
