"""`bayesprivmrf plan`: what a budget buys, before any data is read."""

from __future__ import annotations

import json

import pytest
from cli.toy import AB_MODEL, MODEL, WIDE_MODEL, run


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
