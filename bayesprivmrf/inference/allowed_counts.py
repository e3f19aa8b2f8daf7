"""Smallest and largest counts that published numbers allow, by the rules that protect them.

A number that is exact, within bounds, or published under a rule bounds a sum of cells. Each cell is then at most the
upper bound of such a sum, less the lower bounds of the sum's other cells, and at least its lower bound, less their
upper bounds. A public number of records is the sum of all cells of each clique. These steps are repeated until
nothing changes. The bounds are right, and may be wider than those of all numbers together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import FloatArray, IntArray, cells_within

# Largest count of a cell, records: sums of 8,000 such counts are exact in floats, and no number of records is larger
MOST = 2.0**40
# Most passes that tighten the bounds of cells; fewer than all leave bounds that are wider and still right
_PASSES = 100


class Ends(NamedTuple):
    """Smallest and largest counts, records."""

    low: FloatArray
    high: FloatArray


class Members(NamedTuple):
    """Pairs of a sum and one of its cells."""

    sums: IntArray
    cells: IntArray


def allowed_numbers(evidence: Evidence) -> Ends:
    """Return the smallest and largest sum that each number allows, shape (numbers,); any, under added noise."""
    low = np.zeros(evidence.offsets[-1])
    high = np.full(evidence.offsets[-1], MOST)
    for law, (start, stop) in zip(evidence.noise, pairwise(evidence.offsets), strict=True):
        numbers = evidence.published[start:stop]
        if law.is_tabled:
            own = law.allowed(numbers)
        elif law.is_exact:
            own = (numbers, numbers)
        elif law.is_bounded and not evidence.noise_scale[start:stop].any():
            own = (numbers - law.half_width, numbers + law.half_width)
        else:
            continue
        low[start:stop] = np.clip(np.ceil(own[0]), 0, MOST)
        high[start:stop] = np.clip(np.floor(own[1]), -1, MOST)
    return Ends(low, high)


def tightened(members: Members, sums: Ends, cells: Ends) -> Ends | None:
    """Return bounds of each cell that follow from bounds of sums and of cells; None if they contradict each other."""
    low, high = cells
    count = sums.low.size
    for _ in range(_PASSES):
        least = np.bincount(members.sums, low[members.cells], count)
        most = np.bincount(members.sums, high[members.cells], count)
        new_low = low.copy()
        new_high = high.copy()
        np.maximum.at(new_low, members.cells, (sums.low - most)[members.sums] + high[members.cells])
        np.minimum.at(
            new_high, members.cells, (sums.high - least)[members.sums] + low[members.cells]
        )
        is_wrong = (new_low > new_high).any() or (most < sums.low).any()
        if is_wrong or (least > sums.high).any():
            return None
        if (new_low == low).all() and (new_high == high).all():
            break
        low, high = new_low, new_high
    return Ends(low, high)


def allowed_cells(evidence: Evidence) -> Ends | None:
    """Return the smallest and largest count of each cell of the model, shape (model size,).

    None if the numbers contradict each other.
    """
    numbers = allowed_numbers(evidence)
    is_told = evidence.possible & evidence.is_count & (numbers.high < MOST)
    rows = evidence.rows[is_told].tocoo()
    sums, cells = (np.asarray(each, dtype=np.int64) for each in rows.coords)
    ends = Ends(numbers.low[is_told], numbers.high[is_told])
    model = evidence.specification
    if evidence.total_standard_error == 0:
        # all cells of a clique add up to the public number of records
        cliques = np.repeat(np.arange(len(model.scopes)), np.diff(model.offsets))
        sums = np.concatenate([sums, ends.low.size + cliques])
        cells = np.concatenate([cells, np.arange(model.size)])
        totals = np.full(len(model.scopes), float(evidence.estimated_total))
        ends = Ends(np.concatenate([ends.low, totals]), np.concatenate([ends.high, totals]))
    high = np.where(evidence.supported_cells, MOST, 0.0)
    return tightened(Members(sums, cells), ends, Ends(np.zeros(model.size), high))


def rules_determine(evidence: Evidence) -> bool:
    """Return True if the published numbers, one by one, allow one count only in each cell."""
    found = allowed_cells(evidence)
    return found is not None and bool((found.low == found.high).all())


@dataclass(frozen=True, eq=False, kw_only=True)
class StatesOfClique:
    """Joint states of some variables, as sums of the cells of a clique that holds them.

    Parameters
    ----------
    states
        State of each cell of the clique, shape (cells,).
    columns
        Position of each of these cells in the model, shape (cells,).
    size
        Number of states.
    """

    states: IntArray
    columns: IntArray
    size: int

    @classmethod
    def of(cls, model: ModelSpecification, variables: tuple[int, ...]) -> list[StatesOfClique]:
        """Return the joint states within each clique that holds the variables."""
        size = math.prod(model.cardinalities[v] for v in variables)
        return [
            cls(
                states=cells_within(model.cardinalities, variables, scope),
                columns=np.arange(start, stop),
                size=size,
            )
            for scope, (start, stop) in zip(model.scopes, pairwise(model.offsets), strict=True)
            if set(variables) <= set(scope)
        ]

    def summed(self, of_cells: FloatArray) -> FloatArray:
        """Return the sum of a number of each cell of the model over the cells of each state, shape (size,)."""
        return np.bincount(self.states, of_cells[self.columns], self.size)

    def counted_by(self, rows: Any) -> tuple[IntArray, IntArray]:
        """Return pairs of a state and a row of A that counts the records of this state and no others."""
        from scipy.sparse import csr_array

        shape = (self.size, rows.shape[1])
        weights = csr_array((np.ones(self.states.size), (self.states, self.columns)), shape=shape)
        shared = (weights @ rows.T).tocoo()
        own, number = shared.coords
        of_state = np.bincount(self.states, minlength=self.size)
        of_number = np.diff(rows.tocsr().indptr)
        is_same = (shared.data == of_state[own]) & (shared.data == of_number[number])
        return own[is_same], number[is_same]


def allowed_states(evidence: Evidence, variables: tuple[int, ...]) -> Ends | None:
    """Return the smallest and largest count of each joint state of some variables, in C order.

    None if no clique of the evidence's model holds them, no number bounds a count, or the numbers contradict each
    other.

    Parameters
    ----------
    evidence
        The measurements.
    variables
        Positions of the variables, in the order of the states.
    """
    numbers = allowed_numbers(evidence)
    homes = StatesOfClique.of(evidence.specification, variables)
    if not homes or (numbers.high >= MOST).all():
        return None
    cells = allowed_cells(evidence)
    if cells is None:
        return None
    is_told = evidence.possible & evidence.is_count & (numbers.high < MOST)
    low = np.zeros(homes[0].size)
    high = np.full(homes[0].size, np.inf)
    for home in homes:
        low = np.maximum(low, home.summed(cells.low))
        high = np.minimum(high, home.summed(cells.high))
        # numbers that count the records of one of these states
        own, number = home.counted_by(evidence.rows[is_told])
        np.maximum.at(low, own, numbers.low[is_told][number])
        np.minimum.at(high, own, numbers.high[is_told][number])
    return Ends(low, np.where(high >= MOST, np.inf, high))
