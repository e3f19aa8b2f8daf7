"""Reading: one record is one line, and how it is read depends on nothing in the others."""

from __future__ import annotations

import datetime
import enum
import functools
import gzip
import itertools
import math
from decimal import Decimal
from fractions import Fraction

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from repeats import few

from bayesprivmrf.errors import DataError, ModelError
from bayesprivmrf.mechanisms import ExactStatistics, LaplaceStatistics
from bayesprivmrf.mechanisms.reading import Coding, count_tables
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.records import read_declaration, read_records, recode

# a line is a record


def declared(folder, *rules, cliques=None):
    """Declaration of variables a, b, ... by these rules."""
    names = "abcdefgh"[: len(rules)]
    text = f"cliques = {cliques or [[name] for name in names]}\n"
    text += "".join(
        f"[variables.{name}]\n{rule}\n" for name, rule in zip(names, rules, strict=True)
    )
    (folder / "model.toml").write_text(text)
    return read_declaration(folder / "model.toml")


def records_of(folder, content):
    (folder / "data.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_records(folder / "data.csv")


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("a\n1\n\n0\n", ["1", None, "0"]),
        ("a\n1\n\n", ["1", None]),
        ("a\n\n\n", [None, None]),
        ("a\n", []),
        ("a\r\n1\r\n\r\n0\r\n", ["1", None, "0"]),
        ("a\r1\r\r0\r", ["1", None, "0"]),
        ('a\n""\n"1"\n', [None, "1"]),
        ("\ufeffa\n1\n\n", ["1", None]),
        ("a\n \n", [" "]),
        ("a,b\n1,0\n\n,\n0,1\n", ["1", None, None, "0"]),
        ("a,b\n1,0\n0,1", ["1", "0"]),
        (",a\n0,1\n1,\n2,0", ["1", None, "0"]),
    ],
)
def test_every_line_after_the_header_is_a_record(tmp_path, text, column):
    found = records_of(tmp_path, text)["a"]
    assert [None if pd.isna(value) else value for value in found] == column


def lines(columns, rows, ending, empty, start):
    """File of these records, each line ended, as a writer of CSV makes it."""
    text = [",".join("abc"[:columns])]
    text += [",".join(empty if value is None else value for value in row) for row in rows]
    return start + "".join(line + ending for line in text).encode()


@pytest.mark.parametrize(
    ("columns", "ending", "empty", "start"),
    [
        (1, "\n", "", b""),
        (1, "\r\n", "", b""),
        (1, "\r\n", '""', b"\xef\xbb\xbf"),
        (1, "\r", "", b""),
        (2, "\r\n", '""', b"\xef\xbb\xbf"),
        *(
            pytest.param(2, ending, "", b"", marks=pytest.mark.slow)
            for ending in ("\n", "\r\n", "\r")
        ),
    ],
)
def test_neighbours_in_one_answer_have_the_same_total_and_the_right_counts(
    tmp_path, columns, ending, empty, start
):
    rule = 'states = ["0", "1", "none"]\nmissing = "none"'
    clique = list("ab"[:columns])
    declaration = declared(tmp_path, *[rule] * columns, cliques=[clique])
    mechanism = ExactStatistics(missing="none", adjacency="replace-one")
    seen = {}
    for rows in itertools.product(
        itertools.product(("0", "1", None), repeat=columns), repeat=3 - columns + 1
    ):
        records = records_of(tmp_path, lines(columns, rows, ending, empty, start))
        release = mechanism.release(declaration.specification, recode(declaration, records))
        expected = np.zeros((3,) * columns, dtype=int)
        for row in rows:
            expected[tuple({"0": 0, "1": 1, None: 2}[value] for value in row)] += 1
        np.testing.assert_array_equal(release.tables[tuple(clique)], expected)
        seen[rows] = release.total
    assert len(set(seen.values())) == 1
    assert any(
        rows[-1] == (None,) * columns for rows in seen
    )  # the last line is blank in one of them


