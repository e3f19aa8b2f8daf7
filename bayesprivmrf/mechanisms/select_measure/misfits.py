"""Misfits of tables, in whole numbers; of many tables of two variables by compiled passes over the records.

Each pass counts one table and compares it with a model's mean counts, so that no table of counts is kept: memory is
that of the records and of one number a pair. `select_measure.rounds` says what a neighbour can change.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit

from bayesprivmrf.mechanisms.select_measure.plan import STEPS
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.threads import one_blas_thread


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
