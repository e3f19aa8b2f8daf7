"""NUTS runs of a formulation with relaxed counts: settings, PyMC's sampler, and repeats with other tuning.

Relaxed counts are sampled by nutpie or by PyMC's NUTS. PyMC samples the model that `Posterior.pymc_model` returns, to
check nutpie: its derivative has kinks, which nutpie follows in a smoothed form.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bayesprivmrf.checks import one_of, probability, whole_number
from bayesprivmrf.compiled import is_watched
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.posterior.formulation import (
    MEMORY,
    STATISTICS,
    WORK,
    Clock,
    Run,
    Sampled,
    Sampler,
)
from bayesprivmrf.inference.posterior.relaxed_counts.engine import USUAL_ACCEPTANCE, RelaxedCounts
from bayesprivmrf.inference.posterior.relaxed_counts.nutpie import Stopping, sample_with_nutpie
from bayesprivmrf.inference.posterior.results.diagnostics import (
    LARGEST_SATURATED,
    LONGEST,
    SMALLEST_ESS,
    diverges,
    is_mixed,
    mixing_of,
)

# settings of ``pymc.sample`` and ``pymc.NUTS`` that `fit` does not set itself
_SETTINGS = (
    "target_accept", "max_treedepth", "early_max_treedepth", "step_scale", "adapt_step_size", "gamma", "k", "t0",
    "Emax", "init", "n_init", "jitter_max_retries", "cores", "blas_cores", "mp_ctx", "callback", "progressbar",
    "progressbar_theme", "compile_kwargs", "backend",
)  # fmt: skip
# settings of the samplers that `fit` sets itself
_OWN = (
    "draws", "tune", "chains", "seed", "random_seed", "model", "blocking", "return_raw_trace", "nuts_sampler",
    "progress_callback", "progress_rate",
)  # fmt: skip


# largest work of the first length of a repeated run, as a multiple of the work so far
_TIMES_AT_MOST = 8
# work that a run of smaller steps is expected to take, as a multiple of the work so far
_TIMES_EXPECTED = 4
# work that longer tuning and the first length after it are expected to take, as a multiple of the work so far: 1,000
# and 1,000 steps after 200 and 1,000 by default
_TIMES_TUNED = 2
# effective draws after the first length, as a share of those wanted, below which chains are tuned for longer. The
# second run and its tuning cost two lengths; with 1.5 to 2 times the effective draws they are repaid in 4 to 6
_SLOW = 1 / 5
# multiples of the requested length at which chains are judged
_TIMES = (1, 2, 3, 4, 6, 8, 12, LONGEST)
# acceptances of repeated runs: the usual one of NUTS, and those that Stan and PyMC advise where trajectories diverge
_HIGHER = (USUAL_ACCEPTANCE, 0.9, 0.99)
# largest number of runs. With many kinks of a Laplace likelihood no step is small enough for an acceptance far above
# the usual one, and trees reach their maximum depth
_MOST_RUNS = 3
# bytes of a number that is stored
_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """Settings of one run: the acceptance for which steps are tuned, and the number of tuning draws."""

    acceptance: float
    tune: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempts:
    """Rule by which sampling is repeated with other settings.

    Parameters
    ----------
    ladder
        Acceptances of repeated runs, ascending.
    run
        Size of a run.
    """

    ladder: Sequence[float]
    run: Run

    @property
    def first(self) -> _Attempt:
        """The first attempt."""
        return _Attempt(acceptance=self.ladder[0], tune=self.run.tune)

    def following(self, made: _Attempt, found: Sampled, spent: float) -> _Attempt | None:
        """Return the attempt after one that found these draws; None if they are kept.

        Chains that are far from mixing after the first length are tuned for longer, unless that is expected to take
        more than `WORK` in all; `spent` is the work so far. Chains of which too many trajectories diverge get smaller
        steps, on the same condition. A run that does not end would leave the first length, which is not continued.
        """
        higher = [acceptance for acceptance in self.ladder if acceptance > made.acceptance]
        if higher and diverges(found) and _is_affordable(spent, _TIMES_EXPECTED):
            return replace(made, acceptance=higher[0])
        is_affordable = made.tune < self.run.longer_tune and _is_affordable(spent, _TIMES_TUNED)
        if is_affordable and _mixes_slowly(found, self.run.chains):
            return replace(made, tune=self.run.longer_tune)
        return None


def _is_affordable(spent: float, times: float) -> bool:
    """Return True if another run, of some times the work so far, is expected to end within `WORK`."""
    return spent + times * spent <= WORK


def _mixes_slowly(sampled: Sampled, chains: int) -> bool:
    """Return True if chains are far from mixing after their first length; few draws are not judged."""
    mixing = sampled.mixing
    draws = sampled.statistics["lp"].shape[1]
    if mixing is None or draws < SMALLEST_ESS or sampled.stats["steps_between_draws"] > 1:
        return False
    return min(mixing.bulk, mixing.tail) < _SLOW * SMALLEST_ESS * chains


def sample_with_nuts(
    formulation: RelaxedCounts,
    run: Run,
    sampler: Sampler,
    settings: Mapping[str, Any],
    clock: Clock,
) -> Sampled:
    """Sample with the formulation's acceptance, and again if chains are slow or too many trajectories diverge.

    A repeated run is tuned for longer or for a higher acceptance (`_Attempts.following`). Its draws are kept if its
    first length ends within eight times the work so far and within `WORK`, and if not too many of its trajectories
    reach the maximum tree depth, or no more than before it. Otherwise the draws before it are kept.
    """
    attempts = _Attempts(ladder=_acceptances(formulation, settings), run=run)
    lengths = _lengths(formulation, run)
    found: Sampled | None = None
    spent = 0.0
    attempt: _Attempt | None = attempts.first
    while attempt is not None:
        own = {**settings, "target_accept": attempt.acceptance}
        size = replace(run, tune=attempt.tune)
        stopping = Stopping(
            lengths=lengths,
            judge=partial(_judged, formulation),
            may_stop=partial(_may_stop, attempts=attempts, made=attempt, spent=spent),
            clock=clock,
            work=WORK - spent,
            most=math.inf if found is None else min(_TIMES_AT_MOST * spent, WORK - spent),
        )
        try:
            if sampler == "pymc":
                # it stores all latent numbers at each position, and compiles in each call
                new = _judged(formulation, sample_with_pymc(formulation, size, own))
            else:
                new = sample_with_nutpie(formulation, size, settings=own, stopping=stopping)
        except KeyboardInterrupt:
            if found is None:
                raise
            return replace(found, is_interrupted=True)
        if found is not None and not _is_better(new, found):
            return replace(
                found,
                is_interrupted=new is not None and new.is_interrupted,
                is_late=new is None and clock.is_over,
            )
        assert new is not None  # the first length of the first run is always completed
        facts = {
            "sampling_seconds": clock.seconds,
            "target_accept": attempt.acceptance,
            "tune": attempt.tune,
        }
        found = replace(new, stats={**new.stats, **facts})
        spent = spent + new.work
        if found.is_interrupted:
            return found
        attempt = attempts.following(attempt, found, spent)
        if attempt is not None and clock.is_over:
            return replace(found, is_late=True)
    assert found is not None
    return found


def _acceptances(formulation: RelaxedCounts, settings: Mapping[str, Any]) -> list[float]:
    """Return the acceptances for which steps are tuned, one for each run: the given one alone, if there is one."""
    given = settings.get("target_accept")
    if given is not None:
        return [given]
    usual = formulation.acceptance
    return [usual, *(higher for higher in _HIGHER if higher > usual)][:_MOST_RUNS]


def _lengths(formulation: RelaxedCounts, run: Run) -> Sequence[int]:
    """Return the lengths at which chains are judged: one length for few draws, and as many as fit in memory."""
    most = MEMORY / (_BYTES * run.chains * run.draws * max(formulation.density.size, 1))
    times = [n for n in _TIMES if n == 1 or (n <= most and run.draws >= SMALLEST_ESS)]
    return [run.draws * n for n in times]


def _judged(formulation: RelaxedCounts, sampled: Sampled) -> Sampled:
    """Return draws with their mixing."""
    own = [sampled.draws[name] for name in formulation.judged]
    return replace(sampled, mixing=mixing_of(own, sampled.statistics["energy"]))


def _may_stop(sampled: Sampled, *, attempts: _Attempts, made: _Attempt, spent: float) -> bool:
    """Return True if a run may stop: it was interrupted, has mixed, or will be repeated, so that it need not mix."""
    mixing = sampled.mixing
    has_mixed = mixing is not None and is_mixed(mixing, attempts.run.chains)
    if sampled.is_interrupted or has_mixed:
        return True
    return attempts.following(made, sampled, spent + sampled.work) is not None


def _is_better(new: Sampled | None, found: Sampled) -> bool:
    """Return True if a repeated run ended, and too many trajectories reach the maximum tree depth only as before."""
    # an interrupted run can have no trajectory whose share to take
    if new is None or new.is_interrupted:
        return False
    return _saturated(new) <= max(LARGEST_SATURATED, _saturated(found))


def _saturated(sampled: Sampled) -> float:
    """Return the share of trajectories that reached the maximum tree depth."""
    return float(np.mean(sampled.statistics["reached_max_treedepth"]))


def sample_with_pymc(formulation: RelaxedCounts, run: Run, settings: dict[str, Any]) -> Sampled:
    """Draw with PyMC's own sampler."""
    import pymc as pm

    stored = [*formulation.judged, *formulation.hidden]
    settings.setdefault("progressbar", is_watched())
    settings.setdefault("cores", 1)  # each worker process would compile everything again
    clock = Clock()
    logger = logging.getLogger("pymc")
    level = logger.level
    # `diagnostics` reports the convergence of the judged variables
    logger.setLevel(logging.ERROR)
    sample: Any = pm.sample  # its overloads do not include settings that are passed on
    try:
        with formulation.model(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = sample(
                draws=run.draws,
                tune=run.tune,
                chains=run.chains,
                random_seed=run.seed,
                nuts_sampler="pymc",
                var_names=stored,
                compute_convergence_checks=False,
                **settings,
            )
    except (TypeError, ValueError) as error:
        given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        raise ArgumentError(f"PyMC refuses a setting among {given}: {error}") from error
    finally:
        logger.setLevel(level)
    statistics = {name: tree["sample_stats"][name].values for name in STATISTICS}
    return Sampled(
        draws={name: tree["posterior"][name].values for name in stored},
        statistics=statistics,
        is_interrupted=statistics["lp"].shape != (run.chains, run.draws),
        stats={"sampler": f"PyMC {pm.__version__}", "sampling_seconds": clock.seconds},
        work=formulation.operations_a_gradient * float(np.sum(statistics["n_steps"])),
    )


def check_settings(
    sampler: str, draws: int, tune: int | None, chains: int, settings: Mapping[str, Any]
) -> None:
    """Raise an error for a setting that the sampler does not support; some of them would make it hang."""
    one_of("sampler", sampler, ("nutpie", "pymc"))
    numbers = {"draws": (draws, 1), "chains": (chains, 1)}
    if tune is not None:
        numbers["tune"] = (tune, 0)
    numbers |= {
        name: (settings[name], 1)
        for name in ("cores", "maxdepth", "max_treedepth")
        if name in settings
    }
    for name, (value, least) in numbers.items():
        whole_number(name, value, least)
    acceptance = settings.get("target_accept", USUAL_ACCEPTANCE)
    probability("target_accept", acceptance, zero=False, remedy=f"{USUAL_ACCEPTANCE} is usual")
    for name in settings:
        if name in _OWN:
            if "seed" in name:
                remedy = "`rng` seeds the sampler"
            else:
                remedy = "it is set by `fit`"
            raise ArgumentError(f"`{name}` is not a setting of the sampler here: {remedy}.")
        if sampler == "pymc" and name not in _SETTINGS:  # PyMC would silently ignore some of them
            raise ArgumentError(
                f"PyMC's sampler has no setting `{name}`; it has {', '.join(_SETTINGS)}."
            )
