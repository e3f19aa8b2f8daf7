"""The mode where noisy means are what no model could have."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.learning import select_measure
from bayesprivmrf.learning.reweighted_fit import reweighted_fit
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.mechanisms import SelectMeasure
from bayesprivmrf.model.effects import Effects

CARDS, SCOPES = (2, 3, 2), ((0, 1), (1, 2), (0,), (1,), (2,))


def covariance_of(effects, beta):
    engine = marginal_engine(effects.cardinalities, effects.scopes)
    product = engine.linearize(effects.potentials(beta))[2]
    return np.array([effects.pull_back(product(effects.potentials(row))) for row in np.eye(effects.size)])


@pytest.mark.parametrize("inference", ["exact", "gibbs"])
def test_the_mode_solves_its_equation(inference):
    effects = Effects.of(CARDS, SCOPES)
    rng = np.random.default_rng(1)
    beta = rng.normal(0, 0.7, effects.size)
    engine = marginal_engine(CARDS, effects.scopes)
    noises, total, prior = rng.uniform(1e-5, 1e-3, effects.size), 1e4, 2.0
    means = effects.pull_back(engine.marginals(effects.potentials(beta))[1])
    means += rng.normal(0, noises**0.5)
    fit = reweighted_fit(effects, means, noises, total, prior, np.random.default_rng(2), inference)
    assert fit.status == {"exact": "converged", "gibbs": "approximate"}[inference]
    found = fit.coordinates
    covariance = covariance_of(effects, found)
    pull = (found / total + noises * np.linalg.solve(covariance, found)) / prior**2
    off = means - effects.pull_back(engine.marginals(effects.potentials(found))[1]) - pull
    # P is that of a sample of 20,000 draws: it errs by some per cent of itself; means of 20 rounds of 16,384 draws
    assert np.abs(off).max() < 0.15 * np.abs(pull).max() + (0.0 if inference == "exact" else 0.004)


def nested(records: int, seed: int) -> pd.DataFrame:
    """Six indicators that depend on each other strongly; hardly anybody has the second without the first."""
    rng = np.random.default_rng(seed)
    severity = rng.normal(size=records)
    columns = {f"q{k}": severity + 0.6 * rng.normal(size=records) > 0.3 * k for k in range(6)}
    columns["q1"] = columns["q0"] & columns["q1"]
    return pd.DataFrame(columns).astype(int)


def test_a_rare_event_made_impossible_by_noise_has_a_moderate_estimate(monkeypatch):
    data = nested(5_000, 1)
    network = bpm.declare(states={name: [0, 1] for name in data})
    mechanism = SelectMeasure(rho=0.01, degree=5)

    def largest(seed: int) -> float:
        learnt = mechanism.release(network, data, rng=seed)
        assert learnt.status == "converged"
        return float(np.abs(learnt.coupling_matrix).max())

    assert max(largest(seed) for seed in range(8)) < 2.5
    monkeypatch.setattr(select_measure, "needs_reweighting", lambda *_: False)
    assert (
        max(float(np.abs(mechanism.release(network, data, rng=s).coupling_matrix).max()) for s in range(8))
        > 10
    )
