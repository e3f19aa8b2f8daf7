r"""Prior scales learned for each effect, for the last fit and its intervals, and the remaining noise on variables.

**Scales.** The search of `bayesprivmrf.learning.select_measure.round_fit` shrinks each mean as if its effect were the
only one. If variables are nearly copies of each other, or many are missing together, the effects of all their pairs
move the same probability, and the shrinkages add up. Let μ(β) be the means of the model, J their derivative (the
covariance of the effects in one record), V the noise variances of the pooled means t, and :math:`T =
\operatorname{diag}(τ_s^2)`. The last fit therefore minimizes

.. math:: \tfrac12 (t - \mu(\beta))^\top V^{-1} (t - \mu(\beta)) + \tfrac12 \beta^\top T^{-1} \beta ,

starting from the end of that search. A noise variance below 1/12 record, the rounding variance of a count, is
replaced by 1/12. The scales are those of the noise-aware mode,
:math:`\log τ = \text{common} + \text{order} + \text{own}`, estimated from the evidence
(`bayesprivmrf.inference.loglinear_fit.scale_prior`). Main effects keep the standard deviation 10, nearly a flat
prior: single variables are always measured, and a narrow prior would move probability to empty states.

At the minimum the coordinates have the covariance :math:`C = (J V^{-1} J + T^{-1})^{-1}`, and the means J C J. The
covariance and the scales depend on each other, so both are updated `RENEWALS` times. Forming J takes one product per
coordinate. Models of more than `DENSE_LIMIT` coordinates keep the scales of the search.

**Noise and misfits.** Noisy tables and the distributions of their noise show which variables to measure again. A
variable v has groups g of states (`bayesprivmrf.learning.select_measure.measured_tables`). Its own tables and margins
of others measure their counts; :math:`\tau_v(g)^2` is the pooled noise variance. For variables that are independent
in the model, the mean count of a cell x is :math:`N \prod_v p_v(x_v)`. Noise moves it, to first order, by
:math:`\sum_v \delta_v(x_v) \prod_{w \ne v} p_w(x_w)`. The mean absolute value of a normal number is
:math:`\sqrt{2/\pi}` standard deviations, so noise alone gives a table c of the model the :math:`L_1` error

.. math:: \sqrt{2/\pi} \sum_x \sqrt{\sum_{v \in c} \tau_v(x_v)^2 \prod_{w \ne v} p_w(x_w)^2}
    \;\ge\; \sqrt{\sum_{v \in c} L_v^2}, \qquad L_v = \sqrt{2/\pi} \sum_g \tau_v(g),

by Minkowski's inequality. This part of a misfit is no sign of dependence; measuring the variables again removes it.

**Merged states** have shares from their own noisy counts, with noise of standard deviation :math:`\sigma_v`. The
error of each share is :math:`\sqrt{2/\pi}\, \sigma_v`, and that of all together at most twice their count. Tables of
groups neither show nor reduce this error, which is added to :math:`L_v`. A variable that is nearly all noise is
therefore measured by itself before any table with it.

**Variables to repeat.** Beside m tables, a variable is measured again if the noise variance of its states is at least
:math:`1.5^2` times that of a new measurement, which grows with the number of tables that share the budget. Tables
stand out by the same factor (`bayesprivmrf.mechanisms.select_measure.rounds`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bayesprivmrf.inference.loglinear_fit.curvature import DenseCurvature, whitened_minimum
from bayesprivmrf.inference.loglinear_fit.moments import Product, Scope
from bayesprivmrf.inference.loglinear_fit.scale_prior import (
    DENSE_LIMIT,
    EffectsPrior,
    learned_scales,
)
from bayesprivmrf.inference.loglinear_fit.search import Descent, Last, Phase, Turn, iterate
from bayesprivmrf.inference.optimize import one_blas_thread
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.learning.select_measure.cells import Cells
from bayesprivmrf.learning.select_measure.measured_tables import (
    MeasuredTable,
    Merging,
    NoisyTable,
    single_counts,
)
from bayesprivmrf.learning.select_measure.round_fit import (
    CONVERGED,
    PRIOR_DEVIATIONS,
    RoundFit,
    agreeing,
    distance_in_noise,
    number_of_records,
    pooled_means,
    prior_deviations,
)
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

# Updates of covariance and scales: further ones change errors by less than one percent (benchmarks of rounds)
RENEWALS = 3

# Rounds of the last fit: the renewals, of which each learns the scales
_SCHEDULE = (Phase(rounds=RENEWALS, learns=True, may_end=False),)

# The most steps of a round
_ITERATIONS = 100

# The gradient at which a round ends, in posterior standard deviations
_GRADIENT = 1e-2

# Steps of the fixed point of the scales in each renewal
_SCALE_STEPS = 6

# Variance of rounding a count, records squared
_ROUNDING = 1 / 12

# Rows of a factor of J C J that are mapped to the cells of a table at once
_TOGETHER = 64


class _Prior(EffectsPrior):
    """Prior of the noise-aware mode, with a fixed scale of main effects."""

    def updated(
        self, log_scales: FloatArray, beta: FloatArray, variances: FloatArray
    ) -> FloatArray:
        """Return the log scales after one step, those of main effects unchanged."""
        found = super().updated(log_scales, beta, variances)
        return np.where(np.array(self.orders) == 1, math.log(PRIOR_DEVIATIONS[0]), found)


def has_scales(effects: Effects) -> bool:
    """Return True if a model is small enough to learn the scales of its interactions, and has some."""
    return effects.size <= DENSE_LIMIT and int(effects.orders.max(initial=1)) > 1


@dataclass(frozen=True, eq=False, kw_only=True)
class MeansExpansion:
    """Quadratic approximation of the module's objective at a point: the weights of one round of the search.

    Parameters
    ----------
    fit
        The model, whose coordinates are the point.
    means, variances
        Pooled noisy means of the effects, and their noise variances, shape (d,).
    log_scales
        log τ of each effect before the renewal; ``None`` for those of the search.
    """

    fit: RoundFit
    means: FloatArray
    variances: FloatArray
    log_scales: FloatArray | None = None

    @cached_property
    def prior(self) -> _Prior:
        """Prior of the coordinates."""
        return _Prior(effects=self.fit.effects)

    @cached_property
    def weights(self) -> FloatArray:
        """Information of each pooled mean, shape (d,)."""
        return 1 / np.maximum(self.variances, _ROUNDING / self.fit.total**2)

    @cached_property
    def missed(self) -> FloatArray:
        """Pooled means minus those of the model, t - μ, shape (d,)."""
        return self.means - self._linearized[0]

    @cached_property
    def derivative(self) -> FloatArray:
        """Derivative J of the means, shape (d, d)."""
        product = self._linearized[1]
        basis = np.eye(self.fit.effects.size)
        found = np.array([product(row) for row in basis])
        return (found + found.T) / 2

    @cached_property
    def learned(self) -> FloatArray:
        """Log scales that the evidence supports, as `EffectsPrior` lists them."""
        size = self.fit.effects.size
        beta = self.fit.coordinates
        # the last row stands for log N, which is fixed
        information = np.zeros((size + 1, size + 1))
        information[:-1, :-1] = self._information
        slope = np.append(-self.derivative @ (self.weights * self.missed), 0.0)
        before = self.log_scales
        if before is None:  # those of the fit before
            before = np.log(prior_deviations(np.array(self.prior.orders, dtype=int)))
        point = np.append(beta, 0.0)
        return learned_scales(self.prior, before, information, point, slope, steps=_SCALE_STEPS)

    @cached_property
    def curvature(self) -> DenseCurvature:
        """Posterior covariance C of the coordinates, factorized."""
        return DenseCurvature(
            information=self._information, prior=self.prior.precision(self.learned)
        )

    def variance_of_cells(
        self, effects: Sequence[tuple[Scope, np.ndarray]], cells: Cells
    ) -> FloatArray:
        """Return the variance J C J of cells or conditional probabilities, from the errors of some effects.

        Parameters
        ----------
        effects
            Subsets of the table's variables, and the positions of their coordinates.
        cells
            The table.
        """
        cards = self.fit.effects.cardinalities
        found = np.zeros(cells.rows.shape)
        if not effects:
            return found
        factor = self.curvature.gradient(
            self.derivative[:, np.concatenate([own for _, own in effects])]
        )
        ends = np.cumsum([own.size for _, own in effects])[:-1]
        for start in range(0, len(factor), _TOGETHER):
            parts = np.split(factor[start : start + _TOGETHER], ends, axis=1)
            moved = sum(
                cells.moved(part.reshape(-1, *(cards[v] - 1 for v in subset)), subset)
                for (subset, _), part in zip(effects, parts, strict=True)
            )
            found += np.square(moved).sum(axis=0)
        return found

    def renewed(
        self, _point: FloatArray, last: Last[MeansExpansion] | None, _turn: Turn
    ) -> MeansExpansion:
        """Return the expansion at the fit of the last round, with its scales; this one in the first round."""
        if last is None:
            return self
        before = last.weighted
        return replace(self, fit=before.improved, log_scales=before.learned)

    @property
    def has_settled(self) -> bool:
        """Return False: the number of renewals is given."""
        return False

    def descended(self, turn: Turn) -> Descent:
        """Return the minimum at the learned scales."""
        return Descent(point=self.improved.coordinates, status=self.improved.status)

    @cached_property
    def improved(self) -> RoundFit:
        """The fit at the learned scales."""
        fit = self.fit
        precision = self.prior.precision(self.learned)

        def objective(beta: FloatArray) -> tuple[float, FloatArray]:
            means, product = fit.engine.linearized(beta)
            missed = self.means - means
            slope = precision * beta - product(self.weights * missed)
            value = 0.5 * (self.weights @ missed**2 + precision @ beta**2)
            return float(value), slope

        point, found = whitened_minimum(
            objective,
            fit.coordinates,
            self.curvature,
            gradient_tolerance=_GRADIENT,
            iterations=_ITERATIONS,
        )
        # one more step of the expansion would move the means by so much
        left = self.derivative @ self.curvature.step(found.gradient)
        off = distance_in_noise(fit.effects, left, self.variances, fit.total)
        if off <= CONVERGED:
            status = Status.CONVERGED
        else:
            status = Status.ITERATION_LIMIT
        is_finite = np.isfinite(found.value) and math.isfinite(off)
        return replace(
            fit,
            coordinates=point,
            status=status if is_finite else Status.DIVERGED,
            off=off,
            evaluations=fit.evaluations + found.evaluations,
        )

    @cached_property
    def _linearized(self) -> tuple[FloatArray, Product]:
        return self.fit.engine.linearized(self.fit.coordinates)

    @cached_property
    def _information(self) -> FloatArray:
        scaled = self.derivative * np.sqrt(self.weights)
        return scaled @ scaled.T  # BLAS sees the symmetry and does half of the work


@one_blas_thread()
def with_learned_scales(
    fit: RoundFit, measured: Sequence[NoisyTable], *, total: float | None = None
) -> RoundFit:
    """Return the fit with a scale learned for each effect; the given fit if it failed or the model is too large.

    Parameters
    ----------
    fit
        The model of all measured tables, with the same scale for all effects.
    measured
        Noisy tables.
    total
        Number of records where it is known.
    """
    has_ended = fit.status in (Status.CONVERGED, Status.ITERATION_LIMIT)
    if not has_ended or not has_scales(fit.effects):
        return fit
    if total is None:
        number, error = number_of_records(measured)
    else:
        number = total
        error = 0.0
    pooled, variances = pooled_means(fit.effects, agreeing(measured, number, error), fit.total)
    first = MeansExpansion(fit=fit, means=pooled, variances=variances)
    found = iterate(first.renewed, fit.coordinates, _SCHEDULE).weighted.improved
    if found.status is Status.DIVERGED:
        return fit
    return found


# Deviations that the noise on a variable's states has at least, by the one that it would have if repeated
WORTH = 1.5

# mean absolute value of a standard normal variable
_MEAN_SIZE = math.sqrt(2 / math.pi)


@dataclass(frozen=True, kw_only=True)
class SingleNoise:
    """Remaining noise on the counts of single variables.

    Parameters
    ----------
    errors
        How far each variable's counts are off in L1, records, shape (p,): :math:`L_v` of the module.
    variances
        Noise variance of the count of a state, records squared, its mean over the variable's states, shape (p,).
    """

    errors: FloatArray
    variances: FloatArray

    @classmethod
    def left(
        cls, declared: Sequence[int], merging: Merging, tables: Sequence[MeasuredTable]
    ) -> SingleNoise:
        """Return the remaining noise after all measured tables.

        Parameters
        ----------
        declared
            Number of declared states of each variable.
        merging
            Which of them are one.
        tables
            All that was measured: each variable of several states by itself at least.
        """
        counts, deviations = single_counts(declared, tables)
        cards = merging.cardinalities
        margins = np.zeros(len(declared))
        for each in tables:
            cells = math.prod(cards[v] for v in each.scope)
            for v in each.scope if len(each.scope) > 1 else ():
                margins[v] += cards[v] / (cells * each.law.variance)
        errors = np.zeros(len(declared))
        variances = np.zeros(len(declared))
        for v, (y, deviation) in enumerate(zip(counts, deviations, strict=True)):
            if y.size == 1:
                continue
            group = merging.groups[v]
            sizes = np.bincount(group)
            is_merged = sizes[group] > 1
            shares = _MEAN_SIZE * deviation * int(is_merged.sum())
            of_groups = _MEAN_SIZE * (1 / np.sqrt(1 / (sizes * deviation**2) + margins[v])).sum()
            errors[v] = of_groups + min(shares, 2 * max(float(y[is_merged].sum()), 0.0))
            alone = 1 / (1 / deviation**2 + margins[v])
            variances[v] = np.where(is_merged, deviation**2, alone).mean()
        return cls(errors=errors, variances=variances)

    def misfits(self, scopes: Sequence[Scope]) -> FloatArray:
        """Return the expected misfits of tables from noise alone, records."""
        squared = (self.errors**2).tolist()
        return np.array([math.sqrt(sum(squared[v] for v in scope)) for scope in scopes])

    def worth_repeating(self, number: int, variance: float) -> list[Scope]:
        """Return the variables worth measuring again beside a given number of tables.

        Parameters
        ----------
        number
            How many other tables are measured.
        variance
            Noise variance of one table if it were measured alone: of m together it is m times this.
        """
        order = np.argsort(-self.variances, kind="stable")
        together = WORTH**2 * variance * (number + 1 + np.arange(order.size))
        worth = np.flatnonzero((self.variances[order] >= together) & (self.variances[order] > 0))
        most = int(worth[-1]) + 1 if worth.size else 0
        return [(int(v),) for v in np.sort(order[:most])]
