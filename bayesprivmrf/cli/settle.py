"""Rules for options that must not stand together, and for what one says about another."""

from __future__ import annotations

import argparse
from pathlib import Path

from bayesprivmrf.cli.methods import (
    chosen_method,
    has_intervals,
    in_order,
    offers_loopy,
    takes,
    usable_methods,
)


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
