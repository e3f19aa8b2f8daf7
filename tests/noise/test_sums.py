"""Sums of independent draws: their table against convolution and closed forms, and the normal one instead."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, kve

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.noise import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    NoiseDistribution,
    NoNoise,
    SummedNoise,
    Within,
    noise_from_dict,
)


def log_density_of_laplace_sum(count, scale, residual):
    """Log density of the sum of Laplace draws: that of a difference of two gamma variables, a Bessel function."""
    x, order = np.abs(residual) / scale, count - 0.5
    return (
        order * np.log(x / 2)
        + np.log(kve(order, x))
        - x
        - 0.5 * math.log(math.pi)
        - gammaln(count)
        - math.log(scale)
    )


@pytest.mark.parametrize("count", [2, 3, 20, 60])
@pytest.mark.parametrize("scale", [0.4, 3.0, 1000.0])
def test_a_sum_of_laplace_draws_has_the_density_of_its_closed_form(count, scale):
    """Within 0.002 up to four standard deviations, and within 0.05 up to twelve."""
    law = Laplace(scale).summed(count)
    for reach, error in ((4, 0.002), (11.9, 0.05)):
        residual = np.linspace(0.01, reach, 2001) * law.standard_deviation
        wanted = log_density_of_laplace_sum(count, scale, residual)
        np.testing.assert_allclose(law.log_density(residual), wanted, rtol=0, atol=error)
    assert law.variance == pytest.approx(count * 2 * scale**2)
    score = law.score(np.array([-1.0, 0.0, 1.0]) * law.standard_deviation)
    assert score[0] < -score[1] == score[1] < score[2]


@pytest.mark.parametrize("law", [DiscreteLaplace(0.2), DiscreteLaplace(4.0), DiscreteGaussian(0.4)])
@pytest.mark.parametrize("count", [2, 3, 10])
def test_a_sum_of_whole_draws_has_the_probabilities_of_the_convolution(law, count):
    reach = math.ceil(40 * max(law.scale, 1.0))
    one = np.exp(law.log_density(np.arange(-reach, reach + 1)))
    whole = np.ones(1)
    for _ in range(count):
        whole = np.convolve(whole, one)
    found = law.summed(count)
    assert isinstance(found, SummedNoise)
    k = np.arange(-(len(whole) // 2), len(whole) // 2 + 1)
    np.testing.assert_allclose(np.exp(found.log_density(k)), whole, rtol=0, atol=1e-9)
    assert found.is_discrete
    # in the tails the relative error is small too
    tail = np.abs(k) <= 10 * found.standard_deviation
    np.testing.assert_allclose(found.log_density(k)[tail], np.log(whole[tail]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("law", [Laplace(2.0), DiscreteLaplace(2.0), DiscreteGaussian(0.5)])
def test_a_normal_distribution_stands_for_a_sum_that_is_within_the_stated_distance_of_it(law):
    """The last sum with a table has about that distance; Edgeworth's expansion is right within a tenth."""
    first = next(k for k in range(2, 2000) if not isinstance(law.summed(k), SummedNoise))
    last = law.summed(first - 1)
    normal = law.summed(first)
    assert isinstance(normal, DiscreteGaussian if law.is_discrete else Gaussian)
    assert normal.variance == pytest.approx(first * law.variance)
    step = 1.0 if law.is_discrete else last.standard_deviation / 200
    points = step * np.arange(-3000, 3001)
    beside = type(normal).of_variance(last.variance)
    gaps = np.exp(last.log_density(points)) - np.exp(beside.log_density(points))
    assert 0.5 * step * np.abs(gaps).sum() == pytest.approx(0.001, rel=0.1)


def test_draws_of_a_sum_have_its_distribution():
    law = DiscreteLaplace(2.0).summed(3)
    drawn = law.draw((100, 300), np.random.default_rng(2))
    assert drawn.shape == (100, 300)
    assert drawn.dtype == np.int64
    k = np.arange(-12, 13)
    found = np.array([(drawn == one).sum() for one in k])
    chances = np.exp(law.log_density(k))
    wanted = drawn.size * np.append(chances, 1 - chances.sum())
    assert stats.chisquare([*found, drawn.size - found.sum()], wanted).pvalue > 1e-3


