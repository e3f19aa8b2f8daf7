"""A bar on standard error that shows how much of a long calculation is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from bayesprivmrf.compiled import is_watched


def can_draw() -> bool:
    """Return False in a notebook without ipywidgets, where rich would warn instead of drawing a bar."""
    return "ipykernel" not in sys.modules or find_spec("ipywidgets") is not None


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of the number of steps that are done, and of all; it moves a bar if a person watches.

    Parameters
    ----------
    text
        Text beside the bar.
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
    is_hidden = not (is_watched() and can_draw())
    with Progress(*columns, console=console, transient=True, disable=is_hidden) as progress:
        task = progress.add_task("", total=None)

        def move(done: int, wanted: int) -> None:
            progress.update(task, completed=done, total=wanted)

        yield move
