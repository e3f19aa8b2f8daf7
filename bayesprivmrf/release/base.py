"""Base class of all releases: provenance, privacy statement, saving and loading."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from bayesprivmrf.cards import Card
from bayesprivmrf.checks import file_path, instance_of, require, truth, whole_number
from bayesprivmrf.errors import BayesPrivMRFError, GuaranteeWarning, ReleaseFileError, warn_caller
from bayesprivmrf.escapes import printable
from bayesprivmrf.files import Json
from bayesprivmrf.kinds import Kinds
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.labels import labels_version
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release.codec import Fields, plain
from bayesprivmrf.release.file import LARGEST_ARRAY, packed, require_writable, unpacked, write_file

# Largest number of answers beside a learned model whose noise is compared with the promise when a file is read
_MOST_ANSWERS = 500


class Doubt(NamedTuple):
    """Text about a promise that the noise contradicts, and True if nothing can explain it, so that it is false."""

    text: str
    is_false: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Provenance of a release: the mechanism, its settings, and the source of the noise.

    Parameters
    ----------
    mechanism
        Name of the mechanism's class.
    settings
        Settings of the mechanism, as text and numbers.
    simulated
        True if the noise came from a seeded generator. Such a release protects nobody.
    versions
        Versions of the libraries that drew the noise.

    Raises
    ------
    ArgumentError
        A field has the wrong type.

    Examples
    --------
    >>> Provenance(mechanism="LaplaceStatistics", settings={"epsilon": 1.0}).simulated
    False
    """

    mechanism: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    simulated: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kinds = {"mechanism": str, "settings": Mapping, "simulated": bool, "versions": Mapping}
        for name, kind in kinds.items():
            instance_of(
                f"`{name}` of a provenance", getattr(self, name), kind, f"be a {kind.__name__}"
            )
        is_line = printable(self.mechanism) == self.mechanism
        must = "be printable text on one line"
        require(
            is_line,
            "`mechanism` of a provenance",
            must,
            repr(self.mechanism),
            "write the name of a class",
        )

    def _content(self) -> dict[str, Json]:
        return {
            "mechanism": self.mechanism,
            "settings": plain(dict(self.settings)),
            "simulated": self.simulated,
            "versions": dict(self.versions),
        }

    @classmethod
    def _restored(cls, content: Fields) -> Self:
        """Return the provenance that `_content` wrote; a missing part, such as `simulated`, raises an error."""
        return cls(
            mechanism=content.text("mechanism"),
            settings=content.mapping("settings"),
            simulated=content.truth("simulated"),
            versions=content.mapping("versions"),
        )


