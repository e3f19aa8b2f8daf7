r"""Normal effects as a prior of whole records: potentials, their scales and the number of records.

The posterior is that of `relaxed.log_linear`, without its relaxation.

An effect of areas with levels is a sum of one normal part for each level. In the coordinates of
`bayesprivmrf.model.contrast_parts` each part is a block of independent numbers with a scale of its own, and
`EffectsPrior.levels` says which. The moves need nothing else about levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.forest import JunctionForest
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.preliminary import Preliminary
from bayesprivmrf.inference.posterior.records.chains import Kept, RecordChain
from bayesprivmrf.inference.posterior.records.effect_moves import FAR, advance_effects
from bayesprivmrf.inference.posterior.records.prior import RecordPrior, Start
from bayesprivmrf.inference.posterior.records.tape import EffectTape, bag_evidence, bag_forest, effect_tape
from bayesprivmrf.inference.posterior.relaxed.log_linear import LogLinear
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy import Gaussian

# Largest change of N in one move; arbitrary
_FARTHEST = 2000
# Initial size of the steps that are tuned, in whitened coordinates
_STEP = 0.5
# Standard deviation that stands for that of an exact number in the preliminary estimate, records; it scales steps
# alone.
_NEAR = 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class NormalEffects(RecordPrior):
    """The prior of a log-linear model.

    Parameters
    ----------
    scale
        Prior standard deviation of all effects, nats; None learns one for each. The other parameters are those of
        `RecordPrior`.
    """

    scale: float | None = None

    @cached_property
    def relaxed(self) -> LogLinear:
        """Formulation with this prior and relaxed counts of its sufficient statistics."""
        return LogLinear(
            evidence=self.evidence, scale=self.scale, total=self.total, total_range=self.total_range
        )

    @property
    def no_relaxed(self) -> str | None:
        """Reason against relaxed counts: the measurements contain more than relaxed counts represent."""
        if self.relaxed.preliminary.mode.means.tells_all:
            return None
        return (
            "relaxed counts represent only the sums that a model of shared parameters depends on, and what was "
            "measured contains more, so this posterior has no PyMC model; read its draws in `tree`."
        )

    @property
    def settings(self) -> Mapping[str, Any]:
        """The prior's settings, by name."""
        return self.relaxed.settings

    @property
    def judged(self) -> tuple[str, ...]:
        """``counts``, ``coordinates`` (β); ``log_scale`` where it is learned, ``total`` where N is private."""
        return (*self.relaxed.judged, "coordinates")

    @property
    def parameter_operations(self) -> float:
        """Operations of the gradients by the potentials in a sweep (`effort`)."""
        return 4 * self.relaxed.operations_a_gradient

    @cached_property
    def bagged(self) -> Evidence:
        """The same evidence, whose model's cliques are the bags of a triangulation."""
        return bag_evidence(self.evidence)

    @cached_property
    def forest(self) -> JunctionForest:
        """The junction forest of the bags."""
        return bag_forest(self.bagged)

    @cached_property
    def preliminary(self) -> Preliminary:
        """Estimate that scales the potentials' steps; it replaces exact sums by sums with normal noise."""
        if not self.keeps_sums:
            return self.relaxed.preliminary
        return replace(self.relaxed.preliminary, evidence=_softened(self.evidence))

    @cached_property
    def effects(self) -> EffectTape:
        """The arrays that moves of the potentials read."""
        tape = effect_tape(self.evidence, self.bagged, self.forest, self.preliminary)
        # records that follow the potentials would leave exact sums
        return tape._replace(basis=np.zeros((0, 0))) if self.keeps_sums else tape

    @property
    def reach(self) -> int:
        """Largest change of N in one move: about the uncertainty that the release leaves, 0 if it is small."""
        error = 0.0 if self.total is not None else self.evidence.total_standard_error
        return 0 if error * error <= 2 * self.births else int(min(3 * error, _FARTHEST))

    @property
    def most_births(self) -> int:
        """Number of births that a sweep needs space for."""
        return self.births if self.keeps_sums else self.births + FAR * self.reach

    def start(self, rng: np.random.Generator) -> Start:
        """Draw potentials and scales from about the preliminary estimate."""
        rough, latent = self.preliminary, self.relaxed.latent
        whitening, size = rough.whitening, latent.effects.size
        spread = rng.standard_normal(whitening.mode.size) / np.sqrt(whitening.information + 1)
        moved = whitening.mode + spread
        basis = whitening.basis
        beta = basis @ moved if basis.shape[1] == moved.size else basis[:, 0] * moved
        log_scales = rough.mode.log_scales.copy()
        if self.scale is None and latent.effects_prior.count:
            log_scales += rough.log_scale_root @ rng.standard_normal(log_scales.size)
        cells = self.forest.cells.size
        kept = {
            "counts": (self.evidence.specification.size,),
            "total": (),
            "coordinates": (size,),
            "log_scale": log_scales.shape,
        }
        parts = {
            "beta": beta[:size].copy(),
            "log_scales": log_scales,
            "step": np.array([_STEP, 10.0, _STEP, 10.0]),
        }
        # the initial records that keep exact sums are drawn by even weights
        return Start(kept, np.ones(cells) if self.keeps_sums else np.zeros(cells), parts)

    def sweep(
        self, chain: RecordChain, moves: int, births: int, records: np.ndarray, out: Kept, thin: int
    ) -> int:
        """Sweep records, their number, the potentials and their scales."""
        parts = chain.parts
        return advance_effects(
            chain.total, moves, births, self.reach if moves else 0, self.total_bounds, records, parts["beta"],
            parts["log_scales"], parts["step"], chain.is_tuning, chain.state, self.tape, self.effects,
            tuple(self.relaxed.latent.plan.tape), chain.rng, thin, tuple(out.values()),
        )  # fmt: skip

    def in_order(self, counts: FloatArray) -> FloatArray:
        """Return the model's possible cells of kept counts, in their order."""
        return counts[..., self.measured.cells]

    def judged_of(self, kept: Kept) -> list[np.ndarray]:
        """Return all stored draws, by which mixing is judged."""
        return list(kept.values())

    def finish(self, draws: Mapping[str, np.ndarray]) -> Finished:
        """Return marginals, counts and effects of the draws; nothing is left to be drawn."""
        effects, total = draws["coordinates"], np.asarray(draws["total"], dtype=float)
        counts = self.all_cells(draws["counts"])
        marginals = np.empty(counts.shape)
        for place in np.ndindex(total.shape):
            marginals[place] = self.relaxed.latent.plan.moments(effects[place])[1]
        return self.relaxed.finished(effects, marginals, counts, total, draws["log_scale"])

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the integer tables of N records each."""
        return self.relaxed.prior_draws(size, rng, is_whole=True)


def _softened(evidence: Evidence) -> Evidence:
    """Return the same numbers, with normal noise instead of bounds or no noise."""
    laws = [
        law if law.variance > 0 and law.kernel != "within" else Gaussian(max(law.standard_deviation, _NEAR))
        for law in evidence.noise
    ]
    return replace(evidence, noise=tuple(laws))
