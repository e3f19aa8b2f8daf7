"""Chains of whole records: number of sweeps, stored draws, and stopping rule."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import numpy as np

from bayesprivmrf.compiled_cache import announce_compiling
from bayesprivmrf.inference.posterior.effort import WORK
from bayesprivmrf.inference.posterior.records.table_moves import TableState
from bayesprivmrf.inference.posterior.records.tape import ChainState
from bayesprivmrf.inference.posterior.results.diagnostics import LONGEST, SMALLEST_ESS, is_mixed, mixing_of
from bayesprivmrf.inference.posterior.sampled import Clock, StepProgress, step_progress

# Records that one sweep visits; arbitrary: draws of more records need more sweeps (`effort`)
MOVES = 2000
# Sweeps after which a chain makes space for births, and looks whether to stop; arbitrary
_STRETCH = 50
# Seconds between two checks of the chains, for the progress bar and for a limit in seconds; arbitrary
_LOOK = 0.1

announce_compiling()  # the modules imported above compile at their first call

type Kept = dict[str, np.ndarray]
"""Draws of one chain by name, the draw first."""


@dataclass(slots=True, kw_only=True, eq=False)
class RecordChain:
    """The state of one chain; its arrays change in place.

    Parameters
    ----------
    sweep
        Compiled sweeps: takes the chain, arrays to fill with what is kept, and the sweeps between two draws;
        gives the number of records.
    kept
        Shape of one draw of everything that is kept, by name; ``total`` among them.
    rng, total, latent, state
        Source of randomness, number of records, their cells, and what follows from them.
    births
        Most births that one sweep tries.
    parts
        What else `sweep` moves.
    is_tuning
        Whether steps may still be adapted.
    sweeps
        Sweeps made so far.
    """

    sweep: Callable[[RecordChain, Kept, int], int]
    kept: Mapping[str, tuple[int, ...]]
    rng: np.random.Generator
    total: int
    latent: np.ndarray
    state: ChainState | TableState
    births: int
    parts: Mapping[str, Any]
    is_tuning: bool = True
    sweeps: int = 0
    stopped: Event = field(default_factory=Event)

    def space(self, draws: int) -> Kept:
        """Return arrays for some draws."""
        return {name: np.empty((draws, *shape)) for name, shape in self.kept.items()}

    def run(self, draws: int, thin: int) -> Kept:
        """Store every `thin`-th of ``draws * thin`` sweeps; fewer draws if the chain is stopped."""
        each = max(_STRETCH // thin, 1)
        parts = [self.space(0)]
        for first in range(0, draws, each):
            if self.stopped.is_set():
                break
            part = self.space(min(each, draws - first))
            self._make_space(len(part["total"]) * thin * self.births)
            self.total = self.sweep(self, part, thin)
            self.sweeps += len(part["total"]) * thin
            parts.append(part)
        return _joined(parts)

    def _make_space(self, births: int) -> None:
        missing = self.total + births - len(self.latent)
        if missing > 0:
            self.latent = np.concatenate(
                [self.latent[: self.total], np.zeros((births, self.latent.shape[1]), np.int32)]
            )


def sample_chains(
    states: list[RecordChain],
    judged_of: Callable[[Kept], list[np.ndarray]],
    *,
    draws: int,
    tune: int,
    operations: float,
    time_limit: float = math.inf,
    cores: int | None = None,
    progress_bar: bool | None = None,
) -> tuple[Kept, dict[str, Any]]:
    """Sweep until the smallest effective sample size is large enough, or the work reaches `WORK`.

    `draws` sweeps a chain are kept. While they have not mixed, every second of them is dropped, and the chains go
    on with twice as many sweeps between draws. When the time limit has passed, the sweeps since the last such
    decision are dropped, so that draws follow from the seed and the number of decisions.

    Parameters
    ----------
    states
        The chains at their start.
    judged_of
        Gives those of a chain's draws by which mixing is judged.
    draws, tune
        Draws a chain to keep, and sweeps before them.
    operations
        Operations of one sweep of all chains (`effort`).
    time_limit
        Seconds after which no decision to go on is made.

    Returns
    -------
    tuple
        The draws by name, shape (chain, draw, ...), and the other arguments of `Sampled`.
    """
    clock = Clock(time_limit)
    chains = len(states)
    thin, kept = 1, [state.space(0) for state in states]
    with (
        ThreadPoolExecutor(min(chains, cores or os.cpu_count() or 1)) as workers,
        step_progress(tune + draws, is_shown=progress_bar) as bar,
    ):
        _, stopped = _together(workers, states, tune, 1, bar, Clock())
        for state in states:
            state.is_tuning = False
        before, is_late = (thin, kept), False
        while not stopped:
            is_first = thin == 1
            limit = Clock() if is_first else clock  # the first length is always completed
            new, stopped = _together(workers, states, draws - len(kept[0]["total"]), thin, bar, limit)
            if stopped and not is_first and clock.is_over:
                (thin, kept), is_late = before, True
                break
            kept = [_joined(pair) for pair in zip(kept, new, strict=True)]
            judged = [np.stack(values) for values in zip(*map(judged_of, kept), strict=True)]
            is_over = stopped or thin >= LONGEST or operations * (tune + 2 * thin * draws) > WORK
            if draws < SMALLEST_ESS or is_over or is_mixed(mixing_of(judged), chains):
                break
            if clock.is_over:
                is_late = True
                break
            before = thin, kept
            thin, kept = 2 * thin, [{name: values[1::2] for name, values in one.items()} for one in kept]
            bar.aim(tune + thin * draws, "going on: the chains have not mixed")
    shortest = min(len(one["total"]) for one in kept)
    values = {name: np.stack([one[name][:shortest] for one in kept]) for name in kept[0]}
    return values, {
        "is_interrupted": shortest < draws,
        "is_late": is_late,
        "stats": {"sampler": "exact", "steps_between_draws": thin, "sampling_seconds": clock.seconds},
    }


def _joined(parts: Any) -> Kept:
    """Return one chain's draws from several stretches, joined."""
    parts = list(parts)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _together(
    workers: ThreadPoolExecutor,
    states: list[RecordChain],
    draws: int,
    thin: int,
    bar: StepProgress,
    clock: Clock,
) -> tuple[list[Kept], bool]:
    """Run the next sweeps of every chain, and return the stored draws; fewer if a chain is stopped."""
    futures, stopped = [workers.submit(state.run, draws, thin) for state in states], False
    try:
        while wait(futures, timeout=_LOOK).not_done:
            bar.reach(min(state.sweeps for state in states))
            if clock.is_over and not stopped:
                stopped = True
                for state in states:
                    state.stopped.set()
    except KeyboardInterrupt:
        stopped = True
        for state in states:
            state.stopped.set()
    return [future.result() for future in futures], stopped
