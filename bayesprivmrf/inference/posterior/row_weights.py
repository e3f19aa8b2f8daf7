r"""Dirichlet rows in coordinates that suit a sampler, as a PyMC variable.

A row r ~ Dirichlet(α, ..., α) of R cells is written with weights, :math:`r_i = g_i / G` and :math:`G = \sum_i g_i`.
G means nothing, so its law is ours to choose: independent of r, and :math:`G / G_0` is Gamma(κ, κ), of mean one.
Then the density of :math:`z_i = \log(g_i / G_0)` is

.. math:: \log p(z) = \sum_i α z_i + (κ - Rα) \log\frac{G}{G_0} - κ \frac{G}{G_0}
          + κ \log κ - \log Γ(κ) + \log Γ(Rα) - R \log Γ(α).

With κ = Rα the weights are independent Gamma variables: the best one can do where the data say little. Where they
say much, z is pinned to within :math:`σ_i / n_i` (a count n_i known to within σ_i), and so free a G would be the
one long direction among many short ones. Hence

.. math:: κ = Rα + \sum_i (n_i / σ_i)^2,

which leaves G as free as the data leave z. Neither coordinate suits a count that may be zero and may be not: its
logarithm has a long tail, and itself has an edge. The weight of a cell is therefore, in records,

.. math:: g_i = σ_i S(u_i), \qquad S(u) = u Φ(u) + φ(u) = \int_{-\infty}^u Φ,

which is :math:`σ_i u_i` where it is large, and whose derivative is the normal distribution function: a flat density
of g above zero has a Gaussian left tail in u. The sampler moves v = u - shift, of which the release puts every entry
near zero to within about one. None of shift, σ, κ and G_0 changes the law of r, so they may be read off the noisy
tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numba
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key
from scipy.special import gammaln, log_ndtr

from bayesprivmrf.inference.posterior.junction_forest import JunctionForest
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.source_checksum import checksum

__all__ = ["row_weights", "row_weights_data", "softened"]

_LARGEST_SHAPE = 1e10
"""Bound of κ, beyond which κ (log G - G) loses digits."""

_VERSION = checksum(__file__)
"""Checksum of the compiled functions, for the cache on disk."""

_NAMES = ("row_shift", "row_scale", "row_log_scale", "row_shape", "row_total", "row_constant")


def row_weights_data(
    forest: JunctionForest, concentration: float, counts: FloatArray, precisions: FloatArray
) -> dict[str, np.ndarray]:
    """Values of the ``pm.Data`` that `row_weights` declares.

    Parameters
    ----------
    forest
        The junction forest.
    concentration
        α.
    counts
        Rough counts of the possible cells, in the order of ``forest.cells``, records; may be negative.
    precisions
        Information about each of them, one over records squared; 0 where it was not measured.
    """
    if counts.size == 0:
        return {name: np.zeros(0) for name in _NAMES}
    starts, sizes = forest.row_starts[:-1], forest.row_sizes
    positive = np.maximum(counts, 0.0) + concentration
    mean = np.repeat(np.add.reduceat(positive, starts) / sizes, sizes)
    prior_sd = np.maximum(positive, mean) / math.sqrt(max(concentration, 1.0))
    scale = 1 / np.sqrt(precisions + 1 / prior_sd**2)
    ratio = np.clip(np.where(precisions > 0, counts, mean) / scale, -8.0, None)
    # the mean of a normal variable above zero, in units of its scale
    log_soft = np.array([softened(u)[1] for u in ratio])
    expected = np.exp(log_soft - log_ndtr(ratio))
    weights = scale * expected
    shape = concentration * sizes + np.add.reduceat((positive / scale) ** 2, starts)
    shape = np.minimum(shape, _LARGEST_SHAPE)
    total = np.add.reduceat(weights, starts)
    return {
        "row_shift": inverse_softened(np.log(expected)),
        "row_scale": scale,
        "row_log_scale": np.log(scale),
        "row_shape": shape,
        "row_total": total,
        "row_constant": shape * (np.log(shape) - 1) - gammaln(shape),
    }


def row_weights(forest: JunctionForest, concentration: Any, values: Mapping[str, np.ndarray]) -> Any:
    """Declare the rows inside a model, as the variable ``row_positions`` (v).

    Parameters
    ----------
    forest
        The junction forest.
    concentration
        α, scalar variable.
    values
        Values of the ``pm.Data``, by name, from `row_weights_data`.

    Returns
    -------
    TensorVariable
        The weights g, positive, shape (possible cells,), in the order of ``forest.cells``; only their ratios
        within a row matter.
    """
    data = [pm.Data(name, values[name]) for name in _NAMES]
    starts = pt.constant(forest.row_starts)
    row = np.repeat(np.arange(forest.row_sizes.size), forest.row_sizes)
    sizes, log_gamma, log = forest.row_sizes, cast(Any, pt.gammaln), cast(Any, pt.log)
    distinct, of_size = np.unique(sizes, return_counts=True)

    def logp(value: Any, alpha: Any, *given: Any) -> Any:
        outputs: Any = _ROW_WEIGHTS(value, alpha, *given, starts)
        constant = pt.sum(of_size * log_gamma(alpha * distinct)) - row.size * log_gamma(alpha)
        return outputs[1] + constant

    def dist(
        alpha: Any, shift: Any, scale: Any, log_scale: Any, shape: Any, total: Any, constant: Any, size: Any
    ) -> Any:
        # Gamma(a) is Gamma(a + 1) times U^(1/a), of which the logarithm is finite at any a > 0
        lead = () if rv_size_is_none(size) else tuple(size)
        logs = log(pm.Gamma.dist(alpha + 1, 1.0, size=(*lead, row.size)))
        logs = logs - pm.Exponential.dist(1.0, size=(*lead, row.size)) / alpha
        logs = logs - pt.max(logs, axis=-1, keepdims=True)
        sums = pt.inc_subtensor(pt.zeros((*lead, sizes.size))[..., row], pt.exp(logs))
        free = log(pm.Gamma.dist(shape, shape, size=(*lead, sizes.size)) * total / sums)
        return _INVERSE_SOFTENED(logs + free[..., row] - log_scale) - shift

    position = pm.CustomDist(
        "row_positions",
        concentration,
        *data,
        logp=logp,
        dist=dist,
        support_point=lambda rv, size, alpha, shift, *rest: pt.zeros_like(shift),
        signature="(),(c),(c),(c),(r),(r),(r)->(c)",
    )
    outputs: Any = _ROW_WEIGHTS(position, concentration, *data, starts)
    return outputs[0]


@numba.njit(
    error_model="numpy"
)  # far out, a number that is none ends a trajectory; an exception, the sampling
def softened(u: float) -> tuple[float, float, float, float, float]:
    """S(u), log S(u) and its derivative, log Φ(u) and its derivative.

    Far below zero they follow from the continued fraction of Mills' ratio, 1 / (x + 1 / (x + 2 / (x + ...))).
    """
    if u > 7.0:  # Φ is 1 within 1e-12
        return u, math.log(u), 1.0 / u, 0.0, 0.0
    if u > -5.0:
        below = 0.5 * math.erfc(-u / math.sqrt(2.0))
        density = math.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi)
        soft = u * below + density
        return soft, math.log(soft), below / soft, math.log(below), density / below
    x = -u
    tail = x
    for k in range(60, 1, -1):
        tail = x + k / tail
    mills = tail / (x * tail + 1.0)  # Φ / φ
    log_density = -0.5 * u * u - 0.5 * math.log(2.0 * math.pi)
    log_soft = log_density - math.log(x * tail + 1.0)
    return math.exp(log_soft), log_soft, tail, log_density + math.log(mills), 1.0 / mills


@numba.njit(error_model="numpy")
def inverse_softened(log_values: FloatArray) -> FloatArray:
    """The u of which S(u) has the given logarithms, by Newton's method; log S is increasing and concave."""
    result = np.empty_like(log_values)
    for i in range(log_values.size):
        value = log_values.flat[i]
        u = math.exp(min(value, 700.0)) if value > 0.0 else -math.sqrt(-2.0 * value)
        for _ in range(100):
            _, log_soft, slope, _, _ = softened(u)
            step = (value - log_soft) / slope
            u += step
            if abs(step) < 1e-12 * (1.0 + abs(u)):
                break
        result.flat[i] = u
    return result


