"""Estimators by the names that the command line has for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

    from bayesprivmrf.inference import Posterior, Solution
    from bayesprivmrf.release import NoisyStatistics

__all__ = ["ESTIMATORS", "LOOPY", "NAMES", "fitted", "in_order"]

NAMES = {
    "uniform": "uniform",
    "mle": "non-private MLE",
    "naive-mle": "naive MLE",
    "cgm": "CGM",
    "noise-aware": "noise-aware MAP",
    "posterior": "posterior",
}
"""All methods of ``compare`` in the order of its rows, and how they are written for a person."""

ESTIMATORS = ("naive-mle", "cgm", "noise-aware", "posterior")
"""Those that infer from a release."""

LOOPY = ("naive-mle", "cgm")
"""Those that can do without exact marginals, in a time that one would wait for."""


def fitted(
    name: str,
    release: NoisyStatistics,
    *,
    inference: Literal["exact", "loopy"],
    rng: int | np.random.Generator,
    sampling: dict[str, Any],
) -> Solution | Posterior:
    """Estimate of a release by a method of `ESTIMATORS`; `rng` and `sampling` are for the posterior alone."""
    if name == "posterior":
        from bayesprivmrf.inference import LatentCounts

        return LatentCounts().fit(release, rng=rng, **sampling)
    if name == "noise-aware":
        from bayesprivmrf.inference import NoiseAwareMAP

        return NoiseAwareMAP().fit(release)
    from bayesprivmrf.inference import CGM, NaiveMLE

    kind = CGM if name == "cgm" else NaiveMLE
    return kind(inference=inference).fit(release)


def in_order(chosen: Sequence[str] | None, inference: str) -> list[str]:
    """Chosen methods of ``compare``, in its order, each once; by default all that the kind of inference allows."""
    allowed = [name for name in NAMES if inference == "exact" or name in ("uniform", "mle", *LOOPY)]
    return [name for name in allowed if chosen is None or name in chosen]
