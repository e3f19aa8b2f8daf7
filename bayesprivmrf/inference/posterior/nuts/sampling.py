"""Sampling of a formulation: whole records by their own engine, relaxed counts by nutpie or by PyMC's NUTS.

PyMC samples the model that `Posterior.pymc_model` returns, as an independent check of nutpie. It follows the exact
derivative of the log density, with its kinks, while nutpie follows a smoothed one.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from bayesprivmrf.checks import one_of, probability, whole_number
from bayesprivmrf.compiled import is_watched
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.posterior.effort import MEMORY, WORK
from bayesprivmrf.inference.posterior.formulation import (
    STATISTICS,
    Clock,
    Finished,
    Formulation,
    RelaxedFormulation,
    Sampled,
    Sampler,
)
from bayesprivmrf.inference.posterior.nuts.nutpie import refuse_unknown_of_nutpie, sample_with_nutpie
from bayesprivmrf.inference.posterior.records.engine import RecordEngine
from bayesprivmrf.inference.posterior.results.diagnostics import (
    LONGEST,
    SMALLEST_ESS,
    diverges,
    is_mixed,
    mixing_of,
    saturates,
)

# settings of ``pymc.sample`` and ``pymc.NUTS`` that `fit` does not set itself
_SETTINGS = (
    "target_accept", "max_treedepth", "early_max_treedepth", "step_scale", "adapt_step_size", "gamma", "k", "t0",
    "Emax", "init", "n_init", "jitter_max_retries", "cores", "blas_cores", "mp_ctx", "callback", "progressbar",
    "progressbar_theme", "compile_kwargs", "backend",
)  # fmt: skip


def sample_with_pymc(
    formulation: Formulation, *, draws: int, tune: int, chains: int, seed: int, settings: dict[str, Any]
) -> Sampled:
    """Draw with PyMC's own sampler; the arguments are those of `draw_posterior`."""
    import pymc as pm

    stored = [*formulation.judged, *formulation.hidden]
    settings.setdefault("progressbar", is_watched())
    settings.setdefault("cores", 1)  # each worker process would compile everything again
    clock = Clock()
    logger = logging.getLogger("pymc")
    level = logger.level
    # `diagnostics` reports the convergence of the judged variables
    logger.setLevel(logging.ERROR)
    try:
        with formulation.model(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sample: Any = pm.sample  # its overloads do not include settings that are passed on
            tree = sample(
                draws=draws,
                tune=tune,
                chains=chains,
                random_seed=seed,
                nuts_sampler="pymc",
                var_names=stored,
                compute_convergence_checks=False,
                **settings,
            )
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"PyMC refuses a setting among {', '.join(f'{k}={v!r}' for k, v in settings.items())}: {error}"
        ) from error
    finally:
        logger.setLevel(level)
    statistics = {name: tree["sample_stats"][name].values for name in STATISTICS}
    values = {name: tree["posterior"][name].values for name in stored}
    shape = statistics["lp"].shape
    return Sampled(
        draws=values,
        statistics=statistics,
        is_interrupted=shape != (chains, draws),
        stats={"sampler": f"PyMC {pm.__version__}", "sampling_seconds": clock.seconds},
    )


def refuse_unknown_of_pymc(settings: Mapping[str, Any]) -> None:
    """Raise an error for a setting that PyMC's NUTS does not have; PyMC would silently ignore some of them."""
    for name in settings:
        if name not in _SETTINGS:
            raise ArgumentError(f"PyMC's sampler has no setting `{name}`; it has {', '.join(_SETTINGS)}.")


# settings of the samplers that `fit` sets itself
_OWN = (
    "draws", "tune", "chains", "seed", "random_seed", "model", "blocking", "return_raw_trace", "nuts_sampler",
    "progress_callback", "progress_rate",
)  # fmt: skip
# largest work of a second run, as a multiple of the work so far
_TIMES_AT_MOST = 8
# multiples of the requested length at which chains are judged
_TIMES = (1, 2, 3, 4, 6, 8, 12, LONGEST)


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
    """Sample the posterior of a formulation, and continue while the chains have not mixed.

    The chains continue until `is_mixed`, up to 16 times their length or `WORK` operations; `draws` draws per chain
    are kept, evenly spaced. If too many trajectories diverged, everything is sampled again with a step size that is
    tuned for a higher acceptance, unless `target_accept` is given or the work would be too large. Divergences arise
    at nearly empty cells, whose counts grow exponentially with their potentials. When `time_limit`, in seconds, has
    passed, sampling is neither continued nor repeated.

    Raises
    ------
    ArgumentError
        The sampler refuses a setting.
    KeyboardInterrupt
        The sampling was interrupted before any draw was kept.
    """
    how: dict[str, Any] = {"draws": draws, "tune": tune, "chains": chains, "seed": seed}
    if isinstance(formulation, RecordEngine):
        sampled = formulation.sample(**how, time_limit=time_limit, **_of_exact(settings))
    else:
        relaxed, clock = cast("RelaxedFormulation", formulation), Clock(time_limit)
        sample = partial(_by_nuts, relaxed, sampler, how, clock)
        sampled = _with_steps_that_hold(sample, relaxed, settings, clock)
    if not next(iter(sampled.statistics.values())).size:
        raise KeyboardInterrupt(
            "sampling was interrupted while the chains were being tuned, so there are no draws"
        )
    return sampled


