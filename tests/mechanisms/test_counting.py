"""Counting: one answer whatever frame holds the records, and errors that leak nothing."""

from __future__ import annotations

import datetime
import decimal
import itertools
import pickle
import traceback
from fractions import Fraction

import duckdb
import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bayesprivmrf as bpm
from bayesprivmrf.errors import (
    ArgumentError,
    DataError,
    DeclarationWarning,
    ModelError,
    UndeclaredStateError,
)
from bayesprivmrf.mechanisms import ExactStatistics, record_codes
from bayesprivmrf.mechanisms.reading import count_tables, guarded
from bayesprivmrf.model import Domain, ModelSpecification

STATES = {
    "text": ["m", "a", "z"],
    "whole": [30, 10, 20],
    "wide": [10**12, -5],
    "truth": [True, False],
    "real": [0.5, 2, 1],
    "one": ["only"],
}
CLIQUES = (("text", "whole"), ("truth", "text", "wide"), ("real",), ("one", "whole"))
MODEL = ModelSpecification(domain=Domain.from_states(STATES), cliques=CLIQUES)
DAY, MIDNIGHT = datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1)


def records(size, seed=0):
    rng = np.random.default_rng(seed)
    return {
        v: [labels[i] for i in rng.integers(0, len(labels), size)] for v, labels in STATES.items()
    }


def by_hand(model, columns):
    """Tables by a plain loop over records, labels compared as the domain does."""
    flat = np.zeros(model.size, dtype=np.int64)
    for clique, shape, start in zip(model.cliques, model.shapes, model.offsets[:-1], strict=True):
        for row in zip(*(columns[v] for v in clique), strict=True):
            codes = tuple(model.domain.code(v, label) for v, label in zip(clique, row, strict=True))
            flat[start + np.ravel_multi_index(codes, shape)] += 1
    return flat


def typed(columns):
    return pd.DataFrame(columns).astype({"whole": "int64", "wide": "int64", "real": "float64"})


FRAMES = {
    "pandas": typed,
    "pandas objects": lambda c: pd.DataFrame(c).astype(object),
    "pandas categories": lambda c: typed(c).astype({"text": "category", "whole": "category"}),
    "pandas nullable": lambda c: typed(c).convert_dtypes(),
    "pandas arrow": lambda c: typed(c).convert_dtypes(dtype_backend="pyarrow"),
    "pandas small integers": lambda c: typed(c).astype({"whole": "int8"}),
    "pandas whole numbers as floats": lambda c: typed(c).astype(
        {"whole": "float32", "wide": "float64"}
    ),
    "polars": lambda c: pl.from_pandas(typed(c)),
    "polars unsigned": lambda c: pl.from_pandas(typed(c)).with_columns(
        pl.col("whole").cast(pl.UInt64)
    ),
    "polars categories": lambda c: pl.from_pandas(typed(c)).with_columns(
        pl.col("text").cast(pl.Categorical)
    ),
    "polars enumeration": lambda c: pl.from_pandas(typed(c)).with_columns(
        pl.col("text").cast(pl.Enum(["q", "z", "a", "m", "never declared"]))
    ),
    "pyarrow": lambda c: pa.Table.from_pandas(typed(c)),
    "pyarrow dictionary": lambda c: pa.Table.from_pandas(typed(c).astype({"text": "category"})),
    "polars lazy": lambda c: pl.from_pandas(typed(c)).lazy(),
    "polars lazy categories": lambda c: (
        pl.from_pandas(typed(c)).with_columns(pl.col("text").cast(pl.Categorical)).lazy()
    ),
    "duckdb": lambda c: duckdb.from_arrow(pa.Table.from_pandas(typed(c))),
}
frames = pytest.mark.parametrize("kind", FRAMES)


def in_turn(cases):
    """Two cases for each kind of frame, in turn: every case is asked of several kinds."""
    listed = list(cases)
    half = len(listed) // 2
    return [
        (kind, listed[(place + turn) % len(listed)])
        for place, kind in enumerate(FRAMES)
        for turn in (0, half)
    ]


@frames
def test_every_frame_gives_the_counts_of_a_plain_loop(kind):
    columns = records(500)
    counts = count_tables(MODEL, FRAMES[kind](columns))
    np.testing.assert_array_equal(counts.flat, by_hand(MODEL, columns))
    assert counts.records == 500


