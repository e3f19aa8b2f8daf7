"""Means of all effects of a model: over all configurations where these are few, else by elimination."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from itertools import combinations
from typing import Protocol

import numpy as np

from bayesprivmrf.marginals import marginal_engine, marginal_of
from bayesprivmrf.model.effects import Effects, contrasts
from bayesprivmrf.model.tables import FloatArray, IntArray

type Scope = tuple[int, ...]
"""Positions of variables, ascending."""

type Product = Callable[[FloatArray], FloatArray]
"""The product of a vector with a matrix."""

MOST_CONFIGURATIONS = 1 << 17
"""Configurations up to which all are held: with many overlapping tables that is several times as fast."""

_PASSES = 8
"""Passes over a planned model that take less time than to plan it anew for one table."""

_BLOCK = 32  # configurations of the variables that are transformed by one matrix


class Engine(Protocol):
    """The numbers that the fit asks of a model."""

    def means(self, beta: FloatArray) -> tuple[float, FloatArray]:
        """Return the log-partition, and the means of all effects."""
        ...

    def linearized(self, beta: FloatArray) -> tuple[FloatArray, Product]:
        """Return the means of all effects, and the product with their covariance in one record."""
        ...

    def tables(self, beta: FloatArray, scopes: Sequence[Scope]) -> list[FloatArray]:
        """Return probabilities of any scopes."""
        ...


def engine_of(effects: Effects) -> Engine:
    """Return the faster engine of a model."""
    if math.prod(effects.cardinalities) <= MOST_CONFIGURATIONS:
        return _All(effects)
    return _Elimination(effects)


def margin(table: FloatArray, scope: Scope, subset: Scope) -> FloatArray:
    """Return the margin of a table of ascending variables on some of them, ascending."""
    return table.sum(axis=tuple(a for a, v in enumerate(scope) if v not in set(subset)))


class _Elimination:
    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._engine = marginal_engine(effects.cardinalities, effects.scopes)

    def means(self, beta: FloatArray) -> tuple[float, FloatArray]:
        log_partition, found = self._engine.marginals(self._effects.potentials(beta))
        return float(log_partition), self._effects.pull_back(found)

    def linearized(self, beta: FloatArray) -> tuple[FloatArray, Product]:
        effects = self._effects
        _, found, product = self._engine.linearize(effects.potentials(beta))
        return effects.pull_back(found), lambda v: effects.pull_back(product(effects.potentials(v)))

    def tables(self, beta: FloatArray, scopes: Sequence[Scope]) -> list[FloatArray]:
        """Return probabilities of any scopes.

        A clique's are a margin of it. For others, one or two variables are held at each of their states, so that a
        clique has the rest: a pass for each state serves all scopes that need the same variables held.
        """
        potentials = self._effects.potentials(beta)
        whole, flat = self._engine.marginals(potentials)
        found = {scope: held for scope in scopes if (held := self._held(flat, scope)) is not None}
        waiting: dict[Scope, list[Scope]] = {}
        for scope in dict.fromkeys(scopes):
            if scope not in found:
                waiting.setdefault(self._opening(scope), []).append(scope)
        cards = self._effects.cardinalities
        for fixed, group in waiting.items():
            if not fixed or math.prod(cards[v] for v in fixed) > _PASSES * len(group):
                for scope in group:
                    found[scope] = marginal_of(cards, self._effects.scopes, potentials, scope)
            else:
                found |= self._opened(potentials, whole, fixed, group)
        return [found[scope] for scope in scopes]

    def _held(self, flat: FloatArray, scope: Scope) -> FloatArray | None:
        """Return the table of a scope from those of the cliques; ``None`` where none has it."""
        home = self._home(scope)
        if home is None:
            return None
        clique = self._effects.scopes[home]
        shape = [self._effects.cardinalities[v] for v in clique]
        return margin(flat[self._offsets[home] : self._offsets[home + 1]].reshape(shape), clique, scope)

    def _home(self, scope: Scope) -> int | None:
        """Return the first clique that holds a scope."""
        return min(set.intersection(*(self._cliques[v] for v in scope)), default=None)

    @cached_property
    def _cliques(self) -> list[set[int]]:
        """Positions of the cliques of each variable."""
        found: list[set[int]] = [set() for _ in self._effects.cardinalities]
        for position, clique in enumerate(self._effects.scopes):
            for v in clique:
                found[v].add(position)
        return found

    @cached_property
    def _offsets(self) -> IntArray:
        cards = self._effects.cardinalities
        sizes = [math.prod(cards[v] for v in clique) for clique in self._effects.scopes]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    def _opening(self, scope: Scope) -> Scope:
        """Return the fewest variables, of the fewest states, without which a clique holds a scope; () if over two."""
        cards = self._effects.cardinalities
        for size in (1, 2):
            fitting = [
                fixed
                for fixed in combinations(scope, size)
                if size < len(scope) and self._home(tuple(v for v in scope if v not in fixed)) is not None
            ]
            if fitting:
                return min(fitting, key=lambda fixed: math.prod(cards[v] for v in fixed))
        return ()

    def _opened(
        self, potentials: FloatArray, whole: float, fixed: Scope, group: Sequence[Scope]
    ) -> dict[Scope, FloatArray]:
        cards = self._effects.cardinalities
        found = {scope: np.zeros([cards[v] for v in scope]) for scope in group}
        for states in np.ndindex(*(cards[v] for v in fixed)):
            at = potentials.copy()
            for v, state in zip(fixed, states, strict=True):
                self._hold(at, v, state)
            log_partition, flat = self._engine.marginals(at)
            share = math.exp(log_partition - whole)
            for scope, table in found.items():
                rest = self._held(flat, tuple(v for v in scope if v not in fixed))
                assert rest is not None
                table[tuple(states[fixed.index(v)] if v in fixed else slice(None) for v in scope)] = (
                    share * rest
                )
        return found

    def _hold(self, potentials: FloatArray, variable: int, state: int) -> None:
        """Leave a variable one state, in place: in one clique is enough."""
        home = min(self._cliques[variable])
        clique = self._effects.scopes[home]
        shape = [self._effects.cardinalities[v] for v in clique]
        table = potentials[self._offsets[home] : self._offsets[home + 1]].reshape(shape)
        others = np.arange(shape[clique.index(variable)]) != state
        table[(slice(None),) * clique.index(variable) + (others,)] = -np.inf


class _All:
    """The whole table of probabilities; effects are entries of its transform, axis block after axis block."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._shape, self._matrices = _blocks(effects.cardinalities)

    @cached_property
    def _places(self) -> IntArray:
        cards = self._effects.cardinalities
        strides = np.append(np.cumprod(cards[::-1])[::-1][1:], 1)
        found = [np.zeros(0, dtype=np.int64)]
        for subset in self._effects.subsets:
            at = np.zeros(1, dtype=np.int64)
            for v in subset:
                at = np.add.outer(at, strides[v] * np.arange(1, cards[v])).ravel()
            found.append(at)
        return np.concatenate(found)

    def _logs(self, beta: FloatArray) -> FloatArray:
        inner = np.zeros(math.prod(self._shape))
        inner[self._places] = beta
        return _transformed(inner, self._shape, self._matrices)

    def _back(self, joint: FloatArray) -> FloatArray:
        """Return the sums of a table with each effect."""
        return _transformed(joint, self._shape, [matrix.T for matrix in self._matrices])[self._places]

    def _probabilities(self, beta: FloatArray) -> tuple[float, FloatArray]:
        logs = self._logs(beta)
        top = float(logs.max())
        weights = np.exp(logs - top)
        total = float(weights.sum())
        return top + math.log(total), weights / total

    def means(self, beta: FloatArray) -> tuple[float, FloatArray]:
        log_partition, joint = self._probabilities(beta)
        return log_partition, self._back(joint)

    def linearized(self, beta: FloatArray) -> tuple[FloatArray, Product]:
        joint = self._probabilities(beta)[1]

        def product(direction: FloatArray) -> FloatArray:
            change = self._logs(direction)  # of log-probabilities, up to their mean
            return self._back(joint * (change - joint @ change))

        return self._back(joint), product

    def tables(self, beta: FloatArray, scopes: Sequence[Scope]) -> list[FloatArray]:
        cards = self._effects.cardinalities
        joint = self._probabilities(beta)[1].reshape(cards)
        everything = tuple(range(len(cards)))
        return [margin(joint, everything, scope) for scope in scopes]


def _blocks(cardinalities: Sequence[int]) -> tuple[tuple[int, ...], Sequence[FloatArray]]:
    """Return the joint table's shape by blocks of neighbouring variables, and the matrix [1 | Q] of each block."""
    blocks: list[list[int]] = [[]]
    for k in cardinalities:
        if blocks[-1] and math.prod(blocks[-1]) * k > _BLOCK:
            blocks.append([])
        blocks[-1].append(k)
    matrices = [
        np.asarray(reduce(np.kron, [np.column_stack([np.ones(k), contrasts(k)]) for k in block]), dtype=float)
        for block in blocks
    ]
    return tuple(len(matrix) for matrix in matrices), matrices


def _transformed(values: FloatArray, shape: tuple[int, ...], matrices: Sequence[FloatArray]) -> FloatArray:
    table = values.reshape(shape)
    for matrix in matrices:  # each step moves the first axis to the end
        table = np.tensordot(table, matrix, axes=(0, 1))
    return table.ravel()
