"""Orders, forecasts, marginals of any set of variables, and exact draws."""

from __future__ import annotations

import itertools
import math
import time

import networkx as nx
import numpy as np
import pytest
from marginals.models import AWKWARD, brute, joint_of
from scipy import stats

from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError
from bayesprivmrf.marginals import forecast, marginal_engine, marginal_of, sample
from bayesprivmrf.marginals.layout import elimination_order


@pytest.mark.parametrize(
    ("graph", "treewidth"),
    [
        (nx.path_graph(50), 1),
        (nx.star_graph(40), 1),
        (nx.cycle_graph(30), 2),
        (nx.complete_graph(9), 8),
        (nx.empty_graph(5), 0),
        (nx.grid_2d_graph(5, 5), 5),
        (
            nx.random_k_tree(40, 3, seed=1)
            if hasattr(nx, "random_k_tree")
            else nx.complete_graph(4),
            3,
        ),
    ],
)
def test_treewidth_of_graphs_where_it_is_known(graph, treewidth):
    graph = nx.convert_node_labels_to_integers(graph)
    scopes = [*graph.edges, *((v,) for v in graph)]
    cost = forecast([3] * len(graph), scopes)
    assert cost.treewidth == treewidth
    assert cost.largest_table == 3 ** (treewidth + 1)


def test_the_order_holds_every_variable_with_a_choice_once():
    for cards, scopes in AWKWARD.values():
        order = elimination_order(cards, scopes)
        assert sorted(order) == sorted({v for scope in scopes for v in scope if cards[v] > 1})


def test_the_order_minds_cardinalities():
    """A cycle must be cut at the variable with few states, not at the one with many."""
    cards = (50, 2, 50, 2)
    assert forecast(cards, [(0, 1), (1, 2), (2, 3), (3, 0)]).largest_table == 50 * 2 * 2


def test_forecasts_of_hopeless_and_of_large_models_are_fast():
    rng = np.random.default_rng(0)
    start = time.perf_counter()
    hopeless = forecast(
        [2] * 1000, [tuple(rng.choice(1000, 2, replace=False)) for _ in range(7_000)]
    )
    assert hopeless.largest_table > 2**100
    assert hopeless.memory_bytes > hopeless.largest_table
    long = forecast([4] * 4000, [(i, i + 1) for i in range(3999)])
    assert long.treewidth == 1
    assert long.total_cells == 16 * 3999 + 4
    assert time.perf_counter() - start < 20  # a second or two; blowing up would take hours


def test_too_large_says_what_would_fit():
    scopes = list(itertools.combinations(range(40), 2))
    with pytest.raises(
        ModelTooLargeError, match=r"40 variables.*memory_limit.*4\.0 GiB.*kind=\"loopy\""
    ):
        marginal_engine([3] * 40, scopes)
    with pytest.raises(ModelTooLargeError, match="MiB"):
        marginal_engine([10] * 6, [(0, 1, 2, 3, 4, 5)], memory_limit=2**20)
    assert marginal_engine([3] * 40, scopes, kind="loopy").size == 9 * len(scopes)


def test_the_forecast_bounds_what_an_engine_allocates():
    import tracemalloc

    def run(engine, theta):
        engine.linearize(theta)[2](theta)

    rng = np.random.default_rng(2)
    run(
        marginal_engine((20,) * 3, [(0, 1), (1, 2)]), np.zeros(800)
    )  # compiled code is loaded outside the measurement
    for cards, scopes in (
        ((20,) * 8, [(i, j) for i in range(8) for j in range(i) if i - j <= 3]),
        ((40,) * 60, [(i, i + 1) for i in range(59)]),
        ((2,) * 64, list(nx.convert_node_labels_to_integers(nx.grid_2d_graph(8, 8)).edges)),
    ):
        engine = marginal_engine(cards, scopes)
        theta = rng.normal(size=engine.size)
        tracemalloc.start()
        run(engine, theta)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        promised = forecast(cards, scopes).memory_bytes
        assert peak <= promised + 100_000
        assert promised <= 4 * peak + 200_000


@pytest.mark.parametrize("query", [(), (2,), (3, 0), (4, 1, 2), (0, 1, 2, 3, 4)])
def test_marginals_of_any_set_agree_with_the_joint(query):
    cards, scopes = AWKWARD["three-way cliques"]
    reference = brute((cards, scopes))
    theta = np.random.default_rng(3).normal(size=reference.size)
    joint = joint_of((cards, scopes), theta)
    expected = joint.sum(axis=tuple(v for v in range(5) if v not in query))
    kept = sorted(query)
    expected = expected.transpose([kept.index(v) for v in query])
    found = marginal_of(cards, scopes, theta, query)
    assert found.shape == tuple(cards[v] for v in query)
    np.testing.assert_allclose(found, expected, atol=1e-14)


@pytest.mark.parametrize("query", [(0, 3), (3, 1, 5), (5, 3, 0, 2)])
def test_a_query_whose_clique_is_beyond_memory_is_answered_state_by_state(query):
    """A ring with a state that cannot occur."""
    cards, scopes = [3, 4, 2, 5, 3, 4], [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)]
    theta = np.random.default_rng(0).normal(size=sum(cards[a] * cards[b] for a, b in scopes))
    theta[:4] = -np.inf  # variable 0 is never in its first state
    limit = forecast(cards, [*scopes, query]).memory_bytes - 1
    with pytest.raises(ModelTooLargeError):
        marginal_engine(cards, [*scopes, query], memory_limit=limit)
    for given in (None, {4: 1}):
        expected = marginal_of(cards, scopes, theta, query, given=given)
        found = marginal_of(cards, scopes, theta, query, given=given, memory_limit=limit)
        np.testing.assert_allclose(found, expected, atol=1e-15)
    with pytest.raises(ModelTooLargeError):
        marginal_of(cards, scopes, theta, query, memory_limit=1_000)  # not even the ring


