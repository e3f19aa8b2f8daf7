"""Rough estimates of the cells of a junction forest from the noisy tables."""

from __future__ import annotations

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.least_squares import least_squares
from bayesprivmrf.inference.posterior.forest import JunctionForest
from bayesprivmrf.model.tables import FloatArray


def rough_counts(evidence: Evidence, forest: JunctionForest, total: float) -> tuple[FloatArray, FloatArray]:
    """Mean noisy count of each cell, and its precision, in the order of ``forest.cells``.

    Only tables of a whole clique are used; where there is none, the total is spread evenly, with precision 0. Answers
    to other queries give the tables that fit them best.
    """
    if evidence.queries is not None:
        found = least_squares(evidence)
        known = np.divide(1, found.variances, out=np.zeros_like(found.counts), where=~found.undetermined)
        return _of_cells(forest, found.counts, known)
    precision, weighted = np.zeros((2, forest.offsets[-1]))
    for position, scope in enumerate(evidence.scopes):
        home = evidence.specification.parent(scope)
        if len(scope) == len(forest.scopes[home]):
            noisy = evidence.offsets[position] + forest.separator_states(home, scope)
            own = slice(*forest.offsets[home : home + 2])
            information = 1 / evidence.noise[position].scale ** 2
            precision[own] += information
            weighted[own] += information * evidence.noisy_counts[noisy]
    sizes = np.diff(forest.offsets)
    even = np.repeat(total / np.maximum(sizes, 1), sizes)
    counts = np.divide(weighted, precision, out=even, where=precision > 0)
    return _of_cells(forest, counts, precision)


def _of_cells(
    forest: JunctionForest, counts: FloatArray, precision: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Both of the forest's cells, from those of the model's; variances add up."""
    variance = np.divide(1, precision, out=np.full_like(precision, np.inf), where=precision > 0)
    return forest.with_inner(counts), 1 / forest.with_inner(variance)
