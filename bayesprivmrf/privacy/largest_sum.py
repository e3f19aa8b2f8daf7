r"""The largest value of a sum of tables over all joint states, and the L2 sensitivity of sums of parities.

**Largest sum.** The variables are eliminated one by one, as in the search for the mode of a graphical model: the
tables with a variable are added up, and its best state is taken in each cell. This is exact. Where the sum would have
more than 2^20 cells, the tables are added up in groups, and the best state is taken in each group separately. The
result can only be larger, since :math:`\max_x (f(x) + g(x)) \le \max_x f(x) + \max_x g(x)`.

**Parities.** Let :math:`\chi_I(x) = \prod_{i \in I} x_i`, with the sums :math:`S_I = \sum_m \chi_I(x^m)`. Adding or
removing a record moves each sum by one, so the squared distance is the number K of sums. Replacing x by x', which
differs from x in the variables F, moves S_I by 2 where :math:`|I \cap F|` is odd, and by 0 elsewhere. So the largest
squared distance is

.. math:: 4 \max_F \#\{I : |I \cap F| \text{ odd}\},

which is below 4 K, because no replacement changes all parities. The sum of the empty set is the number of records,
which a replacement does not change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.privacy.guarantee import Adjacency, root_up

_LARGEST_TABLE = 2**20  # cells of a table in the elimination

# Ascending variables, and an array with one axis of states for each.
type Table = tuple[tuple[int, ...], np.ndarray]


class LargestSum(NamedTuple):
    """The largest sum, or an upper bound of it.

    Parameters
    ----------
    value
        The largest sum or an upper bound, up to the rounding of the tables' type.
    is_exact
        True if the tables were never added up in several groups, so that the value is exact.
    states
        State of each variable: these attain the value if it is exact, and are a good guess otherwise.
    """

    value: Any
    is_exact: bool
    states: list[int]


def largest_sum(tables: Iterable[Table], variables: int) -> LargestSum:
    """Return the largest sum of tables over the joint states of variables that are numbered from 0.

    Examples
    --------
    >>> pair = np.array([[0, 5], [2, 1]])
    >>> largest_sum([((0, 1), pair), ((1,), np.array([4, 0]))], 2)
    LargestSum(value=6, is_exact=True, states=[1, 0])
    """
    tables_at: list[list[Table]] = [[] for _ in range(variables)]
    neighbors: list[set[int]] = [set() for _ in range(variables)]
    for scope, table in tables:
        tables_at[scope[0]].append((scope, table))
        for v in scope:
            neighbors[v].update(scope)
    value = 0
    is_exact = True
    left = set(range(variables))
    eliminated: list[tuple[int, list[Table]]] = []
    while left:
        # smallest degree first: the variable whose tables have the smallest sum
        v = min(left, key=lambda u: (len(neighbors[u]), u))
        left.remove(v)
        around = neighbors[v] - {v}
        # eliminating a variable joins its neighbors
        for u in around:
            neighbors[u] |= around
            neighbors[u].discard(v)
        with_v = [pair for u in {v, *around} for pair in tables_at[u] if v in pair[0]]
        for u in {v, *around}:
            tables_at[u] = [pair for pair in tables_at[u] if v not in pair[0]]
        # one group is exact; several give an upper bound
        groups = _grouped(with_v)
        is_exact &= len(groups) <= 1
        eliminated.append((v, groups))
        for scope, table in groups:
            rest = tuple(u for u in scope if u != v)
            best = table.max(axis=scope.index(v))
            if rest:
                tables_at[rest[0]].append((rest, best))
            else:
                value += best.item()
    # Each variable's best state given the states of variables that were eliminated after it
    states = [0] * len(eliminated)
    for v, groups in reversed(eliminated):
        scores = [
            table[tuple(slice(None) if u == v else states[u] for u in s)] for s, table in groups
        ]
        if scores:
            states[v] = int(np.argmax(sum(scores)))
        else:
            states[v] = 0
    return LargestSum(value, is_exact, states)


def _grouped(tables: list[Table]) -> list[Table]:
    """Return the sums of groups of tables, filled greedily up to the largest size, largest tables first."""
    groups: list[Table] = []
    for scope, table in sorted(tables, key=lambda pair: -len(pair[0])):
        for at, (known, total) in enumerate(groups):
            sizes = {
                **dict(zip(known, total.shape, strict=True)),
                **dict(zip(scope, table.shape, strict=True)),
            }
            if math.prod(sizes.values()) <= max(_LARGEST_TABLE, total.size):
                union = tuple(sorted(sizes))
                groups[at] = union, _spread(total, known, union) + _spread(table, scope, union)
                break
        else:
            groups.append((scope, table))
    return groups


def _spread(table: np.ndarray, scope: Sequence[int], union: Sequence[int]) -> np.ndarray:
    sizes = dict(zip(scope, table.shape, strict=True))
    return table.reshape([sizes.get(v, 1) for v in union])


def odd_intersections(variables: int, order: int, flips: int) -> int:
    r"""Return how many sets of at most `order` of p variables contain an odd number of m given variables.

    .. math:: N(m) = \sum_{k = 1}^{t} \sum_{j \text{ odd}} \binom{m}{j} \binom{p - m}{k - j}

    Examples
    --------
    >>> [odd_intersections(3, 2, m) for m in range(4)]  # pairs and single variables of three
    [0, 3, 4, 3]
    """
    rest = variables - flips
    return sum(
        math.comb(flips, j) * math.comb(rest, k - j)
        for k in range(1, order + 1)
        for j in range(1, k + 1, 2)
    )


def largest_flips(monomials: Monomials) -> int:
    r"""Return :math:`\max_F \#\{I : |I \cap F| \text{ odd}\}`, or an upper bound of it.

    Notes
    -----
    For all sets up to an order, the number depends on :math:`|F|` alone, and the largest of `odd_intersections` is
    exact. For sets inside declared cliques it is the largest sum of tables: exact, or an upper bound where tables of
    more than 20 variables would be needed; see `bayesprivmrf.privacy.largest_sum`.
    """
    p = monomials.variables
    order = monomials.order
    if monomials.is_complete:
        return max(odd_intersections(p, order, flips) for flips in range(p + 1))
    tables = [
        (scope, np.indices((2,) * len(scope)).sum(axis=0) % 2) for scope in monomials if scope
    ]
    return int(largest_sum(tables, p).value)


def squared_l2_sensitivity(
    monomials: Monomials, adjacency: Adjacency, *, with_empty: bool = True
) -> int:
    """Return the squared L2 sensitivity of sums of parities, records squared.

    Parameters
    ----------
    monomials
        The sets whose sums are released.
    adjacency
        The neighboring relation.
    with_empty
        True if the sum of the empty set, which is the number of records, is among them.
    """
    if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        return len(monomials) - (not with_empty)
    return 4 * largest_flips(monomials)


def parity_l2_sensitivity(
    monomials: Monomials, adjacency: Adjacency, *, with_empty: bool = True
) -> float:
    """Return the square root of `squared_l2_sensitivity`, rounded up."""
    return root_up(squared_l2_sensitivity(monomials, adjacency, with_empty=with_empty))
