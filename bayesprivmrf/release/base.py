"""The common part of every release: how it was made, what to say of its privacy, and a file."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from bayesprivmrf.cards import Card, printable
from bayesprivmrf.checks import require, truth
from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, GuaranteeWarning, ReleaseFileError
from bayesprivmrf.kinds import Kinds
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.labels import needs_kinds
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release.codec import Fields, plain
from bayesprivmrf.release.file import (
    FACTS_VERSION,
    LARGEST,
    packed,
    read_file,
    require_writable,
    unpacked,
    write_file,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """How a release was made.

    Parameters
    ----------
    mechanism
        Name of the mechanism's class.
    settings
        Its settings, as text and numbers.
    simulated
        True where the noise came from a seeded generator: such a release protects nobody.
    versions
        Versions of the libraries that drew the noise.

    Raises
    ------
    ArgumentError
        A field is of another type.
    """

    mechanism: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    simulated: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, kind in (
            ("mechanism", str),
            ("settings", Mapping),
            ("simulated", bool),
            ("versions", Mapping),
        ):
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise ArgumentError(
                    f"`{name}` of a provenance must be a {kind.__name__}, got a {type(value).__name__}."
                )
        if printable(self.mechanism) != self.mechanism:
            raise ArgumentError(
                f"`mechanism` of a provenance must be printable text on one line, got {self.mechanism!r}; write the "
                "name of a class."
            )

    def _content(self) -> dict[str, Any]:
        return {
            "mechanism": self.mechanism,
            "settings": plain(dict(self.settings)),
            "simulated": self.simulated,
            "versions": dict(self.versions),
        }

    @classmethod
    def _restored(cls, content: Fields) -> Self:
        """Return the release that `_content` wrote; a file that lacks a part, such as `simulated`, is refused."""
        return cls(
            mechanism=content.text("mechanism"),
            settings=content.mapping("settings"),
            simulated=content.truth("simulated"),
            versions=content.mapping("versions"),
        )


class Released(Card):
    """Mixin of a frozen dataclass with a `guarantee` and a `provenance`.

    A subclass that names its `kind` is a kind of release that can be saved. It supplies ``_facts()``, which says what
    is shown, and

    - ``_content()``: everything but the guarantee, the provenance and the array, as values that JSON can hold;
    - ``_array()``: its numbers, where they are many; by default none;
    - ``_restored(content, array, **stamp)``, a class method: the release again, from what ``_content`` wrote as
      `bayesprivmrf.release.codec.Fields`, the array, and the guarantee and provenance by name.

    It may say as well, by a property ``statistics``, what noisy tables it holds, which estimators and audits read:
    they carry the release's own guarantee and provenance, whatever the property gives them.

    A kind of another package is found by the entry-point group ``bayesprivmrf.releases``, in which its name is the
    kind.

    Raises
    ------
    TypeError
        A class names its kind without ``_content`` and ``_restored``, or the kind of another; raised at class
        creation.
    """

    kind: ClassVar[str]
    format_version: ClassVar[int] = 4
    """The first version of the file format that has the kind."""
    may_promise_nothing: ClassVar[bool] = False
    """Whether the guarantee may be ``None``."""

    guarantee: Any  # a PrivacyGuarantee; None where nothing is promised, which few kinds allow
    provenance: Provenance
    statistics: Any = None
    """The noisy tables that estimators read: the release itself, or what it holds beside its model."""
    _without_tables: ClassVar[str] = "it is a result already"
    """Words of an estimator's error about a release whose `statistics` are None: what it is, or the remedy."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in vars(cls):
            if any(hook.__qualname__.startswith("Released.") for hook in (cls._content, cls._restored)):
                raise TypeError(
                    f"{cls.__name__} must supply `_content` and `_restored`, so that it can be saved."
                )
            RELEASE_KINDS.add(cls.kind, cls)
        made = vars(cls).get("statistics")
        if isinstance(made, property | cached_property):

            @wraps(made.func if isinstance(made, cached_property) else made.fget)  # type: ignore[arg-type]
            def stamped(self: Released) -> Any:
                return self._stamped(made.__get__(self, cls))

            cls.statistics = property(stamped)

    def _stamped(self, tables: Any) -> Any:
        """Return noisy tables made of this release with its own guarantee and provenance, which nothing may lose."""
        if tables is None or tables is self or tables.provenance is self.provenance:
            return tables
        return replace(tables, guarantee=self.guarantee, provenance=self.provenance)

    @property
    def is_exact(self) -> bool:
        """Whether it holds something that no noise protects."""
        return False

    def privacy_statement(self) -> str:
        """Sentence about privacy that can be pasted into a paper."""
        if self.provenance.simulated:
            return (
                "The noise of this release was drawn from a seeded generator for a simulation: "
                "it protects nobody and must not be published as a private release."
            )
        return self._promise(self.guarantee)

    def _promise(self, guarantee: PrivacyGuarantee) -> str:
        return guarantee.sentence()

    def summary(self) -> dict[str, Any]:
        """Return what the release holds, as values that JSON can hold; how it was made is not repeated.

        The default is all that its file holds, with the array, if any, as ``"array"``.
        """
        if not RELEASE_KINDS.holds(type(self)):
            return {}
        array = np.asarray(self._array())
        return self._content() | ({"array": array.tolist()} if array.size else {})

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the release to one file, which `bayesprivmrf.load_release` reads.

        The file appears whole or not at all, and none is written that could not be read. If several processes save to
        one new path, one succeeds. A link to a file is written through.

        Raises
        ------
        ReleaseFileError
            The path cannot be written, or holds another release and `overwrite` is False; or the release is of no
            kind that can be saved. The release itself is as it was.
        """
        target, overwrite = require_writable(path), truth("overwrite", overwrite)
        write_file(self._as_file(), target, overwrite=overwrite, is_private=self.is_exact)

    def _as_file(self) -> bytes:
        """Return the bytes of the release's file, which were read back."""
        if not RELEASE_KINDS.holds(type(self)):
            raise ReleaseFileError(
                f"{type(self).__name__} cannot be saved, because it names no kind; give it one, as "
                "`bayesprivmrf.release.Released` says."
            )
        try:
            whole = self._packed()
            again = _release(*unpacked(io.BytesIO(whole), Path(), sys.maxsize))
            if type(again) is not type(self) or again._packed() != whole:
                raise ReleaseFileError("what is read back is another release; correct its kind's `_restored`")
        except Exception as error:
            raise ReleaseFileError(
                f"this {type(self).__name__} cannot be saved, because its file could not be read back: "
                f"{_reason(error)}. Nothing was written, and the release is as it was."
            ) from error
        return whole

    def _packed(self) -> bytes:
        """Return the bytes of the release's file, not yet read back."""
        promise = None if self.guarantee is None else self.guarantee.as_dict()
        stamp = {"kind": self.kind, "guarantee": promise, "provenance": self.provenance._content()}
        content = self._content() | stamp
        version = max(self._version, FACTS_VERSION if needs_kinds(content) else 0)
        return packed(content, self._array(), version)

    @property
    def _version(self) -> int:
        """Format version of its file: of the kind, or newer where older readers would miss something."""
        return self.format_version

    @classmethod
    def _most_numbers(cls, model: ModelSpecification) -> int:
        """Return how many numbers the array may hold: by default tables of all cliques and all couplings."""
        return model.size + 2 * sum(model.cardinalities) ** 2

    def _content(self) -> dict[str, Any]:
        raise NotImplementedError

    def _array(self) -> np.ndarray:
        return np.zeros(0)

    @classmethod
    def _restored(cls, content: Fields, array: np.ndarray, **stamp: Any) -> Self:
        raise NotImplementedError

    def _doubt(self) -> str | None:
        """Return a warning text for a promise that contradicts the release's own noise; None if there is none."""
        return None

    def _folded(self) -> dict[str, list[tuple[str, str]]]:
        made = {"Settings": self.provenance.settings, "Versions": self.provenance.versions}
        return {
            title: [(str(name), str(value)) for name, value in own.items()] for title, own in made.items()
        }

    @property
    def _mark(self) -> str:
        return "SIMULATED: protects nobody" if self.provenance.simulated else ""


