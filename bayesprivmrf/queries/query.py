r"""Queries as linear maps of a model's tables, :math:`y = A n`, with a matrix A of whole numbers.

A record x lies in one cell of each scope. It therefore adds one column to the answer: the sum over the query's scopes
S of the column of :math:`A` for :math:`x_S`. These columns determine the sensitivity of the query, which
`bayesprivmrf.queries.sensitivity` computes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from bayesprivmrf.checks import bare_array, refuse_axes, require
from bayesprivmrf.errors import ArgumentError, ModelTooLargeError
from bayesprivmrf.files import Json
from bayesprivmrf.kinds import Kinds, is_own
from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification, cells_within
from bayesprivmrf.model.domain import Variable, require_fit, require_name
from bayesprivmrf.model.specification import LARGEST_TABLE, NotTogetherError, over_scopes
from bayesprivmrf.model.tables import Clique, FloatArray, IntArray

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

# A sparse array of SciPy, which is only imported by functions that make one
type Sparse = Any

# Positions of variables, ascending
type Subset = tuple[int, ...]


class Query(ABC):
    """Abstract base class of queries, which name variables and states.

    Queries are immutable, and two equal queries compare equal.

    A subclass supplies ``_bind``, ``_labels`` and ``_total_weights``. A subclass that names its `kind` can be saved,
    and a mechanism can measure it. It also supplies

    - ``_content(domain)``: the arguments of the query as JSON values, with variables and states as positions in the
      domain;
    - ``_restored(content, domain)``: a class method that returns the query from the entries that ``_content`` wrote,
      given as `bayesprivmrf.release.codec.Fields`.

    A kind of another package is found through the entry-point group ``bayesprivmrf.queries``. The name of the entry
    point is the kind.

    Raises
    ------
    TypeError
        A class names a kind without ``_content`` and ``_restored``, or the kind of another class. The error is raised
        when the class is created.
    """

    kind: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in vars(cls):
            if any(
                hook.__qualname__.startswith("Query.") for hook in (cls._content, cls._restored)
            ):
                raise TypeError(
                    f"{cls.__name__} must supply `_content` and `_restored`, to be saved."
                )
            QUERY_KINDS.add(cls.kind, cls)

    def _content(self, domain: Domain) -> dict[str, Json]:
        """Return the arguments of the query as JSON values."""
        raise NotImplementedError

    @classmethod
    def _restored(cls, content: Any, domain: Domain) -> Query:
        """Return the query that `_content` described."""
        raise NotImplementedError

    @final
    def bind(self, network: DiscreteMarkovNetwork | ModelSpecification) -> BoundQuery:
        """Bind the query to a declared model, which determines its matrix, row labels and answers.

        Raises
        ------
        ModelError
            A variable or state is not declared, or a scope lies in no clique of the model. The model of a release has
            the scopes that were measured.
        ModelTooLargeError
            A scope's table has more than 10^8 cells.
        """
        model = ModelSpecification.from_pgmpy(network)
        asked = self._asked_of(model)
        bound = self._bind(asked)
        if not is_own(type(self)):  # the tests of this package check its own queries
            bound.check()
        if asked is model:
            return bound
        return replace(bound, model=model, asked_of=asked)

    @final
    def _asked_of(self, model: ModelSpecification) -> ModelSpecification:
        """Return the model whose cliques determine the rows: the declared cliques, if they hold the query's scopes.

        Other queries that were measured with this one may have added tables to the model
        (`measured_model`), which must not add rows to this query.
        """
        if model.interactions is None:
            return model
        try:
            self._bind(model.believed)
        except NotTogetherError:
            return model
        return model.believed

    @abstractmethod
    def _bind(self, model: ModelSpecification) -> BoundQuery:
        """Return the query bound to a model."""

    @abstractmethod
    def _labels(self, model: ModelSpecification) -> tuple[str, ...]:
        """Return a label for each row, which says what it counts."""

    def _axes(
        self, model: ModelSpecification
    ) -> tuple[Sequence[Any] | None, Sequence[Sequence[Any]]]:
        """Return the names and labels of the axes whose cells are the rows; None for axes without names."""
        return None, [self._labels(model)]

    @abstractmethod
    def _total_weights(self, bound: BoundQuery) -> FloatArray | None:
        """Return weights that make a sum of the rows the number of records, shape (rows,); None if unknown."""

    def _effect_information(self, model: ModelSpecification) -> dict[Subset, float] | None:
        """Return the information about the effect of each set of variables; None if the answers mix effects.

        This is the diagonal of the query's information matrix in `bayesprivmrf.queries.forecast`. A set that is left
        out has no information.
        """
        return None


# Kinds of queries that can be saved and read
QUERY_KINDS: Kinds[Query] = Kinds("bayesprivmrf.queries")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BoundQuery:
    """Query bound to a declared model.

    Parameters
    ----------
    query
        The query.
    model
        The declared model.
    scopes
        The scopes that the query reads, with their axes as written.
    matrix
        Sparse matrix of whole numbers, shape (rows, cells), with a row for each measured number. Its columns are the
        cells of the scopes, scope after scope, in C order of the axes and of the declared states.
    asked_of
        The model that determines the row labels, if a larger model has taken its place.
    """

    query: Query
    model: ModelSpecification
    scopes: tuple[Clique, ...]
    matrix: Sparse
    asked_of: ModelSpecification | None = None

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Label of each row."""
        return self.query._labels(self.asked_of or self.model)

    @cached_property
    def positions(self) -> tuple[tuple[int, ...], ...]:
        """Each scope as variable positions."""
        return tuple(tuple(self.model.domain.index(v) for v in scope) for scope in self.scopes)

    @cached_property
    def blocks(self) -> tuple[Sparse, ...]:
        """Columns of the matrix for each scope, shape (rows, cells of the scope)."""
        offsets = CliqueTables.offsets_of(self.model.domain, self.scopes)
        columns = self.matrix.tocsc()
        return tuple(columns[:, start:stop] for start, stop in pairwise(offsets))

    @cached_property
    def ends(self) -> tuple[FloatArray, FloatArray]:
        """Smallest and largest answer of one record, shape (rows,) each; bounds if there are several scopes."""
        sides = [
            [block.min(axis=1).toarray(), block.max(axis=1).toarray()] for block in self.blocks
        ]
        least, most = np.sum(sides, axis=0, dtype=float)
        return least.reshape(-1), most.reshape(-1)

    @cached_property
    def in_cliques(self) -> Sparse:
        """Matrix on the cells of all the model's tables, shape (rows, model size).

        Each scope is read from the first clique that holds it. A ModelError is raised if no clique does, which is
        possible if no cliques were declared.
        """
        from scipy.sparse import csr_array

        model = self.model
        # each column of the query becomes a column of the clique that holds its scope
        matrix = self.matrix.tocsc()
        parts = [np.zeros((3, 0), dtype=np.int64)]
        begins = CliqueTables.offsets_of(model.domain, self.scopes)[:-1]
        for scope, begin in zip(self.positions, begins, strict=True):
            home = model.parent(scope)
            column = begin + cells_within(model.cardinalities, scope, model.scopes[home]).ravel()
            entries = np.diff(matrix.indptr)[column]
            place = np.arange(entries.sum()) + np.repeat(
                matrix.indptr[column] - np.cumsum(entries) + entries, entries
            )
            cells = model.offsets[home] + np.repeat(np.arange(column.size), entries)
            parts.append(np.stack([matrix.indices[place], cells, matrix.data[place]]))
        rows, cells, weights = np.concatenate(parts, axis=1)
        return csr_array((weights, (rows, cells)), (len(self), model.size))

    @cached_property
    def is_table(self) -> bool:
        """True if the query is the whole table of one scope, cell by cell in C order."""
        if len(self.scopes) != 1 or self.matrix.shape[0] != self.matrix.shape[1]:
            return False
        entries = self.matrix.tocoo()
        cells = np.arange(len(self))
        return bool((entries.data == 1).all()) and all(
            np.array_equal(at, cells) for at in entries.coords
        )

    @cached_property
    def total_weights(self) -> FloatArray | None:
        """Weights that make a sum of the rows the number of records, shape (rows,); None if there are none."""
        return self.query._total_weights(self)

    def check(self) -> None:
        """Raise an error if the labels or the weights that a query's class supplies do not fit its matrix.

        Weights w give the number of records if every record adds 1 to w'(answers). They are accepted if A'w is
        constant on the possible cells of each clique and these constants add up to 1.

        Raises
        ------
        ModelError
            A row has no label, or the weights do not give the number of records.
        """
        rounding = 1e-6  # largest error of a sum of weights that counts as rounding
        name = type(self.query).__name__
        rows = len(self)
        given = math.prod(map(len, self.query._axes(self.model)[1]))
        must = f"have a label for each of the {rows} rows of its matrix"
        require_fit(given == rows, f"{name}._labels", must, given, "correct `_labels`")
        if self.total_weights is None:
            return
        weights = np.asarray(self.total_weights, dtype=float)
        where = f"{name}._total_weights"
        must = "give the number of records"
        remedy = "correct them, or return None if they are not known"
        seen = f"an array of shape {weights.shape}"
        require_fit(weights.shape == (rows,), where, must, seen, remedy)
        added = np.ravel(self.in_cliques.T @ weights)
        possible = self.model.possible
        if possible is None:
            possible = np.ones(len(added), bool)
        parts = [
            added[start:stop][possible[start:stop]] for start, stop in pairwise(self.model.offsets)
        ]
        parts = [part for part in parts if part.size]
        # a record adds one of each clique's values, so that constants make the sum the same for all records
        is_constant = all(np.ptp(part) < rounding for part in parts)
        fits = is_constant and abs(sum(float(part[0]) for part in parts) - 1.0) < rounding
        require_fit(fits, where, must, "others", remedy)

    @cached_property
    def is_pooled(self) -> bool:
        """True if a row reads more than one scope."""
        read = sum((np.diff(block.tocsr().indptr) > 0).astype(int) for block in self.blocks)
        return bool(np.max(read, initial=0) > 1)

    def answers(self, tables: CliqueTables | np.ndarray) -> np.ndarray:
        """Return the query's answers on the model's tables of counts.

        Parameters
        ----------
        tables
            Tables of the model's cliques, or their flat view, shape (..., size).

        Returns
        -------
        ndarray
            Shape (..., rows); whole numbers where the counts are.
        """
        if isinstance(tables, CliqueTables):
            flat = tables.flat
        else:
            flat = bare_array("tables", tables)
        must = f"hold the {self.model.size} cells of the model's cliques"
        require(flat.shape[-1:] == (self.model.size,), "tables", must, f"shape {flat.shape}")
        answers = self.in_cliques @ flat.reshape(-1, flat.shape[-1]).T
        return answers.T.reshape(*flat.shape[:-1], len(self))

    def __len__(self) -> int:
        return self.matrix.shape[0]

    def __repr__(self) -> str:
        return f"BoundQuery({self.query!r}, {len(self)} numbers)"


