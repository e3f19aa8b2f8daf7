"""The log-likelihood of a fit counts sampling and noise, and is refused where it has no meaning."""

import numpy as np
import pytest
from scipy.stats import chi2_contingency, multivariate_normal

import bayesprivmrf as bpm
from bayesprivmrf.errors import ModelError
from bayesprivmrf.noise import DiscreteGaussian

COUNTS = np.array([[310, 200], [135, 110], [120, 95]])
RECORDS = int(COUNTS.sum())
NETWORK = bpm.declare({"a": ["x", "y", "z"], "b": [0, 1]}, [("a", "b")])
APART = [("a",), ("b",)]


def release_of(noise):
    return bpm.NoisyStatistics.from_tables(
        NETWORK, {("a", "b"): COUNTS}, noise=noise, total=RECORDS
    )


@pytest.mark.parametrize("model", [None, APART])
@pytest.mark.parametrize("estimator", [bpm.NoiseAwareMAP(), bpm.NaiveMLE()])
def test_it_is_that_of_normal_numbers_with_sampling_and_noise(estimator, model):
    noise = DiscreteGaussian(60.0)
    solution = estimator.fit(release_of(noise), model=model)
    shares = solution.marginal(["a", "b"]).values.ravel()
    sampling = RECORDS * (np.diag(shares) - np.outer(shares, shares))
    law = multivariate_normal(RECORDS * shares, sampling + noise.variance * np.eye(6))
    assert solution.log_likelihood == pytest.approx(law.logpdf(COUNTS.ravel()))


def test_with_little_noise_the_ratio_is_that_of_exact_tables():
    release = release_of(DiscreteGaussian(1.0))
    whole = bpm.NoiseAwareMAP(scale=5.0).fit(release)
    apart = bpm.NoiseAwareMAP(scale=5.0).fit(release, model=APART)
    expected = chi2_contingency(COUNTS, correction=False, lambda_="log-likelihood").statistic
    assert 2 * (whole.log_likelihood - apart.log_likelihood) == pytest.approx(expected, rel=0.02)


def test_it_is_refused_without_released_numbers_or_exact_marginals():
    with pytest.raises(ModelError, match="fit a release"):
        _ = bpm.uniform_solution(NETWORK).log_likelihood
    loopy = bpm.NaiveMLE(inference="loopy").fit(release_of(DiscreteGaussian(1.0)))
    with pytest.raises(ModelError, match="inference='exact'"):
        _ = loopy.log_likelihood
