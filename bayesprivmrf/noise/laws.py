"""Noise laws: what inference needs to know of the noise that a release carries."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from bayesprivmrf.checks import positive_finite
from bayesprivmrf.errors import ArgumentError

__all__ = [
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Gaussian",
    "Laplace",
    "NoNoise",
    "NoiseLaw",
    "noise_from_dict",
]


class NoiseLaw(ABC):
    """Law of the noise that is added, independently, to each cell of a table: residual = noisy - true.

    Every law is symmetric about zero. Numbers are in the table's unit (records).
    """

    __slots__ = ()
    name: ClassVar[str]
    is_discrete: ClassVar[bool] = False

    @property
    @abstractmethod
    def scale(self) -> float:
        """The law's own scale parameter, in records."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """Variance, in records squared; exact up to rounding."""

    @property
    @abstractmethod
    def mean_absolute(self) -> float:
        """Mean absolute noise, in records; exact up to rounding."""

    @abstractmethod
    def log_density(self, residual: ArrayLike) -> np.ndarray:
        """Log density (or log probability) at each residual, nats.

        An integer law is extended to real residuals by its own formula, with its own constant: relaxations
        of the counts need the extension, and it agrees with the law at integers.
        """

    @abstractmethod
    def score(self, residual: ArrayLike) -> np.ndarray:
        """Derivative of ``log p(y | n)`` with respect to the true count n, at residual = y - n."""

    @property
    @final
    def standard_deviation(self) -> float:
        """Standard deviation, in records."""
        return math.sqrt(self.variance)

    @final
    def as_dict(self) -> dict[str, Any]:
        """Return name and scale; `noise_from_dict` is the inverse."""
        return {"name": self.name, "scale": self.scale}


@dataclass(frozen=True, slots=True)
class _Scaled(NoiseLaw):
    scale: float  # type: ignore[misc]  # the field is the property's value

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", positive_finite("scale", self.scale))


@final
@dataclass(frozen=True, slots=True)
class DiscreteLaplace(_Scaled):
    r"""Two-sided geometric noise, :math:`P(k) = \frac{1-a}{1+a} a^{|k|}` with :math:`a = e^{-1/b}`.

    The constant follows from :math:`\sum_k a^{|k|} = 1 + 2a/(1-a) = (1+a)/(1-a)`. It is the difference of two
    independent geometric counts of mean :math:`a/(1-a)` and variance :math:`a/(1-a)^2`, so its variance is
    :math:`2a/(1-a)^2 = 1 / (2 \sinh^2(1/(2b)))`; and
    :math:`E|k| = \frac{1-a}{1+a} \cdot 2 \sum_k k a^k = 2a/(1-a^2) = 1/\sinh(1/b)`.

    Parameters
    ----------
    scale
        b > 0, records.

    References
    ----------
    Ghosh, Roughgarden, Sundararajan 2012, Definition 2.1.

    Examples
    --------
    >>> round(DiscreteLaplace(1.0).variance, 6)
    1.841347
    """

    name: ClassVar[str] = "discrete-laplace"
    is_discrete: ClassVar[bool] = True

    @property
    def variance(self) -> float:
        """:math:`2a/(1-a)^2`, records squared."""
        return 2 * math.exp(-1 / self.scale) / math.expm1(-1 / self.scale) ** 2

    @property
    def mean_absolute(self) -> float:
        """:math:`2a/(1-a^2)`, records."""
        return -2 * math.exp(-1 / self.scale) / math.expm1(-2 / self.scale)

    def log_density(self, residual: ArrayLike) -> np.ndarray:
        r""":math:`\log\frac{1-a}{1+a} - |r|/b`, nats; log((1-a)/(1+a)) = log tanh(1/(2b))."""
        constant = math.log(math.tanh(0.5 / self.scale))
        return constant - np.abs(np.asarray(residual, dtype=float)) / self.scale

    def score(self, residual: ArrayLike) -> np.ndarray:
        """Sign of the residual over b."""
        return np.sign(np.asarray(residual, dtype=float)) / self.scale


@final
@dataclass(frozen=True, slots=True)
class Laplace(_Scaled):
    r"""Laplace noise, density :math:`e^{-|r|/b} / (2b)`; variance :math:`2b^2`, mean absolute value b.

    Parameters
    ----------
    scale
        b > 0, records.
    """

    name: ClassVar[str] = "laplace"

    @property
    def variance(self) -> float:
        """:math:`2 b^2`, records squared."""
        return 2 * self.scale**2

    @property
    def mean_absolute(self) -> float:
        """The scale b, records."""
        return self.scale

    def log_density(self, residual: ArrayLike) -> np.ndarray:
        r""":math:`-\log(2b) - |r|/b`, nats."""
        return -math.log(2 * self.scale) - np.abs(np.asarray(residual, dtype=float)) / self.scale

    def score(self, residual: ArrayLike) -> np.ndarray:
        """Sign of the residual over b."""
        return np.sign(np.asarray(residual, dtype=float)) / self.scale


