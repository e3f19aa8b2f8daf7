"""Layout of all potentials in one flat vector, and the interface of the marginal engines."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import index
from typing import Any

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.model.domain import listed
from bayesprivmrf.model.tables import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Variables and factors of a model, and the place of each factor's table in the flat vector of potentials.

    Make one by `Layout.build`, which checks the model.

    Parameters
    ----------
    cardinalities
        Number of states of each variable, at least 1.
    scopes
        Variables of each factor, in the axis order of its table.
    offsets
        First cell of each factor in the flat vector, and the end of the last factor.

    Examples
    --------
    >>> layout = Layout.build([2, 3], [(0,), (0, 1)])
    >>> layout.offsets, layout.shape((0, 1))
    ((0, 2, 8), (2, 3))
    """

    cardinalities: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...] = field(compare=False)

    @classmethod
    def build(cls, cardinalities: Iterable[int], scopes: Iterable[Iterable[int]]) -> Layout:
        """Return the layout of a model, with its tables one after the other.

        Raises
        ------
        ModelError
            If a cardinality is below 1, a scope repeats a variable or names one that does not exist, or a number is
            not a whole number.
        """
        cards = whole_numbers("`cardinalities`", cardinalities)
        for variable, k in enumerate(cards):
            if k < 1:
                raise ModelError(f"`cardinalities` must be at least 1, got {k} for variable {variable}.")
        ordered = tuple(whole_numbers("each of `scopes`", scope) for scope in listed("`scopes`", scopes))
        for scope in ordered:
            if len(set(scope)) != len(scope):
                raise ModelError(f"A scope must name each variable once, got {scope}.")
            if strange := [v for v in scope if not 0 <= v < len(cards)]:
                must = f"name variables 0 to {len(cards) - 1}"
                raise ModelError(f"A scope must {must}, got {strange[0]} in {scope}.")
        sizes = (math.prod(cards[v] for v in scope) for scope in ordered)
        return cls(cardinalities=cards, scopes=ordered, offsets=tuple(accumulate(sizes, initial=0)))

    @property
    def size(self) -> int:
        """Number of cells over all factors."""
        return self.offsets[-1]

    def shape(self, scope: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a table over `scope`."""
        return tuple(self.cardinalities[v] for v in scope)

    def flat(self, values: FloatArray, name: str = "potentials") -> FloatArray:
        """Return values as a contiguous float64 vector of the right length.

        Raises
        ------
        ModelError
            If the shape is not ``(size,)``, or the values are not numbers.
        """
        try:
            vector = np.ascontiguousarray(values, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise ModelError(
                f"`{name}` must be an array of numbers, got a {type(values).__name__}."
            ) from None
        must = f"have shape ({self.size},)"
        require(vector.shape == (self.size,), name, must, vector.shape, error=ModelError)
        # copy read-only arrays, for which numba would compile its functions again
        return vector if vector.flags.writeable else vector.copy()

    def tables(self, vector: FloatArray) -> list[FloatArray]:
        """Return the table of each factor as a view of the vector, in the table's shape."""
        return [
            vector[a:b].reshape(self.shape(scope))
            for a, b, scope in zip(self.offsets[:-1], self.offsets[1:], self.scopes, strict=True)
        ]


def whole_numbers(what: str, values: Any) -> tuple[int, ...]:
    """Return whole numbers as a tuple.

    Raises
    ------
    ModelError
        Some value is not a whole number.
    """
    try:
        return tuple(index(value) for value in listed(what, values))
    except (TypeError, OverflowError):
        raise ModelError(f"{what} must hold whole numbers, got other values; number from 0.") from None


class MarginalEngine(ABC):
    """Interface of the engines for the log-partition function, marginals and their derivatives.

    The model is p(x) = exp(Σ_f θ_f(x_f) - A(θ)). A factor f has a scope, an ordered tuple of variables, and one
    potential for each joint state of these variables, in C order. An entry of θ may be minus infinity, which makes
    its cell impossible, or in the thousands. Engines have no state that a caller could see. Several threads may
    call one at once, and each call returns new arrays. `marginal_engine` makes engines.
    """

    __slots__ = ()
    layout: Layout
    is_exact = True
    """True if the answers are exact up to rounding."""

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of states of each variable, at least 1."""
        return self.layout.cardinalities

    @property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        """Variables of each factor, in the axis order of its table."""
        return self.layout.scopes

    @property
    def offsets(self) -> tuple[int, ...]:
        """First cell of each factor, and the end of the last factor."""
        return self.layout.offsets

    @property
    def size(self) -> int:
        """Number of cells over all factors."""
        return self.layout.size

    def log_partition(self, potentials: FloatArray) -> float:
        """Return A(θ) = log Σ_x exp(Σ_f θ_f(x_f)), in nats."""
        return self.marginals(potentials)[0]

    @abstractmethod
    def marginals(self, potentials: FloatArray) -> tuple[float, FloatArray]:
        """Return A(θ) and μ = ∇A(θ), the probability of every cell, in the layout of the potentials."""

    @abstractmethod
    def linearize(
        self, potentials: FloatArray
    ) -> tuple[float, FloatArray, Callable[[FloatArray], FloatArray]]:
        """Return A(θ), μ, and the product v → Σv with Σ = ∇²A(θ), the covariance of the cells' indicators.

        If a potential is minus infinity, μ and Σv are zero there, and that entry of v is ignored.
        """
