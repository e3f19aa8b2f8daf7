"""Classes that other classes are found by: each states its kind, by name, and registers itself."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from bayesprivmrf.errors import BayesPrivMRFError


@cache
def installed(group: str) -> tuple[EntryPoint, ...]:
    """Entry points of a group: the files of all installed packages are read once a process."""
    return tuple(metadata.entry_points(group=group))


class Kinds[T]:
    """Classes by kind: those that were imported, then those that installed packages bring.

    Parameters
    ----------
    group
        Entry-point group of the packages: a line's name is the kind, its value the class. It is read only for a kind
        that is not registered yet.

    Raises
    ------
    BayesPrivMRFError
        A package's class cannot be imported; `find` raises it.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self._known: dict[str, type[T]] = {}

    def add(self, kind: str, made: type[T]) -> None:
        """Register a class; the same one may be made again, as by a dataclass with slots or a notebook's cell.

        Raises
        ------
        TypeError
            It is no text, or another class has it.
        """
        if not (isinstance(kind, str) and kind):
            raise TypeError(f"{made.__qualname__} must have a `kind` that is text, got {kind!r}; write one.")
        known = self._known.get(kind, made)
        if (known.__module__, known.__qualname__) != (made.__module__, made.__qualname__):
            raise TypeError(
                f"{made.__qualname__} must not be of the kind {kind!r}, which is that of {known.__module__}."
                f"{known.__qualname__}; choose another name."
            )
        self._known[kind] = made

    def holds(self, made: Any) -> bool:
        """Whether a class, or one that it is derived from, is registered under its kind."""
        known = self._known.get(getattr(made, "kind", ""))
        return known is not None and isinstance(made, type) and issubclass(made, known)

    def find(self, kind: str) -> type[T] | None:
        """Return the class of a kind, imported now if a package brings it; ``None`` if there is none."""
        if kind not in self._known:
            for point in entry_points(group=self.group, name=kind):
                try:
                    point.load()
                except Exception as error:
                    raise BayesPrivMRFError(
                        f"{point.value!r}, which brings the kind {kind!r}, cannot be imported "
                        f"({type(error).__name__}: {error}); correct or remove the package."
                    ) from error
        return self._known.get(kind)


def is_own(made: type) -> bool:
    """Return True for a class of this package."""
    return made.__module__.partition(".")[0] == "bayesprivmrf"


def is_listed(group: str, kind: str, made: type) -> bool:
    """Whether another process finds a class: it is this package's own, or an entry point of its kind brings it."""
    if is_own(made):
        return True
    for point in entry_points(group=group, name=kind):
        try:
            if point.load() is made:
                return True
        except Exception:  # noqa: S112 (whatever a package raises, it brings nothing)
            continue
    return False
