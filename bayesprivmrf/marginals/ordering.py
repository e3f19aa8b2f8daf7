"""Elimination orders, and the tree of buckets along an order.

Several greedy orders are computed, and the cheapest is taken. A set of variables is an integer whose bits are its
members. The neighborhoods of thousands of variables are then joined and counted one machine word at a time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bayesprivmrf.marginals.layout import Layout

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
    adjacency = _interaction_graph(cardinalities, scopes)
    order, cost, fill = _greedy(cardinalities, adjacency, "fill", math.inf)
    if order is not None and fill == 0:
        return order  # chordal: no order makes smaller cliques
    rivals: tuple[Heuristic, ...] = ("weight", "weighted fill") if order is not None else ("weight",)
    for heuristic in rivals:
        rival, rival_cost, _ = _greedy(cardinalities, adjacency, heuristic, cost)
        if rival is not None and (order is None or rival_cost < cost):
            order, cost = rival, rival_cost
    assert (
        order is not None
    )  # minimum weight always finds an order: it has no cutoff if minimum fill found none
    return order


def _interaction_graph(cardinalities: Sequence[int], scopes: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the set of neighbors of each variable with several states."""
    adjacency: dict[int, int] = {}
    for scope in scopes:
        inside = [v for v in scope if cardinalities[v] > 1]
        mask = 0
        for v in inside:
            mask |= 1 << v
        for v in inside:
            adjacency[v] = adjacency.get(v, 0) | (mask ^ (1 << v))
    return adjacency


class _Scores:
    """Greedy score of each variable in the current graph; the variable with the smallest score is eliminated."""

    def __init__(self, cardinalities: Sequence[int], adjacency: dict[int, int], heuristic: Heuristic) -> None:
        self.adjacency = adjacency
        self.heuristic: Heuristic = heuristic
        self.cardinalities = cardinalities
        self.logs = [math.log(k) for k in cardinalities]
        self.work = 0
        by_cardinality: dict[int, int] = {}
        for v in adjacency:
            k = cardinalities[v]
            by_cardinality[k] = by_cardinality.get(k, 0) | (1 << v)
        self.classes = [(k, math.log(k), mask) for k, mask in by_cardinality.items()]

    def log_cells(self, v: int) -> float:
        """Return the log of the number of cells over v and its neighbors."""
        around = self.adjacency[v]
        return self.logs[v] + sum(log * (around & mask).bit_count() for _, log, mask in self.classes)

    def __call__(self, v: int) -> float:
        if self.heuristic == "weight":
            return self.log_cells(v)
        around = self.adjacency[v]
        self.work += around.bit_count()
        if self.heuristic == "fill":
            missing = sum((around & ~self.adjacency[u]).bit_count() for u in members(around))
            return (missing - around.bit_count()) / 2 + 1e-9 * self.log_cells(v)
        total = 0.0
        for u in members(around):
            gaps = around & ~self.adjacency[u] & ~(1 << u)
            if gaps:
                k = self.cardinalities[u]
                total += k * sum(c * (gaps & mask).bit_count() for c, _, mask in self.classes)
        return total / 2 + 1e-9 * self.log_cells(v)


def _greedy(
    cardinalities: Sequence[int], graph: dict[int, int], heuristic: Heuristic, cutoff: float
) -> tuple[list[int] | None, float, int]:
    """Return one greedy order, the sum of its table sizes and its number of fill edges.

    The order is None if the sum exceeds the cutoff, or if a fill heuristic needs more than 300,000 set operations,
    about a tenth of a second.
    """
    adjacency = dict(graph)
    score = _Scores(cardinalities, adjacency, heuristic)
    current = {v: score(v) for v in adjacency}
    heap = [(s, v) for v, s in current.items()]
    heapq.heapify(heap)
    order: list[int] = []
    cost, fill = 0.0, 0
    while adjacency:
        value, v = heapq.heappop(heap)
        if current.get(v) != value:
            continue  # the entry is outdated
        log_cells = score.log_cells(v)
        cost += math.exp(min(log_cells, 700.0))
        if cost > cutoff or (heuristic != "weight" and score.work > 300_000):
            return None, math.inf, 0
        around = adjacency.pop(v)
        del current[v]
        order.append(v)
        if around.bit_count() == len(
            adjacency
        ):  # the remaining variables are one clique: all orders cost the same
            order += sorted(adjacency, key=lambda u: -cardinalities[u])
            break
        # connect the neighbors of v with each other
        touched, added = around, 0
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
class Bucket:
    """Factors and messages that are multiplied and summed when one variable is eliminated.

    Attributes
    ----------
    variable : int
        The variable that is eliminated.
    factors : tuple of int
        Factors whose first eliminated variable is this one.
    children : tuple of int
        Buckets that send their messages to this one.
    separator : tuple of int
        Variables of the message that this bucket sends; the one eliminated last comes first.
    """

    variable: int
    factors: tuple[int, ...]
    children: tuple[int, ...]
    separator: tuple[int, ...]

    @property
    def scope(self) -> tuple[int, ...]:
        """All variables of the bucket, with its own variable last."""
        return (*self.separator, self.variable)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTree:
    """Buckets in the order of elimination, children before their parents.

    Attributes
    ----------
    layout : Layout
        Variables and factors.
    reduced : tuple of tuple of int
        Scopes of the factors without one-state variables; the order of cells is the same.
    buckets : tuple of Bucket
        One bucket for each variable with several states that is in a factor.
    free : tuple of int
        Variables with several states that are in no factor; their distribution is uniform.
    constants : tuple of int
        Factors with a single cell.
    """

    layout: Layout
    reduced: tuple[tuple[int, ...], ...]
    buckets: tuple[Bucket, ...]
    free: tuple[int, ...]
    constants: tuple[int, ...]

    @classmethod
    def build(cls, layout: Layout, order: Sequence[int] | None = None) -> BucketTree:
        """Return the buckets of an order, by default that of `elimination_order`."""
        cards = layout.cardinalities
        if order is None:
            order = elimination_order(cards, layout.scopes)
        place = {v: i for i, v in enumerate(order)}
        reduced = tuple(tuple(v for v in scope if cards[v] > 1) for scope in layout.scopes)
        factors: list[list[int]] = [[] for _ in order]
        for f, scope in enumerate(reduced):
            if scope:
                factors[min(place[v] for v in scope)].append(f)
        children: list[list[int]] = [[] for _ in order]
        separators: list[set[int]] = []
        buckets = []
        for i, variable in enumerate(order):
            inside: set[int] = set()
            for f in factors[i]:
                inside.update(reduced[f])
            for c in children[i]:
                inside |= separators[c]
            inside.discard(variable)
            separators.append(inside)
            if inside:
                children[min(place[v] for v in inside)].append(i)
            buckets.append(
                Bucket(
                    variable=variable,
                    factors=tuple(factors[i]),
                    children=tuple(children[i]),
                    separator=tuple(sorted(inside, key=lambda v: -place[v])),
                )
            )
        return cls(
            layout=layout,
            reduced=reduced,
            buckets=tuple(buckets),
            free=tuple(v for v, k in enumerate(cards) if k > 1 and v not in place),
            constants=tuple(f for f, scope in enumerate(reduced) if not scope),
        )

    @property
    def free_log_count(self) -> float:
        """Logarithm of the number of joint states of the variables in no factor."""
        return math.fsum(math.log(self.layout.cardinalities[v]) for v in self.free)
