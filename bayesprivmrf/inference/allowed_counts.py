"""Smallest and largest counts that published numbers allow, by the rules that protect them.

A number that is exact, within bounds, or published under a rule bounds a sum of cells. Each cell is then at most the
upper bound of such a sum, less the lower bounds of the sum's other cells, and at least its lower bound, less their
upper bounds. These steps are repeated until nothing changes. The bounds are right, and may be wider than those of all
numbers together.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.model.tables import FloatArray, IntArray, cells_within, parent

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
    members = Members(*(np.asarray(each, dtype=np.int64) for each in rows.coords))
    size = evidence.specification.size
    high = np.where(evidence.supported_cells, MOST, 0.0)
    every = Ends(np.zeros(size), high)
    return tightened(members, Ends(numbers.low[is_told], numbers.high[is_told]), every)


def rules_determine(evidence: Evidence) -> bool:
    """Return True if the published numbers, one by one, allow one count only in each cell."""
    found = allowed_cells(evidence)
    return found is not None and bool((found.low == found.high).all())


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
    from scipy.sparse import csr_array

    model = evidence.specification
    home = parent(model.scopes, variables)
    numbers = allowed_numbers(evidence)
    if home is None or (numbers.high >= MOST).all():
        return None
    cells = allowed_cells(evidence)
    if cells is None:
        return None
    states = cells_within(model.cardinalities, variables, model.scopes[home])
    columns = np.arange(*model.offsets[home : home + 2])
    size = math.prod(model.cardinalities[v] for v in variables)
    low = np.bincount(states, cells.low[columns], size)
    high = np.bincount(states, cells.high[columns], size)
    # numbers that count the records of one of these states
    weights = csr_array((np.ones(states.size), (states, columns)), shape=(size, model.size))
    is_told = evidence.possible & evidence.is_count & (numbers.high < MOST)
    rows = evidence.rows[is_told]
    shared = (weights @ rows.T).tocoo()
    of_state = np.bincount(states, minlength=size)
    of_number = np.diff(rows.tocsr().indptr)
    own, number = shared.coords
    is_same = (shared.data == of_state[own]) & (shared.data == of_number[number])
    np.maximum.at(low, own[is_same], numbers.low[is_told][number[is_same]])
    np.minimum.at(high, own[is_same], numbers.high[is_told][number[is_same]])
    return Ends(low, np.where(high >= MOST, np.inf, high))
