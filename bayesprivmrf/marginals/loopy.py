"""Loopy belief propagation: Bethe's approximation of A and of the marginals.

The compiled sweeps compute in the log domain. Messages have maximum zero. Entries of minus infinity are counted apart
from the finite ones, so that no message is computed as a difference of infinities.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import networkx as nx
import numpy as np
from numba import njit

from bayesprivmrf.compiled import kept
from bayesprivmrf.marginals.arrays import impossible
from bayesprivmrf.marginals.layout import Forecast, Layout, MarginalEngine
from bayesprivmrf.model.tables import DOUBLE, FloatArray

# options of numba; error_model: a division by zero gives infinity, as in NumPy, and is not tested for
_OPTIONS = {"nogil": True, "error_model": "numpy"}


# weight of the old message's logarithm in the new one, where messages go round in cycles; arbitrary, and raised where
# they do not converge
_DAMPING = 0.3
# stages of the sweeps: after each the damping rises
_STAGES = 5
# largest change of a potential in the central difference, nats: its square and the tolerance over it are both 1e-7
_DIFFERENCE = 1e-4
# vectors over cells and messages that one product Σv stores
_VECTORS = 5
_MESSAGES = 4


@njit(**_OPTIONS)
def _totals(edges, cards, var_at, messages, finite, zeros):
    """Sum the messages into each variable: finite entries into `finite`, numbers of impossible ones into `zeros`."""
    finite[:] = 0.0
    zeros[:] = 0
    for e in range(edges.shape[0]):
        v = edges[e, 0]
        at = edges[e, 2]
        for x in range(cards[v]):
            m = messages[at + x]
            if m == -np.inf:
                zeros[var_at[v] + x] += 1
            else:
                finite[var_at[v] + x] += m


@njit(**_OPTIONS)
def _incoming(edges, first, last, cards, var_at, messages, finite, zeros, incoming):
    """Write the messages from a factor's variables to the factor."""
    # formula: m_vf(x) = Σ_{g ≠ f} m_gv(x), as the sum over all factors g less the message of f itself
    start = 0
    for e in range(first, last):
        v = edges[e, 0]
        at = edges[e, 2]
        top = -np.inf
        for x in range(cards[v]):
            own = messages[at + x]
            blocked = zeros[var_at[v] + x] - (1 if own == -np.inf else 0)
            value = -np.inf
            if blocked == 0:
                value = finite[var_at[v] + x] - (0.0 if own == -np.inf else own)
            incoming[start + x] = value
            top = max(top, value)
        # shift to maximum zero
        if top > -np.inf:
            for x in range(cards[v]):
                incoming[start + x] -= top
        start += cards[v]


