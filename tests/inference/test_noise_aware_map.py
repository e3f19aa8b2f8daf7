import warnings
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from inference.conftest import (
    noisy_release,
    probabilities,
    simulated_counts,
    specification,
    tables_of,
)
from inference.parts import MeanCounts, NoiseLikelihood
from scipy.integrate import quad
from scipy.stats import laplace, norm

from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, ForecastWarning, ModelError
from bayesprivmrf.inference import NaiveMLE, NoiseAwareMAP, Status, gather
from bayesprivmrf.inference.loglinear_fit import DenseCurvature, EffectsPrior, scale_prior
from bayesprivmrf.inference.noise_aware import (
    Expansion,
    Objective,
    SampledCurvature,
    Search,
    Settings,
    curvature,
    noise_aware_mode,
    schedule_of,
)
from bayesprivmrf.inference.noise_aware import interval as interval_module
from bayesprivmrf.inference.noise_aware.interval import noise_variances
from bayesprivmrf.mechanisms import LaplaceStatistics
from bayesprivmrf.model import Effects, declare
from bayesprivmrf.noise import kernels
from bayesprivmrf.privacy import DiscreteLaplace, Gaussian, Laplace, NoNoise
from bayesprivmrf.release import NoisyStatistics

CYCLE = specification(
    {"a": [0, 1, 2], "b": [2, 1, 0], "c": [0, 1], "d": [0, 1, 2]},
    [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")],
)


def likelihood(y, scale, is_laplace):
    cells = len(y)
    return NoiseLikelihood(
        noisy_counts=np.asarray(y, float),
        scale=np.full(cells, float(scale)),
        kernels=np.full(cells, kernels.ABSOLUTE if is_laplace else kernels.SQUARE),
    )


# a forecast


@pytest.mark.parametrize(
    ("states", "law", "has_forecast"),
    [
        ((12, 12), DiscreteLaplace(1.0), False),
        ((400, 250), DiscreteLaplace(1.0), True),
        ((40, 40, 40), Gaussian(1.0), True),
    ],
)
def test_what_takes_longer_than_a_minute_says_so_before_it_begins(states, law, has_forecast):
    clique = tuple("abc")[: len(states)]
    table = specification(dict(zip(clique, map(range, states), strict=True)), [clique])
    release = NoisyStatistics.from_tables(table, {clique: np.ones(states)}, noise=law)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ForecastWarning)  # ends the fit before its search
        if has_forecast:
            with pytest.raises(
                ForecastWarning,
                match=r"noisy counts and .* minutes on one ordinary core.*; wait for it",
            ):
                NoiseAwareMAP().fit(release)
        else:
            NoiseAwareMAP().fit(release)


@pytest.mark.slow
def test_the_forecast_counts_what_a_search_with_sampled_curvature_does():
    table = specification({"a": range(45), "b": range(45)}, [("a", "b")])
    rng = np.random.default_rng(1)
    release = noisy_release(
        table, simulated_counts(table, 2_000, rng)[0], DiscreteLaplace(1.0), rng
    )
    solution = NoiseAwareMAP().fit(release)
    assert curvature.EVALUATIONS / 20 < solution.stats["evaluations"] < 5 * curvature.EVALUATIONS


# likelihood


@pytest.mark.parametrize("deviation", [0.05, 0.7, 3.0, 40.0])
def test_normal_laplace_density_is_the_convolution(deviation):
    scale = 2.0
    for residual in (-30.0, -1.0, 0.0, 0.3, 9.0):

        def integrand(n, residual=residual):
            return norm.pdf(n, 0, deviation) * laplace.pdf(residual - n, 0, scale)

        points = [0.0, residual] if abs(residual) < 12 * deviation else [0.0]
        reference, _ = quad(
            integrand,
            -12 * deviation,
            12 * deviation,
            points=points,
            limit=400,
            epsabs=0,
            epsrel=1e-10,
        )
        found = kernels.LAPLACE.convolved(
            np.array([residual]), np.array([deviation**2]), np.array([scale])
        )[0]
        assert found[0] == pytest.approx(-np.log(reference), rel=1e-7, abs=1e-7)


