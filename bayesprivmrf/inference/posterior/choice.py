"""Choice of the posterior engine, the first one in order of preference that supports the release and the settings.

The model and the settings determine one prior: Dirichlet rows (decomposable models), normal effects, or rows that all
steps of a chain share. Each prior has one or two engines: whole records, relaxed counts, or both. Under Dirichlet
rows whole records are preferred where they mix about as fast. Under normal effects they serve what relaxed counts do
not support.

Whole records are sampled by their own engine, relaxed counts by nutpie or by PyMC's NUTS. PyMC samples the model that
`Posterior.pymc_model` returns, to check nutpie: its derivative has kinks, which nutpie follows in a smoothed form.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import one_of, probability, require_memory, whole_number
from bayesprivmrf.compiled import is_watched
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.formulation import (
    MEMORY,
    STATISTICS,
    WORK,
    Clock,
    Finished,
    Sampled,
    Sampler,
    require_posterior_memory,
)
from bayesprivmrf.inference.posterior.measured import MeasuredCells
from bayesprivmrf.inference.posterior.relaxed_counts.engine import RelaxedCounts
from bayesprivmrf.inference.posterior.relaxed_counts.hyper_dirichlet import (
    HyperDirichlet,
    is_decomposable,
)
from bayesprivmrf.inference.posterior.relaxed_counts.nutpie import sample_with_nutpie
from bayesprivmrf.inference.posterior.results.diagnostics import (
    LARGEST_SATURATED,
    LONGEST,
    SMALLEST_ESS,
    diverges,
    is_mixed,
    mixing_of,
)
from bayesprivmrf.inference.posterior.whole_records.chains import MOVES
from bayesprivmrf.inference.posterior.whole_records.engine import RecordEngine, Rows
from bayesprivmrf.inference.posterior.whole_records.table import TableEngine

if TYPE_CHECKING:
    from bayesprivmrf.inference.posterior.latent_counts import LatentCounts


type Formulation = RecordEngine | RelaxedCounts
"""Posterior of one evidence: a prior, latent numbers that a sampler moves, and the marginals that follow."""

# Largest N b² (C/2)³ with which whole records are preferred, for N records, C cliques, and noise of scale b >= 1. A
# visit of a record changes a count by one, and the noise of each clique may reject it. In the benchmark
# `engine_choice` the preferred engine takes at most 1.5 seconds more for 400 effective draws
_FEW = 500


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Facts that determine the engine.

    Parameters
    ----------
    asked
        Estimator with the settings.
    evidence
        Evidence of the releases.
    draws
        Number of draws of all chains together.
    chains
        Number of chains.
    is_plain
        Whether the caller gave no NUTS setting. The engine of whole records does not use NUTS and refuses its
        settings: a setting of the sampler never changes the model.
    """

    asked: LatentCounts
    evidence: Evidence
    draws: int
    chains: int = 4
    is_plain: bool = True

    def formulation(self) -> Formulation:
        """Return the requested formulation or, with ``"auto"``, the first suitable one.

        Raises
        ------
        ArgumentError, ModelError, ModelTooLargeError
            Every engine that was asked for refuses the model, the measurements or a setting, or the draws would not
            fit in memory.
        """
        evidence = self.evidence
        asked = self.asked.formulation
        # only the engine of whole records supports exact counts, bounds and tables
        if asked == "auto" and evidence.needs_whole_records:
            asked = "exact"
        of_prior, given = self._engines()
        engines = [engine for engine in of_prior if asked in ("auto", engine.name.lower())]
        reasons = [engine.refuses(evidence, self.asked) for engine in engines]
        if None not in reasons:
            raise reasons[-1]
        require_posterior_memory(evidence, self.draws, needs_marginals="scale" in given)
        engine = engines[reasons.index(None)]
        chosen = engine(**given)
        if engine is Rows and len(evidence.specification.scopes) == 1:
            table = TableEngine(**given)
            if table.bounds is None:
                chosen = chosen
            else:
                chosen = table
        if isinstance(chosen, RecordEngine):
            self._require_records(chosen)
        return chosen

    def other(self, chosen: Formulation) -> str | None:
        """Name a formulation to try if the chosen one does not mix; None if none would."""
        if isinstance(chosen, RecordEngine):
            return chosen.other
        try:
            exact = replace(
                self, asked=replace(self.asked, formulation="exact"), is_plain=True
            ).formulation()
        except (ArgumentError, ModelError):
            return None
        assert isinstance(exact, RecordEngine)
        if exact.bytes_a_record == 0 or exact.first_total <= MOVES:
            return "exact"
        return None

    def _require_records(self, chosen: RecordEngine) -> None:
        """Raise an error for settings of NUTS, or if the records of all chains would not fit in memory."""
        other = chosen.other and f"formulation={chosen.other!r}"
        if not self.is_plain:
            raise ArgumentError(
                "`fit` draws whole records for this release (formulation='exact'), which does not use NUTS; leave "
                "out `sampler` and all settings except `cores` and `progress_bar`"
                f"{f', or ask for {other}' if other else ''}."
            )
        needed = self.chains * chosen.first_total * chosen.bytes_a_record
        remedy = (
            f"use {other or 'NoiseAwareMAP'}, whose memory does not depend on the number of records"
        )
        what = f"{self.chains} chains of {chosen.first_total:,} whole records"
        require_memory(what, needed, remedy, MEMORY)

    def _engines(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the engines of the requested or default prior, in order of preference, and their arguments."""
        asked = self.asked
        evidence = self.evidence
        model = self.evidence.specification
        given: dict[str, Any] = {
            "evidence": evidence,
            # a total that is public, or that exact answers determine, has no standard error
            "total": evidence.estimated_total if evidence.total_standard_error == 0 else None,
            "total_range": asked.total_range,
        }
        if model.shares_transitions and asked.formulation in ("auto", "exact"):
            from bayesprivmrf.inference.posterior.whole_records.transitions import SharedTransitions

            return [SharedTransitions], given | {"concentration": asked.concentration}
        is_free = not (model.is_restricted or model.levels or model.ordinal)
        if asked.formulation == "hyper-dirichlet" or (
            asked.formulation != "log-linear" and is_free and is_decomposable(evidence)
        ):
            if _mixes(evidence):
                engines = [Rows, HyperDirichlet]
            else:
                engines = [HyperDirichlet, Rows]
            return engines, given | {"concentration": asked.concentration}
        # loading these compiles marginal inference, which Dirichlet rows do not need
        from bayesprivmrf.inference.posterior.relaxed_counts.log_linear import LogLinear
        from bayesprivmrf.inference.posterior.whole_records.effects import NormalEffects

        return [LogLinear, NormalEffects], given | {"scale": asked.scale}


def _mixes(evidence: Evidence) -> bool:
    """Return True if whole records with Dirichlet rows mix about as fast as relaxed counts."""
    cliques = len(evidence.specification.scopes)
    if cliques > 1:
        noise = float(evidence.noise_scale.max(initial=0.0))
        is_few = evidence.total * max(noise, 1.0) ** 2 * (cliques / 2) ** 3 <= _FEW
        # counts behind noise of scale 0.1 are nearly certain, so few records move
        is_few |= noise <= 0.1 and evidence.total <= 1e6
        # queries were not compared
        return is_few and evidence.queries is None
    # one table moves by steps of the size of the noise; parts of a sum whose cells were not measured need many
    measured = MeasuredCells.of(evidence)
    is_alone = np.bincount(measured.sums, minlength=1)[measured.sums] == 1
    is_known = np.isin(np.arange(measured.cells.size), measured.sources[is_alone])
    return evidence.total <= _FEW or bool(is_known.all())


# settings of ``pymc.sample`` and ``pymc.NUTS`` that `fit` does not set itself
_SETTINGS = (
    "target_accept", "max_treedepth", "early_max_treedepth", "step_scale", "adapt_step_size", "gamma", "k", "t0",
    "Emax", "init", "n_init", "jitter_max_retries", "cores", "blas_cores", "mp_ctx", "callback", "progressbar",
    "progressbar_theme", "compile_kwargs", "backend",
)  # fmt: skip


def sample_with_pymc(
    formulation: RelaxedCounts,
    *,
    draws: int,
    tune: int,
    chains: int,
    seed: int,
    settings: dict[str, Any],
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
    how = {
        "draws": draws,
        "tune": tune,
        "chains": chains,
        "random_seed": seed,
        "nuts_sampler": "pymc",
    }
    sample: Any = pm.sample  # its overloads do not include settings that are passed on
    try:
        with formulation.model(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = sample(**how, var_names=stored, compute_convergence_checks=False, **settings)
    except (TypeError, ValueError) as error:
        given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        raise ArgumentError(f"PyMC refuses a setting among {given}: {error}") from error
    finally:
        logger.setLevel(level)
    statistics = {name: tree["sample_stats"][name].values for name in STATISTICS}
    return Sampled(
        draws={name: tree["posterior"][name].values for name in stored},
        statistics=statistics,
        is_interrupted=statistics["lp"].shape != (chains, draws),
        stats={"sampler": f"PyMC {pm.__version__}", "sampling_seconds": clock.seconds},
        work=formulation.operations_a_gradient * float(np.sum(statistics["n_steps"])),
    )


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
        # whole records do not use NUTS
        own = {name: value for name, value in settings.items() if name in ("cores", "progress_bar")}
        sampled = formulation.sample(**how, time_limit=time_limit, **own)
    else:
        sampled = _with_steps_that_hold(formulation, sampler, how, settings, Clock(time_limit))
    if not next(iter(sampled.statistics.values())).size:
        raise KeyboardInterrupt(
            "sampling was interrupted while the chains were being tuned, so there are no draws"
        )
    return sampled


def _with_steps_that_hold(
    formulation: RelaxedCounts,
    sampler: Sampler,
    how: Mapping[str, Any],
    settings: Mapping[str, Any],
    clock: Clock,
) -> Sampled:
    """Sample with the formulation's acceptance, and again with a higher one while too many trajectories diverge.

    A second run starts if the work so far is at most a quarter of `WORK`, since it is expected to take four times the
    work of the first. Its draws are kept if it ends within eight times the work so far, and if not too many of its
    trajectories reach the maximum tree depth. Otherwise the first draws are kept.
    """
    # each length as a multiple of the number of draws; one length for few draws, and as many as fit in memory
    most = MEMORY / (8 * how["chains"] * how["draws"] * max(formulation.density.size, 1))
    times = [n for n in _TIMES if n == 1 or (n <= most and how["draws"] >= SMALLEST_ESS)]

    def judged(sampled: Sampled) -> Sampled:
        own = [sampled.draws[name] for name in formulation.judged]
        return replace(sampled, mixing=mixing_of(own, sampled.statistics["energy"]))

    usual = formulation.acceptance
    given = settings.get("target_accept")
    # with many kinks of a Laplace likelihood no step is small enough for an acceptance far above the usual one, and
    # trees reach their maximum depth
    ladder = [usual, *(higher for higher in (0.8, 0.9, 0.99) if higher > usual)][:3]
    found = None
    spent = 0.0
    for acceptance in ladder if given is None else [given]:
        last = given is not None or acceptance == ladder[-1]

        def may_stop(sampled: Sampled, *, last: bool = last, spent: float = spent) -> bool:
            mixing = sampled.mixing
            is_done = sampled.is_interrupted or (
                mixing is not None and is_mixed(mixing, how["chains"])
            )
            # a run that will be repeated need not mix
            return is_done or (
                not last and diverges(sampled) and 4 * (spent + sampled.work) <= WORK
            )

        own = {**settings, "target_accept": acceptance}
        try:
            if (
                sampler == "pymc"
            ):  # it stores all latent numbers at each position, and compiles in each call
                new = judged(sample_with_pymc(formulation, **how, settings=own))
            else:
                new = sample_with_nutpie(
                    formulation,
                    **how,
                    settings=own,
                    lengths=[how["draws"] * n for n in times],
                    judge=judged,
                    may_stop=may_stop,
                    clock=clock,
                    most=math.inf if found is None else min(_TIMES_AT_MOST * spent, WORK - spent),
                )
        except KeyboardInterrupt:
            if found is None:
                raise
            return replace(found, is_interrupted=True)
        # an interrupted run can have no trajectory whose share to take
        trees = 0.0
        if new is not None and not new.is_interrupted:
            trees = np.mean(new.statistics["reached_max_treedepth"])
        if found is not None and (new is None or new.is_interrupted or trees > LARGEST_SATURATED):
            return replace(found, is_interrupted=new is not None and new.is_interrupted)
        assert new is not None  # the first length of the first run is always completed
        facts = {"sampling_seconds": clock.seconds, "target_accept": acceptance}
        found = replace(new, stats={**new.stats, **facts})
        spent = spent + new.work
        if found.is_interrupted or clock.is_over or not diverges(found) or 4 * spent > WORK:
            break
    assert found is not None
    return found


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
    probability(
        "target_accept", settings.get("target_accept", 0.8), zero=False, remedy="0.8 is usual"
    )
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


def prior_as_sampled(
    formulation: Formulation, chains: int, draws: int, rng: np.random.Generator
) -> tuple[Sampled, Finished]:
    """Return draws of the prior in the form of a sampling, for a release whose posterior is the prior."""
    prior = formulation.prior_draws(chains * draws, rng)

    def shaped(values: Any) -> Any:
        if isinstance(values, Mapping):
            return {name: shaped(own) for name, own in values.items()}
        if values is None:
            return None
        return values.reshape(chains, draws, *values.shape[2:])

    finished = Finished(**{each.name: shaped(getattr(prior, each.name)) for each in fields(prior)})
    zeros = np.zeros((chains, draws))
    statistics: dict[str, np.ndarray] = dict.fromkeys(STATISTICS, zeros)
    statistics |= dict.fromkeys(("diverging", "reached_max_treedepth"), zeros > 0)
    return Sampled(
        draws={name: np.zeros((chains, draws, 0)) for name in formulation.judged},
        statistics=statistics,
        is_interrupted=False,
        stats={"sampler": "exact", "sampling_seconds": 0.0},
    ), finished
