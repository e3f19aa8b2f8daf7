"""The command line: ``bayesprivmrf compare | model | plan | release | fit | audit``.

This module says once what each command is for; the module of its name says how it works. Results go to standard
output, remarks and progress to standard error. Exit codes: 0 well, 1 an error, 2 wrong usage, 3 an audit refuted a
promise, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence

from bayesprivmrf.cards import printable
from bayesprivmrf.cli.methods import offers_loopy, settle
from bayesprivmrf.cli.parser import command_parser as _parser
from bayesprivmrf.errors import OWN_WARNINGS, BayesPrivMRFError, ModelTooLargeError

__all__ = ["guarded", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv
        Arguments after the program's name; those of the process by default.

    Returns
    -------
    int
        0 if it went well, 1 after an error (one line on standard error), 3 if an audit refuted a promise, 130 if
        interrupted.

    Raises
    ------
    SystemExit
        The arguments are not a command (code 2), or ask for help (code 0).
    """
    parser = _parser()
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments[:1] == ["reproduce"]:
        parser.error(
            "the package has no command for the figures of the papers; in a clone of the repository, run "
            "`uv run python -m benchmarks.papers` with the same arguments (docs/reproduce.md)."
        )
    options = parser.parse_args(arguments)

    def command() -> int:
        settle(options)
        return _run(options)

    def remedy(error: BayesPrivMRFError) -> str:
        return " Here that is `--inference loopy`." if _may_go_loopy(options, error) else ""

    return guarded(command, remedy)


def guarded(command: Callable[[], int], remedy: Callable[[BayesPrivMRFError], str] = lambda _: "") -> int:
    """Run a command, and return its exit code; every error becomes one line on standard error.

    Parameters
    ----------
    command
        Does the work and returns the exit code.
    remedy
        Gives a sentence to append to an error of this package.
    """
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        _keep_own_warnings()
        try:
            return command()
        except BayesPrivMRFError as error:
            print(f"bayesprivmrf: error: {printable(error.at_command_line)}{remedy(error)}", file=sys.stderr)
            return 1
        except BrokenPipeError:
            # the reader of our output has left (`... | head`); Python must not try to flush to it again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except OSError as error:
            reason = error.strerror or type(error).__name__
            print(
                f"bayesprivmrf: error: {printable(str(error.filename or 'a file'))}: {reason}.",
                file=sys.stderr,
            )
            return 1
        except KeyboardInterrupt:
            print("bayesprivmrf: interrupted.", file=sys.stderr)
            return 130
        except (SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            # no traceback and no message: either may quote the data, and standard error is often logged
            print(
                f"bayesprivmrf: error: unexpected {type(error).__name__}; its message is withheld, for it may quote "
                "what was read. Call the library from Python to see it.",
                file=sys.stderr,
            )
            return 1


def _run(options: argparse.Namespace) -> int:
    """Only the module of the command asked for is imported: the others' imports take seconds."""
    return importlib.import_module(f"bayesprivmrf.cli.{options.command}").run(options) or 0


def _keep_own_warnings() -> None:
    """Show this package's warnings, whatever filters are set; another library's notices are for its developers."""
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("ignore", FutureWarning)
    for category in OWN_WARNINGS:
        warnings.simplefilter("always", category)


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    text = " ".join(getattr(message, "at_command_line", str(message)).split())
    print(f"bayesprivmrf: warning: {printable(text)}", file=sys.stderr)


def _may_go_loopy(options: argparse.Namespace, error: BayesPrivMRFError) -> bool:
    if not isinstance(error, ModelTooLargeError) or getattr(options, "inference", None) != "exact":
        return False
    return options.command == "compare" or options.method is None or offers_loopy(options.method)
