"""Least squares of benchmarks/rhode_island.py agrees with pseudo-inverses of small dense matrices."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.sparse import csr_array, eye_array, vstack


def script(name):
    path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # one script imports the other
    spec.loader.exec_module(module)
    return module


sparse_least_squares = script("sparse_least_squares")
SparseLeastSquares = sparse_least_squares.SparseLeastSquares
margins, nested_rows = sparse_least_squares.margins, sparse_least_squares.nested_rows

CARDS = {"a": 2, "b": 3}
SCOPES = [(), ("a",), ("b",), ("a", "b")]


def by_pseudo_inverse(rows, variances, values):
    """Estimate and covariance where exact rows hold, by a basis of what they leave free."""
    is_exact = variances == 0
    exact, noisy = rows[is_exact], rows[~is_exact] / np.sqrt(variances[~is_exact])[:, np.newaxis]
    start = np.linalg.pinv(exact) @ values[is_exact] if is_exact.any() else np.zeros(rows.shape[1])
    free = null_space(exact) if is_exact.any() else np.eye(rows.shape[1])
    inverse = np.linalg.pinv(noisy @ free)
    target = values[~is_exact] / np.sqrt(variances[~is_exact]) - noisy @ start
    return start + free @ (inverse @ target), free @ inverse @ inverse.T @ free.T


def assert_agrees(rows, variances, values):
    fit = SparseLeastSquares(csr_array(rows), variances)
    mean, covariance = by_pseudo_inverse(rows, variances, values)
    np.testing.assert_allclose(fit.estimate(values), mean, rtol=1e-7, atol=1e-7)
    found = fit.variances(range(rows.shape[1]), at_once=3)
    np.testing.assert_allclose(found, np.diag(covariance), rtol=1e-6, atol=1e-8)
    return fit


def table():
    return vstack([margins(CARDS, scope) for scope in SCOPES]).tocsr()


def test_margins_are_sums_of_the_cells():
    cells = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(margins(CARDS, ("b",)) @ cells.ravel(), cells.sum(axis=0))
    np.testing.assert_array_equal(margins(CARDS, ()) @ cells.ravel(), [15.0])


def test_noisy_margins_of_one_table():
    rng = np.random.default_rng(1)
    rows = table().toarray()
    assert_agrees(rows, rng.uniform(0.1, 50, len(rows)), rng.normal(10, 5, len(rows)))


@pytest.mark.parametrize("exact", [[0], [0, 1, 2], [0, 1, 2, 3, 4, 5]])
def test_exact_totals_and_margins_that_repeat_each_other(exact):
    rng = np.random.default_rng(2)
    rows = table().toarray()
    counts = rng.poisson(20, 6)
    variances = rng.uniform(1, 50, len(rows))
    variances[exact] = 0
    values = rows @ counts + np.sqrt(variances) * rng.normal(size=len(rows))
    fit = assert_agrees(rows, variances, values)
    np.testing.assert_allclose((rows @ fit.estimate(values))[exact], values[exact], atol=1e-7)


def test_cells_that_only_sums_tell():
    rng = np.random.default_rng(3)
    rows = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1.0]])
    assert_agrees(rows, np.array([1, 4, 9, 0.0]), rng.normal(10, 5, 4))


@pytest.mark.parametrize("is_total_exact", [False, True])
def test_areas_inside_areas_are_those_of_sums_over_cells(is_total_exact):
    rng = np.random.default_rng(4)
    parents = [np.array([0, 0, 1, 1, 1]), np.array([0, 0])]
    inside = [np.eye(5), np.eye(2)[parents[0]].T, np.ones((1, 5))]
    one = [
        np.repeat(rng.uniform(1, 50, len(SCOPES)), [1, 2, 3, 6]) for _ in inside
    ]  # a variance a table
    variances = np.concatenate(
        [np.tile(each, len(areas)) for each, areas in zip(one, inside, strict=True)]
    )
    if is_total_exact:
        variances[-table().shape[0]] = 0
        variances[:: table().shape[0]][5:7] = 0
    plain = np.vstack([np.kron(areas, table().toarray()) for areas in inside])
    values = plain @ rng.poisson(15, plain.shape[1]) + np.sqrt(variances) * rng.normal(
        size=len(plain)
    )
    mean, covariance = by_pseudo_inverse(plain, variances, values)
    rows = nested_rows([table()] * 3, parents, 1)
    sums = np.zeros(rows.shape[0] - len(values))
    fit = SparseLeastSquares(rows, np.append(variances, sums))
    found = fit.estimate(np.append(values, sums))
    np.testing.assert_allclose(found[: len(mean)], mean, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(found[-6:], np.kron(np.ones((1, 5)), np.eye(6)) @ mean, rtol=1e-7)
    deviations = fit.variances(range(len(mean)))
    np.testing.assert_allclose(deviations, np.diag(covariance), rtol=1e-6)
    # cells of one area are alike, and so are areas of one larger area: one solve tells their variance
    np.testing.assert_allclose(deviations[:12], deviations[0], rtol=1e-6)
    np.testing.assert_allclose(deviations[12:], deviations[12], rtol=1e-6)


def test_the_study_solves_for_what_it_measured(tmp_path, monkeypatch):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "1")  # which the script would leave set
    rhode_island = script("rhode_island")
    rng = np.random.default_rng(5)
    blocks = [("T1", "G1", "B1"), ("T1", "G1", "B2"), ("T1", "G2", "B3")]
    people = ["tract,block_group,block,voting_age,hispanic,race,count"]
    people += [
        f"{','.join(block)},{age},{hispanic},{race},{rng.integers(1, 60)}"
        for block in blocks
        for age in ("<18", "18+")
        for hispanic, race in (("no", 1), ("yes", 2))
    ]
    (tmp_path / "blocks.csv").write_text("\n".join(people))
    budget = [
        f"{lv},{name},{rng.uniform(1, 50)}"
        for lv in rhode_island.LEVELS
        for name in rhode_island.SCOPES
    ]
    (tmp_path / "budget.csv").write_text("\n".join(["level,query,variance", *budget]))
    truth = rhode_island.Truth(tmp_path, "Block")
    release = truth.release(1)
    rows = np.vstack(
        [m.query.bind(truth.network).in_cliques.toarray() for m in release.measurements]
    )
    variances = np.concatenate(
        [np.full(len(m.values), m.noise.variance) for m in release.measurements]
    )
    weighted = rows / variances[:, np.newaxis]
    covariance = np.linalg.inv(rows.T @ weighted)
    mean = covariance @ (weighted.T @ np.concatenate([m.values for m in release.measurements]))
    np.testing.assert_allclose(truth.least_squares(release), mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(truth.deviations, np.sqrt(np.diag(covariance)), rtol=1e-6)


def test_cells_that_nothing_tells_are_refused():
    with pytest.raises(ValueError, match="determine every cell"):
        SparseLeastSquares(csr_array(np.array([[1.0, 1.0]])), np.ones(1)).variances([0])


def test_single_cells_alone_are_their_own_estimates():
    assert_agrees(eye_array(3).toarray(), np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]))
