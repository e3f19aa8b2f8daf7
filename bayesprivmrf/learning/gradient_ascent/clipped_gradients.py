r"""Gradient ascent on a log-likelihood by noisy sums of clipped gradients over Poisson samples.

The model is :math:`p(x) = \exp(\sum_C \theta_C(x_C) - A(\theta))`. A record's gradient is t - μ, with t the
indicators of its m cells and μ the model's marginals, both flat. Everything that meets noise is a whole number:

- μ is rounded to multiples of 1/Q; in these steps a record's gradient is the integer vector r = Q t - u;
- its clipping factor :math:`\min(1, c / \lVert t - \mu \rVert)` is rounded down to a multiple k of :math:`2^{-a}`,
  such that :math:`k \lVert r \rVert \le S = 2^a Q c`;
- so the sum over a sample, :math:`Q \sum k\,t - (\sum k)\,u`, is an integer vector that one record moves by a length
  of at most S, whatever the record and u. It is exact however many records there are (`ExactSum`), and held to
  :math:`\pm 2^{62}` in each entry, which moves no two vectors apart.

μ, u and k's formula depend on earlier noisy sums alone, which are released with the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.interruption import interrupted_by, remember
from bayesprivmrf.marginals import MarginalEngine, marginal_engine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.cliques import minimum_norm_potentials
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import DiscreteGaussian

#: Bits of the marginals, Q = 2^17: squared lengths of gradients stay below 2^53 for fewer than 2^18 cliques.
MARGINAL_BITS = 17
#: Bits of the sampling rate, those of a float.
RATE_BITS = 53
#: Smallest clip, records: below it all gradients are clipped, and a smaller one would only change the rate.
SMALLEST_CLIP = 2.0**-8
#: Potentials are held to this size, nats: exp(-1000) is far below one over any number of records.
LARGEST_POTENTIAL = 1e3
#: Lattice steps to which an entry of a sum of gradients is held: those of 2^31 records that all point one way.
LARGEST_SUM = 2**62
#: Standard deviation, nats, that the noise may give a potential over all steps by the default learning rate.
SPREAD = 0.5
#: Largest default learning rate times the largest curvature where the ascent is; ascent is stable below 2.
STABLE = 1.3

_CHUNK = 1 << 15  # rows that are summed at a time; the exact sum does not depend on it
_COUNT_BITS = 16  # of a row's count that are summed at a time: 2^31 records in a chunk at most
_DRAWN = 1 << 24  # records whose coins are drawn at a time: a generator's words depend on it
_LOW = (1 << 32) - 1  # mask of the lower limb
# power iterations for the first curvature, and for each later one, which starts at the vector of the one before
_ITERATIONS, _MORE_ITERATIONS = 50, 3
# the curvature is computed in each of the first steps, then in one of five
_FIRST, _REFRESHED = 50, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientLattice:
    r"""Clipped gradients in whole numbers.

    Parameters
    ----------
    tables
        m, the number of cliques.
    clip
        c, records: the largest length of a record's gradient. No gradient is longer than :math:`\sqrt{2m}`.
    """

    tables: int
    clip: float

    @classmethod
    def of(cls, tables: int, clip: float | None) -> GradientLattice:
        r"""Return the lattice of a clip, :math:`\sqrt m` by default and :math:`\sqrt{2m}` at most.

        At the uniform distribution every gradient has the length :math:`\sqrt{\sum_C (1 - 1/K_C)}`; later those of
        records less likely than others are the longer ones.
        """
        wanted = math.sqrt(tables) if clip is None else clip
        return cls(tables=tables, clip=min(wanted, math.sqrt(2 * tables)))

    @property
    def weight(self) -> int:
        r"""The factor one, :math:`2^a`, with :math:`2^a c` in :math:`[2^{13}, 2^{14})`."""
        # 2^a c is at least 2^13: rounding a factor down loses at most a share of 2^-13 of the gradient
        return 1 << max(14 - math.frexp(self.clip)[1], 0)

    @property
    def steps(self) -> int:
        """Lattice steps a record, 2^a Q."""
        return self.weight << MARGINAL_BITS

    @property
    def sensitivity(self) -> float:
        """S, lattice steps; exact, as c times a power of two."""
        return self.clip * self.steps

    def rounded(self, marginals: FloatArray) -> IntArray:
        """Return u, the marginals in units of 1/Q."""
        return np.rint(np.asarray(marginals) * 2.0**MARGINAL_BITS).astype(np.int64)

    def factors(self, cells: np.ndarray, rounded: IntArray) -> IntArray:
        r"""Return k of each record, shape (rows,).

        The squared length :math:`m Q^2 - 2 Q \sum u_{cell} + \lVert u \rVert^2` is an exact integer below
        :math:`2^{53}`; its root and the quotient err by a few units of :math:`2^{-53}`, so that the floor of a
        quotient lessened by a part in :math:`2^{50}` is never too large.
        """
        one = 1 << MARGINAL_BITS
        squares = self.tables * one * one - 2 * one * rounded[cells].sum(axis=1) + int(rounded @ rounded)
        lengths = np.sqrt(np.maximum(squares, 1).astype(np.float64))
        # reduce the quotient by more than its rounding error
        return np.minimum(np.floor(self.sensitivity / lengths * (1 - 2.0**-50)), self.weight).astype(np.int64)

    def total(self, cells: np.ndarray, counts: IntArray, rounded: IntArray) -> IntArray:
        """Return the sum of clipped gradients, lattice steps, shape (size,).

        For at most 2^31 records. Its two parts may leave the 64-bit integers, whose arithmetic is modulo 2^64; their
        difference does not, since each record moves it by at most S, which is below 2^31.

        Parameters
        ----------
        cells
            Flat positions of each record's cells, shape (rows, m).
        counts
            How many records each row stands for, shape (rows,).
        rounded
            u, shape (size,).
        """
        weights = self.factors(cells, rounded) * counts
        spread = np.repeat(weights.astype(np.float64), cells.shape[1])  # whole sums below 2^53
        held = np.bincount(cells.ravel(), weights=spread, minlength=rounded.size).astype(np.int64)
        return (held << MARGINAL_BITS) - int(weights.sum()) * rounded


class ExactSum:
    r"""Sum of vectors of 64-bit integers in as many bits as it takes, one pair of limbs for each power of two.

    A limb pair is :math:`2^{32} a + b` with :math:`0 \le b < 2^{32}`, so that a holds sums of :math:`2^{32}` times
    what 64 bits do.

    Parameters
    ----------
    size
        Entries of a vector.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._limbs: dict[int, tuple[IntArray, IntArray]] = {}

    def add(self, vector: IntArray, power: int = 0) -> None:
        """Add 2^power times a vector."""
        zeros = np.zeros(self._size, dtype=np.int64)
        high, low = self._limbs.get(power, (zeros, zeros))
        low = low + (vector & _LOW)
        self._limbs[power] = high + (vector >> 32) + (low >> 32), low & _LOW

    def clipped(self) -> IntArray:
        """Return the sum held to `LARGEST_SUM` in size, entry by entry: no two sums are further apart than before."""
        exact = np.zeros(self._size, dtype=object)
        for power, (high, low) in self._limbs.items():
            if len(self._limbs) == 1 and power == 0 and np.abs(high).max(initial=0) < LARGEST_SUM >> 33:
                return (high << 32) + low
            exact += (high.astype(object) * 2**32 + low.astype(object)) * 2**power
        return np.clip(exact, -LARGEST_SUM, LARGEST_SUM).astype(np.int64)


