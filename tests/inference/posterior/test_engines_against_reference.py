"""Both engines against latent records, at sizes between enumeration and the large-sample formulas.

The reference is exact but for its Monte Carlo error, asserted to be below .025 posterior standard deviations. An
engine's own is about .01 in a mean and .01 to .02 in a standard deviation; the largest of forty about three times
that. The bounds leave the rest to the bias of the engines, which relax whole numbers to real ones.
"""

import numpy as np
import pytest
from inference.conftest import noisy_release, simulated_counts, specification
from inference.posterior.drawn import finished_of
from inference.posterior.engines import junction_forest
from inference.posterior.reference_sampler import hyper_dirichlet_draws, log_linear_draws, moments

from bayesprivmrf.inference import LatentCounts
from bayesprivmrf.inference.loglinear_fit import (
    LOCATION,
    SPREAD_BETWEEN_EFFECTS,
    SPREAD_BETWEEN_ORDERS,
    SPREAD_IN_COMMON,
)
from bayesprivmrf.privacy import DiscreteLaplace, Gaussian

pytestmark = pytest.mark.slow

SAMPLER = {"chains": 4, "tune": 700, "draws": 3000, "rng": 3, "time_limit": 1e-9}
LEARNT = {
    "location": LOCATION,
    "in_common": SPREAD_IN_COMMON,
    "between": SPREAD_BETWEEN_ORDERS,
    "apart": SPREAD_BETWEEN_EFFECTS,
}


def require_close(found, reference, *, mean, ratio):
    """Largest error of a mean in posterior standard deviations, and largest relative error of those."""
    truth = moments(reference)
    assert np.all(truth.mean_error < 0.025 * truth.sd)
    assert np.all(truth.sd_error < 0.025 * truth.sd)
    error = np.abs(found.mean((0, 1)) - truth.mean) / truth.sd
    relative = found.std((0, 1)) / truth.sd - 1
    assert error.max() < mean, error.max()
    assert np.abs(relative).max() < ratio, relative


def release_of(model, law, records, seed, total, scale=0.5):
    rng = np.random.default_rng(seed)
    counts, _ = simulated_counts(model, records, rng, scale=scale)
    return noisy_release(model, counts, law, rng, total=total)


CHAIN = specification({v: [0, 1, 2] for v in "abcd"}, [("b", "c"), ("a", "b"), ("c", "d")])
CYCLE = specification({v: [0, 1] for v in "abcd"}, [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")])


def test_hyper_dirichlet_posterior_is_that_of_latent_records():
    """Of a chain whose number of records is private."""
    assert junction_forest(CHAIN.cardinalities, CHAIN.scopes).roots == (
        0,
    )  # the reference's first clique
    release = release_of(CHAIN, Gaussian(4.0), 120, 17, None)
    prior = {"concentration": 0.5, "total_range": (60, 300)}
    draws = hyper_dirichlet_draws(release, **prior, seed=2, sweeps=25_000)
    posterior = LatentCounts(**prior).fit(release, **SAMPLER)
    found = finished_of(posterior)
    require_close(found.marginals, draws.marginals, mean=0.08, ratio=0.06)
    require_close(found.counts, draws.counts, mean=0.1, ratio=0.07)
    require_close(found.total[..., None], draws.total[..., None], mean=0.08, ratio=0.06)


def test_log_linear_posterior_is_that_of_latent_records():
    """Of a cycle with learned scales, whose number of records is private."""
    release = release_of(CYCLE, DiscreteLaplace(4.0), 150, 23, None, scale=0.7)
    total_range = (75, 300)
    draws = log_linear_draws(release, **LEARNT, total_range=total_range, seed=4, sweeps=25_000)
    posterior = LatentCounts(total_range=total_range).fit(release, **SAMPLER)
    found = finished_of(posterior)
    require_close(found.marginals, draws.marginals, mean=0.1, ratio=0.07)
    # real numbers stand for whole ones: off most where a cell may be empty, as strong effects make it
    require_close(found.counts, draws.counts, mean=0.18, ratio=0.1)
    require_close(found.total[..., None], draws.total[..., None], mean=0.1, ratio=0.07)
    # one coordinate of each effect says little of its scale, and what it says is not normal
    require_close(np.log(found.scales), np.log(draws.scales), mean=0.2, ratio=0.1)
