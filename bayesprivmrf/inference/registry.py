"""Estimators of this package and of installed ones, by the names that the command line has for them."""

from __future__ import annotations

from typing import Any

from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError
from bayesprivmrf.kinds import installed

# entry points by which other packages register estimators
_ENTRY_POINT_GROUP = "bayesprivmrf.estimators"
# the library's estimators, by the names of the command line
_OWN = {
    # one a line, so that a new one is one line more
    "naive-mle": "NaiveMLE",
    "cgm": "CGM",
    "noise-aware": "NoiseAwareMAP",
    "posterior": "LatentCounts",
}


def estimator_names() -> tuple[str, ...]:
    """Return the names of the estimators, this package's first; none is imported.

    A package joins with a line in the group ``bayesprivmrf.estimators`` of its own project file:
    ``name = "package.module:EstimatorClass"``.
    """
    return tuple(
        dict.fromkeys([*_OWN, *sorted(point.name for point in installed(_ENTRY_POINT_GROUP))])
    )


def estimator(name: str) -> Any:
    """Return the class of an estimator, which has default settings when called without arguments.

    Raises
    ------
    ArgumentError
        No package brings an estimator of this name.
    BayesPrivMRFError
        What a package brings has no `fit`, or two packages bring one of this name.
    """
    found = []
    for point in installed(_ENTRY_POINT_GROUP):
        try:
            found += [point.load()] if point.name == name else []
        except Exception as error:
            what = f"the estimator {name!r} ({point.value}) cannot be imported: {type(error).__name__}: {error}"
            raise BayesPrivMRFError(
                f"{what}; correct or remove the package that brings it."
            ) from error
    if name in _OWN:
        from bayesprivmrf import inference

        found.append(getattr(inference, _OWN[name]))
    if not found:
        raise ArgumentError(
            f"the estimator must be one of {', '.join(estimator_names())}, got {name!r}."
        )
    if any(other is not found[0] for other in found):
        raise BayesPrivMRFError(f"two packages bring an estimator named {name!r}; remove one.")
    if not callable(getattr(found[0], "fit", None)):
        raise BayesPrivMRFError(
            f"the estimator {name!r} must be a class with `fit(release)`, got {found[0]!r}; "
            "correct or remove the package that brings it."
        )
    return found[0]
