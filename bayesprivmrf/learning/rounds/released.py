"""What the rounds release: the fitted model on the declared states, and everything that was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayesprivmrf.learning.models.potentials import LearnedPotentials
from bayesprivmrf.learning.rounds.fit import RoundFit
from bayesprivmrf.learning.rounds.measured import MeasuredTable
from bayesprivmrf.learning.rounds.merging import Merging
from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification
from bayesprivmrf.model.domain import Variable
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release.base import Provenance
from bayesprivmrf.release.measured import of_measurements

__all__ = ["learned_potentials"]


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
