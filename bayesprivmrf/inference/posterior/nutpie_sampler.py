"""NUTS by nutpie, of a compiled density: nothing is compiled for a network.

Only positions are stored; what follows from them is computed afterwards. Chains run in nutpie's own threads, which
call the density as a C function, without Python.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numba import cfunc, types

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.posterior.density import Density
from bayesprivmrf.inference.posterior.formulation import Formulation
from bayesprivmrf.inference.posterior.sampled import Sampled, is_watched

__all__ = ["refuse_unknown_of_nutpie", "sample_with_nutpie"]

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


def sample_with_nutpie(
    formulation: Formulation,
    *,
    draws: int,
    tune: int,
    chains: int,
    seed: int,
    settings: dict[str, Any],
    every: int = 1,
) -> Sampled:
    """Draw with nutpie and keep every so-manieth draw; the other arguments are those of `draw_posterior`."""
    import nutpie

    begin = time.perf_counter()
    density = formulation.density
    model = _nutpie_model(density)
    compile_seconds = time.perf_counter() - begin
    settings.setdefault("progress_bar", is_watched())
    begin = time.perf_counter()
    try:
        handle = nutpie.sample(
            model,
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
    positions, statistics, is_short = _read_arrow(trace, draws, density.size)
    if positions.size and every > 1:  # what follows from a position takes ten times its room
        kept = slice(every - 1, None, every)
        positions = positions[:, kept]
        statistics = {name: told[:, kept] for name, told in statistics.items()}
    return Sampled(
        draws=density.expand(positions, (*formulation.judged, *formulation.hidden)),
        statistics=statistics,
        is_interrupted=is_short,
        stats={
            "sampler": f"nutpie {nutpie.__version__}",
            "compile_seconds": compile_seconds,
            "sampling_seconds": time.perf_counter() - begin,
        },
    )


def refuse_unknown_of_nutpie(settings: Mapping[str, Any]) -> None:
    """Raise at a setting that nutpie does not have, before anything is made for it."""
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


def _nutpie_model(density: Density) -> Any:
    """The density for nutpie, as one that nutpie compiled itself; chains start around position zero."""
    from nutpie.compile_pymc import CompiledPyMCModel

    def start(seed: int) -> np.ndarray:
        return np.random.default_rng(seed).uniform(-1.0, 1.0, density.size)

    given: dict[str, Any] = {
        "compiled_logp_func": density.visit(),
        "compiled_expand_func": _copy(),
        "initial_point_func": start,
        "user_data": density.given,
        "n_expanded": density.size,
        "shape_info": (["position"], [slice(0, density.size)], [(density.size,)]),
        "_n_dim": density.size,
        "_shapes": {"position": (density.size,)},
        "_coords": {},
        "dims": {},
        "shared_data": {},
        "shared_var_keys": {},
        **dict.fromkeys(("logp_func", "expand_func")),
    }
    return CompiledPyMCModel(**given)


@cache
def _copy() -> Any:
    """The C function by which nutpie is told what to store: positions as they are."""
    real = types.CPointer(types.double)

    @cfunc(types.int64(types.uint64, types.uint64, real, real, types.voidptr), cache=True)
    def copy(size, stored, position, out, given):
        for i in range(size):
            out[i] = position[i]
        return 0

    return copy


def _read_arrow(trace: Any, draws: int, size: int) -> tuple[np.ndarray, dict[str, np.ndarray], bool]:
    """Positions and statistics after tuning, of the chains that got so far, cut to the shortest of them.

    A chain that was stopped before half of the longest one's draws is left out, so that one late chain does
    not cost the others theirs.
    """
    chains = list(zip(*trace.get_arrow_trace(), strict=True))
    warm = [int(np.sum(statistic.column("tuning").to_numpy())) for _, statistic in chains]
    lengths = [batch.num_rows - first for (batch, _), first in zip(chains, warm, strict=True)]
    longest = max(lengths, default=0)
    kept = [c for c, length in enumerate(lengths) if longest and 2 * length >= longest]
    length = min((lengths[c] for c in kept), default=0)
    positions = [_column(chains[c][0], "position", warm[c], length) for c in kept]
    statistics = {
        ours: np.array([_column(chains[c][1], theirs, warm[c], length) for c in kept])
        for theirs, ours in _NAMES.items()
    }
    is_short = length < draws or len(kept) < len(chains)
    return np.reshape(positions, (len(kept), length, size)), statistics, is_short


def _column(batch: Any, name: str, start: int, length: int) -> np.ndarray:
    """Rows of one column of a record batch, one after the other."""
    import pyarrow as pa

    array = pa.array(batch.column(name).slice(start, length))
    if hasattr(array, "flatten"):
        array = array.flatten()
    return array.to_numpy(zero_copy_only=False)
