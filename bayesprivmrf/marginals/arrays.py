"""Engines in plain NumPy, without compiled code: exact inference in the log domain, and enumeration for tests.

Exact inference has two sweeps over the buckets of an elimination order.

- Collect, children first: a bucket's table B is the sum of its potentials and messages. Its own message is
  m(s) = log Σ_v exp B(s, v), and the conditional table p(v | s) = exp(B(s, v) - m(s)) is stored.
- Distribute, from the roots: P(s, v) = P(s) p(v | s). Sums of this table are the marginals of the bucket's factors
  and of its children's separators.

All numbers of the second sweep are probabilities. They cannot overflow, and one that underflows is below the smallest
float.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.marginals.forecast import MEMORY_LIMIT, Forecast, array_forecast, require_memory
from bayesprivmrf.marginals.layout import Layout, MarginalEngine
from bayesprivmrf.marginals.ordering import BucketTree, elimination_order
from bayesprivmrf.model.tables import FloatArray


class ImpossibleError(ModelError):
    """The error of a model in which no configuration has positive probability."""


def impossible() -> ImpossibleError:
    """Return the error for a model in which no configuration has positive probability."""
    return ImpossibleError(
        "Every configuration is impossible: the potentials of minus infinity exclude all joint states. "
        "Allow at least one state of every clique that agrees with its neighbors."
    )


def joint_forecast(layout: Layout) -> Forecast:
    """Return the cost of enumeration, whose one clique has all variables."""
    cells = math.prod(layout.cardinalities)
    return Forecast(
        treewidth=sum(k > 1 for k in layout.cardinalities) - 1,
        largest_table=cells,
        total_cells=cells,
        memory_bytes=8 * (4 * cells + 3 * layout.size),
        multiplications=cells * (len(layout.scopes) + 1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BruteForceEngine(MarginalEngine):
    """Inference by sums over the whole joint table, the reference for tests of the other engines.

    Memory and time grow with the product of all cardinalities.
    """

    layout: Layout

    def log_partition(self, potentials: FloatArray) -> float:
        """Return A(θ) = log Σ_x exp(Σ_f θ_f(x_f)), in nats."""
        return self._joint(potentials)[0]

    def marginals(self, potentials: FloatArray) -> tuple[float, FloatArray]:
        """Return A(θ) and the probability of every cell."""
        log_partition, joint = self._joint(potentials)
        return log_partition, self._project(joint)

    def linearize(
        self, potentials: FloatArray
    ) -> tuple[float, FloatArray, Callable[[FloatArray], FloatArray]]:
        """Return A(θ), μ and v → Σv."""
        # formula: (Σv)_c = E[1_c (g - E g)] with g(x) = Σ_f v_f(x_f)
        log_partition, joint = self._joint(potentials)
        possible = np.asarray(potentials) > -np.inf

        def product(vector: FloatArray) -> FloatArray:
            g = self._total(np.where(possible, self.layout.flat(vector, "vector"), 0.0))
            return self._project(joint * (g - np.sum(joint * g)))

        return log_partition, self._project(joint), product

    def _total(self, vector: FloatArray) -> FloatArray:
        """Return Σ_f θ_f(x_f) as a table over all variables."""
        total = np.zeros(self.cardinalities)
        for scope, table in zip(self.scopes, self.layout.tables(vector), strict=True):
            order = np.argsort(scope)
            shape = [k if v in scope else 1 for v, k in enumerate(self.cardinalities)]
            total += table.transpose(order).reshape(shape)
        return total

    def _joint(self, potentials: FloatArray) -> tuple[float, FloatArray]:
        """Return A(θ) and the joint distribution."""
        total = self._total(self.layout.flat(potentials))
        top = float(total.max())
        if top == -math.inf:
            raise impossible()
        weights = np.exp(total - top)
        mass = float(weights.sum())
        return top + math.log(mass), weights / mass

    def _project(self, joint: FloatArray) -> FloatArray:
        """Return the sums of a joint table over every factor's cells."""
        parts = []
        for scope in self.scopes:
            others = tuple(v for v in range(joint.ndim) if v not in scope)
            kept = sorted(scope)
            parts.append(joint.sum(axis=others).transpose([kept.index(v) for v in scope]).ravel())
        return np.concatenate(parts) if parts else np.zeros(0)


@dataclass(frozen=True, slots=True)
class _Item:
    """Axes of a potential or message within the table of its bucket, whose own variable is the last axis."""

    source: int  # number of the factor, or of the bucket that sends the message
    is_message: bool
    shape: tuple[int, ...]
    order: tuple[int, ...]  # axes of the item in the bucket's order
    inverse: tuple[int, ...]  # the inverse permutation of `order`
    spread: tuple[int, ...]  # shape of the item as it is added to the table, with ones for axes that it lacks
    lacking: tuple[int, ...]  # axes of the bucket that the item lacks

    def lift(self, table: FloatArray) -> FloatArray:
        """Return the item's table in a shape that broadcasts with the bucket's table."""
        return table.reshape(self.shape).transpose(self.order).reshape(self.spread)

    def drop(self, table: FloatArray) -> FloatArray:
        """Return the sums of the bucket's table over the axes that the item lacks."""
        return table.sum(axis=self.lacking).transpose(self.inverse)


@dataclass(frozen=True, slots=True)
class Collected:
    """Result of the first sweep: A(θ) and, for every bucket, p(v | s) with v on the last axis."""

    log_partition: float
    conditionals: list[FloatArray]