def test_slope_and_curvature_are_the_derivatives_of_the_loss():
    rng = np.random.default_rng(1)
    residual, step = rng.normal(scale=8, size=200), 1e-4
    for deviation, scale in [(0.5, 3.0), (4.0, 1.0), (30.0, 0.5), (2.0, 2.0)]:
        of = np.full(200, deviation**2), np.full(200, scale)
        up, down = (
            kernels.LAPLACE.convolved(residual + step, *of),
            kernels.LAPLACE.convolved(residual - step, *of),
        )
        slope, curvature = (
            kernels.LAPLACE.convolved(residual, *of)[1],
            kernels.LAPLACE.convolved_curvature(residual, *of),
        )
        np.testing.assert_allclose(slope, -(up[0] - down[0]) / (2 * step), atol=1e-6)
        np.testing.assert_allclose(curvature, -(up[1] - down[1]) / (2 * step), atol=1e-6)


def test_loss_tends_to_both_laws_alone():
    y = np.array([5.0, -40.0, 0.0, 300.0])
    mean = np.array([3.0, 2.0, 1e-9, 100.0])
    own = likelihood(y, 7.0, True).loss(mean, np.full(4, 1e-10))[0]
    assert own == pytest.approx(-laplace.logpdf(y - mean, 0, 7.0).sum(), abs=1e-4)
    for scale in (1e-3, 1e-7, 0.0):
        normal = likelihood(y, scale, True).loss(mean, np.full(4, 25.0))[0]
        assert normal == pytest.approx(-norm.logpdf(y - mean, 0, 5.0).sum(), rel=1e-5)
    value, slope = likelihood([1e7, -1e7], 1e-2, True).loss(np.zeros(2), np.full(2, 1 / 12))
    assert np.isfinite(value)
    np.testing.assert_allclose(slope, [-100.0, 100.0])


def test_information_is_the_expected_squared_slope():
    for deviation in (0.05, 0.3, 1.0, 2.5, 8.0, 40.0):

        def integrand(r, deviation=deviation):
            loss, slope = kernels.LAPLACE.convolved(
                np.array([r]), np.array([deviation**2]), np.array([1.0])
            )
            return float(np.exp(-loss[0]) * slope[0] ** 2)

        reach = 10 * deviation + 40
        reference = 2 * quad(integrand, 0, reach, points=[deviation, 4 * deviation], limit=400)[0]
        found = likelihood([0.0], 1.0, True).information(np.array([deviation**2]))[0]
        assert found == pytest.approx(reference, rel=0.02)
    assert likelihood([0.0], 2.0, False).information(np.array([5.0]))[0] == pytest.approx(1 / 9)


def test_expected_loss_averages_over_the_mean():
    model = likelihood([10.0, 4.0], 3.0, True)
    mean, variance, width = np.array([6.0, 5.0]), np.array([4.0, 1.0]), np.array([2.0, 1.5])
    value, slope = model.expected_loss(mean, variance, width)
    curvature = model.expected_curvature(mean, variance, width)
    draws = np.random.default_rng(2).standard_normal((200_000, 1)) * width
    laws = model.noisy_counts - mean - draws, variance, model.scale
    terms = (*kernels.LAPLACE.convolved(*laws), kernels.LAPLACE.convolved_curvature(*laws))
    for found, sample in zip((value, slope, curvature), terms, strict=True):
        expected, error = sample.mean(axis=0), sample.std(axis=0) / len(sample) ** 0.5
        if np.isscalar(found):
            assert found == pytest.approx(expected.sum(), abs=5 * error.sum() + 1e-3)
        else:
            np.testing.assert_allclose(found, expected, atol=5 * error.max() + 2e-3)


def test_tables_measured_twice_tell_what_their_pooled_table_tells():
    rng = np.random.default_rng(3)
    counts, _ = simulated_counts(CYCLE, 1000, rng)
    precise = noisy_release(CYCLE, counts, Gaussian(10.0), rng, total=1000)
    coarse = noisy_release(CYCLE, counts, Gaussian(30.0), rng, total=1000)
    pooled = (precise.tables.flat + coarse.tables.flat / 9) / (1 + 1 / 9)
    single = NoisyStatistics.from_tables(
        CYCLE, dict(CYCLE.tables(pooled)), noise=Gaussian(float(np.sqrt(90.0))), total=1000
    )
    together = NoiseAwareMAP(scale=0.7, tolerance=1e-4).fit([precise, coarse])
    apart = NoiseAwareMAP(scale=0.7, tolerance=1e-4).fit(single)
    np.testing.assert_allclose(together.marginals.flat, apart.marginals.flat, atol=2e-5)


# mean counts


