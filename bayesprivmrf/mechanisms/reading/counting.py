"""The one pass over the records: from a data frame to the tables of counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.errors import BayesPrivMRFError, DataError
from bayesprivmrf.mechanisms.queries import count_where_the_data_is
from bayesprivmrf.mechanisms.reading.coding import (
    CHUNK,
    Coding,
    match_columns,
    missing_error,
    undeclared_error,
)
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Variable
from bayesprivmrf.model.tables import IntArray

__all__ = ["ExactCounts", "column_names", "count_tables", "frame_of", "in_memory_codes", "refuse_impossible"]


@dataclass(frozen=True, eq=False, repr=False, slots=True, kw_only=True)
class ExactCounts:
    """Exact counts: sensitive, and printed as such.

    Parameters
    ----------
    flat
        Counts of all cells, shape (size,), records, laid out as `ModelSpecification.offsets` says.
    records
        Number of records N.
    """

    flat: IntArray
    records: int

    def __repr__(self) -> str:
        return "ExactCounts(sensitive)"


def count_tables(
    specification: ModelSpecification,
    data: Any,
    *,
    missing: Mapping[Variable, int] | None = None,
    other: Mapping[Variable, int] | None = None,
) -> ExactCounts:
    """Count the records of each cell of each measured table, in one pass.

    An eager frame (pandas, Polars, PyArrow, ...) is coded column by column and counted by bins; a lazy one
    (DuckDB, Polars, Dask, PySpark, ...) runs one query of group-bys where the data is, collected once.

    Parameters
    ----------
    specification
        The declared model.
    data
        Any frame that narwhals knows, one row a record. Columns of no variable are ignored.
    missing, other
        Codes of the states that take missing and undeclared values, by variable; without one they are an
        error.

    Returns
    -------
    ExactCounts
        Sensitive: for mechanisms only.

    Raises
    ------
    DataError
        The data is not a frame, lacks a column, holds a record in a cell declared impossible, its engine
        takes two declared states for one value, or its engine fails. The engine's own error is withheld, in the
        message and in the chain of exceptions, because it may quote the data.
    UndeclaredStateError
        A value is missing or undeclared.
    MemoryError
        Counting ran out of memory; without the size that was asked for, which tells the number of records.

    Notes
    -----
    ``1`` and ``1.0`` are one label, ``True`` and ``1`` are two, text is never a number. A pandas column of
    numbers with missing values counts NaN as missing.
    """
    frame = frame_of(data)
    domain = specification.domain
    codings = [
        Coding(variable=v, states=states, missing=(missing or {}).get(v), other=(other or {}).get(v))
        for v, states in zip(domain.variables, domain.states, strict=True)
    ]
    counts, failure = None, Exception
    try:
        counts = _counted(specification, data, frame, codings)
    except (BayesPrivMRFError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # an engine's panic is no Exception
        failure = type(error)
    # Raised here, outside the handler: an exception keeps the one being handled, and its message, as context.
    if counts is None:
        if issubclass(failure, MemoryError):
            raise MemoryError("counting ran out of memory")
        raise DataError(
            f"the data could not be counted: its engine raised {failure.__name__}, whose message is withheld "
            "because it may quote the data; run the query behind the frame by itself to see it."
        )
    refuse_impossible(specification, counts.flat)
    return counts


def frame_of(data: Any) -> Any:
    """Return the data as a narwhals frame; errors are raised outside the handlers, so that they carry no context."""
    import narwhals as nw

    is_repeated = False
    try:
        return nw.from_native(data)
    except nw.exceptions.DuplicateError:
        is_repeated = True
    except TypeError:
        pass
    if is_repeated:
        raise DataError("`data` must have columns of distinct names, got one twice; drop or rename it.")
    raise DataError(
        f"`data` must be a data frame (pandas, Polars, PyArrow, DuckDB, ...), got {type(data).__name__}; "
        "pandas.DataFrame(...) makes one."
    )


def _counted(specification: ModelSpecification, data: Any, frame: Any, codings: list[Coding]) -> ExactCounts:
    import narwhals as nw

    columns = match_columns(specification.domain.variables, column_names(data, frame))
    if isinstance(frame, nw.LazyFrame):
        flat, records = count_where_the_data_is(specification, frame, codings, columns)
        return ExactCounts(flat=flat, records=records)
    return _count_in_memory(specification, frame, codings, columns)


def column_names(data: Any, frame: Any) -> list[Any]:
    """Return column names as the frame's owner has them: pandas' may be integers, or repeat."""
    import narwhals as nw

    native_columns = getattr(data, "columns", None) if isinstance(frame, nw.DataFrame) else None
    if native_columns is None:
        return frame.collect_schema().names()
    return list(native_columns) if frame.implementation.is_pandas_like() else list(frame.columns)


def refuse_impossible(specification: ModelSpecification, flat: IntArray) -> None:
    """Raise a DataError that names the first table with a record in a cell declared impossible."""
    possible = specification.possible
    if possible is None or not flat[~possible].any():
        return
    for position, clique in enumerate(specification.cliques):
        start, stop = specification.offsets[position : position + 2]
        if flat[start:stop][~possible[start:stop]].any():
            raise DataError(
                f"no record may lie in a cell declared impossible, but one does in the table of {clique!r}; "
                "correct the records or declare the cell possible."
            )


def _count_in_memory(
    specification: ModelSpecification, frame: Any, codings: list[Coding], columns: Mapping[Variable, Any]
) -> ExactCounts:
    codes = in_memory_codes(frame, codings, columns)
    flat = np.zeros(specification.size, dtype=np.int64)
    for position, clique in enumerate(specification.cliques):
        start, stop = specification.offsets[position : position + 2]
        _add_bins([codes[v] for v in clique], specification.shapes[position], flat[start:stop])
    return ExactCounts(flat=flat, records=len(frame))


def in_memory_codes(
    frame: Any, codings: list[Coding], columns: Mapping[Variable, Any]
) -> dict[Variable, np.ndarray]:
    """Return the codes of each declared column of an eager narwhals frame, by variable."""
    codes = _polars_text_codes(frame, codings, columns)
    for coding in codings:
        if coding.variable not in codes:
            codes[coding.variable] = coding.encode(frame.get_column(columns[coding.variable]))
    return codes


def _add_bins(codes: list[np.ndarray], shape: tuple[int, ...], table: IntArray) -> None:
    """Add each record to its cell, C order, a chunk at a time so that the cells' numbers stay in cache."""
    chunk = max(CHUNK, 4 * table.size)
    for start in range(0, codes[0].size, chunk):
        cells = codes[0][start : start + chunk].astype(np.intp)
        for more, states in zip(codes[1:], shape[1:], strict=True):
            cells *= states
            cells += more[start : start + chunk]
        table += np.bincount(cells, minlength=table.size)


