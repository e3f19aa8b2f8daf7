r"""Posterior mode of a t-wise model's coefficients given their expectations.

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

**The search** is that of `bayesprivmrf.inference.loglinear_fit.reweighted`, which starts at 0 with
:math:`\tau_k^2 = 1 / D_{II} = s`. Its first twenty rounds update D; later rounds solve the equation above with a
fixed D. Where covariances are Monte Carlo estimates, all weights stay fixed after twelve.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.files import Json
from bayesprivmrf.inference.loglinear_fit import (
    PRIOR_DEVIATION,
    NoisyMeans,
    moments_of,
    reweighted_fit,
)
from bayesprivmrf.inference.loglinear_fit.moments import ExactMoments
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.learning.models.monomials import effect_scales
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.model.tables import FloatArray, IntArray


def parity_rows(
    spins: np.ndarray, monomials: Monomials, order: int | None = None
) -> list[np.ndarray]:
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


def parity_effects(
    sets: Monomials, generator: np.random.Generator
) -> tuple[Effects, IntArray, FloatArray, ExactMoments]:
    r"""Return the effects of all monomials, the place of each among them, its scale, and the engine of its moments.

    Parities are :math:`\chi_I = 2^{|I|/2} \phi_I` with coefficients :math:`h_I = 2^{-|I|/2} \beta_I`. Scales are
    the factors :math:`2^{|I|/2}`; all arrays exclude the empty set and have shape (d,).

    Parameters
    ----------
    sets
        The monomials.
    generator
        Generator for Monte Carlo covariances where exact ones are too costly.

    Raises
    ------
    ModelTooLargeError
        Exact inference in the model does not fit in memory; the message has a remedy.
    """
    effects = Effects.of([2] * sets.variables, sets.largest())
    places = np.array([sets.positions[subset] for subset in effects.subsets], dtype=np.int64) - 1
    try:
        return effects, places, effect_scales(effects), moments_of(effects, generator)
    except ModelTooLargeError:
        p = sets.variables
        raise ModelTooLargeError(
            f"a model of these {len(sets) - 1:,} monomials of {p} variables must sum over up to 2^{p} states, "
            "which does not fit in memory; declare cliques and release anew, fit order=1, or learn from the "
            "records by SelectMeasure or PrivateFrankWolfe, which need no such sums. The released values remain "
            "valid."
        ) from None


# Smallest squared scale of a prior, in error variances: practically 0, and far from rounding errors
_LEAST = 1e-6

# Least number of coefficients that the means of an order determine, where it divides
_LEAST_INFORMED = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class CauchyPriors:
    r"""Cauchy priors of the coefficients, one scale an order, as normal priors whose precisions are learned.

    The module has the formulas. Arrays over coefficients have shape (d,), without the empty set.

    Parameters
    ----------
    orders
        Number of variables of each coefficient's set, less 1.
    factors
        :math:`2^{|I|/2}`: a coefficient is its coordinate divided by this.
    least, widest
        Range of the squared scales: a number, and one of each order.
    squared_scales
        :math:`\tau_k^2` of each order.
    strengths
        :math:`D_{II}`, the precision of each coefficient.
    precision
        Precision of each coordinate.
    """

    orders: IntArray
    factors: FloatArray
    least: float
    widest: FloatArray
    squared_scales: FloatArray
    strengths: FloatArray
    precision: FloatArray

    @property
    def is_learned(self) -> bool:
        """Return True: scales and precisions are estimated from the release."""
        return True

    @classmethod
    def of(cls, effects: Effects, factors: FloatArray, order: int, error: float) -> Self:
        """Return the priors with which a search begins, all of the variance of the error of a mean."""
        # the widest prior of an order is the weak one of `SelectMeasure`
        widest = PRIOR_DEVIATION**2 / np.exp2(np.arange(1.0, order + 1))
        orders = effects.orders - 1
        squared_scales = np.minimum(error, widest)
        return cls(
            orders=orders,
            factors=factors,
            least=_LEAST * error,
            widest=widest,
            squared_scales=squared_scales,
            strengths=1 / squared_scales[orders],
            precision=np.full(effects.size, 1 / error),
        )

    def learned(self, beta: FloatArray, variances: FloatArray) -> Self:
        """Return the priors after one step of MacKay's fixed point for the scale of each order."""
        order = len(self.widest)
        squares = (beta / self.factors) ** 2
        left = variances / self.factors**2
        shown = np.bincount(self.orders, weights=self.strengths * squares, minlength=order)
        informed = np.bincount(self.orders, weights=1 - left * self.strengths, minlength=order)
        moved = self.squared_scales * shown / np.maximum(informed, _LEAST_INFORMED)
        squared_scales = np.clip(moved, self.least, self.widest)
        own = squared_scales[self.orders] + squares + left
        strengths = np.maximum(2 / own, 1 / self.widest[self.orders])
        return replace(
            self,
            squared_scales=squared_scales,
            strengths=strengths,
            precision=strengths / self.factors**2,
        )


def posterior_mode(
    sets: Monomials, means: FloatArray, noise: float, total_noise: float, total: float
) -> tuple[FloatArray, dict[str, Json]]:
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
    effects, places, factors, moments = parity_effects(sets, generator)
    q = np.asarray(means, dtype=float)[1:][places]
    of_noise = noise * np.eye(q.size) + total_noise * np.multiply.outer(q, q)
    data = NoisyMeans(
        moments=moments,
        means=q / factors,
        noise=of_noise / np.multiply.outer(factors, factors),
        total=total,
        prior=CauchyPriors.of(effects, factors, sets.order, noise + 1 / total),
    )
    fit, prior = reweighted_fit(effects, data)
    status = fit.status
    if status is Status.NOT_TRUSTED:
        status = Status.ITERATION_LIMIT
    elif not moments.has_covariance:
        status = Status.APPROXIMATE
    found = np.zeros(len(sets))
    found[1 + places] = fit.coordinates / factors
    return found, {
        "iterations": fit.details["iterations"],
        "status": status.value,
        "prior_scales": np.sqrt(prior.squared_scales).tolist(),
    }