@frames
def test_an_empty_frame_counts_zero(kind):
    columns = records(1)
    empty = FRAMES[kind](columns)
    empty = (
        empty.limit(0) if kind in {"duckdb", "polars lazy", "polars lazy categories"} else empty[:0]
    )
    counts = count_tables(MODEL, empty)
    assert counts.records == 0
    assert not counts.flat.any()


@pytest.mark.parametrize(
    ("kind", "odd"),
    in_turn([("text", "q"), ("whole", 11), ("wide", 3), ("real", 0.75), ("one", "other")]),
)
def test_an_undeclared_value_is_an_error_that_names_the_column_and_no_value(kind, odd):
    columns, (variable, value) = records(300), odd
    columns[variable][137] = value
    with pytest.raises(
        UndeclaredStateError, match=f"column '{variable}' must hold only the declared"
    ) as caught:
        count_tables(MODEL, FRAMES[kind](columns))
    text = str(caught.value)
    assert "`other=`" in text
    assert f"{value!r}" not in text
    for number in ("300", "299", "137"):
        assert number not in text


def test_an_undeclared_value_is_in_no_part_of_its_error_but_in_the_frames():
    """Not in text, arguments, notes, chain or pickle; local variables are in frames (docs/explanation/privacy.md)."""
    with pytest.raises(UndeclaredStateError) as caught:
        count_one(["yes", "no"], ["yes", "secret-17"])
    error = caught.value
    parts = [str(error), repr(error.args), repr(getattr(error, "__notes__", [])), repr(vars(error))]
    assert not any("secret-17" in part for part in parts)
    assert error.__cause__ is error.__context__ is None
    assert b"secret-17" not in pickle.dumps(error)
    assert "secret-17" in "".join(
        traceback.TracebackException.from_exception(error, capture_locals=True).format()
    )
    loose = error.with_traceback(None)
    assert "secret-17" not in "".join(
        traceback.TracebackException.from_exception(loose, capture_locals=True).format()
    )


def with_missing(kind, *rows):
    """Frame of records in which values are missing, in the frame's own way; each by its variable and row."""
    columns = records(300)
    frame = FRAMES[kind](columns)
    if kind.startswith("pandas"):
        return frame.assign(**{v: frame[v].where(np.arange(300) != row) for v, row in rows})
    if kind.startswith("polars"):
        return frame.with_columns(
            pl.when(pl.int_range(pl.len()) != row).then(pl.col(v)).alias(v) for v, row in rows
        )
    table = pa.Table.from_pandas(typed(columns))
    for v, row in rows:
        column = pa.compute.if_else(pa.array(np.arange(300) == row), None, table[v])
        table = table.set_column(table.schema.get_field_index(v), v, column)
    return duckdb.from_arrow(table) if kind == "duckdb" else table


@pytest.mark.parametrize(("kind", "variable"), in_turn(STATES))
def test_a_missing_value_is_an_error_that_names_the_column(kind, variable):
    with pytest.raises(
        UndeclaredStateError, match=f"column '{variable}' must hold no missing value"
    ) as caught:
        count_tables(MODEL, with_missing(kind, (variable, 137)))
    assert "`missing=`" in str(caught.value)
    assert "137" not in str(caught.value)


@frames
def test_a_missing_value_goes_to_the_state_that_takes_it(kind):
    """One value of each variable, each in a row of its own."""
    columns = records(300)
    rows = [(variable, 137 + place) for place, variable in enumerate(STATES)]
    for variable, row in rows:
        columns[variable][row] = STATES[variable][-1]
    last = {variable: len(labels) - 1 for variable, labels in STATES.items()}
    counts = count_tables(MODEL, with_missing(kind, *rows), missing=last)
    np.testing.assert_array_equal(counts.flat, by_hand(MODEL, columns))


@frames
def test_undeclared_values_go_to_the_state_that_takes_them(kind):
    columns = records(300)
    odd = {v: list(column) for v, column in columns.items()}
    for row, value in ((3, 99), (8, -7), (200, 10**15)):
        odd["wide"][row] = value
        columns["wide"][row] = -5
    odd["text"][5], columns["text"][5] = "never declared", "m"
    counts = count_tables(MODEL, FRAMES[kind](odd), other={"wide": 1, "text": 0})
    np.testing.assert_array_equal(counts.flat, by_hand(MODEL, columns))


