"""The base classes of mechanisms that read records: `RecordMechanism`, and `LearningMechanism` for learners.

`RecordMechanism` has the settings of all of them. A learner reads whole records, and divides its budget. Its four
hooks are called by `Mechanism.release` (`bayesprivmrf.mechanisms.base`) in this order:

1. ``_prepare`` checks the declaration and splits the budget, and the subclass makes its own public plan. No data.
2. ``_guarantee`` gives zero-concentrated privacy of `rho` for the neighboring relation and whatever the answers
   will be. No data.
3. ``_read`` turns **data into codes**, by `read_records`, before the ledger is charged. No other hook sees the data
   frame. A value becomes the position of its label among the declared states: `bayesprivmrf.mechanisms.reading`
   matches columns and labels. A missing or undeclared value becomes the state declared for it, or the data are
   refused with an error that names the column and never the value. A code depends on its own value and the
   declaration, and on no other record, so that adding or removing a record changes no other code. Equal records may
   share a row with their number.
4. ``_randomise``, of the subclass, makes a release from the codes, with noise from the given source alone. If the
   number of records is private and some step depends on it, `_total` gives a noisy number, for `TOTAL_SHARE` of rho.

A preview takes the first step only, and shows the cost and the noise of each step of a release.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from bayesprivmrf.audit import Sums
from bayesprivmrf.checks import positive_finite, require
from bayesprivmrf.errors import ArgumentError, DataError, ModelError
from bayesprivmrf.interruption import warn_without_raising
from bayesprivmrf.learning.select_measure import MergeRule
from bayesprivmrf.mechanisms.base import Mechanism
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws
from bayesprivmrf.mechanisms.reading.coded import CodedRecords, read_records
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable, label_key, require_hashable
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.planning import LARGEST_HIDDEN, Outlay, about, hidden_couplings, outlay_preview
from bayesprivmrf.privacy import Adjacency, DiscreteGaussian, NoiseDistribution, PrivacyGuarantee

if TYPE_CHECKING:
    import pandas as pd
    from pgmpy.models import DiscreteMarkovNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPlan:
    """The declared model, and the codes for missing and undeclared values, by variable."""

    specification: ModelSpecification
    missing: Mapping[Variable, int]
    other: Mapping[Variable, int]


@dataclass(frozen=True, kw_only=True)
class RecordMechanism[PlanT: RecordPlan, ExactT, ReleaseT](
    Mechanism["DiscreteMarkovNetwork | ModelSpecification", PlanT, ExactT, ReleaseT]
):
    """Abstract mechanism that reads records of declared variables.

    Parameters
    ----------
    adjacency
        The neighboring relation, `Adjacency` or its name.
    missing, other
        Declared state for missing values, and for undeclared values: a label, for all variables that have this state,
        or a mapping from variable to label. By default such values are an error.
    """

    runs_from_file: ClassVar[bool] = True
    takes_count: ClassVar[bool] = True

    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE
    missing: Label | Mapping[Variable, Label] | None = None
    other: Label | Mapping[Variable, Label] | None = None

    def __post_init__(self) -> None:
        self._keep(
            adjacency=Adjacency.checked(self.adjacency),
            missing=checked_redirect("missing", self.missing),
            other=checked_redirect("other", self.other),
        )

    @final
    def _with_cliques(
        self, network: DiscreteMarkovNetwork | ModelSpecification
    ) -> ModelSpecification:
        """Return the declared model, after a check that it has cliques."""
        specification = ModelSpecification.from_pgmpy(network)
        remedy = "declare `cliques`, or learn the pairs by SelectMeasure (`select-measure` on the command line)"
        must = "be given a network with cliques"
        got = "one that declares none"
        require(
            specification.cliques_declared, type(self).__name__, must, got, remedy, error=ModelError
        )
        must = "have at least one variable"
        require(specification.cliques, "network", must, "none", "declare one", error=ModelError)
        return specification

    @final
    def _require_plain(self, specification: ModelSpecification) -> None:
        """Refuse a model of one variable, or with impossible cells or parameters that cells share."""
        name = type(self).__name__
        variables = len(specification.domain.variables)
        must = "be given at least two variables"
        require(variables > 1, name, must, variables, "declare more", error=ModelError)
        # each coupling is learned separately
        must = "be given no impossible cells, ties, scores or levels"
        remedy = "declare the variables without them, or release sums over the tied cliques and fit those"
        is_plain = not (specification.impossible or any(specification.sharing))
        require(is_plain, name, must, "some", remedy, error=ModelError)

    @final
    def _declared(self, specification: ModelSpecification) -> RecordPlan:
        """Return the declared model with the codes for missing and undeclared values."""
        missing = redirect_codes("missing", self.missing, specification)
        other = redirect_codes("other", self.other, specification)
        scored = {one.variable for one in specification.ordinal}
        _refuse_scored("missing", missing, scored)
        _refuse_scored("other", other, scored)
        return RecordPlan(specification=specification, missing=missing, other=other)

    @final
    def _records(self, plan: RecordPlan, data: Any, count: Hashable | None) -> CodedRecords:
        """Return the codes of the records: sensitive, for use in `_read` only."""
        domain = plan.specification.domain
        return read_records(domain, data, missing=plan.missing, other=plan.other, count=count)


def require_records(records: int) -> None:
    """Refuse data without records if the number of records is public."""
    must = "have at least one record under replace-one neighbors, where their number is public"
    require(
        records,
        "data",
        must,
        "none",
        "use add-or-remove-one to protect the number too",
        error=DataError,
    )


class FrozenMapping[K, V](Mapping[K, V]):
    """An immutable mapping for the fields of frozen dataclasses; equal to a dict with the same items."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[K, V]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


