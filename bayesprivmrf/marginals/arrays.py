"""Exact inference and exact draws in plain NumPy and in the log domain.

Inference has two sweeps over the buckets of an elimination order.

- Collect, children first: a bucket's table B is the sum of its potentials and messages. Its own message is
  m(s) = log Σ_v exp B(s, v), and the conditional table p(v | s) = exp(B(s, v) - m(s)) is stored.
- Distribute, from the roots: P(s, v) = P(s) p(v | s). Sums of this table are the marginals of the bucket's factors
  and of its children's separators.

All numbers of the second sweep are probabilities. They cannot overflow, and one that underflows is below the smallest
float.

Each sampler follows the elimination order backward. The variable eliminated last is drawn first, and each other
variable v is drawn from p(v | s), given the states s of its separator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.marginals.layout import (
    MEMORY_LIMIT,
    Layout,
    MarginalEngine,
    require_inference_memory,
)
from bayesprivmrf.marginals.planning import Bucket, BucketTree, array_forecast
from bayesprivmrf.model.tables import FloatArray, IntArray, expand, project

# cumulative probabilities that a draw has in memory at once, 8 MiB
_AT_ONCE = 2**20
# engines that are kept for samplers
_ENGINES = 8


class ImpossibleError(ModelError):
    """The error of a model in which no configuration has positive probability."""


def impossible() -> ImpossibleError:
    """Return the error for a model in which no configuration has positive probability."""
    return ImpossibleError(
        "Every configuration is impossible: the potentials of minus infinity exclude all joint states. "
        "Allow at least one state of every clique that agrees with its neighbors."
    )


class ArrayEngine(MarginalEngine):
    """Exact inference by elimination of variables, in NumPy and in the log domain."""

    def __init__(self, tree: BucketTree) -> None:
        self.tree = tree
        self.layout = tree.layout

    def _summed(
        self, bucket: Bucket, vector: FloatArray, messages: Sequence[FloatArray]
    ) -> FloatArray:
        """Return the sum of a bucket's potentials (cells of `vector`) and messages, with its variable last."""
        table = np.zeros(self.layout.shape(bucket.scope))
        for f in bucket.factors:
            scope = self.tree.reduced[f]
            own = self._cells(vector, f).reshape(self.layout.shape(scope))
            table += expand(own, scope, bucket.scope)
        for child in bucket.children:
            table += expand(messages[child], self.tree.buckets[child].separator, bucket.scope)
        return table

    def _spread(
        self, bucket: Bucket, table: FloatArray, cells: FloatArray, separators: list[FloatArray]
    ) -> None:
        """Write the sums of a bucket's table onto the cells of its potentials and onto its children's separators."""
        for f in bucket.factors:
            self._cells(cells, f)[:] = project(table, bucket.scope, self.tree.reduced[f]).ravel()
        for child in bucket.children:
            separators[child] = project(table, bucket.scope, self.tree.buckets[child].separator)

    def log_partition(self, potentials: FloatArray) -> float:
        """Return A(θ), in nats."""
        return self.collect(potentials)[0]

    def marginals(self, potentials: FloatArray) -> tuple[float, FloatArray]:
        """Return A(θ) and the probability of every cell."""
        log_partition, conditionals = self.collect(potentials)
        return log_partition, self._distribute(conditionals)[0]

    def linearize(
        self, potentials: FloatArray
    ) -> tuple[float, FloatArray, Callable[[FloatArray], FloatArray]]:
        """Return A(θ), μ and v → Σv."""
        log_partition, conditionals = self.collect(potentials)
        mu, messages = self._distribute(conditionals)
        possible = np.asarray(potentials) > -np.inf

        def product(vector: FloatArray) -> FloatArray:
            direction = np.where(possible, self.layout.flat(vector, "vector"), 0.0)
            return self._tangent(conditionals, messages, direction)

        return log_partition, mu, product

    def collect(self, potentials: FloatArray) -> tuple[float, list[FloatArray]]:
        """Return A(θ) and, for every bucket, p(v | s) with its variable v on the last axis.

        Raises
        ------
        ModelError
            If no configuration is possible.
        """
        theta = self.layout.flat(potentials)
        offsets = self.offsets
        total = self.tree.free_log_count + float(
            sum(theta[offsets[f]] for f in self.tree.constants)
        )
        conditionals: list[FloatArray] = []
        messages: list[FloatArray] = []
        for bucket in self.tree.buckets:
            # B(s, v), the sum of potentials and messages
            table = self._summed(bucket, theta, messages)
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
        return total, conditionals

    def _cells(self, vector: FloatArray, factor: int) -> FloatArray:
        """Return a view of the cells of one factor."""
        return vector[self.offsets[factor] : self.offsets[factor + 1]]

    def _distribute(self, conditionals: list[FloatArray]) -> tuple[FloatArray, list[FloatArray]]:
        """Return the marginals of the cells and of the separators."""
        mu = np.ones(self.size)
        separators = [np.ones(())] * len(conditionals)
        for i in reversed(range(len(conditionals))):
            self._spread(
                self.tree.buckets[i], separators[i][..., None] * conditionals[i], mu, separators
            )
        return mu, separators

    def _tangent(
        self, conditionals: list[FloatArray], separators: list[FloatArray], direction: FloatArray
    ) -> FloatArray:
        """Return the derivative of the cells' marginals along a direction of the potentials."""
        # collect: with g(s, v) the sum of the items' derivatives, m'(s) = E[g | s] and p' = p (g - E[g | s])
        gains = []
        messages = []
        for conditional, bucket in zip(conditionals, self.tree.buckets, strict=True):
            gain = self._summed(bucket, direction, messages)
            mean = np.sum(conditional * gain, axis=-1, keepdims=True)
            gains.append(conditional * (gain - mean))
            messages.append(mean[..., 0])
        # distribute: P'(s, v) = P'(s) p(v | s) + P(s) p'(v | s)
        result = np.zeros(self.size)
        changes = [np.zeros(())] * len(conditionals)
        for i in reversed(range(len(conditionals))):
            change = changes[i][..., None] * conditionals[i] + separators[i][..., None] * gains[i]
            self._spread(self.tree.buckets[i], change, result, changes)
        return result


