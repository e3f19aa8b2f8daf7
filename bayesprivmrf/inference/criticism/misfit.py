r"""Goodness of fit of a model that restricts its tables: ties, shared transitions, scores or waves.

The m measured numbers are :math:`y = A n + η`: sums over N records, and noise. Under the model they have the mean
:math:`N A μ(β)` and the covariance :math:`C = S + D`, where :math:`S = N A Σ A'`, Σ is the covariance of one
record's cells, and D the variances of the noise. With :math:`V = C + 1/12`, which keeps a cell without records from
being certain, the best fitting β minimizes :math:`(y - N A μ(β))' V^{-1} (y - N A μ(β))`. It is found by
Gauss-Newton steps from the estimate, so that it is the *model* that is judged: the shrinkage of an estimator, or a
path that it left early, is no misfit. Where N is private, it is fitted as well.

Let r be the residual there, and let F and B be orthonormal bases of :math:`V^{-1/2} S`, the directions in which
tables of records can lie, and of :math:`V^{-1/2} J`, those that the model allows, J being the derivative of the
mean. The statistic is by how much all tables fit better than those of the model,

.. math:: Q = r' M r, \qquad M = V^{-1/2} (F F' - B B') V^{-1/2} .

What lies in no direction of tables is of noise alone, and `bayesprivmrf.inference.criticism.disagreement` judges
it. If the model holds, Q has to first order the mean :math:`d = \operatorname{tr} M C` and the variance

.. math:: 2 \operatorname{tr} (M C)^2 + \sum_i κ_i M_{ii}^2, \qquad κ_i = 3 D_i^2 + D_i + S_{ii} (1 - 6 S_{ii} / N),

where κ is the fourth cumulant of a number: that of (discrete) Laplace noise, left out under a normal kernel, and
that of a count. The p-value is that of a scaled χ² with this mean and variance.

**Which measurement fits worst.** Let E select the numbers of one measurement. Then :math:`(E'Mr)' (E'ME)^+ (E'Mr)`
has about as many degrees of freedom as :math:`E'ME` has rank. The smallest of these p-values times their number
finds a single step that differs from many others, which Q averages away. Twice the smaller of both p-values is a
p-value again.

A model whose potentials are free has a parameter for each cell that is measured: it allows all directions of
tables.

References
----------
Rao and Scott (1981). The analysis of categorical data from complex sample surveys. JASA 76, 221-230.
Satterthwaite (1946). An approximate distribution of estimates of variance components. Biometrics Bulletin 2, 110-114.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.special import chdtrc

from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.inference.transitions.rows import TransitionRows
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.model.ties import coordinates_of

__all__ = ["SMALLEST_TAIL", "Misfit", "misfit_of"]

SMALLEST_TAIL = 0.01
"""P-value below which a model is contradicted: benchmarks/misfit.py counts false alarms and what is caught."""
_MOST_NUMBERS = 3000
"""Measured numbers up to which their covariance is factored, which takes about a second of that many."""
_RENEWALS, _STEPS, _HALVINGS = 2, 20, 6
_FEWEST = 0.5
"""Degrees of freedom below which nothing is judged: what is left is of cells that hold next to no record."""
_SETTLED = 0.01
"""Fall of Q that another Gauss-Newton step must promise: a fraction of its standard deviation."""
_FARTHEST = 2.0
"""Nats that a step moves a coordinate by at most: beyond, the mean is far from linear."""
_RANK = 1e-8
"""Singular value, as a share of the largest, of a direction that the measurements do not tell."""
_ROUNDING = 1 / 12
"""Variance of a count's fraction, records squared."""
_LEAST = 1e-12
"""Variance, as a share of the largest, that a number is given at least: below, rounding errors outweigh it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """What the measured numbers say against a model.

    Parameters
    ----------
    score
        How far Q exceeds its mean, in its standard deviations.
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
    """The coordinates of a model with fewer parameters than its tables have: maps to potentials and their slopes."""

    size: int
    start: FloatArray
    potentials: Callable[[FloatArray], FloatArray]
    slopes: Callable[[FloatArray], FloatArray]  # shape (size, model size)


