"""The general engine: its density, its population given latent tables, and its posterior against exact ones."""

import math

import numpy as np
import pytest
from inference.conftest import (
    AWKWARD,
    noisy_release,
    probabilities,
    simulated_counts,
    specification,
    tables_of,
)
from inference.posterior.drawn import finished_of
from inference.posterior.three_binary import cells, exact_posterior, joint

from bayesprivmrf.inference import LatentCounts, Status, gather
from bayesprivmrf.inference.posterior.effects_engine import Plan, fisher_information
from bayesprivmrf.inference.posterior.relaxed_counts.log_linear import LogLinear
from bayesprivmrf.inference.posterior.superpopulation import LatentTables, draw_potentials
from bayesprivmrf.marginals.arrays import draw_tables
from bayesprivmrf.model import Effects
from bayesprivmrf.privacy import DiscreteLaplace, Gaussian, Laplace

MODELS = {name: specification(*given) for name, given in AWKWARD.items() if name != "empty"}
MODELS["structural zero"] = specification(
    {"a": [0, 1], "b": [0, 1, 2], "c": [0, 1]},
    [("a", "b"), ("b", "c"), ("c", "a")],
    impossible=[(("a", 1), ("b", 2))],
)
CYCLE = MODELS["cycle"]


LAPLACE = Laplace(2.0)


def formulation(model, law=LAPLACE, total=None, seed=0, records=80, **settings):
    rng = np.random.default_rng(seed)
    counts, _ = simulated_counts(model, records, rng, scale=0.5)
    release = noisy_release(model, counts, law, rng, total=total)
    return LogLinear(evidence=gather(release), total=total, **settings)


def expected_density(engine, values):
    """Log-density of (position, log scale, total) from the formulas of the modules, without their code's maps."""
    latent = engine.latent
    log_scales, beta = values["log_scale"], values["coordinates"]
    total = float(values["total"]) if engine.total is None else engine.total
    mu = latent.plan.moments(beta)[1]
    counts = (total + latent.excess) * mu - latent.excess * latent.uniform
    precision = latent.precision(log_scales, math.log(total))
    density = 0.5 * np.sum(np.log(precision)) - 0.5 * precision @ beta**2
    evidence = engine.evidence
    for position in range(len(evidence.scopes)):
        own = slice(*evidence.offsets[position : position + 2])
        inside = evidence.possible[own]
        residual = evidence.noisy_counts[own][inside] - counts[own][inside]
        density += evidence.noise[position].log_density(residual).sum()
    if engine.scale is None:
        gap = log_scales - math.log(latent.effects_prior.location)
        density -= 0.5 * gap @ np.linalg.inv(latent.effects_prior.scale_covariance) @ gap
    if engine.total is None:
        low, high = np.log(engine.total_range)
        share = (math.log(total) - low) / (high - low)
        density += math.log(share) + math.log1p(
            -share
        )  # of the logistic position of a uniform log N
    return density


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("is_private", [True, False], ids=["private", "public"])
def test_density_is_that_of_the_formulas_in_coordinates_of_the_tables(name, is_private):
    """log p(position) - log |d coordinates / d position| is the density of θ' and the position of N."""
    engine = formulation(MODELS[name], total=None if is_private else 80)
    density, rng = engine.density, np.random.default_rng(1)
    stretched = density.size - engine.latent.effects_prior.count  # log scales are last

    def values_at(position):
        latent, _ = density.forward(position)
        return {name: latent[place] for name, place in density.places.items()} | {
            "total": latent[density.places["total"]][0]
        }

    def moved(position):
        values = values_at(position)
        place = [_place(engine, values["total"])] if is_private else []
        return np.append(values["coordinates"], place)

    found, expected = [], []
    for _ in range(3):
        here = 0.7 * rng.normal(size=density.size)
        steps = 1e-5 * np.eye(density.size)[:stretched]
        jacobian = np.array([(moved(here + step) - moved(here - step)) / 2e-5 for step in steps])
        found.append(density.posterior(here)[0] - np.linalg.slogdet(jacobian)[1])
        expected.append(expected_density(engine, values_at(here)))
    np.testing.assert_allclose(np.diff(found), np.diff(expected), atol=1e-5)


