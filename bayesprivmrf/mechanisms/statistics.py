"""Noisy contingency tables: the base class of mechanisms that measure the declared tables, or queries of them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ArgumentError, DataError, NoiseWarning, PrivacyError, warn_caller
from bayesprivmrf.files import Json
from bayesprivmrf.interruption import warn_without_raising
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.mechanisms.query_noise import QueryNoise
from bayesprivmrf.mechanisms.reading.counting import ExactCounts, count_tables
from bayesprivmrf.mechanisms.reading.frame import Counts
from bayesprivmrf.mechanisms.reading.persons import Persons
from bayesprivmrf.mechanisms.record_mechanisms import RecordMechanism, require_records
from bayesprivmrf.mechanisms.statistics_plan import (
    LARGEST_ANSWER,
    StatisticsPlan,
    bound_queries,
    checked_bound,
    checked_grid,
    largest_weight,
    measured_beyond,
    starved_queries,
    times,
    warn_of_width,
)
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Variable
from bayesprivmrf.model.specification import NotTogetherError
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.noise.source import require_releasable
from bayesprivmrf.planning import noise_preview, query_preview
from bayesprivmrf.privacy import Adjacency, NoiseDistribution, PrivacyGuarantee
from bayesprivmrf.queries import Query
from bayesprivmrf.queries.sensitivity import checked_queries
from bayesprivmrf.release import NoisyStatistics, PersonRows

if TYPE_CHECKING:
    import pandas as pd
    from pgmpy.models import DiscreteMarkovNetwork


@dataclass(frozen=True, kw_only=True)
class StatisticsMechanism(RecordMechanism[StatisticsPlan, ExactCounts, NoisyStatistics]):
    r"""Abstract mechanism that adds independent integer noise to each measured table.

    A subclass supplies ``_noise(specification)``, with one distribution for each table, and
    ``_promise(specification)``. If it takes queries, it also supplies ``_query_noise(specification, queries)``, with
    one distribution for each query.

    **Sensitivity.** Every record lies in exactly one cell of each of the m tables. Adding or removing a record moves
    one cell of each table by one: the L1 and L2 distances are 1 for each table, and m and :math:`\sqrt m` jointly.
    Replacing a record moves it, in each table, from one cell to another or not at all. The L1 distance is then at
    most 2 and the L2 distance at most :math:`\sqrt 2` for each table, and 2m and :math:`\sqrt{2m}` jointly. Two
    records that differ in every table attain these. `l1_sensitivity` and `l2_sensitivity` are the numbers for one
    table. With `person` both are `contribution` times as large (`docs/explanation/privacy.md`, "Records of one
    person").

    With `queries` their answers :math:`A n` are measured in place of the tables, and
    `bayesprivmrf.queries.sensitivity` gives their sensitivity.

    Cells declared impossible, and answers that count no other cells, are public zeros: their noise is discarded after
    it was drawn. Under add-or-remove-one the number of records is protected, and no release contains it. Under
    replace-one it is public, and the release states it.

    Parameters
    ----------
    adjacency
        The neighboring relation, `Adjacency` or its name.
    missing, other
        Declared state for missing values, and for undeclared values: a label, for all variables that have this state,
        or a mapping from variable to label. By default such values are an error.
    queries
        The queries to measure, from `bayesprivmrf.queries`; by default the table of each clique. A scope need not lie
        inside a declared clique: the model that is fitted stays the declared one.
    person
        Name of the column that identifies the person of a row, where one person may have several rows. The guarantee
        then has the unit ``"person"``. The column is no declared variable, and the data must be in memory.
    at_most
        Largest number of rows of one person that are counted, public: the first rows in the order of the frame. It
        goes with `person`.
    grid
        Number of units that the rows of one person share, so that all persons have about the same weight: each of K
        counted rows has floor(grid / K) units. It must be at least `at_most`, and goes with `person` and `queries` on
        one scope each. The release holds sums of units: ``grid`` times the query of persons. One neighbor moves them
        `grid` times as far as a record, instead of `at_most` times.

    Notes
    -----
    `preview` has one row for each table or query; see `bayesprivmrf.planning.noise_preview` and `query_preview`.
    Where some noise has no ``kernel``, ``attrs["estimators"]`` names the estimators of this library that take it. A
    `NoiseWarning` also appears if the default `weights` leave the answers to a query with more than twice the error
    of an even split.
    """

    takes_grid: ClassVar[bool] = False
    """True if the noise is scaled by `contribution`; only such a subclass takes `grid`."""
    releases = (NoisyStatistics,)

    queries: Sequence[Query] | None = None
    person: Variable | None = None
    at_most: int | None = None
    grid: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(
            queries=None if self.queries is None else tuple(checked_queries(self.queries)),
            at_most=checked_bound(self.person, self.at_most),
        )
        self._keep(grid=checked_grid(self.grid, self.at_most, self.queries))
        must = f"be left out of {type(self).__name__}, whose noise is not scaled by it"
        remedy = "use LaplaceStatistics or GaussianStatistics"
        require(self.grid is None or self.takes_grid, "grid", must, self.grid, remedy)

    @abstractmethod
    def _noise(self, specification: ModelSpecification) -> tuple[NoiseDistribution, ...]:
        """Return the integer noise distribution of each measured table."""

    def _query_noise(
        self, specification: ModelSpecification, queries: tuple[Query, ...]
    ) -> QueryNoise:
        """Return the integer noise distribution of each query's answers; without this hook, queries are refused."""
        raise ArgumentError(
            f"`queries` must be left out of {type(self).__name__}, which measures the declared tables; use "
            "LaplaceStatistics or GaussianStatistics, or give it a hook `_query_noise`."
        )

    @abstractmethod
    def _promise(self, specification: ModelSpecification) -> PrivacyGuarantee | None:
        """Return the joint guarantee of the noise, for the neighboring relation `adjacency`."""

    def _settings(self) -> dict[str, Json]:
        """Return the settings; newer settings are included only if given, so that other files do not change."""
        newer = {
            name for name in ("queries", "person", "at_most", "grid") if getattr(self, name) is None
        }
        return {name: value for name, value in super()._settings().items() if name not in newer}

    @property
    @final
    def unit(self) -> str:
        """Unit of the guarantee: ``"record"``, or ``"person"`` where `person` is given."""
        if self.person is None:
            return "record"
        return "person"

    @property
    def _knows_total(self) -> bool:
        """True if the number of records is public; a public number of persons does not fix the number of rows."""
        return self.adjacency is Adjacency.REPLACE_ONE and self.person is None

    @property
    @final
    def contribution(self) -> int | None:
        """Multiple of a record's influence that a person has: `grid`, or else `at_most`; None for records."""
        if self.grid is None:
            return self.at_most
        return self.grid

    @property
    @final
    def l1_sensitivity(self) -> int:
        """L1 sensitivity of one table: 1, or 2 under replace-one; times `contribution`."""
        return (self.contribution or 1) * (
            1 if self.adjacency is Adjacency.ADD_OR_REMOVE_ONE else 2
        )

    @property
    @final
    def l2_sensitivity(self) -> float:
        """L2 sensitivity of one table: 1, or sqrt(2) under replace-one, rounded up; times `contribution`."""
        most = self.contribution or 1
        if self.adjacency is Adjacency.ADD_OR_REMOVE_ONE:
            return float(most)
        return math.nextafter(math.sqrt(2 * most**2), math.inf)

    def _preview(self, plan: StatisticsPlan, total: float | None) -> tuple[pd.DataFrame, list[str]]:
        knows_total = self._knows_total
        noise = plan.noise
        problems = []
        if plan.queries is None:
            frame = noise_preview(plan.specification, noise, total)
        else:
            # the even split of the budget, beside the split in use
            even: Any = self
            if hasattr(self, "weights"):
                even = replace(self, weights=(1.0,) * len(plan.queries))  # type: ignore[call-arg]
            laws = even._query_noise(plan.specification, self.queries).laws
            if plan.query_noise is None:
                shares = None
            else:
                shares = plan.query_noise.shares
            frame = query_preview(
                plan.queries, noise, shares, laws, knows_total=knows_total, total=total
            )
            if getattr(self, "weights", None) is None:
                problems = starved_queries(frame)
        if any(law.smooth is None for law in noise):
            frame.attrs["estimators"] = ("NaiveMLE",)
        if self.person is not None:
            frame.attrs |= {"unit": self.unit, "at_most": self.at_most}
            frame.attrs |= {} if self.grid is None else {"grid": self.grid}
        if total is not None:
            problems = [*problems, *plan.drowned(total, f"about {total:,.0f} records")]
        return frame, problems

    @final
    def noise_laws(
        self, network: DiscreteMarkovNetwork | ModelSpecification
    ) -> tuple[NoiseDistribution, ...]:
        """Return the noise distribution of each table, or of each query's answers, before any data is read.

        Parameters
        ----------
        network
            The declared model.

        Raises
        ------
        ArgumentError, ModelError, PrivacyError
            `release` would refuse the model or a setting as well.
        """
        return self._prepare(network).noise

    @final
    def _prepare(self, network: DiscreteMarkovNetwork | ModelSpecification) -> StatisticsPlan:
        specification = self._with_cliques(network)
        name = type(self).__name__
        is_measured = self.person is not None and str(self.person) in map(
            str, specification.domain.variables
        )
        remedy = "leave it out of the model, because it identifies persons and is not measured"
        require(
            not is_measured,
            "person",
            "name a column that is no declared variable",
            self.person,
            remedy,
        )
        warn_of_width(specification)
        measured: Sequence[Any] = specification.cliques
        queries = query_noise = of_units = None
        if self.queries is None:
            what = "table"
            hook = "_noise"
            given = self._noise(specification)
        else:
            measured = self.queries
            try:
                queries = bound_queries(self.queries, specification)
            except NotTogetherError:
                specification = measured_beyond(self.queries, specification)
                queries = bound_queries(self.queries, specification)
            if self.grid is not None:
                several = [times(one, self.grid) for one in queries]
                of_units = queries
                queries = bound_queries(several, specification)
            query_noise = self._query_noise(specification, tuple(self.queries))
            what = "query"
            hook = "_query_noise"
            given = query_noise.laws
        # hooks of other packages may return anything
        is_list = isinstance(given, list | tuple)
        noise = tuple(given) if is_list else ()
        if is_list:
            got = len(given)
        else:
            got = f"a {type(given).__name__}"
        must = f"give a tuple of noise distributions, one for each of {len(measured)}"
        require(len(noise) == len(measured), name, must, got, f"correct its `{hook}`")
        for place, law in enumerate(noise):
            before = noise[place - 1] if place else None
            if type(law) is not type(before) or law != before:  # equal distributions need one check
                require_releasable(law)
        is_bare = [not (law.hides and law.variance > 0) for law in noise]
        if any(is_bare) and self._promise(specification) is not None:
            raise PrivacyError(
                f"{name} must add noise to every {what} under a guarantee, got none (or too little for a float) for "
                f"{measured[is_bare.index(True)]!r}; ask for a smaller budget, or promise nothing."
            )
        if query_noise is not None and query_noise.is_bound:
            warn_caller(
                "the noise is calibrated to an upper bound of the sensitivity of `queries`, so the guarantee holds "
                "with more noise than it may need; ask for fewer or smaller queries, whose sensitivity is exact.",
                NoiseWarning,
            )
        declared = self._declared(specification)
        plan = StatisticsPlan(
            specification=specification,
            missing=declared.missing,
            other=declared.other,
            noise=noise,
            queries=queries,
            query_noise=query_noise,
            of_units=of_units,
            knows_total=self._knows_total,
        )
        if queries is not None:
            plan.rehearse()
        return plan

    @final
    def _guarantee(self, plan: StatisticsPlan) -> PrivacyGuarantee | None:
        promised = self._promise(plan.specification)
        name = type(self).__name__
        # anything else but None is what `_promised` refuses
        if isinstance(promised, PrivacyGuarantee):
            must = f"give a guarantee for {self.adjacency.value} neighbors that differ in a {self.unit}"
            got = f"one for {promised.adjacency.value} and a {promised.unit}"
            remedy = "scale its noise by `l1_sensitivity`, and state `adjacency=self.adjacency, unit=self.unit`"
            is_right = promised.adjacency is self.adjacency and promised.unit == self.unit
            require(is_right, name, must, got, remedy, error=PrivacyError)
        return promised

    @final
    def _read(self, plan: StatisticsPlan, data: Any, count: Hashable | None = None) -> ExactCounts:
        rows: Persons | Counts | None = Counts.of(count, plan.specification.domain.variables)
        if self.person is not None and self.at_most is not None:
            # each record of a frequency table is a different person
            must = "not be given together"
            remedy = "leave out one of the two"
            require(
                count is None,
                "`count` and `person`",
                must,
                f"{count!r} and {self.person!r}",
                remedy,
            )
            rows = Persons(column=self.person, at_most=self.at_most, grid=self.grid)
        counts = count_tables(
            plan.specification, data, missing=plan.missing, other=plan.other, rows=rows
        )
        if self._knows_total:
            require_records(counts.records)
        largest = max(map(largest_weight, plan.of_units or plan.queries or ()), default=0)
        is_small = counts.records * largest <= LARGEST_ANSWER
        what = "the answers to `queries`"
        remedy = "take smaller weights, and read the answers in the coarser unit"
        require(
            is_small, what, "be whole numbers of 64 bits", "larger ones", remedy, error=DataError
        )
        return counts

    @final
    def _randomise(
        self, plan: StatisticsPlan, exact: ExactCounts, source: NoiseSource, stamp: Stamp
    ) -> NoisyStatistics:
        offsets = plan.offsets
        answers = plan.answers(exact.flat)
        # grouped by class and fields, whatever the distributions' own equality says
        measured_of: dict[str, tuple[NoiseDistribution, list[int]]] = {}
        for position, law in enumerate(plan.noise):
            measured_of.setdefault(repr(law.as_dict()), (law, []))[1].append(position)
        noisy = np.zeros_like(answers)  # a number without a draw would be zero, never exact
        for law, measured in measured_of.values():
            cells = np.concatenate([np.arange(*offsets[at : at + 2]) for at in measured])
            noisy[cells] = source.add(answers[cells], law)
        if plan.is_public_zero is not None:
            noisy[plan.is_public_zero] = 0
        if self.at_most is None:
            rows = None
        else:
            rows = PersonRows(at_most=self.at_most, is_weighed=self.grid is not None)
        if self._knows_total:
            total = exact.records
        else:
            total = None
        release = plan.released(noisy, total=total, person_rows=rows, **stamp.fields)
        # from here on, only the release is used
        about = release.estimated_total
        if math.isfinite(about) and any(law.variance > 0 for law in plan.noise):
            for problem in plan.drowned(
                about, "the number of records that the release itself suggests"
            ):
                warn_without_raising(problem)
        return release
