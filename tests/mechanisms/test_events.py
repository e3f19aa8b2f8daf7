"""One row an event: turned to a row a person, or a row a transition, in any engine and whoever else is there."""

import re
from itertools import pairwise

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, DataError
from bayesprivmrf.mechanisms import ExactStatistics, transition_rows, wide_sequences

COLUMNS = {"person": "id", "position": "day", "state": "state"}
LONG = {**COLUMNS, "gaps": "ignore"}  # a log, whose days only sort the events


def events(rows=200, seed=0):
    rng = np.random.default_rng(seed)
    ids, days = rng.integers(0, 40, rows), rng.integers(0, 20, rows)  # with ties
    return pd.DataFrame({"id": ids, "day": days, "state": rng.choice(["a", "b"], rows)})


def told(frame):
    """States of each person's events, in order, by a loop."""
    told = {}
    for row in frame.sort_values("day", kind="stable").itertuples():
        told.setdefault(row.id, []).append(row.state)
    return told


ENGINES = [lambda f: f, pl.from_pandas, pa.Table.from_pandas, lambda f: pl.from_pandas(f).lazy()]


@pytest.mark.parametrize("engine", ENGINES, ids=["pandas", "polars", "arrow", "lazy"])
def test_events_become_the_same_rows_in_any_engine(engine):
    frame, wanted = events(), told(events())
    wide = wide_sequences(engine(frame), **LONG, length=4, longer="cut")
    rows = {row[0]: row[1:] for row in map(tuple, nonnull(wide))}
    assert rows == {person: tuple((own + [None] * 4)[:4]) for person, own in wanted.items()}
    moves = transition_rows(engine(frame), **LONG)
    found = {}
    for person, one, two in nonnull(moves):
        found.setdefault(person, []).append((one, two))
    assert found == {person: list(pairwise(own)) for person, own in wanted.items() if len(own) > 1}


def nonnull(frame):
    own = frame.to_pandas() if hasattr(frame, "to_pandas") else frame
    return own.astype(object).where(own.notna(), None).to_numpy().tolist()


def test_the_events_of_others_change_nothing_for_a_person():
    """Ties of position included, which an unstable sort would decide by who else is there."""
    frame = events()
    whole = {
        row[0]: row
        for row in nonnull(wide_sequences(pl.from_pandas(frame), **LONG, length=3, longer="cut"))
    }
    for person in frame["id"].unique()[:10]:
        rest = frame[(frame["id"] == person) | (frame["id"] % 3 == 1)]
        for part in (rest, pl.from_pandas(rest)):
            found = nonnull(wide_sequences(part, **LONG, length=3, longer="cut"))
            assert next(row for row in found if row[0] == person) == whole[person]


def test_a_chain_reads_what_was_made_wide():
    network = bpm.markov_chain(["a", "b"], 4, share="transitions", end="<end>")
    wide = wide_sequences(events(), **LONG, length=4, longer="cut")
    release = ExactStatistics(missing="<end>", person="id", at_most=1).release(network, wide)
    lengths = np.array([min(len(own), 4) for own in told(events()).values()])
    ended = release.tables["x3", "x4"].sum(axis=0)[2]
    assert ended == (lengths < 4).sum()


@pytest.mark.parametrize("share", ["potentials", "transitions"])
@pytest.mark.parametrize(
    "queries",
    [None, [q.pooled([("x1", "x2"), ("x2", "x3"), ("x3", "x4")])]],
    ids=["tables", "sums"],
)
def test_sequences_without_a_state_or_with_a_gap_are_refused(share, queries):
    network = bpm.markov_chain(["a", "b"], 4, share=share, end="<end>")
    mechanism = ExactStatistics(queries=queries, missing="<end>")
    wide = pd.DataFrame(
        [["a", "b", None, None], ["b", "a", "a", "a"]], columns=["x1", "x2", "x3", "x4"]
    )
    mechanism.release(network, wide)
    for row in ([None] * 4, ["a", None, "b", None]):
        with pytest.raises(
            DataError, match=r"no sequence may begin with it or continue after it.* in a gap"
        ):
            mechanism.release(network, pd.DataFrame([*wide.to_numpy(), row], columns=wide.columns))


def test_weights_of_transitions_add_up_to_the_persons():
    pair = bpm.declare({"from": ["a", "b"], "to": ["a", "b"]}, [("from", "to")])
    mechanism = ExactStatistics(
        queries=[q.table("from", "to")], person="id", at_most=16, grid=720720
    )
    release = mechanism.release(pair, transition_rows(events(), **LONG))
    expected = np.zeros((2, 2))
    for own in told(events()).values():
        steps = list(pairwise(own))[:16]
        for one, two in steps:
            expected["ab".index(one), "ab".index(two)] += 720720 / len(steps)
    assert release.measurements[0].values == pytest.approx(expected.ravel())


@pytest.mark.parametrize(
    "make",
    [
        lambda f: wide_sequences(f, **LONG, length=3, longer="cut"),
        lambda f: transition_rows(f, **LONG),
    ],
)
def test_events_that_cannot_be_read_are_refused_without_a_word_of_them(make):
    frame = events(20).astype(object)
    for column in COLUMNS.values():
        with pytest.raises(DataError, match=f"column '{column}' must"):
            make(frame.assign(**{column: [None, *frame[column][1:]]}))
    with pytest.raises(DataError, match="must have a column for each"):
        make(frame.drop(columns="day"))
    mixed = frame.assign(day=[{"secret": day} for day in frame["day"]])
    with pytest.raises(DataError) as caught:
        make(mixed)
    assert "secret" not in str(caught.value)
    assert len(make(duckdb.from_df(events(20)))) > 0
    assert len(make(events(20).iloc[:0])) == 0


@pytest.mark.parametrize("engine", ENGINES, ids=["pandas", "polars", "arrow", "lazy"])
def test_a_sequence_longer_than_declared_is_refused_unless_it_is_to_be_cut(engine):
    frame = pd.DataFrame({"id": [717171] * 9 + [818181], "day": range(10), "state": ["a"] * 10})
    with pytest.raises(
        DataError,
        match=r'at most 4 events, .* larger `length`, .* longer="cut", which keeps the first events',
    ) as caught:
        wide_sequences(engine(frame), **LONG, length=4)
    assert set(re.findall(r"\d+", str(caught.value))) == {"4"}
    assert len(nonnull(wide_sequences(engine(frame), **LONG, length=4, longer="cut"))) == 2
    assert [len(row) for row in nonnull(wide_sequences(engine(frame), **LONG, length=9))] == [
        10,
        10,
    ]
    with pytest.raises(ArgumentError, match="`longer`"):
        wide_sequences(engine(frame), **LONG, length=4, longer="drop")  # pyright: ignore[reportArgumentType]


def test_names_and_lengths_are_checked():
    with pytest.raises(ArgumentError, match="`length`"):
        wide_sequences(events(), **LONG, length=0)
    with pytest.raises(ArgumentError, match="different names"):
        wide_sequences(events(), **LONG, length=2, names=["id", "x"])
    with pytest.raises(ArgumentError, match="two different names"):
        transition_rows(events(), **LONG, names=("id", "to"))
