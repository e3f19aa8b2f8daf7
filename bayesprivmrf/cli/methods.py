"""Estimators by the names that the command line has for them, and what each can be asked for."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from bayesprivmrf.cli.output import remark
from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError
from bayesprivmrf.inference.registry import estimator, estimator_names

if TYPE_CHECKING:
    import numpy as np

    from bayesprivmrf.inference import Posterior, Solution
    from bayesprivmrf.release import NoisyStatistics

# What ``compare`` sets beside the estimators, and how it is written for a person
_REFERENCES = {"uniform": "uniform", "mle": "non-private MLE"}


def chosen_method(options: argparse.Namespace) -> str:
    """Name of the estimator that ``fit`` takes; by default the noise-aware mode, which needs exact marginals."""
    return options.method or ("cgm" if options.inference == "loopy" else "noise-aware")


def known_methods() -> tuple[str, ...]:
    """All methods of ``compare``, in the order of its rows."""
    return (*_REFERENCES, *estimator_names())


def usable_methods() -> list[str]:
    """All methods but those whose package cannot be imported, or brings no estimator: a remark names these."""
    found = []
    for name in known_methods():
        try:
            label(name)
        except BayesPrivMRFError as error:
            remark(f"{error} `compare` leaves {name!r} out.")
        else:
            found.append(name)
    return found


def label(name: str) -> str:
    """Name of a method for a person: what its estimator calls itself, if it does."""
    return _REFERENCES.get(name) or getattr(estimator(name), "method", name)


def is_plug_in(name: str) -> bool:
    """Return True if another package brings the method."""
    return name not in _REFERENCES and estimator(name).__module__.partition(".")[0] != "bayesprivmrf"


def has_intervals(name: str) -> bool:
    """Return True if what the estimator gives has intervals."""
    return getattr(estimator(name), "has_intervals", False)


def offers_loopy(name: str) -> bool:
    """Return True if the method can do without exact marginals, in a time that one would wait for."""
    return name in _REFERENCES or getattr(estimator(name), "offers_loopy", False)


def takes(name: str, argument: str) -> bool:
    """Whether the estimator's `fit` takes an argument, as one that samples takes `rng`, `draws` and `chains`."""
    if name in _REFERENCES:
        return False
    known = inspect.signature(estimator(name).fit).parameters
    return argument in known or any(each.kind is each.VAR_KEYWORD for each in known.values())


def fitted(
    name: str,
    release: NoisyStatistics,
    *,
    inference: Literal["exact", "loopy"],
    rng: int | np.random.Generator,
    sampling: dict[str, Any],
) -> Solution | Posterior:
    """Estimate of a release; `rng` and `sampling` are given to an estimator that samples."""
    settings = {"inference": inference} if offers_loopy(name) else {}
    kind = estimator(name)
    lacking = [
        one.name
        for one in inspect.signature(kind).parameters.values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if lacking:
        raise ArgumentError(
            f"the method {name!r} must have default settings, but must be given {', '.join(lacking)}; "
            "call it from Python."
        )
    named = {key: value for key, value in sampling.items() if takes(name, key)} | {"rng": rng}
    try:
        made: Any = kind(**settings)
        found = made.fit(release, **named) if takes(name, "rng") else made.fit(release)
    except BayesPrivMRFError:
        raise
    except Exception as error:  # an estimator sees a release alone, so that its message may be shown
        if not is_plug_in(name):
            raise
        raise BayesPrivMRFError(
            f"the method {name!r} failed with {type(error).__name__}: {error}; correct or remove the package that "
            "brings it."
        ) from error
    if not hasattr(found, "status"):
        raise BayesPrivMRFError(
            f"the `fit` of the method {name!r} must give a Solution, got {type(found).__name__}; "
            "correct or remove the package that brings it."
        )
    return found


def in_order(chosen: Sequence[str] | None, inference: str) -> list[str]:
    """Chosen methods of ``compare``, in its order, each once; by default all that the kind of inference allows."""
    wanted = [name for name in known_methods() if chosen is None or name in chosen]
    return [name for name in wanted if inference == "exact" or offers_loopy(name)]
