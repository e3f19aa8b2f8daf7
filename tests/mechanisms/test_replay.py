"""Every mechanism, replayed on neighbours: its answers cost no more than is promised, and nothing else gets out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import mechanisms
from bayesprivmrf import queries as q
from bayesprivmrf.mechanisms.frank_wolfe import choose_atoms
from bayesprivmrf.noise import SimulatedNoise
from bayesprivmrf.privacy import (
    Adjacency,
    CalibratedNoise,
    PrivacyGuarantee,
    Schedule,
    spent_epsilon,
)
from benchmarks.papers.dpsgd_search import DPSGDSearch
from benchmarks.papers.frank_wolfe import PaperFrankWolfe

from .contract import ADJACENCIES, Choices, Recorder, neighbours_of, replayed, spent
from .test_every_mechanism import SETTINGS

pytestmark = pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")

STATES = {"a": [0, 1], "b": [0, 1], "c": [0, 1], "d": [0, 1]}
LARGER = STATES | {"a": [0, 1, 2], "b": [0, 1, 2]}
EIGHT = {f"v{i}": [0, 1] for i in range(8)}
PAIRS = [("a", "b"), ("b", "c"), ("c", "d")]
ASKED = [q.table("a", "b"), q.pooled([("b", "c"), ("c", "d")]), q.parities(1)]


def chain(states: dict[str, list[int]], records: int = 232) -> pd.DataFrame:
    """Records, in order of their states, in which each variable mostly follows the one before it."""
    rng, columns = np.random.default_rng(0), []
    for values in states.values():
        own = rng.integers(0, len(values), records)
        follows = rng.random(records) < 0.8
        columns.append(np.where(follows, columns[-1] % len(values), own) if columns else own)
    return pd.DataFrame(dict(zip(states, columns, strict=True))).sort_values(
        list(states), ignore_index=True
    )


class OneChoice(Recorder):
    """Records the choice of an atom as what it is, one choice among all, though it is drawn in two steps.

    That these two have the law of the one is for `tests/learning/test_frank_wolfe.py`.
    """

    def atom(self, sums: Any, starts: Any, scales: Any, source: Any, eligible: Any) -> Any:
        scores, masks = [], []
        for place, (first, last) in enumerate(itertools.pairwise(starts)):
            signs = np.array(list(itertools.product((-1, 1), repeat=last - first)))
            scores.append(sums[:, first:last] @ signs.T)
            masks.append(np.repeat(eligible[:, [place]], len(signs), axis=1))
        step = Choices(
            scores=np.concatenate(scores, axis=1),
            scales=scales,
            eligible=np.concatenate(masks, axis=1),
            roundings=3,
        )
        drawn = SimulatedNoise(self.generator)
        return self.answered(step, lambda: choose_atoms(sums, starts, scales, drawn, eligible))


class LargestScore(Recorder):
    """Records Laplace noise on the scores of four nodes as four choices: the largest alone is let out."""

    def add(self, counts, law):
        scores = np.array(counts).reshape(4, -1)
        step = Choices(
            scores=scores,
            scales=np.full(4, law.scale),
            eligible=np.ones(scores.shape, bool),
            roundings=0,
            part=Fraction(1, 2),
        )
        return self.answered(step, lambda: counts + law.draw(np.shape(counts), self.generator))


class EveryRecord(Recorder):
    """Draws all records into each sample: the worst that can happen to the one that neighbours do not share."""

    def words(self, size):
        return np.zeros(size, dtype=np.uint64)


def spent_on_samples(promise: PrivacyGuarantee, here: list[Any], there: list[Any]) -> float:
    """What sums over samples cost, by the accountant: the first step is the number of records."""
    count, *steps = (
        math.sqrt(2 * a.rho(b)) for a, b in zip(here, there, strict=True)
    )  # sizes over noise
    moved = tuple(1 / size for size in steps if size)
    rate = mechanisms.DPSGD(epsilon=1.0, delta=1e-5).schedule.sampling_rate
    schedules = (Schedule(sampling_rate=rate, steps=1),) * len(moved)
    noise = CalibratedNoise(steps=moved, count=1 / count)
    # a coarser grid than the default one: losses are rounded up, and the promise has room for that
    return spent_epsilon(schedules, noise, promise.delta, interval=5e-4)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Settings and model of a mechanism, and the share of its promise that the worst neighbour costs at least."""

    least: float
    states: dict[str, list[int]] = field(default_factory=lambda: STATES)
    cliques: Any = None
    settings: dict[str, Any] = field(default_factory=dict)
    source: type[Recorder] = Recorder
    spent: Any = spent
    most_others: int = 8


