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

.. math:: g_i = σ_i S(u_i), \qquad S(u) = u Φ(u) + φ(u) = \int_{-\infty}^u Φ,

which is nearly :math:`σ_i u_i` for large u. Its derivative is proportional to the normal distribution function, so a
flat density of g above 0 has a Gaussian left tail in u. Given the release, u is within about 1 of a known shift. If
the shapes are learned, let :math:`e_i = α_i - α_0` be their excess over a floor. Large shapes put :math:`\log g`
within about :math:`1 / \sqrt{α_i}` of that of :math:`G_0 α_i / A`, however little the release says. So the sampler
moves v,

.. math:: u_i = w_i\, \mathrm{shift}_i + (1 - w_i)\, t_i + \sqrt{w_i}\, v_i, \qquad
          S(t_i) = \frac{G_0 α_i}{A σ_i}, \qquad w_i = \bigl(1 + e_i\, (\log S)'(t_i)^2\bigr)^{-1},

which is within about 1 of 0 at every α; the Jacobian is :math:`\prod \sqrt{w_i}`. The shift, σ, κ and G_0 do not
change the distribution of r given α. They may therefore be computed from the noisy tables, and κ may depend on α.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from scipy.special import erfcx, ndtr

from bayesprivmrf.compiled import INNER
from bayesprivmrf.inference.posterior.forest import JunctionForest
from bayesprivmrf.model.tables import FloatArray

# constant of Stirling's formula
_HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)
_FIRST_NODE, _LAST_NODE, _STEP = -30.0, 2.0, 0.125
# number of values of log S(u) between which the inverse of S is interpolated; beyond the last one S(u) is u
_NODES = 257
# κ - A above which the density is computed from G - 1, to avoid cancellation; and its bound, where that loses digits
_PLAIN_FREEDOM, _LARGEST_FREEDOM = 1e10, 1e25


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
    starts, sizes = forest.row_starts[:-1], forest.row_sizes
    positive = np.maximum(counts, 0.0) + shapes
    mean = np.repeat(np.add.reduceat(positive, starts) / sizes, sizes)
    prior_sd = np.maximum(positive, mean) / np.sqrt(np.maximum(shapes, 1.0))
    scale = 1 / np.sqrt(precisions + 1 / prior_sd**2)
    ratio = np.clip(np.where(precisions > 0, counts, mean) / scale, -8.0, None)
    # mean of a normal variable that is truncated to positive values, in units of its scale
    expected = ratio + np.exp(-0.5 * ratio**2) / (math.sqrt(2 * math.pi) * ndtr(ratio))
    freedom = np.add.reduceat((positive / scale) ** 2, starts)
    return (
        inverse_softened(np.log(expected)),
        scale,
        np.log(scale),
        np.minimum(freedom, _LARGEST_FREEDOM),
        np.add.reduceat(scale * expected, starts),
    )


@njit(nogil=True, error_model="numpy", **INNER)
def digamma(x):
    """Return ψ(x) for x > 0, with a relative error of 1e-13."""
    return log_gamma(x)[1]


@njit(nogil=True, error_model="numpy")
def log_gamma(x):
    """Return log Γ(x) and its derivative ψ(x) for x > 0, by Stirling's series above 10 and the recurrence below.

    With the product P = x (x + 1) ... up to 10, the recurrence subtracts log P from log Γ, and P' / P from ψ.
    """
    product, slope = 1.0, 0.0
    while x < 10.0:
        slope = slope * x + product
        product *= x
        x += 1.0
    inverse, log_x = 1.0 / x, math.log(x)
    square = inverse * inverse
    series = square * (1 / 1188 - square * (691 / 360360 - square / 156))
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - series))))
    value = (x - 0.5) * log_x - x + _HALF_LOG_2_PI + series - math.log(product)
    series = square * (1 / 240 - square * (1 / 132 - square * (691 / 32760 - square / 12)))
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - series)))
    return value, log_x - 0.5 * inverse - series - slope / product


@njit(nogil=True, error_model="numpy", **INNER)
def trigamma(x):
    """Return ψ'(x) for x > 0, by its asymptotic series above 10 and the recurrence below."""
    value = 0.0
    while x < 10.0:
        value += 1.0 / (x * x)
        x += 1.0
    inverse = 1.0 / (x * x)
    series = inverse * (
        1 / 6 - inverse * (1 / 30 - inverse * (1 / 42 - inverse * (1 / 30 - inverse * 5 / 66)))
    )
    return value + (1.0 + 0.5 / x + series) / x


