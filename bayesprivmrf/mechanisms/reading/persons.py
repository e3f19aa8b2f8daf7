"""Rows of persons: the rows that are counted, their weights, and event logs turned to sequences or transitions.

Of each person, the first rows are counted, up to a public number. `wide_sequences` turns an event log into one row
for each person, with a column for each step, and `transition_rows` into one row for each transition.

These functions see the data, and add no noise. The result for a person depends on that person's events alone. So a
mechanism's guarantee for the rows of `wide_sequences`, or for the persons of either function, is a guarantee for the
persons of the event log.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Literal
from uuid import UUID

import numpy as np

from bayesprivmrf.checks import one_of, require, whole_number
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
from bayesprivmrf.model.domain import Variable, label_key, listed, require_hashable
from bayesprivmrf.model.tables import IntArray

# types whose values can identify a person; `_name` gives them one exact and transitive equality
_NAMES = {str, bytes, int, bool, float, Decimal, UUID, date, datetime, time, timedelta}


@dataclass(frozen=True, slots=True, kw_only=True)
class Persons:
    """Column that identifies the person of a row, with the number of rows of one person that are counted.

    Parameters
    ----------
    column
        Name of the column.
    at_most
        Largest number of rows of one person that are counted, the first ones in the order of the frame.
    grid
        Units that the rows of one person share: each of K counted rows has floor(grid / K). By default a row has one
        unit.
    """

    # a row that is not counted still belongs to somebody, and an undeclared value in it is refused
    leaves_out_zeros: ClassVar[bool] = False

    column: Hashable
    at_most: int
    grid: int | None = None

    def units(self, data: Any, frame: Any) -> IntArray:
        """Return the weight of each row, shape (rows,); 0 for a row that is not counted.

        The weight depends only on the rows of the same person and their order, and not on the rows of others. The
        guarantees of mechanisms rely on this.

        Raises
        ------
        DataError
            `numbers` raises it.
        """
        numbers = self.numbers(data, frame)
        kept = rank_within(numbers) < self.at_most
        if self.grid is None:
            return kept.astype(np.int64)
        rows = np.bincount(numbers[kept], minlength=numbers.max(initial=-1) + 1)
        return np.where(kept, self.grid // np.maximum(rows[numbers], 1), 0)

    def of_query(self, data: Any, frame: Any, columns: list[Any]) -> tuple[Any, Any, Any]:
        """Return a lazy frame of distinct rows, and expressions for the weight of a row and for its refusal.

        The rows of a query have no order, so the first rows of a person are defined only if all rows are counted or
        all are equal. The query counts the equal rows of each person, and then the rows of each person; neither sum
        depends on an order. In these cases the result equals that of `units`, and all other cases are refused.

        Parameters
        ----------
        columns
            The columns of the declared variables.

        Raises
        ------
        DataError
            The column is missing, or some engine does not compare values of its type exactly.
        """
        import narwhals.stable.v2 as nw

        column = self._named(data, frame)
        dtype = frame.collect_schema()[column]
        is_bytewise = frame.implementation.is_polars() or frame.implementation.is_pyspark()
        # the collation of an engine may treat two different texts as equal; Polars and Spark compare bytes
        if not (dtype.is_integer() or dtype == nw.Date or (dtype == nw.String and is_bytewise)):
            raise self.error()
        # new columns: the person of a row, and three counts, of equal rows, of all rows and of different rows of the
        # person. Their names differ from all given ones in every engine, of which many ignore the case of letters:
        # a variable of the same name would be read in place of the count, and the limit on rows would not hold.
        taken = max((len(str(c)) for c in columns if str(c).lower().startswith("bayesprivmrf")), default=0)
        new = ("person", "alike", "rows", "kinds")
        who, alike, rows, kinds = (f"bayesprivmrf {name}".ljust(taken + 1, "_") for name in new)
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
        """Return the error for a query in which the rows of a person would have to be chosen."""
        return DataError(
            f"if `data` is a query, whose rows have no order, column {self.column!r} must identify a person in each "
            "row, by whole numbers or dates (in Polars and PySpark also by text), and a person with more rows than "
            f"`at_most`={self.at_most} must have equal rows. Increase `at_most`, or sort by person and by the order "
            "in which rows should count, and collect."
        )

    def numbers(self, data: Any, frame: Any) -> IntArray:
        """Return the number of each row's person, shape (rows,).

        Raises
        ------
        DataError
            The frame is lazy, so that its rows have no order; or the column does not exist, or has a value that is
            missing or cannot be compared.
        """
        import narwhals.stable.v2 as nw

        remedy = "sort it by person and by the position of events, and collect it"
        must = "be in memory, because the order of events matters"
        require(not isinstance(frame, nw.LazyFrame), "data", must, "a query", remedy, error=DataError)
        series = frame.get_column(self._named(data, frame))
        what = f"column {self.column!r}"
        remedy = "drop the rows without a person, or give each a name of its own"
        is_whole, must = not is_missing(series).any(), "identify a person in each row"
        require(is_whole, what, must, "a missing value", remedy, error=DataError)
        # Equal numbers for rows of one person, different ones for different persons. Both directions matter: a
        # person with two numbers has twice as many counted rows, and if two persons share a number, one of them
        # changes which rows of the other are counted. So only types with an exact equality are allowed. A typed
        # Polars column is compared by Polars, because times in Python are coarser.
        positions, distinct = distinct_values(series)
        names = [_name(value) for value in distinct]
        is_known = all(name is not None for name in names)
        must = "hold text, whole numbers or dates, which can be compared"
        remedy = "recode it, for instance several columns into one text"
        require(is_known, what, must, "another kind of value", remedy, error=DataError)
        if series.implementation.is_polars() and str(series.dtype) != "Object":
            return np.asarray(positions, dtype=np.int64)
        numbers: dict[Any, int] = {}
        of_value = [numbers.setdefault(label_key(name), len(numbers)) for name in names]
        return np.array(of_value, dtype=np.int64)[positions]

    def _named(self, data: Any, frame: Any) -> Any:
        """Return the name of the column as the frame spells it."""
        return named_column(
            self.column, column_names(data, frame), "identifies the person of a row", "person"
        )


def _name(value: Any) -> Any:
    """Return a value in a form whose equality is exact and transitive, or None if it has no such form.

    If a equals b and b equals c, but a differs from c, then the position of b determines how many persons there are,
    and one person changes the rows of others. Numbers of NumPy become Python numbers, which compare exactly; its
    extended ``longdouble`` has no such form. Pandas timestamps outside the years 1 to 9999 have no such form either,
    because equal ones of different resolution have different hash values. Times with a zone become UTC, because
    Python compares the two occurrences of a repeated hour by the clock within a zone and by the moment across zones.
    """
    value = (
        value.item()
        if isinstance(value, np.integer | np.floating | np.bool_ | np.str_ | np.bytes_)
        else value
    )
    kind = type(value)
    # by name, because pandas may not be imported
    pandas_names = {"Timestamp", "Timedelta", "Period"}
    is_pandas = kind.__module__.partition(".")[0] == "pandas" and kind.__name__ in pandas_names
    if not (kind in _NAMES or is_pandas) or value != value:
        return None
    if isinstance(value, datetime) and not MINYEAR <= value.year <= MAXYEAR:
        return None
    is_zoned = isinstance(value, datetime) and value.utcoffset() is not None
    return value.astimezone(UTC) if is_zoned else value


def rank_within(groups: IntArray) -> IntArray:
    """Return the number of earlier rows of the same group, shape (rows,)."""
    import pandas as pd

    return pd.Series(groups).groupby(groups).cumcount().to_numpy()


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
    """Return one row for each person from one row for each event, with the states of the events in order.

    Columns after a person's last event are missing values. The setting ``missing="<end>"`` of a mechanism reads them
    as the end state that ``markov_chain(end="<end>")`` declares. A person without events has no row.

    Parameters
    ----------
    data
        Any frame that narwhals supports; of a lazy frame, three columns are collected.
    person, position, state
        Names of the columns with the person of an event, its position (numbers or times; ties keep the order of the
        frame), and its state.
    length
        Largest length of a sequence, public.
    names
        Name of each step's column; ``x1``, ``x2``, ... by default, as in `markov_chain`.
    longer
        Treatment of a sequence of more than `length` events. ``"error"`` refuses the data, like values outside the
        declared domain; this refusal is not private. ``"cut"`` keeps the first `length` events of each person without
        a message.

    Returns
    -------
    frame
        A frame in memory of the same engine, with the column `person` first; as sensitive as the data.

    Raises
    ------
    DataError
        A column does not exist or has a missing value; or a sequence is longer than `length` under ``"error"``.

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
    _require_names(steps, person=person, position=position, state=state)
    is_named = len(steps) == length and len({str(person), *map(str, steps)}) == length + 1
    must = f"be {length} different names, none of them {person!r}"
    require(is_named, "names", must, len(steps), "write one for each step")

    def read() -> Any:
        import narwhals.stable.v2 as nw

        frame, numbers = _in_order(data, person, position, state)
        ranks = rank_within(numbers)
        must = f"have at most {length} events, the declared `length`"
        remedy = 'declare a larger `length`, by public knowledge, or pass longer="cut", which keeps the first events'
        is_short = is_cut or not (ranks >= length).any()
        require(is_short, "a sequence", must, "a longer one", remedy, error=DataError)
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
    """Return one row for each transition from one row for each event, in the order of each person's events.

    A mechanism reads these rows with the settings ``person=`` and ``at_most=``, and optionally ``grid=``. A person
    with one event has no transition and no row.

    Parameters
    ----------
    data, person, position, state
        As for `wide_sequences`.
    names
        Names of the columns with the states before and after the transition.

    Returns
    -------
    frame
        A frame in memory of the same engine, with the column `person` first; as sensitive as the data.

    Raises
    ------
    DataError
        A column does not exist or has a missing value.

    Examples
    --------
    >>> import pandas as pd
    >>> events = pd.DataFrame({"id": [1, 2, 1, 1], "day": [3, 1, 2, 4], "state": ["ill", "well", "well", "ill"]})
    >>> transition_rows(events, person="id", position="day", state="state").values.tolist()
    [[1, 'well', 'ill'], [1, 'ill', 'ill']]
    """
    ends = listed("`names`", names, "write ('from', 'to')", ArgumentError)
    _require_names(ends, person=person, position=position, state=state)
    is_named = len(ends) == 2 and len({str(person), *map(str, ends)}) == 3
    must = f"be two different names, neither of them {person!r}"
    require(is_named, "names", must, ends, "write ('from', 'to')")

    def read() -> Any:
        import narwhals.stable.v2 as nw

        frame, numbers = _in_order(data, person, position, state)
        order = np.argsort(numbers, kind="stable")
        goes_on = np.append(numbers[order][1:] == numbers[order][:-1], False)[: order.size]
        one, two = order[goes_on], order[np.append(False, goes_on[:-1])[: order.size]]
        states = frame[:, 2]
        rows = frame[one, [0]].with_columns(states[one].alias(ends[0]))
        return nw.to_native(nw.maybe_reset_index(rows.with_columns(states[two].alias(ends[1]))))

    return guarded("reading", read)


def _require_names(names: Sequence[Any], **columns: Any) -> None:
    """Raise an error unless each column, of the data and of the result, is named by one value, such as text."""
    for argument, name in [*columns.items(), *(("names", each) for each in names)]:
        require_hashable(f"`{argument}`", name, ArgumentError)


def _in_order(data: Any, *names: Hashable) -> tuple[Any, IntArray]:
    """Return the columns person, position and state in the order of positions, and a number for each person."""
    frame = frame_of(data)
    columns = list(match_columns(list(names), column_names(data, frame)).values())
    frame = in_memory(frame, columns).select(columns)
    for name in names[1:]:
        is_whole = not is_missing(frame.get_column(match_columns([name], frame.columns)[name])).any()
        remedy = "drop those events, or give them a state of their own"
        require(is_whole, f"column {name!r}", "hold no missing value", "one", remedy, error=DataError)
    order = "bayesprivmrf order"  # breaks ties: in an unstable sort the rows of others would decide them
    frame = frame.with_row_index(order).sort(columns[1], order).drop(order)
    return frame, Persons(column=names[0], at_most=1).numbers(frame.to_native(), frame)
