"""Estimators of other packages as methods of `fit` and of `compare`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cli.toy import RELEASE, Halved, run

from bayesprivmrf.cli import main
from bayesprivmrf.errors import (
    ArgumentError,
)


def test_an_installed_estimator_is_a_method_of_fit_and_of_compare(toy, capsys, install):
    install("bayesprivmrf.estimators", {"halved": Halved})
    assert run(capsys, *RELEASE)[0] == 0
    code, out, _ = run(capsys, "fit", "toy.release", "--method", "halved", "--json")
    assert code == 0
    found = json.loads(out)
    naive = json.loads(run(capsys, "fit", "toy.release", "--method", "naive-mle", "--json")[1])
    assert found["method"] == "halved"
    for table, own in zip(naive["marginals"], found["marginals"], strict=True):
        assert np.ptp(own["estimate"]) < np.ptp(table["estimate"])
    compared = ("compare", "data.csv", "--model", "model.toml", "--epsilon", "2", "--seed", "3")
    code, out, _ = run(capsys, *compared, "--methods", "halved", "cgm")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if line.startswith(("CGM", "halved"))] == [
        "CGM",
        "halved",
    ]
    for option in (("--seed", "1"), ("--prob", "0.5"), ("--inference", "loopy")):
        with pytest.raises(SystemExit):
            main(("fit", "toy.release", "--method", "halved", *option))
    capsys.readouterr()
    install("bayesprivmrf.estimators", {"cgm": Halved})
    code, _, err = run(capsys, "fit", "toy.release", "--method", "cgm")
    assert code == 1
    assert "two packages bring an estimator named 'cgm'" in err
    install("bayesprivmrf.estimators", {"halved": len})
    code, _, err = run(capsys, "fit", "toy.release", "--method", "halved")
    assert code == 1
    assert "must be a class with `fit(release)`" in err


class Failing:
    def fit(self, releases):
        raise ValueError(f"no {type(releases).__name__}")


class Refusing:
    def fit(self, releases):
        raise ArgumentError("it takes nothing")


class Nothing:
    def fit(self, releases):
        return None


def test_an_installed_estimator_that_fails_is_named_and_costs_no_other_method_its_row(
    toy, capsys, install
):
    classes = {"failing": Failing, "nothing": Nothing, "refusing": Refusing}
    install("bayesprivmrf.estimators", classes)
    assert run(capsys, *RELEASE)[0] == 0
    for name, words in (
        (
            "failing",
            "the method 'failing' failed with ValueError: no NoisyStatistics; correct or remove",
        ),
        ("nothing", "must return a Solution, got NoneType"),
        ("refusing", "it takes nothing"),
    ):
        code, _, err = run(capsys, "fit", "toy.release", "--method", name)
        assert code == 1
        assert words in err
    compared = (
        "compare",
        "data.csv",
        "--model",
        "model.toml",
        "--epsilon",
        "2",
        "--seed",
        "3",
        "--json",
    )
    code, out, err = run(capsys, *compared, "--methods", "failing", "nothing", "refusing", "cgm")
    assert code == 0
    statuses = {row["method"]: row["status"] for row in json.loads(out)["results"]}
    assert [statuses.pop(name) for name in ("failing", "nothing", "refusing")] == ["failed"] * 3
    assert statuses["cgm"] != "failed"
    assert "No failing: it failed with ValueError" in err
    assert "no NoisyStatistics" not in err
    install("bayesprivmrf.estimators", {"broken": len, "cgm": Failing})
    code, out, err = run(capsys, *compared, "--quick")
    assert code == 0, err
    assert {"uniform", "mle", "naive-mle", "noise-aware"} == {
        row["method"] for row in json.loads(out)["results"]
    }
    assert "`compare` leaves 'broken' out" in err
    assert (
        "two packages bring an estimator named 'cgm'; remove one. `compare` leaves 'cgm' out" in err
    )
