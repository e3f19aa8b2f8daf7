"""Checks of arguments that all modules share.

A check returns the value that it accepts, and raises an `ArgumentError` otherwise. Every check of a single number
refuses NaN and booleans, which Python counts as numbers, and infinity where the number must be finite.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from numbers import Number, Real
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, ModelTooLargeError

# Names of the boolean types of Python and NumPy, which Python also counts as numbers
_BOOLEANS = {"bool", "bool_"}
# Largest whole number of things: no memory holds as many of any kind, and NumPy's own errors about more are obscure
_MOST_THINGS = 10**12
# bytes of a gibibyte
GIB = 2**30


def require(
    holds: object,
    name: str,
    must: str,
    got: object,
    remedy: str = "",
    *,
    error: type[BayesPrivMRFError] = ArgumentError,
) -> None:
    """Raise an error with a message of the usual form unless a condition holds.

    Parameters
    ----------
    holds
        The condition.
    name
        The argument's name; or a description of several words, such as ``"the scores of 'age'"``.
    must
        The requirement, which the message puts after "must": ``"be at least 2"``.
    got
        The value that was given. Text is shown unchanged, other values by their representation. Where records are
        checked, give a count, a type or a declared name, and no value of the data.
    remedy
        The remedy, or a question such as `nearest` asks; empty by default.
    error
        The class of the error.

    Examples
    --------
    >>> require(1 >= 2, "length", "be at least 2", 1, "declare a longer chain")
    Traceback (most recent call last):
    bayesprivmrf.errors.ArgumentError: `length` must be at least 2, got 1; declare a longer chain.
    """
    if not holds:
        if isinstance(got, str):
            seen = got
        else:
            seen = repr(got)
        end = "" if remedy.endswith("?") else "."
        raise error(f"{_named(name)} must {must}, got {seen}{remedy and f'; {remedy}'}{end}")


def instance_of[T](
    name: str,
    value: Any,
    kind: type[T],
    must: str,
    remedy: str = "",
    *,
    error: type[BayesPrivMRFError] = ArgumentError,
) -> T:
    """Return a value if it is an instance of a class; otherwise raise an error that names its type.

    Examples
    --------
    >>> instance_of("states", ["low", "high"], Mapping, "map variables to states", "write {variable: states}")
    Traceback (most recent call last):
    bayesprivmrf.errors.ArgumentError: `states` must map variables to states, got a list; write {variable: states}.
    """
    require(isinstance(value, kind), name, must, kind_of(value), remedy, error=error)
    return value


def object_with(
    attribute: str,
    name: str,
    value: Any,
    must: str,
    remedy: str = "",
    *,
    error: type[BayesPrivMRFError] = ArgumentError,
) -> Any:
    """Return an object after a check that it has an attribute; a class is refused, even if it has the attribute.

    Examples
    --------
    >>> object_with("add", "people", list, "be a set of people", "write {...}")
    Traceback (most recent call last):
    bayesprivmrf.errors.ArgumentError: `people` must be a set of people, got the class list; write {...}.
    """
    is_object = not isinstance(value, type) and hasattr(value, attribute)
    require(is_object, name, must, kind_of(value), remedy, error=error)
    return value


def _number(name: str, value: Any, requirement: str) -> float:
    is_number = isinstance(value, Real) and type(value).__name__ not in _BOOLEANS
    require(is_number, name, f"be {requirement}", _shown(value), "write a number")
    with contextlib.suppress(OverflowError):
        return float(value)
    raise ArgumentError(
        f"`{name}` must be {requirement}, got a number beyond 1e308; choose a smaller one."
    )


def _shown(value: Any) -> str:
    """Return the text of a short value, and the type of any other, such as a whole table."""
    if isinstance(value, str | bytes | Number | None):
        return repr(value)
    return kind_of(value)


def kind_of(value: Any) -> str:
    """Return the type of a value in words, or the name of a class.

    Examples
    --------
    >>> kind_of([]), kind_of(3), kind_of(list)
    ('a list', 'an int', 'the class list')
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return _with_article(type(value).__name__)


def _with_article(name: str) -> str:
    """Return the name of a class with its article; a name with U has "a", as in "a UUID"."""
    is_vowel = name.startswith(tuple("AEIOaeio"))
    return f"an {name}" if is_vowel else f"a {name}"


