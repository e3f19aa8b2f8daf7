"""Dirichlet rows as a prior of whole records: those of a decomposable model, with the rows integrated out."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from bayesprivmrf.inference.posterior.forest import JunctionForest
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.records.chains import Kept, RecordChain
from bayesprivmrf.inference.posterior.records.prior import RecordPrior, Start
from bayesprivmrf.inference.posterior.records.shape_moves import advance
from bayesprivmrf.inference.posterior.relaxed.hyper_dirichlet import HyperDirichlet
from bayesprivmrf.inference.posterior.shape_prior import ShapePrior
from bayesprivmrf.model.tables import FloatArray

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
