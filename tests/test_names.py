"""Variables and states with the names of columns and axes of results: both are kept."""

import io
import json
import warnings

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import cli, plots
from bayesprivmrf import queries as q
from bayesprivmrf.errors import BayesPrivMRFError, SamplingWarning
from bayesprivmrf.mechanisms import LaplaceStatistics, SelectMeasure
from bayesprivmrf.noise import Laplace
from bayesprivmrf.readers import read_counts
from bayesprivmrf.release import NoisyStatistics

# columns of interval frames, of files of the command line, and of tables that readers take
COLUMNS = ["estimate", "lower", "upper", "status", "note", "probability", "simulated"]
READ = ["value", "variance", "scale", "law", "query"]
# axes, parts and attributes of trees, arrays and graphs
AXES = [
    "chain",
    "draw",
    "sample",
    "cell",
    "noisy_cell",
    "effect",
    "order",
    "table",
    "total",
    "position",
]
PARTS = [
    "marginal",
    "counts",
    "noisy_counts",
    "posterior",
    "lp",
    "privacy",
    "answer",
    "method",
    "variable",
    "other",
]
# names that pandas and the counting of records use
FOREIGN = [
    "index",
    "level_0",
    "n",
    "size",
    "len",
    "count",
    "weight",
    "fields",
    "association",
    "k0",
    "status_",
]
OTHER = [0, 1, 7, -3, 2.5, ("a", 1)]
NAMES = [*COLUMNS, *READ, *AXES, *PARTS, *FOREIGN, *OTHER]
MODEL = bpm.model.ModelSpecification.from_pgmpy(
    bpm.declare(
        {**{name: ["x", "y"] for name in NAMES}, "b": ["u", "v"], "s": NAMES},
        [*[(name, "b") for name in NAMES], ("s", "b")],
    )
)
COUNTS = [[50.0, 20.0], [10.0, 40.0]]
CONTRACT = ["estimate", "lower", "upper", "status", "note"]
ids = {"ids": str}


@pytest.fixture(scope="module")
def release():
    rng = np.random.default_rng(1)  # equal sums would be taken for copies
    tables = {(name, "b"): COUNTS + rng.laplace(size=(2, 2)) for name in NAMES}
    states = np.full((2, len(NAMES)), 60.0 / len(NAMES)) + rng.laplace(size=(2, len(NAMES)))
    return NoisyStatistics.from_tables(MODEL, {**tables, ("b", "s"): states}, noise=Laplace(1.0))


@pytest.fixture(scope="module")
def solution(release):
    return bpm.NoiseAwareMAP().fit(release)


def smaller(names):
    """A release of fewer variables, for what takes longer."""
    network = bpm.declare(
        {**{name: ["x", "y"] for name in names}, "b": ["u", "v"]}, [(name, "b") for name in names]
    )
    rng = np.random.default_rng(2)
    tables = {(name, "b"): COUNTS + rng.laplace(size=(2, 2)) for name in names}
    return NoisyStatistics.from_tables(network, tables, noise=Laplace(1.0))


DRAWN = [
    "status",
    "estimate",
    "simulated",
    "chain",
    "draw",
    "sample",
    "cell",
    "table",
    "total",
    "status_",
    0,
]


def drawn(names):
    """A short posterior of variables of these names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        return bpm.LatentCounts(formulation="exact").fit(
            smaller(names), rng=1, draws=4, tune=4, chains=2
        )


@pytest.fixture(scope="module")
def posterior():
    return drawn(DRAWN)


def read_back(frame):
    text = io.StringIO()
    frame.reset_index().to_csv(text, index=False)
    text.seek(0)
    return pd.read_csv(text)


def require_both(frame, name):
    """The frame keeps the contract's columns, and the variable beside them under its name or one with underscores."""
    flat = frame.reset_index()
    first = flat.columns[0]
    assert list(flat.columns) == [first, "b", *CONTRACT]
    assert first == name if name not in CONTRACT else first.rstrip("_") == name
    assert flat[first].tolist() == ["x", "x", "y", "y"]
    assert flat["status"].isin(["ok", "model", "prior", "doubtful", "not trusted"]).all()
    written = read_back(frame)
    assert list(written.columns) == list(map(str, flat.columns))
    assert written["estimate"].tolist() == pytest.approx(frame["estimate"].tolist())


