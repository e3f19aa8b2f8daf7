"""Interruptions of a release after its budget was charged: its results so far are kept, and it names the cause.

A mechanism charges its budget before it draws noise. An interruption after that (Ctrl-C, a lack of memory, a time
limit that raises an exception) must not lose results that were paid for. The context `heard` surrounds the draw.
Inside it, a loop that can end early passes the exception to `remember`, and continues with the results so far:

    try:
        for step in range(steps):
            ...
    except BaseException as error:
        remember(error)  # the mean of the steps so far is a result

Outside a release, `remember` raises the exception again. An interval or a fit that is called by itself therefore
stops as usual. No number depends on a clock here, because interruptions come from outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from bayesprivmrf.errors import PrivacyError

# Name of a detail of interrupted releases: the type of the exception
INTERRUPTED_BY = "interrupted_by"


class Heard(list[str]):
    """Names of the exceptions that were remembered, and whether something about the draw was disclosed."""

    has_disclosed = False


# Interruptions while a release is made, so that it can finish what was paid for; None outside a release
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

    An exit of the program and a violation of a privacy condition are no interruptions, and are always raised again.
    """
    names = _HEARD.get()
    if names is None or isinstance(error, SystemExit | GeneratorExit | PrivacyError):
        raise error
    names.append(type(error).__name__)


def note_disclosure() -> None:
    """Note that something about the draw was disclosed, so that another draw would cost more than was charged."""
    names = _HEARD.get()
    if names is not None:
        names.has_disclosed = True


def interrupted_by() -> str | None:
    """Return the type of the first remembered exception; None if there was none."""
    return next(iter(_HEARD.get() or ()), None)


def stopped_details() -> dict[str, Any]:
    """Return the status and the cause as details of an interrupted release; nothing for any other release."""
    name = interrupted_by()
    return {} if name is None else {"status": "stopped early", INTERRUPTED_BY: name}
