"""Methods of the command line: estimators by name, their capabilities, and checks of options that depend on them."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bayesprivmrf.checks import require
from bayesprivmrf.cli.output import remark
from bayesprivmrf.errors import BayesPrivMRFError
from bayesprivmrf.inference.registry import estimator, estimator_names
from bayesprivmrf.kinds import is_own
from bayesprivmrf.model import ModelSpecification

# largest number of warm-up draws of a chain; a chain of fewer draws has as many warm-up draws as draws
WARM_UP = 200
# probability of intervals by default
_PROB = 0.9
# methods that ``compare`` has besides the estimators, and their printed names
_REFERENCES = {"uniform": "uniform", "mle": "non-private MLE"}


def chosen_method(options: argparse.Namespace) -> str:
    """Return the name of the estimator of ``fit``; by default the noise-aware mode, or CGM for loopy inference."""
    return options.method or ("cgm" if options.inference == "loopy" else "noise-aware")


def known_methods() -> tuple[str, ...]:
    """Return all methods of ``compare``, in the order of its rows."""
    return (*_REFERENCES, *estimator_names())


def label(name: str) -> str:
    """Return the printed name of a method: the attribute `method` of its estimator, if there is one."""
    return _REFERENCES.get(name) or getattr(estimator(name), "method", name)


def is_plug_in(name: str) -> bool:
    """Return True if the method comes from another package."""
    return name not in _REFERENCES and not is_own(estimator(name))


def offers_loopy(name: str) -> bool:
    """Return True if the method works with loopy belief propagation in reasonable time."""
    return name in _REFERENCES or getattr(estimator(name), "offers_loopy", False)


def takes(name: str, argument: str) -> bool:
    """Return True if the estimator's `fit` takes an argument; those that sample take `rng`, `draws` and `chains`."""
    if name in _REFERENCES:
        return False
    known = inspect.signature(estimator(name).fit).parameters
    return argument in known or any(each.kind is each.VAR_KEYWORD for each in known.values())


def fitted(
    name: str,
    release: Any,
    *,
    inference: str,
    rng: Any,
    sampling: dict[str, Any],
    model: ModelSpecification | None = None,
) -> Any:
    """Fit an estimator to a release; `rng` and `sampling` are used if the estimator samples.

    `model` is another model than the release declares, if there is one.
    """
    kind = estimator(name)
    parameters = inspect.signature(kind).parameters.values()
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    lacking = ", ".join(
        one.name for one in parameters if one.default is one.empty and one.kind not in starred
    )
    what = f"the method {name!r}"
    seen = f"none for {lacking}"
    require(not lacking, what, "have defaults for all settings", seen, "call it from Python")
    named: dict[str, Any] = {}
    if takes(name, "rng"):
        named = {key: value for key, value in sampling.items() if takes(name, key)} | {"rng": rng}
    if model is not None:
        must = (
            "have an argument `model` of its `fit`, to fit another model than the release declares"
        )
        require(takes(name, "model"), what, must, "none", "leave the model out")
        named["model"] = model
    try:
        if offers_loopy(name):
            made = kind(inference=inference)
        else:
            made = kind()
        found = made.fit(release, **named)
    except BayesPrivMRFError:
        raise
    except Exception as error:  # an estimator reads only a release, so its message may be shown
        if not is_plug_in(name):
            raise
        raise BayesPrivMRFError(
            f"the method {name!r} failed with {type(error).__name__}: {error}; correct or remove its package."
        ) from error
    what = f"the `fit` of the method {name!r}"
    remedy = "correct or remove the package that it comes from"
    is_solution = hasattr(found, "status")
    require(
        is_solution,
        what,
        "return a Solution",
        type(found).__name__,
        remedy,
        error=BayesPrivMRFError,
    )
    return found


def in_order(chosen: Sequence[str] | None, inference: str) -> list[str]:
    """Return the chosen methods of ``compare`` in its order, each once; by default all that work with `inference`."""
    wanted = [name for name in known_methods() if chosen is None or name in chosen]
    return [name for name in wanted if inference == "exact" or offers_loopy(name)]


