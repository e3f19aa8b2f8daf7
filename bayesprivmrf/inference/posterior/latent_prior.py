r"""The prior of latent tables in coordinates in which NUTS can move them.

N records of a log-linear model have tables n of statistics t(n), one for each zero-sum coordinate. Relaxed to real
numbers, they are written as

.. math:: n = (N + κ)\, μ(θ') - κ\, μ(0),

so that θ' are coordinates of the latent tables as β are of the population. κ is half a record for each cell of the
smallest table. There a count may fall to -1/2, and each whole number owns the half on either side of it, as in
`row_counts`; without it a relaxed count cannot reach an empty cell, nor its interval contain zero. A table of R cells
goes down to -κ/R: never below what a whole number owns, and less far in larger tables.

Given β, θ' scatters around :math:`f β`, :math:`f = N/(N + κ)`, with the sampling variance of N records. Its prior is

.. math:: θ' \sim N\bigl(0,\; f^2 (T + (N Σ_0)^{-1})\bigr),

the sum of the prior's variance T of β and the sampling variance, Σ_0 being the covariance of t under the uniform
distribution: diagonal, :math:`1 / \prod_{v∈S} K_v`, and the same whatever was released.

For many records the second term vanishes. There, the exact prior of θ' has the density :math:`p(β = θ')(1 + O(1/N))`
by the saddle-point expansion of p(n | β): Laplace's integral over β cancels the determinant that the change from n to
θ' brings. For few records, that expansion loses mass where counts are near zero, the more the sparser the population,
and makes tables too even; a variance that moves with θ' has tails that cannot be normalised. The fixed Σ_0 keeps the
population's own prior nearly. Drawing θ' from the prior above and then β given the tables (`superpopulation`) gives
back a standard deviation within about 1 % of τ on a 3x3 grid of three-state variables (κ = 4.5) for N of 1000 and
more, and 9 % above it for main effects at N = 50, τ = 1. The error grows with κ/N: three ten-state variables in a
triangle (κ = 50) have main effects 9 to 13 % too wide at N = 1000 and 35 % at N = 100, τ being 1. Where κ/N is
above 0.04, `LatentCounts` calls its posterior approximate.

A private number of records, log-uniform between two ends: at a logistic position, and drawn from its prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.noise_aware.objective import EffectsPrior
from bayesprivmrf.inference.posterior.effects_engine import Plan
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.model.ties import TiedEffects, coordinates_of


@dataclass(frozen=True, kw_only=True, eq=False)
class LatentPrior:
    """The prior of one model's latent tables.

    Parameters
    ----------
    evidence
        The releases, of which only the model is used.
    """

    evidence: Evidence

    @cached_property
    def effects(self) -> Effects | TiedEffects:
        """Coordinates of the potentials."""
        return coordinates_of(self.evidence.specification)

    @cached_property
    def effects_prior(self) -> EffectsPrior:
        """The prior of the population's coordinates."""
        return EffectsPrior(effects=self.effects)

    @cached_property
    def plan(self) -> Plan:
        """Compiled marginals."""
        return Plan.of(self.effects, self.evidence.supported)

    @cached_property
    def excess(self) -> float:
        """κ, half a record for each possible cell of the smallest measured table that has more than one.

        For evidence from queries, the tables are those of the cliques.
        """
        evidence = self.evidence
        offsets, possible = evidence.offsets, evidence.possible
        if evidence.queries is not None:
            offsets, possible = evidence.specification.offsets, evidence.supported_cells
        sizes = [int(np.count_nonzero(possible[start:stop])) for start, stop in pairwise(offsets)]
        return 0.5 * min((size for size in sizes if size > 1), default=1)

    @cached_property
    def uniform(self) -> FloatArray:
        """μ(0), shape (cells,)."""
        return self.plan.moments(np.zeros(self.effects.size))[1]

    @cached_property
    def sampling_variance(self) -> FloatArray:
        """Diagonal of Σ_0⁻¹: N times the sampling variance of each coordinate, shape (d,)."""
        tied = self.effects
        effects = tied if isinstance(tied, Effects) else tied.full
        sizes = [math.prod(effects.cardinalities[v] for v in subset) for subset in effects.subsets]
        variances = np.repeat(np.array(sizes, dtype=float), np.diff(effects.offsets))
        if isinstance(tied, Effects):
            return variances
        return 1 / (tied.matrix.multiply(tied.matrix).T @ (1 / variances))

    def precision(self, log_scales: FloatArray, log_total: float) -> FloatArray:
        """Prior precision of θ', shape (d,)."""
        inverse = math.exp(-log_total)
        variance = 1 / self.effects_prior.precision(log_scales) + inverse * self.sampling_variance
        return (1 + self.excess * inverse) ** 2 / variance


@njit(nogil=True, error_model="numpy", **INNER)
def log_uniform(place, low, high):
    """Return log N at a logistic position, the log density of the position, and the derivatives of both by it."""
    power = math.exp(-abs(place))
    share = 1.0 / (1.0 + power) if place > 0 else power / (1.0 + power)
    log_density = -abs(place) - 2.0 * math.log1p(power)
    return low + (high - low) * share, log_density, (high - low) * share * (1.0 - share), 1.0 - 2.0 * share


def draw_totals(
    total: float | None, bounds: tuple[float, float], size: int, rng: np.random.Generator, *, is_whole: bool
) -> IntArray:
    r"""Return numbers of records: the public one, or draws of a prior that is log-uniform on `bounds`, rounded.

    Where `is_whole`, the prior is in proportion to 1/N on the whole numbers within the bounds: draws of
    :math:`\lfloor e^U \rfloor`, in proportion to log(1 + 1/N), most of which are accepted.
    """
    if total is not None:
        return np.full(size, round(total))
    if not is_whole:
        return np.rint(np.exp(rng.uniform(float(np.log(bounds[0])), float(np.log(bounds[1])), size))).astype(
            np.int64
        )
    low, high = max(math.ceil(bounds[0]), 1), math.floor(bounds[1])
    found = np.zeros(0, np.int64)
    while found.size < size:
        tried = np.exp(rng.uniform(math.log(low), math.log(high + 1), 2 * size))
        tried = np.clip(np.floor(tried), low, high)
        share = low * math.log1p(1 / low) / (tried * np.log1p(1 / tried))
        found = np.append(found, tried[rng.random(tried.size) < share].astype(np.int64))
    return found[:size]