@numba.njit(error_model="numpy")
def _rows(position, alpha, shift, scale, log_scale, shape, total, constant, row_starts):
    """Weights and log density; their derivatives by v, and that of the density by α, but for Γ(Rα) and Γ(α)."""
    weights, slopes, scores = np.empty_like(position), np.empty_like(position), np.empty_like(position)
    log_density, by_alpha = 0.0, 0.0
    for row in range(len(row_starts) - 1):
        start, stop = row_starts[row], row_starts[row + 1]
        whole, summed = 0.0, 0.0
        for i in range(start, stop):
            soft, log_soft, soft_slope, log_normal, normal_slope = softened(shift[i] + position[i])
            weights[i] = scale[i] * soft
            slopes[i] = weights[i] * soft_slope
            scores[i] = (alpha - 1.0) * soft_slope + normal_slope
            log_density += log_normal - log_soft
            summed += log_soft + log_scale[i]
            whole += weights[i]
        summed -= (stop - start) * math.log(total[row])
        whole /= total[row]
        free = shape[row] - alpha * (stop - start)
        log_density += alpha * summed + free * math.log(whole) - shape[row] * (whole - 1.0) + constant[row]
        by_alpha += summed - (stop - start) * math.log(whole)
        factor = (free / whole - shape[row]) / total[row]
        for i in range(start, stop):
            scores[i] += factor * slopes[i]
    return weights, log_density, slopes, scores, by_alpha


