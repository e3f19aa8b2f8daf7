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
`bayesprivmrf.inference.criticism.disagreement`. If the model holds, Q has to first order the mean :math:`d =
\operatorname{tr} M C` and the variance

.. math:: 2 \operatorname{tr} (M C)^2 + \sum_i κ_i M_{ii}^2, \qquad κ_i = 3 D_i^2 + D_i + S_{ii} (1 - 6 S_{ii} / N),

where κ is the fourth cumulant of a number: that of (discrete) Laplace noise, left out under a normal kernel, and
that of a count. The p-value is that of a scaled χ² with this mean and variance.

**Which measurement fits worst.** Let E select the numbers of one measurement. Then :math:`(E'Mr)' (E'ME)^+ (E'Mr)`
has about as many degrees of freedom as :math:`E'ME` has rank. The smallest of these p-values times their number
finds a single step that differs from many others, which Q averages away. Twice the smaller of both p-values is a
p-value again.

**Many numbers.** The work is cubic in m. Above `_MOST_NUMBERS` the numbers of each measurement with the smallest
expectations are added up, as rare cells are in Pearson's test. A sum is a measured number like any other.

A model with free potentials has a parameter for each measured cell and allows all directions of tables, so that it is
not tested.

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
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.special import chdtrc

from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.inference.transitions.rows import TransitionRows
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.model.ties import coordinates_of

SMALLEST_TAIL = 0.01
"""P-value below which a model is contradicted: benchmarks/misfit.py counts false alarms and detections."""
_MOST_NUMBERS, _MOST_GROUPS = 600, 1500
"""Largest number of measurements for which none are added up, and for which a misfit is computed within seconds."""
_STEPS, _HALVINGS = 20, 6
_FEWEST = 0.5
"""Degrees of freedom below which no misfit is tested: they come from cells with hardly any record."""
_SETTLED = 0.01
"""Fall of Q that another Gauss-Newton step must promise: a fraction of its standard deviation."""
_FARTHEST = 2.0
"""Largest change of a coordinate in one step, nats: beyond, the mean is far from linear."""
_RANK = 1e-8
"""Singular value, as a share of the largest, below which the measurements do not determine a direction."""
_ROUNDING = 1 / 12
"""Variance of a count's fraction, records squared."""
_LEAST = 1e-12
"""Smallest variance of a number, as a share of the largest: a smaller one is lost in rounding errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Misfit between a model and the measured numbers.

    Parameters
    ----------
    score
        Excess of Q over its mean, in standard deviations of Q.
    tail
        P-value of Q and of the worst measurement together.
    worst
        Position of the measurement that fits worst.
    """

    score: float
    tail: float
    worst: int

    @property
    def is_real(self) -> bool:
        """Return True if noise and sampling do not explain the misfit."""
        return self.tail < SMALLEST_TAIL


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Restricted:
    """Coordinates of a model with fewer parameters than its tables: maps to potentials and their derivatives."""

    size: int
    start: FloatArray
    potentials: Callable[[FloatArray], FloatArray]
    slopes: Callable[[FloatArray], FloatArray]  # shape (size, model size)


def misfit_of(evidence: Evidence, potentials: FloatArray, inference: Inference = "exact") -> Misfit | None:
    """Return the misfit of the model of an estimate; None where the release cannot contradict it.

    Parameters
    ----------
    evidence
        The releases.
    potentials
        The estimate's potentials, shape (model size,), nats; the search for the smallest Q begins there.
    inference
        ``"exact"`` or ``"loopy"`` marginals.
    """
    if not evidence.possible.any() or evidence.has_bounds or not evidence.has_total:
        return None
    family = _family(evidence, potentials, inference)
    if family is None:
        return None
    moments = _Moments(evidence, family, inference)
    if len(moments.answers) > _MOST_GROUPS:
        return None
    try:
        with np.errstate(all="ignore"):
            return _judged(moments, np.append(family.start, np.log(evidence.total)))
    except (LinAlgError, ValueError):  # an estimate without finite moments
        return None


