r"""The largest value that a sum of tables takes over all joint states, by eliminating variables.

The variables are eliminated one by one, as in the search for the mode of a graphical model: the tables that hold a
variable are added up, and its best state is taken in each cell. That is exact. Where the sum would have more than
2^20 cells the tables are added up in groups, and the best state is taken in each group by itself: the result can
only be larger, since :math:`\max_x (f(x) + g(x)) \le \max_x f(x) + \max_x g(x)`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

_LARGEST_TABLE = 2**20  # cells of a table in the elimination

# Ascending variables, and one axis of states for each.
type Table = tuple[tuple[int, ...], np.ndarray]


class LargestSum(NamedTuple):
    """The largest sum, or a bound from above.

    Parameters
    ----------
    value
        Never smaller than the largest sum, but for the rounding of the tables' own type.
    is_exact
        Whether no table had to be split.
    states
        State of each variable that attains an exact value, and a good guess otherwise.
    """

    value: Any
    is_exact: bool
    states: list[int]


def largest_sum(tables: Iterable[Table], variables: int) -> LargestSum:
    """Return the largest sum of tables over the joint states of variables numbered from 0.

    Examples
    --------
    >>> pair = np.array([[0, 5], [2, 1]])
    >>> largest_sum([((0, 1), pair), ((1,), np.array([4, 0]))], 2)
    LargestSum(value=6, is_exact=True, states=[1, 0])
    """
    held: list[list[Table]] = [[] for _ in range(variables)]
    neighbours: list[set[int]] = [set() for _ in range(variables)]
    for scope, table in tables:
        held[scope[0]].append((scope, table))
        for v in scope:
            neighbours[v].update(scope)
    value, is_exact, left = 0, True, set(range(variables))
    eliminated: list[tuple[int, list[Table]]] = []
    while left:
        # least degree first: the variable whose tables add up to the smallest one
        v = min(left, key=lambda u: (len(neighbours[u]), u))
        left.remove(v)
        around = neighbours[v] - {v}
        # eliminating a variable joins its neighbors
        for u in around:
            neighbours[u] |= around
            neighbours[u].discard(v)
        mine = [pair for u in {v, *around} for pair in held[u] if v in pair[0]]
        for u in {v, *around}:
            held[u] = [pair for pair in held[u] if v not in pair[0]]
        # one group is exact; several give an upper bound
        groups = _grouped(mine)
        is_exact &= len(groups) <= 1
        eliminated.append((v, groups))
        for scope, table in groups:
            rest, best = tuple(u for u in scope if u != v), table.max(axis=scope.index(v))
            if rest:
                held[rest[0]].append((rest, best))
            else:
                value += best.item()
    return LargestSum(value, is_exact, _best_states(eliminated))


def _grouped(tables: list[Table]) -> list[Table]:
    """Return sums of the tables in groups, as few as keep to the largest size when filled one after the other."""
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


def _best_states(eliminated: list[tuple[int, list[Table]]]) -> list[int]:
    """Choose each variable's state given those of the variables eliminated after it."""
    states = [0] * len(eliminated)
    for v, groups in reversed(eliminated):
        scores = [table[tuple(slice(None) if u == v else states[u] for u in s)] for s, table in groups]
        states[v] = int(np.argmax(sum(scores))) if scores else 0
    return states
