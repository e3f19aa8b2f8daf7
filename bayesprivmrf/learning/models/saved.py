"""Parts of the files of learned models: maps, measurements, states without support, and their common fields.

A learning map registers its kind, and gives its settings as plain values. The numbers of what was measured stand at
the end of the array of a model's file.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np

from bayesprivmrf.errors import ReleaseFileError
from bayesprivmrf.kinds import Kinds
from bayesprivmrf.model import Domain
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.release import NoisyStatistics
from bayesprivmrf.release.codec import Fields, positions, restored_model

# kinds of learning maps that files can name, those of installed packages too
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

    @property
    def bound(self) -> float | None:
        """Declared bound on the size of each variable's couplings and field together, nats; ``None`` without one."""
        return None

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


def _restored_map(written: Any, parameters: tuple[str, ...], basis: Any) -> Any:
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


def restored_fields(
    content: Fields, domain: Domain, measured: np.ndarray, parameters: tuple[str, ...], basis: Any, stamp: Any
) -> dict[str, Any]:
    """Return the fields that every learned model has, of a file's content.

    Parameters
    ----------
    measured
        The last numbers of the file's array: noisy tables or answers.
    parameters, basis
        The `parameters` of the release, and what its map knows of it: see `SavedMap`. A basis of None is that of a
        model without a map, whose file has neither that nor a law of the noise on the total.
    stamp
        Guarantee and provenance.
    """
    return {
        "domain": domain,
        "total": content.number("total", optional=True),
        "total_noise": None if basis is None else content.law("total_noise", optional=True),
        "details": content.mapping("details"),
        "unsupported": _restored_support(content, domain),
        "map": None if basis is None else _restored_map(content["map"], parameters, basis),
        "statistics": _restored_statistics(content, measured, **stamp),
        **stamp,
    }


def statistics_content(statistics: NoisyStatistics | None) -> dict[str, Any]:
    """Return the entry of what was measured, if anything was: all but its numbers, and the domain, the model's."""
    if statistics is None:
        return {}
    content = statistics._content()
    known = {name: content[name] for name in ("cliques", "noise", "total")}
    if "queries" in content:
        known |= {"queries": content["queries"], "numbers": statistics.flat.size}
    return {"statistics": known}


def statistics_size(content: Fields, domain: Domain) -> int:
    """Return how many numbers of a file's array are noisy tables, or answers to queries."""
    if "statistics" not in content or content["statistics"] is None:
        return 0
    measured = _measured(content)
    return measured.whole("numbers", 0) if "numbers" in measured else restored_model(measured, domain).size


def _restored_statistics(content: Fields, array: np.ndarray, **stamp: Any) -> NoisyStatistics | None:
    """Return the inverse of `statistics_content`, of the last numbers of a file's array."""
    if "statistics" not in content or content["statistics"] is None:
        return None
    return NoisyStatistics._restored(_measured(content), array, **stamp)


def _measured(content: Fields) -> Fields:
    shared = {name: content[name] for name in ("variables", "states")}
    return Fields({"cliques_declared": True, **shared, **content.mapping("statistics")})


def _restored_support(content: Fields, domain: Domain) -> tuple[tuple[int, ...], ...] | None:
    """Return the states without support that a file names; ``None`` of files that name none, as older ones do."""
    if "unsupported" not in content:
        return None
    written = content.items("unsupported")
    if len(written) != len(domain.variables):
        raise ReleaseFileError(
            f"`unsupported` must hold one list for each of {len(domain.variables)} variables, got {len(written)}"
        )
    return tuple(positions(own, states) for own, states in zip(written, domain.cardinalities, strict=True))
