"""Means of all effects of a model: over all configurations where these are few, else by elimination."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, reduce
from typing import Protocol

import numpy as np

from bayesprivmrf.marginals import marginal_engine, marginal_of
from bayesprivmrf.model.effects import Effects, contrasts
from bayesprivmrf.model.tables import FloatArray, IntArray

__all__ = ["Engine", "Scope", "engine_of", "margin"]

type Scope = tuple[int, ...]
"""Positions of variables, ascending."""

MOST_CONFIGURATIONS = 1 << 17
"""Configurations up to which all are held: with many overlapping tables that is several times as fast."""

_BLOCK = 32  # configurations of the variables that are transformed by one matrix


class Engine(Protocol):
    """What the fit asks of a model."""

    def means(self, beta: FloatArray) -> tuple[float, FloatArray]:
        """Return the log-partition, and the means of all effects."""
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

    def tables(self, beta: FloatArray, scopes: Sequence[Scope]) -> list[FloatArray]:
        effects, potentials = self._effects, self._effects.potentials(beta)
        _, flat = self._engine.marginals(potentials)
        shapes = [tuple(effects.cardinalities[v] for v in clique) for clique in effects.scopes]
        parts = np.split(flat, np.cumsum([math.prod(shape) for shape in shapes])[:-1])
        cliques = [
            (set(c), c, part.reshape(s)) for c, part, s in zip(effects.scopes, parts, shapes, strict=True)
        ]
        found = []
        for scope in scopes:
            home = next(((c, table) for held, c, table in cliques if held.issuperset(scope)), None)
            if home is None:
                found.append(marginal_of(effects.cardinalities, effects.scopes, potentials, scope))
            else:
                found.append(margin(home[1], home[0], scope))
        return found


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

    def _probabilities(self, beta: FloatArray) -> tuple[float, FloatArray]:
        inner = np.zeros(math.prod(self._shape))
        inner[self._places] = beta
        logs = _transformed(inner, self._shape, self._matrices)
        top = float(logs.max())
        weights = np.exp(logs - top)
        total = float(weights.sum())
        return top + math.log(total), weights / total

    def means(self, beta: FloatArray) -> tuple[float, FloatArray]:
        log_partition, joint = self._probabilities(beta)
        back = _transformed(joint, self._shape, [matrix.T for matrix in self._matrices])
        return log_partition, back[self._places]

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
