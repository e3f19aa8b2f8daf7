"""Sources of noise: integer noise on counts, and private choices by the exponential mechanism.

A private choice is the candidate whose score with Gumbel noise is largest, which is the exponential mechanism.
`SecureNoise` is for releases: it cannot be seeded, and draws exactly. `SimulatedNoise` is for simulations on the
public side. `require_releasable` checks that a distribution may be released with.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from typing import final

import numpy as np

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import ArgumentError, PrivacyError
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise.base import (
    NoiseDistribution,
    Words,
    check_kernel,
    check_variance,
    no_exact_draw,
)
from bayesprivmrf.noise.continuous import noise_from_dict

# Scales below or above the last score to be chosen, beyond which scores no longer fall or rise.
_CLAMP = 300.0


def gumbel(size: int, words: Words) -> np.ndarray:
    r"""Return standard Gumbel numbers from random words, with a tiny relative error in both tails.

    :math:`G = -\log E` with a standard exponential E, which is below its median :math:`\log 2` with probability one
    half. Below the median :math:`E = -\log(1 - U/2)`, above it :math:`E = -\log(U/2)`. U is a continuous uniform
    number on (0, 1). Its exponent is exact: the number of zeros before the first one in a sequence of random bits.
    Its mantissa is cut after 52 bits, so its relative error is at most :math:`2^{-53}`. The relative error of E is at
    most :math:`1.5 \cdot 2^{-53}`, apart from the rounding of the logarithm. The error of G is then below
    :math:`2^{-46}` for :math:`|G| < 64` and below :math:`2^{-43}` for :math:`|G| < 512`.

    Parameters
    ----------
    size
        m, how many numbers are drawn.
    words
        The source's random words; 2 m are used, and more with probability m / 2^64.

    Returns
    -------
    ndarray
        Shape (m,).
    """
    first = words(size)
    second = words(size)
    # the exponent of U: zeros before the first one in a sequence of random bits
    zeros = leading_zeros(first)
    empty = np.flatnonzero(first == 0)
    while empty.size:
        more = words(empty.size)
        zeros[empty] += leading_zeros(more)
        empty = empty[more == 0]
    # the mantissa of U, and one bit for the side of the median on which E lies
    mantissa = 1 + ((second >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    half = np.ldexp(mantissa, -zeros - 2)  # U / 2
    is_low = (second & np.uint64(1)).astype(bool)
    exponential = -np.log(half)
    exponential[is_low] = -np.log1p(-half[is_low])
    return -np.log(exponential)


def leading_zeros(words: np.ndarray) -> np.ndarray:
    """Return the number of leading zero bits, int64, 64 for a word of zeros.

    A float represents the upper 53 bits exactly; if they are zeros, the lower 11 bits are counted in the same way.
    """
    _, length = np.frexp((words >> np.uint64(11)).astype(np.float64))
    zeros = 53 - length.astype(np.int64)
    low = np.flatnonzero(zeros == 53)
    if low.size:
        zeros[low] += 11 - np.frexp(words[low].astype(np.float64))[1]
    return zeros


def whole_counts(counts: object) -> IntArray:
    """Return counts as int64, without rounding, because the noise is calibrated to the counts as they are.

    Raises
    ------
    PrivacyError
        The counts are not whole numbers of 64 bits.
    """
    given = np.asarray(counts)
    must = "be whole numbers of 64 bits"
    remedy = "round them to a public grid"
    is_whole = not given.size or np.can_cast(given.dtype, np.int64)
    require(is_whole, "numbers that get noise", must, str(given.dtype), remedy, error=PrivacyError)
    return given.astype(np.int64)


class NoiseSource(ABC):
    """Abstract source of noise on whole numbers, and of choices with probabilities in proportion to exp(score)."""

    is_simulated: bool

    @abstractmethod
    def add(self, counts: IntArray, law: NoiseDistribution) -> IntArray:
        """Return counts plus independent noise from a discrete distribution, cell by cell.

        Parameters
        ----------
        counts
            Whole numbers, records.
        law
            Discrete Laplace, discrete Gaussian, no noise, or another discrete distribution.

        Raises
        ------
        PrivacyError
            The counts are not whole numbers, or the distribution is continuous: floating-point noise on a released
            number is not private, because its low bits depend on the number. The secure source also refuses a
            distribution that it cannot draw exactly.
        """

    @abstractmethod
    def words(self, size: int) -> np.ndarray:
        """Return independent uniform 64-bit words, uint64 of shape (size,)."""

    @final
    def choose(
        self, scores: IntArray, scale: float, eligible: np.ndarray | None = None
    ) -> np.ndarray:
        """Return one candidate for each row by the exponential mechanism, shape (rows,); see `choose_several`.

        Scores are whole numbers below 2^53. Their differences from the best score are exact, and clamped at 300
        scales below it. So floating point adds less than `bayesprivmrf.privacy.selection.ROUNDING` to the loss of a
        choice, however large the scores are. `selection_scale` pays for this.
        """
        return self.choose_several(scores, scale, 1, eligible)[:, 0]

    @final
    def choose_several(
        self, scores: IntArray, scale: float, count: int, eligible: np.ndarray | None = None
    ) -> np.ndarray:
        r"""Return the `count` largest noisy scores of each row, best first, shape (rows, count).

        One choice follows the exponential mechanism, :math:`P(j) \propto e^{u_j / b}`. Several choices have the
        same distribution as that many choices in turn without replacement, each by the exponential mechanism among
        the remaining candidates (Durfee and Rogers 2019, section 4). They cost `count` times as much as one choice,
        except for rounding.

        Parameters
        ----------
        scores
            u, whole numbers below 2^53 in size, shape (rows, candidates).
        scale
            b, in the unit of the scores, positive.
        count
            t, the number of choices in each row.
        eligible
            Public mask of the scores' shape, at least `count` candidates a row; all by default.

        Returns
        -------
        ndarray
            Columns of the choices, shape (rows, count).

        Notes
        -----
        **One choice** is the largest :math:`v_j + G_j` with :math:`v_j = \max((u_j - \max u)/b, -300)`
        and standard Gumbel :math:`G_j`. If the differences :math:`u_j - u'_j` of two score vectors lie in an
        interval of length R, so do the differences of b v: the difference of the best scores lies in it as well,
        and taking a maximum with a constant moves a difference towards 0. So clamping keeps the bounded range. Each
        :math:`v_j + G_j` is computed with an error below :math:`2^{-42}` (see `gumbel`). Shifting one candidate by
        twice this error covers all errors, so each probability is within a factor :math:`e^{\pm 2^{-41}}` of the
        exact one. The loss is that of a range which is larger by `bayesprivmrf.privacy.selection.ROUNDING` scales.

        **Several choices.** Scores are clamped to 300 scales around the t-th best one, so that all noisy scores are
        computed as exactly as for one choice. If the differences of two score vectors lie in an interval, so does
        the difference of their t-th best scores, and so do the differences of scores clamped around these: the
        bounded range stays. Candidates with higher scores are chosen anyway, in an order that no longer depends on
        how much higher they are.

        With errors of at most :math:`\epsilon = 2^{-42}`, the candidates that were chosen in the order :math:`j_1,
        \dots, j_t` would be exactly in this order if the score of :math:`j_s` were shifted by :math:`\pm 2 (t - s +
        1) \epsilon`. By the formula for the probability of an order, this changes its probability by a factor
        within :math:`e^{\pm t (t + 1) \epsilon}`, and hence the probability of the t-th choice given the earlier
        ones by a factor within :math:`e^{\pm 2 t^2 \epsilon}`. So the range is that of an exact choice plus
        :math:`t^2` times `ROUNDING` scales: `selection_scale` with ``at_once=True``.
        """
        scores = np.asarray(scores)
        chosen = np.empty((scores.shape[0], count), dtype=np.intp)
        # four million candidates at a time bound the memory
        rows = max((1 << 22) // max(scores.shape[1], 1), 1)
        for start in range(0, scores.shape[0], rows):
            part = scores[start : start + rows]
            if eligible is None:
                mask = None
            else:
                mask = eligible[start : start + rows]
            if mask is None:
                eligible_part = part
            else:
                eligible_part = np.where(mask, part, np.iinfo(np.int64).min)
            # scores relative to the last chosen one, clamped to a span in which the noise is exact
            last = np.partition(eligible_part, -count, axis=1)[:, -count, None]
            noisy = np.clip((part - last) / scale, -_CLAMP, _CLAMP)
            noisy += gumbel(part.size, self.words).reshape(part.shape)
            if mask is not None:
                noisy[~mask] = -np.inf
            best = np.argpartition(-noisy, count - 1, axis=1)[:, :count]
            order = np.argsort(-np.take_along_axis(noisy, best, axis=1), axis=1, kind="stable")
            chosen[start : start + rows] = np.take_along_axis(best, order, axis=1)
        return chosen


@final
class SimulatedNoise(NoiseSource):
    """Noise from a seeded NumPy generator, for tests, simulation and teaching; it protects nobody.

    Parameters
    ----------
    generator
        NumPy generator; each draw advances its state.
    """

    is_simulated = True

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def add(self, counts: IntArray, law: NoiseDistribution) -> IntArray:
        """Return counts plus noise; see `NoiseSource.add`."""
        if not law.is_discrete:
            raise no_exact_draw(law)
        counts = whole_counts(counts)
        return counts + law.draw(counts.shape, self._generator)

    def words(self, size: int) -> np.ndarray:
        """Return uniform words; see `NoiseSource.words`."""
        return self._generator.integers(0, 2**64, size=size, dtype=np.uint64)


@final
class SecureNoise(NoiseSource):
    """Noise that is drawn exactly: by OpenDP, or by the distribution itself from the system's random words."""

    is_simulated = False

    def add(self, counts: IntArray, law: NoiseDistribution) -> IntArray:
        """Return counts plus noise; see `NoiseSource.add`."""
        if not law.has_exact_draw:
            raise no_exact_draw(law)
        counts = whole_counts(counts)
        return _checked(law, law.add_exactly(counts, self.words), counts.shape)

    def words(self, size: int) -> np.ndarray:
        """Return words of the operating system's generator; see `NoiseSource.words`."""
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


