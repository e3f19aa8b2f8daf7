"""Measurements as mbi and OpenDP hold them are read as queries with the right values and noise."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, DataError, ModelError
from bayesprivmrf.inference import gather
from bayesprivmrf.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from bayesprivmrf.readers import from_mbi, from_opendp

NETWORK = bpm.declare({"a": ["x", "y"], "b": ["u", "v", "missing"]}, [("a", "b")])
TRUTH = np.array([[50.0, 20.0, 9.0], [31.0, 7.0, 3.0]])


@dataclass
class Linear:
    """What mbi's LinearMeasurement has."""

    noisy_measurement: Any
    clique: Any
    stddev: Any = 1.0
    query: Any = field(default=None)


def whole(factor):
    return factor.datavector()


def test_whole_tables_are_tables_whatever_the_order_of_the_clique():
    release = from_mbi(
        NETWORK, [Linear(TRUTH.T.ravel(), ("b", "a"), 2.0, whole), Linear([79, 41], "a", 3.0)]
    )
    assert [(m.query, m.noise) for m in release.measurements] == [
        (q.table("b", "a"), Gaussian(2.0)),
        (q.table("a"), Gaussian(3.0)),
    ]
    assert release.guarantee is None
    assert from_mbi(NETWORK, [Linear([79, 41], ["a"], 2.0)], noise=Laplace).noise == (
        Laplace(2**0.5),
    )


QUERIES = {
    "a slice": (lambda f: f.datavector()[1:], TRUTH.ravel()[1:], np.ones(5)),
    "a prefix": (lambda f: f.values.flatten()[:2], TRUTH.ravel()[:2], np.ones(2)),
    "sums": (lambda f: f.datavector(flatten=False).sum(axis=0), TRUTH.sum(axis=0), np.ones(3)),
    "weights": (lambda f: f.datavector() * np.arange(1, 7), TRUTH.ravel(), np.arange(1, 7)),
    "twice": (lambda f: f.datavector() * 2, TRUTH.ravel(), 2 * np.ones(6)),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_becomes_its_matrix(name):
    query, answers, factors = QUERIES[name]
    release = from_mbi(NETWORK, [Linear(answers * factors, ("a", "b"), 2.0, query)], total=120)
    evidence = gather(release)
    np.testing.assert_allclose(evidence.matrix @ TRUTH.ravel(), evidence.noisy_counts, rtol=1e-6)
    weights = evidence.matrix.max(axis=1).toarray().ravel()  # of a row's cells
    counts = evidence.noisy_counts / weights
    deviations = evidence.spread([law.standard_deviation for law in evidence.noise]) / weights
    np.testing.assert_allclose(np.sort(counts), np.sort(answers), rtol=1e-6)
    np.testing.assert_allclose(
        deviations[np.argsort(counts)], (2.0 / factors)[np.argsort(answers)], rtol=1e-6
    )


def test_tuples_of_older_versions_are_read():
    matrix = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1]])
    for given in (matrix, csr_array(matrix)):
        release = from_mbi(
            NETWORK, [(given, [70.0, 50.0], 1.5, ("a", "b")), (None, [79, 41], 1.0, ("a",))]
        )
        assert release.measurements[0].query == q.weighted("a", "b", matrix=matrix)
        assert release.measurements[1].query == q.table("a")
    assert from_mbi(NETWORK, [(np.eye(2), [79, 41], 1.0, "a")]).measurements[0].query == q.table(
        "a"
    )


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([Linear([1, 2, 3], ("a",))], DataError, "must have 2 numbers"),
        ([Linear([1, 2], ("z",))], ModelError, "not declared"),
        (
            [Linear([1, 2], ("a",), 1.0, lambda f: f.datavector()[:1])],
            DataError,
            "must have 1 numbers",
        ),
        ([Linear([1, 2], ("a",), 1.0, lambda f: f.rows)], ModelError, "failed with AttributeError"),
        ([Linear([1], ("a",), 1.0, lambda f: f.values @ [1, 0.3])], ModelError, "whole weights"),
        ([Linear([1, 2], ("a",), 1.0, lambda f: f.values / 2)], ModelError, "multiply the matrix"),
        ([(np.eye(2) * 5e-7, [1, 2], 1.0, "a")], ModelError, "multiply the matrix"),
        ([Linear([1, 2], ("a",), 1e200)], ArgumentError, "finite"),
        ([Linear([1, 2], ("a",), -1.0)], ArgumentError, "at least 0"),
        ([Linear([1, 2], ("a",), "one")], ArgumentError, "at least 0"),
        ([3], ArgumentError, "must have `noisy_measurement`"),
        (3, ArgumentError, "must be a list"),
    ],
)
def test_what_is_no_measurement_of_the_model_is_refused(given, error, message):
    with pytest.raises(error, match=message):
        from_mbi(NETWORK, given)


def test_real_measurements_of_mbi_are_read():
    mbi = pytest.importorskip("mbi", reason="mbi is an extra of the benchmarks")
    domain = mbi.Domain(["a", "b"], [2, 3])
    factor = mbi.Factor(domain, TRUTH)
    given = [
        mbi.LinearMeasurement(factor.datavector(), ("a", "b"), 2.0),
        mbi.LinearMeasurement(
            factor.project(("b",)).datavector(), ("b",), 1.0, mbi.Factor.datavector
        ),
    ]
    release = from_mbi(NETWORK, given)
    assert [m.query for m in release.measurements] == [q.table("a", "b"), q.table("b")]
    np.testing.assert_allclose(release.measurements[0].values, TRUTH.ravel())


