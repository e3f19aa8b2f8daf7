"""The pieces of the hyper-Dirichlet density: rows of weights, relaxed counts, and the Laplace kernel."""

import numpy as np
import pytest
from inference.posterior.engines import junction_forest
from repeats import again
from scipy.integrate import quad
from scipy.special import gammaln, psi
from scipy.stats import gamma

from bayesprivmrf.inference.posterior.relaxed_counts.density import (
    force_width,
    laplace_kernel,
    lattice_mass,
)
from bayesprivmrf.inference.posterior.relaxed_counts.forest_density import (
    row_counts,
    row_counts_pullback,
)
from bayesprivmrf.inference.posterior.relaxed_counts.rows import (
    log_gamma,
    row_coordinates,
    row_weights,
    row_weights_data,
    softened,
    softened_at,
)

UNEQUAL = junction_forest((2, 3, 4, 5), ((0, 1, 2), (2, 3)))
"""A root of 24 cells and four rows of 5 below it, each of which sums 6 cells of the root."""
SHAPES = np.random.default_rng(8).uniform(0.2, 3.0, UNEQUAL.cells.size)


def relaxed(weights, total, shapes, forest=UNEQUAL):
    shapes = np.broadcast_to(shapes, weights.shape).astype(float)
    return row_counts(
        weights, float(total), shapes, forest.row_starts, forest.source_starts, forest.sources
    )


@pytest.mark.parametrize("shapes", [SHAPES, *again(0.2, 1.0)], ids=str)
@pytest.mark.parametrize("total", [0.0, 200.0])
def test_relaxed_counts_have_the_moments_of_the_dirichlet_multinomial(shapes, total):
    """Of 8,000 draws: means and (co)variances within six Monte Carlo standard errors."""
    rng, root, size = np.random.default_rng(1), 24, 8_000
    shapes = np.broadcast_to(shapes, UNEQUAL.cells.shape)
    weights = rng.standard_gamma(shapes, (size, shapes.size))
    draws = np.array([relaxed(w, total, shapes)[:root] for w in weights])
    alpha = shapes[:root]
    mass, mean = alpha.sum(), alpha / alpha.sum()
    covariance = total * (total + mass) / (1 + mass) * (np.diag(mean) - np.outer(mean, mean))
    assert draws.sum(axis=1) == pytest.approx(total, abs=1e-8)
    assert (draws > -alpha / 2).all()
    if total == 0:
        # the spread goes to zero softly: a quarter of a record's softness leaves less than a record's
        assert draws.std(axis=0).max() < 0.6 * max(1.0, alpha.max())
        return
    sd = np.sqrt(np.diag(covariance))
    assert np.abs(draws.mean(axis=0) - total * mean).max() < 6 * sd.max() / np.sqrt(size)
    centred = draws - total * mean
    products = centred[:, :, np.newaxis] * centred[:, np.newaxis, :]
    error = np.sqrt((products**2).mean(axis=0) / size)
    # the softening adds to the variance of a row of few records
    assert (np.abs(products.mean(axis=0) - covariance) < 6 * error + 0.05).all()


def test_a_row_of_no_records_is_empty_and_every_count_stays_above_minus_half_alpha():
    """Six cells of the root are summed for each row of five: their total may fall below what the row can hold."""
    rng = np.random.default_rng(2)
    for alpha in (0.3, 1.0, 4.0, SHAPES):
        weights = rng.standard_gamma(0.2, UNEQUAL.cells.size) + 1e-12
        for total in (0.0, 1e-3, 0.5, 7.0):
            counts = relaxed(weights, total, alpha)
            assert (counts > -np.asarray(alpha) / 2).all()
            assert np.isfinite(counts).all()
            for row in range(1, 5):
                sources = UNEQUAL.sources[
                    UNEQUAL.source_starts[row] : UNEQUAL.source_starts[row + 1]
                ]
                own = counts[UNEQUAL.row_starts[row] : UNEQUAL.row_starts[row + 1]].sum()
                if counts[sources].sum() >= 0:
                    assert own == pytest.approx(counts[sources].sum(), abs=1e-9)


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.2, 0.5, 3.0, None])
@pytest.mark.parametrize("cardinalities", [(2, 2, 2, 2), (2, 4, 6, 2), (6, 2, 5, 3)])
def test_counts_of_a_chain_stay_above_minus_half_alpha_at_any_concentration(cardinalities, alpha):
    """So that Dirichlet(α + n) exists: also where rows lie below rows without a record."""
    forest = junction_forest(cardinalities, ((0, 1), (1, 2), (2, 3)))
    rng = np.random.default_rng(4)
    for _ in range(300):
        shapes = 10 ** rng.uniform(-1.7, 1, forest.cells.size) if alpha is None else alpha
        log_weights = np.log(rng.standard_gamma(shapes + 1, forest.cells.size))
        log_weights -= rng.standard_exponential(forest.cells.size) / shapes
        found = relaxed(np.exp(np.maximum(log_weights, -600.0)), 20.0, shapes, forest)
        assert (found > -shapes / 2 - 1e-12 * 20).all()


