"""A bar on the terminal that shows how many simulated releases are done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
    is_hidden = not (console.is_terminal or console.is_jupyter)
    with Progress(*columns, console=console, transient=True, disable=is_hidden) as progress:
        task = progress.add_task("", total=None)

        def move(done: int, wanted: int) -> None:
            progress.update(task, completed=done, total=wanted)

        yield move
