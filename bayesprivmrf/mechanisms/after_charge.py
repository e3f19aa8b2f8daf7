"""The part of a release after its charge: one more attempt after an interruption, and warnings that cannot raise."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bayesprivmrf.errors import (
    ConsistencyWarning,
    InterruptionWarning,
    NoiseWarning,
    heard,
    interrupted_by,
    note_disclosure,
    remember,
    stopped_details,
)
from bayesprivmrf.learning.models.base import LearnedNetwork

# failures from outside, which a second call may survive
_INTERRUPTIONS = (KeyboardInterrupt, MemoryError, TimeoutError)


def drawn[ReleaseT](mechanism: str, draw: Callable[[], ReleaseT]) -> ReleaseT:
    """Return what `draw` returns, after its cost was charged: one interruption loses nothing, a second one raises.

    A learner keeps its results up to the interruption. For other mechanisms `draw` is called once more, with fresh
    noise, unless a warning has already disclosed something about the noise of the first call: two draws would then
    cost more than was charged.

    Parameters
    ----------
    mechanism
        Name of the mechanism, for a warning.
    draw
        Function without arguments that makes the release.
    """
    with heard() as names:
        try:
            made = draw()
        except _INTERRUPTIONS:
            if names or names.has_disclosed:
                raise
            made = draw()
    if names:
        is_outside = names[0] in {each.__name__ for each in _INTERRUPTIONS}
        cause = f"{'was interrupted by' if is_outside else 'failed with'} a {names[0]}"
        warn_without_raising(
            f"{mechanism} {cause} after its budget was spent: the release holds what was computed until then, costs "
            "the whole promise, and has the status `stopped early`. Fit its `statistics` with another estimator, "
            "which spends no budget.",
            InterruptionWarning,
        )
    return made


def warn_without_raising(message: str, category: type[Warning] = NoiseWarning) -> None:
    """Issue a warning at the caller of this package, and never raise, even where filters turn warnings into errors.

    The budget is spent and the noise is drawn, so that an exception would lose a release that was paid for.
    """
    note_disclosure()
    package = (str(Path(__file__).parents[1]),)  # files that the warning skips, to point at the caller
    try:
        warnings.warn(message, category, skip_file_prefixes=package)
    except category:
        with warnings.catch_warnings():
            warnings.simplefilter("always", category)
            warnings.warn(message, category, skip_file_prefixes=package)


def warn_of_contradiction[ReleaseT: LearnedNetwork](release: ReleaseT) -> ReleaseT:
    """Return a learned model, after a warning if the measurements behind it contradict it.

    An interrupted release need not fit its measurements, and is not judged. If the judgment itself is interrupted or
    fails, the release, which was paid for, gets the status "stopped early".
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