def _polars_text_codes(
    frame: Any, codings: list[Coding], columns: Mapping[Variable, Any]
) -> dict[Variable, Any]:
    """Codes of text columns of a Polars frame, all in one query, which Polars runs in parallel."""
    if not frame.implementation.is_polars():
        return {}
    import polars as pl

    native = frame.to_native()
    text = [c for c in codings if native.schema[columns[c.variable]] in (pl.String, pl.Categorical, pl.Enum)]
    expressions = []
    for place, coding in enumerate(text):
        column, name = pl.col(columns[coding.variable]), str(place)
        if coding.missing is None and native.get_column(columns[coding.variable]).null_count():
            raise missing_error(coding)
        code = {label: position for position, label in enumerate(coding.states) if isinstance(label, str)}
        labels = list(code)
        width = {1: pl.UInt8, 2: pl.UInt16}.get(coding.dtype.itemsize, pl.UInt32)
        found = column.cast(pl.Enum(labels), strict=False).to_physical()
        if list(code.values()) != list(range(len(labels))):
            found = found.replace_strict(list(range(len(labels))), list(code.values()), default=None)
        found = found.cast(width).fill_null(len(coding.states) if coding.other is None else coding.other)
        if coding.missing is not None:
            found = pl.when(column.is_null()).then(pl.lit(coding.missing, dtype=width)).otherwise(found)
        expressions.append(found.alias(name))
    coded = native.select(expressions)
    codes = {coding.variable: coded.get_column(str(place)).to_numpy() for place, coding in enumerate(text)}
    for coding in text:
        if codes[coding.variable].size and codes[coding.variable].max() == len(coding.states):
            raise undeclared_error(coding)
    return codes
