"""Common part of the formulations with relaxed counts: noise, PyMC model, settings, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError
from bayesprivmrf.inference.evidence import WIDEST_RANGE, Evidence
from bayesprivmrf.inference.posterior.measured_cells import MeasuredCells
from bayesprivmrf.inference.posterior.relaxed.density import Density
from bayesprivmrf.inference.posterior.relaxed.noisy_tables import (
    NoiseData,
    observe_noisy_counts,
    target_acceptance,
)
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pymc as pm

# dimensions of the variables that have one, in the PyMC model
_DIMS = {"counts": "cell", "inner": "inner_cell"}


@dataclass(frozen=True, kw_only=True, eq=False)
class RelaxedCounts:
    """Base of the posteriors over real-valued counts, which NUTS samples.

    A subclass has `_of_whole_numbers` (whether a latent count stands for the nearest integer, or for a mean),
    `_shown` (names of latent numbers that its PyMC model has besides ``counts``), `_prior_settings` and `density`.

    Parameters
    ----------
    evidence
        The releases.
    total
        The public number of records N; None where it is private.
    total_range
        Lower and upper end of the log-uniform prior of a private N, records.
    smoothing
        δ of a smoothed Laplace likelihood, in noise scales; 0 for the exact one.
    """

    evidence: Evidence
    total: float | None = None
    total_range: tuple[float, float] = WIDEST_RANGE
    smoothing: float = 0.0

    _of_whole_numbers: ClassVar[bool]

    @staticmethod
    def refuses_counts(evidence: Evidence) -> BayesPrivMRFError | None:
        """Return why relaxed counts cannot express what was measured, or None."""
        if not evidence.has_bounds and not evidence.is_exact.any():
            return None
        return ArgumentError(
            "exact counts, and counts within bounds, are possible with whole records alone; leave out "
            "`formulation`, or set formulation='exact'. NaiveMLE, CGM and NoiseAwareMAP read answers without "
            "noise too."
        )

    @property
    def _private(self) -> tuple[str, ...]:
        """``total`` where N is private."""
        return ("total",) if self.total is None else ()

    @property
    def _shown(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def _prior_settings(self) -> Mapping[str, Any]:
        raise NotImplementedError

    @property
    def _prior_of_positions(self) -> Callable[[np.random.Generator, int], FloatArray] | None:
        """A function that draws positions from their prior; None where only the density is known."""
        return None

    @property
    def density(self) -> Density:
        """The compiled density of this release."""
        raise NotImplementedError

    @property
    def settings(self) -> Mapping[str, Any]:
        """The prior's settings, by name."""
        settings = dict(self._prior_settings)
        if self.total is None:
            settings["total_range"] = tuple(float(end) for end in self.total_range)
        if self.smoothing > 0:
            settings["smoothing"] = float(self.smoothing)
        return settings

    @property
    def acceptance(self) -> float:
        """Mean acceptance probability for which the sampler's step is tuned."""
        return target_acceptance(self.evidence, self.smoothing)

    @cached_property
    def _measured(self) -> MeasuredCells:
        return MeasuredCells.of(self.evidence)

    @cached_property
    def _noise(self) -> NoiseData:
        return NoiseData.of(
            self.evidence, self._measured, smoothing=self.smoothing, whole_numbers=self._of_whole_numbers
        )

    def model(self) -> pm.Model:
        """Return a PyMC model of this release.

        Its variables are ``position``, everything that is sampled, in the sampler's coordinates; ``counts`` (possible
        cells of the model's cliques, clique after clique); the other latent numbers of the formulation; a
        ``counts[a,b]`` for each clique with the variables as dims and the states as coords; and the observed
        ``noisy_counts``.
        """
        import pymc as pm
        import pytensor.tensor as pt

        from bayesprivmrf.inference.posterior.relaxed.latent_op import declare_latent, declare_tables

        density, names = self.density, ("counts", *self._shown)
        coords = {_DIMS[name]: np.arange(density.shapes[name][0]) for name in names if name in _DIMS}
        coords["noisy_cell"] = np.arange(self._measured.targets.size)
        with pm.Model(coords=coords, model=None) as model:  # by itself, inside another's context too
            latent = declare_latent(density, self._prior_of_positions)
            for name in names:
                pm.Deterministic(name, latent[name], dims=_DIMS.get(name))
            observe_noisy_counts(self._noise, model["counts"])
            specification = self.evidence.specification
            declare_tables(
                specification, pt.zeros(specification.size)[self._measured.cells].set(model["counts"])
            )
        return model

    def _counts_and_total(self, draws: Mapping[str, np.ndarray]) -> tuple[FloatArray, FloatArray]:
        """Return the counts of all cells of the model's cliques, and the number of records, of sampled draws."""
        sampled = np.asarray(draws["counts"], dtype=float)
        counts = np.zeros((*sampled.shape[:-1], self.evidence.specification.size))
        counts[..., self._measured.cells] = sampled
        total = draws["total"] if self.total is None else np.full(sampled.shape[:-1], self.total)
        return counts, np.asarray(total, dtype=float)
