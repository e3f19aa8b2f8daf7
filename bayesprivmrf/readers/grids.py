"""Sheets of published tables as grids of text: CSV files, Excel sheets, and data frames."""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bayesprivmrf.checks import file_path, require
from bayesprivmrf.errors import DataError
from bayesprivmrf.model.domain import is_missing
from bayesprivmrf.readers.hidden_parts import Hidden, hidden_parts

# Endings of files whose lines are rows of a table
_TEXT = (".csv", ".csv.gz", ".tsv", ".txt")
# Endings of workbooks, which pandas reads by the engine that is installed
_BOOKS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
# Separators of fields. A file has the one that splits most lines into equally many fields
_SEPARATORS = ",;\t"
# bytes of a mebibyte
_MIB = 2**20
# Largest file, MiB. A sheet of published counts has thousands of cells, and its grid takes much more memory
_LARGEST = 64


class TypedNumber(str):
    """Text of a cell that holds a number, and no text: its point is decimal."""


@dataclass(frozen=True)
class Grid:
    """Sheet of a published table: rows of text, each as long as the longest.

    Parameters
    ----------
    name
        File, or file and sheet, for messages.
    rows
        Text of each cell without spaces at its ends; empty for an empty cell.
    lines
        Number of each row in the file, for messages; the first is 1.
    has_commas
        True if commas separate thousands. In a file with semicolons they may be decimal.
    hidden
        Hidden rows and columns that are left out, in words.
    is_hidden
        True for a hidden sheet, and None where nobody knows what is hidden.
    """

    name: str
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]
    has_commas: bool = True
    hidden: tuple[str, ...] = ()
    is_hidden: bool | None = False

    @property
    def is_of_workbook(self) -> bool:
        """True for a sheet of a workbook, which may have sheets that are no tables."""
        return self.name.endswith("]")


def is_sheet(path: Path) -> bool:
    """Return True if the name of a file is that of a CSV file or a workbook."""
    name = path.name.lower()
    return name.endswith((*_TEXT, *_BOOKS)) and not name.startswith((".", "~"))


def grids_of(source: Any) -> list[Grid]:
    """Return the sheets of a file, or the one of a data frame.

    Parameters
    ----------
    source
        The path of a CSV file or a workbook, or a pandas data frame.

    Raises
    ------
    DataError
        The file cannot be read, or the engine of pandas for workbooks is missing.
    """
    if not isinstance(source, str | os.PathLike):
        return [_grid("the frame", _frame_rows(source))]
    path = file_path("path", source)
    try:
        size = path.stat().st_size
        must = f"have at most {_LARGEST} MiB"
        remedy = "published tables are smaller; are these records?"
        require(
            size <= _LARGEST * _MIB,
            f"the file {path.name!r}",
            must,
            "more",
            remedy,
            error=DataError,
        )
        if path.name.lower().endswith(_BOOKS):
            return _sheets(path)
        content = path.read_bytes()
        if path.suffix.lower() == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "not a readable file"
        raise DataError(f"the file {path.name!r} cannot be read: {reason}.") from None
    return [_text_grid(path.name, content)]


def _text_grid(name: str, content: bytes) -> Grid:
    """Return the grid of a CSV file."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        must = "be encoded in UTF-8, got another encoding"
        remedy = "save it as 'CSV UTF-8', or convert it with `iconv -t UTF-8`"
        raise DataError(f"the file {name!r} must {must}; {remedy}.") from None
    readings = {one: _split(text, one) for one in _SEPARATORS}
    separator = max(_SEPARATORS, key=lambda one: _alike(readings[one]))
    return _grid(name, readings[separator], has_commas=separator != ";")


def _split(text: str, separator: str) -> list[list[str]]:
    """Return the fields of each line of a text."""
    try:
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    except csv.Error:  # a field that is too long, or a line end in a field
        return []


def _alike(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of rows of the most frequent length above one."""
    lengths = Counter(len(row) for row in rows if len(row) > 1)
    return max(lengths.values(), default=0)


def _sheets(path: Path) -> list[Grid]:
    """Return the grids of all sheets of a workbook."""
    import pandas as pd

    try:
        # texts such as "n/a" and "None" are symbols or states, and no empty cells
        sheets = pd.read_excel(
            path, sheet_name=None, header=None, dtype=object, keep_default_na=False
        )
    except ImportError as error:
        problem = f"needs a package that is not installed ({error.name or 'an Excel engine'})"
        remedy = "install openpyxl for .xlsx, or save the sheets as CSV"
    except Exception:  # the engines raise many types, whose messages may quote cells
        problem = "is no workbook that pandas can read"
        remedy = "save its sheets as CSV"
    else:
        return list(_shown(path, sheets))
    raise DataError(f"the file {path.name!r} {problem}; {remedy}.")


def _shown(path: Path, sheets: Mapping[str, Any]) -> Iterator[Grid]:
    """Return the grids of the sheets of a workbook, without their hidden rows and columns."""
    hidden = hidden_parts(path)
    for title, frame in sheets.items():
        rows = frame.to_numpy(dtype=object).tolist()
        name = f"{path.name}[{title}]"
        if hidden is None:
            yield replace(_grid(name, rows), is_hidden=None)
        else:
            own = hidden.get(title, Hidden())
            grid = _grid(name, own.without(rows))
            yield replace(grid, hidden=tuple(own.described()), is_hidden=own.is_sheet)


def _frame_rows(frame: Any) -> list[list[Any]]:
    """Return the header and the rows of a frame, with the labels of its rows in front."""
    import pandas as pd

    columns = frame.columns
    is_numbered = isinstance(frame.index, pd.RangeIndex) and frame.index.name is None
    if is_numbered:
        stubs: list[list[Any]] = [[] for _ in range(len(frame))]
        corner: list[Any] = []
    else:
        stubs = frame.index.to_frame().to_numpy(dtype=object).tolist()
        corner = list(frame.index.names)
    header = []
    for level in range(columns.nlevels):
        start = corner
        if level < columns.nlevels - 1:
            start = [None] * len(corner)
        header.append([*start, *columns.get_level_values(level)])
    values = frame.to_numpy(dtype=object).tolist()
    return [*header, *[[*stub, *row] for stub, row in zip(stubs, values, strict=True)]]


def _grid(name: str, rows: Iterable[Sequence[Any]], *, has_commas: bool = True) -> Grid:
    """Return the grid of rows of values; rows without any entry are left out."""
    texts = [[_text(value) for value in row] for row in rows]
    width = max(map(len, texts), default=0)
    kept = [(line, row) for line, row in enumerate(texts, start=1) if any(row)]
    return Grid(
        name=name,
        rows=tuple((*row, *[""] * (width - len(row))) for _, row in kept),
        lines=tuple(line for line, _ in kept),
        has_commas=has_commas,
    )


def _text(value: Any) -> str:
    """Return the text of a cell: whole floats as integers, spaces of all kinds as one space."""
    if is_missing(value):
        return ""
    if isinstance(value, float):
        return TypedNumber(int(value) if value.is_integer() else value)
    return " ".join(str(value).split())
