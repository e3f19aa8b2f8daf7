"""NUTS draws of a formulation: by nutpie, whose compiled model is kept for the process, or by PyMC itself.

nutpie compiles a model's density once and takes other data into it (`with_data`), so that a second fit of the
same structure compiles nothing. PyMC's own sampler compiles its functions in each call and has no way to keep
them with its initialisation; it is here as a second opinion.
"""

from __future__ import annotations

import inspect
import sys
import time
import warnings
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.posterior.formulation import Formulation

__all__ = ["Sampled", "Sampler", "check_settings", "draw_posterior"]

type Sampler = Literal["nutpie", "pymc"]

_KEPT_MODELS = 16
_STATISTICS = {
    "diverging": "diverging",
    "depth": "tree_depth",
    "maxdepth_reached": "reached_max_treedepth",
    "n_steps": "n_steps",
    "energy": "energy",
    "logp": "lp",
    "mean_tree_accept": "acceptance_rate",
    "step_size": "step_size",
}
"""nutpie's names of what both samplers report, and the names that ArviZ and PyMC use."""
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

_compiled: OrderedDict[Hashable, Any] = OrderedDict()
_lock = Lock()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sampled:
    """What a sampler drew after tuning.

    Parameters
    ----------
    draws
        Stored variables, each of shape (chain, draw, ...).
    statistics
        Of the sampler, by ArviZ's names, each of shape (chain, draw).
    is_interrupted
        Whether fewer draws are here than were asked for.
    stats
        Numbers and text on the way: sampler and version, seconds to compile and to sample.
    """

    draws: Mapping[str, np.ndarray]
    statistics: Mapping[str, np.ndarray]
    is_interrupted: bool
    stats: Mapping[str, Any]


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
    draw = _with_nutpie if sampler == "nutpie" else _with_pymc
    sampled = draw(formulation, draws=draws, tune=tune, chains=chains, seed=seed, settings=dict(settings))
    if not next(iter(sampled.statistics.values())).size:
        raise KeyboardInterrupt(
            "sampling was interrupted while the chains were being tuned: nothing was drawn"
        )
    return sampled


def check_settings(sampler: str, draws: int, tune: int, chains: int, settings: Mapping[str, Any]) -> None:
    """Raise if a sampler's setting is outside what it can use; some of these would hang it."""
    if sampler not in ("nutpie", "pymc"):
        raise ArgumentError(f"`sampler` must be 'nutpie' or 'pymc', got {sampler!r}.")
    numbers = {"draws": (draws, 1), "tune": (tune, 0), "chains": (chains, 1)}
    numbers |= {
        name: (settings[name], 1) for name in ("cores", "maxdepth", "max_treedepth") if name in settings
    }
    for name, (value, least) in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not value >= least:
            raise ArgumentError(f"`{name}` must be a whole number of at least {least}, got {value!r}.")
    share = settings.get("target_accept", 0.8)
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise ArgumentError(f"`target_accept` must lie between 0 and 1, got {share!r}.")
    for name in _OWN:
        if name in settings:
            remedy = "`rng` seeds the sampler" if "seed" in name else "it is set by `fit`"
            raise ArgumentError(f"`{name}` is not a setting of the sampler here: {remedy}.")
    if sampler == "pymc":
        _refuse_unknown_of_pymc(settings)


def _with_nutpie(
    formulation: Formulation, *, draws: int, tune: int, chains: int, seed: int, settings: dict[str, Any]
) -> Sampled:
    import nutpie

    begin = time.perf_counter()
    compiled, is_fresh = _compiled_model(formulation)
    compile_seconds = time.perf_counter() - begin
    settings.setdefault("progress_bar", _is_watched())
    begin = time.perf_counter()
    try:
        handle = nutpie.sample(
            compiled,
            draws=draws,
            tune=tune,
            chains=chains,
            seed=seed,
            blocking=False,
            return_raw_trace=True,
            **settings,
        )
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(
            f"nutpie refuses a setting among {', '.join(f'{k}={v!r}' for k, v in settings.items())}: {error}; "
            "see nutpie.sample for those that it takes."
        ) from error
    try:
        trace = handle.wait()
    except KeyboardInterrupt:
        trace = handle.abort()
    values, statistics, is_short = _read_arrow(trace, (*formulation.judged, *formulation.hidden), draws)
    return Sampled(
        draws=values,
        statistics=statistics,
        is_interrupted=is_short,
        stats={
            "sampler": f"nutpie {nutpie.__version__}",
            "compiled": is_fresh,
            "compile_seconds": compile_seconds,
            "sampling_seconds": time.perf_counter() - begin,
        },
    )


