r"""The public external field of an Ising model, and the constants by which it increases a sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bayesprivmrf.checks import finite, require
from bayesprivmrf.model.tables import FloatArray

# Factor by which constants from a bisection are rounded up
_UP = 1 + 1e-12
# Halvings of a bracket after which it has no number inside, whatever its width was
_HALVINGS = 200
# Largest strength, nats (a share of 2e-9; `score_lattice.TERM_ERROR` relies on it), and largest mean outcome
_LARGEST = {"strength": 10.0, "center": 1.0}
# u + h is below this much more than h, because u tanh u = 1 has the root 1.1997
_ABOVE_FIELD = 1.2


@dataclass(frozen=True, slots=True)
class ExternalField:
    r"""Public external field: half the log odds of an outcome without any influence of neighbors.

    With the field the outcomes s have the distribution

    .. math:: P(s) \propto \exp\big(\tfrac{\beta}{2} (s - c)^\top J (s - c) + h \sum_i s_i\big),

    so a node is +1 with probability :math:`1 / (1 + \exp(-2 (\beta m_i + h)))`, where the neighbors pull by
    :math:`m_i = \sum_j J_{ij} (s_j - c)`. The field must be chosen without looking at the outcomes.

    Parameters
    ----------
    strength
        h, in nats, at most 10 in size: positive where outcomes tend to +1.
    center
        c, in [-1, 1]: the mean outcome around which neighbors pull. 0 is the usual Ising model.

    Raises
    ------
    ArgumentError
        A number is not finite or out of range.

    Examples
    --------
    >>> ExternalField.from_share(0.38)
    ExternalField(strength=-0.2447..., center=-0.24)
    """

    strength: float
    center: float = 0.0

    def __post_init__(self) -> None:
        for name, largest in _LARGEST.items():
            value = finite(name, getattr(self, name))
            what = f"`{name}` of an external field"
            require(abs(value) <= largest, what, f"be within ±{largest:g}", value)
            object.__setattr__(self, name, float(value))

    @classmethod
    def from_share(cls, share: float) -> Self:
        r"""Return the field under which a known share of the outcomes is positive.

        It has :math:`c = 2 p - 1` and :math:`h = \operatorname{artanh} c` for the share p. Without influence a node
        is then positive with probability p, and neighbors pull only as far as they deviate from that share. The mean
        outcome stays c up to terms in :math:`\beta^2`, whatever the network: its derivative at beta = 0 is
        :math:`\operatorname{Cov}(s_i, \tfrac12 (s - c)^\top J (s - c)) = 0`, because the terms of
        :math:`s - c` are independent there, have mean zero, and J has no diagonal. A field without a center would
        drift with beta: positive influence alone would make a majority larger.

        Parameters
        ----------
        share
            The public share of outcomes in the positive state, in (0, 1).

        Raises
        ------
        ArgumentError
            The share is not a number in (0, 1), or so near an end that the field exceeds 10 nats.
        """
        share = finite("share", share)
        require(0 < share < 1, "share", "be in (0, 1)", f"{share:g}", "0.38 is 38 %")
        return cls(0.5 * math.log(share / (1 - share)), 2 * share - 1)

    @classmethod
    def checked(cls, field: Any) -> Self | None:
        """Return a field from a field or from its strength, and None from None.

        Raises
        ------
        ArgumentError
            The argument has another type, or the number is out of range.
        """
        if field is None or isinstance(field, cls):
            return field
        is_number = isinstance(field, int | float | np.number) and not isinstance(field, bool)
        must = "be None, a number of nats or an ExternalField"
        remedy = "see ExternalField.from_share(0.38)"
        require(is_number, "field", must, type(field).__name__, remedy)
        return cls(float(field))

    def offsets(self, coupling: Any) -> FloatArray:
        """Return c times the row sums of J, the numbers to subtract from the local fields, shape (n,)."""
        return self.center * np.asarray(coupling.sum(axis=1), dtype=float).ravel()

    @property
    def tanh_slope(self) -> float:
        r"""Largest slope of :math:`x \tanh(a x + h)` in x, for any a, rounded up.

        With :math:`t = a x + h` the slope is :math:`g(t) = \tanh t + (t - h) \operatorname{sech}^2 t`. For h >= 0 its
        size is largest at a negative t. At t = -u, :math:`-g = \tanh u + (u + h) \operatorname{sech}^2 u` has the
        derivative :math:`2 \operatorname{sech}^2 u \, (1 - (u + h) \tanh u)`. The maximum of -g is v = u + h, the
        root of :math:`v \tanh(v - h) = 1`. At positive t, g lies between -h and the slope without a field, both of
        which are below v in size.
        """
        h = abs(self.strength)
        return _rising_root(lambda v: v * math.tanh(v - h) - 1, h, h + _ABOVE_FIELD) * _UP

    @property
    def sech_slope(self) -> float:
        r"""Largest slope of :math:`x \operatorname{sech}(a x + h)` in x, for any a, rounded up.

        The slope is :math:`f(t) = \operatorname{sech} t \, (1 - (t - h) \tanh t)` at :math:`t = a x + h`. For h >= 0
        it has one maximum in [0, h], at the root of :math:`2 \tanh t = (h - t)(1 - 2 \tanh^2 t)`, and with C = cosh t
        there f is :math:`C / (2 - C^2)`. -f is never larger than this maximum. For t >= 0, -f is at most
        :math:`\operatorname{sech} t \, (t \tanh t - 1) \le 0.252`. For t < 0, -f is at most 0.252 + h/2, while f at
        :math:`\operatorname{arsinh} 1` is 0.266 + h/2.
        """
        h = abs(self.strength)
        root = _rising_root(
            lambda t: 2 * math.tanh(t) - (h - t) * (1 - 2 * math.tanh(t) ** 2),
            0.0,
            min(h, math.asinh(1.0)),
        )
        return math.cosh(root) / (2 - math.cosh(root) ** 2) * _UP

    @property
    def square_gap(self) -> float:
        r"""Largest difference of :math:`\operatorname{sech}^2(y + h)` and :math:`\operatorname{sech}^2(y - h)`.

        With k = cosh 2h and z = cosh 2y the difference is :math:`4 \sinh 2|h| \sqrt{z^2 - 1} / (z + k)^2`. It is
        largest at :math:`z = (k + \sqrt{k^2 + 8}) / 2`.
        """
        k = math.cosh(2 * self.strength)
        z = (k + math.sqrt(k * k + 8)) / 2
        return 4 * math.sinh(2 * abs(self.strength)) * math.sqrt(z * z - 1) / (z + k) ** 2 * _UP

    def sentence(self) -> str:
        """Describe the field in words, as an assumption of an answer."""
        if self.center:
            pull = f", neighbors pull around a mean outcome of {self.center:.4g}"
        else:
            pull = ""
        return f"a public external field of {self.strength:.4g} nats, fixed in advance{pull}"


def _rising_root(function: Any, low: float, high: float) -> float:
    """Return the upper end of a bracket of the root of a rising function, to the last digits."""
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if function(middle) < 0:
            low = middle
        else:
            high = middle
    return high
