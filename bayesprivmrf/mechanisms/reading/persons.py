"""Which rows of each person are counted: the first ones, up to a public number; and how much each weighs.

One row an event: turned to one row a person with a column a step, or to one row a transition.

Both see the data, so that they stand here; neither adds noise. What a person's events become depends on that person's
alone, so that a mechanism's promise for rows of the first, and for persons of both, is one for the events' persons.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Literal
from uuid import UUID

import numpy as np

from bayesprivmrf.checks import one_of, whole_number
from bayesprivmrf.errors import ArgumentError, DataError
from bayesprivmrf.mechanisms.reading.coding import distinct_values, is_missing
from bayesprivmrf.mechanisms.reading.frame import (
    column_names,
    frame_of,
    guarded,
    in_memory,
    match_columns,
    named_column,
)
from bayesprivmrf.model.domain import Variable, label_key, listed
from bayesprivmrf.model.tables import IntArray

# types that can name a person; `_name` gives their values one exact and transitive equality
_NAMES = {str, bytes, int, bool, float, Decimal, UUID, date, datetime, time, timedelta}
# types of NumPy, which become Python's
_NUMPY = (np.integer, np.floating, np.bool_, np.str_, np.bytes_)
# types of pandas, by name, since pandas may not be imported
_PANDAS = {"Timestamp", "Timedelta", "Period"}

# Names of the columns that a query is given: whose a row is, and the counts that say what is kept of it
_NEW = ("bayesprivmrf person", "bayesprivmrf alike", "bayesprivmrf rows", "bayesprivmrf kinds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Persons:
    """The column that says whose a row is, and how many rows of one person are counted.

    Parameters
    ----------
    column
        Name of the column.
    at_most
        Rows of one person that are counted: the first ones in the frame's order.
    grid
        Units that the rows of one person share, each of K counted rows having floor(grid / K); by default a row has
        one unit.
    """

    # a row that is not counted is still somebody's, and an undeclared value in it is refused
    leaves_out_zeros: ClassVar[bool] = False

    column: Hashable
    at_most: int
    grid: int | None = None

    def units(self, data: Any, frame: Any) -> IntArray:
        """Return how much each row weighs, shape (rows,); 0 where it is not counted.

        It depends on that person's rows alone, and on their own order: the rows of others may come and go, before it
        or after it. `Mechanism`s rest on that.

        Raises
        ------
        DataError
            As `numbers` raises it.
        """
        numbers = self.numbers(data, frame)
        kept = rank_within(numbers) < self.at_most
        if self.grid is None:
            return kept.astype(np.int64)
        rows = np.bincount(numbers[kept], minlength=numbers.max(initial=-1) + 1)
        return np.where(kept, self.grid // np.maximum(rows[numbers], 1), 0)

    def of_query(self, data: Any, frame: Any, columns: list[Any]) -> tuple[Any, Any, Any]:
        """Return a lazy frame of distinct rows, and expressions for the weight of a row and for its refusal.

        The rows of a query have no order, so that "the first rows" of a person are defined only where all count, or
        all are equal. Equal rows of each person are counted first, then the rows of each person; neither sum depends
        on an order. The result then equals that of `units`, and all other cases are refused.

        Parameters
        ----------
        columns
            The columns of the declared variables.

        Raises
        ------
        DataError
            The column is missing, or some engine does not compare its type exactly.
        """
        import narwhals.stable.v2 as nw

        column = named_column(self.column, column_names(data, frame), "says whose a row is", "person")
        dtype = frame.collect_schema()[column]
        is_bytewise = frame.implementation.is_polars() or frame.implementation.is_pyspark()
        # the collation of an engine may treat two texts as one person; Polars and Spark compare bytes
        if not (dtype.is_integer() or dtype == nw.Date or (dtype == nw.String and is_bytewise)):
            raise self.error()
        who, alike, rows, kinds = _free_names(columns)
        groups = frame.select(nw.col(column).alias(who), *[nw.col(each) for each in set(columns)])
        groups = groups.group_by(who, *set(columns)).agg(nw.len().alias(alike))
        persons = groups.group_by(who).agg(nw.col(alike).sum().alias(rows), nw.len().alias(kinds))
        joined = groups.join(persons, on=who, how="left")
        is_over = nw.col(rows) > self.at_most
        units = nw.when(is_over).then(self.at_most).otherwise(nw.col(alike)).cast(nw.Int64)
        if self.grid is not None:
            counted = nw.when(is_over).then(self.at_most).otherwise(nw.col(rows)).cast(nw.Int64)
            units = units * ((counted * 0 + self.grid) // counted)
        is_refused = nw.col(who).is_null() | (is_over & (nw.col(kinds) > 1))
        return joined, units, nw.when(is_refused).then(1).otherwise(0)

    def error(self) -> DataError:
        """Return the error for a query from which some rows of a person would have to be chosen."""
        return DataError(
            f"where `data` is a query, whose rows have no order, column {self.column!r} must name a person in each "
            "row, by whole numbers or dates (in Polars and PySpark also by text), and a person with more rows than "
            f"`at_most`={self.at_most} must have equal ones. Raise `at_most`, or sort by person and by the order "
            "in which rows shall count, and collect."
        )

    def numbers(self, data: Any, frame: Any) -> IntArray:
        """Return a number for each row, the same for rows of one person, shape (rows,).

        Raises
        ------
        DataError
            The frame is lazy, so that its rows have no order; the column is not there; it holds a missing value, or
            one that cannot be compared.
        """
        import narwhals.stable.v2 as nw

        if isinstance(frame, nw.LazyFrame):
            raise DataError(
                "`data` must be in memory where events are put in order; sort it by person and by what shall come "
                "first, and collect it."
            )
        column = named_column(self.column, column_names(data, frame), "says whose a row is", "person")
        series = frame.get_column(column)
        if is_missing(series).any():
            raise DataError(
                f"column {self.column!r} must name a person in each row, but has a missing value; drop the rows "
                "that are nobody's, or give each a name of its own."
            )
        return self._numbered(series)

    def _numbered(self, series: Any) -> IntArray:
        """Return a number for each row, the same for rows of one person, and no other's.

        Both matter: a person under two numbers has twice the rows, and the rows of two under one number make room for
        each other. So only values of types are taken whose equality is that of what they say; and those of a typed
        Polars column by the engine's own equality, for Python's times are coarser.
        """
        positions, distinct = distinct_values(series)
        names = [_name(value) for value in distinct]
        if any(name is None for name in names):
            raise DataError(
                f"column {self.column!r} must hold names that can be compared: text, whole numbers or dates; recode "
                "it, pairs of columns to one."
            )
        if series.implementation.is_polars() and str(series.dtype) != "Object":
            return np.asarray(positions, dtype=np.int64)
        numbers: dict[Any, int] = {}
        of_value = [numbers.setdefault(label_key(name), len(numbers)) for name in names]
        return np.array(of_value, dtype=np.int64)[positions]


def _free_names(columns: list[Any]) -> list[str]:
    """Return names of new columns that no engine takes for one of these.

    A variable of the same name would be read in place of the count, and the limit would hold for nobody. Many engines
    do not tell capitals from small letters.
    """
    taken = max(
        (len(str(each)) for each in columns if str(each).lower().startswith("bayesprivmrf")), default=0
    )
    return [name.ljust(taken + 1, "_") for name in _NEW]


def _name(value: Any) -> Any:
    """Return a value as a name whose equality is exact and transitive, or None where it has no such form.

    If a equals b and b equals c, but a differs from c, then the position of b decides how many persons there are,
    and one person changes the rows of others. NumPy's numbers become Python's, which compare exactly; its extended
    ``longdouble`` has no such form. Nor have moments of pandas outside the years 1 to 9999, of which equal ones of
    different resolution have two hash values. Times with a zone become moments of UTC, because Python compares the
    two occurrences of a repeated hour by the clock within a zone and by the moment across zones.
    """
    value = value.item() if isinstance(value, _NUMPY) else value
    kind = type(value)
    is_pandas = kind.__module__.partition(".")[0] == "pandas" and kind.__name__ in _PANDAS
    if not (kind in _NAMES or is_pandas) or value != value:
        return None
    if isinstance(value, datetime) and not MINYEAR <= value.year <= MAXYEAR:
        return None
    is_zoned = isinstance(value, datetime) and value.utcoffset() is not None
    return value.astimezone(UTC) if is_zoned else value


def rank_within(groups: IntArray) -> IntArray:
    """Return how many earlier rows are of the same group, shape (rows,)."""
    order = np.argsort(groups, kind="stable")
    placed = groups[order]
    is_first = np.append(True, placed[1:] != placed[:-1])[: placed.size]
    starts = np.flatnonzero(is_first)
    ranks = np.empty_like(groups)
    ranks[order] = np.arange(placed.size) - starts[np.cumsum(is_first) - 1]
    return ranks


def wide_sequences(
    data: Any,
    *,
    person: Hashable,
    position: Hashable,
    state: Hashable,
    length: int,
    names: Sequence[Variable] | None = None,
    longer: Literal["error", "cut"] = "error",
) -> Any:
    """Turn one row an event to one row a person, with the states of the person's events in order.

    Columns after a person's last event are missing: ``missing="<end>"`` of a mechanism reads it as the end state
    that `markov_chain` has by ``end="<end>"``. A person without events has no row.

    Parameters
    ----------
    data
        A frame that narwhals knows; of a lazy one three columns are collected.
    person, position, state
        Names of the columns that say whose an event is, what comes first (numbers, or times; ties keep the frame's
        order), and what it is.
    length
        Longest length, public.
    names
        Name of each step's column; ``x1``, ``x2``, ... by default, as `markov_chain` has them.
    longer
        What becomes of a sequence of more than `length` events: ``"error"`` refuses the data, as values outside the
        declared domain are refused, and like that refusal is not private; ``"cut"`` keeps the first `length` of each
        person's events, and says nothing.

    Returns
    -------
    frame
        In memory and of the same engine, with the column `person` first: as sensitive as the data.

    Raises
    ------
    DataError
        A column is not there, or holds a missing value; or a sequence is longer than `length`, and is not to be cut.

    Examples
    --------
    >>> import pandas as pd
    >>> events = pd.DataFrame({"id": [1, 2, 1], "day": [3, 1, 2], "state": ["ill", "well", "well"]})
    >>> wide_sequences(events, person="id", position="day", state="state", length=2).fillna("<end>").values.tolist()
    [[2, 'well', '<end>'], [1, 'well', 'ill']]
    """
    length = whole_number("length", length, 1)
    is_cut = one_of("longer", longer, ("error", "cut")) == "cut"
    steps = [f"x{t + 1}" for t in range(length)] if names is None else listed("`names`", names)
    if len(steps) != length or len({str(person), *map(str, steps)}) != length + 1:
        raise ArgumentError(
            f"`names` must hold {length} different names, none of them {person!r}, got {len(steps)}."
        )

    def read() -> Any:
        import narwhals.stable.v2 as nw

        frame, numbers = _in_order(data, person, position, state)
        ranks = rank_within(numbers)
        if not is_cut and (ranks >= length).any():
            raise DataError(
                f"a sequence must have at most {length} events, the declared `length`, but there is a longer one; "
                'declare a larger `length`, by public knowledge, or pass longer="cut", which keeps the first '
                f"{length} events of each person."
            )
        first = np.flatnonzero(ranks == 0)
        place = np.empty(numbers.max(initial=-1) + 1, np.int64)
        place[numbers[first]] = np.arange(first.size)
        states, columns = frame[:, 2].to_numpy().astype(object), {}
        for t, name in enumerate(steps):
            own, column = ranks == t, np.full(first.size, None, dtype=object)
            column[place[numbers[own]]] = states[own]
            columns[name] = column.tolist()
        series = [nw.new_series(name, own, backend=frame.implementation) for name, own in columns.items()]
        return nw.to_native(nw.maybe_reset_index(frame[first, [0]].with_columns(*series)))

    return guarded("reading", read)


def transition_rows(
    data: Any,
    *,
    person: Hashable,
    position: Hashable,
    state: Hashable,
    names: tuple[Variable, Variable] = ("from", "to"),
) -> Any:
    """Turn one row an event to one row a transition, in the order of each person's events.

    A mechanism reads them with ``person=``, and with ``at_most=``, or with ``grid=`` as well. Parameters and errors
    are those of `wide_sequences`, without a length; a person of one event makes no transition and has no row.

    Examples
    --------
    >>> import pandas as pd
    >>> events = pd.DataFrame({"id": [1, 2, 1, 1], "day": [3, 1, 2, 4], "state": ["ill", "well", "well", "ill"]})
    >>> transition_rows(events, person="id", position="day", state="state").values.tolist()
    [[1, 'well', 'ill'], [1, 'ill', 'ill']]
    """
    if len({str(person), *map(str, names)}) != 3:
        raise ArgumentError(f"`names` must be two names, neither of them {person!r}, got {names!r}.")

    def read() -> Any:
        import narwhals.stable.v2 as nw

        frame, numbers = _in_order(data, person, position, state)
        order = np.argsort(numbers, kind="stable")
        goes_on = np.append(numbers[order][1:] == numbers[order][:-1], False)[: order.size]
        one, two = order[goes_on], order[np.append(False, goes_on[:-1])[: order.size]]
        states = frame[:, 2]
        rows = frame[one, [0]].with_columns(states[one].alias(names[0]))
        return nw.to_native(nw.maybe_reset_index(rows.with_columns(states[two].alias(names[1]))))

    return guarded("reading", read)


def _in_order(data: Any, *names: Hashable) -> tuple[Any, IntArray]:
    """Return the columns person, position and state in the order of positions, and a number for each row's person."""
    frame = frame_of(data)
    columns = list(match_columns(list(names), column_names(data, frame)).values())
    frame = in_memory(frame, columns).select(columns)
    for name in names[1:]:
        if is_missing(frame.get_column(match_columns([name], frame.columns)[name])).any():
            raise DataError(
                f"column {name!r} must hold no missing value; drop those events, or write a state of their own."
            )
    order = "bayesprivmrf order"  # ties by it: an unstable sort would let the rows of others decide them
    frame = frame.with_row_index(order).sort(columns[1], order).drop(order)
    return frame, Persons(column=names[0], at_most=1).numbers(frame.to_native(), frame)
