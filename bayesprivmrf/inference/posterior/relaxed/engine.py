"""Base of the formulations with relaxed counts: noise, settings, refusals, and the PyMC model.

In the PyMC model the compiled density is one operation of PyTensor, and the counts are labeled tables.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
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
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.measured import MeasuredCells, dimension_names, state_labels, table_name
from bayesprivmrf.inference.posterior.relaxed.density import (
    ACCEPTANCE,
    Density,
    NoiseData,
    observe_noisy_counts,
)
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.kernels import ABSOLUTE

if TYPE_CHECKING:
    from bayesprivmrf.inference.posterior.latent_counts import LatentCounts


@dataclass(frozen=True, kw_only=True, eq=False)
class RelaxedCounts(ABC):
    """Base class of the posteriors over relaxed (real-valued) counts, which NUTS samples.

    A subclass has a `name`, and defines whether a latent count stands for the nearest integer, or for a mean.

    Parameters
    ----------
    evidence
        Evidence of the releases.
    total
        Public number of records N; None if it is private.
    total_range
        Lower and upper end of the log-uniform prior of a private N, records.
    """

    evidence: Evidence
    total: float | None = None
    total_range: tuple[float, float] = WIDEST_RANGE

    name: ClassVar[str]
    _of_whole_numbers: ClassVar[bool]

    @staticmethod
    @abstractmethod
    def refuses_prior(evidence: Evidence, settings: LatentCounts) -> BayesPrivMRFError | None:
        """Return the reason why the prior does not support the model or the settings, or None."""

    @classmethod
    def refuses(cls, evidence: Evidence, settings: LatentCounts) -> BayesPrivMRFError | None:
        """Return the reason why this engine does not support a release or the settings, or None."""
        if evidence.has_bounds or evidence.is_exact.any():
            return ArgumentError(
                "exact or bounded counts require `formulation='exact'`. Leave `formulation` out to let the library "
                "choose; NaiveMLE, CGM and NoiseAwareMAP support exact answers too."
            )
        return cls.refuses_prior(evidence, settings)

    @property
    @abstractmethod
    def judged(self) -> tuple[str, ...]:
        """Variables on which convergence is judged: those that NUTS moves, in a form that the data identify.

        They never include the draws that `finish` adds: these have fresh independent noise and would look better
        mixed than the chain is.
        """

    @property
    @abstractmethod
    def hidden(self) -> tuple[str, ...]:
        """Other latent numbers that `finish` needs; they are not shown to the user."""

    @property
    @abstractmethod
    def _prior_settings(self) -> Mapping[str, Any]: ...

    @cached_property
    @abstractmethod
    def density(self) -> Density:
        """Compiled density, whose groups of latent numbers have the names of the variables."""
        raise NotImplementedError

    @property
    @abstractmethod
    def operations_a_gradient(self) -> float:
        """Operations of one evaluation of the density and its gradient."""

    @abstractmethod
    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Return marginals, counts and effects of sampled draws; quantities drawn exactly given these use `rng`."""

    @abstractmethod
    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the tables of N whole records."""

    @property
    def sparsity(self) -> float:
        """Half-counts per record, a measure of the error of the relaxation; 0 if that error is negligible."""
        return 0.0

    @property
    def _private(self) -> tuple[str, ...]:
        """``total`` if N is private."""
        return ("total",) if self.total is None else ()

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the prior, by name; they become `constant_data` and attributes of the tree."""
        ends = {"total_range": tuple(float(end) for end in self.total_range)}
        return {**self._prior_settings, **(ends if self.total is None else {})}

    @property
    def acceptance(self) -> float:
        """Mean acceptance probability for which the step size is tuned; it is lower under Laplace noise."""
        return ACCEPTANCE if (self.evidence.kernels[self.evidence.possible] == ABSOLUTE).any() else 0.8

    @cached_property
    def _measured(self) -> MeasuredCells:
        return MeasuredCells.of(self.evidence)

    @cached_property
    def _noise(self) -> NoiseData:
        return NoiseData.of(self.evidence, self._measured, whole_numbers=self._of_whole_numbers)

    def model(self) -> pm.Model:
        """Return a PyMC model of this release.

        Its variables are ``position`` (all sampled numbers, in the sampler's coordinates), ``counts`` (the possible
        cells of the model's cliques, clique after clique), the other latent numbers of the formulation, a table
        ``counts[a,b]`` for each clique with variables as dims and states as coords, and the observed
        ``noisy_counts``.
        """
        density, names = self.density, (*self.judged, *self.hidden)
        specification = self.evidence.specification
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
            latent = operation(position)[0]
            for name in names:
                shape = density.shapes[name]
                pm.Deterministic(name, latent[density.places[name]].reshape(shape, ndim=len(shape)))
            observe_noisy_counts(self._noise, model["counts"])
            flat = pt.zeros(specification.size)[self._measured.cells].set(model["counts"])
            _declare_tables(specification, flat)
        return model

    def _all_cells(self, values: np.ndarray) -> FloatArray:
        """Return the values of all cells of the cliques, 0 in impossible ones, given those of the possible cells."""
        full = np.zeros((*values.shape[:-1], self.evidence.specification.size))
        full[..., self._measured.cells] = values
        return full

    def _counts_and_total(self, draws: Mapping[str, np.ndarray]) -> tuple[FloatArray, FloatArray]:
        """Return the counts of all cells of the cliques, and the numbers of records, of sampled draws."""
        counts = self._all_cells(draws["counts"])
        total = draws["total"] if self.total is None else np.full(counts.shape[:-1], self.total)
        return counts, np.asarray(total, dtype=float)


class _Compiled(Op):
    """Operation that maps a position to the latent numbers and the log prior density.

    Backward it maps the position and derivatives by both to the derivative by the position.
    """

    __props__ = ("density", "is_backward")

    def __init__(self, density: Density, *, is_backward: bool = False) -> None:
        self.density, self.is_backward = density, is_backward

    def make_node(self, *inputs: Any) -> Apply:
        variables = [pt.as_tensor_variable(value, dtype="float64") for value in inputs]
        return Apply(self, variables, [pt.dvector()] if self.is_backward else [pt.dvector(), pt.dscalar()])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        if self.is_backward:
            output_storage[0][0] = self.density.pullback(*inputs)
        else:
            latent, prior = self.density.forward(inputs[0])
            output_storage[0][0], output_storage[1][0] = latent, np.asarray(prior)

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        given = [
            pt.zeros_like(value) if isinstance(by.type, DisconnectedType) else by
            for value, by in zip(outputs, cotangents, strict=True)
        ]
        return [_Compiled(self.density, is_backward=True)(inputs[0], *given)]


@numba_funcify.register(_Compiled)
def _through_python(op: Op, node: Apply | None = None, **settings: Any) -> Any:
    """Register the operation with numba as Python calls, without its warning: the density is compiled already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return generate_fallback_impl(op, node, **settings)


def _declare_tables(model: ModelSpecification, flat: Any) -> None:
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
        table = flat[model.offsets[clique] : model.offsets[clique + 1]].reshape(model.shapes[clique])
        pm.Deterministic(table_name("counts", names, scope), table, dims=tuple(names[v] for v in scope))
