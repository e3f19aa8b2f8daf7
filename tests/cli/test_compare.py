"""`bayesprivmrf compare`: scores of every method, its advice, and installed estimators."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
from cli.toy import MODEL, QUICK, RECORDS, WIDE_MODEL, Halved, run, wide_frame

import bayesprivmrf as bpm
from bayesprivmrf.cli import compare, main
from bayesprivmrf.errors import (
    ModelTooLargeError,
)
from bayesprivmrf.inference import Status


def test_compare_on_own_data_is_reproducible_and_scores_every_method(toy, capsys):
    arguments = (
        "compare",
        "data.csv",
        "--model",
        "model.toml",
        "--epsilon",
        "0.5",
        "4",
        "--seed",
        "3",
        "--json",
        *QUICK,
    )
    first, second = (json.loads(run(capsys, *arguments)[1]) for _ in range(2))
    assert set(first) == {"data", "results", "guarantees"}
    columns = ["epsilon", "method", "holdout_log_likelihood", "kl_divergence", "seconds", "status"]
    assert [list(row) for row in first["results"]] == [columns] * 6
    assert [(row["epsilon"], row["method"]) for row in first["results"]] == [
        (None, "uniform"),
        (None, "mle"),
        (0.5, "naive-mle"),
        (0.5, "cgm"),
        (4.0, "naive-mle"),
        (4.0, "cgm"),
    ]
    score = [row["holdout_log_likelihood"] for row in first["results"]]
    assert score == [row["holdout_log_likelihood"] for row in second["results"]]
    assert score[0] == pytest.approx(-math.log(2 * 2 * 3))
    assert score[1] > score[0] + 0.05
    assert [guarantee["epsilon"] for guarantee in first["guarantees"]] == [0.5, 4.0]
    assert all(guarantee["simulated"] for guarantee in first["guarantees"])
    assert first["data"]["train"] + first["data"]["test"] == RECORDS


def test_compare_draws_and_prints_a_seed_and_says_that_it_is_no_release(toy, capsys):
    base = ("compare", "data.csv", "--model", "model.toml", "--epsilon", "1", *QUICK)
    seeds = {json.loads(run(capsys, *base, "--json")[1])["data"]["seed"] for _ in range(2)}
    assert len(seeds) == 2
    code, out, _ = run(capsys, *base, "--seed", "8", "--out", "found")
    assert code == 0
    assert "seed 8" in out
    assert "not a release" in out
    assert "CGM" in out
    table = pd.read_csv(toy / "found" / "comparison.csv")
    # each file says by itself that it is no release
    assert set(table["note"]) == {compare.NOTE}
    written = json.loads((toy / "found" / "comparison.json").read_text())
    assert len(table) == len(written["results"]) == 4
    assert written["data"]["note"] == compare.NOTE
    picture = (toy / "found" / "comparison.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert compare.NOTE.encode() in picture


def test_compare_marks_the_best_of_each_epsilon_and_ends_with_one_sentence_of_advice(toy, capsys):
    arguments = (
        "compare",
        "data.csv",
        "--model",
        "model.toml",
        "--epsilon",
        "0.05",
        "9",
        "--seed",
        "3",
    )
    rows = {
        (row["epsilon"], row["method"]): row["holdout_log_likelihood"]
        for row in json.loads(run(capsys, *arguments, *QUICK, "--json")[1])["results"]
    }
    code, out, err = run(capsys, *arguments, *QUICK)
    assert code == 0
    assert "to go" not in err  # no progress where nobody watches
    named = {"naive-mle": "naive MLE", "cgm": "CGM"}
    for epsilon in (0.05, 9.0):
        best = max(rows[epsilon, name] for name in named)
        for name, written in named.items():
            (line,) = [
                line
                for line in out.splitlines()
                if line.startswith(written)
                and line.removeprefix(written).split()[0] == f"{epsilon:g}"
            ]
            assert ("*" in line) is (round(rows[epsilon, name], 3) == round(best, 3))
            assert f"{rows[None, 'mle'] - rows[epsilon, name]:.3f}" in line  # what the noise costs
    best = max(named, key=lambda name: rows[0.05, name] + rows[9.0, name])
    advice = out.strip().splitlines()[-1]
    assert advice.startswith(f"Advice: {named[best]} ")
    assert advice.count(".") == 1


def test_compare_quickly_leaves_out_what_samples(toy, capsys):
    arguments = ("compare", "data.csv", "--model", "model.toml", "--epsilon", "2", "--quick")
    found = json.loads(run(capsys, *arguments, "--json")[1])["results"]
    assert [row["method"] for row in found] == ["uniform", "mle", "naive-mle", "cgm", "noise-aware"]
    with pytest.raises(SystemExit) as caught:
        main((*arguments, "--methods", "cgm", "posterior"))
    assert caught.value.code == 2
    assert "must be left out for posterior" in capsys.readouterr().err


def test_the_figure_of_an_evaluation_says_what_it_is():
    rows = {
        "epsilon": [1.0],
        "method": ["cgm"],
        "holdout_log_likelihood": [-1.0],
        "kl_divergence": [math.nan],
    }
    figure = compare.figure_of(pd.DataFrame(rows))
    assert compare.NOTE in [text.get_text() for text in figure.texts]
    assert "may be published as private" in compare.NOTE


def test_compare_of_a_model_too_wide_to_score_ends_well_and_draws_nothing(toy, capsys):
    (toy / "model.toml").write_text(WIDE_MODEL)
    wide_frame().to_csv("data.csv", index=False)
    arguments = ("compare", "data.csv", "--model", "model.toml", "--epsilon", "900", "--seed", "1")
    methods = ("--inference", "loopy", "--methods", "uniform", "naive-mle")
    code, out, err = run(capsys, *arguments, *methods, "--out", "found", "--json")
    assert code == 0
    assert all(row["holdout_log_likelihood"] is None for row in json.loads(out)["results"])
    assert "no score to draw" in err
    assert {path.name for path in (toy / "found").iterdir()} == {
        "comparison.csv",
        "comparison.json",
    }


def test_epsilon_may_be_given_several_times_and_before_the_data(toy, capsys):
    base = (
        "compare",
        "--model",
        "model.toml",
        "--seed",
        "3",
        "--json",
        *QUICK,
        "--epsilon",
        "0.5",
        "--epsilon",
        "4",
    )
    code, out, _ = run(capsys, *base, "data.csv")
    assert code == 0
    assert [guarantee["epsilon"] for guarantee in json.loads(out)["guarantees"]] == [0.5, 4.0]
    for wrong in ("0,5", "none.csv"):
        with pytest.raises(SystemExit) as caught:
            main((*base, wrong))
        assert caught.value.code == 2
        assert "put the data file before" in capsys.readouterr().err


def test_a_warning_of_compare_names_its_epsilon(toy, capsys):
    arguments = (
        "compare",
        "data.csv",
        "--model",
        "model.toml",
        *QUICK,
        "--epsilon",
        "0.001",
        "100",
        "--seed",
        "3",
    )
    _, _, err = run(capsys, *arguments)
    told = [line for line in err.splitlines() if "noise" in line]
    assert told
    assert all("at epsilon 0.001: " in line for line in told)


def test_compare_without_arguments_is_the_survey(capsys):
    code, out, _ = run(capsys, "compare", "--seed", "1", "--epsilon", "10", "--json", *QUICK)
    found = json.loads(out)
    assert code == 0
    assert found["data"]["variables"] == 9
    assert found["data"]["cliques"] == 9
    assert found["data"]["train"] + found["data"]["test"] == 6366
    scores = {row["method"]: row["holdout_log_likelihood"] for row in found["results"]}
    assert min(scores["mle"], scores["cgm"], scores["naive-mle"]) > scores["uniform"] + 3
    # at epsilon 10 the noise is small: scale 0.9 records a cell
    assert scores["cgm"] == pytest.approx(scores["mle"], abs=0.1)


@pytest.mark.slow  # compiles a posterior
def test_compare_has_a_row_for_every_method(toy, capsys):
    arguments = ("compare", "data.csv", "--model", "model.toml", "--epsilon", "2", "--seed", "3")
    found = json.loads(run(capsys, *arguments, "--json")[1])
    rows = {row["method"]: row for row in found["results"]}
    assert list(rows) == ["uniform", "mle", "naive-mle", "cgm", "noise-aware", "posterior"]
    score = {name: row["holdout_log_likelihood"] for name, row in rows.items()}
    # the noise has sd 1.4 records a cell, in 925 records: all see the same
    for name in ("noise-aware", "posterior"):
        assert score[name] == pytest.approx(score["mle"], abs=0.02)
        assert rows[name]["seconds"] > 0
    alone = json.loads(run(capsys, *arguments, "--json", "--methods", "posterior")[1])["results"]
    assert [row["method"] for row in alone] == ["posterior"]
    assert alone[0]["holdout_log_likelihood"] == score["posterior"]  # whatever else runs


class Large:
    """An estimator from outside that no model fits."""

    def fit(self, releases):
        raise ModelTooLargeError("too many cells")


def test_a_method_too_large_for_the_model_loses_only_its_own_row(toy, capsys, install):
    install("bayesprivmrf.estimators", {"large": Large})
    arguments = ("compare", "data.csv", "--model", "model.toml", "--epsilon", "2", "--seed", "3")
    chosen = ("--methods", "cgm", "large")
    code, out, err = run(capsys, *arguments, *chosen, "--json")
    assert code == 0
    cgm, large = json.loads(out)["results"]
    assert (large["status"], large["holdout_log_likelihood"]) == ("too large", None)
    assert cgm["holdout_log_likelihood"] is not None
    assert "too many cells" in err
    out = run(capsys, *arguments, *chosen)[1]
    assert "nan" not in out
    assert "too large" in out


class Doubted:
    """An estimator from outside: the naive one, whose fits are not trusted from epsilon 5 on."""

    status = Status.NOT_TRUSTED

    def fit(self, releases):
        naive = bpm.NaiveMLE().fit(releases)
        return replace(naive, status=self.status) if releases.guarantee.epsilon >= 5 else naive


class Diverged(Doubted):
    """The same, with fits that diverged."""

    status = Status.DIVERGED


@pytest.mark.parametrize("doubted", [Doubted, Diverged])
def test_compare_neither_stars_nor_advises_a_fit_that_is_not_trusted(toy, capsys, install, doubted):
    install("bayesprivmrf.estimators", {"doubted": doubted, "halved": Halved})
    base = ("compare", "data.csv", "--model", "model.toml", "--seed", "3", "--epsilon", "2", "10")
    _, out, _ = run(capsys, *base, "--methods", "uniform", "halved", "doubted")
    rows = [line.split() for line in out.splitlines() if line.startswith(("halved", "doubted"))]
    starred = {(row[0], row[1]): "*" in row for row in rows}
    scores = {(row[0], row[1]): float(row[2]) for row in rows}
    for epsilon in ("2", "10"):  # the doubted scores are the better ones
        assert scores["doubted", epsilon] > scores["halved", epsilon]
    assert starred == {
        ("doubted", "2"): True, ("halved", "2"): False, ("doubted", "10"): False, ("halved", "10"): True
    }  # fmt: skip
    assert "Advice: halved predicts best" in out
    _, out, _ = run(capsys, *base, "--methods", "doubted")
    assert (
        "Advice: each method that was scored at every budget has a fit that is not trusted" in out
    )
    assert "predicts best" not in out


def test_compare_does_not_send_to_a_posterior_that_is_not_trusted(toy, capsys, monkeypatch):
    fitted = compare.fitted

    def stand_in(name, release, **given):
        found = fitted("naive-mle", release, **given)
        return replace(found, status=Status.NOT_TRUSTED) if name == "posterior" else found

    monkeypatch.setattr(compare, "fitted", stand_in)
    base = ("compare", "data.csv", "--model", "model.toml", "--seed", "3", "--epsilon", "2")
    _, out, _ = run(capsys, *base, "--methods", "cgm", "posterior")
    assert "predicts best over these budgets, so use it for a point estimate; the posterior" in out
    assert "is not trusted at some of these budgets" in out


class Interrupted:
    """A sampler from outside that was interrupted, and keeps its draws until then."""

    def fit(self, releases, rng, draws):
        return SimpleNamespace(status=Status.STOPPED_EARLY)


def test_compare_stops_where_a_sampler_is_interrupted(toy, capsys, install):
    install("bayesprivmrf.estimators", {"interrupted": Interrupted})
    arguments = (
        "compare",
        "data.csv",
        "--model",
        "model.toml",
        "--methods",
        "interrupted",
        "--seed",
        "1",
    )
    assert run(capsys, *arguments)[0] == 130


@pytest.mark.slow
def test_the_main_job_takes_less_than_three_minutes(capsys):
    """On two cores of their own it takes about a third of that; here another test may run beside it."""
    begin = time.perf_counter()
    code, out, _ = run(capsys, "compare", "--seed", "1", "--json")
    assert code == 0
    assert time.perf_counter() - begin < 180
    rows = json.loads(out)["results"]
    assert len(rows) == 14
    scores = {(row["method"], row["epsilon"]): row["holdout_log_likelihood"] for row in rows}
    for epsilon in (0.1, 1.0):
        assert scores["posterior", epsilon] > scores["naive-mle", epsilon]


def test_a_comparison_without_cliques_is_refused_with_the_line_to_add(toy, capsys):
    (toy / "model.toml").write_text(MODEL.replace('cliques = [["a", "b"], ["b", "c"]]', ""))
    code, _, err = run(capsys, "compare", "data.csv", "--model", "model.toml")
    assert code == 1
    assert "cliques = [" in err
    assert "--mechanism select-measure" in err
