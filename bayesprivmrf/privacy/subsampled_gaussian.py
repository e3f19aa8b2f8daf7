r"""The privacy cost of noisy sums over Poisson samples, by the accountant of dp-accounting.

A step draws each record independently with probability q, adds up a vector of length at most S for each drawn record,
and adds normal noise of standard deviation z S to each entry. Under add-or-remove-one neighbors, its distribution is
dominated by a pair of distributions on the line, in both directions and however earlier steps chose the vectors:

.. math:: (1 - q) N(0, z^2) + q N(1, z^2), \qquad N(0, z^2)

(Abadi et al. 2016, section 3.2; Zhu, Dong, Wang 2022, Theorem 11). The losses of this pair, convolved over the steps
and rounded up to a grid, bound the total loss (Koskela, Jälkö, Honkela 2020). Its Rényi divergences bound it as well,
less tightly (Mironov, Talwar, Zhang 2019).

The noise that is drawn is discrete Gaussian noise on a fine lattice. `discretisation_loss` bounds the difference.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError
from bayesprivmrf.privacy.guarantee import ROUND_UP

# Share of the budget, in squared ratios of sensitivity to noise, for a noisy number of records.
COUNT_SHARE = 0.02

# Least delta for convolved loss distributions: the slack covers the rounding of their transforms, about 2e-11.
LEAST_DELTA = 1e-8

# Share of epsilon for the discretization of the noise.
SLACK = 2.0**-12

# Share of delta for the tails of the discretization and the accountant's rounding.
DELTA_SLACK = 2.0**-7

# Largest noise multiplier that is tried; arbitrary, larger than useful budgets need.
_LARGEST_MULTIPLIER = 2.0**20
# Smallest noise multiplier that is tried; arbitrary: one step without sampling costs over 100 nats there.
_SMALLEST_MULTIPLIER = 2.0**-4
# Relative distance by which the loss of a multiplier may stay below the target: it wastes a thousandth of the budget.
_PRECISION = 2.0**-10
# Trials of a multiplier; the extrapolation needs about ten.
_TRIALS = 60
# Powers within which the loss is taken to fall with the multiplier, when the next trial is extrapolated.
_FLATTEST = 0.2
_STEEPEST = 5.0
# Least loss whose logarithm is taken.
_TINY = 1e-300
# Largest epsilon, nats: the accountant's exponentials overflow not far above.
_MOST_EPSILON = 1e6
# Least epsilon that is promised.
_LEAST_EPSILON = 1e-12
# Share of an upper bound by which a finer grid must lower it to be worth another.
_SETTLED = 0.999
# Share of delta for the tails of discrete noise, as one over it: a quarter of `DELTA_SLACK`.
_TAIL_SHARE = 512
# Largest loss by discrete noise, nats; `require_fine_lattice` says why.
_LARGEST_LOSS = 2.0**-10
# Ratios of sensitivity to noise between which a budget's is searched, and the halvings of that bracket.
_RATIOS = (1e-9, 1e3)
_HALVINGS = 80
# Spacing of the grid of losses by default, nats.
_INTERVAL = 1e-4
# Points of the grid in a width: at least so many, more after many steps, since each rounds up once; and in one step.
_POINTS = 4000
_POINTS_BY_ROOT = 20
_MOST_POINTS = 10_000
# Orders of Rényi divergences: whole ones, whose sums are finite, all up to 64 and eight an octave beyond.
_ORDERS = [*range(2, 64), *(round(64 * 2 ** (k / 8)) for k in range(49))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A number of steps that sample records with the same probability.

    Parameters
    ----------
    sampling_rate
        q, probability in (0, 1].
    steps
        T, the number of steps, at least 1.

    Examples
    --------
    >>> Schedule(sampling_rate=0.1, steps=1000).steps
    1000
    """

    sampling_rate: float
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedNoise:
    """Noise multipliers: scales of noise divided by sensitivities.

    Parameters
    ----------
    steps
        z, the multiplier of each schedule.
    count
        Multiplier of the noisy number of records, whose sensitivity is 1.
    """

    steps: tuple[float, ...]
    count: float


