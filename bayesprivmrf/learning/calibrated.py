r"""Intervals for learners that shrink: a parametric bootstrap from a model that the learner turns into the estimate.

Learners that search a ball, or add noise to choices, shrink couplings by a share that depends on their size. Records
simulated from the released model therefore differ from the original ones, and their replicates show the errors of
another model. The interval is made in four steps:

1. A few rounds of :math:`\theta_0 \leftarrow \theta_0 + (\hat\theta - \overline{\text{map}(\theta_0)}) / s` find a
   model :math:`\theta_0` with :math:`\mathbb{E}\,\text{map}(\theta_0) \approx \hat\theta`, where s is the share by
   which the map responds to such steps (indirect inference: Gourieroux, Monfort and Renault 1993). Parameters within
   the map's own errors stay at 0, because hundreds of such errors together would make another model.
2. Records are simulated from :math:`\theta_0`, which gives the mean response m, and from models near it. There,
   nonzero parameters move by about their own error, and a few of the others move at random as probes.
3. A nonzero parameter has the interval :math:`\theta_0 + (\hat\theta - m - q_\pm) / s`, with the quantiles q and the
   share s of the moved models. Their responses vary with all other parameters too, so the width includes the
   uncertainty about these. All parameters of a kind share s and the shape of the errors.
4. The interval of a parameter at 0 holds all values whose responses are this small with at least half the permitted
   probability of error, by the quantiles of the probes' responses. A parameter that the map hardly ever finds may be
   as large as the probes that it misses.

This corrects bias and width for the response of the map, to first order in the distance from :math:`\theta_0` to the
truth. It assumes that the map treats parameters of one kind and size alike. It is post-processing of the release.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import numpy as np

from bayesprivmrf.checks import positive_finite
from bayesprivmrf.errors import ModelError
from bayesprivmrf.model import Domain
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise import NoiseDistribution
from bayesprivmrf.noise.source import SimulatedNoise

if TYPE_CHECKING:
    from bayesprivmrf.learning.models.maps import LearningMap
    from bayesprivmrf.learning.models.solution import LearnedSolution

# Rounds of the search for the model
_ROUNDS = 4
# Shares of the replicates for each round, for the model itself, and for the moved models
_ROUND = 0.1
_STILL = 0.4
_MOVED = 0.4
# Least replicates in a round: enough for a mean; arbitrary
_LEAST_IN_A_ROUND = 8
# Smallest share of a step that a map is assumed to respond by, because a search divides by it. If the map responds
# less, the limits may be too narrow and are marked.
_LEAST_SLOPE = 0.2
# Probes in a bin for the mean response, and for its quantiles, which need some dozens of probes at 5 %
_BIN_OF_MEAN = 10
_BIN = 40
# Share of the map's own errors that is below the reach of a parameter that was found: one error in fifty is larger
_FOUND = 0.98
# Share of distinct rows below which merging equal rows pays, because a weighted row takes longer
_FEW_ROWS = 0.3


class Coordinates(NamedTuple):
    """The meaning of the entries of a vector of parameters."""

    groups: IntArray
    """Pair, variable or monomial of each parameter."""
    kinds: IntArray
    """Kind of each parameter: the map treats parameters of a kind alike; -1 for parameters that it does not learn."""


class Learned(Protocol):
    """Protocol of a learned model that intervals by simulation need: its parameters as a vector, and its map."""

    @property
    def domain(self) -> Domain:
        """Variables and states."""
        ...

    @property
    def total(self) -> float | None:
        """Number of records, public or noisy; ``None`` if it is not known."""
        ...

    @property
    def total_noise(self) -> NoiseDistribution | None:
        """Noise of the number of records; ``None`` if there is none."""
        ...

    @property
    def map(self) -> LearningMap | None:
        """The learning map; ``None`` if the release does not say how it was made."""
        ...

    @cached_property
    def solution(self) -> LearnedSolution:
        """The model, which draws rows."""
        ...

    @property
    def _without_map(self) -> str:
        """Text of the error for a release without a map."""
        ...

    def coordinates(self) -> Coordinates:
        """Return the group and the kind of each parameter."""
        ...

    def vector(self) -> FloatArray:
        """Return all parameters, each of them once."""
        ...

    def with_vector(self, values: FloatArray, /) -> Self:
        """Return the release with other parameters."""
        ...

    def with_parameters(self, parts: tuple[FloatArray, ...], /) -> Self:
        """Return the release with the parameters that its map returned."""
        ...

    def standard_noise(self, generator: np.random.Generator, /) -> FloatArray:
        """Return standard normal numbers under the constraints of the parameters."""
        ...


def limits(
    learned: Learned,
    prob: float,
    replicates: int,
    generator: np.random.Generator,
    total: float | None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[FloatArray, FloatArray, np.ndarray]:
    """Return lower and upper limits of all parameters, and a mask of limits that may be too narrow.

    Parameters
    ----------
    learned
        The release, a `LearnedParameters` with a learning map.
    prob
        Coverage, in (0, 1).
    replicates
        Number of simulated releases in the last step; the search for the model takes half as many more.
    generator
        Generator that draws the records and the noise.
    total
        Number of records to simulate; by default that of the release.
    progress
        Called after each simulated release with the number of those that are done, and of all.
    """
    space = learned.coordinates()
    estimate = learned.vector()
    in_a_round = max(math.ceil(_ROUND * replicates), _LEAST_IN_A_ROUND)
    unmoved = max(math.ceil(_STILL * replicates), 2)
    moved = max(math.ceil(_MOVED * replicates), 2)
    wanted = _ROUNDS * in_a_round + unmoved + moved
    done = itertools.count(1)

    def answers(thetas: Iterable[FloatArray]) -> FloatArray:
        """Return the map's estimates from rows of each model, one row for each."""
        found = []
        for theta in thetas:
            (draw,) = replicates_of(learned.with_vector(theta), 1, generator, total)
            found.append(draw.vector())
            if progress is not None:
                progress(next(done), wanted)
        return np.array(found)

    centre, errors = _centre(space, estimate, in_a_round, answers)
    still = answers([centre] * unmoved)
    theta = np.array([_moved(learned, space, centre, errors, generator) for _ in range(moved)])
    answer = answers(theta)

    middle = still.mean(axis=0)
    low = np.zeros(estimate.size)
    high = np.zeros(estimate.size)
    is_unresponsive = np.zeros(estimate.size, dtype=bool)
    levels = (1 - prob) / 2, (1 + prob) / 2
    for kind in np.unique(space.kinds[space.kinds >= 0]):
        own = (space.kinds == kind) & (centre != 0)
        if own.any():
            # nonzero parameters: responses follow a step by `slope`; the rest is error, also from other parameters
            steps = theta[:, own] - centre[own]
            share = _slope(steps, answer[:, own] - middle[own])
            slope = max(share, _LEAST_SLOPE)
            is_unresponsive[own] = share < _LEAST_SLOPE
            rest = answer[:, own] - slope * steps
            rest -= rest.mean(axis=0)
            spread = np.maximum(rest.std(axis=0, ddof=1), 1e-12)
            # all parameters of the kind share one shape of error
            below, above = np.quantile(rest / spread, levels)
            # inverting the response swaps the tails: the upper quantile of the error gives the lower limit
            low[own] = centre[own] + (estimate[own] - middle[own] - above * spread) / slope
            high[own] = centre[own] + (estimate[own] - middle[own] - below * spread) / slope
        own = (space.kinds == kind) & (centre == 0)
        if own.any():
            # parameters at 0: all values with small responses often enough; the upper limit mirrors the lower one
            reach = _Reach.of(still[:, own], theta[:, own], answer[:, own], levels[1])
            low[own], high[own] = reach.lower(estimate[own]), -reach.lower(-estimate[own])
            is_unresponsive[own] = (reach.slope < _LEAST_SLOPE) & (
                np.abs(estimate[own]) > -reach.y[0]
            )
    return low, high, is_unresponsive


