"""Pseudo-likelihood of one configuration as a function of beta, and its maximizer.

Given the other outcomes, outcome i is s_i with probability expit(2 beta m_i s_i). The log pseudo-likelihood and its
derivative, the score, are

    l(beta) = sum_i log expit(2 beta m_i s_i),      l'(beta) = sum_i m_i (s_i - tanh(beta m_i)).

l is concave. It depends only on the sizes a = |m_i| of the local fields, and on how many nodes of each size have an
outcome along their field (m_i s_i > 0) or against it. Nodes are therefore counted by size first. Let A be the sum
of a over the nodes along their field, and B the sum over the nodes against it. With tanh x = 1 - 2 expit(-2x), the
score is

    l'(beta) = 2 (sum_along a expit(-2 beta a) - sum_against a expit(2 beta a)).

It decreases from 2A at -inf to -2B at +inf. There is a root if and only if A > 0 and B > 0. It lies in [0, inf) if
and only if, in addition, sum_i m_i s_i = A - B >= 0. If A = B = 0, every beta is a root.

A node along its field and a node against it, both of size a, together contribute -2 a tanh(beta a). Such pairs are
summed apart, so that nothing cancels within a sum for large beta. The root is that of the difference between the
logarithms of the positive and the negative part, which is close to a straight line for large beta.

With an external field h, outcome i is s_i with probability expit(2 (beta m_i + h) s_i). Nodes are then counted by
size and sign u of their local field, and beta a + h u replaces beta a. A root exists under the same condition, but
its sign is no longer that of A - B.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bayesprivmrf.checks import finite, require, sides_of
from bayesprivmrf.errors import ArgumentError, DataError

# relative width of the bracket at which a root counts as found: four times the rounding error
_CLOSE = 4 * float(np.finfo(float).eps)
# the same width relative to the far end, where the root is near zero
_ABSOLUTE = 1e-16
# smallest number whose logarithm is taken
_TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True, kw_only=True, eq=False)
class PseudoLikelihood:
    """Log pseudo-likelihood of beta for one configuration of an Ising network.

    It is computed from the outcomes without noise, so results have no privacy guarantee.
    `IsingNetwork.pseudo_likelihood` makes it from outcomes.

    Parameters
    ----------
    sizes
        Distinct sizes of the local fields, above zero and increasing, shape (k,). With an external field, one entry
        for each size and sign.
    along, against
        Number of nodes of each size whose outcome has the sign of their local field, or the opposite sign.
    silent
        Number of nodes whose local field is zero. Their contribution does not depend on beta.
    shifts
        h u for each size, shape (k,): the external field of h nats, times the sign u of the local field.
    constant
        Contribution of nodes with a zero local field to the log pseudo-likelihood.

    Examples
    --------
    >>> import numpy as np
    >>> function = PseudoLikelihood.from_fields(np.array([1.0, 1.0, 2.0]), np.array([1, -1, 1]))
    >>> round(function.maximiser(), 4)
    0.3782
    """

    sizes: np.ndarray
    along: np.ndarray
    against: np.ndarray
    silent: int
    shifts: np.ndarray
    constant: float

    @classmethod
    def from_fields(cls, fields: np.ndarray, spins: np.ndarray, strength: float = 0.0) -> Self:
        """Return the pseudo-likelihood for local fields m and outcomes s, both of shape (n,).

        `strength` is that of an external field, in nats.

        Raises
        ------
        DataError
            The shapes differ, a local field is not finite, or an outcome is neither -1 nor +1.
        """
        both = "`fields` and `spins`"
        remedy = "compute them with `local_fields(spins)` and `spins(outcomes)`"
        labeled = sides_of(fields) is not None or sides_of(spins) is not None
        must = "be plain arrays in the order of the nodes"
        require(not labeled, both, must, "labels", remedy, error=DataError)
        try:
            m = np.asarray(fields, dtype=np.float64)
            s = np.asarray(spins, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise DataError(
                f"{both} must be arrays of numbers, got something else; {remedy}."
            ) from None
        is_pair = m.ndim == 1 and m.shape == s.shape
        require(is_pair, both, "have one shape (n,)", f"{m.shape} and {s.shape}", error=DataError)
        require(np.isfinite(m).all(), "fields", "be finite", "others", remedy, error=DataError)
        require(
            (np.abs(s) == 1).all(),
            "spins",
            "be -1 or +1 in every entry",
            "others",
            remedy,
            error=DataError,
        )
        # count the nodes by the size of their local field, and with an external field by its sign as well
        strength = finite("strength", strength)
        heard = m != 0
        kinds = np.abs(m[heard])
        if strength:  # group by size and sign, as the real and imaginary part of one number
            kinds = kinds + 1j * np.sign(m[heard])
        groups, group = np.unique(kinds, return_inverse=True)
        is_along = (m * s)[heard] > 0
        size = groups.size
        return cls(
            sizes=groups.real,
            along=np.bincount(group[is_along], minlength=size),
            against=np.bincount(group[~is_along], minlength=size),
            silent=int((~heard).sum()),
            shifts=strength * groups.imag,
            constant=-float(np.logaddexp(0.0, -2 * strength * s[~heard]).sum()),
        )

    def __call__(self, beta: float) -> float:
        """Return l(beta) = sum_i log expit(2 (beta m_i + h) s_i), in nats."""
        x = self._arguments(finite("beta", beta))
        along = np.logaddexp(0.0, -x)
        against = np.logaddexp(0.0, x)
        return self.constant - float(self.along @ along + self.against @ against)

    def _arguments(self, beta: float) -> np.ndarray:
        """Return 2 (beta a + h u) of each group: the log odds of an outcome with the sign of its local field."""
        return 2.0 * beta * self.sizes + 2.0 * self.shifts

    def score(self, beta: float) -> float:
        """Return the score l'(beta) = sum_i m_i (s_i - tanh(beta m_i + h)), which is positive below the maximizer."""
        x = self._arguments(finite("beta", beta))
        return 2.0 * float(self.sizes @ (self.along * _expit(-x) - self.against * _expit(x)))

    def information(self, beta: float) -> float:
        """Return the information -l''(beta) = sum_i m_i^2 / cosh^2(beta m_i + h), which is at least 0."""
        x = self._arguments(finite("beta", beta))
        return 4.0 * float(self.sizes**2 @ ((self.along + self.against) * _expit(x) * _expit(-x)))

    def maximiser(self, bounds: tuple[float, float] | None = None) -> float:
        """Return the beta within bounds that maximizes the pseudo-likelihood.

        Without bounds it is the root of the score. A root outside the bounds is moved to the nearer bound. If no
        outcome opposes its local field, there is no maximum, and the result is infinity; if none agrees with its
        local field, the result is minus infinity. If all local fields are zero, every beta is equally good, and the
        result is NaN.

        Parameters
        ----------
        bounds
            Smallest and largest beta; ``None`` for all real numbers.

        Raises
        ------
        ArgumentError
            The bounds are not two numbers in increasing order.
        """
        if bounds is None:
            low = -math.inf
            high = math.inf
        else:
            low, high = checked_bounds(bounds)
        return float(np.clip(self._unconstrained(), low, high))

    def _unconstrained(self) -> float:
        """Return the maximizer without bounds: the root at which the logarithms of both parts are equal."""
        from scipy.optimize import brentq
        from scipy.special import log_expit, logsumexp

        if not self.sizes.size:
            return math.nan
        if not (self.along.any() and self.against.any()):
            if self.along.any():
                return math.inf
            return -math.inf
        pairs = np.minimum(self.along, self.against)
        up, down = (self.sizes * (counts - pairs) for counts in (self.along, self.against))

        def excess(beta: float) -> float:
            """Return log P - log Q, where half of the score is P - Q and no term of either sum is negative."""
            x = self._arguments(beta)
            # a node along its field and one against it contribute -a tanh(x / 2)
            pull = self.sizes * pairs * np.tanh(x / 2)
            rest = [math.log(max(part[part > 0].sum(), _TINY)) for part in (-pull, pull)]
            along: Any = logsumexp(log_expit(-x), b=up)
            against: Any = logsumexp(log_expit(x), b=down)
            return float(np.logaddexp(along, rest[0]) - np.logaddexp(against, rest[1]))

        start = excess(0.0)
        if start == 0.0:
            return 0.0
        # double a bracket on the side of the root, whose end is as far from 0 as the largest field suggests
        near = 0.0
        far = math.copysign(1 / self.sizes.max(), start)
        while excess(far) / start > 0:
            near = far
            far = 2 * far
        root: Any = brentq(excess, near, far, xtol=abs(far) * _ABSOLUTE, rtol=np.float64(_CLOSE))
        return float(root)


def _expit(x: Any) -> np.ndarray:
    """Return 1 / (1 + exp(-x)) without overflow."""
    return np.exp(-np.logaddexp(0.0, -x))


def checked_bounds(bounds: Any) -> tuple[float, float]:
    """Return bounds on beta as two floats, after a check that the first is below the second."""
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(
            f"`bounds` must be two numbers (lowest, highest), got {bounds!r}."
        ) from None
    require(low < high, "bounds", "be increasing", bounds, "write the lower one first")
    return low, high
