"""Records of one person: the sensitivity over all persons, which rows are counted, and what the release says."""

from __future__ import annotations

import itertools
import json
import warnings
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from repeats import few

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.audit import audit_releases, exact_cost, whole, worst_case
from bayesprivmrf.cli import main
from bayesprivmrf.errors import ArgumentError, ConsistencyWarning, DataError, PrivacyError
from bayesprivmrf.mechanisms import (
    ExactStatistics,
    GaussianStatistics,
    LaplaceStatistics,
    StatisticsMechanism,
)
from bayesprivmrf.mechanisms.query_noise import noise_of_queries
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.privacy import Adjacency, DiscreteLaplace, PrivacyGuarantee

from .contract import Account

pytestmark = pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")

CHAIN = bpm.declare({f"m{t}": ["h", "w"] for t in (1, 2, 3)}, [("m1", "m2"), ("m2", "m3")])
PAIR = bpm.declare({"a": ["x", "y", "z"], "b": [0, 1]}, [("a", "b")])
STACKS = {
    "tables": (CHAIN, [q.table("m1", "m2"), q.table("m2", "m3")]),
    "pooled": (CHAIN, [q.pooled([("m1", "m2"), ("m2", "m3")]), q.table("m1")]),
    "parities": (CHAIN, [q.parities(1)]),
    "number of records": (PAIR, [q.coarsened("b", b={"all": [0, 1]})]),
    "near each other": (PAIR, [q.weighted("a", matrix=[[5, 6, 5]]), q.table("b")]),
    "signed": (PAIR, [q.weighted("a", "b", matrix=[[2, -1, 0, 3, 0, -2], [0, 1, 1, 0, 4, 0]])]),
}
ADJACENCIES = list(Adjacency)


def columns_of(network, queries):
    """What each record adds to the stacked answers, a row a record."""
    exact = ExactStatistics(queries=queries)
    model = ModelSpecification.from_pgmpy(network)
    rows = []
    for record in itertools.product(*model.domain.states):
        frame = pd.DataFrame(
            {v: [s] for v, s in zip(model.domain.variables, record, strict=True)}, dtype=object
        )
        rows.append(
            np.concatenate([each.values for each in exact.release(network, frame).measurements])
        )
    return np.array(rows)


def persons_of(columns, most):
    """What each person of none to `most` rows adds."""
    added = [np.zeros(columns.shape[1])]
    for rows in range(1, most + 1):
        added += [
            columns[list(own)].sum(axis=0)
            for own in itertools.combinations_with_replacement(range(len(columns)), rows)
        ]
    return np.unique(np.array(added), axis=0)


@pytest.mark.parametrize("most", few([3, 2, 1]))
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("name", STACKS)
def test_the_sensitivity_over_all_persons_is_attained_and_never_exceeded(
    name, adjacency, norm, most
):
    network, queries = STACKS[name]
    found = q.sensitivity(queries, network, norm=norm, adjacency=adjacency, at_most=most)
    added = persons_of(columns_of(network, queries), most)
    others = (
        added[:, None] if adjacency is Adjacency.REPLACE_ONE else np.zeros((1, 1, added.shape[1]))
    )
    assert (np.abs(added - others) ** norm).sum(axis=-1).max() == found.power
    assert found.is_exact


@pytest.mark.parametrize("kind", [LaplaceStatistics, GaussianStatistics])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("queries", [None, *(stack for _, stack in list(STACKS.values())[:3])])
def test_the_noise_of_a_release_keeps_its_promise_for_all_persons_and_no_more(
    kind, adjacency, queries
):
    most, name = 3, "epsilon" if kind is LaplaceStatistics else "rho"
    mechanism = kind(**{name: 0.7}, adjacency=adjacency, queries=queries, person="id", at_most=most)
    release = mechanism.release(CHAIN, people())
    scales = np.concatenate(
        [
            [law.scale] * len(one.values)
            for law, one in zip(release.noise, release.measurements, strict=True)
        ]
    )
    added = persons_of(columns_of(CHAIN, queries or STACKS["tables"][1]), most)
    others = (
        added[:, None] if adjacency is Adjacency.REPLACE_ONE else np.zeros((1, 1, added.shape[1]))
    )
    moved = np.abs(added - others) / scales
    loss = moved.sum(axis=-1).max() if name == "epsilon" else (moved**2).sum(axis=-1).max() / 2
    assert loss <= 0.7 * (1 + 1e-12)
    assert loss == pytest.approx(0.7, rel=1e-6)
    assert release.guarantee == PrivacyGuarantee(**{name: 0.7}, adjacency=adjacency, unit="person")


