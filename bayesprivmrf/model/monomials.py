"""Monomials of t-wise models: sets of two-state variables up to a size, and their parities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations

import numpy as np

from bayesprivmrf.checks import require_memory, whole_number
from bayesprivmrf.model.domain import require_fit
from bayesprivmrf.model.specification import ModelSpecification
from bayesprivmrf.model.tables import IntArray

# Largest memory of the sets and the sums over them, bytes
_MEMORY = 4 * 2**30


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Monomials:
    r"""Family of sets of variables that is closed under subsets, ordered by size and then lexicographically.

    The monomial, or parity, of a set I is :math:`\chi_I(x) = \prod_{i \in I} x_i` for x of -1 and +1. The monomial of
    the empty set is 1.

    Parameters
    ----------
    variables
        Number of variables p.
    levels
        Sets of each size: ``levels[k]`` has the sets of k variables as rows of ascending positions, shape (K_k, k).
    """

    variables: int
    levels: tuple[IntArray, ...]

    @classmethod
    def complete(cls, variables: int, order: int) -> Monomials:
        """Return all sets of at most `order` variables.

        Raises
        ------
        ModelTooLargeError
            The sets would take more than 4 GiB.

        Examples
        --------
        >>> list(Monomials.complete(3, 2))
        [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
        """
        sizes = [math.comb(variables, k) for k in range(order + 1)]
        _require_memory(sum(sizes), order)
        return cls(
            variables=variables,
            levels=tuple(
                _rows(combinations(range(variables), k), k, size) for k, size in enumerate(sizes)
            ),
        )

    @classmethod
    def inside(cls, variables: int, scopes: Iterable[Sequence[int]], order: int) -> Monomials:
        """Return the sets of at most `order` variables that lie inside one of the given scopes.

        Raises
        ------
        ModelTooLargeError
            The sets would take more than 4 GiB.
        """
        scopes = [sorted(scope) for scope in scopes]
        _require_memory(
            sum(math.comb(len(s), k) for s in scopes for k in range(1, order + 1)), order
        )
        levels = []
        for k in range(order + 1):
            inside = set(chain.from_iterable(combinations(scope, k) for scope in scopes))
            found = sorted(inside if k else {()})
            if not found:
                break
            levels.append(_rows(found, k, len(found)))
        return cls(variables=variables, levels=tuple(levels))

    @classmethod
    def of(cls, specification: ModelSpecification, order: int) -> Monomials:
        """Return the monomials of a model with two-state variables, inside its cliques if these were declared.

        Raises
        ------
        ArgumentError
            The order is not a whole number from 1 to p.
        ModelError
            A variable does not have two states.
        ModelTooLargeError
            The monomials would take more than 4 GiB.
        """
        for variable, states in zip(
            specification.domain.variables, specification.cardinalities, strict=True
        ):
            what = f"the variable {variable!r}"
            must = "have two states for products of -1 and +1"
            require_fit(
                states == 2, what, must, states, "merge its states, or learn a pairwise model"
            )
        p = len(specification.domain.variables)
        remedy = f"there are {p} variables; write 2 for pairs, 3 for triples"
        order = whole_number("order", order, 1, p, remedy=remedy)
        if not specification.cliques_declared:
            return cls.complete(p, order)
        return cls.inside(p, specification.scopes, order)

    @property
    def order(self) -> int:
        """Number t of variables in the largest sets."""
        return len(self.levels) - 1

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Positions of the sets by size: those of k variables are at ``offsets[k]:offsets[k + 1]``."""
        return (0, *np.cumsum([len(level) for level in self.levels]).tolist())

    @cached_property
    def orders(self) -> IntArray:
        """Number of variables of each set, shape (K,)."""
        return np.repeat(np.arange(self.order + 1), np.diff(self.offsets))

    @cached_property
    def is_complete(self) -> bool:
        """True if the family has all sets up to its order."""
        return all(
            len(level) == math.comb(self.variables, k) for k, level in enumerate(self.levels)
        )

    @cached_property
    def positions(self) -> dict[tuple[int, ...], int]:
        """Position of each set."""
        return {members: position for position, members in enumerate(self)}

    @cached_property
    def parents(self) -> tuple[IntArray, ...]:
        """Position of each set without its last variable among the sets of its size, for each size k above 0."""
        below = [
            {tuple(row): at for at, row in enumerate(level.tolist())} for level in self.levels[:-1]
        ]
        return tuple(
            np.array([below[k][tuple(row)] for row in level[:, :-1].tolist()], dtype=np.int64)
            for k, level in enumerate(self.levels[1:])
        )

    def largest(self) -> list[tuple[int, ...]]:
        """Return the maximal sets, without the empty set."""
        members = list(self)
        inside = {each[:i] + each[i + 1 :] for each in members for i in range(len(each))}
        return [each for each in members if each and each not in inside]

    @cached_property
    def masks(self) -> IntArray:
        """Bit mask of each set's variables, shape (K,); for at most 62 variables."""
        return np.concatenate([(np.int64(1) << level).sum(axis=1) for level in self.levels])

    def __len__(self) -> int:
        return self.offsets[-1]

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return (tuple(row) for level in self.levels for row in level.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Monomials):
            return NotImplemented
        return self.variables == other.variables and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Monomials({len(self)} of order up to {self.order} in {self.variables} variables)"


def _rows(sets: Iterable[tuple[int, ...]], width: int, size: int) -> IntArray:
    rows = np.fromiter(chain.from_iterable(sets), dtype=np.int64, count=size * width).reshape(
        size, width
    )
    rows.flags.writeable = False
    return rows


def _require_memory(size: int, order: int) -> None:
    what = f"the {size:,} monomials of order up to {order}"
    each = 400  # bytes: the tuple, its entry in the index of parents, a row of the arrays, a sum and its noise
    remedy = "take a smaller order, or declare the cliques that matter"
    require_memory(what, size * each, remedy, _MEMORY)
