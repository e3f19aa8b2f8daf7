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

`drawn` is the part of a release after its charge, with one more attempt after an interruption. Warnings of that part
cannot raise (`warn_without_raising`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from bayesprivmrf.errors import (
    ConsistencyWarning,
    InterruptionWarning,
    NoiseWarning,
    PrivacyError,
    warn_caller,
)
from bayesprivmrf.files import Json

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


def stopped_details() -> dict[str, Json]:
    """Return the status and the cause as details of an interrupted release; nothing for any other release."""
    name = interrupted_by()
    if name is None:
        return {}
    return {"status": "stopped early", INTERRUPTED_BY: name}


# failures from outside, which a second call may survive
_INTERRUPTIONS = (KeyboardInterrupt, MemoryError, TimeoutError)


def drawn[ReleaseT](mechanism: str, draw: Callable[[], ReleaseT]) -> ReleaseT:
    """Return what `draw` returns, after its cost was charged: one interruption loses nothing, a second one raises.

    A learner keeps its results up to the interruption. For other mechanisms `draw` is called once more, with fresh
    noise, unless a warning has already disclosed something about the noise of the first call: two draws would then
    cost more than was charged.

    Parameters
    ----------
    mechanism
        Name of the mechanism, for a warning.
    draw
        Function without arguments that makes the release.
    """
    with heard() as names:
        try:
            made = draw()
        except _INTERRUPTIONS:
            if names or names.has_disclosed:
                raise
            made = draw()
    if names:
        is_outside = names[0] in {each.__name__ for each in _INTERRUPTIONS}
        cause = f"{'was interrupted by' if is_outside else 'failed with'} a {names[0]}"
        warn_without_raising(
            f"{mechanism} {cause} after its budget was spent: the release holds what was computed until then, costs "
            "the whole promise, and has the status `stopped early`. Fit its `statistics` with another estimator, "
            "which spends no budget.",
            InterruptionWarning,
        )
    return made


def warn_without_raising(message: str, category: type[Warning] = NoiseWarning) -> None:
    """Issue a warning at the caller of this package, and never raise, even where filters turn warnings into errors.

    The budget is spent and the noise is drawn, so that an exception would lose a release that was paid for.
    """
    note_disclosure()
    try:
        warn_caller(message, category)
    except category:
        with warnings.catch_warnings():
            warnings.simplefilter("always", category)
            warn_caller(message, category)


def warn_of_contradiction(release: Any) -> Any:
    """Return a learned model, after a warning if the measurements behind it contradict it.

    An interrupted release need not fit its measurements, and is not judged. If the judgment itself is interrupted or
    fails, the release, which was paid for, gets the status "stopped early".
    """
    if interrupted_by() is not None:
        return release
    try:
        problems = release.solution.contradictions
    except BaseException as error:
        remember(error)
        return replace(release, details={**release.details, **stopped_details()})
    for problem in problems:
        warn_without_raising(f"{problem}. The fit is not trusted.", ConsistencyWarning)
    return release
