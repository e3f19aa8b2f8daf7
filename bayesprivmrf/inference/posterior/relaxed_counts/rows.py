r"""Compiled Dirichlet rows in coordinates that suit NUTS.

A row r ~ Dirichlet(α_1, ..., α_R) with the mass :math:`A = \sum_i α_i` is written with weights, :math:`r_i = g_i / G`
and :math:`G = \sum_i g_i`. G has no meaning, so its distribution can be chosen: G is independent of r, and
:math:`G / G_0` is Gamma(κ, κ), with mean 1. The log density of :math:`z_i = \log(g_i / G_0)` is

.. math:: \log p(z) = \sum_i α_i z_i + (κ - A) \log\frac{G}{G_0} - κ \frac{G}{G_0}
          + κ \log κ - \log Γ(κ) + \log Γ(A) - \sum_i \log Γ(α_i).

With κ = A the weights are independent Gamma variables, which is best if the data say little. If they say much, z is
known within about :math:`σ_i / n_i` (the standard error of a count over the count), and G would be one long direction
among many short ones. Therefore

.. math:: κ = A + \sum_i (n_i / σ_i)^2,

so that G varies about as much as the data and the shapes let z vary. Neither g nor its logarithm is a good coordinate
for a count that may or may not be 0: the logarithm has a long tail, and g has a boundary. The weight of a cell, in
records, is therefore

.. math:: g_i = σ_i S(u_i), \qquad S(u) = \begin{cases} 1 + u & u ≥ 0 \\ e^{u - u^2/2} & u < 0, \end{cases}

which has two continuous derivatives and an inverse in closed form. A flat density of g above 0 has a Gaussian left
tail in u. Given the release, u is within about 1 of a known shift. If the shapes are learned, let
:math:`e_i = α_i - α_0` be their excess over a floor. Large shapes put :math:`\log g` within about
:math:`1 / \sqrt{α_i}` of that of :math:`G_0 α_i / A`, however little the release says. So the sampler moves v,

.. math:: u_i = w_i\, \mathrm{shift}_i + (1 - w_i)\, t_i + \sqrt{w_i}\, v_i, \qquad
          S(t_i) = \frac{G_0 α_i}{A σ_i}, \qquad w_i = \bigl(1 + e_i\, (\log S)'(t_i)^2\bigr)^{-1},

which is within about 1 of 0 at every α; the Jacobian is :math:`\prod \sqrt{w_i}`. The shift, σ, κ and G_0 do not
change the distribution of r given α. They may therefore be computed from the noisy tables, and κ may depend on α.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from scipy.special import ndtr

from bayesprivmrf.compiled import INNER
from bayesprivmrf.inference.posterior.forest import JunctionForest
from bayesprivmrf.model.tables import FloatArray

# constant of Stirling's formula
_HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)


def row_weights_data(
    forest: JunctionForest, shapes: FloatArray, counts: FloatArray, precisions: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return shift, σ and log σ of each cell, and κ - A and G_0 of each row, from the noisy tables.

    Parameters
    ----------
    forest
        The junction forest.
    shapes
        α of each possible cell, in the order of ``forest.cells``; a rough value if α is learned.
    counts
        Rough counts of the same cells, records; may be negative.
    precisions
        Precision of each of these counts, one over records squared; 0 for a cell that was not measured.
    """
    if counts.size == 0:
        return counts, counts, counts, counts, counts
    starts = forest.row_starts[:-1]
    sizes = forest.row_sizes
    positive = np.maximum(counts, 0.0) + shapes
    mean = np.repeat(np.add.reduceat(positive, starts) / sizes, sizes)
    prior_sd = np.maximum(positive, mean) / np.sqrt(np.maximum(shapes, 1.0))
    scale = 1 / np.sqrt(precisions + 1 / prior_sd**2)
    ratio = np.clip(np.where(precisions > 0, counts, mean) / scale, -8.0, None)
    # mean of a normal variable that is truncated to positive values, in units of its scale
    expected = ratio + np.exp(-0.5 * ratio**2) / (math.sqrt(2 * math.pi) * ndtr(ratio))
    freedom = np.add.reduceat((positive / scale) ** 2, starts)
    shift = np.array([softened_at(soft) for soft in expected])
    # beyond 1e25, κ would lose digits
    freedom = np.minimum(freedom, 1e25)
    return shift, scale, np.log(scale), freedom, np.add.reduceat(scale * expected, starts)


@njit(nogil=True, error_model="numpy")
def log_gamma(x):
    """Return log Γ(x) and its derivative ψ(x) for x > 0, by Stirling's series above 10 and the recurrence below.

    With the product P = x (x + 1) ... up to 10, the recurrence subtracts log P from log Γ, and P' / P from ψ.
    """
    product = 1.0
    slope = 0.0
    while x < 10.0:
        slope = slope * x + product
        product *= x
        x += 1.0
    inverse = 1.0 / x
    log_x = math.log(x)
    square = inverse * inverse
    series = square * (1 / 1188 - square * (691 / 360360 - square / 156))
    series = inverse * (
        1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - series)))
    )
    value = (x - 0.5) * log_x - x + _HALF_LOG_2_PI + series - math.log(product)
    series = square * (1 / 240 - square * (1 / 132 - square * (691 / 32760 - square / 12)))
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - series)))
    return value, log_x - 0.5 * inverse - series - slope / product


