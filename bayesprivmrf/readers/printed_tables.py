"""Recognition of printed tables: header, labels of rows and columns, totals, sections, and what is no count.

A sheet is recognized by the declared variables and states alone. Its header is the first row with

- two or more states of a variable, each above a column of counts (a wide table, perhaps with several such rows); or
- the name of the column of counts, beside columns whose entries are states (a table with one count a line).

Rows above the header are titles. Rows below it that have no count are headings of sections if their label is a state,
and otherwise notes. Every count gets the states that its row and column name, and is a total over other variables. A
table with two readings is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product

from bayesprivmrf.checks import require
from bayesprivmrf.errors import DataError, UndeclaredStateError
from bayesprivmrf.model.domain import Variable
from bayesprivmrf.readers.columns import near
from bayesprivmrf.readers.grids import Grid
from bayesprivmrf.readers.labels_of_tables import (
    Labels,
    is_of_thousands,
    is_share_title,
    is_unit_of_shares,
    plain_text,
)
from bayesprivmrf.readers.numbers_of_tables import Marks

# Usual names of the column of counts, in lower case, best first
_COUNTS = (
    "value",
    "obs_value",
    "observation",
    "count",
    "counts",
    "number",
    "n",
    "freq",
    "frequency",
    "population",
    "people",
    "persons",
)
# Columns that agencies put beside a count, and that say nothing about which records it counts
_FLAGS = ("status", "symbol", "symbols", "flag", "flags", "terminated", "note", "notes", "footnote")
# Columns of the power of ten by which each number is multiplied
_POWERS = ("unit_mult", "unit multiplier", "scalar_id")
# Least number of states that make a row the header of a wide table
_LEAST_STATES = 2

# State of each variable that a count is about, by position
type Place = dict[Variable, int]


@dataclass(frozen=True)
class Printed:
    """Count of a sheet, as it is printed.

    Parameters
    ----------
    place
        Position of the state of each variable that the count is about.
    text
        The number or the symbol.
    where
        The place in the file, for messages.
    """

    place: Place
    text: str
    where: str


@dataclass
class Sheet:
    """Recognized sheet: its counts, its layout in words, and what was set aside."""

    name: str
    layout: str
    cells: list[Printed] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Header:
    """Header of a sheet: its rows, the columns of labels, and the labels of each column of counts."""

    start: int
    end: int
    stubs: list[int]
    # labels of each column of counts, one for each row of the header; none in a table with one count a line
    counts: dict[int, tuple[str, ...]]
    # column whose entry stands for an empty count; -1 if there is none
    symbol: int = -1


@dataclass(frozen=True)
class _Axis:
    """Column of labels, or row of the header: the variables that its labels may belong to."""

    where: str
    # one variable; or two, of which the first heads sections
    options: list[tuple[Variable, ...]]
    named: Variable | None = None


class _Reading:
    """One sheet under recognition."""

    def __init__(self, grid: Grid, labels: Labels, marks: Marks) -> None:
        self.grid = grid
        self.labels = labels
        self.marks = marks
        self.rows = grid.rows

    def where(self, row: int, column: int | None = None) -> str:
        """Return the place of a row or of a cell, for messages."""
        place = f"line {self.grid.lines[row]}"
        if column is not None:
            place += f", column {column + 1}"
        return place

    def column(self, number: int, start: int) -> list[str]:
        """Return the entries of a column from a row on, without empty ones and without the notes below a table."""
        return [row[number] for row in self.rows[start:] if row[number] and sum(map(bool, row)) > 1]

    def is_count(self, text: str) -> bool:
        """Return True for a number or a symbol with a meaning."""
        return bool(text) and self.marks.is_count(text)

    # ------------------------------------------------------------------------------------------------ headers

    def header(self) -> _Header:
        """Return the header: of a wide table, or of one with a count a line."""
        for start in range(len(self.rows) - 1):
            found = self._wide_header(start) or self._long_header(start)
            if found is not None:
                return found
        must = "have states of a variable above columns of counts, or columns of states beside one of counts"
        remedy = "declare states as the file writes them, or move a file that is no table out of the folder"
        raise DataError(f"{self.grid.name} must {must}, got neither; {remedy}.")

    def _states_in(self, row: int, first: int) -> list[int]:
        """Return the columns of a row that hold a state or a total."""
        return [
            number
            for number, text in enumerate(self.rows[row])
            if number >= first and self.labels.is_label(text)
        ]

    def _wide_header(self, start: int) -> _Header | None:
        """Return the header of a wide table that starts in a row; None if none does."""
        hits = self._states_in(start, 0)
        held = Counter(v for k in hits for v in self.labels.variables_with(self.rows[start][k]))
        # the labels of rows stand to the left of the counts
        if not hits or hits[0] == 0 or max(held.values(), default=0) < _LEAST_STATES:
            return None
        levels = [start]
        for row in range(start + 1, len(self.rows)):
            own = self._states_in(row, 0)
            if not own or own[0] < hits[0]:
                break
            levels.append(row)
        end = levels[-1] + 1
        # rows of units, such as "Number", or of names of variables may stand below the labels
        while end < len(self.rows) and self._is_heading_row(end, hits[0]):
            end += 1
        # a hidden column is empty
        stubs = [k for k in range(hits[0]) if any(row[k] for row in self.rows)]
        return _Header(start, end, stubs, self._level_labels(levels, hits[0], end))

    def _is_heading_row(self, row: int, first: int) -> bool:
        """Return True for a row of names: of variables, or of units above the counts."""
        texts = [text for text in self.rows[row][first:] if text]
        beside = self.rows[row][:first]
        if not texts:
            return any(self.labels.variable(text) is not None for text in beside)
        return not any(map(self.labels.is_label, beside)) and not any(map(self.is_count, texts))

    def _level_labels(
        self, levels: Sequence[int], first: int, end: int
    ) -> dict[int, tuple[str, ...]]:
        """Return the labels of each column of counts; those of upper rows hold up to the next one."""
        found = {}
        held = [""] * len(levels)
        for number in range(first, len(self.rows[0])):
            own = [self.rows[row][number] for row in levels]
            for level, text in enumerate(own[:-1]):
                if text:
                    held[level] = text
                    held[level + 1 :] = [""] * len(held[level + 1 :])
            held[-1] = own[-1]
            above = [row[number] for row in self.rows[:end] if row[number]]
            is_empty = not any(row[number] for row in self.rows[end:])
            if is_empty:
                continue
            self._refuse_shares(number, above)
            # a total may have no label below it
            is_total_above = any(map(self.labels.is_total, held[:-1]))
            must = "have a label that is a declared state or a total"
            remedy = f"declare it, or remove column {number + 1}"
            is_known = self.labels.is_label(held[-1]) or (is_total_above and not held[-1])
            what = f"each column of counts of {self.grid.name}"
            seen = "none or another one"
            require(is_known, what, must, seen, remedy, error=DataError)
            found[number] = tuple(held)
        return found

    def _refuse_shares(self, number: int, above: Sequence[str]) -> None:
        """Raise an error for a column of percentages, rates, averages or thousands."""
        # states and variables may be called by such words
        units = [text for text in above if not self.labels.is_label(text)]
        units = [text for text in units if self.labels.variable(text) is None]
        is_share = any(map(is_unit_of_shares, units))
        what = f"column {number + 1} of {self.grid.name}"
        seen = "percentages, rates, averages or thousands"
        remedy = "remove it, or name it in `columns` if it is a variable"
        require(not is_share, what, "hold counts", seen, remedy, error=DataError)

    def _long_header(self, start: int) -> _Header | None:
        """Return the header of a table with one count a line that starts in a row; None if none does."""
        names = self.rows[start]
        if sum(map(bool, names)) < _LEAST_STATES or any(map(self.marks.is_number, names)):
            return None
        columns = {k: self.column(k, start + 1) for k in range(len(names))}
        symbol = next((k for k, name in enumerate(names) if self.marks.is_symbol_name(name)), -1)
        stubs = [k for k, entries in columns.items() if self._is_stub(names[k], entries)]
        counts = [
            k
            for k, entries in columns.items()
            if names[k] and k not in stubs and k != symbol and self._is_of_counts(names[k], entries)
        ]
        if not stubs or not counts:
            return None
        number = self._count_column(names, counts)
        first = next(filter(None, columns[number]))
        if not self.is_count(first):
            return None
        return _Header(start, start + 1, stubs, {number: ()}, symbol)

    def _is_stub(self, name: str, entries: Sequence[str]) -> bool:
        """Return True for the column of a variable: by its name, or because most of its entries are states."""
        if self.labels.variable(name) is not None:
            return True
        are_labels = 2 * sum(map(self.labels.is_label, entries)) > len(entries)
        # states that are numbers are found by the name of their variable alone
        return are_labels and 2 * sum(map(self.marks.is_number, entries)) <= len(entries)

    def _is_of_counts(self, name: str, entries: Sequence[str]) -> bool:
        """Return True for a column of counts: by its name, or because most of its entries are numbers."""
        if self.marks.is_value_name(name):
            return True
        has_counts = 2 * sum(map(self.is_count, entries)) > len(entries)
        return has_counts and any(map(self.marks.is_number, entries))

    def _count_column(self, names: Sequence[str], counts: Sequence[int]) -> int:
        """Return the column of counts, after a check that there is one."""
        for is_named in (
            self.marks.is_value_name,
            *(lambda text, own=name: plain_text(text) == own for name in _COUNTS),
        ):
            own = [number for number in counts if is_named(names[number])]
            if len(own) == 1:
                return own[0]
        seen = f"{len(counts)} columns of numbers"
        remedy = "write `columns={'value': ...}` with its name, or declare states as the file writes them"
        what = f"the counts of {self.grid.name}"
        require(len(counts) == 1, what, "be one column", seen, remedy, error=DataError)
        self._refuse_shares(counts[0], [names[counts[0]]])
        return counts[0]

    # --------------------------------------------------------------------------------------------------- axes

    def axes(self, header: _Header) -> tuple[list[_Axis], dict[int, _Axis], list[int]]:
        """Return the axes of the header's rows, those of the columns of labels, and columns that are set aside."""
        levels = []
        depth = len(next(iter(header.counts.values()), ()))
        for level in range(depth):
            texts = [own[level] for own in header.counts.values() if own[level]]
            levels.append(self._axis("the labels above the counts", texts, None))
        stubs = {}
        aside = []
        for number in header.stubs:
            texts = self._stub_texts(number, header)
            # the name nearest to the labels is that of their variable
            names = [row[number] for row in reversed(self.rows[header.start : header.end])]
            named = next(filter(None, map(self.labels.variable, names)), None)
            # the corner may name the variable of the labels above the counts
            is_of_columns = any((named,) in axis.options for axis in levels)
            has_labels = any(map(self.labels.is_label, texts))
            if not has_labels and (named is None or is_of_columns):
                aside.append(number)
            else:
                stubs[number] = self._axis(f"the labels in column {number + 1}", texts, named)
        return levels, stubs, aside

    def _stub_texts(self, number: int, header: _Header) -> list[str]:
        """Return the labels of the rows that have counts, and those that head sections."""
        return [
            row[number]
            for row in self.rows[header.end :]
            if row[number]
            and (any(row[k] for k in header.counts) or self.labels.is_label(row[number]))
        ]

    def _axis(self, where: str, texts: Sequence[str], named: Variable | None) -> _Axis:
        """Return the variables that labels may belong to: one, or two of which the first heads sections."""
        own = [text for text in dict.fromkeys(texts) if not self.labels.is_total(text)]
        variables = self.labels.domain.variables
        held = {v: {t for t in own if self.labels.code(v, t) is not None} for v in variables}
        if named is not None:
            return _Axis(where, [(named,)], named)
        most = max(map(len, held.values()))
        options: list[tuple[Variable, ...]] = [
            (v,) for v in variables if held[v] and len(held[v]) == most
        ]
        if most < len(own):
            pairs = [
                (outer, inner)
                for outer, inner in product(variables, variables)
                if outer != inner
                and own[0] in held[outer]
                and own[0] not in held[inner]
                and held[inner]
                and held[outer] | held[inner] == set(own)
            ]
            options = pairs or options
        return _Axis(where, options)

    def assigned(self, axes: Sequence[_Axis]) -> list[tuple[Variable, ...]]:
        """Return the variables of each axis, after a check that there is one way to choose them."""
        found = [
            chosen
            for chosen in product(*(axis.options for axis in axes))
            if len({v for own in chosen for v in own}) == sum(map(len, chosen))
        ]
        must = "belong to one variable each, and to different ones"
        seen = f"{len(found)} readings"
        remedy = "write the name of its variable above each column of labels"
        what = f"the labels of {self.grid.name}"
        require(len(found) == 1, what, must, seen, remedy, error=DataError)
        return list(found[0])


