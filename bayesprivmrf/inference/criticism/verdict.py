"""Status and other fields of an estimate after tests against its release, with their findings in sentences."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError

from bayesprivmrf.errors import ConsistencyWarning
from bayesprivmrf.inference.criticism.disagreement import disagreement
from bayesprivmrf.inference.criticism.misfit import misfit_of_restricted
from bayesprivmrf.inference.criticism.noise_misfit import Misfit, misfit_of_free, misfit_of_tables
from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.inference.interval_frame import Status
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import FloatArray


def verdict(
    status: Status,
    evidence: Evidence,
    potentials: FloatArray,
    inference: Inference,
    stats: Mapping[str, Any],
    *,
    stacklevel: int,
) -> dict[str, Any]:
    """Judge an estimate by its release, warn of contradictions, and return the fields of its `Solution`.

    The estimate is not trusted where the number of records is not larger than its own standard error, where released
    numbers contradict each other or the model, or where loopy belief propagation does not converge at the estimate.
    With loopy marginals it is approximate at best.

    Parameters
    ----------
    status, potentials, inference
        How the search ended, and where; the marginals that it used.
    evidence
        The measurements.
    stats
        Numbers of the search. Those of `totals` and of the tests follow. ``margin_tail`` is the p-value of the worst
        disagreement among numbers that were measured more than once. ``misfit`` is the distance of the model's misfit
        above its mean, in standard deviations, and ``misfit_tail`` its p-value, which is an upper bound for free
        potentials. Each is present where a contradiction is possible.
    stacklevel
        Level of the caller of the estimator, for warnings.
    """
    problems, found = contradictions(evidence, potentials, inference)
    for problem in problems:
        warnings.warn(f"{problem}. The fit is not trusted.", ConsistencyWarning, stacklevel=stacklevel + 1)
    if not evidence.has_total:
        problems = (
            *problems,
            "the number of records may be zero: its standard error is larger; spend more, or, where tables were "
            "given, check that they hold counts, not proportions",
        )
    # a fit that ended as intended is approximate with loopy marginals
    if inference == "loopy" and status in (Status.CONVERGED, Status.STOPPED_EARLY):
        status = Status.APPROXIMATE
        if not evidence.engine("loopy").marginals_with_status(potentials)[2]:  # pyright: ignore[reportAttributeAccessIssue]
            problems = (
                *problems,
                "loopy belief propagation does not converge here; fit with inference='exact'",
            )
    model = evidence.specification
    return {
        "specification": model,
        "potentials": model.tables(potentials),
        "references": ("cgm",),
        "status": Status.NOT_TRUSTED if problems else status,
        "problems": problems,
        "stats": {**stats, **totals(evidence), **found},
        "inference": inference,
        "is_simulated": evidence.is_simulated,
        "of_records": evidence.of_records,
        "_evidence": evidence,
    }


def totals(evidence: Evidence) -> dict[str, Any]:
    """Return entries of `Solution.stats`: the number of records, restrictions of the model, guarantees."""
    found: dict[str, Any] = {
        "total": evidence.total,
        "estimated_total": evidence.estimated_total,
        "total_standard_error": evidence.total_standard_error,
    }
    if restricted := restrictions(evidence.specification):
        found["model"] = "; ".join(restricted)
    if evidence.wave_totals:
        found["wave_totals"] = list(evidence.wave_totals)
    if evidence.rows_of_one > 1:
        found["rows_of_one_person"] = evidence.rows_of_one
    if evidence.is_weighed:
        found["rests_on"] = (
            "one row drawn from each person, whose K rows weigh 1/K: each person counts as one record"
        )
    return found | ({"guarantees": evidence.guarantees} if evidence.guarantees else {})


def contradictions(
    evidence: Evidence,
    potentials: FloatArray,
    inference: Inference = "exact",
    marginals: FloatArray | None = None,
) -> tuple[tuple[str, ...], dict[str, float]]:
    """Describe how the release contradicts itself or the model, and return the test results.

    Parameters
    ----------
    evidence
        The releases.
    potentials
        The estimate's potentials, shape (model size,), nats; searches for the best fit of the model begin there.
    inference
        ``"exact"`` or ``"loopy"`` marginals.
    marginals
        The estimate's marginals, shape (model size,), if they are not those of the potentials.
    """
    stats: dict[str, float] = {}
    if (found := disagreement(evidence)) is not None:
        stats["margin_tail"], problem = found
        if problem:  # then no model fits
            return (problem,), stats
    if not evidence.possible.any() or evidence.has_bounds or not evidence.has_total:
        return (), stats
    is_free = evidence.family.is_free and not evidence.specification.shares_transitions
    try:
        with np.errstate(all="ignore"):
            if is_free:
                misfit = misfit_of_free(evidence, potentials, inference, marginals)
            else:
                misfit = misfit_of_restricted(evidence, potentials, inference)
    except (LinAlgError, ValueError):  # an estimate without finite moments
        misfit = None
    if misfit is None:
        return (), stats
    stats |= misfit.stats
    return ((_contradicted(evidence, misfit),) if misfit.is_real else ()), stats


def learned_contradictions(
    evidence: Evidence, marginals: FloatArray
) -> tuple[tuple[str, ...], dict[str, float]]:
    """Describe how a learned fit contradicts its own measurements, and return the test results.

    The estimate itself is judged, because its cliques are those that were measured. It contradicts them where it is
    farther from them than noise and the sampling of N records explain: it is an estimate of the population, so that
    a prior or a tolerance that moves it by less is no contradiction.

    Parameters
    ----------
    evidence
        What was measured.
    marginals
        The fit's probabilities of the cells of the evidence's cliques, shape (model size,).
    """
    mean = evidence.gathered(marginals)
    variance = evidence.rows.power(2) @ marginals - mean**2
    sampling = evidence.total * evidence.rows_of_one * np.maximum(variance, 0.0)
    misfit = misfit_of_tables(evidence, evidence.total * mean, sampling=sampling)
    if misfit is None:
        return (), {}
    told = (
        "the release contradicts the fit: its numbers are farther from those of the fit than noise and sampling "
        f"{_explains(evidence, misfit, 'explain')}; fit `statistics` by NoiseAwareMAP() or LatentCounts()"
    )
    return ((told,) if misfit.is_real else ()), misfit.stats


def restrictions(model: ModelSpecification) -> dict[str, str]:
    """Return the assumptions of a model besides its cliques, each with what to do where a release contradicts it."""
    found: dict[str, str] = {}
    if model.shares_transitions:
        remedy = "fit the same measurements on a chain that shares nothing, as the guide to chains shows"
        found["shared transitions"] = remedy
    elif model.ties:
        found["tied potentials"] = "declare fewer ties"
    for one in model.ordinal:
        found[f"scores of {one.variable}{', smooth' * one.is_smooth}"] = "declare smooth scores, or fewer"
    for one in model.levels:
        found[f"level {one.name} of {one.variable}"] = "declare fewer levels"
    if model.waves is not None:
        found[f"one model of all {model.waves}s"] = "fit each wave apart"
    return found


def _contradicted(evidence: Evidence, misfit: Misfit) -> str:
    restricted = restrictions(evidence.specification)
    if not restricted:
        return (
            "the release contradicts every distribution of these cliques: no counts of records have tables that "
            f"differ from the released ones by no more than noise {_explains(evidence, misfit)}; check that all "
            "numbers are of the same records and that their noise is as stated"
        )
    return (
        f"the release contradicts the model ({'; '.join(restricted)}): its numbers are farther from the model's than "
        f"noise and sampling {_explains(evidence, misfit, 'explain')}; "
        f"{', or '.join(dict.fromkeys(restricted.values()))}"
    )


def _explains(evidence: Evidence, misfit: Misfit, verb: str = "explains") -> str:
    """Return the end of a sentence about a misfit that noise does not explain: how far off, and where most."""
    return (
        f"{verb} (by {misfit.score:.1f} standard deviations, tail probability {misfit.tail:.1g}), most of all "
        f"{evidence.name_of(misfit.worst)}, and intervals are wrong"
    )
