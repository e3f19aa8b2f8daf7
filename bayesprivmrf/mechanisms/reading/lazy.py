"""Counting where the data is: the query of a lazy frame, and the checks of what it brings back."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from bayesprivmrf.errors import DataError
from bayesprivmrf.mechanisms.reading.coding import (
    Coding,
    label_fits,
    missing_error,
    type_name,
    undeclared_error,
)
from bayesprivmrf.mechanisms.reading.persons import Persons
from bayesprivmrf.mechanisms.reading.row_counts import MOST_RECORDS, Counts
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.model.tables import IntArray


def count_where_the_data_is(
    specification: ModelSpecification,
    data: Any,
    frame: Any,
    codings: list[Coding],
    columns: Mapping[Variable, Any],
    rows: Persons | Counts | None = None,
) -> tuple[IntArray, int]:
    """Return the counts of a lazy frame and its number of records, from one query collected once.

    There is one group-by a table, codes are expressions, and the tables' results are united.

    A record that does not fit goes to a negative cell, -(3 v + 1) where variable v is missing, -(3 v + 2) where
    it is undeclared and -(3 v + 3) where the engine finds it equal to several states, so that the one query also
    carries the checks. Sensitivity rests on each record being in one cell of each table: what comes back is
    checked against that, whatever the engine did.
    """
    import narwhals.stable.v2 as nw

    schema = frame.collect_schema()
    units: Any = None
    refused: Any = None
    if rows is not None:
        frame, units, refused = rows.of_query(data, frame, list(columns.values()))
    place_of = {coding.variable: place for place, coding in enumerate(codings)}
    parts = []
    for position, (clique, shape) in enumerate(zip(specification.cliques, specification.shapes, strict=True)):
        keys = [f"k{axis}" for axis in range(len(clique))]
        own = [nw.col(columns[v]).alias(key) for v, key in zip(clique, keys, strict=True)]
        if units is None:
            groups = frame.select(*own).group_by(*keys).agg(nw.len().alias("n"))
            sums = (nw.col("n").cast(nw.Int64), nw.lit(0.0).alias("size"), nw.lit(0).alias("refused"))
        else:
            own += [units.alias("n"), units.cast(nw.Float64).alias("size"), refused.alias("refused")]
            groups = frame.select(*own).group_by(*keys).agg(nw.col("n", "size", "refused").sum())
            sums = (nw.col("n").cast(nw.Int64), nw.col("size"), nw.col("refused").cast(nw.Int64))
        # labels become codes after grouping, on as many rows as the table has cells, not as there are records
        codes = [
            _code_expression(codings[place_of[v]], nw.col(key), schema[columns[v]], place_of[v]).alias(key)
            for v, key in zip(clique, keys, strict=True)
        ]
        coded = groups.select(*codes, *sums)
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        cell = nw.sum_horizontal(*[nw.col(key) * stride for key, stride in zip(keys, strides, strict=True)])
        # Spark takes the least of two columns at least
        worst = nw.min_horizontal(*keys) if len(keys) > 1 else nw.col(*keys)
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
        sizes, first = result.get_column("size").to_numpy(), tables == 0
        # as floats first, for whole numbers of 64 bits may overflow
        are_many = sizes[first].sum() > MOST_RECORDS or counts[first].sum() > MOST_RECORDS
        if result.get_column("refused").to_numpy().any() or are_many:
            raise rows.error()
    if (cells < 0).any():
        raise _misfit(int(cells.min()), codings)
    sizes = np.diff(specification.offsets)
    if (cells >= sizes[tables]).any():
        raise DataError("the data's engine put a record outside its table; hand the records over in memory.")
    flat = np.zeros(specification.size, dtype=np.int64)
    np.add.at(flat, np.asarray(specification.offsets)[tables] + cells, counts)
    sums = np.bincount(tables, weights=counts, minlength=len(sizes))
    if (sums != sums[0]).any():
        raise DataError(
            "each table must count the same records, but the data's engine gave other ones to some; "
            "a query must give the same rows each time (no sampling, no unordered limit): store its result first."
        )
    return flat, int(sums[0])


def _code_expression(coding: Coding, value: Any, dtype: Any, place: int) -> Any:
    """Return the code of a lazy column's value as an expression, or its negative mark.

    With S states, a hit on state k adds S + k: below S is none, S to 2S - 1 is one, more is several.
    """
    import narwhals.stable.v2 as nw

    states = len(coding.states)
    missing, undeclared, several = (-(3 * place + kind) for kind in (1, 2, 3))
    exact = {position: _literal(dtype, label) for position, label in enumerate(coding.states)}
    seen = value.cast(nw.Float64) if dtype.is_float() else value  # a narrower literal would be rounded
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
    is_missing = value.is_null() | value.is_nan() if dtype.is_float() else value.is_null()
    absent = missing if coding.missing is None else coding.missing
    return nw.when(is_missing).then(nw.lit(absent, dtype=nw.Int64)).otherwise(code)


def _literal(dtype: Any, label: Label) -> Any:
    """Return the label as a value of a column of this type, or None where the column cannot hold it exactly.

    Labels are what they are in Python, so a label is left out where the engine would have to round or convert it:
    two labels would become one value, and a record be found in two states.
    """
    kind = type_name(dtype)
    if kind == "Boolean":
        return label if label_fits(label, is_boolean=True) else None
    if dtype.is_numeric():
        return _number_literal(dtype, label) if label_fits(label, is_boolean=False) else None
    if kind in {"String", "Categorical", "Enum"}:
        return label if isinstance(label, str) else None
    if kind == "Datetime":
        fits = isinstance(label, datetime.datetime) and (label.tzinfo is None) == (dtype.time_zone is None)
        return label if fits else None
    if kind == "Date":
        is_day = isinstance(label, datetime.date) and not isinstance(label, datetime.datetime)
        return label if is_day else None
    times = {"Time": datetime.time, "Duration": datetime.timedelta}
    return label if kind in times and isinstance(label, times[kind]) else None


def _number_literal(dtype: Any, label: Any) -> Any:
    if dtype.is_integer():
        return int(label) if label == int(label) else None
    if dtype.is_float():
        return float(label) if float(label) == label else None
    if isinstance(label, Decimal):
        return label
    ratio = Fraction(label)
    decimal = Decimal(ratio.numerator) / Decimal(ratio.denominator)
    return decimal if Fraction(decimal) == ratio else None


def _misfit(cell: int, codings: list[Coding]) -> DataError:
    place, kind = divmod(-cell - 1, 3)
    if kind == 2:
        return DataError(
            f"each value of column {codings[place].variable!r} must be one declared state, but the data's engine "
            "finds some equal to several; check the column's collation and type, or declare one of the states."
        )
    return undeclared_error(codings[place]) if kind == 1 else missing_error(codings[place])
