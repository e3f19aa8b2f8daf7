"""The pseudo-likelihood of one configuration as a function of beta, and where it is largest.

Given the others, outcome i is s_i with probability expit(2 beta m_i s_i), so that the log-pseudo-likelihood is

    l(beta) = sum_i log expit(2 beta m_i s_i),      l'(beta) = sum_i m_i (s_i - tanh(beta m_i)),

concave in beta. It depends on the fields' sizes a = |m_i| alone and on how many nodes of each size go with their
field (m_i s_i > 0) or against it, so fields are first aggregated by size. With A the sum of a over the nodes that go
with their field and B over those that go against it, and tanh x = 1 - 2 expit(-2x),

    l'(beta) = 2 (sum_along a expit(-2 beta a) - sum_against a expit(2 beta a)),

a decreasing function of beta from 2A at -inf to -2B at +inf. It has a root exactly if A > 0 and B > 0, and one in
[0, inf) exactly if B > 0 and sum_i m_i s_i = A - B >= 0 (for A = 0 = B every beta is one). A node of each kind with
one size a together add -2 a tanh(beta a) / 2; with such pairs taken out nothing cancels within a sum where beta is
large, and the root is found from the logarithms of the positive and the negative part.

With an external field h, outcome i is s_i with probability expit(2 (beta m_i + h) s_i). Fields are then aggregated
by size and sign u, and beta a + h u takes the place of beta a. A root exists under the same condition, but its sign
is no longer that of A - B.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bayesprivmrf.checks import finite, require, sides_of
from bayesprivmrf.errors import ArgumentError, DataError

_ITERATIONS = 100  # bisection of a bracket as narrow as a factor of two needs 53
# Relative width at which a root is found: four units of rounding
_CLOSE = 4 * float(np.finfo(float).eps)
# Smallest normal number, the least lower end of a bracket
_TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True, kw_only=True, eq=False)
class PseudoLikelihood:
    """Log-pseudo-likelihood of beta for one configuration of an Ising network.

    Computed from the outcomes themselves: a result carries no guarantee.

    Parameters
    ----------
    sizes
        Distinct sizes of the local fields, above zero and increasing, shape (k,).
    along, against
        Numbers of nodes with a field of each size whose outcome has the sign of the field, or the other one.
    silent
        Number of nodes whose field is zero; they add the same whatever beta is.
    shifts
        h u for each size, shape (k,): an external field of h nats, with the sign u of the local field.
    constant
        Contribution of nodes with a zero local field to the log-pseudo-likelihood.
    """

    sizes: np.ndarray
    along: np.ndarray
    against: np.ndarray
    silent: int
    shifts: np.ndarray
    constant: float

    @classmethod
    def from_fields(cls, fields: np.ndarray, spins: np.ndarray, strength: float = 0.0) -> Self:
        """Return the function for local fields m, outcomes s in {-1, +1}, both of shape (n,), and a field in nats.

        Raises
        ------
        DataError
            The shapes differ, a field is not finite or an outcome is neither -1 nor +1.
        """
        if sides_of(fields) is not None or sides_of(spins) is not None:
            raise DataError(
                "`fields` and `spins` must be plain arrays in the order of the nodes, got labels; compute them by "
                "`local_fields(spins)` and `spins(outcomes)`."
            )
        try:
            m, s = np.asarray(fields, dtype=np.float64), np.asarray(spins, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise DataError(
                "`fields` and `spins` must be arrays of numbers, got something else; compute them by "
                "`local_fields(spins)` and `spins(outcomes)`."
            ) from None
        if m.ndim != 1 or m.shape != s.shape:
            raise DataError(f"`fields` and `spins` must be of one shape (n,), got {m.shape} and {s.shape}.")
        if not np.isfinite(m).all():
            raise DataError(
                "`fields` must be finite, but some are not; compute them by `local_fields(spins)`."
            )
        if not (np.abs(s) == 1).all():
            raise DataError(
                "`spins` must be -1 or +1 in every entry, but some are not; use `spins(outcomes)`."
            )
        strength, heard = finite("strength", strength), m != 0
        kinds = np.abs(m[heard])
        if strength:  # complex numbers are sorted by size, then by sign
            kinds = kinds + 1j * np.sign(m[heard])
        # nodes of one size and sign of field count together
        groups, group = np.unique(kinds, return_inverse=True)
        is_along, size = (m * s)[heard] > 0, groups.size
        return cls(
            sizes=groups.real,
            along=np.bincount(group[is_along], minlength=size),
            against=np.bincount(group[~is_along], minlength=size),
            silent=int((~heard).sum()),
            shifts=strength * groups.imag,
            constant=-float(np.logaddexp(0.0, -2 * strength * s[~heard]).sum()),
        )

    @property
    def energy(self) -> float:
        """H(s) = sum_i m_i s_i, rounded once."""
        return math.fsum(self.sizes * (self.along - self.against))

    def __call__(self, beta: float) -> float:
        """Return l(beta) = sum_i log expit(2 (beta m_i + h) s_i), in nats."""
        x = self._arguments(finite("beta", beta))
        along, against = np.logaddexp(0.0, -x), np.logaddexp(0.0, x)
        return self.constant - float(self.along @ along + self.against @ against)

    def _arguments(self, beta: float) -> np.ndarray:
        """Return 2 (beta a + h u) of each group: the log odds of an outcome that goes along with its field."""
        return 2.0 * beta * self.sizes + 2.0 * self.shifts

    def score(self, beta: float) -> float:
        """Return l'(beta) = sum_i m_i (s_i - tanh(beta m_i + h)), positive below the maximiser."""
        x = self._arguments(finite("beta", beta))
        return 2.0 * float(self.sizes @ (self.along * _expit(-x) - self.against * _expit(x)))

    def information(self, beta: float) -> float:
        """Return -l''(beta) = sum_i m_i^2 / cosh^2(beta m_i + h), never negative."""
        x = self._arguments(finite("beta", beta))
        return 4.0 * float(self.sizes**2 @ ((self.along + self.against) * _expit(x) * _expit(-x)))

    def maximiser(self, bounds: tuple[float, float] | None = None) -> float:
        """Return the beta within bounds at which the pseudo-likelihood is largest: by default, the score's root.

        A root outside the bounds is moved to the nearer bound. Where no outcome opposes its local field the supremum
        is not attained and lies at infinity; where none agrees with it, at minus infinity. Where all local fields are
        zero the answer is NaN, because every beta is equally good.

        Parameters
        ----------
        bounds
            Lowest and highest beta; ``None`` for the whole line.

        Raises
        ------
        ArgumentError
            The bounds are not two numbers in increasing order.
        """
        low, high = (-math.inf, math.inf) if bounds is None else checked_bounds(bounds)
        return float(np.clip(self._unconstrained(), low, high))

    def _unconstrained(self) -> float:
        if not self.sizes.size:
            return math.nan
        if self.shifts.any():
            return self._shifted_root()
        H = self.energy
        if H == 0.0:  # the root of an odd function
            return 0.0
        if H > 0.0:
            return _root(self.sizes, self.along, self.against)
        return -_root(self.sizes, self.against, self.along)

    def _shifted_root(self) -> float:
        """Return the root with an external field: where the logarithms of both parts of the score are equal."""
        from scipy.optimize import brentq
        from scipy.special import log_expit, logsumexp

        if not (self.along.any() and self.against.any()):
            return math.inf if self.along.any() else -math.inf

        def excess(beta: float) -> float:
            x = self._arguments(beta)
            parts = (self.along, log_expit(-x)), (self.against, log_expit(x))
            along, against = (logsumexp(logs, b=self.sizes * counts) for counts, logs in parts)
            difference: Any = along - against
            return float(difference)

        low, high = -1 / self.sizes.max(), 1 / self.sizes.max()
        while excess(high) > 0:
            high *= 2
        while excess(low) < 0:
            low *= 2
        root: Any = brentq(excess, low, high, xtol=1e-15 * (high - low), rtol=np.float64(_CLOSE))
        return float(root)


