"""Files of records on the command line: what is read, and what is refused without quoting it."""

from __future__ import annotations

import gzip

import pandas as pd
import pytest
from cli.toy import AB_MODEL, RECORDS, RELEASE, run

from bayesprivmrf.errors import (
    DataError,
)
from bayesprivmrf.records import read_declaration, read_records, recode


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
