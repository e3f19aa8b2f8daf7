r"""Statistics of tests through the noise: how far noisy numbers are from a null hypothesis.

**Model.** The counts n of a joint table are Poisson with means :math:`m = e^{Xθ}` under the null hypothesis, and the
published numbers are :math:`y = A n + e`. To second moments y has the mean :math:`A m` and the covariance

.. math:: V = A \operatorname{diag}(m) A' + \operatorname{diag}(v),

v being the variance of the noise. Sums of one table with numbers in common have the covariance of their noise instead
of diag(v). A fixed number of records adds nothing, because every null hypothesis has a free
mean count.

**Statistic.** With :math:`r = y - A m`, :math:`J_0 = A \operatorname{diag}(m) X` and the columns of :math:`J_1`
spanning all means that A can tell apart, the statistic is Neyman's :math:`C(α)` statistic

.. math:: Q = r' (P_0 - P_1) r, \qquad
          P_j = V^{-1} - V^{-1} J_j (J_j' V^{-1} J_j)^{+} J_j' V^{-1} .

It is the squared length of the residual in the directions that the null hypothesis forbids and the measurements
show, in units of sampling and noise together. To first order it is the likelihood ratio for normal y, and it does not
depend on how θ is estimated. The likelihood ratio itself would need the sum over all tables n. Disagreement among
tables that measure the same cells is no evidence against the null hypothesis; :math:`P_1` takes it out.

**Fewer numbers.** Many tables of the same cells give far more numbers than cells. Let the QR decomposition
:math:`\operatorname{diag}(v)^{-1/2} A = U R` have rank r. Then :math:`z = U' \operatorname{diag}(v)^{-1/2} y` are r
numbers :math:`R n + e` with noise of variance 1. They are sufficient for n if the noise is normal, and Q is the same
with them, because what is left of y only disagrees among tables.

**Replicates** are compared with the estimate of the release, from which they are drawn. An estimate for each of them
gives the same sizes to within their errors (``benchmarks/analysis_tests.py --refit``).

**Undetermined hypotheses.** If A does not determine θ, a direction z with :math:`J_0 z = 0` may change the covariance
of the sampling, :math:`A \operatorname{diag}(m) A'`, in the directions of Q. Then no released number tells how Q is
distributed. An example are two tables of groups and one variable each, whose variables depend on each other.

**Estimate.** θ solves :math:`J_0' V^{-1} r = 0` by Fisher scoring: without noise, the maximum likelihood estimate.

References
----------
Neyman (1959). Optimal asymptotic tests of composite statistical hypotheses. Probability and Statistics, 213-234.
Kifer, Rogers (2017). A new class of private chi-square hypothesis tests. AISTATS, 991-1000.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bayesprivmrf.analysis._measured import TableNumbers
from bayesprivmrf.inference import RowStatus
from bayesprivmrf.model.tables import FloatArray, IntArray

# Share of the largest singular value below which a direction counts as none
_RANK = 1e-9
# Share of the sampling covariance from which on an undetermined direction matters; rounding errors are far smaller
_MATTERS = 1e-6
# Smallest mean count of a cell, records: noise may make the estimate of a margin negative
_LEAST = 1e-3
# Multiple of the number of records above which no mean count is estimated; arbitrary, reached only by divergence
_MOST = 10.0
# Most steps of Fisher scoring from the uniform table; only estimates of empty cells take more than about ten
_STEPS = 25
# Change of all coordinates at which scoring ends, nats: far below their errors, of 1e-3 and more
_LITTLE = 1e-8
# Largest change of a coordinate in a step, nats, which keeps early steps from overshooting
_LONGEST = 1.5
# Ridge of a step, as a share of the mean curvature: it only holds directions without any
_RIDGE = 1e-8


def hierarchical_design(shape: Sequence[int], cliques: Iterable[Iterable[int]]) -> FloatArray:
    """Return the design matrix of a hierarchical log-linear model, shape (cells, parameters).

    Parameters
    ----------
    shape
        Number of states of each axis of the table.
    cliques
        Axes of each interaction. All their subsets have effects, in reference coding.
    """
    subsets = {
        subset
        for clique in map(sorted, cliques)
        for order in range(len(clique) + 1)
        for subset in itertools.combinations(clique, order)
    }
    columns = []
    for subset in sorted(subsets, key=lambda axes: (len(axes), axes)):
        block = np.ones((1, 1))
        for axis, states in enumerate(shape):
            own = np.ones((states, 1))
            if axis in subset:
                own = np.eye(states)[:, 1:]
            block = np.kron(block, own)
        columns.append(block)
    return np.concatenate(columns, axis=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class LogLinearNull:
    """A log-linear null hypothesis about the joint table behind some noisy numbers.

    Parameters
    ----------
    measured
        The numbers.
    design
        X, shape (cells, parameters); its columns span the constant.
    """

    measured: TableNumbers
    design: FloatArray

    @cached_property
    def _noise(self) -> FloatArray:
        """Variance of each number's noise, at the counts that the release estimates."""
        return self.measured.variances(self.measured.counts + 1)

    @cached_property
    def _whitening(self) -> FloatArray:
        """Map of the noise to independent noise of variance 1, shape (numbers, numbers)."""
        if self.measured.has_shared_noise:
            covariance = self.measured.covariance(self.measured.counts + 1)
            return np.linalg.inv(np.linalg.cholesky(covariance))
        return np.diag(1 / np.sqrt(self._noise))

    @cached_property
    def _turn(self) -> FloatArray | None:
        """Map from the published numbers to z, shape (rank, numbers); None where they are used themselves."""
        if self._cells is not None:
            return None
        turned = self._whitening @ self.measured.matrix
        left, sizes, _ = np.linalg.svd(turned, full_matrices=False)
        return left[:, sizes > _RANK * sizes.max(initial=0.0)].T @ self._whitening

    def _used(self, counts: FloatArray) -> FloatArray:
        """Return the numbers z of published numbers, shape (..., numbers) to (..., rank)."""
        if self._turn is None:
            return counts
        return counts @ self._turn.T

    @cached_property
    def _matrix(self) -> FloatArray:
        """Matrix R of the numbers z, shape (rank, cells)."""
        if self._turn is None:
            return self.measured.matrix
        return self._turn @ self.measured.matrix

    @property
    def degrees_of_freedom(self) -> int:
        """Number of directions that the null hypothesis forbids and the measurements show."""
        return len(self._matrix) - self._rank

    @cached_property
    def _rank(self) -> int:
        """Number of directions in which the null hypothesis can move the measurements."""
        directions = self._directions(self._generic_means)[0]
        return int(np.linalg.matrix_rank(directions))

    @cached_property
    def _generic_means(self) -> FloatArray:
        """Means at a point without symmetry, which has the properties of nearly all points, shape (1, cells)."""
        return self.means(np.sin(np.arange(1.0, self.design.shape[1] + 1))[np.newaxis])

    @cached_property
    def is_determined(self) -> bool:
        """True if the measurements determine the covariance of the sampling in the directions of Q."""
        parameters = self.design.shape[1]
        if self._rank == parameters:
            return True
        means = self._generic_means
        directions = self._directions(means)[0]
        generic = np.cos(np.arange(1.0, parameters + 1))
        hidden = generic - np.linalg.lstsq(directions, directions @ generic, rcond=_RANK)[0]
        change = self._sampling(means, means[0] * (self.design @ hidden))
        (forbidden,) = self._whitened(means, directions)
        left, sizes, _ = np.linalg.svd(forbidden[0], full_matrices=False)
        null = left[:, sizes > _RANK * sizes.max(initial=0.0)]
        tested = np.eye(len(null)) - null @ null.T
        largest = np.abs(self._sampling(means, means[0])).max()
        return bool(np.abs(tested.T @ change @ tested).max() <= _MATTERS * largest)

    def _sampling(self, means: FloatArray, weights: FloatArray) -> FloatArray:
        """Return R diag(w) R' for weights of the cells, in units of sampling and noise at some means."""
        matrix = self._matrix
        (half,) = self._whitened(means, (matrix * weights) @ matrix.T)
        (whole,) = self._whitened(means, half[0].T)
        return whole[0]

    @property
    def remark(self) -> tuple[RowStatus, str] | None:
        """Status and note where no released number tells the distribution of Q; else None."""
        if self.is_determined:
            return None
        note = "no released table shows some interactions that the hypothesis allows, so p may be too small"
        return RowStatus.DOUBTFUL, note

    @cached_property
    def _estimate(self) -> FloatArray:
        """Coordinates θ of the release, shape (1, parameters)."""
        return self.estimates(self.measured.counts[np.newaxis])

    @property
    def expected(self) -> FloatArray:
        """Counts that the null hypothesis expects in the cells, shape (cells,), records."""
        means = self.means(self._estimate)[0]
        return means * (self.measured.total / means.sum())

    @property
    def statistic(self) -> float:
        """The statistic Q of the release."""
        return float(self.distances(self.measured.counts[np.newaxis], self._estimate)[0])

    def statistics(self, counts: FloatArray) -> FloatArray:
        """Return the statistic Q of replicates with some counts, shape (replicates, numbers).

        The means and their directions are those at the estimate of the release, from which the replicates are drawn.
        """
        return self.distances(counts, self._estimate)

    def drawn(self, draws: int, rng: np.random.Generator) -> IntArray:
        """Draw counts of independent records under the null hypothesis, shape (draws, cells)."""
        expected = self.expected
        return rng.multinomial(self.measured.total, expected / expected.sum(), size=draws)

    def means(self, theta: FloatArray) -> FloatArray:
        """Return mean counts of the cells, shape (points, cells)."""
        most = math.log(_MOST * self.measured.total)
        return (
            np.exp(np.clip(theta @ self.design.T, math.log(_LEAST), most)) * self.measured.possible
        )

    def _directions(self, means: FloatArray) -> FloatArray:
        """Return J at some means, shape (points, numbers, parameters)."""
        if self._cells is not None:
            weights = means[:, self._cells]
            return weights[..., np.newaxis] * self.design[self._cells]
        return (self._matrix * means[:, np.newaxis, :]) @ self.design

    @cached_property
    def _cells(self) -> IntArray | None:
        """Cell that each number counts, shape (numbers,); None unless each counts one cell of its own."""
        matrix = self.measured.matrix
        rows, cells = np.nonzero(matrix)
        is_one_each = (
            np.array_equal(rows, np.arange(len(matrix))) and (matrix[rows, cells] == 1).all()
        )
        if is_one_each and self.measured.has_own_cells:
            return cells
        return None

    def _answers(self, means: FloatArray) -> FloatArray:
        """Return R m, shape (points, rank)."""
        if self._cells is not None:
            return means[:, self._cells]
        return means @ self._matrix.T

    def _whitened(self, means: FloatArray, *vectors: FloatArray) -> list[FloatArray]:
        """Return vectors of shape (..., rank, k) in units of sampling and noise at some means."""
        if self._cells is not None:
            deviation = np.sqrt(self._answers(means) + self._noise)[..., np.newaxis]
            return [vector / deviation for vector in vectors]
        matrix = self._matrix
        spread = (matrix * means[:, np.newaxis, :]) @ matrix.T + np.eye(len(matrix))
        root = np.linalg.cholesky(spread)
        return [np.linalg.solve(root, vector) for vector in vectors]

    def estimates(self, counts: FloatArray) -> FloatArray:
        """Return the coordinates θ of some numbers, shape (points, numbers) to (points, parameters)."""
        measured = self.measured
        level = math.log(measured.total / measured.possible.sum())
        constant = np.full(len(self.design), level)
        start = np.linalg.lstsq(self.design, constant, rcond=None)[0]
        theta = np.tile(start, (len(counts), 1))
        used = self._used(counts)
        for _ in range(_STEPS):
            means = self.means(theta)
            residual = (used - self._answers(means))[..., np.newaxis]
            distance, along = self._whitened(means, residual, self._directions(means))
            gram = np.swapaxes(along, -1, -2) @ along
            ridge = _RIDGE * np.trace(gram, axis1=-2, axis2=-1) / gram.shape[-1] + _RIDGE
            gram = gram + ridge[:, np.newaxis, np.newaxis] * np.eye(gram.shape[-1])
            step = np.linalg.solve(gram, np.swapaxes(along, -1, -2) @ distance)[..., 0]
            theta = theta + np.clip(step, -_LONGEST, _LONGEST)
            if np.abs(step).max(initial=0.0) < _LITTLE:
                break
        return theta

    def distances(self, counts: FloatArray, theta: FloatArray) -> FloatArray:
        """Return Q of some numbers at estimates of the null hypothesis, one for all or one each."""
        means = self.means(theta)
        residual = (self._used(counts) - self._answers(means))[..., np.newaxis]
        if len(means) < len(counts):  # one estimate for all: the numbers are its columns
            residual = np.swapaxes(residual, 0, 2)
        distance, forbidden = self._whitened(means, residual, self._directions(means))
        total = np.square(distance).sum(axis=-2)
        return np.ravel(total - _explained(forbidden, distance))


def _explained(directions: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return the squared length of vectors along the span of directions, shape (points, vectors)."""
    turned = np.swapaxes(directions, -1, -2)
    along = turned @ vectors
    inverse = np.linalg.pinv(turned @ directions, rcond=_RANK, hermitian=True)
    return (along * (inverse @ along)).sum(axis=-2)
