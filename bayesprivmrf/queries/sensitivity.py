r"""Sensitivity of queries that are measured together: the largest change of their answers between neighbors.

A record x adds the column :math:`A_q[:, x]` to the answer of each query q. In units of the noise scale :math:`s_q` of
each query, the stacked answers change by

.. math::

    \Delta_p^p = \max_x \sum_q s_q^{-p} \lVert A_q[:, x] \rVert_p^p
    \qquad\text{or}\qquad
    \max_{x, x'} \sum_q s_q^{-p} \lVert A_q[:, x] - A_q[:, x'] \rVert_p^p

if a record is added or removed (left), or replaced (right). The maxima are over all records of the declared domain,
including those in impossible cells.

Each maximum is the largest value of a sum of tables, which `largest_sum` finds by elimination. There is one table for
each scope: the norm of a column for each cell of one record, or the distance of two columns for each pair of cells of
two records. If a table would be too large, an upper bound takes its place. `docs/explanation/queries.md` has the
derivations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import instance_of, positive_finite, require, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model import ModelSpecification, cells_within
from bayesprivmrf.model.domain import Label, Variable, listed
from bayesprivmrf.model.specification import NotTogetherError
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.privacy import Adjacency
from bayesprivmrf.privacy.guarantee import root_up
from bayesprivmrf.privacy.largest_sum import Table, largest_sum
from bayesprivmrf.queries.query import BoundQuery, Query, Sparse, measured_model

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork


# Largest number of pairs of cells, or of cells times scopes of a pooled query, that are enumerated
LARGEST_PAIRS = 2**20

# Variables of a scope, the columns of its cells, and the factor of their p-th powers
type _Part = tuple[tuple[int, ...], Sparse, float]


def _parts_of(query: BoundQuery, norm: int, differing: int) -> tuple[list[_Part], bool]:
    r"""Return parts of a query that read one scope each, and True if their powers add up to that of the query.

    If each row reads one scope, the powers add up. Rows that read several scopes, as in a pooled query, become one
    part over all their variables if this is small enough. Otherwise the powers of the parts bound that of the query:
    :math:`|\sum_s a_s| \le \sum_s |a_s|`, and :math:`(\sum_s a_s)^2 \le m \sum_s a_s^2` for m scopes.
    """
    scopes = query.positions
    blocks = query.blocks
    if not query.is_pooled:
        return [(scope, block, 1.0) for scope, block in zip(scopes, blocks, strict=True)], True
    union = sorted({v for scope in scopes for v in scope})
    cards = query.model.cardinalities
    joint = math.prod(cards[v] for v in union)
    if joint**differing * len(scopes) <= LARGEST_PAIRS:
        cells = [cells_within(cards, scope, union) for scope in scopes]
        columns: Sparse = sum(block[:, at] for block, at in zip(blocks, cells, strict=True))
        return [(tuple(union), columns.tocsc(), 1.0)], True
    if norm == 1:
        factor = 1.0
    else:
        factor = float(len(scopes))
    return [(scope, block, factor) for scope, block in zip(scopes, blocks, strict=True)], False


def norm_tables(
    scope: tuple[int, ...], columns: Sparse, cardinalities: Sequence[int], norm: int, differing: int
) -> tuple[list[Table], bool]:
    """Return tables whose sum is the p-th power of a part's norm, or an upper bound; and True if it is exact.

    For two records, the norm is that of the difference of their columns. Variable v of the second record has the
    number v + p.
    """
    shape = [cardinalities[v] for v in scope]
    size = columns.shape[1]
    single = np.asarray(abs(columns).power(norm).sum(axis=0), dtype=float).ravel()
    if differing == 1:
        return [(scope, single.reshape(shape))], True
    twins = tuple(v + len(cardinalities) for v in scope)
    if size**2 <= LARGEST_PAIRS:
        return [((*scope, *twins), _distances(columns, single, norm).reshape(shape * 2))], True
    is_signed = norm == 2 and columns.data.min(initial=0) < 0 < columns.data.max(initial=0)
    bound = (2 if is_signed else 1) * single.reshape(shape)
    return [(scope, bound), (twins, bound)], False


def _distances(columns: Sparse, single: FloatArray, norm: int) -> FloatArray:
    r"""Return the p-th power of the distance between all pairs of columns; these are whole numbers, and exact.

    .. math:: |u - v| = |u| + |v| - 2 \min(|u|, |v|) \, 1[uv > 0], \qquad (u - v)^2 = u^2 + v^2 - 2uv
    """
    if norm == 2:
        overlap = (columns.T @ columns).toarray().astype(float)
    else:
        overlap = np.zeros((single.size, single.size))
        rows = columns.tocsr()
        for row in np.flatnonzero(np.diff(rows.indptr)):
            entries = slice(*rows.indptr[row : row + 2])
            # two weights of the same sign overlap by the smaller one
            for sign in (1, -1):
                chosen = rows.data[entries] * sign > 0
                at = rows.indices[entries][chosen]
                size = np.abs(rows.data[entries][chosen])
                overlap[np.ix_(at, at)] += np.minimum.outer(size, size)
    return single[:, None] + single - 2 * overlap


def reduced(variables: tuple[int, ...], table: FloatArray) -> Table:
    """Return a table without the axes along which it is constant, with its variables in ascending order."""
    for axis in reversed(range(table.ndim)):
        first = table.take([0], axis=axis)
        if (table == first).all():
            table = first.reshape([*table.shape[:axis], *table.shape[axis + 1 :]])
            variables = variables[:axis] + variables[axis + 1 :]
    order = np.argsort(variables)
    return tuple(variables[at] for at in order), table.transpose(order)


def with_one_fixed(tables: list[Table], cardinalities: Sequence[int]) -> list[Table]:
    """Return tables of pairs of records, with the first record's state fixed for variables where this is exact.

    Suppose that a cyclic shift of a variable's states in both records changes no table. Then every pair of records
    has the same value as a pair whose first record is in the first state.
    """
    p = len(cardinalities)
    moved = {
        v
        for scope, table in tables
        for v in {u % p for u in scope}
        if not np.array_equal(
            np.roll(table, 1, [at for at, u in enumerate(scope) if u % p == v]), table
        )
    }
    fixed = set(range(p)) - moved
    places = [tuple(0 if v in fixed else slice(None) for v in scope) for scope, _ in tables]
    return [
        (tuple(v for v in scope if v not in fixed), table[place])
        for (scope, table), place in zip(tables, places, strict=True)
    ]


# Smallest noise scale, and the inverse of the largest one; their squares are floats
LEAST_SCALE = 1e-100


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    r"""Sensitivity of the stacked answers, in units of the noise scales, or in records without scales.

    Parameters
    ----------
    norm
        The order p of the norm, 1 or 2.
    power
        :math:`\Delta_p^p`, rounded up.
    is_exact
        True if neighbors attain `power` up to rounding; otherwise it is an upper bound.
    neighbours
        The record that is added or removed, or the two records of which one replaces the other. They attain an exact
        value; for an upper bound, they are the best pair that was found.
    """

    norm: int
    power: float
    is_exact: bool
    neighbours: tuple[dict[Variable, Label], ...]

    @property
    def value(self) -> float:
        r"""Sensitivity :math:`\Delta_p`, rounded up."""
        if self.norm == 1:
            return self.power
        return root_up(self.power)


def sensitivity(
    queries: Query | Iterable[Query],
    network: DiscreteMarkovNetwork | ModelSpecification,
    *,
    norm: int,
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE,
    scales: Sequence[float] | None = None,
    at_most: int | None = None,
) -> Sensitivity:
    r"""Return the largest change between neighbors in the answers of queries that are measured together.

    Parameters
    ----------
    queries
        One query, or several queries whose answers are stacked.
    network
        The declared model. A query may read scopes that lie in no declared clique.
    norm
        1 for Laplace noise, 2 for Gaussian noise.
    adjacency
        The relation between neighbors.
    scales
        Noise scale of each query, in records, positive; 1 by default. With the scales of Laplace noise, the privacy
        loss :math:`\epsilon` is the value for norm 1. With the scales of Gaussian noise, the privacy loss
        :math:`\rho` is half the power for norm 2.
    at_most
        Largest number of records of one person, if neighbors differ by a person; by default they differ by a record.
        Each record in `neighbours` then stands for a person with `at_most` equal records. A single record stands for
        a person who is added or removed, or who is replaced by a person without records.

    Returns
    -------
    Sensitivity
        The sensitivity, and neighbors that attain it or come close.

    Raises
    ------
    ArgumentError
        There is no query, the norm is not 1 or 2, or the scales are not one positive number for each query.
    ModelError
        A query does not fit the declared model.

    Examples
    --------
    >>> import bayesprivmrf as bpm
    >>> from bayesprivmrf.queries import table
    >>> network = bpm.declare({"smokes": ["no", "yes"], "ill": ["no", "yes"]}, [("smokes", "ill")])
    >>> both = [table("smokes", "ill"), table("ill")]
    >>> sensitivity(both, network, norm=1).value, sensitivity(both, network, norm=1, scales=[2, 4]).value
    (2.0, 0.75...)
    >>> moved = sensitivity(both, network, norm=2, adjacency="replace-one")
    >>> moved.power, moved.is_exact, moved.neighbours
    (4.0, True, ({'smokes': 'no', 'ill': 'no'}, {'smokes': 'no', 'ill': 'yes'}))
    """
    norm = whole_number("norm", norm, 1, 2, remedy="1 is for Laplace noise, 2 for Gaussian noise")
    adjacency = Adjacency.checked(adjacency)
    if at_most is not None:
        most = whole_number("at_most", at_most, 1, 2**20)
        # replacing a person includes a person without records
        relations = {Adjacency.ADD_OR_REMOVE_ONE, adjacency}
        each = [
            sensitivity(queries, network, norm=norm, adjacency=r, scales=scales) for r in relations
        ]
        return _of_person(max(each, key=lambda found: found.power), most)
    if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        differing = 1
    else:
        differing = 2
    model = ModelSpecification.from_pgmpy(network)
    given = checked_queries(queries)
    try:
        bound = [query.bind(model) for query in given]
    except NotTogetherError:
        model = measured_model(model, given)
        bound = [query.bind(model) for query in given]
    weights = [1 / scale**norm for scale in _checked_scales(scales, len(bound))]
    terms = []
    is_exact = True
    cards = model.cardinalities
    for query, weight in zip(bound, weights, strict=True):
        parts, is_separate = _parts_of(query, norm, differing)
        is_exact &= is_separate
        for scope, columns, factor in parts:
            found, is_joint = norm_tables(scope, columns, cards, norm, differing)
            is_exact &= is_joint
            terms += [reduced(variables, weight * factor * table) for variables, table in found]
    # a table that does not depend on the records is a constant
    constant = math.fsum(table.item() for variables, table in terms if not variables)
    tables = [term for term in terms if term[0]]
    if differing == 2:
        # a variable whose states can be shifted without a change is fixed in the first record
        tables = with_one_fixed(tables, cards)
    # elimination finds the record, or pair of records, with the largest change
    largest = largest_sum(tables, differing * len(cards))
    power = constant + largest.value
    rounding = (len(tables) + len(bound) + 16) * 2.0**-52
    if scales is None and power < 2**53:  # sums of whole numbers below 2^53 are exact
        rounding = 0.0
    power *= 1 + rounding
    is_exact &= largest.is_exact

    def power_of(records: Sequence[Sequence[int]]) -> float:
        """Return the p-th power of the norm for one record, or for a pair of records."""
        moved = [float((np.abs(_moved(query, records)) ** norm).sum()) for query in bound]
        return math.fsum(weight * each for weight, each in zip(weights, moved, strict=True))

    p = len(cards)
    neighbours = [largest.states[at * p : (at + 1) * p] for at in range(differing)]
    if not is_exact:  # the bound is exact after all if some neighbors attain it
        # in records whose variables have equal codes, all pooled scopes fall into one cell
        codes = {0, 1, max(cards, default=1) - 1}
        alike = [[min(code, states - 1) for states in cards] for code in codes]
        neighbours = max([neighbours, *map(list, product(alike, repeat=differing))], key=power_of)
        is_exact = power_of(neighbours) * (1 + 4 * rounding) >= power
    domain = model.domain
    named = [
        {v: s[code] for v, s, code in zip(domain.variables, domain.states, record, strict=True)}
        for record in neighbours
    ]
    return Sensitivity(norm=norm, power=power, is_exact=is_exact, neighbours=tuple(named))


def _of_person(found: Sensitivity, at_most: int) -> Sensitivity:
    """Return the sensitivity for persons with up to `at_most` records each, from that for records."""
    power = found.power * at_most**found.norm
    is_whole = found.power == math.floor(found.power) and power < 2**53
    return replace(found, power=power if is_whole else power * (1 + 2.0**-51))


def _moved(query: BoundQuery, records: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the answers to one record, or the difference between the answers to two records."""
    moved = np.zeros(len(query), dtype=np.int64)
    for sign, record in zip((1, -1), records, strict=False):
        for scope, block in zip(query.positions, query.blocks, strict=True):
            shape = [query.model.cardinalities[v] for v in scope]
            cell = int(np.ravel_multi_index([record[v] for v in scope], shape))
            start, stop = block.indptr[cell : cell + 2]
            moved[block.indices[start:stop]] += sign * block.data[start:stop]
    return moved


