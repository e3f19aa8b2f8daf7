"""The marginals of a log-linear model as a PyTensor operation, with exact gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import shared
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

from bayesprivmrf.inference.posterior import effects_engine, effects_symbols
from bayesprivmrf.inference.posterior.effects_engine import Plan
from bayesprivmrf.inference.posterior.sources import checksum

__all__ = ["Moments", "marginal_moments"]


_VERSION = checksum(__file__, str(effects_symbols.__file__), start=effects_engine.CHECKSUM)
"""Of everything that the compiled functions are made of, for the cache on disk."""


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
    outputs: Any = _EVALUATE(point, *_shared(plan))
    mu, log_partition, mean, square, _ = outputs
    return Moments(mu, log_partition, mean, square)


def _shared(plan: Plan) -> list[Any]:
    """The plan's arrays as shared variables: given at run time, so that one compiled operation serves all models."""
    return [shared(np.array(array), shape=array.shape) for array in plan.tape]


class _Evaluate(Op):
    """(β, tape) → (μ, A, E t, E t², state)."""

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        beta = inputs[0]
        cells, size = inputs[8].type.shape[0], beta.type.shape[0]
        cells = None if cells is None else cells - 1
        outputs = [pt.TensorType("float64", shape=(n,))() for n in (cells, size, size, None)]
        outputs.insert(1, pt.TensorType("float64", shape=())())
        return Apply(self, list(inputs), outputs)

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        results = effects_engine.evaluate(*(np.ascontiguousarray(value) for value in inputs))
        for cell, value in zip(output_storage, results, strict=True):
            cell[0] = np.asarray(value)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        size, sizes = shapes[0], cast("Any", node.inputs[5])
        state = sizes[4] + sizes[0] + sizes[1] + sizes[2] + 1
        return [(shapes[8][0] - 1,), (), size, size, (state,)]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[True] * 4 + [False]] + [[False] * 5] * (len(node.inputs) - 1)

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        grads = [
            pt.zeros_like(value) if isinstance(grad.type, DisconnectedType) else grad
            for value, grad in zip(outputs[:4], cotangents[:4], strict=True)
        ]
        by_beta = _PULL_BACK(outputs[4], *grads, *inputs[1:])
        return [by_beta] + [DisconnectedType()() for _ in inputs[1:]]


class _PullBack(Op):
    """(state, derivatives by μ, A, E t and E t², tape) → derivative by β."""

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        variables = [pt.as_tensor_variable(value) for value in inputs]
        return Apply(self, variables, [pt.TensorType("float64", shape=(variables[3].type.shape[0],))()])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        arrays = [np.ascontiguousarray(value) for value in inputs]
        arrays[2] = float(inputs[2])  # type: ignore[assignment]
        output_storage[0][0] = effects_engine.pull_back(*arrays)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        return [shapes[3]]


_EVALUATE, _PULL_BACK = _Evaluate(), _PullBack()


@register_funcify_default_op_cache_key(_Evaluate)
def _evaluate_in_numba(op: _Evaluate, node: Apply, **_: Any) -> Any:
    symbol = effects_symbols.evaluate_symbol

    @numba_njit
    def evaluate(beta, code, maps, bounds, constants, sizes, rooms, support, blocked, rows, columns, entries):
        point = np.ascontiguousarray(beta)
        mu, log_partition = np.empty(sizes[1]), np.empty(())
        mean, square = np.empty(point.size), np.empty(point.size)
        state = np.empty(sizes[4] + sizes[0] + sizes[1] + sizes[2] + 1)
        addresses = np.array(
            [
                point.ctypes.data, mu.ctypes.data, log_partition.ctypes.data, mean.ctypes.data,
                square.ctypes.data, state.ctypes.data, code.ctypes.data, maps.ctypes.data,
                bounds.ctypes.data, constants.ctypes.data, sizes.ctypes.data, rooms.ctypes.data,
                support.ctypes.data, blocked.ctypes.data, rows.ctypes.data, columns.ctypes.data,
                entries.ctypes.data,
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
    def pull_back(
        state, by_mu, by_log_partition, by_mean, by_square,
        code, maps, bounds, constants, sizes, rooms, support, blocked, rows, columns, entries,
    ):  # fmt: skip
        given, one, two = (
            np.ascontiguousarray(state),
            np.ascontiguousarray(by_mu),
            np.array(by_log_partition[()]),
        )
        three, four = np.ascontiguousarray(by_mean), np.ascontiguousarray(by_square)
        result = np.empty(three.size)
        addresses = np.array(
            [
                given.ctypes.data, one.ctypes.data, two.ctypes.data, three.ctypes.data, four.ctypes.data,
                result.ctypes.data, code.ctypes.data, maps.ctypes.data, bounds.ctypes.data,
                constants.ctypes.data, sizes.ctypes.data, rooms.ctypes.data, support.ctypes.data,
                blocked.ctypes.data, rows.ctypes.data, columns.ctypes.data, entries.ctypes.data,
            ],
            dtype=np.int64,
        )  # fmt: skip
        symbol(addresses.ctypes.data)
        _keep(given, addresses)
        _keep(one, addresses)
        _keep(two, addresses)
        _keep(three, addresses)
        _keep(four, addresses)
        return result

    return pull_back, _VERSION


@numba_njit
def _keep(array, other):
    """Hold two arrays until here: compiled code frees what it no longer names, and an address names nothing."""
    return array.size + other.size
