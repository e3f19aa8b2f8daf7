"""Every estimator on the release of every mechanism: it fits, or refuses, as docs/explanation/mechanisms.md says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import mechanisms
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference import registry

from .test_every_mechanism import DATA, SETTINGS, public

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "mechanisms.md").read_text(
    encoding="utf-8"
)
SECTION = PAGE.partition("## Which estimator reads which release")[2].partition("\n## ")[0]
HEAD, _, *ROWS = [
    [cell.strip(" `") for cell in line.strip("|").split("|")]
    for line in SECTION.splitlines()
    if line.startswith("|")
]
CELLS = [(row[0], *cell) for row in ROWS for cell in zip(HEAD[1:], row[1:], strict=True)]
NOTES = dict(re.findall(r"^(\d)\. (.*(?:\n   .*)*)", SECTION, re.MULTILINE))
OPTIONAL = {"queries": [q.parities(2), q.table("b", "c")], "degree": 2}

pytestmark = [
    pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning"),
    pytest.mark.filterwarnings(
        "ignore::bayesprivmrf.errors.SamplingWarning"
    ),  # twenty draws are not mixed
]


def called(row: str) -> tuple[str, dict]:
    """Return a mechanism's name and its settings: named ones as they are written, others those of the tests."""
    call = ast.parse(row, mode="eval").body
    given = {argument.id: None for argument in call.args}
    named = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
    known = SETTINGS[call.func.id] | OPTIONAL
    return call.func.id, SETTINGS[call.func.id] | {name: known[name] for name in given} | named


def number(mark: str) -> str:
    """Return the number of a note from its mark."""
    return str("⁰¹²³⁴⁵⁶⁷⁸⁹".index(mark)) if mark else ""


@pytest.fixture(scope="module")
def releases() -> dict:
    return {}


def test_the_table_has_every_mechanism_and_every_estimator_and_a_note_for_each_mark():
    assert {called(row)[0] for row, *_ in ROWS} == set(SETTINGS)
    named = {type(getattr(bpm, name.removesuffix("()"))()) for name in HEAD[1:]}
    assert named == {
        registry.estimator(name) for name in ("naive-mle", "cgm", "noise-aware", "posterior")
    }
    assert {number(cell[-1]) for *_, cell in CELLS if " " in cell} == set(NOTES)


@pytest.mark.parametrize(("row", "column", "cell"), CELLS)
def test_an_estimator_fits_or_refuses_with_what_its_note_quotes(row, column, cell, releases):
    if row not in releases:
        name, settings = called(row)
        data = np.ones(60, dtype=int) if name == "ObjectivePerturbation" else DATA
        releases[row] = getattr(mechanisms, name)(**settings).release(public(name), data, rng=1)
    release = releases[row]
    given = release if release.statistics is None else release.statistics
    settings = (
        {"rng": 1, "draws": 20, "tune": 20, "chains": 2} if column == "LatentCounts()" else {}
    )
    estimator = getattr(bpm, column.removesuffix("()"))()
    answer, _, mark = cell.partition(" ")
    if answer == "no":
        (quoted,) = re.findall('"([^"]+)"', NOTES[number(mark)])[:1]
        for each in (given, [given]):
            with pytest.raises(ArgumentError, match=re.escape(quoted)):
                estimator.fit(each, **settings)
        return
    assert answer == "yes"
    if "couplings" in NOTES.get(number(mark), ""):
        assert all(len(clique) == 1 for clique in given.specification.cliques)
    fitted = estimator.fit(given, **settings)
    assert fitted.is_simulated or row == "ExactStatistics()"
    for variable in DATA:
        share = DATA[variable].mean()
        assert fitted.marginal(variable).sel({variable: 1}).item() == pytest.approx(share, abs=0.1)