def test_nan_in_a_polars_column_is_missing():
    columns = records(50)
    columns["real"][7] = float("nan")
    for frame in (pl.from_pandas(typed(columns)), pl.DataFrame(columns, strict=False).lazy()):
        with pytest.raises(UndeclaredStateError, match="column 'real' must hold no missing"):
            count_tables(MODEL, frame)


# labels


def count_one(states, column):
    model = ModelSpecification(domain=Domain.from_states({"x": states}), cliques=(("x",),))
    frame = column if not isinstance(column, list | np.ndarray) else pd.DataFrame({"x": column})
    return count_tables(model, frame).flat.tolist()


def test_one_and_one_point_zero_are_one_label():
    assert count_one([1, 2.0], [1.0, 2.0, 2.0]) == [1, 2]
    assert count_one([1.0, 2.0], np.array([1, 2, 2])) == [1, 2]
    assert count_one([1, Fraction(1, 2)], [0.5, 1.0, 0.5]) == [1, 2]
    assert count_one([decimal.Decimal("0.5"), 1], [0.5, 1.0, 0.5]) == [2, 1]


def test_true_and_one_are_two_labels_even_in_one_column_of_objects():
    both = [1, "x"], pd.Series([1, "x", 1.0], dtype=object).to_frame("x")
    assert count_one(*both) == [2, 1]
    for odd in (True, np.True_):
        with pytest.raises(UndeclaredStateError):
            count_one([1, "x"], pd.Series([1, odd, "x"], dtype=object).to_frame("x"))
    assert count_one(
        [True, False, "x"], pd.Series([True, False, "x", np.True_], dtype=object).to_frame("x")
    ) == [2, 1, 1]
    with pytest.raises(UndeclaredStateError):
        count_one([True, False], np.array([1, 0]))
    with pytest.raises(UndeclaredStateError):
        count_one([1, 0], np.array([True, False]))
    for frame in (pl.DataFrame({"x": [True]}), pl.DataFrame({"x": [True]}).lazy()):
        with pytest.raises(UndeclaredStateError):
            count_one([1, 0], frame)
    model = ModelSpecification(domain=Domain.from_states({"x": [1, True, "x"]}), cliques=(("x",),))
    frame = pd.Series([1, True, "x", True], dtype=object).to_frame("x")
    assert count_tables(model, frame).flat.tolist() == [1, 2, 1]


def test_text_is_never_a_number():
    for frame in (
        pd.DataFrame({"x": ["1"]}),
        pl.DataFrame({"x": ["1"]}),
        pl.DataFrame({"x": ["1"]}).lazy(),
    ):
        with pytest.raises(
            UndeclaredStateError, match="text, numbers and truth values are different"
        ):
            count_one([1, 2], frame)
    for frame in (pd.DataFrame({"x": [1]}), pl.DataFrame({"x": [1]}), duckdb.sql("select 1 as x")):
        with pytest.raises(UndeclaredStateError):
            count_one(["1", "2"], frame)


def test_labels_of_other_kinds_count():
    day, other = datetime.date(2020, 1, 2), datetime.date(2021, 1, 2)
    column = [day, other, day]
    for frame in (
        pd.DataFrame({"x": column}),
        pl.DataFrame({"x": column}),
        pl.DataFrame({"x": column}).lazy(),
        pa.table({"x": column}),
    ):
        assert count_one([other, day], frame) == [1, 2]
    pairs = pd.Series([("a", 1), ("b", 2), ("a", 1)], dtype=object).to_frame("x")
    assert count_one([("a", 1), ("b", 2)], pairs) == [2, 1]
    classes = pd.Series([type(None), "b"], dtype=object).to_frame("x")
    assert count_one([type(None), "b"], classes) == [1, 1]


def test_unhashable_values_are_undeclared():
    with pytest.raises(UndeclaredStateError):
        count_one(["a"], pd.Series([["a"], "a"], dtype=object).to_frame("x"))