def misfit_of(evidence: Evidence, potentials: FloatArray, inference: Inference = "exact") -> Misfit | None:
    """Return the misfit of the model of an estimate; None where nothing can contradict it.

    Parameters
    ----------
    evidence
        The releases.
    potentials
        The estimate's potentials, shape (model size,), nats; the search for the smallest Q begins there.
    inference
        ``"exact"`` or ``"loopy"`` marginals.
    """
    numbers = int(evidence.possible.sum())
    if not numbers or numbers > _MOST_NUMBERS or evidence.has_bounds or not evidence.has_total:
        return None
    family = _family(evidence, potentials, inference)
    if family is None:
        return None
    moments = _Moments(evidence, family, inference)
    try:
        with np.errstate(all="ignore"):
            return _judged(moments, np.append(family.start, np.log(evidence.total)))
    except (LinAlgError, np.linalg.LinAlgError, ValueError):  # an estimate without finite moments
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
        seen = evidence.possible
        self.evidence, self.family, self.engine = evidence, family, evidence.engine(inference)
        rows = evidence.possible_rows()
        self.rows = np.eye(evidence.specification.size) if rows is None else rows.toarray().astype(float)
        self.noise = evidence.spread([law.variance for law in evidence.noise])[seen]
        is_normal = evidence.spread([law.kernel == "square" for law in evidence.noise])[seen] > 0
        self.noise_cumulant = np.where(is_normal, 0.0, 3 * self.noise**2 + self.noise)
        self.answers = evidence.noisy_counts[seen]
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
        # rows of one person may be alike: then the variance is that much larger
        records = np.exp(point[-1]) * self.evidence.rows_of_one
        return 0.5 * records * (own + own.T)


def _judged(moments: _Moments, point: FloatArray) -> Misfit | None:
    for _ in range(_RENEWALS):
        sampling = moments.sampling(point)
        single = np.maximum(np.diag(sampling), 0.0)
        least = np.maximum(moments.noise + _ROUNDING, _LEAST * single.max())
        factor = cholesky(sampling + np.diag(least), lower=True)
        point, residual, allowed = _closest(moments, point, factor)
    # directions of tables: S scaled to correlations, so that rare cells count as much as common ones
    root = np.sqrt(np.maximum(single, _LEAST * single.max()))
    sizes, vectors = np.linalg.eigh(sampling / np.outer(root, root))
    tables = root[:, np.newaxis] * vectors[:, sizes > _RANK * sizes.max()]
    if moments.is_private:
        tables = np.column_stack([tables, moments.answers - residual])
    inverse = solve_triangular(factor, np.eye(len(residual)), lower=True)
    whole = _basis(inverse @ tables)[0]
    weights = (inverse.T @ whole) @ (whole.T @ inverse) - (inverse.T @ allowed) @ (allowed.T @ inverse)  # M
    product = weights @ (sampling + np.diag(moments.noise))
    degrees = float(np.trace(product))
    if whole.shape[1] == allowed.shape[1] or degrees < _FEWEST:
        return None
    counts = np.maximum(single * (1 - 6 * single / np.exp(point[-1])), 0.0)
    own = np.diag(weights)
    variance = 2 * float((product * product.T).sum()) + float((moments.noise_cumulant + counts) @ own**2)
    scale = variance / (2 * degrees)
    value = float(residual @ weights @ residual)
    tail = float(chdtrc(degrees / scale, max(value, 0.0) / scale))
    worst, smallest, number = _worst(moments.evidence, weights, weights @ residual, scale)
    if number > 1:
        tail = min(1.0, 2 * min(tail, number * smallest))
    return Misfit(score=(value - degrees) / float(np.sqrt(variance)), tail=tail, worst=worst)


def _basis(columns: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The singular value decomposition of columns, without those directions that rounding alone tells."""
    left, sizes, right = np.linalg.svd(columns, full_matrices=False)
    is_told = sizes > _RANK * sizes.max(initial=0.0)
    return left[:, is_told], sizes[is_told], right[is_told]


def _closest(
    moments: _Moments, point: FloatArray, factor: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gauss-Newton steps to the smallest Q with V held: the point, its residual, and a basis of L⁻¹ J."""

    def whitened(values: FloatArray) -> FloatArray:
        return solve_triangular(factor, values, lower=True)

    residual = moments.residual(point)
    for _ in range(_STEPS):
        basis, sizes, right = _basis(whitened(moments.derivative(point)))
        strain = whitened(residual)
        along = basis.T @ strain
        promised = float(along @ along)
        if promised < _SETTLED:
            break
        step = right.T @ (along / sizes)
        step *= min(1.0, _FARTHEST / np.abs(step).max())
        step = step if moments.is_private else np.append(step, 0.0)
        for halving in range(_HALVINGS):
            trial = point + step / 2**halving
            found = moments.residual(trial)
            if np.square(whitened(found)).sum() < strain @ strain:
                break
        else:
            break
        fall = float(strain @ strain - np.square(whitened(found)).sum())
        point, residual = trial, found
        if fall < _SETTLED:
            break
    return point, residual, basis


def _worst(evidence: Evidence, weights: FloatArray, pull: FloatArray, scale: float) -> tuple[int, float, int]:
    """The measurement that fits worst by its own p-value: its position, that p-value, and of how many it is."""
    seen = np.flatnonzero(evidence.possible)
    owner = np.searchsorted(evidence.offsets, seen, side="right") - 1
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