def test_a_missing_answer_does_not_change_the_public_total(tmp_path):
    declaration = declared(tmp_path, 'states = ["0", "x", "none"]\nmissing = "none"')
    totals = [
        LaplaceStatistics(epsilon=1.0, adjacency="replace-one")
        .release(
            declaration.specification,
            recode(declaration, records_of(tmp_path, "a\n" + "0\n" * 9 + last)),
            rng=1,
        )
        .total
        for last in ("x\n", "\n")
    ]
    assert totals == [10, 10]


def test_a_file_of_one_column_must_end_its_last_line(tmp_path):
    # by a writer that puts line ends between lines, "a\n1\n" would hold two records
    with pytest.raises(DataError, match="must end in a line break"):
        records_of(tmp_path, "a\n1\n0")
    assert len(records_of(tmp_path, "a\n1\n")) == 1


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_a_field_with_a_line_break_is_refused_and_shows_nothing(tmp_path, zipped, ending):
    rows = [["secret", "0"] for _ in range(50)]
    rows[30][0], rows[5][0] = (
        'x"',
        '"x',
    )  # the answers of two people, of which the first joins 25 lines
    content = ("a,b" + ending + "".join(",".join(row) + ending for row in rows)).encode()
    name = "data.csv.gz" if zipped else "data.csv"
    (tmp_path / name).write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(DataError, match="no field of a CSV file may hold a line break") as caught:
        read_records(tmp_path / name)
    assert not any(part in str(caught.value) for part in ("secret", "31", "6", "25", "26", "50"))
    assert caught.value.__context__ is None


@pytest.mark.parametrize("text", ["", "\n", "\n\n", "\ufeff", "\na\n1\n"])
def test_a_file_without_a_header_is_refused(tmp_path, text):
    with pytest.raises(DataError, match="must begin with a header"):
        records_of(tmp_path, text)


# a value is read by itself


class Colour(str, enum.Enum):  # noqa: UP042 - equal to its text, with another hash
    RED = "1"


class Level(enum.IntEnum):
    ONE = 1


POOL = [
    *(True, False, np.True_, np.False_, Level.ONE, Colour.RED),
    *(0, 1, 2, -1, 2**70, 10**400, 0.0, -0.0, 1.0, 0.5, math.inf),
    *(
        np.int8(1),
        np.uint8(0),
        np.int64(2),
        np.float32(1),
        np.float32(0.1),
        np.float64(0.5),
        np.longdouble(1),
    ),
    *(Fraction(1, 1), Fraction(1, 2), Decimal(1), Decimal("1.0"), Decimal("0.5"), 1 + 0j, 0.5 + 0j),
    *(np.complex64(1), np.complex128(0)),
    *(
        "1",
        "0",
        "1.0",
        " 1",
        "true",
        "False",
        "yes",
        "",
        "nan",
        "1e400",
        np.str_("1"),
        b"1",
        np.bytes_(b"yes"),
    ),
    *((1,), (True,), (np.complex64(1),), ("a", 1), frozenset({1}), frozenset({True})),
    *(datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), pd.Timestamp("2020-01-01")),
    *(
        np.datetime64("2020-01-01"),
        datetime.timedelta(1),
        np.timedelta64(1, "D"),
        pd.Timedelta(1, "D"),
    ),
    *(None, math.nan, np.float64("nan"), pd.NaT, pd.NA, Decimal("NaN"), complex("nan")),
]
RULES = {
    "states": "states = [0, 1, 9]\nother = 9",
    "truth values": 'states = [true, false, "gone"]\nmissing = "gone"',
    "values": 'states = ["n", "t", "x", "o"]\nvalues = [[1, 0.5], [true, "yes"], ["1"]]\nother = "o"',
    "breaks": 'states = ["low", "mid", "high"]\nbreaks = [0, 0.75]',
    "breaks and other": 'states = ["low", "high", "o", "m"]\nbreaks = [0.5]\nother = "o"\nmissing = "m"',
}
STATES = [
    (0, 1, "o", "m"),
    (True, False, "yes", "o", "m"),
    ((1,), ("a", 1), 1, "o", "m"),
    (datetime.date(2020, 1, 1), datetime.timedelta(1), b"1", "o", "m"),
    (Decimal("0.5"), frozenset({1}), "1", "o", "m"),
    (1 + 0j, True, "o", "m"),
]


