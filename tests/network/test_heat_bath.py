from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from repeats import few
from scipy.stats import chi2

from bayesprivmrf.chains import heat_bath
from bayesprivmrf.chains.heat_bath import split_rhat
from bayesprivmrf.errors import ArgumentError, SamplingWarning
from bayesprivmrf.network import IsingNetwork, Mixing
from network.graphs import chi_square, small_networks

LEVEL = 1e-4  # of each chi-square test; with these seeds they pass or fail for good


@pytest.mark.parametrize("beta", few([-0.8, 1.3, 0.0, 0.5], most=2))
@pytest.mark.parametrize("name", small_networks())
def test_draws_follow_the_law_of_the_model(name, beta):
    network = small_networks()[name]
    draws = network.sample(beta, 20_000, 7, chains=2_000, sweeps=40, burn_in=60)
    assert draws.shape == (20_000, len(network))
    assert draws.dtype == np.int8
    assert chi_square(network, beta, draws) > LEVEL


def test_the_chi_square_test_sees_a_wrong_beta():
    network = small_networks()["cycle"]
    assert chi_square(network, 0.65, network.sample(0.5, 20_000, 7, chains=2_000)) < LEVEL


def test_one_chain_follows_the_law_too():
    network = small_networks()["signed"]
    assert chi_square(network, 0.6, network.sample(0.6, 10_000, 3, chains=1, sweeps=20)) > LEVEL


def test_both_compiled_loops_draw_the_same_from_the_same_random_numbers():
    graph = nx.gnp_random_graph(50, 0.2, seed=4)
    unit = IsingNetwork.from_graph(graph, "mean-degree")
    J = unit.coupling.toarray()
    a, b = next(iter(graph.edges))
    J[a, b] = J[b, a] = np.nextafter(
        J[a, b], 1
    )  # couplings of two sizes, one unit in the last place apart
    general = IsingNetwork.from_matrix(J)
    assert unit.unit_coupling is not None
    assert general.unit_coupling is None
    np.testing.assert_array_equal(unit.sample(1.1, 40, 5), general.sample(1.1, 40, 5))


def test_local_fields_are_kept_without_drift():
    network = IsingNetwork.from_graph(nx.gnp_random_graph(60, 0.2, seed=4), "degree-normalised")
    rng = np.random.default_rng(0)
    spins = rng.choice(np.array([-1, 1], dtype=np.int8), (60, 3))
    trace = np.empty((1500, 2, 3))  # longer than the fields go without being computed anew
    heat_bath.HeatBath(network.coupling, 0.7).run(
        spins, rng.integers(0, 2**64, (4, 3), dtype=np.uint64), trace
    )
    np.testing.assert_allclose(trace[-1, 0], network.energy(spins.T), rtol=1e-10)


def test_a_seed_gives_one_result_and_generators_move_on():
    network = small_networks()["tree"]
    np.testing.assert_array_equal(network.sample(0.5, 50, 3), network.sample(0.5, 50, 3))
    generator = np.random.default_rng(3)
    first, second = network.sample(0.5, 50, generator), network.sample(0.5, 50, generator)
    np.testing.assert_array_equal(first, network.sample(0.5, 50, 3))
    assert (first != second).any()


def test_the_order_of_nodes_does_not_depend_on_blocks_of_chains():
    """More chains than run side by side: every chain has the right law in the right columns."""
    network = IsingNetwork.from_graph([(0, 1, 3.0), (2, 3, -3.0)])
    draws = network.sample(1.0, 130, 1, chains=130)
    assert (draws[:, 0] == draws[:, 1]).mean() > 0.95
    assert (draws[:, 2] == draws[:, 3]).mean() < 0.05


def test_components_get_signs_of_their_own_at_low_temperature():
    """Two frozen pairs: the four combinations of their signs come up equally often, by chi-square with 3 degrees."""
    network = IsingNetwork.from_graph([(0, 1), (2, 3)])
    draws = network.sample(30.0, 4_000, 2)
    assert (draws[:, 0] == draws[:, 1]).all()
    counts = np.bincount((draws[:, 0] > 0) * 2 + (draws[:, 2] > 0), minlength=4)
    assert chi2.sf(np.sum((counts - 1000) ** 2 / 1000), 3) > LEVEL