class Released(Card):
    """Base class of releases: a mixin for frozen dataclasses with a `guarantee` and a `provenance`.

    A subclass supplies ``_facts()``, the names and values that its text form shows. If it names its `kind`, its
    releases can be saved, and it also supplies

    - ``_content()``: the release without its guarantee, provenance and array, as JSON values;
    - ``_array()``: the numbers of the release, if there are many; empty by default;
    - ``_restored(content, array, **stamp)``: a class method that returns the release. Its arguments are the entries
      that ``_content`` wrote, as `bayesprivmrf.release.codec.Fields`; the array; and the guarantee and the provenance
      by name.

    A property ``statistics`` may give the noisy tables of the release, which estimators and audits read. These tables
    always have the guarantee and the provenance of the release.

    A kind of another package is found through the entry-point group ``bayesprivmrf.releases``. The name of the entry
    point is the kind.

    Raises
    ------
    TypeError
        A class names a kind without ``_content`` and ``_restored``, or the kind of another class. The error is raised
        when the class is created.
    """

    kind: ClassVar[str]
    format_version: ClassVar[int] = 4
    """First version of the file format that has the kind."""
    may_promise_nothing: ClassVar[bool] = False
    """True if the guarantee may be None."""

    guarantee: Any  # a PrivacyGuarantee; a few kinds allow None
    provenance: Provenance
    statistics: Any = None
    """Noisy tables that estimators read: the release itself, or tables that it holds beside a model."""
    _without_tables: ClassVar[str] = "it is a result already"
    """Ending of an estimator's error about a release without `statistics`: its nature, or the remedy."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in vars(cls):
            if any(
                hook.__qualname__.startswith("Released.") for hook in (cls._content, cls._restored)
            ):
                raise TypeError(
                    f"{cls.__name__} must supply `_content` and `_restored`, to be saved."
                )
            RELEASE_KINDS.add(cls.kind, cls)
        made = vars(cls).get("statistics")
        if isinstance(made, property | cached_property):

            @wraps(made.func if isinstance(made, cached_property) else made.fget)  # type: ignore[arg-type]
            def stamped(self: Released) -> Any:
                # Noisy tables of this release with its guarantee and provenance
                tables = made.__get__(self, cls)
                if tables is None or tables is self or tables.provenance is self.provenance:
                    return tables
                return replace(tables, guarantee=self.guarantee, provenance=self.provenance)

            cls.statistics = property(stamped)

    @property
    def is_exact(self) -> bool:
        """True if the release holds numbers that no noise protects."""
        return False

    def privacy_statement(self) -> str:
        """Return a sentence about privacy that can be pasted into a paper."""
        if self.provenance.simulated:
            return (
                "The noise of this release was drawn from a seeded generator for a simulation: "
                "it protects nobody and must not be published as a private release."
            )
        return self._promise(self.guarantee)

    def _promise(self, guarantee: PrivacyGuarantee) -> str:
        return guarantee.sentence()

    def summary(self) -> dict[str, Any]:
        """Return the content of the release as JSON values, without its provenance.

        The default is the content of the file, with the array, if there is one, as ``"array"``.
        """
        if not RELEASE_KINDS.holds(type(self)):
            return {}
        array = np.asarray(self._array())
        return self._content() | ({"array": array.tolist()} if array.size else {})

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the release to one file, which `bayesprivmrf.load_release` reads.

        The file appears complete or not at all, and is read back before it is written. If several processes save to
        one new path, one of them succeeds. A link to a file is followed.

        Parameters
        ----------
        path
            Path of the file.
        overwrite
            Whether another release at this path may be replaced. By default it is kept, because making it again
            would spend budget.

        Raises
        ------
        ReleaseFileError
            The path cannot be written, the path holds another release and `overwrite` is False, or releases of this
            class cannot be saved. The release itself is unchanged.
        """
        target = require_writable(path)
        overwrite = truth("overwrite", overwrite)
        write_file(self._as_file(), target, overwrite=overwrite, is_private=self.is_exact)

    def _as_file(self) -> bytes:
        """Return the bytes of the release's file, after a check that they can be read back."""
        what = f"{type(self).__name__}, to be saved,"
        must = "name its kind"
        remedy = "give it one, as `bayesprivmrf.release.Released` says"
        require(RELEASE_KINDS.holds(type(self)), what, must, "none", remedy, error=ReleaseFileError)
        kept = "Nothing was written, and the release is unchanged"
        try:
            whole = self._packed()
        except Exception as error:
            what = f"this {type(self).__name__} cannot be saved, because a part of it has no written form"
            raise ReleaseFileError(f"{what}: {_reason(error)}. {kept}.") from error
        try:
            again = _release(*unpacked(io.BytesIO(whole), Path(), sys.maxsize))
            if type(again) is not type(self) or again._packed() != whole:
                what = "reading it back gives another release"
                raise ReleaseFileError(f"{what}; correct its kind's `_restored`")
        except Exception as error:
            what = f"this {type(self).__name__} cannot be saved, because its file could not be read back"
            raise ReleaseFileError(f"{what}: {_reason(error)}. {kept}.") from error
        return whole

    def _packed(self) -> bytes:
        """Return the bytes of the release's file, without a check that they can be read back."""
        if self.guarantee is None:
            promise = None
        else:
            promise = self.guarantee.as_dict()
        stamp = {"kind": self.kind, "guarantee": promise, "provenance": self.provenance._content()}
        content = self._content() | stamp
        return packed(content, self._array(), max(self._version, labels_version(content)))

    @property
    def _version(self) -> int:
        """Format version of the file: that of the kind, or a newer one if older readers would miss something."""
        return self.format_version

    @classmethod
    def _most_numbers(cls, model: ModelSpecification) -> int:
        """Return the largest number of entries in the array; by default all clique tables and all couplings."""
        return model.size + 2 * sum(model.cardinalities) ** 2

    def _content(self) -> dict[str, Json]:
        raise NotImplementedError

    def _array(self) -> np.ndarray:
        return np.zeros(0)

    @classmethod
    def _restored(cls, content: Fields, array: np.ndarray, **stamp: Any) -> Self:
        raise NotImplementedError

    def _doubt(self) -> Doubt | None:
        """Return what contradicts the guarantee in the noise of the release's tables; None if nothing does."""
        tables: Any = self.statistics
        if tables is None or tables is self:
            return None
        # the sensitivity of more answers takes seconds to find
        is_quick = tables.has_tables or tables.flat.size <= _MOST_ANSWERS
        return tables._doubt() if is_quick else None

    def _folded(self) -> dict[str, list[tuple[str, str]]]:
        made = {"Settings": self.provenance.settings, "Versions": self.provenance.versions}
        return {
            title: [(str(name), str(value)) for name, value in own.items()]
            for title, own in made.items()
        }

    @property
    def _mark(self) -> str:
        if self.provenance.simulated:
            return "SIMULATED: protects nobody"
        return ""


