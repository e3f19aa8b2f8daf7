r"""Potentials and scale of the prior that noisy tables make most probable.

The coordinates β minimise the expected loss of the noisy counts plus the prior's,

.. math:: \sum_i E\bigl[-\log p\bigl(y_i \mid m_i(β) + v_i Z\bigr)\bigr] + \tfrac12 β'T^{-1}β, \qquad
          m = N μ(β), \qquad v_i^2 = (J C J')_{ii},

where C is the posterior covariance that the expansion at β implies: the mean of a normal variational approximation
(Opper and Archambeau 2009) whose covariance comes from the expansion. With v = 0 it would be the posterior's mode;
averaging over the uncertainty of a mean smooths the kinks of a Laplace law, and at low signal comes closer to the
truth. The widths v are kept while β moves, then renewed, until nothing moves.

If the potentials are free, p is the distribution of the noise alone, and β are the parameters whose mean counts are
the N people's own. The sampling of the people from the population adds no bias to them, and their likelihood is
exact, tables that share variables and people included. If the counts tell more than the statistics of a model with
ties, scores or waves, p also has the variance of the counts given the statistics. If the model is smaller than its
tables, p also has the sampling of the people, and β are the population's parameters
(`bayesprivmrf.inference.noise_aware.smaller`).

The rounds are those of `bayesprivmrf.inference.loglinear_fit.search`: each computes the expansion, the widths and the
scales at the estimate, and descends by quasi-Newton steps while these are fixed.

The scales of the prior are learned from the expansion's evidence
(`bayesprivmrf.inference.loglinear_fit.scale_prior`). Where that evidence is hardly higher than the uniform
distribution's, it is not to be trusted: with little information a wide prior lets the tables adapt to the largest
noise, and the expansion does not see that most tables of such a prior make the data improbable. The expected loss is
then taken over draws of the approximation instead; this lower bound of the evidence penalizes scales that are too
wide.

Answers without noise are constraints on the means: multipliers follow each search (`Objective.hold`), and the point
where it ends is moved to the nearest that gives them to the last digit (`bayesprivmrf.inference.exact_answers`).

References
----------
Hestenes (1969). Multiplier and gradient methods. Journal of Optimization Theory and Applications 4, 303-320.
Opper and Archambeau (2009). The variational Gaussian approximation revisited. Neural Computation 21, 786-792.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from bayesprivmrf.inference.criticism.noise_misfit import misfit_of_estimate
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.exact_answers import honoured
from bayesprivmrf.inference.interval_frame import Status
from bayesprivmrf.inference.least_squares import pool
from bayesprivmrf.inference.loglinear_fit.curvature import DenseCurvature, weighted_square
from bayesprivmrf.inference.loglinear_fit.scale_prior import EffectsPrior
from bayesprivmrf.inference.loglinear_fit.search import (
    Last,
    Phase,
    Phases,
    Searched,
    Turn,
    iterate,
)
from bayesprivmrf.inference.mean_counts import MeanCounts, NoiseLikelihood
from bayesprivmrf.inference.noise_aware.curvature import SampledCurvature, warn_if_slow
from bayesprivmrf.inference.noise_aware.objective import Expansion, Objective, Settings
from bayesprivmrf.inference.optimize import PotentialFamily, match_marginals
from bayesprivmrf.inference.projection import pseudo_marginals
from bayesprivmrf.model.tables import FloatArray

# Largest number of steps of the naive estimate from which a search may begin
_NAIVE_STEPS = 100

# Gradient at which that estimate ends, a probability
_NAIVE_TOLERANCE = 1e-5

# Rounds after which a search without any evidence for its scales is given up
_FIRST_ROUNDS = 4

# Rounds before a search may end, where scales are given and where they are learned: the widths, and the learned
# scales, have then followed the estimate once
_FEWEST = 2
_FEWEST_LEARNING = 3

# Rounds whose renewals count in full; see `bayesprivmrf.inference.loglinear_fit.search.Phase`
_IN_FULL = 2

# The scale at which a search for scales begins, nats: from a narrow one it may end near the uniform distribution
_WIDE_SCALE = 1.0

# Evidence above that of the uniform distribution at which the expansion's evidence is fully trusted, nats
_FULL_TRUST = 20.0

# The grid of the search for a scale by the lower bound, nats
_SCALES = (0.15, 0.25, 0.4, 0.6, 0.9, 1.4)

# Nats below the best bound at which the scan of the grid ends: more than the noise of a bound
_FAR_BELOW = 10.0

# P-value of an estimate below which the search is repeated with its scales. That of a mode is near 1, because it is
# closer to the numbers than noise and sampling are
_SUSPECT_TAIL = 0.05

# Nats by which the objective of another mode is lower; searches that end at one mode differ by less
_OTHER_MODE = 1.0

# Pairs of opposite normal draws over which a bound is a mean; arbitrary
_PAIRS = 6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mode:
    """Mode that `noise_aware_mode` found.

    Parameters
    ----------
    means
        The map to mean counts.
    prior
        The prior of the coordinates.
    point
        (β, log N), shape (d + 1,).
    log_scales
        log τ of each effect, as `EffectsPrior` lists them, shape (scales,).
    curvature
        Curvature of the objective at the point.
    status, rounds, evaluations, log_evidence
        How it ended; the last in nats, NaN where the information matrix was not formed.
    trust
        Weight of the expansion's evidence in the choice of scales; the rest is that of the lower bound.
    has_given_scale
        Whether the scales were given, and not learned.
    """

    means: MeanCounts
    likelihood: NoiseLikelihood
    prior: EffectsPrior
    point: FloatArray
    log_scales: FloatArray
    curvature: DenseCurvature | SampledCurvature
    status: Status
    rounds: int
    evaluations: int
    log_evidence: float
    trust: float = 1.0
    has_given_scale: bool = False

    @property
    def coordinates(self) -> FloatArray:
        """β, shape (d,), nats."""
        return self.point[:-1]

    @property
    def marginals(self) -> FloatArray:
        """Probabilities of the cells of the model's cliques, shape (model size,)."""
        return self.means.engine.marginals(self.means.evidence.family.potentials(self.coordinates))[
            1
        ]

    @property
    def log_total(self) -> float:
        """Log N."""
        return float(self.point[-1])

    @property
    def scales(self) -> dict[int | str, float]:
        """Geometric mean of the effects' τ in each order, or in each order and part."""
        orders = np.array(self.prior.orders)
        return {
            order: float(np.exp(self.log_scales[orders == order].mean()))
            for order in np.unique(orders).tolist()
        }

    def noise_information(self) -> FloatArray:
        """Return J'WJ at the point, the Fisher information of the noise alone about (β, log N).

        W is 1/b² or 1/σ² of each count, and at most 12: rounding to a whole number leaves as much unknown.

        Returns
        -------
        ndarray
            Shape (d + 1, d + 1); its diagonal alone (an estimate), shape (d + 1,), above `DENSE_LIMIT` coordinates.
        """
        linearized = self.means.at(self.point)
        weights = 1 / np.maximum(self.likelihood.scale**2, 1 / 12)
        if self.curvature.formed is not None:
            return weighted_square(self.means.jacobian(linearized), weights)
        prior = self.curvature.prior
        sampled = SampledCurvature(linearized=linearized, weights=weights, prior=prior)
        return np.maximum(sampled.diagonal - prior, 0.0)


