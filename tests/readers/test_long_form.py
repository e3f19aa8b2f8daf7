"""Noisy counts in long form are read as the tables that they are, and anything else is refused."""

import csv
import datetime
import gzip

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import (
    ArgumentError,
    BayesPrivMRFError,
    DataError,
    ModelError,
    UndeclaredStateError,
)
from bayesprivmrf.noise import Within
from bayesprivmrf.privacy import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    NoNoise,
    PrivacyGuarantee,
)
from bayesprivmrf.readers import read_counts
from bayesprivmrf.release import Measurement, NoisyStatistics

NETWORK = bpm.declare({"smokes": ["no", "yes"], "age": [20, 40, 60]}, [("smokes", "age")])
COLUMNS = {
    "smokes": ["yes", "no", "*", "*", "*", "yes", "yes", "yes", "no", "no", "no"],
    "age": ["*", "*", "60", "20", "40", "40", "20", "60", "20", "60", "40"],
    "value": [41, 61, 17, 50, 33, 13, 22, 6, 29, 11, 20],
    "scale": [1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3],
}
EXPECTED = NoisyStatistics.from_measurements(
    NETWORK,
    [
        Measurement(q.table("smokes"), [61, 41], DiscreteGaussian(1)),
        Measurement(q.table("age"), [50, 33, 17], DiscreteGaussian(2)),
        Measurement(q.table("smokes", "age"), [29, 20, 11, 22, 13, 6], DiscreteGaussian(3)),
    ],
)


def written(tmp_path, columns):
    place = tmp_path / "counts.csv"
    with place.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
    return place


def changed(**columns):
    """The columns with others in their place; None leaves one out."""
    found = {**COLUMNS, **columns}
    return {name: column for name, column in found.items() if column is not None}


@pytest.mark.parametrize(
    "as_source", [pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.table, dict, None]
)
def test_files_and_frames_are_read_alike(tmp_path, as_source):
    source = written(tmp_path, COLUMNS) if as_source is None else as_source(COLUMNS)
    assert read_counts(NETWORK, source, noise="discrete-gaussian") == EXPECTED
    assert read_counts(NETWORK, source, noise=DiscreteGaussian).guarantee is None


def test_missing_entries_are_summed_over_only_where_they_are_said_to_be_and_numbers_are_states(
    tmp_path,
):
    ages = [None if a == "*" else float(a) for a in COLUMNS["age"]]
    frame = pd.DataFrame(
        changed(age=ages, smokes=[None if s == "*" else s for s in COLUMNS["smokes"]])
    )
    frame.to_parquet(tmp_path / "counts.parquet")
    frame.astype({"age": "Int64"}).to_csv(tmp_path / "counts.csv", index=False)
    for source in (frame, tmp_path / "counts.parquet", tmp_path / "counts.csv"):
        assert read_counts(NETWORK, source, noise="discrete-gaussian", everything="") == EXPECTED
        with pytest.raises(UndeclaredStateError, match="empty entry in row"):
            read_counts(NETWORK, source, noise="discrete-gaussian")


NULLS = [None, float("nan"), pd.NA, ""]


