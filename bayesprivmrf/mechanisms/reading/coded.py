"""Whole records as codes of declared states, for mechanisms that use all variables of a record together."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bayesprivmrf.mechanisms.reading.coding import codings_of, declared_codes, in_memory_codes
from bayesprivmrf.mechanisms.reading.frame import (
    column_names,
    frame_of,
    guarded,
    in_memory,
    match_columns,
)
from bayesprivmrf.mechanisms.reading.row_counts import Counts, warn_of_counts, without_empty_rows
from bayesprivmrf.model import Domain
from bayesprivmrf.model.domain import Variable, checked_domain
from bayesprivmrf.model.tables import IntArray

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
