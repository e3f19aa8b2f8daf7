"""Released parities and learnt monomials as the plain values and the one array of a release file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesprivmrf.learning.frank_wolfe.monomials import MonomialsByRegressions
from bayesprivmrf.learning.models.base import LearningMap
from bayesprivmrf.learning.models.monomials import LearnedMonomials
from bayesprivmrf.learning.parities.fit import MonomialsByParities
from bayesprivmrf.learning.parities.released import ReleasedParities
from bayesprivmrf.model import Domain
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee, noise_from_dict
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
        content["total_law"] = release.total_law.as_dict()
    else:
        noise = release.total_noise
        content["total"] = release.total
        content["total_noise"] = None if noise is None else noise.as_dict()
        content["map"] = _map_content(release.map)
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
        return ReleasedParities(
            **common,
            sums=array,
            law=None if law is None else noise_from_dict(law),
            total_law=noise_from_dict(content["total_law"]),
        )
    noise = content["total_noise"]
    return LearnedMonomials(
        **common,
        coefficients=array,
        total=content["total"],
        total_noise=None if noise is None else noise_from_dict(noise),
        map=_restored_map(content["map"], sets),
    )


def _map_content(known: LearningMap | None) -> dict[str, Any] | None:
    """Return the settings of a map but its sets, which are the model's; ``None`` for one of another kind."""
    if isinstance(known, MonomialsByParities):
        return {
            "kind": "parities",
            "law": known.law.as_dict(),
            "has_total": known.has_total,
            "ridge": known.ridge,
            "total_law": known.total_law.as_dict(),
        }
    if isinstance(known, MonomialsByRegressions):
        law = known.parity_law
        return {
            "kind": "regressions",
            "width": known.width,
            "rho": known.rho,
            "adjacency": known.adjacency.value,
            "steps": known.steps,
            "parity_law": None if law is None else law.as_dict(),
        }
    return None


def _restored_map(content: dict[str, Any] | None, sets: Monomials) -> LearningMap | None:
    if content is None or content["kind"] not in {"parities", "regressions"}:
        return None
    settings: dict[str, Any] = {key: value for key, value in content.items() if key != "kind"}
    if content["kind"] == "parities":
        laws = {name: noise_from_dict(content[name]) for name in ("law", "total_law") if name in content}
        settings |= {**laws, "sets": sets}
        return MonomialsByParities(**settings)
    law = content["parity_law"]
    return MonomialsByRegressions(
        **settings
        | {
            "sets": sets,
            "adjacency": Adjacency(content["adjacency"]),
            "parity_law": None if law is None else noise_from_dict(law),
        }
    )


def _plain(details: Mapping[str, Any]) -> dict[str, Any]:
    """Details as JSON has them."""
    return {key: value.item() if isinstance(value, np.generic) else value for key, value in details.items()}
