"""Replicates repeat the sampling and the perturbation of a release."""

import numpy as np
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.noise import DiscreteGaussian, DiscreteLaplace

STATES = {"a": ["x", "y", "z"], "b": [0, 1]}
COUNTS = np.array([[300, 200], [150, 150], [120, 80]])
REPLICATES = 300


def release_of(total=1000, cliques=(("a", "b"),)):
    network = bpm.declare(states=STATES, cliques=list(cliques))
    measurements = [
        bpm.Measurement(q.table("a", "b"), COUNTS.ravel(), DiscreteLaplace(3.0)),
        bpm.Measurement(q.table("b"), COUNTS.sum(axis=0), DiscreteGaussian(5.0)),
    ]
    return bpm.NoisyStatistics.from_measurements(network, measurements, total=total)


@pytest.fixture(scope="module")
def release():
    return release_of()


@pytest.fixture(scope="module")
def solution(release):
    return bpm.NoiseAwareMAP().fit(release)


def test_a_replicate_is_simulated_and_has_the_same_measurements(release, solution):
    replicate = release.replicate(solution, rng=1)
    assert replicate.provenance.simulated
    assert not release.provenance.simulated
    assert replicate.queries == release.queries
    assert replicate.noise == release.noise
    assert replicate.specification == release.specification
    assert replicate.total == 1000
    assert bpm.NoiseAwareMAP().fit(replicate).is_simulated


def test_seeds_decide_the_replicate(release, solution):
    first, again, other = (release.replicate(solution, rng=seed).flat for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.slow
def test_numbers_vary_by_sampling_and_noise(release, solution):
    rng = np.random.default_rng(5)
    drawn = np.array([release.replicate(solution, rng=rng).flat for _ in range(REPLICATES)])
    shares = solution.marginal(["a", "b"]).values.ravel()
    means = 1000 * np.append(shares, solution.marginal("b").values)
    every = np.append(shares, solution.marginal("b").values)
    noise = [each.noise.variance for each in release.measurements]
    variances = 1000 * every * (1 - every) + np.repeat(noise, [6, 2])
    # level 1e-5 for each of eight numbers
    errors = np.sqrt(variances / REPLICATES)
    assert (np.abs(drawn.mean(axis=0) - means) < 4.5 * errors).all()
    ratio = drawn.var(axis=0) / variances
    assert (np.abs(ratio - 1) < 5 * np.sqrt(3 / REPLICATES)).all()
    # one sample answers both queries: the margins of the table and the second table agree but for noise
    apart = drawn[:, :6].reshape(-1, 3, 2).sum(axis=1) - drawn[:, 6:]
    expected = 3 * noise[0] + noise[1]
    assert apart.var(axis=0) == pytest.approx(expected, rel=0.5)


def test_a_private_number_of_records_is_the_estimated_one():
    release = release_of(total=None)
    fit = bpm.NoiseAwareMAP().fit(release)
    replicate = release.replicate(fit, rng=3)
    assert replicate.total is None
    assert abs(replicate.estimated_total - release.estimated_total) < 60


def test_a_smaller_model_may_be_the_null(release):
    null = bpm.NoiseAwareMAP().fit(release, model=[("a",), ("b",)])
    assert release.replicate(null, rng=1).queries == release.queries


def test_other_variables_are_refused(release):
    other = bpm.uniform_solution(bpm.declare(states={"a": ["x", "y"]}, cliques=[("a",)]))
    with pytest.raises(ModelError, match="variables and states"):
        release.replicate(other, rng=1)
    with pytest.raises(ArgumentError, match="fitted model"):
        release.replicate("fit", rng=1)


def test_people_with_one_row_each_are_replicated(solution):
    rows = bpm.release.PersonRows(at_most=1)
    whole = release_of()
    release = bpm.NoisyStatistics(
        specification=whole.specification,
        guarantee=None,
        provenance=whole.provenance,
        measurements=whole.measurements,
        total=whole.total,
        person_rows=rows,
    )
    assert release.replicate(solution, rng=1).person_rows == rows
