"""Registers of classes by the name of their kind, including classes of other installed packages."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import metadata
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from bayesprivmrf.errors import BayesPrivMRFError


@cache
def installed(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group; the files of all installed packages are read once in a process."""
    return tuple(metadata.entry_points(group=group))


class Kinds[T]:
    """Register of classes by kind: classes that were imported, and classes that installed packages provide.

    Parameters
    ----------
    group
        Entry-point group of other packages. The name of an entry point is the kind, and its value is the class. The
        group is only read for a kind that is not registered yet.
    word
        What the classes call their kind.

    Raises
    ------
    BayesPrivMRFError
        The class of another package cannot be imported; `find` raises this error.
    """

    def __init__(self, group: str, word: str = "kind") -> None:
        self.group = group
        self.word = word
        self._known: dict[str, type[T]] = {}

    def add(self, kind: str, made: type[T]) -> None:
        """Register a class under its kind.

        A class may be registered again, because a dataclass with slots and a notebook cell that is run twice create
        it again.

        Raises
        ------
        TypeError
            The kind is not text, or another class has it.
        """
        if not (isinstance(kind, str) and kind):
            must = f"{made.__qualname__} must have a `{self.word}` that is text"
            raise TypeError(f"{must}, got {kind!r}; write one.")
        known = self._known.get(kind, made)
        if not is_redefined(known, made):
            owner = f"{known.__module__}.{known.__qualname__}"
            must = f"{made.__qualname__} must have another {self.word} than {kind!r}, which {owner} has"
            raise TypeError(f"{must}; choose another.")
        self._known[kind] = made

    def holds(self, made: Any) -> bool:
        """Return True if a class or one of its base classes is registered under its kind."""
        known = self._known.get(getattr(made, self.word, ""))
        return known is not None and isinstance(made, type) and issubclass(made, known)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def find(self, kind: str) -> type[T] | None:
        """Return the class of a kind, importing it if a package provides it; None if there is none."""
        if kind not in self._known:
            for point in entry_points(group=self.group, name=kind):
                try:
                    point.load()
                except Exception as error:
                    what = f"{point.value!r}, which provides the {self.word} {kind!r}, cannot be imported"
                    reason = f"{type(error).__name__}: {error}"
                    raise BayesPrivMRFError(
                        f"{what} ({reason}); correct or remove the package."
                    ) from error
        return self._known.get(kind)


def is_redefined(known: type, made: type) -> bool:
    """Return True if two classes are the same or one redefines the other, as ``dataclass(slots=True)`` does."""
    return (known.__module__, known.__qualname__) == (made.__module__, made.__qualname__)


def is_own(made: type) -> bool:
    """Return True for a class of this package."""
    return made.__module__.partition(".")[0] == "bayesprivmrf"


def is_listed(group: str, kind: str, made: type) -> bool:
    """Return True if other processes can find a class: it is in this package, or an entry point provides it."""
    if is_own(made):
        return True
    for point in entry_points(group=group, name=kind):
        try:
            if point.load() is made:
                return True
        except Exception:  # noqa: S112 (a package that cannot be imported provides nothing)
            continue
    return False