def _place(engine, total):
    low, high = np.log(engine.total_range)
    share = (math.log(total) - low) / (high - low)
    return math.log(share) - math.log1p(-share)


def test_position_is_standard_normal_where_the_noise_is_normal_and_small():
    """Curvature of the density at the preliminary mode, in whitened coordinates, is that of a standard normal."""
    engine = formulation(CYCLE, Gaussian(1.0), total=100_000, records=100_000, scale=1.0)
    unit, slope = 1e-3 * np.eye(engine.density.size), engine.density.posterior
    hessian = np.array([slope(-e)[1] - slope(e)[1] for e in unit]) / 2e-3
    values = np.linalg.eigvalsh(0.5 * (hessian + hessian.T))
    assert 0.7 < values.min() < values.max() < 1.4


def test_tables_of_records_have_their_mean_and_variance():
    rng, model = np.random.default_rng(0), MODELS["three-way"]
    potentials = rng.normal(size=model.size)
    drawn = np.array(
        [draw_tables(model.cardinalities, model.scopes, potentials, 50, rng) for _ in range(2000)]
    )
    mu = tables_of(model, probabilities(model, potentials))
    np.testing.assert_allclose(drawn.mean(0), 50 * mu, atol=5 * np.sqrt(50 * 0.25 / 2000))
    np.testing.assert_allclose(drawn.var(0), 50 * mu * (1 - mu), rtol=0.21, atol=0.07)
    for table in model.tables(drawn.T[:, 0]).flat.reshape(1, -1):
        assert table.sum() == 50 * len(model.cliques)


def test_tables_of_a_billion_records_take_no_longer():
    rng, model = np.random.default_rng(0), CYCLE
    drawn = draw_tables(model.cardinalities, model.scopes, np.zeros(model.size), 10**9, rng)
    assert drawn.sum() == 10**9 * len(model.cliques)


@pytest.mark.slow
def test_potentials_given_tables_follow_their_exact_law():
    """One binary variable: p(β | n) by quadrature, at a table where it is skewed, a normal law being far off."""
    effects = Effects.of([2], [(0,)])
    plan, total, tau = Plan(effects), 6.0, 2.0
    share = np.array([0.97, 0.03])
    point = np.array([math.log(share[1] / share[0]) / math.sqrt(2)])
    size = 20_000
    betas, marginals, _ = draw_potentials(
        plan,
        LatentTables(np.tile(point, (size, 1)), np.full(size, total), np.full((size, 1), tau**-2)),
        np.array([[total * 0.5 * 4 * 0.25 + tau**-2]]),
        np.random.default_rng(0),
    )
    grid = np.linspace(-12, 8, 40_001)
    flat = effects.potentials(grid[:, np.newaxis])
    p = np.exp(flat - np.logaddexp(flat[:, 0], flat[:, 1])[:, np.newaxis])
    log_density = total * (share @ np.log(p).T) - 0.5 * grid**2 / tau**2
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean, sd = weight @ p[:, 1], math.sqrt(weight @ (p[:, 1] - weight @ p[:, 1]) ** 2)
    error = 5 * sd / math.sqrt(size)
    assert abs(marginals[:, 1].mean() - mean) < error
    assert abs(marginals[:, 1].std() / sd - 1) < 0.03
    middle = np.quantile(betas[:, 0], [0.05, 0.5, 0.95])
    cumulative = np.cumsum(weight)
    np.testing.assert_allclose(np.interp(middle, grid, cumulative), [0.05, 0.5, 0.95], atol=0.012)


@pytest.mark.slow
@pytest.mark.parametrize(("total", "tau"), [(300.0, 0.3), (1e4, 1.0)])
def test_the_diagonal_that_large_models_use_gives_the_same_law_as_the_matrix(total, tau):
    """Standard deviations of 3,000 draws agree within 10 % (six standard errors of a ratio are 8 %)."""
    model = CYCLE
    effects = Effects.of(model.cardinalities, model.scopes)
    plan, rng = Plan(effects), np.random.default_rng(1)
    point = 0.3 * rng.standard_normal(effects.size)
    precision = np.full(effects.size, tau**-2)
    matrix = total * fisher_information(point, plan.data) + np.diag(precision)
    found = []
    for curvature in (matrix, np.diag(matrix).copy()):
        tables = LatentTables(
            np.tile(point, (3000, 1)), np.full(3000, total), np.tile(precision, (3000, 1))
        )
        found.append(draw_potentials(plan, tables, curvature, np.random.default_rng(2))[:2])
    (dense, dense_mu), (diagonal, diagonal_mu) = found
    np.testing.assert_allclose(diagonal.std(axis=0) / dense.std(axis=0), 1, atol=0.1)
    np.testing.assert_allclose(diagonal_mu.std(axis=0) / dense_mu.std(axis=0), 1, atol=0.1)


