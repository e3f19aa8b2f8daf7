import math
from itertools import combinations, product

import numpy as np
import pytest

from bayesprivmrf.errors import ModelError
from bayesprivmrf.model import Effects, contrasts
from bayesprivmrf.model import effects as effects_module

MODELS = {
    "tree": ((2, 3, 2), ((0, 1), (2, 1))),
    "cycle": ((2, 3, 2, 2), ((0, 1), (1, 2), (2, 3), (3, 0))),
    "disconnected": ((2, 2, 3), ((0, 1), (2,))),
    "one state": ((1, 2, 2), ((0, 1), (1, 2))),
    "only one state": ((1,), ((0,),)),
    "three-way": ((2, 3, 2, 2), ((2, 0, 1), (3, 1), (3, 0))),
    "nested and repeated": ((2, 3, 2), ((1, 0), (0, 1), (1,), (2, 1, 0), (0, 2))),
    "single": ((4,), ((0,),)),
    "empty": ((), ()),
}


@pytest.fixture(params=list(MODELS))
def model(request):
    return MODELS[request.param]


@pytest.fixture(params=["sparse", "dense"], autouse=True)
def way(request, monkeypatch):
    """Both ways of computing the map: one sparse matrix, and tables grouped by shape."""
    effects_module.built_effects.cache_clear()
    if request.param == "dense":
        monkeypatch.setattr(effects_module, "_SPARSE", -1)
    yield request.param
    effects_module.built_effects.cache_clear()


def log_probabilities(cardinalities, scopes, potentials):
    """Log-probability of each joint state, by enumeration."""
    states = list(product(*map(range, cardinalities)))
    energies, start = np.zeros(len(states)), 0
    for scope in scopes:
        shape = tuple(cardinalities[v] for v in scope)
        table = potentials[start : start + math.prod(shape)].reshape(shape)
        energies += [table[tuple(x[v] for v in scope)] for x in states]
        start += math.prod(shape)
    return energies - np.logaddexp.reduce(energies)


def test_contrasts_are_orthonormal_and_sum_to_zero():
    for states in (1, 2, 3, 7):
        basis = contrasts(states)
        np.testing.assert_allclose(basis.T @ basis, np.eye(states - 1), atol=1e-14)
        np.testing.assert_allclose(basis.sum(axis=0), 0, atol=1e-14)


def test_running_sums_are_products_with_the_dense_basis(model, monkeypatch):
    effects = Effects.of(*model)
    rng = np.random.default_rng(1)
    beta, potentials = rng.normal(size=effects.size), rng.normal(size=effects.cells)
    dense = effects.margins(beta), effects.coordinates(potentials)
    monkeypatch.setattr(effects_module, "_DENSE", 1)
    np.testing.assert_allclose(effects.margins(beta), dense[0], atol=1e-12)
    np.testing.assert_allclose(effects.coordinates(potentials), dense[1], atol=1e-12)


def test_there_is_one_effect_for_each_subset_of_a_clique_smallest_first(model):
    cardinalities, scopes = model
    effects = Effects.of(cardinalities, scopes)
    expected = {
        subset
        for scope in scopes
        for size in range(1, len(scope) + 1)
        for subset in combinations(sorted(scope), size)
        if all(cardinalities[v] > 1 for v in subset)
    }
    assert set(effects.subsets) == expected
    assert list(effects.subsets) == sorted(expected, key=lambda s: (len(s), s))
    sizes = [math.prod(cardinalities[v] - 1 for v in subset) for subset in effects.subsets]
    assert effects.offsets == (0, *np.cumsum(sizes, dtype=int))
    assert effects.orders.tolist() == [
        len(s) for s, n in zip(effects.subsets, sizes, strict=True) for _ in range(n)
    ]


def test_effect_tables_sum_to_zero_along_each_axis_and_keep_the_norm(model):
    effects = Effects.of(*model)
    beta = np.random.default_rng(1).normal(size=effects.size)
    tables = effects.tables(beta)
    for position, table in enumerate(tables):
        own = beta[effects.offsets[position] : effects.offsets[position + 1]]
        assert np.linalg.norm(table) == pytest.approx(np.linalg.norm(own))
        for axis in range(table.ndim):
            np.testing.assert_allclose(table.sum(axis=axis), 0, atol=1e-13)


