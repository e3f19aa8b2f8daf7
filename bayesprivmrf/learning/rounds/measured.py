"""A noisy table as the rounds released it, as the fit reads it, and as an answer to a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.learning.rounds.engine import Scope
from bayesprivmrf.learning.rounds.fit import NoisyTable
from bayesprivmrf.learning.rounds.merging import Merging
from bayesprivmrf.model import Domain
from bayesprivmrf.model.domain import Label
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.privacy import NoiseLaw
from bayesprivmrf.queries import coarsened, table
from bayesprivmrf.queries.kinds import TableQuery
from bayesprivmrf.release import Measurement

__all__ = ["MeasuredTable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTable:
    """A table as it was released.

    Parameters
    ----------
    scope
        Positions of variables, ascending.
    values
        Noisy counts in C order, whole numbers; of declared states for a single variable, else of merged ones.
    law
        Law of their noise.
    """

    scope: Scope
    values: IntArray
    law: NoiseLaw

    @classmethod
    def of(cls, measurement: Measurement, domain: Domain) -> MeasuredTable:
        """Return the inverse of `measurement`."""
        query = measurement.query
        assert isinstance(query, TableQuery)
        scope = tuple(domain.index(variable) for variable in query.scope)
        return cls(scope=scope, values=measurement.values.ravel(), law=measurement.noise)

    def merged(self, merging: Merging) -> NoisyTable:
        """Return the table of merged states, for the fit."""
        if len(self.scope) == 1:
            group = merging.groups[self.scope[0]]
            sizes = np.bincount(group).astype(float)
            counts = np.bincount(group, weights=self.values)
            return NoisyTable(scope=self.scope, values=counts, variance=self.law.variance * sizes)
        shape = [merging.cardinalities[v] for v in self.scope]
        values = self.values.reshape(shape).astype(float)
        return NoisyTable(scope=self.scope, values=values, variance=self.law.variance)

    def measurement(self, domain: Domain, merging: Merging) -> Measurement:
        """Return the table as an answer to a query of declared states."""
        names = [domain.variables[v] for v in self.scope]
        groups = {
            domain.variables[v]: _groups(domain.states[v], merging.groups[v])
            for v in self.scope
            if len(self.scope) > 1 and merging.is_merged(v)
        }
        query = coarsened(*names, groups=groups) if groups else table(*names)
        return Measurement(query, self.values.ravel(), self.law)


def _groups(states: Sequence[Label], group: IntArray) -> dict[Label, list[Label]]:
    """Return the states of each group by its label; that of a group of several names how many."""
    found = {}
    for number in range(int(group.max()) + 1):
        held = [state for state, g in zip(states, group.tolist(), strict=True) if g == number]
        label = held[0] if len(held) == 1 else f"{len(held)} rare states"
        while len(held) > 1 and label in states:
            label = f"({label})"
        found[label] = held
    return found
