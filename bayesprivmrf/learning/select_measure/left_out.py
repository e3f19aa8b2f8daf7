r"""Limits of couplings of pairs that were left out: not chosen, or not beyond noise.

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
"""

from __future__ import annotations

import numpy as np

from bayesprivmrf.learning.select_measure.measurement import STEPS, public_shares
from bayesprivmrf.learning.select_measure.pair_counts import dependence_scores, pair_sums
from bayesprivmrf.learning.select_measure.refit_model import RefitModel
from bayesprivmrf.learning.select_measure.targets import least_statistic
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import gumbel

# Nodes of the integral over sampling, and the last of them in standard deviations: 6e-5 lies beyond
NODES = 41
FARTHEST_NODE = 4.0

# Halvings of [0, 1] in a search: an error of 1e-9
HALVINGS = 30

# Exponent beyond which a choice is certain in double precision
LARGEST_EXPONENT = 50.0

# Distance of a covariance from its limit, as a share of it, so that its artanh is finite
LEAST_DISTANCE = 1e-9


def left_out_limits(model: RefitModel, tail: float) -> tuple[FloatArray, FloatArray]:
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
    shares_of_limit = _covariances(model, rows, columns) / limit
    around = np.arctanh(np.clip(shares_of_limit, -1 + LEAST_DISTANCE, 1 - LEAST_DISTANCE))
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

    z = np.linspace(-FARTHEST_NODE, FARTHEST_NODE, NODES)
    weights = np.exp(-(z**2) / 2)
    weights /= weights.sum()
    spread = np.sqrt(noise)[:, None]
    deviation = np.sqrt(sampling)[:, None]

    def left_out(C: FloatArray) -> FloatArray:
        x = np.abs(C[:, None] + deviation * z)
        chosen = -np.expm1(
            -np.exp(np.minimum((x - bound[:, None]) / scale[:, None], LARGEST_EXPONENT))
        )
        out = ndtr((x - threshold[:, None]) / spread) + ndtr(-(x + threshold[:, None]) / spread)
        return 1 - (chosen * out) @ weights

    # a covariance of indicators is at most 1/4
    low = np.zeros(threshold.size)
    high = np.ones(threshold.size)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        is_in = left_out(middle) >= tail
        low = np.where(is_in, middle, low)
        high = np.where(is_in, high, middle)
    return high


def _covariances(model: RefitModel, rows: IntArray, columns: IntArray) -> FloatArray:
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


def _chosen_above(model: RefitModel, i: IntArray, j: IntArray) -> tuple[FloatArray, FloatArray]:
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
