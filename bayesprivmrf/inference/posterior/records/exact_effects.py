r"""The exact posterior of any log-linear model: whole records, potentials, scales and the number of records.

The law is that of `log_linear`, without its relaxation: the chain moves the N records themselves given the potentials
and the noisy tables (`moves`), the number of records by births and deaths, and the potentials and their scales
given the records (`effect_moves`).

An effect of areas with levels is a sum of one normal part for each level; in the coordinates of
`bayesprivmrf.model.contrast_parts` each part is a block of independent numbers with a scale of its own, and
`EffectsPrior.levels` says which. The moves read nothing else of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.forest import JunctionForest
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.records.chains import MOVES, Kept, RecordChain, RecordSampler
from bayesprivmrf.inference.posterior.records.effect_moves import FAR, advance_effects
from bayesprivmrf.inference.posterior.records.tape import (
    ChainState,
    EffectTape,
    RecordTape,
    bag_evidence,
    bag_forest,
    effect_tape,
    record_tape,
)
from bayesprivmrf.inference.posterior.relaxed.log_linear import LogLinear
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pymc as pm

_FARTHEST = 2000
"""Records by which N is moved at once at most."""
_STEP = 0.5
"""First size of the steps that are tuned, in whitened coordinates."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactEffects(LogLinear, RecordSampler):
    """The posterior of a log-linear model over the records themselves; parameters are those of `LogLinear`.

    ``model()`` is the PyMC model of the same posterior with relaxed counts, where what was measured are the
    statistics that the model's parameters rest on.
    """

    def model(self) -> pm.Model:
        """A PyMC model with relaxed counts; refused where they would stand for less than was measured."""
        if not self.preliminary.mode.means.tells_all:
            raise ModelError(
                "relaxed counts stand for the sums that a model of shared parameters rests on, and what was measured "
                "tells more, so that this posterior has no PyMC model; read its draws in `tree`."
            )
        return super().model()

    @property
    def is_whole(self) -> bool:
        """Return True: the counts are those of records."""
        return True

    @property
    def other(self) -> str | None:
        """The log-linear formulation, where relaxed counts stand for all that was measured."""
        return "log-linear" if self.preliminary.mode.means.tells_all else None

    @property
    def operations_a_sweep(self) -> float:
        """Operations of one sweep of one chain: of records, and some gradients by the potentials (`effort`)."""
        return RecordSampler.operations_a_sweep.fget(self) + 4 * self.operations_a_gradient  # type: ignore[misc]

    @property
    def name(self) -> str:
        """Name of the formulation."""
        return "exact"

    @property
    def judged(self) -> tuple[str, ...]:
        """``counts``, ``coordinates`` (β); ``log_scale`` where it is learned, ``total`` where N is private."""
        return (*super().judged, "coordinates")

    @property
    def hidden(self) -> tuple[str, ...]:
        """Nothing."""
        return ()

    @property
    def sparsity(self) -> float:
        """0: nothing is approximated."""
        return 0.0

    @cached_property
    def _bagged(self) -> Evidence:
        return bag_evidence(self.evidence)

    @cached_property
    def _forest(self) -> JunctionForest:
        return bag_forest(self._bagged)

    @cached_property
    def _tape(self) -> RecordTape:
        return record_tape(self._bagged, self._forest, gain=0.0)

    @cached_property
    def _effects(self) -> EffectTape:
        return effect_tape(self.evidence, self._bagged, self._forest, self.preliminary)

    @property
    def _reach(self) -> int:
        """Records by which N is moved at once at most: about what the release leaves open, 0 where that is little."""
        error = 0.0 if self.total is not None else self.evidence.total_standard_error
        return 0 if error * error <= 2 * self.births else int(min(3 * error, _FARTHEST))

    def chain(self, rng: np.random.Generator) -> RecordChain:
        """No records yet; potentials and scales from about the preliminary estimate."""
        rough, size = self.preliminary, self.latent.effects.size
        whitening = rough.whitening
        spread = rng.standard_normal(whitening.mode.size) / np.sqrt(whitening.information + 1)
        moved = whitening.mode + spread
        basis = whitening.basis
        beta = basis @ moved if basis.shape[1] == moved.size else basis[:, 0] * moved
        log_scales = rough.mode.log_scales.copy()
        if self._learns_scale:
            log_scales += rough.log_scale_root @ rng.standard_normal(log_scales.size)
        return RecordChain(
            sweep=self._sweep,
            kept={
                "counts": (self.evidence.specification.size,),
                "total": (),
                "coordinates": (size,),
                "log_scale": log_scales.shape,
            },
            rng=rng,
            total=self.first_total,
            latent=np.zeros((self.first_total, len(self._forest.order)), np.int32),
            state=ChainState.empty(self._tape, np.zeros(self._forest.cells.size)),
            births=self.births + FAR * self._reach,
            parts={
                "beta": beta[:size].copy(),
                "log_scales": log_scales,
                "step": np.array([_STEP, 10.0, _STEP, 10.0]),
            },
        )

    def _sweep(self, chain: RecordChain, out: Kept, thin: int) -> int:
        return advance_effects(
            chain.total, MOVES, self.births, self._reach, self.total_bounds, chain.latent, *chain.parts.values(),
            chain.is_tuning, chain.state, self._tape, self._effects, tuple(self.latent.plan.tape), chain.rng, thin,
            tuple(out.values()),
        )  # fmt: skip

    def judged_of(self, kept: Kept) -> list[np.ndarray]:
        """All that is kept."""
        return list(kept.values())

    def in_order(self, counts: FloatArray) -> FloatArray:
        """The model's possible cells of kept counts, in their order."""
        return counts[..., self._measured.cells]

    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Marginals, counts and effects of the draws; nothing is left to be drawn."""
        effects, total = draws["coordinates"], np.asarray(draws["total"], dtype=float)
        counts = np.zeros((*total.shape, self.latent.effects.cells))
        counts[..., self._measured.cells] = draws["counts"]
        marginals = np.empty(counts.shape)
        for place in np.ndindex(total.shape):
            marginals[place] = self.latent.plan.moments(effects[place])[1]
        return self._finished(effects, marginals, counts, total, draws["log_scale"])
