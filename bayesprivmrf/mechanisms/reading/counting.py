"""Tables of counts from a data frame, in one pass over the records.

An eager frame is coded and counted in memory. For a lazy frame one query counts in the engine that holds the data,
and its result is checked.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.errors import DataError
from bayesprivmrf.mechanisms.reading.coding import (
    CHUNK,
    Coding,
    codings_of,
    in_memory_codes,
    label_fits,
    missing_error,
    type_name,
    undeclared_error,
)
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
from bayesprivmrf.model.domain import Label, Variable, label_key, other_form
from bayesprivmrf.model.tables import IntArray


def count_where_the_data_is(
    specification: ModelSpecification,
    data: Any,
    frame: Any,
    codings: list[Coding],
    columns: Mapping[Variable, Any],
    rows: Persons | Counts | None = None,
) -> tuple[IntArray, int]:
    """Return the counts of a lazy frame and its number of records, from one query that is collected once.

    The query has one group-by for each table, with codes as expressions, and concatenates their results.

    A record that does not fit goes to a negative cell, so that the same query carries the checks: -(3 v + 1) if
    variable v is missing, -(3 v + 2) if it is undeclared, and -(3 v + 3) if the engine finds it equal to several
    states. Sensitivity rests on each record being in one cell of each table, so the result is checked for this,
    whatever the engine did.
    """
    import narwhals.stable.v2 as nw

    schema = frame.collect_schema()
    # of 64 bits: Polars adds up numbers of 32 bits in 32 bits, and a sum of more rows would wrap around
    units = nw.lit(1, dtype=nw.Int64)
    refused = nw.lit(0)
    if rows is not None:
        frame, units, refused = rows.of_query(data, frame, list(columns.values()))
    place_of = {coding.variable: place for place, coding in enumerate(codings)}
    parts = []
    for position, (clique, shape) in enumerate(
        zip(specification.cliques, specification.shapes, strict=True)
    ):
        keys = [f"k{axis}" for axis in range(len(clique))]
        own = [nw.col(columns[v]).alias(key) for v, key in zip(clique, keys, strict=True)]
        own += [units.alias("n"), units.cast(nw.Float64).alias("size"), refused.alias("refused")]
        groups = frame.select(*own).group_by(*keys).agg(nw.col("n", "size", "refused").sum())
        sums = (nw.col("n").cast(nw.Int64), nw.col("size"), nw.col("refused").cast(nw.Int64))
        # labels become codes after grouping, when there are as many rows as cells, and not as many as records
        codes = [
            _code_expression(
                codings[place_of[v]], nw.col(key), schema[columns[v]], place_of[v]
            ).alias(key)
            for v, key in zip(clique, keys, strict=True)
        ]
        coded = groups.select(*codes, *sums)
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        cell = nw.sum_horizontal(
            *[nw.col(key) * stride for key, stride in zip(keys, strides, strict=True)]
        )
        # in Spark the minimum needs at least two columns
        if len(keys) > 1:
            worst = nw.min_horizontal(*keys)
        else:
            worst = nw.col(*keys)
        cell = nw.when(worst < 0).then(worst).otherwise(cell).cast(nw.Int64)
        table = nw.lit(position, dtype=nw.Int64).alias("table")
        parts.append(coded.select(cell.alias("cell"), "n", "size", "refused", table))
    if not parts:
        return np.zeros(0, dtype=np.int64), int(frame.select(nw.len()).collect().item())
    result = nw.concat(parts, how="vertical").collect()
    cells, counts, tables = (
        result.get_column(name).to_numpy().astype(np.int64) for name in ("cell", "n", "table")
    )
    if rows is not None:
        sizes = result.get_column("size").to_numpy()
        first = tables == 0
        # as floats first, because the sum of 64-bit integers may overflow
        are_many = sizes[first].sum() > MOST_RECORDS or counts[first].sum() > MOST_RECORDS
        if result.get_column("refused").to_numpy().any() or are_many:
            raise rows.error()
    if (cells < 0).any():
        raise _misfit(int(cells.min()), codings)
    sizes = np.diff(specification.offsets)
    is_inside = (cells < sizes[tables]).all()
    remedy = "collect the data, and pass them in memory"
    given = "one outside from the data's engine"
    require(is_inside, "each record", "be in a cell of its table", given, remedy, error=DataError)
    flat = np.zeros(specification.size, dtype=np.int64)
    np.add.at(flat, np.asarray(specification.offsets)[tables] + cells, counts)
    sums = np.bincount(tables, weights=counts, minlength=len(sizes))
    given = "different numbers from the data's engine"
    remedy = "a query must give the same rows each time (no sampling, no unordered limit), or store its result first"
    require(
        (sums == sums[0]).all(),
        "each table",
        "count the same records",
        given,
        remedy,
        error=DataError,
    )
    return flat, int(sums[0])


def _code_expression(coding: Coding, value: Any, dtype: Any, place: int) -> Any:
    """Return the code of a lazy column's value as an expression, or its negative mark.

    With S states, a match with state k adds S + k. A sum below S means no match, S to 2S - 1 one match, and more
    several matches.
    """
    import narwhals.stable.v2 as nw

    states = len(coding.states)
    missing, undeclared, several = (-(3 * place + kind) for kind in (1, 2, 3))
    exact = {position: _literal(dtype, label) for position, label in enumerate(coding.states)}
    # a day is also found in its other form, date or midnight, unless that is declared as well
    declared = set(map(label_key, coding.states))
    for position, label in enumerate(coding.states):
        other = other_form(label)
        if exact[position] is None and other is not None and label_key(other) not in declared:
            exact[position] = _literal(dtype, other)
    # otherwise a literal could be rounded
    if dtype.is_float():
        seen = value.cast(nw.Float64)
    else:
        seen = value
    hits = [
        (seen == label).cast(nw.Int64) * (states + position)
        for position, label in exact.items()
        if label is not None
    ]
    code = nw.lit(undeclared if coding.other is None else coding.other, dtype=nw.Int64)
    if hits:
        sum_of_hits = nw.sum_horizontal(*hits)
        one = nw.when(sum_of_hits < 2 * states).then(sum_of_hits - states)
        one = one.otherwise(nw.lit(several, dtype=nw.Int64))
        code = nw.when(sum_of_hits < states).then(code).otherwise(one)
    if dtype.is_float():
        is_missing = value.is_null() | value.is_nan()
    else:
        is_missing = value.is_null()
    if coding.missing is None:
        absent = missing
    else:
        absent = coding.missing
    return nw.when(is_missing).then(nw.lit(absent, dtype=nw.Int64)).otherwise(code)


def _literal(dtype: Any, label: Label) -> Any:
    """Return the label as a value of a column of this type, or None where the column cannot hold it exactly.

    A label that the engine would have to round or convert is left out: two labels could become one value, and a
    record would match two states.
    """
    kind = type_name(dtype)
    if kind == "Boolean":
        if label_fits(label, is_boolean=True):
            return label
        return None
    if dtype.is_numeric():
        if label_fits(label, is_boolean=False):
            return _number_literal(dtype, label)
        return None
    if kind in {"String", "Categorical", "Enum"}:
        return label if isinstance(label, str) else None
    if kind == "Datetime":
        fits = isinstance(label, datetime.datetime) and (label.tzinfo is None) == (
            dtype.time_zone is None
        )
        return label if fits else None
    if kind == "Date":
        is_day = isinstance(label, datetime.date) and not isinstance(label, datetime.datetime)
        return label if is_day else None
    times = {"Time": datetime.time, "Duration": datetime.timedelta}
    if kind in times and isinstance(label, times[kind]):
        return label
    return None


def _number_literal(dtype: Any, label: Any) -> Any:
    if dtype.is_integer():
        if label == int(label):
            return int(label)
        return None
    if dtype.is_float():
        if float(label) == label:
            return float(label)
        return None
    if isinstance(label, Decimal):
        return label
    ratio = Fraction(label)
    decimal = Decimal(ratio.numerator) / Decimal(ratio.denominator)
    if Fraction(decimal) == ratio:
        return decimal
    return None


def _misfit(cell: int, codings: list[Coding]) -> DataError:
    place, kind = divmod(-cell - 1, 3)
    if kind == 2:
        return DataError(
            f"each value of column {codings[place].variable!r} must be one declared state, but in the data's engine "
            "some equal several; check the collation and type of the column, or declare one of the states."
        )
    if kind == 1:
        return undeclared_error(codings[place])
    return missing_error(codings[place])


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
    (DuckDB, Polars, Ibis, PySpark, ...) its engine runs one query of group-bys, which is collected once.

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
        two declared states for one value, or fails. The engine's own error is withheld, in the message and in the
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
    domain = specification.domain
    frame = frame_of(data, [*domain.variables, *([] if rows is None else [rows.column])], domain)
    if rows is None:
        warn_of_counts(data, domain.variables)
    codings = codings_of(domain, missing, other, data)

    def read() -> tuple[IntArray, int]:
        import narwhals.stable.v2 as nw

        columns = match_columns(domain.variables, column_names(data, frame))
        if isinstance(frame, nw.LazyFrame):
            return count_where_the_data_is(specification, data, frame, codings, columns, rows)
        if rows is None:
            units = None
        else:
            units = rows.units(data, frame)
        counted = frame
        if rows is not None and units is not None and rows.leaves_out_zeros:
            present = np.flatnonzero(units)
            counted = frame[present]
            units = units[present]
        codes = in_memory_codes(counted, codings, columns)
        flat = np.zeros(specification.size, dtype=np.int64)
        for position, clique in enumerate(specification.cliques):
            start, stop = specification.offsets[position : position + 2]
            _add_bins(
                [codes[v] for v in clique], specification.shapes[position], flat[start:stop], units
            )
        return flat, len(counted) if units is None else int(units.sum())

    flat, records = guarded("counting", read)
    refuse_impossible(specification, flat)
    return ExactCounts(flat=flat, records=records)


def _add_bins(
    codes: list[np.ndarray], shape: tuple[int, ...], table: IntArray, units: IntArray | None
) -> None:
    """Add each row to its cell, in C order and in chunks, so that the positions of cells stay in cache.

    Units are added up as floats, which is exact because they are whole numbers with a sum of at most 2^53.
    """
    chunk = max(CHUNK, 4 * table.size)
    for start in range(0, codes[0].size, chunk):
        cells = codes[0][start : start + chunk].astype(np.intp)
        for more, states in zip(codes[1:], shape[1:], strict=True):
            cells *= states
            cells += more[start : start + chunk]
        if units is None:
            weights = None
        else:
            weights = units[start : start + chunk]
        table += np.bincount(cells, weights, minlength=table.size).astype(np.int64, copy=False)


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
