"""Merged states in a fit by rounds: which states may be merged, and where their names are shown."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.inference import Status
from bayesprivmrf.learning.select_measure import MeasuredTable, MergeRule, Merging
from bayesprivmrf.mechanisms import SelectMeasure
from bayesprivmrf.noise import DiscreteLaplace

SHARES = np.array([0.05, 0.05, 0.4, 0.43, 0.07])
MISSING = 0.04
ANSWERS = ["1", "2", "3", "4", "5"]
ITEMS = [f"q{i}" for i in range(1, 7)]
NOISY = np.array([4.0, 200.0, 6.0, 5.0, 150.0, 3.0])


def survey(records: int = 362) -> pd.DataFrame:
    """Answers on a scale that depend on one another, rare at its ends, and some that are missing."""
    generator = np.random.default_rng(5)
    trait = generator.normal(size=records)
    cuts = np.quantile(generator.normal(size=100_000) * 1.2, np.cumsum(SHARES)[:4])
    columns = {}
    for item in ITEMS:
        code = np.searchsorted(cuts, trait + generator.normal(0, 0.66, records))
        columns[item] = pd.Series(np.array(ANSWERS, dtype=object)[code])
        columns[item][generator.random(records) < MISSING] = None
    return pd.DataFrame(columns)


def network(ordinal=ITEMS):
    return bpm.declare(states={item: [*ANSWERS, "missing"] for item in ITEMS}, ordinal=ordinal)


def learned(ordinal=ITEMS, rho=0.3, records=362, **settings):
    return SelectMeasure(rho=rho, missing="missing", **settings).release(
        network(ordinal), survey(records), rng=2
    )


def test_neighbors_alone_are_merged_where_states_are_ordered_and_no_answer_with_a_missing_one():
    for ordinal in (ITEMS, ()):
        release = learned(ordinal)
        assert release.merged_states
        for parts in release.merged_states.values():
            for part in parts:
                assert "missing" not in part
                if ordinal:
                    places = [ANSWERS.index(state) for state in part]
                    assert places == list(range(places[0], places[-1] + 1))
    assert any(
        "5" in part for parts in release.merged_states.values() for part in parts
    )  # without an order


@pytest.mark.parametrize(
    ("rule", "groups"),
    [
        (MergeRule(), [{0, 2, 3, 5}]),
        (MergeRule(apart=(5,)), [{0, 2, 3}]),
        (MergeRule(is_ordered=True), [{2, 3}]),
        (MergeRule(is_ordered=True, apart=(2,)), []),
        (MergeRule(is_ordered=True, apart=(1,)), [{0, 2, 3}]),
    ],
)
def test_what_may_be_merged_follows_the_rule(rule, groups):
    merging = Merging.of([NOISY], [4.0], [rule])
    assert [set(part) for part in merging.parts(0)] == groups


def test_the_smallest_are_merged_first_and_no_further_than_until_their_count_is_known():
    noisy = np.array([1.0, 11.0, 500.0, 10.0, 9.0])
    assert [set(part) for part in Merging.of([noisy], [4.0]).parts(0)] == [{0, 1, 3, 4}]
    assert [set(part) for part in Merging.of([noisy], [3.8]).parts(0)] == [
        {0, 3, 4}
    ]  # 20 > 3 · 3.8 · √3
    ordered = MergeRule(is_ordered=True)
    run = np.array([500.0, 5.0, 8.5, 8.0, 5.5, 500.0])
    assert [set(p) for p in Merging.of([run], [3.0], [ordered]).parts(0)] == [{1, 2}, {3, 4}]
    many = Merging.of([np.full(2000, 50.0)], [1.0], [ordered])
    assert many.cardinalities == (512,)
    assert (np.diff(many.groups[0]) >= 0).all()


def test_merging_moves_with_noisy_counts_and_public_declarations_alone():
    counts = np.array([2.0, 3.0, 100.0, 4.0])
    for rule in (MergeRule(), MergeRule(is_ordered=True, apart=(3,))):
        same = [
            Merging.of([counts + shift], [4.0], [rule]).groups[0].tolist() for shift in (0.0, 0.4)
        ]
        assert same[0] == same[1]


def test_groups_of_one_size_are_told_apart_in_the_query_of_a_table():
    domain = bpm.Domain.from_states({"a": ["k", "l", "m", "n"], "b": [0, 1]})
    model = bpm.ModelSpecification(domain=domain, cliques=(("a", "b"),))
    merging = Merging(groups=(np.array([0, 1, 0, 1]), np.array([0, 1])), shares=())
    made = MeasuredTable(scope=(0, 1), values=np.arange(4), law=DiscreteLaplace(1.0)).measurement(
        domain, merging
    )
    counts = np.arange(8.0)
    np.testing.assert_array_equal(
        made.query.bind(model).answers(counts), [0 + 4, 1 + 5, 2 + 6, 3 + 7]
    )


def test_merged_states_are_named_in_details_print_graph_assumptions_and_every_row_they_touch(
    tmp_path,
):
    release = learned()
    variable, parts = next(iter(release.merged_states.items()))
    first = list(map(str, parts[0]))
    assert release.details["merged"][variable][0] == first
    assert " = ".join(first) in str(release)
    assert release.graph().nodes[variable]["merged"] == parts
    said = f"{variable}: {', '.join(first)} are merged in the fit, and depend on other variables alike."
    assert said in release.assumptions
    other = next(item for item in ITEMS if item != variable)
    frame = release.solution.interval([variable, other])
    rows = frame.index.get_level_values(variable).isin(first)
    named = frame["note"].str.contains(
        f"{variable}: {', '.join(first)} are merged in the fit", regex=False
    )
    assert (named == rows).all()
    assert (frame.loc[rows, "status"] != "ok").all()
    release.save(tmp_path / "a.release")
    again = bpm.load_release(tmp_path / "a.release")
    assert again.merged_states == release.merged_states
    pd.testing.assert_frame_equal(again.solution.interval([variable, other]), frame)
    assert json.loads(json.dumps(release.summary()["details"]))["merged"]


@pytest.fixture(scope="module")
def nearly_exact():
    return learned(rho=50.0)


def test_a_prior_that_moves_a_fit_by_less_than_sampling_leaves_it_trusted(nearly_exact):
    """At a large budget the prior on interactions moves cells by more than noise; intervals cover the records."""
    assert nearly_exact.status is Status.CONVERGED
    assert not nearly_exact.problems
    counted = survey().fillna("missing").value_counts(ITEMS[:3])
    frame = nearly_exact.solution.interval(ITEMS[:3], of="records")
    truth = counted.reindex(frame.index, fill_value=0)
    assert ((frame["lower"] <= truth) & (truth <= frame["upper"])).mean() > 0.9
    assert (frame["status"] == "ok").all()


def test_scores_restrict_nothing_but_what_is_merged(nearly_exact):
    release = nearly_exact
    assert not release.merged_states
    assert not release.specification.ordinal
    same = SelectMeasure(rho=50.0, missing="missing").release(network(()), survey(), rng=2)
    assert same.tables.flat.tolist() == release.tables.flat.tolist()


def test_one_choice_of_pairs_takes_scores_and_uses_them_for_merges_alone():
    with_order, without = (learned(ordinal, rho=3.0, degree=2) for ordinal in (ITEMS, ()))
    assert "fallen_back" not in with_order.details
    np.testing.assert_array_equal(with_order.coupling_matrix, without.coupling_matrix)
