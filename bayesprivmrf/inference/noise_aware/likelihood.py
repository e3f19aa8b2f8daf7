r"""Mean counts, and the likelihood of a noisy count around its mean: sampling of N records plus the privacy noise.

If the model is right, :math:`y_i = N μ_i + s_i Z_i + η_i`, with the sampling error of N records, of variance
:math:`s_i^2 = N μ_i (1 - μ_i)` and nearly normal, and the noise η. For normal noise of scale σ the sum is normal
of variance :math:`s^2 + σ^2`. For Laplace noise of scale b its density at a residual r is, with a = s/b,

.. math:: f(r) = \frac{e^{a^2/2}}{2b} \Bigl[ e^{-r/b} Φ\Bigl(\frac{r}{s} - a\Bigr)
                 + e^{r/b} Φ\Bigl(-\frac{r}{s} - a\Bigr) \Bigr],

so that, with the two terms' shares :math:`p_1 + p_2 = 1` of f,

.. math:: \frac{d}{dr} \log f = \frac{p_2 - p_1}{b}, \qquad
          -\frac{d^2}{dr^2} \log f = \frac{φ(r/s)}{s b^2 f(r)} + \Bigl(\frac{p_2 - p_1}{b}\Bigr)^2 - \frac{1}{b^2}.

A discrete law has the same kernel as the continuous law of its scale, up to a constant. Cells are treated as
independent given their means. Within a table they are not quite (their sampling errors sum to zero), and tables
that share variables share sampling error: this is a composite likelihood, right in each cell, exact where noise
outweighs sampling, and with the right maximum where there is no noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import cast

import numpy as np

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.marginals import MarginalEngine
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.model.ties import TiedEffects

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
        b of a (discrete) Laplace law, the standard deviation of a (discrete) normal one, 0 without noise, shape
        (cells,).
    is_laplace
        Whether the law's kernel is absolute, as a (discrete) Laplace's, shape (cells,).
    """

    noisy_counts: FloatArray
    scale: FloatArray
    is_laplace: np.ndarray

    @classmethod
    def of(cls, evidence: Evidence) -> NoiseLikelihood:
        """Return the likelihood of every possible cell."""
        inside = evidence.possible
        return cls(
            noisy_counts=evidence.noisy_counts[inside],
            scale=evidence.noise_width[inside],
            is_laplace=evidence.is_absolute[inside],
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

    def expected_curvature(self, mean: FloatArray, variance: FloatArray, width: FloatArray) -> FloatArray:
        """Return second derivatives of the loss by the means, averaged as in `expected_loss`, per record squared."""
        nodes, weights = _rule()
        variance, width = self._resolved(variance, width)
        residual = (self.noisy_counts - mean) + nodes[:, np.newaxis] * width
        is_laplace, spread = self._split(variance)
        curvature = np.broadcast_to(1 / spread, residual.shape).copy()
        if is_laplace.any():
            curvature[:, is_laplace] = normal_laplace_curvature(
                residual[:, is_laplace], np.sqrt(variance[is_laplace]), self.scale[is_laplace]
            )
        return weights @ curvature

    def information(self, variance: FloatArray) -> FloatArray:
        r"""Return the Fisher information of each cell about its mean, per records squared.

        For normal noise :math:`1/(s^2 + σ^2)`. For Laplace noise the integral has no closed form;
        :math:`1 / \bigl(s^2 + b^2 (2 - e^{-2s/(b\sqrtπ)})\bigr)` is within 2 % of it everywhere and exact in both
        limits, :math:`1/b^2` without sampling error and :math:`1/(s^2 + 2b^2)` where it is large.
        """
        with np.errstate(divide="ignore", over="ignore"):
            ratio = np.sqrt(variance) / np.maximum(self.scale, 1e-300)
        excess = np.where(self.is_laplace, 2 - np.exp(-2 / math.sqrt(math.pi) * ratio), 1.0)
        return 1 / (variance + self.scale**2 * excess)

    def _resolved(self, variance: FloatArray, width: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return variances and widths that the points of the quadrature resolve, with the same sum.

        A Laplace law's kink, s wide, falls between the points where s is far below the width v. There, as much
        of v² is counted to the sampling variance as leaves a width of twice its root: for s and v well below b
        both blur the same |r|/b.
        """
        moved = np.where(self.is_laplace, np.maximum(width**2 - 4 * variance, 0.0) / 5, 0.0)
        return variance + moved, np.sqrt(width**2 - moved)

    def _split(self, variance: FloatArray) -> tuple[np.ndarray, FloatArray]:
        """Return a mask of the cells that need the convolution, and the variance of the sum for the others."""
        # noise that is negligible beside the sampling error is replaced by normal noise of its variance
        is_laplace = self.is_laplace & (self.scale > 1e-4 * np.sqrt(variance))
        return is_laplace, variance + self.scale**2 * np.where(self.is_laplace, 2.0, 1.0)

    def _terms(self, residual: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the negative log-density and its derivative by the mean; the residual may have leading axes."""
        is_laplace, spread = self._split(variance)
        value = 0.5 * residual**2 / spread + 0.5 * np.log(2 * math.pi * spread)
        slope = -residual / spread
        if is_laplace.any():
            value[..., is_laplace], slope[..., is_laplace] = normal_laplace(
                residual[..., is_laplace], np.sqrt(variance[is_laplace]), self.scale[is_laplace]
            )
        return value, slope


@cache
def _rule() -> tuple[FloatArray, FloatArray]:
    # six-point Gauss-Hermite rule for the expectation over an uncertain mean
    nodes, weights = np.polynomial.hermite_e.hermegauss(6)
    return nodes, weights / weights.sum()


def normal_laplace(
    residual: FloatArray, deviation: FloatArray, scale: FloatArray
) -> tuple[FloatArray, FloatArray]:
    r"""Return -log f(r) and d log f/dr, where f is the density of a normal plus a Laplace variable.

    Both terms of f are written with :math:`\operatorname{erfcx}(x) = e^{x^2} \operatorname{erfc}(x)`, in which
    nothing large cancels; but the first is taken as it stands where Φ is above one half.

    Parameters
    ----------
    residual
        r, shape (..., cells), records.
    deviation, scale
        s and b, positive, shape (cells,), records.

    Returns
    -------
    ndarray, ndarray
        Nats, and nats a record. As r = y - m, the second is the derivative of -log f by m.
    """
    from scipy.special import erfcx, log_ndtr

    a = deviation / scale
    standard = np.abs(residual) / deviation
    far = a - standard
    bell = -0.5 * standard**2
    first = bell + np.log(0.5 * erfcx(np.maximum(far, 0.0) * math.sqrt(0.5)))
    with np.errstate(divide="ignore"):
        second = bell + np.log(0.5 * erfcx((a + standard) * math.sqrt(0.5)))
    beyond = far < 0
    wide = np.broadcast_to(a, far.shape)[beyond]
    first[beyond] = 0.5 * wide**2 - standard[beyond] * wide + log_ndtr(-far[beyond])
    log_density = np.logaddexp(first, second) - np.log(2 * scale)
    return -log_density, np.sign(residual) * np.tanh(0.5 * (second - first)) / scale


def normal_laplace_curvature(residual: FloatArray, deviation: FloatArray, scale: FloatArray) -> FloatArray:
    """Return the second derivative of -log f, nats per record squared; arguments as for `normal_laplace`."""
    loss, slope = normal_laplace(residual, deviation, scale)
    log_kink = (
        loss - 0.5 * (residual / deviation) ** 2 - np.log(math.sqrt(2 * math.pi) * deviation * scale**2)
    )
    return np.maximum(np.exp(log_kink) + slope**2 - 1 / scale**2, 0.0)


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
        None where these statistics tell the counts.
    """

    mean: FloatArray
    by_total: FloatArray
    along: Callable[[FloatArray], FloatArray]
    forward: Callable[[FloatArray], FloatArray]
    backward: Callable[[FloatArray], FloatArray]
    unexplained: FloatArray | None = None


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
    def effects(self) -> Effects | TiedEffects:
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
        mean = total * self._gathered(marginals)
        by_total = np.zeros(len(mean)) if holds_total else mean

        def along(change: FloatArray) -> FloatArray:
            return total * self._gathered(product(change))

        def forward(direction: FloatArray) -> FloatArray:
            return along(self.effects.potentials(direction[:-1])) + direction[-1] * by_total

        def backward(cells: FloatArray) -> FloatArray:
            change = self.effects.pull_back(product(self._spread(cells)))
            return np.append(total * change, cells @ by_total)

        unexplained = None if self.tells_all else total * self._unexplained(product)
        return Linearized(
            mean=mean,
            by_total=by_total,
            along=along,
            forward=forward,
            backward=backward,
            unexplained=unexplained,
        )

    @cached_property
    def tells_all(self) -> bool:
        """True if the measurements depend on the records only through the sufficient statistics of the model.

        So it is where potentials are free: the tables of the cliques are the statistics. With ties the statistics
        are sums of tables, and a table of one step tells more; with scores of ordered states they are sums of scores.
        """
        if self.evidence.family.is_free:
            return True
        rows = self.evidence.possible_rows()
        if rows is None:
            return False
        if rows.shape[0] > _MOST_ROWS:
            raise ModelTooLargeError(
                f"{rows.shape[0]:,} noisy numbers of a model with ties, scores or waves are more than "
                f"{_MOST_ROWS:,}; measure sums over the tied scopes (queries.pooled), or fit each wave apart."
            )
        missed = (cast(TiedEffects, self.effects).missed(row) for row in rows.toarray().astype(float))
        # a smaller part of a measured number, in zero-sum coordinates, is a rounding error
        return max(missed, default=0.0) < 1e-9

    def _unexplained(self, product: Callable[[FloatArray], FloatArray]) -> FloatArray:
        r"""Return the covariance of one record's measured numbers a given its statistics t.

        .. math:: \operatorname{Cov}(a) - \operatorname{Cov}(a, t) \operatorname{Cov}(t)^+ \operatorname{Cov}(t, a)
        """
        size = int(self.evidence.possible.sum())
        spread = np.array([product(self._spread(row)) for row in np.eye(size)]).reshape(size, -1)
        own = np.array([self._gathered(column) for column in spread])
        cross = self.effects.pull_back(spread)
        return own - cross @ np.linalg.pinv(self.statistics_covariance(product), hermitian=True) @ cross.T

    def statistics_covariance(self, product: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Return Σ, the covariance of one record's statistics, shape (d, d), by products with that of its cells."""
        size = self.effects.size
        columns = self.effects.potentials(np.eye(size))
        found = np.array([self.effects.pull_back(product(column)) for column in columns]).reshape(size, size)
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

    def _gathered(self, cells: FloatArray) -> FloatArray:
        """Return the possible cells of the tables, of which each is a sum of the cliques' cells."""
        return self.evidence.gathered(cells)[self.evidence.possible]

    def _spread(self, numbers: FloatArray) -> FloatArray:
        """Apply the transpose of `_gathered`."""
        full = np.zeros(len(self.evidence.possible))
        full[self.evidence.possible] = numbers
        return self.evidence.scattered(full)
