"""Loopy belief propagation: Bethe's approximation of A and of the marginals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.checks import positive_finite, probability, whole_number
from bayesprivmrf.marginals import sweeps
from bayesprivmrf.marginals.arrays import impossible
from bayesprivmrf.marginals.forecast import Forecast
from bayesprivmrf.marginals.junction import DisjointSets
from bayesprivmrf.marginals.layout import Layout, MarginalEngine
from bayesprivmrf.model.tables import FloatArray


def loopy_forecast(layout: Layout) -> Forecast:
    """Return the cost of one sweep: the declared tables, and two messages per edge."""
    edges = sum(layout.cardinalities[v] for scope in layout.scopes for v in scope)
    sizes = [b - a for a, b in zip(layout.offsets[:-1], layout.offsets[1:], strict=True)]
    return Forecast(
        treewidth=max((len(scope) for scope in layout.scopes), default=1) - 1,
        largest_table=max(sizes, default=1),
        total_cells=layout.size,
        memory_bytes=8 * (5 * layout.size + 4 * edges),
        multiplications=sum(size * len(scope) ** 2 for size, scope in zip(sizes, layout.scopes, strict=True)),
    )


@dataclass(frozen=True, slots=True)
class _Messages:
    """Messages at the end of a run, with the status of the run."""

    values: FloatArray
    is_converged: bool
    iterations: int


class LoopyEngine(MarginalEngine):
    """Loopy belief propagation between factors and variables.

    Sweeps over the factors alternate in direction until the messages converge. The answers are exact if factors and
    variables form a forest. Otherwise A is Bethe's approximation at the fixed point that was found, and μ are
    pseudo-marginals that agree on single variables. The messages may fail to converge; `marginals_with_status` says
    whether they did.

    Parameters
    ----------
    layout : Layout
        The model.
    damping : float
        Weight of the old message's logarithm in the new one, in [0, 1). It is 0 on a forest, and otherwise raised
        each time that another fifth of the sweeps has not converged.
    tolerance : float
        Largest change of a message at convergence, for messages with maximum one.
    max_iterations : int
        Largest number of sweeps, at least 1.

    References
    ----------
    J. S. Yedidia, W. T. Freeman and Y. Weiss, Constructing free-energy approximations and generalized belief
    propagation algorithms, IEEE Transactions on Information Theory 51(7), 2005, equations (16)-(22).
    """

    is_exact = False  # although it is exact on forests

    def __init__(
        self,
        layout: Layout,
        *,
        damping: float = 0.3,
        tolerance: float = 1e-11,
        max_iterations: int = 1000,
    ) -> None:
        probability("damping", damping, zero=True, remedy="0.3 is usual")
        positive_finite("tolerance", tolerance)
        whole_number("max_iterations", max_iterations, 1)
        self.layout = layout
        self.tolerance = tolerance
        self.max_iterations = max_iterations
        cards = layout.cardinalities
        reduced = [[v for v in scope if cards[v] > 1] for scope in layout.scopes]
        self._cards = np.array(cards, dtype=np.int64)
        self._offsets = np.array(layout.offsets, dtype=np.int64)
        self._starts = np.cumsum([0, *map(len, reduced)], dtype=np.int64)
        self._var_at = np.cumsum([0, *cards], dtype=np.int64)[:-1]
        edges, self._length = [], 0
        for scope in reduced:
            stride = math.prod(cards[v] for v in scope)
            for v in scope:
                stride //= cards[v]
                edges.append((v, stride, self._length))
                self._length += cards[v]
        self._edges = np.array(edges, dtype=np.int64).reshape(-1, 3)
        # states of one factor's variables together, or of one variable: the width of the buffers
        self._width = max((sum(cards[v] for v in scope) for scope in reduced), default=1)
        self._width = max(self._width, max(cards, default=1))
        self.damping = 0.0 if _is_forest(len(cards), reduced) else damping

    def log_partition(self, potentials: FloatArray) -> float:
        """Return Bethe's A(θ), in nats."""
        return self.marginals_with_status(potentials)[0]

    def marginals(self, potentials: FloatArray) -> tuple[float, FloatArray]:
        """Return Bethe's A(θ) and the factors' beliefs."""
        return self.marginals_with_status(potentials)[:2]

    def marginals_with_status(self, potentials: FloatArray) -> tuple[float, FloatArray, bool, int]:
        """Return Bethe's A(θ), the factors' beliefs, True if the messages converged, and the number of sweeps.

        Raises
        ------
        ModelError
            If the messages show that no configuration is possible.
        """
        theta = self.layout.flat(potentials)
        messages = self._propagate(theta, np.zeros(self._length))
        log_partition, mu = self._beliefs(theta, messages.values)
        return log_partition, mu, messages.is_converged, messages.iterations

    def linearize(
        self, potentials: FloatArray
    ) -> tuple[float, FloatArray, Callable[[FloatArray], FloatArray]]:
        """Return A(θ), μ and v → Σv, by a central difference of the beliefs.

        The product has an error of about 1e-7 relative to the largest entry of v: the square of the step 1e-4, plus
        the messages' tolerance over the step. It is meaningful only if the messages converge.
        """
        theta = self.layout.flat(potentials).copy()
        start = self._propagate(theta, np.zeros(self._length)).values
        log_partition, mu = self._beliefs(theta, start)
        possible = theta > -np.inf

        def product(vector: FloatArray) -> FloatArray:
            direction = np.where(possible, self.layout.flat(vector, "vector"), 0.0)
            size = float(np.abs(direction).max(initial=0.0))
            if size == 0.0:
                return np.zeros(self.size)
            step = 1e-4 / size
            ends = []
            for sign in (1, -1):
                moved = theta + sign * step * direction
                ends.append(self._beliefs(moved, self._propagate(moved, start.copy()).values)[1])
            return (ends[0] - ends[1]) / (2 * step)

        return log_partition, mu, product

    @property
    def _graph(self) -> tuple[np.ndarray, ...]:
        """Arrays of the graph in the order of the compiled sweeps' arguments."""
        return self._offsets, self._starts, self._edges, self._cards, self._var_at

    def _buffers(self) -> tuple[FloatArray, np.ndarray, FloatArray]:
        """Return new buffers of the compiled sweeps: sums into each state, numbers of zeros, and scratch."""
        states = int(self._cards.sum())
        return np.empty(states), np.empty(states, dtype=np.int64), np.empty((3, self._width))

    def _propagate(self, theta: FloatArray, messages: FloatArray) -> _Messages:
        """Sweep until the messages converge, or `max_iterations` times; messages are updated in place."""
        buffers = self._buffers()
        damping = self.damping
        patience = max(self.max_iterations // 5, 1)
        for iteration in range(self.max_iterations):
            if damping > 0 and iteration > 0 and iteration % patience == 0:
                damping = (1 + damping) / 2
            residual = sweeps.sweep(theta, *self._graph, messages, *buffers, damping, iteration % 2 == 0)
            if residual == math.inf:
                raise impossible()
            if residual <= self.tolerance * (1 - damping):
                return _Messages(messages, True, iteration + 1)
        return _Messages(messages, False, self.max_iterations)

    def _beliefs(self, theta: FloatArray, messages: FloatArray) -> tuple[float, FloatArray]:
        """Return Bethe's A and the factors' beliefs under given messages."""
        mu = np.empty(self.size)
        total = sweeps.finish(theta, *self._graph, messages, *self._buffers(), mu)
        if total == -math.inf:
            raise impossible()
        return total, mu


def _is_forest(variables: int, scopes: list[list[int]]) -> bool:
    """Return True if the bipartite graph of factors and variables has no cycle."""
    trees = DisjointSets(variables + len(scopes))
    return all(trees.join(v, variables + f) for f, scope in enumerate(scopes) for v in scope)
