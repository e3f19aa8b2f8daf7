"""A threshold chosen with noise: how clear each is, what the choice costs, what comes out."""

from __future__ import annotations

import json
import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
from learning.released_graphs import neighbours, plan_of
from learning.test_dependence_graph import made_up

import bayesprivmrf as bpm
from bayesprivmrf.cli import main
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.mechanisms import StableStructure
from bayesprivmrf.mechanisms.structure import (
    LARGEST,
    THRESHOLDS,
    UNIT,
    GraphSearch,
    PairScores,
    graphs_to_choose,
    stable_graph,
)
from bayesprivmrf.noise import DiscreteLaplace
from bayesprivmrf.privacy import Adjacency
from benchmarks.papers.block_structure import BlockStructure

CARDS = (2, 3, 2, 2)
CELLS = np.array(list(product(*map(range, CARDS))), dtype=np.uint8)
ADD = Adjacency.ADD_OR_REMOVE_ONE
MODEL = bpm.declare(states={f"v{i}": list(range(k)) for i, k in enumerate(CARDS)})


def chosen_from(counts, adjacency, order=2, most=40):
    held = counts > 0
    return graphs_to_choose(
        CELLS[held], counts[held], CARDS, adjacency, GraphSearch(given=1, most=most, order=order)
    )


def near(rng):
    """Records of which some pair's score is near the lowest threshold, where clearness moves most."""
    counts = made_up(rng, most=60)
    first = rng.integers(len(CELLS))
    counts[first] += rng.integers(500, 5_000)
    return counts


def test_clearness_and_graphs_are_those_of_the_scores():
    rng = np.random.default_rng(1)
    for _ in range(12):
        counts, adjacency = made_up(rng, most=5_000), list(Adjacency)[rng.integers(2)]
        held = counts > 0
        scores = PairScores.of(
            CELLS[held], counts[held], CARDS, threshold=0, search=GraphSearch(given=1)
        )
        n, least = int(counts.sum()), THRESHOLDS[0]
        moved = 4 * UNIT + least if adjacency is ADD else 8 * UNIT
        direct = [
            min(*(abs(score - u * n) for score in scores.scores.tolist()), u * n)
            * least
            // (u * moved)
            for u in THRESHOLDS
        ]
        clearness, graphs = chosen_from(counts, adjacency)
        assert clearness.tolist() == direct
        for u, graph in zip(THRESHOLDS, graphs, strict=True):
            rule = {"threshold": u / UNIT, "search": GraphSearch(given=1, most=40)}
            assert graph == stable_graph(CELLS[held], counts[held], CARDS, adjacency, **rule)


def cost_of_choice(one, other, scale):
    """Largest log ratio of the probabilities of choices."""
    law = [np.exp((clear - clear.max()) / scale) for clear in (one, other)]
    return float(np.abs(np.log(law[0] / law[0].sum()) - np.log(law[1] / law[1].sum())).max())


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_one_neighbour_moves_clearness_by_at_most_one_and_the_choice_costs_no_more_than_its_share(
    adjacency,
):
    rng = np.random.default_rng(2)
    plan = plan_of(
        StableStructure(epsilon=1.0, delta=1e-6, structure="graph", threshold="gap"), MODEL
    )
    moved, spent, steady = 0, 0.0, 0.0
    for _ in range(8 if adjacency is ADD else 2):
        counts = near(rng)
        own = chosen_from(counts, adjacency)[0]
        for other in neighbours(counts, adjacency):
            theirs = chosen_from(other, adjacency)[0]
            moved = max(moved, int(np.abs(own - theirs).max()))
            spent = max(spent, cost_of_choice(own, theirs, plan.choice))
            steady = max(steady, cost_of_choice(4 * own, 4 * theirs, plan.choice))
    assert moved == 1
    assert (
        0 < spent <= 0.25 < steady
    )  # a twin whose scores are thought to be a quarter as sensitive


def largest_excess(mechanism, noise=1.0):
    """Largest P(S) - exp(epsilon) P'(S) over events of a threshold, a noisy distance and a graph, and neighbours."""
    plan = plan_of(mechanism, MODEL)
    reach = np.arange(-60, 61)
    weights = np.exp(DiscreteLaplace(noise * plan.law.scale).log_density(reach))

    def law_of(counts):
        clearness, graphs = chosen_from(counts, mechanism.adjacency)
        chances = np.exp((clearness - clearness.max()) / plan.choice)
        law = {}
        for place, (chance, (pairs, distance)) in enumerate(
            zip(chances / chances.sum(), graphs, strict=True)
        ):
            for noisy, weight in zip((distance - 1 + reach).tolist(), weights, strict=True):
                law[place, noisy, pairs if noisy >= plan.needed else None] = chance * weight
        return law

    worst, rng, factor = -1.0, np.random.default_rng(3), math.exp(mechanism.epsilon)
    for _ in range(4):
        counts = made_up(rng)
        own = law_of(counts)
        for other in neighbours(counts, mechanism.adjacency):
            theirs = law_of(other)
            for one, two in ((own, theirs), (theirs, own)):
                worst = max(
                    worst, sum(max(p - factor * two.get(out, 0.0), 0) for out, p in one.items())
                )
    return worst


