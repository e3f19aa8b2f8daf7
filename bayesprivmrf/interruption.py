"""Interruptions of a release after its charge: results so far are kept, and the release names the cause.

A mechanism charges its budget before it draws noise. An interruption after that (Ctrl-C, a lack of memory, a time
limit that raises an exception) must not lose results that were paid for. `heard` is entered around the draw. Inside
it, a loop that can end early passes the exception to `remember`, and continues with the results so far:

    try:
        for step in range(steps):
            ...
    except BaseException as error:
        remember(error)  # the mean of the steps so far is a result

Outside a release `remember` raises the exception again, so that an interval or a fit that was called by itself stops
as any other code does. No number depends on a clock here; an interruption comes from outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from bayesprivmrf.errors import PrivacyError

# Detail of a release that was stopped early from outside: the type of the exception
INTERRUPTED_BY = "interrupted_by"


class Heard(list[str]):
    """Names of the exceptions that were remembered, and whether anything was told of what was drawn."""

    has_told = False


# interruptions that were heard while a release is made, so that it can finish what is paid for
_HEARD: ContextVar[Heard | None] = ContextVar("interruptions", default=None)


@contextmanager
def heard() -> Iterator[Heard]:
    """Collect the names of the exceptions that are remembered inside this context."""
    names = Heard()
    token = _HEARD.set(names)
    try:
        yield names
    finally:
        _HEARD.reset(token)


def remember(error: BaseException) -> None:
    """Record an exception that ends a computation early; raise it again outside `heard`.

    An exit of the program is always raised again, and so is a violation of a privacy condition, which is not an
    interruption.
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
    """Return the status and the cause for a release that was interrupted; an empty mapping for any other."""
    name = interrupted_by()
    return {} if name is None else {"status": "stopped early", INTERRUPTED_BY: name}
