"""Files of the census layout, and the measurements of one query or constraint in them.

A level of areas has a folder with its queries and constraints, which may be divided into partitions.
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
from bayesprivmrf.noise import NoiseDistribution, Within
from bayesprivmrf.queries import Query
from bayesprivmrf.readers.columns import Groups, csv_columns, near, number_of, or_near, query_of
from bayesprivmrf.release import Measurement
from bayesprivmrf.release.given import measurements_by_noise, noise_of_variance

# Required columns of a file
_NEEDED = ("geocode", "query_name", "value", "variance")
# Optional columns of a file
_OPTIONAL = ("query_shape", "sign")


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """Noisy numbers of one query in one area.

    Parameters
    ----------
    values
        The query's numbers, in C order of its axes.
    variance
        Variance of the noise of each number, records squared; 0 for a constraint.
    shape
        Length of each axis of the whole histogram, 1 if it is summed over; None if the file does not state it.
    sign
        The sign of a constraint: ``=``, ``<=`` or ``>=``; empty if the file does not state it.
    """

    values: tuple[float, ...]
    variance: float
    shape: tuple[int, ...] | None
    sign: str


@dataclass(frozen=True, kw_only=True)
class LevelFiles:
    """Content of the files of one level.

    Parameters
    ----------
    level
        Name of the level's folder.
    geocodes
        All areas in the files.
    names
        All queries in the files.
    answers
        The requested answers, by geocode and query.
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
    """Read the noisy queries of a level, or its constraints.

    Parameters
    ----------
    source
        The folder that contains the folders of the levels, such as ``Tract.parquet``.
    level, part
        The level, and ``"DPQuery"`` or ``"Constraint"``.
    state
        The partition ``State=...`` to read; None reads all.
    names, geocodes
        The requested queries and areas. With None for `geocodes`, only the names and geocodes are read.

    Raises
    ------
    DataError
        The folder, files or columns are missing, or an area has a query twice.
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
                    f"the files of the level {level!r} must have each query once for each area, but one area has "
                    f"{key[1]!r} twice; remove the copy."
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
            f"`source` must be the folder that contains the folders of the levels, but {root.name!r} is not a folder."
        )
    levels = {each.name.split(".")[0]: each for each in sorted(root.iterdir()) if each.is_dir()}
    if level not in levels:
        raise DataError(
            f"`source` must contain a folder for the level {level!r}, such as {level + '.parquet'!r}, got "
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
        raise DataError(f"the folder {folder.name!r} must contain files *.parquet or *.csv, got none.")
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
                f"the file {file.name!r} has no column {name!r}, but one with the similar name {other!r}; rename it "
                f"to {name!r} if that is meant, and otherwise to something else."
            )
    return columns


def _parquet_columns(file: Path) -> dict[str, Sequence[Any]]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise BayesPrivMRFError(
            "reading parquet files needs the package pyarrow, which is not installed; install it, or write the files "
            "as CSV with the lists of `value` in JSON."
        ) from None
    try:
        opened = pyarrow.parquet.ParquetFile(file)
        wanted = [n for n in opened.schema_arrow.names if n in (*_NEEDED, *_OPTIONAL)]
        table = opened.read(columns=wanted if len(set(wanted) & set(_NEEDED)) == len(_NEEDED) else None)
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{file.name!r} cannot be read as parquet: {type(error).__name__}.") from None
    # each list stays an Arrow value until its row is read, because a level of blocks has millions of rows
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
        raise DataError(f"the variances of {name!r} must be at least 0, got a negative one.")
    return Answers(
        values=tuple(number_of(f"the values of {name!r}", value) for value in values),
        variance=variance,
        shape=None if shape is None or shape == "" else tuple(int(size) for size in _listed(shape, name)),
        sign=str(entry("sign") or "").strip(),
    )


def _listed(value: Any, name: str) -> list[Any]:
    """Return a list of numbers, which a CSV file writes in JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if isinstance(value, int | float):
        value = [value]
    if not isinstance(value, Sequence) and not hasattr(value, "tolist"):
        raise DataError(
            f"the values and shapes of {name!r} must be lists of numbers, in a CSV file written as [1, 2, 3]."
        )
    return list(value)


def require_names(what: str, names: Collection[str], files: LevelFiles) -> None:
    """Raise an error if the files lack a query; the message offers a similar name."""
    for name in names:
        if name not in files.names:
            raise ArgumentError(
                f"{what} must name queries of the files, but the level {files.level!r} has no {name!r}"
                f"{or_near(name, files.names)}; it has {', '.join(map(repr, sorted(files.names)))}."
            )


# Spellings of the signs of constraints; "ub" and "lb" are parts of the name in files without signs
_SIGNS: dict[str, str] = {
    **dict.fromkeys(("", "=", "==", "eq"), "="),
    **dict.fromkeys(("<=", "le", "ub"), "<="),
    **dict.fromkeys((">=", "ge", "lb"), ">="),
}


