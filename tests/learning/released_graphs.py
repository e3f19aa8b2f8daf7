"""Neighbours of small data, and exact probabilities of what a released graph may be."""

from __future__ import annotations

import math
from functools import cache
from typing import ClassVar

import numpy as np
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.mechanisms import StableStructure, Stamp
from bayesprivmrf.mechanisms.structure.mechanism import ExactGraphs
from bayesprivmrf.noise import DiscreteLaplace
from bayesprivmrf.privacy import Adjacency
from bayesprivmrf.release import Provenance

__all__ = ["PromiseOfStableStructure", "neighbours", "plan_of"]

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


def plan_of(mechanism, model):
    """What is public of a release, such as the scale of its noise."""
    return mechanism._prepare(model)


def largest_excess(mechanism, model, answers, noise=1.0):
    """Largest P(S) - exp(epsilon) P'(S) over events S and neighbours, by the mechanism's own code.

    What comes out is a noisy distance, with a graph or without. `answers` holds those to two neighbours: a graph and
    its distance each. The noise has `noise` times the scale that it should have.
    """
    plan = plan_of(mechanism, model)
    provenance = Provenance(mechanism="StableStructure", settings={}, simulated=True)
    stamp = Stamp(guarantee=mechanism._guarantee(plan), provenance=provenance)
    weights = np.exp(DiscreteLaplace(noise * plan.law.scale).log_density(_REACH))

    @cache
    def law_of(pairs, distance):
        exact, law = ExactGraphs(graphs=((pairs, distance),)), {}
        for z, weight in zip(_REACH.tolist(), weights.tolist(), strict=True):
            graph = mechanism._randomise(plan, exact, _Fixed(z), stamp)
            law[graph.details["noisy_distance"], graph.pairs] = weight
        return law

    @cache
    def excess(one, two):
        own, theirs = law_of(*one), law_of(*two)
        factor = math.exp(mechanism.epsilon)
        return sum(max(p - factor * theirs.get(out, 0.0), 0) for out, p in own.items())

    return max(max(excess(own, theirs), excess(theirs, own)) for own, theirs in answers)


class PromiseOfStableStructure:
    """What each form of the mechanism must keep, over all neighbours of small data; and twins that must not pass.

    A subclass gives the settings, the number of states of each variable, counts of cells, and the answer to them.
    """

    settings: ClassVar[dict[str, object]] = {}
    cards: tuple[int, ...] = (2, 3, 2, 2)

    def sets(self, adjacency):
        """Counts of cells."""
        raise NotImplementedError

    def answer(self, counts, adjacency):
        """The exact graph and its distance from another."""
        raise NotImplementedError

    def scale_scores(self, unit, monkeypatch):
        """Take scores to be moved by `unit` times what moves them."""
        raise NotImplementedError

    def answers(self, adjacency):
        """The answers to all counts of cells and to each of their neighbours, each pair of answers once."""
        found = set()
        for counts in self.sets(adjacency):
            own = self.answer(counts, adjacency)
            for other in neighbours(counts, adjacency):
                found.add((own, self.answer(other, adjacency)))
        return found

    def excess(self, adjacency, answers, *, shift=0, noise=1.0):
        """The largest excess, of noise of `noise` times its scale and a distance with `shift` added."""
        shifted = [tuple((pairs, distance + shift) for pairs, distance in both) for both in answers]
        mechanism = StableStructure(epsilon=0.5, delta=0.1, adjacency=adjacency, **self.settings)
        model = bpm.declare(states={f"v{i}": list(range(k)) for i, k in enumerate(self.cards)})
        return largest_excess(mechanism, model, shifted, noise)

    @pytest.mark.parametrize("adjacency", list(Adjacency))
    def test_the_release_keeps_its_promise_over_all_neighbours(self, adjacency):
        """Exact probabilities of what comes out: the likeliest event exceeds its bound by at most delta."""
        assert self.excess(adjacency, answers_of(type(self), adjacency)) <= 0.1

    @pytest.mark.parametrize(
        "twin", [{"shift": 1}, {"noise": 0.6}], ids=["one less far", "less noise"]
    )
    def test_a_twin_that_lets_graphs_out_too_easily_is_caught(self, twin):
        answers = answers_of(type(self), Adjacency.ADD_OR_REMOVE_ONE)
        assert self.excess(Adjacency.ADD_OR_REMOVE_ONE, answers, **twin) > 0.1

    def test_a_twin_whose_scores_are_taken_to_be_too_steady_is_caught(self, monkeypatch):
        self.scale_scores(0.125, monkeypatch)
        answers = self.answers(Adjacency.ADD_OR_REMOVE_ONE)
        assert self.excess(Adjacency.ADD_OR_REMOVE_ONE, answers) > 0.1


@cache
def answers_of(form, adjacency):
    """The answers of the mechanism as it is, which several twins share."""
    return form().answers(adjacency)
