"""Sources of noise: integer noise on counts, and choices by the exponential mechanism.

`SimulatedNoise` is here, for simulations on the public side; the secure source is
`bayesprivmrf.noise.secure.SecureNoise`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import numpy as np

from bayesprivmrf.errors import PrivacyError
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise.base import NoiseLaw, refuse_law
from bayesprivmrf.noise.choices import choose_several


def whole_counts(counts: object) -> IntArray:
    """Return counts as int64; no number is cut to a whole one, which would not be what noise was calibrated to.

    Raises
    ------
    PrivacyError
        They are not whole numbers of 64 bits.
    """
    given = np.asarray(counts)
    if given.size and not np.can_cast(given.dtype, np.int64):
        raise PrivacyError(
            f"what noise is added to must be whole numbers of 64 bits, got {given.dtype}; round it to a public grid."
        )
    return given.astype(np.int64)


class NoiseSource(ABC):
    """Adds independent noise to whole numbers, and picks candidates at random in proportion to exp(score)."""

    is_simulated: bool

    @abstractmethod
    def add(self, counts: IntArray, law: NoiseLaw) -> IntArray:
        """Return counts plus independent noise of the given integer law, cell by cell.

        Parameters
        ----------
        counts
            Whole numbers, records.
        law
            Discrete Laplace, discrete Gaussian, none, or another law of whole numbers.

        Raises
        ------
        PrivacyError
            The counts are not whole numbers, or the law is not one of them: floating-point noise on a released number
            is not private, because its low bits depend on what it was added to. The secure source also refuses a
            law that it cannot draw exactly.
        """

    @abstractmethod
    def words(self, size: int) -> np.ndarray:
        """Return independent uniform 64-bit words, uint64 of shape (size,)."""

    @final
    def choose(self, scores: IntArray, scale: float, eligible: np.ndarray | None = None) -> np.ndarray:
        """Return one candidate a row by the exponential mechanism, shape (rows,); see `choose_several`.

        Scores, whole numbers below 2^53, are subtracted from the best exactly, and held at 300 scales below it. So
        what floating point adds to a choice's loss is under `bayesprivmrf.privacy.selection.ROUNDING`, however large
        they are; `selection_scale` pays for it.
        """
        return self.choose_several(scores, scale, 1, eligible)[:, 0]

    @final
    def choose_several(
        self, scores: IntArray, scale: float, count: int, eligible: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the `count` largest noisy scores of each row; see `bayesprivmrf.noise.choices.choose_several`."""
        return choose_several(scores, scale, count, self.words, eligible)


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
        if not law.is_discrete:
            raise refuse_law(law)
        counts = whole_counts(counts)
        return counts + law.draw(counts.shape, self._generator)

    def words(self, size: int) -> np.ndarray:
        """Return uniform words; see `NoiseSource.words`."""
        return self._generator.integers(0, 2**64, size=size, dtype=np.uint64)
