"""A small simulation-based calibration: truths from the prior must rank uniformly among posterior draws.

The statistic is the mean coverage of the central 50 % and 90 % intervals over all numbers of a data set, its
standard error that of the data sets' means. Bound: 5.8 standard errors, 6e-6 under a t distribution with 24
degrees of freedom, below 1e-4 for all sixteen comparisons together. The twins at the end, wrong on purpose, must
fail by the same bound. The full study is benchmarks/calibration.py.
"""

import warnings

import numpy as np
import pytest
from inference.conftest import noisy_release, specification
from inference.posterior.drawn import finished_of, formulation_of

from bayesprivmrf.errors import SamplingWarning
from bayesprivmrf.inference import LatentCounts
from bayesprivmrf.privacy import DiscreteLaplace, Gaussian

pytestmark = pytest.mark.slow

REPLICATIONS = 25
DEVIATIONS = 5.8
SAMPLER = {"chains": 2, "tune": 300, "draws": 300, "time_limit": 1e-9}

CHAIN = specification({v: [0, 1, 2] for v in "abcd"}, [("a", "b"), ("b", "c"), ("c", "d")])
GRID = specification(
    {v: [0, 1] for v in "abcdefghi"},
    [
        tuple(pair)
        for pair in ("ab", "bc", "de", "ef", "gh", "hi", "ad", "be", "cf", "dg", "eh", "fi")
    ],
)


def deviations(truth, draws, rng):
    """Standard errors by which the coverage of 50 % and 90 % intervals misses, over data sets (the first axis)."""
    below = (draws < truth[:, None]).sum(1) + (draws == truth[:, None]).sum(1) * rng.random(
        truth.shape
    )
    away = 2 * np.abs((below + rng.random(truth.shape)) / (draws.shape[1] + 1) - 0.5)
    misses = {}
    for level in (0.5, 0.9):
        each = (away <= level).mean(1)
        error = max(each.std(ddof=1) / len(each) ** 0.5, (level * (1 - level) / away.size) ** 0.5)
        misses[level] = (each.mean() - level) / error
    return misses


def simulate(model, law, records, total_range, told, seed, replications=REPLICATIONS):
    """Truths and thinned posterior draws of the replications; the fit is told that the noise is `told`."""
    rng = np.random.default_rng(seed)
    settings = {"total_range": total_range or (1.0, 1e12)}
    estimator = LatentCounts(**settings)
    total = None if total_range else records
    empty = noisy_release(model, np.zeros(model.size), told, rng, total=total)
    prior = formulation_of(empty, replications, **settings).prior_draws(replications, rng)
    truths, draws = {}, {}
    for k in range(replications):
        noisy = noisy_release(model, prior.counts[0, k], law, rng).tables
        release = type(empty).from_tables(model, dict(noisy), noise=told, total=total)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SamplingWarning)  # of chains as short as these
            found = finished_of(estimator.fit(release, rng=k, **SAMPLER))
        for name in ("marginals", "counts", "total"):
            truth, values = getattr(prior, name)[0, k], getattr(found, name)
            truths.setdefault(name, []).append(np.atleast_1d(truth))
            draws.setdefault(name, []).append(values.reshape(-1, *np.shape(truth) or (1,))[3::6])
    return {n: np.array(v) for n, v in truths.items()}, {n: np.array(v) for n, v in draws.items()}


@pytest.fixture(scope="module")
def chain():
    return simulate(CHAIN, Gaussian(2.0), 1_000, (500.0, 2_000.0), Gaussian(2.0), 41)


@pytest.fixture(scope="module")
def grid():
    return simulate(GRID, DiscreteLaplace(6.0), 400, None, DiscreteLaplace(6.0), 42)


def require_calibrated(truth, draws):
    misses = deviations(truth, draws, np.random.default_rng(5))
    assert all(abs(miss) < DEVIATIONS for miss in misses.values()), misses


def require_too_short(truth, draws):
    misses = deviations(truth, draws, np.random.default_rng(5))
    assert all(miss < -DEVIATIONS for miss in misses.values()), misses


@pytest.mark.parametrize("quantity", ["marginals", "counts", "total"])
def test_a_chain_with_private_total_is_calibrated(chain, quantity):
    truths, draws = chain
    # relaxed counts stand for the whole numbers that they round to
    own = draws[quantity] if quantity == "marginals" else np.rint(draws[quantity])
    require_calibrated(truths[quantity], own)


@pytest.mark.parametrize("quantity", ["marginals", "counts"])
def test_a_grid_with_learned_scale_is_calibrated(grid, quantity):
    truths, draws = grid
    require_calibrated(truths[quantity], draws[quantity])


@pytest.mark.parametrize("model", ["chain", "grid"])
def test_shares_of_the_latent_counts_are_no_interval_for_the_population(model, request):
    truths, draws = request.getfixturevalue(model)
    require_too_short(truths["marginals"], draws["counts"] / draws["total"])


@pytest.mark.filterwarnings(
    "ignore::bayesprivmrf.errors.ConsistencyWarning"
)  # the stated noise is wrong
def test_half_the_noise_scale_gives_intervals_that_are_too_short():
    truths, draws = simulate(CHAIN, Gaussian(20.0), 1_000, (500.0, 2_000.0), Gaussian(10.0), 43)
    require_too_short(truths["counts"], np.rint(draws["counts"]))
    require_too_short(truths["marginals"], draws["marginals"])
