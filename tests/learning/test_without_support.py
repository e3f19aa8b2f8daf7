"""Parameters that no released number determines: those of a constant column, and of a state that nobody has."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import mechanisms
from bayesprivmrf.mechanisms import (
    DPSGD,
    ParityQueries,
    PrivateFrankWolfe,
    PrivateLogisticRegression,
    SelectMeasure,
    StableStructure,
)
from benchmarks.papers.dpsgd_search import DPSGDSearch
from benchmarks.papers.frank_wolfe import PaperFrankWolfe

pytestmark = pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
RECORDS = 500
ASCENT = {"epsilon": 1.0, "delta": 1e-5}
WITH_INTERVALS = {
    "Frank-Wolfe, linearised": PrivateFrankWolfe(rho=0.5, width=12),
    "Frank-Wolfe, calibrated": PrivateFrankWolfe(rho=0.5, width=2),
    "Frank-Wolfe, no single variables": PrivateFrankWolfe(rho=0.5, width=6, single_share=0),
    "Frank-Wolfe, the paper's": PaperFrankWolfe(rho=0.5, width=6, steps=4),
    "Frank-Wolfe, order 3": PrivateFrankWolfe(rho=0.5, width=6, order=3),
    "Frank-Wolfe, parities": PrivateFrankWolfe(rho=0.5, width=6, order=3, target="linf"),
    "moments": SelectMeasure(rho=0.5, degree=2),
    "tables": SelectMeasure(rho=0.5, degree=2, measure="tables"),
    "parities": ParityQueries(rho=0.5, order=2),
}
OF_MORE_STATES = {
    "Frank-Wolfe, softmax": PrivateFrankWolfe(rho=0.5, width=6),
    "Frank-Wolfe, pairs of states": PrivateFrankWolfe(rho=0.5, width=6, method="pairs"),
    "tables": SelectMeasure(rho=0.5, degree=2),
}
QUICK = {"Frank-Wolfe, linearised", "moments", "tables"}
WITHOUT_INTERVALS = {
    "rounds": SelectMeasure(rho=0.5),
    "multiplicative weights": ParityQueries(rho=0.5, order=2, method="pmw"),
    "regression": PrivateLogisticRegression(rho=0.5, radius=2.0, target="a"),
    "gradient ascent": DPSGD(**ASCENT, steps=5),
    "search": DPSGDSearch(**ASCENT, grid={"steps": [3, 5]}, covers="trial"),
}


def quickly(learners):
    """Names of learners; those whose intervals simulate releases are slow."""
    return [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in learners
    ]


def records(last: tuple[int, ...], size: int = RECORDS) -> pd.DataFrame:
    """Three dependent columns, and one that has some of its states alone."""
    generator = np.random.default_rng(0)
    base = generator.random(size) > 0.5
    data = {v: (base ^ (generator.random(size) < 0.25)).astype(int) for v in "abc"}
    return pd.DataFrame(data | {"e": generator.choice(last, size)})


CONSTANT = records((0,))
NETWORK = bpm.declare(states={v: [0, 1] for v in "abce"})
PARTLY = records((0, 1))
OF_THREE = bpm.declare(states={**{v: [0, 1] for v in "abc"}, "e": [0, 1, 2]})


def learned(mechanism, network=NETWORK, data=CONSTANT):
    release = mechanism.release(network, data, rng=3)
    return release.fit() if hasattr(release, "fit") else release


def told_nothing(frame: pd.DataFrame) -> np.ndarray:
    return np.isneginf(frame["lower"]) & np.isposinf(frame["upper"]) | (frame["status"] != "ok")


def having(frame: pd.DataFrame, label) -> np.ndarray:
    return np.array([label in (key if isinstance(key, tuple) else (key,)) for key in frame.index])


def test_every_learner_is_among_these():
    kinds = {
        type(one)
        for group in (WITH_INTERVALS, OF_MORE_STATES, WITHOUT_INTERVALS)
        for one in group.values()
    }
    named = [
        kind for name in mechanisms.__all__ if isinstance(kind := getattr(mechanisms, name), type)
    ]
    learners = {
        kind for kind in named if issubclass(kind, mechanisms.record_mechanisms.LearningMechanism)
    }
    assert learners - {mechanisms.record_mechanisms.LearningMechanism} <= kinds | {StableStructure}


@pytest.mark.parametrize("name", quickly(WITH_INTERVALS))
def test_a_coupling_with_a_constant_column_is_endless_or_marked(name):
    model = learned(
        WITH_INTERVALS[name], data=records((0,), 2000) if "linear" in name else CONSTANT
    )
    counts_states = model.unsupported is not None
    for of in ("couplings", "fields"):
        frame = model.couplings_interval(rng=1, replicates=4, of=of)
        rows = having(frame, "e")
        assert rows.any()
        assert told_nothing(frame)[rows].all()
        if counts_states:
            assert np.isinf(frame.loc[rows, ["lower", "upper"]]).all(axis=None)
            if of == "couplings" and name in QUICK:
                assert np.isfinite(frame.loc[~rows, ["lower", "upper"]]).all(axis=None)
        if of == "fields" and counts_states:
            assert (
                frame["status"] != "ok"
            ).all()  # a field of another variable moves with such a coupling
    assert model.unsupported_states == ({"e": (1,)} if counts_states else {})
    assert "support" in str(model)


@pytest.mark.parametrize("name", quickly(OF_MORE_STATES))
def test_a_state_that_nobody_has_leaves_its_own_entries_endless_and_marks_those_centred_over_it(
    name,
):
    model = learned(OF_MORE_STATES[name], OF_THREE, PARTLY)
    assert model.unsupported_states == {"e": (2,)}
    for of in ("couplings", "fields"):
        frame = model.couplings_interval(rng=1, replicates=4, of=of)
        levels = [level for level in frame.index.names if "state" in level]
        variables = [
            level.replace("state", "variable").replace("other_variable", "other")
            for level in levels
        ]
        keys = frame.index.to_frame()
        is_own = np.zeros(len(frame), dtype=bool)
        for variable, state in zip(variables, levels, strict=True):
            is_own |= ((keys[variable] == "e") & (keys[state] == 2)).to_numpy()
        assert np.isinf(frame.loc[is_own, ["lower", "upper"]]).all(axis=None)
        assert (frame.loc[having(frame, "e"), "status"] != "ok").all()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "search" else ())
        for name in WITHOUT_INTERVALS
    ],
)
def test_a_model_without_intervals_says_in_print_what_is_known_of_support(name):
    network = bpm.declare(
        states={v: [0, 1] for v in "abce"}, cliques=[("a", "b"), ("b", "c"), ("c", "e")]
    )
    model = learned(WITHOUT_INTERVALS[name], network)
    for one in getattr(model, "releases", (model,)):
        assert "support" in str(one)


def test_no_edge_ends_at_a_constant_column():
    found = StableStructure(epsilon=20.0, delta=1e-3, structure="graph").release(
        NETWORK, CONSTANT, rng=3
    )
    assert found.edges
    assert not any("e" in edge for edge in found.edges)
    assert (
        PrivateFrankWolfe(rho=0.5, width=12).release(NETWORK, CONSTANT, rng=3).graph().degree["e"]
        == 0
    )


def test_a_file_keeps_the_states_without_support(tmp_path):
    for mechanism in (
        SelectMeasure(rho=0.5, degree=2),
        SelectMeasure(rho=0.5),
        ParityQueries(rho=0.5, order=2),
    ):
        model = learned(mechanism)
        model.save(tmp_path / "a.release", overwrite=True)
        again = bpm.load_release(tmp_path / "a.release")
        assert again.unsupported_states == model.unsupported_states == {"e": (1,)}


def test_columns_whose_states_all_have_records_are_told_as_before():
    data = CONSTANT.assign(e=1 - CONSTANT["a"].to_numpy())
    model = learned(SelectMeasure(rho=0.5, degree=2), NETWORK, data)
    assert model.unsupported_states == {}
    assert "support" not in str(model)
    frame = model.couplings_interval(rng=1)
    is_finite = np.isfinite(frame["lower"]) & np.isfinite(frame["upper"])
    assert (frame.loc[is_finite, "status"] == "ok").all()
    # e copies a, so the numbers bound no coupling of either
    assert not is_finite["a", "e"]
    assert (frame.loc[~is_finite, "status"] == "doubtful").all()
    assert frame.loc[~is_finite, "note"].str.contains("no finite limit").all()
    assert not frame.loc[~is_finite, "note"].str.contains("linearised").any()
