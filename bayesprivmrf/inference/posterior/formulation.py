"""Interface of a formulation of the posterior, and the types that its samplers and results share.

A `Formulation` is one way to write the posterior of an evidence: a prior, latent numbers that a sampler moves, and
the marginals that follow from their draws. A sampler returns `Sampled`; `Formulation.finish` turns it into
`Finished`. The module also has the settings and the source of a posterior, a clock with a limit, and the progress bar
of the samplers.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from bayesprivmrf.compiled import is_watched
from bayesprivmrf.inference.evidence import Population
from bayesprivmrf.inference.posterior.relaxed.density import Density
from bayesprivmrf.model.tables import FloatArray
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of `LatentCounts`, as the engines read them."""

    formulation: str
    concentration: float | None
    scale: float | None
    total_range: tuple[float, float]
    smoothing: float


class Formulation(Protocol):
    """Posterior of one evidence: settings of its prior, a PyMC model, and the step from draws to marginals.

    Attributes
    ----------
    name
        ``"hyper-Dirichlet"``, ``"log-linear"`` or ``"exact"``.
    judged
        Variables on which convergence is judged, such as ``("counts", "total")``: those that the sampler moves, in a
        form that the data identify. They never include the draws that `finish` adds: these have fresh independent
        noise and would look better mixed than the chain is.
    hidden
        Other latent numbers that `finish` needs; they are not shown to the user.
    settings
        Settings of the prior by name, numbers and text; they become `constant_data` and attributes of the tree.
    """

    @property
    def name(self) -> str:
        """Name of the formulation."""
        ...

    @property
    def judged(self) -> tuple[str, ...]:
        """Variables on which convergence is judged."""
        ...

    @property
    def hidden(self) -> tuple[str, ...]:
        """Variables that are stored only for `finish`."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the prior, by name."""
        ...

    @property
    def sparsity(self) -> float:
        """Half-counts per record, a measure of the error of the relaxation; 0 if that error is negligible."""
        ...

    def model(self) -> pm.Model:
        """Return a new PyMC model of this release with the same density; noisy counts and scales are ``pm.Data``."""
        ...

    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Return marginals, counts and effects of sampled draws.

        Parameters
        ----------
        draws
            The judged and hidden variables, each of shape (chain, draw, ...).
        rng
            Generator for quantities that are drawn exactly, given the sampled ones.
        """
        ...

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior exactly, shape (1, size, ...): μ, and the counts of N records."""
        ...


class RelaxedFormulation(Formulation, Protocol):
    """Formulation with relaxed counts, whose density NUTS samples."""

    @property
    def acceptance(self) -> float:
        """Mean acceptance probability for which the step size is tuned, unless `target_accept` is given."""
        ...

    @property
    def operations_a_gradient(self) -> float:
        """Operations of one evaluation of the density and its gradient (`effort`)."""
        ...

    @property
    def density(self) -> Density:
        """Compiled density, whose groups of latent numbers have the names of the variables."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """Estimator and releases that a posterior was fitted with; a file of the posterior stores them.

    The estimator is a `LatentCounts`; only its settings are read here.
    """

    estimator: Any
    releases: tuple[Released, ...]
    population: Population


type Sampler = Literal["nutpie", "pymc"]

# Statistics that both samplers report, by ArviZ's names
STATISTICS = (
    "diverging",
    "tree_depth",
    "reached_max_treedepth",
    "n_steps",
    "energy",
    "lp",
    "acceptance_rate",
    "step_size",
)


class Mixing(NamedTuple):
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
        Operations of all chains (`effort`), including those of tuning.
    """

    draws: Mapping[str, np.ndarray]
    statistics: Mapping[str, np.ndarray]
    is_interrupted: bool
    stats: Mapping[str, Any]
    mixing: Mixing | None = None
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
    """Progress bar on standard error, which disappears when sampling ends; it can also show nothing."""

    def __init__(self, steps: int, *, is_shown: bool) -> None:
        self._bar: Any = None
        if not is_shown:
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.add_task("sampling", total=steps)

    def __enter__(self) -> StepProgress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def reach(self, steps: int) -> None:
        """Report the number of steps that the slowest chain has made."""
        self._update(completed=steps)

    def aim(self, steps: int, reason: str) -> None:
        """Report the number of steps that each chain will now make, and show the reason."""
        self._update(total=steps, description=reason)

    def _update(self, **changes: Any) -> None:
        if self._bar:
            self._bar.update(self._bar.task_ids[0], **changes)


def step_progress(steps: int, *, is_shown: bool | None = None) -> StepProgress:
    """Return a progress bar for a number of steps; with None it is shown in a terminal or a suitable notebook."""
    is_shown = is_watched() if is_shown is None else is_shown
    return StepProgress(steps, is_shown=is_shown and _can_draw())


def _can_draw() -> bool:
    """Return True if rich can draw here without a warning; in a notebook it needs ipywidgets."""
    return "ipykernel" not in sys.modules or find_spec("ipywidgets") is not None
