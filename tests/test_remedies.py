"""Remedies of errors and warnings: of Python, and in options of the command line."""

from __future__ import annotations

import pickle

import pytest

from bayesprivmrf import errors
from bayesprivmrf.cli import guarded


def test_the_command_line_shows_the_remedy_in_its_own_options(capsys):
    def command() -> int:
        raise errors.ModelTooLargeError(
            "the table is too large", remedy="use f(x='y')", option="pass `--x y`"
        )

    assert guarded(command) == 1
    assert capsys.readouterr().err == "bayesprivmrf: error: the table is too large; pass `--x y`.\n"


@pytest.mark.parametrize(
    "kind", [errors.ModelError, errors.NoIntervalError, errors.SamplingWarning]
)
def test_a_message_survives_pickling_with_both_remedies(kind):
    made = kind("it is wrong", remedy="mend it", option="pass `--mend`")
    copied = pickle.loads(pickle.dumps(made))
    assert str(copied) == str(made) == "it is wrong; mend it."
    assert copied.at_command_line == "it is wrong; pass `--mend`."
    assert kind("it is wrong.").at_command_line == "it is wrong."
