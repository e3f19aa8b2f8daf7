"""A bar that shows how far the slowest chain is, and why a sampling goes on."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any, Protocol

from bayesprivmrf.compiled_cache import is_watched


class StepProgress(Protocol):
    """The progress that a sampler reports."""

    def reach(self, steps: int) -> None:
        """The slowest chain has made so many steps."""
        ...

    def aim(self, steps: int, reason: str) -> None:
        """The chains now go to so many steps each, for a reason that is shown."""
        ...


class _Bar:
    """A bar of rich, on standard error, that is gone when the sampling ends."""

    def __init__(self, steps: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("sampling", total=steps)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def reach(self, steps: int) -> None:
        self._progress.update(self._task, completed=steps)

    def aim(self, steps: int, reason: str) -> None:
        self._progress.update(self._task, total=steps, description=reason)


class _Silent:
    """Nobody looks."""

    def reach(self, steps: int) -> None:
        pass

    def aim(self, steps: int, reason: str) -> None:
        pass


def step_progress(steps: int, *, is_shown: bool | None = None) -> AbstractContextManager[StepProgress]:
    """A bar of so many steps; None shows it where somebody could see it, and where a notebook can draw it."""
    if is_shown is None:
        is_shown = is_watched()
    shown: Any = _Bar(steps) if is_shown and _can_draw() else nullcontext(_Silent())
    return shown


def _can_draw() -> bool:
    """Whether rich draws here without a warning: in a notebook it needs ipywidgets."""
    return "ipykernel" not in sys.modules or find_spec("ipywidgets") is not None
