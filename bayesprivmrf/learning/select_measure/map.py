r"""The learning map of `SelectMeasure` with a degree, and first-order intervals of its couplings.

A release holds its map as public settings. `learn` measures (`bayesprivmrf.learning.select_measure.measurement`) and
`fit` turns the noisy numbers into couplings (`bayesprivmrf.learning.select_measure.couplings`). The mechanism runs
both on records; anybody who has the release can run them on simulated records. `learned.couplings_interval()` calls
`linearised`, whose limits are derived here.

**Pairs in the model.** In the coordinates of `bayesprivmrf.model.effects` the fit solves
:math:`\mu(\hat\beta) + \Lambda \hat\beta = t`, where t are the noisy mean effects. Let :math:`\Sigma` be the
covariance of one record's effects and :math:`M = (\Sigma + \Lambda)^{-1}`. The penalty shifts :math:`\hat\beta` by
:math:`-M \Lambda \beta` to first order. The interval corrects this shift; the remaining error is
:math:`K (t - \mu)` with :math:`K = M + M \Lambda M` and

.. math:: \operatorname{Cov} t = \Sigma / N + \operatorname{diag}(v) + \frac{v_N}{N^2} \mu \mu^\top .

The terms are sampling, the noise on sums or tables with variance :math:`v_s` on the mean of effect s, and the noise
on a purchased number of records. Intervals are normal. :math:`\Sigma` is estimated from records drawn from the
released model, and :math:`\Lambda` is diagonal, :math:`(v_s / F_s + 1/N) / \tau^2`, where :math:`F_s` is the variance
of the effect under independence. Measured tables also carry information about N and, by the margins of pairs that
were not kept, about single variables. Both are ignored here, so the interval is slightly wide, and that of a field
corrects slightly more than the true shift.

If the release says that its fit was reweighted by the curvature at the estimate, :math:`\Lambda` is
:math:`(I / N + \operatorname{diag}(v) \Sigma^{-1}) / \tau^2`. Then :math:`\Sigma`, computed exactly where that is
cheap, may be singular, because some event is so rare that no record shows it. With
:math:`W = (\Sigma / N + \operatorname{diag}(v))^{-1}` and :math:`H = \Sigma W \Sigma + I / \tau^2`,
:math:`M = H^{-1} \Sigma W` and :math:`M \Lambda = H^{-1} / \tau^2` need no inverse of :math:`\Sigma`. Without the
prior, the errors of the coordinates would have covariance :math:`(\Sigma W \Sigma)^{-1}`. An entry of a table with
weights a of the coordinates has infinite limits if :math:`z^2 a^\top (\Sigma W \Sigma)^{-1} a > a^\top a`: to first
order the probability of a rare event could be 0, and the coupling of any size. This rule is a heuristic of the normal
approximation.

**Pairs left out.** Such a pair was not chosen or did not stand out, and its estimate is 0. For one entry of its table
both events depend on one number, the covariance C of the indicators of the entry's two states. The pair's score is
:math:`N |C| / ((1 - \min q_i)(1 - \min q_j))` records, and the pair stands out if :math:`C^2` exceeds the threshold
of `bayesprivmrf.learning.select_measure.targets` for as many pairs as were kept. (With more than two states the fit
tests all entries of a table together. One entry alone then seems to be left out more often than it is, and the
interval is conservative.) The interval holds the couplings for which the pair is left out with at least half the
probability of error,

.. math:: P(\text{left out} \mid C) = 1 - \int P(\text{chosen} \mid x)\, P(\text{stands out} \mid x)\,
    \mathcal{N}(x; C, r)\, dx \ge (1 - \text{prob}) / 2 ,

where r is the sampling variance, and noise of the variance v of `targets` enters both probabilities. This test and
the interval of a kept pair form one equal-tailed test. If a pair were left out exactly when the error of its numbers
is low, both together would err with probability 1 - prob, up to linearization. The choice has other noise than the
measurement, so near the limit the probability is up to 1.5 times as large: a left-out pair adds up to (1 - prob) / 2.
A pair had to reach the m-th best noisy score to be chosen; that score comes from simulated records. A coupling w
gives :math:`C = l \tanh(\operatorname{artanh}(C_0 / l) + s w / l)`, where :math:`C_0` is the covariance that the rest
of the model causes, s the slope at independence, and l the product of the indicators' standard deviations; this is
exact for two fair coins by themselves. Limits are infinite for states so rare that no coupling could have been
detected.

All intervals take the released graph as true: if a coupling is missing, others may be off by its product with the
couplings on the path around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.loglinear_fit.fit import PRIOR_DEVIATION
from bayesprivmrf.inference.loglinear_fit.moments import moments_of
from bayesprivmrf.inference.loglinear_fit.sampled import features_of
from bayesprivmrf.interruption import remember
from bayesprivmrf.learning.models.maps import SavedMap, mechanism_module
from bayesprivmrf.learning.models.solution import FALLBACK, warn_of_chains
from bayesprivmrf.learning.select_measure.couplings import FittedCouplings, fit_couplings
from bayesprivmrf.learning.select_measure.measurement import (
    STEPS,
    Measured,
    MeasurementPlan,
    public_shares,
)
from bayesprivmrf.learning.select_measure.pair_counts import dependence_scores, pair_sums
from bayesprivmrf.learning.select_measure.targets import least_statistic, mean_precisions
from bayesprivmrf.model.effects import Effects, contrasts
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource, gumbel
from bayesprivmrf.privacy import DiscreteGaussian
from bayesprivmrf.release.codec import Fields

if TYPE_CHECKING:
    from bayesprivmrf.learning.models.pairs import LearnedPairs

type Limits = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class CouplingsByMeasurement(SavedMap):
    """Learning map that selects pairs, measures them and fits a pairwise model.

    Parameters
    ----------
    plan
        Plan of selection and measurement.
    total_noise
        Distribution of the noise on the number of records; ``None`` for a public number.
    """

    plan: MeasurementPlan
    total_noise: DiscreteGaussian | None

    kind = "couplings-by-measurement"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold; `from_dict` is the inverse."""
        if self.total_noise is None:
            noise = None
        else:
            noise = self.total_noise.scale
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
        """Return couplings and fields as arrays of the release's class; see `LearningMap.learn`."""
        mechanism = mechanism_module("select_measure.one_choice")
        measured = mechanism.measured_on_rows(codes, counts, total, self.plan, source)
        fitted = self.fit(measured, total)
        return fitted.coupling_matrix, fitted.field_vector

    @property
    def _total_variance(self) -> float:
        if self.total_noise is None:
            return 0.0
        return self.total_noise.variance

    def fit(self, measured: Measured, total: float) -> FittedCouplings:
        """Return couplings estimated from noisy numbers; equal numbers give equal estimates."""
        try:
            return fit_couplings(measured, self.plan, total, self._total_variance)
        except BaseException as error:
            remember(error)
            return fit_couplings(
                measured, self.plan, total, self._total_variance, is_interrupted=True
            )

    def linearised(
        self, learned: LearnedPairs, prob: float, total: float, generator: np.random.Generator
    ) -> Limits:
        """Return lower and upper limits of all couplings and fields, each in the order of the release's vector.

        Parameters
        ----------
        learned
            A model learned by this map.
        prob
            Coverage, in (0, 1).
        total
            Number of records N.
        generator
            Generator for records drawn from the model; a `SamplingWarning` says if the chains did not mix.

        Raises
        ------
        ModelError
            The fit failed and a smaller model replaces it, whose errors differ from those derived here.
        """
        from scipy.stats import norm

        if (said := learned.details.get(FALLBACK)) is not None:  # a smaller model has no limits
            raise ModelError(
                "`couplings_interval` needs a model of all chosen pairs, got a smaller one, because the fit fell "
                f"back ({said}); take `learned.interval(variables)` for tables, or learn by SelectMeasure(rho)."
            )
        model = _Model(learned, self.plan, self._total_variance, total, generator)
        if not model.has_mixed:
            warn_of_chains()
        z = float(norm.isf((1 - prob) / 2))
        centre, covariance, free = model.normal_approximation()
        W = _left_out(model, (1 - prob) / 2)
        theta = np.zeros(model.width), np.zeros(model.width)
        for subset, start, stop in model.blocks():
            basis = contrasts(model.cards[subset[0]])
            if len(subset) == 2:
                basis = np.kron(basis, contrasts(model.cards[subset[1]]))
            middle = basis @ centre[start:stop]
            spread = ((basis @ covariance[start:stop, start:stop]) * basis).sum(axis=1)
            unlimited = z**2 * ((basis @ free[start:stop]) ** 2).sum(axis=1) > (basis**2).sum(
                axis=1
            )
            half = np.where(unlimited, np.inf, z * np.sqrt(np.maximum(spread, 0.0)))
            rows = slice(model.first[subset[0]], model.first[subset[0] + 1])
            if len(subset) == 1:
                theta[0][rows] = middle - half
                theta[1][rows] = middle + half
                continue
            columns = slice(model.first[subset[1]], model.first[subset[1] + 1])
            shape = (rows.stop - rows.start, columns.stop - columns.start)
            for matrix, values in zip(W, (middle - half, middle + half), strict=True):
                matrix[rows, columns] = values.reshape(shape)
                matrix[columns, rows] = values.reshape(shape).T
        own = learned.own_states  # the second states where all variables have two, else all
        low, high = (learned.flat(W[end][np.ix_(own, own)], theta[end][own]) for end in (0, 1))
        return low, high


