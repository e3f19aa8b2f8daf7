r"""Engines for the exact posterior over whole records: the base, and Dirichlet rows of a decomposable model.

No count is relaxed and nothing is approximated. A chain moves each of the N records given all others and the noisy
numbers (`moves`), and changes their number by births and deaths (`births`). An engine has the junction forest along
which records are drawn, and moves the parameters of its prior given the records: shapes of rows (`Rows`), potentials
and scales (`effects`), or the rows that the steps of a chain share (`transitions`). If sums of counts are known
exactly or within bounds, the moves keep them, so exact numbers are not approximated by narrow noise.

The price is time: a sweep visits up to a few thousand records, and sums over all cells of the model once for every
few dozen records.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bayesprivmrf.errors import BayesPrivMRFError, ModelError
from bayesprivmrf.inference.evidence import WIDEST_RANGE, Evidence
from bayesprivmrf.inference.least_squares import least_squares
from bayesprivmrf.inference.posterior.forest import JunctionForest
from bayesprivmrf.inference.posterior.formulation import Clock, Finished, Run, Sampled
from bayesprivmrf.inference.posterior.measured import MeasuredCells
from bayesprivmrf.inference.posterior.noisy_tables import log_likelihoods
from bayesprivmrf.inference.posterior.rows_prior import RowsPrior
from bayesprivmrf.inference.posterior.settings import PriorSettings
from bayesprivmrf.inference.posterior.shape_prior import ShapePrior
from bayesprivmrf.inference.posterior.whole_records.births import FAR
from bayesprivmrf.inference.posterior.whole_records.bounds import NO_TABLE, noiseless_numbers
from bayesprivmrf.inference.posterior.whole_records.chains import (
    MOVES,
    ChainState,
    Kept,
    Progress,
    RecordChain,
    RecordData,
    record_data,
    sample_chains,
)
from bayesprivmrf.inference.posterior.whole_records.exact_sums import ExactSums
from bayesprivmrf.inference.posterior.whole_records.shape_moves import advance
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pymc as pm


# Smallest and largest number of births and deaths in a sweep; arbitrary
_FEWEST_BIRTHS = 20
_MOST_BIRTHS = 1000
# Bytes of the position of a record's cell in one table
_BYTES_A_CELL = 4
# Operations for each cell that a visit or a proposed birth reads, and for each table (benchmark `engine_choice`)
_WORK_A_CELL = 2.2
_WORK_A_TABLE = 90.0
# Operations of a move of one position of the learned shapes (benchmark `engine_choice`)
_WORK_A_SHAPE = 1600.0


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """Initial parameters of a chain without records; all arrays change in place.

    Parameters
    ----------
    weights
        Prior weights of the cells.
    kept
        Arrays that are stored in each draw, beside ``counts`` and ``total``, by name.
    parts
        Other parameters that move, by name.
    """

    weights: FloatArray
    kept: Kept
    parts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordEngine(ABC):
    """Formulation of the posterior over whole records, and moves of the prior's parameters given the records.

    Parameters
    ----------
    evidence
        Evidence of the releases.
    total
        Public number of records N; None if it is private.
    total_range
        Lower and upper end of the log-uniform prior of a private N, records.
    """

    evidence: Evidence
    total: float | None = None
    total_range: tuple[float, float] = WIDEST_RANGE

    name: ClassVar[str] = "exact"
    """Name of the formulation."""
    sparsity: ClassVar[float] = 0.0
    """Half-counts per record: always 0, because nothing is approximated."""
    gain: ClassVar[float] = 0.0
    """Weight that a record adds to its cell: 1 if rows are integrated out, 0 if the parameters are given."""
    moves: ClassVar[int] = MOVES
    """Number of records that one sweep visits."""
    is_listed: ClassVar[bool] = True
    """Whether each record is stored, or only the tables."""

    @classmethod
    @abstractmethod
    def refuses(cls, evidence: Evidence, settings: PriorSettings) -> BayesPrivMRFError | None:
        """Return the reason why this engine does not support a release or the settings, or None."""

    @cached_property
    @abstractmethod
    def forest(self) -> JunctionForest:
        """Junction forest along which records are drawn."""
        raise NotImplementedError

    @abstractmethod
    def start(self, rng: np.random.Generator) -> Start:
        """Draw initial parameters of a chain without records."""

    @abstractmethod
    def sweep(self, chain: RecordChain, sweeps: int) -> int:
        """Sweep records and parameters, and return the number of records."""

    @abstractmethod
    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Return marginals, counts and effects of the draws."""

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Settings of the prior, by name."""

    @property
    @abstractmethod
    def judged(self) -> tuple[str, ...]:
        """Variables on which convergence is judged."""

    @abstractmethod
    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the tables of N whole records."""

    # relaxed counts

    @cached_property
    @abstractmethod
    def relaxed(self) -> Any:
        """Formulation with the same prior and relaxed counts, where they are possible."""

    @property
    def no_relaxed(self) -> str | None:
        """Reason why relaxed counts are impossible; None if they are possible."""
        if not self.evidence.needs_whole_records:
            return None
        return (
            "this posterior has no PyMC model: PyMC relaxes the counts, which is impossible for exact or bounded "
            "counts, sums of draws and rules that depend on the count. Read its draws in `tree`, or fit a release "
            "with other noise."
        )

    @property
    def other(self) -> str | None:
        """Name of the formulation with the same prior and relaxed counts; None if there is none."""
        if self.no_relaxed:
            return None
        return self.relaxed.name.lower()

    def model(self) -> pm.Model:
        """Return the PyMC model of the same posterior with relaxed counts.

        Raises
        ------
        ModelError
            Relaxed counts cannot represent the measurements, or this prior.
        """
        if self.no_relaxed:
            raise ModelError(self.no_relaxed)
        return self.relaxed.model()

    # measurements

    @cached_property
    def bagged(self) -> Evidence:
        """Same evidence under a model whose cliques are the tables of the forest."""
        return self.evidence

    @property
    def keeps_sums(self) -> bool:
        """True if some sums of counts are known exactly or within bounds."""
        return bool(self.evidence.is_bounded.any() or self.evidence.is_exact.any())

    @cached_property
    def sums(self) -> ExactSums:
        """Sums that are known exactly or within bounds."""
        if self.total is None:
            total = None
        else:
            total = round(self.total)
        return ExactSums(evidence=self.bagged, forest=self.forest, total=total)

    @property
    def noisy(self) -> Evidence:
        """Same evidence without the numbers that have no noise, for which `sums` stand."""
        return replace(self.bagged, possible=self.bagged.possible & ~noiseless_numbers(self.bagged))

    @cached_property
    def data(self) -> RecordData:
        """Arrays that moves of records read."""
        return record_data(self.noisy, self.sums, self.gain)

    @cached_property
    def near(self) -> FloatArray:
        """Least-squares counts of the cells; initial tables with exact sums are drawn close to them."""
        return least_squares(self.bagged).counts

    @cached_property
    def measured(self) -> MeasuredCells:
        """Measured cells of the evidence."""
        return MeasuredCells.of(self.evidence)

    def all_cells(self, counts: FloatArray) -> FloatArray:
        """Return the counts of all cells of the model, given those of the possible cells."""
        full = np.zeros((*np.shape(counts)[:-1], self.evidence.specification.size))
        full[..., self.measured.cells] = counts
        return full

    # number of records

    @property
    def first_total(self) -> int:
        """Number of records with which chains start, within all bounds."""
        return self.nearest_total(*self.sums.extent)

    def nearest_total(self, low: int, high: int) -> int:
        """Return the number of records within two bounds that is closest to the public or estimated number."""
        if self.total is None:
            found = round(self.evidence.total)
        else:
            found = round(self.total)
        least, most = (int(end) for end in self.total_bounds)
        if self.total is None:
            low = max(low, least)
            high = min(high, most)
        if low > high:
            raise ModelError(NO_TABLE)
        return int(min(max(found, low), high))

    @property
    def total_bounds(self) -> np.ndarray:
        """Smallest and largest possible number of records."""
        low, high = self.total_range
        return np.array([max(math.ceil(low), 1), math.floor(high)], np.int64)

    @property
    def births(self) -> int:
        """Number of births and deaths in a sweep: a random walk crosses the likely values of N in a few sweeps."""
        if self.total is not None:
            return 0
        error = self.evidence.total_standard_error
        if math.isfinite(error):
            return int(np.clip(error * error, _FEWEST_BIRTHS, _MOST_BIRTHS))
        return _MOST_BIRTHS

    reach = 0  # largest change of N in one move of an engine that moves it by many records

    # memory and work

    @property
    def bytes_a_record(self) -> int:
        """Memory of one record of one chain: its cell in each table of rows."""
        if self.is_listed:
            return _BYTES_A_CELL * len(self.forest.tables)
        return 0

    @property
    def operations_a_sweep(self) -> float:
        """Operations of one sweep of one chain."""
        forest = self.forest
        visits = min(self.first_total, self.moves) + self.births
        cells = forest.cells.size + forest.sources.size
        visit = _WORK_A_CELL * cells + _WORK_A_TABLE * len(forest.tables)
        return visit * visits

    # draws

    def chain(self, rng: np.random.Generator) -> RecordChain:
        """Return a new chain without records."""
        total = self.first_total
        start = self.start(rng)
        wanted = np.zeros((total, 0), np.int64)
        state = ChainState.empty(self.data, start.weights)
        if self.sums.groups:
            wanted = self.sums.start(total, self.near, rng)
        return RecordChain(
            sweep=self.sweep,
            kept={"counts": state.counts, **start.kept},
            rng=rng,
            total=total,
            latent=np.zeros(
                (total if self.is_listed else self.moves, len(self.forest.tables)), np.int32
            ),
            state=state,
            births=self.births + FAR * self.reach if self.is_listed else 0,
            parts=start.parts,
            wanted=wanted,
        )

    def sample(
        self,
        *,
        time_limit: float = math.inf,
        cores: int | None = None,
        progress_bar: bool | None = None,
        **size: int,
    ) -> Sampled:
        """Sweep until the chains have mixed; `size` has the fields of `Run`, the others are those of `Progress`."""
        run = Run(**size)
        seeds = np.random.SeedSequence(run.seed).spawn(run.chains)
        states = [self.chain(np.random.default_rng(child)) for child in seeds]

        def judged_of(kept: Kept) -> list[np.ndarray]:
            draws = self.read(kept)
            return [draws[name] for name in self.judged]

        progress = Progress(
            clock=Clock(time_limit),
            operations=run.chains * self.operations_a_sweep,
            cores=cores,
            is_shown=progress_bar,
        )
        found = sample_chains(states, judged_of, run, progress)
        values = self.read(dict(found.draws))
        densities = log_likelihoods(self.evidence, self.all_cells(values["counts"])).values()
        lp = sum(densities, np.zeros(values["total"].shape))
        return replace(found, draws=values, statistics={"lp": lp})

    def read(self, kept: Kept) -> Kept:
        """Return stored draws with the counts of the model's possible cells, and what else is judged."""
        return {**kept, "counts": kept["counts"][..., self.forest.places]}


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows(RecordEngine):
    """Engine of a decomposable model with Dirichlet rows of probabilities, whose shapes are fixed or learned.

    Parameters
    ----------
    concentration
        Shape of every cell, prior counts; None learns the shapes. The other parameters are those of `RecordEngine`.
    """

    concentration: float | None = None

    gain: ClassVar[float] = 1.0

    @classmethod
    def refuses(cls, evidence: Evidence, settings: PriorSettings) -> BayesPrivMRFError | None:
        """Return the reason why Dirichlet rows do not support the model or the settings, or None."""
        return RowsPrior.refuses(evidence, settings)

    @cached_property
    def rows_prior(self) -> RowsPrior:
        """Prior of the rows; it raises an error for models that are not decomposable."""
        return RowsPrior(
            evidence=self.evidence,
            total=self.total,
            total_range=self.total_range,
            concentration=self.concentration,
            is_cut=not self.keeps_sums,
        )

    @cached_property
    def relaxed(self) -> Any:
        """Formulation with the same prior and relaxed counts."""
        # only the PyMC model, and the advice to take relaxed counts, need it
        from bayesprivmrf.inference.posterior.relaxed_counts.hyper_dirichlet import HyperDirichlet

        return HyperDirichlet(
            evidence=self.evidence,
            concentration=self.concentration,
            total=self.total,
            total_range=self.total_range,
            is_cut=not self.keeps_sums,
        )

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the prior, by name."""
        return self.rows_prior.settings

    @property
    def judged(self) -> tuple[str, ...]:
        """``counts``, the latent counts of the possible cells of the cliques, and ``total`` if it is private."""
        if self.total is None:
            return ("counts", "total")
        return ("counts",)

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the tables of N whole records."""
        return self.rows_prior.prior_draws(size, rng)

    @cached_property
    def forest(self) -> JunctionForest:
        """Junction forest of the model."""
        return self.rows_prior.forest

    @cached_property
    def shape_prior(self) -> ShapePrior:
        """Prior of the shapes of the rows."""
        return self.rows_prior.shapes

    @property
    def operations_a_sweep(self) -> float:
        """Operations of one sweep of one chain, with a move of the learned shapes."""
        return super().operations_a_sweep + _WORK_A_SHAPE * self.shape_prior.size

    def start(self, rng: np.random.Generator) -> Start:
        """Draw shapes from their prior."""
        position = rng.standard_normal(self.shape_prior.size)
        log_rows = np.zeros(self.shape_prior.forest.cells.size)
        shapes = self.shape_prior.shapes(position)
        return Start(shapes, {"log_rows": log_rows, "shape_position": position})

    def sweep(self, chain: RecordChain, sweeps: int) -> int:
        """Sweep records, their number and the shapes, and draw the rows."""
        return advance(
            chain.total, self.moves, self.births, self.total_bounds, chain.wanted, chain.latent,
            chain.kept["shape_position"], chain.kept["log_rows"], chain.state, self.data, self.shape_prior.data,
            chain.rng, sweeps,
        )  # fmt: skip

    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Return marginals, counts and effects of the draws."""
        counts = self.all_cells(draws["counts"])
        rows = np.asarray(draws["log_rows"]).reshape(math.prod(counts.shape[:-1]), -1).T
        shapes = self.shape_prior.shapes(draws["shape_position"]).reshape(rows.shape[::-1]).T
        return self.finished(rows, counts, np.asarray(draws["total"], dtype=float), shapes)

    def finished(
        self, log_rows: FloatArray, counts: FloatArray, total: FloatArray, shapes: FloatArray
    ) -> Finished:
        """Return all quantities that follow from log probabilities and shapes of the rows, both (cells, draws)."""
        return self.rows_prior.finished(log_rows, counts, total, shapes)
