r"""PyMC model of a posterior whose model omits interactions of measured tables, with relaxed counts.

Relaxed counts of `RelaxedCounts` are functions of the model's own statistics, and here the measured tables have more
information. So the tables themselves are relaxed: along the junction forest of the bags, each row r of a table
divides its total :math:`n_r` among its cells, :math:`n_c = n_r s_c`, with shares s on a simplex. Given the effects β,
the records have the tables n with the probability

.. math:: \log p(n \mid β) = \sum_r \log Γ(n_r + 1) - \sum_c \log Γ(n_c + 1) + β' t(n) - N A(β),

whose first terms count the records that have these tables, and t are the statistics of the model. The density of the
shares is :math:`p(n \mid β) \prod_r n_r^{K_r - 1}` for rows of :math:`K_r` cells, the change of variables from s to
n. The effects have the prior of `bayesprivmrf.inference.noise_aware.objective`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_funcify

from bayesprivmrf.inference.posterior.effects_engine import Plan
from bayesprivmrf.inference.posterior.relaxed_counts.density import observe_noisy_counts
from bayesprivmrf.inference.posterior.relaxed_counts.pymc_model import (
    declare_tables,
    through_python,
)
from bayesprivmrf.model.tables import FloatArray, cells_within

if TYPE_CHECKING:
    from bayesprivmrf.inference.posterior.whole_records.effects import NormalEffects

# Smallest count whose logarithm is taken, records
_TINY = 1e-12


class _LogPartition(Op):
    """Operation that maps the effects β to A(β); its derivative is the mean of the statistics."""

    __props__ = ("plan", "is_backward")

    def __init__(self, plan: Plan, *, is_backward: bool = False) -> None:
        self.plan = plan
        self.is_backward = is_backward

    def make_node(self, *inputs: Any) -> Apply:
        variables = [pt.as_tensor_variable(value, dtype="float64") for value in inputs]
        return Apply(self, variables, [pt.dvector() if self.is_backward else pt.dscalar()])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        log_partition, _, mean, _ = self.plan.moments(inputs[0])
        if self.is_backward:
            output_storage[0][0] = np.array(mean)
        else:
            output_storage[0][0] = np.asarray(log_partition)

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        return [cotangents[0] * _LogPartition(self.plan, is_backward=True)(inputs[0])]


numba_funcify.register(_LogPartition)(through_python)


def smaller_model(engine: NormalEffects) -> pm.Model:
    """Return the PyMC model of an engine, whose model omits interactions of measured tables.

    Its variables are ``log_scale`` (log τ, if it is learned), ``whitened`` (β in prior standard deviations),
    ``coordinates`` (β), ``total`` (if N is private), ``shares_K`` (shares of all rows of K cells), ``counts`` (the
    possible cells of the evidence's tables), a table ``counts[a,b]`` for each clique of the model, and the observed
    ``noisy_counts``.
    """
    latent = engine.relaxed.latent
    prior = latent.effects_prior
    evidence = engine.evidence
    given = evidence.specification
    log_scale: Any
    with pm.Model(model=None) as model:
        if engine.scale is None and prior.count:
            log_scale = pm.MvNormal("log_scale", prior.expected_log_scales, prior.scale_covariance)
        else:
            log_scale = pt.as_tensor(latent.mode.log_scales)
        size = latent.effects.size
        whitened = pm.Normal("whitened", 0.0, 1.0, shape=size)
        scales: Any = pt.exp(log_scale)
        beta = pm.Deterministic("coordinates", scales[prior.levels] * whitened)
        total = _total(engine)
        bags, rows = _bag_counts(engine, total)
        flat = pt.dot(_from_bags(engine), bags)
        counts = pm.Deterministic("counts", flat[engine.measured.cells])
        design = latent.effects.potentials(np.eye(size))
        energy = pt.dot(beta, pt.dot(design, flat)) - total * _LogPartition(latent.plan)(beta)
        pm.Potential("records", energy + rows)
        observe_noisy_counts(engine.relaxed._noise, counts)
        own = given.on_interactions(np.eye(given.size)).T
        declare_tables(given.believed, pt.dot(own, flat))
    return model


def _total(engine: NormalEffects) -> Any:
    """Return N: the public number, or a variable that is log-uniform on its range."""
    if engine.total is not None:
        return pt.as_tensor(float(engine.total))
    low, high = np.log(engine.total_range)
    first = np.clip(np.log(engine.evidence.total), low + 1e-6, high - 1e-6)
    log_total = pm.Uniform("log_total", low, high, initval=float(first))
    return pm.Deterministic("total", pt.exp(log_total))


def _bag_counts(engine: NormalEffects, total: Any) -> tuple[Any, Any]:
    """Return relaxed counts of the cells of all bags, and the part of the log density that rows alone determine."""
    # PyTensor's operations have no precise types
    tensor: Any = pt
    forest = engine.forest
    sizes = forest.row_sizes
    shares = {
        int(size): pm.Dirichlet(f"shares_{size}", np.ones((int((sizes == size).sum()), size)))
        for size in np.unique(sizes)
        if size > 1
    }
    # the place of each row among the rows of its size
    place = np.array([int((sizes[:row] == sizes[row]).sum()) for row in range(len(sizes))])
    parts: list[Any] = []
    log_density: Any = 0.0
    for row, size in enumerate(sizes.tolist()):
        sources = forest.sources[slice(*forest.source_starts[row : row + 2])]
        if len(sources):
            # cells are numbered row after row, parents first
            of_row = tensor.concatenate(parts)[sources].sum()
        else:
            of_row = total
        if size == 1:
            own = tensor.reshape(of_row, (1,))
        else:
            own = of_row * shares[size][int(place[row])]
        parts.append(own)
        log_density = log_density + tensor.gammaln(of_row + 1) - tensor.gammaln(own + 1).sum()
        log_density = log_density + (size - 1) * tensor.log(of_row + _TINY)
    flat = tensor.zeros(forest.offsets[-1])
    return tensor.set_subtensor(flat[forest.cells], tensor.concatenate(parts)), log_density


def _from_bags(engine: NormalEffects) -> FloatArray:
    """Return the matrix that sums counts of the bags' cells to those of the evidence's tables."""
    given = engine.evidence.specification
    bagged = engine.bagged.specification
    cards = given.cardinalities
    matrix = np.zeros((given.size, bagged.size))
    for clique, scope in enumerate(given.scopes):
        several = [v for v in scope if cards[v] > 1]
        home = bagged.parent(several)
        cells = cells_within(cards, several, bagged.scopes[home])
        columns = np.arange(*bagged.offsets[home : home + 2])
        matrix[given.offsets[clique] + cells, columns] = 1.0
    return matrix
