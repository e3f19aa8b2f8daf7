r"""Errors of the cells of a learned model, from the errors of the means of their effects.

The model's error in a table of k cells is the sum of the errors of the means of its effects
(`bayesprivmrf.learning.select_measure.cells`). Conditional probabilities are sums over cells, to first order, with
the errors that this module gives these sums.

1. **Measured effects.** Their pooled noisy means have the noise variances V of
   `bayesprivmrf.learning.select_measure.round_fit`, and the noise of different effects is uncorrelated: an
   orthonormal transform of independent noise. (Merged states of one variable are an exception: their noise is larger,
   and its correlations are ignored.) Each noise is drawn after its table is chosen, so that the choice does not bias
   it. But tables are chosen by the same sample that is measured. Dependence in a chosen table therefore tends to be
   larger in the sample than in the population, as after any selection, and intervals for the population do not
   correct this. Where scales were learned, the means have the covariance J C J of
   `bayesprivmrf.learning.select_measure.learned_scales`: cells that many effects move together are known by all of
   them. In larger models the means count as independent, with the variance :math:`(1/v_S + 1/(F_S \tau)^2)^{-1}`,
   where :math:`F_S \tau` is about the prior deviation of the mean, and :math:`F_S` the effect's variance in one
   record. **A contradicted prior does not narrow an interval.** Let d be the difference between the noisy means and
   those of the fit, and :math:`d(x)` its contribution to a cell. If the prior is right, its variance is :math:`v_0 -
   v`, with v the cell's variance above and :math:`v_0` that of the noise alone. The excess of :math:`d(x)^2` over
   four times that variance is added to v.
2. **An effect in no measured table.** Its table was a candidate and was not chosen, because its misfit was no larger
   than that of others; or it was never a candidate, because it was too large for the model, one of too many triples,
   or outside the workload or the declared cliques. The effect is treated as if it had
   been measured with twice the noise of the last table of several variables, under the fixed prior. This is a rule of
   thumb, not a theorem. It rests on the prior only, where the table was never a candidate or no table was measured.
3. **The number of records**, where it is private, is estimated by the sums of the tables, with the variance
   :math:`v_N`. All effects except the constant one are divided by it. This adds
   :math:`(\hat p(x) - 1/k)^2 v_N / \hat N^2` to the variance of a cell of k.

**Cells that may be empty** hold something in every model of finite effects, and take it from other cells. Let
:math:`m(y)` be what a cell y holds if its interval reaches 0, else 0. If these cells are empty, what they hold
belongs to others. The tables of single variables are known far better than joint ones, so that a cell x rises only by
what is given back in its slice of every variable, and at most by

.. math:: S(x) = \min_v \sum_{y \ne x,\, y_v = x_v} m(y) .

Nothing in the release says how much of it is given back. With a share that is uniform between none and all, its mean
square is :math:`S(x)^2 / 3`, which is added to the variance above the estimate. The
coverage of joint cells of questions that are skipped together is measured by
`benchmarks/learning_rounds_determined.py`.

Pairs that were not measured have a bound on their total variation, from the rounds
(`bayesprivmrf.mechanisms.select_measure.unmeasured`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from bayesprivmrf.inference.interval_frame import Mark, RowStatus
from bayesprivmrf.inference.loglinear_fit.moments import Scope, margin
from bayesprivmrf.inference.solution import Solution
from bayesprivmrf.learning.select_measure.cells import Cells
from bayesprivmrf.learning.select_measure.learned_scales import MeansExpansion, has_scales
from bayesprivmrf.learning.select_measure.measured_tables import NoisyTable
from bayesprivmrf.learning.select_measure.round_fit import (
    RoundFit,
    effect_moments,
    effect_precision,
    pooled_means,
    prior_deviations,
)
from bayesprivmrf.model.effects import Effects, contrasts
from bayesprivmrf.model.tables import FloatArray, IntArray

# smallest variance and count that is divided by, for cells of probability 0
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

    def of(self, cells: Cells) -> tuple[FloatArray, FloatArray, list[Scope]]:
        """Return the variance of each row, its variance without a prior, and the unmeasured effects.

        Parameters
        ----------
        cells
            A table of the model, or conditional probabilities in it.
        """
        cards = cells.cardinalities
        scope = cells.scope
        shape = cells.rows.shape
        effects, means, variances = self._pooled
        place = dict(zip(effects.subsets, effects.offsets, strict=False))
        apart, pull, alone, plain = (np.zeros(shape) for _ in range(4))
        known = []
        missing = []
        free = [v for v in scope if cards[v] > 1]
        for subset in (s for size in range(1, len(free) + 1) for s in combinations(free, size)):
            mean, second = effect_moments(cards, subset, margin(cells.table, scope, subset))
            prior = np.maximum(second - mean**2, _LEAST_SPREAD) * prior_deviations(len(subset))
            if subset not in place:
                missing.append(subset)
                # rule of thumb: an effect that was not measured is off by two noise deviations
                precision = self.total**2 / (2.0**2 * self.last_variance)
                apart += cells.moved(1 / (precision + 1 / prior**2), subset, power=2)
                continue
            columns = place[subset] + np.arange(mean.size)
            noise = variances[columns].reshape(mean.shape)
            pull += cells.moved(means[columns].reshape(mean.shape) - mean, subset)
            plain += cells.moved(noise, subset, power=2)
            alone += cells.moved(1 / (1 / noise + 1 / prior**2), subset, power=2)
            known.append((subset, columns))
        if self._expansion is None:
            variance = alone
        else:
            variance = self._expansion.variance_of_cells(known, cells)
        by_prior = np.maximum(plain - variance, 0.0)
        # beyond two standard deviations (one cell in twenty by chance) the numbers contradict the prior
        variance = variance + np.maximum(pull**2 - 2.0**2 * by_prior, 0.0)
        apart += cells.distances**2 * (self.total_error / self.total) ** 2
        return variance + apart, plain + apart, missing

    def of_entry(
        self, clique: Scope, states: Mapping[int, int], groups: Sequence[IntArray]
    ) -> float:
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
            if v in states:
                centred = np.arange(group.size) == states[v]
            else:
                centred = np.zeros(group.size)
            weights = np.bincount(group, weights=centred - (1 if v in states else -1) / group.size)
            variance = np.tensordot(variance, weights**2, axes=(0, 0))
        return math.sqrt(float(variance))

    def stands_out(self, pair: Scope) -> bool:
        r"""Return True if two variables depend, in their measured tables, by more than noise and sampling explain.

        The rule is that of `bayesprivmrf.learning.select_measure.couplings`. With the covariances c of the contrasts
        of the two variables' merged states, noise variance v and sampling variance r, :math:`\sum c^2 / (v + r)` is
        above the chi-squared quantile that corresponds to three standard deviations of a normal variable.
        """
        from scipy.special import chdtri

        cards = [self.model.specification.cardinalities[v] for v in pair]
        held = [each for each in self.tables if set(pair) <= set(each.scope)]
        if not held or min(cards) < 2:
            return False
        precisions = [math.prod(cards) / (float(np.max(e.variance)) * e.values.size) for e in held]
        margins = [margin(e.values, e.scope, pair) for e in held]
        joint = sum(p * m for p, m in zip(precisions, margins, strict=True)) / (
            sum(precisions) * self.total
        )
        bases = [contrasts(k) for k in cards]
        alone = [self.model._marginal_table((v,), {}) for v in pair]
        means = [basis.T @ p for basis, p in zip(bases, alone, strict=True)]
        spreads = [
            p @ basis**2 - mean**2 for basis, p, mean in zip(bases, alone, means, strict=True)
        ]
        covariance = bases[0].T @ joint @ bases[1] - np.multiply.outer(*means)
        noise = 1 / (sum(precisions) * self.total**2) + np.multiply.outer(*spreads) / self.total
        # 0.00135 is the probability that a normal variable exceeds three standard deviations
        return bool((covariance**2 / noise).sum() > chdtri(covariance.size, 0.00135))

    @cached_property
    def _pooled(self) -> tuple[Effects, FloatArray, FloatArray]:
        """Effects of the model, their pooled noisy means, and the noise variances of the means."""
        model = self.model.specification
        effects = Effects.of(model.cardinalities, model.scopes)
        return effects, *pooled_means(effects, self.tables, self.total)

    @cached_property
    def _expansion(self) -> MeansExpansion | None:
        """Quadratic approximation of the last fit's objective at the model; ``None`` if no scales were learned."""
        effects, means, variances = self._pooled
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
        return MeansExpansion(fit=fit, means=means, variances=variances)