# with error_model="numpy" a division by zero far out gives NaN, which ends a trajectory; an exception would end
# sampling
@njit(nogil=True, error_model="numpy")
def softened(u):
    """Return S(u), log S(u) and its derivative, and log S'(u) and its derivative."""
    if u >= 0.0:
        return 1.0 + u, math.log1p(u), 1.0 / (1.0 + u), 0.0, 0.0
    log_soft = u - 0.5 * u * u
    slope = 1.0 - u
    return math.exp(log_soft), log_soft, slope, log_soft + math.log(slope), slope - 1.0 / slope


@njit(cache=True, nogil=True, error_model="numpy")
def softened_at(soft):
    """Return the u at which S(u) has a given value."""
    if soft >= 1.0:
        return soft - 1.0
    return 1.0 - math.sqrt(1.0 - 2.0 * math.log(soft))


@njit(nogil=True, error_model="numpy")
def row_coordinates(shapes, floor, row_starts, shift, scale, center):
    """Return the map from v to u: u at v = 0, w, targets t, and half the sum of log w."""
    origin = np.empty_like(shift)
    share = np.empty_like(shift)
    target = np.empty_like(shift)
    log_jacobian = 0.0
    for row in range(row_starts.size - 1):
        start = row_starts[row]
        stop = row_starts[row + 1]
        mass = 0.0
        for i in range(start, stop):
            mass += shapes[i]
        for i in range(start, stop):
            target[i] = softened_at(center[row] * shapes[i] / (mass * scale[i]))
            slope = softened(target[i])[2]
            share[i] = 1.0 / (1.0 + (shapes[i] - floor[i]) * slope * slope)
            origin[i] = share[i] * shift[i] + (1.0 - share[i]) * target[i]
            log_jacobian += 0.5 * math.log(share[i])
    return origin, share, target, log_jacobian


@njit(nogil=True, error_model="numpy", **INNER)
def row_coordinates_pullback(
    by_u, by_density, position, shapes, floor, row_starts, shift, share, target
):
    """Return the derivatives with respect to v and α, given those with respect to u and the log density."""
    by_position = np.empty_like(by_u)
    by_shapes = np.zeros_like(by_u)
    for row in range(row_starts.size - 1):
        start = row_starts[row]
        stop = row_starts[row + 1]
        mass = 0.0
        pull = 0.0
        for i in range(start, stop):
            mass += shapes[i]
        for i in range(start, stop):
            root = math.sqrt(share[i])
            by_position[i] = by_u[i] * root
            _, _, slope, _, second = softened(target[i])
            by_share = by_u[i] * (shift[i] - target[i] + 0.5 * position[i] / root)
            by_share += 0.5 * by_density / share[i]
            by_ratio = -by_share * share[i] * share[i]  # derivative with respect to 1/w - 1
            by_slope = 2.0 * by_ratio * (shapes[i] - floor[i]) * slope
            by_target = by_u[i] * (1.0 - share[i]) + by_slope * slope * (second - slope)
            by_log = by_target / slope
            by_shapes[i] += by_ratio * slope * slope + by_log / shapes[i]
            pull += by_log / mass
        for i in range(start, stop):
            by_shapes[i] -= pull
    return by_position, by_shapes


@njit(nogil=True, error_model="numpy")
def row_weights(u, shapes, row_starts, scale, log_scale, freedom, center):
    """Return weights, log density at u, slopes of the weights, and the log density's derivatives by u and by α."""
    weights = np.empty_like(u)
    slopes = np.empty_like(u)
    by_u = np.empty_like(u)
    by_shapes = np.empty_like(u)
    log_density = 0.0
    alpha = 0.0
    of_alpha = 0.0
    psi = 0.0
    for row in range(row_starts.size - 1):
        start = row_starts[row]
        stop = row_starts[row + 1]
        mass = 0.0
        whole = 0.0
        log_centre = math.log(center[row])
        for i in range(start, stop):
            # weight of the cell, and its terms of the density
            soft, log_soft, soft_slope, log_slope, second = softened(u[i])
            weights[i] = scale[i] * soft
            slopes[i] = weights[i] * soft_slope
            by_u[i] = (shapes[i] - 1.0) * soft_slope + second
            by_shapes[i] = log_soft + log_scale[i] - log_centre
            log_density += log_slope - log_soft + shapes[i] * by_shapes[i]
            whole += weights[i]
            mass += shapes[i]
        # density of G / G_0 and its derivative, by the difference of G / G_0 from 1: κ may be very large
        whole /= center[row]
        kappa = freedom[row] + mass
        beyond = whole - 1.0
        of_mass, psi_of_mass = log_gamma(mass)
        of_kappa, psi_of_kappa = log_gamma(kappa)
        log_kappa = math.log(kappa)
        # κ log κ - κ - log Γ(κ), by Stirling's series where the difference would lose digits
        rest = kappa * (log_kappa - 1.0) - of_kappa
        if kappa > 1e4:
            rest = 0.5 * log_kappa - _HALF_LOG_2_PI - 1.0 / (12.0 * kappa)
        log_density += freedom[row] * (math.log1p(beyond) - beyond) - mass * beyond + of_mass + rest
        factor = -(freedom[row] * beyond / whole + mass) / center[row]
        by_mass = psi_of_mass - psi_of_kappa + log_kappa - beyond
        for i in range(start, stop):
            if shapes[i] != alpha:  # neighboring cells often have the same shape
                alpha = shapes[i]
                of_alpha, psi = log_gamma(alpha)
            log_density -= of_alpha
            by_u[i] += factor * slopes[i]
            by_shapes[i] += by_mass - psi
    return weights, log_density, slopes, by_u, by_shapes