def test_integers_at_the_ends_of_their_type_do_not_wrap_into_a_state():
    ends = np.array([-(2**63), 2**63 - 1], dtype=np.int64)
    for states in ([1, 2], [-1, 0], [2**62, 2**62 + 1], [-(2**63) + 5, -(2**63) + 4]):
        with pytest.raises(UndeclaredStateError):
            count_one(states, ends)
    assert count_one([2**63 - 1, -(2**63)], ends) == [1, 1]
    assert count_one(
        [2**64 - 1, 0], pl.DataFrame({"x": [0, 2**64 - 1]}, schema={"x": pl.UInt64})
    ) == [1, 1]
    assert count_one([2**53, 2**53 + 1], np.array([2**53 + 1, 2**53 + 1])) == [0, 2]
    with pytest.raises(UndeclaredStateError):
        count_one([2**53 + 1], np.array([2.0**53]))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8, unique=True),
    st.lists(st.integers(0, 7), max_size=30),
)
def test_integer_columns_count_like_python(states, places):
    column = np.array([states[place % len(states)] for place in places], dtype=np.int64)
    expected = [int((column == label).sum()) for label in states]
    assert count_one(states, column) == expected
    assert count_one(states, pl.DataFrame({"x": column}).lazy()) == expected


def test_tables_larger_than_a_chunk_count_right():
    rng = np.random.default_rng(5)
    model = ModelSpecification(
        domain=Domain.from_states({"x": range(300), "y": range(400)}), cliques=(("y", "x"),)
    )
    frame = pd.DataFrame({"x": rng.integers(0, 300, 70_000), "y": rng.integers(0, 400, 70_000)})
    expected = np.zeros((400, 300), dtype=int)
    np.add.at(expected, (frame.y, frame.x), 1)
    np.testing.assert_array_equal(count_tables(model, frame).flat.reshape(400, 300), expected)


def test_more_states_than_a_byte_holds_count_right():
    for size in (254, 255, 256, 65_600):
        states = [f"s{i}" for i in range(size)]
        frame = pd.DataFrame({"x": [states[-1], states[0], states[-1]]})
        natives = (
            [frame] if size > 1000 else [frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)]
        )
        for native in natives:
            counts = np.array(count_one(states, native))
            assert (counts[-1], counts[0], counts.sum()) == (2, 1, 3)
            with pytest.raises(UndeclaredStateError):
                count_one(states[:-1], native)


# columns and frames


def test_a_column_matches_by_name_and_then_by_its_text():
    model = ModelSpecification(
        domain=Domain.from_states({0: ["a", "b"], 1: ["a", "b"]}), cliques=((0, 1),)
    )
    expected = [0, 2, 1, 0]
    numbered = pd.DataFrame({0: ["a", "a", "b"], 1: ["b", "b", "a"], "0": ["?", "?", "?"]})
    assert count_tables(model, numbered).flat.tolist() == expected
    for frame in (
        pd.DataFrame({"1": ["b", "b", "a"], "0": ["a", "a", "b"]}),
        pl.DataFrame({"1": ["b", "b", "a"], "0": ["a", "a", "b"]}),
    ):
        assert count_tables(model, frame).flat.tolist() == expected


def test_a_missing_or_repeated_column_is_refused():
    frame = typed(records(5))
    for native in (frame.drop(columns="truth"), pl.from_pandas(frame).lazy().drop("truth")):
        with pytest.raises(DataError, match="none is named 'truth'"):
            count_tables(MODEL, native)
    with pytest.raises(DataError, match="distinct names"):
        count_tables(MODEL, pd.concat([frame, frame[["truth"]]], axis=1))


@pytest.mark.parametrize(
    "data", [None, [1, 2], {"text": ["m"]}, np.zeros((2, 2)), "file.csv", 3, pd.Series([1])]
)
def test_data_that_is_no_frame_is_refused(data):
    with pytest.raises(DataError, match="must be a data frame") as caught:
        count_tables(MODEL, data)
    assert type(data).__name__ in str(caught.value)


def test_an_engines_own_error_message_is_withheld():
    broken = pl.LazyFrame({"x": ["secret-17"]}).with_columns(pl.col("x").cast(pl.Int64))
    with pytest.raises(DataError, match="its engine raised InvalidOperationError") as caught:
        count_one([1, 2], broken)
    assert "secret-17" not in str(caught.value)
    # nor does the chain of exceptions hold it, for whoever logs or pickles that
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def test_what_an_engine_panics_with_is_withheld():
    class Panic(BaseException):
        pass

    def panic():
        raise Panic("secret-17")

    with pytest.raises(DataError, match="its engine raised Panic") as caught:
        guarded("counting", panic)
    assert caught.value.__context__ is None


def test_running_out_of_memory_does_not_tell_the_number_of_records():
    def exhausted():
        raise MemoryError("Unable to allocate 467. MiB for an array with shape (61234567,)")

    with pytest.raises(MemoryError) as caught:
        guarded("counting", exhausted)
    assert caught.value.args == ("counting ran out of memory",)
    assert caught.value.__context__ is None