def spent_epsilon(
    schedules: tuple[Schedule, ...],
    noise: CalibratedNoise,
    delta: float,
    interval: float = _INTERVAL,
) -> float:
    """Return epsilon at delta of all steps of all schedules and of one noisy number of records.

    Parameters
    ----------
    schedules, noise
        The schedules, with one multiplier for each.
    delta
        Second parameter of the guarantee, in (0, 1). Below `LEAST_DELTA` the looser accountant of Rényi divergences
        of whole orders is used.
    interval
        Spacing of the grid of losses, nats. Losses are rounded up, so that a coarser grid gives a larger epsilon.

    Raises
    ------
    BayesPrivMRFError
        The package dp-accounting is not installed.
    """
    together: dict[tuple[float, float], int] = {}
    for schedule, multiplier in zip(schedules, noise.steps, strict=True):
        key = schedule.sampling_rate, multiplier
        together[key] = together.get(key, 0) + schedule.steps
    dp = _dp_accounting()
    events = [
        dp.SelfComposedDpEvent(_sampled(dp, rate, multiplier), steps)
        for (rate, multiplier), steps in together.items()
    ]
    return _epsilon(dp, [dp.GaussianDpEvent(noise.count), *events], delta, interval)


def promised_epsilon(
    schedules: tuple[Schedule, ...], noise: CalibratedNoise, delta: float
) -> float:
    """Return the epsilon at delta that given noise can promise; it includes the slack of `calibrated_noise`."""
    tail = delta * (1 - DELTA_SLACK)
    spent = 1.0
    before = math.inf
    # each value is an upper bound, on a grid as fine as the last value requires
    while spent < _SETTLED * before:
        before = spent
        spent = spent_epsilon(schedules, noise, tail, _interval(spent, schedules, noise.steps))
    return max(spent, _LEAST_EPSILON) / (1 - SLACK) * ROUND_UP


@functools.lru_cache(maxsize=64)
def calibrated_noise(
    schedules: tuple[Schedule, ...], epsilon: float, delta: float
) -> CalibratedNoise:
    """Return the multipliers at which all steps and the number of records together cost no more than the budget.

    The search finds one factor and rounds it up to a part in a thousand. With several schedules the factor multiplies
    the multiplier that each would need alone. `SLACK` and `DELTA_SLACK` are subtracted from the budget first;
    `require_fine_lattice` spends them.

    Parameters
    ----------
    schedules
        The steps of the mechanism.
    epsilon
        Budget, nats, positive.
    delta
        Second parameter of the guarantee, in (0, 1).

    Raises
    ------
    ArgumentError
        The budget is outside the range of the accountant.
    BayesPrivMRFError
        The package dp-accounting is not installed.
    """
    require(epsilon <= _MOST_EPSILON, "epsilon", "be at most 1e+06", epsilon)
    target = epsilon * (1 - SLACK)
    tail = delta * (1 - DELTA_SLACK)
    ratio = _gaussian_ratio(target, tail)
    width = max(target, ratio)
    count = 1 / (ratio * math.sqrt(COUNT_SHARE))
    dp = _dp_accounting()

    def alone(schedule: Schedule) -> float:
        def loss(multiplier: float) -> float:
            step = _sampled(dp, schedule.sampling_rate, multiplier)
            events = [dp.SelfComposedDpEvent(step, schedule.steps)]
            return _epsilon(dp, events, tail, _interval(width, (schedule,), (multiplier,)))

        return _least(loss, target, _central_limit(schedule, ratio))

    # the multiplier that each schedule would need alone, then one factor for all together
    singly = {schedule: alone(schedule) for schedule in dict.fromkeys(schedules)}

    def scaled(factor: float) -> CalibratedNoise:
        return CalibratedNoise(
            steps=tuple(factor * singly[schedule] for schedule in schedules), count=count
        )

    def joint(factor: float) -> float:
        noise = scaled(factor)
        return spent_epsilon(schedules, noise, tail, _interval(width, schedules, noise.steps))

    return scaled(_least(joint, target, math.sqrt(len(schedules) / (1 - COUNT_SHARE))))


