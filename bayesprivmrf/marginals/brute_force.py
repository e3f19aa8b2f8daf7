"""Inference by enumeration of all configurations: the reference of every other engine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.marginals.forecast import Forecast
from bayesprivmrf.marginals.layout import Layout, MarginalEngine
from bayesprivmrf.model.tables import FloatArray


class ImpossibleError(ModelError):
    """No configuration has positive probability."""


def impossible() -> ImpossibleError:
    """Return the error for a model in which no configuration has positive probability."""
    return ImpossibleError(
        "Every configuration is impossible: the potentials of minus infinity exclude all joint states. "
        "Allow at least one state of every clique that agrees with its neighbours."
    )


def joint_forecast(layout: Layout) -> Forecast:
    """Return the cost of enumeration: one clique of all variables."""
    cells = math.prod(layout.cardinalities)
    return Forecast(
        treewidth=sum(k > 1 for k in layout.cardinalities) - 1,
        largest_table=cells,
        total_cells=cells,
        memory_bytes=8 * (4 * cells + 3 * layout.size),
        multiplications=cells * (len(layout.scopes) + 1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BruteForceEngine(MarginalEngine):
    """Sums over the whole joint table, in the log domain.

    Memory and time grow with the product of all cardinalities.
    """

    layout: Layout

    def log_partition(self, potentials: FloatArray) -> float:
        """Return A(θ) = log Σ_x exp(Σ_f θ_f(x_f)), in nats."""
        return self._joint(potentials)[0]

    def marginals(self, potentials: FloatArray) -> tuple[float, FloatArray]:
        """Return A(θ) and the probability of every cell."""
        log_partition, joint = self._joint(potentials)
        return log_partition, self._project(joint)

    def linearize(
        self, potentials: FloatArray
    ) -> tuple[float, FloatArray, Callable[[FloatArray], FloatArray]]:
        """Return A(θ), μ and v → Σv, with (Σv)_c = E[1_c (g - E g)] for g(x) = Σ_f v_f(x_f)."""
        log_partition, joint = self._joint(potentials)
        possible = np.asarray(potentials) > -np.inf

        def product(vector: FloatArray) -> FloatArray:
            g = self._total(np.where(possible, self.layout.flat(vector, "vector"), 0.0))
            return self._project(joint * (g - np.sum(joint * g)))

        return log_partition, self._project(joint), product

    def _total(self, vector: FloatArray) -> FloatArray:
        """Σ_f θ_f(x_f) as a table over all variables."""
        total = np.zeros(self.cardinalities)
        for scope, table in zip(self.scopes, self.layout.tables(vector), strict=True):
            order = np.argsort(scope)
            shape = [k if v in scope else 1 for v, k in enumerate(self.cardinalities)]
            total += table.transpose(order).reshape(shape)
        return total

    def _joint(self, potentials: FloatArray) -> tuple[float, FloatArray]:
        total = self._total(self.layout.flat(potentials))
        top = float(total.max())
        if top == -math.inf:
            raise impossible()
        weights = np.exp(total - top)
        mass = float(weights.sum())
        return top + math.log(mass), weights / mass

    def _project(self, joint: FloatArray) -> FloatArray:
        """Return the sums of a joint table over every factor's cells."""
        parts = []
        for scope in self.scopes:
            others = tuple(v for v in range(joint.ndim) if v not in scope)
            kept = sorted(scope)
            parts.append(joint.sum(axis=others).transpose([kept.index(v) for v in scope]).ravel())
        return np.concatenate(parts) if parts else np.zeros(0)
