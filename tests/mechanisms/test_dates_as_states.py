"""Labels that are dates, times, UUIDs or complex numbers, and the columns of data frames that hold them."""

import datetime
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import BayesPrivMRFError
from bayesprivmrf.mechanisms import ExactStatistics

DAYS = ["2020-01-01", "2020-02-01", "2020-03-01"]
COUNTS = [3, 1, 2]


def column(labels):
    return [label for label, count in zip(labels, COUNTS, strict=True) for _ in range(count)]


def counted(labels, data):
    return ExactStatistics().release(bpm.declare({"a": labels}, [("a",)]), data).flat.tolist()


def frames_of_times(unit):
    """Frames of the same days in every engine, as dates and as times."""
    numpy = np.array(column(DAYS), f"datetime64[{unit}]")
    pandas = pd.DataFrame({"a": numpy})
    times = pl.DataFrame({"a": numpy.astype("datetime64[us]")})
    dates = times.with_columns(pl.col("a").cast(pl.Date))
    return {
        "pandas": pandas,
        "pandas, categories": pandas.astype("category"),
        "pandas, objects": pd.DataFrame({"a": pd.Series(list(numpy), dtype=object)}),
        "pandas, days": pd.DataFrame({"a": pandas["a"].dt.date}),
        "pandas, arrow": pandas.convert_dtypes(dtype_backend="pyarrow"),
        "polars": times,
        "polars, days": dates,
        "polars, lazy": times.lazy(),
        "polars, lazy days": dates.lazy(),
        "pyarrow": pa.table({"a": pa.array(numpy.astype("datetime64[us]"))}),
        "pyarrow, days": pa.table({"a": pa.array(numpy.astype("datetime64[D]"))}),
    }


@pytest.mark.parametrize("unit", ["D", "us"])
def test_days_are_states_however_they_are_declared_and_stored(unit):
    times = np.array(DAYS, f"datetime64[{unit}]")
    declared = [
        times,
        np.array(DAYS, "datetime64[M]"),
        pd.to_datetime(DAYS),
        pd.Series(times).unique(),
        [datetime.date.fromisoformat(day) for day in DAYS],
        [datetime.datetime.fromisoformat(day) for day in DAYS],
    ]
    for labels in declared:
        found = {name: counted(labels, frame) for name, frame in frames_of_times(unit).items()}
        assert found == dict.fromkeys(found, COUNTS)


@pytest.mark.parametrize("unit", ["m", "ms", "us", "ns"])
def test_a_time_of_day_is_not_its_day(unit):
    times = np.array(
        ["2020-01-01T10:00", "2020-02-01T11:30", "2020-03-01T00:00"], f"datetime64[{unit}]"
    )
    data = pd.DataFrame({"a": column(times)})
    assert counted(times, data) == counted(times, pl.from_pandas(data).lazy()) == COUNTS
    days = times.astype("datetime64[D]")
    for frame in (
        data,
        pl.from_pandas(data),
        pl.from_pandas(data).lazy(),
        pa.Table.from_pandas(data),
    ):
        with pytest.raises(BayesPrivMRFError, match="declared states"):
            counted(days, frame)
    dates = pl.DataFrame({"a": column(days.tolist())})
    for frame in (dates, dates.lazy()):
        with pytest.raises(BayesPrivMRFError, match="declared states"):
            counted(times, frame)


def test_a_day_in_a_time_zone_is_another_label():
    berlin = pd.to_datetime(DAYS).tz_localize("Europe/Berlin")
    assert counted(berlin, pd.DataFrame({"a": column(berlin)})) == COUNTS
    with pytest.raises(BayesPrivMRFError, match="declared states"):
        counted(np.array(DAYS, "datetime64[D]"), pd.DataFrame({"a": column(berlin)}))


def test_a_date_and_its_midnight_are_two_states_where_both_are_declared():
    day, midnight = datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1)
    for labels in ([day, midnight, "x"], [midnight, day, "x"]):
        as_days, as_times = pl.DataFrame({"a": [day] * 2}), pl.DataFrame({"a": [midnight] * 2})
        for frame, label in ((as_days, day), (as_times, midnight)):
            expected = [2 * (type(own) is type(label)) for own in labels]
            assert counted(labels, frame) == counted(labels, frame.lazy()) == expected


@pytest.mark.parametrize(
    "labels",
    [
        [uuid.UUID(int=k) for k in range(3)],
        [1j, 2.0 + 1j, -1.5j],
        np.array([1, 2, 3], "timedelta64[h]"),
    ],
)
def test_uuids_complex_numbers_and_spans_are_states(labels):
    data = pd.DataFrame({"a": column(list(labels))})
    assert counted(labels, data) == COUNTS
