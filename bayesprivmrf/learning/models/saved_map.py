"""Learning maps that a release's file can hold: each registers its kind, and says its settings as plain values."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np

from bayesprivmrf.errors import ReleaseFileError
from bayesprivmrf.kinds import Kinds
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.release.codec import Fields, positions

_MAPS: Kinds[SavedMap] = Kinds("bayesprivmrf.learning_maps")


class SavedMap:
    """Mixin of a learning map that is written to release files; a subclass with a `kind` registers itself."""

    kind: ClassVar[str]
    learns: ClassVar[tuple[str, ...]] = ("coupling_matrix", "field_vector")
    """The `parameters` of the releases whose map it can be."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in vars(cls):
            _MAPS.add(cls.kind, cls)

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Return the kind and the settings as values that JSON can hold."""

    @classmethod
    @abstractmethod
    def from_dict(cls, content: Fields, basis: Any) -> Self:
        """Return the map that `as_dict` described.

        Parameters
        ----------
        content
            What `as_dict` wrote.
        basis
            Knowledge of the release: the number of states of each variable, or the sets of a model of monomials.
        """


def map_content(known: Any) -> dict[str, Any] | None:
    """Return the settings of a map; ``None`` for one that files do not hold."""
    return known.as_dict() if isinstance(known, SavedMap) else None


def restored_map(written: Any, parameters: tuple[str, ...], basis: Any) -> Any:
    """Return the map of a release with given parameters; ``None`` for a kind that no installed package brings."""
    if written is None:
        return None
    content = Fields(written)
    made = _MAPS.find(content.text("kind"))
    if made is not None and made.learns != parameters:
        raise ReleaseFileError(f"its map must be one to {', '.join(parameters)}, got {made.kind!r}")
    return None if made is None else made.from_dict(content, basis)


def require_states(content: Fields, basis: tuple[int, ...]) -> None:
    """Raise unless a map has the numbers of states of its release."""
    if content.items("cardinalities") != list(basis):
        raise ReleaseFileError("`cardinalities` of its map must be the numbers of its variables' states")


def written_pairs(content: Fields, name: str, size: int) -> IntArray:
    """Return pairs of ascending positions, shape (P, 2)."""
    found = np.array([positions(pair, size) for pair in content.items(name)], dtype=np.int64).reshape(-1, 2)
    if not (found[:, 0] < found[:, 1]).all():
        raise ReleaseFileError(f"`{name}` must be pairs of ascending positions")
    return found
