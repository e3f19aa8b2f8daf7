"""The figures of Bernstein et al. 2017: their tables, what is kept, and what is said of them."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bayesprivmrf.errors import DataError
from bayesprivmrf.inference import Status
from benchmarks.papers import (
    FIGURES,
    SequenceCell,
    cgm,
    cgm_cells,
    find_networks,
    graphs,
    reproduce,
    run,
)
from benchmarks.papers.cgm_findings import finding
from benchmarks.papers.command import main
from benchmarks.papers.panels import SimulatedPanel

TINY = replace(
    cgm.QUICK,
    nodes=4,
    chain_states=3,
    graph_states=2,
    grid_states=2,
    totals=(100, 1_000),
    grid_records=(100,),
    fixed_records=1_000,
    edge_records=500,
    ridges=(1e-8, 1.0),
    epsilons=(0.5,),
    populations=2,
    draws=2,
    people=400,
    people_length=3,
    people_states=4,
    people_epsilons=(1.0,),
    steps=(5,),
    clips=(1.0, 2.0),
)
NAMES = [name for name in FIGURES if name.startswith("cgm-")]


@pytest.fixture
def files(tmp_path):
    """MSNBC's file and biofam's, made up: some visits too short to be kept."""
    rng = np.random.default_rng(5)
    folder = tmp_path / "files"
    folder.mkdir()
    visits = [" ".join(map(str, rng.integers(1, 18, 3 if k % 3 else 20))) for k in range(90)]
    header = "% Different categories found in input file:\n\nfrontpage news\n\n% Sequences:\n\n"
    (folder / "msnbc990928.seq").write_text(header + " \r\n".join(visits) + " \r\n")
    courses = pd.DataFrame(rng.integers(0, 8, (60, 4)).astype(float), columns=list("abcd"))
    courses.to_csv(folder / "biofam_states.csv", index=False)
    return folder


def made_of(name, folder, published=None, scale=TINY, seed=1):
    made = reproduce(name, scale, published or {}, folder, seed=seed)
    assert made is not None
    return made, pd.read_csv(made.table)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Every figure of one seed, made by the command: the folder, and what was printed."""
    folder, printed = tmp_path_factory.mktemp("cgm"), io.StringIO()
    arguments = ["cgm-all", "--quick", "--out", str(folder), "--jobs", "1", "--json"]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(cgm, "QUICK", TINY)
        assert main(arguments) == 0
    return folder, json.loads(printed.getvalue())["figures"]


def table_of(made, name):
    return pd.read_csv(made[0] / f"{name}-quick.csv")


@pytest.mark.slow
def test_every_figure_has_table_picture_and_finding(made):
    folder, printed = made
    assert [entry["figure"] for entry in printed] == NAMES
    for entry in printed:
        table = table_of(made, entry["figure"])
        assert (folder / f"{entry['figure']}-quick.png").read_bytes()[:4] == b"\x89PNG"
        assert set(table["note"]) == {run.NOTE_SIMULATED}
        assert entry["finding"] == finding(entry["figure"], table)


@pytest.mark.slow
def test_figure_1_has_its_three_panels(made):
    table = table_of(made, "cgm-fig1")
    assert {panel: set(own["graph"]) for panel, own in table.groupby("panel")} == {
        "a": {"chain"},
        "b": {"Erdős-Rényi"},
        "c": {"chain"},
    }
    a, c = table[table["panel"] == "a"], table[table["panel"] == "c"]
    assert sorted(set(a["records"])) == [100, 1_000]
    assert set(a["method"]) == {cgm_cells.NON_PRIVATE, cgm_cells.RAW, "naive MLE"}
    assert len(set(c["method"])) == 4
    assert np.isfinite(table["mse"]).all()


@pytest.mark.slow
def test_figure_2_nests_draws_of_noise_in_data_sets(made):
    table = table_of(made, "cgm-fig2")
    assert set(table["method"]) == {cgm_cells.RANDOM, cgm_cells.NON_PRIVATE, *cgm_cells.COMPARED}
    cell = table[(table["graph"] == "third-order chain") & (table["records"] == 100)]
    trials = cell.groupby("method")[["population", "draw"]].apply(
        lambda own: sorted(own.value_counts().index)
    )
    for method in cgm_cells.COMPARED:
        assert trials[method] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert (cell["method"] == cgm_cells.NON_PRIVATE).sum() == 2
    assert (table["kl"] > 0).all()