@pytest.mark.parametrize("null", NULLS, ids=repr)
@pytest.mark.parametrize("answer", ["no answer", -9])
def test_the_group_of_missing_values_is_a_declared_state_or_refused(null, answer):
    """SQL engines write the group of missing values as NULL; its count is not the total."""
    network = bpm.declare({"a": ["no", "yes", answer], "b": [0, 1]}, [("a", "b")])
    rows = {"a": ["no", null, "yes", "*"], "value": [61.5, 7.0, 40.0, 109.0]}
    wanted = read_counts(network, {**rows, "a": ["no", answer, "yes", "*"]}, noise=Laplace(2.0))
    frame = pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in rows.items()})
    for source in (rows, frame):
        assert read_counts(network, source, noise=Laplace(2.0), missing=answer) == wanted
        with pytest.raises(
            UndeclaredStateError, match=r"column of 'a'.*empty entry in row 2; name its .*`missing="
        ):
            read_counts(network, source, noise=Laplace(2.0))
    with pytest.raises(
        ArgumentError, match="`missing` must be one state for all variables, got a mapping"
    ):
        read_counts(network, rows, noise=Laplace(2.0), missing={"a": answer})
    undeclared = {"b": [0, 1, null], "value": [1.5, 2.5, 3.0]}
    with pytest.raises(UndeclaredStateError, match=r"column of 'b'.*row 3"):
        read_counts(network, undeclared, noise=Laplace(2.0), missing=answer)
    for bad in ({"missing": "unheard"}, {"missing": answer, "everything": ""}, {"missing": [1]}):
        with pytest.raises(BayesPrivMRFError, match="missing"):
            read_counts(network, rows, noise=Laplace(2.0), **bad)
    counts = pd.Series([1.5, 2.5, 3.0], index=pd.Index(["no", "yes", None], dtype=object))
    with pytest.raises(ModelError, match="relabel it with the declared state for missing values"):
        NoisyStatistics.from_tables(
            network, {"a": counts, ("a", "b"): np.zeros((3, 2))}, noise=Laplace(2.0)
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("smokes,value\nno,1,410\nyes,41\n", "line 2 .*got 3; .*separators of thousands"),
        (
            'smokes,value\nno,61\nyes,"1,410"\n',
            r"in row 2, which looks like.*thousands.*write 1,410 as 1410",
        ),
        ("smokes\tvalue\nno\t1,410\nyes\t41\n", "in row 1, which looks like.*thousands"),
        ("smokes;value\nno;1,410\nyes;410\n", "show which mark is decimal"),
        ("smokes;value\nno;1.410\nyes;410\n", "show which mark is decimal"),
        ("smokes;value\nno;1.410,5\nyes;410\n", "in row 1, which looks like.*thousands"),
        ("smokes,value\nno,61\nyes,41\nTotal,102\n", "got 'Total' in row 3; .*everything='Total'"),
        (
            "smokes,value\nno,61\nyes,41\nSource: survey\n",
            "line 4 .*got 1; .*notes below the table",
        ),
        ("no,yes\n61,41\n", r"columns of states beside one of counts, got neither"),
    ],
)
def test_a_table_as_offices_print_it_is_refused_with_the_remedy(tmp_path, text, message):
    place = tmp_path / "counts.csv"
    place.write_text(text)
    with pytest.raises(DataError, match=message):
        read_counts(NETWORK, place, noise=Laplace(2.0))


def test_remedies_for_printed_tables_work(tmp_path):
    place = tmp_path / "counts.csv"
    place.write_text('smokes,value\nno,"1,410"\nyes,41\nTotal,"1,451"\n')
    wanted = read_counts(
        NETWORK, {"smokes": ["no", "yes", "*"], "value": [1410, 41, 1451]}, noise=Laplace(2.0)
    )
    frame = pd.read_csv(place, thousands=",")
    assert read_counts(NETWORK, frame, noise=Laplace(2.0), everything="Total") == wanted
    # offices leave the other columns of a total row empty
    frame["age"] = pd.Series([None, None, None], dtype=object)
    with pytest.raises(
        UndeclaredStateError, match=r"row 1; .*or write 'Total' in it if it stands for all"
    ):
        read_counts(NETWORK, frame, noise=Laplace(2.0), everything="Total")
    filled = frame.fillna("Total")
    assert read_counts(NETWORK, filled, noise=Laplace(2.0), everything="Total") == wanted
    place.write_text(
        "smokes;value;scale\nno;1,410;0,5\nyes;41;0,5\n"
    )  # another comma shows that it is decimal
    assert read_counts(NETWORK, place, noise="laplace").flat.tolist() == [1.41, 41]
    with pytest.raises(
        ArgumentError, match="text; convert it to numbers, without separators of thousands"
    ):
        NoisyStatistics.from_tables(
            bpm.declare({"a": ["no", "yes"]}, [("a",)]), {"a": ["1,410", "41"]}, noise=Laplace(2.0)
        )


def test_a_variable_without_a_column_is_summed_over():
    release = read_counts(NETWORK, {"age": [20, 40, 60], "value": [5.5, 3, 2]}, noise=Laplace(2.0))
    assert [(m.query, m.noise) for m in release.measurements] == [(q.table("age"), Laplace(2.0))]


def test_proportions_are_refused_and_a_single_cell_does_not_matter():
    for ages, values in (
        ([20, 40, 60], [0.5, 0.3, 0.2]),
        ([20, 40, 60, "*"], [0.5, 0.3, 0.2, 1.0]),
    ):
        with pytest.raises(ModelError, match="must hold counts, got proportions"):
            read_counts(NETWORK, {"age": ages, "value": values}, noise=Laplace(0.01))


