r"""Norms of a query's columns, and distances between two, as tables on scopes: what sensitivities add up.

`docs/queries.md` has the derivations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bayesprivmrf.model import cells_within
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy.largest_sum import Table
from bayesprivmrf.queries.query import BoundQuery, Sparse

# Pairs of cells, or cells times scopes of a pooled query, up to which they are enumerated.
LARGEST_PAIRS = 2**20

# Variables of a scope, the columns of its cells, and the factor of their p-th powers.
type Part = tuple[tuple[int, ...], Sparse, float]


def parts_of(query: BoundQuery, norm: int, copies: int) -> tuple[list[Part], bool]:
    r"""Return parts of a query on one scope each, and whether their powers add up to the query's, or bound it.

    The powers of rows that read one scope each add up. Rows that read several scopes, as a pooled query's do, are
    taken over all their variables at once where that is small. Otherwise :math:`|\sum_s a_s| \le \sum_s |a_s|`, and
    :math:`(\sum_s a_s)^2 \le m \sum_s a_s^2` for m scopes.
    """
    scopes, blocks = query.positions, query.blocks
    if not query.is_pooled:
        return [(scope, block, 1.0) for scope, block in zip(scopes, blocks, strict=True)], True
    union, cards = sorted({v for scope in scopes for v in scope}), query.model.cardinalities
    joint = math.prod(cards[v] for v in union)
    if joint**copies * len(scopes) <= LARGEST_PAIRS:
        cells = [cells_within(cards, scope, union) for scope in scopes]
        columns: Sparse = sum(block[:, at] for block, at in zip(blocks, cells, strict=True))
        return [(tuple(union), columns.tocsc(), 1.0)], True
    factor = 1.0 if norm == 1 else float(len(scopes))
    return [(scope, block, factor) for scope, block in zip(scopes, blocks, strict=True)], False


def norm_tables(
    scope: tuple[int, ...], columns: Sparse, cardinalities: Sequence[int], norm: int, copies: int
) -> tuple[list[Table], bool]:
    """Return tables whose sum is the p-th power of a part's norm, or bounds it; and which of the two.

    For two copies it is the norm of the difference of two columns, variable v of the second being number v + p.
    """
    shape, size = [cardinalities[v] for v in scope], columns.shape[1]
    single = np.asarray(abs(columns).power(norm).sum(axis=0), dtype=float).ravel()
    if copies == 1:
        return [(scope, single.reshape(shape))], True
    twins = tuple(v + len(cardinalities) for v in scope)
    if size**2 <= LARGEST_PAIRS:
        return [((*scope, *twins), _distances(columns, single, norm).reshape(shape * 2))], True
    is_signed = norm == 2 and columns.data.min(initial=0) < 0 < columns.data.max(initial=0)
    bound = (2 if is_signed else 1) * single.reshape(shape)
    return [(scope, bound), (twins, bound)], False


def _distances(columns: Sparse, single: FloatArray, norm: int) -> FloatArray:
    r"""Return the p-th power of the distance of each two columns, exact: whole numbers.

    .. math:: |u - v| = |u| + |v| - 2 \min(|u|, |v|) \, 1[uv > 0], \qquad (u - v)^2 = u^2 + v^2 - 2uv
    """
    if norm == 2:
        overlap = (columns.T @ columns).toarray().astype(float)
    else:
        overlap = np.zeros((single.size, single.size))
        rows = columns.tocsr()
        for row in np.flatnonzero(np.diff(rows.indptr)):
            held = slice(*rows.indptr[row : row + 2])
            # weights of one sign overlap by the smaller of the two
            for sign in (1, -1):
                mine = rows.data[held] * sign > 0
                at, size = rows.indices[held][mine], np.abs(rows.data[held][mine])
                overlap[np.ix_(at, at)] += np.minimum.outer(size, size)
    return single[:, None] + single - 2 * overlap


def reduced(variables: tuple[int, ...], table: FloatArray) -> Table:
    """Return a table without the axes along which it does not change, variables ascending."""
    for axis in reversed(range(table.ndim)):
        first = table.take([0], axis=axis)
        if (table == first).all():
            table = first.reshape([*table.shape[:axis], *table.shape[axis + 1 :]])
            variables = variables[:axis] + variables[axis + 1 :]
    order = np.argsort(variables)
    return tuple(variables[at] for at in order), table.transpose(order)


def with_one_fixed(tables: list[Table], cardinalities: Sequence[int]) -> list[Table]:
    """Return tables of pairs of records with the first one's state fixed where that loses nothing.

    Where moving a variable's states round by one, in both records at once, changes no table, every pair has an equal
    one whose first record is in the first state.
    """
    p = len(cardinalities)
    moved = {
        v
        for scope, table in tables
        for v in {u % p for u in scope}
        if not np.array_equal(np.roll(table, 1, [at for at, u in enumerate(scope) if u % p == v]), table)
    }
    fixed = set(range(p)) - moved
    return [
        (
            tuple(v for v in scope if v not in fixed),
            table[tuple(0 if v in fixed else slice(None) for v in scope)],
        )
        for scope, table in tables
    ]