@pytest.mark.parametrize(
    "name", [*COLUMNS, "cell", "method", *FOREIGN[:4], "status_", 0, ("a", 1)], **ids
)
def test_interval_frames_keep_a_variable_beside_their_columns(solution, name):
    require_both(solution.interval([name, "b"]), name)
    alone = solution.interval(name)
    assert alone.sort_values("estimate").query("status != 'none'").shape == (2, 5)
    assert alone.reset_index().shape == (2, 6)


@pytest.mark.parametrize("name", NAMES, **ids)
def test_arrays_of_marginals_become_frames_and_data_sets(solution, name):
    table = solution.marginal([name, "b"])
    assert table.sel({str(name): "x"}).sum() + table.sel({str(name): "y"}).sum() == pytest.approx(
        1.0
    )
    flat = table.to_dataframe().reset_index()
    assert list(flat.columns[:2]) == [str(name), "b"]
    assert flat.iloc[:, 2].sum() == pytest.approx(1.0)
    assert table.to_dataset().sizes == {str(name): 2, "b": 2}


@pytest.mark.parametrize("name", ["status", "simulated", "chain", "cell", "status_", 0], **ids)
def test_posteriors_keep_a_variable_beside_their_axes(posterior, name):
    require_both(posterior.interval([name, "b"]), name)
    measured = posterior.quantity(lambda draw: draw.marginal([name, "b"]))
    assert measured.draws.shape == (2, *measured.draws.shape[1:2], 2, 2)
    flat = measured.frame.reset_index()
    assert (len(flat), len(flat.columns), len(set(flat.columns))) == (4, 7, 7)
    table = next(
        array
        for array in posterior.tree["posterior"].data_vars.values()
        if str(array.name).startswith("marginal[")
        and array.dims[2].rstrip("_") == str(name).rstrip("_")
    )
    assert table.dims[:2] == ("chain", "draw")
    assert len(set(table.dims)) == 4
    assert table.to_dataframe().shape[0] == table.size


def test_a_posterior_of_such_names_comes_back_from_its_file(tmp_path):
    posterior = drawn(["status", "chain", 0])
    posterior.save(tmp_path / "p.nc")
    again = bpm.load_posterior(tmp_path / "p.nc")
    pd.testing.assert_frame_equal(
        again.interval(["status", "b"]), posterior.interval(["status", "b"])
    )
    assert again.specification == posterior.specification


def test_states_of_such_names_are_labels_of_rows(solution):
    frame = solution.interval("s")
    assert frame.index.tolist() == NAMES
    assert read_back(frame)["s"].tolist() == list(map(str, NAMES))
    wide = solution.interval(["b", "s"])["estimate"].unstack("b")
    assert wide.shape == (len(NAMES), 2)
    assert solution.marginal("s").sel(s="status") == pytest.approx(frame.loc["status", "estimate"])
    drawn = solution.sample(5, rng=1)
    assert list(drawn.columns) == list(MODEL.domain.variables)
    assert set(drawn["s"]) <= set(NAMES)


def test_files_of_the_command_line_have_distinct_names_of_columns(tmp_path, capsys):
    names = [*COLUMNS, 0, 7]
    smaller(names).save(tmp_path / "r")
    assert cli.main(["fit", str(tmp_path / "r"), "--out", str(tmp_path / "fit")]) == 0
    assert cli.main(["fit", str(tmp_path / "r"), "--json"]) == 0
    capsys.readouterr()
    files = sorted((tmp_path / "fit" / "marginals").glob("*.csv"))
    for name, file in zip(names, files, strict=True):
        columns = file.read_text().splitlines()[0].split(",")
        assert len(set(columns)) == len(columns)
        assert columns[0].rstrip("_") == str(name).rstrip("_")
        assert {"b", "lower", "upper", "status", "note", "simulated"} <= set(columns)
    network = json.loads((tmp_path / "fit" / "network.json").read_text())
    assert [variable["name"] for variable in network["variables"]][:2] == ["estimate", "lower"]