def recognized(grid: Grid, labels: Labels, marks: Marks) -> Sheet:
    """Return the counts of a sheet with what they are about.

    Parameters
    ----------
    grid
        The sheet.
    labels
        Declared variables and states.
    marks
        The symbols and the names of columns that the caller declared.

    Raises
    ------
    DataError
        The sheet is no table, has percentages, a label with two readings, or lines that other columns tell apart.
    UndeclaredStateError
        A row with counts has a label that is no declared state.
    """
    reading = _Reading(grid, labels, marks)
    header = reading.header()
    levels, stubs, aside = reading.axes(header)
    chosen = reading.assigned([*levels, *stubs.values()])
    above = [own[0] for own in chosen[: len(levels)]]
    beside = dict(zip(stubs, chosen[len(levels) :], strict=True))
    sheet = Sheet(grid.name, _layout(above, beside))
    if header.start:
        sheet.aside.append(_times(header.start, "title line"))
    if not header.counts or not above:
        aside = [*aside, *_others(reading, header, beside)]
    body = _Body(reading, header, beside)
    _refuse_distinctions(reading, body, aside)
    _refuse_units(reading, body, aside)
    _refuse_flagged_zeros(reading, body, aside)
    for row, place in body.places():
        for number, texts in header.counts.items():
            own = _above(reading, above, texts)
            text = grid.rows[row][number]
            if header.symbol >= 0:
                symbol = grid.rows[row][header.symbol]
                # a hidden count may be printed as 0
                if not text or (symbol and marks.has_meaning(symbol)):
                    text = symbol
            sheet.cells.append(Printed(place | own, text, reading.where(row, number)))
    sheet.aside += [f"column {number + 1}" for number in aside]
    if body.notes:
        sheet.aside.append(_times(len(body.notes), "note"))
    return sheet


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count > 1)}"


