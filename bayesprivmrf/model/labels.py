"""Conversion between labels (names and states) and JSON values in files.

Text, finite numbers and booleans are written unchanged. A label of another supported type becomes an object with one
entry, such as ``{"date": "2020-02-29"}``. The name of the entry is from a fixed list, so that no file names a class
or a module. Labels of all other types are restored as their text.
"""

from __future__ import annotations

import datetime
import functools
import reprlib
import zoneinfo
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from bayesprivmrf.errors import ReleaseFileError

# Names of the types in `_kinds`, listed apart because `_kinds` imports pandas
_NAMES = {
    *("float", "bytes", "decimal", "fraction", "date", "time", "datetime", "timedelta"),
    *("timestamp", "time span", "period", "interval"),
}


def encoded(label: Any) -> Any:
    """Return a label as a JSON value; a label of an unsupported type becomes text."""
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, tuple):
        return {"tuple": [encoded(item) for item in label]}
    if type(label) in (bool, int, str) or (type(label) is float and abs(label) != float("inf")):
        return label
    if type(label) in _kinds():
        name, write, read = _kinds()[type(label)]
        with suppress(Exception):  # pandas raises various errors for a frequency without a name
            written = write(label)
            if read(written) == label:
                return {name: written}
    return str(label)


def labels(written: Any) -> tuple[Any, ...]:
    """Return the labels in a list that `encoded` wrote."""
    if not isinstance(written, list):
        raise ReleaseFileError(f"labels must be a list, got {reprlib.repr(written)}")
    return tuple(_decoded(label) for label in written)


def positions(values: Any, size: int) -> tuple[int, ...]:
    """Return the distinct positions in a file's list, such as variables or states; each is below `size`."""
    is_right = isinstance(values, list) and all(type(value) is int and 0 <= value < size for value in values)
    if not is_right or len(set(values)) < len(values):
        raise ReleaseFileError(
            f"positions must be distinct whole numbers from 0 to {size - 1}, got {reprlib.repr(values)}"
        )
    return tuple(values)


def needs_kinds(content: Any) -> bool:
    """Return True if a file's content has labels of the types in `_kinds`, which older versions cannot read."""
    if isinstance(content, dict):
        return _name_of(content) in _NAMES or any(map(needs_kinds, content.values()))
    if isinstance(content, list) and content and not isinstance(content[0], int | float | str):
        return any(map(needs_kinds, content))  # long lists of numbers need not be searched
    return isinstance(content, list) and any(isinstance(item, dict) and needs_kinds(item) for item in content)


def _name_of(written: dict[str, Any]) -> str | None:
    return next(iter(written)) if len(written) == 1 else None


def _decoded(label: Any) -> Any:
    if isinstance(label, bool | int | float | str):
        return label
    name = _name_of(label) if isinstance(label, dict) else None
    if name == "tuple":
        return labels(label[name])
    for own, _, read in _kinds().values() if name in _NAMES else ():
        with suppress(Exception):  # any error of the constructor means that the label is invalid
            if own == name:
                return read(label[name])
    raise ReleaseFileError(
        f"a label must be text, a number, true or false, or of a known kind, got {reprlib.repr(label)}"
    )


@functools.cache
def _kinds() -> dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]]:
    """Return the name of each supported type of label, with the functions that write and read it."""
    import pandas as pd

    return {
        float: ("float", repr, float),  # infinite numbers, because finite ones are JSON values
        bytes: ("bytes", bytes.hex, bytes.fromhex),
        Decimal: ("decimal", str, _decimal),
        Fraction: ("fraction", str, _fraction),
        datetime.date: ("date", datetime.date.isoformat, datetime.date.fromisoformat),
        datetime.time: ("time", datetime.time.isoformat, datetime.time.fromisoformat),
        datetime.datetime: (
            "datetime",
            lambda moment: [moment.isoformat(), moment.fold, _zone(moment)],
            lambda parts: _in_zone(datetime.datetime.fromisoformat(parts[0]), parts[2]).replace(
                fold=parts[1]
            ),
        ),
        datetime.timedelta: (
            "timedelta",
            lambda span: [span.days, span.seconds, span.microseconds],
            lambda parts: datetime.timedelta(*parts),
        ),
        pd.Timestamp: (
            "timestamp",
            lambda moment: [moment.isoformat(), moment.unit, _zone(moment)],
            lambda parts: _in_zone(pd.Timestamp(parts[0]), parts[2]).as_unit(parts[1]),
        ),
        pd.Timedelta: (
            "time span",
            lambda span: [int(span.asm8.astype(np.int64)), span.unit],
            lambda parts: pd.Timedelta(np.timedelta64(*parts)),
        ),
        pd.Period: (
            "period",
            lambda period: [period.ordinal, period.freqstr],
            lambda parts: pd.Period(ordinal=parts[0], freq=parts[1]),
        ),
        pd.Interval: (
            "interval",
            lambda one: [encoded(one.left), encoded(one.right), one.closed],
            lambda parts: pd.Interval(*labels(parts[:2]), closed=parts[2]),
        ),
    }


def _decimal(text: str) -> Decimal:
    """Return a decimal number after a check that its exponent is no larger than Python's limit on digits."""
    found = Decimal(text)
    if found.is_finite() and abs(found.adjusted()) > 4300:
        raise ValueError("a label must not have so large an exponent")
    return found


def _fraction(text: str) -> Fraction:
    """Return a fraction of two whole numbers; an exponent, which `Fraction` also reads, could fill the memory."""
    above, _, below = text.partition("/")
    return Fraction(int(above), int(below or "1"))


def _zone(moment: datetime.datetime) -> str | None:
    """Return the name of a time's zone; None if it has no zone or only an offset."""
    return getattr(moment.tzinfo, "key", None)


def _in_zone(moment: Any, zone: str | None) -> Any:
    """Return a time in its zone, or with its offset if this machine does not know the zone."""
    if zone is None:
        return moment
    if moment.tzinfo is None:
        raise ValueError("a moment in a zone must have an offset")
    return moment.astimezone(zoneinfo.ZoneInfo(zone)) if zone in zoneinfo.available_timezones() else moment
