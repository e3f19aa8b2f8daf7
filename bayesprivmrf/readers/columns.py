"""Columns of a file or a frame by name, and which name was meant by another spelling."""

from __future__ import annotations

import csv
import difflib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bayesprivmrf.checks import file_path
from bayesprivmrf.errors import ArgumentError, DataError
from bayesprivmrf.model.domain import listed

__all__ = ["as_number", "columns_of", "csv_columns", "near", "number_of", "or_near"]

type Columns = dict[str, Sequence[Any]]


def columns_of(source: Any) -> Columns:
    """Return the columns of a CSV file, whose entries stay text, or of a data frame.

    Raises
    ------
    ArgumentError
        It is neither.
    DataError
        The file cannot be read.
    """
    if isinstance(source, str | os.PathLike):
        return csv_columns(source)
    if isinstance(source, Mapping):
        return {str(name): listed(f"the column {name!r}", column) for name, column in source.items()}
    import narwhals.stable.v2 as nw

    try:
        frame = nw.from_native(source)
    except TypeError:
        raise ArgumentError(
            f"the noisy counts must be the path of a CSV file or a data frame, got a {type(source).__name__}."
        ) from None
    eager = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    names = [str(name) for name in eager.columns]
    if len(set(names)) != len(names):
        raise DataError(
            "the columns of the noisy counts must have names of their own, got two alike; rename one."
        )
    return {
        name: eager.get_column(column).to_list() for name, column in zip(names, eager.columns, strict=True)
    }


def csv_columns(path: str | os.PathLike[str]) -> Columns:
    """Return the columns of a CSV file with a header, all entries as text."""
    place = file_path("source", path)
    try:
        with place.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, ValueError, csv.Error) as error:  # undecodable text, or a name that no file can have
        raise DataError(
            f"{place.name!r} cannot be read as a CSV file in UTF-8: {type(error).__name__}."
        ) from None
    if not rows:
        raise DataError(f"{place.name!r} must have a header and a row at least, got an empty file.")
    header = [name.strip() for name in rows[0]]
    if len(set(header)) != len(header):
        raise DataError(f"{place.name!r} must name each column once; rename the repeated one.")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise DataError(
                f"line {number} of {place.name!r} must have {len(header)} entries, as the header has, got {len(row)}."
            )
    return {name: [row[place] for row in rows[1:]] for place, name in enumerate(header)}


def near(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that another spelling of it seems to mean; None where none is near."""
    by_bare: dict[str, str] = {}
    for each in known:
        by_bare.setdefault(_bare(each), each)
    if _bare(name) in by_bare:
        return by_bare[_bare(name)]
    found = difflib.get_close_matches(_bare(name), list(by_bare), n=1, cutoff=0.75)
    return by_bare[found[0]] if found else None


def or_near(name: str, known: Iterable[str]) -> str:
    """Return a half sentence that offers the near name; empty where none is near."""
    found = near(name, known)
    return "" if found is None else f"; {found!r} is near, is it meant?"


def _bare(name: str) -> str:
    return "".join(letter for letter in str(name).casefold() if letter.isalnum())


def as_number(value: Any) -> float:
    """Return a number, NaN for what is none, nor meant as one: a truth value, or digits parted by ``_``."""
    if type(value).__name__ in {"bool", "bool_"} or (isinstance(value, str) and "_" in value):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def number_of(what: str, value: Any, remedy: str = "leave out what was not answered") -> float:
    """Return a finite number.

    Raises
    ------
    DataError
        It is none; the message does not show it.
    """
    number = as_number(value)
    if not math.isfinite(number):
        raise DataError(f"{what} must be finite numbers, got something else; {remedy}.")
    return number
