"""The reference sampler against enumeration, where every table of every size can be listed.

Tolerances: five Monte Carlo standard errors (both sides' errors together), below 1e-4 for the forty numbers
compared at once.
"""

import math
from itertools import combinations_with_replacement

import numpy as np
import pytest
from inference.conftest import noisy_release, specification
from inference.posterior.reference_sampler import (
    effect_design,
    effect_of,
    hyper_dirichlet_draws,
    joint_cells,
    log_linear_draws,
    moments,
)
from scipy.special import gammaln

from bayesprivmrf.privacy import DiscreteLaplace, Gaussian

pytestmark = pytest.mark.slow

BINARY = [0, 1]
DEVIATIONS = 5.0


def joint_histograms(states, low, high):
    """Every multiset of records of each size, as counts of the joint states."""
    rows = [
        np.bincount(records, minlength=states)
        for size in range(low, high + 1)
        for records in combinations_with_replacement(range(states), size)
    ]
    return np.array(rows)


def log_noise(release, counts):
    model = release.specification
    parts = [
        law.log_density(release.tables.flat[a:b] - counts[..., a:b]).sum(-1)
        for law, a, b in zip(release.noise, model.offsets, model.offsets[1:], strict=False)
    ]
    return np.sum(parts, axis=0)


def log_multinomial(histograms):
    return gammaln(histograms.sum(1) + 1) - gammaln(histograms + 1).sum(1)


def summarise(weights, mean, square):
    mean, square = weights @ mean, weights @ square
    return mean, np.sqrt(square - mean**2)


def require_equal(draws, mean, sd, mean_error=0.0, sd_error=0.0):
    seen = moments(draws)
    # A reference that does not mix would hide behind its own error.
    assert np.all(seen.mean_error < 0.05 * seen.sd)
    assert np.all(np.abs(seen.mean - mean) < DEVIATIONS * np.hypot(seen.mean_error, mean_error))
    assert np.all(np.abs(seen.sd - sd) < DEVIATIONS * np.hypot(seen.sd_error, sd_error))


@pytest.mark.parametrize("total", [5, None], ids=["public", "private"])
@pytest.mark.parametrize("law", [DiscreteLaplace(0.8), Gaussian(1.5)], ids=["laplace", "gaussian"])
def test_latent_records_of_a_chain_have_the_enumerated_posterior(law, total):
    alpha = 0.7
    model = specification({"a": BINARY, "b": BINARY, "c": BINARY}, [("a", "b"), ("b", "c")])
    cells = joint_cells(model)
    rng = np.random.default_rng(71)
    true = np.bincount(cells[[0, 0, 3, 6, 7]].ravel(), minlength=8)
    release = noisy_release(model, true, law, rng, total=total)

    low, high = (total, total) if total else (2, 7)
    histograms = joint_histograms(8, low, high)
    tables = np.zeros((len(histograms), 8))
    for table in range(2):
        for state in range(8):
            tables[:, cells[state, table]] += histograms[:, state]
    size = histograms.sum(1)
    ab, bc = tables[:, :4].reshape(-1, 2, 2), tables[:, 4:].reshape(-1, 2, 2)
    b = ab.sum(1)
    log_weight = log_multinomial(histograms) + log_noise(release, tables) - np.log(size)
    log_weight += gammaln(ab + alpha).sum((1, 2)) - gammaln(4 * alpha + size) + gammaln(4 * alpha)
    log_weight += gammaln(bc + alpha).sum((1, 2)) - gammaln(2 * alpha + b).sum(1)
    weights = np.exp(log_weight - log_weight.max())
    weights /= weights.sum()

    # moments of μ given the counts: Dirichlet for the first table, a product of independent ones for the second
    def first_two(shape, whole):
        return shape / whole, shape * (shape + 1) / (whole * (whole + 1))

    whole = (4 * alpha + size)[:, None, None]
    mean_ab, square_ab = first_two(ab + alpha, whole)
    mean_b, square_b = first_two(b[:, :, None] + 2 * alpha, whole)
    mean_row, square_row = first_two(bc + alpha, b[:, :, None] + 2 * alpha)
    mean = np.concatenate([mean_ab.reshape(-1, 4), (mean_b * mean_row).reshape(-1, 4)], axis=1)
    square = np.concatenate(
        [square_ab.reshape(-1, 4), (square_b * square_row).reshape(-1, 4)], axis=1
    )

    settings = {"seed": 5, "sweeps": 100_000, "thin": 5, "concentration": alpha}
    draws = hyper_dirichlet_draws(release, total_range=(low, high), **settings)
    require_equal(draws.marginals, *summarise(weights, mean, square))
    require_equal(draws.counts, *summarise(weights, tables, tables**2))
    if total is None:
        require_equal(
            draws.total[..., None], *summarise(weights, size[:, None], size[:, None] ** 2)
        )