def test_a_sum_is_saved_with_what_it_sums_and_summed_again(tmp_path):
    law = DiscreteLaplace(2.0).summed(3)
    assert law == SummedNoise(DiscreteLaplace(2.0), 3)
    assert json.loads(law.base) == {"name": "discrete-laplace", "scale": 2.0}
    assert noise_from_dict(law.as_dict()) == law
    assert law.summed(4) == DiscreteLaplace(2.0).summed(12)
    assert law.summed(1) == law
    rates = np.array([0.0, 0.1, 0.3, 0.6])
    np.testing.assert_allclose(law.log_moment(rates), 3 * DiscreteLaplace(2.0).log_moment(rates))
    assert not law.has_exact_draw
    assert NoNoise().summed(5) == NoNoise()


@pytest.mark.parametrize(
    ("base", "count"),
    [
        (NoNoise(), 2),
        (Within(4.5), 2),
        ("laplace", 2),
        (3, 2),
        (Laplace(1.0), 0),
        (Laplace(1.0), 10**9),
    ],
)
def test_what_is_no_sum_of_noise_is_refused(base, count):
    with pytest.raises(ArgumentError):
        SummedNoise(base, count)


def test_all_estimators_take_sums_and_are_near_those_under_the_normal_density():
    network = bpm.declare(states={"a": ["x", "y"], "b": ["p", "q"]}, cliques=[("a", "b")])
    values = [[212, 88], [140, 61]]
    law = DiscreteLaplace(2.0).summed(4)
    normal = DiscreteGaussian.of_variance(law.variance)
    releases = [
        bpm.NoisyStatistics.from_tables(network, {("a", "b"): values}, noise=each)
        for each in (law, normal)
    ]
    for estimator in (bpm.NaiveMLE(), bpm.CGM(), bpm.NoiseAwareMAP()):
        one, other = (np.ravel(estimator.fit(each).marginal(["a", "b"])) for each in releases)
        np.testing.assert_allclose(one, other, atol=1e-6)
    posterior = bpm.LatentCounts().fit(releases[0], rng=1, draws=400, chains=2, progress_bar=False)
    counts = posterior.tree["posterior"]["counts[a,b]"].values
    deviation = counts.std(axis=(0, 1))
    np.testing.assert_allclose(deviation, law.standard_deviation, rtol=0.15)


def test_a_sum_and_its_parts_agree_or_are_found_to_disagree():
    network = bpm.declare(states={"a": [0, 1]}, cliques=[("a",)])
    law = DiscreteLaplace(3.0)

    def release(whole):
        count = q.coarsened("a", groups={"a": {"all": [0, 1]}})
        return bpm.NoisyStatistics.from_measurements(
            network,
            [
                bpm.Measurement(q.table("a"), [52, 31], law),
                bpm.Measurement(count, [whole], law.summed(2)),
            ],
        )

    assert not bpm.CGM().fit(release(88)).problems
    with pytest.warns(bpm.errors.ConsistencyWarning):
        assert bpm.CGM().fit(release(300)).problems


@dataclass(frozen=True, slots=True)
class EvenChances(NoiseDistribution):
    """Each whole number up to a width has the same probability; without a kernel."""

    width: int
    name: ClassVar[str] = "test-even-chances"
    is_discrete: ClassVar[bool] = True

    @property
    def variance(self):
        return self.width * (self.width + 1) / 3

    def log_density(self, residual):
        inside = np.abs(np.asarray(residual, dtype=float)) <= self.width
        with np.errstate(divide="ignore"):
            return np.log(np.where(inside, 1 / (2 * self.width + 1), 0.0))

    def score(self, residual):
        return np.zeros(np.shape(residual))

    def draw(self, size, rng):
        return rng.integers(-self.width, self.width + 1, size)


class TestOfAnotherPackage:
    """The sum of noise that the library does not have."""

    def test_has_a_table(self):
        law = EvenChances(width=2)
        assert isinstance(law, NoiseDistribution)
        k = np.arange(-400, 401)
        found = law.summed(3)
        chances = np.exp(found.log_density(k))
        assert chances.sum() == pytest.approx(1, abs=1e-9)
        assert chances @ k**2 == pytest.approx(3 * law.variance, rel=1e-6)
        assert noise_from_dict(found.as_dict()) == found
