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

import numpy as np

from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.privacy.guarantee import Adjacency, root_up
from bayesprivmrf.privacy.largest_sum import largest_sum


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
    inside declared cliques it is the largest sum of tables: exact, or an upper bound where tables of more than 20
    variables would be needed; see `bayesprivmrf.privacy.largest_sum`.
    """
    p, order = monomials.variables, monomials.order
    if monomials.is_complete:
        return max(odd_intersections(p, order, flips) for flips in range(p + 1))
    tables = [(scope, np.indices((2,) * len(scope)).sum(axis=0) % 2) for scope in monomials if scope]
    return int(largest_sum(tables, p).value)


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
    return root_up(squared_l2_sensitivity(monomials, adjacency, with_empty=with_empty))
