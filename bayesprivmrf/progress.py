"""A bar on standard error that shows how much of a long calculation is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from bayesprivmrf.compiled import is_watched


def is_drawn(progress_bar: bool | None) -> bool:
    """Return True if a bar is to be drawn: if it is asked for, and with None if a person watches.

    A notebook without ipywidgets has no bars, because rich would warn there instead of drawing one.
    """
    can_draw = "ipykernel" not in sys.modules or find_spec("ipywidgets") is not None
    if progress_bar is None:
        return can_draw and is_watched()
    return can_draw and progress_bar


@contextmanager
def moving_bar(text: str, progress_bar: bool | None = None) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of the number of steps that are done, and of all, which moves a bar.

    Parameters
    ----------
    text
        Text beside the bar.
    progress_bar
        True to show the bar, False to hide it; None to show it if a person watches.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (TextColumn(text), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    is_hidden = not is_drawn(progress_bar)
    with Progress(*columns, console=console, transient=True, disable=is_hidden) as progress:
        task = progress.add_task("", total=None)

        def move(done: int, wanted: int) -> None:
            progress.update(task, completed=done, total=wanted)

        yield move
