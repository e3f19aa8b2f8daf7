"""Coordinates of the sampler of a log-linear posterior: their covariance, and the products in blocks."""

import numpy as np
import pytest
from numba import njit

from bayesprivmrf.inference.posterior import whitening

GROUPS = {"in order": np.repeat([0, 1, 2, 3], [4, 7, 1, 5]), "interleaved": np.arange(17) % 3}


@njit
def product(matrix, vector, result):
    whitening.add_product(matrix, vector, result)


def times(blocks, vectors):
    """Return a matrix in blocks times the columns of another."""
    result = np.zeros(vectors.shape)
    for column in range(vectors.shape[1]):
        own = np.zeros(len(vectors))
        product(tuple(blocks), np.ascontiguousarray(vectors[:, column]), own)
        result[:, column] = own
    return result


def example(groups, rng):
    """Return information of low rank with a very strong direction, prior precisions, and a mode."""
    factor = rng.normal(size=(groups.size, 9)) * np.array([1e3, *[3.0] * 8])
    precision = rng.gamma(2.0, size=groups.size)
    return factor @ factor.T, precision, rng.normal(size=groups.size)


@pytest.mark.parametrize("name", list(GROUPS))
def test_map_has_the_covariance_and_the_mode_of_the_normal_approximation(name, monkeypatch):
    monkeypatch.setattr(whitening, "_LEAST_NORM", 0.0)
    information, precision, mode = example(GROUPS[name], np.random.default_rng(1))
    found = whitening.BlockWhitening.of(information, precision, mode, GROUPS[name])
    unit, shrink = np.eye(mode.size), 1 / np.sqrt(found.information + 1)
    columns = times(found.basis, shrink[:, np.newaxis] * (unit + times(found.mixing, unit)))
    expected = np.linalg.inv(information + np.diag(precision))
    np.testing.assert_allclose(columns @ columns.T, expected, atol=1e-8 * np.abs(expected).max())
    center = times(found.basis, (shrink**2 * found.pulled)[:, np.newaxis])[:, 0]
    np.testing.assert_allclose(center, mode, atol=1e-8)


@pytest.mark.parametrize("name", ["interleaved"])
def test_transposes_are_those_of_the_matrices(name):
    information, precision, mode = example(GROUPS[name], np.random.default_rng(2))
    found, unit = (
        whitening.BlockWhitening.of(information, precision, mode, GROUPS[name]),
        np.eye(mode.size),
    )
    np.testing.assert_array_equal(times(found.transposed_basis, unit), times(found.basis, unit).T)
    np.testing.assert_array_equal(times(found.transposed_mixing, unit), times(found.mixing, unit).T)


def test_independent_blocks_are_not_mixed():
    information = np.kron(np.eye(2), np.ones((3, 3))).astype(float)
    found = whitening.BlockWhitening.of(information, np.ones(6), np.zeros(6), np.repeat([0, 1], 3))
    assert found.mixing.entries.size == 0
    np.testing.assert_allclose(np.sort(found.information), [0, 0, 0, 0, 3, 3], atol=1e-12)


def test_diagonal_information_needs_no_mixing():
    found = whitening.BlockWhitening.of(
        np.array([3.0, 8.0]), np.array([1.0, 4.0]), np.array([1.0, 2.0]), np.zeros(2, int)
    )
    np.testing.assert_allclose(times(found.basis, np.eye(2)), np.diag([1.0, 0.5]))
    np.testing.assert_allclose(found.information, [3.0, 2.0])
    np.testing.assert_allclose(found.pulled, [4.0, 12.0])


@pytest.mark.parametrize("rows", range(1, 10))
def test_product_with_any_number_of_rows(rows):
    rng = np.random.default_rng(rows)
    matrix, vector, result = rng.normal(size=(rows, 21)), rng.normal(size=21), np.ones(rows)
    product(tuple(whitening.Blocks.whole(matrix)), vector, result)
    np.testing.assert_allclose(result, 1 + matrix @ vector)


def test_models_without_coordinates():
    none = np.zeros(0)
    found = whitening.BlockWhitening.of(np.zeros((0, 0)), none, none, np.zeros(0, int))
    assert found.pulled.size == found.basis.entries.size == 0
