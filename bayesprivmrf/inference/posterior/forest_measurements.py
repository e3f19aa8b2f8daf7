"""Which cells of a junction forest each noisy table counts, and what the noisy tables say of them roughly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.junction_forest import JunctionForest
from bayesprivmrf.model.tables import FloatArray, IntArray

__all__ = ["membership", "possible_cells", "rough_counts", "sum_by_target"]


def possible_cells(forest: JunctionForest) -> IntArray:
    """Flat positions of the possible cells, ascending."""
    return np.sort(forest.cells)


def membership(evidence: Evidence, forest: JunctionForest) -> tuple[IntArray, IntArray]:
    """Cells of the forest that make up the noisy tables' cells.

    Returns
    -------
    tuple of ndarray
        For each pair: the number of the forest's cell among `possible_cells`, and the number of the noisy cell
        among the possible ones. A table inside a clique has several pairs to a cell.
    """
    cells, targets = possible_cells(forest), np.flatnonzero(evidence.possible)
    number, rank = np.full(forest.offsets[-1], -1), np.full(evidence.offsets[-1], -1)
    number[cells], rank[targets] = np.arange(cells.size), np.arange(targets.size)
    sources, counted = [np.zeros(0, int)], [np.zeros(0, int)]
    for position, scope in enumerate(evidence.scopes):
        home = _home(forest, scope)
        own = number[forest.offsets[home] : forest.offsets[home + 1]]
        noisy = evidence.offsets[position] + forest.separator_states(home, scope)
        sources.append(own[own >= 0])
        counted.append(rank[noisy[own >= 0]])
    return np.concatenate(sources), np.concatenate(counted)


def sum_by_target(values: Any, sources: IntArray, targets: IntArray, size: int) -> Any:
    """PyTensor vector whose entry t sums the values at the sources that belong to t."""
    import pytensor.tensor as pt

    if np.array_equal(targets, np.arange(size)):
        return values if np.array_equal(sources, targets) else values[sources]
    return pt.inc_subtensor(pt.zeros(size)[targets], values[sources])


def rough_counts(evidence: Evidence, forest: JunctionForest, total: float) -> tuple[FloatArray, FloatArray]:
    """Mean noisy count of each possible cell, and its precision, in the order of ``forest.cells``.

    Only tables of a whole clique are used; where there is none, the total is spread evenly, with precision 0.
    """
    precision, weighted = np.zeros((2, forest.offsets[-1]))
    for position, scope in enumerate(evidence.scopes):
        home = _home(forest, scope)
        if len(scope) == len(forest.scopes[home]):
            noisy = evidence.offsets[position] + forest.separator_states(home, scope)
            own = slice(*forest.offsets[home : home + 2])
            information = 1 / evidence.noise[position].scale ** 2
            precision[own] += information
            weighted[own] += information * evidence.noisy_counts[noisy]
    sizes = np.diff(forest.offsets)
    even = np.repeat(total / np.maximum(sizes, 1), sizes)
    counts = np.divide(weighted, precision, out=even, where=precision > 0)
    return counts[forest.cells], precision[forest.cells]


def _home(forest: JunctionForest, scope: Sequence[int]) -> int:
    """The first clique that holds a table's variables."""
    return next(c for c, holder in enumerate(forest.scopes) if set(holder) >= set(scope))
