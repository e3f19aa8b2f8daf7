"""Learnt potentials as the plain values and the one array of a release file."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesprivmrf.learning.models.potentials import LearnedPotentials
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release import Provenance

__all__ = ["array_of", "content_of", "restored"]


def content_of(release: LearnedPotentials) -> dict[str, Any]:
    """Return everything but the potentials, the variables and the stamp, as values that JSON can hold."""
    model = release.model
    return {
        "cliques": [list(scope) for scope in model.scopes],
        "impossible": [
            [[model.domain.index(v), model.domain.code(v, label)] for v, label in assignment]
            for assignment in model.impossible
        ],
        "total": release.total,
        "details": dict(release.details),
    }


def array_of(release: LearnedPotentials) -> np.ndarray:
    """Return the potentials, shape (size,)."""
    return release.tables.flat


def restored(
    content: dict[str, Any],
    array: np.ndarray,
    *,
    domain: Domain,
    guarantee: PrivacyGuarantee,
    provenance: Provenance,
) -> LearnedPotentials:
    """Return the release that `content_of` and `array_of` described."""
    model = ModelSpecification(
        domain=domain,
        cliques=tuple(tuple(domain.variables[v] for v in scope) for scope in content["cliques"]),
        impossible=tuple(
            tuple((domain.variables[v], domain.states[v][code]) for v, code in assignment)
            for assignment in content["impossible"]
        ),
    )
    return LearnedPotentials(
        domain=domain,
        guarantee=guarantee,
        provenance=provenance,
        total=content["total"],
        details=content["details"],
        model=model,
        tables=model.tables(array),
    )
