"""Immutable tables of cliques, and sums, views and labels of tables."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import bare_array, whole_number
from bayesprivmrf.errors import ModelError
from bayesprivmrf.escapes import printable
from bayesprivmrf.model.domain import Domain, Variable, checked_domain, listed, require_fit
from bayesprivmrf.model.labels import aligned

if TYPE_CHECKING:
    import xarray as xr

DOUBLE = 8  # bytes of a number in a float array

type Clique = tuple[Variable, ...]
type FloatArray = np.ndarray[Any, np.dtype[np.float64]]
type IntArray = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CliqueTables(Mapping[Clique, np.ndarray]):
    """Tables of counts, noisy counts, potentials or marginals, one for each clique.

    Parameters
    ----------
    domain
        Variables and states.
    cliques
        The cliques. The axes of a table are the variables of its clique, in order.
    flat
        All cells, clique after clique, each table in C order, shape (cells,). The array is copied, and the copy is
        read-only.

    Raises
    ------
    ModelError
        `flat` has another number of cells, or a variable is not declared.

    Notes
    -----
    ``tables["a", "b"]`` is a read-only view with the axes a and b, in any declared order of the clique.

    Examples
    --------
    >>> domain = Domain.from_states({"a": ["x", "y"], "b": [0, 1, 2]})
    >>> tables = CliqueTables(domain=domain, cliques=(("a", "b"),), flat=range(6))
    >>> tables["b", "a"].tolist()
    [[0, 3], [1, 4], [2, 5]]
    """

    domain: Domain
    cliques: tuple[Clique, ...]
    flat: np.ndarray

    def __post_init__(self) -> None:
        checked_domain(self.domain)
        cliques = tuple(tuple(listed("a clique", one)) for one in listed("`cliques`", self.cliques))
        object.__setattr__(self, "cliques", cliques)
        flat = bare_array("flat", self.flat).copy().ravel()
        size = self.offsets[-1]
        require_fit(
            flat.size == size, "flat", f"hold {size} cells, those of all cliques", flat.size
        )
        flat.flags.writeable = False
        object.__setattr__(self, "flat", flat)

    @staticmethod
    def shapes_of(domain: Domain, cliques: Sequence[Clique]) -> tuple[tuple[int, ...], ...]:
        """Return the shape of each clique's table."""
        cardinalities = domain.cardinalities
        return tuple(tuple(cardinalities[domain.index(v)] for v in clique) for clique in cliques)

    @staticmethod
    def offsets_of(domain: Domain, cliques: Sequence[Clique]) -> tuple[int, ...]:
        """Return the position of each table's first cell in the flat view, and the total size last."""
        return tuple(accumulate(map(math.prod, CliqueTables.shapes_of(domain, cliques)), initial=0))

    @classmethod
    def from_arrays(
        cls, domain: Domain, cliques: Sequence[Clique], arrays: Sequence[Any]
    ) -> CliqueTables:
        """Return tables from one array for each clique, with labels or with axes in the clique's order."""
        scopes = [tuple(listed("a clique", one)) for one in listed("`cliques`", cliques)]
        domain = checked_domain(domain)
        given = listed("`arrays`", arrays)
        must = f"hold one table for each of {len(scopes)} cliques"
        require_fit(len(given) == len(scopes), "arrays", must, len(given))
        parts: list[np.ndarray] = []
        for clique, array in zip(scopes, given, strict=True):
            states = [domain.states_of(v) for v in clique]
            parts.append(aligned(f"the table of {clique!r}", array, clique, states).ravel())
        return cls(
            domain=domain,
            cliques=tuple(scopes),
            flat=np.concatenate(parts) if parts else np.zeros(0),
        )

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Position of each table's first cell in `flat`, followed by the total size."""
        return self.offsets_of(self.domain, self.cliques)

    def table(self, position: int) -> np.ndarray:
        """Return the read-only table of the clique at a position."""
        position = whole_number("position", position, 0, len(self.cliques) - 1)
        (shape,) = self.shapes_of(self.domain, (self.cliques[position],))
        return self.flat[self.offsets[position] : self.offsets[position + 1]].reshape(shape)

    def __getitem__(self, clique: Any) -> np.ndarray:
        if isinstance(clique, tuple):
            wanted = clique
        else:
            wanted = (clique,)
        for position, own in enumerate(self.cliques):
            if own == wanted:
                return self.table(position)
            if len(own) == len(wanted) and set(own) == set(wanted):
                return self.table(position).transpose([own.index(v) for v in wanted])
        raise KeyError(clique)

    def __iter__(self) -> Iterator[Clique]:
        return iter(self.cliques)

    def __len__(self) -> int:
        return len(self.cliques)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CliqueTables):
            return NotImplemented
        same_place = self.domain == other.domain and self.cliques == other.cliques
        is_float = self.flat.dtype.kind == "f"
        return same_place and bool(np.array_equal(self.flat, other.flat, equal_nan=is_float))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"CliqueTables({len(self)} tables, {self.flat.size} cells)"

    def to_xarray(self, clique: Any, name: str | None = None) -> xr.DataArray:
        """Return the table of a clique as a DataArray with the declared names and states as dims and coords."""
        if isinstance(clique, tuple):
            wanted = clique
        else:
            wanted = (clique,)
        must = "be the text that names the array, or None"
        require_fit(isinstance(name, str | None), "name", must, f"a {type(name).__name__}")
        try:
            table = self[wanted]
        except (KeyError, TypeError, ValueError):
            raise ModelError(
                f"`clique` must be one of {', '.join(map(repr, self.cliques))}."
            ) from None
        return labelled(self.domain, wanted, table, name)


