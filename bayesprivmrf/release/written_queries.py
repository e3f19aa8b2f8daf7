"""How queries stand in a file: variables and states as positions in the domain, other labels as themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesprivmrf.errors import ReleaseFileError
from bayesprivmrf.model import Domain
from bayesprivmrf.queries import Query, coarsened, parities, pooled, table, weighted
from bayesprivmrf.queries.contrasts import ParityQuery
from bayesprivmrf.queries.kinds import PooledQuery, TableQuery, WeightedQuery
from bayesprivmrf.release.codec import Fields, positions
from bayesprivmrf.release.labels import encoded, labels

_LARGEST_SIDE = 2**31


def query_content(query: Query, domain: Domain) -> dict[str, Any]:
    """Return a query as values that JSON can hold.

    Raises
    ------
    ReleaseFileError
        The query is of a kind that has no written form.
    """
    match query:
        case TableQuery():
            groups = [
                [domain.index(v), [[encoded(g), [domain.code(v, s) for s in held]] for g, held in merged]]
                for v, merged in query.groups
            ]
            return {"query": "table", "scope": _scope(query.scope, domain), "groups": groups}
        case PooledQuery():
            return {"query": "pooled", "scopes": [_scope(scope, domain) for scope in query.scopes]}
        case ParityQuery():
            least = {"least": query.least} if query.least > 1 else {}
            return {"query": "parities", "order": query.order, "with_empty": query.with_empty, **least}
        case WeightedQuery():
            entries = query.weights.tocoo()
            return {
                "query": "weighted",
                "scope": _scope(query.scope, domain),
                "labels": list(query.rows),
                "cells": query.weights.shape[1],
                "entries": [[*map(int, entry)] for entry in zip(*entries.coords, entries.data, strict=True)],
            }
    raise ReleaseFileError(f"queries of the kind {type(query).__name__} have no written form")


def restored_query(written: Fields, domain: Domain) -> Query:
    """Return the query that `query_content` described."""
    match written.text("query", "table", "pooled", "parities", "weighted"):
        case "pooled":
            return pooled([_named(scope, domain) for scope in written.items("scopes")])
        case "parities":
            order = written.whole("order", 1)
            least = written.whole("least", 1, order) if "least" in written else 1
            return parities(order, with_empty=written.truth("with_empty"), least=least)
        case "weighted":
            return _weighted(written, _named(written["scope"], domain))
        case _:
            scope = _named(written["scope"], domain)
            groups = {}
            for place, merged in written.items("groups"):
                (position,) = positions([place], len(domain.variables))
                states = domain.states[position]
                names = labels([label for label, _ in merged])
                held = [[states[code] for code in positions(codes, len(states))] for _, codes in merged]
                groups[domain.variables[position]] = dict(zip(names, held, strict=True))
            return coarsened(*scope, groups=groups) if groups else table(*scope)


def _weighted(written: Fields, scope: tuple[Any, ...]) -> Query:
    from scipy.sparse import coo_array

    names = [str(name) for name in labels(written.items("labels"))]
    cells = written.whole("cells", 1, _LARGEST_SIDE)
    entries = np.array(written.items("entries"), dtype=np.int64).reshape(-1, 3).T
    matrix = coo_array((entries[2], (entries[0], entries[1])), (len(names), cells))
    return weighted(*scope, matrix=matrix, labels=names)


def _scope(scope: tuple[Any, ...], domain: Domain) -> list[int]:
    return [domain.index(variable) for variable in scope]


def _named(written: Any, domain: Domain) -> tuple[Any, ...]:
    return tuple(domain.variables[v] for v in positions(written, len(domain.variables)))
