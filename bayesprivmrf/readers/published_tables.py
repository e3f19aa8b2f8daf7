"""Reader of tables as agencies print them: a folder of sheets, or one sheet, as one release.

The steps are: read sheets as text (`grids`), recognize which cell each count is of (`printed_tables`), give symbols
their meaning (`numbers_of_tables`), give each table its rule, check its numbers, and merge repeated numbers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import file_path, instance_of, require
from bayesprivmrf.errors import DataError, ModelError
from bayesprivmrf.escapes import printable
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import Clique
from bayesprivmrf.noise.likelihood import Likelihood, checked_likelihood
from bayesprivmrf.noise.published import HIDDEN
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.readers.columns import (
    Number,
    is_likelihood,
    measured_numbers,
    or_near,
    query_of,
    released,
)
from bayesprivmrf.readers.grids import Grid, grids_of, is_sheet
from bayesprivmrf.readers.labels_of_tables import Labels
from bayesprivmrf.readers.numbers_of_tables import Bounds, Marks, number_within
from bayesprivmrf.readers.printed_tables import Printed, Sheet, recognized
from bayesprivmrf.release import NoisyStatistics
from bayesprivmrf.release.given import as_scope, refuse_proportions

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

# Names of columns that are not variables
_ROLES = ("value", "symbol")

# Total of percentages
_PERCENT = 100
# Counts at which a rule is tried for chance; those of the library show it below this count
_TRIED = 200
# Names of columns about the noise of each number in a file of one number a row
_NOISE_COLUMNS = ("law", "scale", "variance", "query")


def read_folder(
    network: DiscreteMarkovNetwork | ModelSpecification,
    folder: str | os.PathLike[str],
    *,
    noise: Likelihood | Mapping[Any, Likelihood],
    withheld: Mapping[str, Any] | None = None,
    columns: Mapping[Any, str] | None = None,
    decimal: str | None = None,
    total: int | None = None,
) -> NoisyStatistics:
    r"""Return one release of all published tables in a folder, and print what was recognized in each.

    Parameters
    ----------
    network
        The declared model, whose states are labeled as in the files. Each table lies inside one of its cliques.
    folder
        A folder of CSV files and workbooks (``.csv``, ``.csv.gz``, ``.tsv``, ``.txt``, and ``.xlsx``, ``.xls`` or
        ``.ods`` where pandas has an engine for them), each sheet with one table. A table is wide, with states above
        and beside its counts, or has one count a line. Titles above a table and notes below it are set aside, and so
        are hidden sheets, rows and columns of ``.xlsx``. Lines and columns labeled "Total", "All people" and the like
        are tables of the other variables.
    noise
        The rule of all tables, such as ``Rounded(5)``, or a mapping from tables to rules. A table is named by its
        file, or by its variables as in `NoisyStatistics.from_tables`, with ``()`` for the number of records.
    withheld
        The meaning of symbols in place of counts: ``(1, 4)`` for counts from 1 to 4, ``None`` for any count, or a
        number. An entry of which no count is known, such as one suppressed to protect another, may be any count.
    columns
        The file's name of a variable, if labels do not tell it; of the column of counts (``value``), where there are
        several columns of numbers; and of the column of symbols that are printed beside an empty count (``symbol``);
        a symbol in `withheld` replaces a number beside it.
    decimal
        The decimal mark of numbers that are text. With ``","``, 1.234 is a count of 1,234 records. Without it, a
        number whose mark may separate thousands or decimals is refused.
    total
        The number of records, if it is public.

    Returns
    -------
    NoisyStatistics
        The release. A number that several tables repeat is used once if its rule gives the same number each time. A
        table rounded at random is used once if another has the same numbers.

    Raises
    ------
    ArgumentError
        A rule is missing or no likelihood, or the meaning of a symbol is invalid.
    DataError
        A file is no table, or a table has percentages, a cell twice or not at all, a symbol without a meaning, a
        number that its rule cannot give, or totals that its cells cannot have.
    ModelError
        A table does not fit the model, or the tables contradict each other about the number of records.
    UndeclaredStateError
        A label is no declared state.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import bayesprivmrf as bpm
    >>> from bayesprivmrf.noise import RandomRounding
    >>> network = bpm.declare({"age": ["<30", "30+"], "work": ["no", "yes"]}, [("age", "work")])
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "work.csv").write_text("Work by age\n,no,yes,Total\n<30,9,6,18\n30+,3,15,18\n")
    >>> release = bpm.readers.read_folder(network, folder, noise=RandomRounding(3))
    work.csv: columns by work; rows by age; set aside: 1 title line
        (age, work): 4 numbers, random-rounding
        (age): 2 numbers, random-rounding
    """
    place = file_path("folder", folder)
    must = "be a folder of published tables"
    require(place.is_dir(), "folder", must, "another path", "`read_counts` reads one file")
    files = sorted(path for path in place.iterdir() if is_sheet(path))
    remedy = "save each table as CSV there"
    what = f"the folder {place.name!r}"
    must = "hold CSV files or workbooks"
    require(files, what, must, "none", remedy, error=DataError)
    tables = PublishedTables(network, noise, withheld, columns, decimal)
    lines = tables.read([grid for path in files for grid in grids_of(path)])
    others = [path.name for path in sorted(place.iterdir()) if path not in files]
    if others:
        lines.append(f"not read: {', '.join(others)}")
    return tables.release(lines, guarantee=None, total=total)


def is_printed(source: Any, noise: Any, columns: Mapping[Any, str]) -> bool:
    """Return True if a source is a table as it is printed, False if it has one number a row in the library's form.

    A file with one rule for all numbers is read as printed, unless its header has columns about the noise. With added
    noise, or in a data frame, a column of values in the header shows that each row is one number.
    """
    is_file = isinstance(source, str | os.PathLike)
    if not (is_likelihood(noise) or isinstance(noise, Mapping)):
        return False
    if is_file and not is_sheet(Path(source)):
        return False
    if not is_file and not (hasattr(source, "columns") and hasattr(source, "index")):
        return False
    grids = grids_of(source)
    header = {text for grid in grids for row in grid.rows[:1] for text in row}
    if not header or header & {columns.get(name, name) for name in _NOISE_COLUMNS}:
        return False
    is_rule = isinstance(noise, Mapping) or not noise.is_additive
    return (is_file and is_rule) or columns.get("value", "value") not in header


@dataclass(frozen=True)
class _Table:
    """Numbers of one table of one sheet, in C order of its cells."""

    sheet: str
    scope: Clique
    law: Likelihood
    numbers: list[Number]
    marks: tuple[str, ...]


class PublishedTables:
    """Tables of one release, read from sheets.

    Parameters
    ----------
    network, noise, withheld, columns, decimal
        As in `read_folder`.
    """

    def __init__(
        self,
        network: DiscreteMarkovNetwork | ModelSpecification,
        noise: Any,
        withheld: Mapping[str, Any] | None,
        columns: Mapping[Any, str] | None,
        decimal: str | None,
    ) -> None:
        self.model = ModelSpecification.from_pgmpy(network)
        self.noise = noise
        if not isinstance(noise, Mapping):
            checked_likelihood("noise", noise)
        called = _checked_columns(self.model, columns)
        self.marks = Marks(withheld, called, decimal)
        self.labels = Labels(self.model, called)
        self._tables: list[_Table] = []
        self._used: set[Any] = set()

    def _may_be_read(self, grid: Grid) -> bool:
        """Return False for a sheet of a workbook without any declared state, such as a list of contents."""
        has_states = any(self.labels.variables_with(text) for row in grid.rows for text in row)
        return has_states or not grid.is_of_workbook

    def read(self, grids: Iterable[Grid]) -> list[str]:
        """Read the tables of some sheets, and return what was recognized in words."""
        lines = []
        others = []
        for grid in grids:
            if grid.is_hidden:
                others.append(f"{grid.name}: not read, because it is hidden")
                continue
            if not self._may_be_read(grid):
                others.append(f"{grid.name}: not read, because it has no declared state")
                continue
            sheet = recognized(grid, self.labels, self.marks)
            own = self._tables_of(grid, sheet)
            self._tables += own
            lines.append(f"{sheet.name}: {sheet.layout}{_set_aside(grid, sheet)}")
            lines += [_described(table) for table in own]
        remedy = "declare states as the files write them"
        must = "hold declared states"
        require(lines, "the workbook", must, "none", remedy, error=DataError)
        lines += others
        if isinstance(self.noise, Mapping):
            unused = [key for key in self.noise if key not in self._used]
            must = "name files or tables that were read"
            seen = f"{', '.join(map(repr, unused))} as well"
            require(not unused, "noise", must, seen, "remove it, or check its variables")
        return lines

    def _tables_of(self, grid: Grid, sheet: Sheet) -> list[_Table]:
        """Return the tables of a sheet: its cells, and the totals over one variable or several."""
        variables = self.model.domain.variables
        by_scope: dict[Clique, list[Printed]] = {}
        for cell in sheet.cells:
            scope = tuple(v for v in variables if v in cell.place)
            by_scope.setdefault(scope, []).append(cell)
        ordered = sorted(by_scope.items(), key=lambda pair: -len(pair[0]))
        return [self._table(grid, scope, cells) for scope, cells in ordered]

    def _table(self, grid: Grid, scope: Clique, cells: Sequence[Printed]) -> _Table:
        """Return one table of a sheet, after checks that it has each cell once and numbers that its rule gives."""
        name = f"{_named(scope)} in {grid.name}"
        shape = [len(self.model.domain.states_of(v)) for v in scope]
        size = math.prod(shape)
        law = self._law(grid, scope)
        placed: dict[int, Printed] = {}
        for cell in cells:
            flat = _position([cell.place[v] for v in scope], shape)
            is_new = flat not in placed
            seen = f"one again in {cell.where}"
            remedy = "remove a repeated line or total; if a column tells them apart, declare it as a variable"
            require(is_new, name, "have each cell once", seen, remedy, error=DataError)
            placed[flat] = cell
        must = f"have each of its {size} cells"
        remedy = "add them, with a symbol in `withheld` where the count is not known; no count is read as 0"
        if grid.hidden:
            remedy = f"unhide them: {' and '.join(grid.hidden)} had been left out"
        require(len(placed) == size, name, must, f"{len(placed)}", remedy, error=DataError)
        numbers = [self._number(grid, placed[flat], law) for flat in range(size)]
        texts = [cell.text for cell in placed.values()]
        return _Table(grid.name, scope, law, numbers, tuple(self.marks.are_used(texts)))

    def _law(self, grid: Grid, scope: Clique) -> Likelihood:
        """Return the rule of a table: that of its file or of its variables."""
        if not isinstance(self.noise, Mapping):
            return self.noise
        file = grid.name.partition("[")[0]
        keys = [key for key in self.noise if key in (grid.name, file)]
        keys += [key for key in self.noise if set(as_scope(key)) == set(scope)]
        must = f"have an entry for {_named(scope)}, or for its file {file!r}"
        require(keys, "noise", must, "none", f"write {{{scope!r}: Rounded(5), ...}}")
        self._used.update(keys)
        return checked_likelihood("noise", self.noise[keys[0]])

    def _number(self, grid: Grid, cell: Printed, law: Likelihood) -> Number:
        """Return a printed number with its likelihood, after a check that its rule can give it."""
        meaning = self.marks.meaning(cell.text, grid, cell.where)
        if isinstance(meaning, Bounds):
            return number_within(meaning, law)
        number = np.array([meaning])
        own = (law.of_cells(number) or [law])[0]
        if not own.is_additive:
            first, last = own.allowed(number)
            is_possible = np.ceil(max(first[0], 0.0)) <= last[0]
        elif own.is_exact:
            is_possible = meaning >= 0 and meaning == round(meaning)
        else:
            is_possible = True
        must = f"be numbers that {law} can give"
        what = f"the counts of {grid.name}"
        seen = f"another one in {cell.where}"
        remedy = "check the rule, and state another one for other tables by a mapping"
        require(is_possible, what, must, seen, remedy, error=DataError)
        return meaning, own

    def release(
        self, lines: Sequence[str], *, guarantee: PrivacyGuarantee | None, total: int | None
    ) -> NoisyStatistics:
        """Print what was recognized, and return the release of all tables that were read."""
        merged, repeats = _merged(self._tables)
        print(printable("\n".join([*lines, *repeats]), keeps_lines=True))
        _refuse_hundreds(merged)
        _check_sums(self.model, merged)
        arrays = [np.array([number[0] for number in t.numbers if number]) for t in merged]
        refuse_proportions([array for array in arrays if (array >= 0).all()], total)
        for table in merged:
            (number, *_) = table.numbers
            if not table.scope and total is None and number is not None and number[1].is_exact:
                total = int(number[0])
        measured = []
        for table in merged:
            query = query_of(self.model, table.scope, {})
            measured += measured_numbers(self.model, query, table.numbers)
        return released(self.model, measured, guarantee=guarantee, total=total)


def _checked_columns(
    model: ModelSpecification, columns: Mapping[Any, str] | None
) -> Mapping[Any, str]:
    """Return the names of columns, after a check that they are of variables, counts or symbols."""
    must = f"map variables, or {' and '.join(map(repr, _ROLES))}, to columns"
    if columns is None:
        return {}
    called = instance_of("columns", columns, Mapping, must)
    for name in called:
        is_known = name in _ROLES or name in model.domain
        seen = f"{name!r}{or_near(str(name), [*map(str, model.domain.variables), *_ROLES])}"
        require(is_known, "columns", must, seen)
    return called


def _position(codes: Sequence[int], shape: Sequence[int]) -> int:
    """Return the position of a cell of a table in C order; 0 in a table without variables."""
    found = 0
    for code, size in zip(codes, shape, strict=True):
        found = found * size + code
    return found


def _named(scope: Clique) -> str:
    """Return a table in words."""
    if not scope:
        return "the number of records"
    return f"the table of {', '.join(map(str, scope))}"


def _set_aside(grid: Grid, sheet: Sheet) -> str:
    """Return the end of a line about a sheet: what was set aside, and whether hidden parts were."""
    aside = ""
    parts = [*sheet.aside, *grid.hidden]
    if parts:
        aside = f"; set aside: {', '.join(parts)}"
    if grid.is_hidden is None:
        return f"{aside}; hidden parts are read as well: save it as .xlsx to leave them out"
    return aside


def _described(table: _Table) -> str:
    """Return a line about a table that was recognized."""
    scope = f"({', '.join(map(str, table.scope))})"
    size = len(table.numbers)
    numbers = f"{size} number{'s' * (size > 1)}"
    marks = ""
    if table.marks:
        marks = f", with {', '.join(map(repr, table.marks))}"
    return f"    {scope}: {numbers}{marks}, {table.law.name}"


# ------------------------------------------------------------------------------------------------ repeated numbers


def _gives_one_number(law: Likelihood) -> bool:
    """Return True for a rule that gives the same number for a cell in every table."""
    if law.is_additive:
        return law.is_exact
    counts = np.arange(_TRIED)
    is_certain = not np.any(law.variance_given(counts))
    return is_certain or law.gives_one_number


def _merged(tables: Sequence[_Table]) -> tuple[list[_Table], list[str]]:
    """Return tables without repeated numbers, and lines about those that were repeated."""
    found: list[_Table] = []
    lines = []
    for table in tables:
        earlier = [one for one in found if one.scope == table.scope and one.law == table.law]
        if not earlier:
            found.append(table)
            continue
        if any(one.numbers == table.numbers for one in earlier):
            lines.append(
                f"{table.sheet}: {_named(table.scope)} repeats other tables, and is used once"
            )
            continue
        if not _gives_one_number(table.law):
            found.append(table)
            continue
        (one,) = earlier
        numbers = [
            _same(table, ours, own) for ours, own in zip(one.numbers, table.numbers, strict=True)
        ]
        found[found.index(one)] = _Table(one.sheet, one.scope, one.law, numbers, one.marks)
        lines.append(
            f"{table.sheet}: {_named(table.scope)} repeats another, and each cell is used once"
        )
    return found, lines


def _same(table: _Table, ours: Number, own: Number) -> Number:
    """Return the number that tells more of two numbers of the same cell, after a check that they agree."""
    if ours is None or own is None:
        return ours or own
    first = _ends(ours)
    second = _ends(own)
    is_one = first[0] <= second[1] and second[0] <= first[1]
    is_one = is_one and (ours == own or HIDDEN in (ours[0], own[0]))
    what = f"{_named(table.scope)} in {table.sheet}"
    must = f"have the number of another table in each cell, as {table.law} gives"
    remedy = "check whether both are of the same people"
    require(is_one, what, must, "others", remedy, error=DataError)
    if first[1] - first[0] <= second[1] - second[0]:
        return ours
    return own


# ------------------------------------------------------------------------------------------------ totals and parts


def _ends(number: Number) -> tuple[float, float]:
    """Return the smallest and the largest count that a number allows; infinite ends for added noise."""
    if number is None:
        return 0.0, math.inf
    value, law = number
    if law.is_exact:
        return value, value
    if law.is_additive:
        return 0.0, math.inf
    first, last = law.allowed(np.array([value]))
    return float(first[0]), float(last[0])


def _refuse_hundreds(tables: Sequence[_Table]) -> None:
    """Raise an error if all totals over some variables are 100: the numbers are percentages."""
    for whole in tables:
        are_totals = any(set(whole.scope) < set(part.scope) for part in tables)
        values = {number[0] for number in whole.numbers if number is not None}
        is_right = not are_totals or len(whole.numbers) == 1 or values != {_PERCENT}
        what = f"{_named(whole.scope)} in {whole.sheet}"
        seen = "totals of 100 each, as percentages have"
        remedy = "remove the file, or the totals if the numbers are counts"
        require(is_right, what, "hold counts", seen, remedy, error=DataError)


def _check_sums(model: ModelSpecification, tables: Sequence[_Table]) -> None:
    """Raise an error if the cells of a table cannot add up to a total, whatever counts their rules allow."""
    for part in tables:
        shape = [len(model.domain.states_of(v)) for v in part.scope]
        ends = np.array([_ends(number) for number in part.numbers]).reshape([*shape, 2])
        for whole in tables:
            if not set(whole.scope) < set(part.scope):
                continue
            axes = tuple(k for k, v in enumerate(part.scope) if v not in whole.scope)
            sums = ends.sum(axis=axes).reshape(-1, 2)
            limits = np.array([_ends(number) for number in whole.numbers])
            are_right = (sums[:, 0] <= limits[:, 1]) & (limits[:, 0] <= sums[:, 1])
            what = f"{_named(whole.scope)} in {whole.sheet}"
            must = f"have totals to which {_named(part.scope)} in {part.sheet} can add up"
            seen = f"{int((~are_right).sum())} to which they cannot"
            remedy = (
                "check their units and rules, and whether totals include people without an answer"
            )
            require(are_right.all(), what, must, seen, remedy, error=ModelError)
