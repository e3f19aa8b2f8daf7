"""Folders of Parquet files whose subfolders hold columns: the records are those that were written, or are refused."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import DataError, UndeclaredStateError
from bayesprivmrf.mechanisms import ExactStatistics, transition_rows
from bayesprivmrf.records import read_declaration, read_records, recode

RECORDS = pd.DataFrame(
    {
        "year": [2019, 2019, 2020, 2020, 2021],
        "area": ["01", "02", "01", "10", "10"],
        "ill": ["no", "yes", "yes", "no", "no"],
    }
)
STATES = {"year": [2019, 2020, 2021], "area": ["01", "02", "10"], "ill": ["no", "yes"]}
EXPECTED = ExactStatistics().release(bpm.declare(STATES, [tuple(STATES)]), RECORDS).tables


def by_hand(folder):
    for number, row in enumerate(RECORDS.itertuples()):
        part = folder / f"year={row.year}" / f"area={row.area}"
        part.mkdir(parents=True, exist_ok=True)
        pd.DataFrame({"ill": [row.ill]}).to_parquet(part / f"{number}.parquet")
    (folder / "_SUCCESS").touch()


WRITERS = {
    "hand": by_hand,
    "arrow": lambda f: pq.write_to_dataset(
        pa.Table.from_pandas(RECORDS), f, partition_cols=["year", "area"]
    ),
    "pandas": lambda f: RECORDS.to_parquet(f, partition_cols=["year"]),
    # its files hold the columns of the subfolders as well
    "polars": lambda f: pl.from_pandas(RECORDS).write_parquet(f, partition_by=["year"], mkdir=True),
}
writers = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


@writers
def test_columns_of_subfolders_are_read(write, tmp_path):
    folder = tmp_path / "people"
    write(folder)
    records = read_records(folder)
    assert sorted(records.columns) == sorted(RECORDS.columns)
    found = records.astype(str)[[*RECORDS.columns]].to_numpy().tolist()
    assert sorted(found) == sorted(RECORDS.astype(str).to_numpy().tolist())
    model = tmp_path / "model.toml"
    model.write_text(
        'cliques = [["year", "area", "ill"]]\nvariables.year.states = [2019, 2020, 2021]\n'
        'variables.area.states = ["01", "02", "10"]\nvariables.ill.states = ["no", "yes"]\n'
    )
    declaration = read_declaration(model)
    recoded = recode(declaration, records)
    for data in (recoded, folder, str(folder)):
        release = ExactStatistics().release(bpm.declare(STATES, [tuple(STATES)]), data)
        assert (release.tables[tuple(STATES)] == EXPECTED[tuple(STATES)]).all()


def test_a_part_without_a_column_is_refused_and_not_read_as_missing(tmp_path):
    by_hand(tmp_path)
    network = bpm.declare(STATES, [tuple(STATES)])
    odd = tmp_path / "year=2019" / "area=01" / "odd.parquet"
    pd.DataFrame({"other": ["secret"]}).to_parquet(odd)
    for read in (read_records, lambda f: ExactStatistics().release(network, f)):
        with pytest.raises(
            DataError, match=r"every part .* must have the column 'ill', which another part has"
        ) as one:
            read(tmp_path)
        assert "secret" not in str(one.value)
    # a column that nobody declared may be absent
    pd.DataFrame({"ill": ["no"], "other": ["secret"]}).to_parquet(odd)
    assert ExactStatistics().release(network, tmp_path).tables[tuple(STATES)].sum() == 6
    with pytest.raises(DataError, match="must have the column 'other'"):
        read_records(tmp_path)
    odd.unlink()
    pd.DataFrame({"ill": ["no"]}).to_parquet(tmp_path / "part.parquet")
    for read in (read_records, lambda f: ExactStatistics().release(network, f)):
        with pytest.raises(
            DataError, match=r"must have the column 'area'.*name every subfolder like the others"
        ):
            read(tmp_path)


def test_one_odd_subfolder_does_not_change_the_codes_of_other_records(tmp_path):
    """A column that is inferred from all names would turn from numbers into text."""
    by_hand(tmp_path)
    network = bpm.declare({"area": ["01", "02", "10", "else"]}, [("area",)])
    mechanism = ExactStatistics(other={"area": "else"})
    odd = tmp_path / "year=2019" / "area=unknown"
    odd.mkdir()
    pd.DataFrame({"ill": ["no"]}).to_parquet(odd / "part.parquet")
    assert mechanism.release(network, tmp_path).tables["area",].tolist() == [2, 1, 2, 1]
    numbers = bpm.declare({"year": [2019, 2020, 2021, 9]}, [("year",)])
    mechanism = ExactStatistics(missing={"year": 9})
    odd = tmp_path / "year=__HIVE_DEFAULT_PARTITION__" / "area=01"
    odd.mkdir(parents=True)
    pd.DataFrame({"ill": ["no"]}).to_parquet(odd / "part.parquet")
    assert mechanism.release(numbers, tmp_path).tables["year",].tolist() == [3, 2, 1, 1]
    odd = tmp_path / "year=secret" / "area=01"
    odd.mkdir(parents=True)
    pd.DataFrame({"ill": ["no"]}).to_parquet(odd / "part.parquet")
    with pytest.raises(DataError) as caught:
        mechanism.release(numbers, tmp_path)
    assert "secret" not in str(caught.value)
    with pytest.raises(UndeclaredStateError):
        ExactStatistics().release(bpm.declare({"area": ["01", "02", "10"]}, [("area",)]), tmp_path)


@pytest.mark.parametrize(
    "odd",
    [["secret"], [True], pd.to_datetime(["2020-01-01"]), pd.Series(["secret"], dtype="category")],
)
def test_the_first_file_does_not_decide_how_the_others_are_read(odd, tmp_path):
    """Arrow converts all files to the types of the first: one record's file would turn all others to `other`."""
    pd.DataFrame({"a": odd}).to_parquet(tmp_path / "0.parquet")
    pd.DataFrame({"a": [1, 2]}).to_parquet(tmp_path / "1.parquet")
    network = bpm.declare({"a": [1, 2, 9]}, [("a",)])
    mechanism = ExactStatistics(other={"a": 9})
    for read in (
        read_records,
        lambda f: mechanism.release(network, f),
        lambda f: mechanism.release(network, ds.dataset(f)),
    ):
        with pytest.raises(DataError, match="have one kind of values in the column 'a'") as caught:
            read(tmp_path)
        assert "secret" not in str(caught.value)
    with pytest.raises(DataError, match="have one kind of values"):
        mechanism.release(network, ds.dataset(tmp_path).filter(ds.field("a").is_valid()))
    pd.DataFrame({"a": [1.0]}).to_parquet(tmp_path / "0.parquet")
    filtered = ds.dataset(tmp_path).filter(ds.field("a") > 1)
    in_memory = ds.dataset(pa.table({"a": [1, 2]})).filter(ds.field("a") > 1)
    for part in (filtered, in_memory):
        assert mechanism.release(network, part).tables["a",].tolist() == [0, 1, 0]
    assert mechanism.release(network, tmp_path).tables["a",].tolist() == [2, 1, 0]


