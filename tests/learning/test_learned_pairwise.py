"""A learned pairwise model says one distribution in all its forms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bayesprivmrf.errors import ModelError
from bayesprivmrf.learning import LearnedPairwise
from bayesprivmrf.model import Domain
from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee
from bayesprivmrf.release import Provenance

DOMAIN = Domain.from_states(
    {"b": ["z", "a", "m"], 0: [True, False], "one": ["x"], "c": [3, 1, 2, 9], "far": [0, 1]}
)
STARTS = [0, 3, 5, 6, 10, 12]


def tables(seed: int = 1):
    """Couplings b-0 and 0-c, all fields, none of the rest."""
    rng = np.random.default_rng(seed)
    W, theta = np.zeros((12, 12)), rng.normal(size=12)
    for i, j in ((0, 1), (1, 3)):
        rows, columns = slice(STARTS[i], STARTS[i + 1]), slice(STARTS[j], STARTS[j + 1])
        table = rng.normal(size=(STARTS[i + 1] - STARTS[i], STARTS[j + 1] - STARTS[j]))
        table -= table.mean(axis=0)
        W[rows, columns] = table - table.mean(axis=1, keepdims=True)
    for start, stop in itertools.pairwise(STARTS):
        theta[start:stop] -= theta[start:stop].mean()
    return W + W.T, theta


def learned(W=None, theta=None) -> LearnedPairwise:
    given = tables()
    return LearnedPairwise(
        domain=DOMAIN,
        guarantee=PrivacyGuarantee(rho=1.0, adjacency=Adjacency.ADD_OR_REMOVE_ONE),
        provenance=Provenance(mechanism="PrivateFrankWolfe"),
        coupling_matrix=given[0] if W is None else W,
        field_vector=given[1] if theta is None else theta,
    )


def test_couplings_are_tables_labelled_in_declared_order():
    model, (W, theta) = learned(), tables()
    table = model.couplings["b", 0]
    assert table.dims == ("b", "0")
    assert table.coords["b"].to_numpy().tolist() == ["z", "a", "m"]
    np.testing.assert_array_equal(table, W[:3, 3:5])
    np.testing.assert_array_equal(model.couplings[0, "b"], W[3:5, :3])
    assert len(model.couplings) == 10 == len(list(model.couplings))
    assert ("b", 0) in model.couplings
    for missing in (("b", "b"), ("b", "other"), "b", None):
        with pytest.raises(KeyError):
            model.couplings[missing]
    np.testing.assert_array_equal(model.fields["c"], theta[6:10])
    assert not np.asarray(model.fields["one"]).any()


def test_potentials_say_the_same_distribution():
    model, (W, theta) = learned(), tables()
    cells = np.array(list(itertools.product(*map(range, DOMAIN.cardinalities))))
    flat = cells + np.array(STARTS[:-1])
    expected = theta[flat].sum(axis=1) + W[flat[:, :, None], flat[:, None, :]].sum(axis=(1, 2)) / 2
    found = np.zeros(len(cells))
    for scope, table in zip(model.specification.scopes, model.potentials.values(), strict=True):
        found += table[tuple(cells[:, list(scope)].T)]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert set(model.specification.cliques) == {("b", 0), (0, "c"), ("one",), ("far",)}
    assert len(model.network.factors) == 4


def test_the_graph_has_the_largest_entries_as_weights():
    model, (W, _) = learned(), tables()
    graph = model.graph()
    assert set(graph.nodes) == set(DOMAIN.variables)
    assert {frozenset(edge) for edge in graph.edges} == {frozenset(("b", 0)), frozenset((0, "c"))}
    assert graph["b"][0]["weight"] == np.abs(W[:3, 3:5]).max()
    assert model.graph(threshold=1e9).number_of_edges() == 0
    assert "couplings  2 pairs" in repr(model)


def test_arrays_are_read_only_copies():
    W, theta = tables()
    model = learned(W, theta)
    W[:] = 7
    assert not (model.coupling_matrix == 7).any()
    with pytest.raises(ValueError, match="read-only"):
        model.field_vector[0] = 1.0


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda W, t: (W[:-1, :-1], t), "must fit 12 states"),
        (lambda W, t: (W, t[:-1]), "must fit 12 states"),
        (lambda W, t: (W * np.nan, t), "finite"),
        (lambda W, t: (np.triu(W), t), "symmetric"),
        (lambda W, t: (W, t + 1), "centred"),
        (lambda W, t: (W + (W != 0), t), "centred"),
        (lambda W, t: (W + np.eye(12), t), "diagonal"),
    ],
)
def test_arrays_that_are_no_centred_pairwise_model_are_refused(spoil, message):
    with pytest.raises(ModelError, match=message):
        learned(*spoil(*tables()))
