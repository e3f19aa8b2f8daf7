"""The file format of releases: a zip of one JSON document and one array, with a version and a checksum.

``release.json`` holds the format's name and version, the SHA-256 of the content, and the content, which names
its kind; ``tables.npy`` the noisy tables' flat view, the public couplings beside a network's estimate, or the numbers
of a learned model. Nothing is pickled. A published format never changes meaning:
a change is a new version. The checksum has no key: it detects accidents, not forgery.

The class of each kind says what its content is: see `bayesprivmrf.release.Released`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bayesprivmrf.errors import (
    ArgumentError,
    BayesPrivMRFError,
    ForeignFileError,
    NewerFormatError,
    ReleaseFileError,
    UnfinishedSaveWarning,
)
from bayesprivmrf.files import current_umask

try:
    import fcntl
except ImportError:  # Windows: a save is distinguished from a leftover by its age alone
    fcntl = None

# name of the format, by which a file is known as a release
FORMAT_NAME = "bayesprivmrf-release"
# 1: noisy statistics. 2: a network's estimate. 3: what is learned. 4: kinds that other packages bring.
#
# 5: models with ties. 6: graphs of cliques of three and more. 7: rows of one person apart from the settings, labels
# that are dates, times, intervals, decimals or bytes, and a network's external field.
FORMAT_VERSION = 7
# The first that says which potentials are tied
TIED_VERSION = 5
# The first that says how many variables a graph's cliques have
CLIQUES_VERSION = 6
# First format that states how many rows of one person are counted, apart from the settings, and kinds of labels
FACTS_VERSION = 7
# First format that states the external field of a network
FIELD_VERSION = 7
# Bytes that the array of a file may unpack to, unless its reader allows more; its document a sixteenth of them
LARGEST = 2**30

_DOCUMENT, _ARRAY = "release.json", "tables.npy"
# first bytes of every zip archive
_ZIP_MAGIC = b"PK\x03\x04"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal releases give equal files
# content of the hidden file that claims a name while a release is being saved under it
_CLAIM = b"A release of bayesprivmrf is being saved here.\n"
_ABANDONED = 24 * 3600  # seconds: no save takes as long; used where a file cannot be locked


def checked_path(path: Any) -> Path:
    """Return the path of a file.

    Raises
    ------
    ArgumentError
        It is no text or path-like object, or no path can have its characters.
    """
    try:
        text = os.fsdecode(path)
        if b"\0" in os.fsencode(text):
            raise ValueError(text)
    except (TypeError, ValueError):
        raise ArgumentError(f"`path` must be the path of a file, got {path!r}; write its name.") from None
    return Path(text)


def require_writable(path: str | os.PathLike[str]) -> Path:
    """Path of the file that would be written, if it can be; checked before any budget is spent.

    That is the path as given, or what it leads to where it is a link to a file.

    Raises
    ------
    ReleaseFileError
        The folder does not exist or cannot be written, or the path holds something that is no regular file.
    """
    target = checked_path(path)
    try:
        if target.is_symlink():
            target = target.resolve(strict=True)
        folder = target.parent
        if target.is_dir():
            raise ReleaseFileError(f"`path` must name a file, got the folder {str(target)!r}.")
        if target.exists() and not target.is_file():
            raise ReleaseFileError(
                f"`path` must name a regular file or a new one, got {str(target)!r}, which is a device, a pipe or a "
                "socket; choose another name."
            )
        if not folder.is_dir():
            raise ReleaseFileError(
                f"`path` must lie in an existing folder, got {str(folder)!r}; make it first."
            )
        with tempfile.TemporaryFile(dir=folder):
            pass
        if target.exists():
            with target.open("r+b"):
                pass
    except (OSError, RuntimeError) as error:  # a RuntimeError is a link that leads to itself
        raise _unwritten("`path` must be writable", path, error) from None
    return target


def _unwritten(what: str, path: Any, error: Exception) -> ReleaseFileError:
    reason = getattr(error, "strerror", None) or type(error).__name__
    return ReleaseFileError(f"{what}, got {str(path)!r} ({reason}).")


@contextmanager
def room_for(target: Path, size: int) -> Iterator[None]:
    """Hold so many bytes of the disk beside a path until what they are for is about to be written there.

    Raises
    ------
    ReleaseFileError
        There is no such room.
    """
    with tempfile.TemporaryFile(dir=target.parent) as held:
        try:
            block = os.urandom(2**16)  # which no file system stores in less
            for _ in range(-(-size // len(block))):
                held.write(block)
            held.flush()
            os.fsync(held.fileno())
        except OSError as error:
            what = f"`path` must have room for a release of up to {size:,} bytes"
            raise _unwritten(what, target, error) from None
        yield


def packed(content: dict[str, Any], numbers: np.ndarray, version: int) -> bytes:
    """Return the bytes of a release's file."""
    array, whole = io.BytesIO(), io.BytesIO()
    np.save(array, numbers, allow_pickle=False)
    digest = checksum_of(content, array.getvalue())
    document = {"format": FORMAT_NAME, "version": version, "sha256": digest, "content": content}
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
        archive.writestr(zipfile.ZipInfo(_DOCUMENT, _EPOCH), text, zipfile.ZIP_DEFLATED)
        archive.writestr(zipfile.ZipInfo(_ARRAY, _EPOCH), array.getvalue(), zipfile.ZIP_DEFLATED)
    return whole.getvalue()


