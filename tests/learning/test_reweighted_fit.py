"""The mode where noisy means are what no model could have."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.inference.loglinear_fit import (
    Eliminated,
    FixedPrior,
    NoisyMeans,
    moments_by,
    moments_of,
    reweighted_fit,
)
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.mechanisms import SelectMeasure
from bayesprivmrf.model import Effects

MOMENTS, REWEIGHTED = (
    f"bayesprivmrf.inference.loglinear_fit.{name}" for name in ("moments", "reweighted")
)


CARDS, SCOPES = (2, 3, 2), ((0, 1), (1, 2), (0,), (1,), (2,))


def covariance_of(effects, beta):
    engine = marginal_engine(effects.cardinalities, effects.scopes)
    product = engine.linearize(effects.potentials(beta))[2]
    return np.array(
        [effects.pull_back(product(effects.potentials(row))) for row in np.eye(effects.size)]
    )


def fitted(effects, means, noises, total, *, inference="exact", seed=1, start=None):
    """The mode under a prior of two nats."""
    data = NoisyMeans(
        moments=moments_by(inference, effects, np.random.default_rng(seed)),
        means=means,
        noise=np.diag(noises),
        total=total,
        prior=FixedPrior(precision=np.full(effects.size, 1 / 2.0**2)),
    )
    return reweighted_fit(effects, data, start)[0]


@pytest.mark.parametrize("inference", ["exact", "gibbs"])
def test_the_mode_solves_its_equation(inference):
    effects = Effects.of(CARDS, SCOPES)
    rng = np.random.default_rng(1)
    beta = rng.normal(0, 0.7, effects.size)
    engine = marginal_engine(CARDS, effects.scopes)
    noises, total, prior = rng.uniform(1e-5, 1e-3, effects.size), 1e4, 2.0
    means = effects.pull_back(engine.marginals(effects.potentials(beta))[1])
    means += rng.normal(0, noises**0.5)
    fit = fitted(effects, means, noises, total, inference=inference, seed=2)
    assert fit.status == {"exact": "converged", "gibbs": "approximate"}[inference]
    found = fit.coordinates
    covariance = covariance_of(effects, found)
    pull = (found / total + noises * np.linalg.solve(covariance, found)) / prior**2
    off = means - effects.pull_back(engine.marginals(effects.potentials(found))[1]) - pull
    # where drawn, P errs by some per cent of itself; means are of 20 rounds of 16,384 draws
    allowed = (
        1e-3 * np.abs(pull).max() if inference == "exact" else 0.15 * np.abs(pull).max() + 0.004
    )
    assert np.abs(off).max() < allowed


@pytest.mark.parametrize("cards", [(1, *(2,) * 9), (1, *(3,) * 4)], ids=["listed", "eliminated"])
def test_the_mode_is_the_same_from_wherever_the_search_begins(cards):
    """From 0, the first full step would go where all of these variables agree."""
    pairs = list(combinations(range(1, len(cards)), 2))
    effects = Effects.of(cards, (*pairs, *((v,) for v in range(len(cards)))))
    truth = np.where(effects.orders == 1, -1.5, 0.4)
    engine = marginal_engine(cards, effects.scopes)
    means = effects.pull_back(engine.marginals(effects.potentials(truth))[1])
    noises = np.full(effects.size, 1e-11)

    def mode(start):
        fit = fitted(effects, means, noises, 1e9, start=start)
        assert fit.status == "converged"
        return fit.coordinates

    found = mode(np.zeros(effects.size))
    np.testing.assert_allclose(found, mode(truth + 0.3), atol=2e-4)
    np.testing.assert_allclose(found, truth, atol=0.02)


def test_weights_that_are_not_those_of_the_estimate_are_told(monkeypatch):
    """Weighed once, far from the mode: the search ends, but at another equation."""
    monkeypatch.setattr(f"{REWEIGHTED}._WEIGHED", 1)
    effects = Effects.of((2, 2, 2), ((0, 1), (1, 2), (0, 2), (0,), (1,), (2,)))
    beta = np.where(effects.orders == 1, -2.0, 1.5)
    engine = marginal_engine((2, 2, 2), effects.scopes)
    means = effects.pull_back(engine.marginals(effects.potentials(beta))[1])
    means += np.random.default_rng(5).normal(0, 0.02, effects.size)
    noises = np.full(effects.size, 4e-4)
    fit = fitted(effects, means, noises, 2_000)
    assert fit.status in {"approximate", "not trusted"}
    monkeypatch.undo()
    fit = fitted(effects, means, noises, 2_000)
    assert fit.status == "converged"


class Drawn(Eliminated):
    """Moments whose covariance is too costly, and so estimated from draws."""

    has_covariance = False


@pytest.mark.parametrize(("kind", "tolerance"), [(None, 1e-10), (Eliminated, 1e-10), (Drawn, 0.03)])
def test_a_covariance_is_that_of_the_records_however_it_is_found(kind, tolerance):
    effects = Effects.of((2, 1, 2, 2), ((0, 2), (2, 3), (0,), (2,), (3,)))
    beta = np.random.default_rng(3).normal(size=effects.size)
    found = (kind or moments_of)(effects, np.random.default_rng(4)).expanded(beta)[1]
    np.testing.assert_allclose(found, covariance_of(effects, beta), atol=tolerance)


def nested(records: int, seed: int) -> pd.DataFrame:
    """Six indicators that depend on each other strongly; hardly anybody has the second without the first."""
    rng = np.random.default_rng(seed)
    severity = rng.normal(size=records)
    columns = {f"q{k}": severity + 0.6 * rng.normal(size=records) > 0.3 * k for k in range(6)}
    columns["q1"] = columns["q0"] & columns["q1"]
    return pd.DataFrame(columns).astype(int)


def test_a_coupling_that_could_be_of_any_size_has_infinite_limits_and_no_other_has():
    """Nobody has the second indicator without the first. From draws alone the covariance is singular now and then."""
    data = nested(5_000, 1)
    learned = SelectMeasure(rho=1.0, degree=5).release(
        bpm.declare(states={name: [0, 1] for name in data}), data, rng=1
    )
    assert learned.details["penalty"] == "curvature at the estimate"
    frame = learned.couplings_interval(rng=1)
    assert frame.index[~np.isfinite(frame["upper"])].tolist() == [("q0", "q1")]
    assert (frame["lower"] <= frame["upper"]).all()


@pytest.mark.parametrize("exact", [True, False])
def test_of_exact_copies_an_interval_is_infinite_whatever_records_are_drawn(exact, monkeypatch):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"a": rng.integers(0, 4, 30_000), "c": rng.integers(0, 4, 30_000)})
    network = bpm.declare(states={name: range(4) for name in "abc"})
    mechanism = SelectMeasure(rho=100.0, degree=2, adjacency="replace-one")
    learned = mechanism.release(network, data.assign(b=data["a"]), rng=0)
    assert learned.details["penalty"] == "curvature at the estimate"
    if not exact:  # as where the covariance is too costly
        monkeypatch.setattr(f"{MOMENTS}.LARGEST_COVARIANCE_WORK", 0)
    for seed in range(5):
        frame = learned.couplings_interval(rng=seed)
        is_of_copies = (frame.index.get_level_values("variable") == "a") & (
            frame.index.get_level_values("other") == "b"
        )
        assert np.isinf(frame.loc[is_of_copies, ["lower", "upper"]].to_numpy()).all()
        assert not frame.isna().to_numpy().any()


def test_a_rare_event_made_impossible_by_noise_has_a_moderate_estimate():
    data = nested(5_000, 1)
    network = bpm.declare(states={name: [0, 1] for name in data})
    mechanism = SelectMeasure(rho=0.01, degree=5)

    def largest(seed: int) -> float:
        learned = mechanism.release(network, data, rng=seed)
        assert learned.status == "converged"
        return float(np.abs(learned.coupling_matrix).max())

    assert max(largest(seed) for seed in range(4)) < 2.5
