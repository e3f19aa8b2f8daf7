r"""Shared transition rows of a chain, as a prior of whole records.

The prior is hyper-Dirichlet with two tables. The distribution of the first states is one row, and the transition
matrix has a row for each past; their shapes are fixed or learned (`shape_prior`). Records contribute to these rows at
every step, so the rows depend on the sums over the steps. Any query may be measured, including queries of single
steps. Counts are whole, and nothing is approximated (`transition_moves`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.posterior.forest import (
    JunctionForest,
    draw_log_rows,
    draw_tables,
    effects_of,
)
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.latent_prior import draw_totals
from bayesprivmrf.inference.posterior.measured import dimension_names, rough_counts
from bayesprivmrf.inference.posterior.records.chains import Kept, RecordChain
from bayesprivmrf.inference.posterior.records.exact_sums import ExactSums
from bayesprivmrf.inference.posterior.records.prior import DirichletRows, Start
from bayesprivmrf.inference.posterior.records.transition_moves import (
    SharedData,
    SharedRows,
    advance_transitions,
)
from bayesprivmrf.inference.posterior.shape_prior import ShapePrior
from bayesprivmrf.inference.transitions.rows import TransitionRows
from bayesprivmrf.model.tables import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedTransitions(DirichletRows):
    """Prior of a chain with shared transitions; parameters are those of `DirichletRows`.

    Exchanges of tails keep the tables of the states that two successive windows share, and change those of windows.
    Therefore exact sums are supported for the former tables, and refused for others.
    """

    moves: ClassVar[int] = 500
    is_listed: ClassVar[bool] = False

    @property
    def no_relaxed(self) -> str:
        """Reason why relaxed counts are impossible: no formulation with relaxed counts shares transitions."""
        return (
            "a chain with shared transitions has no PyMC model, because its posterior is sampled over whole records; "
            "use `posterior.tree`, or `posterior.quantity` for a function of each draw."
        )

    @cached_property
    def chain_rows(self) -> TransitionRows:
        """Order of the chain's variables in time, and the cells of its windows."""
        return TransitionRows(model=self.evidence.specification)

    @cached_property
    def forest(self) -> JunctionForest:
        """Junction forest of the windows in the order of time, each the child of the previous one."""
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
    def shape_prior(self) -> ShapePrior:
        """Prior of two tables: the first states, and the next state given the previous ones."""
        order = self.chain_rows.chain.order
        past = tuple(range(order))
        forest = JunctionForest(
            cardinalities=(self.chain_rows.states,) * (order + 1),
            scopes=(past, (*past, order)),
            order=(0, 1),
            # only the rows matter; the end state has a row although nobody begins with it
            parents=(-1, -1),
            separators=((), past),
            supported=np.concatenate([mask.ravel() for mask in self.chain_rows.is_possible]),
        )
        return ShapePrior(forest=forest, concentration=self.concentration)

    @cached_property
    def sums(self) -> ExactSums:
        """Sums that are known exactly or within bounds.

        Raises
        ------
        ModelError
            Moves of records do not keep these sums.
        """
        sums = super().sums
        times, order = self.chain_rows.chain.positions, self.chain_rows.chain.order
        kept = [set(times[start : start + order]) for start in range(len(times) - order + 1)]
        if not all(any(set(group.scope) <= each for each in kept) for group in sums.groups):
            raise ModelError(
                "exact or bounded counts of a chain with shared transitions must be tables of single times, or of at "
                "most as many successive times as the order of the chain. Leave out the others, state a noise for "
                "them, or declare the chain without `share='transitions'`."
            )
        return sums

    @cached_property
    def _shared(self) -> SharedData:
        rows, pooled = self.chain_rows, self.shape_prior.forest
        deviations = np.array([distribution.standard_deviation for distribution in self.evidence.noise])
        place = _ranks(pooled.cells, pooled.offsets[-1])
        places = np.empty(self.evidence.specification.size, np.int64)
        places[rows.cells] = place[rows.rows :]
        firsts = np.full(places.size, -1)
        firsts[rows.cells[0]] = np.repeat(place[: rows.rows], rows.states)
        first_clique, size = self.forest.order[0], places.size
        is_first = np.zeros(size, bool)
        is_first[slice(*self.forest.offsets[first_clique : first_clique + 2])] = True
        return SharedData(
            places=places[self.forest.cells],
            firsts=firsts[self.forest.cells[is_first[self.forest.cells]]],
            clique_rows=np.array([0, 1, len(pooled.row_starts) - 1]),
            row_starts=pooled.row_starts,
            steps=place[rows.rows :],
            windows=_ranks(self.forest.cells, size)[rows.cells],
            states=rows.states,
            # up to 2^10 pairs, however large the noise; arbitrary
            scales=1 + min(max(math.ceil(math.log2(2.0 * deviations.max(initial=0.5))), 0), 10),
        )

    def start(self, rng: np.random.Generator) -> Start:
        """Draw shapes from their prior, and rows around a least-squares estimate."""
        pooled, cells = self.shape_prior.forest, self.forest.cells.size
        position = rng.standard_normal(self.shape_prior.size)
        shapes = self.shape_prior.shapes(position)
        # a quarter of the counts, so that chains start wider than the posterior; arbitrary
        start = draw_log_rows(pooled, (shapes + 0.25 * self._rough)[:, np.newaxis], rng)[:, 0]
        rows = SharedRows(shapes=shapes, counts=np.zeros(pooled.cells.size, np.int64), log_rows=start)
        # initial records that keep exact sums are drawn with equal weights
        weights = np.ones(cells) if self.keeps_sums else np.zeros(cells)
        return Start(self.kept, weights, {"position": position, "rows": rows})

    @cached_property
    def _rough(self) -> FloatArray:
        """Sums F and C of tables that roughly fit the release."""
        if self.keeps_sums:
            counts = self.near[self.forest.cells]
        else:
            counts, _ = rough_counts(self.evidence, self.forest, float(self.first_total))
        return np.maximum(self._pooled(self.in_order(counts)), 0.0)

    @property
    def judged(self) -> tuple[str, ...]:
        """``sums`` (F, C and the measured numbers), and ``total`` if it is private.

        With many records, the counts of single steps that were not measured mix slowly. They are not judged, because
        no row depends on them.
        """
        return ("sums",) if self.total is not None else ("sums", "total")

    def judged_of(self, kept: Kept) -> list[np.ndarray]:
        """Return the draws of a chain by which mixing is judged."""
        return [self._sums(self.in_order(kept["counts"])), kept["total"]]

    def with_more(self, draws: Kept) -> Kept:
        """Return the draws, and the sums by which mixing is judged."""
        return {**draws, "sums": self._sums(draws["counts"])}

    def _sums(self, counts: FloatArray) -> FloatArray:
        """Return F, C and the exact values of the measured numbers."""
        return np.concatenate([self._pooled(counts), self.measured.answers(counts)], axis=-1)

    def _pooled(self, counts: FloatArray) -> FloatArray:
        """Return F and C for the possible transitions, given the counts of the model's possible cells."""
        full = np.zeros((*counts.shape[:-1], self.evidence.specification.size))
        full[..., np.sort(self.forest.cells)] = counts
        return self.chain_rows.sums(full)[..., self.shape_prior.forest.cells]

    def sweep(
        self, chain: RecordChain, moves: int, births: int, records: np.ndarray, out: Kept, thin: int
    ) -> int:
        """Sweep records, their number, the shapes and the rows."""
        parts = chain.parts
        total = advance_transitions(
            chain.total, moves, births, self.total_bounds, records[: self.moves], parts["position"], parts["rows"],
            chain.state, self.data, self._shared, self.shape_prior.data, chain.rng, thin, tuple(out.values()),
        )  # fmt: skip
        if self.keeps_sums:
            chain.latent[:total] = self._records(chain)
        return total

    def _records(self, chain: RecordChain) -> IntArray:
        """Draw records with the tables of the chain, after exchanges of tails, shape (records, windows)."""
        forest, data, counts = self.forest, self.data, chain.state.counts
        found = np.zeros((chain.total, len(forest.order)), np.int64)
        for column in range(len(forest.order)):
            first, last = data.clique_rows[column : column + 2]
            for row in range(first, last):
                cells = np.arange(*data.row_starts[row : row + 2])
                drawn = chain.rng.permutation(np.repeat(cells, counts[cells]))
                above = data.sources[slice(*data.source_starts[row : row + 2])]
                at = np.flatnonzero(np.isin(found[:, column - 1], above)) if column else slice(None)
                found[at, column] = drawn
        return found

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the tables of N whole records."""
        total = draw_totals(self.total, self.total_range, size, rng)
        shapes = self.shape_prior.shapes(rng.standard_normal((size, self.shape_prior.size)))
        rows = draw_log_rows(self.shape_prior.forest, shapes.T, rng)
        counts = np.zeros((1, size, self.forest.offsets[-1]))
        counts[0][:, self.forest.cells] = draw_tables(self.forest, self._in_windows(rows), total, rng).T
        return self._finished(rows, counts, total[np.newaxis].astype(float), shapes.T)

    def _in_windows(self, log_rows: FloatArray) -> FloatArray:
        """Return the log probabilities of the windows' rows, in the order of ``forest.cells``, from π and P."""
        windows = log_rows[self._shared.places]
        windows[: self._shared.firsts.size] += log_rows[self._shared.firsts]
        return windows

    def _finished(
        self, log_rows: FloatArray, counts: FloatArray, total: FloatArray, shapes: FloatArray
    ) -> Finished:
        """Return all quantities that follow from log π and log P, and from their shapes, both (cells, draws)."""
        rows, lead = self.chain_rows, counts.shape[:-1]
        full = np.zeros((log_rows.shape[1], self.shape_prior.forest.offsets[-1]))
        full[:, self.shape_prior.forest.cells] = np.exp(log_rows).T
        first, matrix = np.split(full, [rows.rows], axis=1)
        marginals = rows.forward(first, matrix.reshape(-1, rows.rows, rows.states))
        effects = effects_of(self.forest, self._in_windows(log_rows))
        names, positions = dimension_names(self.evidence.specification.domain), rows.chain.positions
        # the first states, and the first window, which stands for all windows
        first_window = [names[v] for v in positions[: rows.chain.order + 1]]
        return Finished(
            marginals=marginals.reshape(*lead, -1),
            counts=counts,
            effects=effects.reshape(*lead, effects.shape[-1]),
            total=total,
            **self.shape_prior.described(log_rows, shapes, lead, first_window),
        )


def _ranks(cells: IntArray, size: int) -> IntArray:
    """Return the rank of each cell among the possible ones, and -1 for the others."""
    ranks = np.full(size, -1, np.int64)
    ranks[cells] = np.arange(cells.size)
    return ranks
