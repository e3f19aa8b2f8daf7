"""Noise of a public law from a seeded generator, for simulations: it protects nobody."""

from __future__ import annotations

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw

__all__ = ["simulated_noise"]

_FINE = 2.0**10  # a scale above which a rounded normal number is discrete normal to 1e-7 of its probabilities


def simulated_noise(law: NoiseLaw, size: int | tuple[int, ...], rng: np.random.Generator) -> IntArray:
    """Draw whole steps of noise.

    Discrete Laplace noise is the difference of two geometric counts; discrete Gaussian noise of a large scale is a
    rounded normal number, which is the same to relative errors that no simulation can see.

    Parameters
    ----------
    law
        Of the constants of a perturbation.
    size
        Shape of the result.
    rng
        Any generator.

    Raises
    ------
    ArgumentError
        The law is another one, or a discrete Gaussian of a scale below 1024 steps.
    """
    if isinstance(law, DiscreteLaplace):
        share = -np.expm1(-1 / law.scale)
        return rng.geometric(share, size) - rng.geometric(share, size)
    if isinstance(law, DiscreteGaussian) and law.scale >= _FINE:
        return np.rint(rng.normal(0.0, law.scale, size)).astype(np.int64)
    raise ArgumentError(
        f"`law` must be discrete Laplace, or discrete Gaussian of a scale of at least {_FINE:g} steps, got {law!r}; "
        "take the law of `perturbation_constants`."
    )