def test_mean_counts_and_their_derivative_match_enumeration(awkward):
    rng = np.random.default_rng(4)
    counts, _ = simulated_counts(awkward, 200, rng)
    evidence = gather(noisy_release(awkward, counts, Laplace(3.0), rng))
    means = MeanCounts(evidence=evidence)
    point = np.append(0.5 * rng.normal(size=means.effects.size), np.log(150.0))
    linearized = means.at(point)
    flat = means.evidence.family.potentials(point[:-1])
    np.testing.assert_allclose(
        linearized.mean, 150 * tables_of(awkward, probabilities(awkward, flat)), atol=1e-9
    )
    jacobian, step = means.jacobian(linearized), 1e-6
    for row, direction in zip(jacobian, np.eye(means.size), strict=True):
        change = (
            means.at(point + step * direction).mean - means.at(point - step * direction).mean
        ) / (2 * step)
        np.testing.assert_allclose(row, change, atol=1e-4)
    weights = rng.normal(size=len(linearized.mean))
    np.testing.assert_allclose(linearized.backward(weights), jacobian @ weights, atol=1e-8)


def test_mean_counts_of_nested_tables_with_zeros_are_sums_of_their_cliques():
    states = {"a": [0, 1], "b": [0, 1, 2], "c": [0, 1]}
    zeros = [(("a", 0), ("b", 2))]
    wide = specification(states, [("b", "a"), ("b", "c")], zeros)
    narrow = specification(states, [("a",), ("c", "b")])
    rng = np.random.default_rng(5)
    counts, _ = simulated_counts(wide, 500, rng)
    first = noisy_release(wide, counts, Laplace(2.0), rng)
    table = wide.tables(counts)
    exact = np.concatenate([table["b", "a"].sum(axis=0), table["c", "b"].ravel()])
    evidence = gather([first, noisy_release(narrow, exact, Laplace(4.0), rng)])
    means = MeanCounts(evidence=evidence)
    point = np.append(rng.normal(size=means.effects.size), np.log(500.0))
    model = evidence.specification
    joint = model.tables(
        tables_of(model, probabilities(model, means.evidence.family.potentials(point[:-1])))
    )
    expected = np.concatenate(
        [
            joint["b", "a"].ravel(),
            joint["b", "c"].ravel(),
            joint["b", "a"].sum(axis=0),
            joint["c", "b"].ravel(),
        ]
    )
    np.testing.assert_allclose(means.at(point).mean, 500 * expected[evidence.possible], atol=1e-9)
    assert expected[~evidence.possible].max() == 0


# curvature and prior


def test_sampled_curvature_agrees_with_the_dense_one():
    rng = np.random.default_rng(6)
    counts, _ = simulated_counts(CYCLE, 2000, rng)
    evidence = gather(noisy_release(CYCLE, counts, Laplace(20.0), rng))
    means = MeanCounts(evidence=evidence)
    linearized = means.at(np.append(0.4 * rng.normal(size=means.effects.size), np.log(2000.0)))
    weights, prior = rng.uniform(0.5, 2, len(linearized.mean)) / 400, np.full(means.size, 4.0)
    jacobian = means.jacobian(linearized)
    dense = DenseCurvature(information=(jacobian * weights) @ jacobian.T, prior=prior)
    sampled = SampledCurvature(linearized=linearized, weights=weights, prior=prior)
    vector = rng.normal(size=means.size)
    np.testing.assert_allclose(dense.solve(vector), dense.covariance @ vector, atol=1e-10)
    precision = np.linalg.inv(dense.covariance)
    assert dense.log_determinant == pytest.approx(np.linalg.slogdet(precision)[1])
    found = sampled.solve(vector)
    np.testing.assert_allclose(found, dense.solve(vector), atol=0.03 * np.linalg.norm(found))
    # 12 draws: the sum of d squares has a relative error of about sqrt(2 / (12 d)); five of them
    assert sampled.variances.sum() == pytest.approx(
        dense.variances.sum(), rel=5 * (2 / (12 * means.size)) ** 0.5
    )
    assert sampled.mean_variances().sum() == pytest.approx(
        dense.mean_variances(jacobian).sum(), rel=0.4
    )