def discretisation_loss(noises: int, scale: float, epsilon: float, delta: float) -> float:
    r"""Return the addition to epsilon, nats, of discrete noise in place of normal noise rounded to whole numbers.

    Rounding a sum of whole numbers plus normal noise is post-processing, and equals adding rounded noise. With
    :math:`f(x) = e^{-x^2/(2s^2)}`, the discrete Gaussian has :math:`P(k) = f(k)/Z`, and the rounded normal
    distribution has :math:`R(k) = \int f(k + u)\, du / (s \sqrt{2\pi})` over :math:`|u| \le 1/2`. As
    :math:`f(k + u) + f(k - u) = 2 f(k) f(u) \cosh(ku/s^2)` and :math:`1 \le \cosh x \le e^{x^2/2}`,

    .. math:: e^{-1/(8s^2)} f(k) \le \int f(k + u)\, du \le e^{k^2/(8s^4)} f(k),

    and :math:`1 \le Z/(s \sqrt{2\pi}) \le e^{1/(8s^2)}` for :math:`s \ge 1` by Poisson's summation formula. So
    :math:`P/R \le e^{1/(8s^2)}` everywhere, and :math:`R/P \le e^{(y^2 + 1)/(8s^2)}` on :math:`|k| \le y s`. Under R
    the probability outside :math:`|k| \le y s` is at most :math:`e^{-(y - 1/(2s))^2/2}`. Over N noises, whatever was
    drawn before, the factors multiply and the tails add up. If the rounded mechanism is
    :math:`(\epsilon', \delta')`-private, then with :math:`b = N e^{-(y - 1/(2s))^2/2}`

    .. math:: P_M(S) \le e^{N/(8s^2)} \left( e^{\epsilon'} \left( e^{N(y^2 + 1)/(8s^2)} Q_M(S) + b \right)
        + \delta' \right).

    y is chosen such that :math:`e^{\epsilon} b = \delta/512`, and the answer is :math:`N(y^2 + 2)/(8s^2)`.

    Parameters
    ----------
    noises
        N, the number of noises that are drawn in all.
    scale
        s, the smallest scale among them, at least 1.
    epsilon, delta
        The whole guarantee.
    """
    reach = 0.5 / scale + math.sqrt(2 * (epsilon + math.log(_TAIL_SHARE * noises / delta)))
    return noises * (reach * reach + 2) / (8 * scale * scale)


def require_fine_lattice(noises: int, scale: float, epsilon: float, delta: float) -> None:
    r"""Refuse a lattice on which discrete noise costs more than the slack of `calibrated_noise`.

    With a loss of at most :math:`2^{-10}`, `discretisation_loss` gives a delta of at most
    :math:`e^{2^{-10}} (1 - 1/128 + 1/512)` times the promised one. This is 0.5 % below it, which leaves 0.5 % for the
    rounding of the accountant.

    Raises
    ------
    ArgumentError
        The noises are too many, or the budget is too small.
    """
    if scale < 1:
        loss = math.inf
    else:
        loss = discretisation_loss(noises, scale, epsilon, delta)
    must = "be so small that the rounding of the noise is negligible"
    given = f"{noises:,} noises at a scale of {scale:.3g} lattice steps"
    remedy = "take fewer steps or a larger `epsilon`"
    is_fine = loss <= min(SLACK * epsilon, _LARGEST_LOSS)
    require(is_fine, "`steps` times the number of cells", must, given, remedy)


