r"""Fit of a log-linear model to noisy tables, which may repeat or contain each other.

In the orthonormal zero-sum coordinates of `bayesprivmrf.model.effects` every noisy table of a scope C measures the
mean :math:`t_S = E[\phi_S]` of each effect S inside C, by the sum :math:`\sum_x y(x) \phi_S(x_S)`, whose noise has
the variance :math:`\sigma_C^2 \prod_{v \in C \setminus S} K_v`. Measurements of one effect from several tables are
averaged by precision, so small effects inside many tables are known best. With pooled means t of variance v the
estimate minimizes

.. math:: A(\beta) - t^\top \beta + \tfrac12 \sum_s \lambda_s \beta_s^2, \qquad
    \lambda_s = \frac{v_s}{F_s \tau_{|S|}^2},

where :math:`F_s` is the variance of :math:`\phi_s` in one record of the last fit, and :math:`\tau_k` the deviation of
a normal prior on effects of k variables. Near the minimum the first part is :math:`\tfrac12 F_s (\beta_s -
\hat\beta_s)^2`, and noise gives the estimate an error of variance :math:`v_s / F_s^2`: so the penalty is that of the
prior on the scale of the first part. The objective is convex, and each fit starts where the last one ended. Means and
:math:`A` are exact (`bayesprivmrf.inference.loglinear_fit.moments`): over all configurations where these are few,
else by elimination, which the plan of the rounds has seen to be within memory.

The search ends where the gradient, :math:`E_\beta[\phi_s] - t_s + \lambda_s \beta_s`, is a tenth of the noise
:math:`\sqrt{v_s}` (root mean square over effects of one, two, and three or more variables, of which the largest
counts). The remaining distance adds a hundredth to the noise variance of the means. A fit within a quarter still
counts as converged; 90 % intervals then cover 0.890. The tolerance is relative to the noise and not to the sampling
error, which is many times larger for a large budget. A fit that is off by a tenth of the sampling error could then be
off by the whole width of an interval for this sample. Noise of less than half a record counts as half a record.

This is the fit between rounds, and the start of the last fit, which learns a scale for each effect
(`bayesprivmrf.learning.select_measure.learned_scales`) unless the model is large.

The module uses no records, only noisy tables (`bayesprivmrf.learning.select_measure.measured_tables`) and the effects
of the chosen tables. `bayesprivmrf.learning.select_measure.rounds_solution` computes intervals from the same effects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from bayesprivmrf.inference.loglinear_fit.moments import ExactMoments, Scope, moments_of
from bayesprivmrf.inference.optimize import UPDATES_KEPT, Optimum, one_blas_thread, ridge_mode
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.interruption import remember
from bayesprivmrf.learning.select_measure.measured_tables import NoisyTable
from bayesprivmrf.marginals import Layout
from bayesprivmrf.model.effects import Effects, contrasts
from bayesprivmrf.model.tables import FloatArray

# Prior standard deviations τ of effects of one variable, of two, and of three or more, nats. The first is nearly a
# flat prior, because single variables are measured; a smaller one would move probability to groups of empty states.
PRIOR_DEVIATIONS = (10.0, 0.5, 0.15)

# Distance from the optimum, in standard deviations of noise, at which a search has converged; see the module
CONVERGED = 0.25

# Gradient by scaled coordinates that is of rounding
_TOLERANCE = 1e-9

# Numbers, and gradients, that the search remembers: many spare most of its steps where there are hundreds
_MEMORY = 1_000_000
_MOST_KEPT = 160

# Least variance of an effect in one record, by which a ridge divides
_LEAST_SPREAD = 1e-7

# Least count of a group, records
_HALF = 0.5


@dataclass(frozen=True, kw_only=True)
class RoundFit:
    """A fitted model of merged states.

    Parameters
    ----------
    effects
        Coordinates on the maximal scopes that were measured.
    coordinates
        β, shape (d,), nats.
    total
        Number of records, by what was measured.
    status
        How the search ended; whether what was measured tells of records at all is asked of the release alone.
    off
        How far the model's means are from those of the optimum, in deviations of their noise (the largest root mean
        square over effects of one, two, and more variables; see the module); converged where that is at most .25.
    evaluations
        How often the marginals were computed.
    """

    effects: Effects
    coordinates: FloatArray
    total: float
    status: Status
    off: float
    evaluations: int

    @cached_property
    def engine(self) -> ExactMoments:
        """Engine for exact marginals of the model."""
        return moments_of(self.effects)

    def potentials(self) -> list[FloatArray]:
        """Return the log potentials, one table for each clique."""
        flat = self.effects.potentials(self.coordinates)
        return Layout.build(self.effects.cardinalities, self.effects.scopes).tables(flat)

    def probabilities(self, scopes: Sequence[Scope]) -> list[FloatArray]:
        """Return the model's tables of any scopes, with axes in ascending order."""
        return self.engine.tables(self.coordinates, scopes)