def given_back(held: FloatArray) -> FloatArray:
    """Return the mean square of the probability that a cell may gain from possibly empty cells; see the module.

    Parameters
    ----------
    held
        Probabilities of the cells that may be empty, and 0 of the others.
    """
    axes = range(held.ndim)
    slices = [
        held.sum(axis=tuple(a for a in axes if a != own), keepdims=True) - held for own in axes
    ]
    return np.minimum.reduce(slices) ** 2 / 3


# Detail of a release that lists the pairs that were not measured: two positions, and the bound
NOT_MEASURED = "not_measured"


def marks_of_unmeasured(
    variables: Sequence[str], bound: float | None, reach: FloatArray
) -> list[Mark]:
    """Return marks for variables that no measured table contains together.

    The error of a probability of a pair is at most the total variation. Where the bound on it is below the distance
    from the estimate to the limits of its interval, the interval stays valid, and its row is marked ``model``.

    Parameters
    ----------
    variables
        Their names.
    bound
        The bound on the total variation of their table; ``None`` where there is none.
    reach
        From each estimate to the nearer limit of the records' share.
    """
    if bound is None:
        return [Mark(RowStatus.NOT_TRUSTED, f"not measured together: {' × '.join(variables)}")]
    note = f"not measured; total variation at most {bound:.2g}"
    is_within = reach >= bound
    # a convention: doubtful up to a total variation of 0.05, not trusted beyond
    if bound <= 0.05:
        worse = RowStatus.DOUBTFUL
    else:
        worse = RowStatus.NOT_TRUSTED
    return [Mark(RowStatus.MODEL, note, is_within), Mark(worse, note, ~is_within)]
