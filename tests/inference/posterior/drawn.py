"""Posteriors whose draws come from the prior, exactly and without any compiling: for what is done with draws."""

import numpy as np
from inference.conftest import noisy_release, simulated_counts

from bayesprivmrf.inference import LatentCounts, Posterior, Status
from bayesprivmrf.inference.evidence import gather
from bayesprivmrf.inference.posterior.draws import Draws
from bayesprivmrf.inference.posterior.sampled import STATISTICS, Sampled
from bayesprivmrf.inference.posterior.tree import build_tree
from bayesprivmrf.privacy import DiscreteLaplace


def release_of(model, *, law=None, records=200, total=200, seed=3):
    generator = np.random.default_rng(seed)
    counts, _ = simulated_counts(model, records, generator)
    return noisy_release(model, counts, law or DiscreteLaplace(2.0), generator, total=total)


def drawn_posterior(releases, size=200, *, with_prior=False, seed=4, **settings):
    """A `Posterior` of a decomposable model with the draws of its prior."""
    evidence = gather(releases)
    formulation = LatentCounts(**settings)._formulation(evidence, size)
    finished = formulation.prior_draws(size, np.random.default_rng(seed))
    zeros = np.zeros((1, size))
    sampled = Sampled(
        draws={},
        statistics=dict.fromkeys(STATISTICS, zeros),
        is_interrupted=False,
        stats={},
    )
    tree = build_tree(
        evidence,
        formulation,
        finished,
        sampled,
        prior=finished if with_prior else None,
        rng=np.random.default_rng(seed),
        attributes={"status": "converged"},
    )
    return Posterior(
        tree=tree,
        status=Status.CONVERGED,
        stats={"seconds": 0.0},
        _evidence=evidence,
        _formulation=formulation,
        _draws=Draws(model=evidence.specification, supported=evidence.supported, finished=finished),
    )