def people(rows=40, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({f"m{t}": rng.choice(["h", "w"], rows) for t in (1, 2, 3)})
    return frame.assign(id=rng.integers(0, 12, rows))


def counted(data, most=2, person="id"):
    return ExactStatistics(person=person, at_most=most).release(CHAIN, data).flat


def test_the_first_rows_of_each_person_are_counted_in_any_engine():
    data = people()
    first = data.groupby("id").head(2)
    wanted = ExactStatistics().release(CHAIN, first).flat
    assert 0 < wanted.sum() < 2 * len(data)
    text = data.assign(id=data["id"].map("p{}".format))
    for frame in (data, text, text.assign(id=text["id"].astype("category"))):
        for engine in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
            assert np.array_equal(counted(engine), wanted)
    objects = data.assign(
        id=[Decimal(key) for key in data["id"]]
    )  # compared by value, not one by one
    assert np.array_equal(counted(objects), wanted)


def test_the_rows_of_others_never_change_which_rows_of_a_person_are_counted():
    data = people()
    for person in data["id"].unique():
        own = data[data["id"] == person]
        rest = data[data["id"] != person]
        alone, without = counted(own), counted(rest)
        assert np.array_equal(counted(data), alone + without)
        shuffled = pd.concat([rest.iloc[::2], own, rest.iloc[1::2]])
        kept = counted(shuffled) - counted(pd.concat([rest.iloc[::2], rest.iloc[1::2]]))
        assert np.array_equal(kept, alone)


LAZY = {"Polars": lambda frame: pl.from_pandas(frame).lazy(), "DuckDB": duckdb.from_df}
ALONE = bpm.declare({"a": ["x", "y"]}, [("a",)])


@pytest.mark.parametrize("engine", LAZY)
@pytest.mark.parametrize("grid", [None, 12])
def test_a_query_counts_what_the_frame_in_memory_counts_in_any_order(engine, grid):
    """A query is accepted if nobody has too many rows, or if all rows of those who do are equal."""
    rng, queries = np.random.default_rng(3), None if grid is None else [q.table("a")]
    mechanism = ExactStatistics(person="id", at_most=3, grid=grid, queries=queries)
    few = pd.DataFrame({"id": np.repeat(np.arange(40), rng.integers(1, 4, 40))})
    few["a"] = rng.choice(["x", "y"], len(few))
    many = pd.DataFrame({"id": np.repeat(np.arange(40, 50), rng.integers(4, 9, 10))})
    many["a"] = np.where(many["id"] % 2, "x", "y")
    data = pd.concat([few, many]).sample(frac=1, random_state=1)
    wanted = mechanism.release(ALONE, data).flat
    for order in (data, data.iloc[::-1].copy()):  # DuckDB reads no reversed view of pandas 2.2
        assert mechanism.release(ALONE, LAZY[engine](order)).flat.tolist() == wanted.tolist()


@pytest.mark.parametrize("engine", LAZY)
def test_a_query_refuses_what_an_order_or_a_collation_would_decide(engine):
    mechanism = LaplaceStatistics(epsilon=1.0, person="id", at_most=1)
    for names in ([1, 1], [1, None], [1.0, 2.0]):
        with pytest.raises(DataError, match="rows than `at_most`=1 must have equal rows"):
            mechanism.release(ALONE, LAZY[engine](pd.DataFrame({"id": names, "a": ["x", "y"]})))
    text = LAZY[engine](pd.DataFrame({"id": ["a", "A"], "a": ["x", "y"]}))
    if engine == "Polars":
        assert ExactStatistics(person="id", at_most=1).release(ALONE, text).flat.tolist() == [1, 1]
    else:  # a collation may hold the two for one person
        with pytest.raises(DataError, match="by whole numbers or dates"):
            mechanism.release(ALONE, text)


def test_a_query_of_an_engine_is_refused_before_anything_is_spent():
    account = Account()
    data = people()
    mechanism = LaplaceStatistics(epsilon=1.0, person="id", at_most=2)
    for lazy in (pl.from_pandas(data).lazy(), duckdb.from_df(data)):
        with pytest.raises(DataError, match="rows than `at_most`=2 must have equal rows"):
            mechanism.release(CHAIN, lazy, ledger=account)
    with pytest.raises(DataError, match="missing value"):
        mechanism.release(CHAIN, data.assign(id=[None, *data["id"][1:]]), ledger=account)
    with pytest.raises(DataError, match="can be compared"):
        mechanism.release(CHAIN, data.assign(id=[[1]] * len(data)), ledger=account)
    with pytest.raises(DataError, match="must have the column 'id'"):
        mechanism.release(CHAIN, data.drop(columns="id"), ledger=account)
    assert not account.spent


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"person": "id"}, "given together"),
        ({"at_most": 2}, "given together"),
        ({"person": "id", "at_most": 0}, "`at_most` must be a whole number from 1"),
        ({"person": "id", "at_most": 1.5}, "`at_most` must be a whole number"),
        ({"person": "id", "at_most": True}, "`at_most` must be a whole number"),
        ({"person": ["id"], "at_most": 2}, "name of a column"),
    ],
)
def test_settings_that_bound_nothing_are_refused(settings, match):
    with pytest.raises(ArgumentError, match=match):
        LaplaceStatistics(epsilon=1.0, **settings)


