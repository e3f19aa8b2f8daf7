r"""Noisy numbers that are given twice, and would be counted as two independent measurements.

Two measurements of the same people have independent noise. If one is a table and the other has the same variables, or
some of them, the second repeats the first where its numbers are the sums of the first's numbers. Given the first, a
number of the second is within a rounding error e of such a sum with a probability of at most
:math:`\min(1, (g + 2 e) p_0)`, whatever the counts are: :math:`p_0` is the largest density of the second's noise, and
g the step of its published numbers. By the same argument the noise of a summed cell bounds it. So the probability
that all numbers agree by chance is at most the product over the numbers; of both products the smaller one is used.
Numbers that are zero are left out, because a publisher may set them. Exact numbers, bounds and rules that depend on
the count agree rightly, and are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

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

    @property
    def scope(self) -> tuple[object, ...] | None:
        """Variables of the table in axis order; None for other queries."""
        if self.query.is_table:
            return self.query.scopes[0]
        return None

    def summed(self, scope: tuple[object, ...]) -> FloatArray:
        """Return the table's sums over all variables but those of a scope, shape (rows,), in its axis order."""
        own = self.scope
        assert own is not None
        domain = self.query.model.domain
        table = self.values.reshape([len(domain.states_of(v)) for v in own])
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
    """Raise a `ModelError` if a measurement repeats another, or the sums of another."""
    pairs = [pair for pair in combinations(measurements, 2) if _is_comparable(*pair)]
    for one, other in pairs:
        if not _is_told_by(one, other):
            one, other = other, one
        chance = _log_chance_of_copy(one, other) + np.log(len(pairs))
        require(
            chance >= np.log(_COINCIDENCE),
            "measurements",
            "have independent noise",
            f"the numbers of {one.query.query!r} twice: they are those of {other.query.query!r}",
            "give these numbers once; noise does not repeat itself, and copies would be taken for further evidence",
            error=ModelError,
        )


def _is_comparable(one: Told, other: Told) -> bool:
    """Return True if one of two measurements may repeat the other."""
    return _is_told_by(one, other) or _is_told_by(other, one)


def _is_told_by(one: Told, other: Told) -> bool:
    """Return True if the other measurement's counts determine those of the first."""
    own = one.scope
    others = other.scope
    if own is None or others is None:
        return one.query.scopes == other.query.scopes and _have_same_rows(one.query, other.query)
    return set(own) <= set(others)


def _have_same_rows(one: BoundQuery, other: BoundQuery) -> bool:
    """Return True if two queries of the same scopes have equal matrices."""
    if one.matrix.shape != other.matrix.shape:
        return False
    return (one.matrix != other.matrix).nnz == 0


def _log_chance_of_copy(one: Told, other: Told) -> float:
    """Return the log probability that a measurement repeats the numbers of another by chance; 0 if they differ."""
    if one.scope is None:
        sums = other.values
    else:
        sums = other.summed(one.scope)
    slack = _ROUNDING * max(np.abs(part).max(initial=1.0) for part in (other.values, sums))
    if (np.abs(sums - one.values) > slack).any():
        return 0.0
    numbers = int((one.values != 0).sum())
    return min(one.log_chance(numbers, slack), other.log_chance(numbers, slack))
