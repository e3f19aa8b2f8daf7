"""The made-up survey has the law that it says."""

from __future__ import annotations

import itertools
import tomllib
from importlib.resources import files

import networkx as nx
import numpy as np
import pytest
from scipy.stats import binom

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.learning import simulated_survey

FILE = tomllib.loads(
    (files("bayesprivmrf") / "data" / "simulated_survey.toml").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def made():
    return simulated_survey(40_000, 1)


def test_records_follow_the_stated_law(made):
    """Counts of all tables of two, exact binomial tails: a level of 1e-4 in all."""
    tables = list(itertools.combinations(made.states, 2))
    law = [made.truth.marginal(list(pair)) for pair in tables]
    least, cells = 1.0, sum(table.size for table in law)
    codes = {
        v: made.simulated[v].map({s: k for k, s in enumerate(made.states[v])}).to_numpy()
        for v in made.states
    }
    for (a, b), table in zip(tables, law, strict=True):
        counts = np.zeros(table.shape, dtype=int)
        np.add.at(counts, (codes[a], codes[b]), 1)
        assert counts.sum() == 40_000
        tails = (binom.cdf(counts, 40_000, table), binom.sf(counts - 1, 40_000, table))
        least = min(least, 2 * float(np.minimum(*tails).min()))
    assert least > 1e-4 / cells


def test_the_law_is_the_files(made):
    """Single shares, and log odds given everything else, against shares, scores and sizes as they are written."""
    share, scores = {}, {}
    for name, variable in FILE["variables"].items():
        share[name] = np.array(variable["shares"]) / np.sum(variable["shares"])
        assert made.truth.marginal([name]).values == pytest.approx(share[name], rel=1e-5)
        scores[name] = variable.get("scores", list(range(len(variable["states"]))))

    def z(coupling, name):
        own = np.array(coupling.get("scores", {}).get(name, scores[name]))
        mean = np.average(own, weights=share[name])
        return (own - mean) / np.average((own - mean) ** 2, weights=share[name]) ** 0.5

    rng = np.random.default_rng(2)
    others = {v: made.states[v][rng.integers(len(made.states[v]))] for v in made.states}
    for a, b in itertools.combinations(made.states, 2):
        given = {v: state for v, state in others.items() if v not in (a, b)}
        found = np.log(made.truth.marginal([a, b], given=given).values)
        expected = np.zeros(found.shape)
        for coupling in FILE["couplings"]:
            if {a, b} <= set(coupling["between"]):
                rest = [v for v in coupling["between"] if v not in (a, b)]
                at = np.prod([z(coupling, v)[made.states[v].index(given[v])] for v in rest])
                expected += coupling["size"] * at * np.outer(z(coupling, a), z(coupling, b))
        centred = found - found[:1] - found[:, :1] + found[0, 0]
        assert centred == pytest.approx(
            expected - expected[:1] - expected[:, :1] + expected[0, 0], abs=1e-6
        )


def test_alphabets_are_mixed_some_states_rare_and_the_graph_has_loops(made):
    sizes = [len(states) for states in made.states.values()]
    assert len(sizes) == 13
    assert min(sizes) == 2
    assert max(sizes) == 20
    assert sum(min(variable["shares"]) < 0.003 for variable in FILE["variables"].values()) >= 2
    cliques = made.truth.specification.cliques
    assert [len(clique) for clique in cliques] == [2] * 18 + [3]
    graph = nx.Graph(pair for clique in cliques for pair in itertools.combinations(clique, 2))
    assert nx.is_connected(graph)
    assert graph.number_of_edges() - graph.number_of_nodes() + 1 >= 5  # independent loops


def test_equal_seeds_give_equal_records_of_one_population(made):
    first, second, third = (simulated_survey(100, seed) for seed in (5, 5, 6))
    assert first.simulated.equals(second.simulated)
    assert not first.simulated.equals(third.simulated)
    assert np.array_equal(first.truth.potentials.flat, third.truth.potentials.flat)
    assert repr(first) == "SimulatedSurvey(100 MADE-UP records of 13 questions)"
    assert list(first.simulated) == list(first.states)
    assert simulated_survey(0, 5).simulated.shape == (0, 13)


@pytest.mark.parametrize("size", [-1, 2.5, True, None])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(ArgumentError, match="`size` must be a whole number"):
        simulated_survey(size, 1)
