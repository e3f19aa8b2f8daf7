r"""Fit of couplings to the noisy numbers of `SelectMeasure` with a degree.

The module uses no records, only the noisy numbers of `bayesprivmrf.learning.select_measure.measurement`.
`bayesprivmrf.learning.select_measure.targets` computes noisy means from them and finds the pairs that stand out, and
`bayesprivmrf.learning.select_measure.map` computes intervals.

**The fit** is a penalized maximum likelihood fit of the pairs that stand out and of all single variables. The ridge
of an effect is weighted by its curvature at independence (`bayesprivmrf.inference.loglinear_fit.fit`). Such a ridge
hardly restricts the estimate if noise makes a rare event impossible. After a fit of up to 2,000 coordinates, the
ridge is therefore compared with one weighted by the curvature at the estimate. If they differ much,
`bayesprivmrf.inference.loglinear_fit.reweighted` replaces the fit by the posterior mode of the same model, from the
same means and prior, with weights from the curvature at the mode. The release's details then have the entry
``"penalty"``. A mode whose search did not converge has the status ``not trusted``.

A fit to pure noise is not trusted (`bayesprivmrf.learning.models.solution`). The release contains A and h of an Ising
model if all variables have two states, else centered tables (`pair_arrays`).

**Smaller models.** The numbers of a search that does not converge are no estimate, and may be further from the
records than independent variables. Three smaller models are therefore tried in turn, and the first one with a trusted
fit is released.

1. **Rare states merged**, if tables are measured. Most cells of a large table are nearly empty. Noise makes them
   negative, no model has such means, and the likelihood is flat in these directions. The states of a variable whose
   noisy counts are below three standard deviations are merged by the declared rules, as in rounds
   (`bayesprivmrf.learning.select_measure.measured_tables`), and so are the tables of pairs. The fit is that of the
   rounds (`bayesprivmrf.learning.select_measure.round_fit`), which learns a scale for each effect. The states of a
   group share its potentials, and divide its probability in proportion to their noisy counts. It needs exact
   inference.
2. **Fewer pairs**: the stronger half of the pairs that stood out, then the stronger half of these, and so on. Pairs
   are ranked by the mean square of their covariances relative to noise and sampling, which is 1 under independence.
3. **Single variables alone.**

The status is then ``"stopped early"``, and the details name the model. If no fit is trusted, the first one is
released with its status. The errors of couplings are derived for the fit of all pairs that stand out, so a smaller
model has no linearized intervals of couplings. Calibrated intervals are of no use if states were merged, because
couplings that hardly a record depends on do not respond to steps. The measurements give intervals of tables.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bayesprivmrf.files import Json
from bayesprivmrf.inference.loglinear_fit.fit import (
    PRIOR_DEVIATION,
    MomentsFinder,
    PairFit,
    closed_form,
    fit_means,
    is_narrow,
)
from bayesprivmrf.inference.loglinear_fit.moments import moments_by
from bayesprivmrf.inference.loglinear_fit.priors import FixedPrior
from bayesprivmrf.inference.loglinear_fit.reweighted import (
    NoisyMeans,
    needs_reweighting,
    reweighted_fit,
)
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.interruption import stopped_details
from bayesprivmrf.learning.models.pairs import pair_arrays
from bayesprivmrf.learning.models.solution import FALLBACK, Signal
from bayesprivmrf.learning.select_measure.learned_scales import with_learned_scales
from bayesprivmrf.learning.select_measure.measured_tables import Merging, NoisyTable
from bayesprivmrf.learning.select_measure.measurement import Measured, MeasurementPlan
from bayesprivmrf.learning.select_measure.round_fit import fit_tables
from bayesprivmrf.learning.select_measure.targets import PairTargets, table_variances
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, IntArray


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
    # equal numbers give equal draws of the fit
    seed = zlib.crc32(measured.two_way.tobytes(), zlib.crc32(measured.one_way.tobytes()))
    generator = np.random.default_rng(seed)
    signal = targets.signal()
    fit = fit_targets(
        targets, generator, np.zeros(len(targets.pairs), dtype=bool) if is_interrupted else None
    )
    if is_interrupted:
        fit = replace(
            fit,
            status=Status.STOPPED_EARLY,
            details={**fit.details, FALLBACK: "single variables alone"},
        )
    # a smaller model cannot help if the numbers are pure noise
    if fit.status is Status.NOT_TRUSTED and not signal.is_noise_alone:
        fit = fall_back(
            targets,
            fit,
            lambda part: fit_targets(targets, generator, part),
            lambda merging, part: fit_merged(measured, plan, targets.total, merging, part),
        )
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
    means = []
    ridges = []
    noises = []
    worths = [targets.total]
    for subset in effects.subsets:
        if len(subset) == 1:
            (i,) = subset
            mean = targets.single[i]
            spread = variances[i]
            noise = targets.single_noise[i]
        else:
            i, j = subset
            mean = targets.pair[place[i, j]]
            spread = np.multiply.outer(variances[i], variances[j])
            noise = targets.pair_noise
            worths.append(float(1 / np.mean(1 / targets.total + noise / spread)))
        means.append(mean.ravel())
        noises.append(np.full(mean.size, noise))
        ridges.append((noise / spread + 1 / targets.total).ravel() / PRIOR_DEVIATION**2)
    assert len(effects.subsets) == len(pairs) + len(free)
    tables = targets.tables()
    shares = targets.shares()
    mean, ridge, noise = (
        np.concatenate([np.zeros(0), *parts]) for parts in (means, ridges, noises)
    )
    worth = float(np.median(worths))
    start = closed_form(effects, [tables[k] for k in kept], shares)
    fit = fit_means(effects, mean, ridge, MomentsFinder(worth, generator), start=start)
    if not needs_reweighting(fit, ridge, noise, targets.total, PRIOR_DEVIATION, generator):
        return fit
    data = NoisyMeans(
        moments=moments_by(fit.inference, effects, generator),
        means=mean,
        noise=np.diag(noise),
        total=targets.total,
        prior=FixedPrior(precision=np.full(effects.size, 1 / PRIOR_DEVIATION**2)),
    )
    # drawn estimates are no better start than 0
    begin = fit.coordinates if fit.inference == "exact" else None
    return reweighted_fit(effects, data, begin)[0]


def fall_back(
    targets: PairTargets,
    failed: PairFit,
    fit_of: Callable[[np.ndarray], PairFit],
    fit_merged: Callable[[Merging, np.ndarray], PairFit],
) -> PairFit:
    """Return the first smaller model with a trusted fit, or the failed fit if there is none; see the module.

    Parameters
    ----------
    targets
        The noisy means.
    failed
        The fit of all pairs that stand out.
    fit_of, fit_merged
        Fit a part of the pairs, bool of shape (m,), with all states, and with merged ones.
    """
    standing = targets.standing_out()
    cards = targets.cardinalities
    merging = Merging.of(*targets.counts(), targets.rules)
    fewer = sum(cards) - sum(merging.cardinalities)
    can_merge = fewer > 0 and max(cards) > 2
    merged = partial(fit_merged, merging)
    smaller: list[tuple[str, Callable[[np.ndarray], PairFit], IntArray]] = []
    if can_merge and standing.any():
        smaller.append((f"{fewer} rare states merged", merged, np.flatnonzero(standing)))
    ranked = np.flatnonzero(standing)
    ranked = ranked[np.argsort(-targets.statistics()[ranked], kind="stable")]
    count = ranked.size // 2
    while count:
        smaller.append((f"{count} of {ranked.size} pairs", fit_of, ranked[:count]))
        count //= 2
    if ranked.size:
        smaller.append(("single variables alone", fit_of, ranked[:0]))
    if can_merge:
        smaller.append((f"single variables alone, {fewer} rare states merged", merged, ranked[:0]))
    for said, fit_part, kept in smaller:
        fit = fit_part(np.isin(np.arange(standing.size), kept))
        if fit.status is not Status.NOT_TRUSTED:
            details = {**fit.details, FALLBACK: said}
            return replace(fit, status=Status.STOPPED_EARLY, details=details)
    return failed


def fit_merged(
    measured: Measured, plan: MeasurementPlan, total: float, merging: Merging, part: np.ndarray
) -> PairFit:
    """Fit some pairs and all variables to tables of merged states, as rounds do; the result has all states."""
    cards = plan.cardinalities
    groups = merging.cardinalities
    scopes = [*((v,) for v in range(len(cards))), *map(tuple, measured.pairs.tolist())]
    numbers = [each.astype(float) for several in measured.tables(cards) for each in several]
    tables = []
    for place, (scope, values) in enumerate(zip(scopes, numbers, strict=True)):
        if place >= len(cards) and not part[place - len(cards)]:
            continue
        variances = np.full(values.shape, table_variances(plan)[len(scope) - 1])
        for v in scope:  # each contraction moves the first axis to the end
            into = np.eye(groups[v])[merging.groups[v]]
            values, variances = (
                np.tensordot(each, into, axes=(0, 0)) for each in (values, variances)
            )
        tables.append(NoisyTable(scope=scope, values=values, variance=variances))
    scopes = [table.scope for table in tables]
    declared = Effects.of(cards, scopes)
    if not is_narrow(groups, scopes):  # rounds need exact inference
        return PairFit(
            effects=declared,
            coordinates=np.zeros(declared.size),
            inference="exact",
            status=Status.NOT_TRUSTED,
        )
    fit = with_learned_scales(fit_tables(groups, tables, total=total), tables, total=total)
    declared = Effects.of(cards, fit.effects.scopes)
    flat = np.concatenate(
        [t.ravel() for t in merging.expanded(fit.effects.scopes, fit.potentials())]
    )
    return PairFit(
        effects=declared,
        coordinates=declared.coordinates(flat),
        inference="exact",
        status=Status.CONVERGED if fit.status is Status.CONVERGED else Status.NOT_TRUSTED,
        details={"iterations": fit.evaluations},
    )


def details_of(fitted: FittedCouplings, plan: MeasurementPlan) -> dict[str, Json]:
    """Return public numbers about a release."""
    return {
        "status": fitted.fit.status.value,
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
