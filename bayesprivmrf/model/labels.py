"""Labels (names and states): their JSON values in files, and the alignment of labeled tables with a declaration.

In files, text, finite numbers and booleans are written unchanged. A label of another type is an object of one
entry, such as ``{"date": "2020-02-29"}``. The name of the entry is from a fixed list, so that no file names a class
or a module. Labels of all other types are restored as their text.
"""

from __future__ import annotations

import datetime
import functools
import math
import re
import reprlib
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np

from bayesprivmrf.checks import is_labeled, number_array, sides_of
from bayesprivmrf.errors import ModelError, ReleaseFileError
from bayesprivmrf.model.domain import (
    Label,
    Variable,
    codes_by_key,
    is_missing,
    label_key,
    plain_label,
    require_fit,
)

# First format version that has each type in `_kinds`, listed apart because `_kinds` imports pandas
_VERSIONS = {
    **dict.fromkeys(
        ("float", "bytes", "decimal", "fraction", "date", "time", "datetime", "timedelta"), 7
    ),
    **dict.fromkeys(("timestamp", "time span", "period", "interval"), 7),
    **dict.fromkeys(("uuid", "complex"), 8),
}


def encoded(label: Any) -> Any:
    """Return a label as a JSON value; a label of an unsupported type becomes text."""
    label = plain_label(label)
    if isinstance(label, tuple):
        return {"tuple": [encoded(item) for item in label]}
    if type(label) in (bool, int, str) or (type(label) is float and abs(label) != float("inf")):
        return label
    if type(label) in _kinds():
        name, write, read = _kinds()[type(label)]
        with suppress(Exception):  # pandas raises various errors for a frequency without a name
            written = write(label)
            if read(written) == label:
                return {name: written}
    return str(label)


def labels(written: Any) -> tuple[Any, ...]:
    """Return the labels in a list that `encoded` wrote."""
    if not isinstance(written, list):
        raise ReleaseFileError(f"labels must be a list, got {reprlib.repr(written)}")
    return tuple(_decoded(label) for label in written)


def positions(values: Any, size: int) -> tuple[int, ...]:
    """Return the distinct positions in a file's list, such as variables or states; each is below `size`."""
    is_right = isinstance(values, list) and all(
        type(value) is int and 0 <= value < size for value in values
    )
    if not is_right or len(set(values)) < len(values):
        raise ReleaseFileError(
            f"positions must be distinct whole numbers from 0 to {size - 1}, got {reprlib.repr(values)}"
        )
    return tuple(values)


def labels_version(content: Any) -> int:
    """Return the first format version that has all labels of a file's content; 0 if every version has them."""
    if isinstance(content, dict):
        own = _VERSIONS.get(_name_of(content) or "", 0)
        if content:
            return max(own, *map(labels_version, content.values()))
        return 0
    if not isinstance(content, list):
        return 0
    is_plain = bool(content) and isinstance(content[0], int | float | str)
    # long lists of numbers need not be searched
    return max(
        (labels_version(item) for item in content if not is_plain or isinstance(item, dict)),
        default=0,
    )


def _name_of(written: dict[str, Any]) -> str | None:
    if len(written) == 1:
        return next(iter(written))
    return None


def _decoded(label: Any) -> Any:
    if isinstance(label, bool | int | float | str):
        return label
    if isinstance(label, dict):
        name = _name_of(label)
    else:
        name = None
    if name == "tuple":
        return labels(label[name])
    for own, _, read in _kinds().values() if name in _VERSIONS else ():
        with suppress(Exception):  # any error of the constructor means that the label is invalid
            if own == name:
                return read(label[name])
    raise ReleaseFileError(
        f"a label must be text, a number, true or false, or of a known kind, got {reprlib.repr(label)}"
    )


