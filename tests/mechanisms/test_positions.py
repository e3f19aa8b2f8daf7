"""Positions of events: their order is never guessed, is total, and tells which events are one step apart."""

import datetime
import uuid
from decimal import Decimal
from fractions import Fraction

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bayesprivmrf.errors import ArgumentError, DataError
from bayesprivmrf.mechanisms import transition_rows, wide_sequences
from bayesprivmrf.records import read_records

COLUMNS = {"person": "id", "position": "wave", "state": "state"}
WAVES = [f"q{t + 1}" for t in range(12)]
ENGINES = {
    "pandas": lambda f: f,
    "polars": pl.from_pandas,
    "arrow": pa.Table.from_pandas,
    "lazy": lambda f: pl.from_pandas(f).lazy(),
    "duckdb": duckdb.from_df,
}
engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)


def nonnull(frame):
    own = frame.to_pandas() if hasattr(frame, "to_pandas") else frame
    return own.astype(object).where(own.notna(), None).to_numpy().tolist()


def absorbed():
    """One person who stays in b from the third of twelve waves on; text sorts the tenth wave before the second."""
    return pd.DataFrame({"id": [7] * 12, "wave": WAVES, "state": ["a"] * 2 + ["b"] * 10})


def test_text_is_refused_as_a_position_in_every_frame_and_its_declared_order_is_kept(tmp_path):
    absorbed().to_csv(tmp_path / "events.csv", index=False)
    frames = {name: engine(absorbed()) for name, engine in ENGINES.items()}
    frames["file"] = read_records(tmp_path / "events.csv")
    frames["unordered"] = absorbed().astype({"wave": "category"})
    frames["polars category"] = pl.from_pandas(absorbed()).with_columns(
        pl.col("wave").cast(pl.Categorical)
    )
    frames["arrow dictionary"] = pa.table(
        {name: pa.array(own.tolist()) for name, own in absorbed().items()}
    ).set_column(1, "wave", pa.array(WAVES).dictionary_encode())
    for frame in frames.values():
        with pytest.raises(
            DataError, match=r"column 'wave' must hold positions that have an order.*order=\["
        ) as one:
            transition_rows(frame, **COLUMNS)
        with pytest.raises(DataError, match=r"order=\[") as two:
            wide_sequences(frame, **COLUMNS, length=12, gaps="ignore")
        assert "q1" not in str(one.value) + str(two.value)
        moves = nonnull(transition_rows(frame, **COLUMNS, order=WAVES))
        assert [row[1:] for row in moves] == [["a", "a"], ["a", "b"], *[["b", "b"]] * 9]
        wide = nonnull(wide_sequences(frame, **COLUMNS, length=12, order=WAVES))
        assert [row[1:] for row in wide] == [["a"] * 2 + ["b"] * 10]


def test_an_ordered_category_has_the_order_of_its_categories():
    kind = pd.CategoricalDtype(WAVES, ordered=True)
    backward = absorbed().astype({"wave": kind}).iloc[::-1]
    enum = pl.from_pandas(absorbed()).with_columns(pl.col("wave").cast(pl.Enum(WAVES))).reverse()
    expected = [["a", "a"], ["a", "b"], *[["b", "b"]] * 9]
    for frame in (backward, enum, pa.Table.from_pandas(backward), enum.lazy()):
        assert [row[1:] for row in nonnull(transition_rows(frame, **COLUMNS))] == expected
    # parts of an Arrow column with dictionaries of their own have no one order
    parts = [
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(own), ordered=True)
        for own in (["q1", "q2"], ["q2", "q1"])
    ]
    mixed = pa.table({"id": [1, 1, 2, 2], "wave": pa.chunked_array(parts), "state": list("abab")})
    with pytest.raises(DataError, match="have an order"):
        transition_rows(mixed, **COLUMNS)