def checked_redirect(name: str, redirect: Any) -> Any:
    """Return the checked setting `missing` or `other`: None, a label, or a frozen mapping from variable to label."""
    if isinstance(redirect, Mapping):
        require(redirect, name, "name a variable", "an empty mapping", "leave it out for none")
        return FrozenMapping(redirect)
    what = f"`{name}`, a declared state or a mapping from variable to state,"
    require_hashable(what, redirect, ArgumentError)
    return redirect


def redirect_codes(
    name: str, redirect: Label | Mapping[Variable, Label] | None, specification: ModelSpecification
) -> dict[Variable, int]:
    """Return the code for missing (or undeclared) values of each variable that has a state for them.

    Raises
    ------
    ArgumentError
        No variable has the label as a state.
    ModelError
        A mapping names an undeclared variable, or a label that is not one of its states.
    """
    domain = specification.domain
    if redirect is None:
        return {}
    if isinstance(redirect, Mapping):
        named = {domain.variables[domain.index(v)]: label for v, label in redirect.items()}
        return {variable: domain.code(variable, label) for variable, label in named.items()}
    codes = {
        variable: domain.code(variable, redirect)
        for variable in domain.variables
        if label_key(redirect) in domain.codes_of(variable)
    }
    remedy = "declare it as a state of the variables it is meant for"
    require(codes, name, "be a declared state", f"{redirect!r}, which no variable has", remedy)
    return codes


def _refuse_scored(name: str, codes: Mapping[Variable, int], scored: set[Variable]) -> None:
    """Raise an error if missing or undeclared values of a variable would count as one of its ordered states."""
    among = [variable for variable in codes if variable in scored]
    must = "not name a state of a variable in `ordinal`, where it would count as one more ordered state"
    seen = f"one of {among[0]!r}" if among else None
    remedy = "leave the variable out of `ordinal`, or fill or drop such values before the release, and report it"
    require(not among, f"`{name}`", must, seen, remedy)


# Share of the budget for a noisy number of records, where this number is private and some step depends on it
TOTAL_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningPlan[MapT](RecordPlan):
    """The public part of a release of couplings: variables, division of the budget, codes of redirected values.

    If the specification declares cliques, only couplings inside a clique are learned.

    Parameters
    ----------
    learning
        rho of the mechanism itself, nats.
    total_noise
        Noise distribution of the number of records; ``None`` if the number is public or not needed.
    is_total_public
        True if the number of records is public.
    ordered
        Variables whose states have scores.
    map
        What a mechanism plans beside: its map from records to a model, say.
    """

    learning: float
    total_noise: DiscreteGaussian | None
    is_total_public: bool
    ordered: frozenset[Variable]
    map: MapT

    @property
    def knows_total(self) -> bool:
        """True if the number of records is known, as a public or a noisy number."""
        return self.is_total_public or self.total_noise is not None

    @property
    def merge_rules(self) -> tuple[MergeRule, ...]:
        """Declared rules for merging states: their order, and the states for missing and undeclared values."""
        redirected = (self.missing, self.other)
        apart = {
            v: {codes[v] for codes in redirected if v in codes}
            for v in self.specification.domain.variables
        }
        return tuple(
            MergeRule(is_ordered=v in self.ordered, apart=tuple(sorted(codes)))
            for v, codes in apart.items()
        )


@dataclass(frozen=True, kw_only=True)
class LearningMechanism[MapT, ReleaseT](
    RecordMechanism[LearningPlan[MapT], CodedRecords, ReleaseT]
):
    """Abstract mechanism that learns from whole records under zero-concentrated privacy.

    A subclass supplies `_map`, `_outlays` and `_randomise`. Its `needs_total` is True if some step depends on the
    number of records n. Under replace-one neighbors n is public. Under add-or-remove-one it is private: a share of
    the budget then measures n with noise, and no other step may use the exact number.

    Parameters
    ----------
    rho
        Budget, nats, positive.
    adjacency, missing, other
        See `RecordMechanism`.
    """

    _runs_compiled: ClassVar[bool] = True
    _sought: ClassVar[str] = "couplings"
    _remedy: ClassVar[str] = "spend more, or declare fewer variables"
    _knows_order: ClassVar[bool] = False
    """True if the learner uses declared scores, as learners that merge states do."""

    rho: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(rho=positive_finite("rho", self.rho))

    def _preview(
        self, plan: LearningPlan[MapT], total: float | None
    ) -> tuple[pd.DataFrame, list[str]]:
        outlays = self._outlays(plan, total)
        if total is None:
            problem = None
        else:
            problem = self._hidden(outlays, about(total))
        return outlay_preview(outlays, total), [] if problem is None else [problem]

    def _total_outlay(self, plan: LearningPlan[MapT]) -> list[Outlay]:
        """Return the number of records as a step of a release, if it is measured with noise."""
        law = plan.total_noise
        rho = TOTAL_SHARE * self.rho
        if law is None:
            return []
        return [noisy_sums("number of records", rho, 1, law, copies=1)]

    @final
    def _warn(self, plan: LearningPlan[MapT], total: float | None) -> None:
        """Warn, from `_randomise`, if the noise hides nearly all couplings at a released number of records."""
        if total is None:
            problem = None
        else:
            problem = self._hidden(self._outlays(plan, total), about(total))
        if problem is not None:
            warn_without_raising(problem)

    def _hidden(self, outlays: Sequence[Outlay], what: str, also: str = "") -> str | None:
        """Return the text of a warning if the noise hides nearly all couplings, or if there is more to say."""
        size = hidden_couplings(outlays)
        if not size > LARGEST_HIDDEN and not also:
            return None
        # a coupling of 5 nats is nearly a deterministic relation of two variables
        if size < 5:
            below = f"below about {size:.2g} nats"
        else:
            below = "of any size"
        return f"at {what} the noise hides {self._sought} {below}{also}; take more records, {self._remedy}."

    @property
    def needs_total(self) -> bool:
        """True if the algorithm uses the number of records."""
        return True

    @final
    def _prepare(self, network: DiscreteMarkovNetwork | ModelSpecification) -> LearningPlan[MapT]:
        specification = ModelSpecification.from_pgmpy(network)
        ordered = frozenset[Variable]()
        if self._knows_order:  # the scores give the order of the states, and restrict nothing
            ordered = frozenset(one.variable for one in specification.ordinal)
            specification = replace(specification, ordinal=())
        self._require_plain(specification)
        learning = self.rho
        law = None
        if self.adjacency is Adjacency.ADD_OR_REMOVE_ONE and self.needs_total:
            (law,) = discrete_gaussian_laws([1.0], TOTAL_SHARE * self.rho, 1.0)
            # both parts add up to no more than rho
            learning = math.nextafter(
                float(Fraction(self.rho) - Fraction(TOTAL_SHARE * self.rho)), 0.0
            )
        # a missing state has no place in the order, and nothing is merged with it
        declared = self._declared(specification)
        plan: LearningPlan[Any] = LearningPlan(
            specification=specification,
            missing=declared.missing,
            other=declared.other,
            learning=learning,
            total_noise=law,
            is_total_public=self.adjacency is Adjacency.REPLACE_ONE,
            ordered=ordered,
            map=None,
        )
        return replace(plan, map=self._map(plan))

    @abstractmethod
    def _map(self, plan: LearningPlan[Any]) -> MapT:
        """Return what the mechanism plans beside the shared parts, after a check of its own public inputs."""

    @staticmethod
    def _total(plan: LearningPlan[Any], records: CodedRecords, source: NoiseSource) -> float | None:
        """Return n if it is public, else a noisy n of at least 1, or ``None`` if it was not measured."""
        if plan.total_noise is not None:
            return float(
                max(source.add(np.array([records.sensitive_number]), plan.total_noise)[0], 1)
            )
        if plan.is_total_public:
            return float(records.sensitive_number)
        return None

    def _guarantee(self, plan: LearningPlan[MapT]) -> PrivacyGuarantee | None:
        return PrivacyGuarantee(rho=self.rho, adjacency=self.adjacency)

    @final
    def _read(
        self, plan: LearningPlan[MapT], data: Any, count: Hashable | None = None
    ) -> CodedRecords:
        records = self._records(plan, data, count)
        if self.adjacency is Adjacency.REPLACE_ONE:
            require_records(records.sensitive_number)
        return records