def test_what_comes_out_keeps_the_promise_and_less_noise_breaks_it():
    mechanism = StableStructure(epsilon=0.5, delta=0.1, structure="graph", threshold="gap", given=1)
    assert largest_excess(mechanism) <= 0.1
    assert largest_excess(mechanism, noise=0.2) > 0.1


def apart(rows, rng):
    """A chain whose dependence is weaker than 0.1, the default threshold."""
    columns = [rng.integers(0, 2, rows)]
    for _ in range(4):
        columns.append(np.where(rng.random(rows) < 0.085, columns[-1], rng.integers(0, 2, rows)))
    return pd.DataFrame(np.column_stack(columns), columns=list("abcde"))


def test_edges_weaker_than_the_default_are_found_and_the_threshold_is_told(tmp_path):
    data = apart(60_000, np.random.default_rng(4))
    model = bpm.declare(states={name: [0, 1] for name in data})
    settings = {"epsilon": 1.0, "delta": 1e-6, "structure": "graph"}
    assert StableStructure(**settings).release(model, data, rng=1).edges == ()
    found = StableStructure(**settings, threshold="gap").release(model, data, rng=1)
    assert found.edges == (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"))
    assert found.details["threshold"] in [u / UNIT for u in THRESHOLDS]
    assert found.details["threshold"] < 0.085
    found.save(tmp_path / "graph.release")
    again = bpm.load_release(tmp_path / "graph.release")
    assert again.details == found.details
    assert found.is_threshold_chosen
    assert again.is_threshold_chosen
    blocks = BlockStructure(**settings, threshold="gap", blocks=40)
    assert blocks.release(model, data, rng=1).details["threshold"] == "gap"


def test_choices_follow_their_clearness():
    """Of 150 releases, the frequencies of thresholds are those of the exponential mechanism."""
    data = apart(2_000, np.random.default_rng(5))
    model = bpm.declare(states={name: [0, 1] for name in data})
    mechanism = StableStructure(
        epsilon=4.0, delta=1e-6, structure="graph", threshold="gap", given=0
    )
    codes = data.to_numpy().astype(np.uint8)
    ones = np.ones(len(codes), dtype=np.int64)
    clearness, _ = graphs_to_choose(codes, ones, (2,) * 5, ADD, GraphSearch(given=0, most=1))
    chances = np.exp((clearness - clearness.max()) * 4.0 * 0.25 / 2)
    found = [mechanism.release(model, data, rng=seed).details["threshold"] for seed in range(150)]
    shares = np.array([found.count(u / UNIT) for u in THRESHOLDS]) / len(found)
    expected = chances / chances.sum()
    assert np.ptp(clearness) > 2
    assert (
        np.abs(shares - expected) <= 4.5 * np.sqrt(expected * (1 - expected) / len(found)) + 1e-3
    ).all()


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_records_beyond_a_number_are_not_told_apart(adjacency):
    counts = np.full(len(CELLS), LARGEST // len(CELLS))
    counts[0] += LARGEST - 1 - counts.sum()
    assert (chosen_from(counts, adjacency)[0] <= 1).all()
    counts[0] += 1
    clearness, graphs = chosen_from(counts, adjacency)
    assert not clearness.any()
    assert set(graphs) == {((), 0)}


def test_the_audit_tells_the_choice_the_distance_and_the_graph(capsys):
    given = [
        "audit",
        "stable-structure",
        "--epsilon",
        "1",
        "--set",
        "delta=1e-9",
        "--runs",
        "500",
        "--json",
    ]
    given += ["--set", "structure=graph", "--set", "threshold=gap", "--set", "order=3"]
    assert main(given) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [one["promised"] for one in findings[:2]] == [0.25, 0.75]
    assert all(0.9 * one["promised"] < one["cost"] <= one["promised"] for one in findings[:2])


@pytest.mark.parametrize(
    "settings", [{"threshold": "wide"}, {"threshold": "gap", "epsilon": 1e-12}]
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(
        ArgumentError, match="`threshold`" if "epsilon" not in settings else "`epsilon`"
    ):
        StableStructure(
            **({"epsilon": 1.0, "delta": 1e-6, "structure": "graph"} | settings)
        ).promise(MODEL)
