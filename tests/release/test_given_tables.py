"""Tables that somebody else published: nested, repeated, and with a law for each cell."""

import numpy as np
import pytest
from inference.conftest import specification

import bayesprivmrf as bpm
from bayesprivmrf import load_release
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, ConsistencyWarning, ModelError
from bayesprivmrf.inference import NaiveMLE, gather, least_squares
from bayesprivmrf.privacy import DiscreteGaussian, Gaussian, Laplace, NoNoise
from bayesprivmrf.release import Measurement, NoisyStatistics

MODEL = specification({"a": ["x", "y"], "b": [0, 1, 2]}, [("a", "b")])
PAIRS = np.array([[50.0, 20.5, 9.0], [31.0, 7.0, 2.5]])
VARIANCES = np.array([[1.0, 4.0, 4.0], [400.0, 1.0, 90000.0]])


def test_nested_tables_are_the_measurements_that_they_are():
    release = NoisyStatistics.from_tables(
        MODEL,
        {"a": [80.0, 41.0], ("b", "a"): PAIRS.T},
        noise={"a": Laplace(1.0), ("a", "b"): Laplace(3.0)},
    )
    asked = [
        Measurement(q.table("a"), [80.0, 41.0], Laplace(1.0)),
        Measurement(q.table("b", "a"), PAIRS.T.ravel(), Laplace(3.0)),
    ]
    assert release == NoisyStatistics.from_measurements(MODEL, asked)
    assert not release.has_tables


def test_a_table_that_was_measured_twice_counts_twice():
    noise = [Gaussian(1.0), Gaussian(2.0)]
    pairs = [(("a", "b"), PAIRS), (("b", "a"), PAIRS.T + 1)]
    for tables in (pairs, dict(pairs)):
        laws = (
            noise
            if tables is pairs
            else {key: law for (key, _), law in zip(pairs, noise, strict=True)}
        )
        release = NoisyStatistics.from_tables(MODEL, tables, noise=laws)
        assert [each.noise for each in release.measurements] == noise
        assert release.estimated_total == pytest.approx((120 * 4 + 126) / 5)


@pytest.mark.parametrize(
    "noise",
    [
        {("a", "b"): VARIANCES},
        VARIANCES,
        [[[Gaussian(variance**0.5) for variance in row] for row in VARIANCES]],
        {("b", "a"): VARIANCES.T},
        {
            ("a", "b"): {
                (a, b): Gaussian(VARIANCES[i, b] ** 0.5)
                for i, a in enumerate("xy")
                for b in (2, 0, 1)
            }
        },
    ],
    ids=["variances of a table", "variances", "laws", "another order of the key", "by states"],
)
def test_each_cell_keeps_its_own_law(noise, tmp_path):
    release = NoisyStatistics.from_tables(MODEL, {("a", "b"): PAIRS}, noise=noise)
    evidence = gather(release)
    spread = np.asarray(
        evidence.matrix.T @ evidence.spread([law.variance for law in evidence.noise])
    )
    np.testing.assert_allclose(spread, VARIANCES.ravel())
    np.testing.assert_allclose(evidence.matrix.T @ evidence.noisy_counts, PAIRS.ravel())
    assert release.estimated_total == pytest.approx(PAIRS.sum())
    assert release.total_standard_error == pytest.approx(VARIANCES.sum() ** 0.5)
    release.save(tmp_path / "r")
    assert load_release(tmp_path / "r") == release


def test_laws_by_cell_that_are_one_law_are_the_plain_release():
    plain = NoisyStatistics.from_tables(MODEL, {("a", "b"): PAIRS}, noise=Gaussian(2.0))
    again = NoisyStatistics.from_tables(MODEL, {("a", "b"): PAIRS}, noise=np.full((2, 3), 4.0))
    assert again == plain
    assert type(again) is NoisyStatistics