def _compiled_model(formulation: Formulation) -> tuple[Any, bool]:
    """The compiled model with this formulation's data, and whether it had to be compiled."""
    import nutpie

    stored = (*formulation.judged, *formulation.hidden)
    key = (formulation.structure, stored)
    with _lock:
        kept = _compiled.get(key)
        is_fresh = kept is None
        if kept is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of numba and PyTensor, about how they compile
                kept = nutpie.compile_pymc_model(
                    formulation.model(), backend="numba", var_names=list(stored), freeze_model=False
                )
            _compiled[key] = kept
            while len(_compiled) > _KEPT_MODELS:
                _compiled.popitem(last=False)
        _compiled.move_to_end(key)
    used = {variable.name for variable in kept.shared_var_keys}
    data = {name: value for name, value in formulation.data().items() if name in used}
    return kept.with_data(**data), is_fresh


def _read_arrow(
    trace: Any, names: tuple[str, ...], draws: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], bool]:
    """Draws and statistics after tuning, of the chains that got so far, cut to the shortest of them.

    A chain that was stopped before half of the longest one's draws is left out, so that one late chain does
    not cost the others theirs.
    """
    chains = list(zip(*trace.get_arrow_trace(), strict=True))
    warm = [int(np.sum(statistic.column("tuning").to_numpy())) for _, statistic in chains]
    lengths = [batch.num_rows - first for (batch, _), first in zip(chains, warm, strict=True)]
    longest = max(lengths, default=0)
    kept = [c for c, length in enumerate(lengths) if longest and 2 * length >= longest]
    length = min((lengths[c] for c in kept), default=0)
    values = {name: np.array([_column(chains[c][0], name, warm[c], length) for c in kept]) for name in names}
    statistics = {
        ours: np.array([_column(chains[c][1], theirs, warm[c], length) for c in kept])
        for theirs, ours in _STATISTICS.items()
    }
    is_short = length < draws or len(kept) < len(chains)
    return values, statistics, is_short


def _column(batch: Any, name: str, start: int, length: int) -> np.ndarray:
    """Rows of one column of a record batch, with the shape that its metadata name."""
    import pyarrow as pa

    column = batch.column(name)
    written = (column.field.metadata or {}).get(b"shape", b"").decode()
    shape = tuple(int(size) for size in written.split(",") if size)
    array = pa.array(column.slice(start, length))
    if hasattr(array, "flatten"):
        array = array.flatten()
    return array.to_numpy(zero_copy_only=False).reshape(length, *shape)


def _with_pymc(
    formulation: Formulation, *, draws: int, tune: int, chains: int, seed: int, settings: dict[str, Any]
) -> Sampled:
    import logging

    import pymc as pm

    stored = [*formulation.judged, *formulation.hidden]
    settings.setdefault("progressbar", _is_watched())
    settings.setdefault("cores", 1)  # a worker process would compile all over again
    start = formulation.start()
    begin = time.perf_counter()
    logger = logging.getLogger("pymc")
    level = logger.level
    logger.setLevel(
        logging.ERROR
    )  # what it says of convergence is said by `diagnostics`, of the judged variables
    try:
        with formulation.model(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = pm.sample(
                draws=draws,
                tune=tune,
                chains=chains,
                random_seed=seed,
                nuts_sampler="pymc",
                var_names=stored,
                initvals=None if start is None else dict(start),
                compute_convergence_checks=False,
                **settings,
            )
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"PyMC refuses a setting among {', '.join(f'{k}={v!r}' for k, v in settings.items())}: {error}"
        ) from error
    finally:
        logger.setLevel(level)
    statistics = {name: tree["sample_stats"][name].values for name in _STATISTICS.values()}
    values = {name: tree["posterior"][name].values for name in stored}
    shape = statistics["lp"].shape
    return Sampled(
        draws=values,
        statistics=statistics,
        is_interrupted=shape != (chains, draws),
        stats={
            "sampler": f"PyMC {pm.__version__}",
            "compiled": True,
            "sampling_seconds": time.perf_counter() - begin,
        },
    )


def _refuse_unknown_of_pymc(settings: Mapping[str, Any]) -> None:
    if not settings:
        return
    import pymc as pm
    from pymc.step_methods.hmc.base_hmc import BaseHMC

    known = {
        name
        for function in (pm.sample, pm.NUTS.__init__, BaseHMC.__init__)
        for name in inspect.signature(function).parameters
    } - {"self", "kwargs", "vars", *_OWN}
    for name in settings:
        if name not in known:
            raise ArgumentError(f"PyMC's sampler has no setting `{name}`; it has {', '.join(sorted(known))}.")


def _is_watched() -> bool:
    """Whether somebody could see a progress bar: at a terminal, or in a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules
