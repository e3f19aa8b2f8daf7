"""Settings that several mechanisms share, their checks, and the base class of mechanisms that read records."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

from bayesprivmrf.checks import require
from bayesprivmrf.errors import DataError, ModelError
from bayesprivmrf.mechanisms.base import Mechanism
from bayesprivmrf.mechanisms.reading.coded import CodedRecords, read_records
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable, label_key
from bayesprivmrf.privacy import Adjacency

if TYPE_CHECKING:
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
    def _with_cliques(self, network: DiscreteMarkovNetwork | ModelSpecification) -> ModelSpecification:
        """Return the declared model, after a check that it has cliques."""
        specification = ModelSpecification.from_pgmpy(network)
        remedy = (
            "declare `cliques`, or learn the pairs by SelectMeasure (`select-measure` on the command line)"
        )
        must, got = "be given a network with cliques", "one that declares none"
        require(specification.cliques_declared, type(self).__name__, must, got, remedy, error=ModelError)
        must = "have at least one variable"
        require(specification.cliques, "network", must, "none", "declare one", error=ModelError)
        return specification

    @final
    def _require_plain(self, specification: ModelSpecification) -> None:
        """Refuse a model of one variable, or with impossible cells or parameters that cells share."""
        name, variables = type(self).__name__, len(specification.domain.variables)
        require(
            variables > 1,
            name,
            "be given at least two variables",
            variables,
            "declare more",
            error=ModelError,
        )
        if specification.impossible or any(specification.sharing):
            raise ModelError(
                f"{name} must be given no impossible cells, ties, scores or levels, because it learns each coupling "
                "separately; declare the variables without them, or release sums over the tied cliques and fit those."
            )

    @final
    def _declared(self, specification: ModelSpecification) -> dict[str, Any]:
        """Return the fields of a `RecordPlan` for a model."""
        return {
            "specification": specification,
            "missing": redirect_codes("missing", self.missing, specification),
            "other": redirect_codes("other", self.other, specification),
        }

    @final
    def _records(self, plan: RecordPlan, data: Any, count: Hashable | None) -> CodedRecords:
        """Return the codes of the records: sensitive, for use in `_read` only."""
        domain = plan.specification.domain
        return read_records(domain, data, missing=plan.missing, other=plan.other, count=count)


def require_records(records: int) -> None:
    """Refuse data without records if the number of records is public."""
    must = "have at least one record under replace-one neighbors, where their number is public"
    require(records, "data", must, "none", "use add-or-remove-one to protect the number too", error=DataError)


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
    must, kind = "be a declared state or a mapping from variable to state", f"a {type(redirect).__name__}"
    require(is_hashable(redirect), name, must, kind, "write the label of a state")
    return redirect


def is_hashable(value: Any) -> bool:
    """Return True if a value can be a label or the name of a column."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


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