def test_least_squares_weighs_each_cell_by_its_own_variance():
    """With one sum known, the unbiased estimate of least variance has a closed form."""
    release = NoisyStatistics.from_tables(
        MODEL, {("a", "b"): PAIRS, "a": [81.0, 39.0]}, noise={("a", "b"): VARIANCES, "a": NoNoise()}
    )
    found = least_squares.least_squares(gather(release)).counts.reshape(2, 3)
    gap = np.array([81.0, 39.0]) - PAIRS.sum(axis=1)
    share = VARIANCES / VARIANCES.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, PAIRS + share * gap[:, np.newaxis], atol=0.01)


def test_a_zero_variance_is_an_exact_cell():
    variances = VARIANCES.copy()
    variances[0, 0] = 0
    release = NoisyStatistics.from_tables(MODEL, {("a", "b"): PAIRS}, noise=variances)
    assert {law.name for law in release.noise} == {"none", "gaussian"}
    assert NaiveMLE(ridge=0).fit(release).marginal(["a", "b"]).to_numpy()[0, 0] == pytest.approx(
        50 / 120
    )


def test_rows_of_one_scope_tell_the_number_of_records_together_or_not_at_all():
    upper = Measurement(q.weighted("b", matrix=[[1, 1, 0]]), [90.0], Gaussian(3.0))
    lower = Measurement(q.weighted("b", matrix=[[0, 0, 1]]), [11.0], Gaussian(4.0))
    release = NoisyStatistics.from_measurements(MODEL, [upper, lower])
    assert (release.estimated_total, release.total_standard_error) == pytest.approx((101.0, 5.0))
    with pytest.raises(ModelError, match="number of records"):
        gather(NoisyStatistics.from_measurements(MODEL, [upper]))


@pytest.mark.parametrize(
    ("tables", "noise", "error", "message"),
    [
        ({"a": [1, 2]}, Laplace(1.0), ModelError, "entry for the clique"),
        ({("a", "b"): PAIRS, ("a", "z"): [1]}, Laplace(1.0), ModelError, "or inside one, got"),
        ({("a", "b"): PAIRS, "b": [1, 2]}, Laplace(1.0), ModelError, r"shape \(3,\)"),
        ({("a", "b"): PAIRS, "a": [1, 2]}, {"a": Laplace(1.0)}, ModelError, "entry for the table"),
        ([(("a", "b"), PAIRS)], [Laplace(1.0)] * 2, ArgumentError, "each of the 1 tables"),
        ([PAIRS], Laplace(1.0), ArgumentError, "pairs of a scope"),
        (PAIRS, Laplace(1.0), ArgumentError, "must map"),
        ({("a", "b"): PAIRS}, VARIANCES.T, ModelError, r"must have shape \(2, 3\)"),
        ({("a", "b"): PAIRS}, -VARIANCES, ArgumentError, "not negative"),
        (
            {("a", "b"): PAIRS},
            {("a", "b"): {("x", 0): Laplace(1.0)}},
            ModelError,
            "1 of 6 combinations",
        ),
        ({("a", "b"): PAIRS}, "laplace", ArgumentError, "must be a noise distribution"),
        ({("a", "b"): PAIRS, "a": [1, 2]}, Laplace, ArgumentError, "must be a noise distribution"),
        ({("a", "b"): PAIRS, "a": [1, 2]}, DiscreteGaussian(1.0), ModelError, "whole numbers"),
    ],
)
def test_what_does_not_fit_is_refused(tables, noise, error, message):
    with pytest.raises(error, match=message):
        NoisyStatistics.from_tables(MODEL, tables, noise=noise)


def test_laws_of_cells_follow_the_axes_of_their_own_key():
    """Here the array of variances is square, so that its shape does not tell the order of its axes."""
    model = specification({"a": ["x", "y"], "b": [0, 1]}, [("a", "b")])
    table, variances = np.array([[50.0, 20.0], [31.0, 7.0]]), np.array([[1.0, 4.0], [9.0, 16.0]])
    states = {("x", 0): 1.0, ("x", 1): 4.0, ("y", 0): 9.0, ("y", 1): 16.0}
    laws = {cell: Gaussian(variance**0.5) for cell, variance in states.items()}
    for noise in (variances, [[Gaussian(v**0.5) for v in row] for row in variances], laws):
        release = NoisyStatistics.from_tables(
            model, {("b", "a"): table.T}, noise={("a", "b"): noise}
        )
        evidence = gather(release)
        found = evidence.matrix.T @ evidence.spread([law.variance for law in evidence.noise])
        np.testing.assert_allclose(found, variances.ravel())