class _Model:
    """Coordinates of a release's effects, and the covariance of one record's effects."""

    def __init__(
        self,
        learned: LearnedPairs,
        plan: MeasurementPlan,
        total_variance: float,
        total: float,
        generator: np.random.Generator,
    ) -> None:
        self.plan = plan
        self.total_variance = total_variance
        self.total = total
        self.generator = generator
        self.is_reweighted = learned.details.get("penalty") is not None
        self.cards = learned.domain.cardinalities
        self.first = np.cumsum([0, *self.cards])
        self.width = int(self.first[-1])
        self.kept = [scope for scope in learned.specification.scopes if len(scope) == 2]
        self.effects = Effects.of(self.cards, (*self.kept, *((v,) for v in range(len(self.cards)))))
        tables = [*(learned.block(*pair) for pair in self.kept), *learned.field_tables()]
        self.beta = self.effects.coordinates(np.concatenate([table.ravel() for table in tables]))
        # at least 20,000 records plus 20 for each coordinate, so that the covariance is accurate
        size = max(round(total), 20_000 + 20 * self.effects.size)
        self.codes, self.has_mixed = learned.solution.codes(size, generator)
        self.sums = pair_sums(self.codes, np.ones(size, dtype=np.int64), self.cards)
        self.shares = self.sums.single / size
        phi = features_of(self.effects)
        d = self.effects.size
        sums = np.zeros(d)
        squares = np.zeros((d, d))
        # multiply at most 16 MiB of single-precision effects at a time
        rows = max((1 << 22) // max(d, 1), 1)
        for start in range(0, size, rows):
            part = phi(self.codes[start : start + rows])
            sums += part.sum(axis=0, dtype=np.float64)
            squares += part.T @ part
        self.mean = sums / size
        self.covariance = squares / size - np.multiply.outer(self.mean, self.mean)
        if (
            self.is_reweighted and learned.details["inference"] == "exact"
        ):  # draws would miss what is rare
            moments = moments_of(self.effects, generator)
            if moments.has_covariance:
                self.covariance = moments.expanded(self.beta)[1]
        precision, noise = mean_precisions(plan, self.kept)
        self.single_noise = 1 / (precision * total**2)
        self.pair_noise = noise / total**2

    def blocks(self) -> Iterator[tuple[tuple[int, ...], int, int]]:
        """Yield the variables of each effect, and the range of its coordinates."""
        return zip(
            self.effects.subsets, self.effects.offsets, self.effects.offsets[1:], strict=False
        )

    def normal_approximation(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return mean and covariance of the fitted coordinates, and a root of the covariance without a prior."""
        spread = self.covariance.diagonal()
        noise = np.empty(spread.size)
        expected = np.empty(spread.size)
        single = {
            subset[0]: spread[start:stop]
            for subset, start, stop in self.blocks()
            if len(subset) == 1
        }
        for subset, start, stop in self.blocks():
            is_pair = len(subset) == 2
            if is_pair:
                noise[start:stop] = self.pair_noise
            else:
                noise[start:stop] = self.single_noise[subset[0]]
            own = single[subset[0]]
            if is_pair:
                expected[start:stop] = np.multiply.outer(own, single[subset[1]]).ravel()
            else:
                expected[start:stop] = own
        # Cov t without the noise of N; the latter does not enter the weights
        of_means = self.covariance / self.total + np.diag(noise)
        if self.is_reweighted:
            weighed = np.linalg.solve(of_means, self.covariance).T  # ΣW
            information, directions = np.linalg.eigh(weighed @ self.covariance)
            prior = 1 / PRIOR_DEVIATION**2
            inverse = (directions / (np.maximum(information, 0.0) + prior)) @ directions.T
            pull = prior * inverse
            error = inverse @ weighed
            # an eigenvalue this much smaller than the largest one is rounding error
            known = np.maximum(information, information.max(initial=1.0) * 1e-12)
            free = directions / np.sqrt(known)
        else:
            penalty = (
                np.diag(noise / np.maximum(expected, 1e-12) + 1 / self.total) / PRIOR_DEVIATION**2
            )
            error = np.linalg.inv(self.covariance + penalty)
            pull = error @ penalty
            free = np.zeros(of_means.shape)
        error = error + pull @ error
        of_means += self.total_variance / self.total**2 * np.multiply.outer(self.mean, self.mean)
        return self.beta + pull @ self.beta, error @ of_means @ error.T, free


def _left_out(model: _Model, tail: float) -> Limits:
    """Return limits of the entries of pairs that were left out; 0 for pairs that may not be coupled."""
    low = np.zeros((model.width, model.width))
    high = np.zeros((model.width, model.width))
    # entries of candidates that were left out; only those of second states for sums of spins
    is_out = np.zeros((len(model.cards), len(model.cards)), dtype=bool)
    is_out[tuple(model.plan.candidates.T)] = True
    for pair in model.kept:
        is_out[pair] = False
    owner = np.arange(len(model.cards)).repeat(model.cards)
    wanted = np.ones(model.width, dtype=bool)
    if model.plan.form == "moments":
        wanted[::2] = False
    rows, columns = np.nonzero(is_out[np.ix_(owner, owner)] & np.multiply.outer(wanted, wanted))
    if not rows.size:
        return low, high
    i = owner[rows]
    j = owner[columns]
    states = np.array(model.cards)
    total = model.total
    # an empty state counts as half a record
    share = np.clip(model.shares, 0.5 / total, 1 - 0.5 / total)
    variance = share * (1 - share)
    mean = share - 1 / states.repeat(states)
    size = 1 - 1 / states  # squared length of an indicator among contrasts
    noise = size[i] * size[j] * model.pair_noise
    noise = noise + size[i] * model.single_noise[i] * mean[columns] ** 2
    noise = noise + size[j] * model.single_noise[j] * mean[rows] ** 2
    noise = noise + model.total_variance * (mean[rows] * mean[columns] / total) ** 2
    both = variance[rows] * variance[columns]
    sampling = both / total
    least = least_statistic(
        sampling / (noise + sampling),
        (states[i] - 1) * (states[j] - 1),  # degrees of freedom
        kept=len(model.kept),
        measured=model.plan.count,
        candidates=len(model.plan.candidates),
    )
    threshold = np.sqrt(least * (noise + sampling))
    largest = _largest(threshold, noise, sampling, *_chosen_above(model, i, j), tail)
    limit = np.sqrt(both)
    # two variables that are copies are at the limit, where artanh is infinite
    around = np.arctanh(np.clip(_covariances(model, rows, columns) / limit, -1 + 1e-9, 1 - 1e-9))
    with np.errstate(divide="ignore"):
        reach = np.arctanh(np.minimum(largest / limit, 1.0))
    for matrix, values in ((low, -reach), (high, reach)):
        matrix[rows, columns] = (values - around) * limit * size[i] * size[j] / both
        matrix[columns, rows] = matrix[rows, columns]
    return low, high


def _largest(
    threshold: FloatArray,
    noise: FloatArray,
    sampling: FloatArray,
    bound: FloatArray,
    scale: FloatArray,
    tail: float,
) -> FloatArray:
    """Return the largest C for which a pair is left out with probability `tail` or more, by bisection."""
    from scipy.special import ndtr

    # nodes of the integral over sampling, from -4 to 4 standard deviations
    z = np.linspace(-4.0, 4.0, 41)
    weights = np.exp(-(z**2) / 2)
    weights /= weights.sum()
    spread = np.sqrt(noise)[:, None]
    deviation = np.sqrt(sampling)[:, None]

    def left_out(C: FloatArray) -> FloatArray:
        x = np.abs(C[:, None] + deviation * z)
        chosen = -np.expm1(-np.exp(np.minimum((x - bound[:, None]) / scale[:, None], 50.0)))
        out = ndtr((x - threshold[:, None]) / spread) + ndtr(-(x + threshold[:, None]) / spread)
        return 1 - (chosen * out) @ weights

    # a covariance of indicators is at most 1/4
    low = np.zeros(threshold.size)
    high = np.ones(threshold.size)
    # 30 halvings of [0, 1]: an error of 1e-9
    for _ in range(30):
        middle = (low + high) / 2
        is_in = left_out(middle) >= tail
        low = np.where(is_in, middle, low)
        high = np.where(is_in, high, middle)
    return high


def _covariances(model: _Model, rows: IntArray, columns: IntArray) -> FloatArray:
    """Return the covariances of indicators of states in the simulated records."""
    joint = np.zeros((model.width, model.width))
    later = np.delete(np.arange(model.width), model.first[:-1])
    shares = model.shares[later]
    joint[np.ix_(later, later)] = model.sums.joint / len(model.codes) - np.multiply.outer(
        shares, shares
    )
    # covariances with all indicators of a variable sum to 0
    joint[model.first[:-1]] = -np.add.reduceat(joint, model.first[:-1], axis=0)
    joint[:, model.first[:-1]] = -np.add.reduceat(joint, model.first[:-1], axis=1)
    return joint[rows, columns]


def _chosen_above(model: _Model, i: IntArray, j: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the |C| from which a pair is chosen without noise, and the scale of the noise, for each entry."""
    plan = model.plan
    if plan.selection_scale is None:
        return np.full(i.size, -np.inf), np.ones(i.size)
    records = max(round(model.total), 1)
    sums = pair_sums(model.codes[:records], np.ones(records, dtype=np.int64), model.cards)
    first = model.first[:-1]
    if plan.form == "moments":
        one_way = 2 * sums.single[first + 1] - records
    else:
        one_way = sums.single
    shares = public_shares(one_way, float(records), plan)
    scores = (
        dependence_scores(sums, model.cards, shares)[tuple(plan.candidates.T)]
        / plan.selection_scale
    )
    scores += gumbel(
        scores.size, lambda size: model.generator.integers(0, 2**64, size=size, dtype=np.uint64)
    )
    least = np.partition(scores, -plan.count)[-plan.count]
    reach = np.array([1 - share.min() / share.sum() for share in shares])
    scale = plan.selection_scale * reach[i] * reach[j] / (STEPS * model.total)
    return least * scale, scale
