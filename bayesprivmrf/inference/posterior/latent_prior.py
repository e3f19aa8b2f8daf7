r"""Prior of relaxed latent tables under a log-linear model, and a preliminary estimate that scales the sampler.

N records of a log-linear model have tables n, with a statistic t(n) for each zero-sum coordinate. Relaxed to real
numbers, the tables are written as

.. math:: n = (N + κ)\, μ(θ') - κ\, μ(0),

so θ' are coordinates of the latent tables, as β are coordinates of the population. κ is half a record for each cell
of the smallest table. In that table a count may fall to -1/2, so that each whole number has half a unit on either
side, as in `row_counts`. Without κ no relaxed count could reach 0, and no interval could contain it. In a table of R
cells counts go down to -κ/R, which is closer to 0 in larger tables.

Given β, θ' varies around :math:`f β`, :math:`f = N/(N + κ)`, with the sampling variance of N records. Its prior is

.. math:: θ' \sim N\bigl(0,\; f^2 (T + (N Σ_0)^{-1})\bigr),

the sum of the prior variance T of β and the sampling variance. Σ_0 is the covariance of t under the uniform
distribution: it is diagonal, with entries :math:`1 / \prod_{v∈S} K_v`, and does not depend on the release.

For many records the second term vanishes. The exact prior of θ' then has the density :math:`p(β = θ')(1 + O(1/N))`,
by the saddle-point expansion of p(n | β): Laplace's integral over β cancels the determinant of the change of
variables from n to θ'. For few records that expansion loses mass where counts are near 0, and makes tables too even.
A variance that varies with θ' has tails that cannot be normalized. With the fixed Σ_0 the prior of the population is
nearly kept; the error grows with κ/N, and where that is above 0.04, `LatentCounts` calls its posterior approximate.

The preliminary estimate determines where the sampler starts and how its coordinates are scaled. It may be rough: it
changes the speed of the sampler, and not the posterior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.loglinear_fit.scale_prior import DENSE_LIMIT, EffectsPrior
from bayesprivmrf.inference.noise_aware.mode import Mode, Settings, noise_aware_mode
from bayesprivmrf.inference.posterior.effects_engine import Plan, fisher_information
from bayesprivmrf.inference.posterior.whitening import Blocks, BlockWhitening
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class LatentPrior:
    """Prior of the latent tables of one model, and a preliminary estimate, computed when it is first used.

    Parameters
    ----------
    evidence
        Evidence of the releases; the prior uses only the model and the sizes of the measured tables.
    scale
        Prior standard deviation τ of all effects, nats; None if it is learned.
    total
        Public N; None if it is private.
    total_range
        Lower and upper end of the prior of a private N.
    """

    evidence: Evidence
    scale: float | None
    total: float | None
    total_range: tuple[float, float]

    @cached_property
    def effects(self) -> Effects:
        """Coordinates of the potentials."""
        return self.evidence.family.effects

    @cached_property
    def effects_prior(self) -> EffectsPrior:
        """Prior of the population's coordinates."""
        return EffectsPrior(effects=self.effects)

    @cached_property
    def plan(self) -> Plan:
        """Compiled marginals of the model."""
        return Plan(self.effects, self.evidence.family.base)

    @cached_property
    def excess(self) -> float:
        """Excess κ, half a record for each possible cell of the smallest measured table with two or more such cells.

        For evidence from queries, the tables are those of the cliques.
        """
        evidence = self.evidence
        offsets = evidence.offsets
        possible = evidence.possible
        if evidence.queries is not None:
            offsets = evidence.specification.offsets
            possible = evidence.supported_cells
        sizes = [int(np.count_nonzero(possible[start:stop])) for start, stop in pairwise(offsets)]
        return 0.5 * min((size for size in sizes if size > 1), default=1)

    @cached_property
    def uniform(self) -> FloatArray:
        """Marginals μ(0) of the uniform distribution, shape (cells,)."""
        return self.plan.moments(np.zeros(self.effects.size))[1]

    @cached_property
    def sampling_variance(self) -> FloatArray:
        """Diagonal of Σ_0⁻¹, which is N times the sampling variance of each coordinate, shape (d,)."""
        tied = self.effects
        effects = self.effects.full
        sizes = [math.prod(effects.cardinalities[v] for v in subset) for subset in effects.subsets]
        variances = np.repeat(np.array(sizes, dtype=float), np.diff(effects.offsets))
        matrix = tied.matrix
        if matrix is None:
            return variances
        return 1 / (matrix.multiply(matrix).T @ (1 / variances))

    def precision(self, log_scales: FloatArray, log_total: float) -> FloatArray:
        """Return the prior precision of θ', shape (d,)."""
        inverse = math.exp(-log_total)
        variance = 1 / self.effects_prior.precision(log_scales) + inverse * self.sampling_variance
        return (1 + self.excess * inverse) ** 2 / variance

    @cached_property
    def mode(self) -> Mode:
        """Noise-aware mode."""
        if self.total is None:
            known = self.evidence
        else:
            known = replace(self.evidence, total=max(self.total, 1.0))
        return noise_aware_mode(known, Settings(scale=self.scale))

    @property
    def is_dense(self) -> bool:
        """True if the curvature is a matrix, rather than its diagonal."""
        return self.effects.size <= DENSE_LIMIT

    @cached_property
    def total_bounds(self) -> dict[str, float]:
        """Ends of the prior of log N, and the logistic position of the estimate between them.

        The estimate is kept 0.1 % of the range away from the ends; this changes no posterior.
        """
        low, high = np.log(self.total_range)
        inside = min(max((self.mode.log_total - low) / (high - low), 1e-3), 1 - 1e-3)
        return {"low": float(low), "high": float(high), "center": math.log(inside / (1 - inside))}

    @cached_property
    def whitening(self) -> Whitening:
        """Coordinates in which the posterior is nearly standard normal at every scale of the prior."""
        return Whitening.of(*self._rough_posterior, self.effects_prior.count + (self.total is None))

    @cached_property
    def block_whitening(self) -> BlockWhitening:
        """Coordinates of the sampler, in which the posterior is nearly standard normal; quick to compute."""
        return BlockWhitening.of(*self._rough_posterior)

    @property
    def _rough_posterior(self) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
        """First arguments of `Whitening.of`: information, prior precision, mode and group of each entry."""
        mode = self.mode
        prior = self.effects_prior
        precision = self.precision(mode.log_scales, mode.log_total)
        information = mode.noise_information()
        point = mode.coordinates
        groups = prior.levels
        if self.total is not None:
            if information.ndim == 2:
                information = information[:-1, :-1]
            else:
                information = information[:-1]
            return information, precision, point, groups
        bounds = self.total_bounds
        share = 1 / (1 + math.exp(-bounds["center"]))
        slope = np.ones(len(point) + 1)
        # derivative of log N with respect to its logistic position
        slope[-1] = (bounds["high"] - bounds["low"]) * share * (1 - share)
        information = information * (np.outer(slope, slope) if information.ndim == 2 else slope**2)
        # the variance of the logistic distribution is π²/3
        precision = np.append(precision, 3 / math.pi**2)
        return information, precision, np.append(point, 0.0), np.append(groups, prior.count)

    @property
    def log_scale_root(self) -> FloatArray:
        """Root of the covariance that log τ would have if every effect were known, shape (scales, scales)."""
        prior = self.effects_prior
        sizes = np.bincount(prior.levels, minlength=prior.count)
        precision = np.linalg.inv(prior.scale_covariance) + np.diag(0.5 * sizes)
        return np.linalg.inv(np.linalg.cholesky(precision)).T

    def data(self) -> tuple[np.ndarray | tuple[np.ndarray, ...], ...]:
        """Return the arguments of `effects_density.stretch` after the position, in its order."""
        whitening = self.block_whitening
        prior = self.effects_prior
        count = prior.count
        variance = self.sampling_variance
        sizes = np.maximum(np.bincount(prior.levels, minlength=count), 1)
        # runs of coordinates with one scale and one sampling variance
        is_new_scale, is_new_variance = (
            np.diff(own, prepend=-1) != 0 for own in (prior.levels, variance)
        )
        starts = np.flatnonzero(is_new_scale | is_new_variance)
        total = [math.log(max(self.total or 0.0, 1.0))]
        if self.total is None:
            total = [self.mode.log_total, *self.total_bounds.values()]
        means = np.bincount(prior.levels, weights=variance, minlength=count) / sizes
        if self.scale is not None:
            root = np.zeros((0, 0))
        else:
            root = self.log_scale_root
        blocks = (
            whitening.basis,
            whitening.transposed_basis,
            whitening.mixing,
            whitening.transposed_mixing,
            Blocks.whole(root),
            Blocks.whole(root.T),
            Blocks.whole(np.linalg.inv(prior.scale_covariance)),
        )
        arrays = (
            whitening.information,
            whitening.pulled,
            self.mode.log_scales,
            np.array(total),
            np.append(starts, prior.levels.size),
            prior.levels[starts],
            variance[starts],
            means * math.exp(-total[0]),
            prior.expected_log_scales,
            np.array([self.excess]),
        )
        return *(tuple(block) for block in blocks), *(
            np.ascontiguousarray(array) for array in arrays
        )

    def curvature(self) -> FloatArray:
        """Return NΣ + T⁻¹ at the estimate, shape (d, d), or its diagonal if there are many coordinates."""
        mode = self.mode
        plan = self.plan
        prior = self.effects_prior.precision(mode.log_scales)
        total = math.exp(mode.log_total)
        beta = np.ascontiguousarray(mode.coordinates)
        if not self.is_dense:
            _, _, mean, square = plan.moments(beta)
            return total * np.maximum(square - mean**2, 0.0) + prior
        information = fisher_information(beta, plan.data)
        if np.isnan(information).any():  # sums of numbers underflow; those of logarithms do not
            information = mode.means.statistics_covariance(
                mode.means.engine.linearize(self.evidence.family.potentials(beta))[2]
            )
        return total * information + np.diag(prior)


