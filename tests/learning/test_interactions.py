"""Interactions weighed by how often states occur, against their definition on the whole joint table."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest

from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError
from bayesprivmrf.learning import LearnedIsing, LearnedPotentials
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee
from bayesprivmrf.release.base import Provenance

STAMP = {
    "guarantee": PrivacyGuarantee(rho=1.0, adjacency=Adjacency.REPLACE_ONE),
    "provenance": Provenance(mechanism="DPSGD"),
}
DOMAIN = Domain.from_states(
    {0: ["x", "y"], "b": [1, 2, 3], ("c", 1): list("uvwz"), "one": ["only"], "alone": [True, False]}
)
CLIQUES = ((("c", 1), 0, "b"), ("alone", "b"), ("one", 0))  # axes in no order
COUPLED = [(0, "b"), (0, ("c", 1)), ("b", ("c", 1)), ("alone", "b")]


def learned(seed: int, domain: Domain = DOMAIN, cliques=CLIQUES, shift=None) -> LearnedPotentials:
    model = ModelSpecification(domain=domain, cliques=cliques)
    flat = np.random.default_rng(seed).normal(size=model.size)
    return LearnedPotentials(
        domain=domain, model=model, tables=model.tables(flat if shift is None else flat + shift), **STAMP
    )


def log_joint(model: LearnedPotentials) -> np.ndarray:
    cards = model.domain.cardinalities
    found = np.zeros(cards)
    for position, scope in enumerate(model.specification.scopes):
        table = model.tables.table(position).transpose(np.argsort(scope))
        found = found + table.reshape([k if v in scope else 1 for v, k in enumerate(cards)])
    return found


def definition(model: LearnedPotentials) -> dict[tuple[int, ...], np.ndarray]:
    """Inclusion and exclusion of means of log p over independent draws of the margins."""
    f, axes = log_joint(model), range(len(model.domain.cardinalities))
    joint = np.exp(f) / np.exp(f).sum()
    margins = [joint.sum(axis=tuple(a for a in axes if a != v)) for v in axes]

    def mean_given(subset):
        found = f
        for v in set(axes) - set(subset):
            weights = margins[v].reshape([-1 if a == v else 1 for a in axes])
            found = (found * weights).sum(axis=v, keepdims=True)
        return found

    weight = np.ones(())
    for margin in margins:
        weight = np.multiply.outer(weight, margin)
    parts = {}
    for size in range(len(margins) + 1):
        for subset in itertools.combinations(axes, size):
            whole = sum(
                (-1) ** (size - k) * mean_given(smaller)
                for k in range(size + 1)
                for smaller in itertools.combinations(subset, k)
            )
            parts[subset] = np.broadcast_to(whole, f.shape)
    return {subset: (part, float((weight * part**2).sum())) for subset, part in parts.items()}


@pytest.mark.parametrize("seed", range(3))
def test_tables_and_sizes_are_those_of_the_definition(seed):
    model, names = learned(seed), DOMAIN.variables
    parts = definition(model)
    graph = model.graph(weight="typical")
    assert {frozenset(edge) for edge in graph.edges} == {frozenset(pair) for pair in COUPLED}
    for i, j in itertools.combinations(range(len(names)), 2):
        own = parts[i, j][0].mean(axis=tuple(v for v in range(len(names)) if v not in (i, j)))
        np.testing.assert_allclose(model.coupling_table(names[i], names[j]), own, atol=1e-12)
        np.testing.assert_allclose(model.coupling_table(names[j], names[i]), own.T, atol=1e-12)
        size = sum(square for subset, (_, square) in parts.items() if {i, j} <= set(subset)) ** 0.5
        assert graph.get_edge_data(names[i], names[j], {"weight": 0.0})["weight"] == pytest.approx(
            size, abs=1e-12
        )


def test_where_a_single_variables_effect_stands_changes_nothing():
    field = np.array([0.3, -2.0, 1.0])
    model = learned(1)
    first, second = (np.zeros(model.model.size) for _ in range(2))
    first[:24] = np.tile(field, 8)  # the last axis of the first clique is b
    second[24:30] = -np.tile(field, 2)  # and of the second
    moved = learned(1, shift=first + second)
    assert not np.allclose(moved.tables.flat, model.tables.flat)
    for a, b in COUPLED:
        np.testing.assert_allclose(moved.coupling_table(a, b), model.coupling_table(a, b), atol=1e-12)


def test_a_state_that_hardly_occurs_sets_the_largest_weight_and_not_the_typical_one():
    domain = Domain.from_states({"a": range(3), "b": range(2)})
    model = ModelSpecification(domain=domain, cliques=(("a", "b"),))
    rare = np.array([[0.1, 0.0], [0.0, 0.1], [-24.0, -16.0]])
    found = LearnedPotentials(domain=domain, model=model, tables=model.tables(rare.ravel()), **STAMP)
    largest, typical = (found.graph(weight=w).edges["a", "b"]["weight"] for w in ("largest", "typical"))
    assert largest > 2
    assert typical == pytest.approx(0.05, rel=0.1)  # that of the two by two states that do occur
    assert found.graph(0.2, weight="typical").number_of_edges() == 0
    assert found.graph(0.2).number_of_edges() == 1


def test_of_even_two_state_variables_the_typical_weight_is_the_coupling_in_size():
    A = nx.to_numpy_array(nx.cycle_graph(4)) * np.array([-0.4])
    domain = Domain.from_states({f"v{i}": [0, 1] for i in range(4)})
    ising = LearnedIsing(domain=domain, coupling_matrix=A, field_vector=np.zeros(4), **STAMP)
    assert ising.graph().edges["v0", "v1"]["weight"] == -0.4
    assert ising.graph(weight="typical").edges["v0", "v1"]["weight"] == pytest.approx(0.4)
    np.testing.assert_allclose(ising.coupling_table("v0", "v1"), [[-0.4, 0.4], [0.4, -0.4]], atol=1e-12)
    assert np.all(ising.coupling_table("v0", "v2") == 0)


def test_impossible_cells_are_filled():
    domain = Domain.from_states({"a": range(2), "b": range(2)})
    model = ModelSpecification(domain=domain, cliques=(("a", "b"),), impossible=((("a", 1), ("b", 1)),))
    flat = np.array([0.5, 0.0, 0.1, -np.inf])
    found = LearnedPotentials(domain=domain, model=model, tables=model.tables(flat), **STAMP)
    assert np.isfinite(found.coupling_table("a", "b")).all()
    assert 0 < found.graph(weight="typical").edges["a", "b"]["weight"] < 1


def test_what_cannot_be_asked_is_refused():
    model = learned(0)
    with pytest.raises(ArgumentError, match="`weight` must be 'largest' or 'typical', got 'size'"):
        model.graph(weight="size")
    with pytest.raises(ModelError, match="once"):
        model.coupling_table("b", "b")
    with pytest.raises(ModelError, match="not declared"):
        model.coupling_table("b", "z")
    p = 60
    wide = LearnedIsing(
        domain=Domain.from_states({f"v{i}": [0, 1] for i in range(p)}),
        coupling_matrix=np.full((p, p), 0.01) - 0.01 * np.eye(p),
        field_vector=np.zeros(p),
        **STAMP,
    )
    assert wide.graph().number_of_edges() == p * (p - 1) // 2
    for ask in (lambda: wide.graph(weight="typical"), lambda: wide.coupling_table("v0", "v1")):
        with pytest.raises(ModelTooLargeError, match="weight='largest'"):
            ask()
