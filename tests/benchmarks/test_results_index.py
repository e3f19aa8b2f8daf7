"""The index of benchmarks/results describes every data file, and the benchmark pages show what the files hold."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
_PATH = ROOT / "docs" / "benchmark_pages.py"
_SPEC = importlib.util.spec_from_file_location("benchmark_pages", _PATH)
pages = importlib.util.module_from_spec(_SPEC)
sys.modules["benchmark_pages"] = pages
_SPEC.loader.exec_module(pages)

INDEX = pages.index(RESULTS)
TABLES = INDEX["table"]
COMMIT = re.compile(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{7,10}\b(?!\w)")


def named(entry):
    return entry["file"]


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)


def in_history(commit):
    return git("cat-file", "-e", f"{commit}^{{commit}}").returncode == 0


def test_every_file_has_an_entry_and_every_entry_its_file():
    files = {path.name for path in RESULTS.iterdir() if path.suffix in {".csv", ".json"}}
    described = {named(e) for e in TABLES + INDEX["raw"]} | {
        d for e in TABLES for d in e.get("data", [])
    }
    assert described == files


def test_no_file_has_two_tables():
    assert len({named(e) for e in TABLES}) == len(TABLES) <= 70


@pytest.mark.parametrize("entry", TABLES, ids=named)
def test_an_entry_has_every_key_and_no_other(entry):
    assert set(entry) >= pages.REQUIRED
    assert set(entry) <= pages.REQUIRED | pages.OPTIONS
    assert all(str(entry[key]).strip() for key in pages.REQUIRED - {"caveat"})
    assert entry["section"] in {section["name"] for section in INDEX["section"]}
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", entry["date"])


@pytest.mark.parametrize("entry", TABLES + INDEX["raw"], ids=named)
def test_commands_name_scripts_that_exist(entry):
    for line in entry["command"].strip().splitlines():
        if line.startswith("by hand"):
            continue
        script, module = (
            re.search(r"benchmarks/\w+\.py", line),
            re.search(r"-m (benchmarks[.\w]*)", line),
        )
        path = ROOT / script[0] if script else (ROOT / module[1].replace(".", "/"))
        assert path.exists() or path.with_suffix(".py").exists(), line


@pytest.mark.skipif(
    shutil.which("git") is None or not in_history("HEAD"), reason="no clone of the repository"
)
def test_commits_exist():
    if git("rev-parse", "--is-shallow-repository").stdout != "false\n":
        pytest.skip("the clone is shallow")
    quoted = {e["stored"] for e in TABLES + INDEX["raw"]}
    quoted |= {
        c for e in TABLES for key in ("commit", "caveat", "text") for c in COMMIT.findall(e[key])
    }
    assert {"6c6253b", "ddae869"} <= quoted
    assert [commit for commit in sorted(quoted) if not in_history(commit)] == []


@pytest.mark.parametrize("entry", TABLES, ids=named)
def test_a_table_has_cells_of_one_width(entry):
    header, rows = pages.table(entry, RESULTS)
    assert rows
    assert all(len(row) == len(header) for row in rows)
    assert all(
        any(cell for cell in column) for column in zip(*rows, strict=True)
    )  # no column is empty
    assert len({tuple(row) for row in rows}) == len(rows)
    assert "nan" not in {cell for row in rows for cell in row}


def test_a_pivot_is_the_statistic_of_its_rows():
    frame = pd.DataFrame(
        {"a": ["x", "x", "y"], "b": [1.0, 1.0, None], "v": [1.0, 3.0, 5.0], "n": [2, 2, 10]}
    )
    spec = {
        "rows": ["a"],
        "columns": ["b"],
        "measures": [{"value": "v", "statistic": "median"}],
        "where": {"a": ["y", "x"]},
    }
    frame_without_gap = frame.fillna(2.0)
    assert pages.pivoted(frame_without_gap, spec) == (
        ["a", "1", "2"],
        [["y", "", "5.00"], ["x", "2.00", ""]],
    )
    share = {
        "rows": ["a", "b"],
        "measures": [{"label": "share", "value": "v", "of": "n", "format": ".2f"}],
    }
    assert pages.pivoted(frame, share) == (
        ["a", "b", "share"],
        [["x", "1", "1.00"], ["y", "–", "0.50"]],
    )


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (0.000583, "3g", "0.000583"),
        (29412.3, "3g", "29,412"),
        (0.906, ".2f", "0.91"),
        (1000, "3g", "1,000"),
        ("20000", "3g", "20,000"),
        (0.0, "3g", "0"),
    ],
)
def test_numbers_are_written_out(value, form, text):
    assert pages.shown(value, form) == text


def test_the_pages_hold_every_table_and_the_summary_its_pictures(tmp_path):
    names = pages.write(tmp_path, RESULTS)
    written = {
        name: (tmp_path / "benchmarks" / f"{name}.md").read_text(encoding="utf-8") for name in names
    }
    assert 5 <= len(names) <= 8
    assert sum(text.count("*Provenance.*") for text in written.values()) == len(TABLES)
    summary = (ROOT / "docs" / "benchmarks" / "index.md").read_text(encoding="utf-8")
    pictures = re.findall(r"!\[[^]]+\]\(images/(\w+)\.png\)", summary)
    assert len(pictures) >= 3
    assert all(
        (tmp_path / "benchmarks" / "images" / f"{name}.png").stat().st_size > 10_000
        for name in pages.PICTURES
    )
    assert set(pictures) <= set(pages.PICTURES)
    assert all(f"\n{name}\n" in summary for name in names)  # in the list of pages
    assert "{" not in (tmp_path / "benchmarks" / "_headlines.inc").read_text(encoding="utf-8")
    assert len(summary.split()) <= 900
