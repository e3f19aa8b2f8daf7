"""A release that is made of measurements of other releases keeps their promise and their marks, or states none."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import GuaranteeWarning, ModelError
from bayesprivmrf.mechanisms import ExactStatistics, LaplaceStatistics
from bayesprivmrf.privacy import Laplace

STATES = {"a": ["x", "y"], "b": ["x", "y"], "c": ["x", "y"]}
NETWORK = bpm.declare(STATES, [("a", "b"), ("b", "c")])
PAIR = bpm.declare({name: STATES[name] for name in "ab"}, [("a", "b")])
RECORDS = pd.DataFrame({"a": [*"xxyy"] * 30, "b": [*"xyyy"] * 30, "c": [*"xyxy"] * 30})
taken = bpm.NoisyStatistics.from_measurements


def released(epsilon=1.0, network=NETWORK, rng=None, **settings):
    return LaplaceStatistics(epsilon=epsilon, **settings).release(network, RECORDS, rng=rng)


def test_a_part_of_a_release_has_its_guarantee_and_all_of_it_is_equal_to_it(tmp_path):
    release = released()
    part = taken(PAIR, release.measurements[:1])
    assert part.guarantee == release.guarantee
    assert part.privacy_statement() == release.privacy_statement()
    assert taken(NETWORK, release.measurements) == release
    part.save(tmp_path / "part")
    again = bpm.load_release(tmp_path / "part")
    assert again == part
    assert taken(PAIR, again.measurements).guarantee == release.guarantee


def test_measurements_of_several_releases_have_the_sum_and_one_release_counts_once():
    one, other = released(0.5), released(0.25)
    assert taken(NETWORK, [*one.measurements, *one.measurements]).guarantee.epsilon == 0.5
    both = taken(NETWORK, [*one.measurements, *other.measurements])
    assert both.guarantee == bpm.compose(one.guarantee, other.guarantee)
    assert both.provenance.mechanism == "2 releases of LaplaceStatistics"
    stated = bpm.compose(one.guarantee, other.guarantee, disjoint=True)
    assert (
        taken(NETWORK, [*one.measurements, *other.measurements], guarantee=stated).guarantee
        == stated
    )


def test_releases_of_disjoint_groups_and_repeated_measurements_are_not_called_false(tmp_path):
    """The costs of disjoint groups do not add up, and the same noisy answers cost nothing twice."""
    one, other = released(), released()
    repeated = taken(NETWORK, [*one.measurements, one.measurements[0]])
    repeated.save(tmp_path / "repeated")
    with warnings.catch_warnings():
        warnings.simplefilter("error", GuaranteeWarning)
        assert bpm.load_release(tmp_path / "repeated") == repeated
    stated = bpm.compose(one.guarantee, other.guarantee, disjoint=True)
    groups = taken(NETWORK, [*one.measurements, *other.measurements], guarantee=stated)
    groups.save(tmp_path / "groups")
    with pytest.warns(
        GuaranteeWarning, match="costs 2: .* secret random sample or disjoint groups"
    ):
        assert bpm.load_release(tmp_path / "groups") == groups


def test_a_seeded_release_stays_marked_whatever_is_stated():
    seeded = released(rng=1)
    foreign = bpm.Measurement(q.table("b", "c"), [30.0, 20.0, 10.0, 40.0], Laplace(1.0))
    for measurements in (seeded.measurements, [seeded.measurements[0], foreign]):
        for guarantee in (None, seeded.guarantee):
            made = taken(NETWORK, measurements, guarantee=guarantee)
            assert made.provenance.simulated
            assert "it protects nobody" in made.privacy_statement()


def test_exact_tables_stay_marked_as_not_for_publication():
    exact = ExactStatistics().release(NETWORK, RECORDS)
    for measurements in (exact.measurements, [exact.measurements[0], *released().measurements]):
        made = taken(NETWORK, measurements)
        assert made.guarantee is None
        assert "not for publication" in made.privacy_statement()


def test_rows_of_one_person_stay_known_as_dependent():
    data = RECORDS.assign(person=np.repeat(np.arange(30), 4))
    release = LaplaceStatistics(epsilon=1.0, person="person", at_most=4).release(NETWORK, data)
    assert taken(PAIR, release.measurements[:1]).person_rows == release.person_rows is not None


def test_no_guarantee_is_stated_of_numbers_that_are_written_anew_or_beside_a_protected_total():
    release = released()
    first = release.measurements[0]
    again = bpm.Measurement(first.query, first.values, first.noise)
    for made in (
        taken(PAIR, [again]),
        taken(PAIR, [replace(first, values=first.values + 1)]),
        taken(NETWORK, [again, release.measurements[1]]),
        taken(PAIR, [first], total=120),
    ):
        assert made.guarantee is None
        assert made.privacy_statement() == "No privacy guarantee is stated for these tables."


def test_guarantees_that_have_no_sum_are_named():
    with pytest.warns(
        GuaranteeWarning, match="cannot be added .*neighboring relation.*states none"
    ):
        made = taken(
            NETWORK, [*released().measurements, *released(adjacency="replace-one").measurements]
        )
    assert made.guarantee is None


def test_a_guarantee_for_a_smaller_domain_is_not_stated_for_a_larger_one():
    """Structural zeros may make a sensitivity smaller, so that a promise need not hold without them."""
    records = RECORDS[(RECORDS["a"] != "x") | (RECORDS["b"] != "x")]
    zeros = bpm.declare(STATES, [("a", "b"), ("b", "c")], impossible=[{"a": "x", "b": "x"}])
    release = LaplaceStatistics(epsilon=1.0).release(zeros, records)
    with pytest.warns(GuaranteeWarning, match="declare the same `impossible`"):
        assert taken(NETWORK, release.measurements).guarantee is None
    assert taken(zeros, release.measurements).guarantee == release.guarantee


def test_answers_are_not_read_as_those_of_other_states():
    """They are numbers in the order of the states that the release declares."""
    swapped = bpm.declare({"a": ["x", "y"], "b": ["y", "x"]}, [("a", "b")])
    for asked in (None, [q.table("a", "b")], [q.parities(2)]):
        release = released(network=PAIR, **({} if asked is None else {"queries": asked}))
        with pytest.raises(
            ModelError, match=r"states of 'b' that are declared there, \['x', 'y'\]"
        ):
            taken(swapped, release.measurements[:1])
    scores = released(
        queries=[q.weighted("b", matrix=[[0, 3]]), q.table("a", "b"), q.table("b", "c")]
    )
    with pytest.raises(ModelError, match="states of 'b' that are declared there"):
        taken(swapped, scores.measurements[:1])
    pairs = released(network=bpm.declare(STATES, [("a", "b"), ("c",)]), queries=[q.parities(2)])
    with pytest.raises(ModelError, match="have the rows that it has there"):
        taken(bpm.declare(STATES, [("a",), ("b", "c")]), pairs.measurements)
    reordered = bpm.declare({name: STATES[name] for name in "cba"}, [("b", "c"), ("b", "a")])
    assert taken(reordered, released().measurements).guarantee == released().guarantee
