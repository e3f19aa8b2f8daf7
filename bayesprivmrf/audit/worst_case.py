"""Random draws of a release at their worst case: their exact privacy cost, and an audit of the source of noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bayesprivmrf.audit.curves import (
    CERTAIN,
    Atoms,
    checked_shift,
    convolved,
    log_ratio,
    losses_of,
    support_of,
)
from bayesprivmrf.audit.empirical import AuditResult, audit_ratios
from bayesprivmrf.checks import at_least, instance_of, positive_finite, require, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.domain import listed
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.base import checked_noise
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import NoiseDistribution, PrivacyGuarantee

# Largest number of copies: it must fit into 64 bits.
_MOST_COPIES = 1 << 62
# Steps of a score ahead, a power of two, so that the division by them is exact; and the least lead.
_STEPS = 1 << 20
_TINY = 1e-300
# Orders of the Rényi divergences; arbitrary: more of them could only bring the cost nearer to its supremum.
_ORDERS = (1.5, 2.0, 3.0, 4.0, 8.0, 16.0, 32.0, 64.0)
# Relative rounding error of calibrations, and that of the difference of two log densities, nats a copy.
_CALIBRATION_ERROR = 1e-6
_DENSITY_ERROR = 1e-13


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Draws of integer noise on several numbers, which the worst neighbor moves by the same shift.

    Moves of different sizes have the same Gaussian cost if the sums of their squares are equal.

    Parameters
    ----------
    law
        Distribution of the noise on each number.
    copies
        How many numbers move; with a shift of one this is the squared L2 distance, records squared.
    shift
        Distance by which each number moves, records.

    Examples
    --------
    >>> from bayesprivmrf.noise import DiscreteLaplace
    >>> Sums(law=DiscreteLaplace(2.0), copies=3).copies
    3
    """

    most: ClassVar[int] = 8
    law: NoiseDistribution
    copies: int
    shift: int = 1

    def __post_init__(self) -> None:
        checked_noise("law", self.law)
        whole_number("copies", self.copies, most=_MOST_COPIES)
        checked_shift("shift", self.shift)

    def losses(self) -> Atoms:
        """Return the distribution of one copy's privacy loss."""
        return losses_of(self.law, self.shift)

    def ratios(self, source: NoiseSource, present: bool, size: int) -> FloatArray:
        """Draw that many copies, and return the log-likelihood ratio of each, shape (size,)."""
        noisy = source.add(np.full(size, self.shift * int(present), dtype=np.int64), self.law)
        return log_ratio(self.law, noisy - self.shift, noisy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Choices by the exponential mechanism between two candidates, whose scores the worst neighbor exchanges.

    Parameters
    ----------
    scale
        Scale of the noise, in the unit of the scores.
    score_range
        The largest minus the smallest change of a candidate's score.
    copies
        Number of choices.
    behind
        How far the first candidate is behind the other, in scales. At 0 neighbors exchange the scores, which is the
        worst case of zero-concentrated privacy. With larger values the rare choice of the first candidate has a loss
        of nearly the whole range over the scale, which is the worst case of pure privacy.

    Examples
    --------
    >>> Choices(scale=4.0, score_range=2.0, copies=1).behind
    0.0
    """

    most: ClassVar[int] = 200
    scale: float
    score_range: float
    copies: int
    behind: float = 0.0

    def __post_init__(self) -> None:
        positive_finite("scale", self.scale)
        at_least("score_range", self.score_range, 0)
        whole_number("copies", self.copies, most=_MOST_COPIES)
        at_least("behind", self.behind, 0)

    def _log_chances(self) -> tuple[FloatArray, FloatArray]:
        """Return the log probabilities of the two candidates, with the record and without it."""
        half = self.score_range / (2 * self.scale)
        ahead = np.array([half, -half]) - self.behind
        first = -np.log1p(np.exp(-ahead))
        second = -np.log1p(np.exp(ahead))
        return np.array([first[0], second[0]]), np.array([first[1], second[1]])

    def losses(self) -> Atoms:
        """Return the distribution of one copy's privacy loss; for ``behind=0`` that of randomized response."""
        present, absent = self._log_chances()
        order = np.argsort(present - absent)
        return (present - absent)[order], np.exp(present)[order]

    def ratios(self, source: NoiseSource, present: bool, size: int) -> FloatArray:
        """Draw that many copies, and return the log-likelihood ratio of each, shape (size,)."""
        half = self.score_range / (2 * self.scale)
        ahead = (half if present else -half) - self.behind
        # whole scores, as in the mechanism; the number of steps is a power of two, so that the division is exact
        steps = max(abs(half) + self.behind, _TINY) / _STEPS
        lead = round(ahead / steps)
        chosen = source.choose(np.tile([lead, -lead], (size, 1)), 2 / steps)
        ratio = np.subtract(*self._log_chances())
        return ratio[chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class StableAnswers:
    """Draws of a noisy count and an answer that is released if the count reaches a threshold.

    This is the worst case of propose, test, release: the neighbors have different answers, and their counts are 0 and
    -1. A released answer tells them apart.

    Parameters
    ----------
    law
        Distribution of the noise on the count.
    threshold
        Noisy count from which on the answer is released.
    copies
        Number of answers.

    Examples
    --------
    >>> from bayesprivmrf.noise import DiscreteLaplace
    >>> StableAnswers(law=DiscreteLaplace(1.0), threshold=14).copies
    1
    """

    most: ClassVar[int] = 8
    law: NoiseDistribution
    threshold: int
    copies: int = 1

    def __post_init__(self) -> None:
        checked_noise("law", self.law)
        checked_shift("threshold", self.threshold)
        whole_number("copies", self.copies, most=_MOST_COPIES)

    def losses(self) -> Atoms:
        """Return the distribution of one copy's privacy loss, infinite where the answer is released."""
        noise = support_of(self.law)
        losses = np.where(noise >= self.threshold, np.inf, log_ratio(self.law, noise, noise + 1))
        return losses, np.exp(self.law.log_density(noise))

    def ratios(self, source: NoiseSource, present: bool, size: int) -> FloatArray:
        """Draw that many copies, and return the log-likelihood ratio of each, shape (size,), within +-`CERTAIN`."""
        noisy = source.add(np.full(size, int(present) - 1, dtype=np.int64), self.law)
        ratio = log_ratio(self.law, noisy, noisy + 1)
        return np.where(noisy >= self.threshold, CERTAIN if present else -CERTAIN, ratio)


type Draw = Sums | Choices | StableAnswers


def exact_cost(draws: Sequence[Draw], guarantee: PrivacyGuarantee) -> float:
    """Return the cost of independent draws at their worst case, in the parameter of the guarantee, nats.

    The cost is epsilon for a pure guarantee, and epsilon at the guarantee's delta for an approximate one. For a
    zero-concentrated guarantee it is the largest Rényi divergence over its order, of eight orders from 1.5 to 64.

    Parameters
    ----------
    draws
        `Sums`, `Choices` and `StableAnswers`.
    guarantee
        The guarantee, which decides the parameter.

    Raises
    ------
    ArgumentError
        An argument has the wrong type.

    Examples
    --------
    >>> from bayesprivmrf.noise import DiscreteLaplace
    >>> promised = PrivacyGuarantee(epsilon=1.5, adjacency="add-or-remove-one")
    >>> round(exact_cost([Sums(law=DiscreteLaplace(2.0), copies=3)], promised), 6)
    1.5
    """
    instance_of("guarantee", guarantee, PrivacyGuarantee, "be a PrivacyGuarantee")
    parts = [(draw.copies, *draw.losses()) for draw in _checked(draws)]
    if guarantee.rho is not None:
        return max(
            sum(copies * _divergence(losses, weights, order) for copies, losses, weights in parts)
            / order
            for order in _ORDERS
        )
    if guarantee.delta == 0:
        return sum(copies * float(losses.max()) for copies, losses, _ in parts)
    loss = convolved([draw.losses() for draw in draws for _ in range(draw.copies)])
    return max(loss.epsilon(guarantee.delta) - loss.excess, 0.0)


def exceeds(draws: Sequence[Draw], cost: float, promised: float) -> bool:
    """Return True if a cost is above a promised one by more than rounding."""
    rounding = _DENSITY_ERROR * sum(draw.copies for draw in draws)
    return cost > promised * (1 + _CALIBRATION_ERROR) + rounding


def audit_draws(draws: Sequence[Draw], source: NoiseSource, **settings: Any) -> AuditResult:
    """Audit draws from a source of noise against the exact privacy curve of their stated distributions.

    The attack statistic is the log-likelihood ratio, which is the most powerful. Of many copies only a few are drawn,
    and they are compared with the curve of the same few.

    Parameters
    ----------
    draws
        The stated draws: `Sums`, `Choices` and `StableAnswers`.
    source
        The audited source.
    settings
        ``runs``, ``confidence`` and ``deltas`` of `audit`.

    Raises
    ------
    ArgumentError
        An argument has the wrong type.

    Examples
    --------
    >>> from bayesprivmrf.noise import DiscreteLaplace, noise_source
    >>> audit_draws([Sums(law=DiscreteLaplace(2.0), copies=3)], noise_source(1), runs=500).is_violated
    False
    """
    draws = _checked(draws)
    instance_of("source", source, NoiseSource, "be a source of noise", "write noise_source(None)")
    some = [(draw, max(min(draw.copies, draw.most // len(draws)), 1)) for draw in draws]

    def ratios(present: bool, runs: int) -> FloatArray:
        ratio = np.zeros(runs)
        for draw, copies in some:
            ratio += draw.ratios(source, present, runs * copies).reshape(runs, copies).sum(axis=1)
        return ratio

    return audit_ratios(
        ratios, [draw.losses() for draw, copies in some for _ in range(copies)], **settings
    )


def _checked(draws: Any) -> list[Draw]:
    given = listed("`draws`", draws, error=ArgumentError)
    remedy = "a mechanism's `outlays` list its own"
    for draw in given:
        is_draw = isinstance(draw, Sums | Choices | StableAnswers)
        kind = f"a {type(draw).__name__}"
        require(is_draw, "draws", "hold Sums, Choices or StableAnswers", kind, remedy)
    return given


def _divergence(losses: FloatArray, probabilities: FloatArray, order: float) -> float:
    """Return the Rényi divergence, nats, from the distribution of the privacy loss."""
    exponents = (order - 1) * losses + np.log(probabilities)
    largest = float(exponents.max())
    return (largest + math.log(float(np.exp(exponents - largest).sum()))) / (order - 1)
