"""Whole records as codes of declared states, for mechanisms that use all variables of a record together.

The declared recoding of values into states: each value by itself, whatever stands in the other rows.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.errors import ArgumentError, DataError
from bayesprivmrf.mechanisms.reading.coding import (
    BREAKS,
    codings_of,
    declared_codes,
    distinct_values,
    in_memory_codes,
)
from bayesprivmrf.mechanisms.reading.frame import (
    column_names,
    frame_of,
    guarded,
    in_memory,
    match_columns,
    repeated_error,
)
from bayesprivmrf.mechanisms.reading.row_counts import Counts, warn_of_counts, without_empty_rows
from bayesprivmrf.model import Domain
from bayesprivmrf.model.declaration_file import Declaration, RecodingRule
from bayesprivmrf.model.domain import Label, Variable, checked_domain, label_key
from bayesprivmrf.model.tables import IntArray

if TYPE_CHECKING:
    import pandas as pd


_DISTINCT_SHARE = 0.5  # rows are merged where at most this share of them is distinct
_LARGEST_KEY = 2**62  # joint states that 64 bits number
# Largest number of records of a frequency table: mechanisms that draw 8-byte numbers per record then need 3 GiB
_MOST_COUNTED = 2**27


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CodedRecords:
    """Exact, sensitive records; their printed form says so.

    Parameters
    ----------
    codes
        Distinct records, or all of them, as states' codes in declared order: shape (rows, p), unsigned.
    counts
        How many records each row stands for, shape (rows,), at least 1.
    records
        Their sum, n.
    """

    codes: np.ndarray
    counts: IntArray
    records: int

    @cached_property
    def spins(self) -> np.ndarray:
        """Two-state records as -1 (first state) and +1, int8 of shape (rows, p)."""
        return 2 * self.codes.astype(np.int8) - np.int8(1)

    def __repr__(self) -> str:
        return "CodedRecords(sensitive)"


def read_records(
    domain: Domain,
    data: Any,
    *,
    missing: Mapping[Variable, int] | None = None,
    other: Mapping[Variable, int] | None = None,
    count: Hashable | None = None,
) -> CodedRecords:
    """Read the declared columns of a data frame as codes; equal records are merged where that makes them few.

    The arguments and errors are those of `record_codes`, and `count` is the column of a frequency table that says how
    many records each row stands for, at most 2^27 in all.
    """
    counts = Counts.of(count, domain.variables, _MOST_COUNTED)
    frame = frame_of(data, [*domain.variables, *([] if counts is None else [counts.column])])
    if counts is None:
        warn_of_counts(data, domain.variables, stacklevel=3)

    def read() -> CodedRecords:
        if counts is None:
            codes = record_codes(domain, data, missing=missing, other=other)
            return _merged(codes, np.ones(len(codes), dtype=np.int64), domain)
        columns = match_columns(domain.variables, column_names(data, frame))
        eager = in_memory(frame, [*columns.values(), counts.named(data, frame)])
        rows, units = without_empty_rows(eager, counts.units(eager.to_native(), eager))
        codes = record_codes(domain, rows.to_native(), missing=missing, other=other)
        return _merged(codes, units, domain)

    return guarded("reading", read)


def record_codes(
    domain: Domain,
    data: Any,
    *,
    missing: Mapping[Variable, int] | None = None,
    other: Mapping[Variable, int] | None = None,
) -> np.ndarray:
    """Read the declared columns of a data frame as codes, unsigned of shape (records, p), one row a record.

    Parameters
    ----------
    domain
        Declared variables and states.
    data
        Any frame that narwhals knows, an Arrow data set or a path to Parquet, one row a record; of a lazy one and of
        a file the declared columns alone are read.
    missing, other
        Codes that take missing and undeclared values, by variable.

    Raises
    ------
    DataError, UndeclaredStateError
        The data are refused, as by `bayesprivmrf.mechanisms.reading.counting.count_tables`.
    ModelError, ArgumentError
        `domain` is no `Domain`; `missing` or `other` maps something else than its variables to codes of theirs.
    """
    checked_domain(domain)
    missing, other = declared_codes("missing", domain, missing), declared_codes("other", domain, other)
    frame: Any = frame_of(data, domain.variables)
    codings = codings_of(domain, missing, other, data)

    def read() -> np.ndarray:
        columns = match_columns(domain.variables, column_names(data, frame))
        coded = in_memory_codes(in_memory(frame, columns.values()), codings, columns)
        kind = np.min_scalar_type(max(domain.cardinalities, default=1) - 1)
        codes = np.empty((len(coded[codings[0].variable]), len(codings)), dtype=kind)
        for place, coding in enumerate(codings):
            codes[:, place] = coded[coding.variable]
        return codes

    return guarded("reading", read)


def _merged(codes: np.ndarray, counts: IntArray, domain: Domain) -> CodedRecords:
    """Return distinct records where they are few, and otherwise the rows unchanged."""
    records = int(counts.sum())
    if records and math.prod(domain.cardinalities) <= _LARGEST_KEY:
        key = np.zeros(len(codes), dtype=np.int64)
        for place, states in enumerate(domain.cardinalities):
            key *= states
            key += codes[:, place]
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        if first.size <= _DISTINCT_SHARE * records:
            # sums of whole numbers up to 2^53 in all, exact as floats
            merged = np.bincount(place, weights=counts, minlength=first.size).astype(np.int64)
            return CodedRecords(codes=codes[first], counts=merged, records=records)
    return CodedRecords(codes=codes, counts=counts, records=records)


def recode(declaration: Declaration, data: Any) -> pd.DataFrame:
    """Records whose values are the declared states, by the declared rules.

    Parameters
    ----------
    declaration
        The declaration of the model file.
    data
        Any data frame that narwhals knows (pandas, Polars, PyArrow, ...); a lazy one is collected, its declared
        columns alone.

    Returns
    -------
    DataFrame
        One column a declared variable, in declared order, of type object, same rows. A value that no rule covers
        stays as it is, and counting refuses it.

    Raises
    ------
    DataError
        `data` is not a data frame, lacks a declared column or has one twice, or holds values of a kind that
        cannot be looked up (lists, records). No message holds a value.
    MemoryError
        Recoding ran out of memory.

    Notes
    -----
    Text is compared with declared text as it stands; where the declaration has numbers (or true and false),
    text that spells one is taken for it. ``1`` and ``1.0`` are one value, ``True`` and ``1`` are two.

    A record's states depend on that record alone, so records that differ in one person's answers still do so once
    they are recoded, and a mechanism's guarantee for the recoded records is one for the records. `distinct_values`
    says why looking up each distinct value once does not break this.
    """
    if not isinstance(declaration, Declaration):
        raise ArgumentError(
            f"`declaration` must be the declaration of a model file, got a {type(declaration).__name__}; read one by "
            "read_declaration."
        )
    frame = frame_of(data, declaration.rules)
    return guarded(
        "recoding",
        lambda: _recoded_frame(declaration.rules, data, frame),
        "columns must hold single values: text, numbers, dates or truth values.",
    )


def _recoded_frame(rules: Mapping[str, RecodingRule], data: Any, frame: Any) -> pd.DataFrame:
    import pandas as pd

    names = column_names(data, frame)
    by_text = {str(column): column for column in names}
    for variable in rules:
        if variable not in by_text:
            raise DataError(
                f"the data must have the column {variable!r}, which the model declares; the fields of a CSV file "
                "must be separated by commas, semicolons or tabs, and its first row must name the columns."
            )
        if names.count(by_text[variable]) > 1:
            raise repeated_error()
    frame = in_memory(frame, [by_text[variable] for variable in rules])
    columns = {v: _recoded(frame.get_column(by_text[v]), rule) for v, rule in rules.items()}
    # as objects: a type inferred from all rows would change what one of them holds, a date into a time for instance
    recoded = pd.DataFrame(columns, index=getattr(frame.to_native(), "index", None), dtype=object)
    recoded.attrs[BREAKS] = {v: rule.breaks for v, rule in rules.items() if rule.breaks}
    return recoded


def _recoded(column: Any, rule: RecodingRule) -> np.ndarray:
    """Labels of a column: each distinct value is looked up once."""
    positions, distinct = distinct_values(column)
    label_of = _by_value(rule) if rule.breaks is None else _by_bin(rule, rule.breaks)
    labels = [*map(label_of, distinct), rule.missing]  # a missing value's position is -1
    return np.fromiter(labels, dtype=object, count=len(labels))[positions]


def _by_value(rule: RecodingRule) -> Callable[[Any], Any]:
    """Return the label of one value, where the rule names values or the data holds the states themselves."""
    groups = [(label,) for label in rule.states] if rule.values is None else rule.values
    targets = rule.states if rule.values is None else rule.targets
    known = {label_key(v): t for group, t in zip(groups, targets, strict=True) for v in group}

    def label_of(value: Any) -> Any:
        for reading in (value, *_readings(value)):
            key = label_key(reading)
            if key in known:
                return known[key]
        return value if rule.other is None else rule.other

    return label_of


def _by_bin(rule: RecodingRule, breaks: tuple[float, ...]) -> Callable[[Any], Any]:
    """Return the label of one value, where the rule has bins: right-closed, of finite numbers."""

    def label_of(value: Any) -> Any:
        number = _number(value)
        if number is not None and isfinite(number):
            return rule.targets[bisect_left(breaks, number)]
        return value if rule.other is None else rule.other

    return label_of


def _number(value: Any) -> float | None:
    """Return the double nearest to a number, or to what a text spells; None for anything else."""
    is_plain = type(value) in (float, str, int)  # asked first for speed
    if not is_plain and (isinstance(value, bool) or not isinstance(value, str | Real | Decimal)):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):  # a time span of NumPy counts as a real number and is none
        return None


def _readings(value: Any) -> list[Label]:
    """Values that a text spells besides itself: an integer, a number, or a truth value."""
    if not isinstance(value, str):
        return []
    text = value.strip()
    if text.lower() in {"true", "false"}:
        return [text.lower() == "true"]
    readings: list[Label] = []
    for kind in (int, float):  # int first: a long code must not lose digits
        try:
            readings.append(kind(text))
        except ValueError:
            continue
    return readings
