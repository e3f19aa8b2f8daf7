"""What learnt models of every kind have in common: a graph, couplings and fields of the same distribution."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.learning import LearnedIsing, LearnedMonomials, LearnedPairwise, LearnedPotentials
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release import Provenance

STAMP = {
    "guarantee": PrivacyGuarantee(rho=1.0, adjacency="replace-one"),
    "provenance": Provenance(mechanism="made up"),
}
BINARY = Domain.from_states({"z": ["no", "yes"], 0: [True, False], "a": [1, 2], "lonely": ["p", "q"]})
MIXED = Domain.from_states({"z": ["no", "yes"], 0: [7, 5, 6], "one": ["x"], "a": [1, 2, 3, 4]})


def monomials(order=2) -> LearnedMonomials:
    sets = Monomials.complete(4, order)
    rng = np.random.default_rng(3)
    return LearnedMonomials(domain=BINARY, sets=sets, coefficients=rng.normal(size=len(sets)), **STAMP)


def potentials(
    domain=BINARY, cliques=(("a", "z"), (0, "a"), ("lonely",)), impossible=()
) -> LearnedPotentials:
    model = ModelSpecification(domain=domain, cliques=cliques, impossible=impossible)
    flat = np.random.default_rng(4).normal(size=model.size)
    if model.possible is not None:
        flat[~model.possible] = -np.inf
    return LearnedPotentials(domain=domain, model=model, tables=model.tables(flat), **STAMP)


def ising() -> LearnedIsing:
    A = np.zeros((4, 4))
    A[0, 1] = A[1, 0] = -0.4
    return LearnedIsing(domain=BINARY, coupling_matrix=A, field_vector=np.ones(4), **STAMP)


def pairwise() -> LearnedPairwise:
    W = np.zeros((10, 10))
    W[:2, 2:5] = np.outer([1, -1], [0.5, -0.2, -0.3])
    return LearnedPairwise(domain=MIXED, coupling_matrix=W + W.T, field_vector=np.zeros(10), **STAMP)


def log_probabilities(model) -> np.ndarray:
    """Of all records, from the potentials alone."""
    cells = np.array(list(itertools.product(*map(range, model.domain.cardinalities))))
    found = np.zeros(len(cells))
    for scope, table in zip(model.specification.scopes, model.potentials.values(), strict=True):
        found += np.asarray(table)[tuple(cells[:, list(scope)].T)]
    return found - np.log(np.exp(found).sum())


@pytest.mark.parametrize("make", [monomials, potentials])
def test_couplings_and_fields_of_two_states_say_the_same_distribution(make):
    model = make()
    A, h = model.couplings, model.fields
    assert A.dims == ("variable", "other")
    assert h.dims == ("variable",)
    assert list(A.coords["other"].values) == list(h.coords["variable"].values) == list(BINARY.variables)
    spins = np.array(list(itertools.product([-1, 1], repeat=4)))
    expected = np.einsum("ri,ij,rj->r", spins, A.values, spins) / 2 + spins @ h.values
    np.testing.assert_allclose(
        log_probabilities(model), expected - np.log(np.exp(expected).sum()), atol=1e-12
    )


def test_couplings_and_fields_of_any_alphabet_say_the_same_distribution():
    model = potentials(MIXED, cliques=(("a", "z"), (0, "a"), ("one", "z"), ("one",)))
    names, W, theta = MIXED.variables, model.couplings, model.fields
    expected = []
    for cell in itertools.product(*map(range, MIXED.cardinalities)):
        at = dict(zip(names, cell, strict=True))
        pairs = sum(float(W[i, j].values[at[i], at[j]]) for i, j in W)
        expected.append(pairs + sum(float(theta[v].values[at[v]]) for v in names))
    expected = np.array(expected)
    np.testing.assert_allclose(
        log_probabilities(model), expected - np.log(np.exp(expected).sum()), atol=1e-12
    )
    assert all(np.abs(W[pair].values.sum(axis=axis)).max() < 1e-12 for pair in W for axis in (0, 1))
    assert W["a", "z"].dims == ("a", "z")


@pytest.mark.parametrize("name", ["couplings", "fields"])
@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        (monomials(order=3), "use `monomials`"),
        (potentials(cliques=(("a", "z", 0), ("lonely",))), "3 variables; use `potentials`"),
        (potentials(impossible=((("a", 1), ("z", "no")),)), "impossible cells; use `potentials`"),
    ],
)
def test_a_model_of_more_than_pairs_says_what_to_use(model, remedy, name):
    with pytest.raises(ModelError, match=remedy):
        getattr(model, name)


@pytest.mark.parametrize("make", [ising, pairwise, monomials, potentials])
@pytest.mark.parametrize("threshold", [math.nan, -0.1, math.inf, -math.inf, True, "0.1", None])
def test_a_threshold_that_is_no_size_is_refused(make, threshold):
    with pytest.raises(ArgumentError, match="`threshold` must be a finite size"):
        make().graph(threshold)


@pytest.mark.parametrize("make", [ising, pairwise, monomials, potentials])
def test_an_edge_is_there_where_its_weight_exceeds_the_threshold(make):
    model = make()
    whole = model.graph()
    weights = sorted(abs(weight) for *_, weight in whole.edges(data="weight"))
    assert weights
    assert all(weight > 0 for weight in weights)
    for threshold in (0.0, np.float32(0.1), weights[0], weights[-1]):
        graph = model.graph(threshold)
        assert list(graph.nodes) == list(model.domain.variables)
        expected = {frozenset(e[:2]) for e in whole.edges(data="weight") if abs(e[2]) > threshold}
        assert {frozenset(edge) for edge in graph.edges} == expected


def test_one_coupling_is_one_pair():
    assert "couplings  1 pair\n" in repr(ising())
    assert "interactions  6 of 2, 4 of 3 variables\n" in repr(monomials(order=3))
