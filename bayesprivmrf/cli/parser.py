"""Options of every command."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

from bayesprivmrf.cli.methods import known_methods
from bayesprivmrf.inference.registry import estimator_names

# help that several commands share
_DATA_HELP = "records, .csv or .parquet, one column a variable"
_MODEL_HELP = "TOML file that declares variables, states and cliques"  # of `compare`
# of commands that may learn couplings
_VARIABLES_HELP = "TOML file that declares variables, states and, unless couplings are to be learned, cliques"
# values of `Adjacency`, whose module takes time to import; the first is the default
_ADJACENCIES = ("add-or-remove-one", "replace-one")


class Parser(argparse.ArgumentParser):
    """Parser whose errors have two lines: what is wrong, and which help lists all options."""

    def error(self, message: str) -> NoReturn:
        """Print the message and the help to consult, and exit with code 2."""
        self.exit(2, f"{self.prog}: error: {message}\nsee {self.prog} --help\n")


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _whole() -> argparse.ArgumentParser:
    """The parser before it has commands."""
    from importlib.metadata import version

    parser = Parser(
        prog="bayesprivmrf",
        description="Markov random fields from sensitive data: declare, release once, infer as often as you like.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('bayesprivmrf')}")
    return parser


def command_parser() -> argparse.ArgumentParser:
    """Parser of all commands."""
    parser = _whole()
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    _add_compare(commands)
    _add_model(commands)
    _add_plan(commands)
    _add_release(commands)
    _add_fit(commands)
    _add_audit(commands)
    for command in commands.choices.values():
        command.set_defaults(parser=command)  # whose help an error names
    return parser


def _add_compare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "compare",
        help="what each method makes of your data at several epsilon (an evaluation, no release)",
        description="Split the records 75/25, release the larger part at each epsilon in simulation, infer by "
        "each method, and score on the smaller part. Reads the data unprotected: for choosing a method, "
        "not for publishing. Without arguments: Fair's survey of 6,366 marriages.",
    )
    add = command.add_argument
    add("data", nargs="?", help=_DATA_HELP)
    add("--model", help=_MODEL_HELP)
    add(
        "--epsilon",
        type=_number_or_text,
        nargs="+",
        action="extend",
        metavar="E",
        help="budgets, by default 0.1 1 10; may be given several times",
    )
    add(
        "--methods", choices=known_methods(), nargs="+", action="extend", help="which methods, by default all"
    )
    _add_count(command)
    add("--quick", action="store_true", help="all methods but the posterior: the command takes seconds")
    add(
        "--draws",
        type=at_least(1),
        default=1000,
        help="draws of each of the posterior's 2 chains, after at most 400 to warm up; 1000 by default",
    )
    _add_inference(command)
    add("--adjacency", choices=_ADJACENCIES, default=_ADJACENCIES[0])
    add(
        "--seed",
        type=at_least(0),
        help="seed of the split, the noise and the sampling; drawn and printed if not given",
    )
    add("--out", metavar="DIR", help="write comparison.csv, comparison.json and comparison.png")
    add("--force", action="store_true", help="write into a folder that is not empty")
    _add_json(command)


def at_least(least: int) -> Callable[[str], int]:
    """Return the reader of an option that takes a whole number of at least `least`."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, got {text!r}")
        return int(text)

    return read


def _probability(text: str) -> float:
    value = _number_or_text(text)
    if isinstance(value, str) or not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and below 1, got {text!r}")
    return value


def _add_model(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "model",
        help="draft a model file from a public codebook",
        description="Write the variables and states of a codebook as a model file: a CSV file with the columns "
        "`variable` and `state`, one row per state, and perhaps `label`. Reads no data.",
    )
    add = command.add_argument
    add("codebook", help="CSV file with the columns variable and state, and perhaps label")
    add("--out", metavar="FILE", help="the model file; by default it is printed")
    add("--force", action="store_true", help="replace an existing file")
    _add_json(command)


def _add_plan(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "plan",
        help="what a budget buys, before anything is spent",
        description="Print each table's noise and the records it needs, and what inference will cost; for a "
        "mechanism that learns couplings, its steps, their costs and noise. With --learn: how many records it takes "
        "to learn a model, by lower bounds and by what was measured. Reads no data.",
    )
    add = command.add_argument
    add("--model", help=_VARIABLES_HELP)
    add("--total", type=int, help="a public guess of the number of records")
    _add_budget(command)
    _add_learn(command)
    _add_json(command)


