r"""Misfits of tables, in whole numbers, and how many tables stand out by them.

Misfits of many tables of two variables are computed by compiled passes over the records. Each pass counts one table
and compares it with a model's mean counts, so that no table of counts is kept: memory is that of the records and of
one number a pair. `select_measure.rounds` says what a neighbor can change.

**A heaviest basis.** Some tables say the same, so that how many stand out is counted on a heaviest basis of them.
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
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit

from bayesprivmrf.inference.effects_fit.moments import Scope
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.threads import one_blas_thread

# M: a misfit's steps for one record. Rounding a mean count to a step moves a misfit by half a step at most, far
# less than the noise on it.
STEPS = 64


def expected_counts(table: FloatArray, total: float) -> IntArray:
    """Return a model's mean counts in whole steps of 1/M record, flat."""
    return np.rint(STEPS * total * table.ravel()).astype(np.int64)


def misfit(counts: IntArray, expected: IntArray) -> int:
    """Return the L1 distance between counts and a model's mean counts, steps of 1/M record."""
    return int(np.abs(STEPS * counts - expected).sum())


@njit(nogil=True, cache=True)
def _starts(column: Any, states: Any) -> Any:
    """Return where the row of each record's state starts in a flat table; unsigned, so that no index is checked."""
    found = np.empty(column.size, dtype=np.uint32)
    for row in range(column.size):
        found[row] = column[row] * states
    return found


@njit(nogil=True, cache=True)
def _counted(starts: Any, other: Any, weights: Any, table: Any) -> None:
    """Count the joint states of two columns, flat; no weights are ones."""
    table[:] = 0
    if weights.size:
        for row in range(starts.size):
            table[np.uint64(starts[row]) + np.uint64(other[row])] += weights[row]
    else:
        for row in range(starts.size):
            table[np.uint64(starts[row]) + np.uint64(other[row])] += 1


@njit(nogil=True, cache=True)
def _row_of_misfits(
    columns: Any,
    weights: Any,
    states: Any,
    u: Any,
    shares: Any,
    first: Any,
    scale: Any,
    steps: Any,
    found: Any,
) -> None:
    """Write the misfits of u and each later variable under independence; see `independent_misfits`."""
    starts, last = _starts(columns[u], 1), 1
    for v in range(u + 1, len(columns)):
        if states[v] != last:
            starts, last = _starts(columns[u], states[v]), states[v]
        table = np.empty(states[u] * states[v], dtype=np.int64)
        _counted(starts, columns[v], weights, table)
        total = 0
        for a in range(states[u]):
            for b in range(states[v]):
                expected = np.int64(np.rint(scale * (shares[first[u] + a] * shares[first[v] + b])))
                total += abs(steps * table[a * states[v] + b] - expected)
        found[v] = total


@njit(nogil=True, cache=True)
def _misfits(
    columns: Any, weights: Any, states: Any, pairs: Any, expected: Any, first: Any, steps: Any, found: Any
) -> None:
    """Write the misfits of pairs; see `pair_misfits`."""
    for place in range(len(pairs)):
        u, v = pairs[place]
        table = np.empty(states[u] * states[v], dtype=np.int64)
        _counted(_starts(columns[u], states[v]), columns[v], weights, table)
        total = 0
        for cell in range(table.size):
            total += abs(steps * table[cell] - expected[first[place] + cell])
        found[place] = total


def independent_misfits(
    codes: np.ndarray, counts: IntArray, shares: Sequence[FloatArray], total: float, steps: int
) -> IntArray:
    """Return the misfits of all pairs under independence: sensitive, shape (p, p), above the diagonal.

    Parameters
    ----------
    codes, counts
        Records, shape (rows, p), and how many each row stands for.
    shares
        Public probabilities of each variable's states.
    total
        Public number of records, N.
    steps
        M, of one record.

    Notes
    -----
    Mean counts are M N p_u(a) p_v(b), rounded to whole steps, as `expected_counts`.
    """
    columns, weights = _prepared(codes, counts)
    states = np.array([len(each) for each in shares], dtype=np.int64)
    flat, first = np.concatenate(shares), np.cumsum(states) - states
    found = np.zeros((len(states), len(states)), dtype=np.int64)

    def row(u: int) -> None:
        _row_of_misfits(columns, weights, states, u, flat, first, steps * total, steps, found[u])

    with one_blas_thread() as threads, ThreadPoolExecutor(threads) as pool:
        list(pool.map(row, range(len(states))))
    return found


def pair_misfits(
    codes: np.ndarray,
    counts: IntArray,
    states: Sequence[int],
    pairs: Sequence[tuple[int, int]],
    expected: Sequence[IntArray],
    steps: int,
) -> IntArray:
    """Return the misfits of some pairs, ascending each: sensitive, shape (pairs,).

    Parameters
    ----------
    codes, counts, steps
        As for `independent_misfits`.
    states
        Number of states of each variable.
    pairs
        Positions of two variables each.
    expected
        Public mean counts of each pair, whole steps, flat.
    """
    columns, weights = _prepared(codes, counts)
    found = np.zeros(len(pairs), dtype=np.int64)
    if not len(pairs):
        return found
    where = np.array(pairs, dtype=np.int64)
    flat, sizes = np.concatenate(expected), np.array([each.size for each in expected])
    first, kinds = np.cumsum(sizes) - sizes, np.array(states, dtype=np.int64)

    def part(block: IntArray) -> None:
        begin, end = block[0], block[-1] + 1
        _misfits(columns, weights, kinds, where[begin:end], flat, first[begin:end], steps, found[begin:end])

    with one_blas_thread() as threads, ThreadPoolExecutor(threads) as pool:
        list(pool.map(part, np.array_split(np.arange(len(pairs)), min(threads, len(pairs)))))
    return found


def _prepared(codes: np.ndarray, counts: IntArray) -> tuple[np.ndarray, IntArray]:
    """Return columns in one piece each, and the counts, none where all are one."""
    return np.ascontiguousarray(codes.T), counts if (counts != 1).any() else counts[:0]


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