@pytest.mark.parametrize(
    ("records", "tau", "bound"),
    [pytest.param(1000, 0.4, 0.03, marks=pytest.mark.slow), (50, 1.0, 0.12)],
)
def test_without_tables_the_population_keeps_its_prior(records, tau, bound):
    """θ' from its prior and β given the tables give back the prior's standard deviation of β."""
    edges = [(i, i + 1) for i in (0, 1, 3, 4, 6, 7)] + [(i, i + 3) for i in range(6)]
    grid = specification(
        {str(i): [0, 1, 2] for i in range(9)}, [(str(i), str(j)) for i, j in edges]
    )
    latent = formulation(grid, total=records).latent
    rng, size = np.random.default_rng(5), 1500
    precision = latent.precision(
        np.full(latent.effects_prior.count, math.log(tau)), math.log(records)
    )
    points = rng.normal(size=(size, len(precision))) / np.sqrt(precision)
    curvature = np.diag(records / latent.sampling_variance + tau**-2)
    betas, _, _ = draw_potentials(
        latent.plan,
        LatentTables(points, np.full(size, float(records)), np.full(points.shape, tau**-2)),
        curvature,
        rng,
        excess=latent.excess,
    )  # fmt: skip
    for order in (1, 2):
        assert abs(betas[:, latent.effects.orders == order].std() / tau - 1) < bound


def test_prior_draws_have_the_scales_and_totals_of_the_prior():
    engine = formulation(CYCLE, total_range=(50.0, 5000.0))
    drawn = engine.prior_draws(1500, np.random.default_rng(2))
    prior = engine.latent.effects_prior
    log_scales = np.log(drawn.scales[0])
    np.testing.assert_allclose(log_scales.mean(0), math.log(prior.location), atol=0.14)
    np.testing.assert_allclose(
        np.cov(log_scales.T), engine.latent.effects_prior.scale_covariance, atol=0.1
    )
    share = np.log(drawn.total[0] / 50) / math.log(100)
    assert abs(share.mean() - 0.5) < 0.07
    assert abs(share.std() - math.sqrt(1 / 12)) < 0.035
    standard = drawn.effects[0] / drawn.scales[0][:, prior.levels]
    assert abs(standard.std() - 1) < 0.035
    tables = np.add.reduceat(drawn.counts[0], CYCLE.offsets[:-1], axis=1)
    assert (tables == drawn.total[0][:, np.newaxis]).all()


def test_structural_zeros_stay_empty():
    model = MODELS["structural zero"]
    engine = formulation(model, total=80)
    drawn = engine.prior_draws(20, np.random.default_rng(0))
    assert (drawn.counts[0][:, ~engine.evidence.supported] == 0).all()
    assert (drawn.marginals[0][:, ~engine.evidence.supported] == 0).all()


BINARY = specification({"a": [0, 1], "b": [0, 1], "c": [0, 1]}, [("a", "b"), ("b", "c")])


def exact_and_found(law, records, scale, seed, draws, **settings):
    rng = np.random.default_rng(seed)
    effects = Effects.of([2, 2, 2], BINARY.scopes)
    truth = joint(effects, scale * rng.normal(size=(1, effects.size)))
    counts = cells(rng.multinomial(records, truth[0])[np.newaxis].astype(float))[0]
    release = noisy_release(BINARY, counts, law, rng, total=records)
    exact = exact_posterior(release.tables.flat, law, records, scale)
    assert exact.size > 5000
    posterior = LatentCounts(formulation="log-linear", scale=scale).fit(
        release, rng=seed, draws=draws, tune=600, chains=4, **settings
    )
    flat = np.concatenate(
        [
            np.asarray(posterior.tree["posterior"][f"marginal[{n}]"]).reshape(4, draws, 4)
            for n in ("a,b", "b,c")
        ],
        axis=-1,
    )
    records_only = np.concatenate(
        [
            np.asarray(posterior.tree["posterior"][f"counts[{n}]"]).reshape(4, draws, 4)
            for n in ("a,b", "b,c")
        ],
        axis=-1,
    )
    return exact, flat, records_only / records


