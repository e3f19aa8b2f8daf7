"""Command line of the library: ``bayesprivmrf compare | model | plan | release | fit | audit``.

Each command has a module of its name; `parser` has the options of all commands. Results go to standard output, and
remarks and progress to standard error. The exit code is 0 for success, 1 for an error, 2 for wrong usage, 3 if an
audit refuted a promise, and 130 if the command was interrupted.
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
from bayesprivmrf.errors import BayesPrivMRFError, BayesPrivMRFWarning, ModelTooLargeError

__all__ = ["guarded", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of the command line.

    Parameters
    ----------
    argv
        Arguments after the program's name; by default those of the process.

    Returns
    -------
    int
        Exit code: 0 for success, 1 after an error (one line on standard error), 3 if an audit refuted a promise,
        130 if interrupted.

    Raises
    ------
    SystemExit
        The arguments are not a valid command (code 2), or ask for help (code 0).

    Examples
    --------
    >>> main(["compare", "--quick"])  # doctest: +SKIP
    0
    """
    parser = _parser()
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments[:1] == ["reproduce"]:
        parser.error(
            "the package has no command for the figures of the papers; in a clone of the repository, run "
            "`uv run python -m benchmarks.papers` with the same arguments (docs/benchmarks/papers.md)."
        )
    options = parser.parse_args(arguments)

    def command() -> int:
        settle(options)
        return _run(options)

    def remedy(error: BayesPrivMRFError) -> str:
        return " Here that is `--inference loopy`." if _may_go_loopy(options, error) else ""

    return guarded(command, remedy)


def guarded(command: Callable[[], int], remedy: Callable[[BayesPrivMRFError], str] = lambda _: "") -> int:
    """Run a function, print every error as one line on standard error, and return the exit code.

    Parameters
    ----------
    command
        Function that does the work and returns the exit code.
    remedy
        Function from an error of this package to a sentence that is appended to its message.
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
            # the program that reads the output has ended (`... | head`); Python must not flush to it again
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
            # print neither traceback nor message: both may quote the data, and standard error is often logged
            print(
                f"bayesprivmrf: error: unexpected {type(error).__name__}; its message is withheld, because it may "
                "quote the data. Call the library from Python to see it.",
                file=sys.stderr,
            )
            return 1


def _run(options: argparse.Namespace) -> int:
    """Import the module of the command and run it; the other commands' imports would take seconds."""
    return importlib.import_module(f"bayesprivmrf.cli.{options.command}").run(options) or 0


def _keep_own_warnings() -> None:
    """Show all warnings of this package, and hide other libraries' warnings for developers."""
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("ignore", FutureWarning)
    warnings.simplefilter("always", BayesPrivMRFWarning)


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Print a warning as one line on standard error."""
    text = " ".join(getattr(message, "at_command_line", str(message)).split())
    print(f"bayesprivmrf: warning: {printable(text)}", file=sys.stderr)


def _may_go_loopy(options: argparse.Namespace, error: BayesPrivMRFError) -> bool:
    """Return True if loopy inference would avoid the error."""
    if not isinstance(error, ModelTooLargeError) or getattr(options, "inference", None) != "exact":
        return False
    return options.command == "compare" or options.method is None or offers_loopy(options.method)
