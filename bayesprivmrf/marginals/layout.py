"""Layout of all potentials in one flat vector, the interface of the marginal engines, and elimination orders.

Several greedy orders are computed, and the cheapest is taken; its memory and work are forecast before anything is
allocated. A set of variables is an integer whose bits are its members. The neighborhoods of thousands of variables
are then joined and counted one machine word at a time.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import index
from typing import Any, Literal

import numpy as np

from bayesprivmrf.checks import GIB, require
from bayesprivmrf.errors import ModelError, ModelTooLargeError
from bayesprivmrf.model.domain import listed
from bayesprivmrf.model.tables import DOUBLE, FloatArray


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
                raise ModelError(
                    f"`cardinalities` must be at least 1, got {k} for variable {variable}."
                )
        ordered = tuple(
            whole_numbers("each of `scopes`", scope) for scope in listed("`scopes`", scopes)
        )
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
        if vector.flags.writeable:
            return vector
        return vector.copy()

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
        raise ModelError(
            f"{what} must hold whole numbers, got other values; number from 0."
        ) from None


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

    @abstractmethod
    def log_partition(self, potentials: FloatArray) -> float:
        """Return A(θ) = log Σ_x exp(Σ_f θ_f(x_f)), in nats."""

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


#: Default memory limit of inference, in bytes: half the memory of a small laptop.
MEMORY_LIMIT = 4 * GIB

#: Cells of a clique, 128 TiB, beyond which a model is refused without planning: no machine has so much memory.
HOPELESS_CELLS = 2**44
# weight of a clique's size where the scores of two variables are equal: below any difference of scores
_TIE_BREAK = 1e-9
# log number of cells that is not exponentiated further: exp of it is just finite
_LARGEST_EXPONENT = 700.0
# look-ups of neighbors after which a heuristic is given up, a second or so, since that by size needs none
_WORK = 300_000
# doubles a cell of the largest clique that inference needs, in words to the user: the table and its copies
_COPIES = 8
# numbers from here on are written as powers of ten
_WRITTEN_OUT = 10**15
# bytes of a mebibyte, in which memory is stated
_MIB = 2**20

Heuristic = Literal["fill", "weight", "weighted fill"]


def members(mask: int) -> Iterator[int]:
    """Yield the members of a set, in increasing order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def elimination_order(cardinalities: Sequence[int], scopes: Sequence[Sequence[int]]) -> list[int]:
    """Return an order in which to sum the variables out.

    Three greedy heuristics are tried: minimum weight (the size of the table that an elimination makes), minimum
    fill and minimum weighted fill. The order with the smallest sum of table sizes is returned. It leaves out
    variables with one state and variables in no scope.

    Parameters
    ----------
    cardinalities : sequence of int
        Number of states of each variable.
    scopes : sequence of sequence of int
        Variables of each factor.

    Returns
    -------
    list of int
        Variables in the order of elimination.

    References
    ----------
    D. Koller and N. Friedman, Probabilistic Graphical Models, 2009, section 9.4.3.2.
    """
    # The set of neighbors of each variable with several states
    adjacency: dict[int, int] = {}
    for scope in scopes:
        inside = [v for v in scope if cardinalities[v] > 1]
        mask = 0
        for v in inside:
            mask |= 1 << v
        for v in inside:
            adjacency[v] = adjacency.get(v, 0) | (mask ^ (1 << v))
    order, cost, fill = _greedy(cardinalities, adjacency, "fill", math.inf)
    if order is not None and fill == 0:
        return order  # chordal: no order makes smaller cliques
    rivals: tuple[Heuristic, ...] = (
        ("weight", "weighted fill") if order is not None else ("weight",)
    )
    for heuristic in rivals:
        rival, rival_cost, _ = _greedy(cardinalities, adjacency, heuristic, cost)
        if rival is not None and (order is None or rival_cost < cost):
            order = rival
            cost = rival_cost
    # minimum weight always finds an order: it has no cutoff if minimum fill found none
    assert order is not None
    return order


