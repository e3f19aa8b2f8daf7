"""A sampling in nutpie's threads: how it is stopped, looked at and let go on, and what its batches hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.posterior.nuts.clock import Clock
from bayesprivmrf.inference.posterior.nuts.step_progress import StepProgress

_NAMES = {
    "diverging": "diverging",
    "depth": "tree_depth",
    "maxdepth_reached": "reached_max_treedepth",
    "n_steps": "n_steps",
    "energy": "energy",
    "logp": "lp",
    "mean_tree_accept": "acceptance_rate",
    "step_size": "step_size",
}
"""nutpie's names of what both samplers report, and the names that ArviZ and PyMC use."""
_RATE = 50
"""Milliseconds between two reports of nutpie."""

type Chains = list[tuple[Any, Any]]
"""Record batches of each chain: its draws, and nutpie's statistics."""


class NutpieRun:
    """A sampling in nutpie's threads, which can be stopped, looked at and let go on.

    Parameters
    ----------
    model, settings
        The density, and settings of nutpie.
    draws, tune, chains, seed
        Those of the longest sampling that may become of it.
    """

    def __init__(
        self, model: Any, settings: Mapping[str, Any], *, draws: int, tune: int, chains: int, seed: int
    ) -> None:
        import nutpie

        self._steps, self._gradients = 0, 0
        self._trace: Chains | None = None
        try:
            self._handle = nutpie.sample(
                model,
                draws=draws,
                tune=tune,
                chains=chains,
                seed=seed,
                blocking=False,
                return_raw_trace=True,
                progress_bar=False,
                progress_callback=self._hear,
                progress_rate=_RATE,
                **settings,
            )
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(
                f"nutpie refuses a setting among {', '.join(f'{k}={v!r}' for k, v in settings.items())}: {error}; "
                "see nutpie.sample for those that it takes."
            ) from error

    def _hear(self, progress: Sequence[Any]) -> None:
        """What a thread of nutpie calls."""
        self._steps = min(chain.finished_draws for chain in progress)
        self._gradients = sum(chain.total_num_steps for chain in progress)

    def goes_to(self, steps: int, clock: Clock, bar: StepProgress, *, most: float, must_end: bool) -> bool:
        """Go on until every chain has made so many steps, tuning among them.

        False where the time came first, or more gradients than `most` were taken; where the length must end all the
        same, the bar says so.
        """
        if self._trace is None:
            self._handle.resume()
        while self._trace is None and self._steps < steps:
            if self._gradients > most:
                return False
            if clock.is_over:
                if not must_end:
                    return False
                bar.aim(steps, "beyond `time_limit`: the first length always ends")
            with suppress(TimeoutError):
                self._trace = _batches(self._handle.wait(timeout=_RATE / 1000))
            bar.reach(min(self._steps, steps))
        return True

    def look(self) -> Chains:
        """Return the draws so far; the chains wait."""
        if self._trace is not None:
            return self._trace
        self._handle.pause()
        return _batches(self._handle.inspect())

    def end(self) -> Chains:
        """Return the draws; the chains are gone."""
        if self._trace is None:
            self._trace = _batches(self._handle.abort())
        return self._trace


def _batches(trace: Any) -> Chains:
    """What a trace of nutpie holds, which it gives once."""
    return list(zip(*trace.get_arrow_trace(), strict=True))


def gradients_of(chains: Chains, rows: int) -> int:
    """Return the gradients of the first steps of all chains, tuning included; they depend on the seed alone."""
    return sum(int(np.sum(told.column("n_steps").to_numpy()[:rows])) for _, told in chains)


def steps_made(
    chains: Chains, draws: int, length: int | None, size: int
) -> tuple[np.ndarray, dict[str, np.ndarray], bool]:
    """Positions and statistics after tuning, of so many steps, or of those that all chains have made.

    A chain that was stopped before half of the longest one's, or of `draws`, is left out, so that one late chain does
    not cost the others theirs.
    """
    warm = [int(np.sum(statistic.column("tuning").to_numpy())) for _, statistic in chains]
    steps = [batch.num_rows - first for (batch, _), first in zip(chains, warm, strict=True)]
    longest, is_short = min(max(steps, default=0), draws), min(steps, default=0) < draws
    kept = [c for c, made in enumerate(steps) if longest and 2 * made >= longest]
    shortest = min((steps[c] for c in kept), default=0)
    many = shortest if length is None else min(length, shortest)
    positions = [_column(chains[c][0], "position", warm[c], many) for c in kept]
    statistics = {
        ours: np.reshape([_column(chains[c][1], theirs, warm[c], many) for c in kept], (len(kept), many))
        for theirs, ours in _NAMES.items()
    }
    return np.reshape(positions, (len(kept), many, size)), statistics, is_short


def _column(batch: Any, name: str, start: int, length: int) -> np.ndarray:
    """Rows of one column of a record batch, one after the other."""
    import pyarrow as pa

    array = pa.array(batch.column(name).slice(start, length))
    if hasattr(array, "flatten"):
        array = array.flatten()
    return array.to_numpy(zero_copy_only=False)