def test_a_declared_variable_is_no_person():
    with pytest.raises(ArgumentError, match="no declared variable"):
        LaplaceStatistics(epsilon=1.0, person="m1", at_most=2).promise(CHAIN)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_how_many_rows_there_are_is_never_public_and_the_bound_is_said(adjacency, tmp_path):
    mechanism = LaplaceStatistics(epsilon=1.0, person="id", at_most=2, adjacency=adjacency)
    release = mechanism.release(CHAIN, people())
    assert release.total is None
    assert release.provenance.settings["person"] == "id"
    assert release.provenance.settings["at_most"] == 2
    assert "one person" in release.privacy_statement()
    assert "at most 2 were counted" in release.privacy_statement()
    assert mechanism.preview(CHAIN).attrs["at_most"] == 2
    release.save(tmp_path / "a.release")
    assert (
        bpm.load_release(tmp_path / "a.release").privacy_statement() == release.privacy_statement()
    )
    with pytest.raises(PrivacyError, match="unit"):
        bpm.compose(
            release.guarantee, LaplaceStatistics(epsilon=1.0, adjacency=adjacency).promise(CHAIN)
        )


def test_without_persons_settings_and_noise_are_as_they_were():
    plain = LaplaceStatistics(epsilon=1.0, adjacency="replace-one")
    assert (plain.l1_sensitivity, plain.unit) == (2, "record")
    release = plain.release(CHAIN, people())
    assert release.total == 40
    assert not {"person", "at_most"} & set(release.provenance.settings)
    bounded = LaplaceStatistics(epsilon=1.0, person="id", at_most=5, adjacency="replace-one")
    assert bounded.release(CHAIN, people()).noise[0].scale == pytest.approx(
        5 * release.noise[0].scale
    )


class OfRecords(StatisticsMechanism):
    """Noise for records, by a class that knows nothing of persons."""

    def _noise(self, specification):
        return tuple(DiscreteLaplace(2.0) for _ in specification.cliques)

    def _promise(self, specification):
        return PrivacyGuarantee(epsilon=1.0, adjacency=self.adjacency, unit=type(self).said)

    said = "record"


class UnderNoised(OfRecords):
    """The same, which says that it protects persons."""

    said = "person"