@pytest.mark.parametrize("first", [pa.float32(), pa.decimal128(3, 1)], ids=str)
def test_the_first_file_does_not_round_the_numbers_of_the_others(first, tmp_path):
    pq.write_table(pa.table({"a": pa.array([1], first)}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": [0.125, 0.1]}), tmp_path / "1.parquet")
    network = bpm.declare({"a": [0.1, 0.125, 1]}, [("a",)])
    with pytest.raises(DataError, match="have one kind of values in the column 'a'"):
        ExactStatistics(other={"a": 1}).release(network, tmp_path)


def test_waves_in_subfolders_are_text_whose_order_is_declared(tmp_path):
    for wave in (2, 9, 10):
        (tmp_path / f"wave={wave}").mkdir()
        pd.DataFrame({"id": [1], "state": [f"s{wave}"]}).to_parquet(
            tmp_path / f"wave={wave}" / "a.parquet"
        )
    columns = {"person": "id", "position": "wave", "state": "state"}
    for data in (tmp_path, read_records(tmp_path)):
        with pytest.raises(DataError, match=r"order=\["):
            transition_rows(data, **columns)
        rows = transition_rows(data, **columns, order=["2", "9", "10"])
        rows = rows if isinstance(rows, pd.DataFrame) else rows.to_pandas()
        assert rows[["from", "to"]].to_numpy().tolist() == [["s2", "s9"], ["s9", "s10"]]


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="must contain Parquet files"):
        read_records(tmp_path)
