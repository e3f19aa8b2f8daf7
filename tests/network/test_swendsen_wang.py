"""Cluster moves: the operator is that of the definition, leaves the law, and mixes where the heat bath does not."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from papers.test_network_data import BLOGS, with_blogs
from scipy import sparse
from scipy.stats import chi2

from bayesprivmrf.chains.heat_bath import bonds as bonds_of
from bayesprivmrf.chains.kernels import flip_clusters
from bayesprivmrf.errors import SamplingWarning
from bayesprivmrf.network import IsingNetwork
from benchmarks.papers.network_data import political_blogs

from .graphs import chi_square, configurations, law, small_networks

LEVEL = 1e-4  # of each chi-square test; with these seeds they pass or fail for good
NETWORKS = small_networks() | {
    "frustrated square with a diagonal": IsingNetwork.from_graph(
        [(0, 1, 0.9), (1, 2, -0.6), (2, 3, 0.5), (3, 0, 1.4), (0, 2, 0.3)]
    )
}


def transitions(network: IsingNetwork, beta: float) -> np.ndarray:
    """Probabilities of one move from each configuration to each, from its definition, over all sets of bonds."""
    J = sparse.triu(network.coupling, 1, format="coo")
    all_spins = configurations(len(network))
    places = {tuple(s): place for place, s in enumerate(all_spins)}
    found = np.zeros((len(all_spins), len(all_spins)))
    for s, row in zip(all_spins, found, strict=True):
        satisfied = beta * J.data * s[J.row] * s[J.col] > 0
        bonded = np.where(satisfied, 1 - np.exp(-2 * np.abs(beta * J.data)), 0.0)
        for bonds in itertools.product([False, True], repeat=J.nnz):
            graph = nx.Graph(zip(J.row[list(bonds)], J.col[list(bonds)], strict=True))
            graph.add_nodes_from(range(len(network)))
            clusters = [list(cluster) for cluster in nx.connected_components(graph)]
            chance = np.prod(np.where(bonds, bonded, 1 - bonded)) / 2 ** len(clusters)
            for coins in itertools.product([-1, 1], repeat=len(clusters)) if chance else ():
                new = s.copy()
                for cluster, coin in zip(clusters, coins, strict=True):
                    new[cluster] *= coin
                row[places[tuple(new)]] += chance
    return found


def moved(network: IsingNetwork, beta: float, starts: np.ndarray, seed: int) -> np.ndarray:
    """One move from each start, shape (chains, n)."""
    spins = np.ascontiguousarray(starts.T)
    state = np.random.default_rng(seed).integers(0, 2**64, (4, len(starts)), dtype=np.uint64)
    flip_clusters(*bonds_of(network.coupling, beta), spins, state)
    return spins.T


@pytest.mark.parametrize("beta", [-0.8, 0.6])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_move_is_that_of_the_definition_and_leaves_the_law(name, beta):
    network = NETWORKS[name]
    expected = transitions(network, beta)
    P = law(network, beta)
    np.testing.assert_allclose(P @ expected, P, rtol=1e-12)
    np.testing.assert_allclose(P[:, None] * expected, (P[:, None] * expected).T, rtol=1e-10)
    chains = 2_000
    all_spins = configurations(len(network))
    ends = moved(network, beta, np.repeat(all_spins, chains, axis=0), 5)
    codes = (ends > 0) @ (2 ** np.arange(len(network))[::-1])
    statistic, freedom = 0.0, 0
    for row, code in zip(expected, codes.reshape(-1, chains), strict=True):
        seen = np.bincount(code, minlength=row.size)
        assert (seen[row == 0] == 0).all()
        common = row * chains >= 5
        pooled = [np.append(x[common], x[~common].sum()) for x in (seen, row * chains)]
        keep = pooled[1] > 0
        statistic += np.sum((pooled[0] - pooled[1])[keep] ** 2 / pooled[1][keep])
        freedom += keep.sum() - 1
    assert chi2.sf(statistic, freedom) > LEVEL


@pytest.mark.parametrize(
    ("name", "beta"),
    # without couplings nothing is bonded, whatever the network
    [*itertools.product(NETWORKS, [-0.8, 1.3]), (next(iter(NETWORKS)), 0.0)],
)
def test_moves_and_sweeps_in_turn_follow_the_law_of_the_model(name, beta):
    network = NETWORKS[name]
    draws = network.sample(
        beta, 12_000, 7, chains=2_000, sweeps=8, burn_in=20, moves="swendsen-wang"
    )
    assert chi_square(network, beta, draws) > LEVEL


def test_each_edge_is_bonded_with_its_own_probability():
    """On a tree whose edges are all satisfied, ends change sign together with probability 1 - exp(-2 K) / 2."""
    rng = np.random.default_rng(2)
    pairs = list(nx.random_labeled_tree(400, seed=3).edges)
    K = rng.permutation(np.geomspace(1e-3, 3.0, len(pairs)))
    signs = rng.choice([-1, 1], len(pairs))
    graph = nx.Graph()
    graph.add_weighted_edges_from(
        (*pair, k * sign) for pair, k, sign in zip(pairs, K, signs, strict=True)
    )
    network = IsingNetwork.from_graph(graph, nodes=range(400))
    start = np.ones(400, dtype=np.int8)
    for parent, child in nx.bfs_edges(graph, 0):
        start[child] = start[parent] * np.sign(graph[parent][child]["weight"])
    ends = moved(network, 1.0, np.tile(start, (3_000, 1)), 4) * start
    u, v = np.array(pairs).T
    p = 1 - np.exp(-2 * K) / 2
    z = ((ends[:, u] == ends[:, v]).mean(axis=0) - p) / np.sqrt(p * (1 - p) / 3_000)
    assert chi2.sf(np.sum(z**2), z.size) > LEVEL  # edges of a tree are independent
    assert np.abs(ends.mean(axis=0)).max() < 5 / np.sqrt(3_000)  # 400 fair coins, level 2e-4 in all


def test_one_seed_gives_one_result_in_blocks_of_chains_and_moves_differ():
    network = IsingNetwork.from_graph(nx.gnp_random_graph(40, 0.2, seed=1), "degree-normalised")
    first = network.sample(1.2, 140, 3, chains=70, moves="swendsen-wang")
    np.testing.assert_array_equal(
        first, network.sample(1.2, 140, 3, chains=70, moves="swendsen-wang")
    )
    assert (first != network.sample(1.2, 140, 3, chains=70)).any()


def test_two_blocs_that_hold_each_other_mix():
    """Two dense blocks and one edge between them: the heat bath keeps their relative sign, cluster moves draw it."""
    network = IsingNetwork.from_graph(nx.barbell_graph(30, 0), "mean-degree")
    with pytest.warns(SamplingWarning, match='R-hat .* or pass `moves="swendsen-wang"`'):
        network.simulate(2.5, 32, 1)
    run = network.simulate(2.5, 400, 1, chains=200, moves="swendsen-wang")
    assert max(run.mixing.energy_rhat, run.mixing.order_rhat) < 1.02
    agree = np.sign(run.spins[:, :30].sum(axis=1) * run.spins[:, 30:].sum(axis=1)) > 0
    # given its bloc a bridge's end is nearly always as the bloc, so blocs agree with probability expit(2 beta J)
    p = 1 / (1 + np.exp(-2 * 2.5 * network.coupling.data[0]))
    assert abs(agree.mean() - p) < 4.5 * np.sqrt(p * (1 - p) / 400) + 0.01


def test_moves_that_do_not_help_are_not_recommended_again():
    with pytest.warns(SamplingWarning, match="raise `burn_in` and `sweeps`, and do not trust"):
        NETWORKS["tree"].sample(0.5, 4, 1, sweeps=1, burn_in=0, moves="swendsen-wang")


@pytest.mark.slow
@with_blogs
@pytest.mark.parametrize("beta", [2.85, 4.0])
def test_the_blogs_mix(beta):
    network = IsingNetwork.from_graph(political_blogs(BLOGS).graph, "degree-normalised")
    run = network.simulate(beta, 64, 1, chains=64, moves="swendsen-wang")
    assert run.mixing.energy_rhat < 1.05
    assert run.mixing.order_rhat < 1.05
    with pytest.warns(SamplingWarning, match="has not mixed"):
        network.simulate(beta, 64, 1, chains=64)
