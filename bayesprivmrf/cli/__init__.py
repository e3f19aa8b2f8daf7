"""Command line of the library: ``bayesprivmrf compare | model | plan | release | fit | test | report | audit``.

Each command has a module of its name; `parser` has the options of all commands. Results go to standard output, and
remarks and progress to standard error. The exit code is 0 for success, 1 for an error, 2 for wrong usage, 3 if an
audit refuted a promise, and 130 if the command was interrupted.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence

from bayesprivmrf.cli.methods import offers_loopy, settle
from bayesprivmrf.cli.parser import command_parser as _parser
from bayesprivmrf.errors import BayesPrivMRFError, BayesPrivMRFWarning, ModelTooLargeError
from bayesprivmrf.escapes import printable

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
    # at its end an interpreter looks for garbage among the objects of all imports, which takes half a second
    atexit.register(gc.freeze)
    parser = _parser()
    if argv is None:
        arguments = sys.argv[1:]
    else:
        arguments = list(argv)
    if arguments[:1] == ["reproduce"]:
        parser.error(
            "the package has no command for the figures of the papers; in a clone of the repository, run "
            "`uv run python -m benchmarks.papers` with the same arguments (docs/benchmarks/papers.md)."
        )
    options = parser.parse_args(arguments)

    def command() -> int:
        settle(options)
        # the other commands' imports would take seconds
        return importlib.import_module(f"bayesprivmrf.cli.{options.command}").run(options) or 0

    def remedy(error: BayesPrivMRFError) -> str:
        is_exact = (
            isinstance(error, ModelTooLargeError) and getattr(options, "inference", None) == "exact"
        )
        method = getattr(options, "method", None)
        may_go_loopy = is_exact and (method is None or offers_loopy(method))
        if may_go_loopy:
            return " Here that is `--inference loopy`."
        return ""

    return guarded(command, remedy)


def guarded(
    command: Callable[[], int], remedy: Callable[[BayesPrivMRFError], str] = lambda _: ""
) -> int:
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
        # warnings of other libraries that are for developers
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("always", BayesPrivMRFWarning)
        try:
            return command()
        except BayesPrivMRFError as error:
            return _failed(f"{error.at_command_line}{remedy(error)}")
        except BrokenPipeError:
            # the program that reads the output has ended (`... | head`); Python must not flush to it again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except OSError as error:
            return _failed(
                f"{error.filename or 'a file'}: {error.strerror or type(error).__name__}."
            )
        except KeyboardInterrupt:
            print("bayesprivmrf: interrupted.", file=sys.stderr)
            return 130
        except (SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            # print neither traceback nor message: both may quote the data, and standard error is often logged
            withheld = "its message is withheld, because it may quote the data"
            remark = f"unexpected {type(error).__name__}; {withheld}. Call the library from Python to see it."
            return _failed(remark)


def _failed(message: str) -> int:
    """Print an error as one line on standard error, and return its exit code."""
    print(f"bayesprivmrf: error: {printable(message)}", file=sys.stderr)
    return 1


def _show_warning(
    message: Warning | str, category: type[Warning], *_: object, **__: object
) -> None:
    """Print a warning as one line on standard error."""
    text = " ".join(getattr(message, "at_command_line", str(message)).split())
    print(f"bayesprivmrf: warning: {printable(text)}", file=sys.stderr)
