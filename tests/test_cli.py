"""The command line: what it prints, what it writes, what it refuses, and how it ends."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import math
import re
import shutil
import time
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.cli import compare, guarded, main
from bayesprivmrf.errors import (
    ArgumentError,
    DataError,
    ModelTooLargeError,
    NoiseWarning,
    ReleaseFileError,
)
from bayesprivmrf.inference import Status
from bayesprivmrf.mechanisms import (
    LaplaceStatistics,
    Mechanism,
    ParityQueries,
    SelectMeasure,
    StatisticsMechanism,
)
from bayesprivmrf.noise import NoiseLaw
from bayesprivmrf.noise.base import ENTRY_POINT_GROUP
from bayesprivmrf.privacy import DiscreteLaplace, Laplace
from bayesprivmrf.records import read_declaration, read_records, recode
from bayesprivmrf.release import load_release

MODEL = """
title = "A toy"
cliques = [["a", "b"], ["b", "c"]]
[variables.a]
states = ["x", "y"]
[variables.b]
states = ["low", "high"]
breaks = [5]
[variables.c]
states = ["01", "02", "NA"]
"""
RECORDS = 1234


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Folder with a model and its records; the current one."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(5)
    a = generator.choice(["x", "y"], RECORDS)
    b = np.where(a == "x", generator.integers(0, 8, RECORDS), generator.integers(3, 11, RECORDS))
    c = generator.choice(["01", "02", "NA"], RECORDS)
    pd.DataFrame({"a": a, "b": b, "c": c}).to_csv("data.csv", index=False)
    (tmp_path / "model.toml").write_text(MODEL)
    return tmp_path


@pytest.fixture
def seeded(monkeypatch):
    """One seed for the noise of models learned on the command line, which seeds none: what is printed hangs on it."""
    release = SelectMeasure.release
    monkeypatch.setattr(
        SelectMeasure, "release", lambda *given, **named: release(*given, **named, rng=1)
    )


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


QUICK = ("--methods", "uniform", "mle", "naive-mle", "cgm")  # all that neither samples nor compiles
RELEASE = ("release", "data.csv", "--model", "model.toml", "--epsilon", "5", "--out", "toy.release")


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


def test_a_release_states_its_guarantee_and_never_the_exact_number(toy, capsys):
    code, out, err = run(capsys, *RELEASE)
    assert code == 0
    release = load_release("toy.release")
    assert release.privacy_statement() in out
    assert not release.provenance.simulated
    assert release.total is None
    exact = {str(RECORDS), f"{RECORDS:,}"}
    # the estimate may by chance round to the exact number: it is the release's own, so mask it
    shown = (out + err).replace(f"{release.estimated_total:,.0f}", "")
    assert not any(number in shown for number in exact)


def test_replace_one_makes_the_number_public(toy, capsys):
    code, out, _ = run(capsys, *RELEASE, "--adjacency", "replace-one", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["total"] == RECORDS
    assert found["guarantee"]["adjacency"] == "replace-one"


def test_rho_asks_for_gaussian_noise(toy, capsys):
    arguments = [
        "data.csv",
        "--model",
        "model.toml",
        "--rho",
        "0.5",
        "--out",
        "g.release",
        "--json",
    ]
    found = json.loads(run(capsys, "release", *arguments)[1])
    assert found["mechanism"] == "GaussianStatistics"
    assert found["guarantee"]["rho"] == 0.5
    assert found["guarantee"]["epsilon"] is None


def test_a_release_is_refused_before_it_spends_where_a_killed_one_left_its_file(toy, capsys):
    run(capsys, *RELEASE)
    paid = (toy / "toy.release").read_bytes()
    name = f".release-{hashlib.sha256(b'toy.release').hexdigest()[:16]}-abc"
    (toy / "toy.release").rename(toy / name)
    for force in ((), ("--force",)):
        code, _, err = run(capsys, *RELEASE, *force)
        assert code == 1
        assert name in err
        assert "Rename that file" in err
        assert not (toy / "toy.release").exists()
    assert (toy / name).read_bytes() == paid


def test_cliques_below_a_variable_are_told_their_place(toy, capsys):
    (toy / "late.toml").write_text('[variables.a]\nstates = ["x", "y"]\ncliques = [["a"]]\n')
    code, _, err = run(capsys, "plan", "--model", "late.toml", "--epsilon", "1")
    assert code == 1
    assert "put it above the first [variables...] table" in err


def test_files_that_are_too_wide_are_refused_in_words(toy, capsys):
    states = ", ".join(f'"{i}"' for i in range(100_001))
    (toy / "states.toml").write_text(f"[variables.a]\nstates = [{states}]\n")
    tables = "".join(f'[variables.v{i}]\nstates = ["x", "y"]\n' for i in range(20_001))
    (toy / "variables.toml").write_text(tables)
    for name, what in (
        ("states", "at most 100,000 `states`"),
        ("variables", "at most 20,000 variables"),
    ):
        code, _, err = run(capsys, "plan", "--model", f"{name}.toml", "--epsilon", "1")
        assert code == 1
        assert what in err
    (toy / "wide.csv").write_text(",".join(f"c{i}" for i in range(20_001)) + "\n")
    code, _, err = run(capsys, "release", "wide.csv", *RELEASE[2:])
    assert code == 1
    assert "at most 20,000 columns" in err


def test_a_release_is_never_replaced_without_force(toy, capsys):
    run(capsys, *RELEASE)
    before = (toy / "toy.release").read_bytes()
    code, _, err = run(capsys, *RELEASE)
    assert code == 1
    assert "--force" in err
    assert (toy / "toy.release").read_bytes() == before
    # another budget: at the same one, so little noise may be the same twice
    assert run(capsys, *RELEASE, "--epsilon", "4", "--force")[0] == 0
    assert (toy / "toy.release").read_bytes() != before


@pytest.mark.parametrize("target", ["nowhere/toy.release", "."])
def test_an_unwritable_path_is_refused_before_records_are_read(toy, capsys, target):
    code, out, err = run(capsys, "release", "no-data.csv", *RELEASE[2:-1], target)
    assert (code, out) == (1, "")
    assert "--out" in err
    assert "no-data" not in err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--epsilon": "0"}, "`epsilon`"),
        ({"--epsilon": "-1"}, "`epsilon`"),
        ({"--epsilon": "nan"}, "`epsilon`"),
        ({"--model": "none.toml"}, "none.toml"),
        ({"--mechanism": "magic"}, "laplace"),
        ({"--mechanism": "magic"}, "call other mechanisms from Python, or install"),
        ({"--mechanism": "selectmeasure"}, "did you mean 'select-measure'"),
        ({"--mechanism": "objective-perturbation"}, "must be one of dpsgd, frank-wolfe, "),
        ({"--mechanism": "gaussian"}, "--rho"),
        ({"--set": "rho=3"}, "use `--rho 3`"),
        ({"--set": "adjacency=replace-one"}, "use `--adjacency replace-one`"),
    ],
)
def test_a_users_mistake_is_one_line_and_code_one(toy, capsys, change, message):
    options = {"--model": "model.toml", "--epsilon": "1", "--out": "toy.release"} | change
    code, out, err = run(
        capsys, "release", "data.csv", *(text for pair in options.items() for text in pair)
    )
    assert (code, out) == (1, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not (toy / "toy.release").exists()


@pytest.mark.parametrize("value", ["secret", ""])
def test_an_undeclared_or_missing_value_is_refused_and_not_printed(toy, capsys, value):
    data = pd.read_csv("data.csv", dtype=str, keep_default_na=False)
    data.loc[7, "a"] = value
    data.to_csv("data.csv", index=False)
    code, out, err = run(capsys, *RELEASE)
    assert (code, out) == (1, "")
    assert "'a'" in err
    assert "secret" not in err
    assert str(RECORDS) not in err
    assert not (toy / "toy.release").exists()


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


def spoilt(toy, kind):
    """Name of a data file with a secret in it that cannot be read."""
    whole = gzip.compress(b"a,b,c\n" + b"x,secret,01\ny,4,02\n" * 3000)
    name = f"{kind}.csv" if "column" in kind or "quote" in kind else f"{kind}.csv.gz"
    if kind == "truncated":
        (toy / name).write_bytes(whole[:-20])
    elif kind == "corrupt":
        (toy / name).write_bytes(whole[:30] + bytes([whole[30] ^ 0xFF]) + whole[31:])
    elif kind == "extra column":
        (toy / name).write_text("a,b,c\nx,1,01\ny,4,02,secret\n")
    elif kind == "open quote":
        (toy / name).write_text('a,b,c\nx,1,01\ny,4,"secret\n')
    elif kind in ("list", "record"):
        value = ["secret"] if kind == "list" else {"secret": "secret"}
        name = f"{kind}.parquet"
        pd.DataFrame({"a": ["x"], "b": [1], "c": [value]}).to_parquet(toy / name)
    return name


@pytest.mark.parametrize(
    "kind", ["truncated", "corrupt", "extra column", "open quote", "list", "record"]
)
def test_a_spoilt_data_file_is_one_line_that_quotes_nothing(toy, capsys, kind):
    code, out, err = run(capsys, "release", spoilt(toy, kind), *RELEASE[2:])
    assert (code, out) == (1, "")
    assert len(err.strip().splitlines()) == 1
    assert "secret" not in err
    assert "unexpected" not in err  # explained, not caught by the last resort
    with pytest.raises(DataError) as caught:
        recode(read_declaration("model.toml"), read_records(spoilt(toy, kind)))
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


AB_MODEL = (
    'cliques = [["a", "b"]]\n[variables.a]\nstates = [0, 1]\n[variables.b]\nstates = [0, 1]\n'
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n0,1,1\n", "more fields"),  # read as an index, every column would be shifted
        ("a,b,c\n0,1,0,\n1,1,1,\n", "more fields"),
        (
            "a,b\n" + "0,1\n" * 300_000 + "0,1,1\n",
            "more fields",
        ),  # beyond the first chunk of a reader
        ("a,b,a\n0,1,1\n", "distinct names"),
        ("", "empty"),
    ],
    ids=["surplus field", "trailing comma", "late surplus field", "repeated name", "empty file"],
)
def test_a_ragged_or_ambiguous_csv_is_refused_and_never_shifted(tmp_path, text, message):
    (tmp_path / "data.csv").write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        read_records(tmp_path / "data.csv")
    assert caught.value.__context__ is None


def test_a_csv_that_is_not_utf8_is_told_its_encoding(tmp_path):
    (tmp_path / "data.csv").write_bytes("a\nmäßig\n".encode("latin-1"))
    with pytest.raises(DataError, match="UTF-8") as caught:
        read_records(tmp_path / "data.csv")
    assert caught.value.__context__ is None


def test_a_csv_keeps_its_columns_where_they_stand(tmp_path):
    (tmp_path / "data.csv").write_text('\ufeff,a,"b"\n7,01,"x,y"\n8,NA,\n', encoding="utf-8")
    records = read_records(tmp_path / "data.csv")
    assert list(records.columns) == ["a", "b"]  # the column without a name is left out
    assert list(records["a"]) == ["01", "NA"]
    assert records["b"][0] == "x,y"
    assert records["b"].isna().tolist() == [False, True]


def test_a_csv_row_with_too_few_fields_lacks_its_last_values(toy, capsys):
    (toy / "model.toml").write_text(AB_MODEL)
    (toy / "data.csv").write_text("a,b\n0,1\n1\n")
    code, out, err = run(capsys, *RELEASE)
    assert (code, out) == (1, "")
    assert "'b' must hold no missing value" in err
    assert "key `missing` in a model file" in err


def test_a_value_that_no_interval_holds_is_refused_in_words_of_intervals(toy, capsys):
    words = "'b' must hold only finite numbers, which the model file puts into 2 intervals (the first up to 5,"
    for wrong in ("five", "inf", "nan"):
        (toy / "data.csv").write_text(f"a,b,c\nx,{wrong},01\n")
        code, out, err = run(capsys, *RELEASE)
        assert (code, out) == (1, "")
        assert words in err
        assert "key `other` in the model file" in err
        assert wrong not in err.replace("finite", "").replace(words, "")
    (toy / "data.csv").write_text("a,b,c\nz,1,01\n")
    assert (
        "only the declared states" in run(capsys, *RELEASE)[2]
    )  # of a column that has no intervals


def test_semicolons_and_tabs_separate_fields_where_the_header_has_them(toy, capsys):
    (toy / "model.toml").write_text(AB_MODEL)
    for separator in (";", "\t"):
        (toy / "data.csv").write_text(separator.join("ab") + "\n" + separator.join("01") + "\n")
        assert run(capsys, *RELEASE, "--force")[0] == 0
    (toy / "data.csv").write_text("a,b\n0;1\n")
    assert "'a' must hold only the declared states" in run(capsys, *RELEASE, "--force")[2]


def test_truth_values_for_numbers_are_explained(toy, capsys):
    (toy / "model.toml").write_text(AB_MODEL)
    (toy / "data.csv").write_text("a,b\n0,True\n")
    err = run(capsys, *RELEASE)[2]
    assert "text, numbers and truth values are different labels" in err
    assert "key `other` in a model file" in err


def test_repeated_columns_are_refused_by_recoding(toy):
    repeated = pd.DataFrame([["x", "y", 1, "01"]], columns=["a", "a", "b", "c"])
    with pytest.raises(DataError, match="distinct names") as caught:
        recode(read_declaration("model.toml"), repeated)
    assert caught.value.__context__ is None
    with pytest.raises(DataError, match="must be a data frame"):
        recode(read_declaration("model.toml"), ["secret"])


@pytest.mark.parametrize(
    ("failure", "expected", "word"),
    [
        (RuntimeError("secret"), 1, "RuntimeError"),
        (type("PanicException", (BaseException,), {})("secret"), 1, "PanicException"),
        (MemoryError("secret"), 1, "MemoryError"),
        (KeyboardInterrupt("secret"), 130, "interrupted"),
    ],
)
def test_an_unexpected_failure_prints_its_kind_alone(capsys, failure, expected, word):
    def fail():
        raise failure

    assert guarded(fail) == expected
    out, err = capsys.readouterr()
    assert not out
    assert word in err
    assert "secret" not in err
    assert len(err.strip().splitlines()) == 1


def test_no_command_writes_over_what_it_reads(toy, capsys):
    (toy / "link").symlink_to("data.csv")
    (toy / "found").mkdir()
    shutil.copy("data.csv", "found/comparison.csv")
    for source, target in (
        ("data.csv", "data.csv"),
        ("data.csv", "link"),
        ("data.csv", "model.toml"),
    ):
        before = (toy / target).read_bytes()
        for force in ((), ("--force",)):
            code, _, err = run(capsys, "release", source, *RELEASE[2:-1], target, *force)
            assert code == 1
            assert "file that the command reads" in err
            assert (toy / target).read_bytes() == before
    code, _, err = run(
        capsys,
        "compare",
        "found/comparison.csv",
        "--model",
        "model.toml",
        "--out",
        "found",
        "--seed",
        "1",
    )
    assert code == 1
    assert "file that the command reads" in err
    assert (toy / "found" / "comparison.csv").read_bytes() == (toy / "data.csv").read_bytes()


def never(self, *_):
    raise AssertionError("the data was read")


@dataclass(frozen=True, kw_only=True)
class Unpromising(StatisticsMechanism):
    epsilon: float
    _read = never

    def _noise(self, specification):
        return tuple(DiscreteLaplace(1.0) for _ in specification.cliques)

    def _promise(self, specification):
        return None


@dataclass(frozen=True, kw_only=True)
class Number(Mechanism):
    epsilon: float
    _prepare = _guarantee = _read = _randomise = never


def test_a_mechanism_without_promise_or_file_is_refused_before_anything_is_spent(
    toy, capsys, install
):
    install("bayesprivmrf.mechanisms", {"unpromising": Unpromising, "number": Number})
    for name, word in (("unpromising", "promises nothing"), ("number", "call it from Python")):
        code, out, err = run(capsys, *RELEASE, "--mechanism", name)
        assert (code, out) == (1, "")
        assert word in err
        assert "AssertionError" not in err


def test_plan_reads_no_data_and_says_what_the_budget_buys(toy, capsys):
    code, out, _ = run(capsys, "plan", "--model", "model.toml", "--epsilon", "1", "--json")
    plan = json.loads(out)
    assert code == 0
    assert len(plan["tables"]) == 2
    assert plan["forecast"]["treewidth"] == 1
    assert run(capsys, "plan", "--model", "model.toml", "--rho", "1", "--total", "100000")[0] == 0


def test_a_plan_of_a_mechanism_that_learns_has_its_steps_and_its_promise(toy, capsys):
    (toy / "model.toml").write_text(AB_MODEL)
    plan = ["plan", "--model", "model.toml", "--rho", "0.5", "--mechanism"]
    code, out, _ = run(
        capsys, *plan, "select-measure", "--set", "degree=1", "--total", "5000", "--json"
    )
    found = json.loads(out)
    assert code == 0
    assert sum(row["rho"] for row in found["steps"]) == pytest.approx(0.5)
    assert found["guarantee"]["rho"] == 0.5
    code, out, err = run(capsys, *plan, "frank-wolfe", "--set", "width=1.0", "--total", "3")
    assert code == 0
    assert "10 steps of 2 choices" in out
    assert "rho = 0.5" in out
    assert "the noise hides couplings" in err
    code, out, _ = run(capsys, *plan, "frank-wolfe", "--set", "width=1.0")
    assert "nan" not in out
    ascent = [
        "plan",
        "--model",
        "model.toml",
        "--epsilon",
        "1",
        "--mechanism",
        "dpsgd",
        "--set",
        "delta=1e-6",
    ]
    code, out, _ = run(capsys, *ascent)
    assert code == 0
    assert "ascent in 1000 steps" in out
    assert "epsilon = 1, delta = 1e-06" in out
    assert "nan" not in out


def test_a_plan_that_drowns_says_so_on_standard_error(toy, capsys):
    code, out, err = run(
        capsys, "plan", "--model", "model.toml", "--epsilon", "0.001", "--total", "50", "--json"
    )
    assert code == 0
    assert json.loads(out)["tables"]
    assert "warning" in err
    assert "noise" in err


def test_wrong_usage_is_code_two(toy, capsys):
    run(capsys, *RELEASE)
    fit = ["fit", "toy.release"]
    for arguments, words in [
        (["compare", "data.csv"], "--model"),
        (["release", "data.csv"], "required"),
        ([], "required"),
        (["compare", "--seed", "-1"], "at least 0"),
        (["compare", "--methods", "magic"], "choose from"),
        (["compare", "--methods", "posterior", "--inference", "loopy"], "needs --inference exact"),
        ([*fit, "--method", "posterior", "--inference", "loopy"], "exact marginals"),
        ([*fit, "--method", "posterior", "--draws", "0"], "at least 1"),
        ([*fit, "--method", "posterior", "--prob", "90"], "above 0 and below 1"),
        ([*fit, "--method", "posterior", "--prob", "nan"], "above 0 and below 1"),
        ([*fit, "--seed", "0"], "such as posterior, got noise-aware"),
        ([*fit, "--method", "noise-aware", "--chains", "2"], "such as posterior"),
        ([*fit, "--method", "cgm", "--prob", "0.5"], "has intervals"),
    ]:
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        refusal, remedy = capsys.readouterr().err.splitlines()
        assert words in refusal
        assert remedy == " ".join(["see bayesprivmrf", *arguments[:1], "--help"])


@pytest.mark.parametrize("arguments", [[], ["cgm-fig2", "--quick"], ["--help"]])
def test_the_papers_figures_are_said_to_be_made_elsewhere(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["reproduce", *arguments])
    assert caught.value.code == 2
    refusal, _ = capsys.readouterr().err.splitlines()
    assert "`uv run python -m benchmarks.papers`" in refusal


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


WIDE = [
    f"v{i}" for i in range(12)
]  # every pair of twelve variables of eight states: one clique of 8^12 cells
WIDE_MODEL = f"cliques = {[[v, w] for v in WIDE for w in WIDE if v < w]}\n" + "".join(
    f"[variables.{v}]\nstates = {list(range(8))}\n" for v in WIDE
)


def wide_frame():
    """Four thousand records of independent variables, so that messages settle at once."""
    return pd.DataFrame(np.random.default_rng(1).integers(0, 8, (4000, len(WIDE))), columns=WIDE)


def test_a_plan_says_whether_exact_inference_fits_and_what_to_do(toy, capsys):
    code, out, err = run(capsys, "plan", "--model", "model.toml", "--epsilon", "1")
    assert (code, err) == (0, "")
    assert "Exact inference fits" in out
    (toy / "model.toml").write_text(WIDE_MODEL)
    code, out, err = run(capsys, "plan", "--model", "model.toml", "--epsilon", "1")
    assert code == 0
    assert "Exact inference does not fit" in out
    assert "iB" in out
    assert "warning" in err
    assert "`--inference loopy`" in err
    assert len(err.strip().splitlines()) == 1
    found = json.loads(run(capsys, "plan", "--model", "model.toml", "--epsilon", "1", "--json")[1])
    assert found["forecast"]["is_exact_possible"] is False


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


def test_a_plan_has_one_number_format_a_column_and_whole_cliques(toy, capsys):
    long = "a_name_that_is_as_long_as_an_unhurried_person_makes_it_" * 2
    text = MODEL.replace('["b", "c"]', f'["b", "{long}"]').replace(
        "[variables.c]", f"[variables.{long}]"
    )
    (toy / "model.toml").write_text(text)
    out = run(capsys, "plan", "--model", "model.toml", "--rho", "0.00001", "--total", "100000")[1]
    rows = [line.split(maxsplit=5) for line in out.splitlines()[2:4]]
    assert [row[-1] for row in rows] == ["a, b", f"b, {long}"]
    for cells in zip(*(row[:-1] for row in rows), strict=True):
        assert len({len(cell.partition(".")[2]) for cell in cells}) == 1
        assert not any("e" in cell for cell in cells)


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


POSTERIOR = (
    "fit",
    "toy.release",
    "--method",
    "posterior",
    "--seed",
    "1",
    "--draws",
    "200",
    "--chains",
    "2",
)


@pytest.mark.slow  # compiles a posterior
def test_a_posterior_is_printed_with_intervals_and_written_as_a_tree(toy, capsys):
    import arviz as az

    run(capsys, *RELEASE)
    code, out, _ = run(capsys, *POSTERIOR, "--prob", "0.5", "--out", "found.nc", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["method"], found["seed"], found["prob"]) == ("posterior", 1, 0.5)
    assert found["status"] in {status.value for status in Status}
    tree = az.from_netcdf("found.nc")
    drawn = tree["posterior"]["marginal[a,b]"]
    assert dict(drawn.sizes) == {"chain": 2, "draw": 200, "a": 2, "b": 2}
    assert tree.attrs["simulated"] == 0
    assert "epsilon = 5" in tree.attrs["privacy"].replace("ε", "epsilon")
    table = found["marginals"][0]
    np.testing.assert_allclose(table["estimate"], drawn.mean(("chain", "draw")), atol=1e-12)
    for name, level in (("lower", 0.25), ("upper", 0.75)):
        np.testing.assert_allclose(
            table[name], drawn.quantile(level, ("chain", "draw")), atol=1e-12
        )
    again = json.loads(run(capsys, *POSTERIOR, "--prob", "0.5", "--json")[1])
    assert again["marginals"] == found["marginals"]
    other = json.loads(run(capsys, *POSTERIOR[:-5], "2", *POSTERIOR[-4:], "--json")[1])
    assert other["marginals"] != found["marginals"]
    shown = run(capsys, *POSTERIOR)[1]
    assert "90 % intervals, sampled with seed 1" in shown
    assert shown.count("\nc  ") == 3  # a row for each state of c


def test_a_posteriors_file_is_checked_before_sampling_and_replaced_only_when_forced(
    toy, capsys, monkeypatch
):
    from bayesprivmrf.cli import fit

    run(capsys, *RELEASE)
    (toy / "kept.nc").write_text("kept")
    shutil.copy("toy.release", "release.nc")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it was fitted")

    with monkeypatch.context() as patched:
        patched.setattr(fit, "fitted", refuse)
        for source, out, words in [
            ("toy.release", "kept.nc", "--force"),
            ("toy.release", "folder", "ends in .nc"),
            ("toy.release", "nowhere/x.nc", "existing folder"),
            ("release.nc", "release.nc", "file that the command reads"),
        ]:
            code, printed, err = run(capsys, "fit", source, *POSTERIOR[2:], "--out", out)
            assert (code, printed) == (1, "")
            assert words in err
    assert (toy / "kept.nc").read_text() == "kept"


@pytest.mark.slow  # compiles a posterior
def test_a_posteriors_file_is_replaced_whole(toy, capsys):
    run(capsys, *RELEASE)
    (toy / "kept.nc").write_text("kept")
    assert run(capsys, *POSTERIOR, "--out", "kept.nc", "--force")[0] == 0
    assert (toy / "kept.nc").read_bytes() != b"kept"
    assert not list(toy.glob(".bayesprivmrf-*"))


@pytest.mark.slow  # compiles a posterior
def test_an_unconverged_posterior_ends_well_with_its_status_and_one_warning(toy, capsys):
    run(capsys, *RELEASE)
    code, out, err = run(capsys, *POSTERIOR[:-3], "8", *POSTERIOR[-2:], "--json")
    assert code == 0
    assert json.loads(out)["status"] != "converged"
    (line,) = err.strip().splitlines()
    assert line.startswith("bayesprivmrf: warning: ")
    assert "raise `--draws`" in line  # what one can do here, not in Python
    assert "posterior.stats" not in line


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


@dataclass(frozen=True, kw_only=True)
class Halved:
    """An estimator from outside: the naive one's potentials, halved."""

    def fit(self, releases):
        naive = bpm.NaiveMLE().fit(releases)
        flat = 0.5 * naive.potentials.flat
        return replace(
            naive, potentials=naive.specification.tables(flat), method="halved", references=()
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


@dataclass(frozen=True)
class Steps(NoiseLaw):
    """As likely two records off as none: it has no kernel."""

    name = "test-cli-steps"
    is_discrete = True
    variance = property(lambda law: 2.0)

    def log_density(self, residual):
        size = np.abs(residual)
        return np.where(size == 0, -np.log(2), np.where(size == 2, -np.log(4), -np.inf))

    def score(self, residual):
        return np.zeros(np.shape(residual))

    def draw(self, size, rng):
        return rng.choice([-2, 0, 0, 2], size)

    def add_exactly(self, counts, words):
        chosen = (words(counts.size) % np.uint64(4)).astype(np.int64).reshape(counts.shape)
        return counts + np.array([-2, 0, 0, 2])[chosen]


@dataclass(frozen=True, kw_only=True)
class StepsStatistics(StatisticsMechanism):
    epsilon: float

    def _noise(self, specification):
        return (Steps(),) * len(specification.cliques)

    def _promise(self, specification):
        return bpm.PrivacyGuarantee(epsilon=self.epsilon, adjacency=self.adjacency)


def test_what_takes_noise_without_a_kernel_is_said_before_anything_is_spent(toy, capsys, install):
    install("bayesprivmrf.mechanisms", {"steps": StepsStatistics})
    assert StepsStatistics(epsilon=1.0).preview(read_declaration("model.toml").specification).attrs[
        "estimators"
    ] == ("NaiveMLE",)
    planned = ("plan", "--model", "model.toml", "--epsilon", "1", "--mechanism", "steps")
    assert "only naive-mle can use it (`fit --method naive-mle`)" in run(capsys, *planned)[1]
    assert json.loads(run(capsys, *planned, "--json")[1])["estimators"] == ["NaiveMLE"]
    code, _, err = run(capsys, *RELEASE, "--mechanism", "steps")
    assert code == 1
    assert "only naive-mle can use it" in err
    assert "Steps must be listed as 'test-cli-steps', its own name, in the entry-point group" in err
    assert not (toy / "toy.release").exists()
    install(ENTRY_POINT_GROUP, {"test-cli-steps": Steps})
    assert run(capsys, *RELEASE, "--mechanism", "steps")[0] == 0
    code, _, err = run(capsys, "fit", "toy.release")
    assert code == 1
    assert "use `--method naive-mle`, which takes any added noise" in err
    assert run(capsys, "fit", "toy.release", "--method", "naive-mle")[0] == 0


def test_loopy_inference_without_a_method_takes_one_that_can(toy, capsys):
    run(capsys, *RELEASE)
    code, out, _ = run(capsys, "fit", "toy.release", "--inference", "loopy", "--json")
    assert code == 0
    assert json.loads(out)["method"] == "cgm"


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


def test_released_parities_are_fitted_to_a_file_of_the_learned_model(toy, capsys):
    spins = np.random.default_rng(4).choice([-1, 1], (20_000, 3))
    spins[:, 2] = (
        np.where(np.random.default_rng(5).random(20_000) < 0.9, 1, -1) * spins[:, 0] * spins[:, 1]
    )
    pd.DataFrame(np.where(spins > 0, "y", "x"), columns=list("abc")).to_csv(
        "signs.csv", index=False
    )
    variables = "\n".join(f'[variables.{v}]\nstates = ["x", "y"]' for v in "abc")
    (toy / "signs.toml").write_text(f'title = "Signs"\n{variables}\n')
    release = [
        "release",
        "signs.csv",
        "--model",
        "signs.toml",
        "--rho",
        "1",
        "--out",
        "parities.release",
    ]
    assert run(capsys, *release, "--mechanism", "parity-queries", "--set", "order=3")[0] == 0
    code, out, err = run(capsys, "fit", "parities.release", "--out", "model.release")
    assert code == 0
    assert "status: converged" in out
    assert "a b c" in out
    assert "model.release" in err
    model = load_release("model.release")
    assert model.kind == "learned-monomials"
    assert model.monomials["a", "b", "c"] == pytest.approx(math.atanh(0.8), abs=0.05)
    code, out, _ = run(capsys, "fit", "parities.release", "--json")
    assert code == 0
    printed = {
        tuple(each["variables"]): each["coefficient"] for each in json.loads(out)["monomials"]
    }
    assert printed == dict(model.monomials.items())
    for extra, match in (
        (["--out", "model.release"], "exists already"),
        (["--out", "parities.release", "--force"], "file that the command reads"),
        (["--method", "naive-mle"], "must be left out"),
    ):
        code, _, err = run(capsys, "fit", "parities.release", *extra)
        assert code == 1
        assert match in err
    code, _, err = run(capsys, "fit", "model.release")
    assert code == 1
    assert "it is a model already, as its `solution`; read it in Python" in err


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
def test_parities_of_too_many_variables_are_told_of_without_a_loopy_remedy(toy, capsys):
    network = bpm.declare(states={f"q{v}": [0, 1] for v in range(40)})
    data = pd.DataFrame(np.zeros((10, 40), dtype=int), columns=[f"q{v}" for v in range(40)])
    ParityQueries(rho=1.0, order=2).release(network, data, rng=1).save("wide.release")
    code, _, err = run(capsys, "fit", "wide.release")
    assert code == 1
    assert "declare cliques" in err
    assert "loopy" not in err


def test_a_release_of_couplings_prints_the_largest(toy, seeded, capsys):
    rng = np.random.default_rng(3)
    a = rng.integers(0, 2, 5_000)
    agree = rng.random(5_000) < 0.9
    pd.DataFrame({"a": a, "b": np.where(agree, a, 1 - a), "c": rng.integers(0, 2, 5_000)}).to_csv(
        "pairs.csv", index=False
    )
    variables = "\n".join(f"[variables.{v}]\nstates = [0, 1]" for v in "abc")
    (toy / "pairs.toml").write_text(f'title = "Pairs"\n{variables}\n')
    release = [
        "release",
        "pairs.csv",
        "--model",
        "pairs.toml",
        "--rho",
        "1",
        "--mechanism",
        "select-measure",
    ]
    code, out, _ = run(capsys, *release, "--set", "degree=2", "--out", "pairs.release")
    assert code == 0
    shown = out[out.index("Largest couplings, nats:") :].splitlines()
    assert "Measured: 3 pairs" in out
    assert "load_release('pairs.release').couplings_interval()" in out
    assert shown[3].split()[:2] == ["a", "b"]
    assert float(shown[3].split()[2]) == pytest.approx(math.atanh(0.8), abs=0.1)
    code, out, _ = run(capsys, *release, "--set", "degree=2", "--out", "other.release", "--json")
    assert code == 0
    assert json.loads(out)["couplings"][0]["variables"] == ["a", "b"]
    code, out, _ = run(capsys, *release, "--out", "rounds.release")
    assert code == 0
    told = json.loads(run(capsys, *release, "--out", "again.release", "--json")[1])
    assert told["status"] == "converged"
    assert told["details"]["tables_measured"] >= 1
    assert "Status: converged." in out
    assert re.search(r"Measured: \d+ tables? of several variables", out)
    shown = out[out.index("with standard errors:") :].splitlines()
    assert shown[3].split()[:2] == ["a", "b"]
    for row in (line.split() for line in shown[3:] if len(line.split()) == 4):
        assert (
            abs(float(row[2])) > 3 * float(row[3]) - 0.002
        )  # what is not clear of noise is counted alone
    code, out, _ = run(capsys, "fit", "rounds.release", "--prob", "0.8", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["method"] == "learned"
    assert told["status"] == "converged"
    assert {len(each["variables"]) for each in told["marginals"]} > {1}
    assert all(set(np.ravel(each["status"])) == {"ok"} for each in told["marginals"])
    pair = next(each for each in told["marginals"] if {"a", "b"} <= set(each["variables"]))
    assert np.all(np.array(pair["lower"]) <= np.array(pair["upper"]))
    code, out, _ = run(capsys, "fit", "rounds.release", "--method", "naive-mle", "--json")
    assert json.loads(out)["method"] == "naive-mle"
    code, _, err = run(capsys, *release, "--set", "mesure=tables", "--out", "third.release")
    assert code == 1
    assert "got 'mesure'; did you mean 'measure'?" in err


def learned_in_rounds(rho: float, *, rng: int = 1):
    """A model whose pairs with `d`, of rare states, are not asked for."""
    draws = np.random.default_rng(3)
    a = draws.integers(0, 2, 3_000)
    data = {"a": a, "b": a ^ (draws.random(3_000) < 0.1), "c": a ^ (draws.random(3_000) < 0.2)}
    data["d"] = draws.integers(0, 12, 3_000) * (draws.random(3_000) < 0.1)
    network = bpm.declare(states={"a": [0, 1], "b": [0, 1], "c": [0, 1], "d": range(12)})
    workload = [("a", "b"), ("b", "c")]
    return SelectMeasure(rho=rho, workload=workload).release(
        network, pd.DataFrame(data).astype(int), rng=rng
    )


def test_fit_of_a_model_learned_in_rounds_says_which_tables_to_trust(tmp_path, capsys):
    learned = learned_in_rounds(0.1)
    learned.save(tmp_path / "rounds.release")
    code, out, err = run(capsys, "fit", str(tmp_path / "rounds.release"))
    assert code == 0
    assert "warning" not in err
    assert "Tables: 2 pairs of variables lie in measured tables and can be trusted." in out
    assert "Not trusted: 4 pairs never measured together" in out
    assert "(a, c), (a, d), (b, d), (c, d)." in out
    assert "Doubtful: rare states of 1 variable " in out
    assert "doubtful: d." in out
    for pair in itertools.combinations("abcd", 2):  # as the intervals say
        frame = learned.solution.interval(list(pair))
        assert (frame["status"] == "not trusted").all() == (f"({pair[0]}, {pair[1]})" in out)
        assert frame["note"].str.contains("are merged in the fit").any() == ("d" in pair)


def test_fit_says_again_that_a_model_learned_in_rounds_is_not_trusted(tmp_path, capsys):
    with pytest.warns(NoiseWarning, match="no number of the model can be trusted"):
        learned_in_rounds(1e-6).save(tmp_path / "rounds.release")
    code, out, err = run(capsys, "fit", str(tmp_path / "rounds.release"))
    assert code == 0
    assert (
        "bayesprivmrf: warning: the learned model is not trusted: do not use its numbers; spend more"
        in err
    )
    assert "Tables: all are not trusted, because the model is not." in out
    assert "can be trusted" not in out


def test_pairs_with_states_that_never_meet_are_not_called_noise(toy, seeded, capsys):
    rng = np.random.default_rng(5)
    sex = rng.integers(0, 2, 20_000)
    role = np.where(sex == 1, rng.choice([0, 2], sex.size), rng.choice([1, 2], sex.size))
    pd.DataFrame({"sex": sex, "role": role, "coin": rng.integers(0, 2, sex.size)}).to_csv(
        "roles.csv", index=False
    )
    states = {"sex": 2, "role": 3, "coin": 2}
    variables = "\n".join(f"[variables.{v}]\nstates = {list(range(k))}" for v, k in states.items())
    (toy / "roles.toml").write_text(f'title = "Roles"\n{variables}\n')
    release = [
        "release",
        "roles.csv",
        "--model",
        "roles.toml",
        "--rho",
        "0.1",
        "--mechanism",
        "select-measure",
    ]
    code, out, _ = run(capsys, *release, "--out", "roles.release")
    assert code == 0
    assert "because some states rarely" in out
    assert out.rstrip().rpartition("\n")[2].startswith("Next: `bayesprivmrf fit roles.release`")
    assert "graph(weight='dependence')" in out
    strongest = out.partition("Strongest dependences")[2].splitlines()
    assert strongest[3].split()[:2] == ["sex", "role"]
    graph = bpm.load_release("roles.release").graph(weight="dependence")
    assert graph.edges["sex", "role"]["weight"] > 0.5


def test_a_comparison_without_cliques_is_refused_with_the_line_to_add(toy, capsys):
    (toy / "model.toml").write_text(MODEL.replace('cliques = [["a", "b"], ["b", "c"]]', ""))
    code, _, err = run(capsys, "compare", "data.csv", "--model", "model.toml")
    assert code == 1
    assert "cliques = [" in err
    assert "--mechanism select-measure" in err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cliqes = []", "did you mean 'cliques'?"),
        ("queries = []", "'queries', which is an argument of mechanisms"),
    ],
)
def test_a_wrong_key_of_a_model_file_is_told_what_may_be_meant(toy, capsys, line, said):
    (toy / "model.toml").write_text(f"{line}\n{MODEL}")
    code, _, err = run(capsys, "plan", "--model", "model.toml", "--epsilon", "1")
    assert code == 1
    assert said in err
