r"""Adaptive rounds for many variables: consider all pairs once, and later only pairs near each other in the model.

`select_measure.rounds` describes the steps. The differences are in the candidates, and in which of them count:

- **Across parts** of the model, which are independent in it, the candidates are pairs. Their misfits against
  independence are computed once, when the model is that of single variables, and stand for all rounds: they are
  functions of the records and of answers given before, which is all that a score must be.
- **Within a part** the candidates are the pairs and triples that a clique holds, and the pairs that add few cells
  (`bayesprivmrf.learning.select_measure.growing_forest`). Their misfits are against the last model.

Several choices are made at once (`NoiseSource.choose_several`), each by the exponential mechanism among the remaining
candidates. Except for rounding, they cost as much as the same number in turn. A choice that closes a cycle with
earlier ones, or does not fit, is dropped, and its cost is still charged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from bayesprivmrf.inference.loglinear_fit.moments import Scope
from bayesprivmrf.learning.select_measure.growing_forest import GrowingForest
from bayesprivmrf.learning.select_measure.learned_scales import SingleNoise
from bayesprivmrf.learning.select_measure.round_fit import maximal
from bayesprivmrf.mechanisms.select_measure.misfits import (
    STEPS,
    expected_counts,
    independent_misfits,
    misfit,
    pair_misfits,
)
from bayesprivmrf.mechanisms.select_measure.rounds import Rounds
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.privacy import selection_scale

# Largest number of batches in which a round chooses its tables
BATCHES = 64


@dataclass(slots=True)
class WideRounds(Rounds):
    """Run of the adaptive rounds over many variables; see the module."""

    forest: GrowingForest = field(init=False)
    _across: IntArray | None = field(init=False, default=None)
    _across_noise: SingleNoise = field(init=False)
    _costs: IntArray = field(init=False)
    _expected: dict[Scope, IntArray] = field(init=False, default_factory=dict)

    def _eligible(self) -> list[Scope]:
        """Return pairs across parts, then pairs within them, then triples."""
        effects = self.fit.effects
        beta = self.fit.coordinates
        cards = self.merging.cardinalities
        plan = self.plan
        self.forest = forest = GrowingForest(cards, effects.scopes)
        self._expected.clear()
        left = plan.maximum_cells - forest.cells
        free = [v for v, k in enumerate(cards) if k > 1]
        parts = forest.parts.tolist()
        across = [
            (u, v)
            for u, v in combinations(free, 2)
            if parts[u] != parts[v] and cards[u] * cards[v] <= left
        ]
        within = []
        costs = [cards[u] * cards[v] for u, v in across]
        reach = min(left, plan.maximum_cells // 64)  # a pair within a part may add this many cells
        for scope, cost, table in forest.near(effects, beta, reach):
            if table.size <= plan.maximum_cells:
                within.append(scope)
                costs.append(cost)
                self._expected[scope] = expected_counts(table, self.fit.total)
        self._costs = np.array(costs, dtype=np.int64)
        return across + within

    def _misfits(self, scopes: list[Scope]) -> IntArray:
        """Return the misfit of each table to the model: sensitive."""
        cards = self.merging.cardinalities
        if self._across is None:
            shares = self.fit.probabilities([(v,) for v in range(len(cards))])
            self._across = independent_misfits(self.codes, self.counts, shares, self.fit.total)
            self._across_noise = self._single_noise()
        across = [c for c in scopes if c not in self._expected]
        pairs = [(c[0], c[1]) for c in scopes if c in self._expected and len(c) == 2]
        found = pair_misfits(
            self.codes, self.counts, cards, pairs, [self._expected[c] for c in pairs]
        )
        triples = [misfit(self._counts(c), self._expected[c]) for c in scopes if len(c) > 2]
        rows, columns = np.array(across, dtype=np.int64).reshape(-1, 2).T
        return np.concatenate(
            [self._across[rows, columns], found, np.array(triples, dtype=np.int64)]
        )

    def _of_noise(self, scopes: Sequence[Scope]) -> IntArray:
        """Return the effect of noise on misfits; those of pairs across parts stand for all rounds."""
        then = np.rint(STEPS * self._across_noise.misfits(scopes)).astype(np.int64)
        return np.where([c in self._expected for c in scopes], Rounds._of_noise(self, scopes), then)

    def _choose(
        self, scopes: list[Scope], scores: IntArray, number: int, choosing: float
    ) -> list[Scope]:
        """Return tables, several chosen at once; one that does not fit with earlier ones is dropped."""
        place_of = {scope: place for place, scope in enumerate(scopes)}
        across = len(scopes) - len(self._expected)
        eligible = np.ones(len(scopes), dtype=bool)
        ends = np.array(scopes[:across], dtype=np.int64).reshape(-1, 2)
        chosen: list[Scope] = []
        most = math.ceil(number / BATCHES)
        share = choosing / number
        while number > 0:
            eligible &= self._costs <= self.plan.maximum_cells - self.forest.cells
            eligible[:across] &= np.not_equal(*self.forest.parts[ends].T)
            left = np.flatnonzero(eligible)
            batch = min(most, number, left.size)
            if batch == 0:
                break
            rho = share * batch
            scale = selection_scale(self.plan.largest_change, rho, batch, at_once=True)
            self.filter.charge(rho)
            for place in left[
                self.source.choose_several(scores[None, left], scale, batch)[0]
            ].tolist():
                eligible[place] = False
                if self._takes(scopes[place]):
                    chosen.append(scopes[place])
                    for pair in combinations(scopes[place], 2):
                        eligible[place_of.get(pair, place)] = False
            number -= batch
        # the first chosen tables with which exact inference is still feasible: nearly always all
        model = self._scopes()
        kept = len(chosen)
        while kept and not self.size.bears(maximal([*model, *chosen[:kept]])):
            kept = kept * 15 // 16
        return chosen[:kept]

    def _takes(self, scope: Scope) -> bool:
        """Return True if a table fits together with earlier ones; the forest then includes it."""
        if self.forest.holds(scope):
            return True
        u, v = scope
        closes_cycle = scope not in self._expected and self.forest.parts[u] == self.forest.parts[v]
        if closes_cycle or self.forest.cells + self.forest.cost(u, v) > self.plan.maximum_cells:
            return False
        self.forest.add(u, v)
        return True