def positive_finite(
    name: str, value: Any, remedy: str = "choose a finite number above zero"
) -> float:
    """Return a number in (0, inf) as a float.

    Examples
    --------
    >>> positive_finite("epsilon", -1.0)
    Traceback (most recent call last):
    bayesprivmrf.errors.ArgumentError: `epsilon` must be positive and finite, got -1.0; choose a ...
    """
    number = _number(name, value, "positive and finite")
    require(0 < number < math.inf, name, "be positive and finite", number, remedy)
    return number


def probability(
    name: str,
    value: Any,
    *,
    zero: bool,
    remedy: str = "a common choice is well below one over the number of records, such as 1e-6",
) -> float:
    """Return a number in [0, 1), or in (0, 1) where zero is not allowed; the default remedy is that of a delta."""
    interval = "in [0, 1)" if zero else "in (0, 1)"
    number = _number(name, value, interval)
    require(0 <= number < 1 and (zero or number > 0), name, f"be {interval}", number, remedy)
    return number


def finite_pair(name: str, value: Any) -> tuple[float, float]:
    """Return two finite numbers in ascending order as floats.

    Examples
    --------
    >>> finite_pair("bounds", (0, 5))
    (0.0, 5.0)
    """
    must = "a pair (low, high) of finite numbers"
    # the keys of a mapping would be read, and the items of a set have no order
    ends: Any = () if isinstance(value, Mapping | Set) else value
    try:
        low, high = ends
    except (TypeError, ValueError):
        raise ArgumentError(
            f"`{name}` must be {must}, got {_shown(value)}; write two numbers."
        ) from None
    low = _number(name, low, must)
    high = _number(name, high, must)
    is_ordered = -math.inf < low < high < math.inf
    require(is_ordered, name, "be finite with low < high", (low, high), "put the lower one first")
    return low, high


def at_least(name: str, value: Any, least: float, *, finite: bool = True) -> float:
    """Return a number as a float if it is at least `least`.

    Examples
    --------
    >>> at_least("ridge", 0, 0)
    0.0
    """
    if finite:
        requirement = f"at least {least:g} and finite"
    else:
        requirement = f"at least {least:g}"
    number = _number(name, value, requirement)
    require(
        number >= least and (number < math.inf or not finite), name, f"be {requirement}", number
    )
    return number


def finite(name: str, value: Any) -> float:
    """Return a finite number as a float."""
    number = _number(name, value, "a finite number")
    require(math.isfinite(number), name, "be a finite number", number)
    return number


def number_array(name: str, value: Any, dtype: type | None = None) -> np.ndarray:
    """Return a value as an array of numbers or booleans; its type is kept unless `dtype` names another.

    Examples
    --------
    >>> number_array("flat", [[0], 1])
    Traceback (most recent call last):
    bayesprivmrf.errors.ArgumentError: `flat` must be an array of numbers, got a list.
    """
    refuse_masked(name, value)
    try:
        array = np.asarray(value, dtype)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0, dtype=object)
    seen = _shown(value)
    remedy = ""
    if array.dtype.kind == "U":
        seen = "text"
        remedy = "convert it to numbers, without separators of thousands as in 1,410"
    require(array.dtype.kind in "biuf", name, "be an array of numbers", seen, remedy)
    return array


def refuse_masked(name: str, value: Any) -> None:
    """Raise an ArgumentError for a masked array, whose fill value would be read as a number."""
    if isinstance(value, list | tuple):
        items = value
    else:
        items = [value]
    is_masked = any(isinstance(item, np.ma.MaskedArray) for item in items)
    must = "not be a masked array, whose fill values are not measurements"
    require(
        not is_masked,
        name,
        must,
        "one",
        "replace the masked entries with `filled(...)`, or leave them out",
    )


def _named(name: str) -> str:
    """Return an argument's name in backticks, and a phrase that describes a value unchanged."""
    if not set(name) & {" ", "`"}:
        return f"`{name}`"
    return name


