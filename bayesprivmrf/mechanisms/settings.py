"""Settings that several mechanisms share, their checks, and the base class of mechanisms that read records."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

from bayesprivmrf.checks import is_labeled, positive_finite, require, whole_number
from bayesprivmrf.errors import ArgumentError, DataError, ModelError
from bayesprivmrf.mechanisms.base import Mechanism
from bayesprivmrf.mechanisms.reading.coded import CodedRecords, read_records
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable, label_key, listed
from bayesprivmrf.model.tables import Clique
from bayesprivmrf.privacy import Adjacency
from bayesprivmrf.queries import Query

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
        if not specification.cliques_declared:
            raise ModelError(
                f"{type(self).__name__} must be given a network with cliques, got one that declares none; declare "
                "`cliques`, or learn the pairs by SelectMeasure (`select-measure` on the command line)."
            )
        if not specification.cliques:
            raise ModelError("the network must have at least one variable, got none; declare one.")
        return specification

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
    if records == 0:
        raise DataError(
            "`data` must have at least one record under replace-one neighbors, where the number of records is "
            "public, got none; use add-or-remove-one to protect the number as well."
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


def checked_weights(
    weights: Any, queries: Sequence[Query] | None = None
) -> FrozenMapping[Clique, float] | tuple[float, ...] | None:
    """Return checked weights: a mapping from tuples of variables to numbers, or one number for each query."""
    if weights is None:
        return None
    if queries is not None:
        if isinstance(weights, str | Set) or is_labeled(weights) or not isinstance(weights, Iterable):
            raise ArgumentError(
                f"`weights` must be one positive number for each of `queries`, in their order, got a "
                f"{type(weights).__name__}; write a list."
            )
        given = listed("`weights`", weights)
        checked = tuple(positive_finite(f"weights[{at}]", weight) for at, weight in enumerate(given))
        if len(checked) != len(queries):
            raise ArgumentError(
                f"`weights` must be one number for each of {len(queries)} queries, got {len(checked)}; leave them "
                "out for the split of least forecast variance."
            )
        return checked
    if not isinstance(weights, Mapping):
        raise ArgumentError(
            f"`weights` must be a mapping from clique to a positive share, got {type(weights).__name__}; "
            "leave them out for equal shares."
        )
    keyed = {key if isinstance(key, tuple) else (key,): value for key, value in weights.items()}
    return FrozenMapping({clique: positive_finite(f"weights[{clique!r}]", w) for clique, w in keyed.items()})


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
    by_scope: dict[frozenset[Variable], float] = {}
    known = {frozenset(clique) for clique in cliques}
    for clique, weight in weights.items():
        scope = frozenset(clique)
        if scope not in known or scope in by_scope:
            raise ArgumentError(
                f"`weights` must have each measured table once, got {clique!r}, which is no measured table or is "
                f"there twice; the measured tables are {', '.join(map(repr, cliques))}."
            )
        by_scope[scope] = weight
    for clique in cliques:
        if frozenset(clique) not in by_scope:
            raise ArgumentError(
                f"`weights` must have every measured table, got none for {clique!r}; add one."
            )
    total = sum(by_scope.values())
    found = tuple(by_scope[frozenset(clique)] / total for clique in cliques)
    if not min(found) > 0:
        raise ArgumentError(
            f"`weights` must leave every table a share above zero, got {min(by_scope.values())!r} in a sum of "
            f"{total!r}; choose weights nearer to one."
        )
    return found


# Largest bound on the rows of one person; arbitrary, far more than any use
LARGEST_BOUND = 2**20


def checked_bound(person: Any, at_most: Any) -> int | None:
    """Return the setting `at_most`, which goes with `person`."""
    if (person is None) != (at_most is None):
        raise ArgumentError(
            f"`person` and `at_most` must be given together, got {person!r} and {at_most!r}, because noise hides a "
            "person only if the number of their rows is bounded; write person='id', at_most=3, say."
        )
    if person is None:
        return None
    try:
        hash(person)
    except TypeError:
        raise ArgumentError(
            f"`person` must be the name of a column, got a {type(person).__name__}; write person='id', say."
        ) from None
    return whole_number(
        "at_most", at_most, 1, LARGEST_BOUND, remedy="it is the number of rows of one person that are counted"
    )


def checked_grid(grid: Any, at_most: int | None, queries: Any) -> int | None:
    """Return the setting `grid`, which goes with `person`, `at_most` and `queries`."""
    if grid is None:
        return None
    if at_most is None or queries is None:
        raise ArgumentError(
            "`grid` must be given with `person`, `at_most` and `queries`, because the counted rows of one person "
            "share its units, and the release holds sums of units; write queries=[queries.table(...)], say."
        )
    remedy = "a person with more rows than units would have no weight; 720720 divides by all of 1 to 16"
    return whole_number("grid", grid, at_most, LARGEST_BOUND, remedy=remedy)


def checked_redirect(name: str, redirect: Any) -> Any:
    """Return the checked setting `missing` or `other`: None, a label, or a frozen mapping from variable to label."""
    if isinstance(redirect, Mapping):
        require(redirect, name, "name a variable", "an empty mapping", "leave it out for none")
        return FrozenMapping(redirect)
    try:
        hash(redirect)
    except TypeError:
        raise ArgumentError(
            f"`{name}` must be a declared state or a mapping from variable to state, got {type(redirect).__name__}; "
            "write the label of a state."
        ) from None
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


def checked_workload(workload: Iterable[Clique] | None) -> tuple[Clique, ...] | None:
    """Return a checked workload; each table is a tuple of two variables or more."""
    if workload is None:
        return None
    example = "write [('age', 'smokes'), ...], from a shell [[\"age\", \"smokes\"]]"
    if isinstance(workload, str | bytes) or hasattr(workload, "shape") or not isinstance(workload, Iterable):
        raise ArgumentError(
            f"`workload` must be a list of tables, got a {type(workload).__name__}; {example}."
        )
    found = []
    for scope in workload:
        if isinstance(scope, str | bytes) or not isinstance(scope, Iterable):
            raise ArgumentError(f"`workload` must hold tuples of variables, got {scope!r}; {example}.")
        table = tuple(listed("a table of `workload`", scope))
        if len(table) < 2 or any(table.count(v) > 1 for v in table):
            raise ArgumentError(
                f"`workload` must hold tables of two or more different variables, got {table!r}; single variables "
                "are measured anyway."
            )
        found.append(table)
    require(found, "workload", "contain at least one table", "none", "leave it out for all")
    return tuple(found)
