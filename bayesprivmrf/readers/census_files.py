"""The files of the census layout: a folder for each level of areas, in it queries and constraints by partition.

One query or constraint of the census's noisy measurement files, read as a measurement.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bayesprivmrf.checks import file_path
from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, DataError, ModelError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.noise import NoiseLaw, Within
from bayesprivmrf.queries import Query
from bayesprivmrf.readers.columns import Groups, csv_columns, near, number_of, or_near, query_of
from bayesprivmrf.release import Measurement
from bayesprivmrf.release.given import by_law, law_of_variance

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


# spellings of each sign of a constraint
_SPELT = {"=": ("", "=", "==", "eq"), "<=": ("<=", "le", "ub"), ">=": (">=", "ge", "lb")}
_SIGNS = {spelt: sign for sign, ways in _SPELT.items() for spelt in ways}
"""Meaning of a constraint's sign, or, where the files have none, of a part of its name."""


@dataclass(frozen=True, kw_only=True)
class AskedQuery:
    """One query or constraint of the files, for all areas of a level."""

    model: ModelSpecification
    area: Variable | None
    kind: type[NoiseLaw]
    name: str
    axes: Sequence[Variable | None]
    groups: Groups
    exact: bool

    def is_bound(self, areas: Mapping[str, Sequence[Label]], files: LevelFiles) -> bool:
        """Whether it bounds counts, in some area."""
        answers = (files.answers.get((code, self.name)) for code in areas)
        return self.exact and any(each is not None and self._sign(each.sign) != "=" for each in answers)

    def measurements(
        self, areas: Mapping[str, Sequence[Label]], files: LevelFiles, *, most: int = 0
    ) -> list[Measurement]:
        """Return the level's answers as one measurement, or several where the areas differ in their noise.

        `most` is the largest number of people that a count may be.
        """
        values, laws = [], []
        for code in areas:
            if (code, self.name) not in files.answers:
                raise DataError(
                    f"the level {files.level!r} must have the query {self.name!r} for the area {code!r}, got none; "
                    "leave the query or the area out."
                )
            answers = files.answers[code, self.name]
            numbers, law = self._summed(answers)
            sign = self._sign(answers.sign) if self.exact else "="
            if sign == "=":
                values.append(numbers)
                laws += [law] * numbers.size
                continue
            pairs = [_within(number, sign, most) for number in numbers]
            values.append(np.array([value for value, _ in pairs]))
            laws += [law for _, law in pairs]
        return by_law(self.model, self._query(areas), np.concatenate(values), laws)

    @property
    def _scope(self) -> tuple[Variable, ...]:
        return tuple(variable for variable in self.axes if variable is not None)

    def _query(self, areas: Mapping[str, Sequence[Label]]) -> Query:
        """Return the query on the model, with the area as its first axis where it is a variable."""
        scope, groups = self._scope, dict(self.groups)
        if self.area is None:
            return query_of(self.model, scope, groups)
        states = self.model.domain.states_of(self.area)
        if [tuple(held) for held in areas.values()] != [(label,) for label in states]:
            groups[self.area] = {code: labels for code, labels in areas.items()}  # noqa: C416
        return query_of(self.model, (self.area, *scope), groups)

    def _summed(self, answers: Answers) -> tuple[np.ndarray, NoiseLaw]:
        """Return one area's answers, summed over the axes that the model does not have, and their law."""
        shape, summed = self._shape(answers)
        table = np.array(answers.values).reshape(shape)
        law = law_of_variance(self.kind, 0.0 if self.exact else answers.variance)
        times = math.prod(shape[axis] for axis in summed)
        return table.sum(axis=summed).ravel(), law.summed(times)

    def _shape(self, answers: Answers) -> tuple[list[int], tuple[int, ...]]:
        """Return the shape of the file's table, and which axes are summed over."""
        domain, groups = self.model.domain, self.groups
        sizes = [None if v is None else len(groups.get(v, domain.states_of(v))) for v in self.axes]
        summed = tuple(axis for axis, size in enumerate(sizes) if size is None)
        whole = answers.shape or ()
        if not summed:
            shape = [size for size in sizes if size is not None]
            own, file = [size for size in shape if size != 1], [size for size in whole if size != 1]
            if len(own) == len(file) and own != file and math.prod(own) == len(answers.values):
                raise DataError(
                    f"the query {self.name!r} must have axes of {own} states, as declared, got {file} in the "
                    "files; write its axes in the file's order."
                )
        elif len(whole) == len(sizes):
            shape = [int(size) for size in whole]
        elif len(summed) == 1:
            others = math.prod(size for size in sizes if size is not None)
            shape = [size or len(answers.values) // others for size in sizes]
        else:
            raise ArgumentError(
                f"the axes of {self.name!r} must be as many as its `query_shape` in the files, {len(whole)}, to tell "
                f"which are summed over, got {len(sizes)}."
            )
        fits = all(size in (None, own) for size, own in zip(sizes, shape, strict=True))
        if not fits or math.prod(shape) != len(answers.values):
            raise DataError(
                f"the query {self.name!r} must have "
                f"{' x '.join('any' if s is None else str(s) for s in sizes) or 1} "
                f"numbers, as its axes have states, got {len(answers.values)}"
                f"{f' of shape {whole}' if whole else ''}; declare the states of the file, in its order."
            )
        return shape, summed

    def _sign(self, sign: str) -> str:
        """Return ``=``, ``<=`` or ``>=``; where the files do not say, by the name."""
        words = set() if sign else {"lb", "ub"} & set(self.name.split("_"))
        spelt = _SIGNS.get("".join(words) or sign.lower())
        if spelt is None or len(words) > 1:
            raise DataError(
                f"the constraint {self.name!r} must have a sign among {', '.join(filter(None, _SIGNS))}, got "
                "another; leave it out of `constraints`: what is left is a valid, less informed release."
            )
        return spelt


def _within(bound: float, sign: str, most: int) -> tuple[float, NoiseLaw]:
    """Return the value and the law of a count that is at most, or at least, a bound."""
    lower, upper = (0.0, min(bound, most)) if sign == "<=" else (max(bound, 0.0), most)
    if not 0 <= lower <= upper:
        raise ModelError(
            "bounds must leave some number of people, but one is below zero, or above all people."
        )
    return Within.between(math.ceil(lower), math.floor(upper))
