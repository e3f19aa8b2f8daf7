"""The command line on frequency tables and codebooks."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.cli import main
from bayesprivmrf.records import read_declaration

MODEL = (
    'cliques = [["a", "b"]]\n[variables.a]\nstates = ["x", "y"]\n[variables.b]\nstates = [0, 1]\n'
)
CODEBOOK = '''\
variable;state;label
sex;f;
sex;m;
"how, so?";1;"very ""well"""
"how, so?";2;well
"how, so?";3;well
"how, so?";;not asked
age;20;
age;-1;
age;;
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.toml").write_text(MODEL)
    (tmp_path / "data.csv").write_text("a,b,Freq\nx,0,900\ny,1,30\nx,1,0\nx,0,100\n")
    return tmp_path


def release(capsys, *more):
    code = main(
        [
            "release",
            "data.csv",
            "--model",
            "model.toml",
            "--epsilon",
            "50",
            "--out",
            "a.release",
            *more,
        ]
    )
    return code, capsys.readouterr().err


def test_a_frequency_table_is_released_with_its_counts(folder, capsys):
    assert release(capsys, "--count", "Freq")[0] == 0
    assert bpm.load_release(folder / "a.release").tables[("a", "b")].round(-1).ravel().tolist() == [
        1000,
        0,
        0,
        30,
    ]
    code, err = release(
        capsys, "--force", "--set", "person=Freq", "--set", "at_most=1", "--count", "Freq"
    )
    assert (code, "not be given together" in err) == (1, True)
    code, err = release(capsys, "--force", "--count", "n")
    assert (code, "must name a column of the data, got 'n'" in err) == (1, True)
    (folder / "data.csv").write_text("a,b,Freq\nx,0,secret\n")
    code, err = release(capsys, "--force", "--count", "Freq")
    assert (code, "column 'Freq' must hold whole numbers" in err, "secret" in err) == (
        1,
        True,
        False,
    )


def test_a_column_of_counts_that_is_not_named_warns(folder, capsys):
    code, err = release(capsys)
    assert code == 0
    assert "the column 'Freq' is not used" in err
    assert "`--count`" in err


def test_a_comparison_reads_a_frequency_table_as_its_repeated_rows(folder, capsys):
    run = [
        "compare",
        "data.csv",
        "--model",
        "model.toml",
        "--quick",
        "--epsilon",
        "1",
        "--seed",
        "1",
        "--json",
    ]
    assert main([*run, "--count", "Freq"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["data"]["train"], found["data"]["test"]) == (772, 258)
    scores = {row["method"]: row["holdout_log_likelihood"] for row in found["results"]}
    assert scores["uniform"] == pytest.approx(-np.log(4))
    assert scores["mle"] == pytest.approx(
        -0.13, abs=0.05
    )  # the entropy of 1000 and 30 of 1,030 is 0.132 nats
    assert main(run) == 0
    assert "pass its name as `--count`" in capsys.readouterr().err
    for wrong, said in (
        ("a", "`--count` must name a column that is not"),
        ("n", "`--count` must name a column of the data"),
    ):
        assert main([*run, "--count", wrong]) == 1
        assert said in capsys.readouterr().err


def test_a_model_file_is_drafted_from_a_codebook(folder, capsys):
    (folder / "codebook.csv").write_text(CODEBOOK)
    assert main(["model", "codebook.csv", "--out", "drafted.toml"]) == 0
    declaration = read_declaration(folder / "drafted.toml")
    domain = declaration.specification.domain
    assert dict(zip(domain.variables, domain.states, strict=True)) == {
        "sex": ("f", "m"),
        "how, so?": ('very "well"', "well", "not asked"),
        "age": (20, -1, "missing"),
    }
    rule = declaration.rules["how, so?"]
    assert (rule.values, rule.missing) == (((1,), (2, 3)), "not asked")
    assert declaration.rules["age"].missing == "missing"
    capsys.readouterr()
    assert main(["model", "codebook.csv"]) == 0
    printed = capsys.readouterr().out
    assert printed == (folder / "drafted.toml").read_text()
    assert main(["model", "codebook.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == tomllib.loads(printed)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a,b\nx,0\n", "Records are not a codebook"),
        ("variables,state\na,0\n", "'variables' is similar"),
        ("variable,state\n,0\n", "name its variable"),
        ("variable,state\na,0\na,0\n", "each state of a variable once"),
        ("variable,state\na,\na,\n", "each state of a variable once"),
    ],
)
def test_what_is_no_codebook_is_refused(folder, capsys, text, word):
    (folder / "codebook.csv").write_text(text)
    assert main(["model", "codebook.csv"]) == 1
    assert word in capsys.readouterr().err
    assert main(["model", "codebook.csv", "--out", "model.toml"]) == 1
    assert "--force" in capsys.readouterr().err
