"""The fit of a t-wise model to noisy parities: what it solves, and that it is finite whatever the noise."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.loglinear_fit import moments_of
from bayesprivmrf.learning import parities
from bayesprivmrf.learning.parities import parity_effects, posterior_mode
from bayesprivmrf.mechanisms import ParityQueries
from bayesprivmrf.model import Effects, Monomials

MOMENTS = "bayesprivmrf.inference.loglinear_fit.moments"


def by_enumeration(family: Monomials, h: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Log partition function, means and covariance, the empty set left out."""
    spins = np.array(list(itertools.product((-1, 1), repeat=family.variables)))
    products = np.array([spins[:, list(members)].prod(axis=1) for members in list(family)[1:]])
    weights = np.exp(h @ products)
    probabilities = weights / weights.sum()
    means = products @ probabilities
    centred = products - means[:, None]
    return float(np.log(weights.sum())), means, (centred * probabilities) @ centred.T


@pytest.mark.parametrize("cliques", [None, [(0, 1, 2), (2, 3), (4,)]], ids=["all", "declared"])
def test_moments_are_those_of_all_states(cliques, monkeypatch):
    family = Monomials.complete(5, 3) if cliques is None else Monomials.inside(5, cliques, 3)
    rng = np.random.default_rng(3)
    h = rng.normal(0, 0.5, len(family) - 1)
    known = by_enumeration(family, h)

    def check(tolerance, of_covariance):
        _, places, scales, moments = parity_effects(family, rng)
        log_partition, means = moments.means(h[places] * scales)
        again, covariance = moments.expanded(h[places] * scales)
        assert log_partition == pytest.approx(known[0], abs=tolerance)
        assert np.abs(means * scales - known[1][places]).max() < tolerance
        assert np.abs(again * scales - known[1][places]).max() < tolerance
        off = covariance * np.multiply.outer(scales, scales) - known[2][np.ix_(places, places)]
        assert np.abs(off).max() < of_covariance

    check(1e-11, 1e-11)
    for limit in ("_MOST_EXPANDED", "_MOST_LISTED"):
        monkeypatch.setattr(f"{MOMENTS}.{limit}", 0)
    check(1e-9, 1e-9)
    monkeypatch.setattr(f"{MOMENTS}.LARGEST_COVARIANCE_WORK", 0)
    # 5000 draws: entries of at most 1, five standard errors
    check(1e-9, 5 / np.sqrt(5000))


def test_states_are_listed_or_eliminated_by_what_is_cheaper():
    rng = np.random.default_rng(0)

    def kind(family):
        effects = Effects.of([2] * family.variables, family.largest())
        return type(moments_of(effects, rng)).__name__

    assert kind(Monomials.complete(18, 2)) == "Listed"
    chain = [(v, v + 1) for v in range(21)]
    assert kind(Monomials.inside(22, chain, 2)) == "Eliminated"
    assert kind(Monomials.complete(22, 2)) == "Listed"
    with pytest.raises(ModelTooLargeError, match=r"465 monomials of 30 variables.*declare cliques"):
        parity_effects(Monomials.complete(30, 2), rng)


def noisy_means(family: Monomials, h: np.ndarray, noise: float, seed: int) -> np.ndarray:
    means = by_enumeration(family, h)[1]
    return np.concatenate(
        [[1.0], means + np.random.default_rng(seed).normal(0, noise**0.5, means.size)]
    )


def test_the_mode_solves_its_equation():
    family, rng = Monomials.complete(6, 3), np.random.default_rng(4)
    h = rng.normal(0, 0.6, len(family) - 1) * (rng.random(len(family) - 1) < 0.3)
    noise, total_noise, total = 2e-5, 4e-4, 1e4
    means = noisy_means(family, h, noise, 5)
    found, details = posterior_mode(family, means, noise, total_noise, total)
    assert details["status"] == "converged"
    assert found[0] == 0
    _, mu, covariance = by_enumeration(family, found[1:])
    told = (
        covariance / total + noise * np.eye(mu.size) + total_noise * np.outer(means[1:], means[1:])
    )
    weight = covariance @ np.linalg.inv(told)
    scales = np.array(details["prior_scales"])[family.orders[1:] - 1] ** 2
    largest = 2.0 ** (2 - family.orders[1:])
    precisions = 1 / largest
    for _ in range(50):
        left = np.linalg.inv(weight @ covariance + np.diag(precisions)).diagonal()
        precisions = np.maximum(2 / (scales + found[1:] ** 2 + left), 1 / largest)
    off = weight @ (means[1:] - mu) - precisions * found[1:]
    # the precisions are those of twenty rounds
    assert np.abs(off).max() < 0.1 * np.abs(precisions * found[1:]).max()


def test_large_coefficients_are_kept_and_noise_is_drawn_to_zero():
    family = Monomials.complete(8, 3)
    h = np.zeros(len(family) - 1)
    strong = [family.positions[members] - 1 for members in ((0,), (1, 2), (3, 4, 5))]
    h[strong] = 0.4
    noise, total = 1e-4, 1e4
    errors = {"mode": [], "ridge": []}
    for seed in range(5):
        means = noisy_means(family, h, noise + 1 / total, seed)
        mode = posterior_mode(family, means, noise, 0.0, total)[0][1:]
        ridge = parities.fit_parities(
            family, means, parities.default_ridges(family, means, noise, total)
        )[0][1:]
        assert np.abs(mode - h)[strong].max() < 4 * (noise + 1 / total) ** 0.5 / (
            1 - np.tanh(0.4) ** 2
        )
        errors["mode"].append(np.sqrt(np.mean((mode - h) ** 2)))
        errors["ridge"].append(np.sqrt(np.mean((ridge - h) ** 2)))
    assert np.mean(errors["mode"]) < 0.6 * np.mean(errors["ridge"])


