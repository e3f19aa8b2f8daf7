"""Rows of a table of intervals that are named beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.inference.solution import Status

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["mark_rows", "mark_status"]

WIDEST = 48
"""Characters above the index that leave a printed table of three columns whole."""


def mark_rows(intervals: pd.DataFrame, is_marked: np.ndarray, attribute: str, text: str) -> pd.DataFrame:
    """Name rows in ``attrs[attribute]``, and say after `text` how many they are where the table is printed."""
    marked = tuple(intervals.index[is_marked.ravel()])
    intervals.attrs[attribute] = marked
    if marked and intervals.columns.name is None:
        intervals.columns.name = f"{text} {len(marked)} of {len(intervals)}, attrs['{attribute}']"
    return intervals


def mark_status(intervals: pd.DataFrame, status: Status) -> pd.DataFrame:
    """Name the status in ``attrs["status"]``, and first where the table is printed, unless it converged."""
    intervals.attrs["status"] = str(status.value)
    if status is not Status.CONVERGED:
        said = intervals.columns.name
        both = status.value if said is None else f"{status.value}; {said}"
        # a longer heading would push columns off a screen
        intervals.columns.name = both if len(both) <= WIDEST else both.partition(", attrs[")[0]
    return intervals
