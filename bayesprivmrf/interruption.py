"""Interruptions of a paid release: what was computed so far is kept, and the release says what stopped it.

A mechanism charges its budget before it draws noise. Whatever stops it afterwards (Ctrl-C, a lack of memory, a time
limit that raises) must not lose what was paid for. `heard` is entered around the draw. Inside it a loop that can end
early hands the exception to `remember`, and goes on with what it has:

    try:
        for step in range(steps):
            ...
    except BaseException as error:
        remember(error)  # the mean of the steps so far is a result

Outside a release nobody hears, and `remember` raises the exception again: an interval or a fit that was asked for by
itself stops as any other code does. No number depends on a clock here; an interruption comes from outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from bayesprivmrf.errors import PrivacyError

__all__ = ["INTERRUPTED_BY", "Heard", "heard", "interrupted_by", "remember", "stopped_details", "tell"]

INTERRUPTED_BY = "interrupted_by"
"""The detail of a release that was stopped early from outside: the type of the exception."""


class Heard(list[str]):
    """Names of the exceptions that were remembered, and whether anything was told of what was drawn."""

    has_told = False


_HEARD: ContextVar[Heard | None] = ContextVar("interruptions", default=None)


@contextmanager
def heard() -> Iterator[Heard]:
    """Collect the names of the exceptions that are remembered inside."""
    names = Heard()
    token = _HEARD.set(names)
    try:
        yield names
    finally:
        _HEARD.reset(token)


def remember(error: BaseException) -> None:
    """Note an exception that ends a computation early; raise it again where nobody hears.

    An exit of the program is raised again, and so is a breach of a privacy condition, which is never an interruption.
    """
    names = _HEARD.get()
    if names is None or isinstance(error, SystemExit | GeneratorExit | PrivacyError):
        raise error
    names.append(type(error).__name__)


def tell() -> None:
    """Note that something is told of what was drawn: to draw it anew would then cost more than was charged."""
    names = _HEARD.get()
    if names is not None:
        names.has_told = True


def interrupted_by() -> str | None:
    """Return the type of the first exception that was remembered, if there was one."""
    return next(iter(_HEARD.get() or ()), None)


def stopped_details() -> dict[str, Any]:
    """Return the status of a release that was interrupted, and by what; nothing for any other."""
    name = interrupted_by()
    return {} if name is None else {"status": "stopped early", INTERRUPTED_BY: name}
