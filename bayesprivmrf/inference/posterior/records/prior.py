"""Priors of whole records: the forest along which records are drawn, and moves of the parameters.

Dirichlet rows as a prior of whole records: those of a decomposable model, with the rows integrated out.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import WIDEST_RANGE, Evidence
from bayesprivmrf.inference.least_squares import least_squares
from bayesprivmrf.inference.posterior.forest import JunctionForest
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.measured import MeasuredCells
from bayesprivmrf.inference.posterior.records.bounds import CONTRADICTION
from bayesprivmrf.inference.posterior.records.chains import MOVES, Kept, RecordChain
from bayesprivmrf.inference.posterior.records.held import HeldSums
from bayesprivmrf.inference.posterior.records.shape_moves import advance
from bayesprivmrf.inference.posterior.records.tape import (
    HeldTape,
    RecordTape,
    held_tape,
    noisy_tape,
    record_tape,
)
from bayesprivmrf.inference.posterior.relaxed.hyper_dirichlet import HyperDirichlet
from bayesprivmrf.inference.posterior.shape_prior import ShapePrior
from bayesprivmrf.model.tables import FloatArray

# Smallest and largest number of births and deaths in a sweep if N is private; arbitrary
_BIRTHS = (20, 1000)


class Start(NamedTuple):
    """The start of a chain, as a prior draws it."""

    kept: Mapping[str, tuple[int, ...]]  # shape of one draw of everything that is kept
    shapes: FloatArray  # prior weights of the cells
    parts: dict[str, Any]  # the parameters that the prior moves


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordPrior(ABC):
    """A prior of the population of whole records, and the moves of its parameters given the records.

    Parameters
    ----------
    evidence
        The releases.
    total
        The public number of records N; None where it is private.
    total_range
        Lower and upper end of the log-uniform prior of a private N, records.
    """

    evidence: Evidence
    total: float | None = None
    total_range: tuple[float, float] = WIDEST_RANGE

    gain: ClassVar[float] = 0.0
    """Weight that a record adds to its cell: 1 where rows are integrated out, 0 where the parameters are given."""
    moves: ClassVar[int] = MOVES
    """Records that one sweep visits."""
    is_listed: ClassVar[bool] = True
    """Whether each record is kept, or the tables alone."""

    @cached_property
    @abstractmethod
    def forest(self) -> JunctionForest:
        """The junction forest along which records are drawn."""
        raise NotImplementedError

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """The prior's settings, by name."""

    @property
    @abstractmethod
    def judged(self) -> tuple[str, ...]:
        """Variables on which convergence is judged."""

    @property
    def hidden(self) -> tuple[str, ...]:
        """Variables that are stored for `finish` alone."""
        return ()

    @cached_property
    def relaxed(self) -> Any:
        """The formulation with this prior and relaxed counts; None if there is none."""
        return None

    @property
    def no_relaxed(self) -> str | None:
        """Reason against relaxed counts; None if they are possible."""
        return None

    @abstractmethod
    def start(self, rng: np.random.Generator) -> Start:
        """Draw parameters for a chain that has no records yet."""

    @abstractmethod
    def sweep(
        self, chain: RecordChain, moves: int, births: int, records: np.ndarray, out: Kept, thin: int
    ) -> int:
        """Sweep records and parameters, fill `out`, and return the number of records; 0 moves leave the records."""

    @abstractmethod
    def in_order(self, counts: FloatArray) -> FloatArray:
        """Return the model's possible cells of kept counts, in their order."""

    def judged_of(self, kept: Kept) -> list[np.ndarray]:
        """Return the draws of a chain by which mixing is judged."""
        return [kept["counts"], kept["total"]]

    def with_more(self, draws: Kept) -> Kept:
        """Return the draws, with the functions of them by which mixing is judged."""
        return draws

    @abstractmethod
    def finish(self, draws: Mapping[str, np.ndarray]) -> Finished:
        """Return marginals, counts and effects of the draws; nothing is left to be drawn."""

    @abstractmethod
    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the integer tables of N records each."""

    @cached_property
    def bagged(self) -> Evidence:
        """The same evidence, whose model's cliques are the tables of the forest."""
        return self.evidence

    @property
    def keeps_sums(self) -> bool:
        """True if some sums of counts are known exactly or within bounds."""
        return self.evidence.has_bounds or bool(self.evidence.is_exact.any())

    @cached_property
    def sums(self) -> HeldSums:
        """The sums that are known exactly or within bounds."""
        total = None if self.total is None else round(self.total)
        return HeldSums(evidence=self.bagged, forest=self.forest, total=total)

    @cached_property
    def tape(self) -> RecordTape:
        """Arrays of the noisy numbers that moves of records read."""
        if self.keeps_sums:
            return noisy_tape(self.sums, gain=self.gain)
        return record_tape(self.bagged, self.forest, gain=self.gain)

    @cached_property
    def sums_tape(self) -> HeldTape:
        """The arrays of the exact sums that moves of records read."""
        return held_tape(self.sums)

    @cached_property
    def near(self) -> FloatArray:
        """Counts of the cells that nearly fit the release; the initial tables are drawn near them."""
        return least_squares(self.bagged).counts

    @cached_property
    def measured(self) -> MeasuredCells:
        """The cells that are measured."""
        return MeasuredCells.of(self.evidence)

    def all_cells(self, counts: FloatArray) -> FloatArray:
        """Return counts of all cells of the model from those of the possible ones."""
        full = np.zeros((*np.shape(counts)[:-1], self.evidence.specification.size))
        full[..., self.measured.cells] = counts
        return full

    @property
    def first_total(self) -> int:
        """The number of records that chains start with, within all bounds."""
        return self.nearest_total(*self.sums.extent) if self.keeps_sums else self.nearest_total(0, None)

    def nearest_total(self, low: int, high: int | None) -> int:
        """Return the number of records within two bounds that is nearest to the public or the estimated number."""
        found = round(self.evidence.total) if self.total is None else round(self.total)
        least, most = (int(end) for end in self.total_bounds)
        if self.total is None:
            found = min(max(found, least), most)
            low, high = max(low, least), most if high is None else min(high, most)
        if high is None:
            return int(found)
        if low > high:
            raise ModelError(CONTRADICTION)
        return int(min(max(found, low), high))

    @property
    def total_bounds(self) -> np.ndarray:
        """The least and the largest possible number of records."""
        low, high = self.total_range
        return np.array([max(math.ceil(low), 1), math.floor(high)], np.int64)

    @property
    def births(self) -> int:
        """Number of births and deaths in a sweep, enough for a random walk to cross the likely values of N soon."""
        if self.total is not None:
            return 0
        error = self.evidence.total_standard_error
        return int(np.clip(error * error, *_BIRTHS)) if math.isfinite(error) else _BIRTHS[1]

    @property
    def most_births(self) -> int:
        """Number of births that a sweep needs space for."""
        return self.births

    @property
    def parameter_operations(self) -> float:
        """Operations of one move of the prior's parameters (`effort`)."""
        return 0.0


