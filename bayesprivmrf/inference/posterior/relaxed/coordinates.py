r"""From whitened positions to latent coordinates, scales and total, with the log density of the positions, compiled.

The formulas are those of `whitening` and `latent_prior`; here they stand with their derivatives. With z and v the
positions of the coordinates and of log τ,

.. math:: \log τ = \log \hat τ + R v, \qquad r_k = \exp \sum_g s_{kg} \log\frac{\hat τ_g^2 + c_g}{τ_g^2 + c_g}, \qquad
          x = B \Bigl[\frac{(λ + 1) \hat u}{λ + r} + \frac{z}{\sqrt{λ + r}}\Bigr],

θ' is x, less its last entry ξ where N is private: :math:`\log N = l + (h - l)\, \operatorname{logistic}(c + ξ)`. The
log density is that of (z, v) under the prior of (θ', τ, N), up to a constant.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, put
from bayesprivmrf.inference.posterior.log_uniform import log_uniform
from bayesprivmrf.model.tables import FloatArray, IntArray


class StretchData(NamedTuple):
    """What `stretch` needs, in the order in which it takes it.

    Parameters
    ----------
    basis, information, shares, mode
        Those of `Whitening`.
    root, scale
        R, and the preliminary log τ; R has no entries where τ is fixed.
    total
        The preliminary log N, which is N itself where it is public; of a private one the ends l and h and c as well.
    levels, variance, means
        Scale and sampling variance of each coordinate, and the mean of the latter over each scale.
    expected, hyper
        Prior mean and precision of log τ.
    excess
        κ, shape (1,).
    """

    basis: FloatArray
    information: FloatArray
    shares: FloatArray
    mode: FloatArray
    root: FloatArray
    scale: FloatArray
    total: FloatArray
    levels: IntArray
    variance: FloatArray
    means: FloatArray
    expected: FloatArray
    hyper: FloatArray
    excess: FloatArray


@njit(nogil=True, error_model="numpy", **INNER)
def stretch(
    position, basis, information, shares, mode, root, scale, total, levels, variance, means, expected, hyper, excess
):  # fmt: skip
    """Coordinates θ', log τ, log N and the log density; then the precisions λ + r, and r."""
    place, own = position[: mode.size], position[mode.size :]
    log_scale, changes = scale.copy(), np.zeros(shares.shape[1])  # of the total, 0
    if own.size:
        log_scale += root @ own
    for g in range(scale.size):
        scatter = means[g] * math.exp(-total[0])
        changes[g] = math.log(math.exp(2 * scale[g]) + scatter) - math.log(
            math.exp(2 * log_scale[g]) + scatter
        )
    relative = np.exp(shares @ changes)
    precision = information + relative
    moved = mode * (information + 1.0) / precision + place / np.sqrt(precision)
    moved = basis @ moved if basis.shape[1] == moved.size else basis[:, 0] * moved
    log_density, log_total = -0.5 * np.sum(np.log(precision)), total[0]
    if total.size > 1:
        log_total, place_density, _, _ = log_uniform(total[3] + moved[-1], total[1], total[2])
        log_density += place_density
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
    """Derivative by the position, from those by the first four answers of `stretch`; then those answers."""
    place, own = position[: mode.size], position[mode.size :]
    size, inverse = levels.size, math.exp(-log_total)
    factor, squares = 1.0 + excess[0] * inverse, np.exp(2.0 * log_scale)
    by_moved, by_scale = np.zeros(mode.size), by_log_scale.copy()
    by_inverse, by_factor = 0.0, by_density * size / factor
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
