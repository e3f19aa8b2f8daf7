r"""Types that the engines of the posterior, their samplers and their results share.

A sampler returns `Sampled`, and ``finish`` of the engine turns it into `Finished`. The module also has the source of
a posterior, a clock with a limit, the progress bar of the samplers, and the memory of a posterior.

Work is counted in operations, not seconds, so that chains are continued alike on every machine. An operation takes
about a nanosecond on a core of 2026.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np

from bayesprivmrf.checks import require, require_memory
from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.evidence import Evidence, Population
from bayesprivmrf.marginals import forecast
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.progress import is_drawn
from bayesprivmrf.release.base import Released

if TYPE_CHECKING:
    import pymc as pm


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Finished:
    r"""Posterior draws of the population and of the latent counts, flat over the model's cliques.

    Parameters
    ----------
    marginals
        μ, probabilities of the population, shape (chain, draw, cells): the cells of the model's cliques, one clique
        after the other, each in C order.
    counts
        Latent true counts n of the same cells, records, shape (chain, draw, cells). Relaxed counts need not be whole.
    effects
        Potentials in the orthonormal zero-sum coordinates of `Effects`, shape (chain, draw, d), nats.
    total
        Number of records N, shape (chain, draw); constant if it is public.
    scales
        Prior standard deviation of each effect, nats, shape (chain, draw, scales); None for a prior without scales.
    acceptance
        Acceptance probability of the steps that draw the population given the latent tables: their mean, or one value
        for each draw. None if the population is drawn exactly.
    unmoved
        Share of the draws in which none of those steps was accepted; None if it is unknown.
    log_prior
        Log density of each part of the population's prior given its learned parameters, nats, shape (chain, draw).
        There is one part for the rows of each clique, by their log ratios, ``rows[a,b]``, or one for each effect,
        ``effects[a,b]``.
    learned
        Learned parameters of the prior, by name, shape (chain, draw), standardized: under the prior they have mean 0
        and variance 1.
    prior_fit
        Standardized sum of the log prior densities of all parts, shape (chain, draw). Given the learned parameters it
        has mean 0 and variance 1 under the prior. It is below 0 if the population is more uneven than the prior
        expects.
    least
        Smallest possible value of each relaxed count, records, shape (cells,); None if counts are whole, or stand for
        the nearest whole number.
    """

    marginals: FloatArray
    counts: FloatArray
    effects: FloatArray
    total: FloatArray
    scales: FloatArray | None = None
    acceptance: FloatArray | float | None = None
    unmoved: FloatArray | float | None = None
    log_prior: Mapping[str, FloatArray] = field(default_factory=dict)
    learned: Mapping[str, FloatArray] = field(default_factory=dict)
    prior_fit: FloatArray | None = None
    least: FloatArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """Estimator, releases and model that a posterior was fitted with; a file of the posterior stores them.

    The estimator is a `LatentCounts`; only its settings are read here. The model is None if the releases declare it.
    """

    estimator: Any
    releases: tuple[Released, ...]
    population: Population
    model: ModelSpecification | None = None


class Formulation(Protocol):
    """Posterior of one evidence, as its results read it: an engine over whole records or relaxed counts."""

    name: ClassVar[str]

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the prior, by name."""
        ...

    @property
    def judged(self) -> tuple[str, ...]:
        """Variables on which convergence is judged."""
        ...

    def model(self) -> pm.Model:
        """Return the PyMC model."""
        ...

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the tables of N whole records."""
        ...


type Sampler = Literal["nutpie", "pymc"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Size and seed of a sampling run.

    Parameters
    ----------
    draws
        Number of draws to keep from each chain.
    tune
        Number of tuning draws of each chain, which are discarded.
    chains
        Number of chains.
    seed
        Seed of all chains together.
    longer_tune
        Number of tuning draws of a second run, if chains mix slowly after the first; 0 for no such run.
    """

    draws: int
    tune: int
    chains: int
    seed: int
    longer_tune: int = 0


# Statistics that both samplers report: ArviZ's and PyMC's names, and those of nutpie
STATISTICS = {
    "diverging": "diverging",
    "tree_depth": "depth",
    "reached_max_treedepth": "maxdepth_reached",
    "n_steps": "n_steps",
    "energy": "energy",
    "lp": "logp",
    "acceptance_rate": "mean_tree_accept",
    "step_size": "step_size",
}


