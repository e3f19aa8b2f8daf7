"""`bayesprivmrf test`: hypotheses about a saved release."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cli.toy import RELEASE, run

from bayesprivmrf import analysis
from bayesprivmrf.release import load_release

FEW = ("--draws", "99", "--seed", "1")
NAMES = {"statistic", "df", "p_value", "mc_error", "status", "note", "method", "seed", "expected"}


@pytest.fixture
def release(toy, capsys):
    assert run(capsys, *RELEASE)[0] == 0
    return load_release("toy.release")


def test_it_prints_what_python_finds(release, capsys):
    question = ("test", "toy.release", "independence", "a", "b", *FEW)
    code, out, _ = run(capsys, *question, "--json")
    found = json.loads(out)
    expected = analysis.independence_test(release, "a", "b", draws=99, rng=1)
    assert code == 0
    assert set(found) >= NAMES
    assert found["statistic"] == pytest.approx(expected.statistic)
    assert found["p_value"] == expected.p_value == 0.01
    assert np.array(found["expected"]) == pytest.approx(expected.expected)
    code, out, _ = run(capsys, *question)
    assert code == 0
    assert "Status: ok" in out
    assert "Seed: 1." in out


@pytest.mark.parametrize("kind", [("groups", "a", "b"), ("groups", "c", "b")])
def test_other_hypotheses_are_asked_alike(release, capsys, kind):
    code, out, _ = run(capsys, "test", "toy.release", *kind, *FEW, "--json")
    assert code == 0
    assert 0 < json.loads(out)["p_value"] <= 1


def test_a_model_file_is_tested_for_its_fit(release, toy, capsys):
    text = (toy / "model.toml").read_text().replace('["a", "b"]', '["a"], ["b"]')
    (toy / "smaller.toml").write_text(text)
    fit = ("test", "toy.release", "fit", "--model", "smaller.toml", *FEW, "--json")
    code, out, _ = run(capsys, *fit)
    assert code == 0
    assert json.loads(out)["p_value"] == 0.01


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (("independence", "a"), "two variables"),
        (("independence", "a", "height"), "not declared"),
        (("independence", "a", "c"), "release the joint table"),
        (("fit",), "--model"),
        (("groups",), "tells the groups"),
        (("symmetry", "a", "b"), "have the states"),
        (("equal-odds", "a", "b"), "at least one variable"),
        (("homogeneity",), "have the states"),
        (("stationarity", "a"), "at least two"),
        (("independence", "a", "b", "c"), "third variable by --given"),
        (("groups", "a", "--given", "b"), "independence and equal-odds only"),
        (("stationarity", "--given", "b"), "got it with stationarity"),
        (("independence", "a", "b", "--model", "model.toml"), "fit only"),
        (("fit", "a", "--model", "model.toml"), "name no variables"),
    ],
)
def test_odd_questions_end_in_one_line(release, capsys, question, reason):
    code, _, err = run(capsys, "test", "toy.release", *question, *FEW)
    assert code == 1
    assert reason in err
    assert err.count("\n") == 1
