"""The draws of a release, each at its worst case: what they cost exactly, and an audit of how they are drawn."""

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
from bayesprivmrf.audit.empirical import AuditResult, audit
from bayesprivmrf.checks import at_least, instance_of, positive_finite, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.domain import listed
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.base import checked_law
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import NoiseLaw, PrivacyGuarantee

# Rényi orders of which the largest cost is taken; arbitrary: more orders could only bring the cost nearer
# to its supremum.
_ORDERS = (1.5, 2.0, 3.0, 4.0, 8.0, 16.0, 32.0, 64.0)
# Share by which a cost may exceed a promise, for the rounding of calibrations and of losses.
_TOLERANCE = 1e-6
_ROUNDING = 1e-13  # nats a copy: of the difference of two log densities
# Steps of whole scores in the larger lead of a choice; a power of two, so that dividing by it is exact.
_WHOLE = 1 << 20
# Most copies, whose number must fit into 64 bits.
_MOST_COPIES = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Whole numbers with noise of one law; the worst neighbour moves as many of them by the same shift.

    Moves of other sizes have the same Gaussian cost where their squared lengths add up to the same.

    Parameters
    ----------
    law
        Law of the noise on each number.
    copies
        How many numbers move; with a shift of one, the squared L2 distance, records squared.
    shift
        The distance by which each moves.
    """

    most: ClassVar[int] = 8
    law: NoiseLaw
    copies: int
    shift: int = 1

    def __post_init__(self) -> None:
        checked_law("law", self.law)
        whole_number("copies", self.copies, most=_MOST_COPIES)
        checked_shift("shift", self.shift)

    def losses(self) -> Atoms:
        """Return the law of the privacy loss of one copy."""
        return losses_of(self.law, self.shift)

    def ratios(self, source: NoiseSource, present: bool, size: int) -> FloatArray:
        """Draw that many copies, and return the log-likelihood ratio of each, shape (size,)."""
        noisy = source.add(np.full(size, self.shift * int(present), dtype=np.int64), self.law)
        return log_ratio(self.law, noisy - self.shift, noisy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Choices by the exponential mechanism, between two candidates whose scores the worst neighbour exchanges.

    Parameters
    ----------
    scale
        Scale of the noise, in the unit of the scores.
    score_range
        The largest minus the smallest change of a candidate's score.
    copies
        How many choices are made.
    behind
        How far the first candidate is behind the other, in scales. At 0 neighbours exchange the scores, the worst
        case of zero-concentrated privacy. With more, the rare choice of the first tells them apart by nearly the
        whole range over the scale, the worst case of pure privacy.
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
        """Return the log chances of the two candidates with the record and without it."""
        half = self.score_range / (2 * self.scale)
        ahead = np.array([half, -half]) - self.behind
        first, second = -np.log1p(np.exp(-ahead)), -np.log1p(np.exp(ahead))
        return np.array([first[0], second[0]]), np.array([first[1], second[1]])

    def losses(self) -> Atoms:
        """Return the law of the privacy loss of one copy: with nothing behind, that of randomised response."""
        present, absent = self._log_chances()
        order = np.argsort(present - absent)
        return (present - absent)[order], np.exp(present)[order]

    def ratios(self, source: NoiseSource, present: bool, size: int) -> FloatArray:
        """Draw that many copies, and return the log-likelihood ratio of each, shape (size,)."""
        half = self.score_range / (2 * self.scale)
        ahead = (half if present else -half) - self.behind
        steps = max(abs(half) + self.behind, 1e-300) / _WHOLE
        # whole scores, as the mechanism has them
        lead = round(ahead / steps)
        chosen = source.choose(np.tile([lead, -lead], (size, 1)), 2 / steps)
        ratio = np.subtract(*self._log_chances())
        return ratio[chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class StableAnswers:
    """A noisy count beside an answer that is let out where it reaches a threshold (propose, test, release).

    The worst neighbours have two answers; the count is 0 of the one and -1 of the other. An answer that is let out
    tells them apart.

    Parameters
    ----------
    law
        Law of the noise on the count.
    threshold
        The noisy count from which on the answer is let out.
    copies
        How many answers there are.
    """

    most: ClassVar[int] = 8
    law: NoiseLaw
    threshold: int
    copies: int = 1

    def __post_init__(self) -> None:
        checked_law("law", self.law)
        checked_shift("threshold", self.threshold)
        whole_number("copies", self.copies, most=_MOST_COPIES)

    def losses(self) -> Atoms:
        """Return the law of the privacy loss of one copy, infinite where the answer is let out."""
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
    """Return the cost of independent draws at their worst case, in the number that the guarantee promises.

    It is epsilon for a pure guarantee, epsilon at its delta for an approximate one, and for a zero-concentrated one
    the largest Rényi divergence over its order, of a few orders.

    Raises
    ------
    ArgumentError
        An argument is of another type.
    """
    instance_of("guarantee", guarantee, PrivacyGuarantee, "be a PrivacyGuarantee")
    parts = [(draw.copies, *draw.losses()) for draw in _checked(draws)]
    if guarantee.rho is not None:
        return max(
            sum(copies * _divergence(losses, weights, order) for copies, losses, weights in parts) / order
            for order in _ORDERS
        )
    if guarantee.delta == 0:
        return sum(copies * float(losses.max()) for copies, losses, _ in parts)
    loss = convolved([draw.losses() for draw in draws for _ in range(draw.copies)])
    return max(loss.epsilon(guarantee.delta) - loss.excess, 0.0)


def exceeds(draws: Sequence[Draw], cost: float, promised: float) -> bool:
    """Tell whether a cost is above a promise by more than its rounding."""
    return cost > promised * (1 + _TOLERANCE) + _ROUNDING * sum(draw.copies for draw in draws)


def audit_draws(draws: Sequence[Draw], source: NoiseSource, **settings: Any) -> AuditResult:
    """Audit draws from a source against the exact privacy curve of their stated laws.

    The attack statistic is the log-likelihood ratio, the most powerful there is. A few of many copies are drawn, and
    held against the curve of these.

    Parameters
    ----------
    draws
        The draws as they are stated.
    source
        The source that draws them.
    settings
        ``runs``, ``confidence`` and ``deltas`` of `audit`.

    Raises
    ------
    ArgumentError
        An argument is of another type.
    """
    draws = _checked(draws)
    instance_of("source", source, NoiseSource, "be a source of noise", "write noise_source(None)")
    some = [(draw, max(min(draw.copies, draw.most // len(draws)), 1)) for draw in draws]
    exact = convolved([draw.losses() for draw, copies in some for _ in range(copies)])

    def randomizer(present: bool):
        def statistics(runs: int) -> FloatArray:
            ratio = np.zeros(runs)
            for draw, copies in some:
                ratio += draw.ratios(source, present, runs * copies).reshape(runs, copies).sum(axis=1)
            return np.round(ratio, 9)  # equal ratios, summed in different orders, are one value

        return statistics

    return audit(randomizer(True), randomizer(False), exact.epsilon, **settings)


def _checked(draws: Any) -> list[Draw]:
    given = listed("`draws`", draws, error=ArgumentError)
    for draw in given:
        if not isinstance(draw, Sums | Choices | StableAnswers):
            raise ArgumentError(
                f"`draws` must hold Sums, Choices or StableAnswers, got a {type(draw).__name__}; a mechanism's "
                "`outlays` list its own."
            )
    return given


def _divergence(losses: FloatArray, probabilities: FloatArray, order: float) -> float:
    """Return the Rényi divergence of two output laws from the law of their loss, nats."""
    exponents = (order - 1) * losses + np.log(probabilities)
    largest = float(exponents.max())
    return (largest + math.log(float(np.exp(exponents - largest).sum()))) / (order - 1)
