"""Chains of whole records: how many sweeps they make, what is kept of them, and when they stop."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property
from threading import Event
from typing import Any

import numpy as np

from bayesprivmrf.compiled_cache import announce_compiling
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.effort import WORK, CellSpread, sweeps_of_records
from bayesprivmrf.inference.posterior.forest import JunctionForest
from bayesprivmrf.inference.posterior.measured import log_likelihoods
from bayesprivmrf.inference.posterior.measured_cells import MeasuredCells
from bayesprivmrf.inference.posterior.nuts.clock import Clock
from bayesprivmrf.inference.posterior.nuts.step_progress import StepProgress, step_progress
from bayesprivmrf.inference.posterior.records.table_moves import TableState
from bayesprivmrf.inference.posterior.records.tape import ChainState, RecordTape
from bayesprivmrf.inference.posterior.results.diagnostics import LONGEST, SMALLEST_ESS, is_mixed, mixing_of
from bayesprivmrf.inference.posterior.sampled import Sampled
from bayesprivmrf.model.tables import FloatArray

MOVES = 2000
"""Records that one sweep visits."""
_BIRTHS = (20, 1000)
_STRETCH = 50
"""Sweeps between two looks at the room for births, and at whether to stop."""
_LOOK = 0.1
"""Seconds between two checks of the chains, for the progress bar and for a limit in seconds."""
_ENOUGH = 100
"""Effective draws of a chain over which the work of its initial records is spread."""
_A_CELL, _A_TABLE = 2.2, 90.0
"""Operations of a visit for each cell that it reads, and for each table of rows that the record has a cell of."""

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
        Births that one sweep tries at most.
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

    def room(self, draws: int) -> Kept:
        """Arrays for some draws."""
        return {name: np.empty((draws, *shape)) for name, shape in self.kept.items()}

    def run(self, draws: int, thin: int) -> Kept:
        """Keep every `thin`-th of ``draws * thin`` sweeps; fewer draws where the chain is stopped."""
        each = max(_STRETCH // thin, 1)
        parts = [self.room(0)]
        for first in range(0, draws, each):
            if self.stopped.is_set():
                break
            part = self.room(min(each, draws - first))
            self._make_room(len(part["total"]) * thin * self.births)
            self.total = self.sweep(self, part, thin)
            self.sweeps += len(part["total"]) * thin
            parts.append(part)
        return _joined(parts)

    def _make_room(self, births: int) -> None:
        missing = self.total + births - len(self.latent)
        if missing > 0:
            self.latent = np.concatenate(
                [self.latent[: self.total], np.zeros((births, self.latent.shape[1]), np.int32)]
            )


class RecordSampler:
    """The common part of the formulations that move whole records."""

    evidence: Evidence
    total: float | None
    total_range: tuple[float, float]

    @cached_property
    def _measured(self) -> MeasuredCells:
        return MeasuredCells.of(self.evidence)

    @cached_property
    def _forest(self) -> JunctionForest | None:
        raise NotImplementedError

    @cached_property
    def _tape(self) -> RecordTape:
        raise NotImplementedError

    def chain(self, rng: np.random.Generator) -> RecordChain:
        """A chain at its start."""
        raise NotImplementedError

    def in_order(self, counts: FloatArray) -> FloatArray:
        """The model's possible cells of kept counts, in their order."""
        raise NotImplementedError

    def judged_of(self, kept: Kept) -> list[np.ndarray]:
        """Those of a chain's draws by which mixing is judged."""
        return [kept["counts"], kept["total"]]

    @property
    def first_total(self) -> int:
        """The number of records that chains start with."""
        if self.total is not None:
            return round(self.total)
        low, high = self.total_bounds
        return int(min(max(round(self.evidence.total), low), high))

    @property
    def total_bounds(self) -> np.ndarray:
        """The least and the largest number of records that may be."""
        low, high = self.total_range
        return np.array([max(math.ceil(low), 1), math.floor(high)], np.int64)

    @property
    def births(self) -> int:
        """Births and deaths that a sweep tries: so many that their random walk soon crosses the likely N."""
        if self.total is not None:
            return 0
        error = self.evidence.total_standard_error
        return int(np.clip(error * error, *_BIRTHS)) if math.isfinite(error) else _BIRTHS[1]

    @property
    def bytes_a_record(self) -> int:
        """Memory of one record of one chain: its cell of each table of rows."""
        assert self._forest is not None
        return len(self._forest.tables) * np.dtype(np.int32).itemsize

    @property
    def other(self) -> str | None:
        """Formulation with the same prior and relaxed counts, as `LatentCounts` names it; None if there is none."""
        return None

    @property
    def operations_a_visit(self) -> float:
        """Operations of one move of a record, or of one proposed birth or death."""
        forest = self._forest
        assert forest is not None
        return _A_CELL * (forest.cells.size + forest.sources.size) + _A_TABLE * len(forest.tables)

    @property
    def operations_a_sweep(self) -> float:
        """Operations of one sweep of one chain (`effort`)."""
        return self.operations_a_visit * (min(self.first_total, MOVES) + self.births)

    @property
    def work(self) -> float:
        """Operations per effective draw, including those of the initial records (`effort`)."""
        assert self._forest is not None
        error = 0.0 if self.total is not None else self.evidence.total_standard_error
        spread = CellSpread.of(self.evidence, self._measured, self.first_total)
        sweeps = sweeps_of_records(
            spread, self.first_total, MOVES, self.births, error, len(self._forest.order)
        )
        return self.operations_a_sweep * sweeps + self.operations_a_visit * self.first_total / _ENOUGH

    def sample(
        self,
        *,
        draws: int,
        tune: int,
        chains: int,
        seed: int,
        time_limit: float = math.inf,
        cores: int | None = None,
        progress_bar: bool | None = None,
    ) -> Sampled:
        """Sweep until the worst effective draws are enough, or the work is `WORK`.

        `draws` sweeps a chain are kept. While they have not mixed, every second of them is dropped, and the chains go
        on with twice as many sweeps between draws. When the time limit has passed, the sweeps since the last such
        decision are dropped, so that draws follow from the seed and the number of decisions.
        """
        clock = Clock(time_limit)
        states = [
            self.chain(np.random.default_rng(child)) for child in np.random.SeedSequence(seed).spawn(chains)
        ]
        thin, kept, each = 1, [state.room(0) for state in states], chains * self.operations_a_sweep
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
                judged = [np.stack(values) for values in zip(*map(self.judged_of, kept), strict=True)]
                is_over = stopped or thin >= LONGEST or each * (tune + 2 * thin * draws) > WORK
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
        values["counts"] = self.in_order(values["counts"])
        return Sampled(
            draws=values,
            statistics={"lp": self._log_density(values["counts"])},
            is_interrupted=shortest < draws,
            is_late=is_late,
            stats={
                "sampler": "exact",
                "steps_between_draws": thin,
                "sampling_seconds": clock.seconds,
            },
        )

    def _log_density(self, counts: FloatArray) -> FloatArray:
        """Return the log density of the noise, shape (chain, draw), nats."""
        full = np.zeros((*counts.shape[:-1], self.evidence.specification.size))
        full[..., self._measured.cells] = counts
        return sum(log_likelihoods(self.evidence, full).values(), np.zeros(counts.shape[:-1]))

    def _answers(self, counts: FloatArray) -> FloatArray:
        """The measured numbers of tables, shape (..., measured numbers)."""
        measured = self._measured
        sums = np.zeros((*counts.shape[:-1], measured.targets.size))
        for source, place, entry in zip(measured.sources, measured.sums, measured.entries, strict=True):
            sums[..., place] += entry * counts[..., source]
        return sums


def _joined(parts: Any) -> Kept:
    """One chain's draws, of several stretches."""
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
    """Return the draws that every chain keeps of its next sweeps; if it is stopped, those so far."""
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
