"""Checks of arguments, each written once and so that NaN fails."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesprivmrf.errors import ArgumentError

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "file_path",
    "finite",
    "finite_pair",
    "generator",
    "one_of",
    "positive_finite",
    "probability",
    "whole_number",
]

_SMALL_DELTA = "a common choice is well below one over the number of records, such as 1e-6"


def _number(name: str, value: Any, requirement: str) -> float:
    is_number = isinstance(value, Real) and type(value).__name__ not in {"bool", "bool_"}
    if not is_number:
        raise ArgumentError(
            f"`{name}` must be {requirement}, got {type(value).__name__} {value!r}; write a number."
        )
    try:
        return float(value)
    except OverflowError:  # a whole number that no double holds
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]  # a Real has an order


def positive_finite(name: str, value: Any, remedy: str = "choose a finite number above zero") -> float:
    """Return a number in (0, inf) as a float.

    Raises
    ------
    ArgumentError
        The value is zero, negative, NaN, infinite, a truth value or not a number.

    Examples
    --------
    >>> positive_finite("epsilon", -1.0)
    Traceback (most recent call last):
    bayesprivmrf.errors.ArgumentError: `epsilon` must be positive and finite, got -1.0; choose a ...
    """
    number = _number(name, value, "positive and finite")
    if not 0 < number < math.inf:
        raise ArgumentError(f"`{name}` must be positive and finite, got {number!r}; {remedy}.")
    return number


def finite(name: str, value: Any) -> float:
    """Return a finite number as a float.

    Raises
    ------
    ArgumentError
        The value is NaN, infinite, a truth value or not a number.
    """
    number = _number(name, value, "a finite number")
    if not math.isfinite(number):
        raise ArgumentError(f"`{name}` must be a finite number, got {number!r}.")
    return number


def whole_number(name: str, value: Any, *, least: int = 0) -> int:
    """Return a whole number of at least `least` as an int.

    Raises
    ------
    ArgumentError
        The value is smaller, a truth value or not a whole number.

    Examples
    --------
    >>> whole_number("draws", 2.0, least=1)
    Traceback (most recent call last):
    bayesprivmrf.errors.ArgumentError: `draws` must be a whole number of at least 1, got 2.0.
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ArgumentError(f"`{name}` must be a whole number of at least {least}, got {value!r}.")
    return int(value)


def one_of(name: str, value: Any, allowed: Iterable[str]) -> str:
    """Return one of the texts that are allowed.

    Raises
    ------
    ArgumentError
        The value is another one, or no text.

    Examples
    --------
    >>> one_of("method", "magic", ("fast", "exact"))
    Traceback (most recent call last):
    bayesprivmrf.errors.ArgumentError: `method` must be one of "fast", "exact", got 'magic'.
    """
    known = tuple(allowed)
    if not (isinstance(value, str) and value in known):
        names = ", ".join(f'"{name}"' for name in known)
        raise ArgumentError(f"`{name}` must be one of {names}, got {value!r}.")
    return value


def file_path(name: str, value: Any) -> Path:
    """Return the path of a file as a `Path`.

    Raises
    ------
    ArgumentError
        The value is neither text nor a path, or it is empty.
    """
    try:
        path = Path(value)
    except TypeError:
        path = Path()
    if not path.name:
        raise ArgumentError(f"`{name}` must be the path of a file, got {value!r}.")
    return path


def generator(rng: Any) -> np.random.Generator:
    """Return NumPy's generator for a seed; a generator stays itself, and None gives fresh randomness.

    Raises
    ------
    ArgumentError
        The value is neither a seed, a generator nor None.
    """
    import numpy as np

    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError, AttributeError, KeyError, OverflowError):
        raise ArgumentError(
            f"`rng` must be a seed (a whole number of at least 0), a NumPy generator or None, got {rng!r}."
        ) from None


def probability(name: str, value: Any, *, zero: bool, remedy: str = _SMALL_DELTA) -> float:
    """Return a number in [0, 1), or in (0, 1) where zero is not allowed.

    Raises
    ------
    ArgumentError
        The value is outside the interval, NaN, a truth value or not a number.
    """
    interval = "in [0, 1)" if zero else "in (0, 1)"
    number = _number(name, value, interval)
    if not (0 <= number < 1 and (zero or number > 0)):
        raise ArgumentError(f"`{name}` must be {interval}, got {number!r}; {remedy}.")
    return number


def finite_pair(name: str, value: Any) -> tuple[float, float]:
    """Return two finite numbers in ascending order as floats.

    Raises
    ------
    ArgumentError
        They are not two numbers, not finite (NaN included), or not in ascending order.

    Examples
    --------
    >>> finite_pair("bounds", (0, 5))
    (0.0, 5.0)
    """
    try:
        low, high = (_number(name, item, "a pair (low, high) of finite numbers") for item in value)
    except (TypeError, ValueError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(
            f"`{name}` must be a pair (low, high) of finite numbers, got {value!r}; write two numbers."
        ) from None
    if not -math.inf < low < high < math.inf:
        raise ArgumentError(
            f"`{name}` must be finite with low < high, got ({low!r}, {high!r}); put the lower one first."
        )
    return low, high