def _layout(above: Sequence[Variable], beside: Mapping[int, tuple[Variable, ...]]) -> str:
    """Return the layout in words."""
    rows = ", ".join(" in sections, ".join(map(str, own)) for own in beside.values())
    if not above:
        return f"one count a line, by {rows}"
    columns = f"columns by {', '.join(map(str, above))}"
    if not rows:
        return columns
    return f"{columns}; rows by {rows}"


def _above(reading: _Reading, above: Sequence[Variable], texts: Sequence[str]) -> Place:
    """Return the states that the labels above a column name."""
    place = {}
    for variable, text in zip(above, texts, strict=True):
        code = reading.labels.code(variable, text)
        is_known = code is not None or not text or reading.labels.is_total(text)
        must = f"be states of {variable!r}, or a total"
        what = f"the labels above the counts of {reading.grid.name}"
        require(is_known, what, must, "another one", "declare it", error=DataError)
        if code is not None:
            place[variable] = code
    return place


def _others(reading: _Reading, header: _Header, beside: Mapping[int, object]) -> list[int]:
    """Return the columns of a table with one count a line that are neither labels nor counts."""
    return [
        number
        for number in range(len(reading.rows[0]))
        if number not in beside
        and number not in header.counts
        and number != header.symbol
        and reading.column(number, header.end)
    ]