def _slope(steps: FloatArray, answers: FloatArray) -> float:
    """Return the share by which responses follow steps, at most 1: only errors would make it larger."""
    size = float((steps**2).sum())
    if size > 0:
        return min(float((steps * answers).sum() / size), 1.0)
    return 1.0


def _centre(
    space: Coordinates,
    estimate: FloatArray,
    count: int,
    answers_of: Callable[[Iterable[FloatArray]], FloatArray],
) -> tuple[FloatArray, FloatArray]:
    """Return the model that the map turns into the estimate, and the standard error of each parameter."""
    theta = estimate.copy()
    last = None
    slopes = np.ones(space.kinds.max() + 1)
    kept = np.ones(estimate.size, dtype=bool)
    spread = np.zeros(estimate.size)
    for _ in range(_ROUNDS):
        answers = answers_of([theta] * count)
        mean = answers.mean(axis=0)
        for kind in np.unique(space.kinds[space.kinds >= 0]):
            own = np.flatnonzero(space.kinds == kind)
            if last is None:  # the first round decides which parameters exceed the map's own errors
                # a parameter counts as found if only one error in fifty is larger
                reach = np.quantile(np.abs(answers[:, own] - mean[own]), _FOUND)
                beyond = np.abs(estimate[own]) > reach  # one large parameter keeps its whole group
                kept[own] = np.isin(space.groups[own], space.groups[own][beyond])
            else:
                own = own[kept[own]]
                share = _slope(theta[own] - last[0][own], mean[own] - last[1][own])
                slopes[kind] = max(share, _LEAST_SLOPE)
            for part in (kept, ~kept):
                mine = (space.kinds == kind) & part
                if mine.any():
                    spread[mine] = (answers - mean)[:, mine].std() / slopes[kind]
                else:
                    spread[mine] = 0.0
        last = theta, mean
        theta = np.where(kept, theta + (estimate - mean) / slopes[space.kinds], 0.0)
    return theta, spread


