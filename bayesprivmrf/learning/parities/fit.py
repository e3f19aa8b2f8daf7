r"""Fits of t-wise models to noisy parities, and private multiplicative weights.

**Fits.** By default the coefficients are the posterior mode of `bayesprivmrf.learning.parities.mode`. Its matrices
are too large beyond 1600 coefficients. A ridge then replaces the prior: a penalty of half of :math:`s / \tau_k^2`
times the square of each coefficient, for the log likelihood of one record. Here :math:`s = v + 1/N` is the error
variance of a mean. :math:`\tau_k^2` is the excess of the mean square of the :math:`K_k` means of order k over
:math:`s (1 + \sqrt{2 / K_k})`, at least s / 100. Both priors agree for small coefficients, where
:math:`E_h \chi_I \approx h_I`.

**Private multiplicative weights.** Each round chooses the parity whose sum :math:`S_I` is furthest from its
expectation under the current distribution, by the exponential mechanism, and measures it with integer noise. It then
updates the distribution for every parity measured so far by
:math:`q(x) \leftarrow q(x)\, e^{\chi_I(x) (m_I - E_q \chi_I) / 2} / Z`. The distribution is therefore a t-wise model
itself, :math:`q \propto \exp \sum_I h_I \chi_I`.

**Privacy.** The score :math:`u_I = |S_I - \lfloor N E_q \chi_I \rceil|` moves by at most D in either direction, where
D is the change of a sum by one record: 1 for add-or-remove, 2 for replacement. A choice then has range 2 D and a
measurement sensitivity D. The costs of all rounds add up (`bayesprivmrf.privacy.selection`). N must be public, or
noisy with a budget of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bayesprivmrf.errors import ReleaseFileError
from bayesprivmrf.inference.optimize import one_blas_thread, ridge_mode
from bayesprivmrf.interruption import remember
from bayesprivmrf.learning.models.maps import SavedMap
from bayesprivmrf.learning.parities.mode import (
    noisy_parity_sums,
    parity_effects,
    posterior_mode,
    walsh_hadamard,
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
        return self.fitted(noisy_parity_sums(spins, counts, self.sets, self.law, source, known))[:1]

    @one_blas_thread()
    def fitted(self, sums: IntArray | FloatArray) -> tuple[FloatArray, dict[str, Any]]:
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

    def as_dict(self) -> dict[str, Any]:
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
) -> tuple[FloatArray, dict[str, Any]]:
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


def multiplicative_weights(
    sums: IntArray,
    monomials: Monomials,
    total: float,
    source: NoiseSource,
    *,
    rounds: int,
    choice_scale: float,
    measurement: NoiseDistribution,
) -> FloatArray:
    """Return the expectation of each parity under the last distribution, shape (K,), 1 for the empty set.

    Parameters
    ----------
    sums
        Exact sums, shape (K,). Sensitive: only private choices and the noisy sums of chosen parities use them.
    monomials
        The sets; p is at most 62, and the distribution has 2^p numbers.
    total
        Public or noisy number of records N, positive.
    source
        Source of the choices and of the noise.
    rounds, choice_scale, measurement
        Public: number of rounds T, scale of the exponential mechanism in records, and noise on a measured sum.
    """
    masks = monomials.masks
    weights = np.full(2**monomials.variables, 0.5**monomials.variables)
    means = np.zeros(len(monomials))
    means[0] = 1.0
    signs: list[np.ndarray] = []
    targets: list[float] = []
    try:
        for _ in range(rounds):
            scores = np.abs(sums[1:] - np.rint(total * means[1:]).astype(np.int64))
            chosen = 1 + int(source.choose(scores[None], choice_scale)[0])
            noisy = int(source.add(sums[chosen : chosen + 1], measurement)[0])
            signs.append(_signs(int(masks[chosen]), monomials.variables))
            targets.append(min(max(noisy / total, -1.0), 1.0))
            # ten passes over all measured parities a round, or 200 updates if these are fewer
            weights = _updated(weights, signs, targets, max(1, min(10, 200 // len(signs))))
            means = walsh_hadamard(weights)[masks]
    except BaseException as error:
        remember(error)  # keep the expectations of the last round
    return means


def _signs(mask: int, variables: int) -> np.ndarray:
    """Return the parity of every joint state, int8 of shape (2^p,)."""
    result = np.ones(1, dtype=np.int8)
    for variable in range(variables):
        result = np.concatenate([result, -result if mask >> variable & 1 else result])
    return result


def _updated(
    weights: FloatArray, signs: list[np.ndarray], targets: list[float], passes: int
) -> FloatArray:
    """Return the distribution after multiplicative updates, for the newest parity and then for all in turn."""
    weights = weights.copy()
    order = [len(signs) - 1, *list(range(len(signs))) * passes]
    for place in order:
        step = 0.5 * (targets[place] - float(weights @ signs[place]))
        # exp(c s) = cosh c + s sinh c for a sign s
        weights *= np.cosh(step) + np.sinh(step) * signs[place]
        weights /= weights.sum()
    return weights
