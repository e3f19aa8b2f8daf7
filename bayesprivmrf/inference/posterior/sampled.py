"""Parts that both samplers share: the result of a sampling, a clock with a limit, and a progress bar."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import numpy as np

from bayesprivmrf.compiled_cache import is_watched

type Sampler = Literal["nutpie", "pymc"]

# Statistics that both samplers report, by ArviZ's names
STATISTICS = (
    "diverging",
    "tree_depth",
    "reached_max_treedepth",
    "n_steps",
    "energy",
    "lp",
    "acceptance_rate",
    "step_size",
)


class Mixing(NamedTuple):
    """How chains have mixed; NaN where nothing varies, or nothing is known.

    Worst R-hat, smallest effective sample sizes of the bulk and of the tails, and the worst chain's E-BFMI.
    """

    r_hat: float
    bulk: float
    tail: float
    bfmi: float = math.nan


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sampled:
    """The draws of a sampler after tuning.

    Parameters
    ----------
    draws
        Stored variables, each of shape (chain, draw, ...).
    statistics
        The sampler's statistics, by ArviZ's names, each of shape (chain, draw); ``lp`` at least.
    is_interrupted
        Whether fewer draws are here than were asked for.
    stats
        Numbers and text on the way: sampler and version, seconds to compile and to sample.
    mixing
        Worst R-hat and effective sample sizes of the judged variables, where they were looked at while sampling; as
        `diagnostics.mixing_of` has them.
    is_late
        Whether a limit in seconds stopped chains that were to go on.
    work
        Operations of all chains (`effort`), those of tuning among them.
    """

    draws: Mapping[str, np.ndarray]
    statistics: Mapping[str, np.ndarray]
    is_interrupted: bool
    stats: Mapping[str, Any]
    mixing: Mixing | None = None
    is_late: bool = False
    work: float = 0.0


@dataclass(frozen=True, slots=True)
class Clock:
    """Clock that counts the seconds since it was made, with a limit.

    Parameters
    ----------
    limit
        Seconds; infinite where there is none.
    """

    limit: float = math.inf
    _begin: float = field(default_factory=time.perf_counter, init=False)

    @property
    def seconds(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self._begin

    @property
    def is_over(self) -> bool:
        """Return True if the limit has passed."""
        return self.seconds > self.limit


class StepProgress:
    """A progress bar of rich on standard error, which disappears when the sampling ends; or nothing."""

    def __init__(self, steps: int, *, is_shown: bool) -> None:
        self._bar: Any = None
        if not is_shown:
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.add_task("sampling", total=steps)

    def __enter__(self) -> StepProgress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def reach(self, steps: int) -> None:
        """Report the steps that the slowest chain has made."""
        self._update(completed=steps)

    def aim(self, steps: int, reason: str) -> None:
        """Report the steps that each chain will now make, and the reason, which is shown."""
        self._update(total=steps, description=reason)

    def _update(self, **changes: Any) -> None:
        if self._bar:
            self._bar.update(self._bar.task_ids[0], **changes)


def step_progress(steps: int, *, is_shown: bool | None = None) -> StepProgress:
    """Return a progress bar for a number of steps; None shows it in a terminal or a notebook that can draw it."""
    is_shown = is_watched() if is_shown is None else is_shown
    return StepProgress(steps, is_shown=is_shown and _can_draw())


def _can_draw() -> bool:
    """Return True if rich draws here without a warning: in a notebook it needs ipywidgets."""
    return "ipykernel" not in sys.modules or find_spec("ipywidgets") is not None
