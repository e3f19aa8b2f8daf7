r"""Gradient ascent on a log likelihood, with noisy sums of clipped gradients over Poisson samples.

The model is :math:`p(x) = \exp(\sum_C \theta_C(x_C) - A(\theta))`. The gradient of a record is t - μ, where t are the
indicators of its m cells and μ the model's marginals, both as flat vectors. All numbers that receive noise are whole:

- μ is rounded to multiples u/Q, so the gradient of a record is the integer vector r = Q t - u in units of 1/Q;
- the clipping factor :math:`\min(1, c / \lVert t - \mu \rVert)` is rounded down to a multiple k of :math:`2^{-a}`
  such that :math:`k \lVert r \rVert \le S = 2^a Q c`;
- the sum over a sample, :math:`Q \sum k\,t - (\sum k)\,u`, is an integer vector. One record moves it by a length of
  at most S, for every record and every u. The sum is exact for any number of records (`ExactSum`). Each entry is
  clipped to :math:`\pm 2^{62}`, which increases no distance between two vectors.

μ, u and the formula of k depend on earlier noisy sums only, which are part of the release.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.interruption import interrupted_by, remember
from bayesprivmrf.marginals import MarginalEngine, marginal_engine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.cells import cells_of
from bayesprivmrf.model.cliques import minimum_norm_potentials
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import DiscreteGaussian

# Bits of the marginals, Q = 2^17: squared lengths of gradients stay below 2^53 for fewer than 2^18 cliques
MARGINAL_BITS = 17
# Bits of the sampling rate, those of a float
RATE_BITS = 53
# Smallest clip, records: below it all gradients are clipped, and a smaller clip only changes the learning rate
SMALLEST_CLIP = 2.0**-8
# Potentials are clipped to this size, nats: exp(-1000) is far below one over any number of records
LARGEST_POTENTIAL = 1e3
# Entries of a sum of gradients are clipped to this size, lattice steps: 2^31 records that all point one way
LARGEST_SUM = 2**62
# Standard deviation of a potential from the noise of all steps at the default learning rate, nats
SPREAD = 0.5
# Largest product of the default learning rate and the local curvature; gradient ascent is stable below 2
STABLE = 1.3

_CHUNK = 1 << 15  # rows summed at a time; the exact sum does not depend on it
_COUNT_BITS = 16  # bits of a row's count summed at a time: at most 2^31 records in a chunk
_DRAWN = 1 << 24  # records sampled at a time; the draws for a seed depend on it
# power iterations for the first curvature, and for each later one, which starts from the previous vector
_ITERATIONS, _MORE_ITERATIONS = 50, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientLattice:
    r"""Lattice of clipped gradients in whole numbers.

    Parameters
    ----------
    tables
        m, the number of cliques.
    clip
        Clip c, records: the largest length of a record's gradient. No gradient is longer than :math:`\sqrt{2m}`.
    """

    tables: int
    clip: float

    @classmethod
    def of(cls, tables: int, clip: float | None) -> GradientLattice:
        r"""Return the lattice for a clip, :math:`\sqrt m` by default and :math:`\sqrt{2m}` at most.

        At the uniform distribution every gradient has the length :math:`\sqrt{\sum_C (1 - 1/K_C)}`. Later, unlikely
        records have the longer gradients.
        """
        if clip is None:
            wanted = math.sqrt(tables)
        else:
            wanted = clip
        return cls(tables=tables, clip=min(wanted, math.sqrt(2 * tables)))

    @property
    def weight(self) -> int:
        r"""Clipping factor of 1 in lattice units, :math:`2^a`, with :math:`2^a c` in :math:`[2^{13}, 2^{14})`."""
        # 2^a c is at least 2^13: rounding a factor down loses at most a share of 2^-13 of the gradient
        return 1 << max(14 - math.frexp(self.clip)[1], 0)

    @property
    def steps(self) -> int:
        """Lattice steps in one record, 2^a Q."""
        return self.weight << MARGINAL_BITS

    @property
    def sensitivity(self) -> float:
        """Sensitivity S, lattice steps; exact, because it is c times a power of two."""
        return self.clip * self.steps

    def rounded(self, marginals: FloatArray) -> IntArray:
        """Return the marginals u in units of 1/Q."""
        return np.rint(np.asarray(marginals) * 2.0**MARGINAL_BITS).astype(np.int64)

    def factors(self, cells: np.ndarray, rounded: IntArray) -> IntArray:
        r"""Return the clipping factor k of each record, shape (rows,).

        The squared length :math:`m Q^2 - 2 Q \sum u_{cell} + \lVert u \rVert^2` is an exact integer below
        :math:`2^{53}`. Its root and the quotient have relative errors of a few :math:`2^{-53}`, so the floor of the
        quotient, reduced by a part in :math:`2^{50}`, is never too large.
        """
        one = 1 << MARGINAL_BITS
        squares = (
            self.tables * one * one - 2 * one * rounded[cells].sum(axis=1) + int(rounded @ rounded)
        )
        lengths = np.sqrt(np.maximum(squares, 1).astype(np.float64))
        # reduce the quotient by more than its rounding error
        return np.minimum(
            np.floor(self.sensitivity / lengths * (1 - 2.0**-50)), self.weight
        ).astype(np.int64)

    def total(self, cells: np.ndarray, counts: IntArray, rounded: IntArray) -> IntArray:
        """Return the sum of clipped gradients, lattice steps, shape (size,).

        At most 2^31 records are allowed. The two parts may overflow 64-bit integers, whose arithmetic is modulo 2^64.
        Their difference does not, since each record moves it by at most S < 2^31.

        Parameters
        ----------
        cells
            Flat positions of each record's cells, shape (rows, m).
        counts
            Number of records that each row represents, shape (rows,).
        rounded
            Marginals u, shape (size,).
        """
        weights = self.factors(cells, rounded) * counts
        # whole numbers below 2^53, which bincount sums exactly in double precision
        repeated = np.repeat(weights.astype(np.float64), cells.shape[1])
        by_cell = np.bincount(cells.ravel(), weights=repeated, minlength=rounded.size).astype(
            np.int64
        )
        return (by_cell << MARGINAL_BITS) - int(weights.sum()) * rounded


class ExactSum:
    r"""Exact sum of vectors of 64-bit integers, in whole numbers of any size."""

    def __init__(self, size: int) -> None:
        self._sum = np.zeros(size, dtype=object)

    def add(self, vector: IntArray, power: int = 0) -> None:
        """Add 2^power times a vector."""
        self._sum = self._sum + vector.astype(object) * 2**power

    def clipped(self) -> IntArray:
        """Return the sum with each entry clipped to `LARGEST_SUM` in size, which increases no distance."""
        return np.clip(self._sum, -LARGEST_SUM, LARGEST_SUM).astype(np.int64)


def draw_each(size: int, numerator: int, words: Callable[[int], np.ndarray]) -> np.ndarray:
    r"""Draw independent truth values, each true with probability numerator / 2^53 exactly.

    A value is true if a uniform number of 53 bits is below the numerator. Its first eight bits decide in 255 of 256
    cases; the other 45 bits are drawn in the remaining case only.

    Parameters
    ----------
    size
        Number of values to draw.
    numerator
        The probability times 2^53, from 0 to 2^53.
    words
        Function of n that returns n independent uniform uint64.
    """
    top, rest = divmod(numerator, 1 << RATE_BITS - 8)
    first = words(-(-size // 8)).view(np.uint8)[:size].astype(np.int16)
    drawn = first < top
    ties = np.flatnonzero(first == top)
    drawn[ties] = words(ties.size) >> np.uint64(72 - RATE_BITS) < np.uint64(rest)
    return drawn


def largest_curvature(engine: MarginalEngine, potentials: FloatArray) -> float:
    """Return an estimate of the largest eigenvalue of the indicators' covariance, by power iteration."""
    return _curvature(engine, potentials, np.cos(np.arange(engine.size, dtype=float)), _ITERATIONS)[
        0
    ]


