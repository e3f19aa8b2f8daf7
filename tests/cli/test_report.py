"""`bayesprivmrf report`: one file with the promise, the intervals and the tests of a release."""

from __future__ import annotations

import json

import pytest
from cli.toy import RELEASE, run

import bayesprivmrf as bpm
from bayesprivmrf import analysis
from bayesprivmrf.release import load_release


def test_a_report_is_written_and_its_numbers_are_those_of_python(toy, capsys):
    assert run(capsys, *RELEASE)[0] == 0
    asked = ("--test", "a", "b", "--prob", "0.8", "--seed", "3")
    code, out, err = run(capsys, "report", "toy.release", *asked, "--json")
    assert code == 0
    assert "Wrote report.html" in err
    release = load_release("toy.release")
    solution = bpm.NoiseAwareMAP().fit(release)
    found = json.loads(out)
    assert found["statements"] == [release.privacy_statement()]
    tables = {table["caption"]: table["rows"] for table in found["tables"]}
    expected = analysis.odds_ratios(solution, "a", "b", prob=0.8)
    assert tables["Odds ratios of a and b"][0]["lower"] == pytest.approx(expected["lower"].iloc[0])
    test = analysis.independence_test(release, "a", "b", rng=3)
    assert found["tests"][0]["p_value"] == test.p_value
    page = (toy / "report.html").read_text(encoding="utf-8")
    assert release.privacy_statement() in page
    assert "independence of a and b" in page
    # the same file again needs leave, and Markdown is asked for by the name
    code, _, err = run(capsys, "report", "toy.release")
    assert code == 1
    assert "--force" in err
    code, out, _ = run(capsys, "report", "toy.release", "--out", "a.qmd", "--test", "b", "c", "a")
    assert code == 1  # no table holds all three
    code, out, _ = run(capsys, "report", "toy.release", "--out", "a.qmd")
    assert code == 0
    assert "What must not be concluded" in out
    assert (toy / "a.qmd").read_text(encoding="utf-8").startswith("---\ntitle:")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("--out", "a.pdf"), "`--out` must name a file that ends in one of .html"),
        (("--test", "a"), "name two variables"),
        (("--test", "a", "z"), "write --test with some of a, b, c"),
    ],
)
def test_what_cannot_be_reported_is_refused(toy, capsys, asked, words):
    assert run(capsys, *RELEASE)[0] == 0
    code, _, err = run(capsys, "report", "toy.release", *asked)
    assert code == 1
    assert words in err
    assert not (toy / "report.html").exists()


def test_a_method_without_intervals_has_no_report(toy, capsys):
    with pytest.raises(SystemExit):
        run(capsys, "report", "toy.release", "--method", "naive-mle")
    assert "a method that has intervals" in capsys.readouterr().err