@pytest.mark.slow
@pytest.mark.parametrize(("records", "noise"), [(60, 2.0)])
def test_posterior_is_the_exact_one(records, noise):
    exact, found, records_only = exact_and_found(DiscreteLaplace(noise), records, 1.0, 3, 1000)
    error = np.abs(found.mean((0, 1)) - exact.mean) / exact.sd
    ratio = found.std((0, 1)) / exact.sd
    assert error.max() < 0.15
    assert np.abs(ratio - 1).max() < 0.1
    # the tables' own spread is no interval of the population: this is what the last step is for
    assert (records_only.std((0, 1)) / exact.sd).max() < 0.85


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "records"), [(0.5, 20), (2.0, 60), (6.0, 20), (20.0, 20), (20.0, 60)]
)
def test_posterior_is_the_exact_one_at_every_noise_level(records, noise):
    errors, ratios = [], []
    for law in (Laplace(noise), Gaussian(noise)):
        exact, found, _ = exact_and_found(law, records, 0.7, 11, 2000)
        errors.append(np.abs(found.mean((0, 1)) - exact.mean) / exact.sd)
        ratios.append(found.std((0, 1)) / exact.sd)
    assert np.max(errors) < 0.1, np.max(errors)
    assert np.abs(np.array(ratios) - 1).max() < 0.07, ratios


def test_variables_may_be_named_as_the_model_names_its_own():
    names = ("position", "counts", "coordinates", "noise_scale")
    cliques = [(names[i], names[(i + 1) % 4]) for i in range(4)]
    model = specification({name: [0, 1] for name in names}, cliques)
    built = formulation(model, DiscreteLaplace(2.0), total=60, records=60, scale=1.0).model()
    assert {"counts[position_,counts_]", "position_"} <= {*built.named_vars, *built.coords}


def test_half_a_record_is_counted_for_each_cell_of_the_smallest_table():
    """Pairs of ten-state variables beside a binary one, whose counts must not fall far below zero."""
    states = {**{name: list(range(10)) for name in "abc"}, "d": [0, 1]}
    model = specification(states, [("a", "b"), ("b", "c"), ("a", "c"), ("d",)])
    engine = formulation(model, DiscreteLaplace(2.0), total=60, records=60, scale=1.0)
    assert engine.latent.excess == 1.0
    assert engine.sparsity == 1 / 60


@pytest.mark.parametrize("seed", range(3))
def test_populations_stay_with_tables_whose_cells_are_mostly_empty(seed):
    rng = np.random.default_rng(seed)
    counts, _ = simulated_counts(CYCLE, 10_000, rng, scale=15.0)
    engine = LogLinear(
        evidence=gather(noisy_release(CYCLE, counts, DiscreteLaplace(1.0), rng)), total=1e4
    )
    latent = preliminary = engine.latent
    whitening = preliminary.whitening
    own = whitening.mode + rng.standard_normal((100, len(whitening.mode))) / np.sqrt(
        whitening.information + 1
    )
    points = own @ whitening.basis.T
    precision = np.exp(-2 * preliminary.mode.log_scales)[latent.effects_prior.levels]
    _, marginals, _ = draw_potentials(
        latent.plan,
        LatentTables(points, np.full(100, 1e4), np.tile(precision, (100, 1))),
        preliminary.curvature(),
        rng,
        excess=latent.excess,
    )
    expected = np.array([latent.plan.moments(point)[1] for point in points])
    assert np.abs(marginals - expected).mean() < 2e-3


def test_a_public_number_of_no_records_gives_the_prior():
    release = noisy_release(
        CYCLE, np.zeros(CYCLE.size), DiscreteLaplace(2.0), np.random.default_rng(1), total=0
    )
    posterior = LatentCounts().fit(release, rng=1, draws=50, chains=2)
    assert posterior.status is Status.NOT_TRUSTED
    assert (finished_of(posterior).counts == 0).all()
    assert posterior.tree["constant_data"]["total"] == 0
