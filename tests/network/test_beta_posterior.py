"""The posterior of beta: exact on laws that are written down, calibrated through the mechanism."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy import stats

from bayesprivmrf.errors import ArgumentError, SamplingWarning
from bayesprivmrf.network import EstimateLaw, IsingNetwork, PerturbedEstimator
from bayesprivmrf.network.beta_posterior import likelihood, posterior, sampled_of
from bayesprivmrf.privacy import perturbation_constants

from .estimate_laws import normal_law


def test_the_likelihood_of_a_written_law_is_its_density_between_the_ends_and_its_probability_at_them():
    betas = np.linspace(-1.9, 3.9, 117)
    wide = normal_law(sd=0.4)
    found, simulations = likelihood(wide, 1.1, betas)
    exact = stats.norm.pdf(1.1, betas, 0.4)
    assert np.abs(found - exact).max() <= 0.03 * exact.max()
    assert simulations.max() > 100
    held = normal_law(sd=0.4, bounds=(0.0, 2.0))
    assert likelihood(held, 0.0, held.betas)[0] == pytest.approx(stats.norm.cdf(-held.betas / 0.4), abs=1e-3)
    assert likelihood(held, 2.0, held.betas)[0] == pytest.approx(
        stats.norm.sf((2 - held.betas) / 0.4), abs=1e-3
    )
    between, _ = likelihood(held, 0.05, held.betas)
    inside = np.abs(held.betas - 0.5) < 1
    assert between[inside] == pytest.approx(stats.norm.pdf(0.05, held.betas[inside], 0.4), rel=0.12, abs=0.03)


def test_a_likelihood_between_grid_points_moves_and_is_not_bimodal():
    law = normal_law(sd=0.02)  # grid spacing 0.25
    betas = np.linspace(0.5, 0.75, 26)
    found, _ = likelihood(law, 0.625, betas)
    assert betas[found.argmax()] == pytest.approx(0.625, abs=0.011)
    assert found.max() == pytest.approx(1 / (0.02 * np.sqrt(2 * np.pi)), rel=0.1)


@pytest.mark.parametrize("as_function", [False, True])
def test_normal_law_and_normal_prior_give_the_conjugate_posterior(as_function):
    prior = stats.norm(0.5, 0.4)
    tree = posterior(
        normal_law(sd=0.3), 1.5, (lambda b: prior.logpdf(b) + 7) if as_function else prior, rng=3
    )
    precision = 1 / 0.3**2 + 1 / 0.4**2
    mean, sd = (1.5 / 0.3**2 + 0.5 / 0.4**2) / precision, precision**-0.5
    beta = tree["posterior"]["beta"].values
    assert beta.shape == (4, 1000)
    # 4.5 Monte Carlo errors and 2 % of the spread for the kernel
    assert beta.mean() == pytest.approx(mean, abs=4.5 * sd / 4000**0.5 + 0.02 * sd)
    assert beta.std() == pytest.approx(sd, rel=4.5 / 8000**0.5 + 0.02)
    before = tree["prior"]["beta"].values.ravel()
    assert before.mean() == pytest.approx(0.5, abs=4.5 * 0.4 / 4000**0.5)
    constants = tree["constant_data"]
    assert np.trapezoid(constants["posterior_density"], constants["beta_grid"]) == pytest.approx(1)
    assert float(tree["observed_data"]["inverse_temperature"]) == 1.5
    assert tree["sample_stats"]["effective_simulations"].shape == (4, 1000)


def test_draws_follow_a_density_that_is_straight_between_grid_points():
    grid, density = np.array([0.0, 1.0, 3.0]), np.array([0.0, 1.0, 0.0])
    even = np.linspace(0, 3, 301)
    heights = np.interp(even, grid, density) / 1.5
    draws = sampled_of(even, heights, (1, 20_000), np.random.default_rng(1)).ravel()
    cdf = lambda x: np.where(x < 1, x**2 / 3, 1 - (3 - x) ** 2 / 6)  # noqa: E731
    assert stats.kstest(draws, cdf).pvalue > 1e-4
    steep = sampled_of(
        np.array([0.0, 1.0]), np.array([0.0, 2.0]), (1, 20_000), np.random.default_rng(2)
    ).ravel()
    assert stats.kstest(steep, lambda x: x**2).pvalue > 1e-4


def test_seeds_repeat_and_priors_hold():
    law = normal_law()
    one, two = (posterior(law, 1.0, rng=5)["posterior"]["beta"].values for _ in range(2))
    assert np.array_equal(one, two)
    cut = posterior(law, 0.1, stats.halfnorm(scale=2), rng=5)
    assert cut["posterior"]["beta"].values.min() >= -0.01
    assert cut["prior"]["beta"].values.max() <= 4.0


def test_what_is_no_prior_and_what_is_impossible_are_refused():
    law = normal_law()
    for wrong in (3.0, "flat", lambda b: np.nan * b, lambda b: 0.0, stats.uniform(50, 1)):
        with pytest.raises(ArgumentError, match="`prior` must"):
            posterior(law, 1.0, wrong)
    with pytest.raises(ArgumentError, match="`prior` must have mass where the estimate is possible"):
        posterior(law, 1e4)
    with pytest.raises(ArgumentError, match="`draws` must be a whole number"):
        posterior(law, 1.0, draws=0)


def test_few_simulations_are_told():
    with pytest.warns(SamplingWarning, match="rests on .* simulated estimates"):
        posterior(normal_law(count=60), 1.0, rng=0)


@pytest.mark.slow
def test_truths_from_the_prior_rank_evenly_among_draws_of_their_posteriors():
    network = IsingNetwork.from_graph(nx.gnm_random_graph(60, 300, seed=3), "mean-degree")
    constants, bounds = perturbation_constants(network.coupling, 6.0), (0.0, 3.0)
    law = EstimateLaw.simulate(
        network, constants, bounds, points=30, configurations=800, burn_in=150, rng=1, progress=False
    )
    estimator = PerturbedEstimator.of(network.coupling, constants, bounds)
    rng = np.random.default_rng(2)
    grid = np.linspace(0, 3, 401)
    ranks, ends = [], 0
    for beta in rng.uniform(0, 3, 400):
        spins = network.sample(beta, 1, rng, burn_in=150)[0]
        value = float(estimator.score(spins).estimates(constants.noise.draw(1, rng))[0])
        ends += any(law.at_end(value))
        cumulated = np.cumsum(likelihood(law, value, grid)[0])
        ranks.append(np.interp(beta, grid, cumulated / cumulated[-1]))
    assert 20 < ends < 380  # both kinds of released value are tried
    # the level is 1e-3; the table's own error is small beside that of 400 ranks in 10 bins
    assert stats.chisquare(np.histogram(ranks, 10, (0, 1))[0]).pvalue > 1e-3
    assert stats.kstest(ranks, "uniform").pvalue > 1e-3