def public_number(plan: LearningPlan[Any], records: CodedRecords) -> int | None:
    """Return the number of records where it is public, else ``None``."""
    if plan.is_total_public:
        return records.sensitive_number
    return None


def eligible_pairs(specification: ModelSpecification) -> np.ndarray:
    """Return the pairs to learn, those inside a declared clique or all: a boolean mask of shape (p, p)."""
    p = len(specification.domain.variables)
    eligible = np.full((p, p), not specification.cliques_declared)
    for scope in specification.scopes if specification.cliques_declared else ():
        eligible[np.ix_(scope, scope)] = True
    np.fill_diagonal(eligible, False)
    return eligible


def noisy_sums(
    step: str,
    rho: float,
    count: int,
    law: NoiseDistribution,
    copies: int,
    smallest: float | None = None,
) -> Outlay:
    """Return a step of a preview that measures sums with noise of one distribution.

    Parameters
    ----------
    step, rho, count
        Name of the step, its cost, and the number of sums.
    law, copies
        The noise, and how many sums the worst neighbor changes by one record, as for an audit.
    smallest
        About the smallest coupling that the noise would not hide.
    """
    deviation = law.standard_deviation
    draws = (Sums(law=law, copies=copies),)
    outlay = Outlay(step=step, rho=rho, count=count, noise_sd=deviation, draws=draws)
    return replace(outlay, smallest_coupling=smallest)
