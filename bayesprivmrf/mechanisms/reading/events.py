"""One row an event: turned to one row a person with a column a step, or to one row a transition.

Both see the data, so that they stand here; neither adds noise. What a person's events become depends on that person's
alone, so that a mechanism's promise for rows of the first, and for persons of both, is one for the events' persons.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np

from bayesprivmrf.checks import one_of, whole_number
from bayesprivmrf.errors import ArgumentError, DataError
from bayesprivmrf.mechanisms.reading.coding import is_missing
from bayesprivmrf.mechanisms.reading.frame import column_names, frame_of, guarded, in_memory, match_columns
from bayesprivmrf.mechanisms.reading.persons import Persons, rank_within
from bayesprivmrf.model.domain import Variable, listed
from bayesprivmrf.model.tables import IntArray


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