def write_file(whole: bytes, target: Path, *, overwrite: bool, is_private: bool) -> None:
    """Write a release's bytes; the file appears whole or not at all. A private one is readable by its owner alone.

    If several processes write to one new path without `overwrite`, one succeeds.

    Raises
    ------
    ReleaseFileError
        The file cannot be written, or the path holds another release and `overwrite` is False.
    """
    temporary = None
    unfinished = _unfinished_saves(target)
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=_prefix(target))
        with _locked(temporary), os.fdopen(handle, "wb") as raw:
            raw.write(whole)
            raw.flush()
            os.fsync(raw.fileno())
            raw.close()  # some systems cannot replace an open file
            os.chmod(temporary, 0o600 if is_private else 0o666 & ~current_umask())
            if overwrite or not _is_put(temporary, target):
                _refuse_to_lose(target, None if overwrite else whole)
                os.replace(temporary, target)
    except OSError as error:
        raise ReleaseFileError(
            f"{str(target)!r} cannot be written ({error.strerror or type(error).__name__}); the release is as it "
            "was: make room, or save it elsewhere."
        ) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
    if unfinished:  # after the file is written: a filter that makes this an error must not lose the release
        warnings.warn(_recovery(target, unfinished[0]), UnfinishedSaveWarning, stacklevel=3)


def require_no_unfinished_save(target: Path) -> None:
    """Raise an error if an earlier save to this path was killed and left a complete release, whose budget is spent.

    Raises
    ------
    ReleaseFileError
        Such a release exists; the message says how to recover it.
    """
    if unfinished := _unfinished_saves(target):
        raise ReleaseFileError(_recovery(target, unfinished[0]))


def _recovery(target: Path, left: Path) -> str:
    return (
        f"an earlier save to {str(target)!r} was killed and left a whole release, whose budget is spent, in "
        f"{str(left)!r}. Rename that file to keep the release, or delete it."
    )


def _prefix(target: Path) -> str:
    """Return the prefix of the hidden files of saves to a path, whose length does not depend on the name."""
    return f".release-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}-"


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Lock a file that is being written; the lock ends with the process, however it ends."""
    with open(path, "rb") as file:
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_abandoned(path: Path) -> bool:
    """Return True if no process writes the file any more."""
    if fcntl is not None:
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False
        except OSError:
            pass
    return _age(path) > _ABANDONED


def _age(path: Path) -> float:
    """Return the seconds since the file was written."""
    return time.time() - path.stat().st_mtime


def _unfinished_saves(target: Path) -> list[Path]:
    """Return whole releases that killed saves to a path left behind, and remove old ones that were cut short."""
    whole = []
    for path in target.parent.glob(f"{_prefix(target)}*"):
        with suppress(OSError):  # another process was faster
            # no save leaves a link, or a pipe, which would block whoever opens it
            if path.is_symlink() or not path.is_file() or not _is_abandoned(path):
                continue
            try:
                with path.open("rb") as file:
                    _members(file, path, LARGEST)
                whole.append(path)
            except (NewerFormatError, _TooLargeError):  # as whole as can be told
                whole.append(path)
            except ReleaseFileError as error:
                # one that cannot be read now may be whole, and a save that has just begun is not locked yet
                if not isinstance(error.__cause__, OSError | MemoryError) and _age(path) > _ABANDONED:
                    path.unlink()
    return sorted(whole)


def _is_put(temporary: str, target: Path) -> bool:
    """Whether the path was free and now is the file, in one step."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError:
        # this file system has no links: the name is taken first, by what is never replaced unasked
        try:
            with target.open("xb") as claim:
                claim.write(_CLAIM)
        except FileExistsError:
            return False
        os.replace(temporary, target)
    return True


