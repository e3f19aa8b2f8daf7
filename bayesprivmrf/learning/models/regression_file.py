"""A learnt regression as the plain values and the one array of a release file."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesprivmrf.learning.models.regression import LearnedRegression
from bayesprivmrf.model import Domain
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release import Provenance

__all__ = ["array_of", "content_of", "restored"]


def content_of(release: LearnedRegression) -> dict[str, Any]:
    """Return everything but the log-odds, the variables and the stamp, as values that JSON can hold."""
    return {
        "target": release.domain.index(release.target),
        "total": release.total,
        "details": {k: v.item() if isinstance(v, np.generic) else v for k, v in release.details.items()},
    }


def array_of(release: LearnedRegression) -> np.ndarray:
    """Return the intercept, then the effects, shape (1 + K,)."""
    return np.concatenate([[release.intercept], release.effects])


def restored(
    content: dict[str, Any],
    array: np.ndarray,
    *,
    domain: Domain,
    guarantee: PrivacyGuarantee,
    provenance: Provenance,
) -> LearnedRegression:
    """Return the release that `content_of` and `array_of` described."""
    return LearnedRegression(
        domain=domain,
        target=domain.variables[content["target"]],
        guarantee=guarantee,
        provenance=provenance,
        intercept=float(array[0]),
        effects=array[1:],
        total=content["total"],
        details=content["details"],
    )
