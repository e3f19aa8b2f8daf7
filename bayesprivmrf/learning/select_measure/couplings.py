r"""From noisy numbers to couplings: noisy means of effects, the pairs that stand out, and their fit.

Nothing here has seen a record. `fit_couplings` takes what `bayesprivmrf.learning.select_measure.measurement` let out,
and goes three steps; `bayesprivmrf.learning.select_measure.map` has the intervals of what it gives.

**Means.** In the orthonormal contrasts :math:`Q_i` of a variable's states a table of counts :math:`y_i` has the mean
effect :math:`t_i = Q_i^\top y_i / N`, a pair's table :math:`t_{ij} = Q_i^\top y_{ij} Q_j / N`: independent noise of
one variance on cells is independent noise of that variance, over N squared, on each mean. Sums of spins and of
products are the same means for two states, :math:`t_i = S_i / (\sqrt 2 N)` and :math:`t_{ij} = S_{ij} / (2 N)`. The
margins of a pair's table measure its variables once more; what measures one mean is averaged by precision, and so is
what measures the number of records.

**Pairs that stand out.** A pair is left out unless its covariance :math:`c = t_{ij} - t_i t_j^\top` stands out from
noise and sampling, of variances v and r: :math:`\sum c^2 / (v + r)` above a quantile of the chi-squared law with as
many degrees of freedom. With the noise variances :math:`v_{ij}, v_i, v_j` of the means, an entry of c has to first
order

.. math:: v = v_{ij} + t_j^2 v_i + t_i^2 v_j + (t_i t_j)^2 v_N / N^2 ,

the last because a noisy number of records, :math:`N (1 + \delta)`, divides :math:`t_{ij}` once and
:math:`t_i t_j^\top` twice: c moves by :math:`\delta (t_i t_j^\top - c)`, by the same :math:`\delta` for all pairs.
Sampling has :math:`r = F_i F_j / N`, where F is the variance of a contrast in one record. Where there is nothing but
noise, which is fresh, the tail is that of
Benjamini and Hochberg (1995) for a false discovery rate of a tenth among the pairs measured: lenient where most of
them stand out, strict where hardly any does. Where there is nothing but sampling it is one over the number of
candidates (.05 at most), as the chosen pairs are those whose sampling errors were the largest of all; in between it
is the geometric mean with the variances' shares. A coupling that is left out is no larger than the errors of the
other pairs, so this rule rarely adds to the largest error, and it keeps graphs sparse and models narrow.

**The fit.** The pairs that stand out, and all variables, are fitted to these means by maximum likelihood, with a
ridge for each effect by the curvature that it has at independence (`bayesprivmrf.inference.effects_fit.fit`). Where
noise makes a rare event impossible, such a ridge hardly holds the estimate. After each fit of up to 2,000 coordinates
it is asked whether the ridge is far from that by the curvature at the estimate. If so,
`bayesprivmrf.inference.effects_fit.reweighted` takes the place of the fit: the mode of the same model, from the
same means under the same prior, with sampling and noise weighed by the curvature at the mode itself. It gives a
`PairFit` of the same effects, says so in the release's details (``"penalty"``), and is not trusted, by its status,
where its search did not end. It sees no more than the fit does. Where the fit failed, a smaller model stands in for
it (`bayesprivmrf.learning.select_measure.fall_back`). Nor is a fit trusted where all numbers are of noise
alone (`bayesprivmrf.learning.models.advice`). The coordinates of either are written as A and h of
an Ising model where all variables have two states, else as centred tables (`pair_arrays`): that is what is released.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayesprivmrf.inference.effects_fit.fit import PRIOR_DEVIATION, PairFit, closed_form, fit_means
from bayesprivmrf.inference.effects_fit.reweighted import needs_reweighting, reweighted_fit
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.interruption import stopped_details
from bayesprivmrf.learning.models.advice import FALLEN_BACK, Told
from bayesprivmrf.learning.models.pairs import pair_arrays
from bayesprivmrf.learning.rounds import MergeRule
from bayesprivmrf.learning.select_measure.fall_back import fall_back
from bayesprivmrf.learning.select_measure.measurement import Measured, MeasurementPlan
from bayesprivmrf.model.effects import Effects, contrasts
from bayesprivmrf.model.tables import FloatArray, IntArray

# Rate of false discoveries among measured pairs where all is noise; largest tail where all is sampling
_FALSE_DISCOVERY_RATE, _LARGEST_SAMPLING_TAIL = 0.1, 0.05

# Least noise variance, records squared: exact numbers count as nearly exact, as precisions divide by it
_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCouplings:
    """The result of the map on noisy numbers.

    Parameters
    ----------
    coupling_matrix, field_vector
        Parameters of a `LearnedIsing` where all variables have two states, else of a `LearnedPairwise`.
    total
        Number of records according to the noisy numbers.
    measured
        The noisy numbers.
    fit
        How the estimate was found.
    told
        Whether the noisy numbers tell of records at all.
    """

    coupling_matrix: FloatArray
    field_vector: FloatArray
    total: float
    measured: Measured
    fit: PairFit
    told: Told


def fit_couplings(
    measured: Measured,
    plan: MeasurementPlan,
    total: float,
    total_variance: float,
    *,
    is_interrupted: bool = False,
) -> FittedCouplings:
    """Estimate couplings from noisy numbers alone; the same numbers give the same estimate.

    Parameters
    ----------
    measured, plan, total, total_variance
        See `PairTargets.of`.
    is_interrupted
        Whether a model of independent variables replaces a fit that was interrupted.
    """
    targets = PairTargets.of(measured, plan, total, total_variance)
    generator, told = np.random.default_rng(_seed(measured)), targets.told()
    fit = fit_targets(
        targets, generator, np.zeros(len(targets.pairs), dtype=bool) if is_interrupted else None
    )
    if is_interrupted:
        fit = replace(
            fit,
            status=str(Status.STOPPED_EARLY.value),
            details={**fit.details, FALLEN_BACK: "single variables alone"},
        )
    # of noise alone no model is to be trusted
    if fit.status == Status.NOT_TRUSTED and not told.is_noise_alone:
        fit = fall_back(targets, fit, lambda part: fit_targets(targets, generator, part), generator)
    coupling, fields = pair_arrays(fit.effects, fit.coordinates)
    return FittedCouplings(
        coupling_matrix=coupling,
        field_vector=fields,
        total=targets.total,
        measured=measured,
        fit=fit,
        told=told,
    )


def fit_targets(
    targets: PairTargets, generator: np.random.Generator, part: np.ndarray | None = None
) -> PairFit:
    """Fit some pairs, by default those that stand out, and all variables, to noisy means."""
    cards = targets.cardinalities
    kept = np.flatnonzero(targets.standing_out() if part is None else part)
    pairs = [(int(i), int(j)) for i, j in targets.pairs[kept]]
    free = [v for v, k in enumerate(cards) if k > 1]
    effects = Effects.of(cards, (*pairs, *((v,) for v in range(len(cards)))))
    place = dict(zip(pairs, kept.tolist(), strict=True))
    variances = targets.single_variances()
    means, ridges, noises, worths = [], [], [], [targets.total]
    for subset in effects.subsets:
        if len(subset) == 1:
            (i,) = subset
            mean, spread, noise = targets.single[i], variances[i], targets.single_noise[i]
        else:
            i, j = subset
            mean = targets.pair[place[i, j]]
            spread, noise = np.multiply.outer(variances[i], variances[j]), targets.pair_noise
            worths.append(float(1 / np.mean(1 / targets.total + noise / spread)))
        means.append(mean.ravel())
        noises.append(np.full(mean.size, noise))
        ridges.append((noise / spread + 1 / targets.total).ravel() / PRIOR_DEVIATION**2)
    assert len(effects.subsets) == len(pairs) + len(free)
    tables, shares = targets.tables(), targets.shares()
    mean, ridge, noise = (np.concatenate([np.zeros(0), *parts]) for parts in (means, ridges, noises))
    worth = float(np.median(worths))
    start = closed_form(effects, [tables[k] for k in kept], shares)
    fit = fit_means(effects, mean, ridge, worth, generator, start=start)
    if not needs_reweighting(fit, ridge, noise, targets.total, PRIOR_DEVIATION, generator):
        return fit
    begin = fit.coordinates if fit.inference == "exact" else None
    return reweighted_fit(
        effects, mean, noise, targets.total, PRIOR_DEVIATION, generator, fit.inference, begin
    )


def _seed(measured: Measured) -> int:
    """A seed that the noisy numbers themselves give, for sampling in the fit."""
    return zlib.crc32(measured.two_way.tobytes(), zlib.crc32(measured.one_way.tobytes()))


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
        """Return the means of what was measured.

        Parameters
        ----------
        measured, plan
            The noisy numbers and what is public about them.
        total, total_variance
            Number of records as released by itself, at least 1, and the variance of its noise; 0 where it is public.
        """
        made = cls._of_moments if plan.form == "moments" else cls._of_tables
        return replace(made(measured, plan, total, total_variance), rules=plan.rules)

    @classmethod
    def _of_moments(
        cls, measured: Measured, plan: MeasurementPlan, total: float, total_variance: float
    ) -> PairTargets:
        noise_one, noise_two = noise_variances(plan)
        return cls(
            cardinalities=plan.cardinalities,
            total=total,
            total_variance=total_variance,
            pairs=measured.pairs,
            candidates=len(plan.candidates),
            single=list(measured.one_way[:, None] / (np.sqrt(2) * total)),
            single_noise=np.full(len(plan.cardinalities), noise_one / (2 * total**2)),
            pair=list(measured.two_way[:, None, None] / (2 * total)),
            pair_noise=noise_two / (4 * total**2),
        )

    @classmethod
    def _of_tables(
        cls, measured: Measured, plan: MeasurementPlan, total: float, total_variance: float
    ) -> PairTargets:
        cards, pairs = np.array(plan.cardinalities), measured.pairs.tolist()
        noise_one, noise_two = noise_variances(plan)
        tables = np.split(measured.one_way.astype(float), np.cumsum(cards)[:-1])
        shapes = [(int(cards[i]), int(cards[j])) for i, j in pairs]
        ends = np.cumsum([k * m for k, m in shapes])
        joint = [
            part.reshape(s) for part, s in zip(np.split(measured.two_way, ends[:-1]), shapes, strict=False)
        ]
        if total_variance > 0:
            sums = [total, *(t.sum() for t in tables), *(t.sum() for t in joint)]
            precisions = 1 / np.array(
                [total_variance, *(cards * noise_one), *(k * m * noise_two for k, m in shapes)]
            )
            total = max(float(np.average(sums, weights=precisions)), 1.0)
            total_variance = float(1 / precisions.sum())
        weighted = [
            contrasts(k).T @ table / noise_one for k, table in zip(cards.tolist(), tables, strict=True)
        ]
        precision = np.full(cards.size, 1 / noise_one)
        for (i, j), table in zip(pairs, joint, strict=True):
            for v, margin, others in ((i, table.sum(axis=1), cards[j]), (j, table.sum(axis=0), cards[i])):
                weighted[v] = weighted[v] + contrasts(int(cards[v])).T @ margin / (others * noise_two)
                precision[v] += 1 / (others * noise_two)
        return cls(
            cardinalities=plan.cardinalities,
            total=total,
            total_variance=total_variance,
            pairs=measured.pairs,
            candidates=len(plan.candidates),
            single=[w / (q * total) for w, q in zip(weighted, precision.tolist(), strict=True)],
            single_noise=1 / (precision * total**2),
            pair=[
                contrasts(k).T @ table @ contrasts(m) / total
                for (k, m), table in zip(shapes, joint, strict=True)
            ],
            pair_noise=noise_two / total**2,
        )

    def told(self) -> Told:
        """Return what the noisy numbers tell of records: by counts of states, each variable's by itself."""
        return Told.by(self.total, float(np.sqrt(self.total_variance)), *self.counts())

    def counts(self) -> tuple[list[FloatArray], list[float]]:
        """Return noisy counts of each variable's states, records, and the deviation of their noise, by variable."""
        counts, deviations = [], []
        for states, t, noise in zip(self.cardinalities, self.single, self.single_noise.tolist(), strict=True):
            counts.append(self.total * (1 / states + contrasts(states) @ t))
            of_mean = self.total**2 * noise * (1 - 1 / states)
            deviations.append(float(np.sqrt(of_mean + self.total_variance / states**2)))
        return counts, deviations

    def shares(self) -> list[FloatArray]:
        """Return each variable's shares of states, none below half a record's."""
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
        """Return the pairs' tables as probabilities, none below a fifth of what independence makes it."""
        shares = self.shares()
        result = []
        for (i, j), t in zip(self.pairs.tolist(), self.pair, strict=True):
            left, right = shares[i], shares[j]
            basis = contrasts(left.size), contrasts(right.size)
            # the effect of both, on top of the shares of each
            inner = basis[0] @ t @ basis[1].T
            outer = left[:, None] / right.size + right / left.size - 1 / (left.size * right.size)
            table = np.maximum(outer + inner, 0.2 * np.multiply.outer(left, right))
            result.append(table / table.sum())
        return result

    def standing_out(self) -> np.ndarray:
        """Return which pairs' covariances are larger than errors often make them, bool of shape (m,).

        For variables of several states, the errors that all entries of a pair share (those of single variables and of
        the number of records) enter entry by entry. That is a little loose beside a state held by nearly all: with
        four states of shares .97, .01, .01, .01, a tail of .01 was reached in .013 of draws of noise.
        """
        from scipy.stats import chi2

        statistics, shares = self._covariances()
        # the t at which each pair is just beyond its tail t^(1 - share) s^share, as a logarithm (s: sampling)
        log_tails = chi2.logsf(statistics, [t.size for t in self.pair])
        rarity = max(np.log(self.candidates), -np.log(_LARGEST_SAMPLING_TAIL))
        log_levels = (log_tails + shares * rarity) / np.maximum(1 - shares, 1e-9)
        return _discoveries(log_levels)

    def statistics(self) -> FloatArray:
        """Return each pair's mean squared covariance in units of noise and sampling, shape (m,)."""
        return self._covariances()[0] / np.array([t.size for t in self.pair])

    def _covariances(self) -> tuple[FloatArray, FloatArray]:
        """Return each pair's sum of squared covariances by noise and sampling, and sampling's share of these."""
        variances, relative = self.single_variances(), self.total_variance / self.total**2
        statistics, shares = np.zeros(len(self.pairs)), np.zeros(len(self.pairs))
        for place, ((i, j), t) in enumerate(zip(self.pairs.tolist(), self.pair, strict=True)):
            product = np.multiply.outer(self.single[i], self.single[j])
            covariance = t - product
            noise = self.pair_noise + self.single_noise[i] * self.single[j] ** 2
            noise = noise + self.single_noise[j] * self.single[i][:, None] ** 2 + relative * product**2
            sampling = np.multiply.outer(variances[i], variances[j]) / self.total
            statistics[place] = (covariance**2 / (noise + sampling)).sum()
            shares[place] = float(np.mean(sampling / (noise + sampling)))
        return statistics, shares


