"""Estimators by the names that the command line has for them, and what each can be asked for.

Rules for options that must not stand together, and for what one says about another.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Sequence
from pathlib import Path
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


def settle(options: argparse.Namespace) -> None:
    """Refuse options that contradict each other, as wrong usage, and fill in what depends on others."""
    parser: argparse.ArgumentParser = options.parser
    spends = options.command in ("plan", "release")
    if spends and options.epsilon is options.rho is None and not (options.mechanism and options.set):
        parser.error("one of the arguments --epsilon --rho is required")  # or a mechanism's own setting
    if options.command == "compare":
        _settle_compare(parser, options)
    elif options.command == "plan":
        _settle_plan(parser, options)
    elif options.command == "fit":
        _settle_fit(parser, options)


def _settle_plan(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse options of the one question beside the other."""
    learn = ("variables", "error", "states", "order", "width", "delta")
    given = [f"--{name}" for name in learn if getattr(options, name) is not None]
    if options.learn is None:
        if given:
            parser.error(f"argument {given[0]}: goes with --learn")
        if options.model is None:
            parser.error("the following arguments are required: --model")
        return
    if options.error is None:
        parser.error("argument --learn: needs --error")
    if (options.model is None) == (options.variables is None):
        parser.error("argument --learn: takes either --variables or --model")
    if options.mechanism or options.set or options.total is not None:
        parser.error("argument --learn: takes no --mechanism, --set or --total")
    if options.delta is not None and options.epsilon is None:
        parser.error("argument --delta: goes with --epsilon")


def _settle_compare(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Sort out what ``--epsilon``, which takes all that follows it, took of the data file's name."""
    given = options.epsilon or []
    strays = [text for text in given if isinstance(text, str)]
    if len(strays) == 1 and options.data is None and Path(strays[0]).is_file():
        options.data = strays[0]
    elif strays:
        parser.error(
            f"argument --epsilon: must be numbers, got {strays[0]!r}; put the data file before the options"
        )
    options.epsilon = [value for value in given if not isinstance(value, str)] or [0.1, 1.0, 10.0]
    if (options.data is None) != (options.model is None):
        parser.error("compare takes data and --model together, or neither (Fair's survey)")
    if options.quick:
        sampling = [name for name in options.methods or () if takes(name, "draws")]
        if sampling:
            parser.error(f"argument --quick: leaves out {sampling[0]}, which --methods asks for")
    for name in options.methods or ():
        if options.inference == "loopy" and not offers_loopy(name):
            parser.error(f"argument --methods: {name} takes no --inference loopy")
    if options.methods is None:
        options.methods = in_order(usable_methods(), options.inference)
    if options.quick:
        options.methods = [name for name in options.methods if not takes(name, "draws")]


def _settle_fit(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse options that the method would ignore."""
    method = chosen_method(options)
    for name, argument in (("seed", "rng"), ("draws", "draws"), ("chains", "chains")):
        if getattr(options, name) is not None and not takes(method, argument):
            parser.error(
                f"argument --{name}: goes with a method that samples, such as posterior, not {method}"
            )
    if options.prob is not None and not has_intervals(method):
        parser.error(
            f"argument --prob: goes with a method that has intervals, such as noise-aware, not {method}"
        )
    if options.inference == "loopy" and not offers_loopy(method):
        parser.error(f"argument --inference: {method} needs exact marginals on the command line")
    options.prob = 0.9 if options.prob is None else options.prob