@pytest.mark.slow
def test_figure_3a_has_every_cell_of_every_edge(made):
    table = table_of(made, "cgm-fig3a")
    truth = graphs.truth_of(graphs.Graph(kind="Erdős-Rényi", nodes=4, states=2, seed=1))
    for _, own in table.groupby("method"):
        assert own["true"].to_numpy() == pytest.approx(truth.marginals.flat)
        assert own.groupby("edge")["inferred"].sum().to_numpy() == pytest.approx(1)


@pytest.mark.slow
def test_figure_3b_searches_twice_and_pays_for_it_once(made):
    pytest.importorskip("dp_accounting")
    table = table_of(made, "cgm-fig3b")
    assert set(table["method"]) == {
        cgm_cells.NON_PRIVATE,
        *cgm_cells.COMPARED,
        cgm_cells.PSGD,
        cgm_cells.PSGD_FREE,
    }
    assert set(table["people"]) == {300}
    spent = table.set_index("method")["spent"]
    assert spent[cgm_cells.PSGD] == 1.0
    assert spent[cgm_cells.PSGD_FREE] > 1.0  # two trials of that budget each


@pytest.mark.slow
def test_the_users_sequences_get_panels_of_their_own_and_are_called_real(files, tmp_path):
    names = [
        "biofam"
    ]  # whose panel is computed; the other one has seventeen states, and takes a minute
    published = find_networks([files])
    assert set(published) == {"msnbc", "biofam"}
    states, visits = published["msnbc"].read()
    assert (len(states), visits.shape) == (17, (30, 16))
    scale = replace(TINY, steps=(), people_epsilons=(5.0,))
    panels = [
        cell.settings()["panel"]["panel"]
        for cell in cgm.cells_of("cgm-fig3b", scale, published, seed=1)
    ]
    assert list(dict.fromkeys(panels)) == ["simulated", "msnbc", "biofam"]
    made, table = made_of(
        "cgm-fig3b", tmp_path / "out", {name: published[name] for name in names}, scale
    )
    assert list(dict.fromkeys(table["data"])) == ["simulated", *names]
    assert made.is_real
    assert set(table["note"]) == {run.NOTE_REAL}
    assert "PSGD is left out" in made.finding


def test_sequences_that_are_not_what_they_should_be_are_refused(tmp_path):
    (tmp_path / "msnbc990928.seq").write_text("99 " * 16 + "\n")
    (tmp_path / "biofam.csv").write_text("a,b\nx,y\n")
    published = find_networks([tmp_path])
    with pytest.raises(DataError, match="states 1 to 17"):
        published["msnbc"].read()
    with pytest.raises(DataError, match="text of sequences"):
        published["biofam"].read()


@pytest.mark.slow
def test_a_second_run_computes_nothing(made):
    first = (made[0] / "cgm-fig2-quick.csv").read_text()
    second, _ = made_of("cgm-fig2", made[0])
    assert (second.cells, second.kept) == (2, 2)
    assert not second.is_real
    assert second.table.read_text() == first


def test_a_finding_counts_what_the_table_holds():
    """The same claim, true in the first half of the cells: the count follows the table."""
    rows = [
        {"graph": "chain", "epsilon": 1.0, "records": n, "method": method, "kl": kl}
        for n, cgm_kl in ((1, 0.5), (2, 1.5))
        for method, kl in (
            ("CGM", cgm_kl),
            (cgm_cells.CGM_PLAIN, 3.0),
            (cgm_cells.FIXED, 2.0),
            ("naive MLE", 1.0),
            ("noise-aware", 0.1),
        )
    ]
    said = finding("cgm-fig2", pd.DataFrame(rows))
    assert "with ridge 0.001 in 2 of 2 cells" in said
    assert re.search(
        r"follows the noise, in 1 of 2; CGM of 50 EM steps in 0 of 2 and in 0 of 2", said
    )
    assert "noise-aware estimate is below naive MLE in 2 of 2 and below CGM in 2 of 2" in said


def test_one_seed_is_one_graph_and_edges_are_distributions_of_one_draw():
    graph = graphs.Graph(kind="third-order chain", nodes=6, states=3, seed=2)
    truth = graphs.truth_of(graph)
    assert truth.specification.cliques == tuple(
        (f"v{i}", f"v{j}") for i in range(6) for j in range(i + 1, min(i + 4, 6))
    )
    assert np.exp(truth.potentials.flat).reshape(-1, 9).sum(axis=1) == pytest.approx(1)
    assert truth.status is Status.CONVERGED
    other = graphs.truth_of(replace(graph, seed=3))
    assert not np.allclose(truth.potentials.flat, other.potentials.flat)


