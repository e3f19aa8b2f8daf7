r"""The exact posterior of a decomposable model: whole records drawn one by one, with their rows and their number.

No count is relaxed and no law approximated: the chain moves the N records themselves, each from its law given all
others and the noisy tables (`moves`), the number of records by births and deaths, the shapes of the rows'
prior by Metropolis steps with the rows integrated out, and the rows from Dirichlet(α + n). What it costs is time: a
sweep visits a few thousand records, and sums over all cells of the model once for every few dozen of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.records.chains import MOVES, Kept, RecordChain, RecordSampler
from bayesprivmrf.inference.posterior.records.shape_moves import advance
from bayesprivmrf.inference.posterior.records.tape import ChainState, RecordTape, record_tape
from bayesprivmrf.inference.posterior.relaxed.hyper_dirichlet import HyperDirichlet
from bayesprivmrf.model.tables import FloatArray

_A_SHAPE = 1600.0
"""Operations of the moves of one learned number of the rows' prior (benchmark *Choice of the engine*)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactRecords(HyperDirichlet, RecordSampler):
    """The posterior of a decomposable model over the records themselves; parameters are those of `HyperDirichlet`.

    ``model()`` is the PyMC model of the same posterior with relaxed counts.
    """

    @property
    def is_whole(self) -> bool:
        """Return True: the counts are those of records."""
        return True

    @property
    def name(self) -> str:
        """Name of the formulation."""
        return "exact"

    @property
    def reaches_all(self) -> bool:
        """Whether its moves keep numbers without noise, and reach every such table: those of `held_records` do."""
        return False

    @property
    def hidden(self) -> tuple[str, ...]:
        """``log_rows`` and ``shape_position``, the rows and where their shapes are, which are drawn along."""
        return ("log_rows", "shape_position")

    @cached_property
    def _tape(self) -> RecordTape:
        return record_tape(self.evidence, self.forest)

    @property
    def other(self) -> str | None:
        """The formulation of the same prior whose counts are relaxed."""
        return "hyper-dirichlet"

    @property
    def operations_a_sweep(self) -> float:
        """Operations of one sweep of one chain: of the records, and of the learned shapes (`effort`)."""
        return super().operations_a_sweep + _A_SHAPE * self.prior.size

    @property
    def work(self) -> float:
        """Operations per effective draw (`effort`)."""
        return RecordSampler.work.fget(self)  # type: ignore[misc]

    def chain(self, rng: np.random.Generator) -> RecordChain:
        """No records yet; shapes drawn from their prior."""
        cells, positions = self.forest.cells.size, self.prior.size
        position = rng.standard_normal(positions)
        return RecordChain(
            sweep=self._sweep,
            kept={"counts": (cells,), "log_rows": (cells,), "total": (), "shape_position": (positions,)},
            rng=rng,
            total=self.first_total,
            latent=np.zeros((self.first_total, len(self.forest.tables)), np.int32),
            state=ChainState.empty(self._tape, self.prior.shapes(position)),
            births=self.births,
            parts={"position": position},
        )

    def _sweep(self, chain: RecordChain, out: Kept, thin: int) -> int:
        return advance(
            chain.total, MOVES, self.births, self.total_bounds, chain.latent, chain.parts["position"], chain.state,
            self._tape, self.prior.tape, chain.rng, thin, tuple(out.values()),
        )  # fmt: skip

    def in_order(self, counts: FloatArray) -> FloatArray:
        """The model's possible cells of kept counts, in their order."""
        return counts[..., self.forest.places]

    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Marginals, counts and effects of the draws; nothing is left to be drawn."""
        lead = draws["counts"].shape[:-1]
        counts = np.zeros((*lead, self.forest.offsets[-1]))
        counts[..., self._measured.cells] = draws["counts"]
        rows = np.asarray(draws["log_rows"]).reshape(math.prod(lead), -1).T
        shapes = self.prior.shapes(draws["shape_position"]).reshape(rows.shape[::-1]).T
        return self._finished(rows, counts, np.asarray(draws["total"], dtype=float), shapes)
