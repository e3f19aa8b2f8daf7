r"""How far one record moves the sums of parities, in L2.

With :math:`\chi_I(x) = \prod_{i \in I} x_i` and the sums :math:`S_I = \sum_m \chi_I(x^m)`, adding or removing a
record moves each sum by one: the squared distance is the number K of sums. Replacing x by x' that differs from it
in the variables F moves S_I by 2 where :math:`|I \cap F|` is odd and by nothing elsewhere, so the squared distance is

.. math:: 4 \max_F \#\{I : |I \cap F| \text{ odd}\},

which is below 4 K: no replacement changes all the parities. The sum of the empty set is the number of records; a
replacement leaves it alone.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.privacy.guarantee import Adjacency

__all__ = ["largest_flips", "odd_intersections", "parity_l2_sensitivity", "squared_l2_sensitivity"]

_LARGEST_TABLE = 20  # variables of a table in the elimination below


def odd_intersections(variables: int, order: int, flips: int) -> int:
    r"""Return how many sets of at most `order` of p variables meet m given ones in an odd number.

    .. math:: N(m) = \sum_{k = 1}^{t} \sum_{j \text{ odd}} \binom{m}{j} \binom{p - m}{k - j}

    Examples
    --------
    >>> [odd_intersections(3, 2, m) for m in range(4)]  # pairs and single variables of three
    [0, 3, 4, 3]
    """
    rest = variables - flips
    return sum(
        math.comb(flips, j) * math.comb(rest, k - j) for k in range(1, order + 1) for j in range(1, k + 1, 2)
    )


def largest_flips(monomials: Monomials) -> int:
    r"""Return :math:`\max_F \#\{I : |I \cap F| \text{ odd}\}`, or a bound from above.

    Notes
    -----
    For all sets up to an order it depends on :math:`|F|` alone: the largest of `odd_intersections`, exact. For sets
    inside declared cliques the variables are eliminated one by one: the tables that hold a variable are added up and
    its better state is taken in each cell, which is exact. Where their sum would have more than 20 variables they are
    added up in groups, and the better state is taken in each by itself: that can only be larger.
    """
    p, order = monomials.variables, monomials.order
    if monomials.is_complete:
        return max(odd_intersections(p, order, flips) for flips in range(p + 1))
    tables = [(scope, np.indices((2,) * len(scope)).sum(axis=0) % 2) for scope in monomials if scope]
    return _largest_sum(tables, p)


def squared_l2_sensitivity(monomials: Monomials, adjacency: Adjacency, *, with_empty: bool = True) -> int:
    """Return the squared L2 distance, records squared, by which one neighbour moves the sums.

    Parameters
    ----------
    monomials
        The sets whose sums are released.
    adjacency
        The neighbouring relation.
    with_empty
        Whether the sum of the empty set, the number of records, is among them.
    """
    if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        return len(monomials) - (not with_empty)
    return 4 * largest_flips(monomials)


def parity_l2_sensitivity(monomials: Monomials, adjacency: Adjacency, *, with_empty: bool = True) -> float:
    """Return the square root of `squared_l2_sensitivity`, rounded up."""
    squared = squared_l2_sensitivity(monomials, adjacency, with_empty=with_empty)
    root = math.sqrt(squared)
    return root if Fraction(root) ** 2 >= squared else math.nextafter(root, math.inf)


type _Table = tuple[tuple[int, ...], IntArray]  # ascending variables, one axis of two states each


def _largest_sum(tables: list[_Table], variables: int) -> int:
    """Largest sum of the tables over all states of the variables, or a bound from above."""
    held: list[list[_Table]] = [[] for _ in range(variables)]
    neighbours: list[set[int]] = [set() for _ in range(variables)]
    for scope, table in tables:
        held[scope[0]].append((scope, table))
        for v in scope:
            neighbours[v].update(scope)
    largest, left = 0, set(range(variables))
    while left:
        v = min(left, key=lambda u: (len(neighbours[u]), u))
        left.remove(v)
        around = neighbours[v] - {v}
        for u in around:
            neighbours[u] |= around
            neighbours[u].discard(v)
        mine = [pair for u in {v, *around} for pair in held[u] if v in pair[0]]
        for u in {v, *around}:
            held[u] = [pair for pair in held[u] if v not in pair[0]]
        for scope, table in _grouped(mine):
            rest, best = tuple(u for u in scope if u != v), table.max(axis=scope.index(v))
            if rest:
                held[rest[0]].append((rest, best))
            else:
                largest += int(best)
    return largest


def _grouped(tables: list[_Table]) -> list[_Table]:
    """Sums of the tables, of as few groups as keep to the largest size one after the other."""
    groups: list[_Table] = []
    for scope, table in sorted(tables, key=lambda pair: -len(pair[0])):
        for at, (known, total) in enumerate(groups):
            union = tuple(sorted({*known, *scope}))
            if len(union) <= max(_LARGEST_TABLE, len(known)):
                groups[at] = union, _spread(total, known, union) + _spread(table, scope, union)
                break
        else:
            groups.append((scope, table))
    return groups


def _spread(table: IntArray, scope: tuple[int, ...], union: tuple[int, ...]) -> IntArray:
    return table.reshape([2 if v in scope else 1 for v in union])
