"""Cases that show a property again, with another parameter: one or two by default, the others with the slow tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def again(*cases: Any) -> list[Any]:
    """Cases of one argument for the slow tests."""
    return [pytest.param(case, marks=pytest.mark.slow) for case in cases]


def few(cases: Iterable[Any], most: int = 1) -> list[Any]:
    """All cases of one argument; those after the first few are for the slow tests."""
    listed = list(cases)
    return [*listed[:most], *again(*listed[most:])]