@pytest.mark.parametrize("apart", [0.5, 0.0])
def test_scales_are_learned_at_the_maximum_of_the_evidence_of_a_linear_model(apart):
    effects = Effects.of((3, 3, 2), ((0, 1), (1, 2)))
    prior = EffectsPrior(effects=effects, spread_between_effects=apart)
    rng = np.random.default_rng(7)
    design = rng.normal(size=(60, effects.size))
    true = rng.normal(size=effects.size) * np.exp(np.where(effects.orders == 1, 0.3, -0.9))
    y = design @ true + rng.normal(size=60)
    log_scales = prior.expected_log_scales
    for _ in range(200):
        curvature = DenseCurvature(information=design.T @ design, prior=prior.precision(log_scales))
        log_scales = prior.updated(log_scales, curvature.solve(design.T @ y), curvature.variances)

    def negative_log_evidence(t):
        covariance = np.eye(60) + (design / prior.precision(t)) @ design.T
        return (
            0.5 * y @ np.linalg.solve(covariance, y)
            + 0.5 * np.linalg.slogdet(covariance)[1]
            - prior.log_density(t)
        )

    best = negative_log_evidence(log_scales)
    assert len(log_scales) == len(prior.scopes) == (5 if apart else 2)
    for move in 0.02 * np.vstack(
        [np.eye(len(log_scales)), np.ones(len(log_scales)), np.resize([1, -1], len(log_scales))]
    ):
        assert negative_log_evidence(log_scales + move) > best
        assert negative_log_evidence(log_scales - move) > best


# the estimate


@pytest.fixture(scope="module")
def noisy():
    rng = np.random.default_rng(8)
    counts, potentials = simulated_counts(CYCLE, 3000, rng)
    truth = tables_of(CYCLE, probabilities(CYCLE, potentials))
    return SimpleNamespace(
        release=noisy_release(CYCLE, counts, Laplace(15.0), rng), counts=counts, truth=truth
    )


def test_gradient_is_that_of_the_objective(noisy):
    search = Objective(gather(noisy.release), Settings())
    rng = np.random.default_rng(9)
    point = np.append(0.3 * rng.normal(size=search.means.effects.size), np.log(3000.0))
    log_scales = search.prior.expected_log_scales
    expansion = Expansion(search, point, log_scales, None)

    def objective(at):
        return search.penalised(at, log_scales, expansion.variance, expansion.width)

    _, gradient = objective(point)
    for position in range(len(point) - 1):
        move = np.zeros(len(point))
        move[position] = 1e-5
        change = (objective(point + move)[0] - objective(point - move)[0]) / 2e-5
        assert gradient[position] == pytest.approx(change, rel=1e-4, abs=1e-3)


def test_estimate_satisfies_its_own_equation_on_every_awkward_model(awkward):
    rng = np.random.default_rng(10)
    counts, _ = simulated_counts(awkward, 800, rng)
    evidence = gather(noisy_release(awkward, counts, Laplace(6.0), rng, total=800))
    settings = Settings(tolerance=1e-3)
    mode = noise_aware_mode(evidence, settings)
    assert mode.status is Status.CONVERGED
    linearized = mode.means.at(mode.point)
    variance = Objective(evidence, settings).variance(linearized)
    jacobian = mode.means.jacobian(linearized)
    jacobian[-1] = 0.0  # N is known
    width = np.sqrt(mode.curvature.mean_variances(jacobian))
    _, slope = mode.likelihood.expected_loss(linearized.mean, variance, width)
    precision = mode.prior.precision(mode.log_scales)
    gradient = linearized.backward(slope)[:-1] + precision * mode.coordinates
    deviations = np.sqrt(mode.curvature.variances[:-1])
    assert np.abs(gradient * deviations).max(initial=0.0) < 0.04


@pytest.mark.parametrize("law", [Laplace(12.0), Gaussian(20.0)])
def test_evidence_is_the_integral_over_the_coordinates_of_a_small_model(law):
    model = specification({"a": [0, 1]}, [("a",)])
    release = NoisyStatistics.from_tables(
        model, {("a",): np.array([190.0, 120.0])}, noise=law, total=300
    )
    for scale in (0.2, 0.5, 1.5):
        settings = Settings(scale=scale)
        mode = noise_aware_mode(gather(release), settings)
        variance = Objective(gather(release), settings).variance(mode.means.at(mode.point))

        def density(beta, scale=scale, mode=mode, variance=variance):
            mean = mode.means.at(np.array([beta, mode.log_total])).mean
            return np.exp(-mode.likelihood.loss(mean, variance)[0]) * norm.pdf(beta, 0, scale)

        reference = quad(density, -3, 3, points=[float(mode.coordinates[0])], limit=200)[0]
        assert mode.log_evidence == pytest.approx(np.log(reference), abs=0.1)