@dataclass(frozen=True, slots=True)
class ArrayEngine(MarginalEngine):
    """Exact inference by elimination of variables, in NumPy and in the log domain."""

    tree: BucketTree
    layout: Layout = field(init=False)
    _items: list[list[_Item]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        layout = self.tree.layout
        table = []
        for bucket in self.tree.buckets:
            scope = bucket.scope
            if len(scope) > 64:
                raise ModelError(f"A table must have at most 64 variables, got {len(scope)}.")
            parts = [(f, False, self.tree.reduced[f]) for f in bucket.factors]
            parts += [(c, True, self.tree.buckets[c].separator) for c in bucket.children]
            row = []
            for source, is_message, own in parts:
                order = sorted(range(len(own)), key=lambda axis, own=own: scope.index(own[axis]))
                row.append(
                    _Item(
                        source,
                        is_message,
                        layout.shape(own),
                        tuple(order),
                        tuple(int(i) for i in np.argsort(order)),
                        tuple(layout.cardinalities[v] if v in own else 1 for v in scope),
                        tuple(axis for axis, v in enumerate(scope) if v not in own),
                    )
                )
            table.append(row)
        object.__setattr__(self, "layout", layout)
        object.__setattr__(self, "_items", table)

    def log_partition(self, potentials: FloatArray) -> float:
        """Return A(θ), in nats."""
        return self.collect(potentials).log_partition

    def marginals(self, potentials: FloatArray) -> tuple[float, FloatArray]:
        """Return A(θ) and the probability of every cell."""
        collected = self.collect(potentials)
        return collected.log_partition, self._distribute(collected.conditionals)[0]

    def linearize(
        self, potentials: FloatArray
    ) -> tuple[float, FloatArray, Callable[[FloatArray], FloatArray]]:
        """Return A(θ), μ and v → Σv."""
        collected = self.collect(potentials)
        mu, messages = self._distribute(collected.conditionals)
        possible = np.asarray(potentials) > -np.inf

        def product(vector: FloatArray) -> FloatArray:
            direction = np.where(possible, self.layout.flat(vector, "vector"), 0.0)
            return self._tangent(collected.conditionals, messages, direction)

        return collected.log_partition, mu, product

    def collect(self, potentials: FloatArray) -> Collected:
        """Eliminate every variable, and keep the conditional distribution of each given its separator.

        Raises
        ------
        ModelError
            If no configuration is possible.
        """
        theta = self.layout.flat(potentials)
        offsets = self.offsets
        total = self.tree.free_log_count + float(sum(theta[offsets[f]] for f in self.tree.constants))
        conditionals, messages = [], []
        for bucket, items in zip(self.tree.buckets, self._items, strict=True):
            # B(s, v), the sum of potentials and messages
            table = np.zeros(self.layout.shape(bucket.scope))
            for item in items:
                own = messages[item.source] if item.is_message else self._cells(theta, item.source)
                table += item.lift(own)
            # p(v | s) and m(s), relative to the largest entry of each row
            top = table.max(axis=-1, keepdims=True)
            top[top == -np.inf] = 0.0
            table -= top
            np.exp(table, out=table)
            mass = table.sum(axis=-1, keepdims=True)
            np.divide(table, mass, out=table, where=mass > 0)
            with np.errstate(divide="ignore"):
                message = (top + np.log(mass))[..., 0]
            if not bucket.separator:
                total += float(message)
            conditionals.append(table)
            messages.append(message)
        if total == -math.inf:
            raise impossible()
        return Collected(total, conditionals)

    def _cells(self, vector: FloatArray, factor: int) -> FloatArray:
        """Return a view of the cells of one factor."""
        return vector[self.offsets[factor] : self.offsets[factor + 1]]

    def _distribute(self, conditionals: list[FloatArray]) -> tuple[FloatArray, list[FloatArray]]:
        """Return the marginals of the cells and of the separators."""
        mu = np.ones(self.size)
        separators = [np.ones(())] * len(conditionals)
        for i in reversed(range(len(conditionals))):
            joint = separators[i][..., None] * conditionals[i]
            for item in self._items[i]:
                part = item.drop(joint)
                if item.is_message:
                    separators[item.source] = part
                else:
                    self._cells(mu, item.source)[:] = part.ravel()
        return mu, separators

    def _tangent(
        self, conditionals: list[FloatArray], separators: list[FloatArray], direction: FloatArray
    ) -> FloatArray:
        """Return the derivative of the cells' marginals along a direction of the potentials."""
        # collect: with g(s, v) the sum of the items' derivatives, m'(s) = E[g | s] and p' = p (g - E[g | s])
        gains, messages = [], []
        for conditional, items in zip(conditionals, self._items, strict=True):
            gain = np.zeros(conditional.shape)
            for item in items:
                own = messages[item.source] if item.is_message else self._cells(direction, item.source)
                gain += item.lift(own)
            mean = np.sum(conditional * gain, axis=-1, keepdims=True)
            gains.append(conditional * (gain - mean))
            messages.append(mean[..., 0])
        # distribute: P'(s, v) = P'(s) p(v | s) + P(s) p'(v | s)
        result = np.zeros(self.size)
        changes = [np.zeros(())] * len(conditionals)
        for i in reversed(range(len(conditionals))):
            change = changes[i][..., None] * conditionals[i] + separators[i][..., None] * gains[i]
            for item in self._items[i]:
                part = item.drop(change)
                if item.is_message:
                    changes[item.source] = part
                else:
                    self._cells(result, item.source)[:] = part.ravel()
        return result


@lru_cache(maxsize=8)
def array_engine(layout: Layout, memory_limit: int = MEMORY_LIMIT) -> ArrayEngine:
    """Return the exact engine in plain NumPy, whose conditional tables samplers use; the last eight are kept."""
    order = elimination_order(layout.cardinalities, layout.scopes)
    require_memory(array_forecast(layout, order), memory_limit)
    return ArrayEngine(BucketTree.build(layout, order))
