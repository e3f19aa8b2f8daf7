"""Whole records as codes of declared states, and the declared recoding of values into states.

Each value is recoded on its own, whatever the values in other rows.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bayesprivmrf.checks import instance_of
from bayesprivmrf.errors import DataError
from bayesprivmrf.mechanisms.reading.coding import (
    BREAKS,
    codings_of,
    declared_codes,
    distinct_values,
    in_memory_codes,
)
from bayesprivmrf.mechanisms.reading.frame import (
    Counts,
    column_names,
    frame_of,
    guarded,
    in_memory,
    match_columns,
    repeated_error,
    warn_of_counts,
)
from bayesprivmrf.model import Domain
from bayesprivmrf.model.declaration_file import Declaration, RecodingRule
from bayesprivmrf.model.domain import Label, Variable, checked_domain, label_key
from bayesprivmrf.model.tables import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CodedRecords:
    """Exact records as codes: sensitive, and printed as such.

    Records reach a mechanism in this form. Code that opens it reads a member whose name begins with ``sensitive_``,
    and lies under `bayesprivmrf.mechanisms`; a test lists the files.

    Parameters
    ----------
    sensitive_codes
        Codes of the states in declared order, of distinct records or of all records: shape (rows, p), unsigned.
    sensitive_counts
        Number of records for each row, shape (rows,), at least 1.
    sensitive_number
        Number of records, n.
    """

    sensitive_codes: np.ndarray
    sensitive_counts: IntArray
    sensitive_number: int

    @classmethod
    def of(cls, codes: np.ndarray, counts: IntArray) -> Self:
        """Return records from codes and the number of records for each row."""
        return cls(
            sensitive_codes=codes, sensitive_counts=counts, sensitive_number=int(counts.sum())
        )

    @cached_property
    def sensitive_spins(self) -> np.ndarray:
        """Two-state records as -1 (first state) and +1, int8 of shape (rows, p)."""
        return 2 * self.sensitive_codes.astype(np.int8) - np.int8(1)

    def unprotected_mean(self, score: Callable[[np.ndarray], FloatArray]) -> float:
        """Return the mean of a score of each record, without any noise: for evaluations, never for a release.

        Parameters
        ----------
        score
            Function from codes, int64 of shape (rows, p), to scores, shape (rows,).
        """
        scores = score(self.sensitive_codes.astype(np.int64))
        return float(np.average(scores, weights=self.sensitive_counts))

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
    """Return the codes of the declared columns of a data frame; equal records are merged if few are distinct.

    The arguments and errors are those of `record_codes`. `count` is the column of a frequency table with the number
    of records for each row, at most 2^27 in all: mechanisms that draw 8-byte numbers per record then need 3 GiB.
    """
    counts = Counts.of(count, domain.variables, 2**27)
    frame = frame_of(
        data, [*domain.variables, *([] if counts is None else [counts.column])], domain
    )
    if counts is None:
        warn_of_counts(data, domain.variables)

    def read() -> CodedRecords:
        rows = data
        units = None
        if counts is not None:
            columns = match_columns(domain.variables, column_names(data, frame))
            eager = in_memory(frame, [*columns.values(), counts.named(data, frame)])
            units = counts.units(eager.to_native(), eager)
            present = np.flatnonzero(units)  # the values in rows without records are not read
            rows = eager[present].to_native()
            units = units[present]
        codes = record_codes(domain, rows, missing=missing, other=other)
        return _merged(
            codes, np.ones(len(codes), dtype=np.int64) if units is None else units, domain
        )

    return guarded("reading", read)


def record_codes(
    domain: Domain,
    data: Any,
    *,
    missing: Mapping[Variable, int] | None = None,
    other: Mapping[Variable, int] | None = None,
) -> np.ndarray:
    """Return the codes of the declared columns of a data frame, unsigned integers of shape (records, p).

    Parameters
    ----------
    domain
        Declared variables and states.
    data
        Any frame that narwhals supports, an Arrow data set or a path to Parquet, with one row for each record. Of a
        lazy frame or a file, only the declared columns are read.
    missing, other
        Codes for missing and undeclared values, by variable; without one such values are an error.

    Raises
    ------
    DataError, UndeclaredStateError
        The data are refused, as by `bayesprivmrf.mechanisms.reading.counting.count_tables`.
    ModelError, ArgumentError
        `domain` is not a `Domain`, or `missing` or `other` is not a mapping from its variables to codes.

    Examples
    --------
    >>> import pandas as pd
    >>> domain = Domain.from_states({"ill": ["no", "yes"], "age": [1, 2, 3]})
    >>> record_codes(domain, pd.DataFrame({"age": [3, 1], "ill": ["no", "yes"]})).tolist()
    [[0, 2], [1, 0]]
    """
    checked_domain(domain)
    missing = declared_codes("missing", domain, missing)
    other = declared_codes("other", domain, other)
    frame: Any = frame_of(data, domain.variables, domain)
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
    """Return distinct records if they are at most half of all, and otherwise the rows unchanged."""
    records = int(counts.sum())
    if records and math.prod(domain.cardinalities) <= 2**62:  # 64 bits number the joint states
        key = np.zeros(len(codes), dtype=np.int64)
        for place, states in enumerate(domain.cardinalities):
            key *= states
            key += codes[:, place]
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        if first.size <= 0.5 * records:
            # sums of whole numbers of at most 2^53 in all are exact as floats
            merged = np.bincount(place, weights=counts, minlength=first.size).astype(np.int64)
            return CodedRecords.of(codes[first], merged)
    return CodedRecords.of(codes, counts)


def recode(declaration: Declaration, data: Any) -> pd.DataFrame:
    """Return the records with values recoded into the declared states, by the declared rules.

    Parameters
    ----------
    declaration
        The declaration of the model file.
    data
        Any data frame that narwhals supports (pandas, Polars, PyArrow, ...); of a lazy frame, only the declared
        columns are collected.

    Returns
    -------
    DataFrame
        One column of type object for each declared variable, in declared order, with the same rows. A value that no
        rule covers is not changed, and counting refuses it.

    Raises
    ------
    DataError
        `data` is not a data frame, lacks a declared column or has one twice, or holds values that cannot be looked
        up (lists, records). No message contains a value.
    MemoryError
        Recoding ran out of memory.

    Notes
    -----
    Text is compared with declared text exactly. If the declaration has numbers (or true and false), text that spells
    one is equal to it. ``1`` and ``1.0`` are one value, ``True`` and ``1`` are two.

    The states of a record depend on that record alone. So data sets that differ in one person's answers still do so
    after recoding, and a mechanism's guarantee for the recoded records is a guarantee for the records.
    `distinct_values` explains why looking up each distinct value only once is consistent with this.
    """
    remedy = "read it with read_declaration"
    rules = instance_of(
        "declaration", declaration, Declaration, "be that of a model file", remedy
    ).rules
    frame = frame_of(data, rules)

    def read() -> pd.DataFrame:
        import pandas as pd

        names = column_names(data, frame)
        by_text = {str(column): column for column in names}
        for variable in rules:
            if variable not in by_text:
                raise DataError(
                    f"the data must have the column {variable!r}, which the model declares; the fields of a CSV "
                    "file must be separated by commas, semicolons or tabs, and its first row must name the columns."
                )
            if names.count(by_text[variable]) > 1:
                raise repeated_error()
        eager = in_memory(frame, [by_text[variable] for variable in rules])
        columns = {}
        for variable, rule in rules.items():
            # each distinct value is looked up once; a missing value's position is -1
            positions, distinct = distinct_values(eager.get_column(by_text[variable]))
            labels = [*map(_label_by(rule), distinct), rule.missing]
            columns[variable] = np.fromiter(labels, dtype=object, count=len(labels))[positions]
        # as objects: a type inferred from all rows could change single values, a date into a time for instance
        recoded = pd.DataFrame(
            columns, index=getattr(eager.to_native(), "index", None), dtype=object
        )
        recoded.attrs[BREAKS] = {v: rule.breaks for v, rule in rules.items() if rule.breaks}
        return recoded

    return guarded(
        "recoding", read, "columns must hold single values: text, numbers, dates or truth values."
    )


def _label_by(rule: RecodingRule) -> Callable[[Any], Any]:
    """Return the function from a value to its label, by right-closed bins of finite numbers or by listed values."""
    if rule.values is None:
        groups = [(label,) for label in rule.states]
    else:
        groups = rule.values
    if rule.values is None:
        targets = rule.states
    else:
        targets = rule.targets
    known = {}
    if rule.breaks is None:
        known = {label_key(v): t for group, t in zip(groups, targets, strict=True) for v in group}

    def label_of(value: Any) -> Any:
        if rule.breaks is not None:
            number = _number(value)
            if number is not None and isfinite(number):
                return rule.targets[bisect_left(rule.breaks, number)]
        for key in map(label_key, (value, *_readings(value)) if known else ()):
            if key in known:
                return known[key]
        if rule.other is None:
            return value
        return rule.other

    return label_of


def _number(value: Any) -> float | None:
    """Return the nearest double of a number, or of a text that spells one; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | Real | Decimal):
        return None
    try:
        return float(value)
    # a time span of NumPy counts as a real number and is none
    except (
        TypeError,
        ValueError,
        OverflowError,
    ):
        return None


def _readings(value: Any) -> list[Label]:
    """Return the values that a text spells besides itself: an integer, a number, or a truth value."""
    readings: list[Label] = []
    if isinstance(value, str):
        text = value.strip()
    else:
        text = ""
    if text.lower() in {"true", "false"}:
        return [text.lower() == "true"]
    for kind in (int, float) if text else ():  # int first, so that a long code keeps its digits
        with suppress(ValueError):
            readings.append(kind(text))
    return readings
