"""Released parities and learnt monomials as the plain values and the one array of a release file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesprivmrf.learning.learned_monomials import LearnedMonomials
from bayesprivmrf.learning.released_parities import ReleasedParities
from bayesprivmrf.model import Domain
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.privacy import PrivacyGuarantee, noise_from_dict
from bayesprivmrf.release import Provenance

__all__ = ["array_of", "content_of", "restored"]


def content_of(release: LearnedMonomials | ReleasedParities) -> dict[str, Any]:
    """Return everything but the numbers, the variables and the stamp, as values that JSON can hold.

    Of a complete family of sets the order is enough; the largest sets of another are written out.
    """
    content: dict[str, Any] = {"order": release.sets.order, "details": _plain(release.details)}
    if not release.sets.is_complete:
        content["scopes"] = [list(members) for members in release.sets.largest()]
    if isinstance(release, ReleasedParities):
        content["law"] = None if release.law is None else release.law.as_dict()
    else:
        content["total"] = release.total
    return content


def array_of(release: LearnedMonomials | ReleasedParities) -> np.ndarray:
    """Return the sums, or the coefficients, shape (K,)."""
    return release.sums if isinstance(release, ReleasedParities) else release.coefficients


def restored(
    content: dict[str, Any],
    array: np.ndarray,
    *,
    domain: Domain,
    guarantee: PrivacyGuarantee,
    provenance: Provenance,
) -> LearnedMonomials | ReleasedParities:
    """Return the release that `content_of` and `array_of` described."""
    variables, order = len(domain.variables), content["order"]
    if "scopes" in content:
        sets = Monomials.inside(variables, content["scopes"], order)
    else:
        sets = Monomials.complete(variables, order)
    common: dict[str, Any] = {
        "domain": domain,
        "sets": sets,
        "guarantee": guarantee,
        "provenance": provenance,
        "details": content["details"],
    }
    if content["kind"] == ReleasedParities.kind:
        law = content["law"]
        return ReleasedParities(**common, sums=array, law=None if law is None else noise_from_dict(law))
    return LearnedMonomials(**common, coefficients=array, total=content["total"])


def _plain(details: Mapping[str, Any]) -> dict[str, Any]:
    """Details as JSON has them."""
    return {key: value.item() if isinstance(value, np.generic) else value for key, value in details.items()}