def _moved(
    learned: Learned,
    space: Coordinates,
    centre: FloatArray,
    errors: FloatArray,
    generator: np.random.Generator,
) -> FloatArray:
    """Return the center with nonzero parameters moved by their error, and a few groups at 0 moved as probes."""
    noise = learned.standard_noise(generator)
    theta = centre + errors * noise * (centre != 0)
    wanted = -(-len(learned.domain.variables) // 4)
    for kind in np.unique(space.kinds[space.kinds >= 0]):
        own = space.kinds == kind
        silent = np.unique(space.groups[own & (centre == 0)])
        if silent.size:
            probes = generator.choice(silent, size=min(wanted, silent.size), replace=False)
            is_probe = own & np.isin(space.groups, probes)
            largest = max(float(np.abs(centre).max()), 4 * float(errors[own].max()))
            theta[is_probe] = (
                largest * generator.random() * noise[is_probe] / np.abs(noise[is_probe]).max()
            )
    return theta


@dataclass(frozen=True, slots=True)
class _Reach:
    """Upper quantile of the map's response as an increasing function of a parameter, linear beyond the probes."""

    x: FloatArray
    y: FloatArray
    slope: float

    @classmethod
    def of(cls, still: FloatArray, theta: FloatArray, answer: FloatArray, level: float) -> _Reach:
        """Return the function from quantiles at 0 and in bins of probes of similar size, made symmetric."""
        from scipy.optimize import isotonic_regression

        is_probe = theta != 0
        size = np.abs(theta[is_probe])
        value = (np.sign(theta) * answer)[is_probe]
        order = np.argsort(size, kind="stable")
        size = size[order]
        value = value[order]
        at_zero = np.quantile(np.concatenate([still, -still]), level)
        x = np.zeros(0)
        above = np.zeros(0)
        below = np.zeros(0)
        if size.size:
            parts = np.array_split(np.arange(size.size), max(size.size // _BIN_OF_MEAN, 1))
            x = np.array([size[part].mean() for part in parts])
            mean = isotonic_regression([value[part].mean() for part in parts]).x
            rest = value - np.interp(size, np.append(0.0, x), np.append(0.0, mean))
            wide = np.array_split(np.arange(size.size), max(size.size // _BIN, 1))
            home = np.repeat(np.arange(len(wide)), [part.size for part in wide])
            quantiles = np.array([np.quantile(rest[part], [1 - level, level]) for part in wide])
            below, above = mean + quantiles[home[[part[len(part) // 2] for part in parts]]].T
        x = np.concatenate([-x[::-1], [0.0], x])
        y = np.concatenate([-below[::-1], [at_zero], above])
        y, first = np.unique(isotonic_regression(y).x, return_index=True)
        x = x[first]  # the smallest parameter for each value of the quantile
        return cls(x, y, (y[-1] - y[0]) / (x[-1] - x[0]) if x.size > 1 else 1.0)

    def lower(self, answer: FloatArray) -> FloatArray:
        """Return the smallest parameters whose upper quantile reaches the responses."""
        if self.x.size == 1:  # no probe had a response, so any value is possible
            return np.full(answer.size, -np.inf)
        inner = np.interp(answer, self.y, self.x)
        beyond = np.maximum(answer - self.y[-1], 0.0) + np.minimum(answer - self.y[0], 0.0)
        return inner + beyond / max(self.slope, _LEAST_SLOPE)


def size_of(learned: Learned, total: float | None) -> float:
    """Return the number of records to simulate: the given one, or that of the release.

    Raises
    ------
    ModelError
        The release has no learning map, or no number of records.
    """
    if total is None:
        total = learned.total
    else:
        total = positive_finite("total", total)
    if learned.map is None:
        raise ModelError(learned._without_map)
    if total is None:
        raise ModelError(
            "`total` must be given where a release has no number of records, got None; name one."
        )
    return total


def replicates_of[LearnedT: Learned](
    learned: LearnedT, replicates: int, generator: np.random.Generator, total: float | None = None
) -> list[LearnedT]:
    """Return releases of the same class, learned from simulated records.

    Parameters
    ----------
    learned
        The release.
    replicates
        Number of simulated releases.
    generator
        Generator that draws the records and the noise.
    total
        Number of records to simulate; by default that of the release.

    Raises
    ------
    ModelError
        The release has no learning map, or no number of records.
    """
    size = max(round(size_of(learned, total)), 1)
    assert learned.map is not None
    result = []
    for stream in generator.spawn(replicates):
        codes, _ = learned.solution.codes(size, stream)
        source = SimulatedNoise(stream)
        law = learned.total_noise
        if law is None:
            seen = size
        else:
            seen = max(int(source.add(np.array([size]), law)[0]), 1)
        rows, counts = distinct_rows(codes)
        if len(rows) >= _FEW_ROWS * len(codes):  # sums are equal either way
            rows = codes
            counts = np.ones(len(codes), dtype=np.int64)
        parts = learned.map.learn(rows, counts, float(seen), source)
        result.append(learned.with_parameters(parts))
    return result


def distinct_rows(codes: np.ndarray) -> tuple[np.ndarray, IntArray]:
    """Return the distinct rows of codes in ascending order, and how often each occurs."""
    rows = np.ascontiguousarray(codes)
    keys = rows.view([("", f"V{rows.shape[1] * rows.itemsize}")]).ravel()
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    return rows[first], counts.astype(np.int64)