def of_atoms(least: float, **more: Any) -> Case:
    return Case(least=least, source=OneChoice, **more)


CASES = {
    "LaplaceStatistics": [
        Case(least=0.999, cliques=PAIRS),
        Case(least=0.999, cliques=PAIRS, settings={"queries": ASKED}),
    ],
    "GaussianStatistics": [
        Case(least=0.999, cliques=PAIRS),
        Case(least=0.999, cliques=PAIRS, settings={"queries": ASKED}),
    ],
    "SelectMeasure": [
        Case(least=0.8),
        Case(least=0.4, states=EIGHT, settings={"degree": 2}),
        Case(least=0.8, states=LARGER | {"e": [0, 1]}, settings={"degree": 2}),
    ],
    "ParityQueries": [
        Case(least=0.999, settings={"method": "gaussian"}),
        Case(least=0.8, settings={"method": "pmw"}),
    ],
    "PrivateFrankWolfe": [
        of_atoms(0.4),
        of_atoms(0.4, states=LARGER),
        of_atoms(0.4, states=LARGER, settings={"method": "pairs"}),
        of_atoms(0.4, settings={"order": 3}),
        of_atoms(0.4, settings={"order": 3, "target": "linf"}),
    ],
    "PaperFrankWolfe": [Case(least=0.2, source=LargestScore)],
    "PrivateLogisticRegression": [of_atoms(0.4)],
    "DPSGD": [
        Case(
            least=0.9,
            cliques=PAIRS,
            settings={"steps": 2, "clip": 1.0, "learning_rate": 0.1},
            source=EveryRecord,
            spent=spent_on_samples,
            most_others=1,
        )
    ],
    "DPSGDSearch": [
        Case(
            least=0.9,
            cliques=PAIRS,
            settings={"grid": {"steps": [1, 2], "clip": [1.0], "learning_rate": [0.1]}},
            source=EveryRecord,
            spent=spent_on_samples,
            most_others=1,
        )
    ],
    "StableStructure": [
        Case(least=0.999),
        Case(least=0.999, settings={"structure": "graph"}, most_others=3),
        Case(least=0.7, settings={"structure": "graph", "threshold": "gap"}),
    ],
}
NOT_REPLAYED = {
    "ExactStatistics",  # adds nothing and promises nothing
    # draws noise on zero and solves an equation that holds the outcomes: tests/network/test_privacy_constants.py
    # enumerates how much likelier an estimate is from a neighbour
    "ObjectivePerturbation",
}


FOR_COMPARISON: dict[str, tuple[Any, dict[str, Any]]] = {
    "DPSGDSearch": (DPSGDSearch, {"epsilon": 1.0, "delta": 1e-5}),
    "PaperFrankWolfe": (PaperFrankWolfe, SETTINGS["PrivateFrankWolfe"]),
}
"""Mechanisms of benchmarks/papers, with their settings."""


def relations(case: Case) -> list[Adjacency]:
    """Return the neighboring relations that a case is for."""
    if case.source is LargestScore:
        return [Adjacency.REPLACE_ONE]
    return [Adjacency.ADD_OR_REMOVE_ONE] if case.source is EveryRecord else ADJACENCIES


LONG = ("StableStructure",)
"""Mechanisms whose replays take seconds: of one relation by default."""


def every(is_slow: Callable[[str, Case, Adjacency], bool]) -> pytest.MarkDecorator:
    """Return all cases; some of them are for the slow tests."""
    return pytest.mark.parametrize(
        ("name", "case", "relation"),
        [
            pytest.param(
                name,
                case,
                relation,
                id=f"{name}-{place}-{relation.value}",
                marks=[pytest.mark.slow] if is_slow(name, case, relation) else [],
            )
            for name, cases in CASES.items()
            for place, case in enumerate(cases)
            for relation in relations(case)
        ],
    )


