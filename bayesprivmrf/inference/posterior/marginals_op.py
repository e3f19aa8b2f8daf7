"""The marginals of a log-linear model as a PyTensor operation, with exact gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

from bayesprivmrf.inference.posterior import effects_engine, effects_symbols
from bayesprivmrf.inference.posterior.effects_engine import Plan
from bayesprivmrf.source_checksum import checksum

__all__ = ["Moments", "marginal_moments"]


_VERSION = checksum(__file__, str(effects_symbols.__file__), start=effects_engine.CHECKSUM)
"""Checksum of all sources of the compiled functions, for the cache on disk."""


class Moments(NamedTuple):
    """What `marginal_moments` gives, symbolically."""

    marginals: Any
    log_partition: Any
    mean: Any
    square: Any


def marginal_moments(plan: Plan, beta: Any) -> Moments:
    """Marginals μ (cells,), A (), E t (d,) and E t² (d,) at the coordinates β (d,); see `effects_engine`.

    Parameters
    ----------
    plan
        The model.
    beta
        Symbolic vector, shape (d,), nats.
    """
    point = pt.as_tensor_variable(beta, dtype="float64")
    outputs: Any = _EVALUATE(point, pt.constant(effects_symbols.pack(plan.tape)))
    return Moments(*outputs[:4])


class _Evaluate(Op):
    """(β, packed plan) → (μ, A, E t, E t², state)."""

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        beta, packed = inputs
        if not hasattr(packed, "data"):
            raise TypeError("the plan must be a constant: its arrays' lengths are the operation's shapes")
        sizes = packed.data[packed.data[4] :]
        state = int(sizes[4] + sizes[0] + sizes[1] + sizes[2] + 1)
        shapes = (int(sizes[1]),), (), beta.type.shape, beta.type.shape, (state,)
        return Apply(self, [beta, packed], [pt.TensorType("float64", shape=shape)() for shape in shapes])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        beta, packed = inputs
        results = effects_engine.evaluate(np.ascontiguousarray(beta), *effects_symbols.unpack(packed))
        for cell, value in zip(output_storage, results, strict=True):
            cell[0] = np.asarray(value)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        cells, state = (tuple(map(pt.constant, node.outputs[k].type.shape)) for k in (0, 4))
        return [cells, (), shapes[0], shapes[0], state]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[True] * 4 + [False], [False] * 5]

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        grads = [
            pt.zeros_like(value) if isinstance(grad.type, DisconnectedType) else grad
            for value, grad in zip(outputs[:4], cotangents[:4], strict=True)
        ]
        return [_PULL_BACK(outputs[4], *grads, inputs[1]), disconnected_type()]


class _PullBack(Op):
    """(state, derivatives by μ, A, E t and E t², packed plan) → derivative by β."""

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        variables = [pt.as_tensor_variable(value) for value in inputs]
        return Apply(self, variables, [pt.TensorType("float64", shape=variables[3].type.shape)()])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        state, by_mu, by_log_partition, by_mean, by_square = (
            np.ascontiguousarray(value) for value in inputs[:5]
        )
        output_storage[0][0] = effects_engine.pull_back(
            state, by_mu, by_log_partition.item(), by_mean, by_square, *effects_symbols.unpack(inputs[5])
        )

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        return [shapes[3]]


_EVALUATE, _PULL_BACK = _Evaluate(), _PullBack()


@register_funcify_default_op_cache_key(_Evaluate)
def _evaluate_in_numba(op: _Evaluate, node: Apply, **_: Any) -> Any:
    symbol = effects_symbols.evaluate_symbol

    @numba_njit
    def evaluate(beta, packed):
        point, first = np.ascontiguousarray(beta), packed[4]
        steps, cells = packed[first], packed[first + 1]
        mu, log_partition = np.empty(cells), np.empty(())
        mean, square = np.empty(point.size), np.empty(point.size)
        state = np.empty(packed[first + 4] + steps + cells + packed[first + 2] + 1)
        addresses = np.array(
            [
                point.ctypes.data, mu.ctypes.data, log_partition.ctypes.data, mean.ctypes.data,
                square.ctypes.data, state.ctypes.data, packed.ctypes.data,
            ],
            dtype=np.int64,
        )  # fmt: skip
        symbol(addresses.ctypes.data)
        _keep(point, addresses)
        return mu, log_partition, mean, square, state

    return evaluate, _VERSION


@register_funcify_default_op_cache_key(_PullBack)
def _pull_back_in_numba(op: _PullBack, node: Apply, **_: Any) -> Any:
    symbol = effects_symbols.pull_back_symbol

    @numba_njit
    def pull_back(state, by_mu, by_log_partition, by_mean, by_square, packed):
        given, one = np.ascontiguousarray(state), np.ascontiguousarray(by_mu)
        two = np.full(1, by_log_partition.item())
        three, four = np.ascontiguousarray(by_mean), np.ascontiguousarray(by_square)
        result = np.empty(three.size)
        addresses = np.array(
            [
                given.ctypes.data, one.ctypes.data, two.ctypes.data, three.ctypes.data, four.ctypes.data,
                result.ctypes.data, packed.ctypes.data,
            ],
            dtype=np.int64,
        )  # fmt: skip
        symbol(addresses.ctypes.data)
        _keep(given, addresses)
        _keep(one, two)
        _keep(three, four)
        return result

    return pull_back, _VERSION


@numba_njit
def _keep(array, other):
    """Hold two arrays until here: compiled code frees what it no longer names, and an address names nothing."""
    return array.size + other.size
