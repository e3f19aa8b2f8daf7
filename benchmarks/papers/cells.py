"""Cells of a figure: parts that are computed separately, in parallel, and stored in one file each."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

_VERSION = 1  # raised when a cell of the same settings would come out differently

type Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell(ABC):
    """A computation that its settings determine.

    A subclass is a dataclass, names its experiment, and says which fields go by another name in the settings.
    """

    _experiment: ClassVar[str]
    _written_as: ClassVar[Mapping[str, str]] = {}

    def settings(self) -> dict[str, Any]:
        """Return everything that the result depends on, as JSON values: the experiment and all fields."""
        found: dict[str, Any] = {"experiment": self._experiment}
        for field in fields(self):
            value = getattr(self, field.name)
            key = self._written_as.get(field.name, field.name)
            if hasattr(value, "settings"):
                found[key] = value.settings()
            else:
                found[key] = value
        return found

    @abstractmethod
    def rows(self) -> list[Row]:
        """Return the rows of the figure's table, numbers and texts."""


def generator_of(cell: Cell) -> np.random.Generator:
    """Return the cell's own random stream, which does not depend on other cells, order or process."""
    return np.random.default_rng(np.frombuffer(_digest(cell).digest(), dtype=np.uint32))


def cell_path(folder: Path, cell: Cell) -> Path:
    """Return the path where a cell's rows are stored."""
    return folder / f"{_digest(cell).hexdigest()[:20]}.json"


def kept_rows(folder: Path, cell: Cell) -> list[Row] | None:
    """Return the rows stored for a cell; None if there are none, or the file is incomplete."""
    try:
        kept = json.loads(cell_path(folder, cell).read_text(encoding="utf-8"))
        if kept["settings"] == _settings(cell):
            return list(kept["rows"])
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def compute(
    cells: Sequence[Cell], folder: Path, *, jobs: int, advance: Callable[[], None]
) -> list[Row]:
    """Return the rows of all cells in order, computing those that the folder lacks.

    Parameters
    ----------
    cells
        The cells, any number.
    folder
        Exists; gets one file a cell as soon as it is computed, so that an interrupted run resumes.
    jobs
        Processes side by side.
    advance
        Called once a cell.
    """
    missing = []
    for cell in cells:
        if kept_rows(folder, cell) is None:
            missing.append(cell)
        else:
            advance()
    for _ in _computed(missing, folder, jobs):
        advance()
    kept = [kept_rows(folder, cell) for cell in cells]
    return [row for rows in kept if rows is not None for row in rows]


def _computed(cells: Sequence[Cell], folder: Path, jobs: int) -> Iterator[None]:
    if jobs == 1 or len(cells) < 2:
        for cell in cells:
            yield _keep(cell, folder)
        return
    import joblib

    work = joblib.Parallel(n_jobs=min(jobs, len(cells)), return_as="generator_unordered")
    yield from work(joblib.delayed(_keep)(cell, folder) for cell in cells)


def _keep(cell: Cell, folder: Path) -> None:
    """Compute a cell, and write its file completely or not at all."""
    path = cell_path(folder, cell)
    text = json.dumps({"settings": _settings(cell), "rows": cell.rows()})
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def _settings(cell: Cell) -> dict[str, Any]:
    """Return settings as they come back from a file."""
    return json.loads(json.dumps({"version": _VERSION} | cell.settings(), sort_keys=True))


def _digest(cell: Cell) -> Any:
    return hashlib.sha256(json.dumps(_settings(cell), sort_keys=True).encode())