def test_a_mechanism_that_promises_for_records_takes_no_persons():
    with pytest.raises(PrivacyError, match=r"must give a guarantee for .* that differ in a person"):
        OfRecords(person="id", at_most=3).release(CHAIN, people())


def test_an_audit_with_the_worst_persons_flags_noise_for_records():
    model = ModelSpecification.from_pgmpy(CHAIN)
    right = LaplaceStatistics(epsilon=1.0, person="id", at_most=3)
    for mechanism, is_flagged in ((right, False), (UnderNoised(person="id", at_most=3), True)):
        release = mechanism.release(CHAIN, people())
        draws = whole.table_draws(release, release.guarantee.adjacency)
        cost = exact_cost(draws, release.guarantee)
        assert cost == pytest.approx(3.0 if is_flagged else 1.0)
        assert worst_case.exceeds(draws, cost, 1.0) == is_flagged
    assert not audit_releases(right, model, runs=100, confidence=0.999).is_violated


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_queries_are_audited_with_the_worst_persons(adjacency):
    for queries in (STACKS["pooled"][1], STACKS["parities"][1]):
        mechanism = LaplaceStatistics(
            epsilon=1.0, person="id", at_most=3, queries=queries, adjacency=adjacency
        )
        release = mechanism.release(CHAIN, people())
        assert exact_cost(
            whole.table_draws(release, adjacency), release.guarantee
        ) == pytest.approx(1.0)


def test_the_command_line_takes_persons(tmp_path, capsys):
    people().to_csv(tmp_path / "data.csv", index=False)
    states = "\n".join(f'[variables.m{t}]\nstates = ["h", "w"]' for t in (1, 2, 3))
    (tmp_path / "model.toml").write_text(f'cliques = [["m1", "m2"], ["m2", "m3"]]\n{states}\n')
    arguments = [
        str(tmp_path / "data.csv"),
        "--model",
        str(tmp_path / "model.toml"),
        "--epsilon",
        "1",
    ]
    out = tmp_path / "out.release"
    main(
        [
            "release",
            *arguments,
            "--set",
            "person=id",
            "--set",
            "at_most=2",
            "--out",
            str(out),
            "--json",
        ]
    )
    said = json.loads(capsys.readouterr().out)
    assert (said["guarantee"]["unit"], said["settings"]["at_most"]) == ("person", 2)
    assert not main(["audit", str(out), "--runs", "1000"])
    assert not main(
        [
            "audit",
            "laplace",
            "--epsilon",
            "1",
            "--set",
            "person=id",
            "--set",
            "at_most=2",
            "--runs",
            "1000",
        ]
    )


