"""The accountant of sampled sums with noise: exact values, dp-accounting's own, and the price of discrete noise."""

from __future__ import annotations

import math
import sys

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy import stats

from bayesprivmrf.audit import gaussian_epsilon
from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError
from bayesprivmrf.privacy import (
    CalibratedNoise,
    DiscreteGaussian,
    Schedule,
    calibrated_noise,
    promised_epsilon,
    require_fine_lattice,
    spent_epsilon,
    subsampled_gaussian,
)

NO_COUNT = 2.0**20
"""A multiplier at which the number of records costs next to nothing."""


def spent(
    rate: float,
    multiplier: float,
    steps: int,
    delta: float,
    count: float = NO_COUNT,
    interval: float = 1e-4,
) -> float:
    schedule = Schedule(sampling_rate=rate, steps=steps)
    noise = CalibratedNoise(steps=(multiplier,), count=count)
    return spent_epsilon((schedule,), noise, delta, interval)


@pytest.mark.parametrize(("multiplier", "steps"), [(2.0, 1), (10.0, 40)])
def test_without_sampling_it_is_the_gaussian_mechanisms_own_curve(multiplier, steps):
    exact = gaussian_epsilon(math.sqrt(steps) / multiplier, 1e-5)
    assert exact <= spent(1.0, multiplier, steps, 1e-5) <= exact + 2e-3
    mu = math.sqrt(steps / multiplier**2 + 1 / 5.0**2)
    exact = gaussian_epsilon(mu, 1e-5)
    assert exact <= spent(1.0, multiplier, steps, 1e-5, count=5.0) <= exact + 2e-3


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_one_step_costs_the_exact_hockey_stick_divergence_of_its_dominating_pair(rate):
    multiplier, delta = 0.8, 1e-4
    epsilon = spent(rate, multiplier, 1, delta, interval=1e-3)

    def divergence(epsilon: float) -> float:
        x = np.linspace(-30, 30, 200_001)
        null = stats.norm.pdf(x, 0, multiplier)
        moved = (1 - rate) * null + rate * stats.norm.pdf(x, 1, multiplier)
        both = [
            np.maximum(p - math.exp(epsilon) * q, 0).sum()
            for p, q in ((moved, null), (null, moved))
        ]
        return float(max(both) * (x[1] - x[0]))

    assert divergence(epsilon) <= delta * (1 + 1e-6)
    assert divergence(epsilon - 5e-3) > delta


@pytest.mark.parametrize(
    ("rate", "multiplier", "steps", "known"), [(0.01, 1.0, 1000, 2.1245), (0.1, 5.0, 300, 1.5601)]
)
def test_it_is_dp_accountings_own_value_and_tighter_than_renyi_accounting(
    rate, multiplier, steps, known
):
    event = dp.SelfComposedDpEvent(
        dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(multiplier)), steps
    )
    own = PLDAccountant(value_discretization_interval=1e-3)
    own.compose(dp.ComposedDpEvent([dp.GaussianDpEvent(NO_COUNT), event]))
    schedules, noise = (
        (Schedule(sampling_rate=rate, steps=steps),),
        CalibratedNoise(steps=(multiplier,), count=NO_COUNT),
    )
    found = spent_epsilon(schedules, noise, 1e-6, 1e-3)
    assert found == own.get_epsilon(1e-6)
    assert found == pytest.approx(known, abs=3e-3)  # of dp-accounting 0.6 on a grid of 1e-4
    assert found < RdpAccountant().compose(event).get_epsilon(1e-6)


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate", "steps"),
    [(1.0, 1e-6, 0.1, 200), (0.02, 1e-5, 0.1, 50), (8.0, 1e-6, 0.5, 20), (1.0, 1e-10, 1.0, 30)],
)
def test_calibrated_noise_keeps_to_the_budget_and_wastes_little(epsilon, delta, rate, steps):
    schedules = (Schedule(sampling_rate=rate, steps=steps),)
    noise = calibrated_noise(schedules, epsilon, delta)
    whole = promised_epsilon(schedules, noise, delta)
    assert 0.99 * epsilon < whole <= epsilon * (1 + 1e-9)
    less = CalibratedNoise(steps=(0.99 * noise.steps[0],), count=noise.count)
    assert promised_epsilon(schedules, less, delta) > epsilon
    count_alone = gaussian_epsilon(1 / noise.count, delta)
    assert count_alone < 0.3 * epsilon


def test_several_schedules_share_one_budget():
    schedules = (
        Schedule(sampling_rate=0.2, steps=40),
        Schedule(sampling_rate=0.2, steps=40),
        Schedule(sampling_rate=1.0, steps=5),
    )
    noise = calibrated_noise(schedules, 1.0, 1e-6)
    assert 0.99 < promised_epsilon(schedules, noise, 1e-6) <= 1 + 1e-9
    alone = calibrated_noise(schedules[:1], 1.0, 1e-6)
    assert noise.steps[0] == noise.steps[1]
    assert 1.5 < noise.steps[0] / alone.steps[0] < 2.0  # about the root of three
    separate = [
        promised_epsilon((schedule,), CalibratedNoise(steps=(z,), count=NO_COUNT), 1e-6)
        for schedule, z in zip(schedules, noise.steps, strict=True)
    ]
    assert all(0.4 < epsilon < 0.8 for epsilon in separate)


def test_a_tiny_delta_is_accounted_for_by_renyi_divergences_of_whole_orders():
    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(5.0)), 300)
    own = RdpAccountant(range(2, 200)).compose(event).get_epsilon(1e-12)
    found = spent(0.1, 5.0, 300, 1e-12)
    assert found == pytest.approx(own, rel=1e-4)
    assert found > spent(0.1, 5.0, 300, 1e-8)
    assert found < 1.2 * PLDAccountant().compose(event).get_epsilon(1e-12)