def _refuse_distinctions(reading: _Reading, body: _Body, aside: Sequence[int]) -> None:
    """Raise an error if a column that is set aside tells lines apart: by a variable that is not declared, or a unit.

    It may have one entry, another entry in each line, or one for each label of a column, as codes have; or hold
    percentages.
    """
    lines = [row for row, _ in body.places()]
    for number in aside:
        name = reading.rows[body.header.end - 1][number]
        entries = [reading.rows[row][number] for row in lines]
        kinds = len(set(entries))
        is_code = any(
            kinds == len({reading.rows[row][k] for row in lines})
            and kinds == len({(reading.rows[row][k], reading.rows[row][number]) for row in lines})
            for k in body.beside
        )
        is_right = kinds in (1, len(lines)) or is_code or plain_text(name) in _FLAGS
        # a percentage beside each count
        is_right = is_right or is_unit_of_shares(name)
        what = f"column {number + 1} of {reading.grid.name}"
        must = "have one entry, because no variable is declared for it"
        remedy = "declare it as a variable, keep the lines of one entry, or remove the column"
        require(is_right, what, must, f"{kinds} entries", remedy, error=DataError)


def _refuse_units(reading: _Reading, body: _Body, aside: Sequence[int]) -> None:
    """Raise an error if a title, a note, or a column that is set aside says that the numbers are no counts."""
    must = "hold counts"
    seen = "percentages, rates, averages or thousands by its title"
    remedy = "remove the file, or the line if the numbers are counts"
    titles = [text for row in reading.rows[: body.header.start] for text in row if text]
    # a variable may be called so
    titles = [text for text in titles if reading.labels.variable(text) is None]
    is_right = not any(map(is_share_title, titles))
    require(is_right, reading.grid.name, must, seen, remedy, error=DataError)
    lines = [row for row, _ in body.places()]
    for row in body.notes:
        texts = [text for text in reading.rows[row] if text]
        is_below = row > max(lines, default=0)
        is_right = not any(map(is_of_thousands, texts))
        is_right = is_right and (is_below or not any(map(is_share_title, texts)))
        seen = f"percentages, rates, averages or thousands by a note in {reading.where(row)}"
        require(is_right, reading.grid.name, must, seen, remedy, error=DataError)
    for number in aside:
        name = plain_text(reading.rows[body.header.end - 1][number])
        entries = {reading.rows[row][number] for row in lines}
        is_right = name in _FLAGS or not any(map(is_unit_of_shares, entries))
        if name in _POWERS:
            is_right = entries <= {"", "0"}
        seen = f"percentages, rates, averages or thousands by its column {number + 1}"
        remedy = "keep the lines of counts"
        require(is_right, reading.grid.name, must, seen, remedy, error=DataError)