@njit(**_OPTIONS)
def _term(edges, first, last, cards, incoming, cell, skip):
    """Return the sum of the incoming messages at a cell, without that of the edge `skip`."""
    total = 0.0
    start = 0
    for e in range(first, last):
        k = cards[edges[e, 0]]
        if e != skip:
            total += incoming[start + (cell // edges[e, 1]) % k]
        start += k
    return total


@kept(error_model="numpy")
def _sweep(
    theta, offsets, starts, edges, cards, var_at, messages, finite, zeros, scratch, damping, forward
):
    """Update every message once, in place, and return the largest change of a message.

    The change is infinite if a message has no possible entry. `scratch` holds the incoming messages and two vectors
    of states.
    """
    # sums of all messages into each variable, updated below with each message
    _totals(edges, cards, var_at, messages, finite, zeros)
    incoming = scratch[0]
    tops = scratch[1]
    sums = scratch[2]
    residual = 0.0
    factors = starts.size - 1
    for i in range(factors):
        f = i if forward else factors - 1 - i
        # messages from the variables to the factor
        first = starts[f]
        last = starts[f + 1]
        _incoming(edges, first, last, cards, var_at, messages, finite, zeros, incoming)
        for e in range(first, last):
            v = edges[e, 0]
            stride = edges[e, 1]
            at = edges[e, 2]
            k = cards[v]
            # formula: m_fv(x) = log Σ_{x_f with x_v = x} exp(θ_f(x_f) + Σ_{w ≠ v} m_wf(x_w)), with running maxima
            tops[:k] = -np.inf
            sums[:k] = 0.0
            for c in range(offsets[f], offsets[f + 1]):
                cell = c - offsets[f]
                x = (cell // stride) % k
                value = theta[c] + _term(edges, first, last, cards, incoming, cell, e)
                if value > tops[x]:
                    sums[x] = sums[x] * math.exp(tops[x] - value) + 1.0
                    tops[x] = value
                elif value > -np.inf:
                    sums[x] += math.exp(value - tops[x])
            # the logarithms, and their maximum
            best = -np.inf
            for x in range(k):
                if sums[x] > 0.0:
                    tops[x] += math.log(sums[x])
                best = max(best, tops[x])
            if best == -np.inf:
                return np.inf
            mixed = -np.inf
            for x in range(k):
                new = tops[x] - best
                old = messages[at + x]
                # damping mixes the logarithms where both messages are finite
                if damping > 0.0 and old > -np.inf and new > -np.inf:
                    new = (1.0 - damping) * new + damping * old
                tops[x] = new
                mixed = max(mixed, new)
            # store the message with maximum zero, and update the largest change
            for x in range(k):
                new = tops[x] - mixed
                old = messages[at + x]
                residual = max(residual, abs(math.exp(new) - math.exp(old)))
                if old > -np.inf:
                    finite[var_at[v] + x] -= old
                else:
                    zeros[var_at[v] + x] -= 1
                if new > -np.inf:
                    finite[var_at[v] + x] += new
                else:
                    zeros[var_at[v] + x] += 1
                messages[at + x] = new
    return residual


@njit(**_OPTIONS)
def _log_sum(values):
    """Return log Σ exp(values), computed relative to the largest value."""
    top = values.max()
    if top == -np.inf:
        return top
    total = 0.0
    for x in values:
        total += math.exp(x - top)
    return top + math.log(total)


@kept(error_model="numpy")
def _finish(theta, offsets, starts, edges, cards, var_at, messages, finite, zeros, scratch, mu):
    """Write the beliefs of the factors to `mu`; return Bethe's A = Σ log Z_f + Σ log Z_v - Σ log Z_fv.

    The shifts of the messages to maximum zero cancel between the three sums.
    """
    _totals(edges, cards, var_at, messages, finite, zeros)
    incoming = scratch[0]
    pair = scratch[1]
    total = 0.0
    for f in range(starts.size - 1):
        # log Z_f and the belief of each factor
        first = starts[f]
        last = starts[f + 1]
        _incoming(edges, first, last, cards, var_at, messages, finite, zeros, incoming)
        cells = mu[offsets[f] : offsets[f + 1]]
        for c in range(cells.size):
            cells[c] = theta[offsets[f] + c] + _term(edges, first, last, cards, incoming, c, -1)
        mass = _log_sum(cells)
        if mass == -np.inf:
            return mass
        total += mass
        for c in range(cells.size):
            cells[c] = math.exp(cells[c] - mass)
        # less log Z_fv of each edge: the product of the two messages along it
        start = 0
        for e in range(first, last):
            k = cards[edges[e, 0]]
            at = edges[e, 2]
            for x in range(k):
                pair[x] = incoming[start + x] + messages[at + x]
            mass = _log_sum(pair[:k])
            if mass == -np.inf:
                return mass
            total -= mass
            start += k
    # log Z_v of each variable
    for v in range(cards.size):
        out = pair[: cards[v]]
        for x in range(cards[v]):
            if zeros[var_at[v] + x] > 0:
                out[x] = -np.inf
            else:
                out[x] = finite[var_at[v] + x]
        total += _log_sum(out)
    return total


def loopy_forecast(layout: Layout) -> Forecast:
    """Return the cost of one sweep: the declared tables, and two messages per edge."""
    edges = sum(layout.cardinalities[v] for scope in layout.scopes for v in scope)
    sizes = [b - a for a, b in zip(layout.offsets[:-1], layout.offsets[1:], strict=True)]
    return Forecast(
        treewidth=max((len(scope) for scope in layout.scopes), default=1) - 1,
        largest_table=max(sizes, default=1),
        total_cells=layout.size,
        memory_bytes=DOUBLE * (_VECTORS * layout.size + _MESSAGES * edges),
        multiplications=sum(
            size * len(scope) ** 2 for size, scope in zip(sizes, layout.scopes, strict=True)
        ),
    )


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

    References
    ----------
    J. S. Yedidia, W. T. Freeman and Y. Weiss, Constructing free-energy approximations and generalized belief
    propagation algorithms, IEEE Transactions on Information Theory 51(7), 2005, equations (16)-(22).
    """

    # largest change of a message at convergence, for messages with maximum one
    tolerance = 1e-11
    # largest number of sweeps
    max_iterations = 1000

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        cards = layout.cardinalities
        reduced = [[v for v in scope if cards[v] > 1] for scope in layout.scopes]
        edges = []
        self._length = 0
        for scope in reduced:
            stride = math.prod(cards[v] for v in scope)
            for v in scope:
                stride //= cards[v]
                edges.append((v, stride, self._length))
                self._length += cards[v]
        # arrays of the graph in the order of the compiled sweeps' arguments
        self._graph = (
            np.array(layout.offsets, dtype=np.int64),
            np.cumsum([0, *map(len, reduced)], dtype=np.int64),
            np.array(edges, dtype=np.int64).reshape(-1, 3),
            np.array(cards, dtype=np.int64),
            np.cumsum([0, *cards], dtype=np.int64)[:-1],
        )
        # states of one factor's variables together, or of one variable: the width of the buffers
        self._width = max([1, *cards, *(sum(cards[v] for v in scope) for scope in reduced)])
        # exact on a forest of factors and variables
        links = [(v, len(cards) + f) for f, scope in enumerate(reduced) for v in scope]
        self.is_exact = not links or nx.is_forest(nx.Graph(links))
        self._damping = 0.0 if self.is_exact else _DAMPING

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
        messages = np.zeros(self._length)
        is_converged, iterations = self._propagate(theta, messages)
        return *self._beliefs(theta, messages), is_converged, iterations

    def linearize(
        self, potentials: FloatArray
    ) -> tuple[float, FloatArray, Callable[[FloatArray], FloatArray]]:
        """Return A(θ), μ and v → Σv, by a central difference of the beliefs.

        The product has an error of about 1e-7 relative to the largest entry of v: the square of the step, plus the
        messages' tolerance over the step. It is meaningful only if the messages converge.
        """
        theta = self.layout.flat(potentials).copy()
        start = np.zeros(self._length)
        self._propagate(theta, start)
        log_partition, mu = self._beliefs(theta, start)
        possible = theta > -np.inf

        def product(vector: FloatArray) -> FloatArray:
            direction = np.where(possible, self.layout.flat(vector, "vector"), 0.0)
            size = float(np.abs(direction).max(initial=0.0))
            if size == 0.0:
                return np.zeros(self.size)
            step = _DIFFERENCE / size
            ends = []
            for sign in (1, -1):
                moved = theta + sign * step * direction
                messages = start.copy()
                self._propagate(moved, messages)
                ends.append(self._beliefs(moved, messages)[1])
            return (ends[0] - ends[1]) / (2 * step)

        return log_partition, mu, product

    def _buffers(self) -> tuple[FloatArray, np.ndarray, FloatArray]:
        """Return new buffers of the compiled sweeps: sums into each state, numbers of zeros, and scratch."""
        states = sum(self.cardinalities)
        return np.empty(states), np.empty(states, dtype=np.int64), np.empty((3, self._width))

    def _propagate(self, theta: FloatArray, messages: FloatArray) -> tuple[bool, int]:
        """Sweep in place until the messages converge; return True if they did, and the number of sweeps."""
        buffers = self._buffers()
        damping = self._damping
        patience = max(self.max_iterations // _STAGES, 1)
        for iteration in range(self.max_iterations):
            # more damping each time that another fifth of the sweeps has not converged
            if damping > 0 and iteration > 0 and iteration % patience == 0:
                damping = (1 + damping) / 2
            residual = _sweep(theta, *self._graph, messages, *buffers, damping, iteration % 2 == 0)
            if residual == math.inf:
                raise impossible()
            if residual <= self.tolerance * (1 - damping):
                return True, iteration + 1
        return False, self.max_iterations

    def _beliefs(self, theta: FloatArray, messages: FloatArray) -> tuple[float, FloatArray]:
        """Return Bethe's A and the factors' beliefs under given messages."""
        mu = np.empty(self.size)
        total = _finish(theta, *self._graph, messages, *self._buffers(), mu)
        if total == -math.inf:
            raise impossible()
        return total, mu
