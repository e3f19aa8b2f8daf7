r"""Noisy numbers that are given twice, and would be counted as two independent measurements.

Two measurements of the same people have independent noise. Two tables that share variables both have sums over the
others: one repeats the other where these sums are equal. If all variables of one table are in the other, it is a copy
or a margin; if only some are, both were made from one noisy table, or adjusted to the same margin. Given the first
table, a sum of the second is within a rounding error e of the first's with a probability of at most
:math:`\min(1, (g + 2 e) p_0)`, whatever the counts are: :math:`p_0` is the largest density of the second's noise, and
g the step of its published numbers. By the same argument the noise of the first table bounds it. The sums are of
different cells, so that the probability that all agree by chance is at most the product over them; of both products
the smaller one is used.
Numbers that are zero are left out, because a publisher may set them. Exact numbers, bounds and rules that depend on
the count agree rightly, and are not compared.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.grid import grid_of
from bayesprivmrf.noise.likelihood import Likelihood
from bayesprivmrf.queries import BoundQuery
from bayesprivmrf.release.measurement import Measurement

# Probability of a coincidence, times the number of compared pairs, below which equal numbers are copies. Arbitrary:
# so small that no user meets it by chance, and reached by four numbers with two decimals and noise of scale 1.
_COINCIDENCE = 1e-6
# Difference of equal numbers, as a share of the largest, that summation and 15 printed digits may cause
_ROUNDING = 1e-13


@dataclass(frozen=True, eq=False, kw_only=True)
class Told:
    """Numbers of one measurement, as they are compared with those of others.

    Parameters
    ----------
    query
        The query, bound to a model.
    values
        The noisy numbers, shape (rows,), records.
    noise
        Distribution of the noise.
    """

    query: BoundQuery
    values: FloatArray
    noise: Likelihood

    @cached_property
    def scope(self) -> tuple[object, ...] | None:
        """Variables of the table in axis order; None for other queries."""
        if self.query.is_table:
            return self.query.scopes[0]
        return None

    @cached_property
    def _table(self) -> FloatArray:
        """The numbers of a table, an axis for each variable."""
        cardinalities = self.query.model.cardinalities
        return self.values.reshape([cardinalities[v] for v in self.query.positions[0]])

    def first_sums(self) -> list[float]:
        """Return, for each variable of the table, the sum of the numbers in its first state, records."""
        table = self._table
        return [float(table.take(0, axis).sum()) for axis in range(table.ndim)]

    def summed(self, scope: tuple[object, ...]) -> FloatArray:
        """Return the table's sums over all variables but those of a scope, shape (rows,), in its axis order."""
        own = self.scope
        assert own is not None
        table = self._table
        kept = [own.index(variable) for variable in scope]
        left = tuple(axis for axis in range(table.ndim) if axis not in kept)
        # the sums have the kept axes in the order of the table
        order = np.argsort(np.argsort(kept))
        return table.sum(axis=left).transpose(order).ravel()

    def log_chance(self, numbers: int, slack: float) -> float:
        """Return the log of the largest probability that so many numbers agree up to `slack` by chance."""
        peak = float(np.exp(self.noise.log_probability(np.zeros(1), np.zeros(1)))[0])
        return numbers * float(np.log(min(1.0, (grid_of(self.values) + 2 * slack) * peak)))


def told_by(queries: Sequence[BoundQuery], measurements: Sequence[Measurement]) -> list[Told]:
    """Return measurements with noise that does not depend on the count; of others, equal numbers say nothing."""
    return [
        Told(query=query, values=np.asarray(one.values, dtype=float).ravel(), noise=one.noise)
        for query, one in zip(queries, measurements, strict=True)
        if one.noise.is_additive and not _is_known(one.noise)
    ]


def _is_known(law: Likelihood) -> bool:
    """Return True if the count is known exactly, or within bounds."""
    return law.is_exact or law.is_bounded


