"""PyMC model of a compiled density: one operation of PyTensor, and the counts as labeled tables.

The module is imported when a model is asked for, because PyMC takes long to import and nutpie samples without it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import generate_fallback_impl, numba_funcify

from bayesprivmrf.inference.posterior.noisy_tables import dimension_names, state_labels, table_name
from bayesprivmrf.inference.posterior.relaxed_counts.density import (
    Density,
    NoiseData,
    observe_noisy_counts,
)
from bayesprivmrf.model import ModelSpecification


def density_model(
    density: Density,
    *,
    latent: Sequence[str],
    noise: NoiseData,
    cells: np.ndarray,
    specification: ModelSpecification,
) -> pm.Model:
    """Return the PyMC model of a density; `RelaxedCounts.model` lists its variables.

    Parameters
    ----------
    density
        Compiled density of all sampled numbers.
    latent
        Names of the groups of latent numbers that become variables; one of them is ``counts``.
    noise
        The noisy numbers and their noise.
    cells
        Positions of the possible cells among the cells of all cliques, in the order of ``counts``.
    specification
        Declared model, whose variables and states label the tables.
    """
    # its own model, also inside the context of another
    with pm.Model(model=None) as model:
        operation: Any = _Compiled(density)
        position = pm.CustomDist(
            "position",
            np.zeros(density.size),
            logp=lambda value, center: operation(value)[1],
            support_point=lambda rv, size, center: center,
            signature="(d)->(d)",
        )
        numbers = operation(position)[0]
        for name in latent:
            shape = density.shapes[name]
            pm.Deterministic(name, numbers[density.places[name]].reshape(shape, ndim=len(shape)))
        observe_noisy_counts(noise, model["counts"])
        flat = pt.zeros(specification.size)[cells].set(model["counts"])
        declare_tables(specification, flat)
    return model


class _Compiled(Op):
    """Operation that maps a position to the latent numbers and the log prior density.

    Backward it maps the position and derivatives by both to the derivative by the position.
    """

    __props__ = ("density", "is_backward")

    def __init__(self, density: Density, *, is_backward: bool = False) -> None:
        self.density = density
        self.is_backward = is_backward

    def make_node(self, *inputs: Any) -> Apply:
        variables = [pt.as_tensor_variable(value, dtype="float64") for value in inputs]
        return Apply(
            self, variables, [pt.dvector()] if self.is_backward else [pt.dvector(), pt.dscalar()]
        )

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        if self.is_backward:
            output_storage[0][0] = self.density.pullback(*inputs)
        else:
            latent, prior = self.density.forward(inputs[0])
            output_storage[0][0], output_storage[1][0] = latent, np.asarray(prior)

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        given = [
            pt.zeros_like(value) if isinstance(by.type, DisconnectedType) else by
            for value, by in zip(outputs, cotangents, strict=True)
        ]
        return [_Compiled(self.density, is_backward=True)(inputs[0], *given)]


def through_python(op: Op, node: Apply | None = None, **settings: Any) -> Any:
    """Register the operation with numba as Python calls, without its warning: the density is compiled already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return generate_fallback_impl(op, node, **settings)


numba_funcify.register(_Compiled)(through_python)


def declare_tables(model: ModelSpecification, flat: Any) -> None:
    """Add a table ``counts[a,b]`` for every clique to the PyMC model of the current context.

    Parameters
    ----------
    model
        Declared model; its variables become dims and its states coords. A name that is in use gets an underscore.
    flat
        Symbolic counts of the cells of all cliques, shape (size,).
    """
    context: Any = pm.modelcontext(None)
    names = list(dimension_names(model.domain))
    for position, name in enumerate(names):
        others = {*context.named_vars, *names[:position], *names[position + 1 :]}
        while name in others:
            name += "_"
        names[position] = name
        context.add_coord(name, state_labels(model.domain, position))
    for clique, scope in enumerate(model.scopes):
        table = flat[model.offsets[clique] : model.offsets[clique + 1]].reshape(
            model.shapes[clique]
        )
        pm.Deterministic(
            table_name("counts", names, scope), table, dims=tuple(names[v] for v in scope)
        )