def _family(evidence: Evidence, potentials: FloatArray, inference: Inference) -> _Restricted | None:
    model = evidence.specification
    if model.shares_transitions:
        rows = TransitionRows(model=model)
        first, steps = np.split(rows.sums(evidence.engine(inference).marginals(potentials)[1]), [rows.rows])
        tiny = np.finfo(float).tiny
        steps = steps.reshape(rows.rows, rows.states) + tiny
        start = rows.coordinates(first + tiny, steps / steps.sum(axis=1, keepdims=True))
        return _Restricted(
            size=rows.size,
            start=start,
            potentials=rows.potentials,
            slopes=lambda phi: rows.derivatives(phi).T,
        )
    effects = coordinates_of(model)
    if isinstance(effects, Effects) or effects.size == effects.full.size:
        return None
    columns = effects.potentials(np.eye(effects.size))

    def supported(beta: FloatArray) -> FloatArray:
        return np.where(evidence.supported_cells, effects.potentials(beta), -np.inf)

    return _Restricted(
        size=effects.size,
        start=effects.coordinates(np.where(np.isfinite(potentials), potentials, 0.0)),
        potentials=supported,
        slopes=lambda _: columns,
    )


class _Moments:
    """Mean, derivative and covariance of the measured numbers at a point (β, log N)."""

    def __init__(self, evidence: Evidence, family: _Restricted, inference: Inference) -> None:
        from scipy import sparse

        seen = evidence.possible
        self.evidence, self.family, self.engine = evidence, family, evidence.engine(inference)
        matrix = evidence.possible_rows()
        matrix = sparse.eye_array(evidence.specification.size, format="csr") if matrix is None else matrix
        expected = matrix @ self.engine.marginals(family.potentials(family.start))[1]
        self.owner = np.searchsorted(evidence.offsets, np.flatnonzero(seen), side="right") - 1
        groups = _groups(expected, self.owner)
        self.owner = self.owner[groups.argmax(axis=1)]
        self.rows = (groups @ matrix).toarray().astype(float)
        noise = evidence.spread([law.variance for law in evidence.noise])[seen]
        is_normal = evidence.spread([law.kernel == "square" for law in evidence.noise])[seen] > 0
        # variances and fourth cumulants of independent noise add up
        self.noise = groups @ noise
        self.noise_cumulant = groups @ np.where(is_normal, 0.0, 3 * noise**2 + noise)
        self.answers = groups @ evidence.noisy_counts[seen]
        self.is_private = evidence.total_standard_error > 0

    def residual(self, point: FloatArray) -> FloatArray:
        marginals = self.engine.marginals(self.family.potentials(point[:-1]))[1]
        return self.answers - np.exp(point[-1]) * (self.rows @ marginals)

    def derivative(self, point: FloatArray) -> FloatArray:
        """J, shape (m, d), and d + 1 where N is private."""
        total = np.exp(point[-1])
        _, marginals, product = self.engine.linearize(self.family.potentials(point[:-1]))
        changes = np.array([product(slope) for slope in self.family.slopes(point[:-1])])
        by_coordinates = total * (self.rows @ changes.reshape(self.family.size, -1).T)
        mean = total * (self.rows @ marginals)
        return np.column_stack([by_coordinates, mean]) if self.is_private else by_coordinates

    def sampling(self, point: FloatArray) -> FloatArray:
        """S."""
        _, _, product = self.engine.linearize(self.family.potentials(point[:-1]))
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
    place, start = np.empty(size, dtype=int), 0
    for position in np.unique(owner):
        own = np.flatnonzero(owner == position)
        kept = min(len(own), max(2, int(_MOST_NUMBERS * len(own) / size)))
        order = np.argsort(-expected[own], kind="stable")
        place[own[order]] = start + np.minimum(np.arange(len(own)), kept - 1)
        start += kept
    return sparse.csr_array((np.ones(size), (place, np.arange(size))), shape=(start, size))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Closest:
    """Result of the search: the point, its residual, S and a root L of V as fixed before, and a basis of L⁻¹ J."""

    point: FloatArray
    residual: FloatArray
    sampling: FloatArray
    factor: FloatArray
    allowed: FloatArray


