"""Where noise comes from: a cryptographic source that cannot be seeded, or a seeded one for simulation."""

from __future__ import annotations

import functools
import os
from typing import Any, final

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw, NoNoise
from bayesprivmrf.noise.source import NoiseSource, SimulatedNoise, refuse_law

__all__ = ["NoiseSource", "SecureNoise", "SimulatedNoise", "noise_source"]


@final
class SecureNoise(NoiseSource):
    """Noise from OpenDP: exact arithmetic over a cryptographic generator seeded by the operating system."""

    is_simulated = False

    def add(self, counts: IntArray, law: NoiseLaw) -> IntArray:
        """Return counts plus noise; see `NoiseSource.add`."""
        if isinstance(law, NoNoise):
            return np.array(counts, dtype=np.int64)
        measurement = integer_measurement(law)
        return np.array(measurement(np.asarray(counts, dtype=np.int64).tolist()), dtype=np.int64)

    def words(self, size: int) -> np.ndarray:
        """Return words of the operating system's generator; see `NoiseSource.words`."""
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


def noise_source(rng: int | np.random.Generator | None) -> NoiseSource:
    """Return the secure source for ``None``, a simulated one for a seed or a generator.

    Raises
    ------
    ArgumentError
        ``rng`` is anything else.
    """
    if rng is None:
        return SecureNoise()
    if isinstance(rng, np.random.Generator):
        return SimulatedNoise(rng)
    if isinstance(rng, int | np.integer) and not isinstance(rng, bool) and rng >= 0:
        return SimulatedNoise(np.random.default_rng(int(rng)))
    raise ArgumentError(
        f"`rng` must be None, a non-negative seed or a numpy Generator, got {rng!r}; "
        "leave it out for a private release."
    )


@functools.lru_cache(maxsize=256)
def integer_measurement(law: NoiseLaw) -> Any:
    """Return OpenDP's measurement that adds this law to a vector of whole numbers.

    Its map turns the vector's sensitivity into the loss: for the discrete Laplace law the L1 distance (an
    integer) into epsilon, for the discrete Gaussian law the L2 distance (a float) into rho.
    """
    from opendp import domains, measurements, metrics
    from opendp.mod import enable_features

    enable_features("contrib")
    vector = domains.vector_domain(domains.atom_domain(T="i64"))
    if isinstance(law, DiscreteLaplace):
        return measurements.make_laplace(vector, metrics.l1_distance(T="i64"), scale=law.scale)
    if isinstance(law, DiscreteGaussian):
        return measurements.make_gaussian(vector, metrics.l2_distance(T=float), scale=law.scale)
    raise refuse_law(law)
