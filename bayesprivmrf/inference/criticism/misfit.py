r"""Goodness of fit of a model that restricts its tables: ties, shared transitions, scores or waves.

The m measured numbers are :math:`y = A n + η`: sums over N records, and noise. Under the model they have the mean
:math:`N A μ(β)` and the covariance :math:`C = S + D`, where :math:`S = N A Σ A'`, Σ is the covariance of one
record's cells, and D the variances of the noise. With :math:`V = C + 1/12`, which keeps a cell without records from
being certain, the best fitting β minimizes :math:`(y - N A μ(β))' V^{-1} (y - N A μ(β))`. It is found by
Gauss-Newton steps from the estimate, so that the *model* is judged: the shrinkage or the early stopping of an
estimator is not a misfit. Where N is private, it is fitted as well.

Let r be the residual there, and let F and B be orthonormal bases of :math:`V^{-1/2} S`, the directions in which
tables of records can lie, and of :math:`V^{-1/2} J`, those that the model allows, J being the derivative of the
mean. The statistic is the improvement of fit by unrestricted tables over those of the model,

.. math:: Q = r' M r, \qquad M = V^{-1/2} (F F' - B B') V^{-1/2} .

The part of r in no direction of tables consists of noise only, and is judged by
`bayesprivmrf.inference.criticism.verdict`. If the model holds, Q has to first order the mean :math:`d =
\operatorname{tr} M C` and the variance

.. math:: 2 \operatorname{tr} (M C)^2 + \sum_i κ_i M_{ii}^2, \qquad κ_i = 3 D_i^2 + D_i + S_{ii} (1 - 6 S_{ii} / N),

where κ is the fourth cumulant of a number: that of (discrete) Laplace noise, left out under a normal kernel, and
that of a count. The p-value is that of a scaled χ² with this mean and variance.

**Which measurement fits worst.** Let E select the numbers of one measurement. Then :math:`(E'Mr)' (E'ME)^+ (E'Mr)`
has about as many degrees of freedom as :math:`E'ME` has rank. The smallest of these p-values times their number
finds a single step that differs from many others, which Q averages away. Twice the smaller of both p-values is a
p-value again.

**Ranges.** A published range says between which ends a count lies. The counts in the ranges are those for which Q is
least, found by turns with β, so that the p-value is an upper bound: the true counts lie in the ranges too. They are
not those nearest to the model's, one by one, because these may contradict each other as sums of one table.

**Many numbers.** The work is cubic in m. Above `_MOST_NUMBERS` the numbers of each measurement with the smallest
expectations are added up, as rare cells are in Pearson's test. A sum is a measured number like any other.

Models with free potentials, and learned ones, are compared with the noise alone
(`bayesprivmrf.inference.criticism.noise_misfit`).

References
----------
Rao and Scott (1981). The analysis of categorical data from complex sample surveys. JASA 76, 221-230.
Satterthwaite (1946). An approximate distribution of estimates of variance components. Biometrics Bulletin 2, 110-114.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import chdtrc

from bayesprivmrf.inference.criticism.noise_misfit import Misfit
from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.inference.mean_counts import MeanCounts
from bayesprivmrf.inference.optimize import Expanded, damped_steps
from bayesprivmrf.inference.transition_sums import NoisySums
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.kernels import SQUARE

# Largest number of measurements for which none are added up, and for which a misfit is computed within seconds
_MOST_NUMBERS, _MOST_GROUPS = 600, 1500
# Degrees of freedom below which no misfit is tested: they come from cells with hardly any record
_FEWEST = 0.5
# Singular value, as a share of the largest, below which the measurements do not determine a direction
_RANK = 1e-8
# Smallest variance of a number, as a share of the largest: a smaller one is lost in rounding errors
_LEAST = 1e-12
# Times that the counts of ranges, and then the parameters, are fitted. Arbitrary
_RANGES_TAKEN = 3


type _Jacobian = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""Derivative of the mean by (β, log N), shape (numbers, d + 1), and the mean."""


def misfit_of_restricted(
    evidence: Evidence, potentials: FloatArray, inference: Inference
) -> Misfit | None:
    """Return the misfit of a model that restricts its tables; None where none can be tested.

    Arguments are those of `bayesprivmrf.inference.criticism.verdict.contradictions`.
    """
    if evidence.specification.shares_transitions:
        sums = NoisySums.of(evidence)
        start = sums.rows.coordinates_of(evidence.engine(inference).marginals(potentials)[1])
        moments = _Moments(evidence, inference, start, sums.rows.potentials, sums.jacobian)
    else:
        means = MeanCounts(evidence=evidence, inference=inference)

        def jacobian(point: FloatArray) -> tuple[FloatArray, FloatArray]:
            linearized = means.at(point)
            return means.jacobian(linearized).T, linearized.mean

        start = evidence.family.coordinates(potentials)
        moments = _Moments(evidence, inference, start, evidence.family.potentials, jacobian)
    if len(moments.answers) > _MOST_GROUPS:
        return None
    return _judged(moments, np.append(start, np.log(evidence.total)))