def _least(loss: Callable[[float], float], target: float, guess: float) -> float:
    """Return the smallest multiplier whose loss is at most the target, rounded up; the loss decreases with it.

    Each trial extrapolates the loss as a power of the multiplier through the last two points, inside the bracket. The
    returned multiplier is always one whose loss was computed.
    """
    low = 0.0
    high = math.inf
    at_high = -math.inf
    slope = 1.0
    point = min(max(guess, _SMALLEST_MULTIPLIER), _LARGEST_MULTIPLIER)
    previous: tuple[float, float] | None = None
    # afterwards the smallest multiplier that keeps to the budget is returned
    for _ in range(_TRIALS):
        excess = math.log(max(loss(point), _TINY) / target)
        if excess <= 0:
            high = point
            at_high = excess
        else:
            low = point
        if at_high >= -_PRECISION or high <= max(low * (1 + _PRECISION), _SMALLEST_MULTIPLIER):
            return high
        if low >= _LARGEST_MULTIPLIER:
            break
        # the loss as a power of the multiplier through the last two points
        if previous is not None and excess != previous[1]:
            slope = min(
                max((previous[1] - excess) / math.log(point / previous[0]), _FLATTEST), _STEEPEST
            )
        previous = point, excess
        point *= math.exp((excess + _PRECISION / 2) / slope)
        if not low < point < high:
            # outside the bracket: halve it on the log scale, or keep doubling
            if low > 0 and high < math.inf:
                point = math.sqrt(low * high)
            else:
                point = 2 * low or high / 2
        point = min(max(point, _SMALLEST_MULTIPLIER), _LARGEST_MULTIPLIER)
    if high < math.inf:
        return high
    raise ArgumentError(
        f"`epsilon` must allow a noise multiplier of at most {_LARGEST_MULTIPLIER:.0e}, got a target of "
        f"{target:.3g}; choose a larger budget, or fewer steps."
    )


def _gaussian_ratio(epsilon: float, delta: float) -> float:
    r"""Return the largest ratio of sensitivity to normal noise at a budget, about (Balle, Wang 2018, Theorem 8)."""
    from scipy.special import log_ndtr, ndtr

    low, high = _RATIOS
    for _ in range(_HALVINGS):
        mu = math.sqrt(low * high)
        spent = ndtr(mu / 2 - epsilon / mu) - math.exp(
            min(epsilon + log_ndtr(-mu / 2 - epsilon / mu), 0.0)
        )
        if spent <= delta:
            low = mu
        else:
            high = mu
    return low


def _central_limit(schedule: Schedule, ratio: float) -> float:
    r"""Return a first guess of z, from :math:`\mu^2 = q^2 T (e^{1/z^2} - 1)` (Bu, Dong, Long, Su 2020)."""
    share = (ratio / schedule.sampling_rate) ** 2 / schedule.steps
    return 1 / math.sqrt(math.log1p(share))


def _interval(
    width: float, schedules: tuple[Schedule, ...], multipliers: tuple[float, ...]
) -> float:
    """Return the spacing of the grid of losses, nats: fine relative to a width, also after rounding in many steps.

    Losses are rounded up, so that a coarse grid raises the answer, and a fine one costs time. The losses of one step
    have at most `_MOST_POINTS` grid points, which bounds time and memory.
    """
    steps = sum(schedule.steps for schedule in schedules)
    span = max(10 / z + 0.5 / z**2 for z in multipliers)
    return max(width / max(_POINTS, _POINTS_BY_ROOT * math.sqrt(steps)), span / _MOST_POINTS)


def _sampled(dp: Any, rate: float, multiplier: float) -> Any:
    step = dp.GaussianDpEvent(multiplier)
    if rate >= 1:
        return step
    return dp.PoissonSampledDpEvent(rate, step)


def _epsilon(dp: Any, events: list[Any], delta: float, interval: float) -> float:
    if delta < LEAST_DELTA:
        from dp_accounting.rdp import RdpAccountant

        accountant = RdpAccountant(_ORDERS, dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    else:
        from dp_accounting.pld import PLDAccountant

        relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
        accountant = PLDAccountant(relation, value_discretization_interval=interval)
    return float(accountant.compose(dp.ComposedDpEvent(events)).get_epsilon(delta))


def _dp_accounting() -> Any:
    try:
        import dp_accounting
    except ImportError as error:
        raise BayesPrivMRFError(
            "DPSGD needs the package dp-accounting to account for its budget; install bayesprivmrf[accounting]."
        ) from error
    return dp_accounting
