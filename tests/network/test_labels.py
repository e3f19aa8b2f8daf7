"""Labels of networks and outcomes: rows, columns and entries are aligned by node, or refused."""

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray as xr
from scipy import sparse

from bayesprivmrf.errors import ArgumentError, DataError, ModelError
from bayesprivmrf.mechanisms import ObjectivePerturbation
from bayesprivmrf.network import IsingNetwork, PseudoLikelihood

NAMES = ["ann", "bob", "cas", "dan"]
J = pd.DataFrame(
    [[0, 1, 2, 0], [1, 0, 0, 3], [2, 0, 0, 4], [0, 3, 4, 0.0]], index=NAMES, columns=NAMES
)
ROWS, COLUMNS = ["cas", "ann", "dan", "bob"], ["dan", "bob", "ann", "cas"]


def array_of(frame):
    return xr.DataArray(
        frame.to_numpy(), dims=["i", "j"], coords={"i": list(frame.index), "j": list(frame.columns)}
    )


@pytest.mark.parametrize("make", [IsingNetwork.from_matrix, IsingNetwork.from_graph])
@pytest.mark.parametrize("form", [pd.DataFrame, array_of])
def test_labeled_matrices_keep_their_nodes_whatever_the_order_of_rows_and_columns(make, form):
    network = make(form(J.loc[ROWS, COLUMNS]))
    assert network.nodes == tuple(ROWS)
    np.testing.assert_array_equal(network.coupling.toarray(), J.loc[ROWS, ROWS])
    ordered = make(form(J.loc[ROWS, COLUMNS]), nodes=NAMES)
    assert ordered.nodes == tuple(NAMES)
    np.testing.assert_array_equal(ordered.coupling.toarray(), J)
    direct = IsingNetwork(nodes=tuple(NAMES), coupling=form(J.loc[ROWS, COLUMNS]))
    np.testing.assert_array_equal(direct.coupling.toarray(), J)


def test_nodes_that_are_tuples_are_levels_of_a_labeled_matrix():
    pairs = pd.MultiIndex.from_tuples([("s", 1), ("s", 2), ("t", 1), ("t", 2)])
    network = IsingNetwork.from_matrix(
        J.set_axis(pairs, axis=0).set_axis(pairs, axis=1).loc[:, pairs[::-1]]
    )
    assert network.nodes == tuple(pairs)
    np.testing.assert_array_equal(network.coupling.toarray(), J)
    assert network.spins(pd.Series([1, -1, -1, 1], index=pairs)[::-1]).tolist() == [1, -1, -1, 1]


def test_an_adjacency_matrix_of_three_nodes_is_no_table_of_edges():
    network = IsingNetwork.from_graph(nx.to_pandas_adjacency(nx.path_graph(["u", "v", "w"])))
    assert network.nodes == ("u", "v", "w")
    edges = pd.DataFrame([(0, 1, 2.0), (1, 2, 2.0)])
    assert len(IsingNetwork.from_graph(edges)) == 3


@pytest.mark.parametrize(
    ("matrix", "nodes", "error", "message"),
    [
        (J.rename(columns={"ann": "eve"}), None, ModelError, "got 'eve'"),
        (J.loc[["ann", "ann", "bob", "cas"]], None, ModelError, "must not repeat"),
        (J.loc[NAMES[:3]], None, ModelError, "got 'dan'"),
        (J, ["ann", "bob", "cas", "eve"], ModelError, "got 'dan'"),
        (
            J.set_axis(range(4), axis=0).set_axis(range(4), axis=1),
            [1, 0, 3, 5],
            ModelError,
            "numbers from 0",
        ),
        (np.ma.masked_equal(J.to_numpy(), 4), None, ArgumentError, "masked"),
    ],
)
def test_a_matrix_whose_labels_are_not_the_nodes_is_refused(matrix, nodes, error, message):
    with pytest.raises(error, match=message):
        IsingNetwork.from_matrix(matrix, nodes)


def test_numbers_that_pandas_counts_rows_by_are_nodes_where_nodes_have_such_names():
    bare = pd.DataFrame(J.to_numpy())
    turned = IsingNetwork.from_matrix(bare, [1, 0, 3, 2])
    np.testing.assert_array_equal(turned.coupling.toarray(), bare.loc[[1, 0, 3, 2], [1, 0, 3, 2]])
    np.testing.assert_array_equal(IsingNetwork.from_matrix(bare, NAMES).coupling.toarray(), J)