# Kinds of releases that can be saved and read
RELEASE_KINDS: Kinds[Released] = Kinds("bayesprivmrf.releases")


def load_release(path: str | os.PathLike[str], *, largest: int = LARGEST_ARRAY) -> Any:
    """Read a release from a file that `save` wrote: noisy tables, a network's estimate, or a learned model.

    Names and labels are restored as they were declared if they are text, numbers, booleans, dates, times, time spans,
    periods, intervals, decimals, fractions, bytes, UUIDs, complex numbers, or tuples of these. Any other label is
    restored as text. Files of format versions before 7 restore only text, numbers, booleans and tuples.

    Parameters
    ----------
    path
        The file.
    largest
        Largest size of the unpacked array in bytes, 1 GiB by default, so that a malicious file cannot fill the
        memory. Raise it for a file that you trust; couplings take memory in proportion to the square of the number of
        variables.

    Returns
    -------
    Released
        The release, of the class that its kind names.

    Raises
    ------
    ArgumentError
        `path` is not the path of a file, or `largest` is not a number of bytes.
    ReleaseFileError
        The file is missing, cut short, altered, too large, or of a kind that no installed package provides; or its
        noise shows that its promise is false. The error is a `ForeignFileError` if the file is not a release, and a
        `NewerFormatError` if a newer version wrote it.

    Warns
    -----
    GuaranteeWarning
        The noise costs more than the release promises, which only a secret sample of the records would explain.

    Examples
    --------
    >>> import tempfile
    >>> import bayesprivmrf as bpm
    >>> from bayesprivmrf.privacy import Laplace
    >>> network = bpm.declare({"ill": ["no", "yes"]}, [("ill",)])
    >>> release = bpm.NoisyStatistics.from_tables(network, {"ill": [81.0, 17.5]}, noise=Laplace(2.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     release.save(f"{folder}/ill.release")
    ...     bpm.load_release(f"{folder}/ill.release") == release
    True
    """
    largest = whole_number("largest", largest, 1, sys.maxsize)
    target = file_path("path", path)
    try:
        if not target.is_file():
            raise ReleaseFileError(f"there is no release file at {str(target)!r}.")
        with target.open("rb") as file:
            content, array = unpacked(file, target, largest)
    except OSError as error:
        raise ReleaseFileError(f"{str(target)!r} cannot be read ({error.strerror}).") from None
    try:
        found = _release(content, array)
        doubt = _warning_unless_false(found)
    except Exception as error:
        what = f"{os.fsdecode(path)!r} holds no release that can be read"
        raise ReleaseFileError(f"{what}: {_reason(error)}.") from error
    if doubt is not None:
        warn_caller(doubt, GuaranteeWarning)
    return found


def _warning_unless_false(found: Released) -> str | None:
    """Return a warning text about the promise of a release that was read; an error if the promise is false."""
    doubt = found._doubt()
    if doubt is not None and doubt.is_false:
        raise ReleaseFileError(doubt.text)
    return None if doubt is None else doubt.text


def read_release(whole: bytes) -> Any:
    """Return the release in the bytes of its file.

    Raises
    ------
    ReleaseFileError
        The bytes are not a readable release, or its promise is false.
    """
    found = _release(*unpacked(io.BytesIO(whole), Path("release"), LARGEST_ARRAY))
    _warning_unless_false(found)
    return found


def _release(content: Any, array: np.ndarray) -> Released:
    """Return the release of a file's content."""
    fields = Fields(content)
    kind = fields.text("kind")
    made = RELEASE_KINDS.find(kind)
    if made is None:
        what = f"no installed package provides its kind, {kind!r}"
        remedy = "install the package of the mechanism that made it, or import the module that defines the kind"
        raise ReleaseFileError(f"{what}; {remedy}")
    nothing = made.may_promise_nothing and fields["guarantee"] is None
    return made._restored(
        fields,
        array,
        guarantee=None if nothing else PrivacyGuarantee.from_dict(fields.mapping("guarantee")),
        provenance=Provenance._restored(Fields(fields["provenance"])),
    )


def _reason(error: Exception) -> str:
    """Return the message of an error without its full stop; for an error of another library, its type."""
    if isinstance(error, BayesPrivMRFError):
        return str(error).rstrip(".")
    return type(error).__name__
