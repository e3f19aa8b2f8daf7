r"""Errors of the cells of a learned model, from the errors of the means of their effects.

A table of k cells has one orthonormal zero-sum effect block for each subset S of its variables
(`bayesprivmrf.model.effects`), and the model's error in it is the sum of the errors of their means,

.. math:: \hat p(x) - p(x) = \sum_{S} \sum_j \frac{\phi_{S,j}(x_S)}{\prod_{v \notin S} K_v} e_{S,j} .

1. **Measured effects.** Their pooled noisy means have the noise variances V of `bayesprivmrf.learning.rounds.fit`,
   and the noise of different effects is uncorrelated: an orthonormal transform of independent noise. (Merged states
   of one variable are an exception: their noise is larger, and its correlations are ignored.) Each noise is drawn
   after its table is chosen, so that the choice does not bias it. But tables are chosen by the same sample that is
   measured. Dependence in a chosen table therefore tends to be larger in the sample than in the population, as after
   any selection, and intervals for the population do not correct this. Where scales were learned,
   the means have the covariance J C J of
   `bayesprivmrf.learning.rounds.learned_scales`: cells that many effects move together are known by all of them.
   In larger models the means count as independent, with the variance :math:`(1/v_S + 1/(F_S \tau)^2)^{-1}`, where
   :math:`F_S \tau` is about the prior deviation of the mean, and :math:`F_S` the effect's variance in one record.
   **A contradicted prior does not narrow an interval.** Let d be the difference between the noisy means and those of
   the fit, and :math:`d(x)` its contribution to a cell. If the prior is right, its variance is :math:`v_0 - v`, with
   v the cell's variance above and :math:`v_0` that of the noise alone. The excess of :math:`d(x)^2` over four times
   that variance is added to v.
2. **An effect in no measured table.** Its table was a candidate and was not chosen, because its misfit was no larger
   than that of others; or it was never a candidate, because it was too large for the model, one of too many triples
   (`MOST_TRIPLES` of the plan), or outside the workload or the declared cliques. The effect is treated as if it had
   been measured with twice the noise of the last table of several variables, under the fixed prior. This is a rule of
   thumb, not a theorem. It rests on the prior only, where the table was never a candidate or no table was measured.
3. **The number of records**, where it is private, is estimated by the sums of the tables, with the variance
   :math:`v_N`. All effects except the constant one are divided by it. This adds
   :math:`(\hat p(x) - 1/k)^2 v_N / \hat N^2` to the variance of a cell of k.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from bayesprivmrf.inference.solution import Solution
from bayesprivmrf.learning.rounds.engine import Scope, margin
from bayesprivmrf.learning.rounds.fit import (
    PRIOR_DEVIATIONS,
    RoundFit,
    effect_moments,
    effect_precision,
    pooled_means,
)
from bayesprivmrf.learning.rounds.learned_scales import Expansion, has_scales, in_cells
from bayesprivmrf.learning.rounds.tables import NoisyTable
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, IntArray

_UNMEASURED = 2.0
"""Assumed error of an effect that was not measured, in noise deviations of the last table; a rule of thumb."""

_CONTRADICTED = 2.0
"""Standard deviations of d beyond which the numbers contradict the prior: one cell in twenty by chance."""

_ONE_SIDED = 0.25
"""Share of the distance at which an end is excluded over which a limit leaves the end; arbitrary, for continuity."""

_LEAST_SPREAD = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class CellErrors:
    """Error variances of the cells of any table.

    Parameters
    ----------
    model
        The distribution of merged states.
    tables
        Noisy tables that were measured, those of one variable in agreement with the number of records.
    total, total_error
        Number of records and its standard error.
    last_variance
        Noise variance of a cell of the last table of several variables; infinite where there is none.
    """

    model: Solution
    tables: Sequence[NoisyTable]
    total: float
    total_error: float
    last_variance: float

    def of(self, scope: Scope, table: FloatArray) -> tuple[FloatArray, FloatArray, list[Scope]]:
        """Return each cell's variance, its variance without a prior, and the effects that were not measured.

        Parameters
        ----------
        scope
            Positions of variables, ascending.
        table
            Their probabilities in the model.
        """
        cards = self.model.specification.cardinalities
        effects, told, variances = self._pooled
        place = dict(zip(effects.subsets, effects.offsets, strict=False))
        apart, pull, alone, plain = (np.zeros(table.shape) for _ in range(4))
        known, missing = [], []
        free = [v for v in scope if cards[v] > 1]
        for subset in (s for size in range(1, len(free) + 1) for s in combinations(free, size)):
            mean, second = effect_moments(cards, subset, margin(table, scope, subset))
            prior = np.maximum(second - mean**2, _LEAST_SPREAD)
            prior = prior * PRIOR_DEVIATIONS[min(len(subset), len(PRIOR_DEVIATIONS)) - 1]
            if subset not in place:
                missing.append(subset)
                precision = self.total**2 / (_UNMEASURED**2 * self.last_variance)
                apart += in_cells(1 / (precision + 1 / prior**2), cards, subset, scope, power=2)
                continue
            columns = place[subset] + np.arange(mean.size)
            noise = variances[columns].reshape(mean.shape)
            pull += in_cells(told[columns].reshape(mean.shape) - mean, cards, subset, scope)
            plain += in_cells(noise, cards, subset, scope, power=2)
            alone += in_cells(1 / (1 / noise + 1 / prior**2), cards, subset, scope, power=2)
            known.append((subset, columns))
        variance = alone if self._expansion is None else self._expansion.variance_of_cells(known, scope)
        by_prior = np.maximum(plain - variance, 0.0)
        variance = variance + np.maximum(pull**2 - _CONTRADICTED**2 * by_prior, 0.0)
        apart += (table - 1 / table.size) ** 2 * (self.total_error / self.total) ** 2
        return variance + apart, plain + apart, missing

    def of_entry(self, clique: Scope, states: Mapping[int, int], groups: Sequence[IntArray]) -> float:
        """Return the standard deviation of an entry of an effect's table, from one measured table, nats.

        Parameters
        ----------
        clique
            Variables of the measured table.
        states
            Declared state of each variable of the effect.
        groups
            Group of each declared state, by variable.
        """
        precision = effect_precision(self.model.specification.cardinalities, self.tables, clique)
        expected = np.maximum(self.total * self.model._marginal_table(clique, {}), _LEAST_SPREAD)
        variance = 1 / (precision * expected**2) + 1 / expected
        for v in clique:  # each contraction removes the first remaining axis
            group = groups[v]
            centred = np.arange(group.size) == states[v] if v in states else np.zeros(group.size)
            weights = np.bincount(group, weights=centred - (1 if v in states else -1) / group.size)
            variance = np.tensordot(variance, weights**2, axes=(0, 0))
        return math.sqrt(float(variance))

    @cached_property
    def _pooled(self) -> tuple[Effects, FloatArray, FloatArray]:
        """The effects of the model, their pooled noisy means, and the noise variances of these."""
        model = self.model.specification
        effects = Effects.of(model.cardinalities, model.scopes)
        return effects, *pooled_means(effects, self.tables, self.total)

    @cached_property
    def _expansion(self) -> Expansion | None:
        """The objective of the last fit around the model; ``None`` where no scales were learned."""
        effects, told, variances = self._pooled
        if not has_scales(effects):
            return None
        fit = RoundFit(
            effects=effects,
            coordinates=effects.coordinates(self.model.potentials.flat),
            total=self.total,
            status=self.model.status,
            off=0.0,
            evaluations=0,
        )
        return Expansion(fit=fit, told=told, variances=variances)


def excluded(distance: FloatArray, reach: FloatArray) -> FloatArray:
    """Return the degree to which the measured numbers exclude an end of the range without a prior, from 0 to 1.

    A prior of finite effects excludes an empty cell, whatever was measured. A limit is therefore the end itself where
    the noise reaches it, and moves away from the end over a quarter of that distance.

    Parameters
    ----------
    distance
        Distance from the estimate to the end.
    reach
        Half-width of the interval of a cell without a prior, at the same level.
    """
    beyond = np.divide(distance, reach, out=np.full_like(distance, np.inf), where=reach > 0)
    return np.clip((beyond - 1) / _ONE_SIDED, 0.0, 1.0)
