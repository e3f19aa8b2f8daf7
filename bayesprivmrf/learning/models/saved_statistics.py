"""Measurements inside the file of a learned model: their numbers stand at the end of the model's array."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesprivmrf.model import Domain
from bayesprivmrf.release import NoisyStatistics
from bayesprivmrf.release.codec import Fields, restored_model


def statistics_content(statistics: NoisyStatistics | None) -> dict[str, Any]:
    """Return the entry of what was measured, if anything was: all but its numbers, and the domain, the model's."""
    if statistics is None:
        return {}
    content = statistics._content()
    known = {name: content[name] for name in ("cliques", "noise", "total")}
    if "queries" in content:
        known |= {"queries": content["queries"], "numbers": statistics.flat.size}
    return {"statistics": known}


def statistics_size(content: Fields, domain: Domain) -> int:
    """Return how many numbers of a file's array are noisy tables, or answers to queries."""
    if "statistics" not in content or content["statistics"] is None:
        return 0
    measured = _measured(content)
    return measured.whole("numbers", 0) if "numbers" in measured else restored_model(measured, domain).size


def restored_statistics(content: Fields, array: np.ndarray, **stamp: Any) -> NoisyStatistics | None:
    """Return the inverse of `statistics_content`, of the last numbers of a file's array."""
    if "statistics" not in content or content["statistics"] is None:
        return None
    return NoisyStatistics._restored(_measured(content), array, **stamp)


def _measured(content: Fields) -> Fields:
    shared = {name: content[name] for name in ("variables", "states")}
    return Fields({"cliques_declared": True, **shared, **content.mapping("statistics")})