def checked_scope(name: str, scope: Sequence[Any]) -> Clique:
    """Return the variables of a query's scope.

    Raises
    ------
    ArgumentError
        The scope is empty, a variable is not hashable, or a variable is repeated.
    """
    example = f"write {name}('a', 'b')"
    require(scope, name, "name at least one variable", "none", example)
    for variable in scope:
        require_name(f"names of variables in `{name}`", variable, ArgumentError)
    require(len(set(scope)) == len(scope), name, "name each variable once", tuple(scope))
    return tuple(scope)


def declared_scope(model: ModelSpecification, scope: Clique) -> Clique:
    """Return the variables of a scope under their declared names.

    Raises
    ------
    ModelError
        A variable is not declared, or no declared clique holds all of them.
    ModelTooLargeError
        The scope's table is too large.
    """
    positions = [model.domain.index(v) for v in scope]
    if model.cliques_declared:
        model.parent(positions)
    cells = math.prod(model.cardinalities[v] for v in positions)
    seen = f"{cells:,} cells"
    remedy = "take fewer variables"
    must = f"have at most {LARGEST_TABLE:,}"
    error = ModelTooLargeError
    require(cells <= LARGEST_TABLE, f"the table of {scope!r}", must, seen, remedy, error=error)
    return tuple(model.domain.variables[v] for v in positions)


