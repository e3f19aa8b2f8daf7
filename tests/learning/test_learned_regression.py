"""A learned regression in a file."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError, ModelError, ReleaseFileError
from bayesprivmrf.learning import LearnedRegression
from bayesprivmrf.mechanisms import PrivateLogisticRegression, SelectMeasure
from bayesprivmrf.model import Domain
from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee
from bayesprivmrf.release import Provenance

STATES = {3: ["no", "yes"], 0: [False, True], "k": [3, 1, 2], (1, 2): ["ever"]}


def fitted(target, adjacency=Adjacency.ADD_OR_REMOVE_ONE, steps=None, rng=1) -> LearnedRegression:
    draws = np.random.default_rng(5)
    data = pd.DataFrame(
        {
            v: [labels[i] for i in draws.integers(0, len(labels), 500)]
            for v, labels in STATES.items()
        }
    )
    mechanism = PrivateLogisticRegression(
        rho=1.0, radius=2.0, target=target, adjacency=adjacency, steps=steps
    )
    return mechanism.release(bpm.declare(states=STATES), data, rng=rng)


@pytest.mark.parametrize("target", [0, 3])
@pytest.mark.parametrize(
    ("adjacency", "steps"),
    [
        (Adjacency.REPLACE_ONE, None),
        (Adjacency.ADD_OR_REMOVE_ONE, None),
        (Adjacency.ADD_OR_REMOVE_ONE, 4),
    ],
)
def test_a_file_gives_the_release_back(tmp_path, target, adjacency, steps):
    path = tmp_path / "regression.release"
    before = fitted(target, adjacency, steps)
    before.save(path)
    after = bpm.load_release(path)
    assert type(after) is LearnedRegression
    assert (after.target, type(after.target)) == (target, int)
    assert after.domain == before.domain
    assert after.intercept == before.intercept
    np.testing.assert_array_equal(after.effects, before.effects)
    pd.testing.assert_series_equal(after.coefficients, before.coefficients)
    assert after.total == before.total
    assert (after.total is None) == (steps is not None and adjacency is Adjacency.ADD_OR_REMOVE_ONE)
    assert dict(after.details) == dict(before.details)
    assert after.guarantee == before.guarantee
    assert after.provenance == before.provenance
    assert repr(after) == repr(before)
    states = {v: labels[-1] for v, labels in STATES.items() if v != target}
    assert after.probability(states) == before.probability(states)


def test_an_altered_or_cut_file_is_refused(tmp_path):
    path = tmp_path / "regression.release"
    fitted(0).save(path)
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        document, array = json.loads(archive.read("release.json")), archive.read("tables.npy")
    document["content"]["target"] = 0
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("release.json", json.dumps(document))
        archive.writestr("tables.npy", array)
    with pytest.raises(ReleaseFileError, match="cut short or altered"):
        bpm.load_release(path)
    for size in (len(whole) // 2, len(whole) - 3, 2):
        path.write_bytes(whole[:size])
        with pytest.raises(ReleaseFileError):
            bpm.load_release(path)
    path.write_bytes(whole)
    assert isinstance(bpm.load_release(path), LearnedRegression)


def test_another_release_is_not_overwritten(tmp_path):
    path = tmp_path / "regression.release"
    first, second = fitted(0), fitted(0, rng=2)
    first.save(path)
    first.save(path)
    with pytest.raises(ReleaseFileError, match="overwrite=True"):
        second.save(path)
    second.save(path, overwrite=True)
    assert bpm.load_release(path).intercept == second.intercept


def test_a_target_that_is_not_declared_is_refused():
    common = {
        "domain": Domain.from_states({"a": [0, 1]}),
        "guarantee": PrivacyGuarantee(rho=1.0, adjacency=Adjacency.REPLACE_ONE),
        "provenance": Provenance(mechanism="PrivateLogisticRegression"),
        "intercept": 0.0,
    }
    with pytest.raises(ModelError, match="not declared"):
        LearnedRegression(**common, target="b", effects=np.zeros(2))
    with pytest.raises(ModelError, match="one finite number a state"):
        LearnedRegression(**common, target="a", effects=np.zeros(3))


def test_a_frame_of_records_in_place_of_one_row_is_refused_without_showing_them():
    regression = fitted(0)
    secret = pd.DataFrame({3: ["SECRET"], "k": [1], (1, 2): ["ever"]})
    with pytest.raises(ArgumentError, match="must map each variable to one state, got a DataFrame"):
        regression.probability(secret)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="has no state Series") as raised:
        regression.probability({3: secret[3], "k": 1, (1, 2): "ever"})  # type: ignore[dict-item]
    assert "SECRET" not in str(raised.value)


def test_a_learned_model_in_place_of_its_measurements_says_where_they_are():
    variables = bpm.declare(states={"a": [0, 1], "b": [0, 1]})
    data = pd.DataFrame({"a": [0, 1] * 50, "b": [0, 1] * 50})
    learned = SelectMeasure(rho=1.0, degree=1).release(variables, data, rng=1)
    for release, words in (
        (learned, r"`\.statistics`"),
        (replace(learned, statistics=None), "a model already"),
    ):
        with pytest.raises(ArgumentError, match=words):
            bpm.NaiveMLE().fit(release)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"0\.9 is for 90 %"):
        learned.couplings_interval(prob=90)