def _root(sizes: np.ndarray, along: np.ndarray, against: np.ndarray) -> float:
    """Return the root x > 0 of the score where A > B, by Newton's method on log P - log Q within a bracket.

    P(x) = sum_k e_k a_k expit(-2 x a_k), over the excess e_k of nodes that go along, decreases; Q(x), of the same
    excess against and of pairs a_k tanh(x a_k), increases. Far out log P is close to a straight line, where
    Newton's method on the score itself would crawl. With B = 0 the root is +inf.
    """
    if not against.any():
        return math.inf
    parts = _Parts(sizes, along, against)
    # the score is convex for x > 0, so that Newton's first step from 0 ends below the root
    low = max((parts.at_zero(along) - parts.at_zero(against)) / float((along + against) @ sizes**2), _TINY)
    high = 2 * low
    while parts(high)[0] > 0:
        low, high = high, 2 * high
    x = low
    for _ in range(_ITERATIONS):
        f, slope = parts(x)
        low, high = (x, high) if f > 0 else (low, x)
        new = x - f / slope if slope < 0 else high
        if not low < new < high:
            new = low + (high - low) / 2
        if f == 0.0 or abs(new - x) <= _CLOSE * x:
            return x if f == 0.0 else new
        x = new
    return x


class _Parts:
    """log P - log Q and its derivative."""

    def __init__(self, sizes: np.ndarray, along: np.ndarray, against: np.ndarray) -> None:
        pairs, excess = np.minimum(along, against), along - against
        self.sizes = sizes
        self.a, self.up = sizes[excess > 0], (sizes * excess)[excess > 0]
        self.b, self.down = sizes[excess < 0], (sizes * -excess)[excess < 0]
        self.c, self.pair = sizes[pairs > 0], (sizes * pairs)[pairs > 0]

    def at_zero(self, counts: np.ndarray) -> float:
        return math.fsum(counts * self.sizes)

    def __call__(self, x: float) -> tuple[float, float]:
        y, z, t = 2.0 * x * self.a, 2.0 * x * self.b, np.tanh(x * self.c)
        terms = self.up * np.exp(y[0] - np.logaddexp(0.0, y))  # exp(y[0]) times too large, lest all underflow
        P = float(np.sum(terms))
        against = self.down * _expit(z)
        Q = float(np.sum(against) + self.pair @ t)
        if Q == 0.0:  # it underflows, so that P is larger here
            return math.inf, 0.0
        falls = -2.0 * float(self.a @ (terms * _expit(y))) / P
        rises = float(2.0 * self.b @ (against * _expit(-z)) + (self.c * self.pair) @ ((1 - t) * (1 + t))) / Q
        return math.log(P) - y[0] - math.log(Q), falls - rises


def _expit(x: Any) -> np.ndarray:
    """Return 1 / (1 + exp(-x)) without overflow."""
    return np.exp(-np.logaddexp(0.0, -x))


def checked_bounds(bounds: Any) -> tuple[float, float]:
    """Return bounds on beta as two floats, the first below the second.

    Raises
    ------
    ArgumentError
        They are not two numbers, one is NaN, or the first is not below the second.
    """
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"`bounds` must be two numbers (lowest, highest), got {bounds!r}.") from None
    require(low < high, "bounds", "be increasing", bounds, "write the lower one first")
    return low, high
