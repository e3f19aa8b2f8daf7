"""Frequency tables: a row that stands for several records counts as these records, in noise, promise and refusals."""

from __future__ import annotations

import itertools
import warnings
from decimal import Decimal

import duckdb
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError, DataError, DeclarationWarning
from bayesprivmrf.mechanisms import (
    DPSGD,
    ExactStatistics,
    GaussianStatistics,
    LaplaceStatistics,
    ObjectivePerturbation,
    ParityQueries,
    PrivateFrankWolfe,
    SelectMeasure,
    StableStructure,
)
from bayesprivmrf.records import read_records

STATES = {"a": ["x", "y"], "b": ["u", "v", "w"], "c": ["p", "q"]}
NETWORK = bpm.declare(STATES, [("a", "b"), ("b", "c")])
OPEN = bpm.declare(STATES)
MECHANISMS = {
    "Laplace": (LaplaceStatistics(epsilon=1.0), NETWORK),
    "Gaussian": (GaussianStatistics(rho=0.5, adjacency="replace-one"), NETWORK),
    "SelectMeasure": (SelectMeasure(rho=0.5), OPEN),
    "Frank-Wolfe": (PrivateFrankWolfe(rho=0.5, width=1.0, steps=3), OPEN),
    "parities": (ParityQueries(rho=0.5, order=2), bpm.declare({v: STATES[v] for v in "ac"})),
    "structure": (StableStructure(epsilon=1.0, delta=1e-6), OPEN),
    "DP-SGD": (DPSGD(epsilon=1.0, delta=1e-6, steps=3), NETWORK),
}


def table(counts=(3, 1, 0, 2, 40, 5), **column):
    rows = [
        ("x", "u", "p"),
        ("y", "v", "q"),
        ("y", "w", "q"),
        ("x", "u", "p"),
        ("y", "w", "p"),
        ("x", "v", "q"),
    ]
    return pd.DataFrame(rows, columns=list("abc")).assign(Freq=list(counts), **column)


def written_out(frame):
    return frame.loc[frame.index.repeat(frame["Freq"])].drop(columns="Freq").reset_index(drop=True)


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_release_is_that_of_the_rows_written_out(name, tmp_path):
    mechanism, network = MECHANISMS[name]
    made = mechanism.release(network, table(), count="Freq", rng=1)
    again = mechanism.release(network, written_out(table()), rng=1)
    files = [
        one.save(tmp_path / file) or (tmp_path / file).read_bytes()
        for one, file in ((made, "1"), (again, "2"))
    ]
    assert files[0] == files[1]
    assert made.guarantee == again.guarantee


def multisets(most):
    """Every table of at most `most` records of a small domain, as counts of its cells."""
    cells = list(itertools.product("xy", "uv"))
    for counts in itertools.product(range(most + 1), repeat=len(cells)):
        if sum(counts) <= most:
            yield pd.DataFrame(cells, columns=["a", "b"]).assign(Freq=counts)


@pytest.mark.parametrize(("adjacency", "l1"), [("add-or-remove-one", 2), ("replace-one", 4)])
def test_neighbors_differ_in_one_unit_of_one_count_by_the_declared_sensitivity(adjacency, l1):
    network = bpm.declare({"a": ["x", "y"], "b": ["u", "v"]}, [("a",), ("b",)])
    mechanism = LaplaceStatistics(epsilon=1.0, adjacency=adjacency)
    assert l1 == 2 * mechanism.l1_sensitivity  # two tables
    exact = {
        tuple(frame["Freq"]): ExactStatistics().release(network, frame, count="Freq").flat
        for frame in multisets(2)
    }
    moved = []
    for one, other in itertools.product(exact, repeat=2):
        change = np.subtract(one, other)
        is_neighbor = abs(change).sum() == (1 if l1 == 2 else 2) and (l1 == 2 or change.sum() == 0)
        if is_neighbor:
            moved.append(np.abs(exact[one] - exact[other]).sum())
    assert max(moved) == l1


def test_replayed_noise_keeps_the_promise_between_neighbors():
    """With equal noise the outputs of neighbors differ by the tables alone: by scales that add up to epsilon."""
    mechanism, network = MECHANISMS["Laplace"]
    one = mechanism.release(network, table(), count="Freq", rng=5)
    other = mechanism.release(network, table(counts=(3, 1, 0, 2, 41, 5)), count="Freq", rng=5)
    moved = [np.abs(one.tables[c] - other.tables[c]).sum() for c in one.specification.cliques]
    assert sum(far / law.scale for far, law in zip(moved, one.noise, strict=True)) <= 1.0 + 1e-12
    assert sum(moved) == 2


