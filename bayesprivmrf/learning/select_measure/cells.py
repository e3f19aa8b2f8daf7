r"""Errors of the cells of a table and of conditional probabilities, from errors of the means of effects.

A table of k cells has one orthonormal zero-sum effect block for each subset S of its variables
(`bayesprivmrf.model.effects`). Errors e of the means of the effects move a cell x by

.. math:: \Delta(x) = \sum_{S} \sum_j \frac{\phi_{S,j}(x_S)}{\prod_{v \notin S} K_v} e_{S,j} .

**Conditional probabilities.** Let each state of a given variable have a weight, and let :math:`w(x)` be the product
of the weights of the states in x. The weight of a state is 1 if it is given and 0 if not; of merged states it is the
share of those that are given. With :math:`m = \sum_x w(x) p(x)` the probability of what is given, a row r of the
asked variables has the conditional probability :math:`c_r = \sum_{x \in r} w(x) p(x) / m`. To first order, errors
move it by

.. math:: \frac{1}{m} \Bigl(\sum_{x \in r} w(x) \Delta(x) - c_r \sum_x w(x) \Delta(x)\Bigr) .

The sum over all rows of an effect with an asked variable is 0, and the second term vanishes. An effect of given
variables alone moves all R rows alike, and the bracket is :math:`1 - R c_r` times what it moves one row by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from bayesprivmrf.inference.loglinear_fit.moments import Scope
from bayesprivmrf.model.effects import contrasts
from bayesprivmrf.model.tables import FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Cells:
    """Cells of a table, or probabilities of its cells given states of some of its variables.

    Parameters
    ----------
    cardinalities
        Number of states of each variable of the model.
    scope
        Positions of the table's variables, ascending.
    table
        Probabilities of its cells, shape of their states.
    weights
        Weight of each state of the given variables, by position, shape (K,).
    """

    cardinalities: Sequence[int]
    scope: Scope
    table: FloatArray
    weights: Mapping[int, FloatArray] = field(default_factory=dict)

    @cached_property
    def mass(self) -> float:
        """Probability of what is given; 1 if nothing is."""
        if self.weights:
            return float(self.weighted().sum())
        return 1.0

    @cached_property
    def rows(self) -> FloatArray:
        """Probabilities given the weights; the axes of given variables have the length 1."""
        if self.weights:
            return self.by_rows(self.weighted()) / self.mass
        return self.table

    def weighted(self, but: int | None = None) -> FloatArray:
        """Return the table times the weights of all given variables, or of all but one."""
        found = self.table
        for v, weights in self.weights.items():
            if v != but:
                found = found * weights.reshape([-1 if v == each else 1 for each in self.scope])
        return found

    def by_rows(self, cells: FloatArray) -> FloatArray:
        """Return the sums of cells over the given variables, whose axes are kept."""
        return cells.sum(axis=tuple(self.scope.index(v) for v in self.weights), keepdims=True)

    @property
    def distances(self) -> FloatArray:
        """Distance of each row from that of the uniform table, by which an error of N scales it."""
        if not self.weights:
            return self.table - 1 / self.table.size
        uniform = (
            math.prod(weights.sum() / weights.size for weights in self.weights.values())
            / self.rows.size
        )
        return -uniform / self.mass * self._moved_alike

    @property
    def _moved_alike(self) -> FloatArray:
        """Move of each row per move of all rows by one."""
        return 1 - self.rows.size * self.rows

    def moved(self, values: FloatArray, subset: Scope, *, power: int = 1) -> FloatArray:
        """Return what an effect's errors add to each row, for broadcasting over other variables.

        Parameters
        ----------
        values
            Errors of the means, shape (..., K - 1 of each variable of the subset).
        subset
            Variables of the effect, ascending.
        power
            2 for variances of uncorrelated errors in place of errors.
        """
        lead = values.ndim - len(subset)
        others = 1.0
        for v in subset:  # each contraction moves the first axis of the effect to the end
            basis = contrasts(self.cardinalities[v])
            if v in self.weights:
                basis = self.weights[v][None] @ basis
            values = np.tensordot(values, basis**power, axes=(lead, 1))
        shape = []
        for v in self.scope:
            if v in subset:
                shape.append(1 if v in self.weights else self.cardinalities[v])
                continue
            shape.append(1)
            others *= self.cardinalities[v] if v not in self.weights else 1 / self.weights[v].mean()
        found = values.reshape(*values.shape[:lead], *shape) / others**power
        if not self.weights:
            return found
        if set(subset) <= set(self.weights):
            found = found * self._moved_alike**power
        return found / self.mass**power
