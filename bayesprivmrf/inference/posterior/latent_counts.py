"""Estimator of the full posterior of a release, with its true counts as latent variables."""

from __future__ import annotations

import ctypes
import json
import math
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any, ClassVar, get_args

import numpy as np

from bayesprivmrf.checks import (
    NamedSettings,
    finite_pair,
    generator,
    on_objects,
    one_of,
    positive_finite,
    require,
    truth,
)
from bayesprivmrf.errors import ArgumentError, ConsistencyWarning, warn_caller
from bayesprivmrf.inference.criticism.verdict import totals
from bayesprivmrf.inference.evidence import WIDEST_RANGE, Evidence, Population
from bayesprivmrf.inference.given_model import GivenModel
from bayesprivmrf.inference.given_releases import gather, given_specification
from bayesprivmrf.inference.interval_frame import Status
from bayesprivmrf.inference.optimize import one_blas_thread
from bayesprivmrf.inference.posterior.alarms import Alarms, raise_alarms
from bayesprivmrf.inference.posterior.choice import FEW_RECORDS, Choice, Engine
from bayesprivmrf.inference.posterior.formulation import (
    Clock,
    Finished,
    Run,
    Sampled,
    Sampler,
    Source,
)
from bayesprivmrf.inference.posterior.nuts_run import check_settings
from bayesprivmrf.inference.posterior.relaxed_counts.engine import RelaxedCounts
from bayesprivmrf.inference.posterior.results.diagnostics import Diagnosis, diagnose, warn_of
from bayesprivmrf.inference.posterior.results.draws import Draws
from bayesprivmrf.inference.posterior.results.posterior import Posterior
from bayesprivmrf.inference.posterior.results.tree import TreeDraws, build_tree
from bayesprivmrf.inference.posterior.sampling import draw_posterior, prior_as_sampled
from bayesprivmrf.inference.posterior.settings import FormulationName, PriorSettings
from bayesprivmrf.noise.base import CONTRADICTION
from bayesprivmrf.release import NoisyStatistics