ENGINES = {
    "pandas": lambda frame: frame,
    "nullable": lambda frame: frame.convert_dtypes(),
    "arrow": pa.Table.from_pandas,
    "polars": pl.from_pandas,
    "lazy polars": lambda frame: pl.from_pandas(frame).lazy(),
    "DuckDB": lambda frame: duckdb.sql("select * from frame"),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_counts_alike_and_refuses_alike(engine):
    wanted = ExactStatistics().release(NETWORK, written_out(table())).flat
    for kind in ("int64", "int8", "uint16"):
        frame = ENGINES[engine](table().astype({"Freq": kind}))
        assert (
            ExactStatistics().release(NETWORK, frame, count="Freq").flat.tolist() == wanted.tolist()
        )
    many = ([2**52] * 6, [2**53, 1, 0, 0, 0, 0])  # the second sum is 2^53 as a float
    for counts in ([3, 1, 0, 2, 40, -1], [3, 1, 0, 2, 40, None], [3, 1, 0, 2, 40, 0.5], *many):
        frame = ENGINES[engine](table(counts))
        with pytest.raises(
            DataError,
            match=r"column 'Freq' must hold whole numbers, at least 0 and with a sum of at most",
        ) as caught:
            ExactStatistics().release(NETWORK, frame, count="Freq")
        assert "40" not in str(caught.value).replace(f"{2**53:,}", "")


@pytest.mark.parametrize("engine", ENGINES)
def test_large_counts_are_added_up_exactly_and_never_written_out(engine):
    counts = (2**50 + 1, 1, 0, 3, 2**51 + 1, 2**49)
    release = ExactStatistics().release(NETWORK, ENGINES[engine](table(counts)), count="Freq")
    assert release.tables[("a", "b")].ravel().tolist() == [2**50 + 4, 2**49, 0, 0, 1, 2**51 + 1]
    with pytest.raises(DataError, match="a sum of at most 134,217,728"):
        DPSGD(epsilon=1.0, delta=1e-6).release(
            NETWORK, ENGINES[engine](table(counts)), count="Freq"
        )


@pytest.mark.parametrize(
    "counts",
    [
        ["3", "1", "0", "2", "40", "5"],
        [3.0, 1.0, 0.0, 2.0, 40.0, 5.0],
        [Decimal(c) for c in (3, 1, 0, 2, 40, 5)],
    ],
    ids=["text", "floats", "decimals"],
)
def test_whole_numbers_of_other_types_are_counts(counts):
    wanted = ExactStatistics().release(NETWORK, table(), count="Freq").flat
    assert (
        ExactStatistics().release(NETWORK, table(counts), count="Freq").flat.tolist()
        == wanted.tolist()
    )


@pytest.mark.parametrize(
    "counts",
    [
        [True] * 6,
        ["3", "1", "0", "2", "40", "+5"],
        ["3"] * 5 + [""],
        [1.0] * 5 + [np.inf],
        [[1]] * 6,
    ],
)
def test_what_is_no_count_is_refused(counts):
    with pytest.raises(DataError, match="column 'Freq' must hold whole numbers"):
        ExactStatistics().release(NETWORK, table(counts), count="Freq")


def test_a_frequency_table_as_offices_print_it_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(DataError, match="write 1,410 as 1410"):
        ExactStatistics().release(NETWORK, table(["1,410", "1", "0", "2", "40", "5"]), count="Freq")
    place = tmp_path / "counts.csv"
    place.write_text("Table 3: households\na,b,Freq\nx,u,3\n")
    with pytest.raises(DataError, match=r"Remove titles above the header"):
        read_records(place)


class Account:
    charges = 0

    def spend(self, guarantee, provenance):
        self.charges += 1


def test_a_row_of_no_record_may_hold_anything_and_refusals_are_not_charged():
    account = Account()
    frame = table()
    frame.loc[2, "a"] = "never declared"
    LaplaceStatistics(epsilon=1.0).release(NETWORK, frame, count="Freq", ledger=account)
    assert account.charges == 1
    for given, error in (
        ({"data": frame.assign(Freq=1)}, "declared states"),
        ({"count": "a"}, "`count` must name a column that is no declared variable"),
        ({"count": "Frequency"}, "must have the column 'Frequency'"),
        ({"count": ["Freq"]}, "`count` must be the name of a column"),
        (
            {"mechanism": LaplaceStatistics(epsilon=1.0, person="c", at_most=1)},
            "no declared variable",
        ),
        (
            {"mechanism": LaplaceStatistics(epsilon=1.0, person="id", at_most=1)},
            "not be given together",
        ),
    ):
        mechanism = given.pop("mechanism", LaplaceStatistics(epsilon=1.0))
        call = {"data": frame.assign(id=1), "count": "Freq", "ledger": account} | given
        with pytest.raises((ArgumentError, DataError), match=error):
            mechanism.release(NETWORK, **call)
    assert account.charges == 1


def test_a_mechanism_that_reads_rows_alone_takes_no_count():
    ising = bpm.network.IsingNetwork.from_graph(nx.path_graph(2))
    with pytest.raises(ArgumentError, match="`count` must be left out of ObjectivePerturbation"):
        ObjectivePerturbation(epsilon=5.0).release(ising, {0: 1, 1: -1}, count="Freq")


@pytest.mark.parametrize("name", ["Freq", "count", "N"])
def test_an_undeclared_column_of_counts_warns_before_the_charge(name):
    frame, account = table().rename(columns={"Freq": name}), Account()
    for mechanism, network in (MECHANISMS["Laplace"], MECHANISMS["structure"]):
        with warnings.catch_warnings(action="error", category=DeclarationWarning):
            with pytest.raises(DeclarationWarning, match=rf"the column '{name}' is not used"):
                mechanism.release(network, frame, ledger=account)
            mechanism.release(network, frame, count=name)
    assert account.charges == 0
    declared = bpm.declare({name: [0, 1, 2, 3, 5, 40]}, [(name,)])
    with warnings.catch_warnings(action="error", category=DeclarationWarning):
        LaplaceStatistics(epsilon=1.0).release(declared, frame)