def subsets(members: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Yield all subsets of variables, from the empty set to the whole, with the variables in the given order.

    Examples
    --------
    >>> list(subsets([2, 0]))
    [(), (2,), (0,), (2, 0)]
    """
    ordered = tuple(members)
    return chain.from_iterable(combinations(ordered, size) for size in range(len(ordered) + 1))


def parent(scopes: Iterable[Sequence[Variable]], scope: Sequence[Variable]) -> int | None:
    """Return the position of the first scope that contains all variables of another; None if there is none.

    Examples
    --------
    >>> parent([("a", "b"), ("b", "c")], ("c",))
    1
    """
    wanted = set(scope)
    return next((position for position, holder in enumerate(scopes) if wanted <= set(holder)), None)


def project(table: np.ndarray, scope: Sequence[Variable], target: Sequence[Variable]) -> np.ndarray:
    """Sum a table over the variables outside a target scope.

    Parameters
    ----------
    table
        The table, whose last axes are the variables of `scope`. Earlier axes are kept.
    scope, target
        Variables of the table, and the variables to keep, in the order of the result's axes.

    Examples
    --------
    >>> project(np.arange(6).reshape(2, 3), ("a", "b"), ("b",)).tolist()
    [3, 5, 7]
    """
    # axes before those of the scope, such as draws, are kept
    lead = table.ndim - len(scope)
    outside = tuple(lead + axis for axis, variable in enumerate(scope) if variable not in target)
    inside = [variable for variable in scope if variable in target]
    if outside:
        kept = table.sum(axis=outside)
    else:
        kept = table
    return kept.transpose([*range(lead), *(lead + inside.index(variable) for variable in target)])


def expand(table: np.ndarray, scope: Sequence[Variable], target: Sequence[Variable]) -> np.ndarray:
    """Return a view of a table over `scope` that broadcasts against tables over a larger scope.

    Examples
    --------
    >>> expand(np.zeros((3, 2)), ("b", "a"), ("a", "c", "b")).shape
    (2, 1, 3)
    """
    ordered = table.transpose([scope.index(variable) for variable in target if variable in scope])
    return ordered[tuple(slice(None) if variable in scope else np.newaxis for variable in target)]


def cells_within(
    cardinalities: Sequence[int], scope: Sequence[int], target: Sequence[int]
) -> IntArray:
    """Return the number of the cell over `scope` that contains each cell of a table over `target`.

    Parameters
    ----------
    cardinalities
        Number of states of each variable.
    scope, target
        Variable positions. All variables of `scope` are in `target`. Cells are numbered in C order.

    Examples
    --------
    >>> cells_within((2, 3), (0,), (1, 0)).tolist()
    [0, 1, 0, 1, 0, 1]
    """
    shape = [cardinalities[v] for v in scope]
    cells = np.arange(math.prod(shape)).reshape(shape)
    return np.broadcast_to(
        expand(cells, scope, target), [cardinalities[v] for v in target]
    ).flatten()


def plain_array(labels: Sequence[Hashable]) -> np.ndarray:
    """Return labels or names as an array of their common type, or of objects if they have several types."""
    objects = np.empty(len(labels), dtype=object)
    objects[:] = labels
    if len({type(label) for label in labels}) == 1 and isinstance(
        labels[0], str | int | float | bool
    ):
        plain = np.array(labels)
        # no label may have been rounded or truncated
        if plain.dtype.kind in "UifbO" and plain.tolist() == list(labels):
            return plain
    return objects


def labelled(
    domain: Domain, variables: Sequence[Variable], table: np.ndarray, name: str | None
) -> xr.DataArray:
    """Return a table as a DataArray with the axes `variables` and their states as coordinates in declared order.

    `axis_names` gives the names of the dimensions, because xarray keeps no index for a name that is not text. If one
    of them is `name`, the array gets an underscore, because a frame or data set of it needs different names.
    """
    import xarray as xr
    from xarray.indexes import PandasIndex

    named = dict(zip(domain.variables, axis_names(domain), strict=True))
    dims = tuple(named[v] for v in variables)
    while name in dims:
        name = f"{name}_"
    labels = {
        d: xr.Variable((d,), plain_array(domain.states_of(v)))
        for d, v in zip(dims, variables, strict=True)
    }
    indexes = {d: PandasIndex(labels[d].values, d) for d in dims}
    coords = xr.Coordinates(labels, indexes=indexes)
    return xr.DataArray(np.array(table), dims=dims, coords=coords, name=name)


def free_names(names: Iterable[Any], taken: Collection[str]) -> list[Any]:
    """Return the names of variables beside other names; one that another thing has gets an underscore.

    A result thus keeps both: a variable ``status`` is the level ``status_`` of a table with a column ``status``.

    Parameters
    ----------
    names
        Names of variables, whose texts are distinct.
    taken
        Names that mean something else.

    Examples
    --------
    >>> free_names(["status", "status_", 0], {"status", "note"})
    ['status__', 'status_', 0]
    """
    declared = list(names)
    used = {*taken, *map(str, declared)}
    free = []
    for name in declared:
        own = name
        if str(name) in taken:
            own = f"{name}_"
            while own in used:
                own += "_"
        free.append(own)
    return free


def axis_names(domain: Domain) -> tuple[str, ...]:
    """Return the text of each variable's name, which names its axis in tables; these texts are distinct.

    Control characters are escaped, because xarray prints these names as they are.

    Examples
    --------
    >>> from bayesprivmrf.model import Domain
    >>> axis_names(Domain.from_states({0: [3, 1], "a": [0, 1]}))
    ('0', 'a')
    """
    names: list[str] = []
    for variable in domain.variables:
        name = printable(str(variable))
        while name in names:  # an escape may imitate another name
            name += "_"
        names.append(name)
    return tuple(names)