@pytest.mark.parametrize("at_most", [1, 3])
def test_a_fit_says_that_rows_of_one_person_are_taken_for_independent(at_most):
    frame = pd.DataFrame({"id": [1, 1, 2, 3], "a": ["x", "x", "y", "z"], "b": [0, 0, 1, 1]})
    mechanism = LaplaceStatistics(epsilon=1.0, person="id", at_most=at_most)
    release = mechanism.release(PAIR, frame, rng=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stats = bpm.NaiveMLE().fit(release).stats
    told = [one for one in caught if issubclass(one.category, ConsistencyWarning)]
    assert bool(told) == (at_most > 1)
    assert stats.get("rows_of_one_person", 1) == at_most


class Unequal:
    """A name that equals itself alone."""


@pytest.mark.parametrize(
    "names",
    [
        list(
            zip([7] * 50, [float("nan")] * 50, strict=True)
        ),  # a pair of columns, one of them empty
        [(7, np.float64("nan")) for _ in range(50)],
        [Unequal() for _ in range(50)],
        [frozenset({float("nan")}) for _ in range(50)],
        [Decimal("NaN")] * 50,
    ],
    ids=["pairs", "other pairs", "objects", "sets", "decimals"],
)
@pytest.mark.parametrize("is_category", [False, True])
def test_names_that_would_make_one_person_many_are_refused(names, is_category):
    column = pd.Series(names, dtype=object)
    frame = pd.DataFrame(
        {"id": column.astype("category") if is_category else column, "a": "x", "b": 0}
    )
    with pytest.raises(DataError, match=r"can be compared|missing value"):
        LaplaceStatistics(epsilon=1.0, person="id", at_most=1).release(PAIR, frame)


def test_two_persons_are_never_one():
    ids = pl.Series([1, 2]).cast(pl.Datetime("ns")), pl.Series([1, 2]).cast(pl.Duration("ns"))
    for times in ids:
        frame = pl.DataFrame({"id": times, "a": ["x", "y"], "b": [0, 1]})
        kept = ExactStatistics(person="id", at_most=1).release(PAIR, frame)
        assert kept.flat.sum() == 2


def test_the_column_is_the_one_of_that_name():
    frame = pd.DataFrame(
        [["p", "q1", "x", 0], ["p", "q2", "x", 0], ["p", "q3", "x", 0]], columns=["1", 1, "a", "b"]
    )
    for name in ("1", 1):
        with pytest.raises(DataError, match="one column"):
            ExactStatistics(person=name, at_most=1).release(PAIR, frame)
    for name, rest in (("1", 1), (1, "1")):
        kept = ExactStatistics(person=name, at_most=1).release(PAIR, frame.drop(columns=[rest]))
        assert kept.flat.sum() == (1 if name == "1" else 3)


@pytest.mark.parametrize(
    ("name", "grid"),
    [*(("near each other", grid) for grid in (3, 6, 7)), ("signed", 6), ("number of records", 7)],
)
@pytest.mark.parametrize("kind", [LaplaceStatistics, GaussianStatistics])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_persons_whose_rows_share_a_grid_keep_the_promise_and_no_more(kind, adjacency, name, grid):
    """Each of K rows weighs floor(grid / K): all persons of none to three rows, and a release's own scales."""
    network, queries = STACKS[name]
    budget = "epsilon" if kind is LaplaceStatistics else "rho"
    mechanism = kind(
        **{budget: 0.7}, adjacency=adjacency, queries=queries, person="id", at_most=3, grid=grid
    )
    frame = pd.DataFrame({"id": [1, 1, 2, 3], "a": ["x", "x", "y", "z"], "b": [0, 0, 1, 1]})
    release = mechanism.release(network, frame)
    scales = np.concatenate(
        [
            [law.scale] * len(one.values)
            for law, one in zip(release.noise, release.measurements, strict=True)
        ]
    )
    columns = columns_of(network, queries)
    added = [np.zeros(columns.shape[1])]
    for rows in (1, 2, 3):
        persons = itertools.combinations_with_replacement(columns, rows)
        added += [grid // rows * np.sum(own, axis=0) for own in persons]
    added = np.unique(added, axis=0)
    others = (
        added[:, None] if adjacency is Adjacency.REPLACE_ONE else np.zeros((1, 1, added.shape[1]))
    )
    moved = np.abs(added - others) / scales
    loss = moved.sum(axis=-1).max() if budget == "epsilon" else (moved**2).sum(axis=-1).max() / 2
    assert loss <= 0.7 * (1 + 1e-12)
    assert loss == pytest.approx(0.7, rel=1e-6)  # attained by a person of one row
    assert exact_cost(whole.table_draws(release, adjacency), release.guarantee) == pytest.approx(
        0.7, rel=1e-6
    )
    assert release.guarantee.unit == "person"


@pytest.mark.parametrize("grid", [6, 7, 720720])
def test_the_rows_of_a_person_weigh_what_the_grid_gives_each_of_them(grid):
    ids = [1, 1, 2, 3, 3, 3, 3]  # the last row is a fourth, beyond the bound
    frame = pd.DataFrame({"id": ids, "a": list("xxyzzzy"), "b": [0, 1, 1, 0, 0, 1, 1]})
    settings = {"queries": [q.table("a", "b")], "person": "id", "at_most": 3, "grid": grid}
    two, three = grid // 2, grid // 3
    wanted = [two, two, 0, grid, 2 * three, three]
    for engine in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        release = ExactStatistics(**settings).release(PAIR, engine)
        assert release.measurements[0].values.tolist() == wanted
    assert release.measurements[0].query == q.weighted(
        "a", "b", matrix=grid * np.eye(6, dtype=int), labels=q.table("a", "b").bind(PAIR).labels
    )
    assert release.estimated_total == pytest.approx((grid + 2 * two + 3 * three) / grid)  # persons
    said = LaplaceStatistics(epsilon=1.0, **settings).release(PAIR, frame)
    assert "at most 3 were counted, each of K rows with the weight 1/K" in said.privacy_statement()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConsistencyWarning)
        stats = bpm.NaiveMLE().fit(said).stats
    assert "one row drawn from each person" in stats["rests_on"]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"grid": 2}, "`grid` must be a whole number from 3"),
        ({"grid": 4.5}, "`grid` must be a whole number"),
        ({"grid": 1 / 3}, "`grid` must be a whole number"),
        ({"grid": 6, "queries": None}, "must be given with"),
        ({"grid": 6, "person": None, "at_most": None}, "must be given with"),
    ],
)
def test_weights_off_the_grid_are_refused(settings, match):
    given = {"queries": [q.table("a")], "person": "id", "at_most": 3} | settings
    with pytest.raises(ArgumentError, match=match):
        LaplaceStatistics(epsilon=1.0, **given)


