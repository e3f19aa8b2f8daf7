"""Counting records in memory: codes column by column, then bins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesprivmrf.mechanisms.reading.coding import CHUNK, Coding, missing_error, undeclared_error
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Variable
from bayesprivmrf.model.tables import IntArray


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


def without_empty_rows(frame: Any, units: IntArray) -> tuple[Any, IntArray]:
    """Return the rows of an eager narwhals frame that stand for at least one record, and their numbers of records."""
    held = np.flatnonzero(units)
    return (frame, units) if held.size == units.size else (frame[held], units[held])


def in_memory_codes(
    frame: Any, codings: list[Coding], columns: Mapping[Variable, Any]
) -> dict[Variable, np.ndarray]:
    """Return the codes of each declared column of an eager narwhals frame, by variable."""
    codes = _polars_text_codes(frame, codings, columns)
    for coding in codings:
        if coding.variable not in codes:
            codes[coding.variable] = coding.encode(frame.get_column(columns[coding.variable]))
    return codes


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