class ChainMixing(NamedTuple):
    """Mixing of chains: largest R-hat, smallest effective sample sizes, and smallest E-BFMI.

    Entries are NaN if no number varies, or if they were not computed.
    """

    r_hat: float
    bulk: float
    tail: float
    bfmi: float = math.nan


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sampled:
    """Draws of a sampler after tuning.

    Parameters
    ----------
    draws
        Stored variables, each of shape (chain, draw, ...).
    statistics
        The sampler's statistics, by ArviZ's names, each of shape (chain, draw); ``lp`` at least.
    is_interrupted
        Whether there are fewer draws than were asked for.
    stats
        Facts about the run: sampler and version, seconds to compile and to sample.
    mixing
        Mixing of the judged variables (`diagnostics.mixing_of`) if it was computed while sampling; None otherwise.
    is_late
        Whether a time limit stopped chains that would have been continued.
    work
        Operations of all chains, including those of tuning.
    """

    draws: Mapping[str, np.ndarray]
    statistics: Mapping[str, np.ndarray]
    is_interrupted: bool
    stats: Mapping[str, Any]
    mixing: ChainMixing | None = None
    is_late: bool = False
    work: float = 0.0


@dataclass(frozen=True, slots=True)
class Clock:
    """Clock that counts the seconds since it was created, with a limit.

    Parameters
    ----------
    limit
        Seconds; infinite for no limit.
    """

    limit: float = math.inf
    _begin: float = field(default_factory=time.perf_counter, init=False)

    @property
    def seconds(self) -> float:
        """Seconds since the clock was created."""
        return time.perf_counter() - self._begin

    @property
    def is_over(self) -> bool:
        """True if the limit has passed."""
        return self.seconds > self.limit


class StepProgress:
    """Progress bar on standard error, which disappears when sampling ends.

    Parameters
    ----------
    steps
        Number of steps of each chain.
    is_shown
        Whether the bar is shown; None shows it in a terminal or a suitable notebook.
    """

    def __init__(self, steps: int, *, is_shown: bool | None = None) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeElapsedColumn(),
        )
        self._bar = Progress(
            *columns,
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            transient=True,
            disable=not is_drawn(is_shown),
        )
        self._task = self._bar.add_task("sampling", total=steps)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def reach(self, steps: int) -> None:
        """Report the number of steps that the slowest chain has made."""
        self._bar.update(self._task, completed=steps)

    def aim(self, steps: int, reason: str) -> None:
        """Report the number of steps that each chain will now make, and show the reason."""
        self._bar.update(self._task, total=steps, description=reason)


# Largest memory of the draws, bytes
MEMORY = 4 * 2**30
# Largest number of effects of a log-linear model: its preconditioner is dense, 200 MB at this limit
LARGEST_DIMENSION = 5000

# Largest work of all chains beyond the first length, operations: about two minutes on two cores of 2026. An operation
# takes about a nanosecond
WORK = 2.4e11


# Operations of the sampler itself in a step
WORK_A_STEP = 2500.0
# Bytes of a number
_BYTES = 8
# Numbers for each cell and draw: marginals, counts, effects, potentials, replicates and arrays of the sampler
_NUMBERS_A_CELL = 10


def require_posterior_memory(evidence: Evidence, draws: int, *, needs_marginals: bool) -> None:
    """Raise an error that names a remedy if the draws, the effects or exact inference would not fit in memory."""
    model = evidence.specification
    cells = max(model.size, evidence.offsets[-1])
    states = max(model.cardinalities, default=1)
    remedy = "use fewer `draws` or `chains`, or NoiseAwareMAP, which stores no draws"
    needed = _BYTES * _NUMBERS_A_CELL * cells * draws
    require_memory(f"{draws:,} draws of {cells:,} cells", needed, remedy, MEMORY)
    effects = f"the effects of a variable of {states:,} states"
    require_memory(
        effects, _BYTES * states**2, "declare fewer states, or merge the rare ones", MEMORY
    )
    if not needs_marginals or not cells:
        return
    cost = forecast(model.cardinalities, model.scopes)
    if not cost.memory_bytes <= MEMORY:
        raise ModelTooLargeError(
            "the log-linear formulation needs exact inference in every step, here with a table of "
            f"{cost.largest_table:,} cells",
            remedy="use NoiseAwareMAP(inference='loopy'), CGM(inference='loopy') or NaiveMLE(inference='loopy'), or "
            "fewer or smaller cliques",
            option="use `--method cgm --inference loopy`, or fewer or smaller cliques",
        )
    size = Effects.of(model.cardinalities, model.scopes).size
    must = f"be at most {LARGEST_DIMENSION:,}"
    remedy = "use NoiseAwareMAP, or fewer or smaller cliques"
    kind = ModelTooLargeError
    require(
        size <= LARGEST_DIMENSION,
        "the number of log-linear effects",
        must,
        size,
        remedy,
        error=kind,
    )
