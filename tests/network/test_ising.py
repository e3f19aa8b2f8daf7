from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

import bayesprivmrf as bpm
from bayesprivmrf.errors import (
    ArgumentError,
    DataError,
    DeclarationWarning,
    ModelError,
    UndeclaredStateError,
)
from bayesprivmrf.network import IsingNetwork

PAIRS = [("d", "a"), ("a", "c"), ("c", "d"), ("c", "b")]
DENSE = np.array(
    [[0, 1, 1, 0], [1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 1, 0]], dtype=float
)  # order d, a, c, b


def directed() -> nx.DiGraph:
    return nx.DiGraph([(0, 1)])


def parallel_edges_that_differ() -> nx.MultiGraph:
    graph = nx.MultiGraph([(0, 1, {"weight": 1.0})])
    graph.add_edge(1, 0, weight=2.0)
    return graph


def lonely() -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from([0, 1, 2])
    return graph


def test_the_package_offers_the_network_side_lazily():
    assert bpm.network.IsingNetwork is IsingNetwork
    assert "network" in bpm.__all__


@pytest.mark.parametrize(
    "form", ["pairs", "networkx", "multigraph", "pandas", "polars", "lazy", "array", "sparse"]
)
def test_every_form_of_a_graph_gives_the_same_couplings(form):
    columns = {"from": [a for a, _ in PAIRS], "to": [b for _, b in PAIRS]}
    names = ["d", "a", "c", "b"]
    graph = {
        "pairs": PAIRS,
        "networkx": nx.Graph(PAIRS),
        "multigraph": nx.MultiGraph([*PAIRS, ("a", "d")]),
        "pandas": pd.DataFrame(columns),
        "polars": pl.DataFrame(columns),
        "lazy": pl.LazyFrame(columns),
        "array": DENSE.astype(int),
        "sparse": sparse.coo_matrix(DENSE),
    }[form]
    network = IsingNetwork.from_graph(graph, nodes=names)
    assert network.nodes == tuple(names)
    np.testing.assert_array_equal(network.coupling.toarray(), DENSE)
    assert network.coupling.has_sorted_indices
    assert not network.coupling.data.flags.writeable


def test_nodes_come_in_the_order_in_which_the_graph_names_them():
    graph = nx.Graph()
    graph.add_nodes_from([9, 0, "x"])
    graph.add_edge("x", 0)
    assert IsingNetwork.from_graph(graph).nodes == (9, 0, "x")
    assert IsingNetwork.from_graph(PAIRS).nodes == ("d", "a", "c", "b")
    frame = pd.DataFrame({"u": [5, 0, 5], "v": [0, 3, 3]})
    assert IsingNetwork.from_graph(frame).nodes == (5, 0, 3)


def test_a_pgmpy_network_gives_its_structure_only():
    from pgmpy.factors.discrete import DiscreteFactor
    from pgmpy.models import DiscreteMarkovNetwork

    model = DiscreteMarkovNetwork(PAIRS)
    model.add_factors(DiscreteFactor(["d", "a"], [2, 2], [1, 9, 9, 1]))
    network = IsingNetwork.from_graph(model, nodes=["d", "a", "c", "b"])
    np.testing.assert_array_equal(network.coupling.toarray(), DENSE)


def test_couplings_are_scaled_as_they_say():
    degrees = DENSE.sum(axis=0)
    by_mean = IsingNetwork.from_graph(PAIRS, "mean-degree").coupling.toarray()
    np.testing.assert_allclose(by_mean, DENSE / degrees.mean(), rtol=1e-15)
    known = IsingNetwork.from_graph(PAIRS, "mean-degree", mean_degree=4.0).coupling.toarray()
    np.testing.assert_allclose(known, DENSE / 4, rtol=1e-15)
    root = np.diag(degrees**-0.5)
    normalised = IsingNetwork.from_graph(PAIRS, "degree-normalised")
    np.testing.assert_allclose(normalised.coupling.toarray(), root @ DENSE @ root, rtol=1e-14)
    np.testing.assert_allclose(normalised.row_norms, (root @ DENSE @ root).sum(axis=0), rtol=1e-14)


