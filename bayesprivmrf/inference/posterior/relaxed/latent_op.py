"""A posterior's latent numbers and prior as one PyTensor operation, with exact derivatives: see `density`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import generate_fallback_impl, numba_funcify

from bayesprivmrf.inference.posterior.relaxed.density import Density


def declare_latent(density: Density, draw: Callable[..., Any] | None = None) -> dict[str, Any]:
    """Declare the variable ``position`` inside a PyMC model, with its prior; the latent numbers that follow, by name.

    Parameters
    ----------
    density
        The compiled density.
    draw
        Draws positions from their prior, given a generator and a number; None where only the density is known.
    """

    def random(centre: Any, rng: np.random.Generator, size: Any = None) -> Any:
        lead = () if size is None else tuple(size)
        return draw(rng, math.prod(lead)).reshape(*lead, density.size) if draw else None

    operation: Any = _Latent(density)
    position = pm.CustomDist(
        "position",
        np.zeros(density.size),
        logp=lambda value, centre: operation(value)[1],
        random=random if draw else None,
        support_point=lambda rv, size, centre: centre,
        signature="(d)->(d)",
    )
    latent = operation(position)[0]
    return {
        name: latent[density.places[name]].reshape(shape, ndim=len(shape))
        for name, shape in density.shapes.items()
    }


class _Latent(Op):
    """Position → latent numbers and the log prior density of the position."""

    __props__ = ("density",)

    def __init__(self, density: Density) -> None:
        self.density = density

    def make_node(self, *inputs: Any) -> Apply:
        latent = pt.TensorType("float64", shape=(self.density.latent_size,))
        return Apply(self, [pt.as_tensor_variable(inputs[0], dtype="float64")], [latent(), pt.dscalar()])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        latent, prior = self.density.forward(np.ascontiguousarray(inputs[0]))
        output_storage[0][0], output_storage[1][0] = latent, np.asarray(prior)

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        given = [
            pt.zeros_like(value) if isinstance(by.type, DisconnectedType) else by
            for value, by in zip(outputs, cotangents, strict=True)
        ]
        return [_LatentPullback(self.density)(inputs[0], *given)]


class _LatentPullback(Op):
    """Position, and derivatives by the outputs of `_Latent` → derivative by the position."""

    __props__ = ("density",)

    def __init__(self, density: Density) -> None:
        self.density = density

    def make_node(self, *inputs: Any) -> Apply:
        variables = [pt.as_tensor_variable(value) for value in inputs]
        return Apply(self, variables, [pt.TensorType("float64", shape=(self.density.size,))()])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        position, by_latent = (np.ascontiguousarray(value) for value in inputs[:2])
        output_storage[0][0] = self.density.pullback(position, by_latent, float(inputs[2]))


@numba_funcify.register(_Latent)
@numba_funcify.register(_LatentPullback)
def _through_python(op: Op, node: Apply | None = None, **settings: Any) -> Any:
    """The call is Python's, what it calls is compiled already; so nobody need be warned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return generate_fallback_impl(op, node, **settings)
