"""The compiled density of the log-linear formulation: see `density`.

Positions: z, with that of a private N last, then v of log τ where it is learned (`coordinates`). Latent numbers:
counts of the model's possible cells, N, θ' and log τ.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numba import njit, types

from bayesprivmrf.compiled import INNER, carray, pointer, put, table_at, vector_at
from bayesprivmrf.inference.posterior import effects_engine
from bayesprivmrf.inference.posterior.relaxed.coordinates import stretch, stretch_pullback
from bayesprivmrf.inference.posterior.relaxed.density import (
    FIRST,
    FORWARD,
    POSTERIOR,
    PULLBACK,
    compiled_visit,
    finished,
)
from bayesprivmrf.inference.posterior.relaxed.noisy_tables import log_likelihood

KINDS = (
    "f2 f1 f2 f1 f2 f1 f1 i1 f1 f1 f1 f2 f1 i1 f1 i1 h1 i1 i1 i1 i1 b1 f1 i1 i1 f1 i1 i1 f1 f1 f1 f1 f1 f1"
)
"""The arrays of the data, as `Density` checks them."""

_marginals, _pull_back = effects_engine._marginals, effects_engine._pull_back
_REAL, _WHOLE, _SHORT, _BYTE = types.float64, types.int64, types.int32, types.uint8


@njit(nogil=True, error_model="numpy", **INNER)
def _visit(task, position, by_latent, by_prior, stretching, cells, uniform, tape, noise):
    moved, log_scale, log_total, prior, precision, relative = stretch(position, *stretching)
    excess, coordinates, total = stretching[12][0], moved[: stretching[7].size].copy(), math.exp(log_total)
    mu, _, state = _marginals(coordinates, *tape)
    size = cells.size
    latent = np.empty(size + 1 + coordinates.size + log_scale.size)
    for k in range(size):
        latent[k] = (total + excess) * mu[cells[k]] - excess * uniform[cells[k]]
    latent[size] = total
    put(latent[size + 1 : size + 1 + coordinates.size], coordinates)
    put(latent[size + 1 + coordinates.size :], log_scale)
    if task == FORWARD:
        return latent, prior, 0.0, np.empty(0)
    likelihood = 0.0
    if task == POSTERIOR:
        likelihood, by_latent = log_likelihood(latent, *noise)
    by_mu, by_total = np.zeros(mu.size), by_latent[size]
    for k in range(size):
        by_mu[cells[k]] = (total + excess) * by_latent[k]
        by_total += mu[cells[k]] * by_latent[k]
    by_coordinates = by_latent[size + 1 : size + 1 + coordinates.size] + _pull_back(state, by_mu, *tape)
    gradient = stretch_pullback(
        by_coordinates, by_latent[size + 1 + coordinates.size :], by_total * total, by_prior,
        moved, log_scale, log_total, precision, relative, position, *stretching,
    )  # fmt: skip
    return latent, prior, likelihood, gradient


def _visit_from_c(size, position, gradient, value, where):
    """Evaluate the density for the task at an address: see `density`."""
    given = carray(where, (1 + 3 * (FIRST + 34),), _WHOLE)
    task, own = given[0], given[1:]
    point = carray(position, (size,), _REAL)
    stretching = (
        table_at(own, 2, _REAL), vector_at(own, 3, _REAL), table_at(own, 4, _REAL), vector_at(own, 5, _REAL),
        table_at(own, 6, _REAL), vector_at(own, 7, _REAL), vector_at(own, 8, _REAL), vector_at(own, 9, _WHOLE),
        vector_at(own, 10, _REAL), vector_at(own, 11, _REAL), vector_at(own, 12, _REAL), table_at(own, 13, _REAL),
        vector_at(own, 14, _REAL),
    )  # fmt: skip
    cells, uniform = vector_at(own, 15, _WHOLE), vector_at(own, 16, _REAL)
    tape = (
        vector_at(own, 17, _WHOLE), vector_at(own, 18, _SHORT), vector_at(own, 19, _WHOLE),
        vector_at(own, 20, _WHOLE), vector_at(own, 21, _WHOLE), vector_at(own, 22, _WHOLE),
        vector_at(own, 23, _BYTE), vector_at(own, 24, _REAL), vector_at(own, 25, _WHOLE),
        vector_at(own, 26, _WHOLE), vector_at(own, 27, _REAL),
    )  # fmt: skip
    noise = (
        vector_at(own, 28, _WHOLE), vector_at(own, 29, _WHOLE), vector_at(own, 30, _REAL), vector_at(own, 31, _REAL),
        vector_at(own, 32, _REAL), vector_at(own, 33, _REAL), vector_at(own, 34, _REAL), vector_at(own, 35, _REAL),
    )  # fmt: skip
    out = carray(value, (1,), _REAL)
    latent_size = cells.size + 1 + stretching[7].size + stretching[5].size
    by_latent = carray(pointer(own[3]), (latent_size,), _REAL)
    by_prior = out[0] if task == PULLBACK else 1.0
    found = _visit(task, point, by_latent, by_prior, stretching, cells, uniform, tape, noise)
    return finished(found, task, given, carray(gradient, (size,), _REAL), out)


@cache
def visit_effects() -> Any:
    """Return the compiled density, loaded from disk or compiled."""
    return compiled_visit(_visit_from_c)
