r"""Misfits of tables as whole numbers, and heaviest bases by which the tables that stand out are counted.

Misfits of many tables of two variables are computed by compiled passes over the records. Each pass counts one table
and compares it with a model's mean counts. No table of counts is kept, so the memory is that of the records and of
one number for each pair. `select_measure.rounds` derives how far a neighbor moves a misfit.

**Heaviest basis.** Some tables are redundant, so the number of tables that stand out is counted on a heaviest basis.
Pairs across parts of a model, which are independent in it, are useful only as a forest. If a depends on b, and b on
c, then a depends on c as well; once two of the three tables are in the model, it implies the third. Measuring all
three would divide the budget among more tables, and fill the model with cliques that no dependence needs. So of such
pairs only those of a heaviest spanning forest of the parts count, and a choice that closes a cycle is not made. All
other candidates, tables within a part and tables of three or more variables, count separately.

**The k-th largest score of a heaviest basis moves by at most D** if each score does. Let r(S) be the largest number
of candidates of a set S in a basis. A heaviest basis from the greedy algorithm has exactly
:math:`r(\{c : u_c \ge t\})` scores of at least t, and r increases with its set. If no score falls by more than D,
then :math:`\{c : u'_c \ge t - D\} \supseteq \{c : u_c \ge t\}`. So k scores of at least t imply k scores of at least
t - D afterwards, and vice versa. Forests of the parts, together with any of the other candidates, are the independent
sets of a matroid, for which this holds. Without pairs across parts it is the statement for order statistics. Parts
and candidates are functions of earlier released numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit

from bayesprivmrf.inference.loglinear_fit.moments import Scope
from bayesprivmrf.inference.optimize import one_blas_thread
from bayesprivmrf.model.tables import FloatArray, IntArray

# M, the steps of a misfit for one record. Rounding a mean count to a step moves a misfit by at most half a step, far
# less than the noise on it.
MISFIT_STEPS = 64


def expected_counts(table: FloatArray, total: float) -> IntArray:
    """Return a model's mean counts in whole steps of 1/M record, flat."""
    return np.rint(MISFIT_STEPS * total * table.ravel()).astype(np.int64)


def misfit(counts: IntArray, expected: IntArray) -> int:
    """Return the L1 distance between counts and a model's mean counts, steps of 1/M record."""
    return int(np.abs(MISFIT_STEPS * counts - expected).sum())


@njit(nogil=True, cache=True)
def _misfits(
    columns: Any, weights: Any, states: Any, pairs: Any, expected: Any, first: Any, found: Any
) -> None:
    """Write the L1 distances of the tables of pairs from expected counts, which begin at `first`."""
    for place in range(len(pairs)):
        u, v = pairs[place]
        one = columns[u]
        other = columns[v]
        width = np.uint64(states[v])
        table = np.zeros(states[u] * states[v], dtype=np.int64)
        for row in range(one.size):
            # unsigned, so that no index is checked
            table[np.uint64(one[row]) * width + np.uint64(other[row])] += weights[row]
        total = 0
        for cell in range(table.size):
            total += abs(MISFIT_STEPS * table[cell] - expected[first[place] + cell])
        found[place] = total


def independent_misfits(
    codes: np.ndarray, counts: IntArray, shares: Sequence[FloatArray], total: float
) -> IntArray:
    """Return the misfits of all pairs under independence: sensitive, shape (p, p), above the diagonal.

    Parameters
    ----------
    codes, counts
        Codes of the records, shape (rows, p), and the number of records for each row.
    shares
        Public probabilities of each variable's states.
    total
        Public number of records, N.

    Notes
    -----
    Mean counts are M N p_u(a) p_v(b), rounded to whole steps, as in `expected_counts`.
    """
    # columns are contiguous, so that they are not copied for each variable
    codes = np.asfortranarray(codes)
    states = [len(each) for each in shares]
    found = np.zeros((len(states), len(states)), dtype=np.int64)
    for u in range(len(states) - 1):
        pairs = [(u, v) for v in range(u + 1, len(states))]
        expected = [expected_counts(np.outer(shares[u], shares[v]), total) for _, v in pairs]
        found[u, u + 1 :] = pair_misfits(codes, counts, states, pairs, expected)
    return found


def pair_misfits(
    codes: np.ndarray,
    counts: IntArray,
    states: Sequence[int],
    pairs: Sequence[tuple[int, int]],
    expected: Sequence[IntArray],
) -> IntArray:
    """Return the misfits of some pairs of variables, each in ascending order: sensitive, shape (pairs,).

    Parameters
    ----------
    codes, counts
        As for `independent_misfits`.
    states
        Number of states of each variable.
    pairs
        Positions of two variables each.
    expected
        Public mean counts of each pair in whole steps, flat.
    """
    found = np.zeros(len(pairs), dtype=np.int64)
    if not len(pairs):
        return found
    where = np.array(pairs, dtype=np.int64)
    flat = np.concatenate(expected)
    sizes = np.array([each.size for each in expected])
    first = np.cumsum(sizes) - sizes
    kinds = np.array(states, dtype=np.int64)
    columns = np.ascontiguousarray(codes.T)

    def part(block: IntArray) -> None:
        begin = block[0]
        end = block[-1] + 1
        _misfits(columns, counts, kinds, where[begin:end], flat, first[begin:end], found[begin:end])

    with one_blas_thread() as threads, ThreadPoolExecutor(threads) as pool:
        list(pool.map(part, np.array_split(np.arange(len(pairs)), min(threads, len(pairs)))))
    return found


def ends_across(scopes: Sequence[Scope], parts: IntArray) -> IntArray:
    """Return the two parts that each pair joins, shape (candidates, 2); -1 for tables that count separately."""
    ends = np.full((len(scopes), 2), -1, dtype=np.int64)
    pairs = [place for place, scope in enumerate(scopes) if len(scope) == 2]
    ends[pairs] = parts[np.array([scopes[place] for place in pairs], dtype=np.int64).reshape(-1, 2)]
    ends[ends[:, 0] == ends[:, 1]] = -1
    return ends


def without_subsets(scopes: Sequence[Scope]) -> list[Scope]:
    """Return the scopes that are not contained in a larger scope of three or more variables."""
    larger = [set(c) for c in scopes if len(c) > 2]
    return [c for c in scopes if not any(set(c) < other for other in larger)]


def basis_scores(scores: IntArray, ends: IntArray) -> IntArray:
    """Return the scores of a heaviest basis, ascending.

    Parameters
    ----------
    scores
        Scores of all candidates.
    ends
        The two parts that each candidate joins, shape (candidates, 2); -1 for a candidate that counts separately.
    """
    across = np.flatnonzero(ends[:, 0] >= 0)
    order = across[np.argsort(-scores[across], kind="stable")]
    forest = order[_forest(ends[order], int(ends.max(initial=0)) + 1)]
    return np.sort(np.concatenate([scores[ends[:, 0] < 0], scores[forest]]))


@njit(nogil=True, cache=True)
def _forest(ends: Any, parts: Any) -> Any:
    """Return the mask of edges that close no cycle, when added in turn; a union-find with path halving."""
    above = np.arange(parts)
    found = np.zeros(len(ends), dtype=np.bool_)
    left = parts - 1
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
