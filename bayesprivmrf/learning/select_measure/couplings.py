r"""From noisy numbers to couplings: noisy means of effects, the pairs that stand out, and their fit.

This module sees no record, only the noisy numbers of `bayesprivmrf.learning.select_measure.measurement`. It fits the
means and the pairs that `bayesprivmrf.learning.select_measure.targets` finds in them;
`bayesprivmrf.learning.select_measure.map` has the intervals.

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
from bayesprivmrf.learning.models.advice import FALLBACK, Signal
from bayesprivmrf.learning.models.pairs import pair_arrays
from bayesprivmrf.learning.select_measure.fall_back import fall_back
from bayesprivmrf.learning.select_measure.measurement import Measured, MeasurementPlan
from bayesprivmrf.learning.select_measure.targets import PairTargets
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray


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
    signal
        Whether the noisy numbers tell of records at all.
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
    """Estimate couplings from noisy numbers alone; the same numbers give the same estimate.

    Parameters
    ----------
    measured, plan, total, total_variance
        See `PairTargets.of`.
    is_interrupted
        Whether a model of independent variables replaces a fit that was interrupted.
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
    # of noise alone no model is to be trusted
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
