"""Every executor of the exact engine against brute force."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from marginals.models import AWKWARD, assert_agree, brute, exact_engines

from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.marginals import Layout, MarginalEngine, arrays, marginal_engine, planning

EXECUTORS = tuple(exact_engines(AWKWARD["one variable"]))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", AWKWARD)
def test_agrees_with_brute_force_on_awkward_graphs(name, executor):
    model = AWKWARD[name]
    engine, reference = exact_engines(model)[executor], brute(model)
    rng = np.random.default_rng(len(name))
    for spread, zeros in ((1.0, 0.0), (30.0, 0.0), (3.0, 0.15), (2000.0, 0.05)):
        theta = rng.normal(size=reference.size) * spread
        theta[rng.random(reference.size) < zeros] = -np.inf
        assert_agree(engine, reference, theta, rng.normal(size=reference.size))


@st.composite
def random_models(draw):
    cards = tuple(draw(st.lists(st.integers(1, 4), max_size=7)))
    variables = range(len(cards))
    scope = st.permutations(variables).flatmap(
        lambda order: st.integers(0, min(len(order), 4)).map(lambda k: tuple(order[:k]))
    )
    return cards, tuple(draw(st.lists(scope, max_size=8)))


@settings(max_examples=50, deadline=None, derandomize=True, phases=(Phase.generate,))
@given(random_models(), st.integers(0, 2**32 - 1), st.floats(-1, 3.5), st.sampled_from([0.0, 0.2]))
def test_agrees_with_brute_force_on_random_models(model, seed, log_spread, zeros):
    reference = brute(model)
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=reference.size) * 10**log_spread
    theta[rng.random(reference.size) < zeros] = -np.inf
    direction = rng.normal(size=reference.size)
    for engine in exact_engines(model).values():
        assert_agree(engine, reference, theta, direction)


def test_brute_force_marginals_are_the_gradient_of_the_log_partition():
    reference = brute(AWKWARD["three-way cliques"])
    rng = np.random.default_rng(1)
    theta, step = rng.normal(size=reference.size), 1e-5
    _, mu, product = reference.linearize(theta)
    for cell in rng.choice(reference.size, size=12, replace=False):
        unit = np.zeros(reference.size)
        unit[cell] = 1.0
        up, down = (reference.marginals(theta + sign * step * unit) for sign in (1, -1))
        assert (up[0] - down[0]) / (2 * step) == pytest.approx(mu[cell], abs=1e-9)
        np.testing.assert_allclose(product(unit), (up[1] - down[1]) / (2 * step), atol=1e-9)


def test_brute_force_agrees_with_a_table_written_by_hand():
    weights = np.array([[1.0, 2.0], [3.0, 4.0]])
    log_partition, mu = brute(((2, 2), ((1, 0), (0,)))).marginals(
        np.concatenate([np.log(weights.ravel()), np.log([1.0, 2.0])])
    )
    joint = weights.T * np.array([1.0, 2.0])[:, None]  # p(x0, x1), up to its sum
    assert log_partition == pytest.approx(np.log(joint.sum()), abs=1e-14)
    np.testing.assert_allclose(mu[:4].reshape(2, 2), joint.T / joint.sum(), atol=1e-15)
    np.testing.assert_allclose(mu[4:], joint.sum(axis=1) / joint.sum(), atol=1e-15)


@pytest.mark.parametrize("kind", ["exact", "loopy"])
def test_every_kind_meets_the_protocol(kind):
    engine = marginal_engine((2, 3), [(1, 0), (1,)], kind=kind)
    assert isinstance(engine, MarginalEngine)
    assert engine.cardinalities == (2, 3)
    assert engine.scopes == ((1, 0), (1,))
    assert engine.offsets == (0, 6, 9)
    assert engine.size == 9
    assert engine.is_exact  # loopy propagation is exact on a tree


@pytest.mark.parametrize("kind", ["exact", "loopy"])
def test_variables_in_no_scope_add_the_log_of_their_states(kind):
    engine = marginal_engine((2, 5, 3), [(0,)], kind=kind)
    assert engine.log_partition(np.zeros(2)) == pytest.approx(np.log(30.0), abs=1e-14)


def test_constant_potentials_shift_the_log_partition_alone():
    model = AWKWARD["cycle"]
    engine = marginal_engine(*model)
    theta = np.random.default_rng(0).normal(size=engine.size)
    log_partition, mu = engine.marginals(theta)
    shifted, mu_shifted = engine.marginals(theta + 1e4)
    assert shifted == pytest.approx(log_partition + 4e4, rel=1e-14)
    np.testing.assert_allclose(mu_shifted, mu, atol=1e-11)  # 1e4 costs the potentials four digits


def test_the_product_is_symmetric_and_positive():
    engine = marginal_engine(*AWKWARD["four-way cliques"])
    rng = np.random.default_rng(3)
    _, _, product = engine.linearize(rng.normal(size=engine.size))
    u, v = rng.normal(size=(2, engine.size))
    assert u @ product(v) == pytest.approx(v @ product(u), rel=1e-11)
    assert u @ product(u) > 0


def test_answers_survive_later_calls():
    engine = marginal_engine(*AWKWARD["complete"])
    rng = np.random.default_rng(4)
    theta = rng.normal(size=(2, engine.size))
    direction = rng.normal(size=engine.size)
    _, mu, product = engine.linearize(theta[0])
    kept_mu, kept_product = mu.copy(), product(direction)
    kept = kept_product.copy()
    engine.marginals(theta[1])
    engine.linearize(theta[1])[2](direction)
    np.testing.assert_array_equal(mu, kept_mu)
    np.testing.assert_array_equal(kept_product, kept)
    mu[:] = 0.0  # the caller's own
    np.testing.assert_array_equal(product(direction), kept)


def test_threads_share_an_engine():
    engine = marginal_engine((6,) * 12, [(i, i + 1) for i in range(11)] + [(0, 5, 11)])
    thetas = np.random.default_rng(5).normal(size=(24, engine.size))
    alone = [engine.linearize(theta)[2](thetas[0]) for theta in thetas]
    with ThreadPoolExecutor(8) as pool:
        together = list(
            pool.map(lambda theta: engine.linearize(theta)[2](thetas[0]), np.tile(thetas, (5, 1)))
        )
    for i, found in enumerate(together):
        np.testing.assert_array_equal(found, alone[i % len(alone)])


def test_read_only_and_strided_potentials_are_accepted_and_left_alone():
    engine = marginal_engine(*AWKWARD["tree"])
    theta = np.random.default_rng(6).normal(size=engine.size)
    expected = engine.marginals(theta)[1]
    frozen = theta.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(engine.marginals(frozen)[1], expected)
    np.testing.assert_array_equal(engine.marginals(np.repeat(theta, 2)[::2])[1], expected)
    np.testing.assert_array_equal(frozen, theta)


def test_plain_numpy_stands_in_where_numba_cannot_keep_code(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "bayesprivmrf.marginals.exact", None)
    model = ((2, 3, 5), ((0, 1), (1, 2), (2,)))  # in no other test, so not planned yet
    engine = marginal_engine(*model)
    assert isinstance(engine, arrays.ArrayEngine)
    theta = np.random.default_rng(2).normal(size=engine.size)
    assert_agree(engine, brute(model), theta, theta)


def test_plans_are_kept():
    assert marginal_engine((2, 3), [(0, 1)]) is marginal_engine([2, 3], [[0, 1]])


def test_dispatch_mixes_both_kinds_of_step():
    """Small tables cell by cell, large ones as products."""
    small = planning.BucketTree.build(Layout.build((3,) * 6, [(i, i + 1) for i in range(5)]))
    large = planning.BucketTree.build(
        Layout.build((20,) * 6, [(i, j) for i in range(6) for j in range(i)][:12])
    )
    assert all(len(step.groups) == 1 for step in planning.plan_steps(small))
    kinds = [len(step.groups) for step in planning.plan_steps(large)]
    assert kinds.count(2) >= 3
    assert kinds[-1] == 1
    assert all(len(step.groups) == 1 for step in planning.plan_steps(large, force="cells"))


@pytest.mark.parametrize("kind", ["exact", "loopy"])
def test_an_impossible_model_is_an_error(kind):
    engine = marginal_engine((2, 2), [(0,), (0, 1)], kind=kind)
    with pytest.raises(ModelError, match="Every configuration is impossible"):
        engine.marginals(np.array([0.0, -np.inf, -np.inf, -np.inf, 0.0, 0.0]))


@pytest.mark.parametrize(
    ("cards", "scopes", "message"),
    [
        ((2, 0), [(0,)], "`cardinalities` must be at least 1, got 0"),
        ((2, 2), [(0, 0)], "must name each variable once"),
        ((2, 2), [(0, 2)], "must name variables 0 to 1, got 2"),
        ((2, 2), [(-1,)], "must name variables 0 to 1, got -1"),
    ],
)
def test_a_bad_model_is_an_error(cards, scopes, message):
    with pytest.raises(ModelError, match=message):
        marginal_engine(cards, scopes)


def test_bad_arguments_are_errors():
    with pytest.raises(ArgumentError, match="`kind` must be"):
        marginal_engine((2,), [(0,)], kind="junction tree")
    with pytest.raises(ModelError, match=r"shape \(2,\), got \(3,\)"):
        marginal_engine((2,), [(0,)]).marginals(np.zeros(3))
    with pytest.raises(ModelError, match=r"`vector` must have shape"):
        marginal_engine((2,), [(0,)]).linearize(np.zeros(2))[2](np.zeros(3))