# Operations of the moves of one learned number of the rows' prior (benchmark *Choice of the engine*)
_A_SHAPE = 1600.0


@dataclass(frozen=True, kw_only=True, eq=False)
class DirichletRows(RecordPrior):
    """Rows of probabilities with Dirichlet priors, whose shapes are fixed or learned.

    Parameters
    ----------
    concentration
        Shape of every cell; None learns the shapes. The other parameters are those of `RecordPrior`.
    """

    concentration: float | None = None

    @cached_property
    @abstractmethod
    def shape_prior(self) -> ShapePrior:
        """The prior of the rows' shapes."""
        raise NotImplementedError

    @abstractmethod
    def _finished(
        self, log_rows: FloatArray, counts: FloatArray, total: FloatArray, shapes: FloatArray
    ) -> Finished: ...

    @property
    def hidden(self) -> tuple[str, ...]:
        """``log_rows`` and ``shape_position``: the rows, and the position of their shapes."""
        return ("log_rows", "shape_position")

    @property
    def settings(self) -> Mapping[str, Any]:
        """The prior's settings, by name."""
        settings: dict[str, Any] = dict(self.shape_prior.settings)
        if self.total is None:
            settings["total_range"] = tuple(float(end) for end in self.total_range)
        return settings

    @property
    def kept(self) -> dict[str, tuple[int, ...]]:
        """Shape of one draw of everything that is kept, by name."""
        rows, positions = self.shape_prior.forest.cells.size, self.shape_prior.size
        return {
            "counts": (self.forest.cells.size,),
            "log_rows": (rows,),
            "total": (),
            "shape_position": (positions,),
        }

    def in_order(self, counts: FloatArray) -> FloatArray:
        """Return the model's possible cells of kept counts, in their order."""
        return counts[..., self.forest.places]

    def finish(self, draws: Mapping[str, np.ndarray]) -> Finished:
        """Return marginals, counts and effects of the draws; nothing is left to be drawn."""
        counts = self.all_cells(draws["counts"])
        rows = np.asarray(draws["log_rows"]).reshape(math.prod(counts.shape[:-1]), -1).T
        shapes = self.shape_prior.shapes(draws["shape_position"]).reshape(rows.shape[::-1]).T
        return self._finished(rows, counts, np.asarray(draws["total"], dtype=float), shapes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows(DirichletRows):
    """The hyper-Dirichlet prior of a decomposable model; parameters are those of `DirichletRows`.

    Raises
    ------
    ModelError
        The cliques are not the bags of a junction forest.
    """

    gain: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        assert self.relaxed is not None  # refuses other models at once

    @cached_property
    def relaxed(self) -> HyperDirichlet:
        """The formulation with this prior and relaxed counts."""
        return HyperDirichlet(
            evidence=self.evidence,
            concentration=self.concentration,
            total=self.total,
            total_range=self.total_range,
            is_cut=not self.keeps_sums,
        )

    @cached_property
    def forest(self) -> JunctionForest:
        """The model's junction forest."""
        return self.relaxed.forest

    @cached_property
    def shape_prior(self) -> ShapePrior:
        """The prior of the rows' shapes."""
        return self.relaxed.prior

    @property
    def judged(self) -> tuple[str, ...]:
        """``counts``, and ``total`` where it is private."""
        return self.relaxed.judged

    @property
    def parameter_operations(self) -> float:
        """Operations of one move of the learned shapes (`effort`)."""
        return _A_SHAPE * self.shape_prior.size

    def start(self, rng: np.random.Generator) -> Start:
        """Draw shapes from their prior."""
        position = rng.standard_normal(self.shape_prior.size)
        return Start(self.kept, self.shape_prior.shapes(position), {"position": position})

    def sweep(
        self, chain: RecordChain, moves: int, births: int, records: np.ndarray, out: Kept, thin: int
    ) -> int:
        """Sweep records, their number and the shapes, and draw the rows."""
        return advance(
            chain.total, moves, births, self.total_bounds, records, chain.parts["position"], chain.state, self.tape,
            self.shape_prior.tape, chain.rng, thin, tuple(out.values()),
        )  # fmt: skip

    def _finished(
        self, log_rows: FloatArray, counts: FloatArray, total: FloatArray, shapes: FloatArray
    ) -> Finished:
        return self.relaxed.finished(log_rows, counts, total, shapes)

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the integer tables of N records each."""
        return self.relaxed.prior_draws(size, rng, is_whole=True)