@dataclass
class Table:
    """What OpenDP's ContingencyTable has."""

    keys: Any
    marginals: Any


class Flat:
    """What OpenDP's collection of measurements has."""

    def __init__(self, *measurements):
        self._measurements = list(measurements)

    def flatten(self):
        return self._measurements


KEYS = {"a": ["y", "x"], "b": [None, "v", "u"]}
TURNED = TRUTH[::-1, ::-1]


@pytest.mark.parametrize("shape", ["flat", "mapping", "lists"])
def test_keys_in_another_order_are_turned_to_the_declared_states(shape):
    pair = Linear(TURNED.ravel(), ("a", "b"), 2.0, whole)
    other = Linear(TURNED.sum(axis=0), ("b",), 4.0)
    held = {"flat": Flat(pair, other), "mapping": {("a", "b"): pair, ("b",): other},
            "lists": {("a", "b"): [pair], ("b",): [other]}}[shape]  # fmt: skip
    release = from_opendp(NETWORK, Table(KEYS, held), noise="discrete-gaussian", missing="missing")
    assert release.measurements[0].query == q.table("a", "b")
    np.testing.assert_array_equal(release.measurements[0].values, TRUTH.ravel())
    np.testing.assert_array_equal(release.measurements[1].values, TRUTH.sum(axis=0))
    assert [law.scale for law in release.noise] == [2.0, 4.0]


def test_a_prefix_and_a_total_are_read_and_laplace_noise_has_the_drawn_scale():
    prefix = Linear(TURNED.sum(axis=0)[:2], ("b",), 2**0.5 * 3, lambda f: f.datavector()[:2])
    total = Linear([121.0], (), 2**0.5)
    release = from_opendp(
        NETWORK, Table(KEYS, Flat(prefix, total)), noise=DiscreteLaplace, missing="missing"
    )
    assert [law.name for law in release.noise] == ["discrete-laplace"] * 2
    assert [law.scale for law in release.noise] == pytest.approx([3.0, 1.0])
    assert release.estimated_total == 121
    (first, _) = release.measurements
    np.testing.assert_allclose(first.query.bind(NETWORK).answers(TRUTH.ravel()), first.values)


@pytest.mark.parametrize(
    ("keys", "kept", "error", "message"),
    [
        (KEYS, {}, ModelError, "`missing=`"),
        (KEYS, {"missing": "gone"}, ModelError, "declare the keys"),
        ({"a": ["y", "x"]}, {}, ModelError, "column 'b'"),
        ({**KEYS, "b": ["u", "v"]}, {}, ModelError, "each once, got 2 keys"),
        ({**KEYS, "b": ["u", "v", "w"]}, {}, ModelError, "got 'w'"),
        ([1], {}, ArgumentError, "`keys` and `marginals`"),
        (
            {**KEYS, "b": ["u", "v", "missing"]},
            {"noise": "gauss"},
            ArgumentError,
            "known noise distribution",
        ),
    ],
)
def test_keys_that_are_not_the_declared_states_are_refused(keys, kept, error, message):
    table = Table(keys, Flat(Linear(TURNED.ravel(), ("a", "b"), 2.0)))
    with pytest.raises(error, match=message):
        from_opendp(NETWORK, table, **{"noise": DiscreteGaussian, **kept})


def test_opendps_own_collection_of_measurements_is_read():
    """Made by hand of its own classes: its releases need another version of polars than is tested here."""
    mbi = pytest.importorskip("mbi", reason="mbi is an extra of the benchmarks")
    opendp, pl = pytest.importorskip("opendp.extras.mbi"), pytest.importorskip("polars")
    from opendp.extras.mbi._utilities import SelectPrefixQuery

    held = opendp.Marginals().add(
        mbi.LinearMeasurement(TURNED.sum(axis=0)[:2], ("b",), 3.0, SelectPrefixQuery(2)),
        mbi.LinearMeasurement(TURNED.ravel(), ("a", "b"), 2.0),
        mbi.LinearMeasurement(TRUTH.sum(keepdims=True).ravel() + 1, (), 1.0),
    )
    keys = {name: pl.Series(name, key) for name, key in KEYS.items()}
    release = from_opendp(NETWORK, Table(keys, held), noise="discrete-gaussian", missing="missing")
    assert [law.scale for law in release.noise] == [3.0, 2.0, 1.0]
    first, second, _ = release.measurements
    np.testing.assert_allclose(first.query.bind(NETWORK).answers(TRUTH.ravel()), first.values)
    np.testing.assert_array_equal(second.values, TRUTH.ravel())


def test_numbers_in_another_shape_than_their_table_are_refused():
    with pytest.raises(DataError, match=r"have the shape of its table, \(2, 3\)"):
        from_mbi(NETWORK, [Linear(TRUTH.T, ("a", "b"))])
    assert from_mbi(NETWORK, [Linear(TRUTH, ("a", "b"))]).flat.tolist() == TRUTH.ravel().tolist()


def test_a_clique_may_be_a_single_number():
    network = bpm.declare({0: [1, 2]}, [(0,)])
    assert from_mbi(network, [Linear([3, 4], 0)]).measurements[0].query == q.table(0)