def test_an_error_about_the_frame_itself_carries_no_context():
    repeated = pa.table([pa.array([17]), pa.array([18])], names=["x", "x"])
    for data in ({"x": ["secret-17"]}, repeated):
        with pytest.raises(DataError) as caught:
            count_one([1, 2], data if isinstance(data, pa.Table) else _Wrapped(data))
        assert caught.value.__context__ is None


class _Wrapped:
    """No frame."""

    def __init__(self, content):
        self.content = content


# a record is in one cell of each table, whatever the engine thinks


COLLIDING = {
    "a narrow float": ([16777216, 16777217], [16777216.0], pl.Float32),
    "a narrow float, the other order": ([16777217, 16777216], [16777216.0], pl.Float32),
    "a wide float": ([2**53, 2**53 + 1], [2.0**53], pl.Float64),
    "a date and a midnight": ([DAY, MIDNIGHT], [MIDNIGHT], pl.Datetime),
    "a date and a midnight, as dates": ([DAY, MIDNIGHT], [DAY], pl.Date),
    "a float and a decimal": ([0.1, decimal.Decimal("0.10")], [0.1], pl.Float64),
    "a decimal and a float": (
        [0.1, decimal.Decimal("0.10")],
        [decimal.Decimal("0.10")],
        pl.Decimal(5, 2),
    ),
    "a rounded float": ([0.1, 0.2], [0.1], pl.Float32),
}


def answer_with(model, frame, settings):
    """Counts, or the kind of refusal."""
    try:
        return count_tables(model, frame, **settings).flat.tolist()
    except DataError as refusal:
        return type(refusal)


@pytest.mark.parametrize("kind", COLLIDING)
@pytest.mark.parametrize("cliques", [(("x",), ("y",)), (("y", "x"),)])
@pytest.mark.parametrize("other", [None, 1])
def test_labels_that_an_engine_would_confuse_count_the_same_everywhere(kind, cliques, other):
    states, column, dtype = COLLIDING[kind]
    model = ModelSpecification(
        domain=Domain.from_states({"x": states, "y": [0, 1, 2, 3]}), cliques=cliques
    )
    frame = pl.DataFrame({"x": column * 2, "y": [0, 3]}, schema={"x": dtype, "y": pl.Int64})
    redirected = {} if other is None else {"other": {"x": other}}
    eager, lazy, query = (
        answer_with(model, native, redirected)
        for native in (frame, frame.lazy(), duckdb.from_arrow(frame.to_arrow()))
    )
    assert eager == lazy == query
    if not isinstance(eager, type):
        assert [part.sum() for part in np.split(np.array(eager), model.offsets[1:-1])] == [2] * len(
            cliques
        )


@pytest.mark.parametrize("cliques", [(("x",), ("y",)), (("x", "y"),)])
def test_a_value_that_the_engine_takes_for_two_states_is_refused(cliques):
    connection = duckdb.connect()
    connection.execute("create table t(x varchar collate nocase, y integer)")
    connection.execute("insert into t values ('a', 0), ('A', 0), ('b', 1)")
    domain = Domain.from_states({"x": ["a", "A", "b"], "y": [0, 1]})
    model = ModelSpecification(domain=domain, cliques=cliques)
    for other in (None, {"x": 2}):
        with pytest.raises(DataError, match="column 'x' must be one declared state") as caught:
            count_tables(model, connection.table("t"), other=other)
        assert "'a'" not in str(caught.value).lower()


def from_the_engine(monkeypatch, rows):
    """Let a lazy frame's one query bring back these rows of (cell, count, table)."""

    class Result:
        def collect(self):
            return nw.from_native(pl.DataFrame(rows, schema=["cell", "n", "table"], orient="row"))

    monkeypatch.setattr(nw, "concat", lambda *_, **__: Result())


def test_a_cell_outside_its_table_is_refused(monkeypatch):
    model = ModelSpecification(
        domain=Domain.from_states({"x": [0, 1], "y": [0, 1]}), cliques=(("x",), ("y",))
    )
    lazy = pl.LazyFrame({"x": [0], "y": [0]})
    from_the_engine(monkeypatch, [(2, 1, 0), (0, 1, 1)])
    with pytest.raises(DataError, match="must be in a cell of its table"):
        count_tables(model, lazy)
    from_the_engine(monkeypatch, [(0, 1, 0), (2, 1, 1)])
    with pytest.raises(DataError, match="must be in a cell of its table"):
        count_tables(model, lazy)


