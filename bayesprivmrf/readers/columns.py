"""Shared tools of the readers: columns of files and data frames, near spellings, numbers, and the release.

Every reader passes its measurements to `released`, which checks that they describe one population in one unit.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bayesprivmrf.checks import file_path, same_labels
from bayesprivmrf.errors import ArgumentError, DataError, ModelError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable, listed
from bayesprivmrf.noise.base import CONTRADICTION
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.queries import Query, coarsened, table
from bayesprivmrf.readers.text_files import read_table, repeated_error
from bayesprivmrf.release import Measurement, NoisyStatistics

type Columns = dict[str, Sequence[Any]]


def columns_of(source: Any, numbers: Iterable[str] = ()) -> Columns:
    """Return the columns of a CSV or Parquet file, or of a data frame; the entries of a CSV file stay text.

    Parameters
    ----------
    source
        A path, a mapping from names to columns, or a data frame.
    numbers
        Names of columns of numbers. They may have decimal commas if semicolons separate the fields.

    Raises
    ------
    ArgumentError
        The source is none of these.
    DataError
        The file cannot be read.
    """
    if isinstance(source, str | os.PathLike):
        return csv_columns(source, numbers)
    if isinstance(source, Mapping):
        if not same_labels(source.values()):
            raise DataError(
                "the columns of the noisy counts must have the same index in the same order, got several; put them "
                "into one data frame."
            )
        return {str(name): listed(f"the column {name!r}", column) for name, column in source.items()}
    import narwhals.stable.v2 as nw

    try:
        frame = nw.from_native(source)
    except TypeError:
        raise ArgumentError(
            "the noisy counts must be the path of a CSV or Parquet file or a data frame, got a "
            f"{type(source).__name__}."
        ) from None
    eager = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    names = [str(name) for name in eager.columns]
    if len(set(names)) != len(names):
        raise DataError(
            "the columns of the noisy counts must have distinct names, got one twice; rename one."
        )
    return {
        name: eager.get_column(column).to_list() for name, column in zip(names, eager.columns, strict=True)
    }


def csv_columns(path: str | os.PathLike[str], numbers: Iterable[str] = ()) -> Columns:
    """Return the columns of a CSV or Parquet file; all entries of a CSV file are text, also empty ones.

    `columns_of` describes the arguments.
    """
    table = read_table(path, is_strict=True)
    if not len(table.columns):
        raise DataError(f"{file_path('source', path).name!r} must have at least one row, got none.")
    columns = {str(name).strip(): table.columns[name] for name in table.columns}
    if len(columns) != table.columns.shape[1]:
        raise repeated_error()
    if table.separator:
        columns = {name: column.fillna("") for name, column in columns.items()}
    if table.separator == ";":
        columns |= _with_points({name: columns[name] for name in numbers if name in columns})
    return {name: column.astype(object).tolist() for name, column in columns.items()}


def _with_points(columns: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return columns of text with decimal points in place of decimal commas; a mixture of both raises an error."""
    decimal_comma = re.compile(r"\s*[-+]?\d+,\d+([eE][-+]?\d+)?\s*")
    has_comma = {name: column.str.fullmatch(decimal_comma) for name, column in columns.items()}
    if not any(found.any() for found in has_comma.values()):
        return columns
    if any(column.str.contains(".", regex=False).any() for column in columns.values()):
        raise DataError(
            "numbers with decimal commas must have no points, which may separate thousands or decimals, got both; "
            "write all numbers in one notation."
        )
    return {
        name: column.where(~has_comma[name], column.str.replace(",", ".", regex=False))
        for name, column in columns.items()
    }


def near(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a name; None if no known name is similar."""
    by_bare: dict[str, str] = {}
    for each in known:
        by_bare.setdefault(_bare(each), each)
    if _bare(name) in by_bare:
        return by_bare[_bare(name)]
    found = difflib.get_close_matches(_bare(name), list(by_bare), n=1, cutoff=0.75)
    return by_bare[found[0]] if found else None


def or_near(name: str, known: Iterable[str]) -> str:
    """Return the end of a message that offers a similar known name; empty if there is none."""
    found = near(name, known)
    return "" if found is None else f"; {found!r} is similar"


def _bare(name: str) -> str:
    """Return the letters and digits of a name without regard to case."""
    return "".join(letter for letter in str(name).casefold() if letter.isalnum())


def as_number(value: Any) -> float:
    """Return a value as a number; NaN if it is not a number, is a boolean, or is text with underscores."""
    if type(value).__name__ in {"bool", "bool_"} or (isinstance(value, str) and "_" in value):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def number_of(what: str, value: Any, remedy: str = "leave out what was not answered") -> float:
    """Return a finite number; a `DataError`, which does not show the value, if it is not one."""
    number = as_number(value)
    if not math.isfinite(number):
        raise DataError(f"{what} must be finite numbers, got something else; {remedy}.")
    return number


type Groups = Mapping[Variable, Mapping[Label, Sequence[Label]]]


def query_of(model: ModelSpecification, scope: Sequence[Variable], groups: Groups) -> Query:
    """Return the query of a table whose variables may be coarsened; without variables, the number of records."""
    if not scope:
        variable = model.domain.variables[0]
        return coarsened(variable, groups={variable: {"all": model.domain.states_of(variable)}})
    return coarsened(*scope, groups=groups) if groups else table(*scope)


def released(
    model: ModelSpecification,
    measurements: Sequence[Measurement],
    *,
    guarantee: PrivacyGuarantee | None,
    total: int | None,
) -> NoisyStatistics:
    """Return the release of the measurements that were read.

    Raises
    ------
    ModelError
        The measurements give contradictory estimates of the number of records.
    """
    release = NoisyStatistics.from_measurements(model, measurements, guarantee=guarantee, total=total)
    sums, precisions = release._sums_and_precisions
    if total is not None:
        sums, precisions = np.append(sums, total), np.append(precisions, math.inf)
    if len(sums) < 2:
        return release
    best = int(np.argmax(precisions))
    gaps = np.abs(sums - sums[best]) / np.sqrt(1 / precisions + 1 / precisions[best] + 1e-12)
    worst = int(np.argmax(gaps))
    if gaps[worst] > CONTRADICTION:
        raise ModelError(
            f"the tables must describe one population in one unit, but one has {sums[best]:,.0f} records and another "
            f"{sums[worst]:,.0f}, {gaps[worst]:.0f} standard errors apart; check whether one is in thousands, is a "
            "share, or has a standard deviation for its variance."
        )
    return release
