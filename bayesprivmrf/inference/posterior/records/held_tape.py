"""The arrays of moves that keep sums without noise, and the evidence without those sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.measured_cells import MeasuredCells
from bayesprivmrf.inference.posterior.records.hard_bounds import half_widths, held_numbers
from bayesprivmrf.inference.posterior.records.held_moves import HeldTape
from bayesprivmrf.inference.posterior.records.held_sums import HeldSums
from bayesprivmrf.inference.posterior.records.tape import RecordTape, grouped, record_tape
from bayesprivmrf.model.tables import IntArray, cells_within

_STRENGTH, _ALL = 30.0, 200.0
"""L, and the most that it may be for all sets of a cell together."""


def noisy_tape(held: HeldSums, gain: float) -> RecordTape:
    """The arrays of the numbers that have noise, which may be within bounds after it."""
    noisy = _noisy(held.evidence)
    tape = record_tape(noisy, held.forest, gain=gain)
    kernels = noisy.spread([law.base_law.kernel == "absolute" for law in noisy.noise])
    return tape._replace(absolute=kernels[MeasuredCells.of(noisy).targets] > 0)


def held_tape(held: HeldSums) -> HeldTape:
    """The arrays of the sums that have none."""
    forest, groups = held.forest, held.groups
    noisy, cards = _noisy(held.evidence), forest.cardinalities
    homes = np.searchsorted(forest.offsets, forest.cells, side="right") - 1
    local = forest.cells - np.array(forest.offsets)[homes]
    size, count = forest.cells.size, len(groups)
    codes = np.full((count, size), -1)
    for position, group in enumerate(groups):
        own = homes == group.home
        codes[position, own] = cells_within(cards, group.scope, forest.scopes[group.home])[local[own]]
    cells, sets, bounds = _sets(held, codes)
    set_starts, own_sets = grouped(cells, sets, size)
    member_starts, members = grouped(sets, cells, len(bounds))
    most = int(np.diff(set_starts).max(initial=0))
    sides, shared, at = _exchanges(held, homes, local)
    places = np.full(forest.offsets[-1], -1)
    places[forest.cells] = np.arange(size)
    return HeldTape(
        halves=half_widths(noisy)[MeasuredCells.of(noisy).targets],
        set_starts=set_starts,
        sets=own_sets,
        member_starts=member_starts,
        members=members,
        lowest=bounds[:, 0].copy(),
        highest=bounds[:, 1].copy(),
        strength=min(_STRENGTH, _ALL / max(most, 1)),
        codes=codes,
        sides=sides,
        shared=shared,
        homes=at,
        flat=forest.cells.astype(np.int64),
        places=places,
    )


def _noisy(evidence: Evidence) -> Evidence:
    """The same without the numbers that have no noise."""
    return replace(evidence, possible=evidence.possible & ~held_numbers(evidence))


def _sets(held: HeldSums, codes: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Pairs of a cell and a set that holds it, and the bounds of each set."""
    cells, sets, bounds = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], np.zeros((0, 2), np.int64)
    for own, group, family in zip(codes, held.groups, held.families, strict=True):
        for each in family:
            is_inside = np.zeros(group.possible.size, bool)
            is_inside[each.cells] = True
            is_all = is_inside[group.possible].all()
            if is_all and held.total is not None and each.lowest == each.highest == held.total:
                continue  # all records
            found = np.flatnonzero((own >= 0) & is_inside[own])
            cells.append(found)
            sets.append(np.full(found.size, len(bounds)))
            bounds = np.vstack([bounds, [each.lowest, each.highest]])
    return np.concatenate(cells), np.concatenate(sets), bounds


def _exchanges(held: HeldSums, homes: IntArray, local: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """For each exchange: the cells' parts that change places, the states to agree on, and where to read these."""
    forest, groups = held.forest, held.groups
    cards, moves = forest.cardinalities, list(held.sides())
    sides, shared = np.zeros((2, len(moves), homes.size), np.int64)
    rank = np.argsort(forest.order)
    for turn, (variables, group, separator) in enumerate(moves):
        for clique, scope in enumerate(forest.scopes):
            own = homes == clique
            digits = np.unravel_index(local[own], [cards[v] for v in scope])
            stride = 1
            for variable, digit in zip(scope[::-1], digits[::-1], strict=True):
                if variable in variables:
                    sides[turn, own] += stride * digit
                stride *= cards[variable]
        own = homes == groups[group].home
        place = cells_within(cards, separator, forest.scopes[groups[group].home])
        shared[turn, own] = place[local[own]]
    return sides, shared, rank[[groups[group].home for _, group, _ in moves]].astype(np.int64)
