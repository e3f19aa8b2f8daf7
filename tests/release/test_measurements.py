"""Releases of answers to queries: what they hold, what they refuse, and that they are read as they were written."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from inference.conftest import AWKWARD, simulated_counts, specification

import bayesprivmrf as bpm
from bayesprivmrf import load_release
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, ModelError, PrivacyError
from bayesprivmrf.inference import gather
from bayesprivmrf.model import ModelSpecification, declare
from bayesprivmrf.noise import Suppressed
from bayesprivmrf.privacy import DiscreteLaplace, Gaussian, Laplace, NoNoise, PrivacyGuarantee
from bayesprivmrf.release import Measurement, NoisyStatistics

from .nasty import document_and_array, write_sealed

CYCLE = declare(
    {
        "a": ["z", "y"],
        0: [7, 5, 6],
        ("c", 1): [True, False],
        "d/e": [2, 1, 3],
        "b": [0, 1],
        "f": [0, 1],
    },
    [("a", 0), (0, ("c", 1)), (("c", 1), "d/e"), ("d/e", "a"), ("b", "f")],
)
LAW = Laplace(2.0)
QUERIES = {
    "table": q.table(0, "a"),
    "coarsened": q.coarsened(0, "a", groups={0: {("odd", True): [5, 7], 6.5: [6]}}),
    "weighted": q.weighted(
        "d/e", matrix=[[1, 0, -3], [0, 1, 0], [2, 2, 2]], labels=["x", "y", "z"]
    ),
    "parities": q.parities(2),
    "parities without the empty one": q.parities(1, with_empty=False),
    "pooled": q.pooled([("b", "f"), ("f", "b")]),
}


def measured(network, *queries, noise=LAW, **kept):
    rng = np.random.default_rng(5)
    return NoisyStatistics.from_measurements(
        network,
        [
            Measurement(query, rng.integers(-9, 99, len(query.bind(network))) + 0.5, noise)
            for query in queries
        ],
        **kept,
    )


@pytest.mark.parametrize(("states", "cliques"), AWKWARD.values(), ids=AWKWARD)
def test_one_table_a_clique_is_the_release_of_tables_to_the_byte(states, cliques, tmp_path):
    model = specification(states, cliques)
    for numbers, law in (
        (np.arange(model.size), DiscreteLaplace(2.0)),
        (np.arange(model.size) / 4, Gaussian(3.0)),
    ):
        tables = model.tables(numbers)
        given = [Measurement(q.table(*c), tables[c].ravel(), law) for c in model.cliques]
        release = NoisyStatistics.from_measurements(model, given, total=7)
        today = NoisyStatistics.from_tables(model, dict(tables), noise=law, total=7)
        assert release.has_tables
        assert release == today
        for name, each in (("one", release), ("other", today)):
            each.save(tmp_path / name, overwrite=True)
        assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
        assert [each.query for each in release.measurements] == [each.query for each in given]


def test_tables_in_another_order_or_with_other_axes_are_measurements():
    pairs = [(0, "a"), (0, ("c", 1)), (("c", 1), "d/e"), ("d/e", "a"), ("b", "f")]
    assert not measured(CYCLE, *(q.table(*pair) for pair in pairs)).has_tables


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_every_kind_of_query_is_read_as_it_was_written(query, tmp_path):
    promise = PrivacyGuarantee(rho=3.0, adjacency="replace-one")
    release = measured(
        CYCLE, query, q.table("a"), noise=Gaussian(3.0), guarantee=promise, total=600
    )
    release.save(tmp_path / "r")
    again = load_release(tmp_path / "r")
    assert again == release
    assert again.queries == release.queries
    assert [m.query.bind(CYCLE).labels for m in again.measurements] == [
        m.query.bind(CYCLE).labels for m in release.measurements
    ]
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "r").read_bytes()


def test_one_type_holds_tables_and_queries_and_its_tables_are_a_view_of_the_measurements():
    model = bpm.ModelSpecification.from_pgmpy(CYCLE)
    numbers = dict(model.tables(np.arange(model.size)))
    tables = bpm.NoisyStatistics.from_tables(CYCLE, numbers, noise=LAW)
    asked = measured(CYCLE, q.parities(2))
    assert type(tables) is type(asked) is NoisyStatistics
    assert bpm.Measurement is Measurement
    assert [each.values.tolist() for each in tables.measurements] == [
        table.ravel().tolist() for table in tables.tables.values()
    ]
    again = replace(asked, provenance=tables.provenance)
    assert again == asked
    assert not again.has_tables


def test_a_model_without_variables_has_a_release_without_measurements():
    assert NoisyStatistics.from_measurements(specification({}, []), []).flat.size == 0


@pytest.mark.parametrize(("states", "cliques"), AWKWARD.values(), ids=AWKWARD)
def test_the_matrix_answers_as_counting_records_by_hand_does(states, cliques):
    if not states:
        return
    model = specification(states, cliques)
    rng = np.random.default_rng(2)
    records = [tuple(rng.choice(len(s)) for s in model.domain.states) for _ in range(40)]
    counts = model.tables(
        np.concatenate([_counted(model, records, scope).ravel() for scope in model.scopes])
    )
    names = model.domain.variables
    inside = [
        s for c in model.cliques for k in range(1, len(c) + 1) for s in itertools.permutations(c, k)
    ]
    release = measured(model, *(q.table(*scope) for scope in inside))
    by_hand = [
        _counted(model, records, [names.index(v) for v in scope]).ravel() for scope in inside
    ]
    matrix = gather(release).matrix
    found = counts.flat if matrix is None else matrix @ counts.flat
    assert np.array_equal(found, np.concatenate(by_hand))


def _counted(model, records, scope):
    table = np.zeros([model.cardinalities[v] for v in scope], dtype=int)
    for record in records:
        table[tuple(record[v] for v in scope)] += 1
    return table


def test_a_release_of_queries_has_no_tables_and_says_where_its_numbers_are():
    with pytest.raises(ModelError, match="`measurements`"):
        _ = measured(CYCLE, q.parities(2)).tables
    assert not measured(CYCLE, q.parities(2)).has_tables
    assert not hasattr(measured(CYCLE, q.parities(2)), "tables")


@pytest.mark.parametrize(
    ("values", "law", "found"),
    [
        ([1.0, math.nan], Laplace(1.0), "finite"),
        ([1.0, math.nan], Suppressed(), "write -1 for a count that was suppressed"),
        ([1.0, math.inf], Laplace(1.0), "finite"),
        ([1.0, 2.5], DiscreteLaplace(1.0), "whole numbers"),
        ([[1.0, 2.0]], Laplace(1.0), "in one row"),
        ([True, False], Laplace(1.0), "in one row"),
    ],
)
def test_values_that_cannot_be_answers_are_refused(values, law, found):
    with pytest.raises(ModelError, match=found):
        Measurement(q.table("a"), values, law)


def test_what_is_no_measurement_is_refused():
    given = Measurement(q.table("a"), [1.0, 2.0], Laplace(1.0))
    for arguments in (
        ("a", [1.0], Laplace(1.0)),
        (q.table("a"), [1.0], 2.0),
        (q.table("a"), "ab", Laplace(1.0)),
    ):
        with pytest.raises(ArgumentError):
            Measurement(*arguments)
    for measurements in (given, 3, [("a", [1.0])]):
        with pytest.raises(ArgumentError, match="`measurements`"):
            NoisyStatistics.from_measurements(CYCLE, measurements)
    with pytest.raises(ModelError, match="must be 3 numbers"):
        NoisyStatistics.from_measurements(
            CYCLE, [Measurement(q.table(0), [1.0, 2.0], Laplace(1.0))]
        )
    with pytest.raises(ModelError, match="'nobody'"):
        NoisyStatistics.from_measurements(
            CYCLE, [Measurement(q.table("a", "nobody"), np.ones(4), Laplace(1.0))]
        )
    protected = PrivacyGuarantee(epsilon=1.0, adjacency="add-or-remove-one")
    exact = Measurement(q.parities(1), np.ones(9), NoNoise())
    with pytest.raises(PrivacyError, match=r"exact answers to parities\(1\)"):
        NoisyStatistics.from_measurements(CYCLE, [given, exact], guarantee=protected)
    with pytest.raises(PrivacyError, match="`total`"):
        NoisyStatistics.from_measurements(CYCLE, [given], guarantee=protected, total=5)


def test_the_number_of_records_weighs_every_measurement_that_tells_it_by_its_precision():
    three = declare({v: [0, 1, 2] for v in "abc"}, [("a", "b"), ("b", "c")])
    told = {  # the estimate from each, its variance
        q.table("a"): ([5.0, 6.0, 7.0], 18.0, 3 * 8.0),
        q.coarsened("b", b={"low": [0, 1], "2": [2]}): ([9.0, 8.0], 17.0, 2 * 8.0),
        q.pooled([("a",), ("b",), ("c",)]): ([20.0, 20.0, 20.0], 20.0, 3 * 8.0 / 9),
        q.parities(1): ([19.0, *[1.0] * 6], 19.0, 8.0),
        q.weighted("a", matrix=[[2, 2, 2], [0, 1, 0]]): ([30.0, 5.0], 15.0, 8.0 / 4),
    }
    untold = {
        q.parities(1, with_empty=False): [1.0] * 6,
        q.weighted("a", matrix=[[1, 1, 0]]): [3.0],
    }
    given = {query: values for query, (values, _, _) in told.items()} | untold
    release = NoisyStatistics.from_measurements(
        three, [Measurement(k, v, Laplace(2.0)) for k, v in given.items()]
    )
    estimates, variances = np.array([rest for _, *rest in told.values()]).T
    assert release.estimated_total == pytest.approx(np.average(estimates, weights=1 / variances))
    assert release.total_standard_error == pytest.approx((1 / variances).sum() ** -0.5)


def test_where_nothing_tells_the_number_of_records_fitting_says_what_would():
    unknown = measured(CYCLE, q.parities(2, with_empty=False))
    assert math.isnan(unknown.estimated_total)
    assert unknown.total_standard_error == math.inf
    with pytest.raises(ModelError, match="`total=`"):
        gather(unknown)
    assert gather(measured(CYCLE, q.parities(2, with_empty=False), total=50)).total == 50


def test_answers_that_count_impossible_cells_alone_are_zeros():
    network = declare({"a": [0, 1], "b": [0, 1]}, [("a", "b")], impossible=[{"a": 1, "b": 1}])
    query = q.weighted("a", "b", matrix=[[0, 0, 0, 5], [0, 0, 1, 1]])
    release = NoisyStatistics.from_measurements(
        network, [Measurement(query, [9.0, 4.0], Laplace(2.0))], total=9
    )
    assert release.flat.tolist() == [0.0, 4.0]
    assert gather(release).possible.tolist() == [False, True]


def test_releases_of_one_population_are_stacked_on_the_cells_of_both_models():
    states = {v: [0, 1, 2] for v in "abc"}
    first, second = (
        specification(states, cliques) for cliques in ([("a", "b"), ("c",)], [("b", "c"), ("a",)])
    )
    both = specification(states, [("a", "b"), ("b", "c")])
    counts, _ = simulated_counts(both, 50, np.random.default_rng(3))
    asked = {
        first: [q.table("b", "a"), q.parities(2)],
        second: [q.coarsened("b", "c", b={0: [0, 1, 2]})],
    }
    given, answers, labels = [], [], []
    for model, queries in asked.items():
        own = np.concatenate([both.project(counts, scope).ravel() for scope in model.scopes])
        bound = [query.bind(model) for query in queries]
        exact = [query.answers(own) for query in bound]
        given.append(
            NoisyStatistics.from_measurements(
                model, [*map(Measurement, queries, exact, [LAW] * len(bound))]
            )
        )
        answers += exact
        labels += [query.labels for query in bound]
    evidence = gather(given)
    assert evidence.specification == both
    assert np.array_equal(evidence.matrix @ counts, np.concatenate(answers))
    assert [query.labels for query in evidence.queries] == labels


def test_exact_counts_that_are_not_whole_are_called_exact():
    with pytest.raises(
        ModelError, match="because they are exact counts, got others; state the noise"
    ):
        Measurement(q.table("a"), np.array([1.5, 2.0]), NoNoise())


def test_a_file_of_table_queries_alone_is_written_again_as_the_equal_release_of_tables(tmp_path):
    release = measured(
        CYCLE, *(q.table(*clique) for clique in ModelSpecification.from_pgmpy(CYCLE).cliques)
    )
    release.save(tmp_path / "tables")
    document, array = document_and_array(tmp_path / "tables")
    scopes = document["content"]["cliques"]
    queries = [{"query": "table", "scope": scope, "groups": []} for scope in scopes]
    document["content"] |= {"kind": "noisy-measurements", "queries": queries}
    write_sealed(tmp_path / "queries", document, array)
    again = load_release(tmp_path / "queries")
    assert again == release
    assert (again.kind, again.has_tables) == ("noisy-statistics", True)
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "tables").read_bytes()
