r"""Mean counts, and the likelihood of a noisy count around its mean.

A noisy count is :math:`y_i = N μ_i(β) + s_i Z_i + η_i`, with the noise η and a nearly normal deviation of the
records' count from its mean. The density of the sum is a formula of the noise's kernel
(`bayesprivmrf.noise.kernels`). The variance :math:`s_i^2` depends on the model:

- **The model's statistics determine the counts**, as with free potentials. The mean counts at β are then the
  records' own, and only the noise is left. :math:`s_i^2` is 1/12, the variance of a count's fraction.
- **The counts tell more than the statistics**, as with ties, scores or waves. To 1/12 is added the variance of the
  count given the statistics (`Linearized.unexplained`).
- **The model is smaller than its tables.** β are the population's, and to 1/12 is added the sampling of the N
  records, N μ for a count (`Linearized.sampling`).

Cells are treated as independent given their means. In the second case this leaves out correlations, so that the
likelihood is composite. In the third case `bayesprivmrf.inference.noise_aware.smaller` accounts for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.marginals import MarginalEngine
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.kernels import by_kernel

# Coordinates whose potentials are formed at once, to spare a product of each and the memory of all
_TOGETHER = 64

# Noisy numbers whose covariance is formed
_MOST_ROWS = 3000


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NoiseLikelihood:
    """Negative log-density of noisy counts, cell by cell.

    Parameters
    ----------
    noisy_counts
        y of the possible cells, shape (cells,), records.
    scale
        Scale of the noise's kernel, the standard deviation of (discrete) normal noise, 0 without noise, shape
        (cells,).
    kernels
        Codes of the kernels, shape (cells,).
    """

    noisy_counts: FloatArray
    scale: FloatArray
    kernels: IntArray

    @classmethod
    def of(cls, evidence: Evidence) -> NoiseLikelihood:
        """Return the likelihood of every possible cell."""
        inside = evidence.possible
        return cls(
            noisy_counts=evidence.noisy_counts[inside],
            scale=evidence.noise_width[inside],
            kernels=evidence.kernels[inside],
        )

    def loss(self, mean: FloatArray, variance: FloatArray) -> tuple[float, FloatArray]:
        """Return the negative log-density of all cells, nats, and its derivative by each mean.

        Parameters
        ----------
        mean
            m = N μ, shape (cells,), records.
        variance
            Variance of the sampling error, shape (cells,), records squared; positive.
        """
        value, slope = self._terms(self.noisy_counts - mean, variance)
        return float(value.sum()), slope

    def expected_loss(
        self, mean: FloatArray, variance: FloatArray, width: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return the loss averaged over normal means, and its derivative by the center of each.

        Parameters
        ----------
        mean, variance
            Centre of each cell's mean, and variance of its sampling error, as for `loss`.
        width
            Standard deviation of each mean, shape (cells,), records.
        """
        nodes, weights = _rule()
        variance, width = self._resolved(variance, width)
        residual = (self.noisy_counts - mean) + nodes[:, np.newaxis] * width
        value, slope = self._terms(residual, variance)
        return float((weights @ value).sum()), weights @ slope

    def expected_curvature(
        self, mean: FloatArray, variance: FloatArray, width: FloatArray
    ) -> FloatArray:
        """Return second derivatives of the loss by the means, averaged as in `expected_loss`, per record squared."""
        nodes, weights = _rule()
        variance, width = self._resolved(variance, width)
        residual = (self.noisy_counts - mean) + nodes[:, np.newaxis] * width
        return weights @ by_kernel(
            self.kernels,
            lambda kernel, *at: kernel.convolved_curvature(*at),
            residual,
            variance,
            self.scale,
        )

    def information(self, variance: FloatArray) -> FloatArray:
        """Return the Fisher information of each cell about its mean, per records squared."""
        return by_kernel(
            self.kernels, lambda kernel, *at: kernel.information(*at), variance, self.scale
        )

    @property
    def noise_variance(self) -> FloatArray:
        """Variance of continuous noise of each kernel and scale, shape (cells,), records squared."""
        return by_kernel(self.kernels, lambda kernel, scale: scale**2 * kernel.variance, self.scale)

    def _resolved(self, variance: FloatArray, width: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return variances and widths that the points of the quadrature resolve, with the same sum.

        A kernel's kink, s wide, falls between the points where s is far below the width v. There, as much
        of v² is counted to the sampling variance as leaves a width of twice its root: for s and v well below b
        both blur the same |r|/b.
        """
        moved = by_kernel(
            self.kernels,
            lambda kernel, apart: (
                np.maximum(apart, 0.0) / 5 if kernel.has_kink else np.zeros_like(apart)
            ),
            width**2 - 4 * variance,
        )
        return variance + moved, np.sqrt(width**2 - moved)

    def _terms(self, residual: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the negative log-density and its derivative by the mean; the residual may have leading axes."""
        value, slope = by_kernel(
            self.kernels, lambda kernel, *at: kernel.convolved(*at), residual, variance, self.scale
        )
        return value, slope


@cache
def _rule() -> tuple[FloatArray, FloatArray]:
    # six-point Gauss-Hermite rule for the expectation over an uncertain mean
    nodes, weights = np.polynomial.hermite_e.hermegauss(6)
    return nodes, weights / weights.sum()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Linearized:
    """Mean counts at a point, and the products with their derivative J, shape (cells, d + 1).

    Parameters
    ----------
    mean
        N μ of the possible cells of the noisy tables, shape (cells,), records.
    by_total
        Change of the mean with log N, shape (cells,): the mean itself, or zero where N is held.
    along
        Change of the mean with the potentials of all cliques, shape (size,), N held.
    forward, backward
        v → J v and u → J'u; the last coordinate is log N.
    unexplained
        Covariance of the measured counts given the statistics of a tied model, shape (cells, cells), records squared;
        None where these statistics determine the counts, and under a model smaller than its measured tables.
    sampling
        Under such a model, the expected sum of squares of what the records add to each count, shape (cells,), records
        squared: Nμ for a count of records.
    """

    mean: FloatArray
    by_total: FloatArray
    along: Callable[[FloatArray], FloatArray]
    forward: Callable[[FloatArray], FloatArray]
    backward: Callable[[FloatArray], FloatArray]
    unexplained: FloatArray | None = None
    sampling: FloatArray | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class MeanCounts:
    """The map from coordinates (β, log N), shape (d + 1,), to mean counts.

    Parameters
    ----------
    evidence
        The releases.
    inference
        ``"exact"`` or ``"loopy"`` marginals.
    """

    evidence: Evidence
    inference: Inference = "exact"

    @property
    def effects(self) -> Effects:
        """Coordinates of the model's potentials."""
        return self.evidence.family.effects

    @cached_property
    def engine(self) -> MarginalEngine:
        """Marginals of the model's cliques."""
        return self.evidence.engine(self.inference)

    @property
    def size(self) -> int:
        """Number of coordinates, d + 1."""
        return self.effects.size + 1

    def at(self, point: FloatArray, *, holds_total: bool = False) -> Linearized:
        """Return mean counts and their derivative at (β, log N); for a known N its part of J is zero."""
        total = float(np.exp(point[-1]))
        _, marginals, product = self.engine.linearize(self.evidence.family.potentials(point[:-1]))
        mean = total * self.gathered(marginals)
        if holds_total:
            by_total = np.zeros(len(mean))
        else:
            by_total = mean

        def along(change: FloatArray) -> FloatArray:
            return total * self.gathered(product(change))

        def forward(direction: FloatArray) -> FloatArray:
            return along(self.effects.potentials(direction[:-1])) + direction[-1] * by_total

        def backward(cells: FloatArray) -> FloatArray:
            change = self.effects.pull_back(product(self.spread(cells)))
            return np.append(total * change, cells @ by_total)

        unexplained = None
        sampling = None
        if self.is_smaller:
            sampling = total * (self._squares @ marginals)
        elif not self.tells_all:
            unexplained = total * self._unexplained(product)
        return Linearized(
            mean=mean,
            by_total=by_total,
            along=along,
            forward=forward,
            backward=backward,
            unexplained=unexplained,
            sampling=sampling,
        )

    @property
    def is_smaller(self) -> bool:
        """True if the model omits interactions of measured tables."""
        return self.evidence.specification.interactions is not None

    @cached_property
    def _squares(self) -> Any:
        """Squares of the rows of A, sparse, of the possible numbers."""
        return self.evidence.rows[self.evidence.possible].astype(float).power(2).tocsr()

    @cached_property
    def tells_all(self) -> bool:
        """True if the measurements depend on the records only through the sufficient statistics of the model.

        So it is where potentials are free: the tables of the cliques are the statistics. With ties the statistics
        are sums of tables, and a table of one step tells more; with scores of ordered states they are sums of scores.
        """
        if self.evidence.family.is_free:
            return True
        if self.is_smaller:
            return False
        rows = self.evidence.possible_rows()
        if rows is None:
            return False
        if rows.shape[0] > _MOST_ROWS:
            raise ModelTooLargeError(
                f"{rows.shape[0]:,} noisy numbers of a model with ties, scores or waves are more than "
                f"{_MOST_ROWS:,}; measure sums over the tied scopes (queries.pooled), or fit each wave apart."
            )
        missed = (self.effects.missed(row) for row in rows.toarray().astype(float))
        # a smaller part of a measured number, in zero-sum coordinates, is a rounding error
        return max(missed, default=0.0) < 1e-9

    def _unexplained(self, product: Callable[[FloatArray], FloatArray]) -> FloatArray:
        r"""Return the covariance of one record's measured numbers a given its statistics t.

        .. math:: \operatorname{Cov}(a) - \operatorname{Cov}(a, t) \operatorname{Cov}(t)^+ \operatorname{Cov}(t, a)
        """
        size = int(self.evidence.possible.sum())
        spread = np.array([product(self.spread(row)) for row in np.eye(size)]).reshape(size, -1)
        own = np.array([self.gathered(column) for column in spread])
        cross = self.effects.pull_back(spread)
        return (
            own
            - cross @ np.linalg.pinv(self.statistics_covariance(product), hermitian=True) @ cross.T
        )

    def statistics_covariance(self, product: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Return Σ, the covariance of one record's statistics, shape (d, d), by products with that of its cells."""
        size = self.effects.size
        columns = self.effects.potentials(np.eye(size))
        found = np.array([self.effects.pull_back(product(column)) for column in columns]).reshape(
            size, size
        )
        return 0.5 * (found + found.T)

    def jacobian(self, linearized: Linearized) -> FloatArray:
        """Return J', shape (d + 1, cells); the cost is one product with J for each coordinate."""
        rows = np.empty((self.size, len(linearized.mean)))
        for first in range(0, self.effects.size, _TOGETHER):
            some = np.eye(min(_TOGETHER, self.effects.size - first), self.effects.size, first)
            for position, change in enumerate(self.effects.potentials(some), first):
                rows[position] = linearized.along(change)
        rows[-1] = linearized.by_total
        return rows

    def gathered(self, cells: FloatArray) -> FloatArray:
        """Return the possible cells of the tables, of which each is a sum of the cliques' cells."""
        return self.evidence.gathered(cells)[self.evidence.possible]

    def spread(self, numbers: FloatArray) -> FloatArray:
        """Apply the transpose of `gathered`."""
        full = np.zeros(len(self.evidence.possible))
        full[self.evidence.possible] = numbers
        return self.evidence.scattered(full)
