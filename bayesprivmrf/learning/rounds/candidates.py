"""Which tables may be measured, and whether exact inference bears the model with them; all of it is public."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from bayesprivmrf.learning.rounds.engine import Scope
from bayesprivmrf.marginals import array_forecast
from bayesprivmrf.marginals.layout import Layout
from bayesprivmrf.marginals.ordering import elimination_order

__all__ = ["Size", "candidates"]

MOST_TRIPLES = 1_000
"""Triples up to which all are candidates; else those alone of which two pairs are in the model already."""


class Size:
    """What exact inference bears: cells of all cliques of merged states, and memory of declared states.

    Parameters
    ----------
    cardinalities
        Number of merged states of each variable.
    declared
        Number of declared states of each variable.
    cells, memory
        The most cells and bytes.
    """

    def __init__(
        self, cardinalities: Sequence[int], declared: Sequence[int], cells: int, memory: int
    ) -> None:
        self._cardinalities, self._declared = tuple(cardinalities), tuple(declared)
        self._cells, self._memory = cells, memory
        self._known: dict[frozenset[Scope], bool] = {}
        self._is_small = 2 * math.prod(cardinalities) <= cells and 64 * math.prod(declared) <= memory

    def bears(self, scopes: Sequence[Scope]) -> bool:
        """Whether a model of these scopes is within the size."""
        if self._is_small:
            return True
        edges = frozenset(part for scope in scopes for size in (1, 2) for part in combinations(scope, size))
        if edges not in self._known:
            self._known[edges] = self._fits(sorted(edges))
        return self._known[edges]

    def _fits(self, edges: Sequence[Scope]) -> bool:
        layout = Layout.build(self._cardinalities, edges)
        order = elimination_order(layout.cardinalities, layout.scopes)
        if array_forecast(layout, order).total_cells > self._cells:
            return False
        # an order for the merged states is near the best for the declared ones
        return array_forecast(Layout.build(self._declared, edges), order).memory_bytes <= self._memory


def candidates(
    cardinalities: Sequence[int],
    largest: int,
    inside: Sequence[Scope] | None,
    model: Sequence[Scope],
) -> list[Scope]:
    """Return the pairs and triples that may be measured, ascending by size.

    Parameters
    ----------
    cardinalities
        Number of merged states of each variable; one of a single state is in none.
    largest
        The most cells of a table.
    inside
        Declared cliques, or a workload: tables must lie in one of them; ``None`` for any.
    model
        Scopes of the model so far.
    """
    free = [v for v, k in enumerate(cardinalities) if k > 1]
    allowed = [free] if inside is None else [sorted(set(scope) & set(free)) for scope in inside]
    pairs = {pair for scope in allowed for pair in combinations(scope, 2)}
    triples: set[Scope] = set()
    if sum(math.comb(len(scope), 3) for scope in allowed) <= MOST_TRIPLES:
        triples = {triple for scope in allowed for triple in combinations(scope, 3)}
    else:
        triples = _closing(model, pairs)
    found = sorted(pairs) + sorted(triples)
    return [scope for scope in found if math.prod(cardinalities[v] for v in scope) <= largest]


def _closing(model: Sequence[Scope], pairs: set[Scope]) -> set[Scope]:
    """Return triples of three allowed pairs, two of which are in the model."""
    neighbours: dict[int, set[int]] = {}
    for scope in model:
        for a, b in combinations(scope, 2):
            neighbours.setdefault(a, set()).add(b)
            neighbours.setdefault(b, set()).add(a)
    found = set()
    for v, around in neighbours.items():
        for a, b in combinations(sorted(around), 2):
            triple = tuple(sorted((a, b, v)))
            if set(combinations(triple, 2)) <= pairs:
                found.add(triple)
    return found
