"""Intervals for beta: exact on laws that are written down, and their coverage through the mechanism."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import networkx as nx
import numpy as np
import pytest

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.mechanisms import ObjectivePerturbation
from bayesprivmrf.network import EstimateLaw, IsingNetwork, PerturbedEstimator, quantile_curves
from bayesprivmrf.network.intervals import accepted_values, interval
from bayesprivmrf.privacy import DiscreteLaplace, perturbation_constants

from .estimate_laws import effective_size, normal_law, written_law


def ends(*arguments: Any) -> tuple[float, float]:
    found = interval(*arguments)
    return found.lower, found.upper


def test_a_law_that_moves_with_beta_gives_the_textbook_interval():
    assert ends(normal_law(), 1.3, 0.9) == pytest.approx(
        (1.3 - 0.3 * 1.6449, 1.3 + 0.3 * 1.6449), abs=2e-3
    )


def test_an_asymmetric_law_is_inverted_and_not_mirrored():
    # t = beta (1 + u): accepted from 1.05 beta to 1.95 beta
    law = written_law(lambda beta, u: beta * (1 + u), np.linspace(0, 4, 81))
    assert ends(law, 1.5, 0.9) == pytest.approx((1.5 / 1.95, 1.5 / 1.05), rel=1e-3)


def test_ends_are_held_to_the_span_and_said():
    law = normal_law()
    low, high = interval(law, -1.9), interval(law, 3.9)
    assert (low.lower, low.open_below, low.open_above) == (-2.0, True, False)
    assert (high.upper, high.open_below, high.open_above) == (4.0, False, True)
    assert -2.0 in low
    assert 3.0 not in low


@pytest.mark.parametrize("value", [-9.0, 9.0])
def test_an_estimate_that_no_beta_makes_likely_has_an_empty_interval(value):
    found = interval(normal_law(), value)
    assert found.is_empty
    assert math.isnan(found.lower)
    assert math.isnan(found.upper)
    assert 1.0 not in found


def test_a_tail_that_an_end_of_the_range_takes_goes_to_the_other_side():
    law = normal_law(sd=0.5, bounds=(0.0, 5.0))
    lower, upper = accepted_values(law, 0.9)
    places = {round(float(beta), 2): place for place, beta in enumerate(law.betas)}
    assert lower[places[0.0]] == 0.0
    assert upper[places[0.0]] == pytest.approx(0.5 * 1.2816, abs=3e-3)  # a tenth is above
    assert lower[places[2.0]] == pytest.approx(2 - 0.5 * 1.6449, abs=3e-3)
    assert upper[places[2.0]] == pytest.approx(2 + 0.5 * 1.6449, abs=3e-3)
    at_zero = interval(law, 0.0)
    assert at_zero.lower == -2.0
    assert at_zero.upper == pytest.approx(0.5 * 1.6449, abs=0.03)  # on a grid of 0.25


def test_a_law_between_two_likely_ends_accepts_both():
    law = written_law(
        lambda beta, u: np.where(u < 0.4, -9, np.where(u > 0.6, 9, u)), [0.0, 1.0], (0.0, 1.0)
    )
    for value in (0.0, 0.5, 1.0):
        assert ends(law, value) == (0.0, 1.0)


@pytest.mark.parametrize("prob", [0.5, 0.9])
def test_at_every_beta_at_least_the_nominal_fraction_of_simulated_estimates_is_accepted(prob):
    rng = np.random.default_rng(5)
    betas = np.linspace(0, 3, 13)
    rows = betas[:, None, None] + rng.laplace(0, 0.4, (13, 100, 3))
    base = normal_law()
    law = dataclasses.replace(
        base, betas=betas, estimates=np.clip(rows, 0, 2.5), rhat=np.ones(13), ends=(0.0, 2.5)
    )
    for values, beta in list(zip(law.sorted_rows, betas, strict=True))[::5]:
        held = [beta in interval(law, float(value), prob) for value in values]
        assert np.mean(held) >= prob
        if beta == 1.25:  # no end has much probability: hardly more than nominal
            assert np.mean(held) <= prob + 0.06


def test_a_falling_upper_quantile_loses_no_beta_that_accepts_the_estimate():
    # wide below 1, narrow above: as estimates are at a transition
    spread = lambda beta: 1.0 if beta < 1 else 0.1  # noqa: E731
    law = written_law(lambda beta, u: beta + spread(beta) * (2 * u - 1), np.linspace(0, 3, 61))
    lower, upper = accepted_values(law, 0.9)
    assert (np.diff(upper) < 0).any()
    for value in (0.5, 1.2, 1.7, 2.5):
        accepting = law.betas[(lower <= value) & (value <= upper)]
        found = interval(law, value)
        assert found.lower <= accepting.min() + 1e-5
        assert found.upper >= accepting.max() - 1e-5
    for curve in quantile_curves(law, 0.9):
        assert (np.diff(curve) >= 0).all()


def test_bad_arguments_are_refused():
    law = normal_law()
    for prob in (0.0, 1.0, float("nan"), -0.5):
        with pytest.raises(ArgumentError, match="`prob` must be"):
            interval(law, 1.0, prob)
    with pytest.raises(ArgumentError, match="`beta` must lie within"):
        law.estimates_at(7.0)


def coverage(law, values, beta, prob=0.9):
    return np.mean([beta in interval(law, float(value), prob) for value in values])


@pytest.mark.slow
def test_intervals_cover_at_their_level_and_those_that_ignore_the_noise_do_not():
    network = IsingNetwork.from_graph(nx.gnm_random_graph(200, 2000, seed=1), "mean-degree")
    constants, bounds = perturbation_constants(network.coupling, 5.0), (0.0, 5.0)
    settings = {"points": 40, "configurations": 400, "noises": 4, "burn_in": 150, "progress": False}
    law = EstimateLaw.simulate(network, constants, bounds, rng=11, **settings)
    noiseless = dataclasses.replace(constants, noise=DiscreteLaplace(1.0))
    twin = EstimateLaw.simulate(
        network, noiseless, bounds, rng=11, **{**settings, "configurations": 200, "noises": 1}
    )
    estimator = PerturbedEstimator.of(network.coupling, constants, bounds)
    rng = np.random.default_rng(12)
    count = 400
    found = {}
    for beta in (0.0, 0.5, 1.0, 1.5):
        spins = network.sample(beta, count, rng, chains=count)
        noise = constants.noise.draw((count, 1), rng)
        values = [estimator.score(s).estimates(n)[0] for s, n in zip(spins, noise, strict=True)]
        found[beta] = coverage(law, values, beta), coverage(twin, values, beta)
    # three Monte Carlo standard errors of 400 releases, and as much again for the table's own
    error = 3 * math.sqrt(0.9 * 0.1 * (1 / count + 1 / effective_size(law).min()))
    for right, _ in found.values():
        assert right >= 0.9 - error
    for beta in (0.5, 1.0, 1.5):
        assert found[beta][0] <= 0.9 + error
    assert min(wrong for _, wrong in found.values()) < 0.9 - 2 * error


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
def test_a_law_that_was_made_is_kept_whatever_its_settings(tmp_path):
    ring = IsingNetwork.from_graph([(i, (i + 1) % 60) for i in range(60)])
    mechanism = ObjectivePerturbation(epsilon=2.0, bounds=(0, 2))
    estimate = mechanism.release(ring, np.repeat([1, -1], 30), rng=1)
    small = {"points": 6, "configurations": 20, "burn_in": 20, "sweeps": 2}
    law = estimate.law(rng=1, cache=tmp_path / "law.npz", **small)
    assert estimate.law() is law
    assert estimate.law(rng=1) is law
    assert estimate.law(rng=1, workers=1, **small) is law
    assert estimate.law(rng=2, **small) is not law
    with pytest.raises(AttributeError, match="use `interval"):
        _ = estimate.posterior
    with pytest.raises(ArgumentError, match="together with `law`"):
        estimate.interval(law=law, configurations=3)
    with pytest.raises(ArgumentError, match="is for 90 %"):
        estimate.interval(90, law=law)
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ArgumentError, match="holds something else"):
        mechanism.law(ring, cache=tmp_path / "notes", **small)
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
def test_an_interval_on_a_simulation_that_has_not_mixed_there_is_doubtful():
    ring = IsingNetwork.from_graph([(i, (i + 1) % 60) for i in range(60)])
    estimate = ObjectivePerturbation(epsilon=2.0, bounds=(0, 2)).release(
        ring, np.repeat([1, -1], 30), rng=1
    )
    law = estimate.law(rng=1, points=6, configurations=200)
    found = estimate.interval(law=dataclasses.replace(law, rhat=np.ones_like(law.betas))).loc[
        "beta"
    ]
    inside = np.searchsorted(law.betas, found["lower"], side="right") - 1
    for place in range(law.betas.size):
        rhat = np.ones_like(law.betas)
        rhat[place] = 1.5
        note = estimate.interval(law=dataclasses.replace(law, rhat=rhat)).loc["beta", "note"]
        used = inside <= place <= np.searchsorted(law.betas, found["upper"])
        assert ("simulation not mixed here" in note) == used
