r"""Types that the engines of the posterior, their samplers and their results share.

A sampler returns `Sampled`, and ``finish`` of the engine turns it into `Finished`. The module also has the source of
a posterior, a clock with a limit, the progress bar of the samplers, the memory of a posterior, and the work per
effective draw of each engine, which ``formulation="auto"`` compares.

Work is counted in operations, not seconds, so that the choice is the same on every machine. An operation takes about
a nanosecond on a core of 2026; only ratios matter. The work per effective draw is the work of one draw times the
number of draws per effective draw, including the draws of tuning.

**Whole records.** A sweep visits V = min(N, 2000) records. A cell that holds the share p of the records loses or
gains one at a visit with probability 2 p (1 - p), the variance of its random walk per visit. A random walk whose
stationary variance is s² then has an autocorrelation time of s² / (p (1 - p)) visits, and an effective draw takes
twice that. With n = pN, C cliques, and a factor for moves that are rejected at a kink of Laplace noise of scale b,
the number of sweeps is

.. math:: \frac{3}{2} + 2 \frac{N}{V} \Bigl(1 + \frac{1}{b^2}\Bigr) \Bigl(\frac{C}{2}\Bigr)^3
          \max_i \frac{s_i^2}{n_i},

where b is at least 0.3. The factors with b and C are fitted. A separator's state changes at once in all cliques that
share it, so kinks in several tables can reject a move. The ratio s²/n is about b for a nearly empty cell, and grows
as N for a cell that is measured only as a part of a sum. Beyond V records the forecast therefore grows in proportion
to N b, without a bound. There it is far too low, by a factor of 100 for a million records, but relaxed counts are
faster by more than that factor.

Narrow noise may fix a count at k up to a small probability (s² < 0.05). Such a count flips between k and a neighbor
instead of walking. From k - 1 it returns at nearly every proposal, because the noise favors k. From k + 1 it returns
when one of the k + 1 records is visited, so 1 / (k + 1) replaces the terms in s². Births and deaths, at most 1,000
per sweep, move a private N, whose variance is e², by a random walk with steps of one record.

**One table.** Each move changes a count by up to two standard deviations of the noise, and chains start within the
noise. The work therefore does not depend on N. Cells whose noise exceeds their count, and parts of sums, take longer.

**Relaxed counts.** NUTS needs about 100 gradients per effective draw. Kinks of Laplace noise require shorter steps;
more and narrower kinks require still shorter ones.

The constants are fitted to the benchmark `engine_choice`, which checks that the chosen engine takes at most twice the
time of the better one.
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
from numpy.typing import NDArray

from bayesprivmrf.checks import require, require_memory
from bayesprivmrf.compiled import is_watched
from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.evidence import Evidence, Population
from bayesprivmrf.inference.posterior.measured import MeasuredCells
from bayesprivmrf.marginals import forecast
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.kernels import KERNELS, by_kernel, codes_of
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


# Largest memory of the draws, bytes
MEMORY = 4 * 2**30
# Largest number of effects of a log-linear model: its preconditioner is dense, 200 MB at this limit
LARGEST_DIMENSION = 5000

# Largest work of all chains beyond the first length, operations: about a minute on two cores of 2026
WORK = 1.2e11

# Sweeps per draw: by default there are half as many tuning sweeps as draws
_SWEEPS = 1.5
# Distance from a noisy number up to which whole numbers are summed
_REACH = 40


class CellSpread(NamedTuple):
    """Rough posterior means and variances of a model's counts, from the most precise measurement of each cell."""

    means: FloatArray  # mean count of each possible cell, records
    variances: FloatArray  # its variance, records squared
    is_part: NDArray[np.bool_]  # mask of the cells that are measured only in sums with other cells
    even: float  # number of records in each cell if all cells had the same number
    scale: float  # smallest scale of noise whose kernel has a kink, infinite without such noise
    deviation: float  # largest standard deviation of any noise

    @classmethod
    def of(cls, evidence: Evidence, measured: MeasuredCells, total: float) -> CellSpread:
        """Return the spread of the model's possible cells, given the measurements and a public or estimated total."""
        laws, cells = evidence.noise, max(measured.cells.size, 1)
        names = [law.base_law.kernel for law in laws]
        widths = evidence.spread([law.scale for law in laws])[measured.targets]
        kernels = evidence.spread(codes_of(names).tolist())[measured.targets].astype(int)
        has_kink = evidence.spread([name in KERNELS and KERNELS[name].has_kink for name in names])
        is_kinked = has_kink[measured.targets] > 0
        noisy = evidence.noisy_counts[measured.targets]
        entries = np.maximum(np.abs(measured.entries), 1e-9)
        members = np.bincount(measured.sums, minlength=measured.targets.size)[measured.sums]
        shares = np.maximum(noisy, 0.0)[measured.sums] / (members * entries)
        # a part of a sum may be anything between 0 and the whole sum
        spread = _variances(noisy, widths, kernels)[measured.sums] / entries**2
        spread += np.where(members > 1, shares**2, 0.0)
        # the most precise measurement of each cell; cells without one are even
        order = np.lexsort((spread, measured.sources))
        seen, first = np.unique(measured.sources[order], return_index=True)
        best, even = order[first], total / cells
        means, variances, is_part = np.full(cells, even), np.full(cells, even**2), np.ones(cells, bool)
        means[seen], variances[seen], is_part[seen] = shares[best], spread[best], members[best] > 1
        return cls(
            means=means,
            variances=np.minimum(variances, np.maximum(means, even) ** 2),
            is_part=is_part,
            even=even,
            scale=float(widths[is_kinked & (widths > 0)].min(initial=math.inf)),
            deviation=max((law.standard_deviation for law in laws), default=0.0),
        )