@final
@dataclass(frozen=True, slots=True)
class DiscreteGaussian(_Scaled):
    r"""Discrete Gaussian noise, :math:`P(k) = e^{-k^2/(2s^2)} / Z(s)` on the integers.

    Poisson's summation formula gives a second form of the constant,

    .. math:: Z(s) = \sum_k e^{-k^2/(2 s^2)} = s \sqrt{2\pi} \sum_j e^{-2 \pi^2 s^2 j^2},

    which needs one term where s is large; the first needs few where s is small. The variance is the
    derivative of :math:`\log Z` with respect to :math:`-1/(2s^2)`; on the second form,

    .. math:: \sigma^2 = s^2 - 4 \pi^2 s^4 \frac{\sum_j j^2 e^{-2\pi^2 s^2 j^2}}{\sum_j e^{-2\pi^2 s^2 j^2}},

    below :math:`s^2`, visibly so only for s under one.

    Parameters
    ----------
    scale
        s > 0, records. Not the standard deviation, but close to it from s = 1 on.

    References
    ----------
    Canonne, Kamath, Steinke 2020, Definition 1 and Fact 18.

    Examples
    --------
    >>> DiscreteGaussian(3.0).variance
    9.0
    >>> round(DiscreteGaussian(0.3).variance, 6)
    0.007673
    """

    name: ClassVar[str] = "discrete-gaussian"
    is_discrete: ClassVar[bool] = True

    def _sums(self) -> tuple[float, float]:
        """Sum of q^(j^2) and of j^2 q^(j^2) over the integers j, in whichever form converges at once."""
        half = 0.5 / self.scale**2 if self.scale < 0.5 else 2 * math.pi**2 * self.scale**2
        terms = [(j, math.exp(-half * j * j)) for j in range(1, 8)]
        return 1 + 2 * sum(q for _, q in terms), 2 * sum(j * j * q for j, q in terms)

    @property
    def _log_normaliser(self) -> float:
        total, _ = self._sums()
        return math.log(total) + (0.0 if self.scale < 0.5 else math.log(self.scale * math.sqrt(2 * math.pi)))

    @property
    def variance(self) -> float:
        """The exact variance, records squared."""
        total, second = self._sums()
        if self.scale < 0.5:
            return second / total
        return self.scale**2 - 4 * math.pi**2 * self.scale**4 * second / total

    @property
    def mean_absolute(self) -> float:
        """Mean absolute value, records.

        Above s = 50 by Euler and Maclaurin, ``sum k exp(-k^2/(2s^2)) = s^2 - 1/12 - 1/(240 s^2) - O(s^-4)``.
        """
        s = self.scale
        if s > 50:
            one_side = s * s - 1 / 12 - 1 / (240 * s * s)
        else:
            k = np.arange(1, math.ceil(40 * s) + 1, dtype=float)
            one_side = float(np.sum(k * np.exp(-0.5 * (k / s) ** 2)))
        return 2 * one_side * math.exp(-self._log_normaliser)

    def log_density(self, residual: ArrayLike) -> np.ndarray:
        r""":math:`-r^2/(2s^2) - \log Z(s)`, nats."""
        return -0.5 * (np.asarray(residual, dtype=float) / self.scale) ** 2 - self._log_normaliser

    def score(self, residual: ArrayLike) -> np.ndarray:
        """The residual over s squared."""
        return np.asarray(residual, dtype=float) / self.scale / self.scale


@final
@dataclass(frozen=True, slots=True)
class Gaussian(_Scaled):
    r"""Normal noise of mean zero; variance :math:`s^2`, mean absolute value :math:`s \sqrt{2/\pi}`.

    Parameters
    ----------
    scale
        Standard deviation s > 0, records.
    """

    name: ClassVar[str] = "gaussian"

    @property
    def variance(self) -> float:
        """:math:`s^2`, records squared."""
        return self.scale**2

    @property
    def mean_absolute(self) -> float:
        r""":math:`s \sqrt{2/\pi}`, records."""
        return self.scale * math.sqrt(2 / math.pi)

    def log_density(self, residual: ArrayLike) -> np.ndarray:
        r""":math:`-r^2/(2s^2) - \log(s \sqrt{2\pi})`, nats."""
        constant = math.log(self.scale) + 0.5 * math.log(2 * math.pi)
        return -0.5 * (np.asarray(residual, dtype=float) / self.scale) ** 2 - constant

    def score(self, residual: ArrayLike) -> np.ndarray:
        """The residual over s squared."""
        return np.asarray(residual, dtype=float) / self.scale / self.scale


@final
@dataclass(frozen=True, slots=True)
class NoNoise(NoiseLaw):
    """No noise at all: the table is exact, or a public constant."""

    name: ClassVar[str] = "none"
    is_discrete: ClassVar[bool] = True

    @property
    def scale(self) -> float:
        """Zero."""
        return 0.0

    @property
    def variance(self) -> float:
        """Zero."""
        return 0.0

    @property
    def mean_absolute(self) -> float:
        """Zero."""
        return 0.0

    def log_density(self, residual: ArrayLike) -> np.ndarray:
        """Zero where the residual is zero, minus infinity elsewhere."""
        return np.where(np.asarray(residual, dtype=float) == 0, 0.0, -np.inf)

    def score(self, residual: ArrayLike) -> np.ndarray:
        """Zero where the residual is zero, infinite with the residual's sign elsewhere."""
        residual = np.asarray(residual, dtype=float)
        return np.where(residual == 0, 0.0, np.copysign(np.inf, residual))


_LAWS: dict[str, type[_Scaled]] = {
    law.name: law for law in (DiscreteLaplace, Laplace, DiscreteGaussian, Gaussian)
}


def noise_from_dict(values: Mapping[str, Any]) -> NoiseLaw:
    """Return the noise law that `NoiseLaw.as_dict` described.

    Raises
    ------
    ArgumentError
        The name is not that of a law of this version, or the scale is not positive and finite.

    Examples
    --------
    >>> noise_from_dict({"name": "laplace", "scale": 2.0})
    Laplace(scale=2.0)
    """
    if values["name"] == NoNoise.name:
        return NoNoise()
    try:
        law = _LAWS[values["name"]]
    except KeyError:
        known = ", ".join([*_LAWS, NoNoise.name])
        raise ArgumentError(
            f"`name` must be a noise law of this version ({known}), got {values['name']!r}; update the package."
        ) from None
    return law(values["scale"])