def sides_of(value: Any) -> list[list[tuple[Any, Any]]] | None:
    """Return the names and labels of each axis of a DataFrame, a Series or a DataArray; None for anything else.

    An axis is a list of levels ``(name, labels)``; a MultiIndex has several. The labels are a list. For the default
    index of pandas, which only numbers the rows, they are a range; for an axis of a DataArray without a coordinate,
    None.
    """
    # a library that was never imported cannot have made the value
    pandas = sys.modules.get("pandas")
    xarray = sys.modules.get("xarray")
    if pandas is not None and isinstance(value, pandas.Series | pandas.DataFrame):
        indexes = value.axes
    elif xarray is not None and isinstance(value, xarray.DataArray):
        indexes = [
            value.coords[dim].to_index() if dim in value.coords else dim for dim in value.dims
        ]
    else:
        return None
    sides: list[list[tuple[Any, Any]]] = []
    for index in indexes:
        if not hasattr(index, "get_level_values"):
            sides.append([(index, None)])
        elif (getattr(index, "start", None), getattr(index, "step", None)) == (
            0,
            1,
        ):  # a RangeIndex
            sides.append([(index.name, range(len(index)))])
        else:
            # pandas could mistake the name of a level for its number
            bare = index.set_names([None] * index.nlevels)
            levels = [bare.get_level_values(level).tolist() for level in range(index.nlevels)]
            sides.append([*zip(index.names, levels, strict=True)])
    return sides


def is_labeled(value: Any) -> bool:
    """Return True for a value with labels, or a sequence of such values; they must not be read by position."""
    if isinstance(value, list | tuple):
        # one item of each type: a list may hold millions of numbers
        kinds = {type(item): item for item in value}
        return any(
            not isinstance(item, list | tuple) and is_labeled(item) for item in kinds.values()
        )
    sides = sides_of(value)
    if sides is None:  # data frames of every library have named columns
        return isinstance(value, Mapping) or any(
            hasattr(type(value), n) for n in ("columns", "column_names")
        )
    return any(isinstance(labels, list) for side in sides for _, labels in side)


def same_labels(values: Iterable[Any]) -> bool:
    """Return True if all Series among some values have the same index in the same order, whatever its name."""
    indexes = [
        [[*(own or ())] for side in sides for _, own in side]
        for sides in map(sides_of, values)
        if sides
    ]
    return all(own == indexes[0] for own in indexes[1:])


def bare_array(name: str, value: Any, dtype: type | None = None) -> np.ndarray:
    """Return a value without labels as an array of numbers; see `number_array`."""
    must = "be a plain array, which is read by position"
    seen = f"a {type(value).__name__} with labels"
    require(not is_labeled(value), name, must, seen, "put it in order and give `.to_numpy()`")
    return number_array(name, value, dtype)


def refuse_axes(name: str, value: Any) -> None:
    """Raise an ArgumentError for a DataFrame, Series or DataArray where the positions of an array are states.

    Labels would be ignored, although they may list the states in another order.
    """
    must = "be a plain array, which is read by position"
    seen = f"a {type(value).__name__}"
    require(sides_of(value) is None, name, must, seen, "put it in order and give `.to_numpy()`")


def file_path(name: str, value: Any) -> Path:
    """Return the path of a file as a `Path`; characters that no path can have are refused."""
    try:
        path = Path(os.fsdecode(value))
        is_path = path.name and b"\0" not in os.fsencode(path)
    except (TypeError, ValueError):
        path = Path()
        is_path = False
    require(is_path, name, "be the path of a file", repr(value), "write its name")
    return path


def require_memory(what: str, needed: float, remedy: str, limit: int) -> None:
    """Raise a ModelTooLargeError if some objects, described by `what` in the plural, need more bytes than `limit`."""
    if needed > limit:
        raise ModelTooLargeError(
            f"{what} would take about {needed / GIB:.3g} GiB, more than {limit / GIB:g}; {remedy}."
        )


def whole_number(
    name: str, value: Any, least: int = 0, most: int | None = None, *, remedy: str = ""
) -> int:
    """Return a whole number between two limits, both included, as an int.

    Examples
    --------
    >>> whole_number("order", np.int64(2), 1)
    2
    >>> whole_number("order", 2.5, 1, 9)
    Traceback (most recent call last):
    bayesprivmrf.errors.ArgumentError: `order` must be a whole number from 1 to 9, got 2.5.
    """
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if most is None and is_whole and value > _MOST_THINGS:
        most = _MOST_THINGS
    is_inside = is_whole and least <= value <= (value if most is None else most)
    if most is None:
        limits = f"of at least {least}"
    else:
        limits = f"from {least} to {most}"
    require(is_inside, name, f"be a whole number {limits}", _shown(value), remedy)
    return int(value)


