"""Relaxed counts inside a PyMC model: the compiled density as one operation, and counts as labeled tables."""

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

from bayesprivmrf.inference.posterior.measured import dimension_names, state_labels, table_name
from bayesprivmrf.inference.posterior.relaxed.density import Density
from bayesprivmrf.model import ModelSpecification


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


def declare_tables(model: ModelSpecification, flat: Any) -> None:
    """Add ``counts[a,b]`` for every clique to the model in whose context this is called.

    Parameters
    ----------
    model
        The declared model; its variables become dims, its states coords. A name that the PyMC model already has gets
        an underscore.
    flat
        Symbolic counts of all cliques' cells, shape (size,).
    """
    context: Any = pm.modelcontext(None)
    names: Sequence[str] = _free_names(dimension_names(model.domain), set(context.named_vars))
    for position, name in enumerate(names):
        context.add_coord(name, state_labels(model.domain, position))
    for clique, scope in enumerate(model.scopes):
        table = flat[model.offsets[clique] : model.offsets[clique + 1]].reshape(model.shapes[clique])
        pm.Deterministic(table_name("counts", names, scope), table, dims=tuple(names[v] for v in scope))


def _free_names(names: Sequence[str], taken: set[str]) -> list[str]:
    free = list(names)
    for position, name in enumerate(names):
        while name in taken or name in free[:position] or name in free[position + 1 :]:
            name += "_"
        free[position] = name
    return free