def test_without_noise_the_estimate_tends_to_maximum_likelihood(awkward):
    rng = np.random.default_rng(11)
    counts, _ = simulated_counts(awkward, 1_000_000, rng, scale=0.7)
    for law in (Laplace(1e-3), NoNoise()):
        release = NoisyStatistics.from_tables(
            awkward, dict(awkward.tables(counts)), noise=law, total=1_000_000
        )
        solution = NoiseAwareMAP(scale=10.0).fit(release)
        np.testing.assert_allclose(solution.marginals.flat, counts / 1_000_000, atol=2e-5)


@pytest.mark.slow
def test_noise_aware_estimate_is_closer_to_the_truth_than_naive():
    rng = np.random.default_rng(20)
    ratios = []
    for _ in range(16):
        counts, potentials = simulated_counts(CYCLE, 1000, rng, scale=0.3)
        truth = tables_of(CYCLE, probabilities(CYCLE, potentials))
        release = noisy_release(CYCLE, counts, Laplace(30.0), rng)
        fits = [estimator.fit(release) for estimator in (NoiseAwareMAP(), NaiveMLE())]
        assert fits[0].status is Status.CONVERGED
        ratios.append(
            np.subtract(*[np.log(truth @ np.log(truth / f.marginals.flat)) for f in fits])
        )
    assert np.mean(ratios) < -3.7 * np.std(ratios) / 16**0.5  # level 1e-4 if they were equally good


def test_scale_of_each_order_is_recovered():
    states = {v: [0, 1, 2] for v in "abcdefgh"}
    cliques = [(a, b) for a, b in zip("abcdefg", "bcdefgh", strict=True)] + [("a", "h"), ("b", "g")]
    model = specification(states, cliques)
    effects = Effects.of(model.cardinalities, model.scopes)
    rng = np.random.default_rng(12)
    gaps = []
    for _ in range(6):
        beta = rng.normal(size=effects.size) * np.where(effects.orders == 1, 1.0, 0.35)
        flat = effects.potentials(beta)
        counts = tables_of(model, rng.multinomial(50_000, probabilities(model, flat)))
        release = noisy_release(model, counts, DiscreteLaplace(20.0), rng, total=50_000)
        scales = noise_aware_mode(gather(release)).scales
        gaps.append(np.log([scales[1], scales[2] / 0.35]))
    # log scale of d draws has the standard error 1/sqrt(2d): .18 and .12; of the mean of 6, .07 and .05.
    # Five of them, and the prior's pull of at most a tenth.
    assert np.abs(np.mean(gaps, axis=0)).max() < 0.1 + 5 * 0.07


def test_a_release_without_signal_is_left_near_uniform():
    rng = np.random.default_rng(13)
    counts = tables_of(CYCLE, rng.multinomial(300, np.full(54, 1 / 54)))
    release = noisy_release(CYCLE, counts, DiscreteLaplace(80.0), rng, total=300)
    mode = noise_aware_mode(gather(release))
    assert max(mode.scales.values()) < 0.6
    assert mode.trust < 1
    uniform = tables_of(CYCLE, np.full(54, 1 / 54))
    fitted = NoiseAwareMAP().fit(release).marginals.flat
    assert uniform @ np.log(uniform / fitted) < 0.3 * 4  # nats, four tables


def test_a_strong_signal_is_found_from_a_start_far_away():
    rng = np.random.default_rng(14)
    counts, potentials = simulated_counts(CYCLE, 400, rng, scale=4.0)
    release = noisy_release(CYCLE, counts, DiscreteLaplace(20.0), rng)
    evidence = gather(release)
    whole = noise_aware_mode(evidence)
    search = Search(evidence, Settings())
    start = np.append(search.means.effects.coordinates(potentials), np.log(evidence.total))
    informed = search.settle(start, whole.log_scales, schedule_of(25, learns=False))
    assert whole.log_evidence > informed.log_evidence - 10


def test_products_alone_lead_to_the_dense_estimate(noisy, monkeypatch):
    dense = NoiseAwareMAP().fit(noisy.release)
    monkeypatch.setattr(scale_prior, "DENSE_LIMIT", 1)
    sampled = NoiseAwareMAP().fit(noisy.release)
    assert sampled.status is Status.CONVERGED
    np.testing.assert_allclose(sampled.marginals.flat, dense.marginals.flat, atol=0.01)
    assert sampled.stats["scale_of_order_2"] == pytest.approx(
        dense.stats["scale_of_order_2"], rel=0.3
    )
    frame, reference = sampled.interval(["a", "b"]), dense.interval(["a", "b"])
    np.testing.assert_allclose(
        (frame["upper"] - frame["lower"]) / (reference["upper"] - reference["lower"]), 1, atol=0.35
    )
    assert sampled.mode.noise_information().shape == (dense.mode.means.size,)


