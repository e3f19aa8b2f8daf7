r"""Compiled density of the hyper-Dirichlet formulation; the module `density` describes its interface.

The sampler's position consists of v of the rows (`rows`), ξ of a private N, and the position of the shapes' prior
(`shape_prior`) after the reflection `turned`. Latent numbers are the counts of the model's possible cells and of the
forest's inner cells, N, and α of the same cells.

**Counts from probabilities.** Take a row with the total M and with Dirichlet(α_1, ..., α_R) probabilities. With the
probabilities integrated out, its counts n are Dirichlet-multinomial. With the mass :math:`A = \sum_i α_i` and the
means :math:`a = α / A`,

.. math:: E[n] = M a, \qquad
          \operatorname{cov}(n) = \frac{M (M + A)}{1 + A} \bigl(\operatorname{diag}(a) - a a'\bigr).

A point r of the simplex with that Dirichlet distribution has the mean a and the covariance
:math:`(\operatorname{diag}(a) - a a') / (1 + A)`. Therefore

.. math:: n = M a + \sqrt{M (M + A)}\,(r - a)

has the exact sum, means, variances and covariances of the counts at every M ≥ 0 and every α. For α = 1 and large M it
is the continuity correction that gives each whole number half a unit on either side. The probabilities are computed
from weights, :math:`r = g / \sum_i g_i` (`rows`).

The total of a child row is a sum of relaxed counts, and may be negative by at most half of the sum of their α. The
true total is then 0, and the counts of the row go to 0 smoothly. With c = A/2 and δ = min(0.17, c/2) records,

.. math:: n = M^* a + \sqrt{V}\,(r - a), \qquad
          \begin{cases} M^* = M, & V = M (M + 2c) + c δ e^{-M/δ} & M ≥ 0 \\
          M^* = c\,(e^{M/c} - 1), & V = c δ e^{M/δ} & M < 0, \end{cases}

which is continuous and has a continuous derivative. It adds less than 0.05 records squared to the variance of a cell,
and only near M = 0. It also satisfies :math:`\sqrt{V} < M^* + c`, so every :math:`n_i > -α_i/2`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, arrays_at, put
from bayesprivmrf.inference.posterior.latent_prior import log_uniform
from bayesprivmrf.inference.posterior.relaxed_counts.density import (
    F1,
    I1,
    LATENT,
    NOISE,
    finished,
    log_likelihood,
    task_of,
)
from bayesprivmrf.inference.posterior.relaxed_counts.rows import (
    row_coordinates,
    row_coordinates_pullback,
    row_weights,
)
from bayesprivmrf.inference.posterior.shape_prior import (
    ShapeData,
    row_shapes,
    row_shapes_pullback,
    turned,
)

# types of the arrays that `_visit` takes apart
KINDS = (
    *LATENT, I1, I1, I1, I1, F1, I1, I1, I1, I1, I1, F1, I1, I1, F1, F1, F1, F1, F1, F1, *NOISE,
)  # fmt: skip
# δ, records over which the spread of a row goes to 0; it adds less than 0.05 records squared to a cell's variance
_SOFTNESS = 0.17


# with error_model="numpy" a division by zero far out gives NaN, which ends a trajectory; an exception would end
# sampling
@njit(nogil=True, error_model="numpy", **INNER)
def _spread(margin, mass):
    """Return √V of a row, and its derivatives with respect to the margin M and the mass A."""
    softness = min(_SOFTNESS, 0.25 * mass)
    tail = 0.5 * mass * softness * math.exp(-abs(margin) / softness)
    # for a small mass the softness depends on it too
    tail_by_mass = 0.5 * softness * math.exp(-abs(margin) / softness)
    if 0.25 * mass < _SOFTNESS:
        tail_by_mass += 0.25 * tail / softness * (1.0 + abs(margin) / softness)
    if margin >= 0.0:
        square = margin * (margin + mass) + tail
        by_margin = 2 * margin + mass
        by_mass = margin
        by_margin -= tail / softness
    else:
        square = tail
        by_margin = tail / softness
        by_mass = 0.0
    value = math.sqrt(square)
    if value < 1e-100:
        return value, 0.0, 0.0
    return value, 0.5 * by_margin / value, 0.5 * (by_mass + tail_by_mass) / value


@njit(nogil=True, error_model="numpy", **INNER)
def _bent(margin, mass):
    """Return M*, which is above -A/2 for negative M, and its derivatives by the margin M and by the mass A."""
    if margin >= 0.0:
        return margin, 1.0, 0.0
    bound = 0.5 * mass
    power = math.exp(margin / bound)
    return bound * (power - 1.0), power, 0.5 * (power - 1.0 - power * margin / bound)


@njit(nogil=True, error_model="numpy", **INNER)
def _margin(row, total, counts, source_starts, sources):
    """Return the total of a row: N for a root, otherwise the sum of the parent's cells."""
    if source_starts[row] == source_starts[row + 1]:
        return total
    margin = 0.0
    for k in range(source_starts[row], source_starts[row + 1]):
        margin += counts[sources[k]]
    return margin


@njit(nogil=True, error_model="numpy")
def row_counts(weights, total, shapes, row_starts, source_starts, sources):
    """Return the counts of the possible cells, in the order of ``forest.cells``, given weights, N and α."""
    counts = np.empty_like(weights)
    for row in range(row_starts.size - 1):
        start = row_starts[row]
        stop = row_starts[row + 1]
        whole = 0.0
        mass = 0.0
        for i in range(start, stop):
            whole += weights[i]
            mass += shapes[i]
        margin = _margin(row, total, counts, source_starts, sources)
        # n = M* a + √V (r - a)
        mean = _bent(margin, mass)[0]
        spread = _spread(margin, mass)[0]
        for i in range(start, stop):
            share = shapes[i] / mass
            counts[i] = mean * share + spread * (weights[i] / whole - share)
    return counts


