"""Names that moved, for one more version, and names that left the package."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
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


def removed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that refuses the names it no longer has, and says where they are.

    Parameters
    ----------
    module
        ``__name__``.
    names
        The names, each with the place where it is now.
    """

    def attribute(name: str) -> Any:
        if name in names:
            # an AttributeError would lose its words in `from module import name`
            raise ImportError(f"{module}.{name} is no longer part of the package; it is in {names[name]}.")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return attribute