# Tuning draws of nutpie: its step and its mass matrix settle within 150, on trees, cycles, grids and the survey at
# privacy losses from 0.1 to 10, and 500 give no more effective draws
NUTPIE_TUNING = 200
# Tuning draws of a second run of nutpie, if chains mix slowly after the first: with nearly empty cells the mass
# matrix settles later. On the populations 19 and 69 of benchmarks/marks.py, seed 20441201, 1.2 to 2.4 times as many
# effective draws came from the same work
LONGER_TUNING = 1000
# Tuning draws of PyMC's sampler, and of chains of whole records, which start at one table and have to leave it
USUAL_TUNING = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentCounts(NamedSettings):
    r"""Full posterior of a Markov random field given noisy tables, with the true tables as latent variables.

    The posterior is

    .. math:: p(θ, n \mid y) ∝ p(θ)\, p(n \mid θ)\, \prod_i p(y_i \mid n_i),

    where the last factor is the distribution of the mechanism's noise. Credible intervals account for sampling
    noise, for the mechanism's noise and, if the number of records is private, for its uncertainty.

    Parameters
    ----------
    formulation
        How the posterior is written and sampled. ``"log-linear"`` is for any graph: normal zero-sum effects with
        learned scales, and relaxed counts. ``"hyper-dirichlet"`` is for decomposable models: Dirichlet rows along a
        junction forest, with the probabilities integrated out, and relaxed counts. ``"exact"`` moves whole records
        and relaxes nothing; it has the prior of ``"auto"``. Only ``"exact"`` supports chains with shared
        transitions, and counts that are exact or known within bounds. ``"auto"`` has normal effects. In decomposable
        models without `levels` or scores it has Dirichlet rows if the effects are more than 400, if counts are
        exact or known within bounds, or if the released tables say that most people of a panel stay in their state.
        It relaxes the counts unless this is impossible or a poor approximation, or whole records mix faster. If the
        posterior contradicts this prior and the model supports the other one, it is sampled with the other one, and
        ``stats["replaced"]`` names the first formulation.
    concentration
        Prior count α > 0 per cell of the Dirichlet rows; 1 is uniform on the simplex of each row. A number asks for
        rows. With None (default) the prior counts of rows are learned for each table.
    scale
        Prior standard deviation of the log-linear effects, nats. A number asks for effects. With None (default) a
        scale is learned for each effect.
    total_range
        Lower and upper end of the log-uniform prior of a private number of records, 1 or more. The range must contain
        the release's own estimate of that number, up to its error.

    Raises
    ------
    ArgumentError
        A setting is outside its range.

    References
    ----------
    Dawid and Lauritzen (1993). Hyper Markov laws in the statistical analysis of decomposable graphical models.
    Annals of Statistics 21, 1272-1317.
    Bernstein and Sheldon (2018). Differentially private Bayesian inference for exponential families. NeurIPS.

    Examples
    --------
    >>> import bayesprivmrf as bpm
    >>> from bayesprivmrf.noise import DiscreteLaplace
    >>> network = bpm.declare(states={"smokes": ["no", "yes"]}, cliques=[("smokes",)])
    >>> noise = DiscreteLaplace(2.0)
    >>> release = bpm.NoisyStatistics.from_tables(network, {"smokes": [61, 38]}, noise=noise)
    >>> posterior = bpm.LatentCounts().fit(release, rng=1, draws=200, progress_bar=False)
    >>> list(posterior.interval("smokes").columns)
    ['estimate', 'lower', 'upper', 'status', 'note']
    """

    formulation: FormulationName = "auto"
    concentration: float | None = None
    scale: float | None = None
    total_range: tuple[float, float] = WIDEST_RANGE

    method: ClassVar[str] = "posterior"
    has_intervals: ClassVar[bool] = True

    def __post_init__(self) -> None:
        one_of("formulation", self.formulation, get_args(FormulationName.__value__))
        nothing = "a prior without variance leaves nothing to infer"
        if self.concentration is not None:
            positive_finite("concentration", self.concentration, nothing)
        if self.scale is not None:
            positive_finite("scale", self.scale, nothing)
        object.__setattr__(self, "total_range", finite_pair("total_range", self.total_range))
        must = "be two numbers of records, 1 <= lower < upper"
        require(self.total_range[0] >= 1, "total_range", must, self.total_range)

    @on_objects
    @one_blas_thread()
    def fit(
        self,
        releases: NoisyStatistics | Sequence[NoisyStatistics],
        *,
        population: Population = "one",
        model: GivenModel | None = None,
        rng: int | np.random.Generator | None = None,
        prior: bool = False,
        sampler: Sampler = "nutpie",
        draws: int = 1000,
        tune: int | None = None,
        chains: int = 4,
        time_limit: float | None = None,
        **settings: Any,
    ) -> Posterior:
        """Sample the posterior of one release, or of several releases of one population or of several waves.

        Parameters
        ----------
        releases
            One release with noise, or several.
        population
            ``"one"``: all releases are about the same records. ``"waves"``: each release is a wave with different
            people, and all waves share the model. The result then has the variable ``"wave"``, with the states 1,
            2, ..., and ``interval([..., "wave"], of="records")`` counts the people of each wave.
        model
            Model to fit: a list of cliques, a pgmpy network, or a `ModelSpecification`. Its cliques may differ from
            the measured tables (`bayesprivmrf.inference.given_model`). A model that omits interactions of a measured
            table has the log-linear prior and whole records. None fits the model that the releases declare.
        rng
            Seed or generator. Equal seeds give equal posteriors on every machine, unless `time_limit` stops one of
            them. With None a seed is drawn. ``stats["seed"]`` is the seed that reproduces this posterior, or
            ``"generator"`` if a generator was given.
        prior
            Whether to draw from the prior too, for the groups `prior` and `prior_predictive` of the tree.
        sampler
            Sampler of relaxed counts: ``"nutpie"``, or ``"pymc"`` for PyMC's own NUTS on `Posterior.pymc_model`.
        draws
            Number of draws to keep from each chain.
        tune
            Number of tuning draws of each chain, which are discarded. By default 500 for PyMC and for whole records,
            and 200 for nutpie, which repeats the run with 1,000 if the chains are far from mixing.
        chains
            Number of chains.
        time_limit
            Seconds after which sampling is neither continued nor repeated; None for no limit. Chains that have not
            mixed are continued, to at most 16 times their length and a fixed number of operations, about two minutes
            on two cores. From each length `draws` are kept, evenly spaced. The first length is always completed.
            PyMC, and nutpie with fewer `cores` than `chains`, run only the first length. If the limit stops chains
            before they have mixed, the status is ``iteration_limit``.
        **settings
            Further settings of NUTS: `target_accept`, `maxdepth` (nutpie) or `max_treedepth` (PyMC), `cores`,
            `progress_bar` and others. They never change the model. The exact formulation does not use NUTS and
            accepts only `cores` and `progress_bar`.

        Returns
        -------
        Posterior
            The draws, with intervals, summaries, checks and diagnostics.

        Raises
        ------
        ArgumentError
            An argument is not a release, no measurement has noise, the sampler refuses a setting, or the number of
            records is private and the release's own estimate of it is outside `total_range`.
        ModelError
            The formulation does not support the model.
        ModelTooLargeError
            The draws or the model would not fit in memory.

        Warns
        -----
        ConsistencyWarning
            The release contradicts itself or the model. The fit is ``not_trusted``.
        SamplingWarning
            The chains have not mixed, diverged, or were stopped early; or the posterior contradicts the release.
            An interrupted run keeps the draws made so far.

        Notes
        -----
        If more than 0.2 % of the NUTS trajectories diverged, and the work allows it, everything is sampled again with
        smaller steps.
        """
        clock = Clock()
        check_settings(sampler, draws, tune, chains, settings)
        truth("prior", prior)
        limit = math.inf
        if time_limit is not None:
            positive_finite("time_limit", time_limit)
            limit = float(time_limit)
        evidence = self._gathered(releases, population, model)
        is_plain = sampler == "nutpie" and not settings.keys() - {"cores", "progress_bar"}
        choice = self._choice(evidence, chains * draws, chains=chains, is_plain=is_plain)
        engine = choice.formulation()
        longer_tune = 0
        if tune is None:
            tune = _tuning(sampler, engine)
            longer_tune = LONGER_TUNING if tune == NUTPIE_TUNING else 0
        if rng is None:
            rng = secrets.randbits(32)
        seeds = generator(rng)
        seed = int(seeds.integers(2**31 - 1))
        run = Run(draws=draws, tune=tune, chains=chains, seed=seed, longer_tune=longer_tune)
        afterwards, replicating, before = seeds.spawn(3)
        sampling = _Sampling(
            choice=choice, run=run, rng=afterwards, sampler=sampler, settings=settings
        )
        fit = sampling.posterior(engine, limit)
        left = limit - clock.seconds
        if fit.contradicts_prior and left > 0:
            fit = sampling.or_better(fit, left)
        engine = fit.engine
        diagnosis = fit.diagnosis
        stats = {
            **diagnosis.numbers,
            "problems": list(diagnosis.problems),
            **fit.alarms.numbers,
            **fit.sampled.stats,
            "seconds": clock.seconds,
            "seed": int(rng) if isinstance(rng, int | np.integer) else "generator",
            "formulation": engine.name,
            **({"replaced": fit.replaced} if fit.replaced else {}),
            **engine.settings,
            "half_counts_per_record": engine.sparsity,
            **totals(evidence),
            "total": float(fit.finished.total.mean()),
        }
        given = tuple(releases) if isinstance(releases, Sequence) else (releases,)
        source = Source(
            estimator=self,
            releases=given,
            population=population,
            model=given_specification(given, model),
        )
        before_data = engine.prior_draws(draws, before) if prior else None
        tree = build_tree(
            evidence,
            engine.settings,
            TreeDraws(finished=fit.finished, sampled=fit.sampled, prior=before_data),
            rng=replicating,
            attributes=_attributes(source, evidence, stats, diagnosis.status.value),
        )
        _warn(diagnosis, fit.alarms)
        _return_freed_memory()
        return Posterior(
            tree=tree,
            status=diagnosis.status,
            stats=stats,
            _formulation=engine,
            _draws=Draws(evidence=evidence, finished=fit.finished, status=diagnosis.status),
            _source=source,
        )

    def _gathered(
        self,
        releases: NoisyStatistics | Sequence[NoisyStatistics],
        population: Population,
        model: GivenModel | None,
    ) -> Evidence:
        """Return the evidence of the releases, or raise an error if no posterior of it can be sampled."""
        evidence = gather(releases, takes_bounds=True, population=population, model=model)
        if evidence.is_exact.any() and evidence.is_exact[evidence.possible].all():
            raise ArgumentError(
                "`fit` samples the true counts behind noisy ones, and no measurement in this release has noise",
                remedy="use NaiveMLE or CGM, or NoiseAwareMAP for a prior and intervals; if only the number of "
                "records is exact, pass it as `total=`",
                option="use `--method naive-mle`",
            )
        refuse_total_outside(evidence, self.total_range)
        return evidence

    def _choice(
        self, evidence: Evidence, draws: int, *, chains: int = 4, is_plain: bool = True
    ) -> Choice:
        """Return the facts that determine the engine, given the number of draws of all chains together."""
        asked = PriorSettings(
            formulation=self.formulation,
            concentration=self.concentration,
            scale=self.scale,
            total_range=self.total_range,
        )
        return Choice(asked=asked, evidence=evidence, draws=draws, chains=chains, is_plain=is_plain)

    def _formulation(self, evidence: Evidence, draws: int, *, chains: int = 4) -> Engine:
        return self._choice(evidence, draws, chains=chains).formulation()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """Sampled posterior of one engine, and what is wrong with it.

    `replaced` is the name of the formulation that was sampled first; empty if there was none.
    """

    engine: Engine
    sampled: Sampled
    finished: Finished
    alarms: Alarms
    diagnosis: Diagnosis
    replaced: str = ""

    @property
    def contradicts_prior(self) -> bool:
        """True if all draws were made and contradict their prior, and the release neither itself nor the model."""
        is_alone = bool(self.alarms.contradictions) and not self.alarms.of_release
        return is_alone and not self.sampled.is_interrupted

    def unless(self, second: _Fit) -> _Fit:
        """Return the fit with the other prior, with a caution, or this one if that is not trusted or not whole."""
        other = f"the {second.engine.name} formulation was sampled as well"
        if second.sampled.is_interrupted:
            return self._noting(f"{other}, but was stopped early")
        if second.diagnosis.status is Status.NOT_TRUSTED:
            return self._noting(f"{other} and is not trusted either")
        caution = (
            f"the prior of the {self.engine.name} formulation contradicted the release, so the {second.engine.name} "
            "formulation took its place; to prevent this, ask for a formulation by name"
        )
        return replace(second._noting(caution), replaced=self.engine.name)

    def _noting(self, problem: str) -> _Fit:
        """Return the fit with one more problem, and its status as it is."""
        problems = (*self.diagnosis.problems, problem)
        return replace(self, diagnosis=replace(self.diagnosis, problems=problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sampling:
    """Sampling of posteriors of one evidence, whatever the prior."""

    choice: Choice
    run: Run
    rng: np.random.Generator
    sampler: Sampler
    settings: Mapping[str, Any]

    def posterior(self, engine: Engine, time_limit: float) -> _Fit:
        """Return the judged posterior of an engine, from a sample of it."""
        evidence = self.choice.evidence
        if _is_of_nobody(evidence):
            sampled, finished = prior_as_sampled(engine, self.run, self.rng)
        else:
            sampled = draw_posterior(
                engine,
                self.run,
                sampler=self.sampler,
                settings=self.settings,
                time_limit=time_limit,
            )
            finished = engine.finish(sampled.draws, self.rng)
        alarms = raise_alarms(evidence, finished)
        other = partial(self.choice.other, engine)
        diagnosis = diagnose(sampled, engine.judged, evidence, self.sampler, finished, other)
        return _Fit(
            engine=engine,
            sampled=sampled,
            finished=finished,
            alarms=alarms,
            diagnosis=_with_alarms(diagnosis, alarms, engine),
        )

    def or_better(self, first: _Fit, time_limit: float) -> _Fit:
        """Return a fit with the other prior, or the first fit if there is none or the user interrupts its tuning."""
        instead = self.choice.instead()
        if instead is None:
            return first
        try:
            return first.unless(self.posterior(instead, time_limit))
        except KeyboardInterrupt:
            return first


def _tuning(sampler: Sampler, engine: Engine) -> int:
    """Return the default number of tuning draws."""
    if sampler == "nutpie" and isinstance(engine, RelaxedCounts):
        return NUTPIE_TUNING
    return USUAL_TUNING


def _is_of_nobody(evidence: Evidence) -> bool:
    """Return True if a release has no variables, or publicly no records, so that the posterior is the prior."""
    is_empty = evidence.total_standard_error == 0 and evidence.estimated_total == 0
    return is_empty or not evidence.specification.size


def _with_alarms(diagnosis: Diagnosis, alarms: Alarms, engine: Engine) -> Diagnosis:
    """Return the diagnosis of the sampling together with the alarms, and with the error of the relaxation."""
    found = alarms.added_to(diagnosis)
    if found.status is Status.CONVERGED and engine.sparsity > FEW_RECORDS:
        return replace(found, status=Status.APPROXIMATE)
    return found


def _warn(diagnosis: Diagnosis, alarms: Alarms) -> None:
    """Warn of contradictions of the release, then of all other problems."""
    for problem in alarms.of_release:
        warn_caller(f"{problem}. The fit is not trusted.", ConsistencyWarning)
    others = tuple(each for each in diagnosis.problems if each not in alarms.of_release)
    warn_of(replace(diagnosis, problems=others))


def _return_freed_memory() -> None:
    """Return memory that this fit and earlier ones freed to the system.

    glibc keeps the memory of the sampler's threads after they end, about ten MiB for each fit. Other systems return
    it by themselves.
    """
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # a C library without the function
            ctypes.CDLL(None).malloc_trim(0)


def refuse_total_outside(evidence: Evidence, total_range: tuple[float, float]) -> None:
    """Raise an error if the release's own estimate of a private number of records is far outside its prior."""
    estimate = evidence.estimated_total
    error = evidence.total_standard_error
    if not evidence.noise or error == 0:
        return
    lower, upper = total_range
    if not max(lower - estimate, estimate - upper) <= CONTRADICTION * error:
        if estimate >= 1:
            remedy = "widen it"
        else:
            remedy = "such a release has no records, whatever the range"
        raise ArgumentError(
            f"`total_range` must contain the number of records, got {lower:,.0f} to {upper:,.0f}: the release's own "
            f"estimate, {estimate:,.0f} ± {error:,.0f}, is more than {CONTRADICTION:.0f} standard errors outside; "
            f"{remedy}."
        )


def _attributes(
    source: Source, evidence: Evidence, stats: Mapping[str, Any], status: str
) -> Mapping[str, str | int]:
    """Return the attributes of the tree's root, which describe a file of it."""
    return {
        "created_by": f"bayesprivmrf {version('bayesprivmrf')}",
        "privacy": "\n".join(release.privacy_statement() for release in source.releases),
        "simulated": int(evidence.is_simulated),
        "status": status,
        "formulation": stats["formulation"],
        "stats": json.dumps(stats, default=str),
        "versions": json.dumps(
            {name: version(name) for name in ("pymc", "pytensor", "nutpie", "arviz", "numpy")}
        ),
    }
