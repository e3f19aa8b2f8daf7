r"""From whitened positions to latent coordinates, scales and total, with the log-density of all, as one operation.

The formulas are those of `whitening` and `latent_prior`; here they stand with their derivatives, since a graph of
them takes PyTensor half a minute to compile. With z and v the positions of the coordinates and of log τ,

.. math:: \log τ = \log \hat τ + R v, \qquad r_k = \exp \sum_g s_{kg} \log\frac{\hat τ_g^2 + c_g}{τ_g^2 + c_g}, \qquad
          x = B \Bigl[\frac{(λ + 1) \hat u}{λ + r} + \frac{z}{\sqrt{λ + r}}\Bigr],

θ' is x, less its last entry ξ where N is private: :math:`\log N = l + (h - l)\, \operatorname{logistic}(c + ξ)`. The
log-density is that of (z, v) under the prior of (θ', τ, N), less the standard normal density of both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

from bayesprivmrf.inference.posterior.latent_prior import LatentPrior
from bayesprivmrf.source_checksum import checksum

__all__ = ["Stretched", "constants", "stretched"]

_VERSION = checksum(__file__)
"""Checksum of the compiled functions, for the cache on disk."""


class Stretched(NamedTuple):
    """What `stretched` gives, symbolically."""

    coordinates: Any
    log_scale: Any
    log_total: Any
    log_density: Any


def constants(latent: LatentPrior) -> tuple[np.ndarray, ...]:
    """What the operation needs of the model alone: see `_forward`."""
    prior = latent.effects_prior
    count = len(prior.orders)
    sizes = np.maximum(np.bincount(prior.levels, minlength=count), 1)
    means = np.bincount(prior.levels, weights=latent.sampling_variance, minlength=count) / sizes
    return (
        prior.levels.astype(np.int64),
        latent.sampling_variance,
        means,
        prior.expected_log_scales,
        np.linalg.inv(latent.scale_covariance),
        np.array(latent.excess),
    )


def stretched(position: Any, scale_position: Any, given: Mapping[str, Any], latent: LatentPrior) -> Stretched:
    """Coordinates θ', log τ and log N at a position, and the log-density described above.

    Parameters
    ----------
    position, scale_position
        z, shape (D,), D being d and one more where N is private; v, shape (orders,), or (0,) where τ is fixed.
    given
        ``whitening_basis``, ``whitening_information``, ``whitening_shares``, ``whitening_mode``, ``log_scale_root``,
        ``preliminary_log_scale``; and ``log_total``: the preliminary log N, which is N itself where it is public, and
        the low and high end and the centre c of a private one, shape (4,).
    latent
        The prior.
    """
    names = (
        "whitening_basis",
        "whitening_information",
        "whitening_shares",
        "whitening_mode",
        "log_scale_root",
    )
    numbers = [given[name] for name in (*names, "preliminary_log_scale", "log_total")]
    outputs: Any = _STRETCH(position, scale_position, *numbers, *map(pt.constant, constants(latent)))
    return Stretched(*outputs)


@numba.njit(nogil=True, error_model="numpy")
def _scales(scale_position, root, scale, total, means, shares, information):
    """Log τ, the precisions λ + r, and r."""
    log_scale = scale.copy()
    if scale_position.size:
        log_scale += root @ scale_position
    relative = np.zeros(information.size)
    for g in range(scale.size):
        scatter = means[g] * math.exp(-total[0])
        change = math.log(math.exp(2 * scale[g]) + scatter) - math.log(math.exp(2 * log_scale[g]) + scatter)
        relative += shares[:, g] * change
    relative = np.exp(relative)
    return log_scale, information + relative, relative


@numba.njit(nogil=True, error_model="numpy")
def _forward(
    position, scale_position, basis, information, shares, mode, root, scale, total,
    levels, variance, means, expected, hyper, excess,
):  # fmt: skip
    log_scale, precision, _ = _scales(scale_position, root, scale, total, means, shares, information)
    own = mode * (information + 1.0) / precision + position / np.sqrt(precision)
    moved = basis @ own if basis.shape[1] == own.size else basis[:, 0] * own
    size = levels.size
    density = -0.5 * np.sum(np.log(precision)) + 0.5 * np.sum(position * position)
    log_total = total[0]
    if moved.size > size:
        place = total[3] + moved[size]
        share = 1.0 / (1.0 + math.exp(-place)) if place > 0 else math.exp(place) / (1.0 + math.exp(place))
        log_total = total[1] + (total[2] - total[1]) * share
        density -= abs(place) + 2.0 * math.log1p(math.exp(-abs(place)))
    inverse = math.exp(-log_total)
    factor = 1.0 + excess * inverse
    squares = np.exp(2.0 * log_scale)
    for i in range(size):
        spread = squares[levels[i]] + inverse * variance[i]
        ratio = factor * moved[i]
        density -= 0.5 * (math.log(spread) + ratio * ratio / spread)
    density += size * math.log(factor)
    if scale_position.size:
        gap = log_scale - expected
        density += 0.5 * (np.sum(scale_position * scale_position) - np.sum(gap * (hyper @ gap)))
    return moved[:size].copy(), log_scale, np.array(log_total), np.array(density)


@numba.njit(nogil=True, error_model="numpy")
def _backward(
    by_coordinates, by_log_scale, by_log_total, by_density, coordinates, log_total,
    position, scale_position, basis, information, shares, mode, root, scale, total,
    levels, variance, means, expected, hyper, excess,
):  # fmt: skip
    log_scale, precision, relative = _scales(scale_position, root, scale, total, means, shares, information)
    size, inverse = levels.size, math.exp(-log_total)
    factor = 1.0 + excess * inverse
    by_moved, by_scale = np.zeros(position.size), by_log_scale.copy()
    by_inverse, by_factor, squares = 0.0, by_density * size / factor, np.exp(2.0 * log_scale)
    for i in range(size):
        square = squares[levels[i]]
        spread = square + inverse * variance[i]
        pull = factor * coordinates[i] / spread
        by_moved[i] = by_coordinates[i] - by_density * factor * pull
        by_spread = by_density * 0.5 * (pull * pull - 1.0 / spread)
        by_scale[levels[i]] += 2.0 * square * by_spread
        by_inverse += variance[i] * by_spread
        by_factor -= by_density * pull * coordinates[i]
    if position.size > size:
        width = total[2] - total[1]
        share = (log_total - total[1]) / width
        slope = by_log_total - inverse * (by_inverse + excess * by_factor)
        by_moved[size] = slope * width * share * (1.0 - share) + by_density * (1.0 - 2.0 * share)
    by_own = basis.T @ by_moved if basis.shape[1] == position.size else basis[:, 0] * by_moved
    by_precision = -by_own * (mode * (information + 1.0) / precision + 0.5 * position / np.sqrt(precision))
    by_relative = relative * (by_precision - 0.5 * by_density) / precision
    for g in range(scale.size):
        square = squares[g]
        change = np.sum(shares[:, g] * by_relative)
        by_scale[g] -= change * 2.0 * square / (square + means[g] * math.exp(-total[0]))
    by_position = by_own / np.sqrt(precision) + by_density * position
    if not scale_position.size:
        return by_position, np.zeros(0)
    by_scale -= by_density * (hyper @ (log_scale - expected))
    return by_position, root.T @ by_scale + by_density * scale_position


class _Stretch(Op):
    """(z, v, numbers, constants) → (θ', log τ, log N, log-density)."""

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        variables = [pt.as_tensor_variable(given) for given in inputs]
        size, count = variables[9].type.shape[0], variables[12].type.shape[0]
        outputs = [pt.TensorType("float64", shape=shape)() for shape in ((size,), (count,), (), ())]
        return Apply(self, variables, outputs)

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        given: Any = [*map(np.ascontiguousarray, inputs[:-1]), float(inputs[-1])]
        results = _forward(*given)
        for cell, value in zip(output_storage, results, strict=True):
            cell[0] = value

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        return [shapes[9], shapes[12], (), ()]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[True] * 4] * 2 + [[False] * 4] * (len(node.inputs) - 2)

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        given = [
            pt.zeros_like(value) if isinstance(by.type, DisconnectedType) else by
            for value, by in zip(outputs, cotangents, strict=True)
        ]
        both: Any = _STRETCH_BACK(*given, outputs[0], outputs[2], *inputs)
        return [*both, *(disconnected_type() for _ in inputs[2:])]


