"""Labels in files: names and states as JSON values from which the declared ones are restored.

Text, whole and finite numbers, and true and false are written unchanged. A label of another type is an object with
one entry, ``{"date": "2020-02-29"}``, whose name is from a fixed list: no file names a class or a module. A label of
any other type is restored as its text.
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

# Names in `_kinds`, which needs pandas
_NAMES = {
    *("float", "bytes", "decimal", "fraction", "date", "time", "datetime", "timedelta"),
    *("timestamp", "time span", "period", "interval"),
}
# Digits of a decimal's integer: as many as Python reads of a whole number
_MOST_DIGITS = 4300


def encoded(label: Any) -> Any:
    """Return a label as a JSON value; the text of a label whose type has no written form."""
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, tuple):
        return {"tuple": [encoded(item) for item in label]}
    if type(label) in (bool, int, str) or (type(label) is float and abs(label) != float("inf")):
        return label
    if type(label) in _kinds():
        name, write, read = _kinds()[type(label)]
        with suppress(Exception):  # pandas raises various errors for a calendar without a name
            written = write(label)
            if read(written) == label:
                return {name: written}
    return str(label)


def labels(written: Any) -> tuple[Any, ...]:
    """Return the labels that `encoded` wrote in a list."""
    if not isinstance(written, list):
        raise ReleaseFileError(f"labels must be a list, got {reprlib.repr(written)}")
    return tuple(_decoded(label) for label in written)


def positions(values: Any, size: int) -> tuple[int, ...]:
    """Return distinct whole numbers from 0 to below a size, such as variables or states of a domain."""
    is_right = isinstance(values, list) and all(type(value) is int and 0 <= value < size for value in values)
    if not is_right or len(set(values)) < len(values):
        raise ReleaseFileError(
            f"positions must be distinct whole numbers from 0 to {size - 1}, got {reprlib.repr(values)}"
        )
    return tuple(values)


def needs_kinds(content: Any) -> bool:
    """Return True if a file has labels that only readers of the kinds below understand."""
    if isinstance(content, dict):
        return _name_of(content) in _NAMES or any(map(needs_kinds, content.values()))
    if isinstance(content, list) and content and not isinstance(content[0], int | float | str):
        return any(map(needs_kinds, content))  # long lists of numbers are not walked through
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
        with suppress(Exception):  # whatever pandas raises, the label is invalid
            if own == name:
                return read(label[name])
    raise ReleaseFileError(
        f"a label must be text, a number, true or false, or of a known kind, got {reprlib.repr(label)}"
    )


@functools.cache
def _kinds() -> dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]]:
    """Return the name of each kind of label, how it is written, and how it is read."""
    import pandas as pd

    return {
        float: ("float", repr, float),  # infinite: others stand as they are
        bytes: ("bytes", bytes.hex, bytes.fromhex),
        Decimal: ("decimal", str, _decimal),
        Fraction: ("fraction", str, _fraction),
        datetime.date: ("date", datetime.date.isoformat, datetime.date.fromisoformat),
        datetime.time: ("time", datetime.time.isoformat, datetime.time.fromisoformat),
        datetime.datetime: (
            "datetime",
            lambda moment: [moment.isoformat(), moment.fold, _zone(moment)],
            lambda held: _in_zone(datetime.datetime.fromisoformat(held[0]), held[2]).replace(fold=held[1]),
        ),
        datetime.timedelta: (
            "timedelta",
            lambda span: [span.days, span.seconds, span.microseconds],
            lambda held: datetime.timedelta(*held),
        ),
        pd.Timestamp: (
            "timestamp",
            lambda moment: [moment.isoformat(), moment.unit, _zone(moment)],
            lambda held: _in_zone(pd.Timestamp(held[0]), held[2]).as_unit(held[1]),
        ),
        pd.Timedelta: (
            "time span",
            lambda span: [int(span.asm8.astype(np.int64)), span.unit],
            lambda held: pd.Timedelta(np.timedelta64(*held)),
        ),
        pd.Period: (
            "period",
            lambda period: [period.ordinal, period.freqstr],
            lambda held: pd.Period(ordinal=held[0], freq=held[1]),
        ),
        pd.Interval: (
            "interval",
            lambda one: [encoded(one.left), encoded(one.right), one.closed],
            lambda held: pd.Interval(*labels(held[:2]), closed=held[2]),
        ),
    }


def _decimal(text: str) -> Decimal:
    """Return a decimal number whose integer is no longer than a file's other numbers may be."""
    found = Decimal(text)
    if found.is_finite() and abs(found.adjusted()) > _MOST_DIGITS:
        raise ValueError("a label must not have so large an exponent")
    return found


def _fraction(text: str) -> Fraction:
    """Return a fraction of two whole numbers; an exponent, which `Fraction` takes as well, could fill the memory."""
    above, _, below = text.partition("/")
    return Fraction(int(above), int(below or "1"))


def _zone(moment: datetime.datetime) -> str | None:
    """Return the name of a time's zone; None if it has no zone, or only an offset."""
    return getattr(moment.tzinfo, "key", None)


def _in_zone(moment: Any, zone: str | None) -> Any:
    """Return a time in its time zone; if this machine does not know the zone, the same time with its offset."""
    if zone is None:
        return moment
    if moment.tzinfo is None:
        raise ValueError("a moment in a zone must have an offset")
    return moment.astimezone(zoneinfo.ZoneInfo(zone)) if zone in zoneinfo.available_timezones() else moment
