"""What to do with a learned model whose fit did not end well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bayesprivmrf.inference.solution import Status
from bayesprivmrf.interruption import INTERRUPTED_BY

#: The detail of a release whose fit failed, with the model that stands in for it.
FALLEN_BACK = "fallen_back"

#: Line on the support of a model where no released number tells which states have records.
NO_COUNTS = (
    "not known: no released number counts states, and effects of a state without records are arbitrary"
)

_SHOWN = 5  # variables whose merged states are named in print

# the remedy for each status that is not a good one
_ADVICE = {
    Status.NOT_TRUSTED: "do not use its numbers; spend more, or take more records or fewer variables",
    Status.DIVERGED: "do not use its numbers; spend more, or take a smaller model",
    Status.ITERATION_LIMIT: "the fit had not settled; take a smaller model, or more time",
}


def told_status(status: Status, details: Mapping[str, Any]) -> str:
    """Return a status in words, with what to do where it is not a good one.

    Parameters
    ----------
    status
        How the fit ended.
    details
        The details of the release. Where they count refits, as those of rounds do, a fit that stopped early failed,
        and where they name a model that stands in for it; elsewhere such a path ends on purpose.
    """
    if (name := details.get(INTERRUPTED_BY)) is not None and status is Status.STOPPED_EARLY:
        return f"{status.value}: a {name} interrupted it, and it holds what was computed until then"
    if (stands_in := details.get(FALLEN_BACK)) is not None:
        return f"{status.value}: the fit of all pairs failed, and the model is a smaller one ({stands_in})"
    has_failed = status is Status.STOPPED_EARLY and "refits_that_failed" in details
    advice = _ADVICE.get(status)
    if has_failed:
        advice = "the last fit failed, and what was measured last is not in it; spend more, or take a smaller model"
    return status.value if advice is None else f"{status.value}: {advice}"


def told_merging(merged: Mapping[Any, Sequence[Sequence[Any]]]) -> str:
    """Describe in words which states are merged in a fit, for the first few variables.

    Parameters
    ----------
    merged
        Groups of several states, by variable.
    """
    named = [
        f"{variable}: {'; '.join(' = '.join(map(str, part)) for part in parts)}"
        for variable, parts in list(merged.items())[:_SHOWN]
    ]
    more = f", and states of {len(merged) - _SHOWN} more variables" if len(merged) > _SHOWN else ""
    return f"{', '.join(named)}{more} (rare states, merged in the fit)"
