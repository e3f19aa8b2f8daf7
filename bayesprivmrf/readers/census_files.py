"""The files of the census layout: a folder for each level of areas, in it queries and constraints by partition."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesprivmrf.checks import file_path
from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, DataError
from bayesprivmrf.readers.columns import csv_columns, near, number_of, or_near

# columns that a file must have
_NEEDED = ("geocode", "query_name", "value", "variance")
# columns that a file may have
_OPTIONAL = ("query_shape", "sign")


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """The noisy numbers of one query in one area.

    Parameters
    ----------
    values
        The query's numbers, in C order of its axes.
    variance
        The variance of each number's noise, records squared; 0 for a constraint.
    shape
        Numbers an axis of the whole histogram, 1 where it is summed over; None where the file does not say.
    sign
        The sign of a constraint: ``=``, ``<=`` or ``>=``; empty where the file does not say.
    """

    values: tuple[float, ...]
    variance: float
    shape: tuple[int, ...] | None
    sign: str


@dataclass(frozen=True, kw_only=True)
class LevelFiles:
    """The content of one level's files.

    Parameters
    ----------
    level
        Its name, as the folder has it.
    geocodes
        All areas that are there.
    names
        All queries that are there.
    answers
        Those asked for, by geocode and query.
    """

    level: str
    geocodes: frozenset[str]
    names: frozenset[str]
    answers: Mapping[tuple[str, str], Answers]


def level_files(
    source: str | os.PathLike[str],
    level: str,
    part: str,
    *,
    state: str | None,
    names: Collection[str],
    geocodes: Collection[str] | None,
) -> LevelFiles:
    """Read a level's noisy queries, or its constraints.

    Parameters
    ----------
    source
        The folder that holds the levels' folders, such as ``Tract.parquet``.
    level, part
        The level, and ``"DPQuery"`` or ``"Constraint"``.
    state
        The partition ``State=...`` to read; None reads all.
    names, geocodes
        Queries and areas wanted; None for no area: only what is there is said.

    Raises
    ------
    DataError
        Folder, files or columns are missing, or a query is there twice for one area.
    """
    found_geocodes: set[str] = set()
    found_names: set[str] = set()
    answers: dict[tuple[str, str], Answers] = {}
    for file in _files(_folder(source, level, part), state):
        columns = _columns(file)
        codes, queries = [str(code) for code in columns["geocode"]], [str(n) for n in columns["query_name"]]
        found_geocodes.update(codes)
        found_names.update(queries)
        for row, key in enumerate(zip(codes, queries, strict=True)):
            if key[1] not in names or geocodes is None or key[0] not in geocodes:
                continue
            if key in answers:
                raise DataError(
                    f"the files of the level {level!r} must have each query once for each area, got {key[1]!r} twice "
                    "for one; remove the copy."
                )
            answers[key] = _answers(columns, row, key[1])
    return LevelFiles(
        level=level, geocodes=frozenset(found_geocodes), names=frozenset(found_names), answers=answers
    )


def _folder(source: str | os.PathLike[str], level: str, part: str) -> Path:
    root = file_path("source", source)
    try:
        is_folder = root.is_dir()
    except (OSError, ValueError):  # a name that no file can have
        is_folder = False
    if not is_folder:
        raise DataError(
            f"`source` must be the folder that holds the levels' folders, got no folder {root.name!r}."
        )
    levels = {each.name.split(".")[0]: each for each in sorted(root.iterdir()) if each.is_dir()}
    if level not in levels:
        raise DataError(
            f"`source` must hold a folder for the level {level!r}, such as {level + '.parquet'!r}, got "
            f"{', '.join(map(repr, levels)) or 'none'}{or_near(level, levels)}."
        )
    folder = levels[level] / part
    if not folder.is_dir():
        raise DataError(f"the level {level!r} must have a folder {part!r}, got none.")
    return folder


def _files(folder: Path, state: str | None) -> list[Path]:
    partitions = sorted({each.name for each in folder.iterdir() if each.is_dir() and "=" in each.name})
    if state is not None:
        if f"State={state}" not in partitions:
            raise DataError(
                f"`state` must be one of the partitions, got {state!r}; there are {', '.join(partitions) or 'none'}."
            )
        folder = folder / f"State={state}"
    files = sorted(each for kind in ("parquet", "csv") for each in folder.rglob(f"*.{kind}"))
    if not files:
        raise DataError(f"the folder {folder.name!r} must hold files *.parquet or *.csv, got none.")
    return files


def _columns(file: Path) -> dict[str, Sequence[Any]]:
    columns = csv_columns(file) if file.suffix == ".csv" else _parquet_columns(file)
    for name in _NEEDED:
        if name not in columns:
            raise DataError(
                f"the file {file.name!r} must have a column {name!r}, got none{or_near(name, columns)}."
            )
    for name in _OPTIONAL:
        other = near(name, [column for column in columns if column not in (*_NEEDED, *_OPTIONAL)])
        if name not in columns and other is not None:
            raise DataError(
                f"the file {file.name!r} has no column {name!r}; {other!r} is near, is it meant? Rename it."
            )
    return columns


def _parquet_columns(file: Path) -> dict[str, Sequence[Any]]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise BayesPrivMRFError(
            "files in parquet are read with the package pyarrow, which is not installed; install it, or write the "
            "files as CSV with the lists of `value` in JSON."
        ) from None
    try:
        opened = pyarrow.parquet.ParquetFile(file)
        wanted = [n for n in opened.schema_arrow.names if n in (*_NEEDED, *_OPTIONAL)]
        table = opened.read(columns=wanted if len(set(wanted) & set(_NEEDED)) == len(_NEEDED) else None)
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{file.name!r} cannot be read as parquet: {type(error).__name__}.") from None
    # lists stay Arrow's until a row is wanted: a level of blocks has millions
    return {name: table.column(name) for name in table.column_names} | {
        name: table.column(name).to_pylist()
        for name in ("geocode", "query_name")
        if name in table.column_names
    }


def _answers(columns: Mapping[str, Sequence[Any]], row: int, name: str) -> Answers:
    def entry(column: str) -> Any:
        value: Any = columns[column][row] if column in columns else None
        return value.as_py() if hasattr(value, "as_py") else value

    values = _listed(entry("value"), name)
    shape = entry("query_shape")
    variance = number_of(f"the variances of {name!r}", entry("variance"))
    if variance < 0:
        raise DataError(f"the variances of {name!r} must not be negative, got one that is.")
    return Answers(
        values=tuple(number_of(f"the values of {name!r}", value) for value in values),
        variance=variance,
        shape=None if shape is None or shape == "" else tuple(int(size) for size in _listed(shape, name)),
        sign=str(entry("sign") or "").strip(),
    )


def _listed(value: Any, name: str) -> list[Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if isinstance(value, int | float):
        value = [value]
    if not isinstance(value, Sequence) and not hasattr(value, "tolist"):
        raise DataError(
            f"the values and shapes of {name!r} must be lists of numbers, in a CSV file as [1, 2, 3], got "
            f"something else."
        )
    return list(value)


def require_names(what: str, names: Collection[str], files: LevelFiles) -> None:
    """Raise where the files have no query of a name; the error names a near one."""
    for name in names:
        if name not in files.names:
            raise ArgumentError(
                f"{what} must name queries of the files, but the level {files.level!r} has no {name!r}"
                f"{or_near(name, files.names)}; it has {', '.join(map(repr, sorted(files.names)))}."
            )
