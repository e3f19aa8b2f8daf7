"""NUTS by nutpie, of a compiled density: nothing is compiled for a network.

Only positions are stored; what follows from them is computed afterwards. Chains run in nutpie's own threads, which
call the density as a C function, without Python.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numba import cfunc, types

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.posterior.effort import WORK
from bayesprivmrf.inference.posterior.formulation import RelaxedFormulation
from bayesprivmrf.inference.posterior.nuts.clock import Clock
from bayesprivmrf.inference.posterior.nuts.nutpie_run import Chains, NutpieRun, gradients_of, steps_made
from bayesprivmrf.inference.posterior.nuts.step_progress import step_progress
from bayesprivmrf.inference.posterior.relaxed.density import Density
from bayesprivmrf.inference.posterior.results.diagnostics import SMALLEST_BFMI
from bayesprivmrf.inference.posterior.sampled import Sampled


def sample_with_nutpie(
    formulation: RelaxedFormulation,
    *,
    draws: int,
    tune: int,
    chains: int,
    seed: int,
    settings: dict[str, Any],
    lengths: Sequence[int],
    judge: Callable[[Sampled], Sampled],
    may_stop: Callable[[Sampled], bool],
    clock: Clock,
    most: float = math.inf,
) -> Sampled | None:
    """Draw with nutpie until the draws may stop; the other arguments are those of `draw_posterior`.

    The chains are one sampling: they are tuned once, and wait where they are while their draws are judged. So what is
    drawn depends on the seed and on the length alone.

    Parameters
    ----------
    lengths
        Steps after tuning at which the chains are looked at, in order. From each length `draws` are kept, evenly
        spaced.
    judge, may_stop
        Add to draws how they have mixed; and tell whether that is enough.
    clock
        When its limit has passed, the draws of the last length that was completed are returned.
    most
        Operations that the first length may take; infinite where it must be completed, whatever the time.

    Returns
    -------
    Sampled or None
        None where the first length took more operations than `most`, or the time came before its end.

    Raises
    ------
    ArgumentError
        nutpie refuses a setting, or `tune` is 0.
    """
    if tune < 1:
        raise ArgumentError(
            "`tune` must be 1 or more for nutpie, got 0: its step has to be found; 500 is usual."
        )
    compiling = Clock()
    model = _nutpie_model(formulation.density)
    compile_seconds = compiling.seconds
    is_shown = settings.pop("progress_bar", None)
    settings.setdefault("cores", chains)
    if settings["cores"] < chains:  # chains follow each other, and the first would not wait for the last
        lengths = lengths[:1]
    sampling, found, done, each = Clock(), None, 0, formulation.operations_a_gradient

    def read(drawn: Chains, steps: int | None = None, *, is_stopped: bool = False) -> Sampled:
        seconds = {"compile_seconds": compile_seconds, "sampling_seconds": sampling.seconds}
        sampled = _sampled(formulation, drawn, draws, steps, is_stopped=is_stopped, stats=seconds)
        work = each * gradients_of(drawn, tune + (steps or lengths[-1]))
        return judge(replace(sampled, work=work))

    with step_progress(tune + lengths[0], is_shown=is_shown) as bar:
        run = NutpieRun(model, settings, draws=lengths[-1], tune=tune, chains=chains, seed=seed)
        try:
            for length in lengths:
                if found is not None:
                    # the draws depend on the seed and the work, never on the time
                    if found.work * (tune + length) > WORK * (tune + done):
                        break
                    if clock.is_over:
                        return replace(found, is_late=True)
                    bar.aim(tune + length, f"going on: {reason_to_go_on(found, chains)}")
                is_first, done = found is None, length
                limits = {
                    "most": most / each if is_first else math.inf,
                    "must_end": is_first and math.isinf(most),
                }
                if not run.goes_to(tune + length, clock, bar, **limits):
                    return None if found is None else replace(found, is_late=True)
                found = read(run.look(), length)
                if is_first and found.work > most:
                    return None
                if may_stop(found):
                    break
            return found
        except KeyboardInterrupt:
            return read(run.end(), is_stopped=True)
        finally:
            run.end()


def _sampled(
    formulation: RelaxedFormulation,
    chains: Chains,
    draws: int,
    steps: int | None,
    *,
    is_stopped: bool,
    stats: Mapping[str, Any],
) -> Sampled:
    """So many draws, evenly spaced among the steps after tuning."""
    import nutpie

    density = formulation.density
    positions, statistics, is_short = steps_made(chains, draws, steps, density.size)
    made = positions.shape[1]
    if made > draws:  # what follows from a position takes ten times its room
        kept = np.arange(1, draws + 1) * made // draws - 1
        positions = positions[:, kept]
        statistics = {name: told[:, kept] for name, told in statistics.items()}
    return Sampled(
        draws=density.expand(positions, (*formulation.judged, *formulation.hidden)),
        statistics=statistics,
        is_interrupted=is_short or is_stopped,
        stats={
            "sampler": f"nutpie {nutpie.__version__}",
            **stats,
            "steps_between_draws": max(made / draws, 1.0),
        },
    )


def reason_to_go_on(sampled: Sampled, chains: int) -> str:
    """Why a sampling goes on, in some words."""
    mixing = sampled.mixing
    if mixing is None or math.isnan(mixing.r_hat):
        return "the chains have not mixed"
    draws = min(mixing.bulk, mixing.tail) / chains
    effective = "" if math.isnan(draws) else f", {draws:.0f} effective draws a chain"
    energy = f", E-BFMI {mixing.bfmi:.2f}" if mixing.bfmi < SMALLEST_BFMI else ""
    return f"R-hat {mixing.r_hat:.3f}{effective}{energy}"


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
                f"nutpie's sampler has no setting `{name}`; it has `target_accept`, `maxdepth`, `cores`, "
                "`adaptation` and others: see nutpie.sample."
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