def require_releasable(law: NoiseDistribution) -> None:
    """Raise an error unless the secure source can draw a distribution, and a file can store a release with it.

    Raises
    ------
    PrivacyError
        The distribution has no exact draw of whole numbers, or the draw is not determined by `words` alone.
    ArgumentError
        The argument is no noise distribution, a file could not store it, or its variance or kernel is wrong.
    """
    instance_of("a mechanism's noise", law, NoiseDistribution, "be a NoiseDistribution")
    if not law.has_exact_draw:
        raise no_exact_draw(law)
    same = noise_from_dict(law.as_dict()) == law
    what = f"the noise distribution {law!r}"
    must = "equal the one that is read back"
    remedy = "keep all that it depends on in fields of numbers and text"
    require(same, what, must, "another", remedy)
    check_variance(law)
    check_kernel(law)
    must = "be that of added noise"
    seen = "the kernel 'within', which is for counts known within bounds"
    what = f"the noise distribution {law.name!r}"
    require(not law.is_bounded, what, must, seen, "leave out its `kernel`")
    _check_draw(law)


def _check_draw(law: NoiseDistribution) -> None:
    """Raise an error unless a distribution's noise is determined by random words alone; no data are involved.

    n draws are all zero, or twice the same, with a probability of at most :math:`p^n`, where p is the larger of one
    half and the distribution's P(0). n is so large that this is below 1e-13, but at most 4,096. Where those are too
    few, equal draws are accepted if the variance is below 0.5.
    """
    if not law._takes_words:
        _checked(law, law.add_exactly(np.zeros(3, dtype=np.int64), SecureNoise().words), (3,))
        return
    never = -30.0  # log of a probability below 1e-13
    log_most = max(float(law.log_density(np.zeros(1))[0]), -math.log(2))
    zeros = np.zeros(math.ceil(never / min(log_most, never / 4096)), dtype=np.int64)
    must_differ = zeros.size * log_most <= never or law.variance >= 0.5

    def noise(seed: int, counts: IntArray) -> IntArray:
        words = SimulatedNoise(np.random.default_rng(seed)).words
        return _checked(law, law.add_exactly(counts.copy(), words), counts.shape) - counts

    first = noise(0, zeros)
    what = f"`add_exactly` of the noise distribution {law.name!r}"
    must = "take all randomness from `words`"
    seen = "equal words that gave different noise"
    is_drawn = np.array_equal(first, noise(0, zeros + 1))
    remedy = "draw from `words` alone, whatever the counts"
    require(is_drawn, what, must, seen, remedy, error=PrivacyError)
    must = "add noise from `words`"
    seen = "none, or equal noise for different words, which would disclose the counts"
    differs = first.any() and not np.array_equal(first, noise(1, zeros.reshape(1, -1))[0])
    require(differs or not must_differ, what, must, seen, "draw from `words`", error=PrivacyError)


