"""Loopy belief propagation: exact on trees, Bethe's approximation elsewhere."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from marginals.models import AWKWARD, brute

from bayesprivmrf.errors import ModelError
from bayesprivmrf.marginals import Layout, loopy, marginal_engine, marginal_of

FORESTS = ("empty model", "no variables, an empty scope", "one variable", "one variable in no scope", "one state",
           "tree", "disconnected", "isolated, with and without a scope", "hub")  # fmt: skip


@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.parametrize(("spread", "zeros"), [(1.0, 0.0), (300.0, 0.0), (3.0, 0.1), (5000.0, 0.1)])
def test_exact_on_trees(name, spread, zeros):
    model = AWKWARD[name]
    reference, engine = brute(model), loopy.LoopyEngine(Layout.build(*model))
    rng = np.random.default_rng(7)
    theta = rng.normal(size=reference.size) * spread
    theta[rng.random(reference.size) < zeros] = -np.inf
    direction = rng.normal(size=reference.size)
    try:
        log_partition, mu, product = reference.linearize(theta)
    except ModelError:
        with pytest.raises(ModelError):
            engine.marginals(theta)
        return
    found, found_mu, is_converged, iterations = engine.marginals_with_status(theta)
    assert is_converged
    assert iterations <= 10
    assert found == pytest.approx(log_partition, rel=1e-11, abs=1e-11)
    np.testing.assert_allclose(found_mu, mu, atol=1e-11)
    np.testing.assert_allclose(engine.linearize(theta)[2](direction), product(direction), atol=1e-6)


@pytest.mark.parametrize("name", [n for n in AWKWARD if n not in FORESTS])
def test_close_where_couplings_are_weak(name):
    """On a graph with cycles the error is of higher order in the couplings."""
    model = AWKWARD[name]
    reference, engine = brute(model), loopy.LoopyEngine(Layout.build(*model))
    theta = np.random.default_rng(9).normal(size=reference.size)
    errors, log_errors = [], []
    for scale in (0.1, 0.05):
        found, mu, is_converged, _ = engine.marginals_with_status(scale * theta)
        assert is_converged
        log_partition, true_mu = reference.marginals(scale * theta)
        log_errors.append(abs(found - log_partition))
        errors.append(float(np.abs(mu - true_mu).max()))
    assert errors[0] < 0.05
    assert errors[1] < 0.7 * errors[0] + 1e-10  # the first order at least,
    assert log_errors[1] < 0.4 * log_errors[0] + 1e-10  # and for A the second


def test_beliefs_agree_on_the_variables_that_they_share():
    engine = marginal_engine((3,) * 9, list(nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 3)).edges),
                             kind="loopy")  # fmt: skip
    _, mu = engine.marginals(np.random.default_rng(3).normal(size=engine.size))
    seen: dict[int, np.ndarray] = {}
    for f, scope in enumerate(engine.scopes):
        table = mu[engine.offsets[f] : engine.offsets[f + 1]].reshape(3, 3)
        assert table.sum() == pytest.approx(1.0, abs=1e-12)
        for axis, v in enumerate(scope):
            single = table.sum(axis=1 - axis)
            np.testing.assert_allclose(single, seen.setdefault(v, single), atol=1e-9)


def test_an_unsettled_run_says_so():
    layout = Layout.build((2,) * 4, [(i, j) for i in range(4) for j in range(i)])
    theta = np.random.default_rng(1).normal(size=layout.size) * 8
    engine = loopy.LoopyEngine(layout)
    engine.max_iterations = 2
    _, mu, is_converged, iterations = engine.marginals_with_status(theta)
    assert not is_converged
    assert iterations == 2
    assert np.all(np.isfinite(mu))


def test_a_joint_marginal_is_the_belief_of_a_factor_and_never_a_product_of_margins():
    cards, ring = (2, 3, 2, 2), [(0, 1), (1, 2), (2, 3), (3, 0)]
    engine = marginal_engine(cards, ring, kind="loopy")
    theta = np.random.default_rng(4).normal(size=engine.size)
    beliefs = engine.marginals(theta)[1]
    table = beliefs[:6].reshape(2, 3)
    np.testing.assert_allclose(
        marginal_of(cards, ring, theta, (0, 1), kind="loopy"), table, atol=1e-12
    )
    np.testing.assert_allclose(
        marginal_of(cards, ring, theta, (1, 0), kind="loopy"), table.T, atol=1e-12
    )
    np.testing.assert_allclose(
        marginal_of(cards, ring, theta, (1,), kind="loopy"), table.sum(axis=0), atol=1e-9
    )
    np.testing.assert_allclose(
        marginal_of((*cards, 2), ring, theta, (4,), kind="loopy"), [0.5, 0.5]
    )
    assert np.abs(table - np.outer(table.sum(axis=1), table.sum(axis=0))).max() > 0.01
    for query, words in (
        ((0, 2), "variables of one factor"),
        ((1, 1), "each variable once"),
        ((0, 9), "name variables"),
    ):
        with pytest.raises(ModelError, match=words):
            marginal_of(cards, ring, theta, query, kind="loopy")


def test_the_engine_knows_where_it_is_exact():
    assert marginal_engine((2, 2, 2), [(0, 1), (1, 2)], kind="loopy").is_exact
    assert not marginal_engine((2, 2, 2), [(0, 1), (1, 2), (2, 0)], kind="loopy").is_exact
    # two factors that share two variables make a cycle, unless one of these has a single state
    assert not marginal_engine((2, 2, 2, 2), [(0, 1, 2), (1, 2, 3)], kind="loopy").is_exact
    assert marginal_engine((2, 2, 1, 2), [(0, 1, 2), (1, 2, 3)], kind="loopy").is_exact