def _refuse_to_lose(target: Path, whole: bytes | None) -> None:
    """Raise if a path holds another whole release than given bytes, or a file of another kind."""
    if whole is None:
        return
    held = "another release, which cannot be made again without spending budget"
    try:
        document, _ = _members(io.BytesIO(whole), target, sys.maxsize)
        with zipfile.ZipFile(io.BytesIO(whole)) as archive:
            largest = 16 * max(member.file_size for member in archive.infolist())
        with target.open("rb") as file:
            if _members(file, target, largest)[0]["sha256"] == document["sha256"]:
                return
    except (NewerFormatError, _TooLargeError):  # one that is larger differs
        pass
    except ForeignFileError:
        held = "a file that is no release"
    except ReleaseFileError:  # what is left of a release
        return
    raise ReleaseFileError(f"{str(target)!r} holds {held}; choose another name, or pass `overwrite=True`.")


def read_file(path: str | os.PathLike[str], largest: int = LARGEST) -> tuple[Any, np.ndarray]:
    """Return content and array of a file whose version is known and whose checksum holds."""
    target = checked_path(path)
    try:
        if not target.is_file():
            raise ReleaseFileError(f"there is no release file at {str(target)!r}.")
        with target.open("rb") as file:
            return unpacked(file, target, largest)
    except OSError as error:
        raise ReleaseFileError(f"{str(target)!r} cannot be read ({error.strerror}).") from None


def unpacked(file: BinaryIO, target: Path, largest: int) -> tuple[Any, np.ndarray]:
    """Return content and array of an open file."""
    document, array = _members(file, target, largest)
    try:
        numbers = np.load(io.BytesIO(array), allow_pickle=False)
        if numbers.dtype.kind not in "iuf" or numbers.dtype.itemsize > 8:
            raise _damaged(target)
        return document["content"], numbers.astype(numbers.dtype.newbyteorder("="), copy=False)
    except Exception as error:
        raise _damaged(target) from error


def _members(file: BinaryIO, target: Path, largest: int) -> tuple[dict[str, Any], bytes]:
    """Document and array of an open file."""
    try:
        head = file.read(len(_ZIP_MAGIC))
        if not _ZIP_MAGIC.startswith(head):  # a release that was cut short still begins as one
            raise _foreign(target)
        with zipfile.ZipFile(file) as archive:
            if _DOCUMENT not in archive.namelist():
                raise _foreign(target)
            document = json.loads(_member(archive, _DOCUMENT, target, largest // 16))
            array = _member(archive, _ARRAY, target, largest)
        if document["format"] != FORMAT_NAME:
            raise _foreign(target)
        version = document["version"]
        if type(version) is int and version > FORMAT_VERSION:
            raise NewerFormatError(
                f"{str(target)!r} has format version {version}, newer than {FORMAT_VERSION}, "
                "the newest that this bayesprivmrf reads; upgrade it."
            )
        whole = type(version) is int and version >= 1
        if not whole or document["sha256"] != checksum_of(document["content"], array):
            raise _damaged(target)
    except BayesPrivMRFError:
        raise
    except Exception as error:  # of zip, JSON and the decompressors
        raise _damaged(target) from error
    return document, array


class _TooLargeError(ReleaseFileError):
    """A file unpacks to more bytes than are allowed, so it was not unpacked."""


def _member(archive: zipfile.ZipFile, name: str, target: Path, largest: int) -> bytes:
    """Return a member, of which no more is unpacked than its header says."""
    info = archive.getinfo(name)
    if info.file_size > largest:
        raise _TooLargeError(
            f"{str(target)!r} unpacks to {info.file_size:,} bytes of {name}, more than the {largest:,} that are "
            "allowed; if you trust it, pass a larger `largest` to `load_release`."
        )
    with archive.open(info) as member:
        content = member.read(info.file_size + 1)
    if len(content) != info.file_size:
        raise _damaged(target)
    return content


def _damaged(target: Path) -> ReleaseFileError:
    return ReleaseFileError(
        f"{str(target)!r} is not a whole release file: it was cut short or altered; take a fresh copy."
    )


def _foreign(target: Path) -> ReleaseFileError:
    return ForeignFileError(
        f"{str(target)!r} is not a release of bayesprivmrf; give a file that `release.save` or "
        "`bayesprivmrf release` wrote."
    )


def checksum_of(content: Any, array: bytes) -> str:
    """Return the SHA-256 checksum of the JSON content and the bytes of the arrays."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode() + b"\0" + array).hexdigest()