def test_noise_information_is_of_the_noise_alone(noisy):
    mode = NoiseAwareMAP().fit(noisy.release).mode
    jacobian = mode.means.jacobian(mode.means.at(mode.point))
    np.testing.assert_allclose(mode.noise_information(), jacobian @ jacobian.T / 15.0**2)


def test_structural_zeros_hold_and_loopy_marginals_are_called_approximate():
    model = specification(
        {"a": ["x", "y"], "b": [0, 1, 2], "c": [0, 1]},
        [("a", "b"), ("b", "c"), ("c", "a")],
        [(("a", "x"), ("b", 1)), (("c", 1), ("b", 2))],
    )
    rng = np.random.default_rng(15)
    counts, _ = simulated_counts(model, 4000, rng, scale=0.3)
    release = noisy_release(model, counts, Laplace(5.0), rng)
    exact = NoiseAwareMAP().fit(release)
    assert exact.status is Status.CONVERGED
    assert not exact.marginals.flat[~model.possible].any()
    np.testing.assert_allclose(exact.marginals.flat, counts / 4000, atol=0.02)
    frame = exact.interval(["a", "b"])
    assert frame.loc[("x", 1), ["estimate", "lower", "upper"]].tolist() == [0, 0, 0]
    loopy = NoiseAwareMAP(inference="loopy").fit(release)
    assert loopy.status is Status.APPROXIMATE
    np.testing.assert_allclose(loopy.marginals.flat, exact.marginals.flat, atol=0.03)


def test_bad_settings_and_releases_are_refused(noisy):
    for scale in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ArgumentError, match="`scale` must be positive"):
            NoiseAwareMAP(scale=scale)
    with pytest.raises(ArgumentError, match="`rounds`"):
        NoiseAwareMAP(rounds=1)
    with pytest.raises(ArgumentError, match="`tolerance`"):
        NoiseAwareMAP(tolerance=float("nan"))
    with pytest.raises(ArgumentError, match="`inference`"):
        NoiseAwareMAP(inference="magic")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="takes a release"):
        NoiseAwareMAP().fit({"a": 1})  # type: ignore[arg-type]


def test_a_total_below_its_own_error_is_not_trusted():
    rng = np.random.default_rng(16)
    counts, _ = simulated_counts(CYCLE, 5, rng)
    release = noisy_release(CYCLE, counts, Laplace(500.0), rng)
    solution = NoiseAwareMAP().fit(release)
    assert release.estimated_total < release.total_standard_error
    assert solution.status is Status.NOT_TRUSTED


# intervals


def test_interval_is_labelled_and_ordered_like_the_states(noisy):
    solution = NoiseAwareMAP().fit(noisy.release)
    frame = solution.interval(["c", "a"], prob=0.8)
    assert list(frame.columns) == ["estimate", "lower", "upper", "status", "note"]
    assert frame.index.names == ["c", "a"]
    assert frame.index.tolist() == [(c, a) for c in (0, 1) for a in (0, 1, 2)]
    np.testing.assert_allclose(
        frame["estimate"], solution.marginal(["c", "a"]).values.ravel(), atol=1e-10
    )
    assert (frame["lower"] < frame["estimate"]).all()
    assert (frame["estimate"] < frame["upper"]).all()
    assert frame["lower"].min() > 0
    assert frame["upper"].max() < 1
    wider = solution.interval(["c", "a"], prob=0.95)
    assert (wider["lower"] < frame["lower"]).all()
    assert frame["status"].isin(["ok", "model", "doubtful"]).all()
    assert "approximate" in repr(solution)
    for prob in (0.0, 1.0, float("nan")):
        with pytest.raises(ArgumentError, match="`prob`"):
            solution.interval(["a"], prob=prob)
    with pytest.raises(ModelError, match="variable once"):
        solution.interval(["a", "a"])


def test_interval_tends_to_the_binomial_one_without_noise():
    model = specification({"a": [0, 1]}, [("a",)])
    release = NoisyStatistics.from_tables(
        model, {("a",): np.array([400.0, 600.0])}, noise=Laplace(1e-3), total=1000
    )
    frame = NoiseAwareMAP(scale=20.0).fit(release).interval("a", prob=0.9)
    error = norm.ppf(0.95) / np.sqrt(1000 * 0.4 * 0.6)
    logit = np.log(0.4 / 0.6)
    expected = 1 / (1 + np.exp(-(logit + np.array([-error, error]))))
    np.testing.assert_allclose(
        frame.loc[0, ["lower", "upper"]].to_numpy(float).ravel(), expected, atol=2e-3
    )


