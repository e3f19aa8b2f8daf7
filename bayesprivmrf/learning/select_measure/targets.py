r"""Noisy means of effects, the pairs that stand out from noise and sampling, and the numbers as `NoisyStatistics`.

**Means.** In the orthonormal contrasts :math:`Q_i` of a variable's states a table of counts :math:`y_i` has the mean
effect :math:`t_i = Q_i^\top y_i / N`, a pair's table :math:`t_{ij} = Q_i^\top y_{ij} Q_j / N`: independent noise of
one variance on cells is independent noise of that variance, over N squared, on each mean. Sums of spins and of
products are the same means for two states, :math:`t_i = S_i / (\sqrt 2 N)` and :math:`t_{ij} = S_{ij} / (2 N)`. The
margins of a pair's table measure its variables once more; what measures one mean is averaged by precision, and so is
what measures the number of records.

**Pairs that stand out.** A pair is left out unless its covariance :math:`c = t_{ij} - t_i t_j^\top` stands out from
noise and sampling, with variances v and r: :math:`\sum c^2 / (v + r)` must exceed a quantile of the chi-squared
distribution with as many degrees of freedom. With the noise variances :math:`v_{ij}, v_i, v_j` of the means, the
noise variance of an entry of c is to first order

.. math:: v = v_{ij} + t_j^2 v_i + t_i^2 v_j + (t_i t_j)^2 v_N / N^2 ,

The last term arises because a noisy number of records, :math:`N (1 + \delta)`, divides :math:`t_{ij}` once and
:math:`t_i t_j^\top` twice: c moves by :math:`\delta (t_i t_j^\top - c)`, with the same :math:`\delta` for all pairs.
The sampling variance is :math:`r = F_i F_j / N`, where F is the variance of a contrast in one record.

The tail probability depends on the shares of noise and sampling in the variance. For pure noise, which is independent
of the choice, it is that of Benjamini and Hochberg (1995) for a false discovery rate of 0.1 among the measured pairs:
lenient if most of them stand out, strict if hardly any does. For pure sampling it is one over the number of
candidates, at most 0.05, because the chosen pairs have the largest sampling errors of all. In between it is the
geometric mean, weighted by the shares. A coupling that is left out is no larger than the errors of the other pairs,
so this rule rarely adds to the largest error, and it keeps graphs sparse and models narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bayesprivmrf import queries
from bayesprivmrf.learning.models.solution import Signal
from bayesprivmrf.learning.select_measure import MergeRule
from bayesprivmrf.learning.select_measure.measurement import STEPS, Measured, MeasurementPlan
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.effects import contrasts
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.privacy import DiscreteGaussian, PrivacyGuarantee
from bayesprivmrf.release import Measurement, NoisyStatistics
from bayesprivmrf.release.base import Provenance

# False discovery rate among measured pairs for pure noise; largest tail probability for pure sampling
_FALSE_DISCOVERY_RATE, _LARGEST_SAMPLING_TAIL = 0.1, 0.05

# Smallest noise variance, records squared: precisions divide by it, so exact numbers count as nearly exact
_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTargets:
    """Noisy means of the effects of chosen pairs and of all variables.

    Parameters
    ----------
    cardinalities
        Number of states of each variable.
    total, total_variance
        N, records, positive; and :math:`v_N`, the variance of the noise on it, of all that measured it together.
    pairs, candidates
        Shape (m, 2); and from how many they were chosen.
    single, single_noise
        :math:`t_i`, one array of K - 1 a variable, and the noise variance of its entries, shape (p,).
    pair, pair_noise
        :math:`t_{ij}`, one array of (K - 1, K' - 1) a pair, and the noise variance of all entries.
    rules
        Those of the plan.
    """

    cardinalities: tuple[int, ...]
    total: float
    total_variance: float
    pairs: IntArray
    candidates: int
    single: list[FloatArray]
    single_noise: FloatArray
    pair: list[FloatArray]
    pair_noise: float
    rules: tuple[MergeRule, ...] = ()

    @classmethod
    def of(
        cls, measured: Measured, plan: MeasurementPlan, total: float, total_variance: float
    ) -> PairTargets:
        """Return the noisy means of a measurement.

        Parameters
        ----------
        measured, plan
            The noisy numbers and what is public about them.
        total, total_variance
            Number of records as released by itself, at least 1, and the variance of its noise; 0 where it is public.
        """
        cards = np.array(plan.cardinalities)
        pairs = measured.pairs.tolist()
        (noise_one, noise_two) = table_variances(plan)
        (precision, noise) = mean_precisions(plan, pairs)
        if plan.form == "moments":
            single = list(measured.one_way[:, None] / (np.sqrt(2) * total))
            pair = list(measured.two_way[:, None, None] / (2 * total))
        else:
            tables, joint = measured.tables(plan.cardinalities)
            if total_variance > 0:
                sums = [total, *(t.sum() for t in tables), *(t.sum() for t in joint)]
                noise_of_joint = [t.size * noise_two for t in joint]
                precisions = 1 / np.array([total_variance, *(cards * noise_one), *noise_of_joint])
                total = max(float(np.average(sums, weights=precisions)), 1.0)
                total_variance = float(1 / precisions.sum())
            weighted = [
                contrasts(k).T @ table / noise_one
                for k, table in zip(cards.tolist(), tables, strict=True)
            ]
            for (i, j), table in zip(pairs, joint, strict=True):
                for v, margin, others in (
                    (i, table.sum(axis=1), cards[j]),
                    (j, table.sum(axis=0), cards[i]),
                ):
                    weighted[v] = weighted[v] + contrasts(int(cards[v])).T @ margin / (
                        others * noise_two
                    )
            single = [w / (q * total) for w, q in zip(weighted, precision.tolist(), strict=True)]
            pair = [
                contrasts(len(table)).T @ table @ contrasts(table.shape[1]) / total
                for table in joint
            ]
        return cls(
            cardinalities=plan.cardinalities,
            total=total,
            total_variance=total_variance,
            pairs=measured.pairs,
            candidates=len(plan.candidates),
            single=single,
            single_noise=1 / (precision * total**2),
            pair=pair,
            pair_noise=noise / total**2,
            rules=plan.rules,
        )

    def signal(self) -> Signal:
        """Return the signal in the noisy counts of single variables."""
        return Signal.of(self.total, float(np.sqrt(self.total_variance)), *self.counts())

    def counts(self) -> tuple[list[FloatArray], list[float]]:
        """Return the noisy counts of each variable's states, records, and the standard deviation of their noise."""
        counts = []
        deviations = []
        for states, t, noise in zip(
            self.cardinalities, self.single, self.single_noise.tolist(), strict=True
        ):
            counts.append(self.total * (1 / states + contrasts(states) @ t))
            of_mean = self.total**2 * noise * (1 - 1 / states)
            deviations.append(float(np.sqrt(of_mean + self.total_variance / states**2)))
        return counts, deviations

    def shares(self) -> list[FloatArray]:
        """Return the shares of each variable's states, all at least half a record."""
        result = []
        for states, t in zip(self.cardinalities, self.single, strict=True):
            table = np.maximum(1 / states + contrasts(states) @ t, 0.5 / (self.total + states))
            result.append(table / table.sum())
        return result

    def single_variances(self) -> list[FloatArray]:
        """Return the variance of each variable's contrasts in one record."""
        result = []
        for states, share in zip(self.cardinalities, self.shares(), strict=True):
            basis = contrasts(states)
            result.append(share @ basis**2 - (share @ basis) ** 2)
        return result

    def tables(self) -> list[FloatArray]:
        """Return the tables of pairs as probabilities, all at least a fifth of the product of the margins."""
        shares = self.shares()
        result = []
        for (i, j), t in zip(self.pairs.tolist(), self.pair, strict=True):
            left = shares[i]
            right = shares[j]
            basis = contrasts(left.size), contrasts(right.size)
            # the effect of both, on top of the shares of each
            inner = basis[0] @ t @ basis[1].T
            outer = left[:, None] / right.size + right / left.size - 1 / (left.size * right.size)
            table = np.maximum(outer + inner, 0.2 * np.multiply.outer(left, right))
            result.append(table / table.sum())
        return result

    def standing_out(self) -> np.ndarray:
        """Return a mask of the pairs whose covariances exceed noise and sampling, shape (m,).

        Errors that all entries of a pair share, those of single variables and of the number of records, are treated
        as independent between entries. The test is then slightly liberal for a state that nearly all records have.
        """
        from scipy.stats import chi2

        statistics, shares = self._covariances()
        # the t at which each pair is just beyond its tail t^(1 - share) s^share, as a logarithm (s: sampling)
        log_tails = chi2.logsf(statistics, [t.size for t in self.pair])
        rarity = max(np.log(self.candidates), -np.log(_LARGEST_SAMPLING_TAIL))
        log_levels = (log_tails + shares * rarity) / np.maximum(1 - shares, 1e-9)
        # the rule of Benjamini and Hochberg for levels instead of p-values
        sorted_levels = np.sort(log_levels)
        size = max(log_levels.size, 1)
        allowed = np.log(_FALSE_DISCOVERY_RATE * np.arange(1, log_levels.size + 1) / size)
        passing = np.flatnonzero(sorted_levels <= allowed)
        return log_levels <= (sorted_levels[passing[-1]] if passing.size else -np.inf)

    def statistics(self) -> FloatArray:
        """Return each pair's mean squared covariance in units of noise and sampling, shape (m,)."""
        return self._covariances()[0] / np.array([t.size for t in self.pair])

    def _covariances(self) -> tuple[FloatArray, FloatArray]:
        """Return each pair's sum of squares in units of noise and sampling, and the share of sampling in these."""
        variances = self.single_variances()
        relative = self.total_variance / self.total**2
        statistics = np.zeros(len(self.pairs))
        shares = np.zeros(len(self.pairs))
        for place, ((i, j), t) in enumerate(zip(self.pairs.tolist(), self.pair, strict=True)):
            product = np.multiply.outer(self.single[i], self.single[j])
            covariance = t - product
            noise = self.pair_noise + self.single_noise[i] * self.single[j] ** 2
            noise = (
                noise + self.single_noise[j] * self.single[i][:, None] ** 2 + relative * product**2
            )
            sampling = np.multiply.outer(variances[i], variances[j]) / self.total
            statistics[place] = (covariance**2 / (noise + sampling)).sum()
            shares[place] = float(np.mean(sampling / (noise + sampling)))
        return statistics, shares


def least_statistic(
    shares: FloatArray, freedom: IntArray, *, kept: int, measured: int, candidates: int
) -> FloatArray:
    """Return the smallest statistic with which one more pair would have been kept.

    Parameters
    ----------
    shares, freedom
        Share of sampling in the variance of the pair's covariance, in [0, 1]; degrees of freedom. One shape.
    kept, measured, candidates
        How many pairs stood out of those that were measured, and from how many these were chosen.
    """
    from scipy.stats import chi2

    rarity = max(np.log(candidates), -np.log(_LARGEST_SAMPLING_TAIL))
    level = np.log(_FALSE_DISCOVERY_RATE * min(kept + 1, measured) / measured)
    return chi2.isf(np.exp((1 - shares) * level - shares * rarity), freedom)


def mean_precisions(
    plan: MeasurementPlan, pairs: Sequence[Sequence[int]]
) -> tuple[FloatArray, float]:
    """Return the precisions of single variables' sums of effects, shape (p,), and the noise variance of pairs'."""
    cards = plan.cardinalities
    (one, two) = table_variances(plan)
    # sums of spins and products are effects times the roots of two and four
    if plan.form == "moments":
        return np.full(len(cards), 1 / (one / 2)), two / 4
    precision = np.full(len(cards), 1 / one)
    for i, j in pairs:  # margins of their tables measure variables once more
        precision[i] += 1 / (cards[j] * two)
        precision[j] += 1 / (cards[i] * two)
    return precision, two


def table_variances(plan: MeasurementPlan) -> tuple[float, float]:
    """Return the positive noise variances of entries of one-way and two-way measurements, records squared."""
    return max(plan.one_way.variance, _LEAST_VARIANCE), max(plan.two_way.variance, _LEAST_VARIANCE)


def smallest_chosen(plan: MeasurementPlan, total: float) -> float:
    r"""Return the approximate smallest coupling that the private choice finds in N records, nats.

    The m-th largest of P Gumbel numbers of scale b is about :math:`b \log(P/m)`. The score of a coupling w of
    variables with k and k' equally frequent states is about :math:`N w / (4 (1 - 1/k) (1 - 1/k'))` records. If
    numbers of states differ, the result is the median over all candidates.
    """
    if plan.selection_scale is None:
        return 0.0
    first, second = np.array(plan.cardinalities)[plan.candidates.T]
    noise = plan.selection_scale / STEPS * math.log(len(plan.candidates) / plan.count)
    return float(np.median(noise * 4 * (1 - 1 / first) * (1 - 1 / second))) / max(total, 1.0)


def smallest_measured(plan: MeasurementPlan, total: float) -> float:
    r"""Return the approximate smallest coupling that stands out from its measurement noise, nats.

    With noise of standard deviation s, the standard error of a coupling of variables with two equally frequent states
    is :math:`s / N` for measured sums. That of an entry of a coupling's table is
    :math:`s \sqrt{k k' (k - 1) (k' - 1)} / N` for measured tables. The rule of
    `bayesprivmrf.learning.select_measure.targets` says how many standard errors a single pair needs to stand out.
    """
    needed = least_statistic(
        np.zeros(1),
        np.ones(1, dtype=np.int64),
        kept=0,
        measured=plan.count,
        candidates=len(plan.candidates),
    )
    return (
        float(np.sqrt(needed[0]))
        * plan.two_way.standard_deviation
        * _spread(plan)
        / max(total, 1.0)
    )


def noise_share(plan: MeasurementPlan, total: float) -> float:
    """Return the share of noise, rather than sampling, in the variance of a zero coupling between even states."""
    if plan.form == "moments":
        cells = 1.0
    else:
        cells = float(np.median(_cells(plan)))
    noise = plan.two_way.variance * cells
    return noise / (noise + max(total, 1.0))


def _cells(plan: MeasurementPlan) -> FloatArray:
    return np.prod(np.array(plan.cardinalities, dtype=float)[plan.candidates], axis=1)


def _spread(plan: MeasurementPlan) -> float:
    if plan.form == "moments":
        return 1.0
    free = np.prod(np.array(plan.cardinalities, dtype=float)[plan.candidates] - 1, axis=1)
    return float(np.median(np.sqrt(_cells(plan) * free)))


class NumberOfRecords(NamedTuple):
    """Number of records, public or noisy, and the distribution of the noise on it; None where it is public."""

    value: float
    noise: DiscreteGaussian | None


def pair_statistics(
    domain: Domain,
    plan: MeasurementPlan,
    measured: Measured,
    number: NumberOfRecords,
    guarantee: PrivacyGuarantee | None,
    provenance: Provenance,
) -> NoisyStatistics:
    """Return the measurements of the chosen pairs and of single variables as `NoisyStatistics`.

    A variable in no chosen pair is a clique by itself, measured by step 1. Tables are those of the pairs and of the
    variables in none; of moments there is everything that was measured.

    Parameters
    ----------
    domain
        Variables and states, as declared.
    plan, measured
        The plan of the measurement, and the noisy numbers.
    number
        Number of records.
    guarantee, provenance
        Those of the whole release.
    """
    names = domain.variables
    pairs = measured.pairs.tolist()
    lonely = sorted(set(range(len(names))).difference(*pairs))
    cliques = (*((names[i], names[j]) for i, j in pairs), *((names[v],) for v in lonely))
    model = ModelSpecification(domain=domain, cliques=cliques)
    if plan.form == "tables":
        found = _tables(model, plan, measured, lonely)
    else:
        found = _moments(plan, measured)
        if number.noise is not None:
            everyone = queries.weighted(names[0], matrix=[[1, 1]], labels=["records"])
            found.append(Measurement(everyone, np.array([round(number.value)]), number.noise))
    if number.noise is None:
        known = round(number.value)
    else:
        known = None
    return NoisyStatistics(
        specification=model,
        measurements=found,
        guarantee=guarantee,
        provenance=provenance,
        total=known,
    )


def _tables(
    model: ModelSpecification, plan: MeasurementPlan, measured: Measured, lonely: list[int]
) -> list[Measurement]:
    """Return the table of each clique of the model."""
    one_way, two_way = measured.tables(plan.cardinalities)
    laws = [plan.two_way] * len(two_way) + [plan.one_way] * len(lonely)
    tables = [*(table.ravel() for table in two_way), *(one_way[v] for v in lonely)]
    return [
        Measurement(queries.table(*clique), values, law)
        for clique, values, law in zip(model.cliques, tables, laws, strict=True)
    ]


def _moments(plan: MeasurementPlan, measured: Measured) -> list[Measurement]:
    """Return the sums of spins of all variables, and the sums of products of the chosen pairs, if any."""
    singles = Measurement(queries.parities(1, with_empty=False), measured.one_way, plan.one_way)
    if not len(measured.pairs):
        return [singles]
    order = np.lexsort(measured.pairs.T[::-1])
    return [
        singles,
        Measurement(
            queries.parities(2, with_empty=False, least=2), measured.two_way[order], plan.two_way
        ),
    ]