def _variances(noisy: FloatArray, scales: FloatArray, kernels: IntArray) -> FloatArray:
    """Return the variance of the whole number behind each noisy number, given only that noisy number."""
    variances = by_kernel(kernels, lambda kernel, scale: kernel.variance * scale**2, scales)
    # under narrow noise the distance of the noisy number from whole numbers matters: sum over these; from a scale of
    # 2 on the continuous variance is right within 4 %
    whole = np.arange(-_REACH, _REACH + 1)
    for m in np.flatnonzero((scales > 0.0) & (scales < 2.0)):
        ratio = (whole - noisy[m] + np.rint(noisy[m])) / scales[m]
        log_weights = by_kernel(kernels[[m]], lambda kernel, ratio: kernel.log(ratio), ratio)
        weights = np.exp(log_weights - log_weights.max())
        variances[m] = np.average((whole - np.average(whole, weights=weights)) ** 2, weights=weights)
    return variances


def sweeps_of_records(
    spread: CellSpread, total: float, visits: int, births: int, error: float, cliques: int
) -> float:
    """Return the sweeps of whole records per effective draw; `error` is the standard error of a private N."""
    # rejections at kinks do not grow further below a scale of 0.3 records
    kinks = (1.0 + 1.0 / max(spread.scale, 0.3) ** 2) * (cliques / 2) ** 3
    walk = kinks * spread.variances / np.maximum(np.maximum(spread.means, np.sqrt(spread.variances)), 1.0)
    likely = np.rint(spread.means)
    # a variance below 0.05: the count flips between two values; below 0.001 it hardly changes in thousands of draws
    flips = np.where((spread.variances > 1e-3) & (spread.means >= likely), 1.0 / (likely + 1.0), 0.0)
    walk = np.where(spread.variances < 0.05, flips, walk)
    slowest = 2.0 * float(walk.max(initial=0.0)) * total / max(min(total, visits), 1.0)
    # six births and deaths per unit of variance of N, because some of them are rejected
    return _SWEEPS + slowest + 6.0 * min(error, total) ** 2 / max(births, 1)


def sweeps_of_table(spread: CellSpread, rounds: int) -> float:
    """Return the sweeps of one table's counts per effective draw, for a given number of rounds per sweep."""
    step = max(2.0 * spread.deviation, 1.0)
    # each round over the table's cells makes two moves per cell between the parts of a sum
    apart = float(spread.variances[spread.is_part].max(initial=0.0)) / (step * step * 2.0 * rounds)
    # learned shapes move slowly where the noise exceeds the counts of the cells, by at most 12 sweeps
    drowned = spread.deviation / max(spread.even, 1.0)
    shapes = min(drowned * math.sqrt(spread.deviation) / 2.0, 12.0) if drowned > 0.5 else 0.0
    return _SWEEPS + shapes + apart


def gradient_operations(numbers: int) -> float:
    """Return the operations of one gradient with respect to a given number of latent numbers."""
    return 2500.0 + 170.0 * numbers  # of the sampler itself, and for each latent number


def relaxed_work(numbers: int, scale: float) -> float:
    """Return the operations per effective draw of latent numbers, given the smallest Laplace scale."""
    # 105 gradients where the density is smooth; kinks add to them, not further below a scale of 0.2 records
    gradients = 105.0 * (1.0 + 0.012 * numbers / max(scale, 0.2))
    return gradients * gradient_operations(numbers)


def require_posterior_memory(evidence: Evidence, draws: int, *, needs_marginals: bool) -> None:
    """Raise an error that names a remedy if the draws, the effects or exact inference would not fit in memory."""
    model = evidence.specification
    cells, states = max(model.size, evidence.offsets[-1]), max(model.cardinalities, default=1)
    # ten numbers per cell and draw: marginals, counts, effects, potentials, replicates and arrays of the sampler
    remedy = "use fewer `draws` or `chains`, or NoiseAwareMAP, which stores no draws"
    require_memory(f"{draws:,} draws of {cells:,} cells", 8 * 10 * cells * draws, remedy, MEMORY)
    effects = f"the effects of a variable of {states:,} states"
    require_memory(effects, 8 * states**2, "declare fewer states, or merge the rare ones", MEMORY)
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
    size, must = Effects.of(model.cardinalities, model.scopes).size, f"be at most {LARGEST_DIMENSION:,}"
    remedy, kind = "use NoiseAwareMAP, or fewer or smaller cliques", ModelTooLargeError
    require(size <= LARGEST_DIMENSION, "the number of log-linear effects", must, size, remedy, error=kind)
