"""Learning maps, and what the files of learned models have in common.

In files, a learning map registers its kind, and gives its settings as plain values. The numbers of what was measured
stand at the end of the array of a model's file.
"""

from __future__ import annotations

from abc import abstractmethod
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from bayesprivmrf.errors import ReleaseFileError
from bayesprivmrf.files import Json
from bayesprivmrf.kinds import Kinds
from bayesprivmrf.model import Domain
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.release import NoisyStatistics
from bayesprivmrf.release.codec import Fields, details_content, positions, restored_model


class LearningMap(Protocol):
    """Protocol of a learning map: a frozen object of public settings that turns records into parameters.

    A map may also have a method ``linearised(learned, prob, total, generator)`` that returns first-order lower and
    upper limits of the vector, or ``None`` for a release to which it does not apply. `couplings_interval` prefers it.
    """

    def learn(
        self, codes: np.ndarray, counts: IntArray, total: float, source: NoiseSource, /
    ) -> tuple[FloatArray, ...]:
        """Return the parameters, in the order of the release's `parameters`.

        Parameters
        ----------
        codes, counts
            Records as states' codes, shape (rows, p), and the number of records that each row represents.
        total
            Public or noisy number of records.
        source
            Source of the noise.
        """
        ...


# kinds of learning maps that files can name, those of installed packages too
_MAPS: Kinds[SavedMap] = Kinds("bayesprivmrf.learning_maps")


def mechanism_module(name: str) -> ModuleType:
    """Return a module of `bayesprivmrf.mechanisms`, which is imported by this call and not before.

    A replicate of a release runs the mechanism again, on rows that were drawn from the released model, so that an
    interval simulates the code that made the release. This is the only way from the public side to that code, and it
    is given no data.
    """
    return import_module(f"bayesprivmrf.mechanisms.{name}")


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
    def as_dict(self) -> dict[str, Json]:
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


def common_content(learned: Any) -> dict[str, Json]:
    """Return the entries that the files of all learned models have, besides the domain."""
    found: dict[str, Any] = {}
    if learned.statistics is not None:  # all but its numbers, and the domain, which is the model's
        content = learned.statistics._content()
        known = {name: content[name] for name in ("cliques", "noise", "total")}
        if "queries" in content:
            known |= {"queries": content["queries"], "numbers": learned.statistics.flat.size}
        found["statistics"] = known
    if learned.unsupported is not None:
        found["unsupported"] = list(map(list, learned.unsupported))
    return found | {"total": learned.total, "details": details_content(learned.details)}


def map_content(learned: Any) -> dict[str, Json]:
    """Return the entries of the noise on the total and of the map, ``None`` for one that files do not hold."""
    noise = learned.total_noise
    known = learned.map
    return {
        "total_noise": None if noise is None else noise.as_dict(),
        "map": known.as_dict() if isinstance(known, SavedMap) else None,
    }


def _restored_map(written: Any, parameters: tuple[str, ...], basis: Any) -> Any:
    """Return the map of a release with given parameters; ``None`` for a kind that no installed package brings."""
    if written is None:
        return None
    content = Fields(written)
    made = _MAPS.find(content.text("kind"))
    if made is not None and made.learns != parameters:
        raise ReleaseFileError(f"its map must be one to {', '.join(parameters)}, got {made.kind!r}")
    if made is None:
        return None
    return made.from_dict(content, basis)


def require_states(content: Fields, basis: tuple[int, ...]) -> None:
    """Raise unless a map has the numbers of states of its release."""
    if content.items("cardinalities") != list(basis):
        raise ReleaseFileError(
            "`cardinalities` of its map must be the numbers of its variables' states"
        )


def written_pairs(content: Fields, name: str, size: int) -> IntArray:
    """Return pairs of ascending positions, shape (P, 2)."""
    found = np.array(
        [positions(pair, size) for pair in content.items(name)], dtype=np.int64
    ).reshape(-1, 2)
    if not (found[:, 0] < found[:, 1]).all():
        raise ReleaseFileError(f"`{name}` must be pairs of ascending positions")
    return found


def restored_fields(
    content: Fields,
    domain: Domain,
    measured: np.ndarray,
    parameters: tuple[str, ...],
    basis: Any,
    stamp: Any,
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
    support = None
    statistics = None
    if "unsupported" in content:  # older files do not say which states have no support
        written = content.items("unsupported")
        count = len(domain.variables)
        if len(written) != count:
            raise ReleaseFileError(f"`unsupported` must hold {count} lists, got {len(written)}")
        support = tuple(
            positions(own, k) for own, k in zip(written, domain.cardinalities, strict=True)
        )
    if "statistics" in content and content["statistics"] is not None:
        statistics = NoisyStatistics._restored(_measured(content), measured, **stamp)
    return {
        "domain": domain,
        "total": content.number("total", optional=True),
        "total_noise": None if basis is None else content.law("total_noise", optional=True),
        "details": content.mapping("details"),
        "unsupported": support,
        "map": None if basis is None else _restored_map(content["map"], parameters, basis),
        "statistics": statistics,
        **stamp,
    }


def statistics_size(content: Fields, domain: Domain) -> int:
    """Return how many numbers of a file's array are noisy tables, or answers to queries."""
    if "statistics" not in content or content["statistics"] is None:
        return 0
    measured = _measured(content)
    if "numbers" in measured:
        return measured.whole("numbers", 0)
    return restored_model(measured, domain).size


def _measured(content: Fields) -> Fields:
    shared = {name: content[name] for name in ("variables", "states")}
    return Fields({"cliques_declared": True, **shared, **content.mapping("statistics")})