@pytest.mark.parametrize("variables", [20, 24, 60])
def test_a_joint_table_beyond_memory_is_refused_before_it_is_allocated(variables):
    chain = [(v, v + 1) for v in range(variables - 1)]
    with pytest.raises(ModelTooLargeError, match="memory_limit"):
        marginal_of([3] * variables, chain, np.zeros(9 * len(chain)), range(variables))


def test_a_query_that_would_take_inference_at_each_of_very_many_states_is_refused():
    scopes = [*itertools.combinations(range(8), 2), *((v % 8, v) for v in range(8, 20))]
    query = tuple(range(8, 17))  # leaves of variables that all hang together
    limit = forecast(
        [3] * 20, [*scopes, query[:1]]
    ).memory_bytes  # so that all but one must be held
    assert 8 * 3 ** len(query) < limit
    start = time.perf_counter()
    with pytest.raises(ModelTooLargeError, match="memory_limit"):
        marginal_of([3] * 20, scopes, np.zeros(9 * len(scopes)), query, memory_limit=limit)
    assert time.perf_counter() - start < 20


def test_a_variable_in_no_scope_is_not_held_where_others_are():
    cards, scopes = [3, 4, 2, 5, 3, 4, 2], [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)]
    theta = np.random.default_rng(0).normal(size=sum(cards[a] * cards[b] for a, b in scopes))
    query = (3, 6, 0)
    limit = forecast(cards, [*scopes, query]).memory_bytes - 1
    expected = marginal_of(cards, scopes, theta, query)
    found = marginal_of(cards, scopes, theta, query, memory_limit=limit)
    np.testing.assert_allclose(found, expected, atol=1e-15)


def test_a_query_may_name_variables_in_no_scope():
    found = marginal_of((2, 4), [(0,)], np.log([0.3, 0.7]), (1, 0))
    np.testing.assert_allclose(found, np.tile([0.075, 0.175], (4, 1)), atol=1e-15)
    with pytest.raises(ModelError, match="each variable once"):
        marginal_of((2, 4), [(0,)], np.zeros(2), (1, 1))
    with pytest.raises(ModelError, match=r"shape \(2,\)"):
        marginal_of((2, 4), [(0,)], np.zeros(3), (1,))


@pytest.mark.parametrize(
    "name", ["cycle", "three-way cliques", "isolated, with and without a scope", "nested"]
)
def test_draws_follow_the_joint(name):
    """Chi-square over the joint table at level 1e-4, the seed fixed."""
    cards, scopes = AWKWARD[name]
    reference = brute((cards, scopes))
    rng = np.random.default_rng(20)
    theta = rng.normal(size=reference.size)
    theta[rng.random(reference.size) < 0.1] = -np.inf
    probabilities = joint_of((cards, scopes), theta).ravel()
    size = 40_000
    draws = sample(cards, scopes, theta, size, np.random.default_rng(21))
    counts = np.bincount(np.ravel_multi_index(draws.T, cards), minlength=probabilities.size)
    assert counts[probabilities == 0].sum() == 0
    expected = size * probabilities
    rare = expected < 5
    pooled = (
        np.append(expected[~rare], expected[rare].sum()),
        np.append(counts[~rare], counts[rare].sum()),
    )
    use = pooled[0] > 0
    statistic = float(np.sum((pooled[1][use] - pooled[0][use]) ** 2 / pooled[0][use]))
    assert statistic < stats.chi2.ppf(1 - 1e-4, use.sum() - 1)


def test_draws_respect_zeros_and_extremes():
    theta = np.array([-np.inf, 0.0, 5000.0, -np.inf, -3000.0, -np.inf, -np.inf, -np.inf, 0.0])
    draws = sample((3, 3, 1), [(0, 1), (2,)], np.append(theta, 7.0), 5000, np.random.default_rng(1))
    assert draws.shape == (5000, 3)
    np.testing.assert_array_equal(np.unique(draws, axis=0), [[0, 2, 0]])


def test_draws_are_reproducible_and_need_no_variables():
    cards, scopes = AWKWARD["tree"]
    theta = np.zeros(brute((cards, scopes)).size)
    first, second = (sample(cards, scopes, theta, 50, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert sample(cards, scopes, theta, 0, np.random.default_rng(5)).shape == (0, 5)
    assert sample((), (), np.zeros(0), 3, np.random.default_rng(5)).shape == (3, 0)
    with pytest.raises(ArgumentError, match="`size` must be a whole number of at least 0"):
        sample(cards, scopes, theta, -1, np.random.default_rng(5))


def test_pairwise_draws_of_a_large_model_match_its_marginals():
    """Every edge's table within five Monte Carlo standard errors, where exact enumeration is out of reach."""
    cards, scopes = (4,) * 60, [(i, i + 1) for i in range(59)]
    engine = marginal_engine(cards, scopes)
    theta = np.random.default_rng(6).normal(size=engine.size)
    _, mu = engine.marginals(theta)
    size = 20_000
    draws = sample(cards, scopes, theta, size, np.random.default_rng(7))
    found = np.concatenate(
        [np.bincount(4 * draws[:, i] + draws[:, i + 1], minlength=16) / size for i in range(59)]
    )
    error = np.sqrt(mu * (1 - mu) / size)
    # 944 cells: 5.5 standard errors is a level below 4e-5 for them together, with room for the binomial's skew.
    assert np.all(np.abs(found - mu) <= 5.5 * error + 3 / size)
    assert math.isclose(found.sum(), 59.0)
