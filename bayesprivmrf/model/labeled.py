"""Alignment of labeled tables with a declaration, by names and labels instead of positions."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bayesprivmrf.checks import is_labeled, number_array, sides_of
from bayesprivmrf.errors import ModelError
from bayesprivmrf.model.domain import Label, Variable, label_key, require_fit


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
    same label, `True` and `1` are different. Each state occurs once. If pandas only numbers rows or columns from 0,
    they have no labels and are in declared order. If those numbers are the states in another order, the table is
    ambiguous and is refused.

    Examples
    --------
    >>> aligned("the table", {"yes": 3, "no": 5}, ["ill"], [["no", "yes"]]).tolist()
    [5, 3]
    """
    if isinstance(values, Mapping):
        sides, raw = [_levels_of_cells(what, values, states)], list(values.values())
    else:
        sides, raw = sides_of(values), values
        if sides is not None:
            raw = np.asarray(values)
            raw = raw.tolist() if raw.dtype.kind == "O" else raw
        else:
            must = "be an array, a pandas DataFrame or Series, a DataArray or a mapping from cells"
            seen, remedy = f"a {type(values).__name__} of labeled values", "convert it to one of those"
            require_fit(not is_labeled(values), what, must, seen, remedy)
    array, shape = read(what, raw), tuple(map(len, states))
    if sides is None:
        require_fit(array.shape == shape, what, f"have shape {shape}, one axis per variable", array.shape)
        return array
    require_fit(array.ndim == len(sides), what, "hold one value per cell", f"an array of shape {array.shape}")
    if len(sides) == 2 and array.shape[1:] == (1,) and len(sides[0]) == len(states):  # a frame of one column
        sides, array = sides[:1], array[:, 0]
    levels = [level for side in sides for level in side]
    places = _places(what, [name for name, _ in levels], names, len(states))
    used = iter(places)
    for axis, side in enumerate(sides):
        own = [next(used) for _ in side]
        sizes = [shape[place] for place in own]
        shown = [f"axis {place}" if names is None else repr(names[place]) for place in own]
        codes = [
            _codes(what, variable, range(array.shape[axis]) if labels is None else labels, states[place])
            for variable, place, (_, labels) in zip(shown, own, side, strict=True)
        ]
        cells = np.ravel_multi_index(codes, sizes) if len(side) > 1 else codes[0]
        order = np.argsort(cells, kind="stable")
        must = f"hold each state of {' and '.join(shown)} once, in every combination"
        seen = f"{len(cells)} entries with {len(np.unique(cells))} of {math.prod(sizes)} combinations"
        is_each = np.array_equal(cells[order], np.arange(math.prod(sizes)))
        require_fit(is_each, what, must, seen, "add the missing ones, and sum entries that repeat")
        array = array.take(order, axis=axis)
    return array.reshape([shape[place] for place in places]).transpose(np.argsort(places))


def _levels_of_cells(what: str, values: Mapping[Any, Any], states: Sequence[Sequence[Label]]) -> list[Any]:
    """Return the levels of a mapping from cells, whose keys are tuples if there are several variables."""
    cells = list(values)
    if len(states) == 1:
        known = set(map(label_key, states[0]))
        is_single = [isinstance(c, tuple) and len(c) == 1 for c in cells]
        cells = [
            c[0] if one and label_key(c) not in known else c for c, one in zip(cells, is_single, strict=True)
        ]
        return [(None, cells)]
    are_cells = all(isinstance(cell, tuple) and len(cell) == len(states) for cell in cells)
    must = f"map each cell, a tuple of {len(states)} states such as {tuple(s[0] for s in states)!r}, to its value"
    require_fit(are_cells, what, must, "other keys")
    return [(None, [cell[place] for cell in cells]) for place in range(len(states))]


def _places(what: str, given: Sequence[Any], names: Sequence[Variable] | None, count: int) -> list[int]:
    """Return the position of the variable of each level."""
    # names from `pandas.crosstab` and xarray for axes without one
    generated = re.compile(r"(row|col|dim)_\d+")
    places: list[int | None] = [None] * len(given)
    if names is not None:
        known: dict[Any, int] = {str(name): place for place, name in enumerate(names)}
        known |= {label_key(name): place for place, name in enumerate(names)}
        for level, name in enumerate(given):
            places[level] = known.get(label_key(name), known.get(name) if isinstance(name, str) else None)
            is_unnamed = name is None or (isinstance(name, str) and generated.fullmatch(name))
            must = f"have axes named {', '.join(map(repr, names))}, or without names"
            is_known = places[level] is not None or is_unnamed
            require_fit(is_known, what, must, f"an axis named {reprlib.repr(name)}", "rename it")
    taken = [place for place in places if place is not None]
    is_once = len(set(taken)) == len(taken)
    seen = f"{len(given)}{'' if is_once else ' of which two have the same name'}"
    must, remedy = (
        f"have one axis or level for each of {count} variables",
        "select values, unstack or rename levels",
    )
    require_fit(len(given) == count and is_once, what, must, seen, remedy)
    left = iter([place for place in range(count) if place not in taken])
    return [next(left) if place is None else place for place in places]


def _codes(what: str, variable: str, labels: Sequence[Any], states: Sequence[Label]) -> np.ndarray:
    """Return the code of each label of an axis; an axis without labels is in declared order."""
    declared = {label_key(state): code for code, state in enumerate(states)}
    if isinstance(labels, range):
        must = f"have {len(states)} entries for the states of {variable}"
        require_fit(len(labels) == len(states), what, must, len(labels))
        numbers = [declared.get(label_key(label)) for label in labels]
        must = f"state which entry of {variable} is which state"
        seen = "numbers from 0 by pandas, which are the declared states in another order"
        remedy = "set the index to the states, or give `.to_numpy()` in declared order"
        require_fit(None in numbers or numbers == list(labels), what, must, seen, remedy)
        return np.arange(len(labels))
    codes = [declared.get(label_key(label)) for label in labels]
    if None in codes:
        unknown = labels[codes.index(None)]
        # `crosstab(margins=True)` gives its sums this label
        remedy = "leave out the margins" if unknown == "All" else "relabel it, or leave it out"
        must = f"be labeled on {variable} by {reprlib.repr(list(states))}"
        raise ModelError(f"{what} must {must}, got {reprlib.repr(unknown)}; {remedy}.")
    return np.array(codes, dtype=np.int64)
