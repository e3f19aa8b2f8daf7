"""Parser of the command line, with the options and help texts of every command."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

from bayesprivmrf.cli.methods import known_methods
from bayesprivmrf.inference.registry import estimator_names

# Help text of records, which several commands share
_DATA = "records, .csv, .parquet or a folder of Parquet files, with one column per variable"
# Help text of the models of mechanisms, which several commands share
_VARIABLES = "TOML file that declares variables, states and, unless couplings are learned, cliques"


class Parser(argparse.ArgumentParser):
    """Argument parser whose errors have two lines: the error, and the command that prints all options."""

    def error(self, message: str) -> NoReturn:
        """Print the message and the command for help, and exit with code 2."""
        self.exit(2, f"{self.prog}: error: {message}\nsee {self.prog} --help\n")


def number_from(least: int) -> Callable[[str], int]:
    """Return a function that reads a whole number of at least `least` from an option."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"must be a whole number of at least {least}, got {text!r}"
            )
        return int(text)

    return read


def _number_or_text(text: str) -> float | str:
    """Return a number if the text is one, or else the text."""
    try:
        return float(text)
    except ValueError:
        return text


def _probability(text: str) -> float:
    """Return a number above 0 and below 1 from an option."""
    value = _number_or_text(text)
    if isinstance(value, str) or not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and below 1, got {text!r}")
    return value


# Options that several commands share
_SHARED: dict[str, dict[str, Any]] = {
    "--count": {
        "metavar": "COLUMN",
        "help": "column of a frequency table with the number of records of each row",
    },
    "--inference": {
        "choices": ("exact", "loopy"),
        "default": "exact",
        "help": "exact marginals, or loopy belief propagation, an approximation for models that are too large",
    },
    "--adjacency": {
        "choices": (
            "add-or-remove-one",
            "replace-one",
        ),  # values of `Adjacency`, whose module is slow to import
        "default": "add-or-remove-one",
        "help": "relation of neighboring data sets, by default add-or-remove-one",
    },
    "--mechanism": {
        "metavar": "NAME",
        "help": "laplace (default with --epsilon), gaussian (default with --rho), frank-wolfe, select-measure, "
        "parity-queries, stable-structure, dpsgd, or an installed plug-in",
    },
    "--set": {
        "action": "append",
        "default": [],
        "metavar": "NAME=VALUE",
        "help": "setting of the mechanism, such as width=1.0 or degree=4; the option may be repeated (epsilon, rho "
        "and adjacency have options of their own)",
    },
    "--json": {"action": "store_true", "help": "print JSON on standard output"},
}


def _add_shared(command: argparse.ArgumentParser, *names: str) -> None:
    """Add options that several commands share."""
    for name in names:
        command.add_argument(name, **_SHARED[name])