def moves(
    queries: Iterable[BoundQuery], neighbours: Sequence[Mapping[Variable, Label]]
) -> list[IntArray]:
    """Return the difference between the answers of neighbors for each query, shape (rows,) each.

    Parameters
    ----------
    queries
        Queries on one model.
    neighbours
        The record that is added, or the two records of which one replaces the other.
    """

    def coded(model: ModelSpecification) -> list[list[int]]:
        names = model.domain.variables
        return [[model.domain.code(v, record[v]) for v in names] for record in neighbours]

    return [_moved(query, coded(query.model)) for query in queries]


def checked_queries(queries: Any) -> list[Query]:
    """Return one query or several queries as a list; an `ArgumentError` if the list is empty or holds others."""
    if isinstance(queries, Query):
        given = [queries]
    else:
        given = listed("`queries`", queries, error=ArgumentError)
    for query in given:
        instance_of("queries", query, Query, "hold queries", "see bayesprivmrf.queries")
    require(given, "queries", "hold at least one query", "none")
    return given


def _checked_scales(scales: Any, count: int) -> list[float]:
    """Return the noise scale of each query."""
    if scales is None:
        return [1.0] * count
    given = listed("`scales`", scales, error=ArgumentError)
    require(
        len(given) == count, "scales", f"hold one number for each of {count} queries", len(given)
    )
    checked = [positive_finite(f"scales[{at}]", scale) for at, scale in enumerate(given)]
    is_usual = LEAST_SCALE <= min(checked) <= max(checked) <= 1 / LEAST_SCALE
    require(is_usual, "scales", f"lie between {LEAST_SCALE:g} and {1 / LEAST_SCALE:g}", checked)
    return checked
