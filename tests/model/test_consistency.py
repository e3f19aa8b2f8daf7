from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesprivmrf.marginals import Layout
from bayesprivmrf.model import consistent_projection, minimum_norm_potentials

MODELS = {
    "tree": ((2, 3, 2), ((0, 1), (2, 1))),
    "cycle": ((2, 3, 2, 2), ((0, 1), (1, 2), (2, 3), (3, 0))),
    "three-way": ((2, 3, 2, 4), ((0, 1, 2), (2, 1, 3), (3, 0))),
    "nested and repeated": ((2, 3), ((0, 1), (1,), (1, 0), (0,))),
    "disconnected": ((2, 1, 3), ((0,), (1, 2))),
}


def log_joint(cards, scopes, potentials):
    tables = Layout.build(cards, scopes).tables(potentials)
    states = product(*map(range, cards))
    return np.array(
        [
            sum(t[tuple(x[v] for v in s)] for t, s in zip(tables, scopes, strict=True))
            for x in states
        ]
    )


def indicator_matrix(cards, scopes):
    """Rows: joint states; columns: cells of all tables. Its row space holds all consistent tables."""
    size = sum(int(np.prod([cards[v] for v in s])) for s in scopes)
    rows = []
    for x in product(*map(range, cards)):
        flat = []
        for scope in scopes:
            table = np.zeros([cards[v] for v in scope])
            table[tuple(x[v] for v in scope)] = 1
            flat.append(table.ravel())
        rows.append(np.concatenate(flat))
    assert rows[0].size == size
    return np.array(rows)


@pytest.mark.parametrize("name", MODELS)
def test_projection_is_the_orthogonal_one_on_the_span_of_joint_states(name):
    cards, scopes = MODELS[name]
    joint = indicator_matrix(cards, scopes)
    rng = np.random.default_rng(1)
    values = rng.normal(size=joint.shape[1])
    basis = np.linalg.svd(joint, full_matrices=False)
    kept = basis.Vh[basis.S > 1e-9]
    expected = kept.T @ (kept @ values)
    np.testing.assert_allclose(consistent_projection(cards, scopes, values), expected, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_weighted_projection_with_fixed_total_satisfies_its_optimality_condition(name):
    cards, scopes = MODELS[name]
    joint = indicator_matrix(cards, scopes)
    rng = np.random.default_rng(2)
    values = rng.normal(size=joint.shape[1])
    weights = rng.uniform(0.2, 5, size=len(scopes))
    result = consistent_projection(cards, scopes, values, weights=list(weights), total=7.0)
    tables = Layout.build(cards, scopes).tables(result)
    assert [pytest.approx(7.0)] * len(tables) == [t.sum() for t in tables]
    sizes = [t.size for t in tables]
    gradient = np.repeat(weights, sizes) * (result - values)
    directions = joint - joint[0]  # consistent directions that keep the total
    np.testing.assert_allclose(directions @ gradient, 0, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_minimum_norm_potentials_keep_every_log_probability(name):
    cards, scopes = MODELS[name]
    size = indicator_matrix(cards, scopes).shape[1]
    rng = np.random.default_rng(3)
    potentials = 50 * rng.normal(size=size)
    smallest = minimum_norm_potentials(cards, scopes, potentials)
    np.testing.assert_allclose(
        log_joint(cards, scopes, smallest), log_joint(cards, scopes, potentials), atol=1e-10
    )
    assert np.linalg.norm(smallest) <= np.linalg.norm(potentials) * (1 + 1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_minimum_norm_potentials_keep_structural_zeros(seed):
    cards, scopes = MODELS["three-way"]
    rng = np.random.default_rng(seed)
    potentials = rng.normal(size=sum(int(np.prod([cards[v] for v in s])) for s in scopes))
    potentials[rng.random(potentials.size) < 0.2] = -np.inf
    smallest = minimum_norm_potentials(cards, scopes, potentials)
    assert np.array_equal(np.isneginf(smallest), np.isneginf(potentials))
    before, after = log_joint(cards, scopes, potentials), log_joint(cards, scopes, smallest)
    assert np.array_equal(np.isneginf(before), np.isneginf(after))
    finite = np.isfinite(before)
    np.testing.assert_allclose(after[finite], before[finite], atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_minimum_norm_potentials_are_minimal_with_structural_zeros_too(name):
    cards, scopes = MODELS[name]
    rng = np.random.default_rng(5)
    joint = indicator_matrix(cards, scopes)
    potentials = rng.normal(size=joint.shape[1])
    potentials[rng.random(potentials.size) < 0.25] = -np.inf
    free = np.isfinite(potentials)
    possible = (joint[:, ~free] == 0).all(axis=1)
    if not possible.any():
        pytest.skip("every joint state is impossible")
    smallest = minimum_norm_potentials(cards, scopes, potentials)
    # moves of the free potentials that the masked ones can make good for every joint state, possible or not
    keeps = np.linalg.svd(joint)[2][np.linalg.matrix_rank(joint) :]
    moves = keeps[:, free]
    np.testing.assert_allclose(moves @ smallest[free], 0, atol=1e-6)
