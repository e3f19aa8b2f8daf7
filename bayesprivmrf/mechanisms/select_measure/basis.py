r"""Tables of which some say the same: how many stand out is counted on a heaviest basis of them.

Pairs across parts of a model, which are independent in it, are of use as a forest alone. If a depends on b, and b on
c, then a depends on c as well; once two of the three tables are in the model, it says the third. Measuring all three
shares the budget among more tables, and fills the model with cliques that no dependence needs. So of such pairs those
count that a heaviest spanning forest of the parts holds, and a choice that closes a ring is not made. All other
candidates, tables within a part and those of three variables and more, count each by itself.

**The k-th largest score of a heaviest basis moves by at most D** if each score does. Let r(S) be the most candidates
of a set S that a basis can hold. A heaviest basis, taken greedily, has exactly :math:`r(\{c : u_c \ge t\})` scores of
at least t, and r grows with its set. If no score falls by more than D, then
:math:`\{c : u'_c \ge t - D\} \supseteq \{c : u_c \ge t\}`, so that k scores of at least t leave k of at least t - D;
and the other way round. Forests of the parts, beside any of the other candidates, are the independent sets of a
matroid, of which this holds; with no pair across parts it is the statement for order statistics. Parts and candidates
are functions of what was released before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from bayesprivmrf.inference.effects_fit.moments import Scope
from bayesprivmrf.model.tables import IntArray


def parts_of(variables: int, scopes: Sequence[Scope]) -> IntArray:
    """Return the independent part of each variable in a model of these scopes: its smallest variable, shape (p,)."""
    part = np.arange(variables)
    for scope in scopes:
        own = part[list(scope)]
        part[np.isin(part, own)] = own.min(initial=variables)
    return part


def ends_across(scopes: Sequence[Scope], parts: IntArray) -> IntArray:
    """Return the two parts that each pair joins, shape (candidates, 2); -1 for tables that count by themselves."""
    ends = np.full((len(scopes), 2), -1, dtype=np.int64)
    pairs = [place for place, scope in enumerate(scopes) if len(scope) == 2]
    ends[pairs] = parts[np.array([scopes[place] for place in pairs], dtype=np.int64).reshape(-1, 2)]
    ends[ends[:, 0] == ends[:, 1]] = -1
    return ends


def without_subsets(scopes: Sequence[Scope]) -> list[Scope]:
    """Return the scopes that lie in no larger one of three variables or more."""
    larger = [set(c) for c in scopes if len(c) > 2]
    return [c for c in scopes if not any(set(c) < other for other in larger)]


def basis_scores(scores: IntArray, ends: IntArray) -> IntArray:
    """Return the scores of a heaviest basis, ascending.

    Parameters
    ----------
    scores
        The scores of all candidates.
    ends
        The two parts that a candidate joins, shape (candidates, 2); -1 for one that is always independent.
    """
    across = np.flatnonzero(ends[:, 0] >= 0)
    order = across[np.argsort(-scores[across], kind="stable")]
    forest = order[_forest(ends[order], int(ends.max(initial=0)) + 1)]
    return np.sort(np.concatenate([scores[ends[:, 0] < 0], scores[forest]]))


@njit(nogil=True, cache=True)
def _forest(ends: Any, parts: Any) -> Any:
    """Return which edges, taken in turn, close no ring."""
    above, found, left = np.arange(parts), np.zeros(len(ends), dtype=np.bool_), parts - 1
    for place in range(len(ends)):
        u, v = ends[place]
        while above[u] != u:
            above[u] = above[above[u]]
            u = above[u]
        while above[v] != v:
            above[v] = above[above[v]]
            v = above[v]
        if u != v:
            above[u] = v
            found[place] = True
            left -= 1
            if left == 0:
                break
    return found