def least_statistic(
    shares: FloatArray, freedom: IntArray, *, kept: int, measured: int, candidates: int
) -> FloatArray:
    """Return how large a pair's statistic had to be for it to be kept beside those that were.

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


def _discoveries(log_levels: FloatArray) -> np.ndarray:
    """Return which of several levels the rule of Benjamini and Hochberg rejects at, bool of the same shape."""
    sorted_levels = np.sort(log_levels)
    allowed = np.log(
        _FALSE_DISCOVERY_RATE * np.arange(1, sorted_levels.size + 1) / max(sorted_levels.size, 1)
    )
    passing = np.flatnonzero(sorted_levels <= allowed)
    return log_levels <= (sorted_levels[passing[-1]] if passing.size else -np.inf)


def noise_variances(plan: MeasurementPlan) -> tuple[float, float]:
    """Noise variances of the entries of one-way and two-way measurements, records squared, above zero."""
    return max(plan.one_way.variance, _LEAST_VARIANCE), max(plan.two_way.variance, _LEAST_VARIANCE)


def details_of(fitted: FittedCouplings, plan: MeasurementPlan) -> dict[str, Any]:
    """Return public numbers about a release."""
    return {
        "status": fitted.fit.status,
        "inference": fitted.fit.inference,
        "form": plan.form,
        "pairs_measured": len(fitted.measured.pairs),
        "pairs_kept": sum(len(subset) == 2 for subset in fitted.fit.effects.subsets),
        "one_way_noise": plan.one_way.scale,
        "two_way_noise": plan.two_way.scale,
        **fitted.fit.details,
        **stopped_details(),
        **fitted.told.details,
    }
