"""The figures: what is written, what is kept for the next run, and that the numbers tell the paper's story."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bayesprivmrf.errors import ArgumentError, DataError
from benchmarks.papers import FIGURES, ErdosRenyi, SimulationCell, find_networks, prising, reproduce
from benchmarks.papers.cells import cell_path, compute, kept_rows
from benchmarks.papers.command import main
from benchmarks.papers.experiments import COLUMNS
from benchmarks.papers.run import NOTE_REAL, NOTE_SIMULATED

PRISING = {name for name in FIGURES if name.startswith("prising-")}
KINDS = [f"prising-fig{number}" for number in (1, 3, 5, 6, 11, 12)]  # one of each kind of picture

TINY = replace(
    prising.QUICK,
    repetitions=4,
    burn_in=20,
    noise_draws=50,
    nodes=60,
    betas=(0.0, 0.5, 1.5),
    network_betas=(0.0, 0.5, 1.0),
    sizes=(40, 60, 80),
    exponents=(0.2, 0.5),
    epsilons=(1.0, 5.0),
    wide_epsilons=(1.0, 10.0),
    offsets=(-0.5, 0.0),
)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(prising, "QUICK", TINY)


@pytest.fixture
def files(tmp_path):
    """Both published files, made up: thirty nodes in a ring with chords, outcomes in runs with one dissenter."""
    folder = tmp_path / "files"
    folder.mkdir()
    ties = [(i, (i + step) % 30) for i in range(30) for step in (1, 2)]
    nodes = "".join(
        f'node [ id {i} label "b{i}" value {int(i % 10 < 6 and i != 3)} ]\n' for i in range(30)
    )
    arcs = "".join(f"edge [ source {a} target {b} ]\n" for a, b in ties)
    (folder / "polblogs.gml").write_text(f"graph [\ndirected 1\n{nodes}{arcs}]\n")
    status = [int(i % 10 < 3 or i == 15) for i in range(30)]
    rows = [(1, 1, 0, a, b, status[a], status[b]) for a, b in ties]
    header = ("STUDYNUM", "TIETYPE", "DYADTYPE", "ID1", "ID2", "HIV1", "HIV2")
    lines = ["\t".join(map(str, row)) for row in (header, *rows)]
    (folder / "22140-0002-Data.tsv").write_text("\n".join(lines) + "\n")
    return folder


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main([*arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize(
    "asked",
    [KINDS, ["prising-all"]],
    ids=["each kind", "all"],
)
@pytest.mark.slow
def test_figures_are_written_where_the_files_are_given(asked, tiny, files, tmp_path, capsys):
    out, names = tmp_path / "out", PRISING if asked == ["prising-all"] else set(asked)
    code, printed, said = run(
        capsys, *asked, "--quick", "--out", str(out), "--data", str(files), "--jobs", "1", "--json"
    )
    assert code == 0
    assert {entry["figure"] for entry in json.loads(printed)["figures"]} == names
    for name in names:
        info = FIGURES[name]
        table = pd.read_csv(out / f"{name}-quick.csv")
        assert (out / f"{name}-quick.png").read_bytes()[:4] == b"\x89PNG"
        assert set(table["note"]) == {NOTE_REAL if info.unprotected else NOTE_SIMULATED}
        assert (f"{name} is computed from real outcomes" in said) == info.unprotected
        assert set(table["seed"]) == {1}
        if name not in ("prising-fig6", "prising-fig9"):
            assert tuple(table.columns) == (*COLUMNS, "seed", "note")
            assert {"paper", "paper-laplace", "tight"} <= set(table["estimator"])
            private = table[table["estimator"] != "mple"]
            assert np.isfinite(private[["epsilon", "delta", "curvature", "mean", "mse"]]).all(
                axis=None
            )
    layout = pd.read_csv(out / "prising-fig6-quick.csv")
    assert len(layout) == 30
    assert (layout["state"] == 1).sum() == 10
    drawn = pd.read_csv(out / "prising-fig12-quick.csv")
    assert list(dict.fromkeys(drawn["network"])) == ["erdos-renyi", "hiv", "blogs"]


@pytest.mark.parametrize("name", ["prising-fig1", "prising-fig2", "prising-fig5"])
def test_grids_and_budgets_are_those_of_the_scale(name):
    cells = prising.cells_of(name, TINY, {}, seed=3)
    values = [
        (cell.source.nodes, cell.source.exponent, cell.beta, cell.epsilons)  # type: ignore[attr-defined]
        for cell in cells
    ]
    expected = {
        "prising-fig1": [(60, 1 / 3, beta, (5.0,)) for beta in (0.0, 0.5, 1.5)],
        "prising-fig2": [(n, 1 / 3, 0.5, (1.0, 5.0)) for n in (40, 60, 80)],
        "prising-fig5": [(60, a, 1.5, (1.0, 5.0)) for a in (0.2, 0.5)],
    }
    assert values == expected[name]


def test_full_size_keeps_what_the_paper_states():
    cells = prising.cells_of("prising-fig1", prising.FULL, {}, seed=1)
    assert len(cells) == 21
    first = cells[0]
    assert isinstance(first, SimulationCell)
    assert (first.repetitions, first.epsilons) == (500, (5.0,))
    assert first.source == ErdosRenyi(nodes=2000, exponent=1 / 3, seed=1)
    assert [cell.settings()["beta"] for cell in cells[::10]] == [0.0, 1.0, 2.0]


def test_outcomes_are_simulated_by_cluster_moves_on_the_real_networks_alone(files):
    cells = prising.cells_of("prising-fig12", TINY, find_networks([files]), seed=1)[::2]
    assert [cell.settings()["source"]["network"] for cell in cells] == [
        "erdos-renyi",
        "hiv",
        "blogs",
    ]
    used = ["heat-bath", "swendsen-wang", "swendsen-wang"]
    assert [cell.settings()["moves"] for cell in cells] == used


def test_a_graph_has_the_edges_and_the_coupling_of_its_law():
    source = ErdosRenyi(nodes=400, exponent=1 / 3, seed=2)
    network = source.network()
    p = 400 ** (-1 / 3)
    pairs = 400 * 399 / 2
    # five standard deviations, level 6e-7
    assert abs(network.coupling.nnz / 2 - pairs * p) < 5 * np.sqrt(pairs * p * (1 - p))
    assert network.coupling.data == pytest.approx(1 / (400 * p))
    assert (source.network().coupling != network.coupling).nnz == 0
    assert (replace(source, seed=3).network().coupling != network.coupling).nnz


@pytest.mark.slow
def test_a_second_run_computes_nothing_and_gives_the_same(tiny, tmp_path, capsys):
    arguments = ("prising-fig1", "--quick", "--out", str(tmp_path / "out"), "--jobs", "1", "--json")
    assert json.loads(run(capsys, *arguments)[1])["figures"][0]["kept"] == 0
    path = tmp_path / "out" / "prising-fig1-quick.csv"
    first = path.read_text()
    path.unlink()
    entry = json.loads(run(capsys, *arguments)[1])["figures"][0]
    assert (entry["cells"], entry["kept"]) == (3, 3)
    assert path.read_text() == first


def test_a_run_that_was_broken_off_computes_what_is_missing_alone(tmp_path):
    cells = prising.cells_of("prising-fig1", TINY, {}, seed=1)
    whole = compute(cells, tmp_path, jobs=1, advance=lambda: None)
    cell_path(tmp_path, cells[1]).unlink()
    cell_path(tmp_path, cells[2]).write_text(
        '{"settings":'
    )  # the machine went down while it was written
    kept = cell_path(tmp_path, cells[0])
    before, ticks = kept.stat().st_mtime_ns, []
    assert compute(cells, tmp_path, jobs=1, advance=lambda: ticks.append(1)) == whole
    assert kept.stat().st_mtime_ns == before
    assert len(ticks) == 3


def test_another_seed_is_another_cell(tmp_path):
    first, second = (prising.cells_of("prising-fig1", TINY, {}, seed=seed)[1:2] for seed in (1, 2))
    rows = compute(first, tmp_path, jobs=1, advance=lambda: None)
    assert kept_rows(tmp_path, second[0]) is None
    assert compute(second, tmp_path, jobs=1, advance=lambda: None) != rows


@pytest.mark.slow
def test_two_processes_give_what_one_gives(tmp_path):
    cells = prising.cells_of("prising-fig1", TINY, {}, seed=4)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    alone = compute(cells, tmp_path / "one", jobs=1, advance=lambda: None)
    assert compute(cells, tmp_path / "two", jobs=2, advance=lambda: None) == alone


@pytest.mark.slow
def test_the_phase_change_and_the_gain_of_tight_constants_are_seen(tmp_path):
    scale = replace(TINY, nodes=400, repetitions=40, burn_in=100, betas=(0.5, 1.5))
    made = reproduce("prising-fig1", scale, {}, tmp_path, seed=1)
    assert made is not None
    mse = pd.read_csv(made.table).set_index(["beta", "estimator"])["mse"]
    # at n = 400 the errors differ tenfold, and 40 repetitions give each to about a third
    for name in ("mple", "tight"):
        assert mse[0.5, name] > 4 * mse[1.5, name]
    assert mse[0.5, "paper"] > 2 * mse[0.5, "tight"]
    assert mse[1.5, "paper"] > 2 * mse[1.5, "tight"]


@pytest.mark.slow
def test_the_cost_of_privacy_falls_with_epsilon_and_is_about_the_estimate(files, tmp_path):
    published = find_networks([files])
    scale = replace(TINY, noise_draws=2000, wide_epsilons=(5.0, 100.0))
    made = reproduce("prising-fig11", scale, published, tmp_path, seed=1)
    assert made is not None
    table = pd.read_csv(made.table)
    blogs = published["blogs"]
    assert float(table["beta"].iloc[0]) == blogs.network().maximum_pseudo_likelihood(blogs.spins())
    assert set(table["bounds"]) == {"none", "0 to 5"}
    mse = table[table["bounds"] == "0 to 5"].set_index(["estimator", "epsilon"])["mse"]
    for name in ("paper", "paper-laplace", "tight"):
        assert mse[name, 100.0] < mse[name, 5.0]
    assert mse["tight", 100.0] < mse["paper", 100.0] / 4


@pytest.mark.slow
def test_a_figure_without_its_file_is_skipped_with_the_reason(tiny, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ("--quick", "--out", str(out), "--jobs", "1")
    code, printed, said = run(capsys, "prising-fig10", "prising-fig1", *arguments)
    assert code == 0
    assert re.search(
        r"prising-fig10 skipped: it needs the political blogs' polblogs.gml; name .* --data", said
    )
    assert "fig10" not in printed
    assert (out / "prising-fig1-quick.png").exists()
    code, _, said = run(capsys, "prising-fig8", *arguments)
    assert code == 1
    assert "prising-fig8 was skipped, because it needs table DS0002 of ICPSR 22140" in said
    code, _, said = run(capsys, "prising-fig12", *arguments)
    assert code == 0
    assert "prising-fig12: panels that need table DS0002" in said
    assert set(pd.read_csv(out / "prising-fig12-quick.csv")["network"]) == {"erdos-renyi"}


def test_data_that_cannot_be_found_or_read_is_refused(tmp_path, capsys):
    with pytest.raises(ArgumentError, match="must name a file or a folder that exists"):
        find_networks([tmp_path / "nowhere"])
    with pytest.raises(ArgumentError, match="holds none of them"):
        find_networks([tmp_path])
    broken = tmp_path / "polblogs.gml"
    broken.write_text("graph [ ]")
    with pytest.raises(DataError, match="blogs' GML"):
        reproduce("prising-fig9", TINY, find_networks([broken]), tmp_path / "out", seed=1)
    code, _, said = run(
        capsys, "prising-fig9", "--data", str(broken), "--out", str(tmp_path / "out")
    )
    assert code == 1
    assert "blogs' GML" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("prising-fig99",), "must be prising-all, cgm-all, zhang-all or one of"),
        (("prising-fig1", "--jobs", "0"), "whole number of at least 1"),
        (("prising-fig1", "--seed", "-1"), "whole number of at least 0"),
    ],
)
def test_wrong_usage_is_refused(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*arguments])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_a_file_for_a_folder_is_refused(tmp_path, capsys):
    target = tmp_path / "file"
    target.write_text("mine")
    code, _, said = run(capsys, "prising-fig1", "--out", str(target))
    assert code == 1
    assert "must name a folder" in said
    assert target.read_text() == "mine"


def test_without_a_name_the_figures_are_listed(capsys):
    code, printed, _ = run(capsys)
    assert code == 0
    assert [line.split()[0] for line in printed.splitlines()[2:]] == list(FIGURES)
    with pytest.raises(ArgumentError, match="must be one of"):
        prising.cells_of("prising-fig99", TINY, {}, seed=1)
