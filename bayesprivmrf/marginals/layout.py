"""Where the cells of each factor lie in one flat vector."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import index
from typing import Any

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.marginals.protocol import FloatArray
from bayesprivmrf.model.domain import listed


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
            if not k >= 1:
                raise ModelError(f"`cardinalities` must be at least 1, got {k} for variable {variable}.")
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
        """The shape of a table over `scope`."""
        return tuple(self.cardinalities[v] for v in scope)

    def flat(self, values: FloatArray, name: str = "potentials") -> FloatArray:
        """The values as a contiguous float64 vector of the right length.

        Raises
        ------
        ModelError
            If the shape is not ``(size,)``, or they are no numbers.
        """
        try:
            vector = np.ascontiguousarray(values, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise ModelError(f"`{name}` must be numbers, got a {type(values).__name__} of others.") from None
        if vector.shape != (self.size,):
            raise ModelError(f"`{name}` must have shape ({self.size},), got {vector.shape}.")
        # Compiled code knows one kind of array; a read-only one would have it compiled anew.
        return vector if vector.flags.writeable else vector.copy()

    def tables(self, vector: FloatArray) -> list[FloatArray]:
        """The vector's tables, one a factor, as views in their own shapes."""
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


class Engine:
    """The part of `MarginalEngine` that an engine's layout answers."""

    __slots__ = ()
    layout: Layout
    is_exact = True

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of states of each variable."""
        return self.layout.cardinalities

    @property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        """Variables of each factor, in axis order."""
        return self.layout.scopes

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each factor's cells begin, and the end of the last."""
        return self.layout.offsets

    @property
    def size(self) -> int:
        """Number of cells over all factors."""
        return self.layout.size