def _refuse_flagged_zeros(reading: _Reading, body: _Body, aside: Sequence[int]) -> None:
    """Raise an error for a flag that stands beside counts of 0 alone: they may be hidden ones."""
    columns = list(body.header.counts)
    lines = [row for row, _ in body.places()]
    flags = [k for k in aside if plain_text(reading.rows[body.header.end - 1][k]) in _FLAGS]
    if len(columns) > 1:
        return
    for number in flags:
        of_zeros = {reading.rows[r][number] for r in lines if reading.rows[r][columns[0]] == "0"}
        others = {reading.rows[r][number] for r in lines if reading.rows[r][columns[0]] != "0"}
        name = reading.rows[body.header.end - 1][number]
        what = f"the counts of {reading.grid.name}"
        must = "be 0 where nobody was counted"
        seen = f"0 beside a flag in column {number + 1}, and the flag nowhere else"
        remedy = (
            f"write `columns={{'symbol': {name!r}}}`, and what the flag means in `withheld`; or remove the flag "
            "if the counts are known"
        )
        is_right = of_zeros - others <= {""}
        require(is_right, what, must, seen, remedy, error=DataError)


class _Body:
    """Rows below the header, with the states that their labels name."""

    def __init__(
        self, reading: _Reading, header: _Header, beside: Mapping[int, tuple[Variable, ...]]
    ) -> None:
        self.reading = reading
        self.header = header
        self.beside = beside
        self.notes: list[int] = []
        self._rows = list(self._counted())

    def places(self) -> list[tuple[int, Place]]:
        """Return the rows that have counts, with the states of each."""
        return self._rows

    def _has_counts(self, row: int) -> bool:
        """Return True for a row of counts; a note below the table may have text, and few numbers, in their columns.

        A row with all its labels has counts even if they are empty, unless such rows head sections.
        """
        entries = self.reading.rows[row]
        has_sections = any(len(own) > 1 for own in self.beside.values())
        if not has_sections and all(self.reading.labels.is_label(entries[k]) for k in self.beside):
            return True
        columns = [*self.header.counts]
        if self.header.symbol >= 0:
            columns.append(self.header.symbol)
        filled = [bool(entries[number]) for number in columns]
        numbers = sum(self.reading.marks.is_number(entries[number]) for number in columns)
        are_numbers = 2 * numbers >= len(columns)
        return any(filled) and (all(filled) or are_numbers or row <= self._last)

    @cached_property
    def _last(self) -> int:
        """Last row whose label is a state or a total."""
        rows = range(self.header.end, len(self.reading.rows))
        is_label = self.reading.labels.is_label
        known = [r for r in rows if any(is_label(self.reading.rows[r][k]) for k in self.beside)]
        return max(known, default=0)

    def _counted(self) -> Iterator[tuple[int, Place]]:
        """Generate the rows that have counts, with the states of each; other rows are headings or notes."""
        labels = self.reading.labels
        rows = range(self.header.end, len(self.reading.rows))
        of_sections = {
            number: _Sections(self.reading, own, number, [(r, self._has_counts(r)) for r in rows])
            for number, own in self.beside.items()
            if len(own) > 1
        }
        held = dict.fromkeys(self.beside, "")
        for row in rows:
            texts = {number: self.reading.rows[row][number] for number in self.beside}
            if not self._has_counts(row):
                is_heading = any(map(labels.is_label, texts.values()))
                if not is_heading:
                    self.notes.append(row)
                for number, text in texts.items():
                    if is_heading and text:
                        held[number] = text
                continue
            place: Place = {}
            is_total = False
            for number, variables in self.beside.items():
                text = texts[number]
                if number in of_sections:
                    place |= of_sections[number].place(row)
                    continue
                text = self._filled(row, number, text, held, is_total=is_total)
                is_total = not text or labels.is_total(text)
                if not is_total:
                    place[variables[0]] = self._code(row, variables[0], text)
            yield row, place

    def _filled(
        self, row: int, number: int, text: str, held: dict[int, str], *, is_total: bool
    ) -> str:
        """Return the label of a row, which an empty cell takes from above, or from a total to its left."""
        columns = [*self.beside]
        if text:
            held[number] = text
            for later in columns[columns.index(number) + 1 :]:
                held[later] = ""
            return text
        if is_total:
            return ""
        is_last = number == columns[-1]
        found = ""
        if not is_last:
            found = held[number]
        is_clear = bool(found) or (is_last and self._is_subtotal(row, columns[:-1]))
        must = "have a label in each row of counts"
        remedy = "write the state, or the name of a total such as 'Total'"
        what = f"column {number + 1} of {self.reading.grid.name}"
        seen = f"none in {self.reading.where(row)}"
        require(is_clear, what, must, seen, remedy, error=UndeclaredStateError)
        return found

    def _is_subtotal(self, row: int, columns: Sequence[int]) -> bool:
        """Return True if a row is the only one with its label, so that the rows below belong to it."""
        if not columns:
            return False
        number = columns[-1]
        text = self.reading.rows[row][number]
        below = [other[number] for other in self.reading.rows[self.header.end :]]
        has_own_rows = row + 1 < len(self.reading.rows) and not self.reading.rows[row + 1][number]
        return bool(text) and below.count(text) == 1 and has_own_rows

    def _code(self, row: int, variable: Variable, text: str) -> int:
        """Return the position of a state, or raise an error that names the row and no label of it."""
        code = self.reading.labels.code(variable, text)
        if code is not None:
            return code
        states = list(map(str, self.reading.labels.domain.states_of(variable)))
        similar = near(text, states)
        remedy = (
            f"declare the state, or remove the row; the declared states are {', '.join(states)}"
        )
        if similar is not None:
            remedy = f"write it as {similar!r} if that is meant"
        must = f"be declared states of {variable!r}"
        what = f"the labels of {self.reading.grid.name}"
        seen = f"another one in {self.reading.where(row)}"
        raise UndeclaredStateError(f"{what} must {must}, got {seen}; {remedy}.")


