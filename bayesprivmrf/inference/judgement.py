"""Facts about the evidence that results of all estimators state, and what point estimates refuse."""

from __future__ import annotations

from typing import Any

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.criticism.verdict import restrictions
from bayesprivmrf.inference.evidence import Evidence


def require_population(of: str) -> None:
    """Raise unless intervals are asked for of what an estimate without draws has."""
    if of != "population":
        raise ArgumentError(
            f"`of` must be 'population' here, got {of!r}; intervals of='records', for the tables of the people "
            "themselves, are those of LatentCounts().fit(release)."
        )


def totals(evidence: Evidence) -> dict[str, Any]:
    """The number of records used and its source, and what guarantees and ties say, for `Solution.stats`."""
    found: dict[str, Any] = {
        "total": evidence.total,
        "estimated_total": evidence.estimated_total,
        "total_standard_error": evidence.total_standard_error,
    }
    if told := restrictions(evidence.specification):
        found["model"] = told
    if evidence.wave_totals:
        found["wave_totals"] = list(evidence.wave_totals)
    if evidence.rows_of_one > 1:
        found["rows_of_one_person"] = evidence.rows_of_one
    if evidence.is_weighed:
        found["rests_on"] = (
            "one row drawn from each person, whose K rows weigh 1/K: each person counts as one record"
        )
    return found | ({"guarantees": evidence.guarantees} if evidence.guarantees else {})
