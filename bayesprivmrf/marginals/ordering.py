"""Elimination orders: several greedy ones, the cheapest is taken.

A set of variables is an integer whose bits are its members, so that the neighbourhoods of thousands of
variables are joined and counted a machine word at a time.

The tree of buckets that an elimination order makes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bayesprivmrf.marginals.layout import Layout

Heuristic = Literal["fill", "weight", "weighted fill"]

#: Set operations that the fill heuristics may spend on one graph; about a tenth of a second.
FILL_BUDGET = 300_000


def members(mask: int) -> Iterator[int]:
    """Yield the members of a set, in increasing order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def elimination_order(cardinalities: Sequence[int], scopes: Sequence[Sequence[int]]) -> list[int]:
    """Return an order in which to sum the variables out.

    Minimum weight (the table that the elimination makes), minimum fill and minimum weighted fill are tried;
    the order with the smallest sum of table sizes wins. Variables with one state, and those in no scope,
    are left out.

    Parameters
    ----------
    cardinalities : sequence of int
        States of each variable.
    scopes : sequence of sequence of int
        Variables of each factor.

    Returns
    -------
    list of int
        Variables in the order of their elimination.

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
    assert order is not None  # minimum weight without a rival always ends
    return order


def _interaction_graph(cardinalities: Sequence[int], scopes: Sequence[Sequence[int]]) -> dict[int, int]:
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
    """The greedy score of a variable in the graph as it stands."""

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
    """Return one greedy order, its summed table size and its fill edges; None beyond cutoff or budget."""
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
            continue  # an outdated entry
        log_cells = score.log_cells(v)
        cost += math.exp(min(log_cells, 700.0))
        if cost > cutoff or (heuristic != "weight" and score.work > FILL_BUDGET):
            return None, math.inf, 0
        around = adjacency.pop(v)
        del current[v]
        order.append(v)
        if around.bit_count() == len(adjacency):  # what remains is one clique: any order of it is as good
            order += sorted(adjacency, key=lambda u: -cardinalities[u])
            break
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
            touched = around  # only their neighbourhoods changed
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
        The variable summed out.
    factors : tuple of int
        Factors that meet their first eliminated variable here.
    children : tuple of int
        Buckets whose messages arrive here.
    separator : tuple of int
        Variables of the message that leaves, latest eliminated first.
    """

    variable: int
    factors: tuple[int, ...]
    children: tuple[int, ...]
    separator: tuple[int, ...]

    @property
    def scope(self) -> tuple[int, ...]:
        """All variables of the bucket, its own last."""
        return (*self.separator, self.variable)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTree:
    """Buckets in the order of elimination, children before their parents.

    Attributes
    ----------
    layout : Layout
        Variables and factors.
    reduced : tuple of tuple of int
        The factors' scopes without one-state variables; the flat order of cells is the same.
    buckets : tuple of Bucket
        One a variable that has several states and a factor.
    free : tuple of int
        Variables with several states in no factor: uniform.
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
        """Return the buckets of an order, by default of `elimination_order`."""
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
        """Log of the number of joint states of the variables in no factor."""
        return math.fsum(math.log(self.layout.cardinalities[v]) for v in self.free)
