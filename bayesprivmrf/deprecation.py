"""Names that left the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


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