@lru_cache(maxsize=_ENGINES)
def array_engine(layout: Layout, memory_limit: int = MEMORY_LIMIT) -> ArrayEngine:
    """Return the exact engine in plain NumPy, whose conditional tables samplers use; the last few are kept."""
    tree = BucketTree.build(layout)
    require_inference_memory(array_forecast(tree), memory_limit)
    return ArrayEngine(tree)


def draw(
    engine: ArrayEngine,
    potentials: FloatArray,
    size: int,
    rng: np.random.Generator,
    *,
    is_balanced: bool = False,
) -> IntArray:
    """Draw records from the model, independent or balanced; see `marginals.sample`.

    A state of probability zero is never drawn.

    Returns
    -------
    IntArray
        Shape (size, number of variables), states as numbers from 0.
    """
    tree = engine.tree
    cards = tree.layout.cardinalities
    states = np.zeros((size, len(cards)), dtype=np.int64)
    if is_balanced:
        assign = _balanced
    else:
        assign = _independent
    for v in tree.free:
        if is_balanced:
            uniform = np.full((1, cards[v]), 1 / cards[v])
            states[:, v] = _balanced(uniform, np.zeros(size, dtype=np.int64), rng)
        else:
            states[:, v] = rng.integers(cards[v], size=size)
    _, conditionals = engine.collect(potentials)
    for bucket, conditional in zip(reversed(tree.buckets), reversed(conditionals), strict=True):
        row = np.zeros(size, dtype=np.int64)
        for v in bucket.separator:
            row = row * cards[v] + states[:, v]
        states[:, bucket.variable] = assign(
            conditional.reshape(-1, cards[bucket.variable]), row, rng
        )
    return states


