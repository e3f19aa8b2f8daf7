"""A function of the model: its marks, its rounded numbers, and how it is printed."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from notebook import html_of

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.mechanisms import LaplaceStatistics


@pytest.fixture(scope="module")
def posterior():
    states = {"a": [0, 1], "b": ["x", "y"], "c": [0, 1]}
    cliques, impossible = [("a", "b"), ("b", "c")], [{"b": "y", "c": 1}]
    network = bpm.declare(states, cliques, impossible=impossible)
    rng = np.random.default_rng(1)
    data = pd.DataFrame({name: rng.choice(network.states[name], 600) for name in "abc"})
    data.loc[data["b"] == "y", "c"] = 0
    release = LaplaceStatistics(epsilon=5.0).release(network, data, rng=1)
    return bpm.LatentCounts().fit(release, rng=1, draws=400, tune=200, chains=2, progress_bar=False)


def odds_ratio(first, second):
    def function(draw):
        table = draw.marginal([first, second]).values
        return table[0, 0] * table[1, 1] / (table[0, 1] * table[1, 0])

    return function


@pytest.mark.parametrize("variables", [["a", "b"], ["b", "a"]])
def test_an_odds_ratio_inside_a_measured_table_is_marked_as_that_table(posterior, variables):
    asked = odds_ratio(*variables)
    whole = posterior.quantity(asked, draws=100)
    named = posterior.quantity(asked, draws=100, variables=variables)
    assert set(named.frame["status"]) == set(posterior.interval(variables)["status"]) == {"ok"}
    assert whole.status == "model"
    assert named.draws.values == pytest.approx(whole.draws.values, rel=1e-9)


def test_a_function_of_variables_that_no_table_measured_names_the_assumption(posterior):
    found = posterior.quantity(odds_ratio("a", "c"), draws=50, variables=["a", "c"])
    assert (found.status, found.note) == ("model", "simulated; declared: a ⟂ c | b")


def test_a_function_of_named_variables_cannot_ask_for_others(posterior):
    with pytest.raises(ModelError, match="got 'a', 'c'; add 'b'"):
        posterior.quantity(odds_ratio("a", "b"), variables=["a", "c"])
    with pytest.raises(ModelError, match="'z' is not declared"):
        posterior.quantity(odds_ratio("a", "b"), variables=["a", "z"])


def test_impossible_states_stay_impossible_in_the_draws_of_named_variables(posterior):
    found = posterior.quantity(
        lambda draw: draw.marginal(["c", "b"]), draws=20, variables=["c", "b"]
    )
    assert (found.draws.sel(c=1, b="y") == 0).all()
    assert found.draws.sum(["b", "c"]).values == pytest.approx(1)


def test_a_quantity_rounds_as_a_number_does(posterior):
    found = posterior.quantity(odds_ratio("a", "b"), draws=50, variables=["a", "b"])
    assert round(found.estimate, 3) == round(float(found.estimate), 3)
    assert isinstance(round(found.estimate, 3), float)
    for rounded in (found.round(2), round(found, 2)):
        for name in ("estimate", "lower", "upper"):
            assert float(getattr(rounded, name)) == round(float(getattr(found, name)), 2)
            assert rounded.frame.loc["value", name] == round(float(getattr(found, name)), 2)
        assert rounded.draws.equals(found.draws)
        assert (rounded.status, rounded.note) == (found.status, found.note)
    table = posterior.quantity(lambda draw: draw.marginal(["a", "b"]), draws=20)
    assert round(table.estimate, 2).equals(table.estimate.round(2))
    assert table.round(2).frame["lower"].equals(table.frame["lower"].round(2))
    with pytest.raises(ArgumentError, match="digits"):
        found.round("two")


def test_a_quantity_prints_its_numbers_and_has_html(posterior):
    found = posterior.quantity(odds_ratio("a", "b"), draws=50, variables=["a", "b"]).round(2)
    shown = [
        f"{float(found.lower):g} to {float(found.upper):g}",
        "interval",
        found.note,
        found.status,
    ]
    for text in (repr(found), html_of(found)):
        assert all(word in text for word in shown)
    table = posterior.quantity(lambda draw: draw.marginal(["a", "b"]), draws=20)
    for text in (repr(table), html_of(table)):
        assert all(name in text for name in table.frame.columns)
        assert text.count(table.note) == 4


def test_a_rounded_quantity_survives_pickling(posterior):
    found = posterior.probability({"a": 0})
    again = pickle.loads(pickle.dumps(found))
    assert round(again.estimate, 3) == round(found.estimate, 3)
    assert repr(again) == repr(found)


def test_a_posterior_prints_what_its_html_shows_at_first_sight(posterior):
    lines = repr(posterior).splitlines()
    assert len(lines) <= 8
    assert not [line for line in lines if "bfmi" in line or "seconds" in line]
    for word in ("status", "model", "records", "privacy", "`stats`", "`assumptions`"):
        assert any(word in line for line in lines)
    assert posterior.stats["bfmi"] > 0
