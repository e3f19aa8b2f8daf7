"""Where noise comes from: a cryptographic source that cannot be seeded, or a seeded one for simulation."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from typing import Any, final

import numpy as np

from bayesprivmrf.errors import ArgumentError, PrivacyError
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.privacy import DiscreteGaussian, DiscreteLaplace, NoiseLaw, NoNoise

__all__ = ["NoiseSource", "SecureNoise", "SimulatedNoise", "noise_source"]


class NoiseSource(ABC):
    """Adds independent noise to whole numbers."""

    is_simulated: bool

    @abstractmethod
    def add(self, counts: IntArray, law: NoiseLaw) -> IntArray:
        """Return counts plus independent noise of the given integer law, cell by cell.

        Parameters
        ----------
        counts
            Shape (cells,), records.
        law
            Discrete Laplace, discrete Gaussian or none.

        Raises
        ------
        PrivacyError
            The law is not one of whole numbers: floating-point noise on a released number is not private,
            because its low bits depend on what it was added to.
        """


def _refuse(law: NoiseLaw) -> PrivacyError:
    return PrivacyError(
        f"counts must get noise of whole numbers, got the law {law.name!r}; "
        "use DiscreteLaplace or DiscreteGaussian, whose low bits leak nothing."
    )


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


@final
class SimulatedNoise(NoiseSource):
    """Noise from a seeded NumPy generator, for tests, simulation and teaching. It protects nobody.

    Parameters
    ----------
    generator
        NumPy generator; its state moves on with each draw.
    """

    is_simulated = True

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def add(self, counts: IntArray, law: NoiseLaw) -> IntArray:
        """Return counts plus noise; see `NoiseSource.add`."""
        counts = np.asarray(counts, dtype=np.int64)
        if isinstance(law, NoNoise):
            return counts.copy()
        if isinstance(law, DiscreteLaplace):
            return counts + _two_sided_geometric(self._generator, law.scale, counts.size).reshape(
                counts.shape
            )
        if isinstance(law, DiscreteGaussian):
            return counts + _discrete_gaussian(self._generator, law.scale, counts.size).reshape(counts.shape)
        raise _refuse(law)


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
    raise _refuse(law)


def _two_sided_geometric(generator: np.random.Generator, scale: float, size: int) -> IntArray:
    """Discrete Laplace draws as the difference of two geometric ones, whose tail is a^k, a = exp(-1/scale)."""
    success = -math.expm1(-1 / scale)
    return generator.geometric(success, size) - generator.geometric(success, size)


def _discrete_gaussian(generator: np.random.Generator, scale: float, size: int) -> IntArray:
    r"""Discrete Gaussian draws by rejection from the discrete Laplace law of scale t = floor(scale) + 1.

    :math:`e^{-k^2/(2 s^2)} = c\, e^{-|k|/t} e^{-(|k| - s^2/t)^2 / (2 s^2)}` with a constant c, so the last factor,
    at most one, is the probability to accept. Canonne, Kamath, Steinke 2020, Algorithm 3.
    """
    t = math.floor(scale) + 1
    draws = np.empty(size, dtype=np.int64)
    filled = 0
    while filled < size:
        proposal = _two_sided_geometric(generator, t, 2 * (size - filled) + 16)
        accept = np.exp(-0.5 * ((np.abs(proposal) - scale * scale / t) / scale) ** 2)
        kept = proposal[generator.random(proposal.size) < accept][: size - filled]
        draws[filled : filled + kept.size] = kept
        filled += kept.size
    return draws