def objects(values):
    return pd.Series(np.fromiter(values, dtype=object, count=len(values)), dtype=object).to_frame(
        "a"
    )


def shown(values):
    """Values to compare: numbers of Python by themselves, for 1 and 1.0 are one label; others by type and text."""
    return [
        value
        if type(value) in (int, float) and value == value
        else f"{type(value).__name__} {value!r}"
        for value in values
    ]


def codes_in(states, values, engine=objects):
    """Codes by the last two states for what is undeclared and what is missing."""
    coding = Coding(variable="a", states=states, other=len(states) - 2, missing=len(states) - 1)
    return coding.encode(nw.from_native(engine(values)).get_column("a")).tolist()


@pytest.mark.parametrize("rule", RULES)
def test_recoding_a_value_depends_on_no_other_row(tmp_path, rule):
    declaration = declared(tmp_path, RULES[rule])
    alone = [recode(declaration, objects([value]))["a"].iloc[0] for value in POOL]
    backwards = POOL[::-1]
    for first in POOL:
        for rest, expected in ((POOL, alone), (backwards, alone[::-1])):
            found = recode(declaration, objects([first, *rest]))["a"].tolist()[1:]
            assert shown(found) == shown(expected), f"after {first!r}"


def polars_objects(values):
    return pl.DataFrame({"a": pl.Series(values, dtype=pl.Object)})


# values of any type are objects to both engines, and coded by one function
@pytest.mark.parametrize(
    ("states", "engine"),
    [(states, (objects, polars_objects)[place % 2]) for place, states in enumerate(STATES)],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_the_code_of_a_value_depends_on_no_other_row(states, engine):
    alone = [codes_in(states, [value], engine)[0] for value in POOL]
    for first in POOL:
        assert codes_in(states, [first, *POOL], engine)[1:] == alone, f"after {first!r}"
        assert codes_in(states, [first, *POOL[::-1]], engine)[1:] == alone[::-1], f"after {first!r}"


@pytest.mark.parametrize("every", few([11, 1]))
def test_the_codes_of_a_pair_are_those_of_each(every):
    states = (0, True, (1,), "yes", b"1", "o", "m")
    alone = [codes_in(states, [value])[0] for value in POOL]
    for i, j in itertools.islice(itertools.permutations(range(len(POOL)), 2), 0, None, every):
        assert codes_in(states, [POOL[i], POOL[j]]) == [alone[i], alone[j]]


@functools.cache
def codes_alone(states):
    return [codes_in(states, [value])[0] for value in POOL]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(STATES), st.lists(st.integers(0, len(POOL) - 1), max_size=40))
def test_any_column_of_objects_is_coded_value_by_value(states, places):
    alone = codes_alone(states)
    assert codes_in(states, [POOL[place] for place in places]) == [alone[place] for place in places]


def test_one_record_does_not_move_a_thousand_others(tmp_path):
    declaration = declared(tmp_path, RULES["states"])
    for odd in (np.True_, Fraction(1, 1), np.complex64(1), np.int8(1), (True,)):
        counts = ExactStatistics().release(
            declaration.specification, recode(declaration, objects([odd, *[1] * 1000]))
        )
        assert counts.tables["a"][1] >= 1000


def test_odd_objects_beyond_the_first_hundred_rows_are_told_apart():
    # narwhals takes such a column for text: it looks at its first hundred values
    model = ModelSpecification(domain=Domain.from_states({"a": [0, 1, "x"]}), cliques=(("a",),))
    frame = objects(["x"] * 150 + [np.True_] + [1] * 1000)
    assert count_tables(model, frame, other={"a": 0}).flat.tolist() == [1, 1000, 150]


@pytest.mark.parametrize(
    "odd", [np.int8(1), 0, "x", None, Fraction(1, 2), np.complex64(1), datetime.date(2020, 1, 1)]
)
def test_what_stands_first_does_not_move_a_value_to_another_bin(tmp_path, odd):
    declaration = declared(tmp_path, RULES["breaks"])
    found = recode(declaration, objects([odd, Fraction(1, 1), "0.5", 0.5, 0, True]))["a"].tolist()[
        1:
    ]
    assert found == ["high", "mid", "mid", "low", True]


