"""The noise-aware estimate: a posterior mode under the likelihood of the noisy tables, with approximate intervals."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bayesprivmrf.checks import NamedSettings, on_objects, positive_finite, whole_number
from bayesprivmrf.errors import ArgumentError, ConsistencyWarning, NoiseWarning, warn_caller
from bayesprivmrf.inference.allowed_counts import allowed_states
from bayesprivmrf.inference.answers import (
    AnswersPerRecord,
    FittedPotentials,
    answers_per_record,
    possible_answers,
)
from bayesprivmrf.inference.asked import Asked, asked_marks
from bayesprivmrf.inference.criticism.verdict import JudgedFields, verdict
from bayesprivmrf.inference.effect_table import EffectCoding, EffectTable
from bayesprivmrf.inference.evidence import Evidence, Inference, Population, require_inference
from bayesprivmrf.inference.given_model import GivenModel, refuse_loopy
from bayesprivmrf.inference.given_releases import gather
from bayesprivmrf.inference.interval_frame import Mark, RowStatus
from bayesprivmrf.inference.joint_estimate import JointEstimate, joint_estimate, normal_table
from bayesprivmrf.inference.least_squares import pool
from bayesprivmrf.inference.limits import ChainFunction, Limits
from bayesprivmrf.inference.noise_aware.given_scale import scale_conflict
from bayesprivmrf.inference.noise_aware.interval import (
    answers_covariances,
    contrast_covariances,
    coordinate_covariance,
    interval_of_records,
    interval_of_records_beyond,
    limits_on_log_odds,
    refuse_other_records,
    standard_errors,
)
from bayesprivmrf.inference.noise_aware.mode import Mode, Settings, noise_aware_mode
from bayesprivmrf.inference.noise_aware.wide_ranges import is_beyond, is_open, reference_of, widened
from bayesprivmrf.inference.optimize import one_blas_thread
from bayesprivmrf.inference.projection import pseudo_marginals
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.inference.transition_rows import TransitionRows
from bayesprivmrf.inference.transitions.mode import (
    naive_transitions,
    refuse_loopy_transitions,
    transition_mode,
)
from bayesprivmrf.inference.transitions.solution import (
    TransitionSolution,
    delta_errors,
    delta_limits,
)
from bayesprivmrf.model.cliques import minimum_norm_potentials
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.release import NoisyStatistics

# Mark of every row where factors and variables form a cycle: Bethe's approximation has an error, of unknown size
_LOOPY = Mark(RowStatus.MODEL, "loopy inference, whose error here is not known")
# Coverage of odds ratios of cells in ranges wider than Poisson counts vary was 0.80 (benchmarks/published/ranges.py)
_COARSE = Mark(RowStatus.DOUBTFUL, "published ranges are wide: use LatentCounts")

# Expected records below which a fit has none: a rounding error of an exact count of 0
_NONE = 1e-6
# Distance of an answer from its end, in the width between both ends, that may be a rounding error
_ROUNDING = 1e-12
# Statuses of fits whose given scale is judged. A search ends at its limit where a scale is absurdly small
_JUDGED = (Status.CONVERGED, Status.APPROXIMATE, Status.ITERATION_LIMIT)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NoiseAwareSolution(Solution):
    """Solution with approximate intervals.

    Parameters
    ----------
    mode
        The estimate in zero-sum coordinates, with its curvature and the learned scales.
    """

    mode: Mode = field(kw_only=True)

    def _limits(self, asked: Asked) -> Limits:
        """Return normal limits from the curvature at the mode (`bayesprivmrf.inference.noise_aware.interval`).

        Under loopy inference all rows rest on the model, unless cliques and variables form a forest, where loopy
        inference is exact. No row is doubtful by itself: by size of the cell and share of the noise,
        coverage was nowhere below 0.9 (`benchmarks/marks.py`).
        """
        mode = self.mode
        evidence = self.mode.means.evidence
        is_of_records = asked.of == "records"
        if is_of_records:
            refuse_other_records(mode)
        if is_of_records and asked.given:
            raise ArgumentError(
                "`given` must be left out with of='records', because these intervals are of joint numbers; "
                "LatentCounts().fit(release) has shares among the records with some states."
            )
        asked = asked.on(evidence.specification)
        fit = self._fit
        if is_of_records and mode.means.is_smaller:
            estimates, lower, upper = interval_of_records_beyond(mode, asked, fit)
            found = Limits(estimates, lower, upper, self._marks(asked))
            return _within_rules(evidence, asked, _over_ranges(evidence, asked, found))
        answers = answers_per_record(asked, fit, mode.means.effects.pull_back)
        if is_of_records:
            estimates, lower, upper = interval_of_records(mode, answers, asked)
        else:
            estimates = answers.values
            errors = standard_errors(mode, answers, asked.ends)
            lower, upper = limits_on_log_odds(estimates, errors, asked.prob, asked.ends)
        found = Limits(estimates, lower, upper, self._marks(asked))
        found = _over_ranges(evidence, asked, found)
        if is_of_records:
            return _within_rules(evidence, asked, found)
        return _allowing_for_none(found, asked, fit, answers)

    @property
    def _fit(self) -> FittedPotentials:
        """The potentials, on the tables of the evidence."""
        mode = self.mode
        evidence = self.mode.means.evidence
        potentials = self.potentials.flat
        if mode.means.is_smaller:
            potentials = evidence.family.potentials(mode.coordinates)
        return FittedPotentials(evidence=evidence, potentials=potentials, inference=self.inference)

    def _joint_estimate(self, asked: Asked) -> JointEstimate:
        """Return a joint table with the covariance that the curvature at the mode gives it."""
        mode = self.mode
        evidence = self.mode.means.evidence
        asked = asked.on(evidence.specification)
        answers = answers_per_record(asked, self._fit, mode.means.effects.pull_back)
        shape = [asked.model.cardinalities[v] for v in asked.variables]
        covariances = answers_covariances(mode, answers)
        # an exact count of 0 leaves a rounding error, and a ratio with it is not defined
        values = np.where(evidence.total * answers.values < _NONE, 0.0, answers.values)
        marks = self._own_marks()
        reference = reference_of(evidence, asked)
        if reference is not None:
            covariances = covariances.at_least(reference.variance)
            marks.append(_COARSE)
        uncertainty = normal_table(values, shape, covariances)
        return joint_estimate(asked, evidence, uncertainty, self.status, marks)

    def _own_marks(self) -> list[Mark]:
        """Return marks for all rows of this fit."""
        if self._engine().is_exact:
            return []
        return [_LOOPY]

    def _marks(self, asked: Asked) -> tuple[Mark, ...]:
        """Return marks for the rows of a question; limits of a clique's joint states allow for wide ranges."""
        evidence = self.mode.means.evidence
        marks = [*asked_marks(evidence, asked), *self._own_marks()]
        if is_beyond(evidence, asked):
            marks.append(_COARSE)
        return tuple(marks)

    def _effect_limits(self, prob: float, coding: EffectCoding) -> tuple[EffectTable, Limits]:
        """Return the effects with normal limits from the curvature at the mode."""
        mode = self.mode
        evidence = mode.means.evidence
        effects = evidence.family.effects
        table = EffectTable.of(effects, self.specification, coding)
        covariances = contrast_covariances(mode, table.matrix)
        limits = table.limits_of_normal(mode.coordinates, covariances, evidence, prob)
        marks = [*limits.marks, *self._own_marks()]
        if is_open(evidence):
            marks.append(_COARSE)
        return table, limits._replace(marks=tuple(marks))

    def _chain_limits(self, asked: ChainFunction, prob: float) -> Limits:
        if self.inference != "exact":
            return super()._chain_limits(asked, prob)
        mode = self.mode
        means = self.mode.means

        def moved(points: FloatArray) -> FloatArray:
            flat = [
                means.engine.marginals(point)[1]
                for point in means.evidence.family.potentials(points)
            ]
            return asked.of_marginals(np.array(flat))

        errors = delta_errors(moved, mode.coordinates, coordinate_covariance(mode))
        return delta_limits(
            asked.of_marginals(self.marginals.flat), errors, errors, prob, asked.is_share
        )

    def _facts(self) -> list[tuple[str, str]]:
        return [*super()._facts(), ("intervals", "approximate (normal, from the curvature)")]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseAwareMAP(NamedSettings):
    r"""Posterior mode under the likelihood of the noisy tables and a learned prior.

    A noisy count is :math:`y_i = N μ_i(θ) + η_i`, where η follows the noise distribution of the release. The
    potentials θ are those whose tables are the tables of the N people. As estimates for the population they have a
    sampling error, which the intervals add. If the model is smaller than its tables, the sampling is part of the
    likelihood, and θ are the population's (`bayesprivmrf.inference.noise_aware.smaller`). The prior is normal on
    zero-sum effects, with scales that are learned from the release
    (`bayesprivmrf.inference.loglinear_fit.scale_prior`). The estimate is the center of a normal approximation to the
    posterior; `LatentCounts` samples the posterior itself.

    A private N is the pooled estimate of the releases. It is not fitted along with the potentials, because shrunk
    potentials leave the largest counts unexplained, for which a larger N would compensate.

    Parameters
    ----------
    scale
        Prior standard deviation τ of every effect coordinate, nats. ``None`` learns one for each effect, or one for
        each order in a model of more than 1,500 coordinates.
    inference
        ``"exact"`` or ``"loopy"`` marginals.
    rounds
        Largest number of updates of uncertainties and scales, at least 2.
    tolerance
        Largest move of the coordinates in an update of a converged fit, in posterior standard deviations (root mean
        square).

    References
    ----------
    MacKay (1992). Bayesian interpolation. Neural Computation 4, 415-447.

    Examples
    --------
    >>> NoiseAwareMAP()
    NoiseAwareMAP(scale=None, inference='exact', rounds=25, tolerance=0.05)
    """

    scale: float | None = None
    inference: Inference = "exact"
    rounds: int = 25
    tolerance: float = 0.05

    method: ClassVar[str] = "noise-aware MAP"
    has_intervals: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.scale is not None:
            remedy = (
                "a prior without variance would leave nothing to estimate; None learns the scale"
            )
            object.__setattr__(self, "scale", positive_finite("scale", self.scale, remedy))
        require_inference(self.inference)
        whole_number("rounds", self.rounds, 2)
        object.__setattr__(self, "tolerance", positive_finite("tolerance", self.tolerance))

    @on_objects
    @one_blas_thread()
    def fit(
        self,
        releases: NoisyStatistics | Sequence[NoisyStatistics],
        *,
        population: Population = "one",
        model: GivenModel | None = None,
    ) -> NoiseAwareSolution | TransitionSolution:
        """Estimate the model of a release, or of several releases of one population or of several waves.

        Parameters
        ----------
        releases
            Noisy statistics.
        population
            ``"one"``: all releases are of the same people. ``"waves"``: each release is of people of its own, a wave,
            and all waves share the model; the result has the variable ``"wave"``, with the states 1, 2, ....
        model
            Model to fit: a list of cliques, a pgmpy network, or a `ModelSpecification` with its ties, ordinal scores,
            levels and zeros. Its cliques may differ from the measured tables
            (`bayesprivmrf.inference.given_model`). None fits the model that the releases declare.

        Returns
        -------
        NoiseAwareSolution
            `stats` holds rounds, evaluations, seconds, the total used, and for each order the geometric mean of its
            effects' scales; and ``margin_tail``, the p-value of the worst disagreement among numbers that were
            measured more than once. With a given `scale`, ``scale_tail`` is the p-value of the size of the effects
            (`bayesprivmrf.inference.noise_aware.given_scale`). A chain with shared transitions has no scales, and its
            result is a `TransitionSolution`.

        Warns
        -----
        ConsistencyWarning
            Released tables disagree by more than their noise, or contradict the model or a given `scale`. The fit is
            ``not_trusted``.
        NoiseWarning
            Noise hides most of a chain's transitions. The fit is ``not_trusted``.
        ForecastWarning
            The search is forecast to take longer than a minute, as on a table of a million cells.
        """
        begin = time.perf_counter()
        evidence = gather(releases, population=population, model=model)
        specification = evidence.specification
        refuse_loopy(specification, self.inference)
        if specification.shares_transitions:
            return self._transitions(evidence, begin)
        settings = Settings(
            scale=self.scale, inference=self.inference, rounds=self.rounds, tolerance=self.tolerance
        )

        def marginals_of(evidence: Evidence) -> FloatArray:
            return noise_aware_mode(evidence, settings).marginals

        evidence = evidence.at_fit(marginals_of)
        mode = noise_aware_mode(evidence, settings)
        potentials = minimum_norm_potentials(
            specification.cardinalities,
            specification.scopes,
            evidence.family.potentials(mode.coordinates),
        )
        stats = {
            "rounds": mode.rounds,
            "evaluations": mode.evaluations,
            "seconds": time.perf_counter() - begin,
        }
        fields = verdict(mode.status, evidence, potentials, self, stats)
        if self.scale is not None and fields["status"] in _JUDGED:
            _judge_scale(mode, fields)
        fields["references"] = ("cgm", "evidence")
        fields["stats"] |= {
            f"scale_of_order_{order}": scale for order, scale in mode.scales.items()
        }
        fields["stats"] |= {"trust_in_evidence": mode.trust, "log_evidence": mode.log_evidence}
        return NoiseAwareSolution(method=self.method, mode=mode, **fields)

    def _transitions(self, evidence: Evidence, begin: float) -> TransitionSolution:
        """Estimate a chain with one transition matrix, by the covariance of the measurements."""
        refuse_loopy_transitions(self.inference)
        if self.scale is not None:
            raise ArgumentError(
                "`scale` must be left out for a chain with shared transitions, which has no effects on potentials."
            )
        model = evidence.specification
        rows = TransitionRows(model=model)
        pooled = pool(evidence)
        target = pseudo_marginals(evidence, "simplex", has_own_ridges=True, pooled=pooled)
        ridge = float(pooled.ridges(evidence).mean())
        start, _, _ = naive_transitions(rows, target, ridge, iterations=1000, tolerance=1e-7)
        engine = evidence.engine("exact")

        def marginals_of(evidence: Evidence) -> FloatArray:
            found = transition_mode(evidence, start).coordinates
            return engine.marginals(rows.potentials(found))[1]

        evidence = evidence.at_fit(marginals_of)
        mode = transition_mode(evidence, start)
        potentials = rows.potentials(mode.coordinates)
        hidden, is_free = mode.hidden_by_noise()
        stats = {
            "rounds": mode.renewals,
            "hidden_transitions": int(hidden.sum()),
            "seconds": time.perf_counter() - begin,
        }
        fields = verdict(mode.status, evidence, potentials, self, stats)
        fields["stats"]["fitted_total"] = float(np.exp(mode.point[-1]))
        # if noise hides more than half, coverage of the others is 0.69 to 0.79 (hidden-transitions.csv)
        is_hidden = hidden.sum() > 0.5 * is_free.sum()
        noise = (
            f"the noise hides {hidden.sum()} of {is_free.sum()} transitions: their intervals reach 0 or 1, and those "
            "of the others are too narrow; spend more, merge rare states, or take the posterior of the sums over the "
            "steps, as the guide to chains shows"
        )
        if is_hidden:
            warn_caller(f"{noise}. The fit is not trusted.", NoiseWarning)
            fields["status"] = Status.NOT_TRUSTED
            fields["problems"] = (*fields["problems"], noise)
        return TransitionSolution(method=f"{self.method}, shared transitions", mode=mode, **fields)