class _StretchBack(Op):
    """(derivatives by the outputs, θ', log N, inputs) → derivatives by z and v."""

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        variables = [pt.as_tensor_variable(given) for given in inputs]
        shapes = [variables[k].type.shape for k in (6, 7)]
        return Apply(self, variables, [pt.TensorType("float64", shape=shape)() for shape in shapes])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        values: list[Any] = [np.ascontiguousarray(value) for value in inputs]
        for k in (2, 3, 5, len(values) - 1):
            values[k] = float(inputs[k])
        for cell, value in zip(output_storage, _backward(*values), strict=True):
            cell[0] = value

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        return [shapes[6], shapes[7]]


_STRETCH, _STRETCH_BACK = _Stretch(), _StretchBack()


@register_funcify_default_op_cache_key(_Stretch)
def _forward_in_numba(op: _Stretch, node: Apply, **_: Any) -> Any:
    @numba_njit
    def forward(
        position, scale_position, basis, information, shares, mode, root, scale, total,
        levels, variance, means, expected, hyper, excess,
    ):  # fmt: skip
        return _forward(
            np.ascontiguousarray(position), np.ascontiguousarray(scale_position), basis, information, shares, mode,
            root, scale, total, levels, variance, means, expected, hyper, excess.item(),
        )  # fmt: skip

    return forward, _VERSION


@register_funcify_default_op_cache_key(_StretchBack)
def _backward_in_numba(op: _StretchBack, node: Apply, **_: Any) -> Any:
    @numba_njit
    def backward(
        by_coordinates, by_log_scale, by_log_total, by_density, coordinates, log_total,
        position, scale_position, basis, information, shares, mode, root, scale, total,
        levels, variance, means, expected, hyper, excess,
    ):  # fmt: skip
        return _backward(
            by_coordinates, by_log_scale, by_log_total.item(), by_density.item(), coordinates, log_total.item(),
            np.ascontiguousarray(position), np.ascontiguousarray(scale_position), basis, information, shares, mode,
            root, scale, total, levels, variance, means, expected, hyper, excess.item(),
        )  # fmt: skip

    return backward, _VERSION
