r"""Compiled density of the log-linear formulation; the module `density` describes its interface.

The sampler's position consists of z, whose last entry belongs to a private N, and of v, from which a learned log τ
follows. Latent numbers are the counts of the model's possible cells, N, θ' and log τ.

`stretch` maps whitened positions to latent coordinates, scales and total. Its formulas are those of `Whitening` and
`latent_prior`:

.. math:: \log τ = \log \hat τ + R v, \qquad r_k = \exp \sum_g s_{kg} \log\frac{\hat τ_g^2 + c_g}{τ_g^2 + c_g}, \qquad
          x = B \Bigl[\frac{(λ + 1) \hat u}{λ + r} + \frac{z}{\sqrt{λ + r}}\Bigr].

θ' is x; if N is private, the last entry ξ of x is not part of θ', and
:math:`\log N = l + (h - l)\, \operatorname{logistic}(c + ξ)`. The log density is that of (z, v) under the prior of
(θ', τ, N), up to a constant. `stretch_pullback` is its derivative, written by hand.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, arrays_at, put
from bayesprivmrf.inference.posterior import effects_engine
from bayesprivmrf.inference.posterior.latent_prior import log_uniform
from bayesprivmrf.inference.posterior.relaxed.density import (
    B1,
    F1,
    F2,
    H1,
    I1,
    LATENT,
    NOISE,
    finished,
    log_likelihood,
    task_of,
)

# types of the arrays that `_visit` takes apart
KINDS = (
    *LATENT, F2, F1, F2, F1, F2, F1, F1, I1, F1, F1, F1, F2, F1,
    I1, F1, I1, H1, I1, I1, I1, I1, B1, F1, I1, I1, F1, I1, I1, F2, *NOISE,
)  # fmt: skip

_marginals, _pull_back = effects_engine._marginals, effects_engine._pull_back


@njit(nogil=True, error_model="numpy", **INNER)
def stretch(
    position, basis, information, shares, mode, root, scale, total, levels, variance, means, expected, hyper, excess
):  # fmt: skip
    """Return x, log τ, log N, the log density of the position, the precisions λ + r, and r.

    Parameters
    ----------
    basis, information, shares, mode
        Fields of `Whitening`.
    root, scale
        R, and the preliminary log τ; R has no entries if τ is fixed.
    total
        Preliminary log N, which is log N itself if N is public. A private N adds the ends l and h, and c.
    levels, variance, means
        Scale and sampling variance of each coordinate, and the mean sampling variance over the coordinates of each
        scale.
    expected, hyper
        Prior mean and prior precision of log τ.
    excess
        κ, shape (1,).
    """
    place, own = position[: mode.size], position[mode.size :]
    log_scale, changes = scale.copy(), np.zeros(shares.shape[1])  # the change for the total stays 0
    if own.size:
        log_scale += root @ own
    # r, the ratio of the prior precision of each direction to that at the preliminary scales
    for g in range(scale.size):
        scatter = means[g] * math.exp(-total[0])
        changes[g] = math.log(math.exp(2 * scale[g]) + scatter) - math.log(
            math.exp(2 * log_scale[g]) + scatter
        )
    relative = np.exp(shares @ changes)
    precision = information + relative
    # x, by the map of `Whitening`, and log N
    moved = mode * (information + 1.0) / precision + place / np.sqrt(precision)
    moved = basis @ moved if basis.shape[1] == moved.size else basis[:, 0] * moved
    log_density, log_total = -0.5 * np.sum(np.log(precision)), total[0]
    if total.size > 1:
        log_total, place_density, _, _ = log_uniform(total[3] + moved[-1], total[1], total[2])
        log_density += place_density
    # normal prior of θ', with the variance (τ² + v / N) / (1 + κ / N)² of each coordinate
    inverse = math.exp(-log_total)
    factor, squares = 1.0 + excess[0] * inverse, np.exp(2.0 * log_scale)
    for i in range(levels.size):
        spread = squares[levels[i]] + inverse * variance[i]
        ratio = factor * moved[i]
        log_density -= 0.5 * (math.log(spread) + ratio * ratio / spread)
    log_density += levels.size * math.log(factor)
    if own.size:
        gap = log_scale - expected
        log_density -= 0.5 * np.sum(gap * (hyper @ gap))
    return moved, log_scale, log_total, log_density, precision, relative


@njit(nogil=True, error_model="numpy", **INNER)
def stretch_pullback(
    by_coordinates, by_log_scale, by_log_total, by_density, moved, log_scale, log_total, precision, relative,
    position, basis, information, shares, mode, root, scale, total, levels, variance, means, expected, hyper, excess,
):  # fmt: skip
    """Return the derivative with respect to the position.

    The first four arguments are the derivatives with respect to the first four results of `stretch`, in their order;
    then come the results of `stretch`, and its arguments.
    """
    place, own = position[: mode.size], position[mode.size :]
    size, inverse = levels.size, math.exp(-log_total)
    factor, squares = 1.0 + excess[0] * inverse, np.exp(2.0 * log_scale)
    by_moved, by_scale = np.zeros(mode.size), by_log_scale.copy()
    by_inverse, by_factor = 0.0, by_density * size / factor
    # normal prior of each coordinate: derivatives with respect to the coordinate, its scale and N
    for i in range(size):
        square = squares[levels[i]]
        spread = square + inverse * variance[i]
        pull = factor * moved[i] / spread
        by_moved[i] = by_coordinates[i] - by_density * factor * pull
        by_spread = by_density * 0.5 * (pull * pull - 1.0 / spread)
        by_scale[levels[i]] += 2.0 * square * by_spread
        by_inverse += variance[i] * by_spread
        by_factor -= by_density * pull * moved[i]
    if total.size > 1:
        _, _, by_place, density_by_place = log_uniform(total[3] + moved[-1], total[1], total[2])
        slope = by_log_total - inverse * (by_inverse + excess[0] * by_factor)
        by_moved[-1] = slope * by_place + by_density * density_by_place
    # whitening: derivatives with respect to the position and to r
    by_own = basis.T @ by_moved if basis.shape[1] == mode.size else basis[:, 0] * by_moved
    by_precision = -by_own * (mode * (information + 1.0) / precision + 0.5 * place / np.sqrt(precision))
    by_relative = relative * (by_precision - 0.5 * by_density) / precision
    by_changes = shares.T @ by_relative
    for g in range(scale.size):
        scatter = means[g] * math.exp(-total[0])
        by_scale[g] -= by_changes[g] * 2.0 * squares[g] / (squares[g] + scatter)
    gradient = np.empty(position.size)
    put(gradient[: mode.size], by_own / np.sqrt(precision))
    if own.size:
        put(gradient[mode.size :], root.T @ (by_scale - by_density * (hyper @ (log_scale - expected))))
    return gradient


@njit(nogil=True, error_model="numpy", **INNER)
def _visit(position, is_forward, by_latent, by_prior, arrays):
    """Return the latent numbers, log prior density, log likelihood and gradient for a task of `density`.

    The arrays are the arguments of `stretch`, the model's possible cells, μ(0), the data of the plan, and the noise.
    """
    stretching, cells, uniform, data = arrays[:13], arrays[13], arrays[14], arrays[15:29]
    # forward: whitened position -> θ', τ, N -> μ(θ') -> counts n = (N + κ) μ - κ μ(0)
    moved, log_scale, log_total, prior, precision, relative = stretch(position, *stretching)
    excess, coordinates, total = stretching[12][0], moved[: stretching[7].size].copy(), math.exp(log_total)
    mu, _, state = _marginals(coordinates, data)
    # latent numbers: counts, N, θ' and log τ
    size = cells.size
    latent = np.empty(size + 1 + coordinates.size + log_scale.size)
    for k in range(size):
        latent[k] = (total + excess) * mu[cells[k]] - excess * uniform[cells[k]]
    latent[size] = total
    put(latent[size + 1 : size + 1 + coordinates.size], coordinates)
    put(latent[size + 1 + coordinates.size :], log_scale)
    if is_forward:
        return latent, prior, 0.0, np.empty(0)
    likelihood = 0.0
    if by_latent.size == 0:
        likelihood, by_latent = log_likelihood(latent, *arrays[29:])
    # backward: derivatives by counts -> by μ and N -> by θ' (Σ times the derivative by μ) -> by position
    by_mu, by_total = np.zeros(mu.size), by_latent[size]
    for k in range(size):
        by_mu[cells[k]] = (total + excess) * by_latent[k]
        by_total += mu[cells[k]] * by_latent[k]
    by_coordinates = by_latent[size + 1 : size + 1 + coordinates.size] + _pull_back(state, by_mu, data)
    gradient = stretch_pullback(
        by_coordinates, by_latent[size + 1 + coordinates.size :], by_total * total, by_prior,
        moved, log_scale, log_total, precision, relative, position, *stretching,
    )  # fmt: skip
    return latent, prior, likelihood, gradient


def visit_effects(size, position, gradient, value, where):
    """Evaluate the density for C; the module `density` describes the arguments."""
    arrays = arrays_at(where, KINDS)
    found = _visit(*task_of(arrays, size, position, value), arrays[2:])
    return finished(found, arrays, size, gradient, value)
