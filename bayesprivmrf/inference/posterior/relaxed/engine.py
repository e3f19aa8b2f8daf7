"""Base of the formulations with relaxed counts: noise, settings, refusals, and the PyMC model.

In the PyMC model the compiled density is one operation of PyTensor, and the counts are labeled tables.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import generate_fallback_impl, numba_funcify

from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError
from bayesprivmrf.inference.evidence import WIDEST_RANGE, Evidence
from bayesprivmrf.inference.posterior.measured import MeasuredCells, dimension_names, state_labels, table_name
from bayesprivmrf.inference.posterior.relaxed.density import (
    Density,
    NoiseData,
    observe_noisy_counts,
    target_acceptance,
)
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pymc as pm


# dimension of each variable of the PyMC model that has one
_DIMS = {"counts": "cell", "inner": "inner_cell"}


@dataclass(frozen=True, kw_only=True, eq=False)
class RelaxedCounts:
    """Base class of the posteriors over relaxed (real-valued) counts, which NUTS samples.

    A subclass defines `_of_whole_numbers` (whether a latent count stands for the nearest integer, or for a mean),
    `_shown` (names of latent numbers in its PyMC model besides ``counts``), `_prior_settings` and `density`.

    Parameters
    ----------
    evidence
        Evidence of the releases.
    total
        Public number of records N; None if it is private.
    total_range
        Lower and upper end of the log-uniform prior of a private N, records.
    smoothing
        δ of a smoothed Laplace likelihood, in noise scales; 0 for the exact likelihood.
    """

    evidence: Evidence
    total: float | None = None
    total_range: tuple[float, float] = WIDEST_RANGE
    smoothing: float = 0.0

    _of_whole_numbers: ClassVar[bool]

    @staticmethod
    def refuses_counts(evidence: Evidence) -> BayesPrivMRFError | None:
        """Return the reason why relaxed counts do not support the measurements, or None."""
        if not evidence.has_bounds and not evidence.is_exact.any():
            return None
        return ArgumentError(
            "exact or bounded counts require `formulation='exact'`. Leave `formulation` out to let the library "
            "choose; NaiveMLE, CGM and NoiseAwareMAP support exact answers too."
        )

    @property
    def _private(self) -> tuple[str, ...]:
        """``total`` if N is private."""
        return ("total",) if self.total is None else ()

    @property
    def _shown(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def _prior_settings(self) -> Mapping[str, Any]:
        raise NotImplementedError

    @property
    def _prior_of_positions(self) -> Callable[[np.random.Generator, int], FloatArray] | None:
        """Function that draws positions from their prior; None if only their density is known."""
        return None

    @property
    def density(self) -> Density:
        """Compiled density of this release."""
        raise NotImplementedError

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the prior, by name."""
        settings = dict(self._prior_settings)
        if self.total is None:
            settings["total_range"] = tuple(float(end) for end in self.total_range)
        if self.smoothing > 0:
            settings["smoothing"] = float(self.smoothing)
        return settings

    @property
    def acceptance(self) -> float:
        """Mean acceptance probability for which the step size is tuned."""
        return target_acceptance(self.evidence, self.smoothing)

    @cached_property
    def _measured(self) -> MeasuredCells:
        return MeasuredCells.of(self.evidence)

    @cached_property
    def _noise(self) -> NoiseData:
        return NoiseData.of(
            self.evidence, self._measured, smoothing=self.smoothing, whole_numbers=self._of_whole_numbers
        )

    def model(self) -> pm.Model:
        """Return a PyMC model of this release.

        Its variables are ``position`` (all sampled numbers, in the sampler's coordinates), ``counts`` (the possible
        cells of the model's cliques, clique after clique), the other latent numbers of the formulation, a table
        ``counts[a,b]`` for each clique with variables as dims and states as coords, and the observed
        ``noisy_counts``.
        """
        import pymc as pm
        import pytensor.tensor as pt

        from bayesprivmrf.inference.posterior.relaxed.engine import declare_latent, declare_tables

        density, names = self.density, ("counts", *self._shown)
        coords = {_DIMS[name]: np.arange(density.shapes[name][0]) for name in names if name in _DIMS}
        coords["noisy_cell"] = np.arange(self._measured.targets.size)
        with pm.Model(
            coords=coords, model=None
        ) as model:  # a model of its own, also inside the context of another
            latent = declare_latent(density, self._prior_of_positions)
            for name in names:
                pm.Deterministic(name, latent[name], dims=_DIMS.get(name))
            observe_noisy_counts(self._noise, model["counts"])
            specification = self.evidence.specification
            declare_tables(
                specification, pt.zeros(specification.size)[self._measured.cells].set(model["counts"])
            )
        return model

    def _counts_and_total(self, draws: Mapping[str, np.ndarray]) -> tuple[FloatArray, FloatArray]:
        """Return the counts of all cells of the cliques, and the numbers of records, of sampled draws."""
        sampled = np.asarray(draws["counts"], dtype=float)
        counts = np.zeros((*sampled.shape[:-1], self.evidence.specification.size))
        counts[..., self._measured.cells] = sampled
        total = draws["total"] if self.total is None else np.full(sampled.shape[:-1], self.total)
        return counts, np.asarray(total, dtype=float)


def declare_latent(density: Density, draw: Callable[..., Any] | None = None) -> dict[str, Any]:
    """Declare the variable ``position`` with its prior inside a PyMC model, and return the latent numbers by name.

    Parameters
    ----------
    density
        Compiled density of the posterior.
    draw
        Function of a generator and a number that draws positions from their prior; None if only the density is known.
    """

    def random(center: Any, rng: np.random.Generator, size: Any = None) -> Any:
        lead = () if size is None else tuple(size)
        return draw(rng, math.prod(lead)).reshape(*lead, density.size) if draw else None

    operation: Any = _Latent(density)
    position = pm.CustomDist(
        "position",
        np.zeros(density.size),
        logp=lambda value, center: operation(value)[1],
        random=random if draw else None,
        support_point=lambda rv, size, center: center,
        signature="(d)->(d)",
    )
    latent = operation(position)[0]
    return {
        name: latent[density.places[name]].reshape(shape, ndim=len(shape))
        for name, shape in density.shapes.items()
    }


class _Latent(Op):
    """Operation that maps a position to the latent numbers and the log prior density."""

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
    """Operation that maps derivatives by the outputs of `_Latent` to the derivative by the position."""

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
    """Register the operations with numba as Python calls, without its warning: the density is compiled already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return generate_fallback_impl(op, node, **settings)


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