@pytest.mark.parametrize(
    "noise", [np.array(None), np.array(2.0), [np.array(None)], [[[1, 2], [3]]], [[]]], ids=repr
)
def test_what_is_neither_a_law_nor_an_array_of_them_is_refused(noise):
    model = specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    with pytest.raises((ArgumentError, ModelError), match="distributions or"):
        NoisyStatistics.from_tables(model, {("a", "b"): np.ones((2, 2))}, noise=noise)


@pytest.mark.parametrize("decimals", [2, 16])
def test_tables_of_proportions_are_refused_with_the_remedy(decimals):
    network = bpm.declare({"a": ["x", "y", "z"], "b": ["n", "y"]}, [("a", "b")])
    shares = np.round(np.array([[1, 1], [2, 1], [1, 1]]) / 7, decimals)
    for tables in ({("a", "b"): shares}, [("a", shares.sum(axis=1)), (("b", "a"), shares.T)]):
        with pytest.raises(
            ModelError, match=r"must hold counts, got proportions.*multiply the tables"
        ):
            bpm.NoisyStatistics.from_tables(network, tables, noise=Gaussian(0.01))
    for counts in (np.eye(3)[:, :2], [[1.2, -0.3], [0.2, 0.1], [-0.4, 0.2]]):
        bpm.NoisyStatistics.from_tables(network, {("a", "b"): counts}, noise=Gaussian(0.5))


@pytest.mark.parametrize("decimals", [1, 13])
def test_tables_that_look_like_percentages_are_read_with_a_warning_unless_there_are_100_records(
    decimals,
):
    network = bpm.declare({"a": ["x", "y", "z"], "b": ["n", "y"]}, [("a", "b")])
    percentages = np.round(np.array([[1, 1], [2, 1], [1, 1]]) / 7 * 100, decimals)
    release = bpm.NoisyStatistics.from_tables
    for tables in (
        {("a", "b"): percentages},
        [("a", percentages.sum(axis=1) + np.array([0.1, 0.1, -0.2])), (("b", "a"), percentages.T)],
    ):
        with pytest.warns(
            ConsistencyWarning, match="look like percentages.*state total=100"
        ) as caught:
            found = release(network, tables, noise=Gaussian(0.5))
        assert caught[0].filename == __file__
        assert (
            found.flat.tolist()
            == release(network, tables, noise=Gaussian(0.5), total=100).flat.tolist()
        )
    rows = {"a": list("xxyyzz"), "b": list("nynyny"), "value": percentages.ravel()}
    with pytest.warns(ConsistencyWarning, match="multiply the tables and the scales") as caught:
        bpm.readers.read_counts(network, rows, noise=Gaussian(0.5))
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "counts",
    [
        [[14, 14], [29, 14], [14, 15]],
        [[14.2, 14.2], [28.7, 14.2], [14.2, 15.1]],
        [[114.2, -14.2], [0.5, -0.5], [-1.5, 1.5]],
    ],
    ids=["whole", "another sum", "outside"],
)
def test_counts_of_about_100_records_that_cannot_be_percentages_are_read_without_a_warning(counts):
    network = bpm.declare({"a": ["x", "y", "z"], "b": ["n", "y"]}, [("a", "b")])
    bpm.NoisyStatistics.from_tables(network, {("a", "b"): counts}, noise=Gaussian(0.5))


def test_a_number_of_records_below_its_error_says_to_check_that_tables_are_counts():
    network = bpm.declare({"a": ["x", "y"]}, [("a",)])
    release = bpm.NoisyStatistics.from_tables(network, {"a": [0.9, -0.1]}, noise=Laplace(2.0))
    (problem,) = bpm.NoiseAwareMAP().fit(release).problems
    assert "check that they hold counts, not proportions" in problem