def test_a_row_of_no_state_is_the_number_of_records():
    release = read_counts(
        NETWORK,
        {"age": [20, 40, 60, "*"], "value": [5.5, 3, 2, 11], "variance": [4, 4, 4, 0]},
        noise=Gaussian,
    )
    assert release.estimated_total == 11
    assert release.total_standard_error == 0
    assert release.measurements[1].noise == NoNoise()


def test_laws_may_differ_from_row_to_row():
    laws = ["discrete-gaussian"] * 2 + ["none"] * 3 + ["laplace"] * 6
    scales = ["1"] * 2 + [""] * 3 + ["2"] * 5 + ["4"]
    release = read_counts(NETWORK, changed(law=laws, scale=scales))
    assert [m.noise for m in release.measurements] == [
        DiscreteGaussian(1),
        NoNoise(),
        Laplace(2),
        Laplace(4),
    ]
    assert [len(m.values) for m in release.measurements] == [2, 3, 5, 1]


def test_variances_give_the_law_of_that_variance():
    release = read_counts(NETWORK, changed(scale=None, variance=[8.0] * 11), noise="laplace")
    assert [m.noise for m in release.measurements] == [Laplace(2.0)] * 3


def test_a_query_column_tells_repeated_tables_apart():
    rows = {"age": [20, 40, 60] * 2, "value": [5, 3, 2, 6, 3, 1], "query": ["a"] * 3 + ["b"] * 3}
    assert [len(m.values) for m in read_counts(NETWORK, rows, noise=Laplace(2)).measurements] == [
        3,
        3,
    ]
    del rows["query"]
    with pytest.raises(DataError, match=r"3 further rows for the same cells.*`query`"):
        read_counts(NETWORK, rows, noise=Laplace(2))


def test_groups_of_states_are_coarsenings():
    groups = {"age": [{"<50": [20, 40], "50+": [60]}, {"all ages": [20, 40, 60]}]}
    rows = {
        "smokes": ["no", "no", "yes", "yes", "no", "yes", "*", "*", "*"],
        "age": ["<50", "50+", "<50", "50+", "all ages", "all ages", 20, 40, 60],
        "value": [49.5, 11, 35, 6, 61, 41, 50, 33, 17],
    }
    found = read_counts(NETWORK, rows, noise=Laplace(2), groups=groups)
    assert [m.query for m in found.measurements] == [
        q.coarsened("smokes", "age", age={"<50": [20, 40], "50+": [60]}),
        q.coarsened("smokes", "age", groups={"age": {"all ages": [20, 40, 60]}}),
        q.table("age"),
    ]
    assert found.measurements[0].values.tolist() == [49.5, 11, 35, 6]


def test_columns_of_other_names_are_mapped(tmp_path):
    renamed = {
        "Smokes": COLUMNS["smokes"],
        "age": COLUMNS["age"],
        "n": COLUMNS["value"],
        "s": COLUMNS["scale"],
    }
    names = {"smokes": "Smokes", "value": "n", "scale": "s"}
    found = read_counts(
        NETWORK, written(tmp_path, renamed), noise="discrete-gaussian", columns=names
    )
    assert found == EXPECTED


@pytest.mark.parametrize("name", [" y", "y ", "_y", "(Y)"])
def test_a_misspelled_column_of_one_letter_is_not_summed_over(name):
    network = bpm.declare({"x": ["a", "b"], "y": ["c"]}, [("x", "y")])
    columns = {"x": ["a", "b"], name: ["c", "c"], "value": [1, 2]}
    with pytest.raises(DataError, match="must be called 'y' if that is meant"):
        read_counts(network, columns, noise=Laplace(1.0))


def test_guarantee_and_total_are_those_given():
    promise = PrivacyGuarantee(rho=0.5, adjacency="replace-one")
    found = read_counts(NETWORK, COLUMNS, noise="discrete-gaussian", guarantee=promise, total=102)
    assert (found.guarantee, found.total) == (promise, 102)


