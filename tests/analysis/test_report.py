"""Reports say what was promised, escape every label, and name the rows that must not be used."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import analysis
from bayesprivmrf.errors import ArgumentError, ModelError, NoIntervalError
from bayesprivmrf.mechanisms import LaplaceStatistics, SelectMeasure
from bayesprivmrf.noise import DiscreteLaplace
from bayesprivmrf.plots import interval_forest

STATES: dict[Any, list[Any]] = {"smokes": ["no", "yes"], "ill": ["no", "yes"]}
COUNTS = np.array([[4_000, 900], [2_500, 1_200]])
EVIL = "<script>alert(1)</script>"


def release_of(states=STATES, counts=COUNTS, **stated):
    network = bpm.declare(states=states, cliques=[tuple(states)])
    noise = DiscreteLaplace(2.0)
    return bpm.NoisyStatistics.from_tables(network, {tuple(states): counts}, noise=noise, **stated)


@pytest.fixture(scope="module")
def release():
    return release_of()


@pytest.fixture(scope="module")
def solution(release):
    return bpm.NoiseAwareMAP().fit(release)


@pytest.fixture(scope="module")
def independence(release):
    return analysis.independence_test(release, "smokes", "ill", draws=99, rng=1)


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.links = []
        self.words = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def test_a_page_holds_every_number_and_needs_no_other_file(
    tmp_path, release, solution, independence
):
    path = analysis.report(
        release, solution, path=tmp_path / "a.html", tests={"smokes and ill": independence}
    )
    page = Page(path.read_text(encoding="utf-8"))
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    # pictures refer to their own shapes alone
    assert all(link.startswith("#") for link in page.links)
    assert page.tags.count("svg") == 1  # the graph; one odds ratio needs no picture
    (row,) = analysis.odds_ratios(solution, "smokes", "ill").to_dict("records")
    for number in ("estimate", "lower", "upper"):
        assert f"{row[number]:.2f}" in page.text
    assert row["note"] in page.text
    assert release.privacy_statement() in page.text
    assert "smokes and ill" in page.text
    assert independence.method in page.text
    for sentence in solution.assumptions:
        assert sentence in page.text
    assert "@software{bayesprivmrf" in page.text


def test_markdown_says_the_same_as_the_page(tmp_path, release, solution, independence):
    asked: dict[str, Any] = {"tests": [independence]}
    page = Page(
        analysis.report(release, solution, path=tmp_path / "a.html", **asked).read_text("utf-8")
    )
    text = analysis.report(release, solution, path=tmp_path / "a.qmd", **asked).read_text("utf-8")
    for kind in ("h2", "svg"):
        mark = {"h2": r"^## ", "svg": r"^!\["}[kind]
        assert len(re.findall(mark, text, re.MULTILINE)) == page.tags.count(kind)
    rows = re.findall(r"^\| (?!:---)", text, re.MULTILINE)
    assert len(rows) == page.tags.count("tr")
    for data in re.findall(r"base64,([^)]*)", text):
        picture = base64.b64decode(data).decode()
        assert picture.startswith("<svg")
        assert "currentColor" not in picture
        assert "var(" not in picture


def reported(name, folder):
    """A report about a variable of this name, as a page and as Markdown."""
    release = release_of({name: ["no", f"{name}!"], "ill": ["no", "yes"]})
    solution = bpm.NoiseAwareMAP().fit(release)
    frame = analysis.odds_ratios(solution, name, "ill")
    asked: dict[str, Any] = {"tables": {str(frame.index[0]): frame}}
    written = [
        analysis.report(release, solution, path=folder / path, **asked)
        for path in ("a.html", "a.md")
    ]
    return [path.read_text("utf-8") for path in written]


@pytest.fixture(scope="module")
def harmless_report(tmp_path_factory):
    return reported("a", tmp_path_factory.mktemp("harmless"))


@pytest.mark.parametrize("name", [EVIL, "a|b\n# c", "`*_[x](y)$z$", "1. x", "--- {#id}", "&lt;b>"])
def test_labels_are_text_and_nothing_else(tmp_path, harmless_report, name):
    page, text = reported(name, tmp_path)
    harmless_page, harmless_text = harmless_report
    hostile, harmless = Page(page), Page(harmless_page)
    texts = [text, harmless_text]
    in_page = [tag for tag in hostile.tags if tag not in ("path", "use", "g", "defs", "clippath")]
    expected = [tag for tag in harmless.tags if tag not in ("path", "use", "g", "defs", "clippath")]
    assert in_page == expected
    assert name.replace("\n", r"\n") in hostile.text
    # unescaped bars are the borders of cells, and no line begins otherwise than in the harmless file
    bars, harmless_bars = (re.findall(r"(?<!\\)\|", text) for text in texts)
    assert len(bars) == len(harmless_bars)
    begins = [[line[:2] for line in text.splitlines()] for text in texts]
    assert begins[0] == begins[1]
    assert not re.search(r"(?<!\\)<script|(?<!\\)\$|(?<![\\!])\[x", texts[0])


def test_a_simulated_release_is_marked_and_never_called_private(tmp_path):
    data = pd.DataFrame({"smokes": ["no", "yes"] * 200, "ill": ["no", "no", "yes", "yes"] * 100})
    network = bpm.declare(states=STATES, cliques=[("smokes", "ill")])
    release = LaplaceStatistics(epsilon=1.0).release(network, data, rng=1)
    solution = bpm.NoiseAwareMAP().fit(release)
    page = Page(analysis.report(release, solution, path=tmp_path / "a.html").read_text("utf-8"))
    assert "protects nobody" in page.text
    assert "costs no further privacy budget" not in page.text


def test_rows_that_must_not_be_used_are_counted_in_words(tmp_path, release, solution):
    frame = analysis.odds_ratios(solution, "smokes", "ill")
    bad = pd.concat([frame, frame.assign(status="prior"), frame.assign(status="not trusted")])
    path = analysis.report(release, solution, path=tmp_path / "a.html", tables={"ratios": bad})
    text = path.read_text("utf-8")
    page = Page(text)
    assert "1 row has the status “prior”" in page.text
    assert "1 row has the status “not trusted”" in page.text
    assert "ratios (1)" in page.text
    assert text.count('<tr class="mark">') == 2


def test_a_doubtful_test_and_several_tests_are_warned_of(tmp_path, release, solution, independence):
    tests = {"one": independence, "two": replace(independence, status="doubtful")}
    path = analysis.report(release, solution, path=tmp_path / "a.html", tests=tests)
    page = Page(path.read_text("utf-8"))
    assert "The test “two” has the status “doubtful”" in page.text
    assert "compare each p-value with 0.025" in page.text


def test_a_learned_model_has_its_own_graph(tmp_path):
    rng = np.random.default_rng(1)
    first = rng.integers(0, 2, 4_000)
    flipped = np.where(rng.random(4_000) < 0.1, 1 - first, first)
    data = pd.DataFrame({"a": first, "b": flipped, "c": rng.integers(0, 2, 4_000)})
    variables = bpm.declare(states={name: [0, 1] for name in data})
    learned = SelectMeasure(rho=0.5).release(variables, data, rng=1)
    path = analysis.report(learned, learned.solution, path=tmp_path / "a.html")
    assert "Graph of the learned model" in Page(path.read_text("utf-8")).text
    again = SelectMeasure(rho=0.5).release(variables, data, rng=2)
    with pytest.raises(ModelError, match="a fit of other numbers"):
        analysis.report(again, learned, path=tmp_path / "a.html")


def test_what_cannot_be_reported_is_refused(tmp_path, release, solution):
    out = tmp_path / "a.html"
    with pytest.raises(ArgumentError, match=r"`path` must end in one of \.html"):
        analysis.report(release, solution, path=tmp_path / "a.pdf")
    with pytest.raises(NoIntervalError, match="NoiseAwareMAP"):
        analysis.report(release, bpm.NaiveMLE().fit(release), path=out)
    with pytest.raises(ArgumentError, match="`release` must be what a mechanism"):
        analysis.report("survey.release", solution, path=out)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="`solution` must be a result of an estimator"):
        analysis.report(release, release, path=out)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="`tests` must hold results of tests"):
        analysis.report(release, solution, path=out, tests=[0.03])  # type: ignore[list-item]
    with pytest.raises(ArgumentError, match="`tables` must hold frames"):
        analysis.report(release, solution, path=out, tables={"x": pd.DataFrame({"p": [1]})})
    with pytest.raises(ArgumentError, match="`prob` must be"):
        analysis.report(release, solution, path=out, prob=1.5)
    other = release_of({"smokes": ["no", "yes"], "sick": ["no", "yes"]})
    with pytest.raises(ModelError, match="other variables or states"):
        analysis.report(other, solution, path=out)
    again = release_of(counts=COUNTS + 3)
    with pytest.raises(ModelError, match="a fit of other numbers"):
        analysis.report(again, solution, path=out)
    assert not out.exists()


def test_a_forest_of_intervals_has_hollow_points_for_rows_to_beware_of():
    rows = {
        "estimate": [1.2, 0.5, np.nan],
        "lower": [1.0, 1e-9, np.nan],
        "upper": [1.4, 0.9, np.nan],
        "status": ["ok", "prior", "not trusted"],
    }
    frame = pd.DataFrame(rows, index=pd.MultiIndex.from_product([["$x$"], ["a", "b", "c"]]))
    figure = interval_forest(frame, scale="log", reference=1.0, label="odds ratio")
    (panel,) = figure.axes
    assert [tick.get_text() for tick in panel.get_yticklabels()] == ["$x$, a", "$x$, b", "$x$, c"]
    drawn: list[Any] = list(panel.collections)
    filled, hollow, *_ = drawn[1:]
    assert len(filled.get_offsets()) == 1
    assert tuple(hollow.get_facecolors()[0][:3]) == (1.0, 1.0, 1.0)
    low, high = panel.get_xlim()
    # an interval that reaches nearly to 0 does not stretch the axis
    assert low > np.log(0.5 / 100)
    assert high > np.log(1.4)
    with pytest.raises(ArgumentError, match="`intervals` must have the columns"):
        interval_forest(pd.DataFrame({"estimate": [1]}))


def test_a_report_of_a_part_of_the_fitted_releases_is_refused(tmp_path):
    """It would leave out what the others cost, even if all their numbers are in the first."""
    network = bpm.declare(states={"a": [0, 1], "b": [0, 1]}, cliques=[("a", "b")])
    releases = [
        bpm.NoisyStatistics.from_tables(network, {("a", "b"): counts}, noise=DiscreteLaplace(2.0))
        for counts in ([[25, 24], [26, 27]], [[24, 25], [27, 26]])
    ]
    solution = bpm.NoiseAwareMAP().fit(releases)
    assert analysis.report(releases, solution, path=tmp_path / "report.html").exists()
    with pytest.raises(ModelError, match="a fit of other numbers"):
        analysis.report(releases[0], solution, path=tmp_path / "report.html")


@pytest.mark.parametrize("name", ["page.html", "page.md"])
def test_a_table_states_the_probability_of_its_intervals_and_its_assumptions(
    release, solution, tmp_path, name
):
    joint = analysis.odds_ratios(solution, "smokes", "ill", prob=0.95, simultaneous=True)
    held = analysis.risk_differences(solution, "smokes", "ill", prob=0.8).round(2)
    held.attrs["assumptions"] = ("No common cause is left out.",)
    foreign = held.copy()
    foreign.attrs.clear()
    tables = {"joint": joint, "held": held, "foreign": foreign}
    text = analysis.report(release, solution, path=tmp_path / name, tables=tables).read_text(
        "utf-8"
    )
    for sentence in (
        "Intervals of 95 %, for all rows jointly.",
        "Intervals of 80 %, for each row by itself.",
        "No common cause is left out.",
        "The probability of these intervals is not stated in the table.",
        "Each interval holds by itself, unless its table says jointly.",
    ):
        assert text.count(sentence) == 1


def test_a_standardization_brings_its_assumptions_and_probability_to_the_report():
    states: dict[Any, list[Any]] = STATES | {"old": ["no", "yes"]}
    counts = np.array([[[4_003, 2_511], [911, 1_207]], [[2_487, 3_989], [1_213, 902]]])
    release = release_of(states, counts)
    solution = bpm.NoiseAwareMAP().fit(release)
    whole = analysis.standardize(solution, "ill", on="smokes", over=["old"], prob=0.8)
    shown = whole.xs("difference").round(2).attrs
    assert shown["prob"] == 0.8
    assert not shown["simultaneous"]
    assert "no common cause" in shown["assumptions"][0]


def test_a_pair_in_two_cliques_is_compared_once(tmp_path):
    states = {"a": [0, 1, 2], "b": [0, 1], "c": [0, 1], "d": [0, 1]}
    network = bpm.declare(states, [("a", "b", "c"), ("d", "c", "b")])
    joint = 40 + np.arange(24).reshape(3, 2, 2, 2)
    tables = {("a", "b", "c"): joint.sum(axis=3), ("d", "c", "b"): joint.sum(axis=0).T}
    given = bpm.NoisyStatistics.from_tables(network, tables, noise=DiscreteLaplace(2.0))
    path = analysis.report(given, bpm.NoiseAwareMAP().fit(given), path=tmp_path / "a.md")
    captions = re.findall(r"\*\*Odds ratios of (\w) and (\w)\*\*", path.read_text(encoding="utf-8"))
    assert captions == [("a", "b"), ("a", "c"), ("b", "c"), ("b", "d"), ("c", "d")]


def test_a_short_interval_has_two_digits_of_its_length(tmp_path, release, solution):
    limits = {"lower": [6.51, 0.954, 5.01], "upper": [9.23, 1.196, 8.04]}
    frame = pd.DataFrame({"estimate": [7.71, 1.068, 6.02], **limits, "status": "ok", "note": "own"})
    path = analysis.report(release, solution, path=tmp_path / "a.md", tables={"own": frame})
    text = path.read_text(encoding="utf-8")
    assert "| 1.07 | 0.95 | 1.20 |" in text
    assert "| 7.7 | 6.5 | 9.2 |" in text
