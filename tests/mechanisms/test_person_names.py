"""Identifiers of persons: all that are accepted have one exact and transitive equality, and dates are accepted."""

from __future__ import annotations

import datetime
import itertools
import uuid
import zoneinfo
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import DataError
from bayesprivmrf.mechanisms import ExactStatistics
from bayesprivmrf.model import ModelSpecification

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
NETWORK = ModelSpecification.from_pgmpy(bpm.declare({"a": ["x", "y"]}, [("a",)]))
NAMES = [
    *(
        1,
        1.0,
        True,
        Decimal(1),
        "1",
        b"1",
        2**53,
        2**53 + 1,
        float(2**53),
        Decimal(2**53 + 1),
        0.1,
        Decimal("0.1"),
    ),
    *(
        np.uint64(1),
        np.float32(1),
        np.longdouble(1),
        np.float32(0.1),
        np.longdouble(0.1),
        np.longdouble("0.1"),
    ),
    *(np.int64(2**53 + 1), np.float64(2**53), np.bool_(True), np.str_("1"), np.bytes_(b"1")),
    *(uuid.UUID(int=1), datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), datetime.time(1)),
    *(
        datetime.timedelta(days=1),
        pd.Timestamp(2020, 1, 1),
        pd.Timedelta(days=1),
        pd.Period("2020-01-01", "D"),
    ),
    *(
        np.datetime64("2020-01-01"),
        np.datetime64("2020-01-01", "ns"),
        np.timedelta64(1, "D"),
        np.timedelta64(24, "h"),
    ),
    datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
    pd.Timestamp(2020, 1, 1, tz="UTC"),
    # an hour that the clock shows twice
    *(datetime.datetime(2020, 10, 25, 2, 30, fold=fold, tzinfo=BERLIN) for fold in (0, 1)),
    *(
        pd.Timestamp(datetime.datetime(2020, 10, 25, 2, 30), fold=fold, tz=BERLIN)
        for fold in (0, 1)
    ),
    *(datetime.datetime(2020, 10, 25, hour, 30, tzinfo=datetime.UTC) for hour in (0, 1)),
]


def kept(names, states, at_most=1):
    """The exact table of persons with these names, or None where a name is refused."""
    column = np.empty(len(names), dtype=object)
    column[:] = names
    frame = pd.DataFrame({"id": pd.Series(column, dtype=object), "a": states})
    try:
        return ExactStatistics(person="id", at_most=at_most).release(NETWORK, frame).flat.tolist()
    except DataError:
        return None


ACCEPTED = [name for name in NAMES if kept([name], ["y"]) is not None]


def are_one(*names):
    return kept(names, ["y"] * len(names)) == [0, 1]


def test_equality_of_all_accepted_names_is_transitive_whatever_stands_between_them():
    """A person added first must never join two others into one, nor part one into two."""
    assert len(ACCEPTED) > 20
    same = {
        (i, j): are_one(ACCEPTED[i], ACCEPTED[j])
        for i, j in itertools.combinations(range(len(ACCEPTED)), 2)
    }
    joined = [pair for pair, one in same.items() if one]
    both_ways = {(j, i) for i, j in joined} | set(joined)
    for i, j in both_ways:
        for k in range(len(ACCEPTED)):
            if (j, k) in both_ways and k != i:
                assert (i, k) in both_ways, (ACCEPTED[i], ACCEPTED[j], ACCEPTED[k])


def test_a_moment_that_pandas_holds_in_two_ways_is_refused_and_never_two_persons():
    """Equal ones of different resolution have two hash values, so that one person would have two shares."""
    far = [pd.Timestamp(np.datetime64("20000-01-01", unit)) for unit in ("s", "ms")]
    assert far[0] == far[1]
    assert kept(far, ["y", "y"]) is None


@pytest.mark.parametrize(
    "column",
    [
        pd.to_datetime(["2020-01-01", "2020-01-01", "2020-01-02"]),
        pd.to_datetime(["2020-01-01", "2020-01-01", "2020-01-02"]).tz_localize("UTC"),
        pd.period_range("2020-01", periods=2, freq="M")[[0, 0, 1]],
        pd.to_timedelta([1, 1, 2], unit="D"),
        pd.Categorical(pd.to_datetime(["2020-01-01", "2020-01-01", "2020-01-02"])),
        np.array(["2020-01-01", "2020-01-01", "2020-01-02"], dtype="datetime64[s]"),
    ],
    ids=["datetime", "zoned", "period", "timedelta", "category", "seconds"],
)
def test_dates_periods_and_durations_name_persons(column):
    frame = pd.DataFrame({"id": column, "a": ["x", "y", "y"]})
    assert ExactStatistics(person="id", at_most=1).release(NETWORK, frame).flat.tolist() == [1, 1]