def test_a_source_that_gives_other_records_to_each_table_is_refused(monkeypatch):
    model = ModelSpecification(
        domain=Domain.from_states({"x": [0, 1], "y": [0, 1]}), cliques=(("x",), ("y",))
    )
    for rows in ([(0, 17, 0), (1, 18, 1)], [(0, 17, 0)], [(1, 17, 1)]):
        with monkeypatch.context() as patch:
            from_the_engine(patch, rows)
            with pytest.raises(DataError, match="same records") as caught:
                count_tables(model, pl.LazyFrame({"x": [0], "y": [0]}))
        assert "17" not in str(caught.value)
        assert "18" not in str(caught.value)


def test_a_record_in_an_impossible_cell_is_refused_without_showing_it():
    zero = ((("text", "m"), ("whole", 30)),)
    model = ModelSpecification(domain=MODEL.domain, cliques=CLIQUES, impossible=zero)
    columns = records(200)
    assert any(pair == ("m", 30) for pair in zip(columns["text"], columns["whole"], strict=True))
    for frame in (typed(columns), pl.from_pandas(typed(columns)).lazy()):
        with pytest.raises(DataError, match="declared impossible") as caught:
            count_tables(model, frame)
        assert "30" not in str(caught.value)


def test_rows_and_columns_in_any_order_give_the_same_counts():
    frame = typed(records(100))
    shuffled = frame.sample(frac=1, random_state=1)[list(STATES)[::-1]]
    np.testing.assert_array_equal(
        count_tables(MODEL, frame).flat, count_tables(MODEL, shuffled).flat
    )


def test_a_frame_is_not_changed_by_counting():
    for make in FRAMES.values():
        if isinstance(frame := make(records(20)), pd.DataFrame):
            before = frame.copy(deep=True)
            count_tables(MODEL, frame)
            pd.testing.assert_frame_equal(frame, before)


# the settings `missing` and `other`


def redirecting_model():
    states = {"a": ["x", "missing"], "b": ["x", "y", "missing", "other"], "c": ["x", "y"]}
    return ModelSpecification(domain=Domain.from_states(states), cliques=(("a",), ("b",), ("c",)))


def test_a_label_redirects_the_variables_that_declare_it_and_no_other():
    frame = pd.DataFrame({"a": ["x", None], "b": [None, "rare"], "c": ["x", "y"]})
    release = ExactStatistics(missing="missing", other="other").release(redirecting_model(), frame)
    assert release.tables["a"].tolist() == [1, 1]
    assert release.tables["b"].tolist() == [0, 0, 1, 1]
    with pytest.raises(UndeclaredStateError, match="'c' must hold no missing"):
        ExactStatistics(missing="missing", other="other").release(
            redirecting_model(), frame.assign(c=[None, "y"])
        )
    with pytest.raises(UndeclaredStateError, match="'a' must hold only"):
        ExactStatistics(missing="missing", other="other").release(
            redirecting_model(), frame.assign(a=["q", "x"])
        )


def test_a_mapping_redirects_the_variables_it_names():
    frame = pd.DataFrame({"a": ["x", "x"], "b": ["x", None], "c": ["x", None]})
    release = ExactStatistics(missing={"c": "y", "b": "y"}).release(redirecting_model(), frame)
    assert release.tables["b"].tolist() == [1, 1, 0, 0]
    assert release.tables["c"].tolist() == [1, 1]


def test_a_redirection_that_fits_no_state_is_refused_before_the_data_is_read():
    with pytest.raises(ArgumentError, match="`missing` must be a declared state"):
        ExactStatistics(missing="absent").release(redirecting_model(), "never looked at")
    with pytest.raises(ModelError, match="no state 'z'"):
        ExactStatistics(other={"a": "z"}).release(redirecting_model(), "never looked at")
    with pytest.raises(ModelError, match="not declared"):
        ExactStatistics(other={"q": "z"}).release(redirecting_model(), "never looked at")
    with pytest.raises(ArgumentError, match="`other`"):
        ExactStatistics(other=["x"])


