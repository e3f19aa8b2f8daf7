"""The pieces of the hyper-Dirichlet model's graph: rows of weights, relaxed counts, and the Laplace kernel."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import clone_replace
from scipy.integrate import quad
from scipy.special import gammaln, log_ndtr
from scipy.stats import gamma

from bayesprivmrf.inference.posterior.junction_forest import junction_forest
from bayesprivmrf.inference.posterior.laplace_kernel import (
    force_width,
    lattice_mass,
    log_laplace_kernel,
)
from bayesprivmrf.inference.posterior.row_counts import row_counts
from bayesprivmrf.inference.posterior.row_weights import (
    row_weights,
    row_weights_data,
    softened,
)

UNEQUAL = junction_forest((2, 3, 4, 5), ((0, 1, 2), (2, 3)))
"""A root of 24 cells and four rows of 5 below it, each of which sums 6 cells of the root."""


@pytest.fixture(scope="module")
def relaxed():
    weights, upstream = pt.dvectors("weights", "upstream")
    total, alpha = pt.dscalars("total", "alpha")
    counts = row_counts(UNEQUAL, weights, total, alpha)
    gradients = pytensor.grad((counts * upstream).sum(), [weights, total, alpha])
    return pytensor.function([weights, total, alpha, upstream], [counts, *gradients], mode="FAST_COMPILE")


@pytest.mark.parametrize("alpha", [0.2, 0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("total", [0.0, 3.0, 200.0])
def test_relaxed_counts_have_the_moments_of_the_dirichlet_multinomial(relaxed, alpha, total):
    """Of 4,000 draws: means within six Monte Carlo standard errors, mean (co)variance within 5 %."""
    rng, root, size = np.random.default_rng(1), 24, UNEQUAL.cells.size
    weights = rng.standard_gamma(alpha, (4000, size))
    draws = np.array([relaxed(w, total, alpha, np.zeros(size))[0][:root] for w in weights])
    mass = root * alpha
    variance = (root - 1) / root**2 * total * (total + mass) / (1 + mass)
    assert draws.sum(axis=1) == pytest.approx(total, abs=1e-8)
    assert (draws > -alpha / 2).all()
    if total == 0:
        # the spread goes to zero softly: a quarter of a record's softness leaves less than a record's
        assert draws.std(axis=0).max() < 0.6 * max(1.0, alpha)
        return
    assert draws.mean(axis=0) == pytest.approx(total / root, abs=6 * np.sqrt(variance / 4000))
    assert draws.var(axis=0).mean() == pytest.approx(variance, rel=0.05)
    covariance = np.cov(draws.T)[np.triu_indices(root, 1)].mean()
    assert covariance == pytest.approx(-variance / (root - 1), rel=0.05)


def test_a_row_of_no_records_is_empty_and_every_count_stays_above_minus_half_alpha(relaxed):
    """Six cells of the root are summed for each row of five: their total may fall below what the row can hold."""
    rng = np.random.default_rng(2)
    for alpha in (0.3, 1.0, 4.0):
        weights = rng.standard_gamma(0.2, UNEQUAL.cells.size) + 1e-12
        for total in (0.0, 1e-3, 0.5, 7.0):
            counts = relaxed(weights, total, alpha, np.zeros_like(weights))[0]
            assert counts.min() > -alpha / 2
            assert np.isfinite(counts).all()
            for row in range(1, 5):
                sources = UNEQUAL.sources[UNEQUAL.source_starts[row] : UNEQUAL.source_starts[row + 1]]
                own = counts[UNEQUAL.row_starts[row] : UNEQUAL.row_starts[row + 1]].sum()
                if counts[sources].sum() >= 0:
                    assert own == pytest.approx(counts[sources].sum(), abs=1e-9)


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.2, 0.5, 3.0])
@pytest.mark.parametrize("cardinalities", [(2, 2, 2, 2), (2, 4, 6, 2), (6, 2, 5, 3)])
def test_counts_of_a_chain_stay_above_minus_half_alpha_at_any_concentration(cardinalities, alpha):
    """So that Dirichlet(α + n) exists: also where rows lie below rows without a record."""
    forest = junction_forest(cardinalities, ((0, 1), (1, 2), (2, 3)))
    weights = pt.dvector("weights")
    counts = pytensor.function([weights], row_counts(forest, weights, 20.0, alpha), mode="FAST_COMPILE")
    rng = np.random.default_rng(4)
    for _ in range(300):
        log_weights = np.log(rng.standard_gamma(alpha + 1, forest.cells.size))
        log_weights -= rng.standard_exponential(forest.cells.size) / alpha
        found = counts(np.exp(np.maximum(log_weights, -600.0)))
        assert found.min() > -alpha / 2 - 1e-12 * 20


@pytest.mark.parametrize("total", [-0.05, 0.02, 0.1, 3.0, 5e4])
def test_derivatives_of_the_counts_are_those_of_finite_differences(relaxed, total):
    rng = np.random.default_rng(3)
    weights = rng.standard_gamma(0.7, UNEQUAL.cells.size) + 0.05
    upstream, alpha = rng.normal(size=weights.size), 0.8
    _, by_weights, by_total, by_alpha = relaxed(weights, total, alpha, upstream)

    def objective(step_weights=0.0, step_total=0.0, step_alpha=0.0):
        point = weights + step_weights, total + step_total, alpha + step_alpha
        return relaxed(*point, upstream)[0] @ upstream

    def difference(**step):
        return (objective(**step) - objective(**{k: -v for k, v in step.items()})) / 2e-6

    basis = 1e-6 * np.eye(weights.size)
    scale = max(1.0, np.abs(by_weights).max())
    assert [difference(step_weights=e) for e in basis] == pytest.approx(by_weights, abs=1e-4 * scale)
    assert difference(step_total=1e-6) == pytest.approx(float(by_total), abs=1e-4)
    assert difference(step_alpha=1e-6) == pytest.approx(float(by_alpha), abs=1e-4 * max(1, abs(by_alpha)))


@pytest.mark.parametrize(
    "u", [-300.0, -20.0, -5.0000001, -4.9999999, -1.0, 0.0, 2.0, 6.9999999, 7.0000001, 40.0]
)
def test_softened_is_the_integral_of_the_normal_distribution_function(u):
    soft, log_soft, slope, log_normal, normal_slope = softened(u)
    assert soft == pytest.approx(np.exp(log_soft))
    assert log_normal == pytest.approx(log_ndtr(u), rel=1e-12, abs=1e-11)
    assert normal_slope == pytest.approx(
        np.exp(-0.5 * u * u - log_ndtr(u)) / np.sqrt(2 * np.pi), rel=1e-9, abs=1e-10
    )
    if -40 < u < 12:
        area = quad(lambda x: np.exp(log_ndtr(x) - log_ndtr(u)), u - 12, u, limit=400, epsabs=1e-13)[0]
        assert log_soft == pytest.approx(np.log(area) + log_ndtr(u), rel=1e-7, abs=1e-9)
    above, below = softened(u + 1e-5)[1], softened(u - 1e-5)[1]
    assert slope == pytest.approx((above - below) / 2e-5, rel=1e-6)


@pytest.fixture(scope="module")
def rows():
    """A model of the rows alone, with counts of which some are well known, some poorly and some not at all."""
    import pymc as pm

    counts = np.linspace(-3.0, 40.0, UNEQUAL.cells.size)
    precisions = np.where(np.arange(counts.size) % 3, 0.25, 0.0)
    precisions[:4] = 25.0
    values = row_weights_data(UNEQUAL, 0.7, counts, precisions)
    with pm.Model() as model:
        alpha = pm.Data("alpha", np.asarray(0.7))
        pm.Deterministic("weights", row_weights(UNEQUAL, alpha, values))
    return model, values


def test_the_density_of_the_positions_is_that_of_dirichlet_rows_and_gamma_sums(rows):
    """log p(v) = log Dirichlet(r) + log Gamma(G / G0) + log |d(r, G / G0) / dv|, the Jacobian by differences."""
    model, values = rows
    positions, alpha = model["row_positions"], 0.7
    point = model.rvs_to_values[positions]
    log_density = pytensor.function([point], model.logp(), mode="FAST_COMPILE")
    weights = pytensor.function([point], clone_replace(model["weights"], {positions: point}))
    starts, sizes = UNEQUAL.row_starts, UNEQUAL.row_sizes

    def parts(v):
        g = weights(v)
        sums = np.add.reduceat(g, starts[:-1])
        return g / np.repeat(sums, sizes), sums / values["row_total"]

    def coordinates(v):
        """Of each row, all probabilities but the last, and the sum."""
        r, sums = parts(v)
        return np.concatenate([np.append(r[a : b - 1], s) for a, b, s in zip(starts, starts[1:], sums)])  # noqa: B905

    v = np.random.default_rng(4).normal(0, 0.5, UNEQUAL.cells.size)
    basis = 1e-6 * np.eye(v.size)
    jacobian = np.array([(coordinates(v + e) - coordinates(v - e)) / 2e-6 for e in basis])
    r, sums = parts(v)
    expected = np.linalg.slogdet(jacobian)[1]
    expected += ((alpha - 1) * np.log(r)).sum() + (gammaln(alpha * sizes) - sizes * gammaln(alpha)).sum()
    expected += gamma.logpdf(sums, values["row_shape"], scale=1 / values["row_shape"]).sum()
    assert float(log_density(v)) == pytest.approx(expected, abs=1e-4)


def test_the_gradient_of_the_density_is_that_of_finite_differences(rows):
    model, _ = rows
    v = np.random.default_rng(5).normal(0, 1.5, UNEQUAL.cells.size)
    point = model.rvs_to_values[model["row_positions"]]
    both = pytensor.function([point], [model.logp(), model.dlogp()], mode="FAST_COMPILE")
    basis = 1e-6 * np.eye(v.size)
    differences = [(both(v + e)[0] - both(v - e)[0]) / 2e-6 for e in basis]
    assert both(v)[1] == pytest.approx(differences, abs=2e-5)


def test_prior_draws_of_the_model_are_dirichlet_rows(rows):
    """Mean and variance of the probabilities of 20,000 draws, within five Monte Carlo standard errors."""
    import pymc as pm

    model, _ = rows
    g = pm.draw(model["weights"], 20_000, random_seed=6, mode="FAST_COMPILE")
    sizes = np.repeat(UNEQUAL.row_sizes, UNEQUAL.row_sizes)
    r = g / np.repeat(np.add.reduceat(g, UNEQUAL.row_starts[:-1], axis=1), UNEQUAL.row_sizes, axis=1)
    variance = (sizes - 1) / sizes**2 / (0.7 * sizes + 1)
    assert np.abs(r.mean(axis=0) - 1 / sizes).max() < 5 * np.sqrt(variance.max() / 20_000)
    assert r.var(axis=0) == pytest.approx(variance, rel=0.12)
    assert (r.var(axis=0) / variance).mean() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("scale", [0.1, 0.3, 1.0, 1.4])
@pytest.mark.parametrize("noisy", [7.0, 7.2, 6.5, -0.4])
def test_under_small_noise_every_integer_has_its_share_of_the_kernel(scale, noisy):
    y, b = np.array([noisy]), np.array([scale])
    n = pt.dvector()
    log_kernel = pytensor.function(
        [n], log_laplace_kernel(n, y, b, lattice_mass(y, b), 0.3), mode="FAST_COMPILE"
    )

    def share(k):
        points = [p for p in (noisy,) if abs(p - k) < 0.5]
        area = quad(lambda x: np.exp(log_kernel(np.array([x]))[0]), k - 0.5, k + 0.5, points=points or None)[
            0
        ]
        return area / np.exp(-abs(noisy - k) / scale)

    shares = [share(k) for k in range(5, 9)] if noisy > 0 else [share(k) for k in range(-2, 2)]
    assert shares == pytest.approx([2 * scale * np.sinh(0.5 / scale)] * 4, rel=1e-6)


def test_the_laplace_kernel_is_exact_and_its_force_smooth_only_near_the_kink():
    y, b, width = np.full(9, 10.0), np.full(9, 4.0), force_width(9)
    n, u = pt.dvector(), pt.dvector()
    value = log_laplace_kernel(n, y, b, np.zeros(9), width)
    both = pytensor.function([n, u], [value, pytensor.grad((value * u).sum(), n)], mode="FAST_COMPILE")
    counts = 10 + np.array([-30.0, -5, -1.3, -0.2, 0, 0.2, 1.3, 5, 30])
    values, force = both(counts, np.ones(9))
    assert values == pytest.approx(-np.abs(y - counts) / b)
    assert force == pytest.approx(np.clip((y - counts) / b / width, -1, 1) / b)
    assert 0 < width <= 0.3
    assert 10_000 * force_width(10_000) ** 3 / 20 == pytest.approx(
        0.25
    )  # variance that no step size takes back