def one_of(name: str, value: Any, choices: Sequence[str], *, remedy: str = "") -> str:
    """Return a value if it is one of several texts.

    Examples
    --------
    >>> one_of("stopping", "never", ("balance", "none"))
    Traceback (most recent call last):
    bayesprivmrf.errors.ArgumentError: `stopping` must be 'balance' or 'none', got 'never'.
    """
    *others, last = map(repr, choices)
    is_known = isinstance(value, str) and value in choices
    if isinstance(value, str) and not is_known:
        hint = nearest(value, choices)
    else:
        hint = ""
    require(is_known, name, f"be {', '.join(others)} or {last}", _shown(value), hint or remedy)
    return value


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a question that offers the known word most like a misspelled one; empty if no known word is close.

    Examples
    --------
    >>> nearest("degre", ["rho", "degree"])
    "did you mean 'degree'?"
    """
    close = difflib.get_close_matches(word, list(known), n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return ""


def truth(name: str, value: Any) -> bool:
    """Return a boolean; other values that Python treats as true or false are refused."""
    require(type(value).__name__ in _BOOLEANS, name, "be True or False", _shown(value))
    return bool(value)


def generator(rng: Any) -> np.random.Generator:
    """Return a random generator: a new one for a seed or for None, and the given one for a generator."""
    try:
        # NumPy takes an empty sequence as a seed, the same one each time
        is_empty = hasattr(type(rng), "__len__") and len(rng) == 0
        if type(rng).__name__ not in _BOOLEANS and not is_empty:
            return np.random.default_rng(rng)
    except (TypeError, ValueError, AttributeError, KeyError, OverflowError):
        pass
    raise ArgumentError(
        f"`rng` must be a seed of at least 0 or a numpy Generator, got {_shown(rng)}."
    )


class NamedSettings:
    """Mixin of a class whose settings are given by name; a setting given by position is refused."""

    __slots__ = ()

    def __new__(cls, *given: Any, **_: Any) -> Self:
        """Return a new object, after a check that no setting was given by position."""
        if given:
            first = next(iter(_settings(cls)), "")
            example = _needed(cls) or f"{first}=..."
            seen = ", ".join(map(_shown, given))
            remedy = f"write {cls.__name__}({example})"
            require(not given, f"the settings of {cls.__name__}", "be given by name", seen, remedy)
        return super().__new__(cls)


def _settings(made: type) -> dict[str, inspect.Parameter]:
    """Return the settings of a class by name."""
    known = inspect.signature(made).parameters.values()
    return {one.name: one for one in known if one.kind is one.KEYWORD_ONLY}


def _needed(made: type) -> str:
    """Return the settings without a default, as arguments."""
    return ", ".join(
        f"{name}=..." for name, one in _settings(made).items() if one.default is one.empty
    )


if TYPE_CHECKING:

    def on_objects[F: Callable[..., Any]](method: F) -> F:
        """Return the method unchanged; a type checker reads this in place of the class below."""
        return method

else:

    class on_objects:  # noqa: N801
        """Decorator of a method that is called on the class by mistake, where users forget to make an object first.

        A call on an object is a plain method call, without a further frame in the call stack.
        """

        def __init__(self, method: Callable[..., Any]) -> None:
            self._method = method
            functools.update_wrapper(self, method)

        def __call__(self, *given: Any, **named: Any) -> Any:
            """Call the method, for tools that read it off the class."""
            return self._method(*given, **named)

        def __get__(self, instance: Any, owner: type) -> Callable[..., Any]:
            if instance is not None:
                return MethodType(self._method, instance)

            @functools.wraps(self._method)
            def called_on_class(*given: Any, **named: Any) -> Any:
                seen = kind_of(given[0]) if given else "none"
                made = owner.__name__
                name = self._method.__name__
                must = f"be called on {_with_article(made)}"
                remedy = f"write {made}({_needed(owner)}).{name}(...)"
                is_object = bool(given) and isinstance(given[0], owner)
                require(is_object, f"{made}.{name}", must, seen, remedy)
                return self._method(*given, **named)

            return called_on_class