@njit(nogil=True, error_model="numpy")
def row_counts_pullback(
    counts, by_counts, weights, total, shapes, row_starts, source_starts, sources
):
    """Return the derivatives with respect to the weights, N and α, given those with respect to the counts."""
    # children come after their parents, so the derivative of a parent's cell is complete when its row is reached
    flow = by_counts.copy()
    by_weights = np.empty_like(weights)
    by_shapes = np.empty_like(weights)
    by_total = 0.0
    for row in range(row_starts.size - 2, -1, -1):
        start = row_starts[row]
        stop = row_starts[row + 1]
        whole = 0.0
        mass = 0.0
        drawn = 0.0
        even = 0.0
        for i in range(start, stop):
            whole += weights[i]
            mass += shapes[i]
            drawn += flow[i] * weights[i]
            even += flow[i] * shapes[i]
        drawn = drawn / whole
        even = even / mass
        margin = _margin(row, total, counts, source_starts, sources)
        spread, spread_by_margin, spread_by_mass = _spread(margin, mass)
        mean, mean_by_margin, mean_by_mass = _bent(margin, mass)
        # through M* and √V to the margin and the mass
        by_margin = even * mean_by_margin + (drawn - even) * spread_by_margin
        by_mass = even * mean_by_mass + (drawn - even) * spread_by_mass
        for i in range(start, stop):
            by_weights[i] = spread * (flow[i] - drawn) / whole
            by_shapes[i] = by_mass + (mean - spread) * (flow[i] - even) / mass
        # the margin is N for a root, otherwise a sum of the parent's cells
        if source_starts[row] == source_starts[row + 1]:
            by_total += by_margin
        for k in range(source_starts[row], source_starts[row + 1]):
            flow[sources[k]] += by_margin
    return by_weights, by_total, by_shapes


@njit(nogil=True, error_model="numpy", **INNER)
def _visit(position, is_forward, by_latent, by_prior, arrays):
    """Return the latent numbers, log prior density, log likelihood and gradient for a task of `density`.

    The arrays are row starts, source starts and sources of the junction forest; position in ``forest.cells`` of each
    possible cell of the model, then of each inner cell; data of the shapes' prior; the results of `row_weights_data`;
    N if it is public, otherwise the ends of log N, and c and w of its logistic position c + w ξ; and the noise.
    """
    row_starts, source_starts, sources, order = arrays[:4]
    prior_data = ShapeData(*arrays[4:13])
    given = arrays[18]
    cells = order.size
    first = cells + (given.size > 1)  # where the position of the shapes begins
    total = given[0]
    prior = 0.0
    by_place = 0.0
    prior_by_place = 0.0
    if given.size > 1:
        log_total, prior, by_place, prior_by_place = log_uniform(
            given[2] + given[3] * position[cells], given[0], given[1]
        )
        total = math.exp(log_total)
        prior = prior + math.log(given[3])
    # forward: positions -> shapes α -> weights g of the rows -> counts
    of_shapes = turned(position[first:], prior_data)
    shapes, shapes_density = row_shapes(of_shapes, prior_data)
    shift, scale, log_scale, freedom, center = arrays[13:18]
    floor = prior_data.fixed
    origin, share, target, log_jacobian = row_coordinates(
        shapes, floor, row_starts, shift, scale, center
    )
    weights, log_density, slopes, prior_by_u, prior_by_shapes = row_weights(
        origin + np.sqrt(share) * position[:cells],
        shapes,
        row_starts,
        scale,
        log_scale,
        freedom,
        center,
    )
    prior += log_density + log_jacobian + shapes_density
    counts = row_counts(weights, total, shapes, row_starts, source_starts, sources)
    latent = np.empty(2 * cells + 1)
    latent[cells] = total
    for k in range(cells):
        latent[k], latent[cells + 1 + k] = counts[order[k]], shapes[order[k]]
    if is_forward:
        return latent, prior, 0.0, np.empty(0)
    likelihood = 0.0
    if by_latent.size == 0:
        likelihood, by_latent = log_likelihood(latent, *arrays[19:])
    # backward: derivatives by counts -> by weights, N and α -> by positions
    by_counts = np.empty(cells)
    gradient = np.empty(position.size)
    for k in range(cells):
        by_counts[order[k]] = by_latent[k]
    by_weights, by_total, by_shapes = row_counts_pullback(
        counts, by_counts, weights, total, shapes, row_starts, source_starts, sources
    )
    for k in range(cells):
        by_shapes[order[k]] += by_latent[cells + 1 + k]
    by_rows, by_their_shapes = row_coordinates_pullback(
        by_weights * slopes + by_prior * prior_by_u, by_prior, position[:cells], shapes, floor, row_starts, shift,
        share, target,
    )  # fmt: skip
    put(gradient[:cells], by_rows)
    by_shapes += by_prior * prior_by_shapes + by_their_shapes
    if given.size > 1:
        by_log_total = (by_total + by_latent[cells]) * total
        gradient[cells] = given[3] * (by_log_total * by_place + by_prior * prior_by_place)
    by_their_own = row_shapes_pullback(of_shapes, prior_data, shapes, by_shapes, by_prior)
    put(gradient[first:], turned(by_their_own, prior_data))
    return latent, prior, likelihood, gradient


def visit_forest(size, position, gradient, value, where):
    """Evaluate the density for C; the module `density` describes the arguments."""
    arrays = arrays_at(where, KINDS)
    found = _visit(*task_of(arrays, size, position, value), arrays[2:])
    return finished(found, arrays, size, gradient, value)
