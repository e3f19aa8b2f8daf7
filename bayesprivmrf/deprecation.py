"""Errors for names that were removed from the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


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
            raise ImportError(f"{module}.{name} is no longer part of the package; it is in {names[name]}.")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return attribute