def draw_tables(
    cardinalities: tuple[int, ...],
    scopes: tuple[tuple[int, ...], ...],
    potentials: FloatArray,
    total: int,
    rng: np.random.Generator,
) -> IntArray:
    """Draw the clique tables of N independent records, without drawing the records.

    The rows of each bucket are multinomial given the counts of its separator. The time depends on the sizes of the
    tables along the elimination order, not on N.

    Parameters
    ----------
    cardinalities, scopes
        The model, as for `marginal_engine`.
    potentials
        Shape (cells,), nats.
    total
        Number of records N, at least 0.
    rng
        Source of randomness.

    Returns
    -------
    ndarray
        Counts, shape (cells,): one table after the other, each in C order.
    """
    engine = array_engine(Layout.build(cardinalities, scopes))
    _, conditionals = engine.collect(potentials)
    drawn: list[tuple[tuple[int, ...], IntArray]] = [((), np.array(total, dtype=np.int64))]
    for bucket, conditional in zip(
        reversed(engine.tree.buckets), reversed(conditionals), strict=True
    ):
        margin = _margin(drawn, bucket.separator)
        drawn.append((bucket.scope, rng.multinomial(margin, conditional)))
    tables = [np.zeros(0, dtype=np.int64)]
    for scope in scopes:
        free = tuple(v for v in scope if cardinalities[v] > 1)
        tables.append(_margin(drawn, free).ravel())
    return np.concatenate(tables)


def _margin(drawn: list[tuple[tuple[int, ...], IntArray]], scope: tuple[int, ...]) -> IntArray:
    """Return the counts over a scope, from the first table that contains it; axes in the scope's order."""
    own, table = next((own, table) for own, table in drawn if set(own) >= set(scope))
    return project(table, own, scope)


def _cumulative(conditional: FloatArray) -> FloatArray:
    """Return the cumulative probabilities of each row, scaled so that the last is exactly one."""
    cumulative = np.cumsum(conditional, axis=1)
    np.divide(cumulative, cumulative[:, -1:], out=cumulative, where=cumulative[:, -1:] > 0)
    return cumulative


def _independent(conditional: FloatArray, row: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw the state of each record from its row of conditional probabilities, by inversion."""
    cumulative = _cumulative(conditional)
    states = np.empty(row.size, dtype=np.int64)
    step = max(_AT_ONCE // conditional.shape[1], 1)
    for start in range(0, row.size, step):
        here = slice(start, start + step)
        uniform = rng.random(row[here].size)
        states[here] = np.sum(cumulative[row[here]] <= uniform[:, None], axis=1)
    return states


def _balanced(conditional: FloatArray, row: IntArray, rng: np.random.Generator) -> IntArray:
    r"""Draw the state of each record so that each row has each state as often as expected, up to rounding.

    Systematic rounding: with F the cumulative probabilities and one uniform number u per row,
    :math:`\lfloor n F_v + u \rfloor - \lfloor n F_{v-1} + u \rfloor` of the n records of a row get state v. These
    whole numbers sum to n. Each differs from :math:`n p_v` by less than one and has it as expectation. A random
    permutation decides which records get which state, so the state of a record depends on its row alone.
    """
    records = np.bincount(row, minlength=len(conditional))[:, None]
    ends = np.floor(records * _cumulative(conditional) + rng.random(records.shape))
    ends = np.minimum(ends, records)  # n + u may round up
    counts = np.diff(ends, axis=1, prepend=0.0).astype(np.int64)
    states = np.empty(row.size, dtype=np.int64)
    codes = np.tile(np.arange(conditional.shape[1]), len(conditional))
    states[np.lexsort((rng.random(row.size), row))] = np.repeat(codes, counts.ravel())
    return states