# with error_model="numpy" a division by zero far out gives NaN, which ends a trajectory; an exception would end
# sampling
@njit(nogil=True, error_model="numpy")
def softened(u):
    """Return S(u), log S(u) and its derivative, and log Φ(u) and its derivative.

    Far below 0 they are computed by the continued fraction of Mills' ratio, 1 / (x + 1 / (x + 2 / (x + ...))).
    """
    if u > 7.0:  # Φ is 1 within 1e-12
        return u, math.log(u), 1.0 / u, 0.0, 0.0
    if not u <= -5.0:  # NaN comes here too: in the continued fraction its number of terms would be undefined
        below = 0.5 * math.erfc(-u / math.sqrt(2.0))
        density = math.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi)
        soft = u * below + density
        return soft, math.log(soft), below / soft, math.log(below), density / below
    x = -u
    tail = x
    for k in range(
        int(12.0 + 400.0 / (x * x)), 1, -1
    ):  # enough terms to be exact up to rounding, found by trial
        tail = x + k / tail
    mills = tail / (x * tail + 1.0)  # Φ / φ
    log_density = -0.5 * u * u - 0.5 * math.log(2.0 * math.pi)
    log_soft = log_density - math.log(x * tail + 1.0)
    return math.exp(log_soft), log_soft, tail, log_density + math.log(mills), 1.0 / mills


@njit(nogil=True, error_model="numpy", **INNER)
def _newton(log_value):
    """Return the u at which log S(u) has a given value, by Newton's method; log S is increasing and concave."""
    if log_value > _LAST_NODE:  # S(u) is u above 7
        return math.exp(min(log_value, 700.0))
    u = math.exp(log_value) if log_value > 0.0 else -math.sqrt(-2.0 * log_value)
    for _ in range(100):
        _, log_soft, slope, _, _ = softened(u)
        step = (log_value - log_soft) / slope
        u += step
        if abs(step) < 1e-12 * (1.0 + abs(u)):
            break
    return u


def _inverse_nodes() -> FloatArray:
    """Return u and its scaled derivative at the nodes of log S from which the inverse is interpolated.

    Newton's method solves for u, with S = φ (1 + u Φ / φ), and Φ / φ by the scaled complementary error function.
    """
    at = _FIRST_NODE + _STEP * np.arange(_NODES)
    slope = np.ones(_NODES)
    u = np.where(at > 0.0, np.exp(at), -np.sqrt(2.0 * np.abs(at)))
    for _ in range(30):
        mills = math.sqrt(math.pi / 2.0) * erfcx(-u / math.sqrt(2.0))
        log_soft = np.log1p(u * mills) - 0.5 * u * u - _HALF_LOG_2_PI
        slope = mills / (1.0 + u * mills)
        u = u + (at - log_soft) / slope
    return np.stack([u, _STEP / slope], axis=1)


# values and slopes of S⁻¹ at the nodes, shape (nodes, 2)
_INVERSE = _inverse_nodes()


@njit(nogil=True, error_model="numpy", **INNER)
def _softened_at(log_value):
    """Return the u at which log S(u) has a given value, by a cubic between two nodes and one step of Halley's method.

    The cubic has an error of 1e-5, and the step reduces it to about its third power.
    """
    # cubic Hermite interpolation between two nodes
    place = (log_value - _FIRST_NODE) / _STEP
    if not 0.0 <= place < _NODES - 1:
        return _newton(log_value)
    k = int(place)
    t = place - k
    rest = 1.0 - t
    u = rest * rest * ((1.0 + 2.0 * t) * _INVERSE[k, 0] + t * _INVERSE[k, 1])
    u += t * t * ((1.0 + 2.0 * rest) * _INVERSE[k + 1, 0] - rest * _INVERSE[k + 1, 1])
    # one step of Halley's method
    _, log_soft, slope, _, normal_slope = softened(u)
    step = (log_value - log_soft) / slope
    return u + step / (1.0 + 0.5 * step * (normal_slope - slope))


@njit(nogil=True, error_model="numpy")
def row_coordinates(shapes, floor, row_starts, shift, scale, center):
    """Return the map from v to u: u at v = 0, w, targets t with two slopes at them, and half the sum of log w."""
    origin, share, target = np.empty_like(shift), np.empty_like(shift), np.empty((shift.size, 3))
    log_jacobian = 0.0
    for row in range(row_starts.size - 1):
        start, stop = row_starts[row], row_starts[row + 1]
        mass = 0.0
        for i in range(start, stop):
            mass += shapes[i]
        for i in range(start, stop):
            at = _softened_at(math.log(center[row] * shapes[i] / (mass * scale[i])))
            _, _, slope, _, normal_slope = softened(at)
            target[i, 0], target[i, 1], target[i, 2] = at, slope, normal_slope
            share[i] = 1.0 / (1.0 + (shapes[i] - floor[i]) * slope * slope)
            origin[i] = share[i] * shift[i] + (1.0 - share[i]) * at
            log_jacobian += 0.5 * math.log(share[i])
    return origin, share, target, log_jacobian


