r"""Limits of probabilities that the measurements allow to be 0 or 1, under a prior that does not.

Under normal effects no draw has an empty cell, whatever was measured, so that no interval of draws reaches 0. A
limit therefore moves to the end if the measured counts alone do not exclude it: with the least-squares count n of the
cell, whose noise has the standard deviation s, a probability of 0 is excluded if n is above z s, z being the normal
quantile of the interval. The limit leaves the end over a quarter of that distance. The limit at 1 is treated alike,
by the count of all other cells. A true 0 is then covered with probability of about 1 - α/2, and intervals of other
probabilities only become longer. Dirichlet rows have draws near 0, and need no such rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bayesprivmrf.inference.limits import Limits, excluded, half_width
from bayesprivmrf.inference.posterior.results.draws import Draws
from bayesprivmrf.model.domain import Condition
from bayesprivmrf.model.tables import FloatArray, parent

if TYPE_CHECKING:
    from bayesprivmrf.queries import BoundQuery

# Least half-width of a count, records: half a record cannot be told from none
_HALF = 0.5


class EndsExcluded(NamedTuple):
    """Degree to which the measured counts exclude the probabilities 0 and 1 of joint states, each from 0 to 1."""

    zero: FloatArray
    one: FloatArray

    def moved(self, limits: Limits) -> Limits:
        """Return limits of probabilities, moved to the ends that are not excluded."""
        lower = limits.lower * self.zero.reshape(np.shape(limits.lower))
        upper = 1 - (1 - limits.upper) * self.one.reshape(np.shape(limits.upper))
        return limits._replace(lower=lower, upper=upper)


def ends_excluded(
    draws: Draws, query: tuple[int, ...], given: Condition, prob: float
) -> EndsExcluded | None:
    """Return the degree to which 0 and 1 are excluded for joint states; None if draws may reach them.

    Parameters
    ----------
    draws
        Draws of a posterior.
    query
        Positions of the variables.
    given
        States of other variables, by position.
    prob
        Probability of the interval.
    """
    model = draws.model
    if not _is_finite(draws) or parent(model.scopes, [*query, *given]) is None:
        return None
    pooled = draws.pooled
    parts = (pooled.counts, pooled.variances, pooled.undetermined.astype(float))
    counts, variances, unknown = (
        _given(model.project(part, [*query, *given]), given) for part in parts
    )
    if unknown.any():
        return None
    whole = (float(counts.sum()), float(variances.sum()))
    return _by_counts(counts, variances, whole, prob)


def answers_exclude(draws: Draws, bound: BoundQuery, prob: float) -> EndsExcluded | None:
    """Return the exclusions for the answers to a query on one table; None unless they are probabilities of states."""
    model = draws.model
    are_states = len(bound.positions) == 1 and bool(np.isin(bound.matrix.data, (0.0, 1.0)).all())
    if not _is_finite(draws) or not are_states or parent(model.scopes, bound.positions[0]) is None:
        return None
    pooled = draws.pooled
    scope = list(bound.positions[0])
    if model.project(pooled.undetermined.astype(float), scope).any():
        return None
    whole = (
        float(model.project(pooled.counts, scope).sum()),
        float(model.project(pooled.variances, scope).sum()),
    )
    # entries are 0 or 1, which are their own squares
    return _by_counts(bound.answers(pooled.counts), bound.answers(pooled.variances), whole, prob)


def _is_finite(draws: Draws) -> bool:
    """Return True if the prior has finite effects, and nothing else, so that no draw has an empty cell."""
    model = draws.model
    return draws.finished.scales is not None and not (model.is_restricted or model.ordinal)


def _by_counts(
    counts: FloatArray, variances: FloatArray, whole: tuple[float, float], prob: float
) -> EndsExcluded:
    """Return the degrees by counts and variances of their noise, and those of all cells together."""
    total, variance = whole
    return EndsExcluded(
        _excluded(counts, variances, prob), _excluded(total - counts, variance - variances, prob)
    )


def _given(table: FloatArray, given: Condition) -> FloatArray:
    """Return the sum over the given states of the last axes."""
    for codes in reversed(list(given.values())):
        table = table[..., list(codes)].sum(axis=-1)
    return table


def _excluded(counts: FloatArray, variances: FloatArray, prob: float) -> FloatArray:
    """Return the degree to which counts with noise exclude 0."""
    reach = np.maximum(half_width(np.sqrt(np.maximum(variances, 0.0)), prob), _HALF)
    return excluded(np.maximum(counts, 0.0), reach)