def _add_settings(command: argparse.ArgumentParser) -> None:
    """Add the budget and the other settings of a mechanism."""
    add = command.add_mutually_exclusive_group().add_argument
    pure = "budget of pure differential privacy; for dpsgd, of approximate privacy together with --set delta=D"
    add("--epsilon", type=float, metavar="E", help=pure)
    add("--rho", type=float, metavar="R", help="budget of zero-concentrated privacy")
    _add_shared(command, "--set", "--adjacency")


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    from importlib.metadata import version

    purpose = "declare a model, make one release, and infer as often as you like."
    parser = Parser(
        prog="bayesprivmrf", description=f"Markov random fields from sensitive data: {purpose}"
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {version('bayesprivmrf')}"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    _add_compare(commands)
    _add_model(commands)
    _add_plan(commands)
    _add_release(commands)
    _add_fit(commands)
    _add_test(commands)
    _add_report(commands)
    _add_audit(commands)
    for command in commands.choices.values():
        _add_shared(command, "--json")
        command.set_defaults(parser=command)  # an error refers to the help of its command
    return parser


def _add_compare(commands: argparse._SubParsersAction[Parser]) -> None:
    command = commands.add_parser(
        "compare",
        help="compare the methods on your data at several epsilon (an evaluation, not a release)",
        description="Split the records 75/25, simulate a release of the larger part at each epsilon, fit every "
        "method, and score the fits on the smaller part. The command reads the data unprotected: use it to choose a "
        "method, and do not publish its results. Without arguments it uses Fair's survey of 6,366 marriages.",
    )
    add = command.add_argument
    add("data", nargs="?", help=_DATA)
    add("--model", help="TOML file that declares variables, states and cliques")
    several: Any = {"nargs": "+", "action": "extend"}
    budgets = "one or more budgets, by default 0.1 1 10; the option may be repeated"
    add("--epsilon", type=_number_or_text, metavar="E", help=budgets, **several)
    other = "TOML file of a model to fit to the release instead of that of --model"
    add("--fit-model", metavar="FILE", help=other)
    add("--methods", choices=known_methods(), help="methods to compare, by default all", **several)
    _add_shared(command, "--count")
    add(
        "--quick",
        action="store_true",
        help="leave out the posterior, so that the command takes seconds",
    )
    draws = "draws of each of the posterior's 2 chains, after at most 200 warm-up draws; 1000 by default"
    add("--draws", type=number_from(1), default=1000, help=draws)
    _add_shared(command, "--inference", "--adjacency")
    seed = (
        "seed of the split, the noise and the sampling; by default a random one, which is printed"
    )
    add("--seed", type=number_from(0), help=seed)
    add("--out", metavar="DIR", help="write comparison.csv, comparison.json and comparison.png")
    add("--force", action="store_true", help="write into a folder that is not empty")


def _add_model(commands: argparse._SubParsersAction[Parser]) -> None:
    command = commands.add_parser(
        "model",
        help="draft a model file from a public codebook",
        description="Write a model file with the variables and states of a codebook. The codebook is a CSV file with "
        "the columns `variable` and `state`, one row per state, and optionally `label`. The command reads no data.",
    )
    add = command.add_argument
    add("codebook", help="CSV file with the columns variable and state, and optionally label")
    add("--out", metavar="FILE", help="model file to write; by default it is printed")
    add("--force", action="store_true", help="replace an existing file")


def _add_plan(commands: argparse._SubParsersAction[Parser]) -> None:
    command = commands.add_parser(
        "plan",
        help="forecast what a budget buys, without spending any",
        description="Print the noise of each table, the records that it needs, and the cost of inference. For a "
        "mechanism that learns couplings, print its steps with their costs and noise. With --learn, print the "
        "number of records that it takes to learn a model, by laws fitted to measurements. The command reads "
        "no data.",
    )
    command.add_argument("--model", help=_VARIABLES)
    command.add_argument("--total", type=int, help="public guess of the number of records")
    _add_shared(command, "--mechanism")
    _add_settings(command)
    add = command.add_argument_group("records needed to learn a model (--learn)").add_argument
    goal = "goal: couplings and graph (parameters), or only the graph (structure)"
    add("--learn", choices=("parameters", "structure"), help=goal)
    add(
        "--variables",
        type=number_from(1),
        metavar="P",
        help="number of variables; by default those of --model",
    )
    error = "largest accepted error of a coupling, in nats; for structure, the smallest coupling of an edge"
    add("--error", type=float, metavar="A", help=error)
    states = "number of states of a variable; by default the largest in --model, or 2"
    add("--states", type=number_from(1), metavar="K", help=states)
    order = "largest number of variables in one interaction, 2 by default"
    add("--order", type=number_from(1), metavar="T", help=order)
    width = (
        "bound on the sum of the absolute couplings and field of a variable, in nats, 1 by default"
    )
    add("--width", type=float, metavar="L", help=width)
    add(
        "--delta",
        type=float,
        metavar="D",
        help="delta of approximate privacy, together with --epsilon",
    )


def _add_release(commands: argparse._SubParsersAction[Parser]) -> None:
    command = commands.add_parser(
        "release",
        help="spend the budget: noisy tables of the declared cliques, or learned couplings, in one file",
        description="Read the records once, add noise from a secure source, and save the release. "
        "This is the only command that spends privacy budget.",
    )
    add = command.add_argument
    add("data", help=_DATA)
    add("--model", required=True, help=_VARIABLES)
    add(
        "--out",
        required=True,
        metavar="FILE",
        help="file of the release, for instance survey.release",
    )
    add("--force", action="store_true", help="replace an existing file")
    _add_shared(command, "--count", "--mechanism")
    _add_settings(command)


def _add_fitted(command: argparse.ArgumentParser) -> None:
    """Add the release that is fitted, and the model and the noise of published counts."""
    add = command.add_argument
    saved = "file that `bayesprivmrf release` or Python's `save` wrote"
    add(
        "release",
        help=f"{saved}; with --model, also published noisy counts, .csv or .parquet, a row for each",
    )
    model = "TOML file of the model of published noisy counts, or of a model to fit instead of a saved release's own"
    add("--model", metavar="FILE", help=model)
    add(
        "--noise",
        metavar="NAME",
        help="noise of published counts, such as laplace, if no column `law` states it",
    )
    add(
        "--total",
        type=number_from(0),
        metavar="N",
        help="number of records in published counts, if it is public",
    )


def _add_sampling(command: argparse.ArgumentParser, seed: str) -> None:
    """Add the probability of intervals and the settings of a posterior's sampling."""
    add = command.add_argument
    add("--prob", type=_probability, metavar="P", help="probability of intervals, 0.9 by default")
    add("--seed", type=number_from(0), help=seed)
    draws = "draws of each chain of the posterior, 1000 by default; if given, after at most 200 warm-up draws"
    add("--draws", type=number_from(1), help=draws)
    add("--chains", type=number_from(1), help="number of chains of the posterior, 4 by default")


def _add_fit(commands: argparse._SubParsersAction[Parser]) -> None:
    command = commands.add_parser(
        "fit",
        help="fit a model to a release, without spending budget",
        description="Fit the Markov random field to a saved release. This is post-processing, which does not weaken "
        "the promise.",
    )
    _add_fitted(command)
    add = command.add_argument
    method = "estimator, by default noise-aware, or cgm with --inference loopy; posterior takes about a minute"
    add("--method", choices=estimator_names(), help=method)
    _add_shared(command, "--inference")
    files = "folder for solution.json, network.json and marginals/*.csv; for a posterior, a file such as x.nc"
    add(
        "--out",
        metavar="PATH",
        help=f"{files}; for released parities, the file of the learned model",
    )
    add("--force", action="store_true", help="replace the files of an earlier fit")
    given = (
        "state of a variable on which the printed probabilities are conditional; the option may be repeated, and "
        "several states of one variable mean any of them. The files of --out keep the whole tables"
    )
    add("--given", action="append", default=[], metavar="VARIABLE=STATE", help=given)
    seed = "seed of a posterior's sampling or a network's simulation; by default a random one, which is printed"
    _add_sampling(command, seed)


def _add_report(commands: argparse._SubParsersAction[Parser]) -> None:
    command = commands.add_parser(
        "report",
        help="write a report of a release: promise, estimates, tests, and what must not be concluded",
        description="Fit a saved release and write one file to hand in. The report holds no data beyond the release, "
        "and costs no budget.",
    )
    _add_fitted(command)
    add = command.add_argument
    add(
        "--out",
        default="report.html",
        metavar="FILE",
        help="file to write, report.html by default; the ends .md and .qmd ask for Markdown",
    )
    add("--force", action="store_true", help="replace an existing file")
    method = "estimator with intervals, by default noise-aware; posterior takes about a minute"
    add("--method", choices=estimator_names(), help=method)
    test = (
        "test whether the first two variables are independent, given the others if there are any; the option may be "
        "repeated"
    )
    add("--test", nargs="+", action="append", default=[], metavar="VARIABLE", help=test)
    seed = (
        "seed of the tests and of a posterior's sampling; by default a random one, which is printed"
    )
    _add_sampling(command, seed)
    command.set_defaults(inference="exact")


def _add_test(commands: argparse._SubParsersAction[Parser]) -> None:
    command = commands.add_parser(
        "test",
        help="test a hypothesis about a release, with the noise counted in",
        description="Test a hypothesis about the tables of a saved release. The p-value counts the sampling and the "
        "noise. The command reads no data and spends no budget.",
    )
    add = command.add_argument
    add("release", help="file that `bayesprivmrf release` or Python's `save` wrote")
    kinds = (
        "independence",
        "fit",
        "equal-odds",
        "groups",
        "symmetry",
        "homogeneity",
        "stationarity",
    )
    add("kind", choices=kinds, help="hypothesis")
    variables = (
        "independence, equal-odds, symmetry: the two that are compared; groups: that of the groups, then those "
        "compared; homogeneity, stationarity: the times, all by default; fit: none"
    )
    add("variables", nargs="*", metavar="VARIABLE", help=variables)
    given = "independence, equal-odds: variable within whose states the two are compared; the option may be repeated"
    add("--given", action="append", default=[], metavar="VARIABLE", help=given)
    model = "fit: model file with the same variables, and without the interaction in question"
    add("--model", metavar="FILE", help=model)
    draws = "number of simulated releases, 999 by default"
    add("--draws", type=number_from(99), default=999, help=draws)
    seed = "seed of the simulation; by default a random one, which is printed"
    add("--seed", type=number_from(0), help=seed)


def _add_audit(commands: argparse._SubParsersAction[Parser]) -> None:
    command = commands.add_parser(
        "audit",
        help="test the promise of a saved release, or of a mechanism on made-up data",
        description="Compare the promise with the exact cost of the stated noise, and with a lower bound from many "
        "runs on made-up neighboring data. The command reads no data. Its exit status is 3 if the promise is "
        "refuted. A promise that is not refuted is not thereby proved.",
    )
    add = command.add_argument
    names = "laplace, gaussian, objective-perturbation, select-measure, frank-wolfe, parity-queries, stable-structure"
    subject = f"file of noisy tables; or {names} or a plug-in for noisy tables, with its budget"
    add("subject", metavar="RELEASE_OR_MECHANISM", help=subject)
    add(
        "--model",
        help="TOML file that declares the mechanism's model; by default a chain of six variables",
    )
    runs = "number of noise draws, 20,000 by default; whole releases are made a fiftieth as often"
    add("--runs", type=number_from(100), default=20_000, help=runs)
    confidence = "confidence of each bound, 0.9999 by default"
    add("--confidence", type=_probability, default=0.9999, metavar="P", help=confidence)
    _add_settings(command)