@functools.cache
def _kinds() -> dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]]:
    """Return the name of each supported type of label, with the functions that write and read it."""
    import pandas as pd

    return {
        float: ("float", repr, float),  # infinite numbers, because finite ones are JSON values
        bytes: ("bytes", bytes.hex, bytes.fromhex),
        Decimal: ("decimal", str, _decimal),
        Fraction: ("fraction", str, _fraction),
        UUID: ("uuid", str, UUID),
        complex: ("complex", repr, complex),
        datetime.date: ("date", datetime.date.isoformat, datetime.date.fromisoformat),
        datetime.time: ("time", datetime.time.isoformat, datetime.time.fromisoformat),
        datetime.datetime: (
            "datetime",
            lambda moment: [moment.isoformat(), moment.fold, _zone(moment)],
            lambda parts: _in_zone(datetime.datetime.fromisoformat(parts[0]), parts[2]).replace(
                fold=parts[1]
            ),
        ),
        datetime.timedelta: (
            "timedelta",
            lambda span: [span.days, span.seconds, span.microseconds],
            lambda parts: datetime.timedelta(*parts),
        ),
        pd.Timestamp: (
            "timestamp",
            lambda moment: [moment.isoformat(), moment.unit, _zone(moment)],
            lambda parts: _in_zone(pd.Timestamp(parts[0]), parts[2]).as_unit(parts[1]),
        ),
        pd.Timedelta: (
            "time span",
            lambda span: [int(span.asm8.astype(np.int64)), span.unit],
            lambda parts: pd.Timedelta(np.timedelta64(*parts)),
        ),
        pd.Period: (
            "period",
            lambda period: [period.ordinal, period.freqstr],
            lambda parts: pd.Period(ordinal=parts[0], freq=parts[1]),
        ),
        pd.Interval: (
            "interval",
            lambda one: [encoded(one.left), encoded(one.right), one.closed],
            lambda parts: pd.Interval(*labels(parts[:2]), closed=parts[2]),
        ),
    }


def _decimal(text: str) -> Decimal:
    """Return a decimal number after a check that its exponent is no larger than Python's limit on digits."""
    found = Decimal(text)
    if found.is_finite() and abs(found.adjusted()) > 4300:
        raise ValueError("a label must not have so large an exponent")
    return found


def _fraction(text: str) -> Fraction:
    """Return a fraction of two whole numbers; an exponent, which `Fraction` also reads, could fill the memory."""
    above, _, below = text.partition("/")
    return Fraction(int(above), int(below or "1"))


def _zone(moment: datetime.datetime) -> str | None:
    """Return the name of a time's zone; None if it has no zone or only an offset."""
    return getattr(moment.tzinfo, "key", None)


def _in_zone(moment: Any, zone: str | None) -> Any:
    """Return a time in its zone, or with its offset if this machine does not know the zone."""
    if zone is None:
        return moment
    if moment.tzinfo is None:
        raise ValueError("a moment in a zone must have an offset")
    if zone in zoneinfo.available_timezones():
        return moment.astimezone(zoneinfo.ZoneInfo(zone))
    return moment


