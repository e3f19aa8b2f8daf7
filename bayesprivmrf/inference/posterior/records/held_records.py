r"""The exact posterior with sums that are known without noise, exactly or within bounds, in any model.

The records move by `held_moves`, which leave those sums as they are; shapes and rows, or potentials and scales, move
given the records as in the engines without such sums. So exact numbers are no coordinates of what is sampled, and no
narrow noise stands for them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.least_squares import least_squares
from bayesprivmrf.inference.posterior.forest import JunctionForest, junction_forest
from bayesprivmrf.inference.posterior.preliminary import Preliminary
from bayesprivmrf.inference.posterior.records.births import move_held
from bayesprivmrf.inference.posterior.records.bounds import CONTRADICTION
from bayesprivmrf.inference.posterior.records.chains import MOVES, Kept, RecordChain, RecordSampler
from bayesprivmrf.inference.posterior.records.effect_moves import advance_effects
from bayesprivmrf.inference.posterior.records.engine import ExactRecords
from bayesprivmrf.inference.posterior.records.exact_effects import ExactEffects
from bayesprivmrf.inference.posterior.records.exact_transitions import ExactTransitions
from bayesprivmrf.inference.posterior.records.held import HeldSums
from bayesprivmrf.inference.posterior.records.shape_moves import advance
from bayesprivmrf.inference.posterior.records.tape import (
    EffectTape,
    HeldTape,
    RecordTape,
    held_tape,
    noisy_tape,
)
from bayesprivmrf.inference.posterior.records.transition_moves import advance_transitions
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.privacy import Gaussian

_NEAR = 1.0
"""Standard deviation by which a preliminary estimate takes exact numbers, records; it scales steps alone."""


class _Held(RecordSampler):
    """Common base of the engines for releases with exact sums."""

    @property
    def other(self) -> None:
        """Return None: relaxed counts cannot satisfy exact sums."""

    @property
    def bytes_a_record(self) -> int:
        """Memory of one record of one chain: its cell of each table of rows."""
        assert self._forest is not None
        return len(self._forest.tables) * np.dtype(np.int64).itemsize

    @cached_property
    def _held(self) -> HeldSums:
        raise NotImplementedError

    @cached_property
    def _held_tape(self) -> HeldTape:
        return held_tape(self._held)

    @cached_property
    def _near(self) -> FloatArray:
        """Counts of the cells, to which the first tables shall be near."""
        return least_squares(self._held.evidence).counts

    @property
    def first_total(self) -> int:
        """The number of records that chains start with, within all bounds."""
        low, high = self._held.extent
        if self.total is None:
            low, high = max(low, int(self.total_bounds[0])), min(high, int(self.total_bounds[1]))
        if low > high:
            raise ModelError(CONTRADICTION)
        return min(max(super().first_total, low), high)

    def model(self) -> NoReturn:
        """There is none.

        Raises
        ------
        ModelError
            Always.
        """
        raise ModelError(
            "a model of PyMC relaxes the counts, which those known within bounds or without noise do not allow; "
            "leave it out, or leave out the bounds and the exact numbers."
        )

    def _started(self, chain: RecordChain) -> RecordChain:
        """The chain with records to come that are within all bounds."""
        wanted = self._held.start(chain.total, self._near, chain.rng)
        chain.parts = {**chain.parts, "wanted": wanted}
        chain.state = chain.state._replace(inside=np.zeros(self._held_tape.lowest.size, np.int64))
        chain.latent, chain.births = np.zeros((chain.total, chain.latent.shape[1]), np.int64), self.births
        return chain

    def _sweep(self, chain: RecordChain, out: Kept, thin: int) -> int:
        parts, nothing = chain.parts, np.zeros((1, chain.latent.shape[1]), np.int32)
        for draw in range(len(out["total"])):
            one = {name: values[draw : draw + 1] for name, values in out.items()}
            for _ in range(thin):
                chain.total = move_held(
                    chain.total, MOVES, self.births, self.total_bounds, chain.latent, parts["wanted"], chain.state,
                    self._tape, self._held_tape, chain.rng,
                )  # fmt: skip
                chain.parts = parts = {**parts, "wanted": parts["wanted"][:0]}
                self._move_others(chain, nothing, one)
        return chain.total

    @cached_property
    def _tape(self) -> RecordTape:
        raise NotImplementedError

    def _move_others(self, chain: RecordChain, records: np.ndarray, out: Kept) -> None:
        """Move what is not records, given them, and keep a draw."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldRecords(_Held, ExactRecords):
    """`ExactRecords` with sums without noise; parameters are those of `HyperDirichlet`, no table is cut in steps."""

    @cached_property
    def _forest(self) -> JunctionForest | None:
        model = self.evidence.specification
        return junction_forest(model.cardinalities, model.scopes, self.evidence.supported)

    @cached_property
    def _held(self) -> HeldSums:
        total = None if self.total is None else round(self.total)
        return HeldSums(evidence=self.evidence, forest=self.forest, total=total)

    @cached_property
    def _tape(self) -> RecordTape:
        return noisy_tape(self._held, gain=1.0)

    def chain(self, rng: np.random.Generator) -> RecordChain:
        """No records yet; shapes drawn from their prior."""
        return self._started(ExactRecords.chain(self, rng))

    def _move_others(self, chain: RecordChain, records: np.ndarray, out: Kept) -> None:
        advance(
            chain.total, 0, 0, self.total_bounds, records, chain.parts["position"], chain.state, self._tape,
            self.prior.tape, chain.rng, 1, tuple(out.values()),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldEffects(_Held, ExactEffects):
    """`ExactEffects` with sums without noise; parameters are those of `LogLinear`."""

    @cached_property
    def _held(self) -> HeldSums:
        total = None if self.total is None else round(self.total)
        return HeldSums(evidence=self._bagged, forest=self._forest, total=total)

    @cached_property
    def preliminary(self) -> Preliminary:
        """What the potentials' steps are scaled by: an estimate by normal noise in the place of each law."""
        return Preliminary(
            evidence=_softened(self.evidence),
            latent=self.latent,
            scale=self.scale,
            total=self.total,
            total_range=self.total_range,
        )

    @cached_property
    def _tape(self) -> RecordTape:
        return noisy_tape(self._held, gain=0.0)

    @cached_property
    def _effects(self) -> EffectTape:
        # records that follow potentials would leave the sums that are held
        return ExactEffects._effects.func(self)._replace(basis=np.zeros((0, 0)))  # type: ignore[attr-defined]

    def chain(self, rng: np.random.Generator) -> RecordChain:
        """No records yet; potentials and scales from about the preliminary estimate."""
        chain = self._started(ExactEffects.chain(self, rng))
        chain.state.shapes[:] = 1.0  # of the first records alone
        return chain

    def _move_others(self, chain: RecordChain, records: np.ndarray, out: Kept) -> None:
        parts = chain.parts
        advance_effects(
            chain.total, 0, 0, 0, self.total_bounds, records, parts["beta"], parts["log_scales"], parts["step"],
            chain.is_tuning, chain.state, self._tape, self._effects, tuple(self.latent.plan.tape), chain.rng, 1,
            tuple(out.values()),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldTransitions(_Held, ExactTransitions):
    """`ExactTransitions` with sums without noise; parameters are those of `HyperDirichlet`.

    Its exchanges of tails keep the tables of the states that a window and the next one share, and change those of
    windows: so sums of the first are held, and others refused.
    """

    @cached_property
    def _held(self) -> HeldSums:
        total = None if self.total is None else round(self.total)
        held = HeldSums(evidence=self.evidence, forest=self.forest, total=total)
        times, order = self.chain_rows.chain.positions, self.chain_rows.chain.order
        kept = [set(times[start : start + order]) for start in range(len(times) - order + 1)]
        if not all(any(set(group.scope) <= each for each in kept) for group in held.groups):
            raise ModelError(
                "counts without noise, or within bounds, must be of the states of one time in a chain whose steps "
                "share their transitions (of as many as its order); leave out those of several, state their noise, "
                "or declare the chain without `share='transitions'`."
            )
        return held

    @cached_property
    def _tape(self) -> RecordTape:
        return noisy_tape(self._held, gain=0.0)

    @cached_property
    def _rough(self) -> FloatArray:
        return np.maximum(self._pooled(self.in_order(self._near[self.forest.cells])), 0.0)

    def chain(self, rng: np.random.Generator) -> RecordChain:
        """No records yet; shapes drawn from their prior, rows from about the naive estimate."""
        chain = self._started(ExactTransitions.chain(self, rng))
        chain.state.shapes[:] = 1.0  # of the first records alone
        return chain

    def _move_others(self, chain: RecordChain, records: np.ndarray, out: Kept) -> None:
        parts = chain.parts
        advance_transitions(
            chain.total, 0, 0, self.total_bounds, records, parts["position"], parts["rows"], chain.state, self._tape,
            self._shared, self.prior.tape, chain.rng, 1, tuple(out.values()),
        )  # fmt: skip
        chain.latent[: chain.total] = self._records(chain)

    def _records(self, chain: RecordChain) -> IntArray:
        """Records that have the chain's tables, at random, as their tails have been exchanged; (records, windows)."""
        forest, tape, counts = self.forest, self._tape, chain.state.counts
        found = np.zeros((chain.total, len(forest.order)), np.int64)
        for column in range(len(forest.order)):
            first, last = tape.clique_rows[column : column + 2]
            for row in range(first, last):
                cells = np.arange(*tape.row_starts[row : row + 2])
                drawn = chain.rng.permutation(np.repeat(cells, counts[cells]))
                above = tape.sources[slice(*tape.source_starts[row : row + 2])]
                at = np.flatnonzero(np.isin(found[:, column - 1], above)) if column else slice(None)
                found[at, column] = drawn
        return found


def _softened(evidence: Evidence) -> Evidence:
    """The same numbers with normal noise of about what each leaves open."""
    laws = [
        law if law.variance > 0 and law.kernel != "within" else Gaussian(max(law.standard_deviation, _NEAR))
        for law in evidence.noise
    ]
    return replace(evidence, noise=tuple(laws))