DAY = datetime.datetime(2020, 1, 1)
ODD = [  # values of one person, in a column of objects
    *(1, 2**24, 2**24 + 1, 2**53, 2**53 + 1, 2**70, -1, True, 0.5, float("inf"), float(2**24)),
    *(
        np.float32(2**24),
        np.float16(2048),
        np.float64(2**53),
        np.longdouble(2**24),
        np.longdouble("0.1"),
    ),
    *(
        np.int8(5),
        np.uint64(2**63),
        np.bool_(True),
        Decimal(2**24),
        Decimal("0.1"),
        Decimal("1e4000"),
    ),
    *(Fraction(1, 3), 1 + 0j, np.complex64(2**24), np.str_("q1"), "q1", b"q1", uuid.UUID(int=1)),
    *(frozenset([1]), frozenset(), (1, float("nan")), (1, 2), [1], {"a": 1}, object()),
    *(
        DAY.date(),
        DAY,
        DAY.replace(tzinfo=datetime.UTC),
        DAY.time(),
        DAY.time().replace(tzinfo=datetime.UTC),
    ),
    *(
        datetime.timedelta(1),
        pd.Timedelta(1, "D"),
        np.timedelta64(1, "D"),
        np.datetime64("2020-01-01"),
    ),
    *(
        pd.Timestamp(DAY),
        pd.Timestamp(DAY, tz="Europe/Berlin"),
        pd.Timestamp("2020-01-01").as_unit("s"),
    ),
    *(pd.Period("2020-01", "M"), pd.Period("2020-01-01", "D"), pd.Interval(0, 1)),
]
KINDS = {  # positions of the other persons: every type that is let in, and some that are not
    "int": [2**24 + t for t in range(4)],
    "large int": [2**53 + t for t in range(4)],
    "float32": [np.float32(2**24 + 2 * t) for t in range(4)],
    "float16": [np.float16(t / 4) for t in range(4)],
    "float": [0.1 * t for t in range(4)],
    "decimal": [Decimal(t) / 10 for t in range(4)],
    "int and decimal": [1, Decimal("1.5"), 2.25, np.float32(3)],
    "date": [DAY.date() + datetime.timedelta(t) for t in range(4)],
    "datetime": [DAY + datetime.timedelta(t) for t in range(4)],
    "moment": [pd.Timestamp(DAY, tz="Europe/Berlin") + pd.Timedelta(t, "D") for t in range(4)],
    "time": [datetime.time(t) for t in range(4)],
    "timedelta": [datetime.timedelta(t) for t in range(4)],
    "period": list(pd.period_range("2020-01", periods=4, freq="M")),
    "frozenset": [frozenset(own) for own in ([1], [2], [1, 2], [])],
    "tuple": [(t, float("nan")) for t in range(4)],
    "longdouble": [np.longdouble(t) / 10 for t in range(4)],
}
REFUSED = {"frozenset", "tuple", "longdouble"}


def result_of_others(frame, make):
    """Rows of the persons but 99, or None if the data are refused."""
    try:
        rows = nonnull(make(frame))
    except DataError:
        return None
    return sorted(row for row in rows if row[0] != 99)