def aligned(
    what: str,
    values: Any,
    names: Sequence[Variable] | None,
    states: Sequence[Sequence[Label]],
    read: Callable[[str, Any], np.ndarray] = number_array,
) -> np.ndarray:
    """Return the values of a table as an array with one axis for each variable, in declared order.

    Parameters
    ----------
    what
        Description of the values in error messages.
    values
        A plain array or nested lists, which are read by position; a DataFrame, Series or DataArray, whose axes and
        levels are matched to variables by name and to states by label; or a mapping from the states of each cell to
        its value.
    names
        The variables, in the order of the result's axes; None if the names of axes are ignored.
    states
        Declared states of each variable, in the order of the result.
    read
        Function that converts the values to an array, or raises an error.

    Returns
    -------
    ndarray
        Shape (states of the first variable, ...).

    Raises
    ------
    ModelError
        The shape, the names or the labels are not those of the variables.

    Notes
    -----
    An axis without a name belongs to the first variable that no other axis names. The same holds for an axis with a
    generated name, such as ``row_0``. Labels are compared in the same way as declared states: `1` and `1.0` are the
    same label, `True` and `1` are different. Each state occurs once. The numbers by which pandas counts rows or
    columns from 0 are labels too, because an index that was set to ``[0, 1]`` looks the same. They are refused unless
    they are the declared states. Only an axis of a DataArray without a coordinate is in declared order.

    Examples
    --------
    >>> aligned("the table", {"yes": 3, "no": 5}, ["ill"], [["no", "yes"]]).tolist()
    [5, 3]
    """
    if isinstance(values, Mapping):
        sides = [_levels_of_cells(what, values, states)]
        raw = list(values.values())
    else:
        sides = sides_of(values)
        raw = values
        if sides is not None:
            _refuse_columns_of_states(what, values, names or (), states)
            raw = np.asarray(values)
            if raw.dtype.kind == "O":
                raw = raw.tolist()
        else:
            must = "be an array, a pandas DataFrame or Series, a DataArray or a mapping from cells"
            seen = f"a {type(values).__name__} of labeled values"
            remedy = "convert it to one of those"
            require_fit(not is_labeled(values), what, must, seen, remedy)
    array = read(what, raw)
    shape = tuple(map(len, states))
    if sides is None:
        require_fit(
            array.shape == shape, what, f"have shape {shape}, one axis per variable", array.shape
        )
        return array
    require_fit(
        array.ndim == len(sides),
        what,
        "hold one value per cell",
        f"an array of shape {array.shape}",
    )
    # a frame of one column
    if len(sides) == 2 and array.shape[1:] == (1,) and len(sides[0]) == len(states):
        sides = sides[:1]
        array = array[:, 0]
    levels = [level for side in sides for level in side]
    places = _places(what, [name for name, _ in levels], names, len(states))
    used = iter(places)
    for axis, side in enumerate(sides):
        own = [next(used) for _ in side]
        sizes = [shape[place] for place in own]
        shown = [f"axis {place}" if names is None else repr(names[place]) for place in own]
        codes = [
            _codes(what, variable, array.shape[axis], labels, states[place])
            for variable, place, (_, labels) in zip(shown, own, side, strict=True)
        ]
        if len(side) > 1:
            cells = np.ravel_multi_index(codes, sizes)
        else:
            cells = codes[0]
        order = np.argsort(cells, kind="stable")
        must = f"hold each state of {' and '.join(shown)} once, in every combination"
        seen = (
            f"{len(cells)} entries with {len(np.unique(cells))} of {math.prod(sizes)} combinations"
        )
        is_each = np.array_equal(cells[order], np.arange(math.prod(sizes)))
        require_fit(is_each, what, must, seen, "add the missing ones, and sum entries that repeat")
        array = array.take(order, axis=axis)
    return array.reshape([shape[place] for place in places]).transpose(np.argsort(places))


def _refuse_columns_of_states(
    what: str, values: Any, names: Sequence[Variable], states: Sequence[Sequence[Label]]
) -> None:
    """Raise an error for a data frame with a column of a variable's states, which its rows should have as labels."""
    columns = list(getattr(values, "columns", ()))
    # numbers are names that pandas gives; counts may be named after the variable of their rows
    held = [v for v in names if isinstance(v, str) and v in columns and v not in values.index.names]
    # a state may have the name of a variable
    is_crosstab = any(set(columns) <= set(own) for own in states)
    must = f"have the states of {', '.join(map(repr, held))} as labels of its rows"
    if len(held) == len(names):
        of_counts = " and take the column of its counts"
    else:
        of_counts = ""
    remedy = f"write `frame.set_index({held!r})`{of_counts}"
    require_fit(is_crosstab or not held, what, must, "them in a column", remedy)


