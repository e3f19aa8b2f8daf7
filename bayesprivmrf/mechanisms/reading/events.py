"""Event logs and panels in long form, turned into one row for each person or for each transition.

`wide_sequences` makes one row for each person, with a column for each step, and `transition_rows` one row for each
transition.

These functions see the data, and add no noise. The result for a person depends on that person's events alone, because
`positions_of` compares any two positions in the same way whatever the others are. So a mechanism's guarantee for the
rows of `wide_sequences`, or for the persons of either function, is a guarantee for the persons of the event log.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np

from bayesprivmrf.checks import one_of, require, whole_number
from bayesprivmrf.errors import ArgumentError, DataError
from bayesprivmrf.mechanisms.reading.coding import is_missing
from bayesprivmrf.mechanisms.reading.frame import (
    column_names,
    frame_of,
    guarded,
    in_memory,
    match_columns,
)
from bayesprivmrf.mechanisms.reading.persons import Persons, rank_within
from bayesprivmrf.mechanisms.reading.positions import DeclaredOrder, positions_of
from bayesprivmrf.model.domain import Label, Variable, listed, require_name
from bayesprivmrf.model.tables import IntArray

# treatments of a missed position between two events of a person
GAPS = ("refuse", "skip", "ignore")


def wide_sequences(
    data: Any,
    *,
    person: Hashable,
    position: Hashable,
    state: Hashable,
    length: int,
    names: Sequence[Variable] | None = None,
    longer: Literal["error", "cut"] = "error",
    order: Sequence[Label] | None = None,
    gaps: Literal["refuse", "skip", "ignore"] | None = None,
) -> Any:
    """Return one row for each person from one row for each event, with the states of the events in order.

    Cells without an event are missing values. The setting ``missing="<end>"`` of a mechanism reads those after a
    person's last event as the end state that ``markov_chain(end="<end>")`` declares. A person without events has no
    row.

    Parameters
    ----------
    data
        Any frame that narwhals supports; of a lazy frame, three columns are collected.
    person, position, state
        Names of the columns with the person of an event, its position, and its state. Positions are numbers, dates,
        times, periods or ordered categories, whose categories must be public. Text has no such order; declare it by
        `order`.
    length
        Largest length of a sequence, public.
    names
        Name of each step's column. With names, an event goes to the column of its position; the names themselves are
        the positions unless `order` lists them. Without names, the columns are ``x1``, ``x2``, ... as in
        `markov_chain`, and a person's first event goes to ``x1``.
    longer
        Treatment of a sequence of more than `length` steps. ``"error"`` refuses the data, like values outside the
        declared domain; this refusal is not private. ``"cut"`` keeps the first `length` steps of each person without
        a message.
    order
        All positions, in order, such as the waves of a panel. They are public. Consecutive ones are one step apart.
    gaps
        Treatment of a position without an event between two events of a person. ``"refuse"`` refuses the data, which
        is not private, and is the default without `names`. ``"skip"`` leaves its cell missing, and is the default
        with `names`; a mechanism then reads it as the state named in ``missing=``, or refuses it. Under ``"ignore"``
        positions only sort events: the t-th event of a person goes to the t-th column, and ties keep the order of the
        frame. An event log needs ``"ignore"`` where the time between events varies. Otherwise positions are whole
        steps apart, with one event of a person at each.

    Returns
    -------
    frame
        A frame in memory of the same engine, with the column `person` first; as sensitive as the data.

    Raises
    ------
    ArgumentError
        `length`, `names`, `longer`, `order` or `gaps` is not as described.
    DataError
        A column does not exist or has a missing value; positions have no order, no steps, or are not declared; a
        sequence has a gap or two events at one position; or a sequence is longer than `length` under ``"error"``.

    Examples
    --------
    >>> import pandas as pd
    >>> events = pd.DataFrame({"id": [1, 2, 1], "day": [3, 1, 2], "state": ["ill", "well", "well"]})
    >>> wide_sequences(events, person="id", position="day", state="state", length=2).fillna("<end>").values.tolist()
    [[2, 'well', '<end>'], [1, 'well', 'ill']]
    """
    columns = _three_columns(person, position, state)
    length = whole_number("length", length, 1)
    is_cut = one_of("longer", longer, ("error", "cut")) == "cut"
    default = "refuse" if names is None else "skip"
    if gaps is None:
        treatment = default
    else:
        treatment = one_of("gaps", gaps, GAPS)
    if names is None:
        steps = [f"x{t + 1}" for t in range(length)]
    else:
        steps = _column_names(names)
    is_named = len(steps) == length and len({str(person), *map(str, steps)}) == length + 1
    must = f"be {length} different names, none of them {person!r}"
    require(is_named, "names", must, len(steps), "write one for each step")
    is_placed = names is not None and treatment != "ignore"
    if order is None:
        declared = None
    else:
        declared = DeclaredOrder.of("order", order)
    if is_placed:
        declared = declared or DeclaredOrder.of("names", steps)
        must = f"have one position for each of the {length} `names`"
        seen = len(declared.places)
        require(seen == length, "order", must, seen, "list the positions in the order of `names`")

    def read() -> Any:
        import narwhals.stable.v2 as nw

        frame, numbers, units = _in_order(data, columns, declared, treatment)
        ranks = rank_within(numbers)
        first = np.flatnonzero(ranks == 0)
        place = np.empty(numbers.max(initial=-1) + 1, np.int64)
        place[numbers[first]] = np.arange(first.size)
        if units is not None:
            # steps since the first position, or since the person's first event
            if is_placed:
                since = units
            else:
                since = _apart(units[first][place[numbers]], units)
            ranks = _whole_steps(since, length)
        must = f"have at most {length} events, the declared `length`"
        remedy = 'declare a larger `length`, by public knowledge, or pass longer="cut", which keeps the first events'
        is_short = is_cut or not (ranks >= length).any()
        require(is_short, "a sequence", must, "a longer one", remedy, error=DataError)
        column_of_states = frame.get_column(frame.columns[2])
        states = column_of_states.to_numpy().astype(object)
        # pandas would turn whole numbers to floats where a person has no event, and round large ones of all others
        is_kept = frame.implementation.is_pandas_like() and column_of_states.dtype != nw.String
        kind = nw.Object() if is_kept else None
        cells = {}
        for t, name in enumerate(steps):
            own = ranks == t
            column = np.full(first.size, None, dtype=object)
            column[place[numbers[own]]] = states[own]
            cells[name] = column.tolist()
        series = [
            nw.new_series(name, own, kind, backend=frame.implementation)
            for name, own in cells.items()
        ]
        return nw.to_native(nw.maybe_reset_index(frame[first, [0]].with_columns(*series)))

    return guarded("reading", read)


def transition_rows(
    data: Any,
    *,
    person: Hashable,
    position: Hashable,
    state: Hashable,
    names: tuple[Variable, Variable] = ("from", "to"),
    order: Sequence[Label] | None = None,
    gaps: Literal["refuse", "skip", "ignore"] = "refuse",
) -> Any:
    """Return one row for each transition from one row for each event, in the order of each person's events.

    A mechanism reads these rows with the settings ``person=`` and ``at_most=``, and optionally ``grid=``. A person
    with one event has no transition and no row.

    Parameters
    ----------
    data, person, position, state, order
        As for `wide_sequences`.
    names
        Names of the columns with the states before and after the transition.
    gaps
        Treatment of two consecutive events of a person that are more than one step apart. ``"refuse"`` refuses the
        data, which is not private. ``"skip"`` makes no row of them. Under ``"ignore"`` positions only sort events:
        each event follows the one before, and ties keep the order of the frame. An event log needs ``"ignore"`` where
        the time between events varies; for waves it would mix transitions over one step with those over several.

    Returns
    -------
    frame
        A frame in memory of the same engine, with the column `person` first; as sensitive as the data.

    Raises
    ------
    ArgumentError
        `names`, `order` or `gaps` is not as described.
    DataError
        A column does not exist or has a missing value; positions have no order, no steps, or are not declared; or the
        events of a person have a gap, or are less than one step apart.

    Examples
    --------
    >>> import pandas as pd
    >>> events = pd.DataFrame({"id": [1, 2, 1, 1], "day": [3, 1, 2, 4], "state": ["ill", "well", "well", "ill"]})
    >>> transition_rows(events, person="id", position="day", state="state").values.tolist()
    [[1, 'well', 'ill'], [1, 'ill', 'ill']]
    """
    columns = _three_columns(person, position, state)
    ends = _column_names(names, "write ('from', 'to')")
    is_named = len(ends) == 2 and len({str(person), *map(str, ends)}) == 3
    must = f"be two different names, neither of them {person!r}"
    require(is_named, "names", must, ends, "write ('from', 'to')")
    treatment = one_of("gaps", gaps, GAPS)
    if order is None:
        declared = None
    else:
        declared = DeclaredOrder.of("order", order)

    def read() -> Any:
        import narwhals.stable.v2 as nw

        frame, numbers, units = _in_order(data, columns, declared, treatment)
        one, two = _consecutive(numbers)
        if units is not None:
            is_step = (_apart(units[one], units[two]) == 1).astype(bool)
            one = one[is_step]
            two = two[is_step]
        states = frame[:, 2]
        rows = frame[one, [0]].with_columns(states[one].alias(ends[0]))
        return nw.to_native(nw.maybe_reset_index(rows.with_columns(states[two].alias(ends[1]))))

    return guarded("reading", read)


def _column_names(names: Any, remedy: str = "write one for each step") -> tuple[Hashable, ...]:
    """Return the names of new columns after a check that each is one value, such as text."""
    found = tuple(listed("`names`", names, remedy, ArgumentError))
    for name in found:
        require_name("`names`", name, ArgumentError)
    return found


def _three_columns(*columns: Hashable) -> tuple[Hashable, ...]:
    """Return the names of the columns person, position and state after a check that they are three."""
    for argument, name in zip(("person", "position", "state"), columns, strict=True):
        require_name(f"`{argument}`", name, ArgumentError)
    is_named = len(set(map(str, columns))) == 3
    what = "`person`, `position` and `state`"
    must = "be the names of three different columns"
    require(is_named, what, must, columns, "write one name for each", error=ArgumentError)
    return columns


def _in_order(
    data: Any, names: Sequence[Hashable], order: DeclaredOrder | None, gaps: str
) -> tuple[Any, IntArray, np.ndarray | None]:
    """Return the events in the order of positions.

    Returns
    -------
    frame
        The columns person, position and state.
    numbers
        A number for each row's person.
    units
        Position of each row in steps; None under ``gaps="ignore"``.
    """
    frame = frame_of(data, names)
    columns = list(match_columns(list(names), column_names(data, frame)).values())
    frame = in_memory(frame, columns)
    # by place, because narwhals selects no integer names
    frame = frame[:, [list(frame.columns).index(column) for column in columns]]
    _person, position, state = names
    for name, column in zip((position, state), frame.columns[1:], strict=True):
        is_whole = not is_missing(frame.get_column(column)).any()
        remedy = "correct them; give an unknown state a label of its own, and keep its event"
        if name == position:
            remedy = "correct them, or drop the events that have none"
        require(
            is_whole, f"column {name!r}", "hold no missing value", "one", remedy, error=DataError
        )
    positions = positions_of(frame.get_column(frame.columns[1]), position, order)
    # a stable sort: in another one the rows of others would decide the order of ties
    rows = np.argsort(positions.keys, kind="stable")
    frame = frame[rows]
    numbers = Persons(column=names[0], at_most=1).numbers(frame.to_native(), frame)
    if gaps == "ignore":
        return frame, numbers, None
    what = f"column {position!r}"
    must = "hold numbers, periods or ordered categories, which tell whether two events are one step apart"
    remedy = 'pass gaps="ignore" if each event follows the one before at any distance, or list waves as order=[...]'
    require(positions.steps is not None, what, must, "dates or times", remedy, error=DataError)
    units = np.asarray(positions.steps)[rows]
    one, two = _consecutive(numbers)
    apart = _apart(units[one], units[two])
    what = "the positions of a person"
    is_apart = bool((apart >= 1).all())
    must = "be at least one step apart, with one event at each"
    remedy = 'drop repeated events, or pass gaps="ignore" if positions only sort the events'
    require(is_apart, what, must, "closer ones", remedy, error=DataError)
    is_close = gaps == "skip" or bool((apart == 1).all())
    must = "have no gap"
    remedy = 'pass gaps="skip", which makes no step across it, or gaps="ignore" if positions only sort the events'
    require(is_close, what, must, "one", remedy, error=DataError)
    return frame, numbers, units


def _apart(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Return the distances of positions; an overflow gives no warning, which would disclose something of the data."""
    with np.errstate(over="ignore"):
        return two - one


def _whole_steps(since: np.ndarray, length: int) -> IntArray:
    """Return numbers of steps as integers, each larger one as `length`; an error for steps that are not whole."""
    capped = np.minimum(since, length)
    steps = capped.astype(np.int64)
    # differences of huge numbers may wrap around to negative ones
    is_whole = bool(((steps == capped) & (steps >= 0)).all())
    remedy = 'pass gaps="ignore", or round them'
    require(
        is_whole,
        "the positions of a person",
        "be whole steps apart",
        "others",
        remedy,
        error=DataError,
    )
    return steps


def _consecutive(numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Return the rows of each event that has a later one of the same person, and the rows of the next ones."""
    order = np.argsort(numbers, kind="stable")
    goes_on = numbers[order][1:] == numbers[order][:-1]
    return order[:-1][goes_on], order[1:][goes_on]
