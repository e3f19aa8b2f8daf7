"""What every mechanism has: a release, a promise that it keeps, and a preview, none of the last two with data."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import mechanisms
from bayesprivmrf.errors import ArgumentError, DeclarationWarning
from bayesprivmrf.mechanisms import LaplaceStatistics, Mechanism, available_mechanisms
from bayesprivmrf.network import IsingNetwork

NETWORK = bpm.declare(
    states={v: [0, 1] for v in "abcd"}, cliques=[("a", "b"), ("b", "c"), ("c", "d")]
)
DATA = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (500, 4)), columns=list("abcd"))
RING = IsingNetwork.from_graph([(i, (i + 1) % 60) for i in range(60)])
ASCENT = {"epsilon": 1.0, "delta": 1e-5}
SETTINGS = {
    "DPSGD": {**ASCENT, "steps": 5},
    "ExactStatistics": {},
    "GaussianStatistics": {"rho": 0.5},
    "LaplaceStatistics": {"epsilon": 1.0},
    "ObjectivePerturbation": {"epsilon": 2.0, "delta": 1e-3},
    "ParityQueries": {"rho": 1.0, "order": 2},
    "PrivateFrankWolfe": {"rho": 1.0, "width": 1.0},
    "PrivateLogisticRegression": {"rho": 1.0, "radius": 2.0, "target": "a"},
    "SelectMeasure": {"rho": 1.0},
    "StableStructure": {"epsilon": 1.0, "delta": 1e-6},
}
EVERY = pytest.mark.parametrize("name", SETTINGS)
pytestmark = pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")


def made(name: str) -> Mechanism:
    return getattr(mechanisms, name)(**SETTINGS[name])


def public(name: str):
    return RING if name == "ObjectivePerturbation" else NETWORK


def test_every_mechanism_is_among_these():
    kinds = [
        kind for name in mechanisms.__all__ if isinstance(kind := getattr(mechanisms, name), type)
    ]
    ours = {kind.__name__ for kind in kinds if issubclass(kind, Mechanism)}
    assert ours - {"Mechanism", "StatisticsMechanism"} == set(SETTINGS)
    assert {kind.__name__ for kind in available_mechanisms().values()} <= set(SETTINGS)


@EVERY
def test_what_is_promised_beforehand_is_what_a_release_states(name):
    data = np.ones(60, dtype=int) if name == "ObjectivePerturbation" else DATA
    promised = made(name).promise(public(name))
    assert promised == made(name).release(public(name), data, rng=1).guarantee
    assert (promised is None) == (name == "ExactStatistics")


@EVERY
def test_a_preview_has_a_row_for_each_step_or_table_and_adds_up_to_the_promise(name):
    frame = made(name).preview(public(name), total=60)
    assert len(frame) >= 1
    assert frame.columns[0] in ("step", "clique")
    promised = made(name).promise(public(name))
    for cost in {"rho", "epsilon"} & set(frame):
        assert frame[cost].sum() == pytest.approx(getattr(promised, cost), rel=1e-12)


@EVERY
def test_what_no_release_could_be_made_of_has_no_promise_and_no_preview(name):
    for asked in (made(name).promise, made(name).preview):
        with pytest.raises(bpm.errors.BayesPrivMRFError):
            asked("no network")


class Bare(Mechanism):
    """A plug-in that says nothing of its steps."""

    def _prepare(self, network):
        return network

    def _guarantee(self, plan):
        return bpm.PrivacyGuarantee(epsilon=3.0, adjacency="replace-one")

    def _read(self, plan, data):
        raise AssertionError("the data was looked at")

    _randomise = _read


def test_a_plug_in_without_a_preview_of_its_own_has_one_row_with_its_cost():
    frame = Bare().preview("anything", total=10)
    assert frame[["step", "epsilon"]].to_dict(orient="records") == [
        {"step": "release", "epsilon": 3.0}
    ]
    with pytest.raises(ArgumentError, match="`total`"):
        Bare().preview("anything", total=-1)


def test_a_promise_leaves_warnings_of_the_declaration_to_preview_and_release():
    names = [f"v{i}" for i in range(40)]
    wide = bpm.declare(
        states={name: [0, 1] for name in names},
        cliques=[(a, b) for a in names for b in names if a < b],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LaplaceStatistics(epsilon=1.0).promise(wide).epsilon == 1.0
    with pytest.warns(DeclarationWarning, match="inference='loopy' only"):
        LaplaceStatistics(epsilon=1.0).preview(wide)
