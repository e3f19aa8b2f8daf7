"""Errors and warnings of bayesprivmrf.

A message names the argument, the requirement, the value that was given and the remedy. The messages of code that
reads data never contain a value of the data.
"""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "BayesPrivMRFError",
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
        self.at_command_line = f"{problem}; {option}." if option else str(self)


class BayesPrivMRFError(_Message, Exception):
    """Base class of every error that this package raises on purpose."""


class ArgumentError(BayesPrivMRFError, ValueError):
    """An argument has a value that the call does not accept."""


class ModelError(BayesPrivMRFError, ValueError):
    """A declared model is inconsistent, or is not of the kind that the call needs."""


class ModelTooLargeError(ModelError):
    """A table, or exact inference in the model, would not fit in memory."""


class NoIntervalError(BayesPrivMRFError, AttributeError):
    """An estimate without a measure of its error was asked for an interval.

    The class derives from `AttributeError`, so that ``hasattr(estimate, "interval")`` is False.
    """


class DataError(BayesPrivMRFError, ValueError):
    """The records are not a data frame with the declared columns."""


class UndeclaredStateError(DataError):
    """A column holds a missing value, or one outside the declared states."""


class PrivacyError(BayesPrivMRFError, ValueError):
    """A privacy condition does not hold, or guarantees of different kinds were mixed."""


class ReleaseFileError(BayesPrivMRFError, ValueError):
    """A release file is missing, damaged, was altered, or cannot be written."""


class ForeignFileError(ReleaseFileError):
    """A file is not a release of this package."""


class NewerFormatError(ReleaseFileError):
    """A release file has a format that only a newer version of this package can read."""


class ConsistencyWarning(UserWarning):
    """The data seem to violate a condition that an estimate relies on.

    One such condition is that overlapping tables of a release describe the same records.
    """


class DeclarationWarning(_Message, UserWarning):
    """A part of a network is not used as part of its declaration."""


class ForecastWarning(UserWarning):
    """A computation will take minutes, according to its forecast."""


class GuaranteeWarning(UserWarning):
    """Releases whose guarantees cannot be composed are used together, or a guarantee contradicts the noise."""


class InterruptionWarning(UserWarning):
    """A release was interrupted after its budget was spent; it holds the results computed until then."""


class NoiseWarning(UserWarning):
    """The noise that privacy requires is as large as the numbers that it protects."""


class SamplingWarning(_Message, UserWarning):
    """The chains of a posterior cannot be trusted, for example because they have not mixed or stopped early."""


class UnfinishedSaveWarning(UserWarning):
    """A save that was killed left a complete release, whose budget is spent, beside the file."""


# All warnings of this package. No message quotes a value of the data.
OWN_WARNINGS: tuple[type[Warning], ...] = (
    ConsistencyWarning,
    DeclarationWarning,
    ForecastWarning,
    GuaranteeWarning,
    InterruptionWarning,
    NoiseWarning,
    SamplingWarning,
    UnfinishedSaveWarning,
)