@njit(nogil=True, error_model="numpy", **INNER)
def row_coordinates_pullback(by_u, by_density, position, shapes, floor, row_starts, shift, share, target):
    """Return the derivatives with respect to v and α, given those with respect to u and the log density."""
    by_position, by_shapes = np.empty_like(by_u), np.zeros_like(by_u)
    for row in range(row_starts.size - 1):
        start, stop = row_starts[row], row_starts[row + 1]
        mass, pull = 0.0, 0.0
        for i in range(start, stop):
            mass += shapes[i]
        for i in range(start, stop):
            root = math.sqrt(share[i])
            by_position[i] = by_u[i] * root
            at, slope, normal_slope = target[i, 0], target[i, 1], target[i, 2]
            by_share = by_u[i] * (shift[i] - at + 0.5 * position[i] / root) + 0.5 * by_density / share[i]
            by_ratio = -by_share * share[i] * share[i]  # derivative with respect to 1/w - 1
            by_slope = 2.0 * by_ratio * (shapes[i] - floor[i]) * slope
            by_target = by_u[i] * (1.0 - share[i]) + by_slope * slope * (normal_slope - slope)
            by_log = by_target / slope
            by_shapes[i] += by_ratio * slope * slope + by_log / shapes[i]
            pull += by_log / mass
        for i in range(start, stop):
            by_shapes[i] -= pull
    return by_position, by_shapes


@njit(nogil=True, error_model="numpy", **INNER)
def _log_less_line(x):
    """Return log(1 + x) - x with full precision, by its series for small x, where the difference would cancel."""
    if abs(x) > 1e-3:
        return math.log1p(x) - x
    return -x * x * (1 / 2 - x * (1 / 3 - x * (1 / 4 - x * (1 / 5 - x / 6))))


@njit(nogil=True, error_model="numpy")
def row_weights(u, shapes, row_starts, scale, log_scale, freedom, center):
    """Return weights, log density at u, slopes of the weights, and the log density's derivatives by u and by α."""
    weights, slopes = np.empty_like(u), np.empty_like(u)
    by_u, by_shapes = np.empty_like(u), np.empty_like(u)
    log_density, alpha, of_alpha, psi = 0.0, 0.0, 0.0, 0.0
    for row in range(row_starts.size - 1):
        start, stop = row_starts[row], row_starts[row + 1]
        mass, whole, log_centre = 0.0, 0.0, math.log(center[row])
        for i in range(start, stop):
            # weight of the cell, and its terms of the density
            soft, log_soft, soft_slope, log_normal, normal_slope = softened(u[i])
            weights[i] = scale[i] * soft
            slopes[i] = weights[i] * soft_slope
            by_u[i] = (shapes[i] - 1.0) * soft_slope + normal_slope
            by_shapes[i] = log_soft + log_scale[i] - log_centre
            log_density += log_normal - log_soft + shapes[i] * by_shapes[i]
            whole += weights[i]
            mass += shapes[i]
        whole /= center[row]
        kappa, log_kappa = freedom[row] + mass, math.log(freedom[row] + mass)
        of_mass, psi_of_mass = log_gamma(mass)
        of_kappa, psi_of_kappa = log_gamma(kappa)
        # density of G / G_0, and its derivative
        if freedom[row] <= _PLAIN_FREEDOM:
            log_density += freedom[row] * math.log(whole) - kappa * (whole - 1.0) + of_mass
            log_density += kappa * (log_kappa - 1.0) - of_kappa
            factor = (freedom[row] / whole - kappa) / center[row]
        else:  # the same density, with Stirling's formula for log Γ(κ)
            beyond = whole - 1.0
            log_density += freedom[row] * _log_less_line(beyond) - mass * beyond + of_mass
            log_density += 0.5 * log_kappa - _HALF_LOG_2_PI
            factor = -(freedom[row] * beyond / whole + mass) / center[row]
        by_mass = psi_of_mass - psi_of_kappa + log_kappa - (whole - 1.0)
        for i in range(start, stop):
            if shapes[i] != alpha:  # neighboring cells often have the same shape
                alpha = shapes[i]
                of_alpha, psi = log_gamma(alpha)
            log_density -= of_alpha
            by_u[i] += factor * slopes[i]
            by_shapes[i] += by_mass - psi
    return weights, log_density, slopes, by_u, by_shapes


@njit(cache=True, nogil=True, error_model="numpy")
def inverse_softened(log_values):
    """Return the u at which log S(u) has the given values."""
    result = np.empty_like(log_values)
    for i in range(log_values.size):
        result[i] = _newton(log_values[i])
    return result
