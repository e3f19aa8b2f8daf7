"""NUTS by nutpie, whose compiled models are kept for the process.

nutpie compiles a model's density once and takes other data into it (`with_data`), so that a second fit of the
same structure compiles nothing. Chains run in its own threads.
"""

from __future__ import annotations

import inspect
import time
import warnings
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from threading import Lock
from typing import Any

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.posterior.formulation import Formulation
from bayesprivmrf.inference.posterior.sampled import Sampled, is_watched

__all__ = ["refuse_unknown_of_nutpie", "sample_with_nutpie"]

_KEPT_MODELS = 16

_NAMES = {
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

_compiled: OrderedDict[Hashable, Any] = OrderedDict()
_lock = Lock()


def sample_with_nutpie(
    formulation: Formulation, *, draws: int, tune: int, chains: int, seed: int, settings: dict[str, Any]
) -> Sampled:
    """Draw with nutpie; the arguments are those of `draw_posterior`."""
    import nutpie

    begin = time.perf_counter()
    compiled, is_fresh = _compiled_model(formulation)
    compile_seconds = time.perf_counter() - begin
    settings.setdefault("progress_bar", is_watched())
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


def refuse_unknown_of_nutpie(settings: Mapping[str, Any]) -> None:
    """Raise at a setting that nutpie does not have, before anything is compiled for it."""
    import nutpie

    arguments = set(inspect.signature(nutpie.sample).parameters)
    kinds = getattr(getattr(nutpie, "_lib", None), "PyNutsSettings", None)
    if kinds is None:  # another version: it refuses them itself, later
        return
    for name in settings.keys() - arguments:
        try:
            kinds.Diag(0).update({name: settings[name]})
        except AttributeError as error:
            raise ArgumentError(
                f"nutpie's sampler has no setting `{name}`; such as `target_accept`, `maxdepth`, `cores` and "
                "`adaptation` it has: see nutpie.sample."
            ) from error
        except (TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(f"nutpie refuses {name}={settings[name]!r}: {error}.") from error


def _compiled_model(formulation: Formulation) -> tuple[Any, bool]:
    """The compiled model with this formulation's data, and whether it had to be compiled."""
    import nutpie

    stored = (*formulation.judged, *formulation.hidden)
    key = (formulation.structure, stored)
    with _lock:
        kept: Any = _compiled.get(key)
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
        for theirs, ours in _NAMES.items()
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
