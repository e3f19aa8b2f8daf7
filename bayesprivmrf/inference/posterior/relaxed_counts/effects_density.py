r"""Compiled density of the log-linear formulation; the module `density` describes its interface.

The sampler's position consists of z, whose last entry belongs to a private N, and of v, from which a learned log τ
follows. Latent numbers are the counts of the model's possible cells, N, θ' and log τ.

`stretch` maps whitened positions to latent coordinates, scales and total. Its formulas are those of `whitening` and
`latent_prior`:

.. math:: \log τ = \log \hat τ + R v, \qquad r_g = \frac{\hat τ_g^2 + c_g}{τ_g^2 + c_g}, \qquad
          x = B \Bigl[\frac{(λ + 1) \hat u}{λ + r} + \frac{K z}{\sqrt{λ + r}}\Bigr].

θ' is x; if N is private, the last entry ξ of x is not part of θ', and
:math:`\log N = l + (h - l)\, \operatorname{logistic}(c + ξ)`. The log density is that of (z, v) under the prior of
(θ', τ, N), up to a constant. `stretch_pullback` is its derivative, written by hand.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, arrays_at, put
from bayesprivmrf.inference.posterior.effects_engine import PlanData, marginals_at, pull_back
from bayesprivmrf.inference.posterior.latent_prior import log_uniform
from bayesprivmrf.inference.posterior.relaxed_counts.density import (
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
from bayesprivmrf.inference.posterior.whitening import ANY_ORDER, add_product
from bayesprivmrf.model.tables import FloatArray, IntArray

# types of the two arrays of `Blocks`, and of all arrays that `_visit` takes apart
BLOCKS = (I1, F1)
KINDS = (
    *LATENT, *BLOCKS, *BLOCKS, *BLOCKS, *BLOCKS, *BLOCKS, *BLOCKS, *BLOCKS,
    F1, F1, F1, F1, I1, I1, F1, F1, F1, F1,
    I1, F1, I1, H1, I1, I1, I1, I1, B1, F1, I1, I1, F1, I1, I1, F2, *NOISE,
)  # fmt: skip


@njit(nogil=True, error_model="numpy", **INNER)
def log_product(factors):
    """Return the sum of the logarithms of positive numbers, with a logarithm for each product in a safe range."""
    total = 0.0
    product = 1.0
    for k in range(factors.size):
        product *= factors[k]
        if not 1e-100 < product < 1e100:
            total += math.log(product)
            product = 1.0
    return total + math.log(product)


@njit(nogil=True, error_model="numpy", fastmath=ANY_ORDER, **INNER)
def inner(one, other):
    """Return the inner product of two vectors."""
    total = 0.0
    for k in range(one.size):
        total += one[k] * other[k]
    return total


@njit(nogil=True, error_model="numpy", fastmath=ANY_ORDER, **INNER)
def total_of(values):
    """Return the sum of a vector."""
    total = 0.0
    for k in range(values.size):
        total += values[k]
    return total


class Stretching(NamedTuple):
    """Arrays that `stretch` reads, beside the position.

    Parameters
    ----------
    basis, turned_basis, mixing, turned_mixing
        Matrices of `BlockWhitening` and their transposes, each two arrays as in `Blocks`.
    root, turned_root, hyper
        R, its transpose, and the prior precision of log τ, each as in `Blocks`; not used if τ is fixed.
    information, pulled
        Fields of `BlockWhitening`.
    scale
        Preliminary log τ.
    total
        Preliminary log N, which is log N itself if N is public. A private N adds the ends l and h, and c.
    bounds
        Runs of coordinates with the same scale and sampling variance: where each begins, and the end of the last.
    levels, variance
        Scale and sampling variance of each run.
    scatter
        c of each scale: mean sampling variance over its coordinates, over the preliminary N.
    expected
        Prior mean of log τ.
    excess
        κ, shape (1,).
    """

    basis: Any
    turned_basis: Any
    mixing: Any
    turned_mixing: Any
    root: Any
    turned_root: Any
    hyper: Any
    information: FloatArray
    pulled: FloatArray
    scale: FloatArray
    total: FloatArray
    bounds: IntArray
    levels: IntArray
    variance: FloatArray
    scatter: FloatArray
    expected: FloatArray
    excess: FloatArray


class Stretched(NamedTuple):
    """Results of `stretch` at one position."""

    moved: FloatArray  # x
    log_scale: FloatArray  # log τ
    log_total: float  # log N
    log_density: float  # of the position
    squares: FloatArray  # τ²
    mixed: FloatArray  # K z
    shrink: FloatArray  # 1 / sqrt(λ + r)
    relative: FloatArray  # r


class Derivatives(NamedTuple):
    """Derivatives of a function with respect to the first four results of `stretch`."""

    by_coordinates: FloatArray
    by_log_scale: FloatArray
    by_log_total: float
    by_density: float


@njit(nogil=True, error_model="numpy", **INNER)
def stretch(position, given):
    """Return the latent coordinates, scales and total at a position; `given` is a `Stretching`."""
    pulled = given.pulled
    scale = given.scale
    total = given.total
    bounds = given.bounds
    levels = given.levels
    scatter = given.scatter
    place = position[: pulled.size]
    own = position[pulled.size :]
    log_scale = scale.copy()
    if own.size:
        add_product(given.root, own, log_scale)
    # r, the ratio of the prior precision of each entry to that at the preliminary scales; 1 for that of N
    squares = np.exp(2.0 * log_scale)
    relative = np.ones(pulled.size)
    for g in range(levels.size):
        level = levels[g]
        ratio = (math.exp(2.0 * scale[level]) + scatter[level]) / (squares[level] + scatter[level])
        for k in range(bounds[g], bounds[g + 1]):
            relative[k] = ratio
    # x, by the map of `whitening`, and log N
    precision = given.information + relative
    shrink = 1.0 / np.sqrt(precision)
    mixed = place.copy()
    moved = np.zeros(pulled.size)
    add_product(given.mixing, place, mixed)
    add_product(given.basis, shrink * (shrink * pulled + mixed), moved)
    log_density = -0.5 * log_product(precision)
    log_total = total[0]
    if total.size > 1:
        log_total, place_density, _, _ = log_uniform(total[3] + moved[-1], total[1], total[2])
        log_density += place_density
    # normal prior of θ', with the variance (τ² + v / N) / (1 + κ / N)² of each coordinate
    inverse = math.exp(-log_total)
    factor = 1.0 + given.excess[0] * inverse
    for g in range(levels.size):
        spread = squares[levels[g]] + inverse * given.variance[g]
        run = moved[bounds[g] : bounds[g + 1]]
        log_density -= 0.5 * (
            run.size * math.log(spread) + factor * factor * inner(run, run) / spread
        )
    log_density += bounds[-1] * math.log(factor)
    if own.size:
        gap = log_scale - given.expected
        pull = np.zeros(scale.size)
        add_product(given.hyper, gap, pull)
        log_density -= 0.5 * inner(gap, pull)
    return Stretched(moved, log_scale, log_total, log_density, squares, mixed, shrink, relative)


@njit(nogil=True, error_model="numpy", **INNER)
def stretch_pullback(by, at, position, given):
    """Return the derivative with respect to the position.

    Parameters
    ----------
    by, at
        `Derivatives`, and what `stretch` returned.
    position, given
        Arguments of `stretch`.
    """
    by_density = by.by_density
    moved = at.moved
    log_scale = at.log_scale
    log_total = at.log_total
    squares = at.squares
    mixed = at.mixed
    shrink = at.shrink
    relative = at.relative
    pulled = given.pulled
    total = given.total
    bounds = given.bounds
    levels = given.levels
    scatter = given.scatter
    inverse = math.exp(-log_total)
    size = bounds[-1]
    factor = 1.0 + given.excess[0] * inverse
    by_scale = by.by_log_scale.copy()
    by_inverse = 0.0
    by_factor = by_density * size / factor
    by_moved = np.zeros(pulled.size)
    # normal prior of each run: derivatives with respect to its coordinates, its scale and N
    for g in range(levels.size):
        square = squares[levels[g]]
        start = bounds[g]
        end = bounds[g + 1]
        spread = square + inverse * given.variance[g]
        run = moved[start:end]
        by_run = by_moved[start:end]
        slope = by_density * factor / spread
        sum_of_squares = inner(run, run)
        by_spread = 0.5 * (slope * factor * sum_of_squares - by_density * run.size) / spread
        by_scale[levels[g]] += 2.0 * square * by_spread
        by_inverse += given.variance[g] * by_spread
        by_factor -= slope * sum_of_squares
        for i in range(run.size):
            by_run[i] = by.by_coordinates[start + i] - slope * factor * run[i]
    if total.size > 1:
        _, _, by_place, density_by_place = log_uniform(total[3] + moved[-1], total[1], total[2])
        slope = by.by_log_total - inverse * (by_inverse + given.excess[0] * by_factor)
        by_moved[-1] = slope * by_place + by_density * density_by_place
    # whitening: derivatives with respect to K z, z and log r
    by_mixed = np.zeros(pulled.size)
    gradient = np.empty(position.size)
    add_product(given.turned_basis, by_moved, by_mixed)
    by_mixed *= shrink
    by_place = gradient[: pulled.size]
    own = gradient[pulled.size :]
    put(by_place, by_mixed)
    add_product(given.turned_mixing, by_mixed, by_place)
    by_ratio = (
        relative * shrink * shrink * (by_mixed * (shrink * pulled + 0.5 * mixed) + 0.5 * by_density)
    )
    for g in range(levels.size):
        level = levels[g]
        by_run = by_ratio[bounds[g] : bounds[g + 1]]
        by_scale[level] += (
            total_of(by_run) * 2.0 * squares[level] / (squares[level] + scatter[level])
        )
    if own.size:
        add_product(given.hyper, by_density * (given.expected - log_scale), by_scale)
        own[:] = 0.0
        add_product(given.turned_root, by_scale, own)
    return gradient


@njit(nogil=True, error_model="numpy", **INNER)
def _visit(position, is_forward, by_latent, by_prior, arrays):
    """Return the latent numbers, log prior density, log likelihood and gradient for a task of `density`.

    The arrays are the arguments of `stretch`, the model's possible cells, μ(0), the data of the plan, and the noise.
    """
    blocks = (
        arrays[:2],
        arrays[2:4],
        arrays[4:6],
        arrays[6:8],
        arrays[8:10],
        arrays[10:12],
        arrays[12:14],
    )
    stretching = (*blocks, *arrays[14:24])
    given = Stretching(*stretching)
    cells = arrays[24]
    uniform = arrays[25]
    data = PlanData(*arrays[26:40])
    # forward: whitened position -> θ', τ, N -> μ(θ') -> counts n = (N + κ) μ - κ μ(0)
    at = stretch(position, given)
    log_scale = at.log_scale
    prior = at.log_density
    excess = given.excess[0]
    coordinates = at.moved[: given.bounds[-1]]
    total = math.exp(at.log_total)
    mu, _, state = marginals_at(coordinates, data)
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
        likelihood, by_latent = log_likelihood(latent, *arrays[40:])
    # backward: derivatives by counts -> by μ and N -> by θ' (Σ times the derivative by μ) -> by position
    by_mu = np.zeros(mu.size)
    by_total = by_latent[size]
    for k in range(size):
        by_mu[cells[k]] = (total + excess) * by_latent[k]
        by_total += mu[cells[k]] * by_latent[k]
    by_coordinates = by_latent[size + 1 : size + 1 + coordinates.size] + pull_back(
        state, by_mu, data
    )
    by = Derivatives(
        by_coordinates, by_latent[size + 1 + coordinates.size :], by_total * total, by_prior
    )
    gradient = stretch_pullback(by, at, position, given)
    return latent, prior, likelihood, gradient


def visit_effects(size, position, gradient, value, where):
    """Evaluate the density for C; the module `density` describes the arguments."""
    arrays = arrays_at(where, KINDS)
    found = _visit(*task_of(arrays, size, position, value), arrays[2:])
    return finished(found, arrays, size, gradient, value)
