"""NUTS sampling of a compiled density by nutpie.

Only positions are stored; everything else is computed from them afterwards. Chains run in nutpie's own threads, which
call the density as a C function, without Python. Nothing is compiled for a particular network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numba import cfunc, types

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.posterior.formulation import (
    STATISTICS,
    Clock,
    Run,
    Sampled,
    StepProgress,
)
from bayesprivmrf.inference.posterior.relaxed_counts.density import Density, compiled_visit
from bayesprivmrf.inference.posterior.relaxed_counts.engine import RelaxedCounts
from bayesprivmrf.model.tables import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stopping:
    """Rule by which a run of nutpie stops.

    Parameters
    ----------
    lengths
        Numbers of steps after tuning at which the draws are judged, ascending.
    judge, may_stop
        Functions that add the mixing to draws, and that return True if sampling may stop.
    clock
        When its limit has passed, the draws of the last completed length are returned.
    work
        Largest number of operations with which a run is continued beyond the first length.
    most
        Largest number of operations of the first length; infinite if that length is always completed.
    """

    lengths: Sequence[int]
    judge: Callable[[Sampled], Sampled]
    may_stop: Callable[[Sampled], bool]
    clock: Clock
    work: float = math.inf
    most: float = math.inf


def sample_with_nutpie(
    formulation: RelaxedCounts, run: Run, *, settings: dict[str, Any], stopping: Stopping
) -> Sampled | None:
    """Draw with nutpie until the chains may stop; from each length the draws of the run are kept, evenly spaced.

    The chains are tuned once, and wait while their draws are judged. The draws therefore depend only on the seed and
    on the length.

    Returns
    -------
    Sampled or None
        None if the first length took too many operations, or the time limit passed before its end.

    Raises
    ------
    ArgumentError
        nutpie refuses a setting, or ``run.tune`` is 0.
    """
    import nutpie

    draws = run.draws
    tune = run.tune
    remedy = "its step has to be tuned, and 200 is usual"
    require(tune >= 1, "tune", "be 1 or more for nutpie", tune, remedy)
    compiling = Clock()
    density = formulation.density
    each = formulation.operations_a_gradient
    model = _nutpie_model(density)
    stats = {"sampler": f"nutpie {nutpie.__version__}", "compile_seconds": compiling.seconds}
    is_shown = settings.pop("progress_bar", None)
    lengths = stopping.lengths
    if settings.setdefault("cores", run.chains) < run.chains:
        # chains that run one after the other cannot be judged together before the end
        lengths = lengths[:1]
    sampling = Clock()
    found = None
    done = 0

    def read(drawn: Trace, steps: int | None = None, *, is_stopped: bool = False) -> Sampled:
        """Return evenly spaced draws among the steps after tuning, and all quantities that follow from them."""
        positions, statistics, is_short = steps_made(drawn, draws, steps)
        made = positions.shape[1]
        if made > draws:  # the quantities that follow from a position take ten times its memory
            kept = np.arange(1, draws + 1) * made // draws - 1
            positions = positions[:, kept]
            statistics = {name: values[:, kept] for name, values in statistics.items()}
        own = drawn.statistics[STATISTICS["n_steps"]]
        gradients = drawn.tuning_gradients + int(own[:, :steps].sum())
        sampled = Sampled(
            draws=density.expand(positions, (*formulation.judged, *formulation.hidden)),
            statistics=statistics,
            is_interrupted=is_short or is_stopped,
            stats=stats
            | {"sampling_seconds": sampling.seconds, "steps_between_draws": max(made / draws, 1.0)},
            work=each * gradients,
        )
        return stopping.judge(sampled)

    with StepProgress(tune + lengths[0], is_shown=is_shown) as bar:
        chains = NutpieRun(
            model, settings, draws=lengths[-1], tune=tune, chains=run.chains, seed=run.seed
        )
        try:
            for length in lengths:
                if found is not None:
                    # whether to continue depends on the work, so that draws depend on the seed alone
                    if found.work * (tune + length) > stopping.work * (tune + done):
                        break
                    if stopping.clock.is_over:
                        return replace(found, is_late=True)
                    bar.aim(tune + length, "continuing: the chains have not mixed")
                is_first = found is None
                done = length
                limit = stopping.most / each if is_first else math.inf
                must_end = is_first and math.isinf(stopping.most)
                has_come = chains.goes_to(
                    tune + length, stopping.clock, bar, most=limit, must_end=must_end
                )
                if not has_come:
                    if found is None:
                        return None
                    return replace(found, is_late=True)
                found = read(chains.look(), length)
                if is_first and found.work > stopping.most:
                    return None
                if stopping.may_stop(found):
                    break
            return found
        except KeyboardInterrupt:
            return read(chains.end(), is_stopped=True)
        finally:
            chains.close()


def _nutpie_model(density: Density) -> Any:
    """Return the density in the form of a model that nutpie compiled; chains start around position 0."""
    from nutpie.compile_pymc import CompiledPyMCModel

    def start(seed: int) -> np.ndarray:
        return np.random.default_rng(seed).uniform(-1.0, 1.0, density.size)

    given: dict[str, Any] = {
        "compiled_logp_func": compiled_visit(density.visit),
        "compiled_expand_func": _copy(),
        "initial_point_func": start,
        "user_data": density.given,
        "n_expanded": density.size,
        "shape_info": (["position"], [slice(0, density.size)], [(density.size,)]),
        "_n_dim": density.size,
        "_shapes": {"position": (density.size,)},
        **{name: {} for name in ("_coords", "dims", "shared_data", "shared_var_keys")},
        **dict.fromkeys(("logp_func", "expand_func")),
    }
    return CompiledPyMCModel(**given)


@cache
def _copy() -> Any:
    """Return the C function that computes what nutpie stores: the unchanged position."""
    real = types.CPointer(types.double)

    @cfunc(types.int64(types.uint64, types.uint64, real, real, types.voidptr), cache=True)
    def copy(size, stored, position, out, given):
        for i in range(size):
            out[i] = position[i]
        return 0

    return copy


# milliseconds between two reports of nutpie, for the progress bar and for Ctrl-C
_RATE = 50


class NutpieRun:
    """Run of nutpie in its own threads that can be paused, read and continued.

    Parameters
    ----------
    model, settings
        The density, and settings of nutpie.
    **how
        Arguments of nutpie for the longest possible run: `draws`, `tune`, `chains` and `seed`.
    """

    def __init__(self, model: Any, settings: Mapping[str, Any], **how: int) -> None:
        import nutpie

        self._steps = 0
        self._until = 0
        self._gradients = [0] * how["chains"]
        self._trace: Trace | None = None
        self._size = model.n_dim
        try:
            self._handle = nutpie.sample(
                model,
                blocking=False,
                return_raw_trace=True,
                progress_bar=False,
                progress_callback=self._hear,
                progress_rate=_RATE,
                **how,
                **settings,
            )
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
            raise ArgumentError(
                f"nutpie refuses a setting among {given}: {error}; it has `target_accept`, `maxdepth`, `cores`, "
                "`adaptation` and others: see nutpie.sample."
            ) from error

    def _hear(self, progress: Sequence[Any]) -> None:
        """Record the progress of the chains; a thread of nutpie calls this."""
        self._steps = min(chain.finished_draws for chain in progress)
        # a chain may run ahead of the length by as much as the clock allows: those gradients do not count
        for place, chain in enumerate(progress):
            if chain.finished_draws <= self._until:
                self._gradients[place] = chain.total_num_steps

    def goes_to(
        self, steps: int, clock: Clock, bar: StepProgress, *, most: float, must_end: bool
    ) -> bool:
        """Continue until every chain has made a number of steps, including those of tuning.

        Return False if the time limit passes first, or if more than `most` gradients were computed. With `must_end`
        the time limit is ignored, and the progress bar says so.
        """
        self._until = steps
        if self._trace is None:
            self._handle.resume()
        while self._trace is None and self._steps < steps:
            if sum(self._gradients) > most:
                return False
            if clock.is_over:
                if not must_end:
                    return False
                bar.aim(steps, "beyond `time_limit`: the first length is always completed")
            with suppress(TimeoutError):
                self._trace = _taken(partial(self._handle.wait, timeout=_RATE / 1000), self._size)
            bar.reach(min(self._steps, steps))
        return True

    def look(self) -> Trace:
        """Pause the chains, and return the draws so far."""
        if self._trace is not None:
            return self._trace
        self._handle.pause()
        return _taken(self._handle.inspect, self._size)

    def end(self) -> Trace:
        """End the chains, and return the draws."""
        if self._trace is None:
            self._trace = _taken(self._handle.abort, self._size)
        return self._trace

    def close(self) -> None:
        """End the chains, and discard their draws."""
        if self._trace is None:
            self._handle.cancel()


class Trace(NamedTuple):
    """Steps of nutpie's chains.

    Parameters
    ----------
    positions
        Positions of the steps after tuning, shape (chains, steps, d); shorter chains are filled up with NaN.
    statistics
        Statistics of these steps by their names in nutpie, shape (chains, steps); shorter chains are filled up with
        NaN, 0 or False.
    tuning_gradients
        Number of gradients of all chains while they were tuned.
    """

    positions: FloatArray
    statistics: Mapping[str, np.ndarray]
    tuning_gradients: int


def _taken(take: Callable[[], Any], size: int) -> Trace:
    """Return the steps so far, at positions of so many numbers.

    Labeling all of nutpie's columns would take as long as judging the draws.
    """
    import pyarrow

    positions: list[np.ndarray] = []
    statistics: dict[str, list[np.ndarray]] = {name: [] for name in STATISTICS.values()}
    tuning_gradients = 0
    for drawn, stored in zip(*take().get_arrow_trace(), strict=True):
        tuned = int(stored.column("tuning").to_numpy().sum())
        numbers = pyarrow.array(drawn.column("position")).flatten().to_numpy()
        positions.append(numbers.reshape(drawn.num_rows, size)[tuned:])
        for name, own in statistics.items():
            own.append(stored.column(name).to_numpy()[tuned:])
        gradients = stored.column(STATISTICS["n_steps"]).to_numpy()
        tuning_gradients += int(gradients[:tuned].sum())
    return Trace(
        positions=_filled_up(positions),
        statistics={name: _filled_up(own) for name, own in statistics.items()},
        tuning_gradients=tuning_gradients,
    )


def _filled_up(chains: Sequence[np.ndarray]) -> np.ndarray:
    """Return chains of several lengths as one array, filled up with NaN, or with 0 or False."""
    longest = max(chains, key=len)
    fill = np.nan if longest.dtype.kind == "f" else 0
    together = np.full((len(chains), *longest.shape), fill, dtype=longest.dtype)
    for place, own in enumerate(chains):
        together[place, : len(own)] = own
    return together


def steps_made(
    trace: Trace, draws: int, length: int | None
) -> tuple[np.ndarray, dict[str, np.ndarray], bool]:
    """Return positions and statistics of `length` steps after tuning, or of those that all chains have made.

    A chain with less than half the steps of the longest one (or of `draws`) is left out, so that one slow chain does
    not cost the draws of the others. The last result is True if some chain was stopped before `draws` steps.
    """
    found = trace.statistics
    # shorter chains are filled up with NaN
    steps = np.isfinite(found[STATISTICS["lp"]]).sum(axis=1)
    longest = min(steps.max(initial=0), draws)
    is_short = bool((steps < draws).any())
    kept = (2 * steps >= longest) & (longest > 0)
    shortest = int(steps[kept].min(initial=steps.max(initial=0)))
    if length is None:
        many = shortest
    else:
        many = min(length, shortest)
    statistics = {ours: found[theirs][kept, :many] for ours, theirs in STATISTICS.items()}
    return trace.positions[kept, :many], statistics, is_short
