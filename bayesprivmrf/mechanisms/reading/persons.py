"""Rows of persons: the rows that are counted, and their weights.

Of each person, the first rows are counted, up to a public number.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.errors import DataError
from bayesprivmrf.mechanisms.reading.coding import distinct_values, is_missing
from bayesprivmrf.mechanisms.reading.frame import column_names, named_column
from bayesprivmrf.mechanisms.reading.positions import exact_value
from bayesprivmrf.model.domain import label_key
from bayesprivmrf.model.tables import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Persons:
    """Column that identifies the person of a row, with the number of rows of one person that are counted.

    Parameters
    ----------
    column
        Name of the column.
    at_most
        Largest number of rows of one person that are counted, the first ones in the order of the frame.
    grid
        Units that the rows of one person share: each of K counted rows has floor(grid / K). By default a row has one
        unit.
    """

    # a row that is not counted still belongs to somebody, and an undeclared value in it is refused
    leaves_out_zeros: ClassVar[bool] = False

    column: Hashable
    at_most: int
    grid: int | None = None

    def units(self, data: Any, frame: Any) -> IntArray:
        """Return the weight of each row, shape (rows,); 0 for a row that is not counted.

        The weight depends only on the rows of the same person and their order, and not on the rows of others. The
        guarantees of mechanisms rely on this.

        Raises
        ------
        DataError
            `numbers` raises it.
        """
        numbers = self.numbers(data, frame)
        kept = rank_within(numbers) < self.at_most
        if self.grid is None:
            return kept.astype(np.int64)
        rows = np.bincount(numbers[kept], minlength=numbers.max(initial=-1) + 1)
        return np.where(kept, self.grid // np.maximum(rows[numbers], 1), 0)

    def of_query(self, data: Any, frame: Any, columns: list[Any]) -> tuple[Any, Any, Any]:
        """Return a lazy frame of distinct rows, and expressions for the weight of a row and for its refusal.

        The rows of a query have no order, so the first rows of a person are defined only if all rows are counted or
        all are equal. The query counts the equal rows of each person, and then the rows of each person; neither sum
        depends on an order. In these cases the result equals that of `units`, and all other cases are refused.

        Parameters
        ----------
        columns
            The columns of the declared variables.

        Raises
        ------
        DataError
            The column is missing, or some engine does not compare values of its type exactly.
        """
        import narwhals.stable.v2 as nw

        column = self._named(data, frame)
        dtype = frame.collect_schema()[column]
        is_bytewise = frame.implementation.is_polars() or frame.implementation.is_pyspark()
        # the collation of an engine may treat two different texts as equal; Polars and Spark compare bytes
        if not (dtype.is_integer() or dtype == nw.Date or (dtype == nw.String and is_bytewise)):
            raise self.error()
        # new columns: the person of a row, and three counts, of equal rows, of all rows and of different rows of the
        # person. Their names differ from all given ones in every engine, of which many ignore the case of letters:
        # a variable of the same name would be read in place of the count, and the limit on rows would not hold.
        taken = max(
            (len(str(c)) for c in columns if str(c).lower().startswith("bayesprivmrf")), default=0
        )
        new = ("person", "alike", "rows", "kinds")
        who, alike, rows, kinds = (f"bayesprivmrf {name}".ljust(taken + 1, "_") for name in new)
        groups = frame.select(nw.col(column).alias(who), *[nw.col(each) for each in set(columns)])
        groups = groups.group_by(who, *set(columns)).agg(nw.len().alias(alike))
        persons = groups.group_by(who).agg(nw.col(alike).sum().alias(rows), nw.len().alias(kinds))
        joined = groups.join(persons, on=who, how="left")
        is_over = nw.col(rows) > self.at_most
        units = nw.when(is_over).then(self.at_most).otherwise(nw.col(alike)).cast(nw.Int64)
        if self.grid is not None:
            counted = nw.when(is_over).then(self.at_most).otherwise(nw.col(rows)).cast(nw.Int64)
            units = units * ((counted * 0 + self.grid) // counted)
        is_refused = nw.col(who).is_null() | (is_over & (nw.col(kinds) > 1))
        return joined, units, nw.when(is_refused).then(1).otherwise(0)

    def error(self) -> DataError:
        """Return the error for a query in which the rows of a person would have to be chosen."""
        return DataError(
            f"if `data` is a query, whose rows have no order, column {self.column!r} must identify a person in each "
            "row, by whole numbers or dates (in Polars and PySpark also by text), and a person with more rows than "
            f"`at_most`={self.at_most} must have equal rows. Increase `at_most`, or sort by person and by the order "
            "in which rows should count, and collect."
        )

    def numbers(self, data: Any, frame: Any) -> IntArray:
        """Return the number of each row's person, shape (rows,).

        Raises
        ------
        DataError
            The frame is lazy, so that its rows have no order; or the column does not exist, or has a value that is
            missing or cannot be compared.
        """
        import narwhals.stable.v2 as nw

        remedy = "sort it by person and by the position of events, and collect it"
        must = "be in memory, because the order of events matters"
        require(
            not isinstance(frame, nw.LazyFrame), "data", must, "a query", remedy, error=DataError
        )
        series = frame.get_column(self._named(data, frame))
        what = f"column {self.column!r}"
        remedy = "drop the rows without a person, or give each a name of its own"
        is_whole = not is_missing(series).any()
        must = "identify a person in each row"
        require(is_whole, what, must, "a missing value", remedy, error=DataError)
        # Equal numbers for rows of one person, different ones for different persons. Both directions matter: a
        # person with two numbers has twice as many counted rows, and if two persons share a number, one of them
        # changes which rows of the other are counted. So only types with an exact equality are allowed. A typed
        # Polars column is compared by Polars, because times in Python are coarser.
        positions, distinct = distinct_values(series)
        names = [exact_value(value) for value in distinct]
        is_known = all(name is not None for name in names)
        must = "hold text, whole numbers or dates, which can be compared"
        remedy = "recode it, for instance several columns into one text"
        require(is_known, what, must, "another kind of value", remedy, error=DataError)
        if series.implementation.is_polars() and str(series.dtype) != "Object":
            return np.asarray(positions, dtype=np.int64)
        numbers: dict[Any, int] = {}
        of_value = [numbers.setdefault(label_key(name), len(numbers)) for name in names]
        return np.array(of_value, dtype=np.int64)[positions]

    def _named(self, data: Any, frame: Any) -> Any:
        """Return the name of the column as the frame spells it."""
        return named_column(
            self.column, column_names(data, frame), "identifies the person of a row", "person"
        )


def rank_within(groups: IntArray) -> IntArray:
    """Return the number of earlier rows of the same group, shape (rows,)."""
    import pandas as pd

    return pd.Series(groups).groupby(groups).cumcount().to_numpy()