def test_potentials_are_the_sum_of_the_effect_tables(model):
    cardinalities, scopes = model
    effects = Effects.of(cardinalities, scopes)
    beta = np.random.default_rng(2).normal(size=effects.size)
    tables = effects.tables(beta)
    states = list(product(*map(range, cardinalities)))
    energies = np.zeros(len(states))
    for subset, table in zip(effects.subsets, tables, strict=True):
        energies += [table[tuple(x[v] for v in subset)] for x in states]
    found = log_probabilities(cardinalities, scopes, effects.potentials(beta))
    np.testing.assert_allclose(found, energies - np.logaddexp.reduce(energies), atol=1e-12)


def test_each_effect_lies_in_the_first_clique_that_holds_it(model):
    cardinalities, scopes = model
    effects = Effects.of(cardinalities, scopes)
    starts = np.cumsum([0, *(math.prod(cardinalities[v] for v in scope) for scope in scopes)])
    for position, subset in enumerate(effects.subsets):
        beta = np.zeros(effects.size)
        beta[effects.offsets[position] : effects.offsets[position + 1]] = 1.0
        home = next(c for c, scope in enumerate(scopes) if set(scope) >= set(subset))
        used = np.nonzero(effects.potentials(beta))[0]
        assert used.min() >= starts[home]
        assert used.max() < starts[home + 1]


def test_pull_back_is_the_transpose(model):
    effects = Effects.of(*model)
    matrix = effects.potentials(np.eye(effects.size))
    back = effects.pull_back(np.eye(effects.cells))
    assert matrix.shape == (effects.size, effects.cells)
    np.testing.assert_allclose(matrix, back.T, atol=1e-14)
    assert np.linalg.matrix_rank(matrix) == effects.size if effects.size else True


def test_batches_of_any_shape_are_mapped_row_by_row(model):
    effects = Effects.of(*model)
    rng = np.random.default_rng(3)
    beta, flat = rng.normal(size=(2, 3, effects.size)), rng.normal(size=(2, 3, effects.cells))
    for i, j in product(range(2), range(3)):
        np.testing.assert_allclose(effects.potentials(beta)[i, j], effects.potentials(beta[i, j]))
        np.testing.assert_allclose(effects.pull_back(flat)[i, j], effects.pull_back(flat[i, j]))
        for whole, part in zip(effects.tables(beta), effects.tables(beta[i, j]), strict=True):
            np.testing.assert_allclose(whole[i, j], part)


def test_coordinates_of_any_potentials_give_the_same_distribution(model):
    cardinalities, scopes = model
    effects = Effects.of(cardinalities, scopes)
    potentials = np.random.default_rng(4).normal(size=effects.cells)
    beta = effects.coordinates(potentials)
    np.testing.assert_allclose(
        log_probabilities(cardinalities, scopes, effects.potentials(beta)),
        log_probabilities(cardinalities, scopes, potentials),
        atol=1e-12,
    )
    np.testing.assert_allclose(effects.coordinates(effects.potentials(beta)), beta, atol=1e-13)
    several = np.random.default_rng(1).normal(size=(2, 3, effects.cells))
    one_by_one = [[effects.coordinates(row) for row in rows] for rows in several]
    np.testing.assert_allclose(
        effects.coordinates(several), np.reshape(one_by_one, (2, 3, -1)), atol=1e-13
    )


def test_equal_models_share_their_coordinates():
    assert Effects.of([2, 3], [[0, 1]]) is Effects.of((2, 3), ((0, 1),))


def test_wrong_shapes_and_infinite_potentials_are_refused():
    effects = Effects.of((2, 3), ((0, 1),))
    with pytest.raises(ModelError, match="`beta` must have 5"):
        effects.potentials(np.zeros(6))
    with pytest.raises(ModelError, match="`flat` must have 6"):
        effects.pull_back(np.zeros((2, 5)))
    with pytest.raises(ModelError, match="finite"):
        effects.coordinates(np.array([0, 0, 0, -np.inf, 0, 0]))
