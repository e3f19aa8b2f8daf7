"""What the golden tests look at in a release and in its file, by public names alone."""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["FILES", "described", "document_of", "members_of", "summary"]

FILES = Path(__file__).parent / "files"

_ARRAYS = ("field_vector", "coupling_matrix", "coefficients", "effects", "sums")
_NUMBERS = ("total", "inverse_temperature", "intercept")
_LAWS = ("total_noise", "law", "total_law")


def members_of(path: Path) -> list[tuple[str, tuple[int, ...], int, bytes]]:
    """Members of a file: name, date, way of compression, content."""
    with zipfile.ZipFile(path) as archive:
        return [
            (each.filename, each.date_time, each.compress_type, archive.read(each))
            for each in archive.infolist()
        ]


def document_of(path: Path) -> dict[str, Any]:
    """The JSON document of a file."""
    return json.loads({name: content for name, _, _, content in members_of(path)}["release.json"])


def summary(array: Any) -> dict[str, Any]:
    """Numbers that tell one array from another; the bytes are hashed in one order and byte order."""
    held = np.asarray(array)
    plain = np.ascontiguousarray(held, dtype=held.dtype.newbyteorder("<"))
    return {
        "dtype": held.dtype.name,
        "shape": list(held.shape),
        "sha256": hashlib.sha256(plain.tobytes()).hexdigest(),
        "sum": repr(math.fsum(held[np.isfinite(held)].tolist())),
        "first": [repr(value) for value in held.ravel()[:4].tolist()],
    }


def described(release: Any, path: Path) -> dict[str, Any]:
    """Everything that a release says of itself, as JSON holds it."""
    guarantee = release.guarantee
    found: dict[str, Any] = {
        "version": document_of(path)["version"],
        "class": type(release).__name__,
        "kind": release.kind,
        "repr": repr(release),
        "privacy_statement": release.privacy_statement(),
        "is_exact": release.is_exact,
        "guarantee": None if guarantee is None else guarantee.as_dict(),
        "sentence": None if guarantee is None else guarantee.sentence(),
        "mechanism": release.provenance.mechanism,
        "settings": dict(release.provenance.settings),
        "simulated": release.provenance.simulated,
        "versions": dict(release.provenance.versions),
    }
    for name in _NUMBERS:
        if hasattr(release, name):
            found[name] = repr(getattr(release, name))
    for name in _LAWS:
        law = getattr(release, name, ())
        if law != () and not callable(
            law
        ):  # that of a network's estimate is simulated when it is asked for
            found[name] = None if law is None else law.as_dict()
    for name in _ARRAYS:
        # a method of this name is of another kind of result
        if not callable(getattr(release, name, callable)):
            found[name] = summary(getattr(release, name))
    if release.kind == "noisy-measurements":
        found["queries"] = list(map(repr, release.queries))
        found["labels"] = [list(query.labels) for query in release.bound]
        found["answers"] = summary(release.answers)
        found["noise"] = [law.as_dict() for law in release.noise]
    elif hasattr(release, "tables"):
        found["tables"] = summary(release.tables.flat)
    if hasattr(release, "details"):
        found["details"] = dict(release.details)
    if hasattr(release, "map"):
        found["knows its map"] = release.map is not None
    if hasattr(release, "domain"):
        found |= _domain(release.domain)
    if getattr(release, "is_refusal", False):
        found["is a refusal"] = True
    elif hasattr(release, "specification"):
        found |= _model(release.specification)
    if release.kind == "noisy-statistics":
        found |= _statistics(release)
    tables = getattr(release, "statistics", None)
    if tables is not None and tables is not release and tables.kind == "noisy-statistics":
        found["statistics"] = _statistics(release.statistics) | _model(
            release.statistics.specification
        )
    if hasattr(release, "target"):
        found["target"] = repr(release.target)
    if hasattr(release, "sets"):
        found["members"] = [repr(members) for members in _members(release)]
    if release.kind == "network-estimate":
        found |= _network(release)
    return json.loads(json.dumps(found))


def _members(release: Any) -> list[Any]:
    """The products that a release names, by variables."""
    return list((release.monomials if hasattr(release, "monomials") else release.values).index)


def _domain(domain: Any) -> dict[str, Any]:
    return {"variables": repr(domain.variables), "states": repr(domain.states)}


def _model(model: Any) -> dict[str, Any]:
    shared = {
        "ties": repr(model.ties),
        "shares transitions": model.shares_transitions,
        "scores": repr(model.ordinal),
        "levels": repr(model.levels),
    }
    return {
        **_domain(model.domain),
        **(shared if any(model.sharing) else {}),
        "cliques": repr(model.cliques),
        "impossible": repr(model.impossible),
        "cliques_declared": model.cliques_declared,
    }


def _statistics(release: Any) -> dict[str, Any]:
    return {
        "noise": [law.as_dict() for law in release.noise],
        "total": repr(release.total),
        "estimated_total": f"{release.estimated_total:.12g}",
        "tables": summary(release.tables.flat),
    }


def _network(release: Any) -> dict[str, Any]:
    coupling = release.network.coupling
    return {
        "bounds": repr(release.bounds),
        "constants": release.constants.as_dict(),
        "nodes": repr(release.network.nodes),
        "coupling": summary(coupling.toarray()),
    }
