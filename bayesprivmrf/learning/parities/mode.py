r"""Posterior mode of the coefficients of a t-wise model, given noisy expectations of parities.

Let :math:`\mu(h)` and :math:`\Sigma(h)` be the mean and covariance of one record's parities, N the number of records
and V the covariance of the noise on the means. The noisy means have approximately the distribution

.. math:: \hat q \sim \mathcal N\bigl(\mu(h),\, \Sigma / N + V\bigr), \qquad
    V = v I + v_0\, \hat q \hat q^\top .

Here v is the variance of the noise on a sum and :math:`v_0` that of the noise on the number of records, both divided
by :math:`N^2`, since :math:`(S_I + e_I) / (N + e_0) - S_I/N \approx (e_I - \hat q_I e_0) / N`. The coefficients have
independent normal priors of mean 0 and variances :math:`1/D_{II}`. With the derivative of :math:`\Sigma` neglected,
the mode solves

.. math:: \Sigma\, (\Sigma / N + V)^{-1} (\hat q - \mu(h)) = D h .

**The mode is finite for any noise.** The maximum likelihood estimate is not. Noise can produce moments that no
distribution has, for example if a cell of eight records gets a count below zero. A likelihood that treats them as
means of N records then follows them for many nats. A ridge weighted by the curvature at independence does not prevent
this, because the curvature vanishes in the direction in which the cell becomes rarer. Here the left-hand side is
bounded: means are within :math:`\pm 1`, eigenvalues of Σ at most the number d of coefficients, and those of
:math:`(\Sigma / N + V)^{-1}` at most :math:`1/v`. So the continuous map
:math:`h \mapsto D^{-1} \Sigma (\Sigma/N + V)^{-1} (\hat q - \mu)` maps a large enough ball into itself and has a
fixed point by Brouwer's theorem. (:math:`D_{II}` may depend on h, as below, as long as it is bounded from below.)

**The priors are estimated from the release.** Most coefficients are near 0 and a few are not, so each has its own
precision. A Cauchy prior of scale :math:`\tau_k` for the sets of k variables is a normal prior whose precision has
the distribution Gamma(1/2, :math:`\tau_k^2 / 2`). Let C, the posterior covariance, be the inverse of
:math:`H = \Sigma (\Sigma/N + V)^{-1} \Sigma + D`. Variational Bayes gives the mean of the precision and the most
likely scale in closed form:

.. math:: D_{II} = \frac{2}{\tau_k^2 + h_I^2 + C_{II}}, \qquad \tau_k^2 \sum_{|I| = k} D_{II} = K_k .

MacKay's (1992) step :math:`\tau_k^2 \leftarrow \tau_k^2 \sum_I D_{II} h_I^2 / \sum_I (1 - D_{II} C_{II})` has the
same fixed point, as :math:`\sum_I D_{II} (h_I^2 + C_{II}) = 2 K_k - \tau_k^2 \sum_I D_{II}`, and converges faster.
The squared scale is restricted to the range from a millionth of the error variance :math:`s = v + 1/N` to
:math:`2^{2-k}`, the weak prior of `SelectMeasure`, and :math:`D_{II}` is at least :math:`2^{k-2}`. If triples are
hardly more than noise, their prior becomes narrow, and pairs are estimated as in a model without triples.

**The search.** Orders enter one after the other, with initial :math:`\tau_k^2 = 1 / D_{II} = s`. Under pure noise, no
scale is much more likely than another, so an order is left out if nothing in it stands out when it enters. The test
uses the standardized scores of its coefficients given those of the smaller sets. Nothing stands out if there is no
discovery at a false discovery rate of 0.1 (Benjamini and Hochberg 1995) and the sum of squares is within two standard
errors of its expectation. A round updates Σ, D and H and takes the Fisher scoring step
:math:`H^{-1} (\Sigma (\Sigma/N + V)^{-1} (\hat q - \mu) - D h)`, of at most half a nat, shortened if the last two
steps point in opposite directions. After twenty rounds D stays fixed, so that later rounds solve the equation above.
With Monte Carlo covariances (`bayesprivmrf.learning.parities.sums`) all weights stay fixed after twelve.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np

from bayesprivmrf.inference.effects_fit import PRIOR_DEVIATION, Weighed
from bayesprivmrf.inference.noise_aware import DenseCurvature
from bayesprivmrf.learning.parities.sums import ParityMoments
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.model.tables import FloatArray, IntArray

# Smallest squared scale of a prior, in error variances: practically 0, and far from rounding errors
_LEAST = 1e-6

# False discovery rate at which an order enters, or standard errors of its sum of squares above expectation
_FALSE_DISCOVERY_RATE, _BEYOND_CHANCE = 0.1, 2.0

# Most rounds of each order, and of the last order
_STAGE, _ROUNDS = 12, 100

# Rounds that update the priors; later rounds solve the equation with fixed priors
_PRIORS = 20

# Largest step, nats; smallest share of a step after halvings where steps alternate; growth of that share
_LARGEST_STEP, _SHORTEST, _LONGER = 0.5, 0.1, 1.3


def posterior_mode(
    sets: Monomials, means: FloatArray, noise: float, total_noise: float, total: float
) -> tuple[FloatArray, dict[str, Any]]:
    r"""Return the posterior mode that the module defines, and the details of the search.

    Parameters
    ----------
    sets
        The sets I, closed under subsets.
    means
        Noisy means :math:`\hat q`, shape (K,); the first, of the empty set, is ignored.
    noise, total_noise
        Variances v and :math:`v_0`.
    total
        Number of records N.

    Returns
    -------
    coefficients, details
        Coefficients, shape (K,), 0 for the empty set; iterations, the scales of the priors by order, nats, and the
        status: ``"converged"``, ``"approximate"`` if covariances were Monte Carlo estimates, or
        ``"iteration limit"``.

    Raises
    ------
    ModelTooLargeError
        Exact inference in the model does not fit.
    """
    generator = np.random.default_rng(zlib.crc32(np.ascontiguousarray(means).tobytes()))
    ParityMoments(sets, generator)  # raises an error before any work if the model does not fit
    search = _Search(np.asarray(means, dtype=float)[1:], noise, total_noise, total)
    moments, has_ended = None, False
    for k in range(1, sets.order + 1):
        family = Monomials(variables=sets.variables, levels=sets.levels[: k + 1])
        moments = ParityMoments(family, generator)
        has_ended = search.stage(moments, family.orders[1:], _ROUNDS if k == sets.order else _STAGE)
    assert moments is not None
    well = "converged" if moments.is_exact else "approximate"
    return np.concatenate([[0.0], search.h]), {
        "iterations": search.rounds,
        "status": well if has_ended else "iteration limit",
        "prior_scales": [math.sqrt(variance) for variance in search.priors],
    }


class _Search:
    """State of the search for the mode.

    Parameters
    ----------
    means, noise, total_noise, total
        Arguments of `posterior_mode`; the means exclude the empty set.
    """

    def __init__(self, means: FloatArray, noise: float, total_noise: float, total: float) -> None:
        self.means, self.noise, self.total_noise, self.total = means, noise, total_noise, total
        self.error = noise + 1 / total
        self.h = np.zeros(0)
        self.precisions = np.zeros(0)
        self.priors: list[float] = []
        self.silent: list[int] = []  # orders in which nothing stands out from the errors
        self.rounds = 0

    def stage(self, moments: ParityMoments, orders: IntArray, limit: int) -> bool:
        """Add the sets of one more order, and return True if the search converged."""
        size, means = orders.size, self.means[: orders.size]
        self.priors.append(min(self.error, self._largest(len(self.priors) + 1)))
        fresh = np.zeros(size - self.h.size)
        self.h = np.concatenate([self.h, fresh])
        self.precisions = np.concatenate([self.precisions, fresh + 1 / self.priors[-1]])
        noises = self.noise * np.eye(size) + self.total_noise * np.multiply.outer(means, means)
        weighed, curvature, damped, settled = None, None, 1.0, False
        last, entered = np.zeros(size), slice(size - fresh.size, size)
        for place in range(limit):
            # covariances are redrawn in 12 rounds only, because the search cannot converge while they change
            is_weighed = moments.is_exact or place < 12
            if is_weighed or weighed is None or curvature is None:
                found, covariance = moments.expanded(self.h)
                weighed = Weighed.by(covariance, noises, self.total)
                score, information = weighed.score(means - found), weighed.information
                if place == 0 and not self._stands_out(information, score, entered):
                    self.silent.append(len(self.priors))
                    self.priors[-1] = _LEAST * self.error
                    self.precisions[entered] = 1 / self.priors[-1]
                curvature = DenseCurvature(information=information, prior=self.precisions)
                if 0 < place < _PRIORS:
                    left = curvature.variances
                    if not settled:
                        settled = self._weigh(left, orders) and place > 2
                    self._sharpen(left, orders)
                    curvature = DenseCurvature(information=information, prior=self.precisions)
            else:
                score = weighed.score(means - moments.means(self.h)[1])
            step = curvature.solve(score - self.precisions * self.h)
            step[np.isin(orders, self.silent)] = 0.0
            moved = float(np.abs(step).max(initial=0.0))
            damped = max(damped / 2, _SHORTEST) if step @ last < 0 else min(damped * _LONGER, 1.0)
            self.h = self.h + step * min(damped, _LARGEST_STEP / max(moved, 1e-300))
            self.h[np.isin(orders, self.silent)] = 0.0
            last = step
            self.rounds += 1
            # convergence: no coordinate moved by 1e-5 nats
            if moved < 1e-5 and (settled or place >= _PRIORS or not is_weighed):
                return True
        return False

    def _stands_out(self, information: FloatArray, score: FloatArray, entered: slice) -> bool:
        """Return True if the scores of the newest sets, given the others, exceed what errors explain."""
        from scipy.linalg import cho_factor, cho_solve
        from scipy.stats import norm

        before = slice(0, entered.start)
        precisions = self.precisions[before]
        shared, score, covariance = information[before, entered], score.copy(), information[entered, entered]
        score[before] -= precisions * self.h[before]
        if precisions.size:
            share = cho_solve(cho_factor(information[before, before] + np.diag(precisions)), shared)
            covariance = covariance - shared.T @ share
            score[entered] -= share.T @ score[before]
        deviation = np.sqrt(np.maximum(covariance.diagonal(), 1e-300))
        z, correlation = score[entered] / deviation, covariance / np.multiply.outer(deviation, deviation)
        chance = z.size + _BEYOND_CHANCE * math.sqrt(2 * float((correlation**2).sum()))
        tails = np.sort(2 * norm.sf(np.abs(z)))
        allowed = _FALSE_DISCOVERY_RATE * np.arange(1, z.size + 1) / z.size
        return bool(float(z @ z) > chance or (tails <= allowed).any())

    def _weigh(self, left: FloatArray, orders: IntArray) -> bool:
        """Update the scales of the priors from the diagonal of C, and return True if they have converged."""
        informed, found = 1 - left * self.precisions, self.precisions * self.h**2
        is_settled = True
        for k, variance in enumerate(self.priors, start=1):
            if k in self.silent:
                continue
            own = orders == k
            scaled = variance * float(found[own].sum()) / max(float(informed[own].sum()), 1e-9)
            scaled = min(max(scaled, _LEAST * self.error), self._largest(k))
            # a squared scale has converged when it changes by less than 2 %
            is_settled &= abs(math.log(scaled / variance)) < 0.02
            self.priors[k - 1] = scaled
        return is_settled

    def _sharpen(self, left: FloatArray, orders: IntArray) -> None:
        """Update the precision of each coefficient from the diagonal of C."""
        largest = np.array([self._largest(k) for k in range(1, len(self.priors) + 1)])
        squares = np.array(self.priors)[orders - 1] + self.h**2 + left
        self.precisions = np.maximum(2 / squares, 1 / largest[orders - 1])

    @staticmethod
    def _largest(order: int) -> float:
        return PRIOR_DEVIATION**2 / 2.0**order