@pytest.mark.slow
def test_intervals_hold_the_probabilities_where_laplace_noise_outweighs_sampling():
    """Twelve shares in 60 releases, within four standard errors of 0.9; with the information 1/b² it is 0.8."""
    rng = np.random.default_rng(7)
    model = specification({f"x{k}": [0, 1] for k in range(12)}, [(f"x{k}",) for k in range(12)])
    records, held = 50_000, []
    for _ in range(60):
        shares = rng.uniform(0.3, 0.7, 12)
        counts = rng.binomial(records, shares)
        noisy = np.column_stack([records - counts, counts]) + rng.laplace(0, 2000.0, (12, 2))
        tables = {(f"x{k}",): table for k, table in enumerate(noisy)}
        release = NoisyStatistics.from_tables(model, tables, noise=Laplace(2000.0), total=records)
        solution = NoiseAwareMAP(scale=20.0).fit(release)
        for k, share in enumerate(shares):
            row = solution.interval(f"x{k}", prob=0.9).iloc[1]
            held.append(row["lower"] <= share <= row["upper"])
    assert abs(np.mean(held) - 0.9) < 4 * np.sqrt(0.9 * 0.1 / len(held))


def test_a_tie_elsewhere_leaves_the_width_of_an_interval():
    """A tied pair of tables gives counts a covariance of their own; the rule for Laplace noise is the same."""
    names, states = "abcdef", {name: [0, 1] for name in "abcdef"}
    pairs, rng = list(pairwise(names)), np.random.default_rng(2)
    tables = {
        pair: np.array([[6000.0, 4000], [4000, 6000]]) + rng.laplace(0, 150.0, (2, 2))
        for pair in pairs
    }
    widths = []
    for ties in ({}, {"tied": [pairs[:2]]}):
        network = declare(states, pairs, **ties)
        release = NoisyStatistics.from_tables(network, tables, noise=Laplace(150.0), total=20_000)
        frame = NoiseAwareMAP().fit(release).interval(["e", "f"], prob=0.9)
        widths.append((frame["upper"] - frame["lower"]).mean())
    assert widths[1] == pytest.approx(widths[0], rel=0.08)


def test_interval_reaches_variables_that_no_clique_holds(noisy):
    frame = NoiseAwareMAP().fit(noisy.release).interval(["b", "d"])
    assert frame["estimate"].sum() == pytest.approx(1)
    assert (frame["lower"] < frame["estimate"]).all()


@pytest.mark.parametrize("total", [2000, None])
def test_noise_variances_by_products_are_those_of_matrices_with_a_public_and_a_private_total(
    total, monkeypatch
):
    rng = np.random.default_rng(18)
    counts, _ = simulated_counts(CYCLE, 2000, rng, scale=1.0)
    mode = NoiseAwareMAP().fit(noisy_release(CYCLE, counts, Laplace(30.0), rng, total=total)).mode
    by_products = SampledCurvature(
        linearized=mode.means.at(mode.point),
        weights=interval_module.noise_weights(mode),
        prior=np.append(mode.prior.precision(mode.log_scales), 1.0),
    )
    rows = rng.normal(size=(6, mode.means.effects.size))
    by_matrices, large = noise_variances(mode, rows), replace(mode, curvature=by_products)
    np.testing.assert_allclose(
        noise_variances(large, rows), by_matrices, rtol=1e-8
    )  # formed for so many rows
    monkeypatch.setattr(interval_module, "_FORMED", 0)
    np.testing.assert_allclose(noise_variances(large, rows), by_matrices, rtol=0.01)
    monkeypatch.setattr(interval_module, "PATIENCE", 0.0)
    with pytest.warns(
        ForecastWarning,
        match="intervals of 6 numbers .* minutes on one ordinary core; wait for them, ask for fewer",
    ):
        noise_variances(large, rows)


def test_no_row_of_a_measured_table_is_doubtful_by_itself():
    rng = np.random.default_rng(31)
    counts, _ = simulated_counts(CYCLE, 50_000, rng, scale=0.3)
    for noise in (2.0, 500.0):
        fit = NoiseAwareMAP().fit(noisy_release(CYCLE, counts, Laplace(noise), rng))
        assert fit.status is Status.CONVERGED
        frame = fit.interval(["a", "b"])
        assert (frame["status"] == "ok").all()
        assert (frame["note"] == "measured in this release").all()


