"""Records as codes, for mechanisms that learn from whole records and not from declared tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bayesprivmrf.mechanisms.reading.coding import codings_of
from bayesprivmrf.mechanisms.reading.eager import in_memory_codes
from bayesprivmrf.mechanisms.reading.frame import (
    column_names,
    frame_of,
    guarded,
    in_memory,
    match_columns,
)
from bayesprivmrf.model import Domain
from bayesprivmrf.model.domain import Variable
from bayesprivmrf.model.tables import IntArray

__all__ = ["CodedRecords", "read_records", "record_codes"]

_DISTINCT_SHARE = 0.5  # rows are merged where at most this share of them is distinct
_LARGEST_KEY = 2**62


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CodedRecords:
    """Exact records: sensitive, and printed as such.

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
) -> CodedRecords:
    """Read the declared columns of a data frame as codes; equal records are merged where that makes them few.

    The arguments and errors are those of `record_codes`.
    """
    return guarded(
        "reading", lambda: _merged(record_codes(domain, data, missing=missing, other=other), domain)
    )


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
        Any frame that narwhals knows, one row a record; a lazy one is collected, its declared columns alone.
    missing, other
        Codes that take missing and undeclared values, by variable.

    Raises
    ------
    DataError, UndeclaredStateError
        The data are refused, as by `bayesprivmrf.mechanisms.reading.counting.count_tables`.
    """
    frame: Any = frame_of(data)
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


def _merged(codes: np.ndarray, domain: Domain) -> CodedRecords:
    records = len(codes)
    if records and math.prod(domain.cardinalities) <= _LARGEST_KEY:
        key = np.zeros(records, dtype=np.int64)
        for place, states in enumerate(domain.cardinalities):
            key *= states
            key += codes[:, place]
        _, first, counts = np.unique(key, return_index=True, return_counts=True)
        if first.size <= _DISTINCT_SHARE * records:
            return CodedRecords(codes=codes[first], counts=counts.astype(np.int64), records=records)
    return CodedRecords(codes=codes, counts=np.ones(records, dtype=np.int64), records=records)
