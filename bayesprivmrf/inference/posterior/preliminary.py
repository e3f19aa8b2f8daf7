"""A preliminary estimate of a log-linear posterior: where the sampler starts and how it stretches its coordinates.

It makes the sampler fast and may be rough: nothing of it enters the posterior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.noise_aware.mode import Mode, Settings, noise_aware_mode
from bayesprivmrf.inference.noise_aware.objective import DENSE_LIMIT
from bayesprivmrf.inference.posterior.effects_engine import fisher_information
from bayesprivmrf.inference.posterior.latent_prior import LatentPrior
from bayesprivmrf.inference.posterior.relaxed.effects_density import StretchData
from bayesprivmrf.model.tables import FloatArray

# Prior precision of a private N's logistic position: the variance of the logistic distribution is π²/3
_LOGISTIC_PRECISION = 3 / math.pi**2
# Share of the range of log N from its ends within which the coordinate's center lies; the posterior is the same
_EDGE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Whitening:
    r"""Coordinates in which the log-linear posterior is close to a standard normal at every scale of the prior.

    Let x stack the coordinates θ' of the latent tables and, where N is private, its position on a logistic scale, all
    less their values at a preliminary mode; F the information of the noise about x there, and p(τ) the prior
    precision of each entry of x. With :math:`\hat p = p(\hat τ)` and the eigenvectors

    .. math:: \hat P^{-1/2} F \hat P^{-1/2} = U Λ U'

    the map from z to x is

    .. math:: x = \hat P^{-1/2} U \Bigl[(Λ + r)^{-1} (Λ + 1)\, \hat u + (Λ + r)^{-1/2} z\Bigr],
              \qquad r_k(τ) = \exp \sum_i U_{ik}^2 \log \frac{p_i(τ)}{\hat p_i},

    :math:`\hat u` being the mode in those coordinates. Were the noise's log density quadratic, z would be standard
    normal given τ for every τ that moves all precisions by one factor, and nearly so otherwise. Where the tables say
    nothing the map is non-centered, and where they say much it is centered, direction by direction. The map is a
    change of variables, whose Jacobian is taken into account, so it changes the speed of the sampler and not its
    distribution.

    Parameters
    ----------
    basis
        :math:`\hat P^{-1/2} U`, shape (D, D); the diagonal alone, shape (D, 1), for a diagonal F.
    information
        Λ, shape (D,).
    shares
        Share of each group of entries (orders; the total last) in each direction, shape (D, groups).
    mode
        :math:`\hat u`, shape (D,).
    """

    basis: FloatArray
    information: FloatArray
    shares: FloatArray
    mode: FloatArray

    @classmethod
    def of(
        cls, information: FloatArray, precision: FloatArray, mode: FloatArray, groups: np.ndarray, count: int
    ) -> Whitening:
        """The map at a preliminary mode.

        Parameters
        ----------
        information
            F, shape (D, D), or its diagonal.
        precision
            Prior precision of each entry at the preliminary scales, shape (D,).
        mode
            The mode's x, shape (D,).
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Preliminary:
    """The estimate, made when first asked for.

    Parameters
    ----------
    evidence
        The releases.
    latent
        The prior of the latent tables.
    scale
        τ of all effects; None where it is learned.
    total
        Public N; None where it is private.
    total_range
        Bounds of a private N.
    """

    evidence: Evidence
    latent: LatentPrior
    scale: float | None
    total: float | None
    total_range: tuple[float, float]

    @cached_property
    def mode(self) -> Mode:
        """The noise-aware estimate."""
        known = self.evidence if self.total is None else replace(self.evidence, total=max(self.total, 1.0))
        return noise_aware_mode(known, Settings(scale=self.scale))

    @property
    def is_dense(self) -> bool:
        """Whether the curvature is kept as a matrix."""
        return self.latent.effects.size <= DENSE_LIMIT

    @cached_property
    def total_bounds(self) -> dict[str, float]:
        """Ends of log N, and the estimate's position between them on the logistic scale."""
        low, high = np.log(self.total_range)
        inside = min(max((self.mode.log_total - low) / (high - low), _EDGE), 1 - _EDGE)
        return {"low": float(low), "high": float(high), "centre": math.log(inside / (1 - inside))}

    @cached_property
    def whitening(self) -> Whitening:
        """Coordinates in which the posterior is nearly standard normal."""
        mode, prior = self.mode, self.latent.effects_prior
        precision = self.latent.precision(mode.log_scales, mode.log_total)
        information, point, groups = mode.noise_information(), mode.coordinates, prior.levels
        count = prior.count
        if self.total is not None:
            information = information[:-1, :-1] if information.ndim == 2 else information[:-1]
            return Whitening.of(information, precision, point, groups, count)
        bounds = self.total_bounds
        share = 1 / (1 + math.exp(-bounds["centre"]))
        slope = np.ones(len(point) + 1)
        # of log N by its logistic position
        slope[-1] = (bounds["high"] - bounds["low"]) * share * (1 - share)
        information = information * (np.outer(slope, slope) if information.ndim == 2 else slope**2)
        precision = np.append(precision, _LOGISTIC_PRECISION)
        return Whitening.of(
            information, precision, np.append(point, 0.0), np.append(groups, count), count + 1
        )

    @property
    def log_scale_root(self) -> FloatArray:
        """A root of the covariance that log τ would have if every effect were known, shape (scales, scales)."""
        prior = self.latent.effects_prior
        sizes = np.bincount(prior.levels, minlength=prior.count)
        precision = np.linalg.inv(prior.scale_covariance) + np.diag(0.5 * sizes)
        return np.linalg.inv(np.linalg.cholesky(precision)).T

    def data(self) -> StretchData:
        """The numbers that `stretch` needs."""
        latent, whitening, prior = self.latent, self.whitening, self.latent.effects_prior
        count = prior.count
        sizes = np.maximum(np.bincount(prior.levels, minlength=count), 1)
        means = np.bincount(prior.levels, weights=latent.sampling_variance, minlength=count) / sizes
        total = [math.log(max(self.total, 1.0))] if self.total is not None else []
        arrays = StretchData(
            basis=whitening.basis,
            information=whitening.information,
            shares=whitening.shares,
            mode=whitening.mode,
            root=np.zeros((0, 0)) if self.scale is not None else self.log_scale_root,
            scale=self.mode.log_scales,
            total=np.array(total or [self.mode.log_total, *self.total_bounds.values()]),
            levels=prior.levels,
            variance=latent.sampling_variance,
            means=means,
            expected=prior.expected_log_scales,
            hyper=np.linalg.inv(prior.scale_covariance),
            excess=np.array([latent.excess]),
        )
        return arrays._replace(**{name: np.ascontiguousarray(x) for name, x in arrays._asdict().items()})

    def curvature(self) -> FloatArray:
        """NΣ + T⁻¹ at the estimate, shape (d, d); its diagonal for many coordinates."""
        mode, plan = self.mode, self.latent.plan
        prior = self.latent.effects_prior.precision(mode.log_scales)
        total, beta = math.exp(mode.log_total), np.ascontiguousarray(mode.coordinates)
        if not self.is_dense:
            _, _, mean, square = plan.moments(beta)
            return total * np.maximum(square - mean**2, 0.0) + prior
        return total * fisher_information(beta, *plan.tape) + np.diag(prior)