def cells_of(specification: ModelSpecification, codes: np.ndarray) -> np.ndarray:
    """Return the flat positions of each record's cells, shape (rows, m); codes have shape (rows, p)."""
    cells = np.empty((len(codes), len(specification.scopes)), dtype=np.intp)
    for place, (scope, start) in enumerate(
        zip(specification.scopes, specification.offsets[:-1], strict=True)
    ):
        position = np.zeros(len(codes), dtype=np.intp)
        for variable in scope:
            position *= specification.cardinalities[variable]
            position += codes[:, variable]
        cells[:, place] = position + start
    return cells


def draw_each(size: int, numerator: int, words: Callable[[int], np.ndarray]) -> np.ndarray:
    r"""Return independent truth values, each true with probability numerator / 2^53 exactly.

    A uniform number of 53 bits is below the numerator, where its first eight bits decide in all but one of 256
    cases; the other 45 are drawn in that case alone.

    Parameters
    ----------
    size
        Number of decisions to draw.
    numerator
        The probability times 2^53, from 0 to 2^53.
    words
        Returns that many independent uniform uint64.
    """
    top, rest = divmod(numerator, 1 << RATE_BITS - 8)
    first = words(-(-size // 8)).view(np.uint8)[:size].astype(np.int16)
    drawn = first < top
    ties = np.flatnonzero(first == top)
    drawn[ties] = words(ties.size) >> np.uint64(72 - RATE_BITS) < np.uint64(rest)
    return drawn


def largest_curvature(engine: MarginalEngine, potentials: FloatArray) -> float:
    """Return about the largest eigenvalue of the indicators' covariance at some potentials, by power iteration."""
    return _curvature(engine, potentials, np.cos(np.arange(engine.size, dtype=float)), _ITERATIONS)[0]


def _curvature(
    engine: MarginalEngine, potentials: FloatArray, vector: FloatArray, iterations: int
) -> tuple[float, FloatArray]:
    """Return an estimate of the largest eigenvalue, and the vector it belongs to, from a vector to begin with."""
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
    """The learning rate of each step; the default follows the curvature. It sees released potentials alone."""

    def __init__(self, engine: MarginalEngine, given: float | None, calm: float) -> None:
        self._engine, self._given, self._calm = engine, given, calm
        self._vector = np.cos(np.arange(engine.size, dtype=float))
        self._place, self._now, self.smallest = 0, calm, math.inf

    def at(self, potentials: FloatArray) -> float:
        """Return the rate of the next step, which starts at some potentials."""
        if self._given is None and (self._place < _FIRST or self._place % _REFRESHED == 0):
            iterations = _MORE_ITERATIONS if self._place else _ITERATIONS
            curvature, self._vector = _curvature(self._engine, potentials, self._vector, iterations)
            self._now = min(self._calm, STABLE / curvature) if curvature > 0 else self._calm
        self._place += 1
        rate = self._now if self._given is None else self._given
        self.smallest = min(self.smallest, rate)
        return rate


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class AscentPath:
    """Result of an ascent.

    Parameters
    ----------
    potentials
        Averaged over the last iterates, nats, shape (size,), in the gauge of smallest norm; minus infinity at
        impossible cells.
    steps
        Number of steps taken: those planned, or fewer after an interruption.
    learning_rate
        Smallest learning rate that was used; infinite where no step was taken.
    is_bounded
        Whether a potential was held to `LARGEST_POTENTIAL` on the way.
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
        Law of the noise on each entry of a sum, lattice steps.
    learning_rate
        η for the mean gradient; ``None`` for the smaller of two. By :math:`\eta = s\, q \hat n / (z c \sqrt T)` the
        noise of all T steps gives each potential a standard deviation of s = `SPREAD`, so that directions of
        curvature above :math:`z c / (q \hat n \sqrt T)`, in which a difference of a nat can be told from noise, are
        fitted and the others are not. By :math:`\eta = \kappa / \lambda`, κ = `STABLE`, no step overshoots; λ is the
        largest curvature where the ascent is, looked at again and again.
    averaging
        Share of the iterates, the last ones, whose mean is the answer; the last one alone for 0.
    """

    specification: ModelSpecification
    lattice: GradientLattice
    numerator: int
    steps: int
    noise: DiscreteGaussian
    learning_rate: float | None = None
    averaging: float = 0.5

    def resolution(self, total: float) -> float:
        r"""Return the smallest difference of potentials that the noise of all steps lets be told, nats.

        It is :math:`z c / (q \hat n \sqrt T \lambda)` with λ the largest curvature at equal potentials: noise of the
        mean gradient of T steps, over what a nat along the clearest of all directions moves it by.

        Parameters
        ----------
        total
            n̂, a number of records that may be known to all, at least 1.
        """
        model = self.specification
        engine = marginal_engine(model.cardinalities, model.scopes)
        even = np.zeros(model.size) if model.possible is None else np.where(model.possible, 0.0, -np.inf)
        drawn = self.numerator / 2.0**RATE_BITS * total
        noise = self.noise.scale / self.lattice.steps / (drawn * math.sqrt(self.steps))
        curvature = largest_curvature(engine, even)
        return noise / curvature if curvature > 0 else 0.0

    def run(self, codes: np.ndarray, counts: IntArray, total: float, source: NoiseSource) -> AscentPath:
        """Return the path on some records.

        Parameters
        ----------
        codes
            Records as states' codes, shape (rows, p).
        counts
            How many records each row stands for, at least 1, shape (rows,).
        total
            n̂, a number of records that may be known to all, at least 1.
        source
            Source of the samples and of the noise.
        """
        model, lattice = self.specification, self.lattice
        engine = marginal_engine(model.cardinalities, model.scopes)
        free = np.ones(model.size, dtype=bool) if model.possible is None else model.possible
        theta = np.where(free, 0.0, -np.inf)
        deviation = self.noise.scale / lattice.steps * math.sqrt(self.steps)
        drawn = self.numerator / 2.0**RATE_BITS * total
        rate = _Rate(engine, self.learning_rate, SPREAD * drawn / deviation)
        kept = min(max(round(self.averaging * self.steps), 1), self.steps)
        mean, is_bounded, averaged, taken = np.zeros(int(free.sum())), False, 0, 0
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
                    mean, averaged = mean + theta[free] / kept, averaged + 1
        except BaseException as error:
            remember(error)  # the current point of the ascent is a result as well
            is_bounded |= bool(np.abs(theta[free]).max(initial=0.0) > LARGEST_POTENTIAL)
            np.clip(theta, -LARGEST_POTENTIAL, LARGEST_POTENTIAL, out=theta, where=free)
        if averaged:
            theta[free] = mean if averaged == kept else mean * (kept / averaged)
        potentials = minimum_norm_potentials(model.cardinalities, model.scopes, theta)
        return AscentPath(
            potentials=potentials, steps=taken, learning_rate=rate.smallest, is_bounded=is_bounded
        )

    def _sum(self, codes: np.ndarray, counts: IntArray, rounded: IntArray, source: NoiseSource) -> IntArray:
        drawn = self.sample(counts, source)
        rows = np.flatnonzero(drawn)
        exact = ExactSum(rounded.size)
        for start in range(0, rows.size, _CHUNK):
            part = rows[start : start + _CHUNK]
            cells, left, power = cells_of(self.specification, codes[part]), drawn[part], 0
            while left.any():
                exact.add(self.lattice.total(cells, left & ((1 << _COUNT_BITS) - 1), rounded), power)
                left, power = left >> _COUNT_BITS, power + _COUNT_BITS
        return exact.clipped()

    def sample(self, counts: IntArray, source: NoiseSource) -> IntArray:
        """Return how many of each row's records are drawn, each record by itself."""
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


def drawn_noises(ascents: Sequence[Ascent]) -> int:
    """Return how many integer noises the ascents draw, and one number of records."""
    drawn = 1
    for ascent in ascents:
        possible = ascent.specification.possible
        cells = ascent.specification.size if possible is None else int(possible.sum())
        drawn += ascent.steps * cells
    return drawn
