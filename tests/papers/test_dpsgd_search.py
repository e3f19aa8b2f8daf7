"""The search over settings of DPSGD: what it releases, spends and refuses."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest
from mechanisms.contract import Account, released
from mechanisms.test_dpsgd import QUICK, frame, network

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.mechanisms import DPSGD, dpsgd
from bayesprivmrf.noise import SimulatedNoise
from bayesprivmrf.privacy import CalibratedNoise, promised_epsilon
from benchmarks.papers import dpsgd_search
from benchmarks.papers.dpsgd_search import DPSGDSearch, Trials

GRID = {"clip": [0.5, 2.0], "steps": (10, 20), "sampling_rate": [0.5]}


@pytest.mark.slow
def test_a_search_keeps_to_its_budget_over_all_trials():
    search = DPSGDSearch(epsilon=1.0, delta=1e-6, grid=GRID)
    account = Account()
    source = SimulatedNoise(np.random.default_rng(1))
    found = released(search, network(), frame(200), source, ledger=account)
    assert isinstance(found, Trials)
    assert len(found) == len(search.trials) == 4
    assert [(s["clip"], s["steps"]) for s in found.settings] == [
        (0.5, 10),
        (0.5, 20),
        (2.0, 10),
        (2.0, 20),
    ]
    assert found.guarantee.epsilon == 1.0
    assert all(release.guarantee == found.guarantee for release in found.releases)
    assert account.spent[0][0] == found.guarantee
    assert len(account.spent) == 1
    schedules = tuple(trial.schedule for trial in search.trials)
    noise = tuple(release.details["noise_multiplier"] for release in found.releases)
    count = found.releases[0].details["total_deviation"]
    spent = promised_epsilon(schedules, CalibratedNoise(steps=noise, count=count), 1e-6)
    assert 0.99 < spent <= 1 + 1e-9
    assert 0.4 < found.one_alone.epsilon < 0.7  # about the root of a fourth
    assert noise[0] > 1.7 * search.trials[0].noise_multiplier


def test_a_search_whose_trials_each_take_the_budget_states_what_all_of_them_spend():
    search = DPSGDSearch(epsilon=1.0, delta=1e-6, grid=GRID, covers="trial")
    found = search.release(network(), frame(200), rng=1)
    assert found.one_alone.epsilon == 1.0
    assert found.releases[0].details["noise_multiplier"] == pytest.approx(
        search.trials[0].noise_multiplier
    )
    assert 1.7 < found.guarantee.epsilon < 2.5
    assert all(release.guarantee == found.guarantee for release in found.releases)


@pytest.mark.parametrize("covers", ["search", "trial"])
@pytest.mark.slow
def test_what_one_trial_promises_pays_for_its_discrete_noise_too(covers, monkeypatch):
    checked = []
    for module in (dpsgd, dpsgd_search):
        monkeypatch.setattr(
            module, "require_fine_lattice", lambda *given: checked.append((given[0], *given[2:]))
        )
    grid = {"steps": [5, 20], "sampling_rate": [0.5]}
    found = DPSGDSearch(epsilon=1.0, delta=1e-6, grid=grid, covers=covers).release(
        network(), frame(9), rng=1
    )
    cells, epsilon, one_alone = (
        found.releases[0].model.size,
        found.guarantee.epsilon,
        found.one_alone.epsilon,
    )
    together = (25 * cells + 1, epsilon, 1e-6)
    alone = [(steps * cells + 1, one_alone, 1e-6) for steps in (5, 20)]
    assert one_alone < epsilon
    assert set(checked) == {together, *alone}


def test_a_preview_tells_the_number_of_records_every_ascent_and_what_all_cost():
    search = DPSGDSearch(epsilon=1.0, delta=1e-6, grid=GRID, covers="trial")
    frame = search.preview(network())
    assert list(frame) == ["step", "epsilon", "count", "noise_sd"]
    assert frame["step"].iloc[0] == "number of records"
    assert frame["count"].tolist()[1:-1] == [10, 20, 10, 20]
    assert frame["epsilon"].iloc[-1] == search.promise(network()).epsilon > 1.5
    assert frame["epsilon"].iloc[:-1].isna().all()
    one = search.trials[2]
    assert frame["noise_sd"].iloc[3] == pytest.approx(one.noise_multiplier * one.clip, rel=1e-3)
    told = one.preview(network(), total=10_000)
    assert told["relative_noise"].iloc[1] == pytest.approx(told["noise_sd"].iloc[1] / 10_000)
    assert 0 < told["smallest_coupling"].iloc[1] < 1


def test_a_search_of_one_trial_is_that_trial():
    search = DPSGDSearch(epsilon=1.0, delta=1e-6, grid={"steps": [20], "sampling_rate": [0.5]})
    found = search.release(network(), frame(200), rng=1)
    alone = DPSGD(**QUICK).release(network(), frame(200), rng=1)
    np.testing.assert_array_equal(found.releases[0].potentials.flat, alone.potentials.flat)
    assert found.one_alone.epsilon == pytest.approx(1.0, abs=0.01)


@pytest.mark.slow
def test_the_best_trial_is_that_of_the_highest_score():
    found = DPSGDSearch(
        epsilon=1.0, delta=1e-6, grid={"learning_rate": [1e-6, 0.5]} | GRID
    ).release(network(), frame(3000), rng=1)
    public = frame(500, seed=9)
    best = found.best(lambda release: bpm.holdout_log_likelihood(release, public))
    assert best.details["learning_rate"] == 0.5
    assert "SIMULATED" in repr(found)
    assert "epsilon = 1, delta" in repr(
        dataclasses.replace(
            found,
            releases=tuple(
                dataclasses.replace(
                    r, provenance=dataclasses.replace(r.provenance, simulated=False)
                )
                for r in found.releases
            ),
        )
    )


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"grid": {}}, "grid"),
        ({"grid": [1]}, "grid"),
        ({"grid": {"clips": [1.0]}}, "grid"),
        ({"grid": {"epsilon": [1.0]}}, "grid"),
        ({"grid": {"clip": []}}, "grid"),
        ({"grid": {"clip": 1.0}}, "grid"),
        ({"grid": {"clip": [1.0, -1.0]}}, "clip"),
        ({"covers": "nothing"}, "covers"),
        ({"epsilon": -1.0}, "epsilon"),
    ],
)
def test_a_search_out_of_range_is_refused(settings, named):
    with pytest.raises(ArgumentError, match=f"`{named}` must"):
        DPSGDSearch(**{"epsilon": 1.0, "delta": 1e-6, "grid": {"clip": [1.0]}} | settings)


@pytest.mark.parametrize(
    ("module", "name"), [("mechanisms", "DPSGDSearch"), ("learning", "Trials")]
)
def test_the_package_says_where_the_search_is(module, name):
    with pytest.raises(ImportError, match=r"benchmarks/papers/dpsgd_search.py"):
        getattr(importlib.import_module(f"bayesprivmrf.{module}"), name)
