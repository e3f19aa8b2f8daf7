"""The map of `SelectMeasure`: records to couplings, by choosing pairs, measuring them, and maximum likelihood."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.learning.models.pairs import LearnedPairs, pair_arrays
from bayesprivmrf.learning.models.saved_map import SavedMap
from bayesprivmrf.learning.select_measure.fit import PRIOR_DEVIATION, PairFit, closed_form, fit_means
from bayesprivmrf.learning.select_measure.interval import limits
from bayesprivmrf.learning.select_measure.measurement import (
    STEPS,
    Measured,
    MeasurementPlan,
    select_and_measure,
)
from bayesprivmrf.learning.select_measure.reweighted_fit import needs_reweighting, reweighted_fit
from bayesprivmrf.learning.select_measure.targets import PairTargets, least_statistic
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import DiscreteGaussian
from bayesprivmrf.release.codec import Fields

__all__ = [
    "CouplingsByMeasurement",
    "FittedCouplings",
    "details_of",
    "noise_share",
    "smallest_chosen",
    "smallest_measured",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCouplings:
    """What the map makes of noisy numbers.

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
    """

    coupling_matrix: FloatArray
    field_vector: FloatArray
    total: float
    measured: Measured
    fit: PairFit


@dataclass(frozen=True, slots=True, kw_only=True)
class CouplingsByMeasurement(SavedMap):
    """Public settings of the map.

    Parameters
    ----------
    plan
        Plan of selection and measurement.
    total_noise
        Law of the noise on the number of records, ``None`` where it is public.
    """

    plan: MeasurementPlan
    total_noise: DiscreteGaussian | None

    kind = "couplings-by-measurement"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold; `from_dict` is the inverse."""
        noise = None if self.total_noise is None else self.total_noise.scale
        return {"kind": self.kind, "plan": self.plan.as_dict(), "total_noise": noise}

    @classmethod
    def from_dict(cls, content: Fields, basis: tuple[int, ...]) -> CouplingsByMeasurement:
        """Return the map that `as_dict` described."""
        noise = content.positive("total_noise", optional=True)
        return cls(
            plan=MeasurementPlan.from_dict(Fields(content["plan"]), basis),
            total_noise=None if noise is None else DiscreteGaussian(noise),
        )

    def learn(
        self, codes: np.ndarray, counts: IntArray, total: float, source: NoiseSource
    ) -> tuple[FloatArray, FloatArray]:
        """Return couplings and fields as arrays of the release's class.

        Parameters
        ----------
        codes, counts
            Records as states' codes, shape (rows, p), and how many each row stands for.
        total
            Their number as far as it may be used: public or noisy.
        source
            Source of the noise.
        """
        fitted = self.fit(select_and_measure(codes, counts, total, self.plan, source), total)
        return fitted.coupling_matrix, fitted.field_vector

    @property
    def _total_variance(self) -> float:
        return 0.0 if self.total_noise is None else self.total_noise.variance

    def linearised(
        self, learned: LearnedPairs, prob: float, total: float, generator: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Return limits of the parameters of a release: see `bayesprivmrf.learning.select_measure.interval`."""
        return limits(learned, self.plan, self._total_variance, prob, total, generator)

    def fit(self, measured: Measured, total: float) -> FittedCouplings:
        """Estimate couplings from noisy numbers alone; the same numbers give the same estimate."""
        targets = PairTargets.of(measured, self.plan, total, self._total_variance)
        fit = fit_targets(targets, np.random.default_rng(_seed(measured)))
        coupling, fields = pair_arrays(fit.effects, fit.coordinates)
        return FittedCouplings(
            coupling_matrix=coupling,
            field_vector=fields,
            total=targets.total,
            measured=measured,
            fit=fit,
        )


def fit_targets(targets: PairTargets, generator: np.random.Generator) -> PairFit:
    """Fit the pairs that stand out, and all variables, to noisy means."""
    cards, kept = targets.cardinalities, np.flatnonzero(targets.standing_out())
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


def smallest_chosen(plan: MeasurementPlan, total: float) -> float:
    r"""Return about the smallest coupling that the choice would not lose among N records, nats.

    Of P Gumbel numbers of scale b the m-th largest is about :math:`b \log(P/m)`. The score of a coupling w of
    variables with k and k' even states is about :math:`N w / (4 (1 - 1/k) (1 - 1/k'))` records. Where alphabets
    differ it is the middle one of all candidates.
    """
    if plan.selection_scale is None:
        return 0.0
    first, second = np.array(plan.cardinalities)[plan.candidates.T]
    noise = plan.selection_scale / STEPS * math.log(len(plan.candidates) / plan.count)
    return float(np.median(noise * 4 * (1 - 1 / first) * (1 - 1 / second))) / max(total, 1.0)


def smallest_measured(plan: MeasurementPlan, total: float) -> float:
    r"""Return about the smallest coupling that would stand out from the noise on its measurement, nats.

    Noise of deviation s gives a coupling of two even states one of :math:`s / N` where sums are measured, and an
    entry of a coupling's table one of :math:`s \sqrt{k k' (k - 1) (k' - 1)} / N` where tables are. A pair that stands
    out alone is as many deviations from 0 as the rule of `bayesprivmrf.learning.select_measure.targets` requires.
    """
    needed = least_statistic(
        np.zeros(1), np.ones(1, dtype=np.int64), kept=0, measured=plan.count, candidates=len(plan.candidates)
    )
    return float(np.sqrt(needed[0])) * plan.two_way.standard_deviation * _spread(plan) / max(total, 1.0)


def noise_share(plan: MeasurementPlan, total: float) -> float:
    """Return the share of noise in the variance of a coupling of 0 between even states; the rest is sampling."""
    cells = 1.0 if plan.form == "moments" else float(np.median(_cells(plan)))
    noise = plan.two_way.variance * cells
    return noise / (noise + max(total, 1.0))


def _cells(plan: MeasurementPlan) -> FloatArray:
    return np.prod(np.array(plan.cardinalities, dtype=float)[plan.candidates], axis=1)


def _spread(plan: MeasurementPlan) -> float:
    if plan.form == "moments":
        return 1.0
    free = np.prod(np.array(plan.cardinalities, dtype=float)[plan.candidates] - 1, axis=1)
    return float(np.median(np.sqrt(_cells(plan) * free)))


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
    }