def test_every_assignment_lands_in_its_own_cell():
    cells = list(itertools.product(*STATES.values()))
    frame = typed({v: [cell[i] for cell in cells] for i, v in enumerate(STATES)})
    model = ModelSpecification(domain=MODEL.domain, cliques=(tuple(STATES),))
    assert (count_tables(model, frame).flat == 1).all()
    assert (count_tables(model, pl.from_pandas(frame).lazy()).flat == 1).all()


def test_exact_counts_do_not_print():
    model = ModelSpecification(domain=Domain.from_states({"a": [0, 1]}), cliques=(("a",),))
    exact = count_tables(model, pd.DataFrame({"a": [0, 1, 1]}))
    assert repr(exact) == str(exact) == "ExactCounts(sensitive)"


@pytest.mark.parametrize("kind", ["data set", "file", "folder", "text"])
def test_parquet_on_disk_is_counted_as_the_frame_that_was_written(kind, tmp_path):
    import pyarrow.dataset

    frame = pd.DataFrame(
        {"a": ["x", "y", None, "x"], "b": [1, 2, 2, 1], "Freq": [2, 1, 0, 4], "spare": [[1]] * 4}
    )
    folder = tmp_path / "parts"
    folder.mkdir()
    for part in (0, 1):
        frame.iloc[2 * part : 2 * part + 2].to_parquet(folder / f"{part}.parquet")
    frame.to_parquet(tmp_path / "all.parquet")
    data = {
        "data set": pyarrow.dataset.dataset(folder),
        "file": tmp_path / "all.parquet",
        "folder": folder,
        "text": str(tmp_path / "all.parquet"),
    }[kind]
    network = bpm.declare({"a": ["x", "y", "none"], "b": [1, 2]}, [("a", "b")])
    mechanism = ExactStatistics(missing="none")
    assert mechanism.release(network, data, count="Freq").flat.tolist() == [6, 0, 0, 1, 0, 0]
    with pytest.warns(DeclarationWarning, match="'Freq' is not used"):
        assert mechanism.release(network, data).flat.tolist() == [2, 0, 0, 1, 0, 1]
    assert record_codes(
        ModelSpecification.from_pgmpy(network).domain, data, missing={"a": 2}
    ).tolist()[2] == [2, 1]
    with pytest.raises(DataError, match="none is named 'c'"):
        ExactStatistics().release(bpm.declare({"c": [0, 1]}, [("c",)]), data, count="Freq")


def test_what_is_no_parquet_is_refused_without_a_word_of_its_own(tmp_path):
    (tmp_path / "broken.parquet").write_bytes(b"secret")
    network = bpm.declare({"a": ["x", "y"]}, [("a",)])
    for data in (tmp_path / "broken.parquet", tmp_path / "absent.parquet"):
        with pytest.raises(DataError, match="the path leads to Parquet files") as caught:
            ExactStatistics().release(network, data)
        assert "secret" not in str(caught.value)
        assert caught.value.__context__ is None
    with pytest.raises(DataError, match=r"got \w+, a path where no file is; correct the path"):
        ExactStatistics().release(network, tmp_path / "absent.csv")
    (tmp_path / "data.csv").write_text("a\nx\n")
    for data in (tmp_path / "data.csv", str(tmp_path / "data.csv")):
        with pytest.raises(
            DataError, match=r"got \w+, a path to another file; pandas.read_csv\(path\) reads"
        ):
            ExactStatistics().release(network, data)


@pytest.mark.parametrize("has_labels", [True, False])
def test_a_column_of_numbers_where_bins_are_declared_is_told_how_to_make_them(has_labels):
    breaks = [0, 30, 60, 120]
    states = (
        ["up to 30", "31 to 60", "over 60"]
        if has_labels
        else list(pd.IntervalIndex.from_breaks(breaks))
    )
    network = bpm.declare({"age": states}, [("age",)])
    records = pd.DataFrame({"age": [20, 45, 70, 33]})
    remedy = (
        r"pd\.cut\(column, breaks, labels=states\)" if has_labels else r"pd\.cut\(column, breaks\)"
    )
    with pytest.raises(
        UndeclaredStateError, match=f"numbers such as ages into bins: `{remedy}`"
    ) as caught:
        ExactStatistics().release(network, records)
    assert not any(str(value) in str(caught.value) for value in records["age"])
    records["age"] = pd.cut(records["age"], breaks, labels=states if has_labels else None)
    assert ExactStatistics().release(network, records).flat.tolist() == [1, 2, 1]
