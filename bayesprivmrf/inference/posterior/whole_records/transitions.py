r"""Engine of whole records of a chain with shared transition rows, and compiled sweeps of such records.

The prior is hyper-Dirichlet with two tables. The distribution π of the first states is one row, and the transition
matrix P has a row for each past; their shapes are fixed or learned (`shape_prior`). Any query may be measured,
including queries of single steps. Given π and P, records are independent except through the measurements. Their
distribution

.. math:: p(x) = π(x_1) \prod_t P(x_t, x_{t+1})

factors along the windows of the chain, so `moves` draws them with cell weights that follow from π and P. A record
passes a row of P several times. If P were integrated out, each of its steps would change the distribution of the
others; therefore P is not integrated out. Given the records, P depends only on their sums: the table F of the first
states, and the transitions C added up over all steps,

.. math:: π \sim \operatorname{Dirichlet}(α + F), \qquad P_i \sim \operatorname{Dirichlet}(α_i + C_i).

The learned shapes α move first, with π and P integrated out (`shape_moves`). Together this is one draw from the
distribution of shapes and rows given the records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, by_reference, kept
from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.forest import (
    JunctionForest,
    draw_log_rows,
    draw_tables,
    effects_of,
)
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.latent_prior import draw_totals
from bayesprivmrf.inference.posterior.measured import rough_counts
from bayesprivmrf.inference.posterior.noisy_tables import dimension_names
from bayesprivmrf.inference.posterior.settings import PriorSettings
from bayesprivmrf.inference.posterior.shape_prior import ShapePrior
from bayesprivmrf.inference.posterior.whole_records.births import first_records, move_total, take
from bayesprivmrf.inference.posterior.whole_records.chains import Kept, RecordChain
from bayesprivmrf.inference.posterior.whole_records.engine import Rows, Start
from bayesprivmrf.inference.posterior.whole_records.exact_sums import ExactSums
from bayesprivmrf.inference.posterior.whole_records.moves import move_records, step, sum_rows
from bayesprivmrf.inference.posterior.whole_records.shape_moves import draw_rows, move_shapes
from bayesprivmrf.inference.transition_rows import TransitionRows
from bayesprivmrf.model.tables import FloatArray, IntArray


class SharedData(NamedTuple):
    """Constant arrays that map cells to shared probabilities: the cells of π, then those of P, row after row."""

    places: IntArray  # transition of each cell of the chain's windows
    firsts: IntArray  # first states of each cell of the first window
    clique_rows: IntArray
    row_starts: IntArray
    steps: IntArray  # cell of each transition among the possible ones of P, or -1
    windows: IntArray  # cell of the chain for each step and transition
    states: int
    scales: int  # number of powers of two for the pairs of records that exchange at once


class SharedRows(NamedTuple):
    """Rows π and P of one chain, with their shapes and sums; the arrays change in place."""

    shapes: FloatArray
    counts: IntArray  # F and C
    log_rows: FloatArray  # log π and log P


@njit(nogil=True, **INNER)
def _spread_out(log_rows, state, shared):
    """Write the probabilities of π and P to the cells of the windows."""
    for cell in range(shared.places.size):
        state.shapes[cell] = math.exp(log_rows[shared.places[cell]])
    for cell in range(shared.firsts.size):
        state.shapes[cell] *= math.exp(log_rows[shared.firsts[cell]])


@njit(nogil=True, **INNER)
def _pairs(a, b, windows, counts):
    """Return the number of pairs of records that make two given transitions at the same step."""
    total = 0.0
    for t in range(windows.shape[0]):
        total += float(counts[windows[t, a]]) * counts[windows[t, b]]
    return total


@njit(nogil=True, **INNER)
def _exchange(size, old, new, steps, state, data, shared, rng):
    """Let pairs of records exchange their states after a step.

    Return the number of pairs that did, and the log acceptance ratio without the prior.
    """
    windows = shared.windows
    counts = state.counts
    ratio = 0.0
    for k in range(size):
        ways = _pairs(old[0], old[1], windows, counts)
        if ways == 0.0:
            return k, -np.inf
        # draw a step, with probability proportional to the number of pairs that can exchange there
        left = rng.random() * ways
        t = -1
        while left >= 0.0 and t + 1 < windows.shape[0]:
            t += 1
            left -= float(counts[windows[t, old[0]]]) * counts[windows[t, old[1]]]
        # rounding of the sum
        while counts[windows[t, old[0]]] == 0 or counts[windows[t, old[1]]] == 0:
            t -= 1
        steps[k] = t
        # both records take the other's transition; the reverse move has other numbers of pairs
        for i in range(2):
            ratio += step(windows[t, old[i]], -1, state, data)
            ratio += step(windows[t, new[i]], 1, state, data)
        ratio += math.log(ways / _pairs(new[0], new[1], windows, counts))
    return size, ratio


@njit(nogil=True, **INNER)
def _exchange_tails(tries, rows, state, data, shared, rng):
    """Move the sums C by exchanges between many records at once, which keep the margins of every step."""
    windows = shared.windows
    states = shared.states
    pasts = windows.shape[1] // states
    old = np.empty(2, np.int64)
    new = np.empty(2, np.int64)
    steps = np.empty(1 << shared.scales, np.int64)
    alpha = rows.shapes
    cells = shared.steps
    for _ in range(tries):
        # draw two pasts with the same last states, two states that follow them, and a number of pairs
        a = int(rng.random() * pasts)
        b = (a + pasts // states * (1 + int(rng.random() * (states - 1)))) % pasts
        j = int(rng.random() * states)
        k = (j + 1 + int(rng.random() * (states - 1))) % states
        size = 1 + int(rng.random() * (1 << int(rng.random() * shared.scales)))
        old[0] = a * states + k
        old[1] = b * states + j
        new[0] = a * states + j
        new[1] = b * states + k
        if min(cells[old[0]], cells[old[1]], cells[new[0]], cells[new[1]]) < 0:
            continue  # nobody leaves the end state; other transitions are possible at every step
        if min(rows.counts[cells[old[0]]], rows.counts[cells[old[1]]]) < size:
            continue
        done, ratio = _exchange(size, old, new, steps, state, data, shared, rng)
        # the prior, with π and P integrated out
        if done == size:
            for i in range(2):
                here = cells[old[i]]
                there = cells[new[i]]
                ratio += math.lgamma(alpha[here] + rows.counts[here] - size)
                ratio -= math.lgamma(alpha[here] + rows.counts[here])
                ratio += math.lgamma(alpha[there] + rows.counts[there] + size)
                ratio -= math.lgamma(alpha[there] + rows.counts[there])
        if math.log(rng.random()) < ratio:
            for i in range(2):
                rows.counts[cells[old[i]]] -= size
                rows.counts[cells[new[i]]] += size
            continue
        # rejected: undo every exchange
        for n in range(done):
            for i in range(2):
                step(windows[steps[n], old[i]], 1, state, data)
                step(windows[steps[n], new[i]], -1, state, data)


@kept()
def advance_transitions(
    total,
    moves,
    births,
    bounds,
    wanted,
    records,
    position,
    rows,
    state,
    data,
    shared,
    prior,
    rng,
    sweeps,
):
    """Sweep records, their number, the shapes and the rows in place, and return the number of records.

    `records` has space for `moves` records.
    """
    rows = by_reference(rows)
    state = by_reference(state)
    data = by_reference(data)
    shared = by_reference(shared)
    prior = by_reference(prior)
    _spread_out(rows.log_rows, state, shared)
    sum_rows(state, data)
    if not state.counts.any():
        first_records(wanted, records[:1], total, state, data, rng)
    for _ in range(sweeps):
        # random records given π and P
        visited = records[: min(moves, total)]
        take(visited, state, data, rng)
        move_records(moves, visited, visited.shape[0], state, data, rng)
        total = move_total(births, bounds, records[:1], total, state, data, rng)
        # the sums, then the shapes with the rows integrated out, then the rows; the number of exchanges is arbitrary
        rows.counts[:] = 0
        for cell in range(shared.places.size):
            rows.counts[shared.places[cell]] += state.counts[cell]
        for cell in range(shared.firsts.size):
            rows.counts[shared.firsts[cell]] += state.counts[cell]
        _exchange_tails(200 + 4 * shared.windows.shape[1], rows, state, data, shared, rng)
        if position.size:
            move_shapes(position, rows, shared, prior, rng)
        draw_rows(rows.log_rows, rows, shared, rng)
        _spread_out(rows.log_rows, state, shared)
        sum_rows(state, data)
    return total


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedTransitions(Rows):
    """Engine of a chain with shared transitions; parameters are those of `Rows`.

    Exchanges of tails keep the tables of the states that two successive windows share, and change those of windows.
    Therefore exact sums are supported for the former tables, and refused for others.
    """

    gain: ClassVar[float] = 0.0
    moves: ClassVar[int] = 500
    is_listed: ClassVar[bool] = False

    @classmethod
    def refuses(cls, evidence: Evidence, settings: PriorSettings) -> BayesPrivMRFError | None:
        """Return the reason why shared Dirichlet rows do not support the settings, or None."""
        if settings.scale is None:
            return None
        return ArgumentError(
            "`scale` is a prior scale of log-linear effects, and a chain with shared transitions has Dirichlet rows; "
            "leave it out."
        )

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
        model = self.evidence.specification
        chain = self.chain_rows.chain
        parents = [-1] * len(model.scopes)
        separators = [()] * len(model.scopes)
        for time, (before, clique) in enumerate(
            zip(chain.cliques, chain.cliques[1:], strict=False), 1
        ):
            parents[clique] = before
            separators[clique] = tuple(sorted(chain.positions[time : time + chain.order]))
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
        times = self.chain_rows.chain.positions
        order = self.chain_rows.chain.order
        kept = [set(times[start : start + order]) for start in range(len(times) - order + 1)]
        if not all(any(set(group.scope) <= each for each in kept) for group in sums.groups):
            raise ModelError(
                "exact or bounded counts of a chain with shared transitions must be tables of single times, or of as "
                "many as its order; leave out the others, add noise, or declare no `share='transitions'`."
            )
        return sums

    @cached_property
    def _shared(self) -> SharedData:
        rows = self.chain_rows
        pooled = self.shape_prior.forest
        deviations = self.evidence.noise_deviation
        place = _ranks(pooled.cells, pooled.offsets[-1])
        places = np.empty(self.evidence.specification.size, np.int64)
        places[rows.cells] = place[rows.rows :]
        firsts = np.full(places.size, -1)
        firsts[rows.cells[0]] = np.repeat(place[: rows.rows], rows.states)
        cells = self.forest.cells
        first = self.forest.order[0]
        start, stop = self.forest.offsets[first : first + 2]
        return SharedData(
            places=places[cells],
            firsts=firsts[cells[(cells >= start) & (cells < stop)]],
            clique_rows=np.array([0, 1, len(pooled.row_starts) - 1]),
            row_starts=pooled.row_starts,
            steps=place[rows.rows :],
            windows=_ranks(cells, places.size)[rows.cells],
            states=rows.states,
            # up to 2^10 pairs, however large the noise; arbitrary
            scales=1 + min(max(math.ceil(math.log2(2.0 * deviations.max(initial=0.5))), 0), 10),
        )

    def start(self, rng: np.random.Generator) -> Start:
        """Draw shapes from their prior, and rows around a least-squares estimate."""
        start = super().start(rng)
        shapes = start.weights
        kept = start.kept
        # a quarter of the counts, so that chains start wider than the posterior; arbitrary
        if self.keeps_sums:
            counts = self.near[self.forest.cells]
        else:
            counts, _ = rough_counts(self.evidence, self.forest, float(self.first_total))
        pooled = np.maximum(self._pooled(counts[self.forest.places]), 0.0)
        near = (shapes + 0.25 * pooled)[:, np.newaxis]
        kept["log_rows"][:] = draw_log_rows(self.shape_prior.forest, near, rng)[:, 0]
        rows = SharedRows(
            shapes=shapes, counts=np.zeros(shapes.size, np.int64), log_rows=kept["log_rows"]
        )
        return Start(np.zeros(self.forest.cells.size), kept, {"rows": rows})

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the prior, by name."""
        ends = {"total_range": tuple(float(end) for end in self.total_range)}
        return {**self.shape_prior.settings, **(ends if self.total is None else {})}

    @property
    def judged(self) -> tuple[str, ...]:
        """``sums`` (F, C and the measured numbers), and ``total`` if it is private.

        With many records, the counts of single steps that were not measured mix slowly. They are not judged, because
        no row depends on them.
        """
        if self.total is not None:
            return ("sums",)
        return ("sums", "total")

    def read(self, kept: Kept) -> Kept:
        """Return the draws, and the sums by which mixing is judged: F, C and the exact measured numbers."""
        draws = super().read(kept)
        parts = self._pooled(draws["counts"]), self.measured.answers(draws["counts"])
        return {**draws, "sums": np.concatenate(parts, axis=-1)}

    def _pooled(self, counts: FloatArray) -> FloatArray:
        """Return F and C for the possible transitions, given the counts of the model's possible cells."""
        return self.chain_rows.sums(self.all_cells(counts))[..., self.shape_prior.forest.cells]

    def sweep(self, chain: RecordChain, sweeps: int) -> int:
        """Sweep records, their number, the shapes and the rows."""
        return advance_transitions(
            chain.total, self.moves, self.births, self.total_bounds, chain.wanted, chain.latent,
            chain.kept["shape_position"], chain.parts["rows"], chain.state, self.data, self._shared,
            self.shape_prior.data, chain.rng, sweeps,
        )  # fmt: skip

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the tables of N whole records."""
        total = draw_totals(self.total, self.total_range, size, rng)
        shapes = self.shape_prior.shapes(rng.standard_normal((size, self.shape_prior.size)))
        rows = draw_log_rows(self.shape_prior.forest, shapes.T, rng)
        counts = np.zeros((1, size, self.forest.offsets[-1]))
        counts[0][:, self.forest.cells] = draw_tables(
            self.forest, self._in_windows(rows), total, rng
        ).T
        return self.finished(rows, counts, total[np.newaxis].astype(float), shapes.T)

    def _in_windows(self, log_rows: FloatArray) -> FloatArray:
        """Return the log probabilities of the windows' rows, in the order of ``forest.cells``, from π and P."""
        windows = log_rows[self._shared.places]
        windows[: self._shared.firsts.size] += log_rows[self._shared.firsts]
        return windows

    def finished(
        self, log_rows: FloatArray, counts: FloatArray, total: FloatArray, shapes: FloatArray
    ) -> Finished:
        """Return all quantities that follow from log π and log P, and from their shapes, both (cells, draws)."""
        rows = self.chain_rows
        lead = counts.shape[:-1]
        full = np.zeros((log_rows.shape[1], self.shape_prior.forest.offsets[-1]))
        full[:, self.shape_prior.forest.cells] = np.exp(log_rows).T
        first, matrix = np.split(full, [rows.rows], axis=1)
        marginals = rows.forward(first, matrix.reshape(-1, rows.rows, rows.states))
        effects = effects_of(self.forest, self._in_windows(log_rows))
        names = dimension_names(self.evidence.specification.domain)
        positions = rows.chain.positions
        # the first states, and the first window, which stands for all windows
        first_window = [names[v] for v in positions[: rows.chain.order + 1]]
        fit = self.shape_prior.described(log_rows, shapes, lead, first_window)
        return Finished(
            marginals=marginals.reshape(*lead, -1),
            counts=counts,
            effects=effects.reshape(*lead, effects.shape[-1]),
            total=total,
            log_prior=fit.log_prior,
            learned=fit.learned,
            prior_fit=fit.prior_fit,
        )


def _ranks(cells: IntArray, size: int) -> IntArray:
    """Return the rank of each cell among the possible ones, and -1 for the others."""
    ranks = np.full(size, -1, np.int64)
    ranks[cells] = np.arange(cells.size)
    return ranks
