"""Parallel composition: releases of disjoint groups, by enumeration of neighbors, and what it must not promise."""

from itertools import combinations_with_replacement, product

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError, PrivacyError
from bayesprivmrf.mechanisms import LaplaceStatistics

EPSILONS = {"north": 0.5, "south": 1.25, "west": 0.25}
# a unit is its group and its answer
UNITS = [*product(EPSILONS, ["no", "yes"])]
NETWORK = bpm.declare({"ill": ["no", "yes"]}, [("ill",)])


def promise(group, adjacency="add-or-remove-one", unit="record"):
    return bpm.PrivacyGuarantee(epsilon=EPSILONS[group], adjacency=adjacency, unit=unit)


def counts_of(units):
    return {group: [units.count((group, answer)) for answer in ("no", "yes")] for group in EPSILONS}


def loss(one, other):
    """Largest log ratio of densities of all groups' tables with Laplace noise, which far outputs attain.

    The noise of a group has the scale 1 / epsilon, so that its table keeps epsilon under add-or-remove-one.
    """
    tables = [counts_of(one), counts_of(other)]
    return sum(
        epsilon * np.abs(np.subtract(*(each[g] for each in tables))).sum()
        for g, epsilon in EPSILONS.items()
    )


def test_a_unit_that_is_added_costs_the_largest_epsilon_and_no_more():
    data = [list(each) for size in range(3) for each in combinations_with_replacement(UNITS, size)]
    worst = max(loss(units, [*units, one]) for units in data for one in UNITS)
    joint = bpm.compose(*map(promise, EPSILONS), disjoint=True)
    assert worst == pytest.approx(joint.epsilon) == max(EPSILONS.values())
    assert bpm.compose(*map(promise, EPSILONS)).epsilon == sum(EPSILONS.values())


def test_a_unit_that_moves_costs_the_sum_of_the_two_largest_and_one_that_stays_twice_the_largest():
    """As the notes of `compose` say of add-or-remove-one releases under replace-one neighbors."""
    others = [
        list(each) for size in range(3) for each in combinations_with_replacement(UNITS, size)
    ]
    moved, stayed = [], []
    for units, old, new in product(others, UNITS, UNITS):
        (stayed if old[0] == new[0] else moved).append(loss([*units, old], [*units, new]))
    second, largest = sorted(EPSILONS.values())[-2:]
    assert max(moved) == pytest.approx(second + largest)
    assert max(stayed) == pytest.approx(2 * largest)


def test_under_replace_one_the_joint_promise_is_about_units_that_keep_their_group():
    """The sizes of the groups are released exactly, and a unit that moves changes two of them."""
    mechanism = LaplaceStatistics(epsilon=10.0, adjacency="replace-one")

    def totals(units):
        frame = pd.DataFrame(units, columns=["group", "ill"])
        return [mechanism.release(NETWORK, part, rng=1).total for _, part in frame.groupby("group")]

    units = [("north", "no"), ("north", "yes"), ("south", "no"), ("south", "no")]
    assert totals(units) == totals([*units[:3], ("south", "yes")])
    assert totals(units) != totals([*units[:3], ("north", "no")])
    joint = bpm.compose(*(promise(group, "replace-one") for group in EPSILONS), disjoint=True)
    assert (joint.epsilon, joint.unit) == (1.25, "record within its group")
    assert "the replacement of one record within its group" in joint.sentence()
    assert bpm.compose(joint, joint, disjoint=True) == joint
    with pytest.raises(
        PrivacyError, match="share one unit"
    ):  # no addition to a promise about all replacements
        bpm.compose(joint, promise("north", "replace-one"))


def test_each_number_of_a_joint_promise_is_the_largest():
    given = {"adjacency": "add-or-remove-one", "unit": "person"}
    approximate = bpm.PrivacyGuarantee(epsilon=0.5, delta=1e-6, **given)
    joint = bpm.compose(approximate, bpm.PrivacyGuarantee(epsilon=2.0, **given), disjoint=True)
    assert (joint.epsilon, joint.delta, joint.unit) == (2.0, 1e-6, "person")
    rhos = [bpm.PrivacyGuarantee(rho=rho, **given) for rho in (0.1, 0.3, 0.2)]
    assert bpm.compose(*rhos, disjoint=True) == rhos[1]
    with pytest.raises(PrivacyError, match="share one form"):
        bpm.compose(approximate, *rhos, disjoint=True)
    with pytest.raises(ArgumentError, match="`disjoint`"):
        bpm.compose(*rhos, disjoint="yes")