def noise_aware_mode(evidence: Evidence, settings: Settings | None = None) -> Mode:
    """Return the most probable coordinates, scales and total; see the module.

    Parameters
    ----------
    evidence
        The releases.
    settings
        Settings of the search; by default those of `Settings`.
    """
    problem = Search(evidence, settings or Settings())
    mode = problem.run()
    if evidence.constraints is None:
        return mode
    tilt, is_feasible = problem.honouring(mode.coordinates)
    point = np.append(mode.coordinates + tilt, mode.log_total)
    return replace(mode, point=point, status=mode.status if is_feasible else Status.DIVERGED)


def schedule_of(rounds: int, *, learns: bool) -> Phases:
    """Return the phases of a search of so many rounds, with scales that are learned or given."""
    fewest = min(rounds, _FEWEST_LEARNING if learns else _FEWEST)
    first = Phase(rounds=fewest, learns=learns, may_end=False, damped_after=_IN_FULL)
    return (first, replace(first, rounds=rounds - fewest, may_end=True))


class Search(Objective):
    """Search for the mode: alternate an optimization with a new quadratic expansion of the noise."""

    def honouring(self, coordinates: FloatArray) -> tuple[FloatArray, bool]:
        """Return the step from some coordinates to those of the nearest distribution that gives the exact answers."""
        before = self.means.evidence.family.potentials(coordinates)
        after, is_feasible = honoured(self.means.evidence, self.means.engine, before)
        moved = np.subtract(after, before, out=np.zeros_like(before), where=np.isfinite(before))
        return self.means.effects.coordinates(moved), is_feasible

    def run(self) -> Mode:
        """Return the mode, with learned scales where `settings` asks for them."""
        mode, start = self._first()
        if self.settings.scale is not None:
            return mode
        return self._or_better(mode, start)

    def _or_better(self, mode: Mode, start: FloatArray) -> Mode:
        """Return a mode, or a more probable one that the search finds from its start with the learned scales.

        The first round has wide scales and wide widths, over which the loss of the numbers is averaged. There it may
        empty a state that all tables hold, and no later step leads back. Such a mode misses these numbers.
        """
        with np.errstate(all="ignore"):  # of a search that diverged
            misfit = misfit_of_estimate(self.means.evidence, mode.marginals)
        if misfit is None or misfit.tail >= _SUSPECT_TAIL:
            return mode
        rounds = self.settings.rounds
        other = self.settle(start, mode.log_scales, schedule_of(rounds, learns=not self.is_dense))
        gain = self._value(mode, mode.log_scales) - self._value(other, mode.log_scales)
        if gain > _OTHER_MODE:
            return replace(other, trust=mode.trust)
        return mode

    def _value(self, mode: Mode, log_scales: FloatArray) -> float:
        """Return the objective at a mode, with the scales of the prior as given and without widths, nats."""
        variance = self.variance(self.means.at(mode.point))
        return self.penalised(mode.point, log_scales, variance, np.zeros(len(variance)))[0]

    def _first(self) -> tuple[Mode, FloatArray]:
        """Return the mode that the search ends at, and the point where it began."""
        uniform = np.zeros(self.means.size)
        uniform[:-1] = self._largest_entropy
        uniform[-1] = np.log(self.means.evidence.total)
        warn_if_slow(self.means, self.likelihood.kernels, self.is_dense)
        rounds = self.settings.rounds
        learning = schedule_of(rounds, learns=True)
        given = schedule_of(rounds, learns=False)
        scale = self.settings.scale
        scales = np.full(self.prior.count, np.log(_WIDE_SCALE if scale is None else scale))
        start = self._better_start(uniform, scales)
        if scale is not None:
            return self.settle(start, scales, given), start
        if not self.is_dense:
            return self.settle(start, scales, learning), start
        mode = self._on_trial(start, scales)
        trust = self._trust(mode)
        if trust > 0 and mode.status is not Status.CONVERGED and mode.rounds < rounds:
            mode = self.settle(mode.point, mode.log_scales, learning)
            trust = self._trust(mode)
        if trust < 1:
            bound, point = self._scale_by_bound(uniform)
            # the two answers are mixed, so that the estimate does not jump where trust runs out
            scales = trust * mode.log_scales + (1 - trust) * bound
            mode = self.settle(point, scales, given)
        return replace(mode, trust=trust), start

    @cached_property
    def _largest_entropy(self) -> FloatArray:
        """The uniform distribution, or the one nearest to it that gives the exact answers."""
        origin = np.zeros(self.means.size - 1)
        if self.means.evidence.constraints is None:
            return origin
        return self.honouring(origin)[0]

    def _better_start(self, uniform: FloatArray, log_scales: FloatArray) -> FloatArray:
        """Return the uniform distribution or the naive estimate, whichever has the lower objective."""
        evidence = self.means.evidence
        model = evidence.specification
        if not evidence.noise:
            return uniform
        pooled = pool(evidence)
        ridge = np.repeat(pooled.ridges(evidence), np.diff(model.offsets))
        target = pseudo_marginals(evidence, "simplex", has_own_ridges=True, pooled=pooled)
        potentials, _, _ = match_marginals(
            PotentialFamily(self.means.engine, evidence.family.base),
            target,
            ridge=ridge,
            iterations=_NAIVE_STEPS,
            tolerance=_NAIVE_TOLERANCE,
        )
        naive = uniform.copy()
        naive[:-1] = evidence.family.coordinates(potentials)
        values = []
        for point in (uniform, naive):
            variance = self.variance(self.means.at(point))
            values.append(self.penalised(point, log_scales, variance, np.zeros(len(variance)))[0])
        if values[1] < values[0]:
            return naive
        return uniform

    # one expansion after the other

    def settle(self, point: FloatArray, log_scales: FloatArray, schedule: Phases) -> Mode:
        """Return the mode at the end of a search, which begins at a point and at log scales."""
        return self._mode(iterate(partial(self._expanded, log_scales), point, schedule))

    def _on_trial(self, point: FloatArray, log_scales: FloatArray) -> Mode:
        """Return the mode with learned scales, or that of a few rounds if these show no evidence for the scales."""
        renewed = partial(self._expanded, log_scales)
        rounds = self.settings.rounds
        found = iterate(renewed, point, schedule_of(min(rounds, _FIRST_ROUNDS), learns=True))
        mode = self._mode(found)
        if rounds <= _FIRST_ROUNDS or not found.is_open or self._trust(mode) == 0:
            return mode
        rest = Phase(rounds=rounds - _FIRST_ROUNDS, learns=True, damped_after=_FIRST_ROUNDS + 1)
        return self._mode(iterate(renewed, point, (rest,), found))

    def _expanded(
        self, log_scales: FloatArray, point: FloatArray, last: Last[Expansion] | None, turn: Turn
    ) -> Expansion:
        """Return the expansion at a point; the first one has the given log scales."""
        if last is not None:
            log_scales = last.weighted.log_scales
        return Expansion(self, point, log_scales, last, turn)

    def _mode(self, found: Searched[Expansion]) -> Mode:
        """Return the mode where a search ended, with the evidence of its expansion where that is formed."""
        point = found.point
        log_scales = found.weighted.log_scales
        width = found.weighted.width
        variance = found.weighted.variance
        curvature = found.weighted.curvature
        status = found.last.descent.status
        if status is Status.CONVERGED and not found.has_settled:
            status = Status.ITERATION_LIMIT
        log_evidence = float("nan")
        if (dense := curvature.formed) is not None:
            value = self.penalised(point, log_scales, variance, width)[0]
            prior = self.prior_precision(log_scales)
            half = 0.5 * (len(point) - float(prior @ dense.variances))
            log_evidence = (
                half - value - 0.5 * dense.log_determinant + 0.5 * float(np.log(prior).sum())
            )
        return Mode(
            means=self.means,
            likelihood=self.likelihood,
            prior=self.prior,
            point=point,
            log_scales=log_scales,
            curvature=curvature,
            status=status,
            rounds=found.rounds,
            evaluations=self.evaluations,
            log_evidence=log_evidence,
            has_given_scale=self.settings.scale is not None,
        )

    # where the expansion's evidence says little

    def _trust(self, mode: Mode) -> float:
        """Return the weight of the expansion's evidence in the choice of scales, from 0 to 1.

        The effective number of coordinates is taken off, about what the search gains by fitting noise.
        Answers without noise count as evidence, because they determine scales as other numbers do.
        """
        prior = self.prior_precision(mode.log_scales)
        effective = len(prior) - float(prior @ mode.curvature.variances)
        uniform = mode.point.copy()
        uniform[:-1] = 0.0
        linearized = self.means.at(uniform)
        loss, _ = self.likelihood.loss(linearized.mean, self.variance(linearized))
        gain = (mode.log_evidence - effective + loss) / _FULL_TRUST
        if np.isfinite(gain):
            return float(np.clip(gain, 0.0, 1.0))
        return 0.0

    def _scale_by_bound(self, start: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return equal log scales at which the evidence bound plus the log prior is highest, and a point there.

        From narrow scales to wide ones, each search from where the last one ended: the side of the uniform
        distribution, as long as there is one.
        """
        point = start
        last = None
        values = []
        points = []
        for log_scale in np.log(_SCALES):
            log_scales = np.full(self.prior.count, log_scale)
            expansion = Expansion(self, point, log_scales, last)
            last = Last(expansion, expansion.minimum())
            point = last.descent.point
            points.append(point)
            values.append(
                self._bound(point, log_scales, expansion) + self.prior.log_density(log_scales)
            )
            if values[-1] < max(values) - _FAR_BELOW:
                break
        found = _peak(np.log(_SCALES), np.array(values))
        return np.full(self.prior.count, found), points[int(np.argmax(values))]

    def _bound(self, point: FloatArray, log_scales: FloatArray, expansion: Expansion) -> float:
        """Return a lower bound of the log evidence by a normal approximation around a point, nats.

        Its covariance is that of the expansion; the expected loss is taken over draws.
        """
        dense = expansion.curvature.formed
        assert dense is not None  # bounds are of models whose matrices are formed
        half = np.random.default_rng(0).standard_normal((_PAIRS, self.means.size))
        half[:, -1] = 0.0  # N is held
        losses = []
        # odd terms of the loss cancel in opposite draws; the fixed seed gives all scales the same ones
        for shift in dense.step(np.concatenate([half, -half]).T).T:
            linearized = self.means.at(point + shift)
            losses.append(self.likelihood.loss(linearized.mean, self.variance(linearized))[0])
        prior = self.prior_precision(log_scales)
        beta = point[:-1]
        divergence = prior[:-1] @ (dense.variances[:-1] + beta**2) - len(beta)
        divergence += dense.log_determinant - np.log(prior).sum()
        return -float(np.mean(losses)) - 0.5 * float(divergence)


def _peak(positions: FloatArray, values: FloatArray) -> float:
    """Return the position of the highest value, by the parabola through it and its neighbors."""
    best = int(np.argmax(values))
    if not 0 < best < len(values) - 1:
        return float(positions[best])
    x = positions[best - 1 : best + 2] - positions[best]
    y = values[best - 1 : best + 2] - values[best]
    curve, slope = np.linalg.solve(np.array([[x[0] ** 2, x[0]], [x[2] ** 2, x[2]]]), [y[0], y[2]])
    return float(
        positions[best] + (np.clip(-slope / (2 * curve), x[0], x[2]) if curve < 0 else 0.0)
    )
