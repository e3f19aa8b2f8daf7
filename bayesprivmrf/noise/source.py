"""Sources of noise: integer noise on counts, and choices by the exponential mechanism.

`SimulatedNoise` is here, for simulations on the public side; the secure source is
`bayesprivmrf.noise.secure.SecureNoise`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

import numpy as np

from bayesprivmrf.errors import PrivacyError
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw, NoNoise

__all__ = ["NoiseSource", "SimulatedNoise", "refuse_law"]

_CLAMP = (
    300.0  # scales below or above the last score to be chosen, beyond which scores no longer fall or rise
)
_BLOCK = 1 << 22  # candidates whose noise is drawn at a time


class NoiseSource(ABC):
    """Adds independent noise to whole numbers, and picks candidates at random in proportion to exp(score)."""

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

    @abstractmethod
    def words(self, size: int) -> np.ndarray:
        """Return independent uniform 64-bit words, uint64 of shape (size,)."""

    @final
    def choose(self, scores: IntArray, scale: float, eligible: np.ndarray | None = None) -> np.ndarray:
        r"""Return one candidate a row by the exponential mechanism, :math:`P(j) \propto e^{u_j / b}`.

        Parameters
        ----------
        scores
            u, whole numbers below 2^53 in size, shape (rows, candidates).
        scale
            b, in the unit of the scores, positive.
        eligible
            Public mask of the same shape, at least one candidate a row; all by default.

        Returns
        -------
        ndarray
            Column of the choice, shape (rows,).

        Notes
        -----
        The choice is the largest :math:`v_j + G_j` with :math:`v_j = \max((u_j - \max u)/b, -300)` and standard
        Gumbel :math:`G_j`. If the differences :math:`u_j - u'_j` of two score vectors lie in an interval of length R,
        so do those of b v: the best score's difference lies in it as well, and taking a maximum with a constant moves
        a difference towards 0. So clamping keeps the bounded range. Each :math:`v_j + G_j` is computed with an
        error below :math:`2^{-42}`, see `gumbel`; shifting one candidate by twice this covers all errors, so that
        each probability is within a factor :math:`e^{\pm 2^{-41}}` of the exact one, and the loss is that of a range
        larger by `bayesprivmrf.privacy.selection.ROUNDING` scales.
        """
        return self.choose_several(scores, scale, 1, eligible)[:, 0]

    @final
    def choose_several(
        self, scores: IntArray, scale: float, count: int, eligible: np.ndarray | None = None
    ) -> np.ndarray:
        r"""Return the `count` largest noisy scores of each row, best first, shape (rows, count).

        This has the law of `count` choices in turn without replacement (Durfee and Rogers 2019, section 4), each by
        the exponential mechanism among those left: it costs `count` times what one costs, but for rounding.

        Scores are held to 300 scales about the `count`-th best one, so that all noisy scores are computed as exactly
        as in `choose`. If differences of two score vectors lie in an interval, so does that of their `count`-th best
        scores, and so do those of scores held to a span about them: the bounded range stays. What lies higher is
        chosen anyway, though in an order that no longer depends on by how much.

        Rounding. With errors of at most :math:`\epsilon = 2^{-42}`, the noisy scores that were chosen in the order
        :math:`j_1, \dots, j_t` would be exactly in this order if :math:`j_s` were shifted by
        :math:`\pm 2 (t - s + 1) \epsilon`; by the formula of such choices this changes the order's probability by a
        factor within :math:`e^{\pm t (t + 1) \epsilon}`, hence that of the t-th choice given those before by one
        within :math:`e^{\pm 2 t^2 \epsilon}`. So it has the range of an exact choice and `ROUNDING` :math:`t^2`
        scales more: `selection_scale` with ``at_once=True``.
        """
        scores = np.asarray(scores)
        chosen = np.empty((scores.shape[0], count), dtype=np.intp)
        rows = max(_BLOCK // max(scores.shape[1], 1), 1)
        for start in range(0, scores.shape[0], rows):
            part = scores[start : start + rows]
            mask = None if eligible is None else eligible[start : start + rows]
            eligible_part = part if mask is None else np.where(mask, part, np.iinfo(np.int64).min)
            last = np.partition(eligible_part, -count, axis=1)[:, -count, None]
            noisy = np.clip((part - last) / scale, -_CLAMP, _CLAMP)
            noisy += gumbel(part.size, self.words).reshape(part.shape)
            if mask is not None:
                noisy[~mask] = -np.inf
            chosen[start : start + rows] = _largest(noisy, count)
        return chosen


def gumbel(size: int, words: Callable[[int], np.ndarray]) -> np.ndarray:
    r"""Return standard Gumbel numbers from random words, accurate to a tiny relative error in both tails.

    :math:`G = -\log E` with a standard exponential E, which is below its median :math:`\log 2` with probability one
    half: there :math:`E = -\log(1 - U/2)`, above it :math:`E = -\log(U/2)`. U is a continuous uniform number on
    (0, 1) whose exponent is exact (the number of zeros before the first one in a row of random bits) and whose
    mantissa is cut after 52 bits, so its relative error is at most :math:`2^{-53}`; that of E is at most
    :math:`1.5 \cdot 2^{-53}` beside the rounding of the logarithm, and G's error is below :math:`2^{-46}` for
    :math:`|G| < 64` and below :math:`2^{-43}` for :math:`|G| < 512`.

    Parameters
    ----------
    size
        m.
    words
        Returns that many independent uniform uint64; asked for 2 m, and for more with probability m / 2^64.

    Returns
    -------
    ndarray
        Shape (m,).
    """
    first, second = words(size), words(size)
    zeros = _leading_zeros(first)
    empty = np.flatnonzero(first == 0)
    while empty.size:
        more = words(empty.size)
        zeros[empty] += _leading_zeros(more)
        empty = empty[more == 0]
    mantissa = 1 + ((second >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    half = np.ldexp(mantissa, -zeros - 2)  # U / 2
    is_low = (second & np.uint64(1)).astype(bool)
    exponential = -np.log(half)
    exponential[is_low] = -np.log1p(-half[is_low])
    return -np.log(exponential)


def _leading_zeros(words: np.ndarray) -> np.ndarray:
    """Return the number of leading zero bits, int64, 64 for a word of zeros; by exact steps on halves."""
    rest, zeros = words.copy(), np.zeros(words.shape, dtype=np.int64)
    for bits in (32, 16, 8, 4, 2, 1):
        empty = rest < np.uint64(1) << np.uint64(64 - bits)
        zeros[empty] += bits
        rest[empty] <<= np.uint64(bits)
    return zeros + (rest == 0)


def _largest(noisy: np.ndarray, count: int) -> np.ndarray:
    if count == 1:
        return noisy.argmax(axis=1)[:, None]
    picked = np.argpartition(-noisy, count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(noisy, picked, axis=1), axis=1, kind="stable")
    return np.take_along_axis(picked, order, axis=1)


def refuse_law(law: NoiseLaw) -> PrivacyError:
    """Return the error for a law that is not one of whole numbers."""
    return PrivacyError(
        f"counts must get noise of whole numbers, got the law {law.name!r}; "
        "use DiscreteLaplace or DiscreteGaussian, whose low bits leak nothing."
    )


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
        raise refuse_law(law)

    def words(self, size: int) -> np.ndarray:
        """Return uniform words; see `NoiseSource.words`."""
        return self._generator.integers(0, 2**64, size=size, dtype=np.uint64)


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
