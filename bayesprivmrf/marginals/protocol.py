"""The interface of every marginal engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@runtime_checkable
class MarginalEngine(Protocol):
    """Log-partition, marginals and their derivatives, as pure functions of the potentials.

    The model is p(x) = exp(Σ_f θ_f(x_f) - A(θ)); a factor f has a scope, an ordered tuple of variables, and
    one potential per joint state of it, in C order. An entry of θ may be minus infinity (an impossible cell)
    or in the thousands. Engines keep no state between calls that a caller could see, may be called from
    several threads at once, and return arrays of their own.

    Attributes
    ----------
    cardinalities : tuple of int
        Number of states of each variable, at least 1.
    scopes : tuple of tuple of int
        Variables of each factor; the order is the axis order of its table.
    offsets : tuple of int
        Factor f occupies ``potentials[offsets[f]:offsets[f + 1]]``.
    size : int
        Number of cells over all factors.
    is_exact : bool
        False where A and the marginals are approximations.
    """

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of states of each variable."""
        ...

    @property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        """Variables of each factor, in axis order."""
        ...

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each factor's cells begin, and the end of the last."""
        ...

    @property
    def size(self) -> int:
        """Number of cells over all factors."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether the answers are exact up to rounding."""
        ...

    def log_partition(self, potentials: FloatArray) -> float:
        """A(θ) = log Σ_x exp(Σ_f θ_f(x_f)), in nats."""
        ...

    def marginals(self, potentials: FloatArray) -> tuple[float, FloatArray]:
        """A(θ), and μ = ∇A(θ): the probability of every cell of every factor, flat like the potentials."""
        ...

    def linearize(
        self, potentials: FloatArray
    ) -> tuple[float, FloatArray, Callable[[FloatArray], FloatArray]]:
        """A(θ), μ, and the product v → Σv with Σ = ∇²A(θ), the covariance of the cells' indicators.

        Where a potential is minus infinity, μ and Σv are zero and the entry of v is ignored.
        """
        ...
