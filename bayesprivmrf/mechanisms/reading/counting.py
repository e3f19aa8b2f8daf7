"""The one pass over the records: from a data frame to the tables of counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.errors import DataError, ModelError
from bayesprivmrf.mechanisms.reading.coding import CHUNK, Coding, codings_of, in_memory_codes
from bayesprivmrf.mechanisms.reading.frame import column_names, frame_of, guarded, match_columns
from bayesprivmrf.mechanisms.reading.lazy import count_where_the_data_is
from bayesprivmrf.mechanisms.reading.persons import Persons
from bayesprivmrf.mechanisms.reading.row_counts import Counts, warn_of_counts, without_empty_rows
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.chain import chain_of
from bayesprivmrf.model.domain import Variable
from bayesprivmrf.model.tables import IntArray


@dataclass(frozen=True, eq=False, repr=False, slots=True, kw_only=True)
class ExactCounts:
    """Exact counts: sensitive, and printed as such.

    Parameters
    ----------
    flat
        Counts of all cells, shape (size,), records, laid out as `ModelSpecification.offsets` says.
    records
        Number of records N; or of units, where rows of persons weigh several.
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
    rows: Persons | Counts | None = None,
) -> ExactCounts:
    """Count the records of each cell of each measured table, in one pass.

    An eager frame (pandas, Polars, PyArrow, ...) is coded column by column and counted by bins; a lazy one
    (DuckDB, Polars, Ibis, PySpark, ...) runs one query of group-bys where the data is, collected once.

    Parameters
    ----------
    specification
        The declared model.
    data
        Any frame that narwhals knows, an Arrow data set or a path to Parquet, one row a record. Columns of no
        variable are ignored.
    missing, other
        Codes of the states that take missing and undeclared values, by variable; without one they are an
        error.
    rows
        Persons behind the rows, the number of rows counted of each and their weights; or the number of records that
        each row stands for. By default each row is one record.

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
    frame = frame_of(data, [*specification.domain.variables, *([] if rows is None else [rows.column])])
    if rows is None:
        warn_of_counts(data, specification.domain.variables, stacklevel=3)
    codings = codings_of(specification.domain, missing, other, data)
    counts = guarded("counting", lambda: _counted(specification, data, frame, codings, rows))
    refuse_impossible(specification, counts.flat)
    return counts


def _counted(
    specification: ModelSpecification,
    data: Any,
    frame: Any,
    codings: list[Coding],
    rows: Persons | Counts | None,
) -> ExactCounts:
    import narwhals.stable.v2 as nw

    columns = match_columns(specification.domain.variables, column_names(data, frame))
    if isinstance(frame, nw.LazyFrame):
        flat, records = count_where_the_data_is(specification, data, frame, codings, columns, rows)
        return ExactCounts(flat=flat, records=records)
    units = None if rows is None else rows.units(data, frame)
    if rows is not None and units is not None and rows.leaves_out_zeros:
        frame, units = without_empty_rows(frame, units)
    flat, records = count_in_memory(specification, frame, codings, columns, units)
    return ExactCounts(flat=flat, records=records)


def count_in_memory(
    specification: ModelSpecification,
    frame: Any,
    codings: list[Coding],
    columns: Mapping[Variable, Any],
    units: IntArray | None = None,
) -> tuple[IntArray, int]:
    """Return the counts of an eager narwhals frame, each row as many times as it has units, and their number."""
    codes = in_memory_codes(frame, codings, columns)
    flat = np.zeros(specification.size, dtype=np.int64)
    for position, clique in enumerate(specification.cliques):
        start, stop = specification.offsets[position : position + 2]
        _add_bins([codes[v] for v in clique], specification.shapes[position], flat[start:stop], units)
    return flat, len(frame) if units is None else int(units.sum())


def _add_bins(
    codes: list[np.ndarray], shape: tuple[int, ...], table: IntArray, units: IntArray | None
) -> None:
    """Add each row to its cell, C order, a chunk at a time so that the cells' numbers stay in cache.

    Units are added up as floats, exactly: they are whole numbers of at most 2^53 together.
    """
    chunk = max(CHUNK, 4 * table.size)
    for start in range(0, codes[0].size, chunk):
        cells = codes[0][start : start + chunk].astype(np.intp)
        for more, states in zip(codes[1:], shape[1:], strict=True):
            cells *= states
            cells += more[start : start + chunk]
        weights = None if units is None else units[start : start + chunk]
        table += np.bincount(cells, weights, minlength=table.size).astype(np.int64, copy=False)


def refuse_impossible(specification: ModelSpecification, flat: IntArray) -> None:
    """Raise a DataError that names the first table with a record in a cell declared impossible."""
    possible = specification.possible
    if possible is None or not flat[~possible].any():
        return
    for position in range(len(specification.cliques)):
        start, stop = specification.offsets[position : position + 2]
        held = (flat[start:stop] != 0) & ~possible[start:stop]
        if held.any():
            raise DataError(_reason(specification, position, np.flatnonzero(held)))


def _reason(specification: ModelSpecification, position: int, cells: IntArray) -> str:
    """Say what is wrong with records in some impossible cells of a clique: of a chain with an end, in its words."""
    clique, scope = specification.cliques[position], specification.scopes[position]
    first, end = _start_and_end(specification)
    if end is None:
        return (
            f"no record may lie in a cell declared impossible, but one does in the table of {clique!r}; "
            "correct the records or declare the cell possible."
        )
    codes = np.unravel_index(cells, specification.shapes[position])
    domain = specification.domain
    label = domain.states[first][end]
    if first in scope and (codes[scope.index(first)] == end).any():
        return (
            f"no sequence may begin with the end state {label!r}, as that of a person without any state does, but "
            f"one does: column {domain.variables[first]!r} holds the end, or a missing value that is read as one. "
            "Leave out who has no state, or, where it is not known, declare a state for that and fill it in."
        )
    return (
        f"no sequence may go on after the end state {label!r}, but one does in the table of {clique!r}: a gap inside "
        "a sequence is read as its end. Declare a state for what is not known, and fill it in."
    )


def _start_and_end(specification: ModelSpecification) -> tuple[int, int | None]:
    """Position of the first time's variable and code of the end state; None where there is no chain with an end."""
    try:
        chain = chain_of(specification)
    except ModelError:
        return 0, None
    return chain.positions[0], chain.end
