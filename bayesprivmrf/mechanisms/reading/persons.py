"""Which rows of each person are counted: the first ones, up to a public number."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.errors import DataError
from bayesprivmrf.mechanisms.reading.coding import distinct_values, is_missing
from bayesprivmrf.mechanisms.reading.frame import column_names
from bayesprivmrf.model.domain import label_key
from bayesprivmrf.model.tables import IntArray

__all__ = ["Persons"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Persons:
    """The column that says whose a row is, and how many rows of one person are counted.

    Parameters
    ----------
    column
        Name of the column.
    at_most
        Rows of one person that are counted: the first ones in the frame's order.
    """

    column: Hashable
    at_most: int

    def kept(self, data: Any, frame: Any) -> np.ndarray:
        """Return which rows are counted, shape (rows,).

        Whether a row is kept depends on that person's rows alone, and on their own order: the rows of others may come
        and go, before it or after it. `Mechanism`s rest on that.

        Raises
        ------
        DataError
            The frame is lazy, so that its rows have no order; the column is not there; it holds a missing value, or
            one that cannot be compared.
        """
        import narwhals as nw

        if isinstance(frame, nw.LazyFrame):
            raise DataError(
                "`data` must be in memory where `person` is given, for the rows of a query have no order, and which "
                "of a person's rows are counted would rest on its engine; sort it by person and by what shall come "
                "first, and collect it."
            )
        by_text = {str(name): name for name in column_names(data, frame)}
        if str(self.column) not in by_text:
            raise DataError(
                f"the data must have the column {self.column!r}, which says whose a row is; rename the column, or "
                "name it in `person`."
            )
        series = frame.get_column(by_text[str(self.column)])
        if is_missing(series).any():
            raise DataError(
                f"column {self.column!r} must name a person in each row, but has a missing value; drop the rows "
                "that are nobody's, or give each a name of its own."
            )
        return _rank_within(self._numbered(series)) < self.at_most

    def _numbered(self, series: Any) -> IntArray:
        """Return a number for each row, the same for rows of one person."""
        positions, distinct = distinct_values(series)
        numbers: dict[Any, int] = {}
        try:
            of_value = [numbers.setdefault(label_key(value), len(numbers)) for value in distinct]
        except TypeError:
            of_value = None
        if of_value is None or any(value != value for value in distinct):
            raise DataError(
                f"column {self.column!r} must hold names that can be compared: text, numbers or dates; recode it."
            )
        return np.array(of_value, dtype=np.int64)[positions]


def _rank_within(groups: IntArray) -> IntArray:
    """Return how many earlier rows are of the same group, shape (rows,)."""
    order = np.argsort(groups, kind="stable")
    placed = groups[order]
    is_first = np.append(True, placed[1:] != placed[:-1])[: placed.size]
    starts = np.flatnonzero(is_first)
    ranks = np.empty_like(groups)
    ranks[order] = np.arange(placed.size) - starts[np.cumsum(is_first) - 1]
    return ranks
