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
from collections.abc import Set
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from bayesprivmrf.inference.loglinear_fit.moments import Scope
from bayesprivmrf.learning.select_measure.growing_forest import GrowingForest
from bayesprivmrf.learning.select_measure.learned_scales import SingleNoise
from bayesprivmrf.learning.select_measure.round_fit import maximal
from bayesprivmrf.mechanisms.select_measure.candidates import Candidates, ChosenTables, scope_sizes
from bayesprivmrf.mechanisms.select_measure.exact_tables import ExactTables
from bayesprivmrf.mechanisms.select_measure.misfits import MISFIT_STEPS, expected_counts
from bayesprivmrf.mechanisms.select_measure.run import Known, Run
from bayesprivmrf.mechanisms.select_measure.size import Size
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.privacy import selection_scale

# Largest number of batches in which a round chooses its tables
BATCHES = 64

# A pair within a part may add this share of the cells of the largest model, so that no single pair fills it
CELLS_OF_A_PAIR = 64


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Independence:
    """Misfits of all pairs to independent variables, and the noise on single variables then: sensitive.

    Parameters
    ----------
    misfits
        Steps of 1/M record, shape (p, p), above the diagonal: sensitive.
    noise
        The noise that was left on single variables.
    """

    misfits: IntArray
    noise: SingleNoise

    def __repr__(self) -> str:
        return "Independence(sensitive)"


def independence(run: Run, known: Known, exact: ExactTables) -> Independence:
    """Return the misfits of all pairs to the model of single variables, which stand for all rounds."""
    variables = [(v,) for v in range(len(run.plan.declared))]
    shares = known.fit.probabilities(variables)
    return Independence(
        misfits=exact.independent_misfits(shares, known.fit.total),
        noise=run.single_noise(known.merging),
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class ManyCandidates(Candidates):
    """Pairs across parts, then pairs and triples within a part, several chosen at once.

    Parameters
    ----------
    within
        The tables within a part, which are the last of the scopes.
    costs
        Number of cells that each table adds to the model at the beginning of the round, shape (candidates,).
    forest
        The model with the tables that are chosen; choices change it.
    size
        Size limits of the model.
    """

    within: Set[Scope]
    costs: IntArray
    forest: GrowingForest
    size: Size

    def choose(self, run: Run, scores: IntArray, number: int, rho: float) -> ChosenTables:
        """Charge and choose several tables at once; one that does not fit with earlier ones is dropped."""
        scopes = self.scopes
        forest = self.forest
        most_cells = run.plan.maximum_cells
        place_of = {scope: place for place, scope in enumerate(scopes)}
        across = len(scopes) - len(self.within)
        eligible = np.ones(len(scopes), dtype=bool)
        ends = np.array(scopes[:across], dtype=np.int64).reshape(-1, 2)
        chosen: list[Scope] = []
        most = math.ceil(number / BATCHES)
        share = rho / number
        while number > 0:
            eligible &= self.costs <= most_cells - forest.cells
            eligible[:across] &= np.not_equal(*forest.parts[ends].T)
            left = np.flatnonzero(eligible)
            batch = min(most, number, left.size)
            if batch == 0:
                break
            cost = share * batch
            scale = selection_scale(run.plan.largest_change, cost, batch, at_once=True)
            run.budget.charge(cost)
            best = run.source.choose_several(scores[None, left], scale, batch)[0]
            for place in left[best].tolist():
                eligible[place] = False
                if self.takes(scopes[place], most_cells):
                    chosen.append(scopes[place])
                    for pair in combinations(scopes[place], 2):
                        eligible[place_of.get(pair, place)] = False
            number -= batch
        # the first chosen tables with which exact inference is still feasible: nearly always all
        model = run.drawn.scopes
        kept = len(chosen)
        while kept and not self.size.bears(maximal([*model, *chosen[:kept]])):
            kept = kept * 15 // 16
        return ChosenTables(scopes=chosen[:kept])

    def takes(self, scope: Scope, most_cells: int) -> bool:
        """Return True if a table fits together with earlier ones; the forest then includes it."""
        if self.forest.holds(scope):
            return True
        u, v = scope
        closes_cycle = scope not in self.within and self.forest.parts[u] == self.forest.parts[v]
        if closes_cycle or self.forest.cells + self.forest.cost(u, v) > most_cells:
            return False
        self.forest.add(u, v)
        return True


def many_candidates(
    run: Run, known: Known, exact: ExactTables, at_first: Independence
) -> ManyCandidates:
    """Return pairs across parts, then pairs within them, then triples, with their misfits."""
    fit = known.fit
    cards = known.merging.cardinalities
    most_cells = run.plan.maximum_cells
    forest = GrowingForest(cards, fit.effects.scopes)
    left = most_cells - forest.cells
    free = [v for v, k in enumerate(cards) if k > 1]
    parts = forest.parts.tolist()
    across = [
        (u, v)
        for u, v in combinations(free, 2)
        if parts[u] != parts[v] and cards[u] * cards[v] <= left
    ]
    costs = [cards[u] * cards[v] for u, v in across]
    expected: dict[Scope, IntArray] = {}
    reach = min(left, most_cells // CELLS_OF_A_PAIR)
    for scope, cost, table in forest.near(fit.effects, fit.coordinates, reach):
        if table.size <= most_cells:
            costs.append(cost)
            expected[scope] = expected_counts(table, fit.total)
    scopes = [*across, *expected]

    # pairs across parts against independence; pairs and triples within a part against the last model
    rows, columns = np.array(across, dtype=np.int64).reshape(-1, 2).T
    pairs = [(c[0], c[1]) for c in expected if len(c) == 2]
    triples = [c for c in expected if len(c) > 2]
    misfits = [
        at_first.misfits[rows, columns],
        exact.pair_misfits(pairs, [expected[c] for c in pairs]),
        exact.misfits(triples, [expected[c] for c in triples]),
    ]
    then = np.rint(MISFIT_STEPS * at_first.noise.misfits(scopes)).astype(np.int64)
    is_within = np.arange(len(scopes)) >= len(across)
    return ManyCandidates(
        scopes=scopes,
        misfits=np.concatenate(misfits),
        of_noise=np.where(is_within, run.misfits_of_noise(known.merging, scopes), then),
        cells=scope_sizes(scopes, cards),
        within=expected.keys(),
        costs=np.array(costs, dtype=np.int64),
        forest=forest,
        size=known.size,
    )