@pytest.mark.parametrize(
    "name",
    ["note", *READ, "cell", "table", "answer", *FOREIGN[:4], "count", 0, 2.5, ("a", 1)],
    **ids,
)
def test_readers_keep_a_variable_beside_the_columns_of_noise(tmp_path, name):
    network = bpm.declare({name: ["x", "y"], "b": ["u", "v"]}, [(name, "b")])
    column = f"{name}_" if name in READ else str(name)
    rows = pd.DataFrame(
        {column: ["x", "x", "y", "y"], "b": ["u", "v"] * 2, "value": [50, 20, 10, 40.0]}
    )
    wanted = NoisyStatistics.from_tables(network, {(name, "b"): COUNTS}, noise=Laplace(2.0))
    rows.to_csv(tmp_path / "rows.csv", index=False)
    for source in (rows, tmp_path / "rows.csv", rows.assign(scale=2.0)):
        noise = (
            "laplace" if source is not rows and isinstance(source, pd.DataFrame) else Laplace(2.0)
        )
        assert read_counts(network, source, noise=noise) == wanted
    renamed = rows.rename(columns={column: "own", "value": "counted"})
    called = {f"{name}_" if name in READ else name: "own", "value": "counted"}
    assert read_counts(network, renamed, noise=Laplace(2.0), columns=called) == wanted
    # labeled tables
    frame = rows.rename(columns={column: name}) if name != "value" else None
    if frame is not None:
        labeled = frame.set_index([name, "b"])["value"]
        assert (
            NoisyStatistics.from_tables(network, {(name, "b"): labeled}, noise=Laplace(2.0))
            == wanted
        )


@pytest.mark.parametrize("name", READ)
def test_a_column_of_noise_is_not_taken_for_a_variable(name):
    network = bpm.declare({name: ["x", "y"], "b": ["u", "v"]}, [(name, "b")])
    rows = {name: ["x", "y"], "b": ["u", "v"], "value": [1.0, 2.0]}
    with pytest.raises(BayesPrivMRFError, match=f"'{name}_' for the variable '{name}'"):
        read_counts(network, rows, noise=Laplace(2.0))


@pytest.mark.parametrize("name", ["status", *FOREIGN, 0, True, ("a", 1)], **ids)
def test_records_of_such_columns_are_released_learned_and_drawn(name, tmp_path):
    columns = pd.Index([name, "b"], dtype=object, tupleize_cols=False)
    cells = np.repeat([["x", "u"], ["x", "v"], ["y", "u"], ["y", "v"]], [50, 20, 10, 40], axis=0)
    data = pd.DataFrame(cells, columns=columns)
    states = {name: ["x", "y"], "b": ["u", "v"]}
    network = bpm.declare(states, [(name, "b")])
    made = LaplaceStatistics(epsilon=50.0).release(network, data, rng=1)
    if isinstance(name, str):
        import polars as pl

        lazy = pl.DataFrame({str(name): data[name].to_list(), "b": data["b"].to_list()}).lazy()
        many = LaplaceStatistics(epsilon=50.0, person="who", at_most=1).release(
            network, lazy.with_row_index("who"), rng=1
        )
        assert many.flat == pytest.approx(made.flat, abs=2.0)
    learned = SelectMeasure(rho=50.0, degree=1, measure="tables").release(
        bpm.declare(states), data, rng=1
    )
    assert learned.association(name, "b").to_dataframe().reset_index().shape == (4, 3)
    assert learned.couplings_interval().reset_index().columns.is_unique
    for each in (made, learned):
        each.save(tmp_path / "r", overwrite=True)
        assert bpm.load_release(tmp_path / "r").specification.domain.variables == (name, "b")


def test_pictures_and_queries_take_such_names(solution):
    for name in (*COLUMNS, 0):
        figure = plots.marginal_forest({"fit": solution}, [name, "b"])
        assert figure is not None
    frame = solution.interval(q.table("status", "b"))
    assert frame.reset_index().columns.tolist() == ["answer", *CONTRACT]