def settle(options: argparse.Namespace) -> None:
    """Refuse contradictory options as wrong usage, and set the options whose defaults depend on others."""
    spends = options.command in ("plan", "release")
    if (
        spends
        and options.epsilon is options.rho is None
        and not (options.mechanism and options.set)
    ):
        # unless the budget is among the settings
        options.parser.error("one of the arguments --epsilon --rho is required")
    rules = {
        "compare": _settle_compare,
        "plan": _settle_plan,
        "fit": _settle_fit,
        "report": _settle_report,
    }
    if options.command in rules:
        rules[options.command](options.parser.error, options)


def _settle_plan(refuse: Callable[[str], None], options: argparse.Namespace) -> None:
    """Refuse options of a plan for a release together with ``--learn``, and the reverse."""
    learn = ("variables", "error", "states", "order", "width", "delta")
    given = [f"--{name}" for name in learn if getattr(options, name) is not None]
    if options.learn is None:
        if given:
            refuse(f"argument {given[0]}: must be given together with --learn")
        if options.model is None:
            refuse("the following arguments are required: --model")
        return
    if options.error is None:
        refuse("argument --learn: must be given together with --error")
    if (options.model is None) == (options.variables is None):
        refuse("argument --learn: must be given together with either --variables or --model")
    if options.mechanism or options.set or options.total is not None:
        refuse("argument --learn: must be given without --mechanism, --set and --total")
    if options.delta is not None and options.epsilon is None:
        refuse("argument --delta: must be given together with --epsilon")


def _settle_compare(refuse: Callable[[str], None], options: argparse.Namespace) -> None:
    """Set the defaults of ``compare``, and refuse contradictory options.

    ``--epsilon`` takes all arguments that follow it, so the name of the data file may be among its values.
    """
    given = options.epsilon or []
    strays = [text for text in given if isinstance(text, str)]
    if len(strays) == 1 and options.data is None and Path(strays[0]).is_file():
        options.data = strays[0]
    elif strays:
        refuse(
            f"argument --epsilon: must be numbers, got {strays[0]!r}; put the data file before the options"
        )
    options.epsilon = [value for value in given if not isinstance(value, str)] or [0.1, 1.0, 10.0]
    if (options.data is None) != (options.model is None):
        refuse("data and --model must be given together; without both, compare uses Fair's survey")
    for name in options.methods or ():
        if options.quick and takes(name, "draws"):
            refuse(f"argument --quick: must be left out for {name}, which --methods asks for")
        if options.inference == "loopy" and not offers_loopy(name):
            refuse(f"argument --methods: {name} needs --inference exact")
    if options.methods is None:
        options.methods = []
        for name in known_methods():
            try:
                label(name)
            except BayesPrivMRFError as error:  # of a package that cannot be imported
                remark(f"{error} `compare` leaves {name!r} out.")
            else:
                if not (options.quick and takes(name, "draws")):
                    options.methods.append(name)


def refuse_unsampled(options: argparse.Namespace, name: str) -> None:
    """Refuse an option of sampling beside a method of ``fit`` that does not sample.

    Without a method, `fit` checks ``--seed`` when it knows the release: the interval of an estimate on a network is
    simulated, whatever the method.
    """
    method = chosen_method(options)
    if getattr(options, name) is not None and not takes(method, "rng" if name == "seed" else name):
        options.parser.error(
            f"argument --{name}: must go with a method that samples, such as posterior, got {method}"
        )


def _settle_report(refuse: Callable[[str], None], options: argparse.Namespace) -> None:
    """Refuse a method without intervals, which a report needs, and options that the method would ignore."""
    method = chosen_method(options)
    if not getattr(estimator(method), "has_intervals", False):
        must = "must be a method that has intervals, such as noise-aware or posterior"
        refuse(f"argument --method: {must}, got {method}")
    for name in ("draws", "chains"):
        refuse_unsampled(options, name)
    if options.prob is None:
        options.prob = _PROB


def _settle_fit(refuse: Callable[[str], None], options: argparse.Namespace) -> None:
    """Refuse options that the method would ignore."""
    method = chosen_method(options)
    for name in ("draws", "chains", *(["seed"] if options.method else [])):
        refuse_unsampled(options, name)
    asked = [f"--{name}" for name in ("prob", "given") if getattr(options, name)]
    if asked and not getattr(estimator(method), "has_intervals", False):
        must = "must go with a method that has intervals, such as noise-aware"
        refuse(f"argument {asked[0]}: {must}, got {method}")
    if options.inference == "loopy" and not offers_loopy(method):
        refuse(f"argument --inference: {method} needs exact marginals on the command line")
    if options.prob is None:
        options.prob = _PROB
