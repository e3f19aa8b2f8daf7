"""`PrivateLogisticRegression`: recovery, its cost, what is refused."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.mechanisms import PrivateLogisticRegression
from bayesprivmrf.privacy import Adjacency, Exposure, step_rho

STATES = {0: ["n", "y"], "k": [3, 1, 2], "ill": ["no", "yes"], "idle": ["a", "b"], "one": ["ever"]}


def frame(records: int) -> pd.DataFrame:
    """Log-odds of being ill: -0.5, +-1 by variable 0, 0.6 and -0.6 by two states of k."""
    rng = np.random.default_rng(1)
    zero, k = rng.integers(0, 2, records), rng.integers(0, 3, records)
    log_odds = -0.5 + np.array([-1.0, 1.0])[zero] + np.array([0.6, 0.0, -0.6])[k]
    ill = rng.random(records) < 1 / (1 + np.exp(-log_odds))
    return pd.DataFrame(
        {
            0: np.array(["n", "y"])[zero],
            "k": np.array([3, 1, 2])[k],
            "ill": np.where(ill, "yes", "no"),
            "idle": rng.choice(["a", "b"], records),
            "one": "ever",
        }
    )


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_log_odds_are_learned(adjacency):
    mechanism = PrivateLogisticRegression(rho=1.0, radius=3.0, target="ill", adjacency=adjacency)
    fitted = mechanism.release(bpm.declare(states=STATES), frame(30_000), rng=2)
    w = fitted.coefficients
    assert w[0, "y"] == pytest.approx(1.0, abs=0.12) == -w[0, "n"]
    assert w["k", 3] == pytest.approx(0.6, abs=0.15)
    assert w["k", 2] == pytest.approx(-0.6, abs=0.15)
    assert abs(w["idle", "b"]) < 0.1
    assert w["one", "ever"] == 0
    assert "ill" not in w.index.get_level_values(0)
    assert fitted.intercept == pytest.approx(-0.5, abs=0.12)
    states = {0: "y", "k": 3, "idle": "a", "one": "ever"}
    assert fitted.probability(states) == pytest.approx(1 / (1 + math.exp(-1.1)), abs=0.05)
    assert fitted.guarantee.rho == 1.0
    assert fitted.guarantee.adjacency is adjacency
    assert "protects nobody" in repr(fitted)


def test_memory_does_not_grow_with_the_square_of_the_variables():
    names = [f"v{i}" for i in range(700)]
    records = pd.DataFrame(np.random.default_rng(3).integers(0, 2, (50, 700)), columns=names)
    network = bpm.declare(states={name: [0, 1] for name in names})
    mechanism = PrivateLogisticRegression(rho=1.0, radius=1.0, target="v0", steps=2)
    mechanism.release(network, records, rng=1)
    tracemalloc.start()
    mechanism.release(network, records, rng=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 1400**2  # a table of all pairs of states


def test_one_regression_is_paid_for():
    mechanism = PrivateLogisticRegression(rho=0.5, radius=2.0, target="ill", steps=30)
    fitted = mechanism.release(bpm.declare(states=STATES), frame(100), rng=3)
    multiple = fitted.details["noise_multiple"]
    paid = step_rho(Exposure.of_logistic(1), multiple, 30, Adjacency.ADD_OR_REMOVE_ONE)
    assert 0.4999 < paid <= 0.5
    assert np.abs(fitted.coefficients).max() <= 2.0


def test_an_incomplete_or_undeclared_state_is_refused():
    fitted = PrivateLogisticRegression(rho=0.5, radius=2.0, target="ill", steps=3).release(
        bpm.declare(states=STATES), frame(100), rng=4
    )
    with pytest.raises(ArgumentError, match="'k'"):
        fitted.probability({0: "y", "idle": "a", "one": "ever"})
    with pytest.raises(ModelError, match="no state"):
        fitted.probability({0: "y", "k": 17, "idle": "a", "one": "ever"})


@pytest.mark.parametrize(
    "settings", [{"radius": 0.0}, {"radius": math.nan}, {"steps": 0}, {"rho": -1.0}]
)
def test_bad_settings_are_refused(settings):
    with pytest.raises(ArgumentError, match=next(iter(settings))):
        PrivateLogisticRegression(**{"rho": 1.0, "radius": 1.0, "target": "ill"} | settings)


@pytest.mark.parametrize(("target", "message"), [("k", "two states"), ("absent", "not declared")])
def test_a_target_that_is_no_declared_coin_is_refused_before_data_is_read(target, message):
    with pytest.raises(ModelError, match=message):
        PrivateLogisticRegression(rho=1.0, radius=1.0, target=target).release(
            bpm.declare(states=STATES), None
        )
