"""Queries of tables: whole, coarsened, pooled over scopes, or weighted sums of their cells."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.files import Json
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.cliques import refuse_other_states
from bayesprivmrf.model.domain import Label, Variable, listed, require_fit
from bayesprivmrf.model.labels import encoded, labels, positions
from bayesprivmrf.model.tables import Clique, FloatArray, subsets
from bayesprivmrf.queries.query import (
    BoundQuery,
    Query,
    Sparse,
    Subset,
    cell_labels,
    checked_scope,
    declared_scope,
    one_per_column,
    whole_matrix,
)

type _Groups = tuple[tuple[Variable, tuple[tuple[Label, tuple[Label, ...]], ...]], ...]


def table(*scope: Variable) -> Query:
    """Count the records of each cell of a scope.

    Parameters
    ----------
    *scope
        Variables, in the order of the axes.

    Returns
    -------
    Query
        The query, with a row for each cell in C order.

    Raises
    ------
    ArgumentError
        The scope is empty or repeats a variable.

    Examples
    --------
    >>> import bayesprivmrf as bpm
    >>> network = bpm.declare({"smokes": ["no", "yes"], "ill": ["no", "yes"]}, [("smokes", "ill")])
    >>> table("ill").bind(network).labels
    ('ill=no', 'ill=yes')
    """
    return TableQuery(scope=checked_scope("table", scope))


def coarsened(
    *scope: Variable,
    groups: Mapping[Variable, Mapping[Label, Iterable[Label]]] | None = None,
    **named: Mapping[Label, Iterable[Label]],
) -> Query:
    """Count the records of each cell of a scope after states were merged into groups.

    Parameters
    ----------
    *scope
        Variables, in the order of the axes.
    groups
        For a variable, a mapping from the label of each group to the states in it. Each state is in exactly one
        group. A variable of the scope without groups keeps its states.
    **named
        The same for variables whose names are identifiers, as keyword arguments.

    Returns
    -------
    Query
        The query, with a row for each cell of the coarsened table in C order.

    Raises
    ------
    ArgumentError
        The scope is empty or repeats a variable, or the groups are not mappings. A state in no group or in two groups
        is refused when the query is bound to a model.

    Examples
    --------
    >>> import bayesprivmrf as bpm
    >>> network = bpm.declare({"age": ["<30", "30-60", ">60"]}, [("age",)])
    >>> merged = coarsened("age", age={"<60": ["<30", "30-60"], "60+": [">60"]}).bind(network)
    >>> merged.labels, merged.matrix.toarray().tolist()
    (('age=<60', 'age=60+'), [[1, 1, 0], [0, 0, 1]])
    """
    given = instance_of(
        "groups", {} if groups is None else groups, Mapping, "map variables to groups"
    )
    variables = checked_scope("coarsened", scope)
    merged = {**given, **named}
    for variable in merged:
        is_inside = variable in set(variables)
        require(
            is_inside, "coarsened", f"group variables in its scope {variables!r}", repr(variable)
        )
    is_once = len(merged) == len(given) + len(named)
    require(is_once, "coarsened", "be given the groups of each variable once", "some twice")
    return TableQuery(
        scope=variables, groups=tuple((v, _listed_groups(v, g)) for v, g in merged.items())
    )


def weighted(*scope: Variable, matrix: Any, labels: Iterable[Label] | None = None) -> Query:
    """Sum the cells of a scope's table with whole weights, one sum for each row of a matrix.

    Parameters
    ----------
    *scope
        Variables. The columns of the matrix are the cells of their table, in C order of the variables as written and
        of the declared states.
    matrix
        Whole numbers, shape (rows, cells), as a dense or a SciPy sparse array.
    labels
        Label of each row; by default the rows are numbered from 0.

    Returns
    -------
    Query
        The query, with a row for each row of the matrix.

    Raises
    ------
    ArgumentError
        The matrix does not hold whole numbers, its squared weights add up to more than 2^50 in a column, or there is
        not one label for each row.

    Examples
    --------
    >>> import bayesprivmrf as bpm
    >>> network = bpm.declare({"age": ["<30", "30-60", ">60"]}, [("age",)])
    >>> weighted("age", matrix=[[0, 1, 2]], labels=["score"]).bind(network).labels
    ('score',)
    """
    variables = checked_scope("weighted", scope)
    rows = whole_matrix(matrix)
    if labels is None:
        names = range(rows.shape[0])
    else:
        names = listed("`labels`", labels)
    must = f"name each of {rows.shape[0]} rows"
    count = len(names)
    require(count == rows.shape[0], "labels", must, f"{count} labels")
    return WeightedQuery(scope=variables, rows=tuple(map(str, names)), weights=rows)


def pooled(scopes: Iterable[Iterable[Variable]]) -> Query:
    """Sum the tables of several scopes, cell by cell.

    Parameters
    ----------
    scopes
        Scopes whose variables have the same states in the same order, axis by axis as written.

    Returns
    -------
    Query
        The query, with a row for each cell in C order. A record counts once for each scope.

    Raises
    ------
    ArgumentError
        There is no scope, or a scope is repeated.

    Examples
    --------
    >>> import bayesprivmrf as bpm
    >>> states = {f"m{t}": ["home", "work"] for t in (1, 2, 3)}
    >>> network = bpm.declare(states, [("m1", "m2"), ("m2", "m3")])
    >>> pooled([("m1", "m2"), ("m2", "m3")]).bind(network).labels
    ('home, home', 'home, work', 'work, home', 'work, work')
    """
    scopes = listed("`scopes`", scopes, error=ArgumentError)
    given = [listed("a pooled scope", scope, "write a tuple", ArgumentError) for scope in scopes]
    require(given, "scopes", "hold at least one scope", "none")
    tied = tuple(checked_scope("table", scope) for scope in given)
    must = "hold each scope once"
    seen = "one twice, which would count double"
    require(len(set(tied)) == len(tied), "scopes", must, seen)
    return PooledQuery(scopes=tied)


@final
@dataclass(frozen=True, kw_only=True)
class TableQuery(Query):
    """Query of the table of a scope, whose states may be merged into groups."""

    scope: Clique
    groups: _Groups = ()

    kind = "table"

    def _content(self, domain: Domain) -> dict[str, Json]:
        groups = [
            [
                domain.index(v),
                [[encoded(g), [domain.code(v, s) for s in states]] for g, states in merged],
            ]
            for v, merged in self.groups
        ]
        return {"scope": [domain.index(v) for v in self.scope], "groups": groups}

    @classmethod
    def _restored(cls, content: Any, domain: Domain) -> Query:
        groups = {}
        for place, merged in content.items("groups"):
            (position,) = positions([place], len(domain.variables))
            states = domain.states[position]
            names = labels([label for label, _ in merged])
            members = [
                [states[code] for code in positions(codes, len(states))] for _, codes in merged
            ]
            groups[domain.variables[position]] = dict(zip(names, members, strict=True))
        return coarsened(*_written_scope(content["scope"], domain), groups=groups)

    def _bind(self, model: ModelSpecification) -> BoundQuery:
        scope = declared_scope(model, self.scope)
        shape = self._shape(model)
        maps = [np.arange(len(model.domain.states_of(v))) for v in scope]
        for variable, merged in self.groups:
            axis = self.scope.index(variable)
            for group, (_, states) in enumerate(merged):
                maps[axis][[model.domain.code(variable, state) for state in states]] = group
        rows = np.ravel_multi_index(np.ix_(*maps), shape)
        matrix = one_per_column(rows, math.prod(shape))
        return BoundQuery(query=self, model=model, scopes=(scope,), matrix=matrix)

    def _shape(self, model: ModelSpecification) -> tuple[int, ...]:
        """Return the number of states of each variable of the coarsened table."""
        if self.groups:
            return self._domain(model).cardinalities
        return tuple(len(model.domain.states_of(v)) for v in self.scope)

    def _domain(self, model: ModelSpecification) -> Domain:
        """Return the domain of the coarsened table, in which groups are states."""
        states = {v: model.domain.states_of(v) for v in self.scope}
        for variable, merged in self.groups:
            given = Counter(model.domain.code(variable, s) for _, group in merged for s in group)
            for code, state in enumerate(states[variable]):
                what = f"the groups of {variable!r}"
                must = "hold each of its states once"
                seen = f"{state!r} {given[code] or 'no'} time{'' if given[code] == 1 else 's'}"
                require(given[code] == 1, what, must, seen, "put it into one group")
            states[variable] = tuple(label for label, _ in merged)
        return Domain.from_states(states)

    def _axes(self, model: ModelSpecification) -> tuple[Sequence[Any], Sequence[Sequence[Any]]]:
        return self.scope, self._domain(model).states

    def _labels(self, model: ModelSpecification) -> tuple[str, ...]:
        return cell_labels(self._domain(model).states, self.scope)

    def _total_weights(self, bound: BoundQuery) -> FloatArray:
        return np.ones(len(bound))

    def _effect_information(self, model: ModelSpecification) -> dict[Subset, float] | None:
        scope = [model.domain.index(v) for v in self.scope]
        cards = model.cardinalities
        given = self._shape(model)
        # a variable with all states merged into one group is summed over
        kept = {v: k for v, k in zip(scope, given, strict=True) if k > 1}
        if any(k < cards[v] for v, k in kept.items()):
            return None
        free = subsets(sorted(kept))
        return {one: 1 / math.prod(k for v, k in kept.items() if v not in one) for one in free}

    def __repr__(self) -> str:
        name = "coarsened" if self.groups else "table"
        names = ", ".join(map(repr, self.scope))
        shown = {v: {label: list(states) for label, states in merged} for v, merged in self.groups}
        return f"{name}({names}{f', groups={shown!r}' if shown else ''})"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedQuery(Query):
    """Query of weighted sums of a table's cells, one sum for each row of a matrix."""

    scope: Clique
    rows: tuple[str, ...]
    weights: Sparse

    kind = "weighted"

    def _content(self, domain: Domain) -> dict[str, Json]:
        entries = self.weights.tocoo()
        return {
            "scope": [domain.index(v) for v in self.scope],
            "labels": list(self.rows),
            "cells": self.weights.shape[1],
            "entries": [
                [*map(int, entry)] for entry in zip(*entries.coords, entries.data, strict=True)
            ],
        }

    @classmethod
    def _restored(cls, content: Any, domain: Domain) -> Query:
        from scipy.sparse import coo_array

        names = [str(name) for name in labels(content.items("labels"))]
        # a limit on the size of the matrix, before memory is taken for it
        cells = content.whole("cells", 1, 2**31)
        entries = np.array(content.items("entries"), dtype=np.int64).reshape(-1, 3).T
        matrix = coo_array((entries[2], (entries[0], entries[1])), (len(names), cells))
        return weighted(*_written_scope(content["scope"], domain), matrix=matrix, labels=names)

    def _bind(self, model: ModelSpecification) -> BoundQuery:
        scope = declared_scope(model, self.scope)
        cells = math.prod(len(model.domain.states_of(v)) for v in scope)
        given = self.weights.shape[1]
        must = f"have a column for each of the {cells} cells of {scope!r}"
        require_fit(given == cells, "matrix", must, given)
        return BoundQuery(query=self, model=model, scopes=(scope,), matrix=self.weights)

    def _labels(self, model: ModelSpecification) -> tuple[str, ...]:
        return self.rows

    def _total_weights(self, bound: BoundQuery) -> FloatArray | None:
        from scipy.sparse.linalg import lsqr

        weights = self.weights.astype(float)
        cells = np.ones(self.weights.shape[1])
        found = lsqr(weights.T, cells, atol=1e-14, btol=1e-14)[0]
        # the weighted sum is the number of records only if each record counts once, up to rounding
        if np.abs(weights.T @ found - cells).max() <= 1e-9:
            return found
        return None

    @property
    def _identity(self) -> tuple[Any, ...]:
        parts = self.weights.indptr, self.weights.indices, self.weights.data
        return (
            self.scope,
            self.rows,
            self.weights.shape,
            *(a.astype(np.int64).tobytes() for a in parts),
        )

    def __eq__(self, other: object) -> bool:
        if isinstance(other, WeightedQuery):
            return self._identity == other._identity
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"weighted({', '.join(map(repr, self.scope))}, {self.weights.shape[0]} rows)"


