"""Frequency tables, in which each row represents a number of records."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np

from bayesprivmrf.errors import ArgumentError, DataError, DeclarationWarning
from bayesprivmrf.mechanisms.reading.coding import is_missing, type_name
from bayesprivmrf.mechanisms.reading.frame import (
    column_names,
    frame_of,
    is_dataset,
    named_column,
    opened,
)
from bayesprivmrf.model.domain import Variable
from bayesprivmrf.model.tables import IntArray

# Largest number of records of a frequency table: sums of its counts are then exact as floats
MOST_RECORDS = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Column of a frequency table with the number of records for each row.

    A row with count c is equivalent to c equal rows. So neighbors, sensitivity and guarantee are those of the
    repeated rows: neighbors differ in one record, which changes one count by 1.

    Parameters
    ----------
    column
        Name of the column.
    variables
        The declared variables; the column must not be one of them.
    most
        Largest number of records of the whole table.
    """

    # a row with count 0 represents nobody, and its values are not read
    leaves_out_zeros: ClassVar[bool] = True

    column: Hashable
    variables: tuple[Variable, ...]
    most: int = MOST_RECORDS

    def __post_init__(self) -> None:
        if not isinstance(self.column, Hashable):
            raise ArgumentError(f"`count` must be the name of a column, got a {type(self.column).__name__}.")
        if str(self.column) in map(str, self.variables):
            raise ArgumentError(
                f"`count` must name a column that is no declared variable, got {self.column!r}; leave it out of the "
                "model."
            )

    @classmethod
    def of(
        cls, count: Hashable | None, variables: tuple[Variable, ...], most: int = MOST_RECORDS
    ) -> Counts | None:
        """Return the column named by the argument `count` of a caller, or None if it is None."""
        return None if count is None else cls(column=count, variables=variables, most=most)

    def units(self, data: Any, frame: Any) -> IntArray:
        """Return the number of records for each row of an eager frame, shape (rows,).

        Raises
        ------
        DataError
            The column is missing; a count is missing, negative or not whole; or the sum of the counts is too large.
        """
        series = frame.get_column(self.named(data, frame))
        kind = type_name(series.dtype)
        if is_missing(series).any() or kind == "Boolean":
            raise self.error()
        if series.dtype.is_integer() and kind not in {"Int128", "UInt128"}:
            values = series.to_numpy()
        elif series.dtype.is_float():
            values = series.to_numpy()
            if not (np.abs(values) <= self.most).all() or (values != np.floor(values)).any():
                raise self.error()
        else:  # text from a CSV file, or Python numbers
            values = np.array([self._whole(value) for value in series.to_list()], dtype=np.int64)
        # compared before the conversion: an unsigned number may be too large for int64
        if values.size and (values.min() < 0 or values.max() > self.most):
            raise self.error()
        counts = values.astype(np.int64)
        # as floats first, because the sum of 64-bit integers may overflow
        if counts.sum(dtype=np.float64) > self.most or counts.sum() > self.most:
            raise self.error()
        return counts

    def of_query(self, data: Any, frame: Any, columns: list[Any]) -> tuple[Any, Any, Any]:
        """Return a lazy frame without rows of count 0, and expressions for the count of a row and for its refusal.

        The argument `columns` is not needed here; `Persons.of_query` uses it.
        """
        import narwhals.stable.v2 as nw

        column = self.named(data, frame)
        if not frame.collect_schema()[column].is_integer():
            raise self.error()
        count = nw.col(column).cast(nw.Int64)
        refused = nw.when(count.is_null() | (count < 0) | (count > self.most)).then(1).otherwise(0)
        return frame.filter((nw.col(column) != 0) | nw.col(column).is_null()), count, refused

    def named(self, data: Any, frame: Any) -> Any:
        """Return the name of the column as the frame spells it."""
        return named_column(
            self.column, column_names(data, frame), "has the number of records for each row", "count"
        )

    def _whole(self, value: Any) -> int:
        is_text = isinstance(value, str) and value.strip().isascii() and value.strip().isdecimal()
        is_number = isinstance(value, int | float | Decimal | np.integer | np.floating)
        if isinstance(value, bool) or not (is_text or (is_number and value == value and value % 1 == 0)):
            raise self.error()
        whole = int(value)
        if not 0 <= whole <= self.most:
            raise self.error()
        return whole

    def error(self) -> DataError:
        """Return the error for invalid counts, which does not show them."""
        return DataError(
            f"column {self.column!r} must hold whole numbers, at least 0 and with a sum of at most {self.most:,}, "
            "because it is the number of records for each row; correct other values, or drop their rows."
        )


def without_empty_rows(frame: Any, units: IntArray) -> tuple[Any, IntArray]:
    """Return the rows of an eager narwhals frame with at least one record, and their numbers of records."""
    rows = np.flatnonzero(units)
    return (frame, units) if rows.size == units.size else (frame[rows], units[rows])


def warn_of_counts(data: Any, variables: Iterable[Variable], stacklevel: int = 2) -> None:
    """Warn if an undeclared column has a usual name for the counts of a frequency table.

    Only the names of columns are used, which are public.
    """
    usual = {"freq", "frequency", "count", "counts", "n"}  # names in R, SPSS and other programs
    declared = set(map(str, variables))
    data = opened(data)
    names = data.schema.names if is_dataset(data) else map(str, column_names(data, frame_of(data)))
    found = [name for name in names if name.lower() in usual and name not in declared]
    if found:
        warning = DeclarationWarning(
            f"each row counts as one record, and the column {found[0]!r} is not used",
            remedy="if it is the number of records for each row, pass its name as `count=` here, or else drop it",
            option="if it is the number of records for each row, pass its name as `--count`, or else drop it",
        )
        warnings.warn(warning, stacklevel=stacklevel + 1)
