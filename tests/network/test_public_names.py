"""The names that others write against, each doing what it says on a network whose answers are known."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import UndeclaredStateError
from bayesprivmrf.mechanisms import ObjectivePerturbation

PAIRS = [(f"right {k}", f"left {k}") for k in range(40)]
AGREEING = 30
SMALL = {"points": 8, "configurations": 40, "burn_in": 20, "sweeps": 2, "progress": False}


@pytest.fixture
def ising():
    """Forty pairs, each alone: J is 1 within a pair, under every normalisation by degree."""
    return bpm.network.IsingNetwork.from_graph(nx.Graph(PAIRS), coupling="degree-normalised")


def outcomes(yes, no):
    """Thirty pairs agree, on either answer; ten do not."""
    chosen = {}
    for k, (a, b) in enumerate(PAIRS):
        chosen[a] = yes if k % 2 else no
        chosen[b] = chosen[a] if k < AGREEING else (no if k % 2 else yes)
    return dict(reversed(chosen.items()))


def test_samples_have_a_row_a_draw_and_a_column_a_node_in_graph_order(ising):
    drawn = ising.sample(beta=12.0, size=10, rng=1)
    assert drawn.shape == (10, 80)
    assert set(np.unique(drawn)) == {-1, 1}
    # at this beta a pair disagrees with probability 4e-11: columns are where the graph's nodes are
    place = {node: column for column, node in enumerate(ising.nodes)}
    assert list(ising.nodes) == list(nx.Graph(PAIRS))
    assert all((drawn[:, place[a]] == drawn[:, place[b]]).all() for a, b in PAIRS)
    assert np.array_equal(drawn, ising.sample(beta=12.0, size=10, rng=1))
    assert not np.array_equal(drawn, ising.sample(beta=12.0, size=10, rng=2))


def test_the_estimate_without_privacy_takes_outcomes_in_every_declared_form(ising):
    # given the other one, the mean product of a pair is tanh(beta): the score's root makes it the observed one
    exact = math.atanh((AGREEING - 10) / 40)
    spins = outcomes(1, -1)
    found = [
        ising.pseudo_likelihood_estimate(spins),
        ising.pseudo_likelihood_estimate(pd.Series(spins)),
        ising.pseudo_likelihood_estimate([spins[node] for node in ising.nodes]),
        ising.pseudo_likelihood_estimate(outcomes("ill", "well"), positive="ill", negative="well"),
        ising.pseudo_likelihood_estimate(pd.Series(outcomes("ill", "well")), "well", "ill"),
    ]
    assert all(type(value) is float for value in found)
    assert found == pytest.approx([exact] * 5, rel=1e-12)
    assert ising.pseudo_likelihood_estimate(spins, bounds=(0, 0.25)) == 0.25
    with pytest.raises(UndeclaredStateError):
        ising.pseudo_likelihood_estimate(outcomes("ill", "well"))


def test_a_release_gives_a_number_an_interval_and_its_guarantee(ising, tmp_path):
    estimate = ObjectivePerturbation(epsilon=5.0).release(ising, outcomes(1, -1), rng=3)
    assert 0.0 <= estimate.inverse_temperature <= 5.0
    assert (estimate.guarantee.epsilon, estimate.guarantee.unit) == (5.0, "node's outcome")
    frame = estimate.interval(prob=0.9, rng=1, **SMALL)
    assert frame.index.tolist() == ["beta"]
    assert -5.0 <= frame.loc["beta", "lower"] <= frame.loc["beta", "upper"] <= 5.0
    assert frame["note"].str.startswith("simulated; ").all()
    estimate.save(tmp_path / "pairs.release")
    again = bpm.load_release(tmp_path / "pairs.release")
    assert again.inverse_temperature == estimate.inverse_temperature
    assert again.interval(prob=0.9, rng=1, **SMALL).equals(frame)


def test_the_law_known_before_spending_is_the_law_of_the_release(ising):
    mechanism = ObjectivePerturbation(epsilon=5.0, bounds=(0, 4))
    before = mechanism.law(ising, rng=1, **SMALL)
    estimate = mechanism.release(ising, outcomes(1, -1))
    assert np.array_equal(before.estimates, estimate.law(rng=1, **SMALL).estimates)
    assert estimate.interval(law=before).equals(estimate.interval(rng=1, **SMALL))


def test_a_citation_of_a_release_names_the_paper_of_the_mechanism(ising):
    estimate = ObjectivePerturbation(epsilon=5.0).release(ising, outcomes(1, -1))
    assert "chakraborty2024prising" in bpm.citation(estimate)
    assert "hay2020opendp" in bpm.citation(estimate)
