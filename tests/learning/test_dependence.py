"""How two variables of a learned model depend on each other given all others, against the whole joint table."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest

from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.learning import LearnedIsing, LearnedPotentials
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release import Provenance

STAMP = {
    "guarantee": PrivacyGuarantee(rho=1.0, adjacency="replace-one"),
    "provenance": Provenance(mechanism="made up"),
}
STATES = {
    0: ["x", "y"],
    "b": [1, 2, 3],
    ("c", 1): list("uvwz"),
    "one": ["only"],
    "alone": [True, False],
}
CLIQUES = ((("c", 1), 0, "b"), ("alone", "b"), ("one", 0))  # axes in no order
COUPLED = [(0, "b"), (0, ("c", 1)), ("b", ("c", 1)), ("alone", "b")]


def learned(seed: int, states=STATES, cliques=CLIQUES, impossible=()) -> LearnedPotentials:
    domain = Domain.from_states(states)
    model = ModelSpecification(domain=domain, cliques=cliques, impossible=impossible)
    flat = np.random.default_rng(seed).normal(size=model.size)
    if model.possible is not None:
        flat[~model.possible] = -np.inf
    return LearnedPotentials(domain=domain, model=model, tables=model.tables(flat), **STAMP)


def joint_of(model: LearnedPotentials) -> np.ndarray:
    """Probabilities of all records, from the potentials alone."""
    cards = model.domain.cardinalities
    found = np.zeros(cards)
    for position, scope in enumerate(model.specification.scopes):
        table = model.tables.table(position).transpose(np.argsort(scope))
        found = found + table.reshape([k if v in scope else 1 for v, k in enumerate(cards)])
    return np.exp(found) / np.exp(found).sum()


def definitions(joint: np.ndarray, i: int, j: int) -> tuple[float, np.ndarray]:
    """Conditional mutual information by entropies, and the log ratio to independence given the others."""

    def entropy(*summed):
        p = joint.sum(axis=summed)
        return -float(np.sum(p[p > 0] * np.log(p[p > 0])))

    others = tuple(v for v in range(joint.ndim) if v not in (i, j))
    together = joint.sum(axis=others)
    apart = joint.sum(axis=i, keepdims=True) * joint.sum(axis=j, keepdims=True)
    rest = joint.sum(axis=(i, j), keepdims=True)
    apart = np.divide(apart, rest, out=np.zeros_like(apart), where=rest > 0).sum(axis=others)
    with np.errstate(divide="ignore"):
        return entropy(i) + entropy(j) - entropy(i, j) - entropy(), np.log(together / apart)


@pytest.mark.parametrize("seed", range(3))
def test_dependence_and_association_are_those_of_the_definition(seed):
    model, names = learned(seed), list(STATES)
    joint = joint_of(model)
    graph = model.graph(weight="dependence")
    assert {frozenset(edge) for edge in graph.edges} == {frozenset(pair) for pair in COUPLED}
    for i, j in itertools.combinations(range(len(names)), 2):
        information, ratio = definitions(joint, i, j)
        np.testing.assert_allclose(model.association(names[i], names[j]), ratio, atol=1e-12)
        np.testing.assert_allclose(model.association(names[j], names[i]), ratio.T, atol=1e-12)
        found = graph.get_edge_data(names[i], names[j], {"weight": 0.0})["weight"]
        assert 1 - found**2 == pytest.approx(np.exp(-2 * information), abs=1e-12)


def test_by_records_that_are_drawn_they_are_nearly_the_same():
    """5,184 configurations: 1,000 are drawn, which leaves 3 standard errors of a mean information below a tenth."""
    states = {v: range(3) for v in "abcd"} | {v: range(4) for v in "efg"}
    model = learned(
        5, states, (("a", "b", "e"), ("b", "c"), ("c", "d", "f"), ("f", "g"), ("a", "g"))
    )
    joint = joint_of(model)
    assert joint.size > 4096
    graph = model.graph(weight="dependence")
    for a, b, found in graph.edges(data="weight"):
        information, ratio = definitions(joint, *sorted(("abcdefg".index(a), "abcdefg".index(b))))
        assert found == pytest.approx(np.sqrt(1 - np.exp(-2 * information)), rel=0.1)
        np.testing.assert_allclose(model.association(*sorted((a, b))), ratio, atol=0.25)
    assert learned(5, states, model.model.cliques).graph(weight="dependence").edges == graph.edges
    again = learned(5, states, model.model.cliques).graph(weight="dependence")
    assert nx.utils.graphs_equal(again, graph)  # equal models have equal numbers
    assert np.all(
        model.association("a", "d") == pytest.approx(0, abs=1e-12)
    )  # no clique holds the two


def test_states_that_hardly_occur_set_the_largest_weight_and_not_the_dependence():
    domain = Domain.from_states({"a": range(3), "b": range(2)})
    model = ModelSpecification(domain=domain, cliques=(("a", "b"),))
    rare = np.array([[0.1, 0.0], [0.0, 0.1], [-24.0, -16.0]])
    found = LearnedPotentials(
        domain=domain, model=model, tables=model.tables(rare.ravel()), **STAMP
    )
    largest, dependence = (
        found.graph(weight=w).edges["a", "b"]["weight"] for w in ("largest", "dependence")
    )
    assert largest > 2
    assert dependence == pytest.approx(
        0.05, rel=0.02
    )  # that of the two by two states that do occur
    assert found.graph(0.2, weight="dependence").number_of_edges() == 0
    assert found.graph(0.2).number_of_edges() == 1


def test_of_a_single_weak_pair_the_dependence_is_its_coupling():
    A = np.array([[0.0, -0.05, 0.0], [-0.05, 0.0, 0.0], [0.0, 0.0, 0.0]])
    domain = Domain.from_states({v: [0, 1] for v in "abc"})
    ising = LearnedIsing(domain=domain, coupling_matrix=A, field_vector=np.zeros(3), **STAMP)
    assert ising.graph().edges["a", "b"]["weight"] == -0.05
    assert ising.graph(weight="dependence").edges["a", "b"]["weight"] == pytest.approx(
        0.05, rel=0.01
    )
    np.testing.assert_allclose(ising.association("a", "b")[0], np.log([0.95, 1.05]), atol=1e-4)
    assert np.all(ising.association("a", "c") == pytest.approx(0, abs=1e-12))


def test_impossible_states_are_borne():
    states = {"a": range(2), "b": range(2), "c": range(2)}
    none = [
        (("a", 1), ("b", 1)),
        (("b", 0), ("c", 0)),
        (("b", 1), ("c", 0)),
    ]  # nobody is in state 0 of c
    model = learned(1, states, (("a", "b"), ("b", "c")), impossible=none)
    joint = joint_of(model)
    information, _ = definitions(joint, 0, 1)
    found = model.graph(weight="dependence").edges["a", "b"]["weight"]
    assert found == pytest.approx(np.sqrt(1 - np.exp(-2 * information)))
    assert model.association("a", "b")[1, 1] < -100


def test_a_model_too_wide_for_marginals_has_a_dependence():
    p = 30
    A = np.full((p, p), 0.004) - 0.004 * np.eye(p)
    domain = Domain.from_states({f"v{i}": [0, 1] for i in range(p)})
    wide = LearnedIsing(domain=domain, coupling_matrix=A, field_vector=np.zeros(p), **STAMP)
    np.testing.assert_allclose(wide.association("v0", "v1")[0], np.log([1.004, 0.996]), rtol=0.05)


def test_what_cannot_be_asked_is_refused():
    model = learned(0)
    with pytest.raises(
        ArgumentError, match="`weight` must be 'largest' or 'dependence', got 'size'"
    ):
        model.graph(weight="size")
    with pytest.raises(ModelError, match="once"):
        model.association("b", "b")
    with pytest.raises(ModelError, match="not declared"):
        model.association("b", "z")
