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

from bayesprivmrf.checks import file_path, require
from bayesprivmrf.errors import DataError, ModelError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.noise import NoiseDistribution, Within
from bayesprivmrf.readers.columns import (
    Groups,
    chosen_columns,
    csv_columns,
    number_of,
    or_near,
    query_of,
)
from bayesprivmrf.release import Measurement
from bayesprivmrf.release.given import measurements_by_noise, noise_of_variance

# Columns of a file: `value` holds the query's numbers in C order of its axes, `variance` that of each number's noise,
# `query_shape` the length of each axis of the whole histogram (1 if summed over), and `sign` that of a constraint
_NEEDED = ("geocode", "query_name", "value", "variance")
# All columns that are read
_COLUMNS = (*_NEEDED, "query_shape", "sign")

type Row = Mapping[str, Any]
"""Entries of one query in one area."""


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
    answers: Mapping[tuple[str, str], Row]


def level_files(
    source: str | os.PathLike[str],
    level: str,
    part: str,
    *,
    state: str | None,
    names: Collection[str],
    geocodes: Collection[str],
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
        The requested queries and areas.

    Raises
    ------
    DataError
        The folder, files or columns are missing, or an area has a query twice.
    """
    import pandas as pd

    found_geocodes: set[str] = set()
    found_names: set[str] = set()
    answers: dict[tuple[str, str], Row] = {}
    for file in _files(source, level, part, state):
        wanted = {name: name for name in _COLUMNS}
        columns = chosen_columns(f"the file {file.name!r}", csv_columns(file), wanted, _NEEDED)
        frame: Any = pd.DataFrame(columns, dtype=object).astype({"geocode": str, "query_name": str})
        found_geocodes.update(frame["geocode"])
        found_names.update(frame["query_name"])
        asked = frame[frame["geocode"].isin(list(geocodes)) & frame["query_name"].isin(list(names))]
        for row in asked.to_dict("records"):
            name = row["query_name"]
            must = f"have the query {name!r} once for each area"
            seen = f"{name!r} twice"
            key = row["geocode"], name
            require(
                key not in answers,
                f"the level {level!r}",
                must,
                seen,
                "remove the copy",
                error=DataError,
            )
            answers[key] = row
    return LevelFiles(
        level=level,
        geocodes=frozenset(found_geocodes),
        names=frozenset(found_names),
        answers=answers,
    )


def _files(source: str | os.PathLike[str], level: str, part: str, state: str | None) -> list[Path]:
    root = file_path("source", source)
    try:
        levels = {each.name.split(".")[0]: each for each in sorted(root.iterdir()) if each.is_dir()}
    except (OSError, ValueError):  # no folder, or a name that no file can have
        must = "be the folder that contains the folders of the levels"
        raise DataError(f"`source` must {must}, got {root.name!r}, which is no folder.") from None
    must = f"contain a folder for the level {level!r}, such as {level + '.parquet'!r}"
    seen = f"{', '.join(map(repr, levels)) or 'none'}{or_near(level, levels)}"
    require(level in levels, "source", must, seen, error=DataError)
    folder = levels[level] / part
    require(
        folder.is_dir(), f"the level {level!r}", f"have a folder {part!r}", "none", error=DataError
    )
    if state is not None:
        partitions = sorted(
            {each.name for each in folder.iterdir() if each.is_dir() and "=" in each.name}
        )
        seen = f"{state!r}; there are {', '.join(partitions) or 'none'}"
        require(
            f"State={state}" in partitions,
            "state",
            "be one of the partitions",
            seen,
            error=DataError,
        )
        folder = folder / f"State={state}"
    files = sorted(each for kind in ("parquet", "csv") for each in folder.rglob(f"*.{kind}"))
    must = "contain files *.parquet or *.csv"
    require(files, f"the folder {folder.name!r}", must, "none", error=DataError)
    return files


def _listed(value: Any, name: str) -> list[Any]:
    """Return a list of numbers, which a CSV file writes in JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if isinstance(value, int | float):
        value = [value]
    is_list = isinstance(value, Sequence) or hasattr(value, "tolist")
    must = "be lists of numbers, in a CSV file written as [1, 2, 3]"
    require(is_list, f"the values and shapes of {name!r}", must, "something else", error=DataError)
    return list(value)


# Spellings of the signs of constraints; "ub" and "lb" are parts of the name in files without signs
_SIGNS: dict[str, str] = {
    **dict.fromkeys(("", "=", "==", "eq"), "="),
    **dict.fromkeys(("<=", "le", "ub"), "<="),
    **dict.fromkeys((">=", "ge", "lb"), ">="),
}


@dataclass(frozen=True)
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
        rows = (files.answers.get((code, self.name)) for code in areas)
        return self.exact and any(row is not None and self._sign(row) != "=" for row in rows)

    def measurements(
        self, areas: Mapping[str, Sequence[Label]], files: LevelFiles, *, most: int = 0
    ) -> list[Measurement]:
        """Return the answers of a level as one measurement, or as several if the areas differ in their noise.

        `most` is the largest possible count.
        """
        values = []
        noise = []
        for code in areas:
            must = f"have the query {self.name!r} for the area {code!r}"
            remedy = "leave out the query or the area"
            is_there = (code, self.name) in files.answers
            require(is_there, f"the level {files.level!r}", must, "none", remedy, error=DataError)
            row = files.answers[code, self.name]
            numbers, distribution = self._summed(row)
            sign = self._sign(row) if self.exact else "="
            if sign == "=":
                values += numbers.tolist()
                noise += [distribution] * numbers.size
            else:
                pairs = [_within(number, sign, most) for number in numbers]
                values += [value for value, _ in pairs]
                noise += [distribution for _, distribution in pairs]
        # the first axis is the area if the model has a variable for it
        scope = tuple(v for v in self.axes if v is not None)
        groups = dict(self.groups)
        if self.area is not None:
            scope = (self.area, *scope)
            states = self.model.domain.states_of(self.area)
            if [*map(tuple, areas.values())] != [(label,) for label in states]:
                groups[self.area] = {code: labels for code, labels in areas.items()}  # noqa: C416
        query = query_of(self.model, scope, groups)
        return measurements_by_noise(self.model, query, np.array(values), noise)

    def _summed(self, row: Row) -> tuple[np.ndarray, NoiseDistribution]:
        """Return the answers of one area, summed over the axes that the model lacks, and their noise distribution."""
        domain = self.model.domain
        groups = self.groups
        sizes = [None if v is None else len(groups.get(v, domain.states_of(v))) for v in self.axes]
        summed = tuple(axis for axis, size in enumerate(sizes) if size is None)
        given = [
            number_of(f"the values of {self.name!r}", each)
            for each in _listed(row["value"], self.name)
        ]
        variance = number_of(f"the variances of {self.name!r}", row["variance"])
        what = f"the variances of {self.name!r}"
        seen = "a negative one"
        require(variance >= 0, what, "be at least 0", seen, error=DataError)
        stated = row.get("query_shape")
        has_shape = stated is not None and not (isinstance(stated, str) and not stated)
        if has_shape:
            whole = tuple(int(size) for size in _listed(stated, self.name))
        else:
            whole = ()
        if not summed:
            shape = [size for size in sizes if size is not None]
            own = [size for size in shape if size != 1]
            file = [size for size in whole if size != 1]
            is_moved = len(own) == len(file) and own != file and math.prod(own) == len(given)
            must = f"have axes of {own} states, as declared"
            remedy = "write its axes in the file's order"
            require(not is_moved, f"the query {self.name!r}", must, file, remedy, error=DataError)
        elif len(whole) == len(sizes):
            shape = [int(size) for size in whole]
        else:
            must = f"have as many axes as its `query_shape`, {len(whole)}, to sum over two or more"
            require(len(summed) == 1, f"{self.name!r}", must, len(sizes))
            others = math.prod(size for size in sizes if size is not None)
            shape = [size or len(given) // others for size in sizes]
        fits = all(size in (None, own) for size, own in zip(sizes, shape, strict=True))
        wanted = " x ".join("any" if size is None else str(size) for size in sizes) or 1
        must = f"have {wanted} numbers, one for each combination of its axes' states"
        seen = f"{len(given)}{f' of shape {whole}' if whole else ''}"
        fits = fits and math.prod(shape) == len(given)
        remedy = "declare the file's states, in its order"
        require(fits, f"the query {self.name!r}", must, seen, remedy, error=DataError)
        noise = noise_of_variance(self.kind, 0.0 if self.exact else variance)
        table = np.array(given).reshape(shape).sum(axis=summed)
        return table.ravel(), noise.summed(math.prod(shape[axis] for axis in summed))

    def _sign(self, row: Row) -> str:
        """Return ``=``, ``<=`` or ``>=``, from the file's sign or, without one, from the name."""
        sign = str(row.get("sign") or "").strip()
        if sign:
            words = set()
        else:
            words = {"lb", "ub"} & set(self.name.split("_"))
        meant = _SIGNS.get("".join(words) or sign.lower())
        must = f"have a sign among {', '.join(filter(None, _SIGNS))}"
        remedy = "leave it out of `constraints`: the others are a valid, less informative release"
        is_known = meant is not None and len(words) < 2
        require(is_known, f"the constraint {self.name!r}", must, "another", remedy, error=DataError)
        return str(meant)


def _within(bound: float, sign: str, most: int) -> tuple[float, NoiseDistribution]:
    """Return the value and the noise distribution of a count with an upper or a lower bound."""
    if sign == "<=":
        lower = 0.0
        upper = min(bound, most)
    else:
        lower = max(bound, 0.0)
        upper = most
    seen = "an upper bound below 0, or a lower bound above the total"
    require(0 <= lower <= upper, "bounds", "allow some number of people", seen, error=ModelError)
    return Within.between(math.ceil(lower), math.floor(upper))