@final
@dataclass(frozen=True, kw_only=True)
class PooledQuery(Query):
    """Query of the sum of the tables of several scopes with the same states."""

    scopes: tuple[Clique, ...]

    kind = "pooled"

    def _content(self, domain: Domain) -> dict[str, Json]:
        return {"scopes": [[domain.index(v) for v in scope] for scope in self.scopes]}

    @classmethod
    def _restored(cls, content: Any, domain: Domain) -> Query:
        return pooled([_written_scope(scope, domain) for scope in content.items("scopes")])

    def _bind(self, model: ModelSpecification) -> BoundQuery:
        scopes = tuple(declared_scope(model, scope) for scope in self.scopes)
        for scope in scopes[1:]:
            refuse_other_states(model.domain, scopes[0], scope, "pooled scopes")
        cells = math.prod(len(model.domain.states_of(v)) for v in scopes[0])
        rows = np.tile(np.arange(cells), len(scopes))
        return BoundQuery(
            query=self, model=model, scopes=scopes, matrix=one_per_column(rows, cells)
        )

    def _axes(self, model: ModelSpecification) -> tuple[None, Sequence[Sequence[Any]]]:
        return None, [model.domain.states_of(v) for v in self.scopes[0]]

    def _labels(self, model: ModelSpecification) -> tuple[str, ...]:
        return cell_labels(self._axes(model)[1], None)

    def _total_weights(self, bound: BoundQuery) -> FloatArray:
        return np.full(len(bound), 1 / len(self.scopes))

    def __repr__(self) -> str:
        return f"pooled({list(self.scopes)!r})"


def _written_scope(written: Any, domain: Domain) -> Clique:
    """Return the variables at the positions in a file."""
    return tuple(domain.variables[v] for v in positions(written, len(domain.variables)))


def _listed_groups(variable: Variable, merged: Any) -> tuple[tuple[Label, tuple[Label, ...]], ...]:
    """Return the groups of a variable's states, in the order given."""
    must = "map each group's label to the states in it"
    remedy = "write {'young': ['<30', '30-60'], ...}"
    require(
        isinstance(merged, Mapping) and merged, f"the groups of {variable!r}", must, merged, remedy
    )
    listing = []
    for label, states in merged.items():
        what = f"the group {label!r} of {variable!r}"
        members = tuple(listed(what, states))
        require(members, what, "hold at least one state", "none")
        listing.append((label, members))
    return tuple(listing)
