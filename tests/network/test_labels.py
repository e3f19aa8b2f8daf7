"""Labels of networks and outcomes: rows, columns and entries are aligned by node, or refused."""

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from bayesprivmrf.errors import ArgumentError, DataError, ModelError
from bayesprivmrf.mechanisms import ObjectivePerturbation
from bayesprivmrf.network import IsingNetwork, PseudoLikelihood

NAMES = ["ann", "bob", "cas", "dan"]
J = pd.DataFrame([[0, 1, 2, 0], [1, 0, 0, 3], [2, 0, 0, 4], [0, 3, 4, 0.0]], index=NAMES, columns=NAMES)
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
    network = IsingNetwork.from_matrix(J.set_axis(pairs, axis=0).set_axis(pairs, axis=1).loc[:, pairs[::-1]])
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
        (J.set_axis(range(4), axis=0).set_axis(range(4), axis=1), [1, 0, 3, 2], ModelError, "another order"),
        (np.ma.masked_equal(J.to_numpy(), 4), None, ArgumentError, "masked"),
    ],
)
def test_a_matrix_whose_labels_are_not_the_nodes_is_refused(matrix, nodes, error, message):
    with pytest.raises(error, match=message):
        IsingNetwork.from_matrix(matrix, nodes)


def test_outcomes_are_aligned_by_node():
    network = IsingNetwork.from_matrix(J)
    answers = pd.Series([1, -1, -1, 1], index=ROWS)
    wanted = answers[NAMES].tolist()
    named = xr.DataArray(answers.to_numpy(), dims="node", coords={"node": ROWS})
    assert network.spins(answers).tolist() == network.spins(named).tolist() == wanted
    mechanism = ObjectivePerturbation(epsilon=5.0)
    first, second = (mechanism.release(network, each, rng=1).estimate for each in (answers, wanted))
    assert first == second
    for refused in (lambda: network.energy(answers), lambda: PseudoLikelihood.from_fields(answers, wanted)):
        with pytest.raises(DataError, match="plain array"):
            refused()


def test_true_is_not_the_node_one():
    network = IsingNetwork.from_graph([(0, 1)])
    assert network.spins({1.0: 1, 0.0: -1}).tolist() == [-1, 1]
    with pytest.raises(DataError, match="some names are not nodes"):
        network.spins({True: 1, False: -1})
