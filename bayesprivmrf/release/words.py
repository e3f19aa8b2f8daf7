"""What a release of noisy numbers says of itself, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bayesprivmrf.privacy import NoiseLaw, PrivacyGuarantee
from bayesprivmrf.release.person_rows import PersonRows


def told_promise(guarantee: PrivacyGuarantee | None, rows: PersonRows | None) -> str:
    """Return the sentence of a guarantee, with the number of counted rows of a person, where that is stated."""
    if guarantee is None:
        return "No privacy guarantee is stated for these tables."
    if guarantee.unit != "person" or rows is None:
        return guarantee.sentence()
    weighed = ", each of K rows with the weight 1/K" if rows.is_weighed else ""
    return f"{guarantee.sentence()} Of one person's rows at most {rows.at_most} were counted{weighed}."


def told_records(total: int | None, estimated: float, error: float) -> str:
    """Return the number of records: the public one, or an estimate with its standard error."""
    if total is not None:
        return f"{total:,} (public)"
    if not math.isfinite(error):
        return "not told by the release"
    return f"about {estimated:,.0f} ± {error:,.0f}, from the release"


def told_noise(laws: Sequence[NoiseLaw]) -> str:
    """Return the names of laws and their standard deviations."""
    names = ", ".join(sorted({law.name for law in laws}))
    deviations = [law.standard_deviation for law in laws]
    if not deviations:
        return f"{names}; sd none records a cell"
    low, high = min(deviations), max(deviations)
    spread = f"{low:.3g}" if math.isclose(low, high) else f"{low:.3g} to {high:.3g}"
    return f"{names}; sd {spread} records a cell"