@pytest.mark.parametrize(
    ("total", "in_common", "between", "apart"),
    [(3, 0.0, 0.0, 0.0), (None, 0.6, 0.4, 0.5)],
    ids=["public", "private, learned scales"],
)
def test_latent_records_of_a_cycle_have_the_posterior_of_weighted_prior_draws(
    total, in_common, between, apart
):
    states = dict.fromkeys("abcd", BINARY)
    model = specification(states, [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")])
    cells, (design, order) = joint_cells(model), effect_design(model)
    rng = np.random.default_rng(13)
    true = np.bincount(cells[[0, 5, 5]].ravel(), minlength=16)
    release = noisy_release(model, true, DiscreteLaplace(1.2), rng, total=total)

    low, high = (total, total) if total else (1, 4)
    size = 40_000
    log_scales = in_common * rng.normal(size=(size, 1)) + between * rng.normal(size=(size, 2))
    level = order
    if apart:  # every effect has one coordinate
        log_scales, level = (
            log_scales[:, order] + apart * rng.normal(size=(size, len(order))),
            effect_of(model),
        )
    scales = 1.3 * np.exp(log_scales)
    log_p = (scales[:, level] * rng.normal(size=(size, len(order)))) @ design.T
    log_p -= np.log(np.exp(log_p).sum(1, keepdims=True))
    histograms = joint_histograms(16, low, high)
    tables = np.zeros((len(histograms), 16))
    for table in range(4):
        for state in range(16):
            tables[:, cells[state, table]] += histograms[:, state]
    log_count = log_multinomial(histograms) + log_noise(release, tables) - np.log(histograms.sum(1))
    weights = np.empty(size)
    total_mean = np.empty((size, 2))
    for begin in range(0, size, 1_000):
        here = slice(begin, begin + 1_000)
        joint = np.exp(log_p[here] @ histograms.T + log_count)
        weights[here] = joint.sum(1)
        total_mean[here] = joint @ np.stack([histograms.sum(1), histograms.sum(1) ** 2], axis=1)
    marginals = np.zeros((size, 16))
    for table in range(4):
        for state in range(16):
            marginals[:, cells[state, table]] += np.exp(log_p[:, state])

    def weighted(value, square):
        """Moments under the weights, and their errors by the delta method."""
        w = weights / weights.sum()
        mean, second = w @ value, w @ square
        sd = np.sqrt(second - mean**2)
        mean_error = np.sqrt(w**2 @ (value - mean) ** 2)
        sd_error = np.sqrt(w**2 @ ((value - mean) ** 2 - sd**2) ** 2) / (2 * sd)
        return mean, sd, mean_error, sd_error

    assert weights.sum() ** 2 / (weights @ weights) > 5_000
    draws = log_linear_draws(
        release,
        location=1.3,
        in_common=in_common,
        between=between,
        apart=apart,
        total_range=(low, high),
        seed=8,
        sweeps=50_000,
        thin=5,
    )
    require_equal(draws.marginals, *weighted(marginals, marginals**2))
    if total is None:
        conditional = total_mean / weights[:, None]
        mean, sd, mean_error, sd_error = weighted(conditional[:, :1], conditional[:, 1:])
        require_equal(draws.total[..., None], mean, sd, mean_error, sd_error)
        logs = np.log(scales)
        require_equal(np.log(draws.scales), *weighted(logs, logs**2))


def test_effects_of_the_reference_are_orthonormal_and_sum_to_zero():
    model = specification({"a": [0, 1, 2], "b": [0, 1], "c": [0, 1, 2, 3]}, [("a", "b", "c")])
    design, order = effect_design(model)
    assert design.shape == (24, 23)
    # over the 24 joint states an effect of S repeats 24 / |X_S| times
    gram = design.T @ design
    assert np.allclose(gram, np.diag(np.diag(gram)), atol=1e-12)
    assert np.allclose(design.sum(0), 0, atol=1e-12)
    sizes = [math.prod(3 if v == 0 else 2 if v == 1 else 4 for v in s) for s in [(0,), (1,), (2,)]]
    assert np.allclose(np.diag(gram)[order == 0], np.repeat(24 / np.array(sizes), [2, 1, 3]))
