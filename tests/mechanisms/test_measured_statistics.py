"""What learning mechanisms measured, as statistics that every estimator reads."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ModelError, ModelTooLargeError
from bayesprivmrf.mechanisms import ParityQueries, SelectMeasure
from bayesprivmrf.privacy import Adjacency
from bayesprivmrf.release import NoisyStatistics

ADJACENCIES = ["add-or-remove-one", "replace-one"]
NAMES = ("z", 0, "a", 7, "far")  # neither sorted nor all text


def frame(records: int = 4000) -> pd.DataFrame:
    """Five variables in a chain, the last by itself; declared as ("c", "b"), so that "c" is -1."""
    rng = np.random.default_rng(0)
    spins = rng.choice([-1, 1], (records, 5), p=[0.4, 0.6])
    for v in (1, 2, 3):
        spins[:, v] = np.where(rng.random(records) < 0.8, spins[:, v - 1], -spins[:, v - 1])
    return pd.DataFrame({name: np.where(spins[:, v] > 0, "b", "c") for v, name in enumerate(NAMES)})


def network(cliques=None):
    return bpm.declare(states={name: ["c", "b"] for name in NAMES}, cliques=cliques)


def exact(statistics: NoisyStatistics, data: pd.DataFrame) -> np.ndarray:
    """What the queries of a release say of the records themselves."""
    spins = np.where(data[list(NAMES)] == "b", 1, 0)
    model = statistics.specification
    tables = [np.zeros(shape, dtype=int) for shape in model.shapes]
    for table, scope in zip(tables, model.scopes, strict=True):
        np.add.at(table, tuple(spins[:, list(scope)].T), 1)
    flat = np.concatenate([table.ravel() for table in tables])
    return np.concatenate(
        [each.query.bind(model).answers(flat) for each in statistics.measurements]
    )


def released(kind: str, adjacency: str, rho: float = 20.0, cliques=None):
    if kind == "parities":
        mechanism = ParityQueries(rho=rho, order=2, method="gaussian", adjacency=adjacency)
    elif kind == "bought":  # "auto" pays for the number of records apart
        mechanism = ParityQueries(rho=rho, order=2, adjacency=adjacency)
    else:
        mechanism = SelectMeasure(rho=rho, degree=1, measure=kind, adjacency=adjacency)
    return mechanism.release(network(cliques), frame(), rng=1)


KINDS = ["moments", "tables", "parities", "bought"]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_answers_are_those_of_the_queries_with_the_noise_of_the_stated_law(kind, adjacency):
    learned = released(kind, adjacency)
    statistics = learned.statistics
    assert statistics is not None
    off = np.abs(statistics.flat - exact(statistics, frame()))
    assert (off <= 5 * np.sqrt(statistics.cell_variances()) + 1e-9).all()
    assert off.any()
    assert statistics.guarantee == learned.guarantee
    assert statistics.provenance == learned.provenance
    assert statistics.provenance.simulated


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_records_is_exact_only_where_it_is_public(kind, adjacency):
    statistics = released(kind, adjacency).statistics
    is_public = Adjacency.checked(adjacency) is Adjacency.REPLACE_ONE
    assert statistics.total == (4000 if is_public else None)
    assert (statistics.total_standard_error == 0) == is_public
    assert abs(statistics.estimated_total - 4000) < 6 * max(statistics.total_standard_error, 1e-9)


@pytest.mark.parametrize("kind", ["moments", "parities"])
@pytest.mark.parametrize("estimator", [bpm.NaiveMLE(), bpm.CGM(), bpm.NoiseAwareMAP()])
def test_estimators_agree_with_the_mechanism_where_noise_is_tiny(kind, estimator):
    learned = released(kind, "add-or-remove-one")
    own = (learned.fit() if kind == "parities" else learned).solution
    found = estimator.fit(learned.statistics)
    for pair in (("z", 0), (0, "a"), ("a", 7)):
        np.testing.assert_allclose(
            found.marginal(pair).values, own.marginal(pair).values, atol=0.005
        )
    np.testing.assert_allclose(found.marginal("far").values, own.marginal("far").values, atol=0.005)


def test_sums_of_pairs_stand_in_the_order_of_the_chosen_pairs():
    learned = released("moments", "replace-one")
    singles, products = learned.statistics.measurements
    assert singles.query.bind(learned.statistics.specification).labels == tuple(map(str, NAMES))
    cliques = [scope for scope in learned.statistics.specification.cliques if len(scope) == 2]
    labels = products.query.bind(learned.statistics.specification).labels
    assert labels == tuple(f"{a} * {b}" for a, b in cliques)
    assert learned.map.plan.one_way == singles.noise
    assert learned.map.plan.two_way == products.noise


def test_variables_in_no_chosen_pair_are_cliques_by_themselves():
    for kind in ("moments", "tables"):
        statistics = released(kind, "add-or-remove-one").statistics
        assert ("far",) in statistics.specification.cliques
        assert {v for scope in statistics.specification.cliques for v in scope} == set(NAMES)


@pytest.mark.parametrize(
    "cliques", [None, [("z", 0, "a"), ("a", 7), ("far",)], [(name,) for name in NAMES]]
)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_rows_of_parities_are_in_the_order_of_the_monomials(cliques, adjacency):
    learned = ParityQueries(rho=1.0, order=2, method="gaussian", adjacency=adjacency).release(
        network(cliques), frame(), rng=2
    )
    (measured,) = learned.statistics.measurements
    with_empty = adjacency == "add-or-remove-one"
    expected = [" * ".join(str(NAMES[v]) for v in members) or "records" for members in learned.sets]
    labels = measured.query.bind(learned.statistics.specification).labels
    assert list(labels) == expected[not with_empty :]
    assert measured.values.tolist() == learned.sums[not with_empty :].tolist()
    assert measured.noise == learned.law


def test_sums_without_a_law_of_their_noise_are_no_measurements():
    learned = ParityQueries(rho=1.0, order=2, method="pmw").release(network(), frame(), rng=1)
    assert learned.statistics is None


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_release_offers_the_same(kind, adjacency, tmp_path):
    learned = released(kind, adjacency)
    learned.save(tmp_path / "learned.release")
    again = bpm.load_release(tmp_path / "learned.release").statistics
    assert again == learned.statistics
    assert type(again) is NoisyStatistics
    assert again.has_tables == (kind == "tables")


def test_too_wide_a_graph_is_a_clear_error_of_the_estimator():
    data = pd.DataFrame(np.random.default_rng(1).integers(0, 2, (500, 40)), columns=[*range(40)])
    wide = bpm.declare(states={v: [0, 1] for v in range(40)})
    learned = ParityQueries(rho=10.0, order=2, method="gaussian").release(wide, data, rng=1)
    with pytest.raises(ModelTooLargeError, match="GiB"):
        bpm.NaiveMLE().fit(learned.statistics)


def test_one_variable_and_no_pair_to_choose_are_refused_before_anything_is_read():
    one = bpm.declare(states={0: [0, 1]})
    for mechanism in (SelectMeasure(rho=1.0, degree=1), ParityQueries(rho=1.0, order=1)):
        with pytest.raises(ModelError, match="at least two variables"):
            mechanism.release(one, "no data at all")
    with pytest.raises(ModelError, match="two variables with two or more states"):
        SelectMeasure(rho=1.0, degree=1).release(
            network([(name,) for name in NAMES]), "no data at all"
        )


def test_products_of_pairs_alone_are_a_query():
    bound = q.parities(2, with_empty=False, least=2).bind(
        network([("z", 0), (0, "a"), (7,), ("far",)])
    )
    assert bound.labels == ("z * 0", "0 * a")
    assert bound.total_weights is None
    with pytest.raises(bpm.errors.ArgumentError, match="least"):
        q.parities(2, least=3)