def maximal(scopes: Sequence[Scope]) -> tuple[Scope, ...]:
    """Return the maximal scopes, the largest first."""
    inside: set[Scope] = set()
    found = []
    for scope in sorted(set(scopes), key=lambda s: (-len(s), s)):
        if scope not in inside:
            found.append(scope)
            inside.update(
                subset for size in range(1, len(scope)) for subset in combinations(scope, size)
            )
    return tuple(found)


@one_blas_thread()
def fit_tables(
    cardinalities: tuple[int, ...],
    measured: Sequence[NoisyTable],
    last: RoundFit | None = None,
    *,
    total: float | None = None,
    iterations: int = 1000,
    enough: float = 0.1,
) -> RoundFit:
    """Fit the model of the maximal measured scopes, starting from the last fit.

    Parameters
    ----------
    cardinalities
        Number of merged states of each variable.
    measured
        Noisy tables; each variable is in one at least.
    last
        The fit before the newest tables.
    total
        Number of records where it is known; else what was measured tells it.
    iterations
        The most of the search. 0 is for a fit that was interrupted before it began: the model is that of the last
        fit, or without one of independent variables with noisy shares.
    enough
        Deviations of noise from the optimum at which it ends; in its second half a quarter will do.
    """
    alone = [(v,) for v in range(len(cardinalities))]
    scopes = maximal([*(each.scope for each in measured), *alone])
    effects = Effects.of(cardinalities, scopes)
    if total is None:
        number, error = number_of_records(measured)
    else:
        number = total
        error = 0.0
    total = max(number, 1.0)
    if last is None:
        beta = np.zeros(effects.size)
    else:
        beta = carried(effects, last)
    if not iterations:
        if last is None:
            beta = _of_singles(effects, measured)
        return RoundFit(
            effects=effects,
            coordinates=beta,
            total=total,
            status=Status.STOPPED_EARLY,
            off=math.inf,
            evaluations=0,
        )
    means, variances = pooled_means(effects, agreeing(measured, number, error), total)
    engine = moments_of(effects)
    # variance of each coordinate's contrast in one record of the model, by which ridges divide
    moments = [
        effect_moments(cardinalities, subset, table)
        for subset, table in zip(effects.subsets, engine.tables(beta, effects.subsets), strict=True)
    ]
    spreads = [np.zeros(0), *((second - mean**2).ravel() for mean, second in moments)]
    spread = np.maximum(np.concatenate(spreads), _LEAST_SPREAD)
    ridge = variances / (spread * prior_deviations(effects.orders) ** 2)
    unit = 1 / np.sqrt(spread + ridge)

    def off(gradient: FloatArray) -> float:
        return distance_in_noise(effects, gradient / unit, variances, total)

    nearest = _Nearest(off, beta / unit, iterations, enough)
    try:
        found = ridge_mode(
            engine.means,
            means,
            ridge,
            beta,
            unit=unit,
            gradient_tolerance=_TOLERANCE,
            iterations=iterations,
            memory=int(np.clip(_MEMORY // max(effects.size, 1), UPDATES_KEPT, _MOST_KEPT)),
            is_enough=nearest.is_enough,
        )
        status = nearest.ended(found)
    except BaseException as interruption:
        remember(interruption)  # the nearest point so far is a valid result
        status = Status.STOPPED_EARLY
    return RoundFit(
        effects=effects,
        coordinates=unit * nearest.point,
        total=total,
        status=status,
        off=nearest.distance,
        evaluations=nearest.steps,
    )


def _of_singles(effects: Effects, measured: Sequence[NoisyTable]) -> FloatArray:
    """Return the coordinates of independent variables with noisy shares."""
    beta = np.zeros(effects.size)
    for each in measured:
        if len(each.scope) == 1 and each.scope in effects.subsets:
            start = effects.offsets[effects.subsets.index(each.scope)]
            own = contrasts(each.values.size).T @ np.log(np.maximum(each.values, _HALF))
            beta[start : start + own.size] = own
    return beta


@dataclass(slots=True)
class _Nearest:
    """The point of a search that is nearest to the optimum; gradients swing on the way.

    Parameters
    ----------
    off
        Distance from the optimum, in deviations of noise, given a gradient.
    point
        The nearest point, shape (d,); the start of the search to begin with.
    iterations
        Largest number of iterations of the search.
    enough
        Distance at which the search ends; in its second half a quarter will do.
    distance, steps
        Distance of the nearest point, and the number of steps so far; at the end, the number of evaluations.
    """

    off: Callable[[FloatArray], float]
    point: FloatArray
    iterations: int
    enough: float
    distance: float = math.inf
    steps: int = 0

    def is_enough(self, point: FloatArray, gradient: FloatArray) -> bool:
        """Return True if a step ends near enough; keep its point if it is the nearest."""
        self.steps += 1
        now = self.off(gradient)
        if now < self.distance:
            self.distance = now
            self.point = point.copy()
        is_late = 2 * self.steps > self.iterations
        return now <= (max(self.enough, CONVERGED) if is_late else self.enough)

    def ended(self, found: Optimum) -> Status:
        """Record the end of a search, and return its status."""
        self.steps = found.evaluations
        now = self.off(found.gradient)
        if not self.distance < now:  # also if `now` is NaN, which then means divergence
            self.distance = now
            self.point = found.point
        if found.status is Status.DIVERGED or not math.isfinite(self.distance):
            return Status.DIVERGED
        if self.distance <= CONVERGED:
            return Status.CONVERGED
        return Status.ITERATION_LIMIT


def distance_in_noise(
    effects: Effects, moved: FloatArray, variances: FloatArray, total: float
) -> float:
    """Return the largest root mean square change of the means of an order, in standard deviations of their noise.

    Parameters
    ----------
    effects
        The coordinates.
    moved, variances
        Change of each mean, and its noise variance, shape (d,).
    total
        Number of records.
    """
    # the noise of a mean counts as at least half a record
    noise = np.sqrt(np.maximum(variances, (0.5 / total) ** 2))
    kinds = np.minimum(effects.orders, len(PRIOR_DEVIATIONS)) - 1
    squares = np.bincount(kinds, weights=(moved / noise) ** 2)
    return math.sqrt((squares / np.maximum(np.bincount(kinds), 1)).max(initial=0.0))


def prior_deviations(orders: ArrayLike) -> FloatArray:
    """Return the fixed prior standard deviations τ of effects by order, nats."""
    return np.array(PRIOR_DEVIATIONS)[np.minimum(orders, len(PRIOR_DEVIATIONS)) - 1]


def number_of_records(measured: Sequence[NoisyTable]) -> tuple[float, float]:
    """Return the number of records and its standard error, from the precision-weighted mean of the tables' sums."""
    sums = np.array([float(each.values.sum()) for each in measured])
    precisions = np.array(
        [1 / float(np.broadcast_to(e.variance, e.values.shape).sum()) for e in measured]
    )
    return float(sums @ precisions / precisions.sum()), 1 / math.sqrt(precisions.sum())


def agreeing(measured: Sequence[NoisyTable], number: float, error: float) -> list[NoisyTable]:
    r"""Return the tables, with those of one variable adjusted to the number of records if cells differ in noise.

    A group of many states has the noise of all of them. The number of records, which other tables measure as well,
    removes most of it. With :math:`s_i = v_i / \sum_j v_j` the best estimate of a cell, given an estimate N of all
    sums with the standard error e, is :math:`y_i + s_i (N - \sum_j y_j)`: :math:`y_i - s_i \sum_j y_j` has nothing in
    common with the sums. Its variance is :math:`v_i (1 - s_i) + s_i^2 e^2`. A cell that comes out below half a record
    is half a record, and the others share what that takes. Where all cells have one variance nothing changes.
    """
    found = []
    for each in measured:
        own = each.variance
        if isinstance(own, np.ndarray) and own.ndim == 1 and (own != own[0]).any():
            share = own / own.sum()
            values = _with_sum(each.values, own, max(number, float(own.size)))
            each = replace(each, values=values, variance=own * (1 - share) + share**2 * error**2)
        found.append(each)
    return found


def _with_sum(values: FloatArray, variance: FloatArray, number: float) -> FloatArray:
    """Return the nearest values with a given sum, in units of their noise, all at least half a record."""
    is_free = np.ones(values.size, dtype=bool)
    while True:
        share = np.where(is_free, variance, 0.0) / variance[is_free].sum()
        kept = np.where(is_free, values, _HALF)
        adjusted = kept + share * (number - kept.sum())
        if not (adjusted < _HALF - 1e-9).any():
            return adjusted
        is_free &= adjusted >= _HALF


def pooled_means(
    effects: Effects, measured: Sequence[NoisyTable], total: float
) -> tuple[FloatArray, FloatArray]:
    """Return the pooled noisy means of all effects and their noise variances."""
    cards = effects.cardinalities
    place = dict(zip(effects.subsets, effects.offsets, strict=False))
    weighted = np.zeros(effects.size)
    precision = np.zeros(effects.size)
    for each in measured:
        sums = each.values
        for v in each.scope:  # each contraction moves the first axis to the end
            sums = np.tensordot(
                sums, np.column_stack([np.ones(cards[v]), contrasts(cards[v])]), axes=(0, 0)
            )
        free = [v for v in each.scope if cards[v] > 1]
        for subset in (s for size in range(1, len(free) + 1) for s in combinations(free, size)):
            pooled = sums[tuple(slice(1, None) if v in subset else 0 for v in each.scope)].ravel()
            held = slice(place[subset], place[subset] + pooled.size)
            variance = _noise_variance(cards, each, subset)
            weighted[held] += pooled / variance
            precision[held] += 1 / variance
    return weighted / (precision * total), 1 / (precision * total**2)


def effect_moments(
    cardinalities: Sequence[int], subset: Scope, table: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return means and second moments of an effect's coordinates under a table of probabilities."""
    mean = second = table
    for v in subset:  # each contraction moves the first axis to the end
        mean = np.tensordot(mean, contrasts(cardinalities[v]), axes=(0, 0))
        second = np.tensordot(second, contrasts(cardinalities[v]) ** 2, axes=(0, 0))
    return mean, second


def effect_precision(
    cardinalities: Sequence[int], measured: Sequence[NoisyTable], subset: Scope
) -> FloatArray:
    """Return the precision of an effect's sums, pooled over the tables that contain it."""
    held = [each for each in measured if set(subset) <= set(each.scope)]
    return sum(
        (1 / _noise_variance(cardinalities, each, subset) for each in held), start=np.zeros(())
    )


def _noise_variance(cardinalities: Sequence[int], table: NoisyTable, subset: Scope) -> FloatArray:
    """Return the noise variance of an effect's sums in a noisy table that contains it."""
    if not isinstance(table.variance, np.ndarray):
        return np.array(
            table.variance * math.prod(cardinalities[v] for v in table.scope if v not in subset)
        )
    found = table.variance
    for v in table.scope:  # each contraction moves the first axis to the end
        if v in subset:
            weights = contrasts(cardinalities[v]) ** 2
        else:
            weights = np.ones((cardinalities[v], 1))
        found = np.tensordot(found, weights, axes=(0, 0))
    return found.ravel()


def carried(effects: Effects, last: RoundFit) -> FloatArray:
    """Return the coordinates of the last fit, extended by zeros to a model with more effects."""
    place = dict(zip(effects.subsets, effects.offsets, strict=False))
    beta = np.zeros(effects.size)
    for position, subset in enumerate(last.effects.subsets):
        start, stop = last.effects.offsets[position : position + 2]
        if subset in place:
            beta[place[subset] : place[subset] + stop - start] = last.coordinates[start:stop]
    return beta
