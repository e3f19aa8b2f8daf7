"""The secure source of noise, which cannot be seeded, and the checks that a distribution may be released with."""

from __future__ import annotations

import math
import os
from typing import final

import numpy as np

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import ArgumentError, PrivacyError
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise.base import NoiseDistribution, check_kernel, check_variance, no_exact_draw
from bayesprivmrf.noise.continuous import noise_from_dict
from bayesprivmrf.noise.source import NoiseSource, SimulatedNoise, whole_counts


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
    must, seen = "be that of added noise", "the kernel 'within', which is for counts known within bounds"
    is_added = law.kernel != "within"
    require(is_added, f"the noise distribution {law.name!r}", must, seen, "leave out its `kernel`")
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

    first, what = noise(0, zeros), f"`add_exactly` of the noise distribution {law.name!r}"
    must, seen = "take all randomness from `words`", "equal words that gave different noise"
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
    what, must = f"`add_exactly` of the noise distribution {law.name!r}", "return int64 of the counts' shape"
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
