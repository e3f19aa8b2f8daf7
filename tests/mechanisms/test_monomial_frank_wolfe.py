"""`PrivateFrankWolfe` for interactions of three two-state variables."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from repeats import few

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError
from bayesprivmrf.learning import LearnedMonomials
from bayesprivmrf.learning.select_measure import singles_sensitivity
from bayesprivmrf.mechanisms import PrivateFrankWolfe, promised_loss
from bayesprivmrf.privacy import Adjacency, parity_l2_sensitivity, step_rho

NAMES = ("z", 0, "a", 7)


def frame(records: int) -> pd.DataFrame:
    """The product of the first three is mostly +1, the last variable is mostly "b" and alone."""
    rng = np.random.default_rng(1)
    spins = rng.choice([-1, 1], (records, 4))
    spins[:, 2] = np.where(rng.random(records) < 0.8, 1, -1) * spins[:, 0] * spins[:, 1]
    spins[:, 3] = np.where(rng.random(records) < 0.65, 1, -1)
    return pd.DataFrame({name: np.where(spins[:, v] > 0, "b", "c") for v, name in enumerate(NAMES)})


def network(cliques=None):
    return bpm.declare(states={name: ["c", "b"] for name in NAMES}, cliques=cliques)


@pytest.mark.parametrize("target", ["l1", "linf"])
@pytest.mark.parametrize("adjacency", ["add-or-remove-one", "replace-one"])
def test_the_triple_is_learned(target, adjacency):
    mechanism = PrivateFrankWolfe(rho=5.0, width=1.0, order=3, target=target, adjacency=adjacency)
    learned = mechanism.release(network(), frame(50_000), rng=2)
    assert isinstance(learned, LearnedMonomials)
    assert list(learned.monomials.index) == [
        t for k in (1, 2, 3) for t in itertools.combinations(NAMES, k)
    ]
    assert learned.monomials["z", 0, "a"] == pytest.approx(math.atanh(0.6), abs=0.06)
    assert learned.monomials[(7,)] == pytest.approx(math.atanh(0.3), abs=0.06)
    others = learned.monomials.drop([("z", 0, "a"), (7,)])
    assert others.abs().max() < (0.06 if target == "l1" else 0.2)
    assert set(learned.graph(0.25).edges) >= {("z", 0), ("z", "a"), (0, "a")}
    assert learned.guarantee.rho == 5.0
    assert learned.details["steps"] >= 10
    assert (learned.total == 50_000) or adjacency == "add-or-remove-one"
    assert "protects nobody" in repr(learned)


@pytest.mark.parametrize("target", few(["l1", "linf"]))
def test_a_learned_model_keeps_its_map_in_a_file_and_has_intervals(tmp_path, target):
    mechanism = PrivateFrankWolfe(rho=2.0, width=1.0, order=3, target=target)
    learned = mechanism.release(network(), frame(2_000), rng=2)
    learned.save(tmp_path / "model.release")
    again = bpm.load_release(tmp_path / "model.release")
    assert again.monomials.equals(learned.monomials)
    assert again.total_noise == learned.total_noise is not None
    found = again.couplings_interval(rng=1, replicates=2)
    assert found.equals(learned.couplings_interval(rng=1, replicates=2))
    assert (found["upper"] > found["lower"]).any()
    assert len(again.sample(7, rng=1)) == 7


def test_declared_cliques_bound_what_is_learned():
    learned = PrivateFrankWolfe(rho=1.0, width=1.0, order=3, steps=20).release(
        network([("z", 0, "a"), ("a", 7)]), frame(500), rng=1
    )
    assert set(learned.monomials.index) == {
        *((v,) for v in NAMES),
        ("z", 0),
        ("z", "a"),
        (0, "a"),
        ("z", 0, "a"),
        ("a", 7),
    }


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("target", ["l1", "linf"])
@pytest.mark.parametrize("steps", [None, 30])
def test_regressions_parities_and_the_total_cost_the_budget_together(adjacency, target, steps):
    mechanism = PrivateFrankWolfe(
        rho=0.3, width=1.0, order=3, target=target, adjacency=adjacency, steps=steps
    )
    learned = mechanism.release(network(), frame(50), rng=1)
    bought, fitted = learned.total_noise, learned.map
    spent = Fraction(0) if bought is None else promised_loss([bought], 1.0)
    if fitted.parity_law is not None:
        has_total = adjacency is Adjacency.REPLACE_ONE or bought is not None
        sensitivity = parity_l2_sensitivity(fitted.features, adjacency, with_empty=not has_total)
        spent += promised_loss([fitted.parity_law], sensitivity)
    spent += promised_loss(
        [fitted.singles], singles_sensitivity((2,) * len(NAMES), "moments", adjacency)
    )
    for used in (10, 30, 400):
        cost = step_rho(fitted.exposure, fitted.multiple(used), used, adjacency)
        assert 0.999 * 0.3 < spent + Fraction(cost) <= Fraction(0.3)
    assert mechanism.promise(network()).rho == 0.3


def test_a_release_without_records_or_seed_is_made():
    mechanism = PrivateFrankWolfe(
        rho=1.0, width=1.0, order=3, target="linf", steps=10, single_share=0
    )
    learned = mechanism.release(network(), frame(0))
    assert not learned.provenance.simulated
    assert np.isfinite(learned.monomials).all()


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"order": 1}, "order"),
        ({"order": 3.0}, "order"),
        ({"order": True}, "order"),
        ({"target": "l2"}, "target"),
        ({"order": 2, "target": "linf"}, "order of 3 or more"),
        ({"width": 0.0}, "width"),
        ({"width": math.nan}, "width"),
        ({"steps": 0}, "steps"),
    ],
)
def test_settings_out_of_range_are_refused(settings, match):
    with pytest.raises(ArgumentError, match=match):
        PrivateFrankWolfe(**{"rho": 1.0, "width": 1.0, "order": 3, **settings})


def test_what_does_not_fit_is_refused_before_the_records_are_read():
    with pytest.raises(ArgumentError, match="order"):
        PrivateFrankWolfe(rho=1.0, width=1.0, order=5).release(network(), None)
    three = bpm.declare(states={"a": [0, 1], "b": [0, 1, 2], "c": [0, 1]})
    with pytest.raises(ModelError, match="two states"):
        PrivateFrankWolfe(rho=1.0, width=1.0, order=3).release(three, None)
    many = bpm.declare(states={v: [0, 1] for v in range(120)})
    with pytest.raises(ModelTooLargeError, match="smaller order"):
        PrivateFrankWolfe(rho=1.0, width=1.0, order=5).release(many, None)
