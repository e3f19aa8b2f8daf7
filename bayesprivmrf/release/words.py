"""Facts and sentences that a release of noisy numbers shows of itself."""

from __future__ import annotations

import math
from typing import Any

from bayesprivmrf.privacy import NoiseLaw, PrivacyGuarantee
from bayesprivmrf.release.person_rows import PersonRows


def facts_of(release: Any) -> list[tuple[str, str]]:
    """Return the facts that `NoisyStatistics` shows of itself: names and values."""
    kind, unit = ("tables", "cells") if release.has_tables else ("queries", "numbers")
    return [
        ("mechanism", release.provenance.mechanism),
        ("variables", f"{len(release.specification.domain.variables)}"),
        (kind, f"{len(release.measurements)} ({release.flat.size:,} {unit})"),
        ("noise", _noise(release.noise)),
        ("records", _records(release)),
        ("privacy", release.privacy_statement()),
    ]


def told_promise(guarantee: PrivacyGuarantee | None, rows: PersonRows | None) -> str:
    """Return the sentence of a guarantee, with the number of counted rows of a person, where that is stated."""
    if guarantee is None:
        return "No privacy guarantee is stated for these tables."
    if guarantee.unit != "person" or rows is None:
        return guarantee.sentence()
    weighed = ", each of K rows with the weight 1/K" if rows.is_weighed else ""
    return f"{guarantee.sentence()} Of one person's rows at most {rows.at_most} were counted{weighed}."


def _records(release: Any) -> str:
    """Return the number of records: the public one, or an estimate with its standard error."""
    if release.total is not None:
        return f"{release.total:,} (public)"
    error = release.total_standard_error
    if not math.isfinite(error):
        return "not told by the release"
    return f"about {release.estimated_total:,.0f} ± {error:,.0f}, from the release"


def _noise(laws: tuple[NoiseLaw, ...]) -> str:
    """Return the names of laws and their standard deviations."""
    names = ", ".join(sorted({law.name for law in laws}))
    deviations = [law.standard_deviation for law in laws]
    if not deviations:
        return f"{names}; sd none records a cell"
    low, high = min(deviations), max(deviations)
    spread = f"{low:.3g}" if math.isclose(low, high) else f"{low:.3g} to {high:.3g}"
    return f"{names}; sd {spread} records a cell"