def test_degrees_of_a_signed_network_are_sums_of_absolute_weights():
    network = IsingNetwork.from_graph([(0, 1, -2.0), (1, 2, 2.0)], "degree-normalised")
    expected = np.array([[0, -1, 0], [-1, 0, 1], [0, 1, 0]]) / np.sqrt(2)
    np.testing.assert_allclose(network.coupling.toarray(), expected, rtol=1e-15)
    assert np.abs(np.linalg.eigvalsh(network.coupling.toarray())).max() <= 1 + 1e-15


def test_a_node_without_a_neighbor_is_kept_with_an_empty_row():
    network = IsingNetwork.from_graph([(0, 1)], "degree-normalised", nodes=[2, 1, 0])
    np.testing.assert_array_equal(network.coupling.toarray(), [[0, 0, 0], [0, 0, 1], [0, 1, 0]])


def test_loops_are_dropped_and_said_to_be():
    with pytest.warns(DeclarationWarning, match="1 self-loop"):
        network = IsingNetwork.from_graph([(0, 1), (1, 1)])
    assert network.coupling.diagonal().sum() == 0
    with pytest.warns(DeclarationWarning, match="2 self-loop"):
        network = IsingNetwork.from_matrix([[1, 1], [1, 1]])
    np.testing.assert_array_equal(network.coupling.toarray(), [[0, 1], [1, 0]])


def test_rounding_in_the_callers_product_is_averaged_out():
    network = IsingNetwork.from_matrix([[0, 0.3], [np.nextafter(0.3, 1), 0]])
    J = network.coupling.toarray()
    assert J[0, 1] == J[1, 0]


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (directed(), "undirected"),
        (lonely(), "must have an edge"),
        ([], "must have an edge"),
        ([(0, 1, np.nan)], "finite"),
        ([(0, 1, np.inf)], "finite"),
        ([(0, 1, "much")], "must be numbers"),
        ([(0, 1, 1.0), (1, 0, 2.0)], "one weight"),
        (parallel_edges_that_differ(), "one weight"),
        ([(0, None)], "missing"),
        ([(0, float("nan"))], "missing"),
        ([(0, 1, 2, 3)], "pair"),
        ([(0, [1])], "hashable"),
        (7, "must be a networkx graph"),
        (pd.DataFrame({"a": [1.0, np.nan], "b": [2.0, 3.0]}), "missing"),
        (pd.DataFrame({"a": [1]}), "two columns"),
        (np.array([[0, 1], [0, 0]]), "symmetric"),
        (np.array([[0, np.nan], [np.nan, 0]]), "finite"),
        (np.ones((2, 3)), "square"),
        (np.array([[0, 1j], [1j, 0]]), "real"),
        (np.zeros((3, 3)), "must have an edge"),
    ],
)
def test_a_graph_that_is_none_is_refused(graph, said):
    with pytest.raises(ModelError, match=said):
        IsingNetwork.from_graph(graph)


def test_other_bad_declarations_are_refused():
    for nodes, said in (
        ([0, 0], "repeat"),
        ([0], "name each row"),
        ([0, None], "missing"),
        ([0, []], "hashable"),
    ):
        with pytest.raises(ModelError, match=said):
            IsingNetwork.from_matrix([[0, 1], [1, 0]], nodes)
    with pytest.raises(ModelError, match="leaves out 1 of 3"):
        IsingNetwork.from_graph([(0, 1), (1, 2)], nodes=[0, 1])
    with pytest.raises(ArgumentError, match="must be 'raw'"):
        IsingNetwork.from_graph([(0, 1)], "normalised")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="mean-degree"):
        IsingNetwork.from_graph([(0, 1)], mean_degree=3.0)
    for bad in (0.0, -1.0, np.nan):
        with pytest.raises(ArgumentError, match="mean_degree"):
            IsingNetwork.from_graph([(0, 1)], "mean-degree", mean_degree=bad)


THREE = IsingNetwork.from_graph([("b", 0), (0, "a")])


@pytest.mark.parametrize(
    "outcomes",
    [
        {"a": -1, 0: 1.0, "b": 1},
        pd.Series({0: 1, "a": -1, "b": 1}),
        np.array([1, 1, -1]),
        [1, 1, -1],
        pl.Series([1.0, 1.0, -1.0]),
    ],
)
def test_outcomes_are_read_in_node_order(outcomes):
    spins = THREE.spins(outcomes)
    assert spins.dtype == np.int8
    np.testing.assert_array_equal(spins, [1, 1, -1])