@pytest.mark.parametrize("shapes", [0.1, 0.8, SHAPES], ids=str)
@pytest.mark.parametrize("total", [-0.05, 0.02, 0.1, 3.0, 5e4])
def test_derivatives_of_the_counts_are_those_of_finite_differences(total, shapes):
    rng = np.random.default_rng(3)
    weights = rng.standard_gamma(0.7, UNEQUAL.cells.size) + 0.05
    upstream, shapes = rng.normal(size=weights.size), np.broadcast_to(shapes, weights.shape).copy()
    by_weights, by_total, by_shapes = row_counts_pullback(
        relaxed(weights, total, shapes), upstream, weights, total, shapes,
        UNEQUAL.row_starts, UNEQUAL.source_starts, UNEQUAL.sources,
    )  # fmt: skip

    def objective(step_weights=0.0, step_total=0.0, step_shapes=0.0):
        return relaxed(weights + step_weights, total + step_total, shapes + step_shapes) @ upstream

    def difference(**step):
        return (objective(**step) - objective(**{k: -v for k, v in step.items()})) / 2e-6

    basis = 1e-6 * np.eye(weights.size)
    for found, name in ((by_weights, "step_weights"), (by_shapes, "step_shapes")):
        scale = max(1.0, np.abs(found).max())
        assert [difference(**{name: e}) for e in basis] == pytest.approx(found, abs=1e-4 * scale)
    assert difference(step_total=1e-6) == pytest.approx(float(by_total), abs=1e-4)


def test_the_log_of_gamma_and_its_derivative_are_scipy_s():
    x = np.logspace(-8, 8, 400)
    value, slope = np.transpose([log_gamma(one) for one in x])
    assert value == pytest.approx(gammaln(x), rel=1e-14, abs=1e-13)
    assert slope == pytest.approx(psi(x), rel=1e-14, abs=1e-13)


def test_what_is_no_number_stays_none_and_ends():
    """A trajectory that left the reals must come back to the sampler, whose threads nobody can stop from outside."""
    assert np.isnan(softened.py_func(np.nan)).all()
    assert np.isnan(softened(np.nan)).all()
    assert np.isnan(log_gamma(np.nan)).all()
    assert np.isnan(softened_at(np.nan))
    value, log_value, _, log_normal, _ = softened(-1e200)
    assert (value, log_value, log_normal) == (0.0, -np.inf, -np.inf)
    for shapes in (np.array([np.inf, 1.0]), np.array([np.nan, 1.0]), np.array([0.0, 1.0])):
        row = np.array([0, 2]), np.zeros(2), np.ones(2), np.ones(1)
        _, _, _, log_jacobian = row_coordinates(shapes, np.zeros(2), *row)
        assert not np.isfinite(log_jacobian)


