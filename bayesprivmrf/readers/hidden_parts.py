"""Hidden sheets, rows and columns of Excel workbooks, which pandas reads like those that are shown.

A reader of a published workbook sees what it shows. Hidden sheets often hold the counts before they were protected,
and hidden rows and columns the parts of a total. They are found in the XML of the file (ECMA-376, part 1, sections
18.2.19, 18.3.1.13 and 18.3.1.73), which the engines of pandas do not pass on. Other kinds of workbooks are not
looked into.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

# Endings of workbooks whose hidden parts are found
_LOOKED_INTO = (".xlsx", ".xlsm")
# Attribute with the key of a relation, and the values that mark a hidden row or column
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_TRUE = ("1", "true")
# Two corners of merged cells, such as B1:D2
_CORNERS = re.compile(r"([A-Z]+)(\d+):([A-Z]+)(\d+)")
# Number of letters, the base in which columns are numbered
_LETTERS = 26
# Largest number of columns of a sheet: a range of hidden columns may reach to the last one
_MOST_COLUMNS = 16_384


@dataclass
class Hidden:
    """Hidden parts of a sheet.

    Parameters
    ----------
    rows, columns
        Positions of hidden rows and columns, from 0.
    merged
        First row, first column, last row and last column of merged cells, from 0.
    is_sheet
        True if the whole sheet is hidden.
    """

    rows: set[int] = field(default_factory=set)
    columns: set[int] = field(default_factory=set)
    merged: list[tuple[int, int, int, int]] = field(default_factory=list)
    is_sheet: bool = False

    def described(self) -> list[str]:
        """Return what is hidden within the sheet, in words."""
        parts = ((self.rows, "row"), (self.columns, "column"))
        return [f"{len(own)} hidden {name}{'s' * (len(own) > 1)}" for own, name in parts if own]

    def without(self, rows: list[list[Any]]) -> list[list[Any]]:
        """Return the rows of a sheet with hidden entries empty; a merged cell is moved to its first shown one."""
        found = [[*row] for row in rows]
        for top, left, bottom, right in self.merged:
            shown = [
                (row, column)
                for row in range(top, min(bottom + 1, len(rows)))
                for column in range(left, min(right + 1, len(rows[row])))
                if row not in self.rows and column not in self.columns
            ]
            if shown:
                row, column = shown[0]
                found[row][column] = rows[top][left]
        for number, row in enumerate(found):
            for column in range(len(row)):
                if number in self.rows or column in self.columns:
                    row[column] = None
        return found


def hidden_parts(path: Path) -> dict[str, Hidden] | None:
    """Return the hidden parts of each sheet of a workbook, by its title; None if they cannot be found."""
    if not path.name.lower().endswith(_LOOKED_INTO):
        return None
    try:
        with zipfile.ZipFile(path) as book:
            return _of_book(book)
    # pandas reads a file by its content, which may be that of another kind of workbook
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, ElementTree.ParseError):
        return None


def _of_book(book: zipfile.ZipFile) -> dict[str, Hidden]:
    """Return the hidden parts of each sheet of an open workbook, by its title."""
    # each kind of link in a workbook has the path of its part
    links = _parsed(book, "xl/_rels/workbook.xml.rels")
    parts = {link.get("Id"): link.get("Target", "") for link in links}
    found = {}
    for sheet in _named(_parsed(book, "xl/workbook.xml"), "sheet"):
        own = Hidden()
        part = posixpath.normpath(posixpath.join("/xl", parts[sheet.get(_RELATION)]))
        # a sheet of a chart alone has no rows
        if part.startswith("/xl/worksheets/"):
            with book.open(part.lstrip("/")) as lines:
                own = _of_sheet(ElementTree.iterparse(lines))  # noqa: S314
        own.is_sheet = sheet.get("state", "visible") != "visible"
        found[sheet.get("name", "")] = own
    return found


def _parsed(book: zipfile.ZipFile, part: str) -> ElementTree.Element:
    """Return the tree of a part of a workbook; Expat 2.4.1 and later refuse entities that grow without bound."""
    return ElementTree.fromstring(book.read(part))  # noqa: S314


def _named(tree: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    """Return the elements of a tree with a name, whatever their namespace."""
    return (element for element in tree.iter() if _name(element) == name)


def _name(element: ElementTree.Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def _of_sheet(events: Iterator[tuple[str, ElementTree.Element]]) -> Hidden:
    """Return the hidden parts of a sheet from its XML, whose rows are dropped once they are read."""
    found = Hidden()
    row = -1
    for _, element in events:
        name = _name(element)
        is_hidden = element.get("hidden") in _TRUE
        if name == "col" and is_hidden:
            last = min(int(element.get("max", "0")), _MOST_COLUMNS)
            found.columns.update(range(int(element.get("min", "1")) - 1, last))
        elif name == "row":
            # a row without a number follows the one before it
            row = int(element.get("r", row + 2)) - 1
            if is_hidden:
                found.rows.add(row)
            element.clear()
        elif name == "mergeCell":
            corners = _CORNERS.fullmatch(element.get("ref", ""))
            if corners is not None:
                left, top, right, bottom = corners.groups()
                found.merged.append(
                    (int(top) - 1, _position(left), int(bottom) - 1, _position(right))
                )
    return found


def _position(letters: str) -> int:
    """Return the position of a column that is named by letters: 0 for A, 26 for AA."""
    number = 0
    for letter in letters:
        number = _LETTERS * number + ord(letter) - ord("A") + 1
    return number - 1
