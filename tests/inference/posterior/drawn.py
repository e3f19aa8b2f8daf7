"""Posteriors whose draws come from the prior, exactly and without any compiling: for what is done with draws."""

from dataclasses import replace

import numpy as np
from inference.conftest import noisy_release, simulated_counts

from bayesprivmrf.inference import LatentCounts, Posterior, Status, gather
from bayesprivmrf.inference.posterior import Source
from bayesprivmrf.inference.posterior.formulation import STATISTICS, Sampled
from bayesprivmrf.inference.posterior.results.draws import Draws
from bayesprivmrf.inference.posterior.results.tree import TreeDraws, build_tree
from bayesprivmrf.privacy import DiscreteLaplace


def release_of(model, *, law=None, records=200, total=200, seed=3):
    generator = np.random.default_rng(seed)
    counts, _ = simulated_counts(model, records, generator)
    return noisy_release(model, counts, law or DiscreteLaplace(2.0), generator, total=total)


def formulation_of(releases, draws=10, **settings):
    """The formulation that a fit would choose; a fit would compile it and sample."""
    return formulation_on(gather(releases), draws, **settings)


def formulation_on(evidence, draws=10, **settings):
    return LatentCounts(**settings)._formulation(evidence, draws)


def finished_of(posterior):
    """The draws as arrays, one axis for all cells or for all hyperparameters; the tree has them by name."""
    return posterior._draws.finished


def with_changes(posterior, releases=None, **arrays):
    """The posterior with other draws, and as if it were of other releases."""
    finished = replace(finished_of(posterior), **arrays)
    evidence = posterior._draws.evidence if releases is None else gather(releases)
    return replace(
        posterior, _draws=replace(posterior._draws, evidence=evidence, finished=finished)
    )


def sampled_as(shape, draws=None, **statistics):
    """What a sampler would report of draws; all its statistics are 0 but those given."""
    usual = dict.fromkeys(STATISTICS, np.zeros(shape))
    return Sampled(draws=draws or {}, statistics=usual | statistics, is_interrupted=False, stats={})


def drawn_posterior(releases, size=200, *, with_prior=False, seed=4, **settings):
    """A `Posterior` of a decomposable model with the draws of its prior."""
    evidence = gather(releases)
    formulation = formulation_of(releases, size, **settings)
    finished = formulation.prior_draws(size, np.random.default_rng(seed))
    tree = build_tree(
        evidence,
        formulation.settings,
        TreeDraws(
            finished=finished,
            sampled=sampled_as((1, size)),
            prior=finished if with_prior else None,
        ),
        rng=np.random.default_rng(seed),
        attributes={"status": "converged", "simulated": int(evidence.is_simulated)},
    )
    return Posterior(
        tree=tree,
        status=Status.CONVERGED,
        stats={"seconds": 0.0},
        _formulation=formulation,
        _draws=Draws(evidence=evidence, finished=finished),
        _source=Source(
            estimator=LatentCounts(**settings),
            releases=tuple(releases) if isinstance(releases, list | tuple) else (releases,),
            population="one",
        ),
    )
