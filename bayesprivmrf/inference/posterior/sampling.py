"""Draws of a posterior, by the engine's own chains of whole records or by NUTS, and draws of its prior."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from bayesprivmrf.inference.posterior.choice import Engine
from bayesprivmrf.inference.posterior.formulation import (
    STATISTICS,
    Clock,
    Finished,
    Formulation,
    Run,
    Sampled,
    Sampler,
)
from bayesprivmrf.inference.posterior.nuts_run import sample_with_nuts
from bayesprivmrf.inference.posterior.whole_records.engine import RecordEngine


def draw_posterior(
    engine: Engine,
    run: Run,
    *,
    sampler: Sampler,
    settings: Mapping[str, Any],
    time_limit: float = math.inf,
) -> Sampled:
    """Sample the posterior of an engine, and continue while the chains have not mixed.

    The chains continue until `is_mixed`, up to 16 times their length or `WORK` operations; `draws` draws per chain
    are kept, evenly spaced. If too many trajectories diverged, everything is sampled again with a step size that is
    tuned for a higher acceptance, unless `target_accept` is given or the work would be too large. If chains are far
    from mixing, they are sampled again after longer tuning, unless `tune` is given. Divergences arise at nearly empty
    cells, whose counts grow exponentially with their potentials. When `time_limit`, in seconds, has
    passed, sampling is neither continued nor repeated.

    Raises
    ------
    ArgumentError
        The sampler refuses a setting.
    KeyboardInterrupt
        The sampling was interrupted before any draw was kept.
    """
    if isinstance(engine, RecordEngine):
        # whole records do not use NUTS
        sampled = engine.sample(
            **asdict(run),
            time_limit=time_limit,
            cores=settings.get("cores"),
            progress_bar=settings.get("progress_bar"),
        )
    else:
        sampled = sample_with_nuts(engine, run, sampler, settings, Clock(time_limit))
    if not next(iter(sampled.statistics.values())).size:
        raise KeyboardInterrupt(
            "sampling was interrupted while the chains were being tuned, so there are no draws"
        )
    return sampled


def prior_as_sampled(
    formulation: Formulation, run: Run, rng: np.random.Generator
) -> tuple[Sampled, Finished]:
    """Return draws of the prior in the form of a sampling, for a release whose posterior is the prior."""
    prior = formulation.prior_draws(run.chains * run.draws, rng)

    def shaped(values: Any) -> Any:
        if isinstance(values, Mapping):
            return {name: shaped(own) for name, own in values.items()}
        if values is None:
            return None
        return values.reshape(run.chains, run.draws, *values.shape[2:])

    finished = Finished(**{each.name: shaped(getattr(prior, each.name)) for each in fields(prior)})
    zeros = np.zeros((run.chains, run.draws))
    statistics: dict[str, np.ndarray] = dict.fromkeys(STATISTICS, zeros)
    statistics |= dict.fromkeys(("diverging", "reached_max_treedepth"), zeros > 0)
    return Sampled(
        draws={name: np.zeros((run.chains, run.draws, 0)) for name in formulation.judged},
        statistics=statistics,
        is_interrupted=False,
        stats={"sampler": "exact", "sampling_seconds": 0.0},
    ), finished