def test_simulated_people_move_by_one_matrix():
    _, people = SimulatedPanel(people=20_000, length=6, states=3, seed=1).read()
    matrices = [
        pd.crosstab(people[f"x{t}"], people[f"x{t + 1}"], normalize="index").to_numpy()
        for t in range(1, 6)
    ]
    # a share of at least 1,000 people has a standard error of at most 0.016; five of them, level 1e-5
    for matrix in matrices[1:]:
        assert np.abs(matrix - matrices[0]).max() < 5 * 0.016 * 2**0.5


@pytest.mark.slow
def test_noise_dominates_errors_projection_helps_and_a_small_ridge_overfits(tmp_path):
    """Figure 1: errors are averages over hundreds of cells, so that the slopes stand far from the limits here."""
    _, table = made_of("cgm-fig1", tmp_path, scale=replace(cgm.QUICK, graph_states=5))
    table = table.groupby(["panel", "method", "records"])[["mse", "kl"]].median()
    sizes = (1_000, 100_000)
    for method, low, high in ((cgm_cells.RAW, 1.9, 2.1), (cgm_cells.NON_PRIVATE, 0.8, 1.2)):
        errors = [table.loc[("a", method, n), "mse"] for n in sizes]
        assert low < np.log10(errors[0] / errors[1]) / 2 < high
    by = {
        method: table.loc[("b", method, 1_000), "kl"]
        for method in (cgm_cells.FIXED, cgm_cells.NO_PROJECTION_FIXED)
    }
    assert by[cgm_cells.FIXED] < by[cgm_cells.NO_PROJECTION_FIXED]
    kl = table.loc["c"]["kl"].droplevel("records")
    noisy = kl[[name for name in kl.index if name.startswith("naive")]]
    assert noisy["naive MLE, ridge 1e-07"] > 10 * noisy.min()
    exact = kl[[name for name in kl.index if name.startswith(cgm_cells.NON_PRIVATE)]]
    assert exact[f"{cgm_cells.NON_PRIVATE}, ridge 1e-07"] < 2 * exact.min()


@pytest.mark.slow
def test_the_noise_aware_estimate_is_below_a_fixed_ridge_and_everything_below_random(tmp_path):
    """Figure 2: medians of nine trials a cell; CGM and the fixed ridge are level in one of the four."""
    scale = replace(cgm.QUICK, populations=3, draws=3, epsilons=(1.0,))
    _, table = made_of("cgm-fig2", tmp_path, scale=scale)
    kl = table.groupby(["graph", "records", "method"])["kl"].median().unstack("method")
    for method in ("CGM", "naive MLE", "noise-aware"):
        assert (kl[method] < kl[cgm_cells.RANDOM]).all()
        assert (kl[cgm_cells.NON_PRIVATE] < kl[method]).all()
    assert (kl["noise-aware"] < kl[cgm_cells.FIXED]).all()
    ratio = kl["CGM"] / kl[cgm_cells.FIXED]
    assert (ratio < 1.1).all()
    assert np.exp(np.log(ratio).mean()) < 0.8


@pytest.mark.slow
def test_inferred_edges_are_nearer_the_truth_without_noise(tmp_path):
    _, table = made_of("cgm-fig3a", tmp_path, scale=replace(cgm.QUICK, graph_states=8))
    table["error"] = (table["true"] - table["inferred"]).abs()
    error = table.groupby("method")["error"].mean()
    assert (error.drop(cgm_cells.NON_PRIVATE) > error[cgm_cells.NON_PRIVATE]).all()
    flat = (table["true"] - 1 / 64).abs().mean()
    assert (error < flat / 2).all()


@pytest.mark.slow
def test_held_out_people_are_predicted_better_with_more_budget(tmp_path):
    cells = [
        SequenceCell(
            panel=SimulatedPanel(people=4_000, length=6, states=10, seed=1),
            epsilon=epsilon,
            repetitions=2,
            methods=("naive MLE", "CGM", "noise-aware"),
            steps=(),
            clips=(),
            seed=1,
        )
        for epsilon in (None, 0.1, 1.0)
    ]
    table = pd.DataFrame([row for cell in cells for row in cell.rows()])
    means = table.groupby(["method", "epsilon"], dropna=False)["holdout_log_likelihood"].mean()
    level = float(means[cgm_cells.NON_PRIVATE].iloc[0])
    for method in ("naive MLE", "CGM", "noise-aware"):
        assert means[method, 0.1] < min(level, means[method, 1.0])
