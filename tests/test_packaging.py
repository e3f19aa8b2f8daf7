"""What a published version consists of: one number, a changelog, licenses of data, a recipe."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bayesprivmrf

ROOT = Path(__file__).parents[1]
DATA = ROOT / "bayesprivmrf" / "data"


def test_every_file_states_the_same_version():
    version = re.escape(bayesprivmrf.__version__)
    for name, line in {
        "CITATION.cff": rf"^version: {version}$",
        "CHANGELOG.md": rf"^## {version} \(",
        "packaging/recipe.yaml": rf'^  version: "{version}"$',
    }.items():
        assert re.search(line, (ROOT / name).read_text("utf-8"), re.MULTILINE), name
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["dynamic"] == ["version"]


def test_every_shipped_data_file_has_a_license():
    named = set(
        re.findall(r"^\| `([^`]+)` \|", (DATA / "LICENSES.md").read_text("utf-8"), re.MULTILINE)
    )
    assert named == {path.name for path in DATA.iterdir()} - {"LICENSES.md"}


def test_a_fragment_becomes_an_entry_of_the_changelog(tmp_path):
    pytest.importorskip("towncrier")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "changelog.d", tmp_path / "changelog.d")
    (tmp_path / "changelog.d" / "+example.privacy.md").write_text("An example of an entry.\n")
    command = [
        sys.executable,
        "-m",
        "towncrier",
        "build",
        "--draft",
        "--version",
        "9.9.9",
        "--date",
        "2099-01-01",
    ]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert "## 9.9.9 (2099-01-01)" in shown.stdout
    assert "- An example of an entry." in shown.stdout


def test_the_shipped_survey_is_what_its_script_makes():
    pytest.importorskip("statsmodels")
    import gzip

    script = module("make_fair_survey")
    assert gzip.decompress((DATA / "fair_survey.csv.gz").read_bytes()) == script.fair_survey_csv()


def test_the_recipe_requires_what_the_package_requires():
    """Without `py-rattler-build` only the text of the recipe is compared; `.ci/run` renders it."""
    version, requirements = module("render_recipe").declared()
    recipe = (
        (ROOT / "packaging" / "recipe.yaml").read_text("utf-8").replace("${{ python_min }}", "3.12")
    )
    run = re.search(r"^  run:\n((?:    - .*\n)+)", recipe, re.MULTILINE)
    assert run is not None
    written = (line.removeprefix("    - ").partition(" ") for line in run[1].splitlines())
    assert {name: bounds for name, _, bounds in written} == requirements
    assert version == bayesprivmrf.__version__


def module(name: str):
    """Import a script of the folder `packaging`, which has the name of a package of others."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "packaging" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