def test_an_order_of_nothing_but_noise_is_shrunk_to_nearly_nothing():
    family = Monomials.complete(8, 3)
    h = np.zeros(len(family) - 1)
    h[family.positions[0, 1] - 1] = 0.6
    noise, total = 1e-3, 1e4
    largest = []
    for seed in range(12):
        found, details = posterior_mode(
            family, noisy_means(family, h, noise + 1 / total, seed), noise, 0.0, total
        )
        assert details["status"] == "converged"
        assert found[family.positions[0, 1]] == pytest.approx(0.6, abs=0.25)
        largest.append(np.abs(found[family.orders == 3]).max())
    # the largest error of 56 triples without a prior is more than two deviations
    assert np.median(largest) < 0.25 * (noise + 1 / total) ** 0.5


def test_means_that_contradict_each_other_have_a_finite_mode():
    family = Monomials.complete(3, 3)
    impossible = np.array([1.0, 0.0, 0.0, 0.0, 0.99, 0.99, -0.99, 1.2])
    for noise in (0.3, 1e-2, 1e-6):
        found, details = posterior_mode(family, impossible, noise, 0.0, 1e4)
        assert details["status"] == "converged"
        assert np.abs(found).max() < 4
    found, details = parities.fit_parities(family, impossible, np.zeros(8))
    assert details["status"] == "diverged"
    assert np.isfinite(found).all()


def nested(records: int, seed: int, variables: int = 8) -> pd.DataFrame:
    """Indicators of one severity; hardly anybody has a later one without the first."""
    rng = np.random.default_rng(seed)
    severity = rng.normal(size=records)
    columns = {
        f"q{k}": severity + 0.5 * rng.normal(size=records) > 0.3 * k for k in range(variables)
    }
    for k in (1, 2):
        columns[f"q{k}"] = columns["q0"] & columns[f"q{k}"]
    return pd.DataFrame(columns).astype(int)


@pytest.mark.parametrize("order", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("adjacency", ["add-or-remove-one", "replace-one"])
def test_a_rare_event_made_impossible_by_noise_has_a_moderate_estimate(order, adjacency):
    data = nested(5_000, 1)
    network = bpm.declare(states={name: [0, 1] for name in data})
    mechanism = ParityQueries(rho=0.01, order=order, method="gaussian", adjacency=adjacency)
    largest, before = [], []
    for seed in range(5):
        release = mechanism.release(network, data, rng=seed)
        model = release.fit()
        assert model.status == "converged"
        assert model.details["iterations"] < 100
        largest.append(np.abs(model.coefficients).max())
        noise, total = release.standard_deviation**2, release.total
        ridges = parities.default_ridges(release.sets, release.means, noise, total)
        before.append(np.abs(parities.fit_parities(release.sets, release.means, ridges)[0]).max())
    assert max(largest) < 2.5
    assert max(before) > 10


@pytest.mark.slow
def test_rare_indicators_are_fitted_near_their_couplings():
    rng = np.random.default_rng(7)
    family = Monomials.complete(8, 3)
    h = np.zeros(len(family))
    h[1:9] = -rng.uniform(0.2, 0.8, 8)
    for members, place in family.positions.items():
        if len(members) == 2 and members[1] - members[0] <= 2:
            h[place] = rng.uniform(0.2, 0.6)
    spins = np.array(list(itertools.product((-1, 1), repeat=8)))
    products = np.array([spins[:, list(members)].prod(axis=1) for members in family])
    weights = np.exp(h @ products)
    records = spins[rng.choice(256, size=100_000, p=weights / weights.sum())]
    data = pd.DataFrame((records > 0).astype(int), columns=range(8))
    network = bpm.declare(states={v: [0, 1] for v in range(8)})
    for seed in range(2):
        release = ParityQueries(rho=0.1, order=3, method="gaussian").release(
            network, data, rng=seed
        )
        model = release.fit()
        off = np.abs(model.coefficients - h)
        assert off.max() < 0.25
        assert off[family.orders == 3].max() < 0.1


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_wide_model_is_fitted_by_elimination(is_exact, monkeypatch):
    if not is_exact:  # as where the covariance is too costly
        monkeypatch.setattr(f"{MOMENTS}.LARGEST_COVARIANCE_WORK", 0)
    rng = np.random.default_rng(2)
    spins = rng.choice([-1, 1], (20_000, 30))
    for v in range(1, 30):
        spins[:, v] = np.where(rng.random(20_000) < 1 / (1 + np.exp(-0.8 * spins[:, v - 1])), 1, -1)
    data = pd.DataFrame((spins > 0).astype(int), columns=range(30))
    network = bpm.declare(
        states={v: [0, 1] for v in range(30)}, cliques=[(v, v + 1) for v in range(29)]
    )
    release = ParityQueries(rho=1.0, order=2, method="gaussian").release(network, data, rng=1)
    model, again = release.fit(), release.fit()
    assert model.status == ("converged" if is_exact else "approximate")
    assert model.monomials.equals(again.monomials)
    assert (model.monomials[[(v, v + 1) for v in range(29)]] - 0.4).abs().max() < 0.05
    assert release.fit(ridge=0.0).status == "converged"
