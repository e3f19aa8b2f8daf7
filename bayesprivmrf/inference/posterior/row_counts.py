r"""Latent counts of a junction forest's rows as a smooth function of Gamma variables, for PyMC.

A row of R cells whose total is M and whose probabilities are Dirichlet(α a cell) has, once the probabilities are
integrated out, Dirichlet-multinomial counts n of mean and variance

.. math:: E[n_i] = \frac{M}{R}, \qquad
          \operatorname{var}(n_i) = \frac{R - 1}{R^2} \frac{M (M + Rα)}{1 + Rα}.

A point r of the simplex that is Dirichlet(α) has mean 1/R and variance :math:`(R - 1) / (R^2 (1 + Rα))`, so that

.. math:: n = \frac{M}{R} + \sqrt{M (M + Rα)}\,\Bigl(r - \frac{1}{R}\Bigr)

has the exact sum, means, variances and covariances of the counts at every M ≥ 0 and every α. As the parameters
given the counts are Dirichlet(α + n), which is linear in n, their prior means and variances are exact as well.
For
α = 1 and large M it is the continuity correction that gives each whole number the half to either side.

r is :math:`g / \sum g` with independent g ~ Gamma(α, 1), so a row's own sum is a free direction that changes
nothing, and the prior needs no further term.

The total of a row below another is a sum of relaxed counts and may be negative, at worst by α/2 a cell summed.
There the true total is zero, and the row goes to zero smoothly. With c = Rα/2 and δ = min(0.17, c/2) records,

.. math:: n = \frac{M^*}{R} + \sqrt{V}\,\Bigl(r - \frac{1}{R}\Bigr), \qquad
          \begin{cases} M^* = M, & V = M (M + 2c) + c δ e^{-M/δ} & M ≥ 0 \\
          M^* = c\,(e^{M/c} - 1), & V = c δ e^{M/δ} & M < 0, \end{cases}

which is continuous with its derivative, adds to the variance of a cell less than 0.05 records squared,
close to M = 0 only, and has :math:`\sqrt{V} < M^* + c`, so that every :math:`n_i > -α/2` and
Dirichlet(α + n) always exists.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

from bayesprivmrf.inference.posterior.junction_forest import JunctionForest
from bayesprivmrf.source_checksum import checksum

__all__ = ["row_counts"]

_SOFTNESS = 0.17
"""Records: how softly a row's spread goes to zero with its total."""

_VERSION = checksum(__file__)
"""Checksum of the compiled functions, for the cache on disk."""


def row_counts(forest: JunctionForest, weights: Any, total: Any, concentration: Any) -> Any:
    """Latent counts of a forest's possible cells, as a PyTensor vector with an exact gradient.

    Parameters
    ----------
    forest
        The junction forest; its index arrays are constants of the graph.
    weights
        Gamma variables g, one for each possible cell in the order of ``forest.cells``.
    total
        Number of records N, scalar.
    concentration
        α, scalar.

    Returns
    -------
    TensorVariable
        n, records, shape (possible cells,), in the order of ``forest.cells``.
    """
    indices = [
        pt.constant(np.ascontiguousarray(index, dtype=np.int64))
        for index in (forest.row_starts, forest.source_starts, forest.sources)
    ]
    return _ROW_COUNTS(weights, total, concentration, *indices)


@numba.njit(
    error_model="numpy"
)  # far out, a number that is none ends a trajectory; an exception, the sampling
def _spread(margin, mass):
    """√ of the row's spread, and its derivatives by the margin and by the mass Rα."""
    softness = min(_SOFTNESS, 0.25 * mass)
    tail = 0.5 * mass * softness * math.exp(-abs(margin) / softness)
    # the softness itself moves with the mass where that is small
    tail_by_mass = 0.5 * softness * math.exp(-abs(margin) / softness)
    if 0.25 * mass < _SOFTNESS:
        tail_by_mass += 0.25 * tail / softness * (1.0 + abs(margin) / softness)
    if margin >= 0.0:
        square, by_margin, by_mass = margin * (margin + mass) + tail, 2 * margin + mass, margin
        by_margin -= tail / softness
    else:
        square, by_margin, by_mass = tail, tail / softness, 0.0
    value = math.sqrt(square)
    if value < 1e-100:
        return value, 0.0, 0.0
    return value, 0.5 * by_margin / value, 0.5 * (by_mass + tail_by_mass) / value


@numba.njit(error_model="numpy")
def _bent(margin, mass):
    """The margin, bent above -Rα/2 where it is negative, and its derivatives by the margin and by the mass Rα."""
    if margin >= 0.0:
        return margin, 1.0, 0.0
    bound = 0.5 * mass
    power = math.exp(margin / bound)
    return bound * (power - 1.0), power, 0.5 * (power - 1.0 - power * margin / bound)


