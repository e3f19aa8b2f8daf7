"""The compiled density of the log-linear formulation: see `density`.

Positions: z, with that of a private N last, then v of log τ where it is learned (`stretch`). Latent numbers: counts
of the model's possible cells, N, θ' and log τ.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, types

from bayesprivmrf import addresses
from bayesprivmrf.addresses import carray, pointer, table_at, vector_at
from bayesprivmrf.inference.posterior import effects_engine
from bayesprivmrf.inference.posterior.copies import put
from bayesprivmrf.inference.posterior.density import (
    FIRST,
    FORWARD,
    POSTERIOR,
    PULLBACK,
    compiled_visit,
    finished,
)
from bayesprivmrf.inference.posterior.noisy_tables import log_likelihood
from bayesprivmrf.inference.posterior.stretch import stretch, stretch_pullback
from bayesprivmrf.marginals.products import INNER
from bayesprivmrf.source_checksum import checksum

KINDS = (
    "f2 f1 f2 f1 f2 f1 f1 i1 f1 f1 f1 f2 f1 i1 f1 i1 h1 i1 i1 i1 i1 b1 f1 i1 i1 f1 i1 i1 f1 f1 f1 f1 f1 f1"
)
"""The arrays of the data, as `Density` checks them."""

_SOURCES = ("density", "effects_density", "laplace_kernel", "log_uniform", "noisy_tables", "stretch")
_marginals, _pull_back = effects_engine._marginals, effects_engine._pull_back


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


def _c_function(version: int) -> Any:
    """The C function: see `density`."""
    real, whole, short, byte = types.float64, types.int64, types.int32, types.uint8

    def visit(size, position, gradient, value, where):
        assert version >= 0
        given = carray(where, (1 + 3 * (FIRST + 34),), whole)
        task, own = given[0], given[1:]
        point = carray(position, (size,), real)
        stretching = (
            table_at(own, 2, real), vector_at(own, 3, real), table_at(own, 4, real), vector_at(own, 5, real),
            table_at(own, 6, real), vector_at(own, 7, real), vector_at(own, 8, real), vector_at(own, 9, whole),
            vector_at(own, 10, real), vector_at(own, 11, real), vector_at(own, 12, real), table_at(own, 13, real),
            vector_at(own, 14, real),
        )  # fmt: skip
        cells, uniform = vector_at(own, 15, whole), vector_at(own, 16, real)
        tape = (
            vector_at(own, 17, whole), vector_at(own, 18, short), vector_at(own, 19, whole),
            vector_at(own, 20, whole), vector_at(own, 21, whole), vector_at(own, 22, whole),
            vector_at(own, 23, byte), vector_at(own, 24, real), vector_at(own, 25, whole),
            vector_at(own, 26, whole), vector_at(own, 27, real),
        )  # fmt: skip
        noise = (
            vector_at(own, 28, whole), vector_at(own, 29, whole), vector_at(own, 30, real), vector_at(own, 31, real),
            vector_at(own, 32, real), vector_at(own, 33, real), vector_at(own, 34, real), vector_at(own, 35, real),
        )  # fmt: skip
        out = carray(value, (1,), real)
        latent_size = cells.size + 1 + stretching[7].size + stretching[5].size
        by_latent = carray(pointer(own[3]), (latent_size,), real)
        by_prior = out[0] if task == PULLBACK else 1.0
        found = _visit(task, point, by_latent, by_prior, stretching, cells, uniform, tape, noise)
        return finished(found, task, given, carray(gradient, (size,), real), out)

    return visit


@cache
def visit_effects() -> Any:
    """The compiled density, loaded from disk or compiled."""
    sources = (str(Path(__file__).with_name(f"{name}.py")) for name in _SOURCES)
    return compiled_visit(_c_function, checksum(*sources, addresses.__file__, start=effects_engine.CHECKSUM))
