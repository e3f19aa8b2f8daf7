"""What the rounds release: the fitted model on the declared states, and everything that was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.learning.models.potentials import LearnedPotentials
from bayesprivmrf.learning.rounds.engine import Scope
from bayesprivmrf.learning.rounds.fit import NoisyTable, RoundFit
from bayesprivmrf.learning.rounds.merging import Merging
from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.privacy import DiscreteGaussian, PrivacyGuarantee
from bayesprivmrf.queries import coarsened, table
from bayesprivmrf.release import Measurement
from bayesprivmrf.release.base import Provenance
from bayesprivmrf.release.measured import of_measurements

__all__ = ["MeasuredTable", "learned_potentials"]


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
    law: DiscreteGaussian

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


def learned_potentials(
    domain: Domain,
    merging: Merging,
    fit: RoundFit,
    tables: Sequence[MeasuredTable],
    *,
    total: int | None,
    guarantee: PrivacyGuarantee,
    provenance: Provenance,
    details: dict[str, Any],
) -> LearnedPotentials:
    """Return the release.

    Parameters
    ----------
    domain
        Variables and states, as declared.
    merging, fit
        The model of merged states.
    tables
        Everything that was measured.
    total
        Number of records where it is public.
    guarantee, provenance, details
        Those of the release.
    """
    cliques: list[tuple[Variable, ...]] = [
        tuple(domain.variables[v] for v in scope) for scope in fit.effects.scopes
    ]
    model = ModelSpecification(domain=domain, cliques=tuple(cliques))
    full: list[FloatArray] = merging.expanded(fit.effects.scopes, fit.potentials())
    measurements = [each.measurement(domain, merging) for each in tables]
    return LearnedPotentials(
        domain=domain,
        guarantee=guarantee,
        provenance=provenance,
        total=fit.total,
        details=details,
        model=model,
        tables=CliqueTables.from_arrays(domain, model.cliques, full),
        statistics=of_measurements(
            model, measurements, guarantee=guarantee, provenance=provenance, total=total
        ),
    )
