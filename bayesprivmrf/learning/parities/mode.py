r"""Noisy sums of parities, and the posterior mode of a t-wise model's coefficients given their expectations.

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
With Monte Carlo covariances (`ParityMoments`) all weights stay fixed after twelve.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.effects_fit import PRIOR_DEVIATION, Weighed, moments_of
from bayesprivmrf.inference.noise_aware import DenseCurvature
from bayesprivmrf.learning.models.monomials import effect_scales
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import NoiseDistribution

# Numbers in the products of a block of records: 16 MiB in single precision
_BLOCK = 1 << 22


def parity_sums(spins: np.ndarray, counts: IntArray, monomials: Monomials) -> IntArray:
    r"""Return the exact sum :math:`S_I = \sum_m c_m \chi_I(x^m)` of each monomial.

    Parameters
    ----------
    spins
        Distinct records as -1 and +1, int8 of shape (rows, p).
    counts
        Number of records :math:`c_m` that each row represents, shape (rows,); their sum is below 2^53.
    monomials
        The sets I.

    Returns
    -------
    ndarray
        Whole numbers, records, shape (K,).

    Notes ----- A matrix product of the parities of k - 1 variables with the records has :math:`S_{J \cup \{i\}}` as
    entry (J, i). All partial sums are whole numbers of at most :math:`\sum_m c_m` over a block of rows, so single
    precision is exact up to 2^24 and double precision below 2^53. The time is n K' p, where K' is the number of sets
    of up to t - 1 variables; memory is bounded by a block.
    """
    sums = np.zeros(len(monomials), dtype=np.int64)
    for products, block, weights in _blocks(spins, counts, monomials):
        sums[0] += int(weights.sum())
        weighted = (block * weights.astype(block.dtype)).T
        for k, level in enumerate(monomials.levels[1:], start=1):
            start, stop = monomials.offsets[k : k + 2]
            if stop > start:
                table = products[k - 1] @ weighted
                sums[start:stop] += table[monomials.parents[k - 1], level[:, -1]].astype(np.int64)
    return sums


def parity_rows(spins: np.ndarray, monomials: Monomials, order: int | None = None) -> list[np.ndarray]:
    r"""Return the parities :math:`\chi_I` of each record, one matrix (K_k, records) for each size of sets.

    Parameters
    ----------
    spins
        Records as -1 and +1, shape (p, records); the result has their type.
    monomials
        The sets.
    order
        Largest size; all by default.
    """
    products = [np.ones((1, spins.shape[1]), dtype=spins.dtype)]
    for k, level in enumerate(monomials.levels[1 : None if order is None else order + 1], start=1):
        products.append(products[-1][monomials.parents[k - 1]] * spins[level[:, -1]])
    return products


def noisy_parity_sums(
    spins: np.ndarray,
    counts: IntArray,
    monomials: Monomials,
    law: NoiseDistribution,
    source: NoiseSource,
    total: IntArray | None = None,
) -> IntArray:
    """Return the sums with independent noise; the first is the number of records.

    Parameters
    ----------
    spins, counts, monomials
        Records and sets, as for `parity_sums`.
    law
        Distribution of the noise on each sum; `bayesprivmrf.privacy.largest_sum` has their joint sensitivity.
    source
        Source of the noise.
    total
        Number of records, shape (1,), if it is public or already measured. It then replaces the sum of the empty set,
        for which no noise is drawn.
    """
    sums = parity_sums(spins, counts, monomials)
    if total is None:
        return source.add(sums, law)
    return np.concatenate([total, source.add(sums[1:], law)])


def walsh_hadamard(values: FloatArray) -> FloatArray:
    r"""Return :math:`\hat f(I) = \sum_s f(s) (-1)^{|I \cap s|}` for a function of p bits, shape (2^p,).

    If bit i of s is set where :math:`x_i = -1`, the transform of a distribution has the expectation of each parity at
    `Monomials.masks`. Applied twice, the transform multiplies the function by 2^p. It takes p 2^p additions.

    Examples
    --------
    >>> walsh_hadamard(np.array([0.5, 0.25, 0.25, 0.0]))  # P(-1) is 1/4 for both, never at once
    array([1. , 0.5, 0.5, 0. ])
    """
    result = np.array(values, dtype=float)
    half = 1
    while half < result.size:
        pairs = result.reshape(-1, 2, half)
        low = pairs[:, 0] + pairs[:, 1]
        pairs[:, 1] = pairs[:, 0] - pairs[:, 1]
        pairs[:, 0] = low
        half *= 2
    return result


def _blocks(
    spins: np.ndarray, counts: IntArray, monomials: Monomials
) -> Iterator[tuple[list[np.ndarray], np.ndarray, IntArray]]:
    """Yield parities of up to t - 1 variables, records and counts of each block, in the narrowest exact type."""
    width = monomials.offsets[max(monomials.order, 1)]
    rows = max(_BLOCK // max(width, monomials.variables), 1)
    for start in range(0, len(spins), rows):
        weights = counts[start : start + rows]
        # single precision is exact for whole numbers up to 2^24
        kind = np.float32 if int(weights.sum()) <= 2**24 else np.float64
        block = np.ascontiguousarray(spins[start : start + rows].T, dtype=kind)
        yield parity_rows(block, monomials, monomials.order - 1), block, weights


class ParityMoments:
    r"""Moments of parities :math:`\chi_I = 2^{|I|/2} \phi_I`, with coefficients :math:`h_I = 2^{-|I|/2} \beta_I`.

    Parameters
    ----------
    sets
        The monomials. All arrays exclude the empty one and have shape (d,).
    generator
        Generator for Monte Carlo covariances where exact ones are too costly.

    Raises
    ------
    ModelTooLargeError
        Exact inference in the model does not fit in memory; the message has a remedy.
    """

    def __init__(self, sets: Monomials, generator: np.random.Generator) -> None:
        effects = Effects.of([2] * sets.variables, sets.largest())
        self._scales = effect_scales(effects)
        self._places = np.array([sets.positions[subset] for subset in effects.subsets], dtype=np.int64) - 1
        try:
            self._moments = moments_of(effects, generator)
        except ModelTooLargeError:
            p = sets.variables
            raise ModelTooLargeError(
                f"a model of these {len(sets) - 1:,} monomials of {p} variables must sum over up to 2^{p} states, "
                "which does not fit in memory; declare cliques and release anew, fit order=1, or learn from the "
                "records by SelectMeasure or PrivateFrankWolfe, which need no such sums. The released values remain "
                "valid."
            ) from None
        self.is_exact = self._moments.has_covariance

    def means(self, h: FloatArray) -> tuple[float, FloatArray]:
        """Return the log partition function and the mean of each parity."""
        log_partition, found = self._moments.means(h[self._places] * self._scales)
        return log_partition, self._of_parities(found)

    def expanded(self, h: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the means and the covariance of one record's parities."""
        means, covariance = self._moments.expanded(h[self._places] * self._scales)
        found = np.empty_like(covariance)
        found[np.ix_(self._places, self._places)] = covariance * np.multiply.outer(self._scales, self._scales)
        return self._of_parities(means), found

    def _of_parities(self, means: FloatArray) -> FloatArray:
        found = np.empty_like(means)
        found[self._places] = means * self._scales
        return found


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
                    # the precision of each coefficient, from the diagonal of C
                    largest = np.array([self._largest(k) for k in range(1, len(self.priors) + 1)])
                    squares = np.array(self.priors)[orders - 1] + self.h**2 + left
                    self.precisions = np.maximum(2 / squares, 1 / largest[orders - 1])
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

    @staticmethod
    def _largest(order: int) -> float:
        return PRIOR_DEVIATION**2 / 2.0**order
