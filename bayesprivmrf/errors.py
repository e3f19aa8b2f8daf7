"""Errors and warnings of bayesprivmrf.

Each message names the argument, the requirement, what was seen and a remedy. Errors raised where data is
read never contain a value of the data.
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
    """Message whose remedy may be another one at the command line than in Python.

    Parameters
    ----------
    args
        The message; with a remedy, what is wrong.
    remedy
        The remedy in Python, which follows the message.
    option
        The remedy at the command line, in its place.
    """

    def __init__(self, *args: object, remedy: str = "", option: str = "") -> None:
        problem = args[0] if args else ""
        super().__init__(*([f"{problem}; {remedy}."] if remedy else args))
        self.at_command_line = f"{problem}; {option}." if option else str(self)


class BayesPrivMRFError(_Message, Exception):
    """The base of every error that this package raises on purpose."""


class ArgumentError(BayesPrivMRFError, ValueError):
    """An argument is outside what the call accepts."""


class ModelError(BayesPrivMRFError, ValueError):
    """A declared model is inconsistent, or not of the kind that the call needs."""


class ModelTooLargeError(ModelError):
    """A table, or exact inference in the model, would not fit in memory."""


class NoIntervalError(BayesPrivMRFError, AttributeError):
    """An estimate that does not know how far off it may be was asked for an interval; ``hasattr`` says so too."""


class DataError(BayesPrivMRFError, ValueError):
    """The records are not a data frame with the declared columns."""


class UndeclaredStateError(DataError):
    """A column holds a missing value, or one outside the declared states."""


class PrivacyError(BayesPrivMRFError, ValueError):
    """A privacy condition does not hold, or guarantees of different kinds were mixed."""


class ReleaseFileError(BayesPrivMRFError, ValueError):
    """A release file is missing, damaged, was altered, or cannot be written."""


class ForeignFileError(ReleaseFileError):
    """A file is no release of this package."""


class NewerFormatError(ReleaseFileError):
    """A release file is of a format that only a newer version reads."""


class ConsistencyWarning(UserWarning):
    """The conditions under which an estimate is known to come near the truth look unmet.

    Among them: that released tables which overlap are of the same records.
    """


class DeclarationWarning(_Message, UserWarning):
    """A network holds something that is not taken for part of its declaration."""


class ForecastWarning(UserWarning):
    """A computation is forecast to take minutes."""


class GuaranteeWarning(UserWarning):
    """Releases are used together whose guarantees do not add up to one."""


class InterruptionWarning(UserWarning):
    """Interruption of a release after its budget was spent; the release holds what was computed until then."""


class NoiseWarning(UserWarning):
    """The noise that privacy asks for is as large as what it is to protect."""


class SamplingWarning(_Message, UserWarning):
    """A posterior's chains cannot be trusted as they are: not mixed, stopped early, or somewhere they cannot go."""


class UnfinishedSaveWarning(UserWarning):
    """A complete release, whose budget is spent, left beside the file by a save that was killed."""


# All warnings of this package; none quotes a value of the data
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
