"""Neighbours of small data, and exact probabilities of what a released graph may be."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from bayesprivmrf.mechanisms import Stamp
from bayesprivmrf.mechanisms.stable_structure import ExactGraph
from bayesprivmrf.noise import DiscreteLaplace
from bayesprivmrf.privacy import Adjacency
from bayesprivmrf.release import Provenance

__all__ = ["largest_excess", "neighbours"]

_REACH = np.arange(-80, 81)


def neighbours(counts, adjacency):
    """Counts of cells of all neighbouring data sets."""
    size = len(counts)
    one = np.eye(size, dtype=np.int64)
    for a in np.flatnonzero(counts) if adjacency is Adjacency.REPLACE_ONE else ():
        yield from (counts - one[a] + one[b] for b in range(size))
    if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        yield from (counts + one[b] for b in range(size))
        yield from (counts - one[a] for a in np.flatnonzero(counts))


class _Fixed:
    """A source whose noise is one number."""

    def __init__(self, noise):
        self.noise = noise

    def add(self, exact, law):
        return exact + self.noise


def largest_excess(mechanism, model, answer, sets, noise=1.0):
    """Largest P(S) - exp(epsilon) P'(S) over events S and neighbours, by the mechanism's own code.

    What comes out is a noisy distance, with a graph or without. `answer` gives a graph and its distance from counts
    of cells, and `sets` holds such counts. The noise has `noise` times the scale that it should have.
    """
    plan = mechanism._prepare(model)
    provenance = Provenance(mechanism="StableStructure", settings={}, simulated=True)
    stamp = Stamp(guarantee=mechanism._guarantee(plan), provenance=provenance)
    weights = np.exp(DiscreteLaplace(noise * plan.law.scale).log_density(_REACH))

    @cache
    def law_of(pairs, distance):
        exact, law = ExactGraph(pairs=pairs, distance=distance), {}
        for z, weight in zip(_REACH.tolist(), weights.tolist(), strict=True):
            graph = mechanism._randomise(plan, exact, _Fixed(z), stamp)
            law[graph.details["noisy_distance"], graph.pairs] = weight
        return law

    @cache
    def excess(one, two):
        own, theirs = law_of(*one), law_of(*two)
        factor = math.exp(mechanism.epsilon)
        return sum(max(p - factor * theirs.get(out, 0.0), 0) for out, p in own.items())

    worst = -1.0
    for counts in sets:
        own = answer(counts)
        for other in neighbours(counts, mechanism.adjacency):
            theirs = answer(other)
            worst = max(worst, excess(own, theirs), excess(theirs, own))
    return worst
