"""The compiled density of the hyper-Dirichlet formulation: see `density`.

Positions: the rows' v (`rows`), then ξ of a private N, then those of the shapes' prior (`shape_prior`),
turned. Latent numbers: counts of the model's possible cells and of the forest's inner ones, N, and α of the same
cells.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types

from bayesprivmrf.compiled import INNER, carray, pointer, put, vector_at
from bayesprivmrf.inference.posterior.log_uniform import log_uniform
from bayesprivmrf.inference.posterior.relaxed.density import (
    FIRST,
    FORWARD,
    POSTERIOR,
    PULLBACK,
    compiled_visit,
    finished,
)
from bayesprivmrf.inference.posterior.relaxed.noisy_tables import log_likelihood
from bayesprivmrf.inference.posterior.relaxed.row_counts import row_counts, row_counts_pullback
from bayesprivmrf.inference.posterior.relaxed.rows import (
    row_coordinates,
    row_coordinates_pullback,
    row_weights,
)
from bayesprivmrf.inference.posterior.shape_prior import (
    ShapeTape,
    row_shapes,
    row_shapes_pullback,
    turned,
)
from bayesprivmrf.model.tables import FloatArray, IntArray

KINDS = "i1 i1 i1 i1 f1 i1 i1 i1 i1 i1 f1 i1 f1 f1 f1 f1 f1 f1 i1 i1 f1 f1 f1 f1 f1 f1"
"""The arrays of `RowData` and of the noise, as `Density` checks them."""


class RowData(NamedTuple):
    """The arguments of the density besides the noisy tables, in the order in which it takes it.

    Parameters
    ----------
    row_starts, source_starts, sources
        Those of the junction forest.
    order
        Where each of the model's possible cells is in ``forest.cells``, then each inner one.
    shapes
        The tape of the shapes' prior.
    shift, scale, log_scale, freedom, centre
        Those of `row_weights_data`.
    total
        N where it is public; else the low and high end of log N, and c and w of its logistic position c + w ξ.
    """

    row_starts: IntArray
    source_starts: IntArray
    sources: IntArray
    order: IntArray
    shapes: ShapeTape
    shift: FloatArray
    scale: FloatArray
    log_scale: FloatArray
    freedom: FloatArray
    centre: FloatArray
    total: FloatArray


_REAL, _WHOLE = types.float64, types.int64


@njit(nogil=True, error_model="numpy", **INNER)
def _visit(task, position, by_latent, by_prior, rows, noise):
    row_starts, source_starts, sources, order, prior_tape = rows[:5]
    cells, given = order.size, rows[10]
    first = cells + (given.size > 1)  # of the positions of the shapes
    total, prior, by_place, prior_by_place = given[0], 0.0, 0.0, 0.0
    if given.size > 1:
        log_total, prior, by_place, prior_by_place = log_uniform(
            given[2] + given[3] * position[cells], given[0], given[1]
        )
        total, prior = math.exp(log_total), prior + math.log(given[3])
    of_shapes = turned(position[first:], prior_tape)
    shapes, shapes_density = row_shapes(of_shapes, prior_tape)
    shift, scale, log_scale, freedom, centre = rows[5:10]
    floor = prior_tape.fixed
    origin, share, target, log_jacobian = row_coordinates(shapes, floor, row_starts, shift, scale, centre)
    weights, log_density, slopes, prior_by_u, prior_by_shapes = row_weights(
        origin + np.sqrt(share) * position[:cells], shapes, row_starts, scale, log_scale, freedom, centre
    )
    prior += log_density + log_jacobian + shapes_density
    counts = row_counts(weights, total, shapes, row_starts, source_starts, sources)
    latent = np.empty(2 * cells + 1)
    latent[cells] = total
    for k in range(cells):
        latent[k], latent[cells + 1 + k] = counts[order[k]], shapes[order[k]]
    if task == FORWARD:
        return latent, prior, 0.0, np.empty(0)
    likelihood = 0.0
    if task == POSTERIOR:
        likelihood, by_latent = log_likelihood(latent, *noise)
    by_counts, gradient = np.empty(cells), np.empty(position.size)
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
    by_their_own = row_shapes_pullback(of_shapes, prior_tape, shapes, by_shapes, by_prior)
    put(gradient[first:], turned(by_their_own, prior_tape))
    return latent, prior, likelihood, gradient


def _visit_from_c(size, position, gradient, value, where):
    """Evaluate the density for the task at an address: see `density`."""
    given = carray(where, (1 + 3 * (FIRST + 26),), _WHOLE)
    task, own = given[0], given[1:]
    point = carray(position, (size,), _REAL)
    prior = ShapeTape(
        vector_at(own, 6, _REAL), vector_at(own, 7, _WHOLE), vector_at(own, 8, _WHOLE), vector_at(own, 9, _WHOLE),
        vector_at(own, 10, _WHOLE), vector_at(own, 11, _WHOLE), vector_at(own, 12, _REAL), vector_at(own, 13, _WHOLE),
    )  # fmt: skip
    rows = (
        vector_at(own, 2, _WHOLE), vector_at(own, 3, _WHOLE), vector_at(own, 4, _WHOLE), vector_at(own, 5, _WHOLE),
        prior, vector_at(own, 14, _REAL), vector_at(own, 15, _REAL), vector_at(own, 16, _REAL),
        vector_at(own, 17, _REAL), vector_at(own, 18, _REAL), vector_at(own, 19, _REAL),
    )  # fmt: skip
    noise = (
        vector_at(own, 20, _WHOLE), vector_at(own, 21, _WHOLE), vector_at(own, 22, _REAL), vector_at(own, 23, _REAL),
        vector_at(own, 24, _REAL), vector_at(own, 25, _REAL), vector_at(own, 26, _REAL), vector_at(own, 27, _REAL),
    )  # fmt: skip
    out = carray(value, (1,), _REAL)
    by_latent = carray(pointer(own[3]), (2 * rows[3].size + 1,), _REAL)
    found = _visit(task, point, by_latent, out[0] if task == PULLBACK else 1.0, rows, noise)
    return finished(found, task, given, carray(gradient, (size,), _REAL), out)


@cache
def visit_forest() -> Any:
    """Return the compiled density, loaded from disk or compiled."""
    return compiled_visit(_visit_from_c)
