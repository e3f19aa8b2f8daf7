"""NUTS draws of a formulation, by nutpie or by PyMC itself."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bayesprivmrf.checks import one_of, probability, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.posterior.diagnostics import LONGEST, SMALLEST_ESS, is_mixed, mixing_of
from bayesprivmrf.inference.posterior.formulation import Finished, Formulation
from bayesprivmrf.inference.posterior.record_chains import RecordSampler
from bayesprivmrf.inference.posterior.room import MEMORY
from bayesprivmrf.inference.posterior.sampled import STATISTICS, Sampled, Sampler

__all__ = ["check_settings", "draw_posterior", "prior_as_sampled"]

_OWN = (
    "draws",
    "tune",
    "chains",
    "seed",
    "random_seed",
    "model",
    "blocking",
    "return_raw_trace",
    "nuts_sampler",
)


def draw_posterior(
    formulation: Formulation,
    *,
    sampler: Sampler,
    draws: int,
    tune: int,
    chains: int,
    seed: int,
    settings: Mapping[str, Any],
    time_limit: float = math.inf,
) -> Sampled:
    """Sample a formulation's posterior, longer while the chains have not mixed.

    Of `Formulation.steps_between_draws` steps one is kept. The length is doubled, and as many draws dropped in
    between, until `is_mixed` or until another doubling would pass `time_limit`, in seconds.

    Raises
    ------
    ArgumentError
        The sampler refuses a setting.
    KeyboardInterrupt
        The sampling was interrupted before any draw was kept.
    """
    begin = time.perf_counter()
    if isinstance(formulation, RecordSampler):
        sampled = formulation.sample(
            draws=draws, tune=tune, chains=chains, seed=seed, time_limit=time_limit, **_of_exact(settings)
        )
    else:
        how: dict[str, Any] = {"chains": chains, "seed": seed, "settings": settings}
        first = thin = formulation.steps_between_draws if sampler == "nutpie" else 1
        sampled = _draw_once(formulation, sampler, draws=draws * thin, tune=tune, every=thin, **how)
        sampled = _judged(sampled, formulation)
        while (
            _may_go_on(sampled, formulation, draws, thin) and 3 * (time.perf_counter() - begin) <= time_limit
        ):
            if sampler == "pymc" or 16 * chains * draws * thin * formulation.density.size > MEMORY:
                break  # PyMC stores what follows from each position, and compiles in each call
            thin *= 2
            tuned = tune * thin // first
            longer = _draw_once(formulation, sampler, draws=draws * thin, tune=tuned, every=thin, **how)
            if longer.is_interrupted:  # the shorter sampling was whole
                sampled, thin = replace(sampled, is_interrupted=True), thin // 2
                break
            sampled = _judged(longer, formulation)
        sampled = replace(sampled, stats={**sampled.stats, "steps_between_draws": thin})
    if not next(iter(sampled.statistics.values())).size:
        raise KeyboardInterrupt(
            "sampling was interrupted while the chains were being tuned: nothing was drawn"
        )
    return sampled


def _judged(sampled: Sampled, formulation: Formulation) -> Sampled:
    """The sampling, and how its chains have mixed."""
    return replace(sampled, mixing=mixing_of([sampled.draws[name] for name in formulation.judged]))


def _may_go_on(sampled: Sampled, formulation: Formulation, draws: int, thin: int) -> bool:
    """Whether a longer sampling could help: of many draws, which nobody stopped, and which have not mixed."""
    judged = [sampled.draws[name] for name in formulation.judged]
    is_over = sampled.is_interrupted or thin >= LONGEST or draws < SMALLEST_ESS
    return not is_over and not is_mixed(judged, sampled.mixing)


def _draw_once(formulation: Formulation, sampler: Sampler, *, every: int, **how: Any) -> Sampled:
    if sampler == "nutpie":
        from bayesprivmrf.inference.posterior.nutpie_sampler import sample_with_nutpie

        draw = partial(sample_with_nutpie, every=every)
    else:
        from bayesprivmrf.inference.posterior.pymc_sampler import sample_with_pymc as draw
    return draw(
        formulation, **{**how, "settings": {"target_accept": formulation.acceptance, **how["settings"]}}
    )


def _of_exact(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that mean something to the exact formulation, which has no step to tune."""
    return {name: value for name, value in settings.items() if name == "cores"}


def check_settings(sampler: str, draws: int, tune: int, chains: int, settings: Mapping[str, Any]) -> None:
    """Raise if a sampler's setting is outside what it can use; some of these would hang it."""
    one_of("sampler", sampler, ("nutpie", "pymc"))
    numbers = {"draws": (draws, 1), "tune": (tune, 0), "chains": (chains, 1)}
    numbers |= {
        name: (settings[name], 1) for name in ("cores", "maxdepth", "max_treedepth") if name in settings
    }
    for name, (value, least) in numbers.items():
        whole_number(name, value, least)
    probability("target_accept", settings.get("target_accept", 0.8), zero=False, remedy="0.8 is usual")
    for name in _OWN:
        if name in settings:
            remedy = "`rng` seeds the sampler" if "seed" in name else "it is set by `fit`"
            raise ArgumentError(f"`{name}` is not a setting of the sampler here: {remedy}.")
    if sampler == "pymc":
        from bayesprivmrf.inference.posterior.pymc_sampler import refuse_unknown_of_pymc as refuse_unknown
    else:
        from bayesprivmrf.inference.posterior.nutpie_sampler import refuse_unknown_of_nutpie as refuse_unknown
    refuse_unknown(settings)


def prior_as_sampled(
    formulation: Formulation, chains: int, draws: int, rng: np.random.Generator
) -> tuple[Sampled, Finished]:
    """The posterior of a release without tables, which is the prior, in the shape of a sampling."""
    prior = formulation.prior_draws(chains * draws, rng)

    def shaped(values: np.ndarray) -> np.ndarray:
        return values.reshape(chains, draws, *values.shape[2:])

    finished = Finished(
        marginals=shaped(prior.marginals),
        counts=shaped(prior.counts),
        effects=shaped(prior.effects),
        total=shaped(prior.total),
        scales=None if prior.scales is None else shaped(prior.scales),
        log_prior={name: shaped(values) for name, values in prior.log_prior.items()},
    )
    zeros = np.zeros((chains, draws))
    statistics: dict[str, np.ndarray] = dict.fromkeys(STATISTICS, zeros)
    statistics |= dict.fromkeys(("diverging", "reached_max_treedepth"), zeros > 0)
    return Sampled(
        draws={name: np.zeros((chains, draws, 0)) for name in formulation.judged},
        statistics=statistics,
        is_interrupted=False,
        stats={"sampler": "exact", "sampling_seconds": 0.0},
    ), finished
