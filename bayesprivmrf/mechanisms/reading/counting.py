"""Tables of counts from a data frame, in one pass over the records.

An eager frame is coded and counted in memory. A lazy frame is grouped in the engine that holds the data, and the
groups of each table are coded and counted in memory in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.errors import DataError
from bayesprivmrf.mechanisms.reading.coded import coded_columns
from bayesprivmrf.mechanisms.reading.coding import Coding, codings_of
from bayesprivmrf.mechanisms.reading.frame import (
    MOST_RECORDS,
    Counts,
    column_names,
    frame_of,
    guarded,
    match_columns,
    warn_of_counts,
)
from bayesprivmrf.mechanisms.reading.persons import Persons
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Variable
from bayesprivmrf.model.tables import Clique, IntArray


@dataclass(frozen=True, eq=False, repr=False, slots=True, kw_only=True)
class ExactCounts:
    """Exact counts: sensitive, and printed as such.

    Parameters
    ----------
    flat
        Counts of all cells, shape (size,), records, in the layout of `ModelSpecification.offsets`.
    records
        Number of records N; or number of units, if the rows of persons have weights.
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
    """Count the records in each cell of each measured table, in one pass.

    An eager frame (pandas, Polars, PyArrow, ...) is coded column by column and counted by bins. For a lazy frame
    (DuckDB, Polars, Ibis, PySpark, ...) its engine runs one group-by for each table.

    Parameters
    ----------
    specification
        The declared model.
    data
        Any frame that narwhals supports, an Arrow data set or a path to Parquet, with one row for each record.
        Columns that are no variable are ignored.
    missing, other
        Codes for missing and undeclared values, by variable; without one such values are an error.
    rows
        The column with the persons of the rows, or with the number of records for each row. By default each row is
        one record.

    Returns
    -------
    ExactCounts
        Exact counts: sensitive, for mechanisms only.

    Raises
    ------
    DataError
        The data are not a frame, lack a column, or have a record in a cell declared impossible; or their engine takes
        two texts for one value, or fails. The engine's own error is withheld, in the message and in the
        chain of exceptions, because it may quote the data.
    UndeclaredStateError
        A value is missing or undeclared.
    MemoryError
        Counting ran out of memory. The error does not state the requested size, which reveals the number of records.

    Notes
    -----
    ``1`` and ``1.0`` are one label, ``True`` and ``1`` are two, text is never a number. A pandas column of
    numbers with missing values counts NaN as missing.
    """
    frame = frame_of(data, [*specification.domain.variables, *([] if rows is None else [rows.column])])
    if rows is None:
        warn_of_counts(data, specification.domain.variables, stacklevel=3)
    codings = codings_of(specification.domain, missing, other, data)

    def read() -> tuple[IntArray, int]:
        import narwhals.stable.v2 as nw

        each = zip(specification.cliques, specification.shapes, strict=True)
        columns = match_columns(specification.domain.variables, column_names(data, frame))
        if isinstance(frame, nw.LazyFrame):
            tables = _grouped(specification, data, frame, codings, columns, rows)
        else:
            codes, units = coded_columns(frame, codings, columns, rows)
            tables = [_bins(clique, shape, codes, units) for clique, shape in each]
        sums = {int(table.sum()) for table in tables}
        given = "different numbers from the data's engine"
        remedy = (
            "give a query with the same rows each time (no sampling, no unordered limit), or store its result"
        )
        require(len(sums) == 1, "each table", "count the same records", given, remedy, error=DataError)
        return np.concatenate(tables), sums.pop()

    flat, records = guarded("counting", read)
    refuse_impossible(specification, flat)
    return ExactCounts(flat=flat, records=records)


