r"""Statistics of tests through the noise: how far noisy numbers are from a null hypothesis.

**Model.** The counts n of a joint table are Poisson with means :math:`m = e^{Xθ}` under the null hypothesis, and the
published numbers are :math:`y = A n + e`. To second moments y has the mean :math:`A m` and the covariance

.. math:: V = A \operatorname{diag}(m) A' + \operatorname{diag}(v),

v being the variance of the noise. A fixed number of records adds nothing, because every null hypothesis has a free
mean count.

**Statistic.** With :math:`r = y - A m`, :math:`J_0 = A \operatorname{diag}(m) X` and the columns of :math:`J_1`
spanning all means that A can tell apart, the statistic is Neyman's :math:`C(α)` statistic

.. math:: Q = r' (P_0 - P_1) r, \qquad
          P_j = V^{-1} - V^{-1} J_j (J_j' V^{-1} J_j)^{+} J_j' V^{-1} .

It is the squared length of the residual in the directions that the null hypothesis forbids and the measurements
show, in units of sampling and noise together. To first order it is the likelihood ratio for normal y, and it does not
depend on how θ is estimated. The likelihood ratio itself would need the sum over all tables n. Disagreement among
tables that measure the same cells is no evidence against the null hypothesis; :math:`P_1` takes it out.

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
from bayesprivmrf.model.tables import FloatArray, IntArray

# Share of the largest singular value below which a direction counts as none
_RANK = 1e-9
# Smallest mean count of a cell, records: noise may make the estimate of a margin negative
_LEAST = 1e-3
# Multiple of the number of records above which no mean count is estimated; arbitrary, reached only by divergence
_MOST = 10.0
# Steps of Fisher scoring for the release, from the uniform table, and for a replicate, from the estimate of the
# release. Without noise the last of them moves means by less than 1e-6 of their errors.
_STEPS = 25
_STEPS_OF_REPLICATE = 6
# Largest change of a coordinate in a step, nats, which keeps early steps from overshooting
_LONGEST = 1.5
# Ridge of a step, as a share of the mean curvature: it only holds directions without any
_RIDGE = 1e-8
# Numbers in the largest array of a batch of replicates: 64 MiB
_BATCH = 2**23
# Multiplications above which replicates are compared with the estimate of the release: about ten seconds
_MOST_WORK = 2e10


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
    def _shown(self) -> FloatArray:
        """Orthonormal basis of the means that the measurements tell apart, shape (numbers, rank)."""
        left, sizes, _ = np.linalg.svd(self.measured.matrix, full_matrices=False)
        return left[:, sizes > _RANK * sizes.max(initial=0.0)]

    @property
    def degrees_of_freedom(self) -> int:
        """Number of directions that the null hypothesis forbids and the measurements show."""
        return self._shown.shape[1] - self._rank

    @cached_property
    def _rank(self) -> int:
        """Number of directions in which the null hypothesis can move the measurements."""
        # any point of the null hypothesis that has no symmetry has the rank of nearly all points
        generic = np.sin(np.arange(1.0, self.design.shape[1] + 1))[np.newaxis]
        directions = self._directions(self._means(generic))[0]
        return int(np.linalg.matrix_rank(directions))

    @cached_property
    def _estimate(self) -> FloatArray:
        """Coordinates θ of the release, shape (1, parameters)."""
        measured = self.measured
        level = math.log(measured.records / measured.possible.sum())
        constant = np.full(len(self.design), level)
        start = np.linalg.lstsq(self.design, constant, rcond=None)[0]
        return self._fitted(measured.counts[np.newaxis], start[np.newaxis], _STEPS)

    @property
    def expected(self) -> FloatArray:
        """Counts that the null hypothesis expects in the cells, shape (cells,), records."""
        means = self._means(self._estimate)[0]
        return means * (self.measured.records / means.sum())

    @property
    def statistic(self) -> float:
        """The statistic Q of the release."""
        return float(self._distances(self.measured.counts[np.newaxis], self._estimate)[0])

    def statistics(self, counts: FloatArray) -> FloatArray:
        """Return the statistic Q of replicates with some counts.

        Above a limit of work, the means and their directions are those of the release, which is the same to first
        order.

        Parameters
        ----------
        counts
            Counts that the replicates estimate, shape (replicates, numbers).
        """
        numbers, cells = self.measured.matrix.shape
        parameters = self.design.shape[1]
        work = numbers * parameters**2
        if not self.measured.has_own_cells:
            work += numbers * cells * parameters + numbers**3
        if len(counts) * work * (1 + _STEPS_OF_REPLICATE) > _MOST_WORK:
            return self._distances(counts, self._estimate)
        batch = max(1, _BATCH // (numbers * max(numbers, cells, parameters)))
        found = []
        for begin in range(0, len(counts), batch):
            own = counts[begin : begin + batch]
            start = np.broadcast_to(self._estimate, (len(own), parameters))
            found.append(self._distances(own, self._fitted(own, start, _STEPS_OF_REPLICATE)))
        return np.concatenate(found)

    def drawn(self, draws: int, rng: np.random.Generator) -> IntArray:
        """Draw counts of independent records under the null hypothesis, shape (draws, cells)."""
        expected = self.expected
        return rng.multinomial(self.measured.records, expected / expected.sum(), size=draws)

    def _means(self, theta: FloatArray) -> FloatArray:
        """Return mean counts of the cells, shape (points, cells)."""
        most = math.log(_MOST * self.measured.records)
        return (
            np.exp(np.clip(theta @ self.design.T, math.log(_LEAST), most)) * self.measured.possible
        )

    def _directions(self, means: FloatArray) -> FloatArray:
        """Return J at some means, shape (points, numbers, parameters)."""
        matrix = self.measured.matrix
        if self.measured.has_own_cells:  # a product by cells alone is cheaper than a sum over them
            return _gathered(matrix, means, self.design)
        return (matrix * means[:, np.newaxis, :]) @ self.design

    def _whitened(self, means: FloatArray, *vectors: FloatArray) -> list[FloatArray]:
        """Return vectors of shape (..., numbers, k) in units of sampling and noise at some means."""
        matrix = self.measured.matrix
        if self.measured.has_own_cells:
            deviation = np.sqrt(means @ np.square(matrix).T + self._noise)[..., np.newaxis]
            return [vector / deviation for vector in vectors]
        spread = (matrix * means[:, np.newaxis, :]) @ matrix.T
        spread[:, np.arange(len(matrix)), np.arange(len(matrix))] += self._noise
        root = np.linalg.cholesky(spread)
        return [np.linalg.solve(root, vector) for vector in vectors]

    def _fitted(self, counts: FloatArray, theta: FloatArray, steps: int) -> FloatArray:
        """Return the coordinates after some steps of Fisher scoring, shape (points, parameters)."""
        for _ in range(steps):
            means = self._means(theta)
            residual = (counts - means @ self.measured.matrix.T)[..., np.newaxis]
            distance, along = self._whitened(means, residual, self._directions(means))
            gram = np.swapaxes(along, -1, -2) @ along
            ridge = _RIDGE * np.trace(gram, axis1=-2, axis2=-1) / gram.shape[-1] + _RIDGE
            gram = gram + ridge[:, np.newaxis, np.newaxis] * np.eye(gram.shape[-1])
            step = np.linalg.solve(gram, np.swapaxes(along, -1, -2) @ distance)[..., 0]
            theta = theta + np.clip(step, -_LONGEST, _LONGEST)
        return theta

    def _distances(self, counts: FloatArray, theta: FloatArray) -> FloatArray:
        """Return Q of some numbers at estimates of the null hypothesis, one for all or one each."""
        means = self._means(theta)
        residual = (counts - means @ self.measured.matrix.T)[..., np.newaxis]
        shown = np.broadcast_to(self._shown, (len(means), *self._shown.shape))
        along = self._directions(means)
        if len(means) < len(counts):  # one estimate for all: the numbers are its columns
            residual = np.swapaxes(residual, 0, 2)
        distance, forbidden, allowed = self._whitened(means, residual, along, shown)
        numbers, rank = self._shown.shape
        total = np.square(distance).sum(axis=-2)
        if rank < numbers:
            total = _explained(allowed, distance)
        return np.ravel(total - _explained(forbidden, distance))


def _explained(directions: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return the squared length of vectors along the span of directions, shape (points, vectors)."""
    turned = np.swapaxes(directions, -1, -2)
    along = turned @ vectors
    inverse = np.linalg.pinv(turned @ directions, rcond=_RANK, hermitian=True)
    return (along * (inverse @ along)).sum(axis=-2)


def _gathered(matrix: FloatArray, means: FloatArray, design: FloatArray) -> FloatArray:
    """Return A diag(m) X where each cell is counted by one number at most."""
    rows, cells = np.nonzero(matrix)
    if len(cells) == len(matrix):  # a number each
        weights = matrix[rows, cells]
        return (means[:, cells] * weights)[..., np.newaxis] * design[cells]
    return np.einsum("nc,pc,cq->pnq", matrix, means, design, optimize=True)