def _judge_scale(mode: Mode, fields: JudgedFields) -> None:
    """Judge a given scale of the prior by the effects of the fit, and warn if the release contradicts it."""
    found = scale_conflict(mode)
    if found is None:
        return
    fields["stats"]["scale_tail"] = found.tail
    if found.is_real:
        warn_caller(f"{found.problem}. The fit is not trusted.", ConsistencyWarning)
        fields["status"] = Status.NOT_TRUSTED
        fields["problems"] = (*fields["problems"], found.problem)


def _over_ranges(evidence: Evidence, asked: Asked, found: Limits) -> Limits:
    """Return limits that are at least as wide as published ranges leave the counts or the probabilities."""
    lower, upper = widened(evidence, asked, found.lower, found.upper)
    return found._replace(lower=lower, upper=upper)


def _allowing_for_none(
    found: Limits, asked: Asked, fit: FittedPotentials, answers: AnswersPerRecord
) -> Limits:
    """Return limits of the population that allow for groups without a record among N.

    An exact count of 0 puts the fitted probability to 0, and that of the rest to 1. With the wanted probability p,
    the probability of such a group in the population is below 1 - (1 - p) ** (1 / N), where N are the records with
    what is given. A query's answer, between the ends of one record's, is treated alike.
    """
    least, most = asked.ends
    width = np.subtract(most, least)
    people = fit.evidence.total * answers.given_share
    has_none_above = people * (answers.values - least) < _NONE * width
    has_none_below = people * (most - answers.values) < _NONE * width
    if not (has_none_above | has_none_below).any():
        return found
    possible = possible_answers(asked, fit)
    rounding = _ROUNDING * width
    reach = width * (1 - (1 - asked.prob) ** (1 / max(people, 1.0)))
    is_open_above = has_none_above & (possible - least > rounding)
    is_open_below = has_none_below & (most - possible > rounding)
    return found._replace(
        lower=np.where(is_open_below, np.minimum(found.lower, most - reach), found.lower),
        upper=np.where(is_open_above, np.maximum(found.upper, least + reach), found.upper),
    )


def _within_rules(evidence: Evidence, asked: Asked, found: Limits) -> Limits:
    """Return limits of the records' counts that exclude counts which no rule of the published numbers allows."""
    if asked.bound is not None:
        return found
    ends = allowed_states(evidence, asked.variables)
    if ends is None:
        return found
    return found._replace(
        estimates=np.clip(found.estimates, *ends),
        lower=np.clip(found.lower, *ends),
        upper=np.clip(found.upper, *ends),
    )
