"""Errors and warnings of bayesprivmrf.

A message names the argument, the requirement, the value that was given and the remedy. The messages of code that
reads data never contain a value of the data. `removed` makes the errors for names that left the package, and
`warn_caller` gives every warning of the package.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lazy_loader

from bayesprivmrf.escapes import printable

__all__ = [
    "ArgumentError",
    "BayesPrivMRFError",
    "BayesPrivMRFWarning",
    "ConsistencyWarning",
    "DataError",
    "DeclarationWarning",
    "ForecastWarning",
    "ForeignFileError",
    "GuaranteeWarning",
    "InterruptionWarning",
    "ModelError",
    "ModelTooLargeError",
    "NewerFormatError",
    "NoIntervalError",
    "NoiseWarning",
    "PriorWarning",
    "PrivacyError",
    "ReleaseFileError",
    "SamplingWarning",
    "UndeclaredStateError",
    "UnfinishedSaveWarning",
]


class _Message:
    """Message whose remedy may differ between Python and the command line.

    Parameters
    ----------
    args
        The message, without the remedy.
    remedy
        The remedy in Python; it follows the message.
    option
        The remedy at the command line, which replaces `remedy` there.
    """

    def __init__(self, *args: object, remedy: str = "", option: str = "") -> None:
        problem = args[0] if args else ""
        super().__init__(*([f"{problem}; {remedy}."] if remedy else args))
        if option:
            self.at_command_line = f"{problem}; {option}."
        else:
            self.at_command_line = str(self)

    def __str__(self) -> str:
        # names that a message quotes may come from a forged file
        return printable(super().__str__(), keeps_lines=True)


class BayesPrivMRFError(_Message, Exception):
    """Base class of every error that this package raises on purpose."""


class ArgumentError(BayesPrivMRFError, ValueError):
    """Error for an argument whose value the call does not accept."""


class ModelError(BayesPrivMRFError, ValueError):
    """Error for a declared model that is inconsistent, or not of the kind that the call needs."""


class ModelTooLargeError(ModelError):
    """Error for a table, or exact inference in a model, that would not fit in memory."""


class NoIntervalError(BayesPrivMRFError):
    """Error for an interval of an estimate that has no measure of its error."""


class DataError(BayesPrivMRFError, ValueError):
    """Error for records that are not a data frame with the declared columns."""


class UndeclaredStateError(DataError):
    """Error for a column with a missing value, or with a value outside the declared states."""


class PrivacyError(BayesPrivMRFError, ValueError):
    """Error for a privacy condition that does not hold, or for guarantees that cannot be combined."""


class ReleaseFileError(BayesPrivMRFError, ValueError):
    """Error for a release file that is missing, damaged, altered, or cannot be written."""


class ForeignFileError(ReleaseFileError):
    """Error for a file that is not a release of this package."""


class NewerFormatError(ReleaseFileError):
    """Error for a release file whose format only a newer version of this package can read."""


class BayesPrivMRFWarning(UserWarning):
    """Base class of every warning of this package. No message quotes a value of the data."""

    def __str__(self) -> str:
        return printable(super().__str__(), keeps_lines=True)


class ConsistencyWarning(BayesPrivMRFWarning):
    """Warning about data that seem to violate a condition of an estimate.

    One such condition is that overlapping tables of a release describe the same records. Another is that the tables
    hold counts.
    """


class DeclarationWarning(_Message, BayesPrivMRFWarning):
    """Warning about a part of a network that is not used as part of its declaration."""


class ForecastWarning(BayesPrivMRFWarning):
    """Warning about a computation that will take minutes, according to its forecast."""


class GuaranteeWarning(BayesPrivMRFWarning):
    """Warning about releases whose guarantees cannot be composed, or about noise that contradicts a guarantee."""


class InterruptionWarning(BayesPrivMRFWarning):
    """Warning about a release that was interrupted after its budget was spent, and holds the results until then."""


class NoiseWarning(BayesPrivMRFWarning):
    """Warning about noise that is as large as the numbers that it protects."""


class PriorWarning(BayesPrivMRFWarning):
    """Warning about an answer that the prior decides more than the release."""


class SamplingWarning(_Message, BayesPrivMRFWarning):
    """Warning about chains of a posterior that cannot be trusted, for example because they have not mixed."""


class UnfinishedSaveWarning(BayesPrivMRFWarning):
    """Warning about a file that a killed save left beside the path; it may hold a release that was paid for."""


# Files of the call stack that are not the user's: this package, and the modules through which its code is reached by
# a cached property, a `with` block or a lazy import. The separator keeps a folder `bayesprivmrf_study` apart. Python
# 3.13 does not take the whole name of a file for a prefix of itself, so that the suffix is left out.
_NOT_THE_CALLERS = (
    f"{Path(__file__).parent}{os.sep}",
    *(
        str(module.__file__).removesuffix(".py")
        for module in (functools, contextlib, importlib, lazy_loader)
    ),
)


def warn_caller(message: str | Warning, category: type[Warning] | None = None) -> None:
    """Issue a warning that points at the user's line, which is the innermost one outside this package.

    Every warning of the package is issued here, because a count of frames is wrong as soon as a function is called
    by another path.

    Parameters
    ----------
    message
        The text, or a whole warning.
    category
        Class of the warning, if a text is given.
    """
    warnings.warn(message, category, skip_file_prefixes=_NOT_THE_CALLERS)


def removed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module, whose error for a removed name says where the name is now.

    Parameters
    ----------
    module
        The ``__name__`` of the module.
    names
        The removed names, each with its present place.
    """

    def attribute(name: str) -> Any:
        if name in names:
            # an AttributeError would lose its message in `from module import name`
            raise ImportError(
                f"{module}.{name} is no longer part of the package; it is in {names[name]}."
            )
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return attribute
