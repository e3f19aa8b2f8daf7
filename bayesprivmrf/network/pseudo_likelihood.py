"""The pseudo-likelihood of one configuration as a function of beta, and where it is largest.

Given the others, outcome i is s_i with probability expit(2 beta m_i s_i), so that the log-pseudo-likelihood is

    l(beta) = sum_i log expit(2 beta m_i s_i),      l'(beta) = sum_i m_i (s_i - tanh(beta m_i)),

concave in beta. It depends on the fields' sizes a = |m_i| alone and on how many nodes of each size go with their
field (m_i s_i > 0) or against it, so fields are first aggregated by size. With A the sum of a over the nodes that go
with their field and B over those that go against it, and tanh x = 1 - 2 expit(-2x),

    l'(beta) = 2 (sum_i a_i expit(-2 beta a_i) - B),

a decreasing function of beta from 2A at -inf to -2B at +inf. It has a root exactly if A > 0 and B > 0, and one in
[0, inf) exactly if B > 0 and sum_i m_i s_i = A - B >= 0 (for A = 0 = B every beta is one). In this form nothing
cancels where beta is large: the sum falls like exp(-2 beta a), and the root is found on the scale of its logarithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bayesprivmrf.errors import ArgumentError, DataError

__all__ = ["PseudoLikelihood", "checked_bounds"]

_ITERATIONS = (
    200  # bisection alone would need fewer than this many to exhaust a double's 64 bits from any bracket
)


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
        Number of nodes whose field is zero; each adds log(1/2) whatever beta is.
    """

    sizes: np.ndarray
    along: np.ndarray
    against: np.ndarray
    silent: int

    @classmethod
    def from_fields(cls, fields: np.ndarray, spins: np.ndarray) -> Self:
        """Return the function for local fields m and outcomes s in {-1, +1}, both of shape (n,).

        Raises
        ------
        DataError
            The shapes differ, a field is not finite or an outcome is neither -1 nor +1.
        """
        m, s = np.asarray(fields, dtype=np.float64), np.asarray(spins)
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
        pulls = np.sort(m * s)
        below, above = np.searchsorted(pulls, 0.0), np.searchsorted(pulls, 0.0, side="right")
        sizes, inverse = np.unique(
            np.abs(np.concatenate([pulls[:below], pulls[above:]])), return_inverse=True
        )
        return cls(
            sizes=sizes,
            along=np.bincount(inverse[below:], minlength=sizes.size),
            against=np.bincount(inverse[:below], minlength=sizes.size),
            silent=int(above - below),
        )

    @property
    def energy(self) -> float:
        """H(s) = sum_i m_i s_i, rounded once."""
        return math.fsum(self.sizes * (self.along - self.against))

    def __call__(self, beta: float) -> float:
        """Return l(beta) = sum_i log expit(2 beta m_i s_i), in nats."""
        x = 2.0 * _finite(beta) * self.sizes
        along, against = np.logaddexp(0.0, -x), np.logaddexp(0.0, x)
        return -float(self.along @ along + self.against @ against + self.silent * math.log(2.0))

    def score(self, beta: float) -> float:
        """Return l'(beta) = sum_i m_i (s_i - tanh(beta m_i)), positive below the maximiser."""
        x = 2.0 * _finite(beta) * self.sizes
        return 2.0 * float(self.sizes @ (self.along * _expit(-x) - self.against * _expit(x)))

    def information(self, beta: float) -> float:
        """Return -l''(beta) = sum_i m_i^2 / cosh^2(beta m_i), never negative."""
        x = 2.0 * _finite(beta) * self.sizes
        return 4.0 * float(self.sizes**2 @ ((self.along + self.against) * _expit(x) * _expit(-x)))

    def maximiser(self, bounds: tuple[float, float] | None = (0.0, math.inf)) -> float:
        """Return the beta within bounds at which the pseudo-likelihood is largest.

        The root of the score where one lies within bounds, else the bound nearest to it. A bound may be
        infinite: a configuration in which no outcome goes against its field has its supremum, unattained, at
        +inf. A configuration whose fields are all zero tells nothing; the answer is then the beta in bounds
        nearest to 0.

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
        return float(min(max(self._unconstrained(), low), high))

    def _unconstrained(self) -> float:
        H = self.energy
        if H == 0.0:  # the root of an odd function; or all fields are zero
            return 0.0
        if H > 0.0:
            return _root(self.sizes, self.along + self.against, self.against)
        return -_root(self.sizes, self.along + self.against, self.along)


def _root(sizes: np.ndarray, counts: np.ndarray, rarer: np.ndarray) -> float:
    """Root x > 0 of f(x) = log sum_k c_k a_k expit(-2 x a_k) - log sum_k r_k a_k, by Newton kept in a bracket.

    f falls from log((A + B) / 2B) > 0 at x = 0 to -inf; with B = 0 there is no root but +inf. Far out f is close
    to a straight line of slope -2 min a, where Newton's method on the score itself would crawl.
    """
    used = counts > 0
    a, weights = sizes[used], (counts * sizes)[used]
    target = math.fsum(rarer * sizes)
    if target == 0.0:
        return math.inf
    # expit(-y) lies between exp(-y)/2 and exp(-y): the first term alone, and all as the slowest, bracket the root
    low = max(math.log(weights[0] / (2 * target)) / (2 * a[0]), 0.0)
    high = math.log(math.fsum(weights) / target) / (2 * a[0])
    x = min(max(_start(a, weights, target), low), high)
    for _ in range(_ITERATIONS):
        y = 2.0 * x * a
        terms = weights * np.exp(y[0] - np.logaddexp(0.0, y))  # times exp(y[0]), lest all underflow
        total = float(np.sum(terms))
        f = math.log(total / target) - y[0]
        low, high = (x, high) if f > 0 else (low, x)
        slope = -2.0 * float(a @ (terms * _expit(y))) / total
        new = x - f / slope
        if not low < new < high:
            new = low + (high - low) / 2
        if abs(new - x) <= 4 * np.finfo(float).eps * abs(new) or f == 0.0:
            return new if f != 0.0 else x
        x = new
    return x


def _start(a: np.ndarray, weights: np.ndarray, target: float) -> float:
    """First step of Newton's method on the score from 0, where it is (A - B) / sum c a^2."""
    return (float(np.sum(weights)) - 2 * target) / float(weights @ a)


def _expit(x: Any) -> np.ndarray:
    """1 / (1 + exp(-x)) without overflow."""
    return np.exp(-np.logaddexp(0.0, -x))


def _finite(beta: float) -> float:
    if not math.isfinite(beta):
        raise ArgumentError(f"`beta` must be a finite number, got {beta!r}.")
    return float(beta)


def checked_bounds(bounds: Any) -> tuple[float, float]:
    """Return bounds on beta as two floats, the first below the second.

    Raises
    ------
    ArgumentError
        They are not two numbers, one is NaN, or the first is not below the second.
    """
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"`bounds` must be two numbers (lowest, highest), got {bounds!r}.") from error
    if not low < high:
        raise ArgumentError(f"`bounds` must be increasing, got {bounds!r}; write the lower one first.")
    return low, high