def measured_model(model: ModelSpecification, queries: Iterable[Query]) -> ModelSpecification:
    """Return a declared model over the tables that hold its cliques and all scopes of some queries.

    The model that is believed stays the declared one. If the cliques hold all scopes, or none were declared, it is
    the result.

    Raises
    ------
    ArgumentError, ModelError
        A query does not fit the declared variables.
    ModelTooLargeError
        A scope's table has more than 10^8 cells.

    Examples
    --------
    >>> from bayesprivmrf.queries import table
    >>> domain = Domain.from_states({"jan": [0, 1], "jun": [0, 1], "dec": [0, 1]})
    >>> chain = ModelSpecification(domain=domain, cliques=(("jan", "jun"), ("jun", "dec")))
    >>> measured = measured_model(chain, [table("jan", "dec")])
    >>> measured.cliques, measured.believed == chain
    ((('jan', 'jun'), ('jun', 'dec'), ('jan', 'dec')), True)
    """
    # without declared cliques a query may read any scope
    free = ModelSpecification(domain=model.domain, cliques=model.cliques, cliques_declared=False)
    beyond: list[Clique] = []
    for query in queries:
        try:
            query._bind(model)
        except NotTogetherError:
            beyond += query._bind(free).scopes
    return over_scopes(model, beyond)