def _add_learn(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("records needed to learn a model (--learn)")
    add = group.add_argument
    add(
        "--learn",
        choices=("parameters", "structure"),
        help="the goal: couplings and graph, or the graph alone",
    )
    add("--variables", type=at_least(1), metavar="P", help="how many; by default those of --model")
    add(
        "--error",
        type=float,
        metavar="A",
        help="error of a coupling that may remain, nats; for structure, the smallest coupling of an edge",
    )
    add("--states", type=at_least(1), metavar="K", help="of a variable, 2 or the most in --model")
    add("--order", type=at_least(1), metavar="T", help="most variables that interact, 2 by default")
    add(
        "--width",
        type=float,
        metavar="L",
        help="couplings and field of a variable added up, nats, 1 by default",
    )
    add("--delta", type=float, metavar="D", help="beside --epsilon, for approximate privacy")


def _add_release(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "release",
        help="spend the budget: noisy tables of the declared cliques, or learned couplings, in one file",
        description="Read the records once, with noise from a secure source, and save the release. "
        "This is the one command that spends privacy budget.",
    )
    add = command.add_argument
    add("data", help=_DATA_HELP)
    add("--model", required=True, help=_VARIABLES_HELP)
    add("--out", required=True, metavar="FILE", help="the release, e.g. survey.release")
    add("--force", action="store_true", help="replace an existing file")
    _add_count(command)
    _add_budget(command)
    _add_json(command)


def _add_fit(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "fit",
        help="infer from a release; spends nothing",
        description="Fit the Markov random field to a saved release. This is post-processing and leaves the promise "
        "unchanged.",
    )
    add = command.add_argument
    add("release", help="file that `bayesprivmrf release` wrote")
    add(
        "--method",
        choices=estimator_names(),
        help="by default noise-aware, or cgm with --inference loopy; posterior samples for a minute or so",
    )
    _add_inference(command)
    add(
        "--out",
        metavar="PATH",
        help="a folder for solution.json, network.json and marginals/*.csv; for a posterior, one file, e.g. x.nc; "
        "for released parities, the learned model's file",
    )
    add("--force", action="store_true", help="replace what an earlier fit wrote there")
    add("--prob", type=_probability, metavar="P", help="probability of intervals, 0.9 by default")
    add("--seed", type=at_least(0), help="seed of the posterior's sampling; drawn and printed if not given")
    add(
        "--draws",
        type=at_least(1),
        help="draws of each chain of the posterior, after as many to warm up; 1000 after 500 by default",
    )
    add("--chains", type=at_least(1), help="chains of the posterior, 4 by default")
    _add_json(command)


def _add_audit(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "audit",
        help="test a promise by many runs: that of a saved release, or of a mechanism on made-up data",
        description="Compare the promise with the exact cost of the stated noise, and with a lower bound from runs "
        "on made-up neighbouring data. Reads no data. The exit status is 3 if the promise is refuted; a promise "
        "that is not refuted is not thereby proved.",
    )
    add = command.add_argument
    add(
        "subject",
        metavar="RELEASE_OR_MECHANISM",
        help="file of noisy tables; or laplace, gaussian, objective-perturbation, select-measure, frank-wolfe, "
        "parity-queries, stable-structure or a plug-in of noisy tables, with its budget",
    )
    add("--model", help="TOML file that declares the mechanism's model, by default six variables in a row")
    add(
        "--runs",
        type=at_least(100),
        default=20_000,
        help="draws of the noise, 20,000 by default; whole releases are made a fiftieth as often",
    )
    add(
        "--confidence",
        type=_probability,
        default=0.9999,
        metavar="P",
        help="confidence of each bound, 0.9999 by default",
    )
    _add_settings(command)
    _add_json(command)


def _add_budget(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--mechanism",
        metavar="NAME",
        help="laplace (default with --epsilon), gaussian (default with --rho), frank-wolfe, select-measure, "
        "parity-queries, stable-structure, dpsgd, or an installed plug-in",
    )
    _add_settings(command)


def _add_settings(command: argparse.ArgumentParser) -> None:
    budget = command.add_mutually_exclusive_group()
    budget.add_argument(
        "--epsilon",
        type=float,
        metavar="E",
        help="budget of pure differential privacy; for dpsgd, with --set delta=D, of approximate privacy",
    )
    budget.add_argument("--rho", type=float, metavar="R", help="budget of zero-concentrated privacy")
    add = command.add_argument
    add(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the mechanism, such as width=1.0 or degree=4; as often as needed (epsilon, rho and "
        "adjacency are options of their own)",
    )
    add("--adjacency", choices=_ADJACENCIES, default=_ADJACENCIES[0], help="which data sets are neighbours")


def _add_count(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--count", metavar="COLUMN", help="column of a frequency table: how many records each row stands for"
    )


def _add_inference(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--inference",
        choices=("exact", "loopy"),
        default="exact",
        help="exact marginals, or loopy belief propagation: an approximation for models too large for them",
    )


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON on standard output")
