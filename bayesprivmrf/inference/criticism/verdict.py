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
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import combinations
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
from bayesprivmrf.inference.criticism.stated_noise import noise_contradictions
from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.inference.interval_frame import Status
from bayesprivmrf.inference.noise_residuals import NoiseResiduals, noise_residuals
from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.model.tables import FloatArray, project
from bayesprivmrf.noise.likelihood import Likelihood
from bayesprivmrf.noise.tails import LOOKED_AT, combined, log_tails

# Tail probability, divided by the number of tests, below which noisy numbers do not describe the same records
SMALLEST_MARGIN_TAIL = 1e-5
# Largest number of answers and of effects for which residuals of all answers together are judged
_MOST_RESIDUALS = 400
# Standard deviations, of a chi-squared variable, above its mean from which shared margins are judged all together
_SUSPECT = 1.0
# Variance of a table without noise, as a share of the smallest other one, so that it dominates the mean
_SURE = 1e-6
# Share of a squared bound below which a sum of squares surely stays within it: rounding, and `_SURE`, change less
_NEAR = 0.999
# Contrast, as a share of the numbers whose difference it is, below which it is their rounding error
_ROUNDING = 1e-13
# Standard deviation of a residual, as a share of that of the noise, below which the other answers determine it
_DETERMINED = 1e-4
# Weight of a draw of noise in a contrast below which it is a rounding error of 0
_NOTHING = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedMargin:
    """Margin that several released tables share, each with its own noise.

    Parameters
    ----------
    label
        ``margin[a,b]``, of a wave ``margin[a,b] of wave 2``.
    positions
        Positions of the tables in the evidence.
    noisy, cells
        The margin of each table, and the number of possible cells that each number adds up; shape (tables, ...).
    laws
        Noise distribution, or other likelihood, of a cell in each table.
    own
        Variance of a cell that each number adds up, on average, records squared; shape (tables, ...).
    """

    label: str
    positions: tuple[int, ...]
    noisy: FloatArray
    cells: FloatArray
    laws: tuple[Likelihood, ...]
    own: FloatArray

    @cached_property
    def variances(self) -> FloatArray:
        """Noise variances of the numbers, records squared; infinite where no cell may occur."""
        own = np.maximum(self.own, _SURE * self.own[self.own > 0].min())
        return np.where(self.cells > 0, own * self.cells, np.inf)

    @cached_property
    def _possible(self) -> np.ndarray:
        """Mask of the margin's cells that may occur, shape (cells,)."""
        return self.cells[0].ravel() > 0

    @cached_property
    def _precision(self) -> FloatArray:
        """Precision of the possible numbers, shape (tables, possible cells)."""
        return 1 / self.variances.reshape(len(self.positions), -1)[:, self._possible]

    @cached_property
    def _share(self) -> FloatArray:
        """Weight w of each table in the mean, shape (tables, possible cells)."""
        return self._precision / self._precision.sum(axis=0)

    def _contrasts(self, margins: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the possible numbers of margins, shape (tables, ..., possible cells), and their contrasts."""
        lead = margins.shape[1 : margins.ndim - self.noisy.ndim + 1]
        numbers = margins.reshape(len(self.positions), *lead, -1)[..., self._possible]
        return numbers, numbers - np.einsum("tc,t...c->...c", self._share, numbers)

    @cached_property
    def _released(self) -> tuple[FloatArray, FloatArray]:
        """Possible numbers of the released margins, and their contrasts; shapes (tables, possible cells)."""
        return self._contrasts(self.noisy)

    @cached_property
    def _strains(self) -> FloatArray:
        """Sum of squared contrasts of the released numbers in units of their noise, shape (possible cells,)."""
        _, contrasts = self._released
        return (self._precision * np.square(contrasts)).sum(axis=0)

    def tail(self, margins: FloatArray | None = None) -> FloatArray:
        """Return p-values of margins, shape (tables, ..., cells), or of the released ones; at most 1."""
        if margins is None:
            # no contrast has a larger square, in units of its variance, than all contrasts of its cell together
            if self._strains.max(initial=0.0) < _NEAR * LOOKED_AT**2:
                return np.ones(())
            numbers, exact = self._released
        else:
            numbers, exact = self._contrasts(margins)
        tables = len(self.positions)
        is_rounding = np.abs(exact) < _ROUNDING * np.abs(numbers).max(axis=0)
        contrasts = np.where(is_rounding, 0.0, exact)
        share = self._share
        cells = self.cells.reshape(tables, -1)[:, self._possible]
        noise = self.own.reshape(tables, -1)[:, self._possible] * cells
        deviations = np.sqrt(
            np.maximum(noise * (1 - 2 * share) + (noise * share**2).sum(axis=0), 0.0)
        )
        noisy = [place for place, law in enumerate(self.laws) if not law.is_exact]
        # two tables have one contrast, whose rounding is least beside the larger noise
        if tables == 2:
            judged = [max(noisy, key=lambda place: self.own[place].max())]
        else:
            judged = noisy
        smallest = np.ones(contrasts.shape[1:-1])
        for place in judged:
            own = contrasts[place]
            deviation = deviations[place]
            if (np.abs(own) > LOOKED_AT * deviation).any():
                weights = (np.arange(tables) == place)[:, np.newaxis] - share
                tails = log_tails(own, deviation, self.laws, weights, cells)
                smallest = np.minimum(smallest, combined(tails))
        return np.minimum(1.0, len(judged) * smallest)

    def strain(self) -> tuple[float, int]:
        """Return the sum of squared contrasts in units of their noise, and its mean: contrasts that are free."""
        return float(self._strains.sum()), (len(self.positions) - 1) * len(self._strains)

    def farthest(self) -> tuple[int, int]:
        """Return the positions of the two tables that differ most in a number, in deviations of their noise."""

        def apart(places: tuple[int, int]) -> float:
            one, other = places
            deviations = np.sqrt(self.variances[one] + self.variances[other])
            return float((np.abs(self.noisy[one] - self.noisy[other]) / deviations).max())

        return max(combinations(range(len(self.positions)), 2), key=apart)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Overlaps:
    """Numbers of a release that were measured more than once; each property is found when it is first asked for."""

    evidence: Evidence

    @cached_property
    def margins(self) -> list[SharedMargin]:
        """Margins that several tables share."""
        return shared_margins(self.evidence)

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
        found = [*((margin.label, float(margin.tail())) for margin in margins), *self._residual()]
        if not found:
            return None
        worst = min(range(len(found)), key=lambda place: found[place][1])
        label, tail = found[worst]
        if tail * len(found) >= SMALLEST_MARGIN_TAIL:
            return tail, ""
        most = ""
        if worst < len(margins):
            places = margins[worst].farthest()
            names = [self.evidence.name_of(margins[worst].positions[place]) for place in places]
            most = f", most of all {' and '.join(names)}"
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
        strains = [margin.strain() for margin in self.margins]
        value = sum(own for own, _ in strains)
        number = sum(of_own for _, of_own in strains)
        return value > number + _SUSPECT * math.sqrt(2 * number)


def disagreement(evidence: Evidence) -> tuple[float, str] | None:
    """Return the smallest p-value of all released numbers that were measured twice; None if there are none.

    Beside it stands the problem, with its remedy, where noise does not explain the disagreement; otherwise no text.
    """
    return _Overlaps(evidence=evidence).disagreement()


def shared_margins(evidence: Evidence) -> list[SharedMargin]:
    """Return every margin that two released tables of the same people share, with all tables that contain it."""
    holders: dict[tuple[int | None, int], set[int]] = defaultdict(set)
    scopes: dict[int, tuple[int, ...]] = {}
    wave_of: dict[int, int | None] = {}
    # numbers of each table, 0 in cells that cannot occur, and the mask of the others
    tables: dict[int, tuple[FloatArray, np.ndarray]] = {}
    domain = evidence.specification.domain
    cardinalities = domain.cardinalities
    for position, law in enumerate(evidence.noise):
        wave, scope = evidence.table_at(position)
        block = slice(*evidence.offsets[position : position + 2])
        # sums of ranges are ranges as well: whether others lie in them is tested beside the fit (`noise_misfit`)
        if scope is None or law.is_bounded or evidence.is_range[block].any():
            continue
        wave_of[position] = wave
        scopes[position] = scope
        shape = [cardinalities[v] for v in scope]
        mask = evidence.possible[block].reshape(shape)
        tables[position] = (evidence.noisy_counts[block].reshape(shape) * mask, mask)
        for variable in scope:
            holders[wave, variable].add(position)
    pairs = {pair: None for own in holders.values() for pair in combinations(sorted(own), 2)}
    shared = {
        (wave_of[one], frozenset(scopes[one]) & frozenset(scopes[other])): None
        for one, other in pairs
    }
    found = []
    for wave, overlap in shared:
        variables = tuple(sorted(overlap))
        positions = sorted(set.intersection(*(holders[wave, v] for v in variables)))
        if all(evidence.noise[position].is_exact for position in positions):
            continue
        noisy = []
        cells = []
        variances = []
        for position in positions:
            table, mask = tables[position]
            noisy.append(project(table, scopes[position], variables))
            cells.append(_cells_of_margin(mask, scopes[position], variables))
            variances.append(_variance_of_cell(evidence, position, mask, cells[-1], variables))
        names = ",".join(str(domain.variables[v]) for v in variables)
        margin = SharedMargin(
            label=f"margin[{names}]" + ("" if wave is None else f" of wave {wave}"),
            positions=tuple(positions),
            noisy=np.stack(noisy),
            cells=np.stack(cells),
            laws=tuple(evidence.noise[position] for position in positions),
            own=np.stack(variances),
        )
        found.append(margin)
    return found


def _cells_of_margin(
    mask: np.ndarray, scope: tuple[int, ...], variables: tuple[int, ...]
) -> FloatArray:
    """Return the number of possible cells that each number of a margin adds up."""
    if not mask.all():
        return project(mask.astype(float), scope, variables)
    shape = [mask.shape[scope.index(variable)] for variable in variables]
    return np.full(shape, mask.size / math.prod(shape))


def _variance_of_cell(
    evidence: Evidence,
    position: int,
    mask: np.ndarray,
    cells: FloatArray,
    variables: tuple[int, ...],
) -> FloatArray:
    """Return the mean variance of the cells that each number of a margin adds up, in the margin's shape."""
    variance = evidence.noise_variance[slice(*evidence.offsets[position : position + 2])]
    if evidence.noise[position].is_additive:  # all cells have the same
        return np.full(cells.shape, variance[0])
    _, scope = evidence.table_at(position)
    assert scope is not None
    summed = project(variance.reshape(mask.shape) * mask, scope, variables)
    return summed / np.maximum(cells, 1.0)


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
