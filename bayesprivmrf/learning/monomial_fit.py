r"""Maximum likelihood of a t-wise model from noisy expectations of its parities.

The likelihood of N records depends on the means :math:`\hat q_I` of :math:`\chi_I` alone,

.. math:: \ell(h) / N = \sum_I h_I \hat q_I - A(h), \qquad \partial A / \partial h_I = E_h \chi_I,

so the estimate is the model that has those means. Noise and sampling together give each mean a variance of at most
:math:`s = \sigma^2 / N^2 + 1/N`; the record's part is :math:`(1 - q^2)/N`. Beside a likelihood of that precision, a
normal prior of variance :math:`\tau_k^2` on the coefficients of sets of k variables weighs as :math:`\tfrac12 (s /
\tau_k^2) h_I^2` a record. As :math:`E_h \chi_I \approx h_I` for small coefficients, :math:`\tau_k^2` is read off
the release itself: the mean of :math:`\hat q_I^2` over the :math:`K_k` sets of that size, less what errors alone
would make it, :math:`s (1 + \sqrt{2 / K_k})` with one standard error of theirs, and at least :math:`s / 100`. So
there is next to no penalty where the errors are small, and a strong pull to zero where they drown the coefficients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.learning.learned_monomials import effect_scales
from bayesprivmrf.maps.noise import NoiseSource
from bayesprivmrf.maps.parities import noisy_parity_sums
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.privacy import NoiseLaw

__all__ = ["MonomialsByParities", "default_ridges", "fit_parities"]

_FLOOR = 0.01
_ITERATIONS = 1000


@dataclass(frozen=True, eq=False, kw_only=True)
class MonomialsByParities:
    """The map from records to coefficients through noisy sums of parities, as public settings.

    Parameters
    ----------
    sets
        The monomials.
    law
        Noise of each sum.
    has_total
        Whether the number of records is given; otherwise it is the noisy sum of the empty set.
    ridge
        See `bayesprivmrf.learning.ReleasedParities.fit`.
    """

    sets: Monomials
    law: NoiseLaw
    has_total: bool
    ridge: float | None = None

    def learn(
        self, codes: np.ndarray, counts: IntArray, total: float, source: NoiseSource, /
    ) -> tuple[FloatArray]:
        """Return the coefficients alone, shape (K,).

        Parameters
        ----------
        codes, counts
            Records as codes 0 and 1, shape (rows, p), and how many each row stands for.
        total
            Their number as far as it may be used.
        source
            Of noise.
        """
        spins = 2 * codes.astype(np.int8) - np.int8(1)
        known = np.array([round(total)]) if self.has_total else None
        return self.fitted(noisy_parity_sums(spins, counts, self.sets, self.law, source, known))[:1]

    def fitted(self, sums: IntArray | FloatArray) -> tuple[FloatArray, dict[str, Any]]:
        """Return the coefficients from noisy sums, shape (K,), and how the search ended."""
        records = max(float(sums[0]), 1.0)
        means = sums / records
        if self.ridge is None:
            ridges = default_ridges(self.sets, means, self.law.variance / records**2, records)
        else:
            ridges = np.full(len(self.sets), float(self.ridge))
        return fit_parities(self.sets, means, ridges)


def default_ridges(sets: Monomials, means: FloatArray, variance: float, total: float) -> FloatArray:
    r"""Return :math:`s / \tau_k^2` of each set, shape (K,); see the module.

    Parameters
    ----------
    sets
        The sets.
    means
        :math:`\hat q`, shape (K,).
    variance
        Of the noise of a mean.
    total
        N, records.
    """
    error = variance + 1 / total
    ridges = np.zeros(len(sets))
    for k in range(1, sets.order + 1):
        level = slice(*sets.offsets[k : k + 2])
        if len(sets.levels[k]):
            chance = error * (1 + math.sqrt(2 / len(sets.levels[k])))
            signal = float(np.mean(means[level] ** 2)) - chance
            ridges[level] = error / max(signal, _FLOOR * error)
    return ridges


def fit_parities(
    sets: Monomials, means: FloatArray, ridges: FloatArray, tolerance: float = 1e-7
) -> tuple[FloatArray, dict[str, Any]]:
    r"""Return the coefficients that maximise the penalised likelihood, and how the search ended.

    Parameters
    ----------
    sets
        The sets I, closed under subsets.
    means
        :math:`\hat q`, shape (K,), the empty set's first, which is not looked at.
    ridges
        Shape (K,), at least 0.
    tolerance
        Converged when no mean misses its condition by more than ten times this.

    Returns
    -------
    coefficients, details
        Shape (K,), 0 for the empty set; iterations and whether it converged. Without ridges, and with means that no
        distribution has, there is no maximum and it does not.

    Raises
    ------
    ModelTooLargeError
        Exact inference in the model does not fit.
    """
    from scipy.optimize import minimize

    scopes = sets.largest()
    engine = marginal_engine([2] * sets.variables, scopes)
    effects = Effects.of([2] * sets.variables, scopes)
    places = np.array([sets.positions[subset] for subset in effects.subsets])
    scales, wanted, weights = effect_scales(effects), means[places], ridges[places]

    def objective(h: FloatArray) -> tuple[float, FloatArray]:
        log_partition, marginals = engine.marginals(effects.potentials(h * scales))
        value = float(log_partition - h @ wanted + 0.5 * h @ (weights * h))
        return value, scales * effects.pull_back(marginals) - wanted + weights * h

    found = minimize(
        objective,
        np.zeros(len(places)),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _ITERATIONS, "maxcor": 30, "maxls": 40, "ftol": 0.0, "gtol": tolerance},
    )
    coefficients = np.zeros(len(sets))
    coefficients[places] = np.nan_to_num(found.x)
    converged = bool(np.isfinite(found.x).all() and np.abs(found.jac).max(initial=0.0) <= 10 * tolerance)
    status = "converged" if converged else "iteration limit"
    return coefficients, {"iterations": int(found.nit), "status": status}