class _RowWeights(Op):
    __props__ = ()

    def make_node(self, *inputs: Any):
        variables = [*(pt.as_tensor(x, dtype="float64") for x in inputs[:-1]), pt.as_tensor(inputs[-1])]
        vector, scalar = variables[0].type, variables[1].type
        return Apply(self, variables, [vector(), scalar(), vector(), vector(), scalar()])

    def perform(self, node, inputs, output_storage):
        position, alpha, *others = inputs
        results = _rows(position, float(alpha), *others)
        for storage, result in zip(output_storage, results, strict=True):
            storage[0] = np.asarray(result)

    def infer_shape(self, node, input_shapes):
        return [input_shapes[0], (), input_shapes[0], input_shapes[0], ()]

    def connection_pattern(self, node):
        return [[k < 2 and o < 2 for o in range(5)] for k in range(9)]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any):
        by_weights, by_density = cotangents[:2]
        by_position: Any = pt.zeros_like(inputs[0])
        by_alpha: Any = pt.zeros_like(inputs[1])
        if not isinstance(by_weights.type, DisconnectedType):
            by_position = by_position + by_weights * outputs[2]
        if not isinstance(by_density.type, DisconnectedType):
            by_position = by_position + by_density * outputs[3]
            by_alpha = by_density * outputs[4]
        return [by_position, by_alpha, *(disconnected_type() for _ in inputs[2:])]


_ROW_WEIGHTS = _RowWeights()


@register_funcify_default_op_cache_key(_RowWeights)
def _compiled_rows(op, node, **kwargs):
    @numba_njit
    def rows(position, alpha, shift, scale, log_scale, shape, total, constant, row_starts):
        weights, log_density, slopes, scores, by_alpha = _rows(
            position, alpha.item(), shift, scale, log_scale, shape, total, constant, row_starts
        )
        return weights, np.asarray(log_density), slopes, scores, np.asarray(by_alpha)

    return rows, _VERSION


class _InverseSoftened(Op):
    __props__ = ()

    def make_node(self, *inputs: Any):
        variable = pt.as_tensor(inputs[0], dtype="float64")
        return Apply(self, [variable], [variable.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inverse_softened(inputs[0])

    def infer_shape(self, node, input_shapes):
        return input_shapes


_INVERSE_SOFTENED: Any = _InverseSoftened()


@register_funcify_default_op_cache_key(_InverseSoftened)
def _compiled_inverse(op, node, **kwargs):
    @numba_njit
    def inverse(log_values):
        return inverse_softened(log_values)

    return inverse, _VERSION
