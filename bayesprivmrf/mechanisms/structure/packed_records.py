"""Counts and scores of packed records: compiled loops over 64 records at a time.

Counts are held for all states of a variable but the first, and for a variable "any" of one state, whose row is 0: a
table is completed by subtraction. All of it is exact in whole numbers of 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Self

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from bayesprivmrf.compiled import INNER, kept
from bayesprivmrf.model.tables import IntArray

# Steps of a score that are one record: a power of two, by which scores are rounded to a thousandth of a record
UNIT = 1024


def _count_ones(_: Any, word: Any) -> Any:
    """Return the number of ones in a word of 64 bits."""
    return types.int64(types.uint64), lambda context, builder, signature, args: builder.ctpop(
        args[0]
    )


_ones: Any = intrinsic(_count_ones)


@kept()
def _joint(bits: Any, planes: Any, mask: Any, rows: int) -> Any:
    """Count the masked records in which two bits are set, shape (rows, all)."""
    found = np.zeros((rows, len(bits)), dtype=np.int32)
    # a record that occurs 5 = 101b times is in planes 0 and 2, with weights 1 and 4
    for plane in range(len(planes)):
        kept = mask & planes[plane]
        for u in range(rows):
            one = bits[u] & kept
            # the number of ones in the intersection of three bit rows
            for v in range(u, len(bits)):
                other = bits[v]
                count = 0
                for word in range(one.size):
                    count += _ones(one[word] & other[word])
                found[u, v] += count << plane
    # the other half by symmetry
    for v in range(rows):
        found[v, :v] = found[:v, v]
    return found


@njit(nogil=True, **INNER)
def _stratum(joint: Any, k: Any, m: Any, c: int, d: int, table: Any) -> None:
    """Write the counts of a pair's states, index 0 being any, where two variables have states c and d.

    The rows of a variable's later states follow its first, and its number of states: k and m are (first, states).
    """
    # the rows of the two states; the first state has none, and its counts are those of any less the others
    u = k[0] + c if c else 0
    v = m[0] + d if d else 0
    for a in range(table.shape[0]):
        for b in range(table.shape[1]):
            count = np.int64(joint[a, b, u, v])
            # first state of the one: subtract its other states
            if not c:
                for other in range(1, k[1]):
                    count -= joint[a, b, k[0] + other, v]
            # first state of the other
            if not d:
                for other in range(1, m[1]):
                    count -= joint[a, b, u, m[0] + other]
            # first states of both: what was subtracted twice is added
            if not c and not d:
                for one in range(1, k[1]):
                    for other in range(1, m[1]):
                        count += joint[a, b, k[0] + one, m[0] + other]
            table[a, b] = count


@njit(nogil=True, **INNER)
def _departure(table: Any) -> int:
    """Return the L1 norm of n n_ab - n_a n_b over all cells, from counts whose index 0 is any.

    Each row and column of it adds up to zero, which gives those of the first states.
    """
    # formula: Σ_ab |n n_ab - n_a n_b|, where cells of first states are minus the sums of their rows and columns
    A = table.shape[0]
    B = table.shape[1]
    total = 0
    corner = 0
    for a in range(1, A):
        row = 0
        for b in range(1, B):
            cell = table[0, 0] * table[a, b] - table[a, 0] * table[0, b]
            total += abs(cell)
            row += cell
        # the cell of the first state in this row is minus the others' sum
        total += abs(row)
        corner += row
    for b in range(1, B):
        column = 0
        for a in range(1, A):
            column += table[0, 0] * table[a, b] - table[a, 0] * table[0, b]
        total += abs(column)
    return total + abs(corner)


@njit(nogil=True, **INNER)
def _score(departure: int, records: int) -> int:
    """Return the departure over the records, in steps, rounded down; no product leaves 64 bits."""
    if records == 0:
        return 0
    return departure // records * UNIT + departure % records * UNIT // records


@njit(nogil=True, **INNER)
def _given(joint: Any, k: Any, m: Any, table: Any) -> int:
    """Return the score of a pair given two variables, in steps; arguments as for `_stratum`."""
    score = 0
    for c in range(k[1]):
        for d in range(m[1]):
            _stratum(joint, k, m, c, d, table)
            score += _score(_departure(table), table[0, 0])
    return score


@kept()
def _raise(joints: Any, first: Any, states: Any, i: int, j: int, top: int, found: Any) -> None:
    """Raise the entries below `top` to the scores of a pair given one or two variables, strata of others added up.

    `joints` has one array for each of these strata, with the counts of the pair's states, 0 standing for any, beside
    two bits: shape (strata, K_i, K_j, rows, all). The entry of two variables is one place after theirs; place 0 is
    for none.
    """
    p = len(states)
    table = np.zeros((states[i], states[j]), dtype=np.int64)
    # all pairs of a variable or none, and a later variable
    for k in range(-1, p if joints.shape[3] > 1 else 0):
        if k in (i, j):
            continue
        one = (0, 1) if k < 0 else (first[k], states[k])
        for m in range(k + 1, p):
            # a score that reached `top` decides nothing any more
            if m in (i, j) or found[k + 1, m + 1] >= top:
                continue
            # sum over the strata of the other variables
            score = 0
            for stratum in range(len(joints)):
                score += _given(joints[stratum], one, (first[m], states[m]), table)
            found[k + 1, m + 1] = found[m + 1, k + 1] = max(score, found[k + 1, m + 1])


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PackedRecords:
    """Records as bits, one row a state but the first of each variable: sensitive.

    Parameters
    ----------
    sensitive_bits
        Shape (1 + sum of (K - 1), words); the first row is of all records.
    sensitive_planes
        Binary digits of how often each record occurs, lowest first, shape (digits, words).
    first
        The row before that of each variable's second state, shape (p,).
    states
        Number of states of each variable, shape (p,).
    """

    sensitive_bits: np.ndarray
    sensitive_planes: np.ndarray
    first: IntArray
    states: IntArray

    @classmethod
    def of(cls, codes: np.ndarray, counts: IntArray, cardinalities: Sequence[int]) -> Self:
        """Pack distinct records and how often they occur."""
        states = np.asarray(cardinalities, dtype=np.int64)
        rows = [np.ones(len(codes), dtype=bool)]
        rows += [codes[:, v] == state for v, k in enumerate(cardinalities) for state in range(1, k)]
        digits = max(int(counts.max(initial=1)).bit_length(), 1)
        planes = [counts >> digit & 1 == 1 for digit in range(digits)]
        return cls(
            sensitive_bits=_packed(rows),
            sensitive_planes=_packed(planes),
            first=np.cumsum(states - 1) - (states - 1),
            states=states,
        )

    def least_of_largest(self, i: int, j: int, given: int, more: int, top: int) -> int:
        """Return the smallest, over sets of `given` others, of a pair's largest score given these and at most `more`.

        Where it is at least `top`, any number of at least `top` may be returned; so it is where there is no such set.

        The counts of a pair's states beside two variables hold two of all these; the others' strata are gone through.
        """
        within = min(2 - given, more)
        others = np.delete(np.arange(len(self.states)), [i, j])
        if len(others) < given:
            return top
        places = np.r_[0, others + 1]
        found = np.zeros((len(self.states) + 1,) * 2, dtype=np.int64)
        apart = ~np.eye(len(others), dtype=bool)
        # a set with fewer is met as one that holds some of those given
        for some in combinations(others.tolist(), min(more - within, len(others))):
            strata = product(*(range(self.states[v]) for v in some))
            joints = [
                self._beside(i, j, self._all_of(some, states), given + within) for states in strata
            ]
            _raise(np.stack(joints), self.first, self.states, i, j, top, found)
            if given == 2 and found[np.ix_(places, places)][1:, 1:][apart].min() >= top:
                break
        held = found[np.ix_(places, places)]
        if given == 2:
            return int(held[1:, 1:][apart].min())
        return int(held[1:].max(axis=1).min() if given else held.max())

    def _all_of(self, variables: Sequence[int], states: Sequence[int]) -> np.ndarray:
        """Return which records have these states, state 0 being the one that has no row."""
        mask = self.sensitive_bits[0]
        for v, state in zip(variables, states, strict=True):
            rows = self.sensitive_bits[self.first[v] + 1 : self.first[v] + self.states[v]]
            mask = mask & (rows[state - 1] if state else ~np.bitwise_or.reduce(rows, axis=0))
        return mask

    def _beside(self, i: int, j: int, mask: np.ndarray, given: int) -> np.ndarray:
        """Return the masked counts of a pair's states, 0 standing for any, beside one bit or two."""
        rows = 1 if given == 1 else len(self.sensitive_bits)
        shape = (int(self.states[i]), int(self.states[j]))
        joint = [
            _joint(
                self.sensitive_bits,
                self.sensitive_planes,
                mask
                & self.sensitive_bits[self.first[i] + a if a else 0]
                & self.sensitive_bits[self.first[j] + b if b else 0],
                rows,
            )
            for a, b in np.ndindex(shape)
        ]
        return np.stack(joint).reshape(*shape, *joint[0].shape)

    def __repr__(self) -> str:
        return "PackedRecords(sensitive)"


def _packed(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return rows of truth values as words of 64 bits."""
    bits = np.packbits(np.asarray(rows, dtype=bool), axis=1)
    spare = -bits.shape[1] % 8
    return np.ascontiguousarray(np.pad(bits, ((0, 0), (0, spare)))).view(np.uint64)
