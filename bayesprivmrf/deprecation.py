"""Names under the paths where they used to be, for one more version."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any


def moved(old: str, new: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module whose names are now in another one; each use of a name warns.

    Parameters
    ----------
    old, new
        Names of the modules, ``__name__`` and where to look from now on.
    """

    def attribute(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(new), name)
        warnings.warn(
            f"{old}.{name} is now {new}.{name}; the old path goes in the next version.",
            DeprecationWarning,
            stacklevel=2,
        )
        return found

    return attribute
