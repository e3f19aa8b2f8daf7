"""Where noise comes from: a cryptographic source that cannot be seeded, or a seeded one for simulation."""

from __future__ import annotations

import os
from typing import final

import numpy as np

from bayesprivmrf.errors import ArgumentError, PrivacyError
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise.base import NoiseLaw, refuse_law
from bayesprivmrf.noise.laws import noise_from_dict
from bayesprivmrf.noise.source import NoiseSource, SimulatedNoise

__all__ = ["NoiseSource", "SecureNoise", "SimulatedNoise", "noise_source", "require_releasable"]


@final
class SecureNoise(NoiseSource):
    """Noise that each law draws exactly: OpenDP's, or its own over the operating system's random words."""

    is_simulated = False

    def add(self, counts: IntArray, law: NoiseLaw) -> IntArray:
        """Return counts plus noise; see `NoiseSource.add`."""
        if not law.has_exact_draw:
            raise refuse_law(law)
        counts = np.asarray(counts, dtype=np.int64)
        return _checked(law, law.add_exactly(counts, self.words), counts.shape)

    def words(self, size: int) -> np.ndarray:
        """Return words of the operating system's generator; see `NoiseSource.words`."""
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


def require_releasable(law: NoiseLaw) -> None:
    """Raise unless the secure source can draw a law, and a release with it can be saved and read again.

    Raises
    ------
    PrivacyError
        There is no exact draw of whole numbers, or it gives something else.
    ArgumentError
        It is no noise law, or a file could not hold it.
    """
    if not isinstance(law, NoiseLaw):
        raise ArgumentError(f"a mechanism's noise must be a NoiseLaw, got {type(law).__name__}.")
    if not law.has_exact_draw:
        raise refuse_law(law)
    zeros = np.zeros(3, dtype=np.int64)
    _checked(law, law.add_exactly(zeros, SecureNoise().words), zeros.shape)  # of no data
    if noise_from_dict(law.as_dict()) != law:
        raise ArgumentError(
            f"the noise law {law!r} must equal the one that is read back from its fields, but does not; keep all "
            "that it depends on in fields of numbers and text."
        )


def _checked(law: NoiseLaw, noisy: object, shape: tuple[int, ...]) -> IntArray:
    """Return what a law drew, if it is one whole number a count; casting anything else could give counts away."""
    if not (isinstance(noisy, np.ndarray) and noisy.dtype == np.int64 and noisy.shape == shape):
        raise PrivacyError(
            f"`add_exactly` of the noise law {law.name!r} must return int64 of the counts' shape, got "
            f"{getattr(noisy, 'dtype', type(noisy).__name__)} of shape {getattr(noisy, 'shape', ())}; correct it."
        )
    return noisy


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
