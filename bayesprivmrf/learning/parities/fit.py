r"""Fits of t-wise models to noisy parities.

**Fits.** By default the coefficients are the posterior mode of `bayesprivmrf.learning.parities.mode`. Its matrices
are too large beyond 1600 coefficients. A ridge then replaces the prior: a penalty of half of :math:`s / \tau_k^2`
times the square of each coefficient, for the log likelihood of one record. Here :math:`s = v + 1/N` is the error
variance of a mean. :math:`\tau_k^2` is the excess of the mean square of the :math:`K_k` means of order k over
:math:`s (1 + \sqrt{2 / K_k})`, at least s / 100. Both priors agree for small coefficients, where
:math:`E_h \chi_I \approx h_I`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from bayesprivmrf.errors import ReleaseFileError
from bayesprivmrf.files import Json
from bayesprivmrf.inference.optimize import one_blas_thread, ridge_mode
from bayesprivmrf.learning.models.maps import SavedMap, mechanism_module
from bayesprivmrf.learning.parities.mode import (
    parity_effects,
    posterior_mode,
)
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import NoiseDistribution, NoNoise
from bayesprivmrf.release.codec import Fields

# Most coefficients whose covariances are factorized; their matrix takes 20 MB
_DENSE = 1600

# Size of a coefficient, nats, at which a search counts as diverged: odds of e^600 are no estimate
_DIVERGED = 300.0


@dataclass(frozen=True, eq=False, kw_only=True)
class MonomialsByParities(SavedMap):
    """Learning map from records to coefficients by noisy sums of parities.

    Parameters
    ----------
    sets
        The monomials.
    law
        Noise of each sum.
    has_total
        Whether the number of records is given separately; otherwise it is the noisy sum of the empty set.
    ridge
        See `bayesprivmrf.learning.ReleasedParities.fit`.
    total_law
        Noise of a number of records that is given separately.
    """

    sets: Monomials
    law: NoiseDistribution
    has_total: bool
    ridge: float | None = None
    total_law: NoiseDistribution = NoNoise()  # noqa: RUF009 -- frozen

    kind = "parities"
    learns = ("coefficients",)

    def learn(
        self, codes: np.ndarray, counts: IntArray, total: float, source: NoiseSource, /
    ) -> tuple[FloatArray]:
        """Return the coefficients, shape (K,); see `LearningMap.learn`."""
        spins = 2 * codes.astype(np.int8) - np.int8(1)
        if self.has_total:
            known = np.array([round(total)])
        else:
            known = None
        mechanism = mechanism_module("parities.sums")
        sums = mechanism.noisy_parity_sums(spins, counts, self.sets, self.law, source, known)
        return self.fitted(sums)[:1]

    @one_blas_thread()
    def fitted(self, sums: IntArray | FloatArray) -> tuple[FloatArray, dict[str, Json]]:
        """Return the coefficients for noisy sums, shape (K,), and the details of the search."""
        records = max(float(sums[0]), 1.0)
        means = sums / records
        if self.ridge is not None:
            return fit_parities(self.sets, means, np.full(len(self.sets), float(self.ridge)))
        noise = self.law.variance / records**2
        if len(self.sets) - 1 > _DENSE:
            return fit_parities(self.sets, means, default_ridges(self.sets, means, noise, records))
        total_noise = (self.total_law if self.has_total else self.law).variance / records**2
        return posterior_mode(self.sets, means, noise, total_noise, records)

    def as_dict(self) -> dict[str, Json]:
        """Return the settings as JSON values, without the sets, which the model's file contains."""
        return {
            "kind": self.kind,
            "law": self.law.as_dict(),
            "has_total": self.has_total,
            "ridge": self.ridge,
            "total_law": self.total_law.as_dict(),
        }

    @classmethod
    def from_dict(cls, content: Fields, basis: Monomials) -> Self:
        """Return the map with settings from a file; the oldest files lack the noise of the total."""
        ridge = content.number("ridge", optional=True)
        if ridge is not None and ridge < 0:
            raise ReleaseFileError(f"`ridge` must be at least 0, got {ridge}")
        return cls(
            sets=basis,
            law=content.law("law"),
            has_total=content.truth("has_total"),
            ridge=ridge,
            total_law=content.law("total_law") if "total_law" in content else NoNoise(),
        )


def default_ridges(sets: Monomials, means: FloatArray, variance: float, total: float) -> FloatArray:
    r"""Return the ridge :math:`s / \tau_k^2` of each set, shape (K,); the module defines it.

    Parameters
    ----------
    sets
        The sets I.
    means
        Noisy means :math:`\hat q`, shape (K,).
    variance
        Variance of the noise of a mean.
    total
        Number of records N.
    """
    error = variance + 1 / total
    counts = np.maximum(np.bincount(sets.orders), 1)
    signals = np.bincount(sets.orders, weights=means**2) / counts - error * (
        1 + np.sqrt(2 / counts)
    )
    # the squared prior deviation is at least a hundredth of the error variance
    return (error / np.maximum(signals, 0.01 * error))[sets.orders] * (sets.orders > 0)


def fit_parities(
    sets: Monomials, means: FloatArray, ridges: FloatArray, tolerance: float = 1e-7
) -> tuple[FloatArray, dict[str, Json]]:
    r"""Return the coefficients that maximize :math:`h^\top \hat q - A(h) - \tfrac12 \sum_I \lambda_I h_I^2`.

    Parameters
    ----------
    sets
        The sets I, closed under subsets.
    means
        Noisy means :math:`\hat q`, shape (K,); the first, of the empty set, is ignored.
    ridges
        Penalties λ, nats per record, shape (K,), at least 0.
    tolerance
        The search converges when each component of the gradient is at most ten times this.

    Returns
    -------
    coefficients, details
        Coefficients, shape (K,), 0 for the empty set; iterations and the status: ``"converged"``,
        ``"iteration limit"``, or ``"diverged"`` if a coefficient passed 300 nats. There is no maximum without ridges
        for means that no distribution has: the search then ends with one of the latter two.

    Raises
    ------
    ModelTooLargeError
        Exact inference in the model does not fit.
    """
    # the generator is never used, because no covariances are requested
    _, places, scales, moments = parity_effects(sets, np.random.default_rng(0))
    farthest = np.full(places.size, _DIVERGED)
    # most searches take 30 to 300 steps, nearly singular ones up to 1,000
    found = ridge_mode(
        moments.means,
        np.asarray(means, dtype=float)[1:][places] / scales,
        ridges[1:][places] / scales**2,
        np.zeros(places.size),
        unit=scales,
        bounds=(-farthest, farthest),
        gradient_tolerance=tolerance,
        iterations=3000,
        memory=30,
    )
    status = "iteration limit"
    if np.abs(found.gradient).max(initial=0.0) <= 10 * tolerance:
        status = "converged"
    elif np.abs(found.point).max(initial=0.0) >= _DIVERGED:
        status = "diverged"
    coefficients = np.zeros(len(sets))
    coefficients[1 + places] = found.point
    return coefficients, {"iterations": found.iterations, "status": status}