def _greedy(
    cardinalities: Sequence[int], graph: dict[int, int], heuristic: Heuristic, cutoff: float
) -> tuple[list[int] | None, float, int]:
    """Return one greedy order, the sum of its table sizes and its number of fill edges.

    The order is None if the sum exceeds the cutoff, or if a fill heuristic needs more than 300,000 set operations,
    about a tenth of a second.
    """
    adjacency = dict(graph)
    # the variables with each number of states
    classes: dict[int, int] = {}
    for v in adjacency:
        classes[cardinalities[v]] = classes.get(cardinalities[v], 0) | (1 << v)
    logs = {k: math.log(k) for k in classes}
    work = 0

    def log_cells(v: int) -> float:
        """Return the log of the number of cells over v and its neighbors."""
        around = adjacency[v]
        return logs[cardinalities[v]] + sum(
            logs[k] * (around & mask).bit_count() for k, mask in classes.items()
        )

    def score(v: int) -> float:
        """Return the score of a variable in the current graph; that with the smallest is eliminated."""
        nonlocal work
        if heuristic == "weight":
            return log_cells(v)
        around = adjacency[v]
        work += around.bit_count()
        if heuristic == "fill":
            missing = sum((around & ~adjacency[u]).bit_count() for u in members(around))
            return (missing - around.bit_count()) / 2 + _TIE_BREAK * log_cells(v)
        total = 0.0
        for u in members(around):
            gaps = around & ~adjacency[u] & ~(1 << u)
            if gaps:
                total += cardinalities[u] * sum(
                    k * (gaps & mask).bit_count() for k, mask in classes.items()
                )
        return total / 2 + _TIE_BREAK * log_cells(v)

    current = {v: score(v) for v in adjacency}
    heap = [(s, v) for v, s in current.items()]
    heapq.heapify(heap)
    order: list[int] = []
    cost = 0.0
    fill = 0
    while adjacency:
        value, v = heapq.heappop(heap)
        if current.get(v) != value:
            continue  # the entry is outdated
        cost += math.exp(min(log_cells(v), _LARGEST_EXPONENT))
        if cost > cutoff or (heuristic != "weight" and work > _WORK):
            return None, math.inf, 0
        around = adjacency.pop(v)
        del current[v]
        order.append(v)
        if around.bit_count() == len(adjacency):
            # the remaining variables are one clique: all orders cost the same
            order += sorted(adjacency, key=lambda u: -cardinalities[u])
            break
        # connect the neighbors of v with each other
        touched = around
        added = 0
        for u in members(around):
            before = adjacency[u] & ~(1 << v)
            adjacency[u] = before | (around ^ (1 << u))
            new = adjacency[u].bit_count() - before.bit_count()
            if new:
                added += new
                touched |= adjacency[u]
        fill += added // 2
        if heuristic == "weight":
            touched = around  # only the neighborhoods of these variables changed
        # update the scores that may have changed
        for u in members(touched):
            fresh = score(u)
            if fresh != current[u]:
                current[u] = fresh
                heapq.heappush(heap, (fresh, u))
    return order, cost, fill


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Cost of exact inference along the elimination order that would be used.

    Attributes
    ----------
    treewidth : int
        Number of variables in the largest clique, less one: an upper bound on the treewidth of the graph.
    largest_table : int
        Number of cells of the largest clique.
    total_cells : int
        Number of cells of all cliques together.
    memory_bytes : int
        Upper bound on the memory of one evaluation with one product Σv, in bytes.
    multiplications : int
        Approximate number of multiplications in one evaluation of the marginals.
    """

    treewidth: int
    largest_table: int
    total_cells: int
    memory_bytes: int
    multiplications: int


def require_inference_memory(cost: Forecast, memory_limit: float) -> None:
    """Raise an error if exact inference in a model would not fit in memory.

    Raises
    ------
    ModelTooLargeError
        The model needs more memory. The error states the forecast, the limit and the size of cliques that would fit.
    """
    if not cost.memory_bytes <= memory_limit:
        cells = _count(max(memory_limit // (DOUBLE * _COPIES), 1))
        raise ModelTooLargeError(
            f"Exact inference would need about {_bytes(cost.memory_bytes)} for cliques of up to "
            f"{cost.treewidth + 1} variables ({_count(cost.largest_table)} cells), more than `memory_limit` of "
            f"{_bytes(memory_limit)}, enough for cliques of about {cells} cells. "
            "Declare fewer or smaller cliques, or use loopy belief propagation, an approximation that needs little "
            'more memory than the declared tables: `inference="loopy"` in an estimator, `kind="loopy"` here.'
        )


def _bytes(number: float) -> str:
    if number < GIB:
        return f"{number / _MIB:.1f} MiB"
    if number < GIB * GIB:
        return f"{number / GIB:.1f} GiB"
    return f"10^{_exponent(number)} bytes"


def _count(number: float) -> str:
    if number < _WRITTEN_OUT:
        return f"{number:,}"
    return f"10^{_exponent(number)}"


def _exponent(number: float) -> int:
    return round(math.log10(number))