def one_per_column(rows: IntArray, count: int) -> Sparse:
    """Return the sparse matrix with a single 1 in each column, in the given row."""
    from scipy.sparse import csr_array

    rows = np.ravel(rows)
    ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))])
    return csr_array(
        (np.ones_like(rows), np.argsort(rows, kind="stable"), ends), (count, rows.size)
    )


def whole_matrix(matrix: Any) -> Sparse:
    """Return a sparse matrix of whole weights in canonical form: sorted indices and no explicit zeros."""
    from scipy.sparse import csr_array, issparse

    refuse_axes("matrix", matrix)
    if issparse(matrix):
        given = matrix
    else:
        given = bare_array("matrix", matrix)
    must = "be a two-dimensional array of numbers with at least one row"
    is_matrix = given.ndim == 2 and given.dtype.kind in "biuf" and given.shape[0]
    require(is_matrix, "matrix", must, f"shape {given.shape} of {given.dtype}")
    rows: Sparse = csr_array(given)
    rows.sum_duplicates()
    is_whole = rows.data == np.floor(rows.data)
    remedy = "multiply all weights by a number that makes them whole"
    broken = ", ".join(map(str, rows.data[~is_whole][:1]))
    require(not broken, "matrix", "hold whole numbers", broken, remedy)
    # up to this limit, sums of squared weights are exact in floats, and sums over records in 64 bits
    largest = abs(rows.astype(float)).power(2).sum(axis=0).max(initial=0)
    must = "have columns whose squares add up to at most 2^50"
    require(largest <= 2**50, "matrix", must, largest, "divide the matrix by a number")
    rows = rows.astype(np.int64)
    rows.eliminate_zeros()
    rows.sort_indices()
    # mechanisms are calibrated for these weights
    for part in (
        rows.data,
        rows.indices,
        rows.indptr,
    ):
        part.flags.writeable = False
    return rows


def cell_labels(
    axes: Sequence[Sequence[Any]], variables: Sequence[Variable] | None
) -> tuple[str, ...]:
    """Return a label for each cell in C order, such as ``"smokes=no, age=<30"``; without variables, the states."""
    names = ["" if variables is None else f"{v}=" for v in (variables or axes)]
    return tuple(", ".join(map(str.__add__, names, map(str, cell))) for cell in product(*axes))
