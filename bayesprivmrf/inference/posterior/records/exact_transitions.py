r"""The exact posterior of a chain of one transition matrix: whole records, their number, and the rows they share.

The prior is the hyper-Dirichlet one, of two tables: the law of the first states is one row, the matrix has a row for
each past, and their shapes are fixed or learned (`shape_prior`). The records count in these rows at every step, so
that the sums over the steps are what the rows are learned from; what was measured may be any query, of single steps
as well. Counts are whole, and no law is approximated (`transition_moves`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.posterior.forest import (
    JunctionForest,
    draw_log_rows,
    draw_tables,
    effects_of,
)
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.log_uniform import draw_totals
from bayesprivmrf.inference.posterior.measured import dimension_names, table_name
from bayesprivmrf.inference.posterior.measured_cells import rough_counts
from bayesprivmrf.inference.posterior.records.chains import Kept, RecordChain
from bayesprivmrf.inference.posterior.records.engine import ExactRecords
from bayesprivmrf.inference.posterior.records.tape import ChainState, RecordTape, record_tape
from bayesprivmrf.inference.posterior.records.transition_moves import (
    SharedRows,
    SharedTape,
    advance_transitions,
)
from bayesprivmrf.inference.posterior.sampled import Sampled
from bayesprivmrf.inference.posterior.shape_prior import ShapePrior
from bayesprivmrf.inference.transitions.rows import TransitionRows
from bayesprivmrf.model.tables import FloatArray, IntArray

if TYPE_CHECKING:
    import pymc as pm

_MOVES = 500
"""Records that one sweep visits."""
_SCALES = 10
"""Powers of two up to which pairs of records exchange at once, however large the noise."""
_SHARE = 0.25
"""Share of the records by which chains start: their starting law is wider than the posterior."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactTransitions(ExactRecords):
    """The posterior of a chain with shared transitions; parameters are those of `HyperDirichlet`."""

    def model(self) -> pm.Model:
        """There is none.

        Raises
        ------
        ModelError
            Always.
        """
        raise ModelError(
            "a chain with shared transitions has no PyMC model here: its posterior is drawn over whole records; use "
            "`posterior.tree`, or `posterior.quantity` for a function of each draw."
        )

    @property
    def other(self) -> None:
        """Return None: no formulation with relaxed counts shares transitions."""

    @property
    def bytes_a_record(self) -> int:
        """Memory of one record: none, since only tables are kept."""
        return 0

    @property
    def operations_a_sweep(self) -> float:
        """Operations of one sweep of one chain (`effort`)."""
        return self.operations_a_visit * (_MOVES + self.births)

    @cached_property
    def chain_rows(self) -> TransitionRows:
        """The chain's order of time, and its windows' cells."""
        return TransitionRows(model=self.evidence.specification)

    @cached_property
    def _forest(self) -> JunctionForest:
        """The windows in the order of time, each below the one before."""
        model, chain = self.evidence.specification, self.chain_rows.chain
        parents, separators = [-1] * len(model.scopes), [()] * len(model.scopes)
        for step, (before, clique) in enumerate(zip(chain.cliques, chain.cliques[1:], strict=False), 1):
            parents[clique] = before
            separators[clique] = tuple(sorted(chain.positions[step : step + chain.order]))
        return JunctionForest(
            cardinalities=model.cardinalities,
            scopes=model.scopes,
            order=chain.cliques,
            parents=tuple(parents),
            separators=tuple(separators),
            supported=self.evidence.supported,
        )

    @cached_property
    def prior(self) -> ShapePrior:
        """The prior of two tables: the first states, and the next state given those before it."""
        order = self.chain_rows.chain.order
        past = tuple(range(order))
        forest = JunctionForest(
            cardinalities=(self.chain_rows.states,) * (order + 1),
            scopes=(past, (*past, order)),
            order=(0, 1),
            parents=(
                -1,
                -1,
            ),  # only its rows matter, and nobody begins with the end state, whose row there is
            separators=((), past),
            supported=np.concatenate([mask.ravel() for mask in self.chain_rows.is_possible]),
        )
        return ShapePrior(forest=forest, concentration=self.concentration)

    @cached_property
    def _tape(self) -> RecordTape:
        return record_tape(self.evidence, self.forest, gain=0.0)

    @cached_property
    def _shared(self) -> SharedTape:
        rows, pooled = self.chain_rows, self.prior.forest
        deviations = np.array([law.standard_deviation for law in self.evidence.noise])
        place = _ranks(pooled.cells, pooled.offsets[-1])
        places = np.empty(self.evidence.specification.size, np.int64)
        places[rows.cells] = place[rows.rows :]
        firsts = np.full(places.size, -1)
        firsts[rows.cells[0]] = np.repeat(place[: rows.rows], rows.states)
        first_clique, size = self.forest.order[0], places.size
        is_first = np.zeros(size, bool)
        is_first[slice(*self.forest.offsets[first_clique : first_clique + 2])] = True
        return SharedTape(
            places=places[self.forest.cells],
            firsts=firsts[self.forest.cells[is_first[self.forest.cells]]],
            clique_rows=np.array([0, 1, len(pooled.row_starts) - 1]),
            row_starts=pooled.row_starts,
            steps=place[rows.rows :],
            windows=_ranks(self.forest.cells, size)[rows.cells],
            states=rows.states,
            scales=1 + min(max(math.ceil(math.log2(2.0 * deviations.max(initial=0.5))), 0), _SCALES),
        )

    def chain(self, rng: np.random.Generator) -> RecordChain:
        """No records yet; shapes drawn from their prior, rows from about the naive estimate."""
        cells, positions = self.prior.forest.cells.size, self.prior.size
        position = rng.standard_normal(positions)
        shapes = self.prior.shapes(position)
        start = draw_log_rows(self.prior.forest, (shapes + _SHARE * self._rough)[:, np.newaxis], rng)[:, 0]
        return RecordChain(
            sweep=self._sweep,
            kept={
                "counts": (self.forest.cells.size,),
                "log_rows": (cells,),
                "total": (),
                "shape_position": (positions,),
            },
            rng=rng,
            total=self.first_total,
            latent=np.zeros((_MOVES, len(self.forest.order)), np.int32),
            state=ChainState.empty(self._tape, np.zeros(self.forest.cells.size)),
            births=0,  # the tables need no room for them
            parts={
                "position": position,
                "rows": SharedRows(
                    shapes=shapes,
                    counts=np.zeros(cells, np.int64),
                    log_rows=start,
                ),
            },
        )

    @cached_property
    def _rough(self) -> FloatArray:
        """F and C by tables that nearly fit the release."""
        counts, _ = rough_counts(self.evidence, self.forest, float(self.first_total))
        return np.maximum(self._pooled(self.in_order(counts)), 0.0)

    @property
    def judged(self) -> tuple[str, ...]:
        """``sums``: F, C and what was measured; and ``total`` where it is private.

        Single steps that nobody measured follow the sums slowly where records are many, and no row rests on them.
        """
        return ("sums",) if self.total is not None else ("sums", "total")

    def judged_of(self, kept: Kept) -> list[np.ndarray]:
        """Those of a chain's draws by which mixing is judged."""
        return [self._sums(self.in_order(kept["counts"])), kept["total"]]

    def sample(self, **how: Any) -> Sampled:
        """As `RecordSampler.sample`, with the sums besides."""
        sampled = super().sample(**how)
        return replace(sampled, draws={**sampled.draws, "sums": self._sums(sampled.draws["counts"])})

    def _sums(self, counts: FloatArray) -> FloatArray:
        """F, C and what was measured, of tables."""
        return np.concatenate([self._pooled(counts), self._answers(counts)], axis=-1)

    def _pooled(self, counts: FloatArray) -> FloatArray:
        """F and C of the model's possible cells, where they can be."""
        full = np.zeros((*counts.shape[:-1], self.evidence.specification.size))
        full[..., np.sort(self.forest.cells)] = counts
        return self.chain_rows.sums(full)[..., self.prior.forest.cells]

    def _sweep(self, chain: RecordChain, out: Kept, thin: int) -> int:
        return advance_transitions(
            chain.total, _MOVES, self.births, self.total_bounds, chain.latent[:_MOVES], *chain.parts.values(),
            chain.state, self._tape, self._shared, self.prior.tape, chain.rng, thin, tuple(out.values()),
        )  # fmt: skip

    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Marginals, counts and effects of the draws; nothing is left to be drawn."""
        lead = draws["counts"].shape[:-1]
        counts = np.zeros((*lead, self.forest.offsets[-1]))
        counts[..., self._measured.cells] = draws["counts"]
        rows = np.asarray(draws["log_rows"]).reshape(math.prod(lead), -1).T
        shapes = self.prior.shapes(draws["shape_position"]).reshape(rows.shape[::-1]).T
        return self._finished(rows, counts, np.asarray(draws["total"], dtype=float), shapes)

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Exact draws of the prior, shape (1, size, ...), with the integer tables of N records each."""
        total = draw_totals(self.total, self.total_range, size, rng, is_whole=self.is_whole)
        shapes = self.prior.shapes(rng.standard_normal((size, self.prior.size)))
        rows = draw_log_rows(self.prior.forest, shapes.T, rng)
        counts = np.zeros((1, size, self.forest.offsets[-1]))
        counts[0][:, self.forest.cells] = draw_tables(self.forest, self._in_windows(rows), total, rng).T
        return self._finished(rows, counts, total[np.newaxis].astype(float), shapes.T)

    def _in_windows(self, log_rows: FloatArray) -> FloatArray:
        """Log-probabilities of the windows' rows, in the order of ``forest.cells``, from those of π and P."""
        windows = log_rows[self._shared.places]
        windows[: self._shared.firsts.size] += log_rows[self._shared.firsts]
        return windows

    def _finished(
        self, log_rows: FloatArray, counts: FloatArray, total: FloatArray, shapes: FloatArray
    ) -> Finished:
        """What follows from log π and log P and their shapes, (cells, draws) both."""
        rows, lead = self.chain_rows, counts.shape[:-1]
        full = np.zeros((log_rows.shape[1], self.prior.forest.offsets[-1]))
        full[:, self.prior.forest.cells] = np.exp(log_rows).T
        first, matrix = np.split(full, [rows.rows], axis=1)
        marginals = rows.forward(first, matrix.reshape(-1, rows.rows, rows.states))
        effects = effects_of(self.forest, self._in_windows(log_rows))
        log_prior, fit = self.prior.judged(log_rows, shapes)
        return Finished(
            marginals=marginals.reshape(*lead, -1),
            counts=counts,
            effects=effects.reshape(*lead, effects.shape[-1]),
            total=total,
            log_prior=self._by_clique("rows", lead, log_prior),
            learned=self._by_clique("concentration", lead, self.prior.standardised(shapes)),
            prior_fit=fit.reshape(lead),
        )

    def _by_clique(self, kind: str, lead: tuple[int, ...], values: FloatArray) -> dict[str, FloatArray]:
        """Draws of one number for the first states' table and one for the first window's, which stands for all."""
        names = dimension_names(self.evidence.specification.domain)
        chain = self.chain_rows.chain
        scopes = [chain.positions[: chain.order], chain.positions[: chain.order + 1]]
        labels = [table_name(kind, names, scope) for scope in scopes]
        return {label: row.reshape(lead) for label, row in zip(labels, values, strict=False)}


def _ranks(cells: IntArray, size: int) -> IntArray:
    """Where each of a number of cells stands among those that can be, -1 for the others."""
    ranks = np.full(size, -1, np.int64)
    ranks[cells] = np.arange(cells.size)
    return ranks
