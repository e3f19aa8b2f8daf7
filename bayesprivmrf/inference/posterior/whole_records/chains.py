"""Chains of whole records: the arrays of a chain, stored draws, and the stopping rule."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event
from typing import Any, NamedTuple

import numpy as np

from bayesprivmrf.checks import require_memory
from bayesprivmrf.compiled import announce_compiling
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.formulation import (
    MEMORY,
    WORK,
    Clock,
    Run,
    Sampled,
    StepProgress,
)
from bayesprivmrf.inference.posterior.measured import MeasuredCells
from bayesprivmrf.inference.posterior.results.diagnostics import (
    LONGEST,
    SMALLEST_ESS,
    is_mixed,
    mixing_of,
)
from bayesprivmrf.inference.posterior.whole_records.bounds import grouped, half_widths
from bayesprivmrf.inference.posterior.whole_records.exact_sums import ExactSums
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.likelihood import CountTable

# Number of records that one sweep visits; arbitrary: with more records a draw needs more sweeps
MOVES = 2000

announce_compiling()  # the modules imported above compile at their first call

type Kept = dict[str, np.ndarray]
"""Draws of one chain by name; the first axis is the draw."""


class RecordData(NamedTuple):
    """Constant arrays that compiled moves read; cells are in the order of ``forest.cells``."""

    row_starts: IntArray  # first cell of each row, then the number of cells
    clique_rows: IntArray  # first row of each of the forest's tables, then the number of rows
    row_cliques: IntArray  # table of each row
    cell_rows: IntArray  # row of each cell
    source_starts: IntArray  # where the parent's cells of each row begin in `sources`
    sources: IntArray
    child_starts: IntArray  # where the child rows of each cell begin in `child_rows`
    child_rows: IntArray
    table_starts: IntArray  # where the measured numbers of each cell begin in `table_cells`
    table_cells: IntArray
    table_weights: IntArray  # how often a record in the cell counts there
    member_starts: IntArray  # where the cells of each measured number begin in `members`
    members: IntArray
    member_weights: IntArray
    # released numbers, and the widths of their noise; 0 for exact and bounded sums
    noisy: FloatArray
    widths: FloatArray
    kernels: IntArray  # codes of the noise's kernels; that of exact sums does not matter
    halves: FloatArray  # half the width of a number's bounds, 0 of one with a table, or -1
    entry_starts: IntArray  # where the table of each number begins in `entries`; most have none
    entry_firsts: IntArray  # count of the table's first entry
    entries: FloatArray  # log probabilities, nats
    # change for each count below the table, and above it, shape (numbers, 2)
    entry_slopes: FloatArray
    gain: float  # weight that a record adds to its cell: 1 if rows are integrated out, 0 if they are given
    block: int  # number of records that share one pass of sums over the forest
    # cell of each group of exact sums, for each cell of the group's home clique; -1 elsewhere
    codes: IntArray
    sides: IntArray  # for each exchange and cell, the part of `flat` that belongs to the exchanged variables
    shared: IntArray  # for each exchange and cell of its home clique, the state of the separator
    homes: IntArray  # for each exchange, the clique that contains the separator
    flat: IntArray  # position of each cell in the model
    places: IntArray  # cell at each position in the model, or -1


class ChainState(NamedTuple):
    """Tables of one chain, quantities that follow from them, and work space; the arrays change in place."""

    shapes: FloatArray  # α of each cell
    counts: IntArray  # n of each cell
    sums: IntArray  # exact value of each measured number
    weights: FloatArray  # of each cell, (n + α) times the factors of its numbers
    wholes: FloatArray  # n + α of each row
    stale_wholes: FloatArray  # n + α of each row, without the records of a block
    values: FloatArray  # work space for sweeps
    totals: FloatArray
    messages: FloatArray
    proposal: IntArray  # a proposed record
    current: IntArray  # row of each table, while a record is drawn
    moved: IntArray  # work space: what a record adds to each measured number
    trial_counts: IntArray  # proposed tables, and their measured sums
    trial_sums: IntArray

    @classmethod
    def empty(cls, data: RecordData, shapes: FloatArray) -> ChainState:
        """Return the state of a chain without records."""
        cells = shapes.size
        rows = data.row_cliques.size
        numbers = data.noisy.size
        cliques = data.clique_rows.size - 1
        return cls(
            shapes=shapes,
            counts=np.zeros(cells, np.int64),
            sums=np.zeros(numbers, np.int64),
            weights=np.zeros(cells),
            wholes=np.zeros(rows),
            stale_wholes=np.zeros(rows),
            values=np.zeros(cells),
            totals=np.zeros(rows),
            messages=np.zeros(rows),
            proposal=np.zeros(cliques, np.int64),
            current=np.zeros(cliques, np.int64),
            moved=np.zeros(numbers, np.int64),
            trial_counts=np.zeros(cells, np.int64),
            trial_sums=np.zeros(numbers, np.int64),
        )


def record_data(evidence: Evidence, sums: ExactSums, gain: float) -> RecordData:
    """Return the arrays for the numbers of one evidence and for exact sums.

    The cliques of the evidence's model are the tables of the forest.
    """
    forest = sums.forest
    size = forest.cells.size
    row_starts = forest.row_starts
    clique_rows = np.searchsorted(row_starts, [0, *(table.stop for table in forest.tables)])
    row_cliques = np.repeat(np.arange(len(forest.tables)), np.diff(clique_rows))
    rows = np.repeat(np.arange(row_cliques.size), np.diff(forest.source_starts))
    child_starts, child_rows = grouped(forest.sources, rows, size)
    measured = MeasuredCells.of(evidence)
    (cells, sets, bounds) = sums.sets
    # measured numbers, then exact and bounded sums, whose noise has the width 0
    count = measured.targets.size + len(bounds)
    own = np.concatenate([forest.places[measured.sources], cells])
    places = np.concatenate([measured.sums, measured.targets.size + sets])
    weights = np.concatenate(
        [np.rint(measured.entries).astype(np.int64), np.ones(cells.size, np.int64)]
    )
    table_starts, table_cells = grouped(own, places, size)
    member_starts, members = grouped(places, own, count)
    low, high = bounds.T
    exact = np.zeros(len(bounds))
    given = measured.targets
    halves = np.where(evidence.is_tabled, 0.0, half_widths(evidence))[given]
    tables = _tables(evidence, given, len(bounds))
    return RecordData(
        row_starts=row_starts,
        clique_rows=clique_rows,
        row_cliques=row_cliques,
        cell_rows=np.repeat(np.arange(row_cliques.size), forest.row_sizes),
        source_starts=forest.source_starts,
        sources=forest.sources,
        child_starts=child_starts,
        child_rows=child_rows,
        table_starts=table_starts,
        table_cells=table_cells,
        table_weights=grouped(own, weights, size)[1],
        member_starts=member_starts,
        members=members,
        member_weights=grouped(places, weights, count)[1],
        noisy=np.concatenate([evidence.noisy_counts[given], (low + high) / 2]),
        widths=np.concatenate([evidence.noise_scale[given], exact]),
        kernels=np.concatenate([evidence.sampled_kernels[given], exact]).astype(np.int64),
        halves=np.concatenate([halves, (high - low) / 2]),
        entry_starts=np.cumsum([0, *(each.log_probabilities.size for each in tables)]),
        entry_firsts=np.array([each.first for each in tables], np.int64),
        entries=np.concatenate([np.zeros(0), *(each.log_probabilities for each in tables)]),
        entry_slopes=np.array([(each.below, each.above) for each in tables]).reshape(-1, 2),
        gain=gain,
        # up to 40 records; arbitrary: larger blocks share the cost of a pass and make proposals older
        block=1 if len(bounds) else 40,
        **sums.arrays,
    )


# Table of a number that has none
_NO_TABLE = CountTable(first=0, log_probabilities=np.zeros(0), below=0.0, above=0.0)


def _tables(evidence: Evidence, given: IntArray, others: int) -> list[CountTable]:
    """Return the table of each given number, and none for other numbers that follow.

    Raises
    ------
    ModelTooLargeError
        The tables would not fit in memory.
    """
    found = [_NO_TABLE] * (len(given) + others)
    owners = np.searchsorted(evidence.offsets, given, side="right") - 1
    known: dict[tuple[int, float], CountTable] = {}
    for place in np.flatnonzero(evidence.is_tabled[given]):
        owner = int(owners[place])
        number = float(evidence.published[given[place]])
        if (owner, number) not in known:
            known[owner, number] = evidence.noise[owner].table(number)
        found[place] = known[owner, number]
    size = 8 * sum(each.log_probabilities.size for each in found)
    remedy = "use NoiseAwareMAP, which works by moments"
    require_memory("the tables of log probabilities over counts", size, remedy, MEMORY)
    return found


@dataclass(slots=True, kw_only=True, eq=False)
class RecordChain:
    """State of one chain; its arrays change in place.

    Parameters
    ----------
    sweep
        Function that makes compiled sweeps. It takes the chain and a number of sweeps, and returns the number of
        records.
    kept
        Variables that are stored in each draw, beside ``total``, by name; `sweep` changes them in place.
    rng, total, latent, state
        Random generator, number of records, cells of the records, and tables that follow from them.
    births
        Largest number of births in one sweep.
    parts
        Other parameters that `sweep` moves.
    wanted
        Cells of each initial record in the groups of exact sums, shape (records, groups).
    is_tuning
        Whether step sizes may still be adapted.
    sweeps
        Number of sweeps made so far.
    """

    sweep: Callable[[RecordChain, int], int]
    kept: Kept
    rng: np.random.Generator
    total: int
    latent: np.ndarray
    state: ChainState
    births: int
    parts: dict[str, Any]
    wanted: IntArray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    is_tuning: bool = True
    sweeps: int = 0
    stopped: Event = field(default_factory=Event)

    def run(self, draws: int, thin: int) -> Kept:
        """Store every `thin`-th of ``draws * thin`` sweeps; fewer draws if the chain is stopped."""
        stored = {name: np.empty((draws, *values.shape)) for name, values in self.kept.items()}
        stored["total"] = np.empty(draws)
        for draw in range(draws):
            if self.stopped.is_set():
                return {name: values[:draw] for name, values in stored.items()}
            births = thin * self.births
            # space for the records that may be born in many draws
            if self.total + births > len(self.latent):
                more = np.zeros((50 * births, self.latent.shape[1]), np.int32)
                self.latent = np.concatenate([self.latent[: self.total], more])
            self.total = stored["total"][draw] = self.sweep(self, thin)
            self.sweeps += thin
            for name, values in self.kept.items():
                stored[name][draw] = values
        return stored


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Progress:
    """Limits of a sampling by chains of whole records, and its progress bar.

    Parameters
    ----------
    clock
        When its limit has passed, the chains are not continued.
    operations
        Operations of one sweep of all chains.
    cores
        Largest number of chains that run at once; None for that of the machine.
    is_shown
        Whether the progress bar is shown; None shows it where people look.
    """

    clock: Clock
    operations: float
    cores: int | None = None
    is_shown: bool | None = None


def sample_chains(
    states: list[RecordChain],
    judged_of: Callable[[Kept], list[np.ndarray]],
    run: Run,
    progress: Progress,
) -> Sampled:
    """Sweep until the chains have mixed, or the work reaches `WORK`.

    Each chain stores ``run.draws`` draws after ``run.tune`` sweeps. While the chains have not mixed, every second
    draw is dropped, and the chains continue with twice as many sweeps between draws. When the time limit has passed,
    the sweeps since the last such decision are dropped, so that the draws depend only on the seed and the number of
    decisions.

    Parameters
    ----------
    states
        The chains at their start.
    judged_of
        Function that returns the draws of a chain by which mixing is judged.

    Returns
    -------
    Sampled
        The stored draws by name, shape (chain, draw, ...), without statistics.
    """
    clock = progress.clock
    draws = run.draws
    tune = run.tune
    workers_at_most = progress.cores or os.cpu_count() or 1
    chains = len(states)
    thin = 1
    kept = [state.run(0, 1) for state in states]
    with (
        ThreadPoolExecutor(min(chains, workers_at_most)) as workers,
        StepProgress(tune + draws, is_shown=progress.is_shown) as bar,
    ):
        _, stopped = _together(workers, states, tune, 1, bar, Clock())
        for state in states:
            state.is_tuning = False
        before = (thin, kept)
        is_late = False
        while not stopped:
            is_first = thin == 1
            limit = Clock() if is_first else clock  # the first length is always completed
            new, stopped = _together(
                workers, states, draws - len(kept[0]["total"]), thin, bar, limit
            )
            if stopped and not is_first and clock.is_over:
                (thin, kept) = before
                is_late = True
                break
            kept = [
                {name: np.concatenate([old[name], values]) for name, values in one.items()}
                for old, one in zip(kept, new, strict=True)
            ]
            judged = [np.stack(values) for values in zip(*map(judged_of, kept), strict=True)]
            is_over = (
                stopped or thin >= LONGEST or progress.operations * (tune + 2 * thin * draws) > WORK
            )
            if draws < SMALLEST_ESS or is_over or is_mixed(mixing_of(judged), chains):
                break
            if clock.is_over:
                is_late = True
                break
            before = thin, kept
            thin = 2 * thin
            kept = [{name: values[1::2] for name, values in one.items()} for one in kept]
            bar.aim(tune + thin * draws, "continuing: the chains have not mixed")
    shortest = min(len(one["total"]) for one in kept)
    values = {name: np.stack([one[name][:shortest] for one in kept]) for name in kept[0]}
    return Sampled(
        draws=values,
        statistics={},
        is_interrupted=shortest < draws,
        is_late=is_late,
        stats={
            "sampler": "exact",
            "steps_between_draws": thin,
            "sampling_seconds": clock.seconds,
        },
    )


def _together(
    workers: ThreadPoolExecutor,
    states: list[RecordChain],
    draws: int,
    thin: int,
    bar: StepProgress,
    clock: Clock,
) -> tuple[list[Kept], bool]:
    """Run the next sweeps of every chain, and return the stored draws; fewer if a chain is stopped."""
    futures = [workers.submit(state.run, draws, thin) for state in states]
    stopped = False
    try:
        # look ten times a second, for the progress bar and the time limit; arbitrary
        while wait(futures, timeout=0.1).not_done:
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
