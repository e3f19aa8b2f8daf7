"""Place of each factor's cells in one flat vector, and the interface of every marginal engine."""

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
    """The variables, the factors' scopes, and the place of each table in the flat vector of potentials.

    Parameters
    ----------
    cardinalities, scopes, offsets
        The model, as in `MarginalEngine`.
    """

    cardinalities: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...] = field(compare=False)

    @classmethod
    def build(cls, cardinalities: Iterable[int], scopes: Iterable[Iterable[int]]) -> Layout:
        """Check the variables and scopes and lay the tables out one after the other.

        Raises
        ------
        ModelError
            If a cardinality is below 1, or a scope repeats a variable or names one that does not exist, or one of
            them is no whole number.
        """
        cards = whole_numbers("`cardinalities`", cardinalities)
        for variable, k in enumerate(cards):
            require(
                k >= 1, "cardinalities", "be at least 1", f"{k} for variable {variable}", error=ModelError
            )
        ordered = tuple(whole_numbers("each of `scopes`", scope) for scope in listed("`scopes`", scopes))
        for scope in ordered:
            if len(set(scope)) != len(scope):
                raise ModelError(f"A scope must name each variable once, got {scope}.")
            for variable in scope:
                if not 0 <= variable < len(cards):
                    raise ModelError(
                        f"A scope must name variables 0 to {len(cards) - 1}, got {variable} in {scope}."
                    )
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
            If the shape is not ``(size,)``, or they are no numbers.
        """
        try:
            vector = np.ascontiguousarray(values, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise ModelError(f"`{name}` must be numbers, got a {type(values).__name__} of others.") from None
        require(
            vector.shape == (self.size,), name, f"have shape ({self.size},)", vector.shape, error=ModelError
        )
        # compiled code takes writable arrays; for a read-only one numba would compile it again
        return vector if vector.flags.writeable else vector.copy()

    def tables(self, vector: FloatArray) -> list[FloatArray]:
        """Return the tables of a vector, one a factor, as views in their own shapes."""
        return [
            vector[a:b].reshape(self.shape(scope))
            for a, b, scope in zip(self.offsets[:-1], self.offsets[1:], self.scopes, strict=True)
        ]


def whole_numbers(what: str, values: Any) -> tuple[int, ...]:
    """Return whole numbers in a row.

    Raises
    ------
    ModelError
        They are none.
    """
    try:
        return tuple(index(value) for value in listed(what, values))
    except (TypeError, OverflowError):
        raise ModelError(
            f"{what} must hold whole numbers, got other things; number variables from 0."
        ) from None


class MarginalEngine(ABC):
    """Log-partition, marginals and their derivatives, as pure functions of the potentials.

    The model is p(x) = exp(Σ_f θ_f(x_f) - A(θ)). A factor f has a scope, an ordered tuple of variables, and one
    potential for each joint state of it, in C order. An entry of θ may be minus infinity (an impossible cell) or in
    the thousands. Engines keep no state between calls that a caller could see, may be called from several threads at
    once, and return arrays of their own.
    """

    __slots__ = ()
    layout: Layout
    is_exact = True
    """Whether the answers are exact up to rounding, and not approximations."""

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of states of each variable, at least 1."""
        return self.layout.cardinalities

    @property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        """Variables of each factor; the order is the axis order of its table."""
        return self.layout.scopes

    @property
    def offsets(self) -> tuple[int, ...]:
        """First cell of each factor, and the end of the last."""
        return self.layout.offsets

    @property
    def size(self) -> int:
        """Number of cells over all factors."""
        return self.layout.size

    @abstractmethod
    def log_partition(self, potentials: FloatArray) -> float:
        """Return A(θ) = log Σ_x exp(Σ_f θ_f(x_f)), in nats."""

    @abstractmethod
    def marginals(self, potentials: FloatArray) -> tuple[float, FloatArray]:
        """Return A(θ) and μ = ∇A(θ): the probability of every cell of every factor, flat like the potentials."""

    @abstractmethod
    def linearize(
        self, potentials: FloatArray
    ) -> tuple[float, FloatArray, Callable[[FloatArray], FloatArray]]:
        """Return A(θ), μ, and the product v → Σv with Σ = ∇²A(θ), the covariance of the cells' indicators.

        Where a potential is minus infinity, μ and Σv are zero and the entry of v is ignored.
        """
