"""Noise of real numbers: for tables that others published; no mechanism draws it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self, final

import numpy as np
from numpy.typing import ArrayLike

from bayesprivmrf.checks import generator, number_array, positive_finite, whole_number
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.base import Kernel, ScaledLaw, shape


@final
@dataclass(frozen=True, slots=True)
class Laplace(ScaledLaw):
    r"""Laplace noise, density :math:`e^{-|r|/b} / (2b)`; variance :math:`2b^2`, mean absolute value b.

    Parameters
    ----------
    scale
        b > 0, records.
    """

    name: ClassVar[str] = "laplace"
    kernel: ClassVar[Kernel | None] = "absolute"

    @property
    def variance(self) -> float:
        """:math:`2 b^2`, records squared."""
        return 2 * self.scale**2

    @property
    def mean_absolute(self) -> float:
        """The scale b, records."""
        return self.scale

    def log_density(self, residual: ArrayLike) -> np.ndarray:
        r"""Return :math:`-\log(2b) - |r|/b`, nats."""
        return -math.log(2 * self.scale) - np.abs(number_array("residual", residual, float)) / self.scale

    def score(self, residual: ArrayLike) -> np.ndarray:
        """Return the sign of the residual over b."""
        return np.sign(number_array("residual", residual, float)) / self.scale

    @classmethod
    def of_variance(cls, variance: float) -> Self:
        r"""Return the law of scale :math:`\sqrt{\text{variance} / 2}`."""
        return cls(math.sqrt(positive_finite("variance", variance) / 2))

    def draw(self, size: int | tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Draw float64 numbers."""
        return generator(rng).laplace(0.0, self.scale, shape(size))


@final
@dataclass(frozen=True, slots=True)
class Gaussian(ScaledLaw):
    r"""Normal noise of mean zero; variance :math:`s^2`, mean absolute value :math:`s \sqrt{2/\pi}`.

    Parameters
    ----------
    scale
        Standard deviation s > 0, records.
    """

    name: ClassVar[str] = "gaussian"
    kernel: ClassVar[Kernel | None] = "square"

    @property
    def variance(self) -> float:
        """:math:`s^2`, records squared."""
        return self.scale**2

    @property
    def mean_absolute(self) -> float:
        r""":math:`s \sqrt{2/\pi}`, records."""
        return self.scale * math.sqrt(2 / math.pi)

    def log_density(self, residual: ArrayLike) -> np.ndarray:
        r"""Return :math:`-r^2/(2s^2) - \log(s \sqrt{2\pi})`, nats."""
        constant = math.log(self.scale) + 0.5 * math.log(2 * math.pi)
        return -0.5 * (number_array("residual", residual, float) / self.scale) ** 2 - constant

    def score(self, residual: ArrayLike) -> np.ndarray:
        """Return the residual over s squared."""
        return number_array("residual", residual, float) / self.scale / self.scale

    @classmethod
    def of_variance(cls, variance: float) -> Self:
        """Return the law whose scale is the root of the variance."""
        return cls(math.sqrt(positive_finite("variance", variance)))

    def summed(self, count: int) -> Gaussian:
        """Return the normal law of so many times the variance."""
        return Gaussian(self.scale * math.sqrt(whole_number("count", count, 1)))

    def draw(self, size: int | tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Draw float64 numbers."""
        return generator(rng).normal(0.0, self.scale, shape(size))