class _Moments:
    """Mean, derivative and covariance of the measured numbers, or of sums of them, at a point (β, log N)."""

    def __init__(
        self,
        evidence: Evidence,
        inference: Inference,
        start: FloatArray,
        potentials: Any,
        jacobian: _Jacobian,
    ) -> None:
        seen = evidence.possible
        (matrix, _, noise) = evidence.possible_numbers
        self.evidence, self.engine = evidence, evidence.engine(inference)
        self.potentials = potentials
        self.jacobian = jacobian
        expected = matrix @ self.engine.marginals(potentials(start))[1]
        self.owner = np.searchsorted(evidence.offsets, np.flatnonzero(seen), side="right") - 1
        self.groups = _groups(expected, self.owner)
        self.owner = self.owner[self.groups.argmax(axis=1)]
        self.rows = (self.groups @ matrix).toarray()
        is_normal = evidence.kernels[seen] == SQUARE
        # a range agrees with each count in it, so that it has no noise
        noise = np.where(evidence.is_range[seen], 0.0, noise)
        self.low, self.high = (self.groups @ end[seen] for end in evidence.range_ends)
        # variances and fourth cumulants of independent noise add up
        self.noise = self.groups @ noise
        self.noise_cumulant = self.groups @ np.where(is_normal, 0.0, 3 * noise**2 + noise)
        self.answers = np.clip(self.groups @ (evidence.total * expected), self.low, self.high)
        self.is_free = np.append(np.ones(len(start), bool), evidence.total_standard_error > 0)

    def at(self, point: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the residual, and J, shape (m, d + 1)."""
        jacobian, mean = self.jacobian(point)
        return self.answers - self.groups @ mean, self.groups @ jacobian

    @property
    def has_ranges(self) -> bool:
        """True if some answer is a range of counts."""
        return bool((self.low < self.high).any())

    def take_nearest(self, point: FloatArray, weights: FloatArray) -> None:
        """Replace the answers that are ranges by the counts in them for which Q is least, given M."""
        is_range = self.low < self.high
        residual = self.at(point)[0]
        mean = self.answers - residual
        # in units in which M is about the identity
        unit = 1 / np.sqrt(np.maximum(np.diag(weights)[is_range], _LEAST))

        def objective(place: FloatArray) -> tuple[float, FloatArray]:
            residual[is_range] = place * unit - mean[is_range]
            pull = weights @ residual
            return 0.5 * float(residual @ pull), pull[is_range] * unit

        ends = np.column_stack([self.low, self.high])[is_range] / unit[:, np.newaxis]
        found = minimize(
            objective, self.answers[is_range] / unit, jac=True, method="L-BFGS-B", bounds=ends
        )
        self.answers[is_range] = np.clip(found.x * unit, self.low[is_range], self.high[is_range])

    def sampling(self, point: FloatArray) -> FloatArray:
        """Return the sampling covariance S."""
        _, _, product = self.engine.linearize(self.potentials(point[:-1]))
        own = self.rows @ np.array([product(row) for row in self.rows]).T
        # rows of one person may be equal, which multiplies the variance by their number
        records = np.exp(point[-1]) * self.evidence.rows_of_one
        return 0.5 * records * (own + own.T)


def _groups(expected: FloatArray, owner: np.ndarray) -> Any:
    """Return the sums of numbers to test, sparse, shape (sums, numbers); they pool the smallest expectations."""
    from scipy import sparse

    size = len(expected)
    if size <= _MOST_NUMBERS:
        return sparse.eye_array(size, format="csr")
    place = np.empty(size, dtype=int)
    start = 0
    for position in np.unique(owner):
        own = np.flatnonzero(owner == position)
        kept = min(len(own), max(2, int(_MOST_NUMBERS * len(own) / size)))
        order = np.argsort(-expected[own], kind="stable")
        place[own[order]] = start + np.minimum(np.arange(len(own)), kept - 1)
        start += kept
    return sparse.csr_array((np.ones(size), (place, np.arange(size))), shape=(start, size))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Quadratic:
    """The quadratic form Q at the parameters that fit best."""

    moments: _Moments
    point: FloatArray
    sampling: FloatArray
    weights: FloatArray
    residual: FloatArray
    directions: int

    @classmethod
    def near(cls, moments: _Moments, start: FloatArray) -> _Quadratic:
        """Return Q at the best fitting parameters, with V as at the start of their search."""
        point, sampling, factor, allowed = _closest(moments, start)
        residual = moments.at(point)[0]
        single = np.maximum(np.diag(sampling), 0.0)
        # directions of tables: S scaled to correlations, so that rare cells count as much as common ones
        root = np.sqrt(np.maximum(single, _LEAST * single.max()))
        sizes, vectors = np.linalg.eigh(sampling / np.outer(root, root))
        tables = root[:, np.newaxis] * vectors[:, sizes > _RANK * sizes.max()]
        if moments.is_free[-1]:
            tables = np.column_stack([tables, moments.answers - residual])
        inverse = solve_triangular(factor, np.eye(len(residual)), lower=True)
        whole = _basis(inverse @ tables)
        # M of the module, by which the misfit is a quadratic form
        weights = (inverse.T @ whole) @ (whole.T @ inverse) - (inverse.T @ allowed) @ (
            allowed.T @ inverse
        )
        return cls(
            moments=moments,
            point=point,
            sampling=sampling,
            weights=weights,
            residual=residual,
            directions=whole.shape[1] - allowed.shape[1],
        )

    def misfit(self) -> Misfit | None:
        """Return the misfit; None where no direction is left to test."""
        moments = self.moments
        weights = self.weights
        single = np.maximum(np.diag(self.sampling), 0.0)
        product = weights @ (self.sampling + np.diag(moments.noise))
        degrees = float(np.trace(product))
        if self.directions == 0 or degrees < _FEWEST:
            return None
        counts = np.maximum(single * (1 - 6 * single / np.exp(self.point[-1])), 0.0)
        own = np.diag(weights)
        variance = 2 * float((product * product.T).sum()) + float(
            (moments.noise_cumulant + counts) @ own**2
        )
        scale = variance / (2 * degrees)
        value = float(self.residual @ weights @ self.residual)
        tail = float(chdtrc(degrees / scale, max(value, 0.0) / scale))
        pull = weights @ self.residual
        worst, smallest, number = _worst(moments.owner, weights, pull, scale)
        if number > 1:
            tail = min(1.0, 2 * min(tail, number * smallest))
        score = (value - degrees) / float(np.sqrt(variance))
        return Misfit(score=score, tail=tail, worst=worst)


def _judged(moments: _Moments, start: FloatArray) -> Misfit | None:
    # V is updated once
    found = _Quadratic.near(moments, _closest(moments, start)[0])
    if moments.has_ranges:
        for _ in range(_RANGES_TAKEN):
            moments.take_nearest(found.point, found.weights)
            found = _Quadratic.near(moments, found.point)
    return found.misfit()


def _basis(columns: FloatArray) -> FloatArray:
    """Return an orthonormal basis of columns, without directions that are due to rounding."""
    left, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    return left[:, sizes > _RANK * sizes.max(initial=0.0)]


def _closest(
    moments: _Moments, point: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return where the residual is smallest, S and a root L of V as fixed at the start, and a basis of L⁻¹ J."""
    sampling = moments.sampling(point)
    # 1/12 is the variance of a count's fraction, records squared
    least = np.maximum(moments.noise + 1 / 12, _LEAST * np.diag(sampling).max())
    factor = cholesky(sampling + np.diag(least), lower=True)

    def whitened(at: FloatArray) -> tuple[FloatArray, FloatArray]:
        strain, slopes = (solve_triangular(factor, each, lower=True) for each in moments.at(at))
        return strain, slopes[:, moments.is_free]

    def expanded(at: FloatArray) -> Expanded:
        strain, slopes = whitened(at)
        gradient = np.zeros(len(at))
        curvature = np.zeros((len(at), len(at)))
        gradient[moments.is_free] = -slopes.T @ strain
        curvature[np.ix_(moments.is_free, moments.is_free)] = slopes.T @ slopes
        return 0.5 * float(strain @ strain), gradient, curvature

    point, _ = damped_steps(expanded, point, moments.is_free)
    return point, sampling, factor, _basis(whitened(point)[1])


# Relative difference of p-values that rounding may cause: of measurements so close, the first is named
_TIED = 1e-6


def _worst(
    owner: np.ndarray, weights: FloatArray, pull: FloatArray, scale: float
) -> tuple[int, float, int]:
    """Return the position of the worst-fitting measurement, its p-value, and the number of measurements tested."""
    worst = 0
    smallest = np.inf
    number = 0
    # a measurement that the model fits whatever it says has weights that are rounding errors beside the others'
    least = _RANK * float(np.diag(weights).max(initial=0.0))
    for position in np.unique(owner):
        own = owner == position
        values, vectors = np.linalg.eigh(weights[np.ix_(own, own)])
        is_told = values > least
        if not is_told.any():
            continue
        along = vectors[:, is_told].T @ pull[own] / np.sqrt(values[is_told])
        tail = float(chdtrc(is_told.sum() / scale, float(along @ along) / scale))
        number += 1
        if tail < smallest * (1 - _TIED):
            worst = int(position)
            smallest = tail
    return worst, smallest, number
