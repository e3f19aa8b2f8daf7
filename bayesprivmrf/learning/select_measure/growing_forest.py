r"""Cliques of a wide model as a forest: what one more pair would cost, and the model's tables of near pairs.

An elimination order gives a clique for each variable, joined to the one that its separator leads to: a junction
forest, in which the cliques that hold a variable are connected. To put u and v into one clique, u joins every clique
on the path from those that hold u to the first that holds v. The cliques of each variable stay connected, so that
the result is a junction forest of the model with the pair, and its cells

.. math:: \sum_C \prod_{w \in C} K_w

bound those of exact inference. Along the same path goes the joint table of u and a separator S:

.. math:: p(x_u, x_{S'}) = \sum_{x_S} p(x_u, x_S)\, p(x_{S'} \mid x_S), \qquad S, S' \subseteq C,

as S parts u from the clique C. So a near pair costs a product of small matrices a step, and no pass over the model.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from bayesprivmrf.inference.loglinear_fit.moments import Scope, margin
from bayesprivmrf.learning.select_measure.measured_tables import parts_of
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.marginals.layout import Layout
from bayesprivmrf.marginals.planning import BucketTree
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, IntArray


class GrowingForest:
    """Junction forest of a model, to which pairs can be added.

    Parameters
    ----------
    cardinalities
        Number of merged states of each variable.
    scopes
        Those of the model; each variable of several states is in one at least.
    """

    def __init__(self, cardinalities: Sequence[int], scopes: Sequence[Scope]) -> None:
        self.cardinalities = tuple(cardinalities)
        tree = BucketTree.build(Layout.build(self.cardinalities, scopes))
        self.cliques = [set(bucket.scope) for bucket in tree.buckets]
        self.links: list[set[int]] = [set() for _ in self.cliques]
        self._holders: list[set[int]] = [set() for _ in self.cardinalities]
        for place, bucket in enumerate(tree.buckets):
            for child in bucket.children:
                self._link(place, child)
            for v in bucket.scope:
                self._holders[v].add(place)
        # a variable with one state, which no bucket has, is a part by itself
        self.parts = parts_of(len(self.cardinalities), [bucket.scope for bucket in tree.buckets])
        self.cells = sum(map(self._size, self.cliques))

    def holds(self, scope: Scope) -> bool:
        """Return True if a clique contains a scope."""
        return bool(set.intersection(*(self._holders[v] for v in scope)))

    def cost(self, u: int, v: int) -> int:
        """Return the number of cells that a pair adds."""
        if self.parts[u] != self.parts[v]:
            return self.cardinalities[u] * self.cardinalities[v]
        return sum(self._size(self.cliques[place]) for place in self._path(u, v)) * (
            self.cardinalities[u] - 1
        )

    def add(self, u: int, v: int) -> None:
        """Change the forest so that one clique contains a pair."""
        self.cells += self.cost(u, v)
        if self.parts[u] == self.parts[v]:
            for place in self._path(u, v):
                self.cliques[place].add(u)
                self._holders[u].add(place)
            return
        place = len(self.cliques)
        self.cliques.append({u, v})
        self.links.append(set())
        for w in (u, v):
            self._link(place, min(self._holders[w]))
            self._holders[w].add(place)
        self.parts[self.parts == self.parts[v]] = self.parts[u]

    def near(
        self, effects: Effects, beta: FloatArray, reach: int
    ) -> Iterator[tuple[Scope, int, FloatArray]]:
        """Yield near scopes, with the cells that each adds and the model's table.

        These are pairs u < v inside a clique or near each other, then triples inside a clique.

        Parameters
        ----------
        effects, beta
            The fitted model.
        reach
            The most cells that a pair may add.
        """
        scopes = [self._scope(place) for place in range(len(self.cliques))]
        engine = marginal_engine(self.cardinalities, (*effects.scopes, *scopes))
        potentials = np.concatenate(
            [effects.potentials(beta), np.zeros(engine.size - effects.cells)]
        )
        known = engine.layout.tables(engine.marginals(potentials)[1])[len(effects.scopes) :]
        steps: dict[tuple[int, Scope, Scope], FloatArray] = {}
        for u, k in enumerate(self.cardinalities):
            seen = {u}
            inflow: dict[tuple[int, int], FloatArray] = {}
            sent: dict[tuple[int, Scope], FloatArray] = {}
            for place, before, cost in self._outward(u, reach // max(k - 1, 1)):
                fresh = [v for v in sorted(self.cliques[place] - seen) if u < v]
                seen |= self.cliques[place]
                if before is None:  # the clique holds u
                    source: Scope = (u,)
                    rows = np.diag(margin(known[place], self._scope(place), source))
                else:
                    source = self._separator(before, place)
                    rows = inflow.pop((before, place))
                for v in fresh:
                    yield (
                        (u, v),
                        cost * (k - 1),
                        rows @ self._step(steps, known, place, source, (v,)),
                    )
                for after in self.links[place]:
                    if after == before or u in self.cliques[after]:
                        continue
                    target = self._separator(place, after)
                    if (place, target) not in sent:
                        sent[place, target] = rows @ self._step(steps, known, place, source, target)
                    inflow[place, after] = sent[place, target]
        for triple in sorted({each for scope in scopes for each in combinations(scope, 3)}):
            place = min(set.intersection(*(self._holders[v] for v in triple)))
            yield triple, 0, margin(known[place], scopes[place], triple)

    def _outward(self, u: int, reach: int) -> Iterator[tuple[int, int | None, int]]:
        """Yield cliques in order of distance from those of u: position, predecessor, and the cells on the path."""
        waiting: deque[tuple[int, int | None, int]] = deque(
            (place, None, 0) for place in sorted(self._holders[u])
        )
        while waiting:
            place, before, cost = waiting.popleft()
            yield place, before, cost
            for after in sorted(self.links[place]):
                if after != before and after not in self._holders[u]:
                    total = cost + self._size(self.cliques[after])
                    if total <= reach:
                        waiting.append((after, place, total))

    def _step(
        self,
        steps: dict[tuple[int, Scope, Scope], FloatArray],
        known: Sequence[FloatArray],
        place: int,
        source: Scope,
        target: Scope,
    ) -> FloatArray:
        """Return p(target | source) inside a clique, shape (states of source, states of target)."""
        key = place, source, target
        if key not in steps:
            scope = self._scope(place)
            cards = self.cardinalities
            inside, outside = (_numbers(scope, each, cards) for each in (source, target))
            rows, columns = (math.prod(cards[v] for v in each) for each in (source, target))
            joint = np.bincount(
                inside * columns + outside, weights=known[place].ravel(), minlength=rows * columns
            ).reshape(rows, columns)
            steps[key] = joint / np.maximum(joint.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        return steps[key]

    def _path(self, u: int, v: int) -> list[int]:
        """Return the cliques that u must enter to share one with v."""
        before: dict[int, int | None] = {}
        for place, last, _ in self._outward(u, 1 << 62):
            before[place] = last
            if v in self.cliques[place]:
                found = []
                at: int | None = place
                while at is not None and u not in self.cliques[at]:
                    found.append(at)
                    at = before[at]
                return found
        raise AssertionError("two variables of one part are joined")

    def _link(self, one: int, other: int) -> None:
        self.links[one].add(other)
        self.links[other].add(one)

    def _scope(self, place: int) -> Scope:
        return tuple(sorted(self.cliques[place]))

    def _separator(self, one: int, other: int) -> Scope:
        return tuple(sorted(self.cliques[one] & self.cliques[other]))

    def _size(self, clique: set[int]) -> int:
        return math.prod(self.cardinalities[v] for v in clique)


def _numbers(scope: Scope, subset: Scope, cardinalities: Sequence[int]) -> IntArray:
    """Return the flat position, in the table of a subset, of each cell of a scope's table."""
    found = np.zeros([cardinalities[v] for v in scope], dtype=np.int64)
    for v in subset:
        axis = scope.index(v)
        along = np.arange(cardinalities[v]).reshape(
            [-1 if a == axis else 1 for a in range(len(scope))]
        )
        found = found * cardinalities[v] + along
    return found.ravel()