def _with_steps_that_hold(
    sample: Callable[..., Sampled | None],
    formulation: RelaxedFormulation,
    settings: Mapping[str, Any],
    clock: Clock,
) -> Sampled:
    """Sample with the formulation's acceptance, and again with a higher one while too many trajectories diverge.

    A second run starts if the work so far is at most a quarter of `WORK`, since it is expected to take four times the
    work of the first. Its draws are kept if it ends within eight times the work so far, and if not too many of its
    trajectories reach the maximum tree depth. Otherwise the first draws are kept.
    """
    spent = 0.0

    def may_repeat(sampled: Sampled) -> bool:
        return 4 * (spent + sampled.work) <= WORK

    def noted(sampled: Sampled, acceptance: float) -> Sampled:
        own = {"sampling_seconds": clock.seconds, "target_accept": acceptance}
        return replace(sampled, stats={**sampled.stats, **own})

    usual, given = formulation.acceptance, settings.get("target_accept")
    # the next two acceptances above the formulation's: with many kinks of a Laplace likelihood no step is small
    # enough for more, and trees reach their maximum depth
    higher = [acceptance for acceptance in (0.8, 0.9, 0.99) if acceptance > usual][:2]
    first, *smaller = (usual, *higher) if given is None else (given,)
    drawn = sample(
        {**settings, "target_accept": first},
        may_stop=lambda sampled: bool(smaller) and diverges(sampled) and may_repeat(sampled),
    )
    assert drawn is not None  # the first length is always completed
    found = noted(drawn, first)
    for acceptance in smaller:
        if found.is_interrupted or not diverges(found) or not may_repeat(found) or clock.is_over:
            break
        spent, is_last = spent + found.work, acceptance == smaller[-1]
        try:
            following = sample(
                {**settings, "target_accept": acceptance},
                most=min(_TIMES_AT_MOST * spent, WORK - spent),
                may_stop=lambda sampled, last=is_last: not last and diverges(sampled) and may_repeat(sampled),
            )
        except KeyboardInterrupt:
            return replace(found, is_interrupted=True)
        if following is None:
            break
        if following.is_interrupted:
            return replace(found, is_interrupted=True)
        if saturates(following):
            break
        found = noted(following, acceptance)
    return found


def _by_nuts(
    formulation: RelaxedFormulation,
    sampler: Sampler,
    how: Mapping[str, Any],
    clock: Clock,
    settings: dict[str, Any],
    *,
    may_stop: Callable[[Sampled], bool],
    most: float = math.inf,
) -> Sampled | None:
    """Run the sampler with one target acceptance; return None if a second run took too much work or time."""
    if sampler == "pymc":  # PyMC stores all latent numbers at each position, and compiles in each call
        sampled = _judged(sample_with_pymc(formulation, **how, settings=settings), formulation)
        gradients = float(np.sum(sampled.statistics["n_steps"]))
        return replace(sampled, work=formulation.operations_a_gradient * gradients)
    return sample_with_nutpie(
        formulation,
        **how,
        settings=settings,
        lengths=_lengths(formulation, how["draws"], how["chains"]),
        judge=partial(_judged, formulation=formulation),
        may_stop=lambda sampled: may_stop(sampled) or _may_stop(sampled, how["chains"]),
        clock=clock,
        most=most,
    )


def _lengths(formulation: RelaxedFormulation, draws: int, chains: int) -> list[int]:
    """Return the steps per chain at which sampling may end, as many as fit in memory; one length for few draws."""
    most = MEMORY / (8 * chains * draws * max(formulation.density.size, 1))
    times = _TIMES if draws >= SMALLEST_ESS else _TIMES[:1]
    return [draws * n for n in times if n == 1 or n <= most]


def _judged(sampled: Sampled, formulation: Formulation) -> Sampled:
    """Add the mixing of the chains to a sampling."""
    judged = [sampled.draws[name] for name in formulation.judged]
    return replace(sampled, mixing=mixing_of(judged, sampled.statistics["energy"]))


def _may_stop(sampled: Sampled, chains: int) -> bool:
    """Return True if longer chains would not help: they have mixed, or sampling was interrupted."""
    return sampled.is_interrupted or (sampled.mixing is not None and is_mixed(sampled.mixing, chains))


def _of_exact(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that apply to the exact formulation, which does not use NUTS."""
    return {name: value for name, value in settings.items() if name in ("cores", "progress_bar")}


def check_settings(sampler: str, draws: int, tune: int, chains: int, settings: Mapping[str, Any]) -> None:
    """Raise an error for a setting that the sampler does not support; some of them would make it hang."""
    one_of("sampler", sampler, ("nutpie", "pymc"))
    numbers = {"draws": (draws, 1), "tune": (tune, 0), "chains": (chains, 1)}
    numbers |= {
        name: (settings[name], 1) for name in ("cores", "maxdepth", "max_treedepth") if name in settings
    }
    for name, (value, least) in numbers.items():
        whole_number(name, value, least)
    probability("target_accept", settings.get("target_accept", 0.8), zero=False, remedy="0.8 is usual")
    for name in settings:
        if name in _OWN:
            remedy = "`rng` seeds the sampler" if "seed" in name else "it is set by `fit`"
            raise ArgumentError(f"`{name}` is not a setting of the sampler here: {remedy}.")
    (refuse_unknown_of_pymc if sampler == "pymc" else refuse_unknown_of_nutpie)(settings)


def prior_as_sampled(
    formulation: Formulation, chains: int, draws: int, rng: np.random.Generator
) -> tuple[Sampled, Finished]:
    """Return draws of the prior in the form of a sampling, for a release whose posterior is the prior."""
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