LARGE = 2**53 + 1


@pytest.mark.parametrize("form", ["parquet", "polars", "lazy polars", "pyarrow"])
def test_a_missing_value_takes_no_digits_from_whole_numbers(tmp_path, form):
    declaration = declared(tmp_path, f'states = [{LARGE}, {LARGE - 1}, "none"]\nmissing = "none"')
    for last, label in ((LARGE - 1, LARGE - 1), (None, "none")):
        frame = pl.DataFrame({"a": [LARGE, last]})
        if form == "parquet":
            frame.write_parquet(tmp_path / "data.parquet")
            data = read_records(tmp_path / "data.parquet")
        else:
            data = {"polars": frame, "lazy polars": frame.lazy(), "pyarrow": frame.to_arrow()}[form]
        assert recode(declaration, data)["a"].tolist() == [LARGE, label]


def test_arrow_dictionaries_with_missing_values_and_columns_without_rows_are_read():
    day = datetime.date(2020, 1, 1)
    coded = pa.array(["x", "y", None], type=pa.string()).dictionary_encode()
    unsigned = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None], pa.uint32()), pa.array(["x", "y"])
    )
    of_pandas = pd.DataFrame(
        {"a": pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([coded])))}
    )
    for frame in (pa.table({"a": coded}), pa.table({"a": unsigned}), of_pandas):
        assert codes_in(("y", "x", "o", "m"), frame, lambda given: given) == [1, 0, 3]
    empty = pa.table({"a": pa.array([], pa.date32())})
    assert codes_in((day, "o", "m"), empty, lambda given: given) == []


@pytest.mark.parametrize("rule", ["states", "truth values", "values"])
def test_values_that_are_no_single_values_are_refused_without_showing_them(tmp_path, rule):
    with pytest.raises(DataError, match="must hold single values") as caught:
        recode(declared(tmp_path, RULES[rule]), objects([["secret"], 1]))
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


# the model file


@pytest.mark.parametrize("text", ["a=" + "[" * 5000 + "]" * 5000, "a=" + "[" * 5000])
def test_a_model_file_that_is_nested_too_deeply_is_a_clear_error(tmp_path, text):
    (tmp_path / "model.toml").write_text(text)
    with pytest.raises(ModelError, match=r"model\.toml.* is nested more deeply"):
        read_declaration(tmp_path / "model.toml")


@pytest.mark.parametrize(
    "content", [b"a,b\n1,0\nx\ry,0\n", b"a,b\r\n1,0\r\nx\ny,0\r\n", b"a\r1\r\n0\r"]
)
def test_a_file_whose_lines_end_in_two_ways_is_refused(content, tmp_path):
    """A writer that ends lines in a line feed may leave a carriage return in a field, which would be a record."""
    path = tmp_path / "data.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match="must all end in the same way"):
        read_records(path)


@pytest.mark.parametrize(
    ("content", "rows"),
    [(b"a,b\n1,0\n0", None), (b'a,b\n1,0\n"x,y"', None), (b"a,b\n1,0\n0,", 2), (b"a,b\n0,1", 1)],
)
def test_a_last_line_without_its_end_has_all_fields(content, rows, tmp_path):
    """Without its last value it could be followed by a blank line, whose record has no value at all."""
    path = tmp_path / "data.csv"
    path.write_bytes(content)
    if rows is None:
        with pytest.raises(DataError, match="must end in a line break"):
            read_records(path)
    else:
        assert len(read_records(path)) == rows


@pytest.mark.parametrize("dtype", [object, "str", "string[python]"])
def test_texts_that_differ_after_a_null_character_have_codes_of_their_own(dtype):
    """A table of C strings would take them for one, and the first record would code all others."""
    texts = pd.Series(["yes\0x", *["yes"] * 50, "no\0"], dtype=dtype)
    states = Domain.from_states({"a": ["no", "yes", "else"]})
    model = ModelSpecification(domain=states, cliques=(("a",),))
    release = ExactStatistics(other="else").release(model, pd.DataFrame({"a": texts}))
    assert release.tables["a"].tolist() == [0, 50, 2]
