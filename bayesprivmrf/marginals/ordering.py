"""Elimination orders: several greedy ones, the cheapest is taken.

A set of variables is an integer whose bits are its members, so that the neighbourhoods of thousands of
variables are joined and counted a machine word at a time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import Literal

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
