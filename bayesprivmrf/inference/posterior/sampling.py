"""NUTS draws of a formulation, by nutpie or by PyMC itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from bayesprivmrf.checks import one_of, probability, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.posterior.formulation import Finished, Formulation
from bayesprivmrf.inference.posterior.sampled import STATISTICS, Sampled

__all__ = ["Sampler", "check_settings", "draw_posterior", "prior_as_sampled"]

type Sampler = Literal["nutpie", "pymc"]

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
) -> Sampled:
    """Sample a formulation's posterior.

    Raises
    ------
    ArgumentError
        The sampler refuses a setting.
    KeyboardInterrupt
        The sampling was interrupted before any draw was kept.
    """
    if sampler == "nutpie":
        from bayesprivmrf.inference.posterior.nutpie_sampler import sample_with_nutpie as draw
    else:
        from bayesprivmrf.inference.posterior.pymc_sampler import sample_with_pymc as draw
    settings = {"target_accept": formulation.acceptance, **settings}
    sampled = draw(formulation, draws=draws, tune=tune, chains=chains, seed=seed, settings=settings)
    if not next(iter(sampled.statistics.values())).size:
        raise KeyboardInterrupt(
            "sampling was interrupted while the chains were being tuned: nothing was drawn"
        )
    return sampled


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