def test_cells_about_as_large_as_their_noise_are_above_their_lower_limits():
    # on the scale of log-odds alone, a sixth of such cells are below their lower limits
    rng = np.random.default_rng(53)
    one = declare({"a": list(range(12))}, [("a",)])
    truth = np.append(np.full(11, 0.01), 0.89)
    below = []
    for _ in range(40):
        counts = rng.multinomial(2000, truth)
        noisy = counts + rng.laplace(scale=10.0, size=12)
        release = NoisyStatistics.from_tables(one, {"a": noisy}, noise=Laplace(10.0))
        frame = NoiseAwareMAP().fit(release).interval(["a"])
        below.append((truth < frame["lower"])[:11].mean())
    # 5 % are expected; four standard errors, clustered by release
    assert np.mean(below) < 0.05 + 4 * np.std(below) / 40**0.5


def test_rows_say_where_rows_of_one_person_count_as_independent():
    records = pd.DataFrame({"id": np.repeat(np.arange(300), 3), "a": np.repeat([0, 1, 1], 300)})
    one = declare({"a": [0, 1]}, [("a",)])
    release = LaplaceStatistics(epsilon=1.0, person="id", at_most=3).release(one, records, rng=1)
    with pytest.warns():
        fit = NoiseAwareMAP().fit(release)
    population = fit.interval(["a"])
    assert (population["status"] == "model").all()
    note = "up to 3 rows of one person count as independent"
    assert population["note"].str.contains(note).all()
    own = fit.interval(["a"], of="records")
    assert (own["status"] == "ok").all()
    assert own["note"].str.contains("counts rows, up to 3 of one person").all()
    asked = fit.interval(q.table("a"))
    assert (asked["status"] == "model").all()


def test_an_interaction_that_is_declared_but_not_measured_is_left_to_the_prior():
    pairs = [("a", "b"), ("b", "c"), ("a", "c")]
    triangle = declare({v: [0, 1] for v in "abc"}, pairs)
    tables = {pair: np.array([[300.0, 200.0], [150.0, 350.0]]) for pair in pairs[:2]}
    tables["b", "c"] = np.array([[300.0, 150.0], [200.0, 350.0]])
    release = NoisyStatistics.from_tables(triangle, tables, noise=Laplace(2.0))
    fit = NoiseAwareMAP().fit(release)
    assert (fit.interval(["a", "c"])["status"] == "prior").all()
    for pair in pairs[:2]:
        assert (fit.interval(list(pair))["status"] == "ok").all()


@pytest.mark.slow
def test_intervals_cover_nearly_what_they_say_where_there_is_signal():
    rng = np.random.default_rng(17)
    hits = []
    for _ in range(80):
        counts, potentials = simulated_counts(CYCLE, 5000, rng, scale=0.6)
        truth = CYCLE.tables(tables_of(CYCLE, probabilities(CYCLE, potentials)))["a", "b"].ravel()
        frame = (
            NoiseAwareMAP()
            .fit(noisy_release(CYCLE, counts, Laplace(10.0), rng))
            .interval(["a", "b"])
        )
        hits.append(((frame["lower"] <= truth) & (truth <= frame["upper"])).mean())
    # four standard errors, clustered by release, and the five points by which they are known to be short
    assert np.mean(hits) > 0.9 - 0.05 - 4 * np.std(hits) / 80**0.5


def test_curvature_of_more_information_than_doubles_hold_keeps_the_prior_where_there_is_none():
    rng = np.random.default_rng(5)
    direction = rng.standard_normal((4, 2))
    information = (
        1e19 * direction @ direction.T
    )  # of rank two, rounded: some eigenvalues are below zero
    prior = np.array([1.0, 2.0, 3.0, 4.0])
    free = np.linalg.svd(direction.T)[2][2:]
    curvature = DenseCurvature(information=information - 1e5 * np.eye(4), prior=prior)
    expected = free.T @ np.linalg.inv(free @ np.diag(prior) @ free.T) @ free
    assert curvature.covariance == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_a_model_with_one_state_has_intervals_and_no_message_of_lapack(capfd):
    single = specification({"a": [0]}, [("a",)])
    release = NoisyStatistics.from_tables(single, {("a",): [50.0]}, noise=Laplace(1.0))
    interval = NoiseAwareMAP().fit(release).interval(["a"])
    assert interval[["estimate", "lower", "upper"]].to_numpy().tolist() == [[1.0, 1.0, 1.0]]
    assert capfd.readouterr() == ("", "")
