r"""Tests of a release against an estimate, and against itself; the status of a fit after these tests.

Released numbers are tested against each other first, whatever the model, by margins that several tables share; then
the model is tested (`misfit`, `noise_misfit`).

A margin shared by tables i is :math:`y_i = m + η_i` in each of its cells, where :math:`η_i` is the sum of the noise
of the cells of table i that add up to it. With precisions :math:`p_i` and :math:`w_i = p_i / \sum_j p_j`, the
contrast

.. math:: r_i = y_i - \sum_j w_j y_j = \sum_j c_{ij} η_j, \qquad c_{ij} = δ_{ij} - w_j,

consists of noise only: it depends on no model, prior or estimate. With :math:`K_j(t) = \log E e^{t η_j}`, for which
each distribution has a bound (`Likelihood.log_moment`), Chernoff's and Chebyshev's bounds on both tails give

.. math:: P(|r_i| \ge x) \le \min\Bigl(2 \exp\bigl\{\min_t \sum_j K_j(c_{ij} t) - t x\bigr\},
          \operatorname{var}(r_i) / x^2\Bigr),

a decreasing function of x. At the observed contrast it is a valid p-value, at any level and for any noise. A scaled
χ² approximation with the variance and kurtosis of :math:`\sum r^2` is not valid: it fails in the far tails of Laplace
noise, and for discrete noise that is mostly zero.

The cells of a margin contain different noise, so their p-values are independent. Two combinations are used for k
cells: Fisher's, :math:`-2 \sum \log p` against :math:`χ^2_{2k}`, for tables that differ everywhere, and k times the
smallest for tables that differ in one cell. Twice the smaller of the two is a p-value again; multiplied by the number
of contrasts it is the p-value of the margin. A contrast within two standard deviations is skipped: its p-value is 1.

Answers other than whole tables are tested by the residuals of least squares over all tables that agree with
each other (`noise_residuals`): :math:`r = (1 - U U') D^{-1/2} y`, with U a basis of the answers of such tables. Each
residual is a contrast of noise like the others; the p-value is the smallest one times their number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypedDict

import numpy as np
from scipy.linalg import LinAlgError

from bayesprivmrf.errors import ConsistencyWarning, warn_caller
from bayesprivmrf.escapes import printable
from bayesprivmrf.inference.criticism.impossible_numbers import impossible_contradictions
from bayesprivmrf.inference.criticism.misfit import misfit_of_restricted
from bayesprivmrf.inference.criticism.noise_misfit import (
    contradicted,
    estimate_contradictions,
    misfit_of_free,
)
from bayesprivmrf.inference.criticism.order import order_contradictions
from bayesprivmrf.inference.criticism.shared_margins import ReleasedMargins
from bayesprivmrf.inference.criticism.stated_noise import noise_contradictions
from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.inference.interval_frame import Status
from bayesprivmrf.inference.noise_residuals import NoiseResiduals, noise_residuals
from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.tails import log_tails

# Tail probability, divided by the number of tests, below which noisy numbers do not describe the same records
SMALLEST_MARGIN_TAIL = 1e-5
# Largest number of answers and of effects for which residuals of all answers together are judged
_MOST_RESIDUALS = 400
# Standard deviations, of a chi-squared variable, above its mean from which shared margins are judged all together
_SUSPECT = 1.0
# Standard deviation of a residual, as a share of that of the noise, below which the other answers determine it
_DETERMINED = 1e-4
# Weight of a draw of noise in a contrast below which it is a rounding error of 0
_NOTHING = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class _Overlaps:
    """Numbers of a release that were measured more than once; each property is found when it is first asked for."""

    evidence: Evidence

    @cached_property
    def margins(self) -> ReleasedMargins:
        """Margins that several tables share."""
        return ReleasedMargins(evidence=self.evidence)

    @cached_property
    def residuals(self) -> NoiseResiduals | None:
        """Residuals of least squares of all numbers; None if there are too many."""
        return noise_residuals(self.evidence, _MOST_RESIDUALS)

    @cached_property
    def is_of_tables(self) -> bool:
        """True if every measurement is a whole table."""
        places = range(len(self.evidence.noise))
        return all(self.evidence.table_at(place)[1] is not None for place in places)

    def disagreement(self) -> tuple[float, str] | None:
        """Return what the function `disagreement` does."""
        margins = self.margins
        tails = margins.tails().tolist()
        others = self._residual()
        found = [*tails, *(tail for _, tail in others)]
        if not found:
            return None
        worst = min(range(len(found)), key=found.__getitem__)
        tail = found[worst]
        if tail * len(found) >= SMALLEST_MARGIN_TAIL:
            return tail, ""
        most = ""
        if worst < len(tails):
            label = margins.label(worst)
            margin = margins.margin(worst)
            names = [self.evidence.name_of(margin.positions[place]) for place in margin.farthest()]
            most = f", most of all {' and '.join(names)}"
        else:
            label, _ = others[worst - len(tails)]
        return tail, (
            f"released tables disagree on {label} by more than their noise{most} (tail probability {tail:.1g}, "
            f"smallest of {len(found)}): they do not describe the same records, or their noise has another "
            "distribution; fit the releases apart, or ask who made them"
        )

    def _residual(self) -> list[tuple[str, float]]:
        """Return the answer that the others contradict most, and its p-value; none if all are tables, or too many."""
        evidence = self.evidence
        if evidence.queries is None or evidence.is_weighed or evidence.is_bounded.any():
            return []
        if self.is_of_tables or (found := self.residuals) is None:
            return []
        owners = np.searchsorted(evidence.offsets, found.seen, side="right") - 1
        laws = [evidence.noise[place] for place in owners]
        deviations = evidence.noise_deviation[found.seen]
        weights = found.projection
        deviation = np.sqrt(np.square(weights).sum(axis=1))
        told = np.flatnonzero(deviation > _DETERMINED)
        if not told.size:
            return []
        parts = np.where(np.abs(weights) > _NOTHING, weights / deviations, 0.0)[told].T
        contrasts = found.residuals[told]
        tails = log_tails(contrasts, deviation[told], laws, parts, np.ones_like(parts))
        query = evidence.queries[owners[told[int(np.argmin(tails))]]]
        tail = min(1.0, told.size * float(np.exp(tails.min())))
        return [(f"the answers to {query.query!r}", tail)]

    def may_differ(self) -> bool:
        """Return True if overlapping numbers may differ by more than their noise, so that all are judged together.

        Tables whose shared margins differ by no more than their noise usually does need no least squares.
        """
        evidence = self.evidence
        if not evidence.is_additive or evidence.is_weighed or evidence.is_bounded.any():
            return False
        if not self.is_of_tables:
            return True
        strains = self.margins.strains
        return strains.whole > strains.contrasts + _SUSPECT * math.sqrt(2 * strains.contrasts)


def disagreement(evidence: Evidence) -> tuple[float, str] | None:
    """Return the smallest p-value of all released numbers that were measured twice; None if there are none.

    Beside it stands the problem, with its remedy, where noise does not explain the disagreement; otherwise no text.
    """
    return _Overlaps(evidence=evidence).disagreement()


class JudgedFields(TypedDict):
    """Fields of a `Solution` after the tests of its release, by name; `Solution` describes them."""

    specification: ModelSpecification
    potentials: CliqueTables
    references: tuple[str, ...]
    status: Status
    problems: tuple[str, ...]
    stats: dict[str, Any]
    inference: Inference
    is_simulated: bool
    of_records: tuple[str, ...]
    _evidence: Evidence


def verdict(
    status: Status,
    evidence: Evidence,
    potentials: FloatArray,
    estimator: Any,
    stats: Mapping[str, Any],
) -> JudgedFields:
    """Judge an estimate by its release, warn of contradictions, and return the fields of its `Solution`.

    The estimate is not trusted where the number of records is not larger than its own standard error, where released
    numbers contradict each other or the model, or where loopy belief propagation does not converge at the estimate.

    The specification of the solution is chosen here. It is `believed` of the evidence's, and the potentials are
    converted to its cliques.

    Parameters
    ----------
    status, evidence, potentials
        How the search ended; the measurements; where it ended.
    estimator
        The estimator: a frozen dataclass of its settings, with `inference`, the marginals that it used.
    stats
        Numbers of the search. Those of `totals` and of the tests follow. ``impossible_tail`` is the p-value of the
        numbers that count no possible record (`impossible_numbers`). ``margin_tail`` is the p-value of the worst
        disagreement among numbers that were measured more than once. ``noise_tail`` is that of the stated noise
        (`stated_noise`). ``misfit`` is the distance of the model's misfit above its mean, in standard deviations, and
        ``misfit_tail`` its p-value, which is an upper bound for free potentials. ``order_tail`` is the p-value of
        distant times of a chain (`order`), and ``estimate_tail`` that of the estimate's own distance from the
        release. Each is present where a contradiction is possible.
    """
    inference = estimator.inference
    if not evidence.is_additive:
        evidence = evidence.at_means(evidence.engine(inference).marginals(potentials)[1])
    marginals = evidence.engine(inference).marginals(potentials)[1]
    problems, found = contradictions(evidence, potentials, inference, marginals)
    # a search that did not end says so by its status
    if not problems and status in (Status.CONVERGED, Status.STOPPED_EARLY):
        problems, of_estimate = mean_contradictions(evidence, marginals, _remedy(estimator))
        found |= of_estimate
    for problem in problems:
        warn_caller(f"{problem}. The fit is not trusted.", ConsistencyWarning)
    if not evidence.has_total:
        problem = (
            "the number of records may be zero: its standard error is larger; spend more, or, where tables were "
            "given, check that they hold counts, not proportions"
        )
        problems += (problem,)
    # a fit that ended as intended is approximate with loopy marginals
    if inference == "loopy" and status in (Status.CONVERGED, Status.STOPPED_EARLY):
        status = Status.APPROXIMATE
        if not evidence.engine("loopy").marginals_with_status(potentials)[2]:  # pyright: ignore[reportAttributeAccessIssue]
            problems += (
                "loopy belief propagation does not converge here; fit with inference='exact'",
            )
    model = evidence.specification.believed
    return {
        "specification": model,
        "potentials": model.tables(evidence.family.of_interactions(potentials)),
        "references": ("cgm",),
        "status": Status.NOT_TRUSTED if problems else status,
        "problems": problems,
        "stats": {**stats, **totals(evidence), **found},
        "inference": inference,
        "is_simulated": evidence.is_simulated,
        "of_records": evidence.of_records,
        "_evidence": evidence,
    }


def mean_contradictions(
    evidence: Evidence, marginals: FloatArray, remedy: str
) -> tuple[tuple[str, ...], dict[str, float]]:
    """Describe how the mean of an estimate contradicts the release, and return the test result.

    Parameters
    ----------
    evidence
        The releases.
    marginals
        The estimate's probabilities of the cells of the evidence's cliques, shape (model size,).
    remedy
        What the user can do about an estimate that is far from the release.
    """
    if not _can_be_judged(evidence):
        return (), {}
    with np.errstate(all="ignore"):
        problems, stats = estimate_contradictions(evidence, marginals, remedy)
    return tuple(map(printable, problems)), stats


def _remedy(estimator: Any) -> str:
    """Return the remedy for an estimate that is far from its release: to undo what was set."""
    if estimator.inference == "loopy":
        return "fit with inference='exact', or measure fewer interactions"
    changed = [
        f"`{each.name}`"
        for each in fields(estimator)
        if getattr(estimator, each.name) != each.default
    ]
    if changed:
        return f"leave {', '.join(changed)} of {type(estimator).__name__} at the default"
    if getattr(estimator, "has_intervals", False):
        return "use LatentCounts(), because the prior of this estimator decides too much here"
    return "use NoiseAwareMAP() or LatentCounts(), which weigh each number by its noise"


def _can_be_judged(evidence: Evidence) -> bool:
    """Return True if there are numbers that a fit can contradict."""
    is_bounded = bool(evidence.is_bounded.any())
    return bool(evidence.possible.any()) and not is_bounded and evidence.has_total


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
    problems, of_impossible = impossible_contradictions(evidence)
    if problems:
        return tuple(map(printable, problems)), of_impossible
    stats = dict(of_impossible)
    overlaps = _Overlaps(evidence=evidence)
    if (found := overlaps.disagreement()) is not None:
        stats["margin_tail"], problem = found
        if problem:  # then no model fits
            return (printable(problem),), stats
    residuals = None
    if overlaps.may_differ():
        residuals = overlaps.residuals
    problems, of_noise = noise_contradictions(evidence, residuals)
    stats |= of_noise
    if problems:
        return tuple(map(printable, problems)), stats
    if not _can_be_judged(evidence):
        return (), stats
    model = evidence.specification
    is_free = evidence.family.is_free and not model.shares_transitions
    try:
        with np.errstate(all="ignore"):
            if is_free:
                misfit = misfit_of_free(evidence, potentials, inference, marginals)
            else:
                misfit = misfit_of_restricted(evidence, potentials, inference)
    except (LinAlgError, ValueError):  # an estimate without finite moments
        misfit = None
    if misfit is None:
        problems, of_order = order_contradictions(evidence, potentials)
        return problems, stats | of_order
    stats |= misfit.stats
    restricted = restrictions(model)
    if model.shares_transitions and not any(
        len(scope or ()) > 1 for scope in evidence.measured_scopes
    ):
        # no step has a table of its own, and sums over steps tell a chain that shares nothing too little
        remedy = (
            "fit the sums over the steps as one table of transitions, as the guide to chains shows"
        )
        restricted["shared transitions"] = remedy
    if misfit.is_real:
        problems = (printable(contradicted(evidence, misfit, restricted)),)
    else:
        problems, of_order = order_contradictions(evidence, potentials)
        stats |= of_order
    return problems, stats


def restrictions(model: ModelSpecification) -> dict[str, str]:
    """Return the assumptions of a model besides its cliques, each with what to do where a release contradicts it."""
    found: dict[str, str] = {}
    if model.shares_transitions:
        remedy = (
            "fit the same measurements on a chain that shares nothing, as the guide to chains shows"
        )
        found["shared transitions"] = remedy
    elif model.ties:
        found["tied potentials"] = "declare fewer ties"
    if model.interactions is not None:
        found["interactions that it omits"] = "fit a larger model"
    for one in model.ordinal:
        found[f"scores of {one.variable}{', smooth' * one.is_smooth}"] = (
            "declare smooth scores, or fewer"
        )
    for one in model.levels:
        found[f"level {one.name} of {one.variable}"] = "declare fewer levels"
    if model.waves is not None:
        found[f"one model of all {model.waves}s"] = "fit each wave apart"
    return found