def test_weights_are_of_queries_on_one_scope_and_of_noise_that_follows_them():
    settings = {"person": "id", "at_most": 3, "grid": 6}
    for several in (
        STACKS["pooled"][1],
        [q.parities(2)],
    ):  # sums over scopes, and numbers of one scope each
        mechanism = LaplaceStatistics(epsilon=1.0, queries=several, **settings)
        for call in (mechanism.promise, mechanism.preview):
            with pytest.raises(
                ArgumentError, match=r"reads \d scopes; ask for each scope by a query of its own"
            ):
                call(CHAIN)
    with pytest.raises(ArgumentError, match="is not scaled by it"):
        OfRecords(queries=[q.table("m1")], **settings)


class UnderWeighed(OfRecords):
    """Noise for as many rows as are counted, where each may weigh the whole grid."""

    takes_grid, said = True, "person"

    def _query_noise(self, specification, queries):
        return noise_of_queries(
            specification,
            queries,
            DiscreteLaplace,
            None,
            budget=1.0,
            adjacency=self.adjacency,
            at_most=self.at_most,
        )


def test_an_audit_flags_noise_that_forgets_the_grid():
    settings = {"queries": [q.table("a", "b")], "person": "id", "at_most": 3, "grid": 12}
    frame = pd.DataFrame({"id": [1, 2], "a": ["x", "y"], "b": [0, 1]})
    for mechanism, cost in (
        (LaplaceStatistics(epsilon=1.0, **settings), 1.0),
        (UnderWeighed(**settings), 4.0),
    ):
        release = mechanism.release(PAIR, frame)
        draws = whole.table_draws(release, release.guarantee.adjacency)
        assert exact_cost(draws, release.guarantee) == pytest.approx(cost)
        assert worst_case.exceeds(draws, exact_cost(draws, release.guarantee), 1.0) == (cost > 1)


@pytest.mark.parametrize("name", ["rows", "Rows", "kinds", "alike", "bayesprivmrf rows"])
def test_no_name_of_a_variable_lifts_the_limit_where_the_data_is_a_query(name):
    """A query counts rows and persons in columns of its own, which no variable may stand in for."""
    network = bpm.declare({name: [0, 1], "b": [0, 1]}, [(name, "b")])
    mechanism = ExactStatistics(person="who", at_most=2)
    alike = pd.DataFrame({name: [1] * 9 + [0], "b": [0] * 9 + [1], "who": [1] * 9 + [2]})
    several = pd.DataFrame({name: [1] * 5 + [0] * 5, "b": 0, "who": 1})
    for frame in (alike, several):
        for data in (pl.from_pandas(frame).lazy(), duckdb.sql("select * from frame")):
            if frame is alike:
                assert mechanism.release(network, data).flat.tolist() == [0, 1, 2, 0]
            else:
                with pytest.raises(DataError, match="must have equal rows"):
                    mechanism.release(network, data)