@numba.njit(error_model="numpy")
def _forward(weights, total, alpha, row_starts, source_starts, sources):
    counts = np.empty_like(weights)
    for row in range(len(row_starts) - 1):
        start, stop = row_starts[row], row_starts[row + 1]
        size = stop - start
        first, last = source_starts[row], source_starts[row + 1]
        margin = total if first == last else 0.0
        for k in range(first, last):
            margin += counts[sources[k]]
        whole = 0.0
        for i in range(start, stop):
            whole += weights[i]
        mean = _bent(margin, size * alpha)[0] / size
        spread = _spread(margin, size * alpha)[0]
        for i in range(start, stop):
            counts[i] = mean + spread * (weights[i] / whole - 1.0 / size)
    return counts


@numba.njit(error_model="numpy")
def _backward(weights, total, alpha, row_starts, source_starts, sources, counts, upstream):
    """Vector-Jacobian product: derivatives by the weights, the total and α, of ``upstream @ counts``."""
    flow = upstream.copy()
    by_weights = np.zeros_like(weights)
    by_total, by_alpha = 0.0, 0.0
    for row in range(len(row_starts) - 2, -1, -1):
        start, stop = row_starts[row], row_starts[row + 1]
        size = stop - start
        first, last = source_starts[row], source_starts[row + 1]
        margin = total if first == last else 0.0
        for k in range(first, last):
            margin += counts[sources[k]]
        whole, summed, inner = 0.0, 0.0, 0.0
        for i in range(start, stop):
            whole += weights[i]
            summed += flow[i]
            inner += flow[i] * weights[i]
        inner /= whole
        spread, spread_by_margin, spread_by_mass = _spread(margin, size * alpha)
        _, bent_by_margin, bent_by_mass = _bent(margin, size * alpha)
        for i in range(start, stop):
            by_weights[i] = spread * (flow[i] - inner) / whole
        tilt = inner - summed / size
        by_margin = summed / size * bent_by_margin + tilt * spread_by_margin
        by_alpha += (summed / size * bent_by_mass + tilt * spread_by_mass) * size
        if first == last:
            by_total += by_margin
        for k in range(first, last):
            flow[sources[k]] += by_margin
    return by_weights, by_total, by_alpha


class _RowCounts(Op):
    __props__ = ()

    def make_node(self, *inputs: Any):
        variables = [pt.as_tensor(x, dtype="float64") for x in inputs[:3]]
        return Apply(self, [*variables, *map(pt.as_tensor, inputs[3:])], [variables[0].type()])

    def perform(self, node, inputs, output_storage):
        weights, total, alpha, *indices = inputs
        output_storage[0][0] = _forward(weights, float(total), float(alpha), *indices)

    def infer_shape(self, node, input_shapes):
        return [input_shapes[0]]

    def connection_pattern(self, node):
        return [[True], [True], [True], [False], [False], [False]]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any):
        derivatives: Any = _ROW_COUNTS_PULLBACK(*inputs, outputs[0], cotangents[0])
        return [*derivatives, *(disconnected_type() for _ in inputs[3:])]


class _RowCountsPullback(Op):
    __props__ = ()

    def make_node(self, *inputs: Any):
        variables = [pt.as_tensor(x) for x in inputs]
        return Apply(self, variables, [variable.type() for variable in variables[:3]])

    def perform(self, node, inputs, output_storage):
        weights, total, alpha, *others = inputs
        results = _backward(weights, float(total), float(alpha), *others)
        for storage, result in zip(output_storage, results, strict=True):
            storage[0] = np.asarray(result)

    def infer_shape(self, node, input_shapes):
        return input_shapes[:3]


_ROW_COUNTS = _RowCounts()
_ROW_COUNTS_PULLBACK = _RowCountsPullback()


@register_funcify_default_op_cache_key(_RowCounts)
def _compiled_counts(op, node, **kwargs):
    @numba_njit
    def counts(weights, total, alpha, row_starts, source_starts, sources):
        return _forward(weights, total.item(), alpha.item(), row_starts, source_starts, sources)

    return counts, _VERSION


@register_funcify_default_op_cache_key(_RowCountsPullback)
def _compiled_pullback(op, node, **kwargs):
    @numba_njit
    def pullback(weights, total, alpha, row_starts, source_starts, sources, counts, upstream):
        by_weights, by_total, by_alpha = _backward(
            weights, total.item(), alpha.item(), row_starts, source_starts, sources, counts, upstream
        )
        return by_weights, np.asarray(by_total), np.asarray(by_alpha)

    return pullback, _VERSION
