"""Types that the engines of the posterior, their samplers and their results share.

A sampler returns `Sampled`, and ``finish`` of the engine turns it into `Finished`. The module also has the source of
a posterior, a clock with a limit, and the progress bar of the samplers.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from bayesprivmrf.compiled_cache import is_watched
from bayesprivmrf.inference.evidence import Population
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.release.base import Released


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
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        # in a notebook without ipywidgets rich would only warn
        can_draw = "ipykernel" not in sys.modules or find_spec("ipywidgets") is not None
        columns = BarColumn(bar_width=20), MofNCompleteColumn(), TextColumn("steps"), TimeElapsedColumn()
        self._bar = Progress(
            *columns,
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            transient=True,
            disable=not ((is_watched() if is_shown is None else is_shown) and can_draw),
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