def test_targets_of_the_coordinates_are_where_the_softened_weight_is_the_expected_one():
    """S(t) = G_0 α / (A σ), at every size that α may have."""
    logs = np.concatenate([np.linspace(-29.999, 1.999, 2000), [-900.0, -31.0, 2.5, 40.0]])
    shapes, one = np.exp(np.maximum(logs, -600.0)), np.ones(logs.size)
    starts = np.array([0, logs.size])
    _, _, target, _ = row_coordinates(shapes, 0 * one, starts, one, one, np.array([shapes.sum()]))
    found = np.array([softened(u)[1] for u in target])
    assert found == pytest.approx(np.log(shapes), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("u", [-300.0, -20.0, -1.0, -1e-9, 0.0, 1e-9, 2.0, 40.0])
def test_the_slopes_of_the_softened_weight_are_continuous_and_those_of_finite_differences(u):
    soft, log_soft, slope, log_slope, second = softened(u)
    assert soft == pytest.approx(np.exp(log_soft))
    assert log_slope == pytest.approx(log_soft + np.log(slope), abs=1e-12)
    above, below = softened(u + 1e-5), softened(u - 1e-5)
    assert slope == pytest.approx((above[1] - below[1]) / 2e-5, rel=1e-6)
    assert second == pytest.approx((above[3] - below[3]) / 2e-5, rel=1e-4, abs=2e-5)
    if u > -20:
        assert softened_at(soft) == pytest.approx(u, abs=1e-12)


def rows_at(v, shapes=SHAPES):
    """`row_weights` with counts of which some are well known, some poorly and some not at all."""
    counts = np.linspace(-3.0, 40.0, UNEQUAL.cells.size)
    precisions = np.where(np.arange(counts.size) % 3, 0.25, 0.0)
    precisions[:4] = 25.0
    data = row_weights_data(UNEQUAL, SHAPES, counts, precisions)
    shift, *rest = data
    return row_weights(shift + v, shapes, UNEQUAL.row_starts, *rest), data


def test_the_density_of_the_positions_is_that_of_dirichlet_rows_and_gamma_sums():
    """log p(v) = log Dirichlet(r) + log Gamma(G / G0) + log |d(r, G / G0) / dv|, the Jacobian by differences."""
    starts, sizes = UNEQUAL.row_starts, UNEQUAL.row_sizes
    _, (*_, freedom, centre) = rows_at(np.zeros(SHAPES.size))

    def parts(v):
        g = rows_at(v)[0][0]
        sums = np.add.reduceat(g, starts[:-1])
        return g / np.repeat(sums, sizes), sums / centre

    def coordinates(v):
        """Of each row, all probabilities but the last, and the sum."""
        r, sums = parts(v)
        return np.concatenate(
            [
                np.append(r[a : b - 1], s)
                for a, b, s in zip(starts[:-1], starts[1:], sums, strict=True)
            ]
        )

    v = np.random.default_rng(4).normal(0, 0.5, UNEQUAL.cells.size)
    basis = 1e-6 * np.eye(v.size)
    jacobian = np.array([(coordinates(v + e) - coordinates(v - e)) / 2e-6 for e in basis])
    r, sums = parts(v)
    expected = np.linalg.slogdet(jacobian)[1]
    expected += ((SHAPES - 1) * np.log(r) - gammaln(SHAPES)).sum()
    masses = np.add.reduceat(SHAPES, starts[:-1])
    kappa = freedom + masses
    expected += gammaln(masses).sum()
    expected += gamma.logpdf(sums, kappa, scale=1 / kappa).sum()
    assert rows_at(v)[0][1] == pytest.approx(expected, abs=1e-4)


def test_derivatives_of_the_rows_are_those_of_finite_differences():
    v, step = np.random.default_rng(5).normal(0, 1.5, UNEQUAL.cells.size), 1e-6
    _, _, slopes, by_position, by_shapes = rows_at(v)[0]
    for e, slope, position, shape in zip(
        np.eye(v.size), slopes, by_position, by_shapes, strict=True
    ):
        up, down = (rows_at(v + s * e)[0] for s in (step, -step))
        assert (up[0] - down[0]) @ e / 2e-6 == pytest.approx(slope, abs=2e-5)
        assert (up[1] - down[1]) / 2e-6 == pytest.approx(position, abs=2e-5)
        up, down = (rows_at(v, SHAPES + s * e)[0][1] for s in (step, -step))
        assert (up - down) / 2e-6 == pytest.approx(shape, abs=2e-5)


@pytest.mark.parametrize("scale", [0.1, 0.3, 1.0, 1.4])
@pytest.mark.parametrize("noisy", [7.0, 7.2, 6.5, -0.4])
def test_under_small_noise_every_integer_has_its_share_of_the_kernel(scale, noisy):
    mass = lattice_mass(np.array([noisy]), np.array([scale]))[0]

    def share(k):
        points = [p for p in (noisy,) if abs(p - k) < 0.5]
        area = quad(
            lambda n: np.exp(laplace_kernel(n, noisy, scale, mass, 0.3)[0]),
            k - 0.5,
            k + 0.5,
            points=points or None,
        )[0]
        return area / np.exp(-abs(noisy - k) / scale)

    shares = [share(k) for k in range(5, 9)] if noisy > 0 else [share(k) for k in range(-2, 2)]
    assert shares == pytest.approx([2 * scale * np.sinh(0.5 / scale)] * 4, rel=1e-6)


def test_the_laplace_kernel_is_exact_and_its_force_smooth_only_near_the_kink():
    width = force_width(9)
    residuals = np.array([-30.0, -5, -1.3, -0.2, 0, 0.2, 1.3, 5, 30])
    found = np.array([laplace_kernel(10.0 - r, 10.0, 4.0, 0.0, 1 / width) for r in residuals])
    assert found[:, 0] == pytest.approx(-np.abs(residuals) / 4)
    assert found[:, 1] == pytest.approx(np.clip(residuals / 4 / width, -1, 1) / 4)
    assert 0 < width <= 0.3
    # variance that no step size takes back
    assert 10_000 * force_width(10_000) ** 3 / 20 == pytest.approx(0.25)