def _judged(moments: _Moments, start: FloatArray) -> Misfit | None:
    found = _closest(moments, _closest(moments, start).point)  # V is updated once
    sampling, residual, allowed = found.sampling, found.residual, found.allowed
    single = np.maximum(np.diag(sampling), 0.0)
    # directions of tables: S scaled to correlations, so that rare cells count as much as common ones
    root = np.sqrt(np.maximum(single, _LEAST * single.max()))
    sizes, vectors = np.linalg.eigh(sampling / np.outer(root, root))
    tables = root[:, np.newaxis] * vectors[:, sizes > _RANK * sizes.max()]
    if moments.is_private:
        tables = np.column_stack([tables, moments.answers - residual])
    inverse = solve_triangular(found.factor, np.eye(len(residual)), lower=True)
    whole = _basis(inverse @ tables)[0]
    weights = (inverse.T @ whole) @ (whole.T @ inverse) - (inverse.T @ allowed) @ (allowed.T @ inverse)  # M
    product = weights @ (sampling + np.diag(moments.noise))
    degrees = float(np.trace(product))
    if whole.shape[1] == allowed.shape[1] or degrees < _FEWEST:
        return None
    counts = np.maximum(single * (1 - 6 * single / np.exp(found.point[-1])), 0.0)
    own = np.diag(weights)
    variance = 2 * float((product * product.T).sum()) + float((moments.noise_cumulant + counts) @ own**2)
    scale = variance / (2 * degrees)
    value = float(residual @ weights @ residual)
    tail = float(chdtrc(degrees / scale, max(value, 0.0) / scale))
    worst, smallest, number = _worst(moments.owner, weights, weights @ residual, scale)
    if number > 1:
        tail = min(1.0, 2 * min(tail, number * smallest))
    return Misfit(score=(value - degrees) / float(np.sqrt(variance)), tail=tail, worst=worst)


def _basis(columns: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the singular value decomposition of columns, without directions that are due to rounding."""
    left, sizes, right = np.linalg.svd(columns, full_matrices=False)
    is_told = sizes > _RANK * sizes.max(initial=0.0)
    return left[:, is_told], sizes[is_told], right[is_told]


def _closest(moments: _Moments, point: FloatArray) -> _Closest:
    """Take Gauss-Newton steps to the smallest squared residual, with V fixed at its value at the start."""
    sampling = moments.sampling(point)
    least = np.maximum(moments.noise + _ROUNDING, _LEAST * np.diag(sampling).max())
    factor = cholesky(sampling + np.diag(least), lower=True)

    def whitened(values: FloatArray) -> FloatArray:
        return solve_triangular(factor, values, lower=True)

    residual = moments.residual(point)
    allowed, sizes, right = _basis(whitened(moments.derivative(point)))
    for _ in range(_STEPS):
        strain = whitened(residual)
        along = allowed.T @ strain
        if along @ along < _SETTLED:
            break
        step = right.T @ (along / sizes)
        step *= min(1.0, _FARTHEST / np.abs(step).max())
        step = step if moments.is_private else np.append(step, 0.0)
        trials = (point + step / 2**halving for halving in range(_HALVINGS))
        tried = ((trial, moments.residual(trial)) for trial in trials)
        falls = ((*each, strain @ strain - np.square(whitened(each[1])).sum()) for each in tried)
        better = next((each for each in falls if each[2] > 0), None)
        if better is None:
            break
        point, residual, fall = better
        allowed, sizes, right = _basis(whitened(moments.derivative(point)))
        if fall < _SETTLED:
            break
    return _Closest(point=point, residual=residual, sampling=sampling, factor=factor, allowed=allowed)


def _worst(owner: np.ndarray, weights: FloatArray, pull: FloatArray, scale: float) -> tuple[int, float, int]:
    """Return the position of the worst-fitting measurement, its p-value, and the number of measurements tested."""
    worst, smallest, number = 0, np.inf, 0
    for position in np.unique(owner):
        own = owner == position
        values, vectors = np.linalg.eigh(weights[np.ix_(own, own)])
        is_told = values > _RANK * max(values.max(), 0.0)
        if not is_told.any():
            continue
        along = vectors[:, is_told].T @ pull[own] / np.sqrt(values[is_told])
        tail = float(chdtrc(is_told.sum() / scale, float(along @ along) / scale))
        number += 1
        if tail < smallest:
            worst, smallest = int(position), tail
    return worst, smallest, number
