"""Simulated noise, for replicated tables: never for a release."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, NoiseLaw

__all__ = ["draw_noise"]

_LISTED = 10_000.0
"""Scale up to which the integer normal law is drawn from its list of probabilities."""


def draw_noise(law: NoiseLaw, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
    """Independent draws of a noise law, records."""
    match law:
        case Laplace():
            return rng.laplace(0.0, law.scale, shape)
        case DiscreteLaplace():
            stop = -math.expm1(-1 / law.scale)
            return (rng.geometric(stop, shape) - rng.geometric(stop, shape)).astype(float)
        case Gaussian():
            return rng.normal(0.0, law.scale, shape)
        case DiscreteGaussian() if law.scale <= _LISTED:
            values, cumulative = _discrete_gaussian(law.scale)
            return values[np.searchsorted(cumulative, rng.random(shape), side="right")]
        case DiscreteGaussian():
            # the two laws differ by less than 1 / scale in total variation
            return np.rint(rng.normal(0.0, law.scale, shape))
    raise ArgumentError(f"noise can be simulated for the laws of this package, got {law!r}.")


@lru_cache(maxsize=16)
def _discrete_gaussian(scale: float) -> tuple[FloatArray, FloatArray]:
    """Integers within ten scales of zero, and their cumulative probabilities."""
    reach = math.ceil(10 * scale) + 1
    values = np.arange(-reach, reach + 1, dtype=float)
    weights = np.exp(-0.5 * (values / scale) ** 2)
    cumulative = np.cumsum(weights) / weights.sum()
    cumulative[-1] = 1.0
    return values, cumulative