def refuse_copies(measurements: Sequence[Told]) -> None:
    """Raise a `ModelError` if a measurement repeats another, or sums of another."""
    most_pairs = max(1, math.comb(len(measurements), 2))
    for first, second in sorted(set(_suspects(measurements))):
        one = measurements[first]
        other = measurements[second]
        if not _is_comparable(one, other):
            continue
        chance = _log_chance_of_copy(one, other) + np.log(most_pairs)
        require(
            chance >= np.log(_COINCIDENCE),
            "measurements",
            "have independent noise",
            _repetition(one, other),
            "give these numbers once; noise does not repeat itself, and copies would be taken for further evidence",
            error=ModelError,
        )


def _suspects(measurements: Sequence[Told]) -> Iterator[tuple[int, int]]:
    """Yield the positions of pairs that may repeat each other: a sum of a shared variable is the same.

    Tables whose sums over some variables agree have equal sums for each state of each shared variable, the first one
    included, so that sorting finds them without a comparison of all pairs.
    """
    largest = max(
        (np.abs(one.values).max(initial=1.0) * one.values.size for one in measurements), default=1.0
    )
    slack = _ROUNDING * float(largest)
    has_queries = any(one.scope is None for one in measurements)
    sums: dict[Hashable, list[tuple[float, int]]] = defaultdict(list)
    for position, one in enumerate(measurements):
        if one.scope is None:
            sums[one.query.scopes].append((0.0, position))
            continue
        if has_queries:  # of the same variables, perhaps
            sums[(one.scope,)].append((0.0, position))
        for variable, first in zip(one.scope, one.first_sums(), strict=True):
            sums[variable].append((first, position))
    for found in sums.values():
        found.sort()
        for start, (value, position) in enumerate(found):
            for near, other in found[start + 1 :]:
                if near - value > slack:
                    break
                yield min(position, other), max(position, other)


def _repetition(one: Told, other: Told) -> str:
    """Return what two measurements have in common."""
    shared = _shared(one, other)
    if one.scope is None or shared in (set(one.scope), set(other.scope or ())):
        if other.scope is not None and shared == set(other.scope):
            one, other = other, one
        return f"the numbers of {one.query.query!r} twice: they are those of {other.query.query!r}"
    names = ", ".join(repr(variable) for variable in one.scope if variable in shared)
    return (
        f"equal sums of {one.query.query!r} and {other.query.query!r} over all variables but {names}: both were made "
        "from one noisy table, or adjusted to each other"
    )


def _shared(one: Told, other: Told) -> set[object]:
    """Return the variables that two tables share."""
    return set(one.scope or ()) & set(other.scope or ())


def _is_comparable(one: Told, other: Told) -> bool:
    """Return True if two measurements have sums, or answers, of the same people's same states."""
    if one.scope is None or other.scope is None:
        return one.query.scopes == other.query.scopes and _have_same_rows(one.query, other.query)
    shared = _shared(one, other)
    own = one.query.model.domain
    others = other.query.model.domain
    # a fit refuses releases with other states itself; False and 0 are two states
    return bool(shared) and all(repr(own.states_of(v)) == repr(others.states_of(v)) for v in shared)


def _have_same_rows(one: BoundQuery, other: BoundQuery) -> bool:
    """Return True if two queries of the same scopes have equal matrices."""
    if one.matrix.shape != other.matrix.shape:
        return False
    return (one.matrix != other.matrix).nnz == 0


def _log_chance_of_copy(one: Told, other: Told) -> float:
    """Return the log probability that a measurement repeats the numbers of another by chance; 0 if they differ."""
    if one.scope is None or other.scope is None:
        own = one.values
        others = other.values
    else:
        shared = _shared(one, other)
        scope = tuple(variable for variable in one.scope if variable in shared)
        own = one.summed(scope)
        others = other.summed(scope)
    parts = (one.values, other.values, own, others)
    slack = _ROUNDING * max(np.abs(part).max(initial=1.0) for part in parts)
    if (np.abs(own - others) > slack).any():
        return 0.0
    numbers = int((own != 0).sum())
    return min(one.log_chance(numbers, slack), other.log_chance(numbers, slack))