def _levels_of_cells(
    what: str, values: Mapping[Any, Any], states: Sequence[Sequence[Label]]
) -> list[Any]:
    """Return the levels of a mapping from cells, whose keys are tuples if there are several variables."""
    cells = list(values)
    if len(states) == 1:
        known = set(map(label_key, states[0]))
        is_single = [isinstance(c, tuple) and len(c) == 1 for c in cells]
        cells = [
            c[0] if one and label_key(c) not in known else c
            for c, one in zip(cells, is_single, strict=True)
        ]
        return [(None, cells)]
    are_cells = all(isinstance(cell, tuple) and len(cell) == len(states) for cell in cells)
    must = f"map each cell, a tuple of {len(states)} states such as {tuple(s[0] for s in states)!r}, to its value"
    require_fit(are_cells, what, must, "other keys")
    return [(None, [cell[place] for cell in cells]) for place in range(len(states))]


def _places(
    what: str, given: Sequence[Any], names: Sequence[Variable] | None, count: int
) -> list[int]:
    """Return the position of the variable of each level."""
    # names from `pandas.crosstab` and xarray for axes without one
    generated = re.compile(r"(row|col|dim)_\d+")
    places: list[int | None] = [None] * len(given)
    if names is not None:
        known: dict[Any, int] = {str(name): place for place, name in enumerate(names)}
        known |= {label_key(name): place for place, name in enumerate(names)}
        for level, name in enumerate(given):
            places[level] = known.get(
                label_key(name), known.get(name) if isinstance(name, str) else None
            )
            is_unnamed = name is None or (isinstance(name, str) and generated.fullmatch(name))
            must = f"have axes named {', '.join(map(repr, names))}, or without names"
            is_known = places[level] is not None or is_unnamed
            require_fit(is_known, what, must, f"an axis named {reprlib.repr(name)}", "rename it")
    taken = [place for place in places if place is not None]
    is_once = len(set(taken)) == len(taken)
    seen = f"{len(given)}{'' if is_once else ' of which two have the same name'}"
    must = f"have one axis or level for each of {count} variables"
    remedy = "select values, unstack or rename levels"
    require_fit(len(given) == count and is_once, what, must, seen, remedy)
    left = iter([place for place in range(count) if place not in taken])
    return [next(left) if place is None else place for place in places]


def _codes(
    what: str, variable: str, count: int, labels: Sequence[Any] | None, states: Sequence[Label]
) -> np.ndarray:
    """Return the code of each label of an axis; an axis without labels is in declared order."""
    if labels is None:
        must = f"have {len(states)} entries for the states of {variable}"
        require_fit(count == len(states), what, must, count)
        return np.arange(count)
    declared = codes_by_key(states)
    codes = [declared.get(label_key(label)) for label in labels]
    if None in codes:
        unknown = labels[codes.index(None)]
        seen = reprlib.repr(unknown)
        remedy = "relabel it, or leave it out"
        if isinstance(labels, range):
            seen = "numbers from 0, by which pandas counts rows and columns"
            remedy = "set the index to the states, or give `.to_numpy()` in declared order"
        elif is_total_name(unknown):
            remedy = "leave out the margins"
        elif is_missing(unknown):
            remedy = "relabel it with the declared state for missing values, or leave it out"
        must = f"be labeled on {variable} by {reprlib.repr(list(states))}"
        raise ModelError(f"{what} must {must}, got {seen}; {remedy}.")
    return np.array(codes, dtype=np.int64)


def is_total_name(label: Any) -> bool:
    """Return True for the usual names of a margin, such as "All" of ``crosstab(margins=True)``."""
    return isinstance(label, str) and label.strip().casefold() in {
        "all",
        "total",
        "totals",
        "sum",
        "overall",
    }


def is_fully_labeled(values: Any) -> bool:
    """Return True if no axis of a table is read by position."""
    sides = sides_of(values) or []
    has_labels = bool(sides) and all(labels is not None for side in sides for _, labels in side)
    return isinstance(values, Mapping) or has_labels


def cells_in_order(
    what: str, values: Any, names: Sequence[Variable], states: Sequence[Sequence[Label]]
) -> np.ndarray:
    """Return where each declared cell stands in a table: the positions of its cells, counted in the given order."""

    def numbered(_: str, raw: Any) -> np.ndarray:
        shape = np.shape(raw)
        return np.arange(math.prod(shape)).reshape(shape)

    return aligned(what, values, names, states, numbered)