@njit(nogil=True, error_model="numpy", **INNER)
def log_uniform(place, low, high):
    """Return log N at a logistic position, the log density of the position, and their derivatives.

    Both derivatives are with respect to the position.
    """
    power = math.exp(-abs(place))
    if place > 0:
        share = 1.0 / (1.0 + power)
    else:
        share = power / (1.0 + power)
    log_density = -abs(place) - 2.0 * math.log1p(power)
    return (
        low + (high - low) * share,
        log_density,
        (high - low) * share * (1.0 - share),
        1.0 - 2.0 * share,
    )


def draw_totals(
    total: float | None, bounds: tuple[float, float], size: int, rng: np.random.Generator
) -> IntArray:
    r"""Draw numbers of records from the prior, proportional to 1/N within `bounds`; a public one is repeated.

    They are drawn by rejection from :math:`\lfloor e^U \rfloor`, whose probability is proportional to log(1 + 1/N).
    """
    if total is not None:
        return np.full(size, round(total))
    low = max(math.ceil(bounds[0]), 1)
    high = math.floor(bounds[1])
    found = np.zeros(0, np.int64)
    while found.size < size:
        tried = np.exp(rng.uniform(math.log(low), math.log(high + 1), 2 * size))
        tried = np.clip(np.floor(tried), low, high)
        share = low * math.log1p(1 / low) / (tried * np.log1p(1 / tried))
        found = np.append(found, tried[rng.random(tried.size) < share].astype(np.int64))
    return found[:size]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Whitening:
    r"""Coordinates in which the log-linear posterior is close to standard normal at every scale of the prior.

    Let x stack the coordinates θ' of the latent tables and, if N is private, its position on a logistic scale,
    relative to the preliminary estimate of N. Let F be the information about x in the noisy numbers at the
    preliminary mode, and p(τ) the prior precision of each entry of x. With :math:`\hat p = p(\hat τ)` and the
    eigenvectors

    .. math:: \hat P^{-1/2} F \hat P^{-1/2} = U Λ U'

    the map from z to x is

    .. math:: x = \hat P^{-1/2} U \Bigl[(Λ + r)^{-1} (Λ + 1)\, \hat u + (Λ + r)^{-1/2} z\Bigr],
              \qquad r_k(τ) = \exp \sum_i U_{ik}^2 \log \frac{p_i(τ)}{\hat p_i},

    where :math:`\hat u` is the mode in those coordinates. If the log density of the noise were quadratic, z would be
    standard normal given τ, for every τ that changes all precisions by the same factor. The map is non-centered in
    directions about which the tables say nothing, and centered where they say much. It is a change of variables whose
    Jacobian is included in the density, so it changes the speed of the sampler and not its distribution.

    Parameters
    ----------
    basis
        :math:`\hat P^{-1/2} U`, shape (D, D); only the diagonal, shape (D, 1), for a diagonal F.
    information
        Λ, shape (D,).
    shares
        Share of each group of entries (scales, and the total last) in each direction, shape (D, groups).
    mode
        :math:`\hat u`, shape (D,).
    """

    basis: FloatArray
    information: FloatArray
    shares: FloatArray
    mode: FloatArray

    @classmethod
    def of(
        cls,
        information: FloatArray,
        precision: FloatArray,
        mode: FloatArray,
        groups: np.ndarray,
        count: int,
    ) -> Whitening:
        """Return the map at a preliminary mode.

        Parameters
        ----------
        information
            F, shape (D, D), or its diagonal.
        precision
            Prior precision of each entry at the preliminary scales, shape (D,).
        mode
            x at the mode, shape (D,).
        groups
            Group of each entry, shape (D,), below `count`.
        count
            Number of groups.
        """
        root = np.sqrt(precision)
        member = np.eye(count)[groups]
        if information.ndim == 1:
            return cls(
                basis=1 / root[:, np.newaxis],
                information=information / precision,
                shares=member,
                mode=root * mode,
            )
        scaled = information / np.outer(root, root)
        values, vectors = np.linalg.eigh(0.5 * (scaled + scaled.T))
        return cls(
            basis=vectors / root[:, np.newaxis],
            information=np.maximum(values, 0.0),
            shares=(vectors**2).T @ member,
            mode=vectors.T @ (root * mode),
        )