# The kinds of releases that can be saved and read
RELEASE_KINDS: Kinds[Released] = Kinds("bayesprivmrf.releases")


def load_release(path: str | os.PathLike[str], *, largest: int = LARGEST) -> Any:
    """Release read from a file that `save` wrote: noisy tables, a network's estimate, or what was learned.

    Names and labels come back as they were declared: text, numbers, booleans, dates, times, time spans, periods,
    intervals, decimals, fractions, bytes, and tuples of them. Any other label comes back as its ``str``; in a file of
    a format version before 7 all but text, numbers, booleans and tuples do.

    Parameters
    ----------
    path
        The file.
    largest
        Bytes that its array may unpack to, 1 GiB by default, so that no array
        unpacks to fill the memory; couplings take the square of their variables.
        Allow more to a file that you trust.

    Raises
    ------
    ArgumentError
        The path is none, or `largest` is no number of bytes.
    ReleaseFileError
        The file is missing, cut short or altered, too large, or of a kind that no installed package brings; a
        `ForeignFileError` where it is no release, a `NewerFormatError` where a newer version wrote it.

    Warns
    -----
    GuaranteeWarning
        The noise costs more than the release promises.
    """
    is_size = isinstance(largest, int) and not isinstance(largest, bool) and largest >= 1
    require(is_size, "largest", "be a whole number of bytes", largest)
    content, array = read_file(path, largest)
    try:
        found = _release(content, array)
    except Exception as error:
        what = f"{os.fsdecode(path)!r} holds no release that can be read"
        raise ReleaseFileError(f"{what}: {_reason(error)}.") from error
    if doubt := found._doubt():
        warnings.warn(doubt, GuaranteeWarning, stacklevel=2)
    return found


def read_release(whole: bytes) -> Any:
    """Release read from the bytes of its file.

    Raises
    ------
    ReleaseFileError
        The bytes are not a readable release.
    """
    return _release(*unpacked(io.BytesIO(whole), Path("release"), LARGEST))


def _release(content: Any, array: np.ndarray) -> Released:
    """Return the release of a file's content."""
    fields = Fields(content)
    kind = fields.text("kind")
    made = RELEASE_KINDS.find(kind)
    if made is None:
        raise ReleaseFileError(
            f"no installed package brings its kind, {kind!r}; install the package of the mechanism that made it, or "
            "import the module that defines the kind"
        )
    nothing = made.may_promise_nothing and fields["guarantee"] is None
    return made._restored(
        fields,
        array,
        guarantee=None if nothing else PrivacyGuarantee.from_dict(fields.mapping("guarantee")),
        provenance=Provenance._restored(Fields(fields["provenance"])),
    )


def _reason(error: Exception) -> str:
    """Return what an error says, without its full stop; of one of another library's, its type."""
    return str(error).rstrip(".") if isinstance(error, BayesPrivMRFError) else type(error).__name__
