"""The one pass over the records: from a data frame to the tables of counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.errors import BayesPrivMRFError, DataError, UndeclaredStateError
from bayesprivmrf.mechanisms.columns import (
    CHUNK,
    Coding,
    is_date,
    label_fits,
    match_columns,
    missing_error,
    type_name,
    undeclared_error,
)
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.model.tables import IntArray

__all__ = ["ExactCounts", "count_tables"]


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
        The data is not a frame, lacks a column, holds a record in a cell declared impossible, or its engine
        fails; the engine's own message is withheld, because it may quote the data.
    UndeclaredStateError
        A value is missing or undeclared.

    Notes
    -----
    ``1`` and ``1.0`` are one label, ``True`` and ``1`` are two, text is never a number. A pandas column of
    numbers with missing values counts NaN as missing.
    """
    import narwhals as nw

    try:
        frame = nw.from_native(data)
    except nw.exceptions.DuplicateError:
        raise DataError(
            "`data` must have columns of distinct names, got one twice; drop or rename it."
        ) from None
    except TypeError:
        raise DataError(
            f"`data` must be a data frame (pandas, Polars, PyArrow, DuckDB, ...), got {type(data).__name__}; "
            "pandas.DataFrame(...) makes one."
        ) from None
    domain = specification.domain
    codings = [
        Coding(variable=v, states=states, missing=(missing or {}).get(v), other=(other or {}).get(v))
        for v, states in zip(domain.variables, domain.states, strict=True)
    ]
    try:
        counts = _counted(specification, data, frame, codings)
    except (BayesPrivMRFError, MemoryError):
        raise
    except Exception as error:
        raise DataError(
            f"the data could not be counted: its engine raised {type(error).__name__}, whose message is withheld "
            "because it may quote the data; run the query behind the frame by itself to see it."
        ) from None
    _refuse_impossible(specification, counts.flat)
    return counts


def _counted(specification: ModelSpecification, data: Any, frame: Any, codings: list[Coding]) -> ExactCounts:
    import narwhals as nw

    native_columns = getattr(data, "columns", None) if isinstance(frame, nw.DataFrame) else None
    names = frame.collect_schema().names() if native_columns is None else _names(native_columns, frame)
    columns = match_columns(specification.domain.variables, names)
    if isinstance(frame, nw.LazyFrame):
        return _count_where_the_data_is(specification, frame, codings, columns)
    return _count_in_memory(specification, frame, codings, columns)


def _names(native_columns: Any, frame: Any) -> list[Any]:
    """Column names as the frame's owner has them: pandas' may be integers, or repeat."""
    return list(native_columns) if frame.implementation.is_pandas_like() else list(frame.columns)


def _refuse_impossible(specification: ModelSpecification, flat: IntArray) -> None:
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
    codes = _polars_text_codes(frame, codings, columns)
    for coding in codings:
        if coding.variable not in codes:
            codes[coding.variable] = coding.encode(frame.get_column(columns[coding.variable]))
    flat = np.zeros(specification.size, dtype=np.int64)
    for position, clique in enumerate(specification.cliques):
        start, stop = specification.offsets[position : position + 2]
        _add_bins([codes[v] for v in clique], specification.shapes[position], flat[start:stop])
    return ExactCounts(flat=flat, records=len(frame))


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


def _count_where_the_data_is(
    specification: ModelSpecification, frame: Any, codings: list[Coding], columns: Mapping[Variable, Any]
) -> ExactCounts:
    """Count a lazy frame: one group-by a table, codes as expressions, their union collected once.

    A record that does not fit goes to a negative cell, -(2 v + 1) where variable v is missing and
    -(2 v + 2) where it is undeclared, so that the one query also carries the checks.
    """
    import narwhals as nw

    schema = frame.collect_schema()
    place_of = {coding.variable: place for place, coding in enumerate(codings)}
    parts = []
    for position, (clique, shape) in enumerate(zip(specification.cliques, specification.shapes, strict=True)):
        keys = [f"k{axis}" for axis in range(len(clique))]
        own = frame.select(*[nw.col(columns[v]).alias(key) for v, key in zip(clique, keys, strict=True)])
        groups = own.group_by(*keys).agg(nw.len().cast(nw.Int64).alias("n"))
        # labels become codes after grouping, on as many rows as the table has cells, not as there are records
        codes = [
            _code_expression(codings[place_of[v]], nw.col(key), schema[columns[v]], place_of[v]).alias(key)
            for v, key in zip(clique, keys, strict=True)
        ]
        coded = groups.select(*codes, "n")
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        cell = nw.sum_horizontal(*[nw.col(key) * stride for key, stride in zip(keys, strides, strict=True)])
        worst = nw.min_horizontal(*keys)
        cell = nw.when(worst < 0).then(worst).otherwise(cell).cast(nw.Int64)
        parts.append(coded.select(cell.alias("cell"), "n", nw.lit(position, dtype=nw.Int64).alias("table")))
    if not parts:
        return ExactCounts(
            flat=np.zeros(0, dtype=np.int64), records=int(frame.select(nw.len()).collect().item())
        )
    result = nw.concat(parts, how="vertical").collect()
    cells, counts, tables = (
        result.get_column(name).to_numpy().astype(np.int64) for name in ("cell", "n", "table")
    )
    if (cells < 0).any():
        raise _misfit(int(cells.min()), codings)
    flat = np.zeros(specification.size, dtype=np.int64)
    np.add.at(flat, np.asarray(specification.offsets)[tables] + cells, counts)
    return ExactCounts(flat=flat, records=int(counts[tables == 0].sum()))


def _code_expression(coding: Coding, value: Any, dtype: Any, place: int) -> Any:
    """Return the code of a lazy column's value as an expression, or its negative mark."""
    import narwhals as nw

    undeclared = -(2 * place + 2) if coding.other is None else coding.other
    code = nw.lit(undeclared, dtype=nw.Int64)
    hits = [
        (value == label).cast(nw.Int64) * (position - undeclared)
        for position, label in enumerate(coding.states)
        if _can_hold(dtype, label)
    ]
    if hits:
        code = code + nw.sum_horizontal(*hits)
    is_missing = value.is_null() | value.is_nan() if dtype.is_float() else value.is_null()
    absent = -(2 * place + 1) if coding.missing is None else coding.missing
    return nw.when(is_missing).then(nw.lit(absent, dtype=nw.Int64)).otherwise(code)


def _can_hold(dtype: Any, label: Label) -> bool:
    """Whether a column of this type can hold the label; comparing other types would be an error or a lie."""
    if type_name(dtype) == "Boolean":
        return label_fits(label, is_boolean=True)
    if dtype.is_numeric():
        whole = not dtype.is_integer()
        return label_fits(label, is_boolean=False) and (whole or label == int(label))  # type: ignore[call-overload]
    if type_name(dtype) in {"String", "Categorical", "Enum"}:
        return isinstance(label, str)
    return is_date(label) if dtype.is_temporal() else False


def _misfit(cell: int, codings: list[Coding]) -> UndeclaredStateError:
    place, is_undeclared = divmod(-cell - 1, 2)
    return undeclared_error(codings[place]) if is_undeclared else missing_error(codings[place])