def test_any_two_labels_may_be_declared_as_the_states():
    np.testing.assert_array_equal(THREE.spins(["yes", "no", "yes"], "yes", "no"), [1, -1, 1])
    np.testing.assert_array_equal(THREE.spins([1, 0, 0], 1, 0), [1, -1, -1])
    np.testing.assert_array_equal(
        THREE.spins(np.array([True, False, False]), True, False), [1, -1, -1]
    )


@pytest.mark.parametrize(
    ("outcomes", "error", "said"),
    [
        ([1, 1, 0], UndeclaredStateError, "two declared states"),
        ([1, 1, np.nan], UndeclaredStateError, "missing"),
        ([1, 1, None], UndeclaredStateError, "missing"),
        ([True, -1, -1], UndeclaredStateError, "two declared states"),
        ([1, 1, []], UndeclaredStateError, "two declared states"),
        (["1", "1", "-1"], UndeclaredStateError, "two declared states"),
        ([1, 1], DataError, "each of the 3 nodes"),
        ({"a": 1, 0: 1}, DataError, "every node"),
        ({"a": 1, 0: 1, "b": 1, "c": 1}, DataError, "nodes of the network"),
        (pd.Series([1, 1, 1]), DataError, "nodes of the network"),
        (pd.Series([1, 1, 1], index=["a", "a", "b"]), DataError, "some nodes repeat"),
        (pd.DataFrame({"y": [1, 1, 1]}), DataError, "one column"),
        (np.ones((3, 1)), DataError, "one-dimensional"),
        ("yes", DataError, "got text"),
        (3, DataError, "mapping"),
    ],
)
def test_outcomes_that_are_not_one_a_node_in_two_states_are_refused(outcomes, error, said):
    with pytest.raises(error, match=said):
        THREE.spins(outcomes)


def test_an_error_about_outcomes_shows_none_of_them():
    with pytest.raises(UndeclaredStateError) as raised:
        THREE.spins(["well", "ill", "secretly"], "ill", "well")
    assert "secretly" not in str(raised.value)


def test_one_state_alone_or_twice_is_refused():
    with pytest.raises(ArgumentError, match="together"):
        THREE.spins([1, 1, 0], positive=1)
    with pytest.raises(ArgumentError, match="different"):
        THREE.spins([1, 1, 1], positive=1, negative=1.0)


def test_fields_and_energy_are_those_of_the_dense_matrix():
    rng = np.random.default_rng(3)
    for network in (
        IsingNetwork.from_graph(nx.gnp_random_graph(40, 0.2, seed=1)),
        IsingNetwork.from_graph(nx.gnp_random_graph(40, 0.2, seed=1), "degree-normalised"),
    ):
        s = rng.choice(np.array([-1, 1]), size=(5, 40))
        J = network.coupling.toarray()
        np.testing.assert_allclose(network.local_fields(s), s @ J, atol=1e-13)
        np.testing.assert_allclose(network.local_fields(s[0]), J @ s[0], atol=1e-13)
        np.testing.assert_allclose(network.energy(s), np.einsum("ki,ij,kj->k", s, J, s), rtol=1e-12)
        assert isinstance(network.energy(s[0]), float)


def test_fields_that_cancel_are_exactly_zero():
    """0.1 + 0.1 + 0.1 - 0.1 - 0.1 - 0.1 is not zero in doubles, added in this order."""
    star = IsingNetwork.from_graph([(0, k, 0.1) for k in range(1, 7)])
    assert star.local_fields(np.array([1, 1, 1, 1, -1, -1, -1]))[0] == 0.0
    uneven = IsingNetwork.from_graph(
        [(0, k, w) for k, w in enumerate([0.1, 0.2, 0.7, 0.7, 0.1, 0.2], start=1)]
    )
    assert uneven.local_fields(np.array([1, 1, 1, 1, -1, -1, -1]))[0] == 0.0


@pytest.mark.parametrize("spins", [[1, 1], [1, 1, 0], [1, 1, np.nan], ["a", "b", "c"]])
def test_what_are_no_spins_is_refused(spins):
    with pytest.raises(DataError, match="spins"):
        THREE.local_fields(np.array(spins))


def test_an_edge_attribute_that_no_edge_has_is_refused():
    with pytest.raises(ModelError, match="no edge has"):
        IsingNetwork.from_graph(nx.path_graph(3), weight="wieght")
    assert IsingNetwork.from_graph(nx.path_graph(3), weight=None).coupling.nnz == 4