def test_a_budget_too_small_for_any_noise_is_refused():
    with pytest.raises(ArgumentError, match="`epsilon` must"):
        calibrated_noise((Schedule(sampling_rate=1.0, steps=1000),), 1e-7, 1e-6)


def test_a_missing_accountant_is_one_clear_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(BayesPrivMRFError, match=r"install bayesprivmrf\[accounting\]"):
        spent(1.0, 3.0, 7, 1e-5)


# discrete noise


def laws(scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whole numbers, log probabilities of the discrete Gaussian, and of the rounded normal."""
    reach = math.ceil(12 * scale)
    k = np.arange(-reach, reach + 1)
    near, far = ((np.abs(k) + side) / scale for side in (-0.5, 0.5))
    rounded = stats.norm.logsf(near) + np.log1p(
        -np.exp(stats.norm.logsf(far) - stats.norm.logsf(near))
    )
    return k, np.asarray(DiscreteGaussian(scale).log_density(k)), rounded


@pytest.mark.parametrize("scale", [1.0, 1.7, 4.0, 20.0])
def test_discrete_and_rounded_normal_noise_are_as_near_as_is_proved(scale):
    k, discrete, rounded = laws(scale)
    tolerance = 1e-11
    assert (discrete - rounded).max() <= 1 / (8 * scale**2) + tolerance
    for reach in (1.0, 3.0, 8.0):
        near = np.abs(k) <= reach * scale
        assert (rounded - discrete)[near].max() <= (reach**2 + 1) / (8 * scale**2) + tolerance
        outside = float(np.exp(rounded[~near]).sum())
        assert outside <= math.exp(-0.5 * (reach - 0.5 / scale) ** 2) + tolerance
    assert (
        rounded - discrete
    ).max() > 2 / scale**2  # far out the ratio does grow: the tail is needed


@pytest.mark.parametrize("scale", [30.0, 200.0])
def test_a_step_with_discrete_noise_keeps_to_the_promise_of_a_normal_one(scale):
    # one step without sampling, the worst whole shift, brute-forced over all outcomes
    multiplier, epsilon = 1.5, 1.0
    shift = math.floor(scale / multiplier)
    mu = 1 / multiplier
    tail = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(
        -mu / 2 - epsilon / mu
    )
    delta = tail / (1 - subsampled_gaussian.DELTA_SLACK)
    loss = subsampled_gaussian.discretisation_loss(1, scale, epsilon, delta)
    k, discrete, _ = laws(scale)
    moved = np.asarray(DiscreteGaussian(scale).log_density(k - shift))
    p, q = np.exp(discrete), np.exp(moved)
    excess = float(np.maximum(p - math.exp(epsilon + loss) * q, 0).sum())
    assert excess <= math.exp(loss) * (tail + delta / 512)
    assert excess > 0.5 * tail
    assert loss < 0.03


@pytest.mark.parametrize(("rate", "multiplier"), [(0.3, 0.8), (0.7, 1.5)])
def test_a_sampled_step_in_the_plane_keeps_to_the_accountants_line(rate, multiplier):
    # all outcomes of a two-entry sum with discrete noise, one record more that moves it by the whole sensitivity
    moved = np.array([12, 16])
    sensitivity = math.hypot(*moved)
    scale = multiplier * sensitivity
    k = np.arange(-math.ceil(8 * scale), math.ceil(8 * scale) + 17)
    law = DiscreteGaussian(scale)
    null = np.exp(np.add.outer(law.log_density(k), law.log_density(k)))
    shifted = np.exp(np.add.outer(law.log_density(k - moved[0]), law.log_density(k - moved[1])))
    mixed = (1 - rate) * null + rate * shifted
    epsilon = 0.7
    excess = [
        np.maximum(p - math.exp(epsilon) * q, 0).sum() for p, q in ((mixed, null), (null, mixed))
    ]
    delta = max(excess)
    bound = spent(rate, multiplier, 1, delta * (1 - 1 / 512) - 1e-12, interval=1e-3)
    loss = subsampled_gaussian.discretisation_loss(2, scale, epsilon, delta)
    assert epsilon <= bound + loss
    assert (
        epsilon > bound - 0.02
    )  # and the direction, neither along an axis nor diagonal, does not matter


def test_the_loss_falls_with_the_scale_and_grows_with_the_noises():
    base = subsampled_gaussian.discretisation_loss(1000, 2.0**30, 1.0, 1e-6)
    assert base < 1e-12
    assert subsampled_gaussian.discretisation_loss(1000, 2.0**31, 1.0, 1e-6) == pytest.approx(
        base / 4, rel=1e-6
    )
    assert subsampled_gaussian.discretisation_loss(2000, 2.0**30, 1.0, 1e-6) > 2 * base


def test_a_lattice_that_would_cost_more_than_the_slack_is_refused():
    require_fine_lattice(10**9, 2.0**29, 1.0, 1e-6)
    with pytest.raises(ArgumentError, match="fewer steps"):
        require_fine_lattice(10**9, 2.0**18, 1.0, 1e-6)
    with pytest.raises(ArgumentError, match="fewer steps"):
        require_fine_lattice(1, 0.5, 1.0, 1e-6)
    assert math.exp(2.0**-10) * (1 - subsampled_gaussian.DELTA_SLACK + 1 / 512) < 1
    assert subsampled_gaussian.SLACK < 1e-3


def test_a_budget_beyond_the_accountants_range_is_refused():
    with pytest.raises(ArgumentError, match="`epsilon` must be at most"):
        calibrated_noise((Schedule(steps=10, sampling_rate=0.1),), 2.0**31, 1e-6)