def _curvature(
    engine: MarginalEngine, potentials: FloatArray, vector: FloatArray, iterations: int
) -> tuple[float, FloatArray]:
    """Return estimates of the largest eigenvalue and its eigenvector, from a starting vector."""
    product = engine.linearize(potentials)[2]
    value = 0.0
    for _ in range(iterations):
        image = product(vector)
        value = float(np.linalg.norm(image)) / float(np.linalg.norm(vector))
        if not value > 0:
            break
        vector = image / np.abs(image).max()
    return value, vector


class _Rate:
    """Learning rate of each step. The default follows the curvature at the released potentials."""

    def __init__(self, engine: MarginalEngine, given: float | None, calm: float) -> None:
        self._engine = engine
        self._given = given
        self._calm = calm
        self._vector = np.cos(np.arange(engine.size, dtype=float))
        self._place = 0
        self._now = calm
        self.smallest = math.inf

    def at(self, potentials: FloatArray) -> float:
        """Return the learning rate of the next step, which starts at the given potentials."""
        # update the curvature in each of the first 50 steps, then in every fifth
        if self._given is None and (self._place < 50 or self._place % 5 == 0):
            if self._place:
                iterations = _MORE_ITERATIONS
            else:
                iterations = _ITERATIONS
            curvature, self._vector = _curvature(self._engine, potentials, self._vector, iterations)
            if curvature > 0:
                self._now = min(self._calm, STABLE / curvature)
            else:
                self._now = self._calm
        self._place += 1
        if self._given is None:
            rate = self._now
        else:
            rate = self._given
        self.smallest = min(self.smallest, rate)
        return rate


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class AscentPath:
    """Result of an ascent.

    Parameters
    ----------
    potentials
        Average over the last iterates, nats, shape (size,), in the gauge of smallest norm; minus infinity at
        impossible cells.
    steps
        Number of steps taken: the planned number, or fewer after an interruption.
    learning_rate
        Smallest learning rate used; infinite if no step was taken.
    is_bounded
        Whether any potential was clipped to `LARGEST_POTENTIAL`.
    """

    potentials: FloatArray
    steps: int
    learning_rate: float
    is_bounded: bool


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Ascent:
    r"""Public settings of one ascent, :math:`\theta \leftarrow \theta + \eta\, \tilde g / (q \hat n)`.

    Parameters
    ----------
    specification
        The declared model.
    lattice
        Lattice on which the gradients lie.
    numerator
        q times 2^53.
    steps
        T, the number of steps.
    noise
        Distribution of the noise on each entry of a sum, lattice steps.
    learning_rate
        η for the mean gradient; ``None`` for the smaller of two values. With
        :math:`\eta = s\, q \hat n / (z c \sqrt T)` the noise of all T steps gives each potential a standard deviation
        of s = `SPREAD`. Only directions of curvature above :math:`z c / (q \hat n \sqrt T)` are then fitted, in which
        the data can distinguish a nat from noise. With :math:`\eta = \kappa / \lambda`, κ = `STABLE`, no step
        overshoots; λ is the largest curvature at the current potentials, updated regularly.
    averaging
        Share of the iterates, counted from the last, whose mean is the result; 0 for the last iterate only.
    """

    specification: ModelSpecification
    lattice: GradientLattice
    numerator: int
    steps: int
    noise: DiscreteGaussian
    learning_rate: float | None = None
    averaging: float = 0.5

    @property
    def drawn_noises(self) -> int:
        """Number of integer noise draws of all steps."""
        possible = self.specification.possible
        return self.steps * (self.specification.size if possible is None else int(possible.sum()))

    def resolution(self, total: float) -> float:
        r"""Return the smallest difference of potentials that can be distinguished from the noise of all steps, nats.

        It is :math:`z c / (q \hat n \sqrt T \lambda)`, the noise of the mean gradient of T steps divided by the
        response to one nat along the direction of largest curvature λ at equal potentials.

        Parameters
        ----------
        total
            Public number of records n̂, at least 1.
        """
        model = self.specification
        engine = marginal_engine(model.cardinalities, model.scopes)
        if model.possible is None:
            even = np.zeros(model.size)
        else:
            even = np.where(model.possible, 0.0, -np.inf)
        drawn = self.numerator / 2.0**RATE_BITS * total
        noise = self.noise.scale / self.lattice.steps / (drawn * math.sqrt(self.steps))
        curvature = largest_curvature(engine, even)
        if curvature > 0:
            return noise / curvature
        return 0.0

    def run(
        self, codes: np.ndarray, counts: IntArray, total: float, source: NoiseSource
    ) -> AscentPath:
        """Run the ascent on some records, and return its result.

        Parameters
        ----------
        codes
            Records as states' codes, shape (rows, p).
        counts
            Number of records that each row represents, at least 1, shape (rows,).
        total
            Public number of records n̂, at least 1.
        source
            Source of the samples and of the noise.
        """
        model = self.specification
        lattice = self.lattice
        engine = marginal_engine(model.cardinalities, model.scopes)
        if model.possible is None:
            free = np.ones(model.size, dtype=bool)
        else:
            free = model.possible
        theta = np.where(free, 0.0, -np.inf)
        deviation = self.noise.scale / lattice.steps * math.sqrt(self.steps)
        drawn = self.numerator / 2.0**RATE_BITS * total
        rate = _Rate(engine, self.learning_rate, SPREAD * drawn / deviation)
        kept = min(max(round(self.averaging * self.steps), 1), self.steps)
        mean = np.zeros(int(free.sum()))
        is_bounded = False
        averaged = 0
        taken = 0
        try:
            for place in range(self.steps if interrupted_by() is None else 0):
                rounded = lattice.rounded(engine.marginals(theta)[1])
                exact = self._sum(codes, counts, rounded, source)
                step = rate.at(theta) / (drawn * lattice.steps)
                theta[free] += step * source.add(exact[free], self.noise)
                is_bounded |= bool(np.abs(theta[free]).max(initial=0.0) > LARGEST_POTENTIAL)
                np.clip(theta, -LARGEST_POTENTIAL, LARGEST_POTENTIAL, out=theta, where=free)
                taken = place + 1
                if place >= self.steps - kept:
                    mean = mean + theta[free] / kept
                    averaged = averaged + 1
        except BaseException as error:
            remember(error)  # the current potentials are a valid result
            is_bounded |= bool(np.abs(theta[free]).max(initial=0.0) > LARGEST_POTENTIAL)
            np.clip(theta, -LARGEST_POTENTIAL, LARGEST_POTENTIAL, out=theta, where=free)
        if averaged:
            if averaged == kept:
                theta[free] = mean
            else:
                theta[free] = mean * (kept / averaged)
        potentials = minimum_norm_potentials(model.cardinalities, model.scopes, theta)
        return AscentPath(
            potentials=potentials, steps=taken, learning_rate=rate.smallest, is_bounded=is_bounded
        )

    def _sum(
        self, codes: np.ndarray, counts: IntArray, rounded: IntArray, source: NoiseSource
    ) -> IntArray:
        drawn = self.sample(counts, source)
        rows = np.flatnonzero(drawn)
        exact = ExactSum(rounded.size)
        for start in range(0, rows.size, _CHUNK):
            part = rows[start : start + _CHUNK]
            cells = cells_of(self.specification, codes[part])
            left = drawn[part]
            power = 0
            while left.any():
                exact.add(
                    self.lattice.total(cells, left & ((1 << _COUNT_BITS) - 1), rounded), power
                )
                left = left >> _COUNT_BITS
                power = power + _COUNT_BITS
        return exact.clipped()

    def sample(self, counts: IntArray, source: NoiseSource) -> IntArray:
        """Draw each record independently, and return the number drawn from each row."""
        if self.numerator == 1 << RATE_BITS or not counts.size:
            return counts
        stops = np.cumsum(counts)
        found = np.zeros_like(counts)
        for start in range(0, int(stops[-1]), _DRAWN):
            drawn = draw_each(min(_DRAWN, int(stops[-1]) - start), self.numerator, source.words)
            first, last = np.searchsorted(stops, [start, start + drawn.size - 1], side="right")
            rows = slice(first, last + 1)
            begins = np.maximum(stops[rows] - counts[rows] - start, 0)
            found[rows] += np.add.reduceat(drawn, begins, dtype=np.int64)
        return found