EDGES = pd.DataFrame(
    {"source": ["a", "b"], "target": ["b", "c"], "weight": [2.0, 3.0], "year": [1, 2]}
)
TRIPLES = [("a", "b", 2.0), ("b", "c", 3.0)]
PATH = np.array([[0, 2.0, 0], [2.0, 0, 3.0], [0, 3.0, 0]])
WEIGHTED = {
    "columns by name": EDGES[["year", "weight", "target", "source"]],
    "polars": pl.from_pandas(EDGES),
    "three columns": EDGES[["source", "target", "weight"]].rename(
        columns={"source": "u", "target": "v"}
    ),
    "weights first": EDGES[["weight", "source", "target"]].rename(
        columns={"source": "u", "target": "v"}
    ),
    "numbered columns": pd.DataFrame(TRIPLES),
    "fields": np.array(TRIPLES, dtype=[("source", "U1"), ("target", "U1"), ("weight", float)]),
    "triples": TRIPLES,
    "array": PATH,
    "sparse": sparse.csr_array(PATH),
    "labeled": pd.DataFrame(PATH, index=list("abc"), columns=list("abc")),
    "networkx": nx.Graph([(a, b, {"weight": w}) for a, b, w in TRIPLES]),
}


@pytest.mark.parametrize("form", WEIGHTED)
def test_weights_of_every_form_are_read_by_name_or_ignored_or_refused(form):
    graph = WEIGHTED[form]
    nodes = None if form in ("array", "sparse") else list("abc")
    read = IsingNetwork.from_graph
    np.testing.assert_array_equal(read(graph, nodes=nodes).coupling.toarray(), PATH)
    np.testing.assert_array_equal(
        read(graph, nodes=nodes, weight=None).coupling.toarray(), PATH != 0
    )
    with pytest.raises(ModelError, match=r"(?s)weight.*nonsense|two columns of nodes"):
        read(graph, nodes=nodes, weight="nonsense")
    if form == "polars":
        np.testing.assert_array_equal(
            read(graph, nodes=nodes, weight="year").coupling.data, [1, 1, 2, 2]
        )


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (
            EDGES[["source", "target", "year"]],
            "got 'weight'; name that of the weights, or pass None",
        ),
        (EDGES[["source", "weight"]], "two columns of nodes"),
        (
            EDGES.rename(columns={"source": "u"}),
            "two columns of nodes.*or select the columns of the nodes",
        ),
        (pd.DataFrame([[0, 1, 2], [1, 0, 0], [2, 0, 0]]), "an adjacency matrix"),
        ({("a", "b"): 2.0}, "which a mapping is not"),
        ([{"source": "a", "target": "b"}], "a mapping or text"),
        (["ab", "bc"], "a mapping or text"),
        (nx.MultiGraph([(0, 1)]).edges, "the graph itself"),
    ],
)
def test_a_table_whose_edges_could_only_be_guessed_is_refused(graph, message):
    with pytest.raises(ModelError, match=message):
        IsingNetwork.from_graph(graph)


def test_outcomes_are_aligned_by_node():
    network = IsingNetwork.from_matrix(J)
    answers = pd.Series([1, -1, -1, 1], index=ROWS)
    wanted = answers[NAMES].tolist()
    named = xr.DataArray(answers.to_numpy(), dims="node", coords={"node": ROWS})
    assert network.spins(answers).tolist() == network.spins(named).tolist() == wanted
    mechanism = ObjectivePerturbation(epsilon=5.0)
    first, second = (mechanism.release(network, each, rng=1).estimate for each in (answers, wanted))
    assert first == second
    for refused in (
        lambda: network.energy(answers),
        lambda: PseudoLikelihood.from_fields(answers, wanted),
    ):
        with pytest.raises(DataError, match="plain array"):
            refused()


def test_true_is_not_the_node_one():
    network = IsingNetwork.from_graph([(0, 1)])
    assert network.spins({1.0: 1, 0.0: -1}).tolist() == [-1, 1]
    with pytest.raises(DataError, match="some names are not nodes"):
        network.spins({True: 1, False: -1})
