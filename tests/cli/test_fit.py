"""`bayesprivmrf fit`: tables, networks and files of a release."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from cli.toy import RELEASE, WIDE_MODEL, run, wide_frame

import bayesprivmrf as bpm
from bayesprivmrf.errors import (
    ReleaseFileError,
)
from bayesprivmrf.mechanisms import (
    LaplaceStatistics,
)
from bayesprivmrf.privacy import Laplace
from bayesprivmrf.records import read_declaration, read_records, recode
from bayesprivmrf.release import load_release


def test_release_then_fit_recovers_the_tables(toy, capsys):
    assert run(capsys, *RELEASE)[0] == 0
    code, out, _ = run(capsys, "fit", "toy.release", "--out", "fitted", "--json")
    assert code == 0
    fitted = json.loads(out)
    assert [table["variables"] for table in fitted["marginals"]] == [["a", "b"], ["b", "c"]]
    assert fitted["marginals"][1]["states"] == [["low", "high"], ["01", "02", "NA"]]
    data = pd.read_csv("data.csv", dtype=str, keep_default_na=False)
    share = np.mean((data["a"] == "x") & (data["b"].astype(int) <= 5))
    # the noise has sd 0.55 records a cell; 0.03 is over fifty times that
    assert fitted["marginals"][0]["estimate"][0][0] == pytest.approx(share, abs=0.03)
    table = pd.read_csv(toy / "fitted" / "marginals" / "01_a_b.csv")
    columns = ["a", "b", "estimate", "lower", "upper", "status", "note", "simulated"]
    assert list(table.columns) == columns
    assert np.ravel(fitted["marginals"][0]["note"]).tolist() == table["note"].tolist()
    assert fitted["method"] == "noise-aware"  # the best point estimate, unless another is asked for
    assert np.all(np.array(fitted["marginals"][0]["lower"]) <= fitted["marginals"][0]["estimate"])
    assert table["estimate"].sum() == pytest.approx(1.0)


def test_fit_prints_probabilities_given_states_of_some_variables(toy, capsys):
    assert run(capsys, *RELEASE)[0] == 0
    solution = bpm.NoiseAwareMAP().fit(load_release("toy.release"))
    code, out, _ = run(capsys, "fit", "toy.release", "--given", "b=low", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["given"] == [{"variable": "b", "states": ["low"]}]
    assert [table["variables"] for table in found["marginals"]] == [["a"], ["c"]]
    for table in found["marginals"]:
        expected = solution.interval(table["variables"], given={"b": "low"})
        for column in ("estimate", "lower", "upper", "status", "note"):
            assert table[column] == expected[column].tolist()
    # several states of one variable mean any of them, and the files keep the whole tables
    given = ("--given", "c=01", "--given", "c=NA", "--given", "a=x", "--out", "fitted")
    code, out, _ = run(capsys, "fit", "toy.release", *given)
    assert code == 0
    assert "Given c=01, c=NA, a=x:" in out
    rows = [line.split() for line in out.splitlines() if line.startswith("b ")]
    expected = solution.interval(["b"], given={"c": {"01", "NA"}, "a": "x"})
    assert [row[1:4] for row in rows] == [
        [f"{value:.3f}" for value in line]
        for line in expected[["estimate", "lower", "upper"]].to_numpy()
    ]
    assert not [line for line in out.splitlines() if line.startswith(("a ", "c "))]
    assert len(pd.read_csv(toy / "fitted" / "marginals" / "02_b_c.csv")) == 6


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["b=middle"], "write one of b=low, b=high"),
        (["z=low"], "write one of a=x, a=y, b=low"),
        (["b"], "write one of b=low, b=high"),
        (["a=x", "b=low", "c=01"], "leave a variable to show"),
    ],
)
def test_what_cannot_be_given_is_refused_in_words(toy, capsys, given, words):
    run(capsys, *RELEASE)
    options = [text for one in given for text in ("--given", one)]
    code, out, err = run(capsys, "fit", "toy.release", *options)
    assert (code, out) == (1, "")
    assert words in err
    with pytest.raises(SystemExit):
        run(capsys, "fit", "toy.release", *options, "--method", "cgm")
    assert "argument --given: must go with a method that has intervals" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["naive-mle", "cgm", "noise-aware"])
def test_every_exported_marginal_has_a_status_and_a_note(toy, capsys, method):
    run(capsys, *RELEASE)
    code, out, _ = run(
        capsys, "fit", "toy.release", "--method", method, "--out", "fitted", "--json"
    )
    assert code == 0
    for name, told in zip(("01_a_b", "02_b_c"), json.loads(out)["marginals"], strict=True):
        table = pd.read_csv(toy / "fitted" / "marginals" / f"{name}.csv")
        assert table["status"].tolist() == np.ravel(told["status"]).tolist() == ["ok"] * len(table)
        if method != "noise-aware":
            assert set(table["note"]) == {"a point estimate, which has no interval"}


@pytest.mark.parametrize("method", ["naive-mle", "cgm"])
def test_a_point_estimate_is_doubtful_where_the_noise_is_as_large_as_the_count(toy, capsys, method):
    states = {name: ["no", "yes"] for name in "ab"}
    counts = {("no", "no"): 900, ("no", "yes"): 600, ("yes", "no"): 3, ("yes", "yes"): 500}
    data = pd.DataFrame(
        [cell for cell, count in counts.items() for _ in range(count)], columns=["a", "b"]
    )
    network = bpm.declare(states=states, cliques=[("a", "b")])
    LaplaceStatistics(epsilon=0.1).release(network, data, rng=2).save("rare.release")
    assert run(capsys, "fit", "rare.release", "--method", method, "--out", "fitted")[0] == 0
    table = pd.read_csv(toy / "fitted" / "marginals" / "01_a_b.csv")
    assert table["status"].tolist() == ["ok", "ok", "doubtful", "ok"]
    assert table["note"][2] == (
        "simulated; the noise is as large as the count; a point estimate, which has no interval"
    )


def test_the_written_network_is_the_fitted_distribution(toy, capsys):
    run(capsys, *RELEASE)
    fitted = json.loads(run(capsys, "fit", "toy.release", "--out", "fitted", "--json")[1])
    network = json.loads((toy / "fitted" / "network.json").read_text())
    one, two = (np.array(factor["log_potential"], dtype=float) for factor in network["factors"])
    joint = np.exp(one[:, :, None] + two[None, :, :] - network["log_partition"])
    assert joint.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(joint.sum(axis=2), fitted["marginals"][0]["estimate"], atol=1e-8)


def test_a_damaged_release_is_one_line(toy, capsys):
    run(capsys, *RELEASE)
    content = (toy / "toy.release").read_bytes()
    (toy / "toy.release").write_bytes(content[: len(content) // 2])
    code, _, err = run(capsys, "fit", "toy.release")
    assert code == 1
    assert len(err.strip().splitlines()) == 1
    with pytest.raises(ReleaseFileError):
        load_release("toy.release")


def test_what_fit_writes_says_that_its_release_was_simulated(toy, capsys):
    from bayesprivmrf.mechanisms import LaplaceStatistics

    specification = read_declaration("model.toml").specification
    data = recode(read_declaration("model.toml"), read_records("data.csv"))
    for rng in (1, None):
        LaplaceStatistics(epsilon=5.0).release(specification, data, rng=rng).save(
            "toy.release", overwrite=True
        )
        printed = json.loads(
            run(capsys, "fit", "toy.release", "--out", "fitted", "--force", "--json")[1]
        )
        written = json.loads((toy / "fitted" / "solution.json").read_text())
        for summary in (printed, written):
            assert summary["guarantee"]["epsilon"] == 5.0
            assert summary["guarantee"]["simulated"] is (rng is not None)
    described = json.loads(run(capsys, *RELEASE, "--force", "--json")[1])
    assert described["guarantee"]["simulated"] is False


def test_a_model_too_wide_is_told_of_before_spending_and_fitted_loopily(toy, capsys):
    (toy / "model.toml").write_text(WIDE_MODEL)
    wide_frame().to_csv("data.csv", index=False)
    code, _, err = run(capsys, *RELEASE[:5], "900", *RELEASE[6:])
    assert code == 0
    (warning,) = [line for line in err.splitlines() if "will not fit" in line]
    assert warning.startswith("bayesprivmrf: warning: ")
    assert "`--inference loopy`" in warning
    code, out, err = run(capsys, "fit", "toy.release", "--method", "naive-mle")
    assert (code, out) == (1, "")
    assert "`--inference loopy`" in err
    arguments = ("fit", "toy.release", "--method", "naive-mle", "--inference", "loopy", "--json")
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert json.loads(out)["inference"] == "loopy"


def test_a_fit_of_tables_that_contradict_each_other_says_so(toy, capsys):
    model = bpm.declare({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    held = {("a", "b"): [[500.0, 500.0], [5.0, 5.0]], "a": [10.0, 1000.0]}
    bpm.NoisyStatistics.from_tables(model, held, noise=Laplace(1.0)).save("wrong.release")
    for method in ("naive-mle", "cgm", "noise-aware"):
        code, out, err = run(capsys, "fit", "wrong.release", "--method", method, "--json")
        assert code == 0
        assert json.loads(out)["status"] == "not trusted"
        (line,) = err.strip().splitlines()
        assert line.startswith(
            "bayesprivmrf: warning: released tables disagree on margin[a] by more than their noise"
        )


def test_a_folder_with_files_is_kept_unless_forced_and_then_loses_only_what_fit_wrote(toy, capsys):
    run(capsys, *RELEASE)
    assert run(capsys, "fit", "toy.release", "--out", "fitted")[0] == 0
    (toy / "fitted" / "marginals" / "07_of_another_model.csv").write_text("stale")
    (toy / "fitted" / "mine.txt").write_text("mine")
    before = (toy / "fitted" / "solution.json").read_bytes()
    code, out, err = run(capsys, "fit", "toy.release", "--out", "fitted", "--method", "naive-mle")
    assert (code, out) == (1, "")
    assert "--force" in err
    assert (toy / "fitted" / "solution.json").read_bytes() == before
    code, *_ = run(
        capsys, "fit", "toy.release", "--out", "fitted", "--method", "naive-mle", "--force"
    )
    assert code == 0
    assert json.loads((toy / "fitted" / "solution.json").read_text())["method"] == "naive-mle"
    assert {path.name for path in (toy / "fitted" / "marginals").iterdir()} == {
        "01_a_b.csv",
        "02_b_c.csv",
    }
    assert (toy / "fitted" / "mine.txt").read_text() == "mine"
    base = (
        "compare",
        "data.csv",
        "--model",
        "model.toml",
        "--epsilon",
        "4",
        "--seed",
        "1",
        "--out",
        "fitted",
    )
    code, _, err = run(capsys, *base)
    assert code == 1
    assert "--force" in err


def test_an_out_that_cannot_be_is_named_as_out(toy, capsys):
    run(capsys, *RELEASE)
    compare = ("compare", "data.csv", "--model", "model.toml", "--out", "data.csv")
    for arguments, words in [
        (("fit", "toy.release", "--out", "data.csv"), "`--out` must name a folder"),
        (("fit", "toy.release", "--out", "data.csv/x"), "`--out` 'data.csv/x' cannot be created"),
        (compare, "`--out` must name a folder"),
        ((*RELEASE[:-1], "nowhere/x"), "`--out` must lie in an existing folder"),
    ]:
        code, out, err = run(capsys, *arguments)
        assert (code, out) == (1, "")
        assert words in err


def test_a_solution_file_stands_by_itself(toy, capsys):
    run(capsys, *RELEASE)
    run(capsys, "fit", "toy.release", "--out", "fitted")
    found = json.loads((toy / "fitted" / "solution.json").read_text())
    assert (found["format"], found["version"]) == ("bayesprivmrf-solution", 2)
    assert found["model"]["cliques"] == [["a", "b"], ["b", "c"]]
    assert found["model"]["variables"][2] == {"name": "c", "states": ["01", "02", "NA"]}
    release = load_release("toy.release")
    assert found["noise"] == [law.as_dict() for law in release.noise]
    assert found["provenance"]["mechanism"] == "LaplaceStatistics"
    assert found["provenance"]["simulated"] is False
    assert found["provenance"]["settings"]["epsilon"] == 5.0


def test_a_noise_aware_fit_has_an_approximate_interval(toy, capsys):
    run(capsys, *RELEASE)
    base = ("fit", "toy.release", "--method", "noise-aware")
    code, out, _ = run(capsys, *base, "--out", "fitted", "--json", "--prob", "0.5")
    assert code == 0
    found = json.loads(out)
    for table in found["marginals"]:
        lower, middle, upper = (np.array(table[name]) for name in ("lower", "estimate", "upper"))
        assert np.all(lower <= middle)
        assert np.all(middle <= upper)
    assert json.loads((toy / "fitted" / "solution.json").read_text())["method"] == "noise-aware"
    assert "90 % intervals, approximate" in run(capsys, *base)[1]


def test_loopy_inference_without_a_method_takes_one_that_can(toy, capsys):
    run(capsys, *RELEASE)
    code, out, _ = run(capsys, "fit", "toy.release", "--inference", "loopy", "--json")
    assert code == 0
    assert json.loads(out)["method"] == "cgm"