def _checked(law: NoiseDistribution, noisy: object, shape: tuple[int, ...]) -> IntArray:
    """Return the noisy counts, after a check of type and shape: a cast of anything else could disclose counts."""
    is_right = isinstance(noisy, np.ndarray) and noisy.dtype == np.int64 and noisy.shape == shape
    what = f"`add_exactly` of the noise distribution {law.name!r}"
    must = "return int64 of the counts' shape"
    seen = f"{getattr(noisy, 'dtype', type(noisy).__name__)} of shape {getattr(noisy, 'shape', ())}"
    require(is_right, what, must, seen, "correct it", error=PrivacyError)
    return noisy  # type: ignore[return-value]


def noise_source(rng: int | np.random.Generator | None) -> NoiseSource:
    """Return the secure source for ``None``, or a simulated source for a seed or a generator.

    Raises
    ------
    ArgumentError
        ``rng`` is none of these.
    """
    if rng is None:
        return SecureNoise()
    if isinstance(rng, np.random.Generator):
        return SimulatedNoise(rng)
    if isinstance(rng, int | np.integer) and not isinstance(rng, bool) and rng >= 0:
        return SimulatedNoise(np.random.default_rng(int(rng)))
    must = "be None, a non-negative seed or a numpy Generator"
    raise ArgumentError(f"`rng` must {must}, got {rng!r}; leave it out for a private release.")
