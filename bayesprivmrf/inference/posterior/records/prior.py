"""Priors of whole records: the interface, and Dirichlet rows of a decomposable model.

A prior has the junction forest along which records are drawn, and moves its own parameters given the records.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import WIDEST_RANGE, Evidence
from bayesprivmrf.inference.posterior.forest import JunctionForest
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.measured import MeasuredCells
from bayesprivmrf.inference.posterior.records.bounds import CONTRADICTION, noiseless_numbers
from bayesprivmrf.inference.posterior.records.chains import MOVES, Kept, RecordChain, RecordData, record_data
from bayesprivmrf.inference.posterior.records.exact_sums import ExactSums
from bayesprivmrf.inference.posterior.records.shape_moves import advance
from bayesprivmrf.inference.posterior.relaxed.hyper_dirichlet import HyperDirichlet
from bayesprivmrf.inference.posterior.shape_prior import ShapePrior
from bayesprivmrf.inference.projection import least_squares
from bayesprivmrf.model.tables import FloatArray


class Start(NamedTuple):
    """Start of a chain, drawn by a prior."""

    kept: Mapping[str, tuple[int, ...]]  # shape of one draw of each stored variable, by name
    shapes: FloatArray  # prior weights of the cells
    parts: dict[str, Any]  # parameters that the prior moves


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordPrior(ABC):
    """Prior of the population of whole records, and moves of its parameters given the records.

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

    gain: ClassVar[float] = 0.0
    """Weight that a record adds to its cell: 1 if rows are integrated out, 0 if the parameters are given."""
    moves: ClassVar[int] = MOVES
    """Number of records that one sweep visits."""
    is_listed: ClassVar[bool] = True
    """Whether each record is stored, or only the tables."""

    @cached_property
    @abstractmethod
    def forest(self) -> JunctionForest:
        """Junction forest along which records are drawn."""
        raise NotImplementedError

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Settings of the prior, by name."""

    @property
    @abstractmethod
    def judged(self) -> tuple[str, ...]:
        """Variables on which convergence is judged."""

    @cached_property
    def relaxed(self) -> Any:
        """Formulation with the same prior and relaxed counts; None if there is none."""
        return None

    @property
    def no_relaxed(self) -> str | None:
        """Reason why relaxed counts are impossible; None if they are possible."""
        return None

    @abstractmethod
    def start(self, rng: np.random.Generator) -> Start:
        """Draw initial parameters of a chain without records."""

    @abstractmethod
    def sweep(self, chain: RecordChain, out: Kept, thin: int) -> int:
        """Sweep records and parameters, fill `out`, and return the number of records."""

    @abstractmethod
    def in_order(self, counts: FloatArray) -> FloatArray:
        """Return stored counts of the model's possible cells, in the model's order."""

    def with_more(self, draws: Kept) -> Kept:
        """Return the draws, and the functions of them by which mixing is judged."""
        return draws

    @abstractmethod
    def finish(self, draws: Mapping[str, np.ndarray]) -> Finished:
        """Return marginals, counts and effects of the draws."""

    @abstractmethod
    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the tables of N whole records."""

    @cached_property
    def bagged(self) -> Evidence:
        """Same evidence under a model whose cliques are the tables of the forest."""
        return self.evidence

    @property
    def keeps_sums(self) -> bool:
        """True if some sums of counts are known exactly or within bounds."""
        return self.evidence.has_bounds or bool(self.evidence.is_exact.any())

    @cached_property
    def sums(self) -> ExactSums:
        """Sums that are known exactly or within bounds."""
        total = None if self.total is None else round(self.total)
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

    @property
    def first_total(self) -> int:
        """Number of records with which chains start, within all bounds."""
        return self.nearest_total(*self.sums.extent)

    def nearest_total(self, low: int, high: int) -> int:
        """Return the number of records within two bounds that is closest to the public or estimated number."""
        found = round(self.evidence.total) if self.total is None else round(self.total)
        least, most = (int(end) for end in self.total_bounds)
        if self.total is None:
            low, high = max(low, least), min(high, most)
        if low > high:
            raise ModelError(CONTRADICTION)
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
        # the ends are arbitrary
        return int(np.clip(error * error, 20, 1000)) if math.isfinite(error) else 1000

    @property
    def most_births(self) -> int:
        """Number of births for which a sweep needs space."""
        return self.births

    @property
    def parameter_operations(self) -> float:
        """Operations of one move of the prior's parameters (`effort`)."""
        return 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class DirichletRows(RecordPrior):
    """Prior with Dirichlet rows of probabilities, whose shapes are fixed or learned.

    Parameters
    ----------
    concentration
        Shape of every cell, prior counts; None learns the shapes. The other parameters are those of `RecordPrior`.
    """

    concentration: float | None = None

    @cached_property
    @abstractmethod
    def shape_prior(self) -> ShapePrior:
        """Prior of the shapes of the rows."""
        raise NotImplementedError

    @abstractmethod
    def _finished(
        self, log_rows: FloatArray, counts: FloatArray, total: FloatArray, shapes: FloatArray
    ) -> Finished: ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the prior, by name."""
        ends = {"total_range": tuple(float(end) for end in self.total_range)}
        return {**self.shape_prior.settings, **(ends if self.total is None else {})}

    @property
    def kept(self) -> dict[str, tuple[int, ...]]:
        """Shape of one draw of each stored variable, by name; `log_rows` are log probabilities of the rows."""
        cells, rows = self.forest.cells.size, self.shape_prior.forest.cells.size
        return {
            "counts": (cells,),
            "log_rows": (rows,),
            "total": (),
            "shape_position": (self.shape_prior.size,),
        }

    def in_order(self, counts: FloatArray) -> FloatArray:
        """Return stored counts of the model's possible cells, in the model's order."""
        return counts[..., self.forest.places]

    def finish(self, draws: Mapping[str, np.ndarray]) -> Finished:
        """Return marginals, counts and effects of the draws."""
        counts = self.all_cells(draws["counts"])
        rows = np.asarray(draws["log_rows"]).reshape(math.prod(counts.shape[:-1]), -1).T
        shapes = self.shape_prior.shapes(draws["shape_position"]).reshape(rows.shape[::-1]).T
        return self._finished(rows, counts, np.asarray(draws["total"], dtype=float), shapes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows(DirichletRows):
    """Hyper-Dirichlet prior of a decomposable model; parameters are those of `DirichletRows`.

    Raises
    ------
    ModelError
        The cliques are not the bags of a junction forest.
    """

    gain: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        assert self.relaxed is not None  # making it raises the error for other models

    @cached_property
    def relaxed(self) -> HyperDirichlet:
        """Formulation with the same prior and relaxed counts."""
        return HyperDirichlet(
            evidence=self.evidence,
            concentration=self.concentration,
            total=self.total,
            total_range=self.total_range,
            is_cut=not self.keeps_sums,
        )

    @cached_property
    def forest(self) -> JunctionForest:
        """Junction forest of the model."""
        return self.relaxed.forest

    @cached_property
    def shape_prior(self) -> ShapePrior:
        """Prior of the shapes of the rows."""
        return self.relaxed.prior

    @property
    def judged(self) -> tuple[str, ...]:
        """``counts``, and ``total`` if it is private."""
        return self.relaxed.judged

    @property
    def parameter_operations(self) -> float:
        """Operations of one move of the learned shapes (`effort`)."""
        return 1600.0 * self.shape_prior.size  # benchmark `engine_choice`

    def start(self, rng: np.random.Generator) -> Start:
        """Draw shapes from their prior."""
        position = rng.standard_normal(self.shape_prior.size)
        return Start(self.kept, self.shape_prior.shapes(position), {"position": position})

    def sweep(self, chain: RecordChain, out: Kept, thin: int) -> int:
        """Sweep records, their number and the shapes, and draw the rows."""
        return advance(
            chain.total, self.moves, self.births, self.total_bounds, chain.wanted, chain.latent,
            chain.parts["position"], chain.state, self.data, self.shape_prior.data, chain.rng, thin,
            tuple(out.values()),
        )  # fmt: skip

    def _finished(
        self, log_rows: FloatArray, counts: FloatArray, total: FloatArray, shapes: FloatArray
    ) -> Finished:
        return self.relaxed.finished(log_rows, counts, total, shapes)

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the tables of N whole records."""
        return self.relaxed.prior_draws(size, rng)