def test_chains_that_cannot_mix_are_reported():
    ring = IsingNetwork.from_graph(nx.cycle_graph(400))
    with pytest.warns(SamplingWarning, match="has not mixed"):
        result = ring.simulate(3.0, 8, 1, burn_in=20)
    assert not result.mixing.trusted
    good = ring.simulate(0.3, 8, 1)
    assert good.mixing.trusted
    assert good.mixing.chains == 8
    assert good.mixing.sweeps == 150 + 30


def test_too_few_sweeps_to_judge_are_reported():
    with pytest.warns(SamplingWarning, match="not mixed"):
        small_networks()["tree"].sample(0.5, 4, 1, sweeps=1, burn_in=0)


def autoregressive(sweeps: int, chains: int, rho: float) -> np.ndarray:
    rng = np.random.default_rng(1)
    trace = np.zeros((sweeps, chains))
    for t in range(1, sweeps):
        trace[t] = rho * trace[t - 1] + rng.normal(size=chains)
    return trace[sweeps // 5 :]


@pytest.mark.parametrize("correlation", [0.2, 0.95])
def test_both_diagnostics_are_arvizs_and_the_effective_size_is_that_of_the_theory(correlation):
    import arviz as az

    trace = autoregressive(180, 6, correlation)
    mixing = Mixing(energy=trace, order=trace[:, :2])
    for ess, rhat, noted in (
        (mixing.energy_ess, mixing.energy_rhat, trace),
        (mixing.order_ess, mixing.order_rhat, trace[:, :2]),
    ):
        assert ess == pytest.approx(float(az.ess(noted.T, method="mean")), rel=1e-12)
        assert rhat == pytest.approx(float(az.rhat(noted.T, method="split")), rel=1e-12)
    long = autoregressive(5000, 4, 0.8)
    assert Mixing(energy=long, order=long).energy_ess == pytest.approx(
        long.size * 0.2 / 1.8, rel=0.2
    )


def test_split_rhat_sees_chains_apart_and_trends_and_takes_constants():
    trace = autoregressive(1000, 4, 0.5)
    assert split_rhat(trace) < 1.02
    assert split_rhat(trace + np.array([0, 0, 5, 5])) > 1.5
    assert split_rhat(trace + np.linspace(0, 10, len(trace))[:, None]) > 1.5
    assert split_rhat(np.full((50, 4), 3.7)) == 1.0
    assert split_rhat(np.full((50, 2), [1.0, 2.0])) == math.inf
    assert math.isnan(split_rhat(trace[:3]))
    short, constant = Mixing(energy=trace[:3], order=trace[:3]), np.full((50, 4), 3.7)
    assert math.isnan(short.energy_ess)
    assert not short.trusted
    assert Mixing(energy=constant, order=constant).order_ess == 200


@pytest.mark.parametrize(
    "bad",
    [
        {"beta": math.nan},
        {"beta": math.inf},
        {"size": 0},
        {"size": 2.0},
        {"size": True},
        {"chains": 0},
        {"sweeps": 0},
        {"burn_in": -1},
        {"moves": "gibbs"},
    ],
)
def test_arguments_out_of_range_are_refused(bad):
    with pytest.raises(ArgumentError, match=next(iter(bad))):
        small_networks()["tree"].sample(**({"beta": 0.5, "rng": 1} | bad))


@pytest.mark.slow
@pytest.mark.parametrize("moves", ["heat-bath", "swendsen-wang"])
def test_the_energy_of_a_large_tree_is_the_exact_one(moves):
    """On a forest of m edges with couplings 1, E s'Js = 2 m tanh beta: within 5 Monte Carlo standard errors."""
    tree = IsingNetwork.from_graph(nx.random_labeled_tree(2000, seed=3))
    draws = tree.sample(0.7, 2000, 4, chains=200, moves=moves)
    H = tree.energy(draws)
    assert abs(H.mean() - 2 * 1999 * math.tanh(0.7)) < 5 * H.std() / math.sqrt(2000 / 2)
