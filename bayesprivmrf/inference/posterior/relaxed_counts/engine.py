"""Base of the formulations with relaxed counts: noise, settings, refusals, and the PyMC model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError
from bayesprivmrf.inference.evidence import WIDEST_RANGE, Evidence
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.measured import MeasuredCells
from bayesprivmrf.inference.posterior.relaxed_counts.density import ACCEPTANCE, Density, NoiseData
from bayesprivmrf.inference.posterior.settings import PriorSettings
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.kernels import ABSOLUTE

if TYPE_CHECKING:
    import pymc as pm


# Mean acceptance probability of NUTS for which Stan and PyMC tune the step size by default
USUAL_ACCEPTANCE = 0.8


@dataclass(frozen=True, kw_only=True, eq=False)
class RelaxedCounts(ABC):
    """Base class of the posteriors over relaxed (real-valued) counts, which NUTS samples.

    A subclass has a `name`, and defines whether a latent count stands for the nearest integer, or for a mean.

    Parameters
    ----------
    evidence
        Evidence of the releases.
    total
        Public number of records N; None if it is private.
    total_range
        Lower and upper end of the log-uniform prior of a private N, records.
    """

    evidence: Evidence
    total: float | None = None
    total_range: tuple[float, float] = WIDEST_RANGE

    name: ClassVar[str]
    _of_whole_numbers: ClassVar[bool]

    @staticmethod
    @abstractmethod
    def refuses_prior(evidence: Evidence, settings: PriorSettings) -> BayesPrivMRFError | None:
        """Return the reason why the prior does not support the model or the settings, or None."""

    @classmethod
    def refuses(cls, evidence: Evidence, settings: PriorSettings) -> BayesPrivMRFError | None:
        """Return the reason why this engine does not support a release or the settings, or None."""
        if evidence.needs_whole_records:
            return ArgumentError(
                "exact or bounded counts require `formulation='exact'`, and so do sums of draws and rules that "
                "depend on the count. Leave `formulation` out to let the library choose; NaiveMLE, CGM and "
                "NoiseAwareMAP support exact answers too."
            )
        return cls.refuses_prior(evidence, settings)

    @property
    @abstractmethod
    def judged(self) -> tuple[str, ...]:
        """Variables on which convergence is judged: those that NUTS moves, in a form that the data identify.

        They never include the draws that `finish` adds: these have fresh independent noise and would look better
        mixed than the chain is.
        """

    @property
    @abstractmethod
    def hidden(self) -> tuple[str, ...]:
        """Other latent numbers that `finish` needs; they are not shown to the user."""

    @property
    @abstractmethod
    def _prior_settings(self) -> Mapping[str, Any]: ...

    @cached_property
    @abstractmethod
    def density(self) -> Density:
        """Compiled density, whose groups of latent numbers have the names of the variables."""
        raise NotImplementedError

    @property
    @abstractmethod
    def operations_a_gradient(self) -> float:
        """Operations of one evaluation of the density and its gradient."""

    @abstractmethod
    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Return marginals, counts and effects of sampled draws; quantities drawn exactly given these use `rng`."""

    @abstractmethod
    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the tables of N whole records."""

    @property
    def sparsity(self) -> float:
        """Half-counts per record, a measure of the error of the relaxation; 0 if that error is negligible."""
        return 0.0

    @property
    def _private(self) -> tuple[str, ...]:
        """``total`` if N is private."""
        return ("total",) if self.total is None else ()

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the prior, by name; they become `constant_data` and attributes of the tree."""
        ends = {"total_range": tuple(float(end) for end in self.total_range)}
        return {**self._prior_settings, **(ends if self.total is None else {})}

    @property
    def acceptance(self) -> float:
        """Mean acceptance probability for which the step size is tuned; it is lower under Laplace noise."""
        if (self.evidence.kernels[self.evidence.possible] == ABSOLUTE).any():
            return ACCEPTANCE
        return USUAL_ACCEPTANCE

    @cached_property
    def _measured(self) -> MeasuredCells:
        return MeasuredCells.of(self.evidence)

    @cached_property
    def _noise(self) -> NoiseData:
        return NoiseData.of(self.evidence, self._measured, whole_numbers=self._of_whole_numbers)

    def model(self) -> pm.Model:
        """Return a PyMC model of this release.

        Its variables are ``position`` (all sampled numbers, in the sampler's coordinates), ``counts`` (the possible
        cells of the model's cliques, clique after clique), the other latent numbers of the formulation, a table
        ``counts[a,b]`` for each clique with variables as dims and states as coords, and the observed
        ``noisy_counts``.
        """
        # PyMC takes about a second to import, and most posteriors are sampled without it
        from bayesprivmrf.inference.posterior.relaxed_counts.pymc_model import density_model

        return density_model(
            self.density,
            latent=(*self.judged, *self.hidden),
            noise=self._noise,
            cells=self._measured.cells,
            specification=self.evidence.specification,
        )

    def _all_cells(self, values: np.ndarray) -> FloatArray:
        """Return the values of all cells of the cliques, 0 in impossible ones, given those of the possible cells."""
        full = np.zeros((*values.shape[:-1], self.evidence.specification.size))
        full[..., self._measured.cells] = values
        return full

    def _counts_and_total(self, draws: Mapping[str, np.ndarray]) -> tuple[FloatArray, FloatArray]:
        """Return the counts of all cells of the cliques, and the numbers of records, of sampled draws."""
        counts = self._all_cells(draws["counts"])
        if self.total is None:
            total = draws["total"]
        else:
            total = np.full(counts.shape[:-1], self.total)
        return counts, np.asarray(total, dtype=float)
