"""Warnings that cannot make a release fail."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

from bayesprivmrf.errors import ConsistencyWarning, NoiseWarning
from bayesprivmrf.interruption import interrupted_by, note_disclosure, remember, stopped_details
from bayesprivmrf.learning.models.base import LearnedNetwork

# files of this package, which a warning skips to point at the caller
_PACKAGE = (str(Path(__file__).parents[1]),)


def warn_without_raising(message: str, category: type[Warning] = NoiseWarning) -> None:
    """Warn where this package was called; where warnings are errors, show this one all the same.

    The budget is spent and the noise is drawn: an exception would lose the release that was paid for.
    """
    note_disclosure()
    try:
        warnings.warn(message, category, skip_file_prefixes=_PACKAGE)
    except category:
        with warnings.catch_warnings():
            warnings.simplefilter("always", category)
            warnings.warn(message, category, skip_file_prefixes=_PACKAGE)


def warn_of_contradiction[ReleaseT: LearnedNetwork](release: ReleaseT) -> ReleaseT:
    """Warn if the measurements behind a learned model contradict it, and return the release.

    What was interrupted is not expected to fit. If the judgement itself is interrupted or fails, the release, which
    was paid for, has the status "stopped early".
    """
    if interrupted_by() is not None:
        return release
    try:
        problems = release.solution.contradictions
    except BaseException as error:
        remember(error)
        return replace(release, details={**release.details, **stopped_details()})
    for problem in problems:
        warn_without_raising(f"{problem}. The fit is not trusted.", ConsistencyWarning)
    return release
