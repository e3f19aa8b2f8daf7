r"""Latent counts of a junction forest's rows as a smooth function of their probabilities, compiled.

A row whose total is M and whose probabilities are Dirichlet(α_1, ..., α_R) has, once the probabilities are integrated
out, Dirichlet-multinomial counts n. With the mass :math:`A = \sum_i α_i` and the means :math:`a = α / A`,

.. math:: E[n] = M a, \qquad
          \operatorname{cov}(n) = \frac{M (M + A)}{1 + A} \bigl(\operatorname{diag}(a) - a a'\bigr).

A point r of the simplex with that Dirichlet law has mean a and covariance
:math:`(\operatorname{diag}(a) - a a') / (1 + A)`, so that

.. math:: n = M a + \sqrt{M (M + A)}\,(r - a)

has the exact sum, means, variances and covariances of the counts at every M ≥ 0 and every α.
For α = 1 and large M it is the continuity correction that gives each whole number the half to either side. r comes as
weights, :math:`r = g / \sum_i g_i` (`rows`).

The total of a row below another is a sum of relaxed counts and may be negative, at worst by half their α's sum.
There the true total is zero, and the row goes to zero smoothly. With c = A/2 and δ = min(0.17, c/2) records,

.. math:: n = M^* a + \sqrt{V}\,(r - a), \qquad
          \begin{cases} M^* = M, & V = M (M + 2c) + c δ e^{-M/δ} & M ≥ 0 \\
          M^* = c\,(e^{M/c} - 1), & V = c δ e^{M/δ} & M < 0, \end{cases}

which is continuous with its derivative, adds to the variance of a cell less than 0.05 records squared,
close to M = 0 only, and has :math:`\sqrt{V} < M^* + c`, so that every :math:`n_i > -α_i/2`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER

_SOFTNESS = 0.17
"""Records: how softly a row's spread goes to zero with its total."""


# far out, a number that is none ends a trajectory; an exception would end the sampling
@njit(nogil=True, error_model="numpy", **INNER)
def _spread(margin, mass):
    """√ of the row's spread, and its derivatives by the margin and by the mass A."""
    softness = min(_SOFTNESS, 0.25 * mass)
    tail = 0.5 * mass * softness * math.exp(-abs(margin) / softness)
    # the softness itself moves with the mass where that is small
    tail_by_mass = 0.5 * softness * math.exp(-abs(margin) / softness)
    if 0.25 * mass < _SOFTNESS:
        tail_by_mass += 0.25 * tail / softness * (1.0 + abs(margin) / softness)
    if margin >= 0.0:
        square, by_margin, by_mass = margin * (margin + mass) + tail, 2 * margin + mass, margin
        by_margin -= tail / softness
    else:
        square, by_margin, by_mass = tail, tail / softness, 0.0
    value = math.sqrt(square)
    if value < 1e-100:
        return value, 0.0, 0.0
    return value, 0.5 * by_margin / value, 0.5 * (by_mass + tail_by_mass) / value


@njit(nogil=True, error_model="numpy", **INNER)
def _bent(margin, mass):
    """The margin, bent above -A/2 where it is negative, and its derivatives by the margin and by the mass A."""
    if margin >= 0.0:
        return margin, 1.0, 0.0
    bound = 0.5 * mass
    power = math.exp(margin / bound)
    return bound * (power - 1.0), power, 0.5 * (power - 1.0 - power * margin / bound)


@njit(nogil=True, error_model="numpy", **INNER)
def _margin(row, total, counts, source_starts, sources):
    """A row's total: N, or the sum of its parent's cells."""
    if source_starts[row] == source_starts[row + 1]:
        return total
    margin = 0.0
    for k in range(source_starts[row], source_starts[row + 1]):
        margin += counts[sources[k]]
    return margin


@njit(nogil=True, error_model="numpy")
def row_counts(weights, total, shapes, row_starts, source_starts, sources):
    """Counts of the possible cells, in the order of ``forest.cells``, from weights, N and α."""
    counts = np.empty_like(weights)
    for row in range(row_starts.size - 1):
        start, stop = row_starts[row], row_starts[row + 1]
        whole, mass = 0.0, 0.0
        for i in range(start, stop):
            whole += weights[i]
            mass += shapes[i]
        margin = _margin(row, total, counts, source_starts, sources)
        mean, spread = _bent(margin, mass)[0], _spread(margin, mass)[0]
        for i in range(start, stop):
            share = shapes[i] / mass
            counts[i] = mean * share + spread * (weights[i] / whole - share)
    return counts


@njit(nogil=True, error_model="numpy")
def row_counts_pullback(counts, by_counts, weights, total, shapes, row_starts, source_starts, sources):
    """Derivatives by the weights, by N and by α, from those by the counts."""
    flow = by_counts.copy()
    by_weights, by_shapes, by_total = np.empty_like(weights), np.empty_like(weights), 0.0
    for row in range(row_starts.size - 2, -1, -1):
        start, stop = row_starts[row], row_starts[row + 1]
        whole, mass, drawn, even = 0.0, 0.0, 0.0, 0.0
        for i in range(start, stop):
            whole += weights[i]
            mass += shapes[i]
            drawn += flow[i] * weights[i]
            even += flow[i] * shapes[i]
        drawn, even = drawn / whole, even / mass
        margin = _margin(row, total, counts, source_starts, sources)
        spread, spread_by_margin, spread_by_mass = _spread(margin, mass)
        mean, mean_by_margin, mean_by_mass = _bent(margin, mass)
        by_margin = even * mean_by_margin + (drawn - even) * spread_by_margin
        by_mass = even * mean_by_mass + (drawn - even) * spread_by_mass
        for i in range(start, stop):
            by_weights[i] = spread * (flow[i] - drawn) / whole
            by_shapes[i] = by_mass + (mean - spread) * (flow[i] - even) / mass
        if source_starts[row] == source_starts[row + 1]:
            by_total += by_margin
        for k in range(source_starts[row], source_starts[row + 1]):
            flow[sources[k]] += by_margin
    return by_weights, by_total, by_shapes