def repeats_a_release(name: str, case: Case, relation: Adjacency) -> bool:
    """Whether what a release lets out is found by what finds that of another: of one relation, or of one trial."""
    return name == "DPSGDSearch" or (name in LONG and relation is not relations(case)[0])


def repeats_a_twin(name: str, case: Case, relation: Adjacency) -> bool:
    """Whether the costs of a twin are found by what finds those of another: of one relation, or of one trial."""
    return relation is not relations(case)[-1] or name == "DPSGDSearch"


def costs(
    name: str, case: Case, relation: Adjacency, monkeypatch: Any, multiple: float = 1.0
) -> tuple[Any, float]:
    """Return what a release costs at a multiple of the budget, and what is promised without it.

    Of a twin, the cost of the first neighbour that costs more than is promised.
    """
    kind, settings = FOR_COMPARISON.get(name) or (getattr(mechanisms, name), SETTINGS[name])
    settings = settings | case.settings
    if "adjacency" in {one.name for one in fields(kind)}:
        settings |= {"adjacency": relation}
    promise = kind(**settings).promise(
        network := bpm.declare(states=case.states, cliques=case.cliques)
    )
    assert promise.adjacency is relation
    budget = "epsilon" if promise.rho is None else "rho"
    mechanism = kind(**settings | {budget: multiple * settings[budget]})
    data, source = chain(case.states), case.source()
    cells = pd.DataFrame(list(itertools.product(*case.states.values())), columns=list(case.states))
    others = cells.iloc[
        np.unique(np.linspace(len(cells) - 1, 0, min(case.most_others, len(cells)), dtype=int))
    ]
    if case.source is OneChoice:
        monkeypatch.setattr("bayesprivmrf.mechanisms.frank_wolfe.search.choose_atoms", source.atom)
    given = neighbours_of(data, others, relation)
    promised = getattr(promise, budget)
    enough = math.inf if multiple == 1.0 else promised
    cost = replayed(mechanism, network, data, given, source, case.spent, enough=enough)
    return cost, promised


@every(is_slow=repeats_a_release)
def test_a_release_replayed_on_neighbours_is_the_same_and_costs_no_more_than_promised(
    name, case, relation, monkeypatch
):
    cost, promised = costs(name, case, relation, monkeypatch)
    assert case.least * promised <= cost <= promised


@every(is_slow=repeats_a_twin)
def test_a_twin_with_too_little_noise_costs_more_than_it_promises(
    name, case, relation, monkeypatch
):
    cost, promised = costs(name, case, relation, monkeypatch, 1.1 / case.least)
    assert cost > promised


def test_every_mechanism_is_replayed_or_has_a_reason():
    assert CASES.keys().isdisjoint(NOT_REPLAYED)
    assert CASES.keys() | NOT_REPLAYED == SETTINGS.keys() | FOR_COMPARISON.keys()


@pytest.mark.parametrize("relation", ADJACENCIES)
@pytest.mark.parametrize("name", ["LaplaceStatistics", "GaussianStatistics"])
def test_a_release_for_persons_is_replayed_on_one_person_more_or_fewer(name, relation):
    mechanism = getattr(mechanisms, name)(
        **SETTINGS[name], adjacency=relation, person="id", at_most=2
    )
    network = bpm.declare(states=STATES, cliques=PAIRS)
    rows = chain(STATES)
    data = rows.assign(id=np.arange(len(rows)) // 2)
    another = pd.DataFrame(
        [dict.fromkeys(STATES, 1) | {"id": -1}] * 3
    )  # of three rows two are counted
    fewer = data.iloc[2:]  # all of one person
    given = [fewer, pd.concat([data, another])]
    if relation is Adjacency.REPLACE_ONE:
        given = [pd.concat([fewer, another])]
    promise = mechanism.promise(network)
    most = promise.epsilon if promise.rho is None else promise.rho
    assert 0.999 * most <= replayed(mechanism, network, data, given) <= most