@pytest.mark.parametrize(
    ("columns", "kept", "error", "message"),
    [
        (changed(value=None, count=COLUMNS["value"]), {}, DataError, "column 'value', got none"),
        (changed(value=None, Values=COLUMNS["value"]), {}, DataError, "'Values' is similar"),
        (
            changed(smokes=None, Smoke=COLUMNS["smokes"]),
            {},
            DataError,
            "'Smoke' must be called 'smokes'",
        ),
        (
            changed(scale=None, variances=[1] * 11),
            {},
            DataError,
            "'variances' must be called 'variance'",
        ),
        (changed(smokes=None, age=None), {}, DataError, "column for at least one variable"),
        (changed(age=["21", *COLUMNS["age"][1:]]), {}, UndeclaredStateError, "declared states"),
        (changed(value=["secret", *COLUMNS["value"][1:]]), {}, DataError, "finite numbers"),
        (changed(value=[41.5, *COLUMNS["value"][1:]]), {}, ModelError, "whole numbers under"),
        (changed(scale=None), {}, ArgumentError, "must have a `scale` or a `variance`"),
        (
            changed(scale=["", *COLUMNS["scale"][1:]]),
            {},
            ArgumentError,
            "must have a `scale` or a `variance`",
        ),
        (changed(scale=[-1, *COLUMNS["scale"][1:]]), {}, ArgumentError, "at least 0"),
        (changed(variance=[7] * 11), {}, ArgumentError, "a contradiction in some row"),
        (changed(variance=[s * s for s in COLUMNS["scale"]]), {}, None, ""),
        (changed(law=["laplace"] * 11), {}, ArgumentError, "must be left out"),
        (changed(law=["normal"] * 11), {"noise": None}, ArgumentError, "known noise distribution"),
        (COLUMNS, {"noise": None}, ArgumentError, "the distribution of the noise must be stated"),
        (
            COLUMNS,
            {"noise": Laplace(2.0)},
            ArgumentError,
            "family of distributions beside a column `scale`",
        ),
        (COLUMNS, {"noise": 3}, ArgumentError, "family of noise distributions"),
        ({n: c[:-1] for n, c in COLUMNS.items()}, {}, DataError, "each of its 6 cells, got 5"),
        (
            {n: [*c, c[-1]] for n, c in COLUMNS.items()},
            {},
            DataError,
            "1 further rows for the same cells",
        ),
        ({n: [] for n in COLUMNS}, {}, DataError, "at least one row"),
        (
            changed(value=[0.041, 0.061, *COLUMNS["value"][2:]]),
            {"noise": "gaussian"},
            ModelError,
            "one unit",
        ),
        (COLUMNS, {"total": 9000}, ModelError, "one unit"),
        (COLUMNS, {"columns": {"Age": "age"}}, ArgumentError, "'age' is similar"),
        (COLUMNS, {"columns": {"age": "Alter"}}, DataError, "column 'Alter'"),
        (
            COLUMNS,
            {"groups": {"age": {"<50": [20], "50+": [60]}}},
            ArgumentError,
            "got 40 no times",
        ),
        (
            COLUMNS,
            {"groups": {"age": {"20": [20, 40], "50+": [60]}}},
            ArgumentError,
            "labels that no state",
        ),
        (COLUMNS, {"groups": [1]}, ArgumentError, "must map variables"),
    ],
)
def test_what_does_not_fit_is_refused(columns, kept, error, message):
    if error is None:
        assert read_counts(NETWORK, columns, noise="discrete-gaussian") == EXPECTED
        return
    with pytest.raises(error, match=message) as caught:
        read_counts(NETWORK, columns, **{"noise": "discrete-gaussian", **kept})
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value, BayesPrivMRFError)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must begin with a header"),
        ("smokes,value\nno\n", "line 2"),
        ("value,value\n1,2\n", "distinct names"),
        ("smokes,value\n", "at least one row"),
    ],
)
def test_a_broken_file_is_refused(tmp_path, text, message):
    place = tmp_path / "counts.csv"
    place.write_text(text)
    with pytest.raises(DataError, match=message):
        read_counts(NETWORK, place, noise=Laplace(1))


