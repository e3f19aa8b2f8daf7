r"""Fit of couplings to the noisy numbers of `SelectMeasure` with a degree.

The module uses no records, only the noisy numbers of `bayesprivmrf.learning.select_measure.measurement`.
`bayesprivmrf.learning.select_measure.targets` computes noisy means from them and finds the pairs that stand out, and
`bayesprivmrf.learning.select_measure.map` computes intervals.

**The fit** is a penalized maximum likelihood fit of the pairs that stand out and of all single variables. The ridge
of an effect is weighted by its curvature at independence (`bayesprivmrf.inference.effects_fit.fit`). Such a ridge
hardly restricts the estimate if noise makes a rare event impossible. After a fit of up to 2,000 coordinates, the
ridge is therefore compared with one weighted by the curvature at the estimate. If they differ much,
`bayesprivmrf.inference.effects_fit.reweighted` replaces the fit by the posterior mode of the same model, from the
same means and prior, with weights from the curvature at the mode. The release's details then have the entry
``"penalty"``. A mode whose search did not converge has the status ``not trusted``.

A smaller model replaces a failed fit (`bayesprivmrf.learning.select_measure.fall_back`). A fit to pure noise is not
trusted (`bayesprivmrf.learning.models.advice`). The release contains A and h of an Ising model if all variables have
two states, else centered tables (`pair_arrays`).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayesprivmrf.errors import stopped_details
from bayesprivmrf.inference.effects_fit.fit import PRIOR_DEVIATION, PairFit, closed_form, fit_means
from bayesprivmrf.inference.effects_fit.reweighted import needs_reweighting, reweighted_fit
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.learning.models.advice import FALLBACK, Signal
from bayesprivmrf.learning.models.pairs import pair_arrays
from bayesprivmrf.learning.select_measure.fall_back import fall_back
from bayesprivmrf.learning.select_measure.measurement import Measured, MeasurementPlan
from bayesprivmrf.learning.select_measure.targets import PairTargets
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCouplings:
    """Couplings fitted to noisy numbers, and the details of the fit.

    Parameters
    ----------
    coupling_matrix, field_vector
        Parameters of a `LearnedIsing` where all variables have two states, else of a `LearnedPairwise`.
    total
        Number of records according to the noisy numbers.
    measured
        Noisy numbers.
    fit
        Details of the fit.
    signal
        Facts about the records that the noisy numbers determine.
    """

    coupling_matrix: FloatArray
    field_vector: FloatArray
    total: float
    measured: Measured
    fit: PairFit
    signal: Signal


def fit_couplings(
    measured: Measured,
    plan: MeasurementPlan,
    total: float,
    total_variance: float,
    *,
    is_interrupted: bool = False,
) -> FittedCouplings:
    """Return couplings estimated from noisy numbers; equal numbers give equal estimates.

    Parameters
    ----------
    measured, plan, total, total_variance
        See `PairTargets.of`.
    is_interrupted
        Whether a model of independent variables replaces an interrupted fit.
    """
    targets = PairTargets.of(measured, plan, total, total_variance)
    generator, signal = np.random.default_rng(_seed(measured)), targets.signal()
    fit = fit_targets(
        targets, generator, np.zeros(len(targets.pairs), dtype=bool) if is_interrupted else None
    )
    if is_interrupted:
        fit = replace(
            fit,
            status=str(Status.STOPPED_EARLY.value),
            details={**fit.details, FALLBACK: "single variables alone"},
        )
    # a smaller model cannot help if the numbers are pure noise
    if fit.status == Status.NOT_TRUSTED and not signal.is_noise_alone:
        fit = fall_back(targets, fit, lambda part: fit_targets(targets, generator, part), generator)
    coupling, fields = pair_arrays(fit.effects, fit.coordinates)
    return FittedCouplings(
        coupling_matrix=coupling,
        field_vector=fields,
        total=targets.total,
        measured=measured,
        fit=fit,
        signal=signal,
    )


def fit_targets(
    targets: PairTargets, generator: np.random.Generator, part: np.ndarray | None = None
) -> PairFit:
    """Fit a model of some pairs, by default those that stand out, and all single variables to noisy means."""
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
    """Return a seed for sampling in the fit, computed from the noisy numbers."""
    return zlib.crc32(measured.two_way.tobytes(), zlib.crc32(measured.one_way.tobytes()))


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
        **fitted.signal.details,
    }