MAKERS = {
    "rows": lambda f: transition_rows(f, **COLUMNS, gaps="ignore"),
    "steps": lambda f: wide_sequences(f, **COLUMNS, length=4, longer="cut", gaps="skip"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_events_of_one_person_never_change_the_order_of_others(kind):
    """Replay on neighbors: with any value of person 99 the rows of the others are the same, or all is refused."""
    positions = KINDS[kind]
    order = [2, 0, 3, 1] * 5
    base = pd.DataFrame(
        {
            "id": np.repeat(range(5), 4),
            "wave": pd.Series([positions[t] for t in order], dtype=object),
            "state": [f"s{t}" for t in order],
        }
    )
    for number, make in enumerate(MAKERS.values()):
        alone = result_of_others(base, make)
        assert alone is not None or kind in REFUSED or make is MAKERS["steps"]
        if alone is not None and make is MAKERS["rows"]:
            assert [row[1:] for row in alone if row[0] == 0] == [
                ["s0", "s1"],
                ["s1", "s2"],
                ["s2", "s3"],
            ]
        # Both order positions by one function, so each odd value is for one of them, in turn by kind. Values of one
        # type stand beside each other, so that of two that do, one is met by each kind.
        every = 2 * len(MAKERS)
        first = (list(KINDS).index(kind) + 2 * number) % every
        for turn, odd in list(enumerate(ODD))[first::every]:
            row = pd.DataFrame(
                {"id": [99], "wave": pd.Series([None], dtype=object), "state": ["s0"]}
            )
            row.at[0, "wave"] = odd
            place = (0, 10, 20)[turn % 3]
            frame = pd.concat([base[:place], row, base[place:]], ignore_index=True)
            found = result_of_others(frame, make)
            assert found is None or found == alone, odd


def typed_columns():
    """Values of every typed column that is let in; the first is the odd one's, and may be removed."""
    yield from (
        pd.Series([9, *[3, 1, 2]], dtype=t)
        for t in ("int8", "uint64", "Int64", "int64[pyarrow]", "float16")
    )
    yield from (
        pd.Series([0.5, 3, 1, 2], dtype=t)
        for t in ("float32", "float64", "Float64", "double[pyarrow]")
    )
    days = pd.to_datetime(["2021-05-05", "2020-03-01", "2020-01-01", "2020-02-01"])
    yield from (
        pd.Series(own)
        for own in (days, days.tz_localize("Europe/Berlin"), days - days[1], days.to_period("M"))
    )
    yield pd.Series(pd.Categorical([*"dcab"], categories=[*"abcd"], ordered=True))
    numbers = pl.Series([9, 3, 1, 2])
    yield from (
        numbers.cast(t)
        for t in (pl.Int8, pl.UInt64, pl.Int128, pl.Float32, pl.Decimal(10, 2), pl.Date)
    )
    yield from (
        numbers.cast(t)
        for t in (pl.Datetime("ns"), pl.Datetime("us", "UTC"), pl.Duration("ms"), pl.Time)
    )
    yield pl.Series([*"dcab"], dtype=pl.Enum([*"abcd"]))
    for kind in (
        pa.int8(),
        pa.float16(),
        pa.decimal128(25, 1),
        pa.date32(),
        pa.timestamp("ns", "UTC"),
        pa.time64("us"),
    ):
        values = np.array([9, 3, 1, 2], np.float16) if kind == pa.float16() else [9, 3, 1, 2]
        yield (
            pa.array(values, pa.int32()).cast(kind)
            if kind == pa.date32()
            else pa.array(values).cast(kind)
        )


def type_of(column):
    return f"{type(column).__module__}-{getattr(column, 'dtype', getattr(column, 'type', None))}"


@pytest.mark.parametrize("column", list(typed_columns()), ids=type_of)
def test_every_typed_column_that_is_let_in_has_its_own_order(column):
    ids, states = [99, 1, 1, 1], ["z", "s3", "s1", "s2"]
    match column:
        case pd.Series():
            frame = pd.DataFrame({"id": ids, "wave": column, "state": states})
            parts = [frame, frame.iloc[::-1], frame.iloc[1:]]
        case pl.Series():
            frame = pl.DataFrame({"id": ids, "wave": column, "state": states})
            parts = [frame, frame.reverse(), frame[1:], frame.lazy()]
        case _:
            frame = pa.table({"id": ids, "wave": column, "state": states})
            parts = [frame, frame.take([3, 2, 1, 0]), frame.slice(1)]
    for part in parts:
        rows = nonnull(transition_rows(part, **COLUMNS, gaps="ignore"))
        assert [row[1:] for row in rows] == [["s1", "s2"], ["s2", "s3"]]


def missed():
    """Person 1 misses wave 2, person 2 joins at wave 2, person 3 leaves after wave 1."""
    return pd.DataFrame(
        {
            "id": [1, 1, 1, 2, 2, 3],
            "wave": [1, 3, 4, 2, 3, 1],
            "state": ["a", "b", "c", "d", "e", "f"],
        }
    )


SCALES = {
    "whole": lambda w: w,
    "float": lambda w: w.astype(float),
    "nullable": lambda w: w.astype("Int64"),
    "object": lambda w: w.astype(object),
    "decimal": lambda w: w.map(Decimal).astype(object),
    "period": lambda w: w.map(lambda t: pd.Period(year=2020, month=t, freq="M")),
    "two months": lambda w: w.map(lambda t: pd.Period(year=2020, month=2 * t, freq="2M")),
    "category": lambda w: pd.Series(pd.Categorical(w, categories=[1, 2, 3, 4], ordered=True)),
}


@pytest.mark.parametrize("scale", SCALES)
def test_events_on_both_sides_of_a_missed_wave_are_no_transition(scale):
    frame = missed().assign(wave=lambda f: SCALES[scale](f["wave"]))
    with pytest.raises(
        DataError, match=r'positions of a person must have no gap.*gaps="skip".*gaps="ignore"'
    ):
        transition_rows(frame, **COLUMNS)
    assert sorted(nonnull(transition_rows(frame, **COLUMNS, gaps="skip"))) == [
        [1, "b", "c"],
        [2, "d", "e"],
    ]
    ignored = sorted(nonnull(transition_rows(frame, **COLUMNS, gaps="ignore")))
    assert ignored == [[1, "a", "b"], [1, "b", "c"], [2, "d", "e"]]
    with pytest.raises(DataError, match="must have no gap"):
        wide_sequences(frame, **COLUMNS, length=4)
    since_the_first = sorted(nonnull(wide_sequences(frame, **COLUMNS, length=4, gaps="skip")))
    assert since_the_first == [
        [1, "a", None, "b", "c"],
        [2, "d", "e", None, None],
        [3, "f", None, None, None],
    ]


@engines
def test_under_named_columns_a_row_goes_to_the_column_of_its_position(engine):
    frame = missed().assign(wave=lambda f: "w" + f["wave"].astype(str))
    names = ["w1", "w2", "w3", "w4"]
    expected = [[1, "a", None, "b", "c"], [2, None, "d", "e", None], [3, "f", None, None, None]]
    assert (
        sorted(nonnull(wide_sequences(engine(frame), **COLUMNS, length=4, names=names))) == expected
    )
    by_number = wide_sequences(
        engine(missed()), **COLUMNS, length=4, names=names, order=[1, 2, 3, 4]
    )
    assert sorted(nonnull(by_number)) == expected
    with pytest.raises(DataError, match="must have no gap"):
        wide_sequences(engine(frame), **COLUMNS, length=4, names=names, gaps="refuse")
    with pytest.raises(
        DataError,
        match=r"column 'wave' must hold only positions that `names` lists.*gaps=.ignore. if `names`",
    ):
        wide_sequences(engine(frame), **COLUMNS, length=3, names=names[:3])
    # names of steps alone
    log = wide_sequences(engine(missed()), **COLUMNS, length=4, names=names, gaps="ignore")
    assert sorted(nonnull(log))[0] == [1, "a", "b", "c", None]


def test_two_events_at_one_position_and_dates_without_steps_are_refused():
    twice = pd.concat([missed(), missed()[:1]], ignore_index=True)
    for make in (
        lambda f: transition_rows(f, **COLUMNS, gaps="skip"),
        lambda f: wide_sequences(f, **COLUMNS, length=4, names=[1, 2, 3, 4]),
    ):
        with pytest.raises(DataError, match="at least one step apart, with one event at each"):
            make(twice)
    days = missed().assign(
        wave=lambda f: pd.to_datetime("2020-01-01") + pd.to_timedelta(f["wave"], "D")
    )
    for gaps in ("refuse", "skip"):
        with pytest.raises(
            DataError, match=r'one step apart, got dates or times; pass gaps="ignore"'
        ):
            transition_rows(days, **COLUMNS, gaps=gaps)
    waves = list(pd.date_range("2020-01-02", periods=4))
    assert len(transition_rows(days, **COLUMNS, order=waves, gaps="skip")) == 2
    halves = missed().assign(wave=lambda f: f["wave"] * 1.5)
    with pytest.raises(DataError, match="whole steps apart"):
        wide_sequences(halves, **COLUMNS, length=9, gaps="skip")


def test_whole_numbers_at_the_ends_of_their_range_are_apart():
    ends = pd.DataFrame({"id": 1, "wave": [-(2**63), 0, 2**63 - 1], "state": list("abc")})
    for dtype in (np.int64, np.float64, object):
        with pytest.raises(DataError):
            wide_sequences(ends.astype({"wave": dtype}), **COLUMNS, length=4, gaps="skip")


def test_columns_may_have_whole_numbers_as_names():
    frame = missed().set_axis([0, 1, 2], axis="columns")
    rows = transition_rows(frame, person=0, position=1, state=2, gaps="skip")
    assert sorted(nonnull(rows)) == [[1, "b", "c"], [2, "d", "e"]]


def test_orders_and_gaps_are_checked_before_the_data_are_read():
    with pytest.raises(ArgumentError, match="must be the names of three different columns"):
        transition_rows(missed(), person="id", position="id", state="state")
    for odd in (["wave"], {}):
        with pytest.raises(ArgumentError, match="`position` must be hashable"):
            transition_rows(missed(), person="id", position=odd, state="state")  # pyright: ignore[reportArgumentType]
    for order in ([], [1, 1.0], "q1", [1, None], [1, frozenset()], 3):
        with pytest.raises(ArgumentError, match="`order`"):
            transition_rows(missed(), **COLUMNS, order=order)
    for gaps in ("no", None, 1):
        with pytest.raises(ArgumentError, match="`gaps`"):
            transition_rows(missed(), **COLUMNS, gaps=gaps)
    with pytest.raises(
        ArgumentError, match="`order` must have one position for each of the 4 `names`"
    ):
        wide_sequences(missed(), **COLUMNS, length=4, names=[*"abcd"], order=[1, 2, 3])
    with pytest.raises(ArgumentError, match=r"`names` must hold positions: .* order=\["):
        wide_sequences(missed(), **COLUMNS, length=2, names=[("w", 1), ("w", 2)])
    with pytest.raises(ArgumentError, match="`names`"):
        transition_rows(missed(), **COLUMNS, names=Decimal(1))  # pyright: ignore[reportArgumentType]


def test_the_message_about_missing_states_does_not_advise_to_drop_events():
    frame = missed().assign(state=[None, *"bcdef"])
    with pytest.raises(DataError, match="column 'state' must hold no missing value") as caught:
        transition_rows(frame, **COLUMNS)
    assert "drop" not in str(caught.value)
    assert "label of its own" in str(caught.value)


def test_what_one_person_adds_is_what_the_promise_says():
    """One person's float32 once reordered the events of a hundred others."""
    rows = [(p, 2**24 + t, state) for p in range(100) for t, state in ((1, "a"), (0, "b"))]
    both = pd.DataFrame(rows, columns=["id", "wave", "state"]).astype({"wave": object})
    more = pd.DataFrame([(100, np.float32(2**24), "a")], columns=both.columns).astype(
        {"wave": object}
    )
    more.at[0, "wave"] = np.float32(2**24)
    tables = []
    for frame in (both, pd.concat([both[:1], more, both[1:]])):
        wide = nonnull(wide_sequences(frame, **COLUMNS, length=2))
        tables.append(pd.Series([tuple(row[1:]) for row in wide]).value_counts())
    assert tables[1].sub(tables[0], fill_value=0).abs().sum() == 1


@pytest.mark.parametrize("first", [0.1, 0.3, 0.7])
@pytest.mark.parametrize("gaps", ["skip", "refuse"])
def test_another_person_does_not_decide_how_far_apart_events_are(first, gaps):
    """A decimal number turns the column to objects, whose differences are exact; those of floats are rounded."""
    events = {"id": [1, 1, 2], "wave": [first, first + 1, 4.0], "state": ["a", "b", "a"]}
    floats, objects = (
        pd.DataFrame(events),
        pd.DataFrame(events | {"wave": [first, first + 1, Decimal(4)]}),
    )
    assert floats["wave"].dtype != objects["wave"].dtype
    found = []
    for frame in (floats, objects):
        try:
            found.append(transition_rows(frame, **COLUMNS, gaps=gaps).to_numpy().tolist())
        except DataError as error:
            found.append(str(error))
    assert found[0] == found[1]


def test_a_person_without_an_event_does_not_round_the_states_of_others():
    """Pandas turns whole numbers with a gap to floats, which do not have all large whole numbers."""
    large = 2**53 + 1
    events = pd.DataFrame(
        {"id": [1, 1, 2, 2], "wave": [1, 2, 1, 2], "state": [large - 1, large] * 2}
    )
    for kept in (events, events[:3]):
        wide = wide_sequences(kept, **COLUMNS, length=2)
        assert int(wide["x2"].tolist()[0]) == large
