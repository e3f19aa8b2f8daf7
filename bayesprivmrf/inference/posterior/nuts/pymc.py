"""PyMC's own NUTS, on the model that `Posterior.pymc_model` shows: a check of the sampler by another one.

It follows the derivative of the log density as it is, kinks included, where nutpie follows a smoothed one.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import Any

from bayesprivmrf.compiled_cache import is_watched
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.posterior.formulation import Formulation
from bayesprivmrf.inference.posterior.sampled import STATISTICS, Clock, Sampled

# settings of ``pymc.sample`` and ``pymc.NUTS``: all but those that `fit` sets itself
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
    settings.setdefault("cores", 1)  # a worker process would compile all over again
    clock = Clock()
    logger = logging.getLogger("pymc")
    level = logger.level
    # `diagnostics` reports convergence, of the judged variables
    logger.setLevel(logging.ERROR)
    try:
        with formulation.model(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sample: Any = pm.sample  # its overloads do not know settings that are passed on
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
    """Raise at a setting that PyMC's NUTS does not have; PyMC would ignore some of them silently."""
    for name in settings:
        if name not in _SETTINGS:
            raise ArgumentError(f"PyMC's sampler has no setting `{name}`; it has {', '.join(_SETTINGS)}.")
