"""Spark, Ibis and DuckDB count where the data are: the same tables, releases and refusals as pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import BayesPrivMRFError, DataError
from bayesprivmrf.mechanisms import (
    ExactStatistics,
    GaussianStatistics,
    LaplaceStatistics,
    SelectMeasure,
    StableStructure,
    reference,
)

# Ibis and PySpark use what pandas and NumPy are about to drop
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

STATES = {
    "sat": ["low", "high", "ÿ"],
    "age": [20, 40, 60],
    "ill": [False, True],
    "dose": [0.5, 1.0, 2.5],
}
NETWORK = bpm.declare(STATES, [("sat", "age"), ("ill", "dose"), ("age", "ill")])
MECHANISMS = {
    "Laplace": (LaplaceStatistics(epsilon=1.0), NETWORK),
    "Gaussian": (
        GaussianStatistics(rho=0.5, adjacency="replace-one", queries=[q.parities(1)]),
        NETWORK,
    ),
    "rounds": (SelectMeasure(rho=0.5), bpm.declare(STATES)),
    "structure": (StableStructure(epsilon=1.0, delta=1e-6), bpm.declare(STATES)),
}


def records(size=400, seed=1):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({name: rng.choice(states, size) for name, states in STATES.items()})
    return frame.assign(id=rng.integers(0, 300, size), Freq=rng.integers(0, 5, size))


def told(call):
    """The error of a call, as text."""
    with pytest.raises(BayesPrivMRFError) as caught:
        call()
    return f"{type(caught.value).__name__}: {caught.value}"


def test_every_cell_is_counted_as_pandas_counts_it(engine):
    data = records().drop(columns="Freq")
    wanted = ExactStatistics().release(NETWORK, data).flat
    assert ExactStatistics().release(NETWORK, engine(data)).flat.tolist() == wanted.tolist()


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("count", [None, "Freq"])
def test_a_seeded_release_is_that_of_pandas(engine, name, count, tmp_path):
    mechanism, network = MECHANISMS[name]
    data = records() if count else records().drop(columns="Freq")
    files = []
    for given, file in ((data, "pandas"), (engine(data), "engine")):
        mechanism.release(network, given, rng=1, count=count).save(tmp_path / file)
        files.append((tmp_path / file).read_bytes())
    assert files[0] == files[1]


@pytest.mark.parametrize(
    "change",
    [
        {"sat": "secret"},
        {"age": 41},
        {"sat": None},
        {"dose": float("nan")},
        {"ill": "lacks"},
        {"Freq": -1},
    ],
    ids=str,
)
def test_refusals_are_those_of_pandas_and_hold_no_value(engine, change):
    data = records(50)
    ((name, value),) = change.items()
    if value == "lacks":
        data = data.drop(columns=name)
    else:
        data.loc[3, name] = value
        data.loc[3, "Freq"] = value if name == "Freq" else 1
    texts = [
        told(
            lambda given=given: LaplaceStatistics(epsilon=1.0).release(NETWORK, given, count="Freq")
        )
        for given in (data, engine(data))
    ]
    assert texts[0] == texts[1]
    assert "secret" not in texts[0]


def test_missing_and_undeclared_values_go_to_the_declared_states(engine):
    network = bpm.declare({"a": ["x", "other", "none"]}, [("a",)])
    data = pd.DataFrame({"a": ["x", None, "secret", "x", "other"]})
    mechanism = ExactStatistics(missing="none", other="other")
    assert mechanism.release(network, engine(data)).flat.tolist() == [2, 2, 1]


@pytest.mark.parametrize("grid", [None, 12])
def test_persons_are_counted_as_in_memory_or_refused(engine, grid):
    queries = [q.table("sat", "age")] if grid else None
    data = records().drop(columns="Freq")
    most = int(data["id"].value_counts().max())
    for at_most in (most, most - 1):
        mechanism = ExactStatistics(person="id", at_most=at_most, grid=grid, queries=queries)
        if at_most == most:
            wanted = mechanism.release(NETWORK, data).flat
            assert mechanism.release(NETWORK, engine(data)).flat.tolist() == wanted.tolist()
        else:
            with pytest.raises(DataError, match="must have equal rows"):
                mechanism.release(NETWORK, engine(data))


def test_the_reference_is_that_of_pandas(engine):
    data = records()
    wanted, found = (
        reference(NETWORK, given, count="Freq").marginals.flat for given in (data, engine(data))
    )
    assert found.tolist() == wanted.tolist()


def test_dask_is_refused_with_the_remedy():
    dask = pytest.importorskip(
        "dask.dataframe", reason="Dask is not installed; use `--group engines`"
    )
    data = dask.from_pandas(records(20), npartitions=2)
    assert "must not be a Dask frame" in told(
        lambda: LaplaceStatistics(epsilon=1.0).release(NETWORK, data)
    )
