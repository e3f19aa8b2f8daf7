r"""The exact posterior of a decomposable model: whole records drawn one by one, with their rows and their number.

No count is relaxed and no law approximated: the chain moves the N records themselves, each from its law given all
others and the noisy tables (`record_moves`), the number of records by births and deaths, the shapes of the rows'
prior by Metropolis steps with the rows integrated out, and the rows from Dirichlet(α + n). What it costs is time: a
sweep visits a few thousand records, and sums over all cells of the model once for every few dozen of them.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from threading import Event

import numpy as np

from bayesprivmrf.inference.posterior.diagnostics import LONGEST, SMALLEST_ESS, is_mixed
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.hyper_dirichlet import HyperDirichlet
from bayesprivmrf.inference.posterior.record_moves import advance
from bayesprivmrf.inference.posterior.record_tape import ChainState, RecordTape, record_tape
from bayesprivmrf.inference.posterior.sampled import Sampled
from bayesprivmrf.model.tables import FloatArray

__all__ = ["ExactRecords"]

MOVES = 2000
"""Records that one sweep visits."""
_BIRTHS = (20, 1000)
_A_CELL, _A_CLIQUE = 2.5, 100.0
"""Nanoseconds that a visit takes for each cell that it reads, and for each clique."""
_STRETCH = 50
"""Sweeps between two looks at the room for births, and at whether to stop."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactRecords(HyperDirichlet):
    """The posterior of a decomposable model over the records themselves; parameters are those of `HyperDirichlet`.

    ``model()`` is the PyMC model of the same posterior with relaxed counts.
    """

    @property
    def name(self) -> str:
        """Name of the formulation."""
        return "exact"

    @property
    def hidden(self) -> tuple[str, ...]:
        """``log_rows`` and ``shape_position``, the rows and where their shapes are, which are drawn along."""
        return ("log_rows", "shape_position")

    @cached_property
    def _tape(self) -> RecordTape:
        return record_tape(self.evidence, self.forest)

    @property
    def seconds_a_sweep(self) -> float:
        """Forecast of one sweep of one chain on a core of its own."""
        visits = min(self.first_total, MOVES) + self.births
        reads = self.forest.cells.size + self.forest.sources.size
        return 1e-9 * visits * (_A_CELL * reads + _A_CLIQUE * len(self.forest.order))

    @property
    def first_total(self) -> int:
        """The number of records that chains start with."""
        if self.total is not None:
            return round(self.total)
        low, high = self.total_range
        return int(min(max(round(self.evidence.total), math.ceil(low), 1), math.floor(high)))

    @property
    def births(self) -> int:
        """Births and deaths that a sweep tries: so many that their random walk soon crosses the likely N."""
        if self.total is not None:
            return 0
        error = self.evidence.total_standard_error
        return int(np.clip(error * error, *_BIRTHS)) if math.isfinite(error) else _BIRTHS[1]

    def sample(
        self,
        *,
        draws: int,
        tune: int,
        chains: int,
        seed: int,
        time_limit: float = math.inf,
        cores: int | None = None,
    ) -> Sampled:
        """Sweep until the worst effective draws are enough, or the time limit is near.

        `draws` sweeps a chain are kept. While they have not mixed, every second of them is dropped, and the chains go
        on with twice as many sweeps between draws.
        """
        begin = time.perf_counter()
        seeds = np.random.SeedSequence(seed).spawn(chains)
        states = [_Chain.at_start(self, np.random.default_rng(child)) for child in seeds]
        thin, kept, stopped = 1, [_Kept.none(self)] * chains, False
        with ThreadPoolExecutor(min(chains, cores or os.cpu_count() or 1)) as workers:
            _, stopped = _together(workers, states, tune, 1)
            while not stopped:
                new, stopped = _together(workers, states, draws - kept[0].total.size, thin)
                kept = [_Kept.joined(*pair) for pair in zip(kept, new, strict=True)]
                spent = time.perf_counter() - begin
                judged = [np.stack([one.counts for one in kept]), np.stack([one.total for one in kept])]
                is_over = stopped or 3 * spent > time_limit or thin >= LONGEST
                if draws < SMALLEST_ESS or is_over or is_mixed(judged):
                    break
                thin, kept = 2 * thin, [one.thinned() for one in kept]
        shortest = min(one.total.size for one in kept)
        kept = [one.cut(shortest) for one in kept]
        values = {name: np.stack([getattr(one, name) for one in kept]) for name in _KEPT}
        values["counts"] = values["counts"][..., np.argsort(self.forest.cells)]
        return Sampled(
            draws=values,
            statistics={"lp": self._log_likelihood(values["counts"])},
            is_interrupted=values["total"].shape[1] < draws,
            stats={
                "sampler": "exact",
                "steps_between_draws": thin,
                "sampling_seconds": time.perf_counter() - begin,
            },
        )

    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Marginals, counts and effects of the draws; nothing is left to be drawn."""
        lead = draws["counts"].shape[:-1]
        counts = np.zeros((*lead, self.forest.offsets[-1]))
        counts[..., self._measured.cells] = draws["counts"]
        rows = np.asarray(draws["log_rows"]).reshape(math.prod(lead), -1).T
        shapes = self.prior.shapes(draws["shape_position"]).reshape(rows.shape[::-1]).T
        return self._finished(rows, counts, np.asarray(draws["total"], dtype=float), shapes)

    def _log_likelihood(self, counts: FloatArray) -> FloatArray:
        """Log kernel of the noise, shape (chain, draw), nats."""
        measured, tape = self._measured, self._tape
        sums = np.zeros((*counts.shape[:-1], measured.targets.size))
        for source, place in zip(measured.sources, measured.sums, strict=True):
            sums[..., place] += counts[..., source]
        ratio = np.abs(tape.noisy - sums) / tape.widths
        return -np.where(tape.absolute, ratio, 0.5 * ratio * ratio).sum(axis=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """Draws of one chain; counts and rows in the order of ``forest.cells``."""

    counts: FloatArray
    log_rows: FloatArray
    total: FloatArray
    shape_position: FloatArray

    @classmethod
    def none(cls, formulation: ExactRecords) -> _Kept:
        return cls.room(0, formulation.forest.cells.size, formulation.prior.size)

    @classmethod
    def room(cls, draws: int, cells: int, positions: int) -> _Kept:
        shapes = ((draws, cells), (draws, cells), (draws,), (draws, positions))
        return cls(**{name: np.empty(shape) for name, shape in zip(_KEPT, shapes, strict=True)})

    @classmethod
    def joined(cls, *parts: _Kept) -> _Kept:
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in _KEPT})

    def thinned(self) -> _Kept:
        return type(self)(**{name: getattr(self, name)[1::2] for name in _KEPT})

    def cut(self, length: int) -> _Kept:
        return type(self)(**{name: getattr(self, name)[:length] for name in _KEPT})


_KEPT = ("counts", "log_rows", "total", "shape_position")


def _together(
    workers: ThreadPoolExecutor, states: list[_Chain], draws: int, thin: int
) -> tuple[list[_Kept], bool]:
    """What every chain keeps of its next sweeps; where they are interrupted, what it had until then."""
    futures, stopped = [workers.submit(state.run, draws, thin) for state in states], False
    try:
        for future in futures:
            future.result()
    except KeyboardInterrupt:
        stopped = True
        for state in states:
            state.stopped.set()
    return [future.result() for future in futures], stopped


@dataclass(slots=True, kw_only=True, eq=False)
class _Chain:
    """The state of one chain; its arrays change in place."""

    formulation: ExactRecords
    rng: np.random.Generator
    total: int
    records: np.ndarray
    position: FloatArray
    state: ChainState
    stopped: Event

    @classmethod
    def at_start(cls, formulation: ExactRecords, rng: np.random.Generator) -> _Chain:
        """No records yet; shapes drawn from their prior."""
        total = formulation.first_total
        position = rng.standard_normal(formulation.prior.size)
        return cls(
            formulation=formulation,
            rng=rng,
            total=total,
            records=np.zeros((total, len(formulation.forest.order)), np.int32),
            position=position,
            state=ChainState.empty(formulation._tape, formulation.prior.shapes(position)),
            stopped=Event(),
        )

    def run(self, draws: int, thin: int) -> _Kept:
        """Keep every `thin`-th of ``draws * thin`` sweeps; fewer draws where the chain is stopped."""
        formulation, each = self.formulation, max(_STRETCH // thin, 1)
        parts = [_Kept.none(formulation)]
        for first in range(0, draws, each):
            if self.stopped.is_set():
                break
            part = _Kept.room(min(each, draws - first), self.state.counts.size, self.position.size)
            self._make_room(part.total.size * thin * formulation.births)
            low, high = formulation.total_range
            bounds = np.array([max(math.ceil(low), 1), math.floor(high)], np.int64)
            self.total = advance(
                self.total, MOVES, formulation.births, bounds, self.records, self.position, self.state,
                formulation._tape, formulation.prior.tape, self.rng, thin,
                (part.counts, part.log_rows, part.total, part.shape_position),
            )  # fmt: skip
            parts.append(part)
        return _Kept.joined(*parts)

    def _make_room(self, births: int) -> None:
        missing = self.total + births - len(self.records)
        if missing > 0:
            self.records = np.concatenate(
                [self.records[: self.total], np.zeros((births, self.records.shape[1]), np.int32)]
            )
