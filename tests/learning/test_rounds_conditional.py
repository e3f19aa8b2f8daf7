"""Intervals of conditional probabilities of a model learned in rounds."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference.noise_aware import estimator
from bayesprivmrf.learning.select_measure import cell_errors
from bayesprivmrf.mechanisms import SelectMeasure

STATES = {"sick": ["no", "yes"], "age": ["young", "middle", "old"], "smokes": ["no", "yes"]}
GIVEN = {"age": {"middle", "old"}}


def records(size, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 3, size)
    smokes = rng.random(size) < 0.5 - 0.15 * age
    sick = rng.random(size) < 0.1 + 0.1 * age + 0.2 * smokes
    codes = {"sick": sick.astype(int), "age": age, "smokes": smokes.astype(int)}
    return pd.DataFrame({name: np.array(STATES[name])[own] for name, own in codes.items()})


def released(workload, rho=0.05):
    mechanism = SelectMeasure(rho=rho, workload=workload)
    return mechanism.release(bpm.declare(states=STATES), records(5000), rng=1)


@pytest.fixture(scope="module")
def learned():
    return released([*combinations(STATES, 2)])


def test_errors_of_effects_move_conditional_probabilities_as_they_move_the_table():
    """The derivative of the conditional probabilities, by a small difference, for errors of all effects."""
    rng, cards = np.random.default_rng(1), (3, 2, 4)
    table = rng.dirichlet(np.full(24, 2.0)).reshape(cards)
    weights = {0: np.array([1.0, 0.3, 0.0]), 1: np.array([0.0, 1.0])}
    joint = cell_errors.Cells(cardinalities=cards, scope=(0, 1, 2), table=table)
    given = cell_errors.Cells(cardinalities=cards, scope=(0, 1, 2), table=table, weights=weights)
    change, moved, squares = np.zeros(cards), np.zeros((1, 1, 4)), np.zeros((1, 1, 4))
    for size in (1, 2, 3):
        for subset in combinations(range(3), size):
            errors = rng.standard_normal([cards[v] - 1 for v in subset])
            change = change + joint.moved(errors, subset)
            moved = moved + given.moved(errors, subset)
            one_by_one = np.zeros((1, 1, 4))
            for place in np.ndindex(errors.shape):
                unit = np.zeros_like(errors)
                unit[place] = 1.0
                one_by_one += errors[place] ** 2 * given.moved(unit, subset) ** 2
            squares = given.moved(errors**2, subset, power=2)
            assert squares + np.zeros_like(moved) == pytest.approx(one_by_one)

    def conditional(cells):
        held = np.einsum("abc,a,b->c", cells, weights[0], weights[1])
        return held / held.sum()

    step = 1e-6
    by_difference = (conditional(table + step * change) - conditional(table - step * change)) / (
        2 * step
    )
    assert moved.ravel() == pytest.approx(by_difference, rel=1e-6)
    assert given.rows.ravel() == pytest.approx(conditional(table))
    # an error of N scales the distance of the table from the uniform one
    by_total = (conditional(table + step * joint.distances) - conditional(table)) / step
    assert given.distances.ravel() == pytest.approx(by_total, rel=1e-4)


def test_a_conditional_probability_has_the_interval_of_the_fit_of_the_same_tables(learned):
    fit = bpm.NoiseAwareMAP().fit(learned.statistics)
    for variables, given in ((["sick"], {"smokes": "yes"}), (["smokes"], GIVEN)):
        found, expected = (each.interval(variables, given=given) for each in (learned, fit))
        width = expected["upper"] - expected["lower"]
        assert (found["estimate"] - expected["estimate"]).abs().max() < 0.1 * width.max()
        assert (found["upper"] - found["lower"]).to_numpy() == pytest.approx(
            width.to_numpy(), rel=0.05
        )
        assert list(found["status"]) == list(expected["status"])


def test_conditional_probabilities_are_those_of_the_model_in_the_order_asked(learned):
    found = learned.interval(["smokes", "sick"], given=GIVEN)
    turned = learned.interval(["sick", "smokes"], given=GIVEN)
    assert list(found.index) == [("no", "no"), ("no", "yes"), ("yes", "no"), ("yes", "yes")]
    assert found.loc[("no", "yes")].to_numpy() == pytest.approx(
        turned.loc[("yes", "no")].to_numpy()
    )
    expected = learned.solution.marginal(["smokes", "sick"], given=GIVEN).values.ravel()
    assert found["estimate"].to_numpy() == pytest.approx(expected)


def test_all_states_given_are_no_condition(learned):
    free = learned.interval(["sick"])
    found = learned.interval(["sick"], given={"age": STATES["age"]})
    assert found["estimate"].to_numpy() == pytest.approx(free["estimate"].to_numpy())
    widths = [(frame["upper"] - frame["lower"]).to_numpy() for frame in (found, free)]
    assert widths[0] == pytest.approx(widths[1], rel=0.05)


def test_no_model_is_fitted_for_an_interval(monkeypatch, learned):
    """The approximation at the released fit is made once for all intervals."""
    made, real = [], cell_errors.MeansExpansion

    def expanded(**known):
        made.append(known)
        return real(**known)

    monkeypatch.setattr(cell_errors, "MeansExpansion", expanded)
    monkeypatch.setattr(
        estimator, "noise_aware_mode", lambda *_: pytest.fail("the tables were fitted")
    )
    fresh = replace(learned)  # has computed nothing yet
    for given in (None, GIVEN, {"smokes": "yes"}, {"smokes": "no"}, GIVEN):
        fresh.interval(["sick"], given=given)
    assert len(made) == 1


def test_a_pair_that_was_not_measured_is_marked_by_the_bound_on_its_conditional_probabilities():
    bound, pair = 0.1, (0, 2)
    learned = released([("sick", "age"), ("age", "smokes")])
    learned = replace(learned, details={**learned.details, "not_measured": [[*pair, bound]]})
    share = float(learned.solution.marginal("smokes").sel(smokes="yes"))
    found = learned.interval(["sick"], given={"smokes": "yes"})
    assert found["note"].str.contains(f"total variation at most {bound / share:.2g}").all()
    assert not found["status"].eq("ok").any()
    # given two variables, the bound on a pair says nothing of the three
    beyond = learned.interval(["sick"], given={"smokes": "yes", "age": "old"})
    assert beyond["note"].str.contains("not measured together: sick × age × smokes").any()
    assert beyond["status"].eq("not trusted").all()


def test_given_states_that_the_fit_merges_with_others_are_doubtful():
    rng = np.random.default_rng(5)
    job = np.where(rng.random(4000) < 0.95, rng.integers(0, 4, 4000), rng.integers(0, 40, 4000))
    data = pd.DataFrame(
        {"job": job, "sick": (rng.random(4000) < 0.2 + 0.2 * (job % 2)).astype(int)}
    )
    network = bpm.declare(states={"job": list(range(40)), "sick": [0, 1]})
    learned = SelectMeasure(rho=0.05).release(network, data, rng=2)
    groups = learned.merged_states["job"]
    one = groups[0][0]
    alone, whole, mixed, other = (
        learned.interval("sick", given={"job": states})
        for states in (one, set(groups[0]), {0, one}, 0)
    )
    for frame, is_merged in ((alone, True), (whole, False), (mixed, True), (other, False)):
        assert frame["status"].eq("doubtful" if is_merged else "ok").all()
    # a state of a group depends on other variables as its group does
    assert alone["estimate"].to_numpy() == pytest.approx(whole["estimate"].to_numpy())
    assert mixed["note"].str.contains("merged").all()
    assert alone["note"].str.contains("no record has the given states").all()
    # nobody knows whether that state has records, and its group is known as well as a frequent state
    assert (alone["upper"] - alone["lower"] > 0.5).all()
    assert (whole["upper"] - whole["lower"] < 0.2).all()


def test_what_cannot_be_given_is_refused(learned):
    with pytest.raises(ArgumentError, match="of='population'"):
        learned.interval(["sick"], of="records", given=GIVEN)
    with pytest.raises(ModelError, match="in both"):
        learned.interval(["age"], given=GIVEN)


def test_one_choice_of_pairs_is_fitted_once_for_all_intervals(monkeypatch):
    """The release has couplings; intervals of tables need the fit of its measurements, which the release keeps."""
    fits, real = [], estimator.noise_aware_mode

    def fitted(*known):
        fits.append(known)
        return real(*known)

    learned = SelectMeasure(rho=0.05, degree=2).release(
        bpm.declare(states=STATES), records(5000), rng=1
    )
    monkeypatch.setattr(estimator, "noise_aware_mode", fitted)
    for given in (None, GIVEN, {"smokes": "yes"}, GIVEN):
        learned.interval(["sick"], given=given)
    assert len(fits) == 1
