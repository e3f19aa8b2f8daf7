r"""The map of `SelectMeasure` with a degree, from records to couplings, and intervals by linearising its fit.

A release holds the map, as public settings: `learn` measures (`bayesprivmrf.learning.select_measure.measurement`) and
`fit` makes couplings of the noisy numbers (`bayesprivmrf.learning.select_measure.couplings`). The mechanism takes the
two steps on records with its source of noise; whoever has the release may take them on simulated records alone.
`learned.couplings_interval()` asks `linearised` for its limits, which are derived here.

**Pairs that were kept.** In the coordinates of `bayesprivmrf.model.effects` the fit solves
:math:`\mu(\hat\beta) + \Lambda \hat\beta = t`, with the noisy mean effects t. Near it, with :math:`\Sigma` the
covariance of one record's effects and :math:`M = (\Sigma + \Lambda)^{-1}`, the penalty pulls :math:`\hat\beta` by
:math:`-M \Lambda \beta`. The interval undoes this pull; the error that remains is :math:`K (t - \mu)` with
:math:`K = M + M \Lambda M` and

.. math:: \operatorname{Cov} t = \Sigma / N + \operatorname{diag}(v) + \frac{v_N}{N^2} \mu \mu^\top,

sampling, the noise on sums or tables, of variance :math:`v_s` on the mean of effect s, and the noise on the number of
records that was bought. Where tables are measured they tell that number as well, and the margins of those that were
not kept tell of single variables: neither is counted here, so that the interval is a little wide, and that of a
field undoes slightly more of the pull than there was. Intervals are normal, and the pull is undone to first order.
:math:`\Sigma` is that of records drawn from the released model.
:math:`\Lambda` is diagonal, :math:`(v_s / F_s + 1/N) / \tau^2` with the variance :math:`F_s` that an effect has at
independence.

Where the release says that its fit was weighed again, by the curvature at the estimate, :math:`\Lambda` is
:math:`(I / N + \operatorname{diag}(v) \Sigma^{-1}) / \tau^2`, and :math:`\Sigma`, exact where that is cheap, may be
singular: some event is so rare that no record has it. With :math:`W = (\Sigma / N + \operatorname{diag}(v))^{-1}` and
:math:`H = \Sigma W \Sigma + I / \tau^2` it is :math:`M = H^{-1} \Sigma W` and :math:`M \Lambda = H^{-1} / \tau^2`,
without an inverse of :math:`\Sigma`. Without the prior the errors of the coordinates would have the covariance
:math:`(\Sigma W \Sigma)^{-1}`. An entry of a table, with weights a of the coordinates, whose error is then so large
that :math:`z^2 a^\top (\Sigma W \Sigma)^{-1} a > a^\top a` has infinite limits: to first order the probability of a
rare event could be 0, and then the coupling is of any size. The rule is the normal law's, and no theorem.

**Pairs that were left out.** They were not chosen, or did not stand out, and their estimate is 0. Both are events of
the size of one number, the covariance C of two indicators of states: along the entry of the table that is asked
about, the pair's score is :math:`N |C| / ((1 - \min q_i)(1 - \min q_j))` records, and it stands out where
:math:`C^2` passes the threshold of `bayesprivmrf.learning.select_measure.couplings` for as many pairs as were
kept. That is so of two states; of more, the fit asks all entries of the table together, so that this one alone is
said to be left out more often than it is, and the interval errs to the wide side. The interval holds the couplings
that would have left the pair out with a probability of at least half of what a wrong interval may have,

.. math:: P(\text{left out} \mid C) = 1 - \int P(\text{chosen} \mid x)\, P(\text{stands out} \mid x)\,
    \mathcal{N}(x; C, r)\, dx \ge (1 - \text{prob}) / 2 ,

with r the variance by sampling, and noise of the variance v that `couplings` derives inside the two probabilities.
This test and the interval of a kept pair are the two parts of one equal-tailed test. Were a pair left out whenever
the error of its numbers is low, together they would miss a coupling with probability 1 - prob, but for linearisation.
The noise of the choice is another than that of the measurement, so that near the limit it is up to 1.5 times as much:
a left-out pair adds (1 - prob) / 2 to what the interval of a kept one misses. A pair had to reach the m-th best
noisy score to be chosen; that score comes from simulated records. A coupling w gives
:math:`C = l \tanh(\operatorname{artanh}(C_0 / l) + s w / l)`, with the covariance :math:`C_0` that the rest of the
model makes, the slope s at independence, and l the product of the indicators' standard deviations: exact for two fair
coins by themselves. States so rare that no
coupling could have been seen have infinite limits.

For the other couplings the released graph is taken to be true: beside a missing coupling, others may be off by its
product with those on the path around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.inference.effects_fit.fit import PRIOR_DEVIATION
from bayesprivmrf.inference.effects_fit.moments import moments_of
from bayesprivmrf.inference.effects_fit.sampled import features_of
from bayesprivmrf.interruption import remember
from bayesprivmrf.learning.models.saved import SavedMap
from bayesprivmrf.learning.models.solution import warn_of_chains
from bayesprivmrf.learning.select_measure.couplings import FittedCouplings, fit_couplings
from bayesprivmrf.learning.select_measure.fall_back import require_own_fit
from bayesprivmrf.learning.select_measure.measurement import (
    STEPS,
    Measured,
    MeasurementPlan,
    dependence_scores,
    pair_sums,
    public_shares,
    select_and_measure,
)
from bayesprivmrf.learning.select_measure.targets import least_statistic, noise_variances
from bayesprivmrf.model.effects import Effects, contrasts
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource, gumbel
from bayesprivmrf.privacy import DiscreteGaussian
from bayesprivmrf.release.codec import Fields

if TYPE_CHECKING:
    from bayesprivmrf.learning.models.pairs import LearnedPairs

# Records drawn from the released model: at least as many, and so many more for each coordinate
_DRAWS, _DRAWS_OF_COORDINATE = 20_000, 20

type Limits = tuple[FloatArray, FloatArray]


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

    def fit(self, measured: Measured, total: float) -> FittedCouplings:
        """Estimate couplings from noisy numbers alone; the same numbers give the same estimate."""
        try:
            return fit_couplings(measured, self.plan, total, self._total_variance)
        except BaseException as error:
            remember(error)
            return fit_couplings(measured, self.plan, total, self._total_variance, is_interrupted=True)

    def linearised(
        self, learned: LearnedPairs, prob: float, total: float, generator: np.random.Generator
    ) -> Limits:
        """Return lower and upper limits of all couplings and fields, each in the order of the release's vector.

        Parameters
        ----------
        learned
            The model that was learned by this map.
        prob
            Coverage, in (0, 1).
        total
            N, records.
        generator
            Generator of the records drawn from the model; a `SamplingWarning` says if they cannot be trusted.

        Raises
        ------
        ModelError
            A smaller model stands in for a fit that failed: its errors are others than those derived here.
        """
        from scipy.stats import norm

        require_own_fit(learned)
        model = _Model(learned, self.plan, self._total_variance, total, generator)
        if not model.has_mixed:
            warn_of_chains()
        z = float(norm.isf((1 - prob) / 2))
        centre, covariance, free = model.kept_law()
        W = _left_out(model, (1 - prob) / 2)
        theta = np.zeros(model.width), np.zeros(model.width)
        for subset, start, stop in model.blocks():
            basis = contrasts(model.cards[subset[0]])
            if len(subset) == 2:
                basis = np.kron(basis, contrasts(model.cards[subset[1]]))
            middle = basis @ centre[start:stop]
            spread = ((basis @ covariance[start:stop, start:stop]) * basis).sum(axis=1)
            unlimited = z**2 * ((basis @ free[start:stop]) ** 2).sum(axis=1) > (basis**2).sum(axis=1)
            half = np.where(unlimited, np.inf, z * np.sqrt(np.maximum(spread, 0.0)))
            rows = slice(model.first[subset[0]], model.first[subset[0] + 1])
            if len(subset) == 1:
                theta[0][rows], theta[1][rows] = middle - half, middle + half
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
    """A release as coordinates of effects, with the covariance of a record's effects."""

    def __init__(
        self,
        learned: LearnedPairs,
        plan: MeasurementPlan,
        total_variance: float,
        total: float,
        generator: np.random.Generator,
    ) -> None:
        self.plan, self.total_variance, self.total, self.generator = plan, total_variance, total, generator
        self.is_reweighted = learned.details.get("penalty") is not None
        self.cards = learned.domain.cardinalities
        self.first = np.cumsum([0, *self.cards])
        self.width = int(self.first[-1])
        self.kept = [scope for scope in learned.specification.scopes if len(scope) == 2]
        self.effects = Effects.of(self.cards, (*self.kept, *((v,) for v in range(len(self.cards)))))
        tables = [*(learned.block(*pair) for pair in self.kept), *learned.field_tables()]
        self.beta = self.effects.coordinates(np.concatenate([table.ravel() for table in tables]))
        size = max(round(total), _DRAWS + _DRAWS_OF_COORDINATE * self.effects.size)
        self.codes, self.has_mixed = learned.solution.codes(size, generator)
        self.sums = pair_sums(self.codes, np.ones(size, dtype=np.int64), self.cards)
        self.shares = self.sums.single / size
        self.mean, self.covariance = self._moments()
        if self.is_reweighted and learned.details["inference"] == "exact":  # draws would miss what is rare
            moments = moments_of(self.effects, generator)
            if moments.has_covariance:
                self.covariance = moments.expanded(self.beta)[1]
        self.single_noise, self.pair_noise = self._noise()

    def blocks(self) -> Iterator[tuple[tuple[int, ...], int, int]]:
        """Yield each effect's variables, and from where to where its coordinates stand."""
        return zip(self.effects.subsets, self.effects.offsets, self.effects.offsets[1:], strict=False)

    def _moments(self) -> tuple[FloatArray, FloatArray]:
        phi, size = features_of(self.effects), self.effects.size
        sums, squares = np.zeros(size), np.zeros((size, size))
        # multiply at most 16 MiB of single-precision effects at a time
        rows = max((1 << 22) // max(size, 1), 1)
        for start in range(0, len(self.codes), rows):
            part = phi(self.codes[start : start + rows])
            sums += part.sum(axis=0, dtype=np.float64)
            squares += part.T @ part
        mean = sums / len(self.codes)
        return mean, squares / len(self.codes) - np.multiply.outer(mean, mean)

    def _noise(self) -> tuple[FloatArray, float]:
        """Noise variances of mean effects: of each variable's, and of pairs'."""
        one, two = noise_variances(self.plan)
        if self.plan.form == "moments":
            return np.full(len(self.cards), one / (2 * self.total**2)), two / (4 * self.total**2)
        precision = np.full(len(self.cards), 1 / one)
        for i, j in self.kept:  # margins of their tables measure variables once more
            precision[i] += 1 / (self.cards[j] * two)
            precision[j] += 1 / (self.cards[i] * two)
        return 1 / (precision * self.total**2), two / self.total**2

    def kept_law(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return mean and covariance of the fitted coordinates' normal law, and a root of it without a prior."""
        spread = self.covariance.diagonal()
        noise, expected = np.empty(spread.size), np.empty(spread.size)
        single = {subset[0]: spread[start:stop] for subset, start, stop in self.blocks() if len(subset) == 1}
        for subset, start, stop in self.blocks():
            is_pair = len(subset) == 2
            noise[start:stop] = self.pair_noise if is_pair else self.single_noise[subset[0]]
            own = single[subset[0]]
            expected[start:stop] = np.multiply.outer(own, single[subset[1]]).ravel() if is_pair else own
        law = self.covariance / self.total + np.diag(noise)
        if self.is_reweighted:
            weighed = np.linalg.solve(law, self.covariance).T  # ΣW
            information, directions = np.linalg.eigh(weighed @ self.covariance)
            prior = 1 / PRIOR_DEVIATION**2
            inverse = (directions / (np.maximum(information, 0.0) + prior)) @ directions.T
            pull, error = prior * inverse, inverse @ weighed
            # an eigenvalue this much smaller than the largest one is rounding error
            known = np.maximum(information, information.max(initial=1.0) * 1e-12)
            free = directions / np.sqrt(known)
        else:
            penalty = np.diag(noise / np.maximum(expected, 1e-12) + 1 / self.total) / PRIOR_DEVIATION**2
            error = np.linalg.inv(self.covariance + penalty)
            pull, free = error @ penalty, np.zeros(law.shape)
        error = error + pull @ error
        law += self.total_variance / self.total**2 * np.multiply.outer(self.mean, self.mean)
        return self.beta + pull @ self.beta, error @ law @ error.T, free


def _left_out(model: _Model, tail: float) -> Limits:
    """Return limits of all entries by what would have left a pair out; 0 where no pair may be coupled."""
    low, high = np.zeros((model.width, model.width)), np.zeros((model.width, model.width))
    rows, columns = _entries(model)
    if not rows.size:
        return low, high
    i, j = (np.arange(len(model.cards)).repeat(model.cards)[side] for side in (rows, columns))
    states, total = np.array(model.cards), model.total
    share = np.clip(
        model.shares, 0.5 / total, 1 - 0.5 / total
    )  # a state that nobody has is one of half a record
    variance, mean = share * (1 - share), share - 1 / states.repeat(states)
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
    # a covariance at its limit, that of copies, is taken as just below it, where the logarithm is finite
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
    """Return the largest C that leaves a pair out with a probability of at least `tail`, by halving."""
    from scipy.special import ndtr

    # nodes of the integral over sampling, from -4 to 4 standard deviations
    z = np.linspace(-4.0, 4.0, 41)
    weights = np.exp(-(z**2) / 2)
    weights /= weights.sum()
    spread, deviation = np.sqrt(noise)[:, None], np.sqrt(sampling)[:, None]

    def left_out(C: FloatArray) -> FloatArray:
        x = np.abs(C[:, None] + deviation * z)
        chosen = -np.expm1(-np.exp(np.minimum((x - bound[:, None]) / scale[:, None], 50.0)))
        out = ndtr((x - threshold[:, None]) / spread) + ndtr(-(x + threshold[:, None]) / spread)
        return 1 - (chosen * out) @ weights

    low, high = np.zeros(threshold.size), np.ones(threshold.size)  # a covariance of indicators is at most 1/4
    # 30 halvings of [0, 1]: an error of 1e-9
    for _ in range(30):
        middle = (low + high) / 2
        is_in = left_out(middle) >= tail
        low, high = np.where(is_in, middle, low), np.where(is_in, high, middle)
    return high


def _entries(model: _Model) -> tuple[IntArray, IntArray]:
    """Return the states of the entries of all tables that may be and were left out; of two coins' tables the last."""
    cards = model.cards
    mask = np.zeros((len(cards), len(cards)), dtype=bool)
    mask[tuple(model.plan.candidates.T)] = True
    for pair in model.kept:
        mask[pair] = False
    owner = np.arange(len(cards)).repeat(cards)
    wanted = np.ones(model.width, dtype=bool)
    if model.plan.form == "moments":
        wanted[::2] = False
    rows, columns = np.nonzero(mask[np.ix_(owner, owner)] & np.multiply.outer(wanted, wanted))
    return rows, columns


def _covariances(model: _Model, rows: IntArray, columns: IntArray) -> FloatArray:
    """Return the covariances of indicators of states in the records that were drawn."""
    joint = np.zeros((model.width, model.width))
    later = np.delete(np.arange(model.width), model.first[:-1])
    shares = model.shares[later]
    joint[np.ix_(later, later)] = model.sums.joint / len(model.codes) - np.multiply.outer(shares, shares)
    # covariances with the indicators of a variable's states add up to nothing
    joint[model.first[:-1]] = -np.add.reduceat(joint, model.first[:-1], axis=0)
    joint[:, model.first[:-1]] = -np.add.reduceat(joint, model.first[:-1], axis=1)
    return joint[rows, columns]


def _chosen_above(model: _Model, i: IntArray, j: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return from which size of C on a pair is chosen but for noise, and the scale of that noise, for each entry."""
    plan = model.plan
    if plan.selection_scale is None:
        return np.full(i.size, -np.inf), np.ones(i.size)
    records = max(round(model.total), 1)
    sums = pair_sums(model.codes[:records], np.ones(records, dtype=np.int64), model.cards)
    first = model.first[:-1]
    one_way = 2 * sums.single[first + 1] - records if plan.form == "moments" else sums.single
    shares = public_shares(one_way, float(records), plan)
    scores = dependence_scores(sums, model.cards, shares)[tuple(plan.candidates.T)] / plan.selection_scale
    scores += gumbel(scores.size, lambda size: model.generator.integers(0, 2**64, size=size, dtype=np.uint64))
    least = np.partition(scores, -plan.count)[-plan.count]
    reach = np.array([1 - share.min() / share.sum() for share in shares])
    scale = plan.selection_scale * reach[i] * reach[j] / (STEPS * model.total)
    return least * scale, scale