@dataclass(frozen=True, kw_only=True)
class AskedQuery:
    """Query or constraint to read from the files, for all areas of a level."""

    model: ModelSpecification
    area: Variable | None
    kind: type[NoiseDistribution]
    name: str
    axes: Sequence[Variable | None]
    groups: Groups
    exact: bool

    def is_bound(self, areas: Mapping[str, Sequence[Label]], files: LevelFiles) -> bool:
        """Return True if it is a constraint that bounds counts in some area."""
        answers = (files.answers.get((code, self.name)) for code in areas)
        return self.exact and any(each is not None and self._sign(each.sign) != "=" for each in answers)

    def measurements(
        self, areas: Mapping[str, Sequence[Label]], files: LevelFiles, *, most: int = 0
    ) -> list[Measurement]:
        """Return the answers of a level as one measurement, or as several if the areas differ in their noise.

        `most` is the largest possible count.
        """
        values, noise = [], []
        for code in areas:
            if (code, self.name) not in files.answers:
                raise DataError(
                    f"the level {files.level!r} must have the query {self.name!r} for the area {code!r}, got none; "
                    "leave out the query or the area."
                )
            answers = files.answers[code, self.name]
            numbers, distribution = self._summed(answers)
            sign = self._sign(answers.sign) if self.exact else "="
            if sign == "=":
                values.append(numbers)
                noise += [distribution] * numbers.size
                continue
            pairs = [_within(number, sign, most) for number in numbers]
            values.append(np.array([value for value, _ in pairs]))
            noise += [distribution for _, distribution in pairs]
        return measurements_by_noise(self.model, self._query(areas), np.concatenate(values), noise)

    @property
    def _scope(self) -> tuple[Variable, ...]:
        return tuple(variable for variable in self.axes if variable is not None)

    def _query(self, areas: Mapping[str, Sequence[Label]]) -> Query:
        """Return the query on the model; its first axis is the area if the model has a variable for it."""
        scope, groups = self._scope, dict(self.groups)
        if self.area is None:
            return query_of(self.model, scope, groups)
        states = self.model.domain.states_of(self.area)
        if [*map(tuple, areas.values())] != [(label,) for label in states]:
            groups[self.area] = {code: labels for code, labels in areas.items()}  # noqa: C416
        return query_of(self.model, (self.area, *scope), groups)

    def _summed(self, answers: Answers) -> tuple[np.ndarray, NoiseDistribution]:
        """Return the answers of one area, summed over the axes that the model lacks, and their noise distribution."""
        shape, summed = self._shape(answers)
        table = np.array(answers.values).reshape(shape)
        noise = noise_of_variance(self.kind, 0.0 if self.exact else answers.variance)
        times = math.prod(shape[axis] for axis in summed)
        return table.sum(axis=summed).ravel(), noise.summed(times)

    def _shape(self, answers: Answers) -> tuple[list[int], tuple[int, ...]]:
        """Return the shape of the table in the file, and the axes that are summed over."""
        domain, groups = self.model.domain, self.groups
        sizes = [None if v is None else len(groups.get(v, domain.states_of(v))) for v in self.axes]
        summed = tuple(axis for axis, size in enumerate(sizes) if size is None)
        whole = answers.shape or ()
        if not summed:
            shape = [size for size in sizes if size is not None]
            own, file = [size for size in shape if size != 1], [size for size in whole if size != 1]
            if len(own) == len(file) and own != file and math.prod(own) == len(answers.values):
                raise DataError(
                    f"the query {self.name!r} must have axes of {own} states, as declared, but they have {file} in "
                    "the files; write its axes in the file's order."
                )
        elif len(whole) == len(sizes):
            shape = [int(size) for size in whole]
        elif len(summed) == 1:
            others = math.prod(size for size in sizes if size is not None)
            shape = [size or len(answers.values) // others for size in sizes]
        else:
            raise ArgumentError(
                f"{self.name!r} must have as many axes as its `query_shape` in the files, {len(whole)}, because two "
                f"or more are summed over, got {len(sizes)}."
            )
        fits = all(size in (None, own) for size, own in zip(sizes, shape, strict=True))
        if not fits or math.prod(shape) != len(answers.values):
            raise DataError(
                f"the query {self.name!r} must have "
                f"{' x '.join('any' if s is None else str(s) for s in sizes) or 1} "
                f"numbers, one for each combination of its axes' states, got {len(answers.values)}"
                f"{f' of shape {whole}' if whole else ''}; declare the states of the file, in its order."
            )
        return shape, summed

    def _sign(self, sign: str) -> str:
        """Return ``=``, ``<=`` or ``>=``, from the file's sign or, without one, from the name."""
        words = set() if sign else {"lb", "ub"} & set(self.name.split("_"))
        meant = _SIGNS.get("".join(words) or sign.lower())
        if meant is None or len(words) > 1:
            raise DataError(
                f"the constraint {self.name!r} must have a sign among {', '.join(filter(None, _SIGNS))}, got "
                "another; leave it out of `constraints`: the remaining measurements are a valid, less informative "
                "release."
            )
        return meant


def _within(bound: float, sign: str, most: int) -> tuple[float, NoiseDistribution]:
    """Return the value and the noise distribution of a count with an upper or a lower bound."""
    lower, upper = (0.0, min(bound, most)) if sign == "<=" else (max(bound, 0.0), most)
    if not 0 <= lower <= upper:
        raise ModelError(
            "bounds must allow some number of people, but an upper bound is below 0 or a lower bound exceeds the "
            "total."
        )
    return Within.between(math.ceil(lower), math.floor(upper))