class _Sections:
    """Column whose labels are of two variables, the first of which heads sections."""

    def __init__(
        self,
        reading: _Reading,
        variables: tuple[Variable, ...],
        number: int,
        rows: Sequence[tuple[int, bool]],
    ) -> None:
        self.reading = reading
        self.outer, self.inner = variables
        self._places: dict[int, Place] = {}
        labels = reading.labels
        texts = {row: reading.rows[row][number] for row, _ in rows}
        headings = [r for r, _ in rows if labels.code(self.outer, texts[r]) is not None]
        totals = [r for r, has in rows if has and labels.is_total(texts[r])]
        grand = self._grand(headings, totals, dict(rows))
        current: Place = {}
        for row, has_counts in rows:
            text = texts[row]
            if row in headings:
                current = {self.outer: labels.code(self.outer, text)}  # type: ignore[dict-item]
                own = current
            elif labels.is_total(text):
                if not has_counts or row in grand:
                    current = {}
                own = current
            elif has_counts:
                own = current | self._inner(row, text)
            else:
                continue
            self._places[row] = own

    def _grand(
        self, headings: list[int], totals: list[int], has_counts: dict[int, bool]
    ) -> set[int]:
        """Return the rows of totals over both variables, after a check that these differ from those of sections."""
        are_totals = [has_counts[row] for row in headings]
        if all(are_totals):
            return set(totals)
        before = [row for row in totals if row < headings[0]]
        after = [row for row in totals if row > headings[0]]
        ends = [*headings, len(self.reading.rows)]
        by_section = [sum(low < row < high for row in after) for low, high in pairwise(ends)]
        if not any(by_section) or (len(headings) > 1 and sum(by_section) == 1 == by_section[-1]):
            return {*before, *after}
        is_even = set(by_section) == {1}
        has_last = set(by_section[:-1]) == {1} and by_section[-1] == 2 and not before
        must = "be totals of each section, or of the whole table"
        what = f"the totals of {self.reading.grid.name}"
        is_clear = not any(are_totals) and (is_even or has_last)
        remedy = "write the two variables in two columns of labels"
        require(is_clear, what, must, "another arrangement", remedy, error=DataError)
        if has_last:
            before.append(after[-1])
        return set(before)

    def _inner(self, row: int, text: str) -> Place:
        code = self.reading.labels.code(self.inner, text)
        must = f"be declared states of {self.outer!r} or {self.inner!r}"
        what = f"the labels of {self.reading.grid.name}"
        seen = f"another one in {self.reading.where(row)}"
        require(code is not None, what, must, seen, "declare it", error=UndeclaredStateError)
        return {self.inner: code}  # type: ignore[dict-item]

    def place(self, row: int) -> Place:
        """Return the states that a row's label and its section name."""
        return self._places[row]