def _grouped(
    specification: ModelSpecification,
    data: Any,
    frame: Any,
    codings: list[Coding],
    columns: Mapping[Variable, Any],
    rows: Persons | Counts | None,
) -> list[IntArray]:
    """Return the tables of a lazy frame, from a group-by for each table in the engine that holds the data.

    The labels of the groups become codes in memory, so that they are compared exactly. An engine may treat different
    texts as equal, by a collation that ignores case for instance, and show any one of them. Then one record could
    change the code of all others in its group, so such texts are refused.
    """
    import narwhals.stable.v2 as nw

    schema, is_polars = frame.collect_schema(), frame.implementation.is_polars()
    # of 64 bits: Polars adds up numbers of 32 bits in 32 bits, and a sum of more rows would wrap around
    units, refused = nw.lit(1, dtype=nw.Int64), nw.lit(0)
    if rows is not None:
        frame, units, refused = rows.of_query(data, frame, list(columns.values()))
    texts = {c.variable: [label for label in c.states if isinstance(label, str)] for c in codings}
    queries = []
    for clique in specification.cliques:
        keys = {v: f"k{axis}" for axis, v in enumerate(clique)}
        own = [nw.col(columns[v]).alias(key) for v, key in keys.items()]
        own += [units.alias("n"), units.cast(nw.Float64).alias("size"), refused.alias("refused")]
        groups = frame.select(*own).group_by(*keys.values()).agg(nw.col("n", "size", "refused").sum())
        # the number of declared texts that equal a text in the engine; Polars compares bytes
        alike = [
            nw.sum_horizontal(*[(nw.col(key) == label).cast(nw.Int64) for label in texts[v]]).alias(
                f"of {key}"
            )
            for v, key in keys.items()
            if texts[v] and schema[columns[v]] == nw.String and not is_polars
        ]
        sums = nw.col("n").cast(nw.Int64), nw.col("size"), nw.col("refused").cast(nw.Int64)
        queries.append(groups.select(*keys.values(), *alike, *sums))
    if is_polars:  # which reads the data once for all queries
        import polars as pl

        collected = [nw.from_native(one) for one in pl.collect_all([query.to_native() for query in queries])]
    else:
        collected = [query.collect() for query in queries]
    tables, coding_of = [], {coding.variable: coding for coding in codings}
    each = zip(specification.cliques, specification.shapes, collected, strict=True)
    for clique, shape, groups in each:
        counts = groups.get_column("n").to_numpy()
        # as floats first, because the sum of 64-bit integers may overflow
        are_many = groups.get_column("size").sum() > MOST_RECORDS or counts.sum() > MOST_RECORDS
        if rows is not None and (groups.get_column("refused").to_numpy().any() or are_many):
            raise rows.error()
        codes = {}
        for axis, v in enumerate(clique):
            labels = groups.get_column(f"k{axis}")
            codes[v] = coding_of[v].encode(labels)
            if f"of k{axis}" in groups.columns:
                is_declared = labels.is_in(texts[v]).fill_null(False).to_numpy()
                is_one, what = np.array_equal(is_declared, groups.get_column(f"of k{axis}")), f"column {v!r}"
                must, given = "be one declared state", "a text that the data's engine takes for several"
                remedy = "check the collation of the column, or change the case of its text in the query"
                require(is_one, f"each value of {what}", must, given, remedy, error=DataError)
        tables.append(_bins(clique, shape, codes, counts))
    return tables


def _bins(
    clique: Clique,
    shape: tuple[int, ...],
    codes: Mapping[Variable, np.ndarray],
    units: IntArray | None,
) -> IntArray:
    """Return the table of a clique, flat in C order, from the codes and units of rows.

    Units are added up as floats, which is exact because they are whole numbers with a sum of at most 2^53.
    """
    cells = np.ravel_multi_index([codes[v] for v in clique], shape)
    return np.bincount(cells, units, minlength=math.prod(shape)).astype(np.int64, copy=False)


def refuse_impossible(specification: ModelSpecification, flat: IntArray) -> None:
    """Raise a DataError that names the first table with a record in a cell declared impossible."""
    possible = specification.possible
    if possible is None or not flat[~possible].any():
        return
    first = np.flatnonzero((flat != 0) & ~possible)[0]
    clique = specification.cliques[np.searchsorted(specification.offsets, first, side="right") - 1]
    raise DataError(
        f"no record may lie in a cell declared impossible, but one does in the table of {clique!r}; correct the "
        "records or declare the cell possible. In a chain with an end state, no sequence may begin with it or "
        "continue after it: leave out persons without any state, and declare a state for an unknown one in a gap."
    )