def test_what_is_no_table_is_refused(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_counts(NETWORK, tmp_path / "nothing.csv", noise=Laplace(1))
    with pytest.raises(ArgumentError, match="CSV or Parquet file or a data frame"):
        read_counts(NETWORK, np.ones(3), noise=Laplace(1))


@pytest.mark.parametrize("label", ["*", ""])
def test_a_state_called_as_the_entry_for_all_states_is_refused(label):
    network = bpm.declare({"a": [label, "y"], "b": [0, 1]}, [("a", "b")])
    with pytest.raises(ArgumentError, match="choose another `everything`"):
        read_counts(network, {"a": [label], "value": [1.0]}, noise=Laplace(1.0))
    if label:
        release = read_counts(
            network, {"a": [label, "y"], "value": [1.0, 2.0]}, noise=Laplace(1.0), everything="all"
        )
        assert release.measurements[0].query == q.table("a")


def test_withheld_counts_have_the_probability_of_their_bounds():
    network = bpm.declare({"a": ["n", "y"], "b": ["n", "y"]}, [("a", "b")])
    rows = {
        "a": ["n", "n", "y", "y"],
        "b": ["n", "y", "n", "y"],
        "value": ["40", "<10", " <10", "31"],
    }
    known = {"noise": DiscreteLaplace(2.0), "total": 100}
    plain, within = read_counts(network, rows, withheld={"<10": (-50, 9)}, **known).measurements
    assert plain.values.tolist() == [40, 31]
    assert within.values.tolist() == [-20.5, -20.5]
    assert within.noise == Within(29.5, DiscreteLaplace(2.0))
    assert within.query.bind(network).matrix.toarray().tolist() == [[0, 1, 0, 0], [0, 0, 1, 0]]
    for bad, message in [
        ({"<10": 9}, "pairs of bounds"),
        ({"5": (0, 9)}, "not numbers"),
        (["<10"], "must map marks that are not numbers"),
        ({"<10": (9, 0)}, "the first at most the second"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            read_counts(network, rows, withheld=bad, **known)
    with pytest.raises(DataError, match="must be finite numbers"):
        read_counts(network, rows, **known)


@pytest.mark.parametrize("value", [True, "1_0", np.True_])
def test_what_only_python_takes_for_a_number_is_refused(value):
    network = bpm.declare({"a": ["n", "y"]}, [("a",)])
    with pytest.raises(DataError, match="must be finite numbers"):
        read_counts(network, {"a": ["n", "y"], "value": [value, 5]}, noise=Laplace(2.0))
    with pytest.raises(ArgumentError, match="`scale` must be a finite number"):
        read_counts(
            network, {"a": ["n", "y"], "value": [3, 5], "scale": [value, 5]}, noise="laplace"
        )


ROWS = "smokes{0}ill{0}value{0}variance\n*{0}no{0}812{0}4{1}5\n*{0}yes{0}175{0}4{1}5\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("counts.csv", ROWS.format(",", ".")),
        ("counts.csv.gz", ROWS.format(",", ".")),
        ("semicolons.csv", ROWS.format(";", ",")),
        ("points.csv", ROWS.format(";", ".")),
        ("tabs.tsv", ROWS.format("\t", ".")),
        ("mark.csv", "\ufeff" + ROWS.format(";", ",").replace("\n", "\r\n") + "\r\n"),
    ],
)
def test_a_file_is_read_as_it_is_exported(tmp_path, name, text):
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "wb") as file:
        file.write(text.encode())
    network = bpm.declare({"smokes": ["no", "yes"], "ill": ["no", "yes"]}, [("smokes", "ill")])
    release = bpm.readers.read_counts(network, tmp_path / name, noise="gaussian")
    (each,) = release.measurements
    assert (each.query, each.values.tolist(), each.noise.variance) == (
        q.table("ill"),
        [812, 175],
        pytest.approx(4.5),
    )


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (ROWS.format(";", ",").replace("812", "1.812"), "must be"),
        (
            ROWS.format(",", ".").replace("812,4.5", "812"),
            "line 2 of a CSV file must have 4 entries",
        ),
        (
            ROWS.format(",", ".").replace("812", '"8\n12"'),
            "no field of a CSV file may hold a line break",
        ),
        (ROWS.format(",", ".").replace("value", "Valeu"), "is similar"),
        ("ill,value\n", "must have at least one row"),
    ],
)
def test_what_a_file_leaves_open_is_refused(tmp_path, text, match):
    (tmp_path / "counts.csv").write_text(text)
    network = bpm.declare({"smokes": ["no", "yes"], "ill": ["no", "yes"]}, [("smokes", "ill")])
    with pytest.raises((DataError, ArgumentError), match=match):
        bpm.readers.read_counts(network, tmp_path / "counts.csv", noise="gaussian")


def test_days_are_read_in_the_form_in_which_a_frame_stores_them():
    """Pandas stores the dates that a database returns as midnights."""
    days = [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)]
    network = bpm.declare({"day": days})
    for entries in (days, pd.to_datetime(days), [*map(str, days)]):
        frame = pd.DataFrame({"day": entries, "value": [1.5, 2.5]})[::-1]
        release = read_counts(network, frame, noise=Laplace(1.0))
        assert release.flat.tolist() == [1.5, 2.5]
