"""The compiled density of the log-linear formulation: see `density`.

Positions: z, with that of a private N last, then v of log τ where it is learned (`stretch`). Latent numbers: counts
of the model's possible cells, N, θ' and log τ.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from bayesprivmrf.inference.posterior import effects_engine
from bayesprivmrf.inference.posterior.density import FORWARD, POSTERIOR
from bayesprivmrf.inference.posterior.noisy_tables import log_likelihood
from bayesprivmrf.inference.posterior.stretch import stretch, stretch_pullback
from bayesprivmrf.source_checksum import checksum

__all__ = ["visit_effects"]

_SOURCES = ("effects_density", "laplace_kernel", "log_uniform", "noisy_tables", "stretch")
_evaluate, _pull_back = effects_engine._evaluate, effects_engine._pull_back


@njit(nogil=True, error_model="numpy")
def _visit(task, position, by_latent, by_prior, stretching, cells, uniform, tape, noise):
    moved, log_scale, log_total, prior, precision, relative = stretch(position, *stretching)
    excess, coordinates, total = stretching[12][0], moved[: stretching[7].size].copy(), math.exp(log_total)
    mu, _, _, _, state = _evaluate(coordinates, *tape)
    size = cells.size
    latent = np.empty(size + 1 + coordinates.size + log_scale.size)
    for k in range(size):
        latent[k] = (total + excess) * mu[cells[k]] - excess * uniform[cells[k]]
    latent[size] = total
    latent[size + 1 : size + 1 + coordinates.size] = coordinates
    latent[size + 1 + coordinates.size :] = log_scale
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


def _entry_point(version: int) -> Any:
    """The function above, kept by numba between processes under a key that the checksum is part of."""

    @njit(cache=True, nogil=True, error_model="numpy")
    def visit(task, position, by_latent, by_prior, data):
        assert version >= 0
        return _visit(task, position, by_latent, by_prior, *data)

    return visit


visit_effects = _entry_point(
    checksum(
        *(str(Path(__file__).with_name(f"{name}.py")) for name in _SOURCES), start=effects_engine.CHECKSUM
    )
)
