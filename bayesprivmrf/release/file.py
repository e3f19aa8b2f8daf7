"""File format of releases: a zip archive of one JSON document and one array, with a version and a checksum.

``release.json`` holds the name and version of the format, the SHA-256 checksum of the content, and the content with
its kind. ``tables.npy`` holds the numbers: the flat view of the noisy tables, the public couplings of a network, or
the numbers of a learned model. Nothing is pickled. A published format never changes its meaning; every change gets a
new version. The checksum has no key, so it detects accidents but not forgery.

The class of each kind defines its content: see `bayesprivmrf.release.Released`.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bayesprivmrf.checks import file_path
from bayesprivmrf.errors import (
    BayesPrivMRFError,
    ForeignFileError,
    NewerFormatError,
    ReleaseFileError,
    UnfinishedSaveWarning,
    warn_caller,
)
from bayesprivmrf.files import current_umask, reason_of, remedy_of, written_beside
from bayesprivmrf.model.tables import DOUBLE

# Name of the format in the document of every release
FORMAT_NAME = "bayesprivmrf-release"
# Newest version of the format. The versions added:
# 1: noisy statistics. 2: estimates of a network. 3: learned models. 4: kinds of other packages. 5: models with ties.
# 6: graphs with cliques of three and more. 7: rows of one person apart from the settings, labels that are dates,
# times, intervals, decimals or bytes, and the external field of a network. 8: labels that are UUIDs or complex
# numbers; `bayesprivmrf.model.labels` has the versions of all kinds of labels. 9: measured scopes that lie in no
# declared clique.
FORMAT_VERSION = 9
# First version that states which potentials are tied
TIED_VERSION = 5
# First version that states the number of variables in the cliques of a graph
CLIQUES_VERSION = 6
# First version that states the counted rows of one person apart from the settings
FACTS_VERSION = 7
# First version that states the external field of a network
FIELD_VERSION = 7
# First version that states the declared cliques apart from the measured tables
INTERACTIONS_VERSION = 9
# Largest size of an unpacked array, in bytes, unless the caller allows more. The document may take a sixteenth of it.
LARGEST_ARRAY = 2**30

# Share of that size which the document may take, as one over it
_DOCUMENT_SHARE = 16
# Names of the two members of a file
_DOCUMENT = "release.json"
_ARRAY = "tables.npy"
# Time of the members, so that equal releases give equal files: the earliest that a zip archive can hold
_EPOCH = (1980, 1, 1, 0, 0, 0)
# Permissions of a file for its owner alone, and of one for all, less the process's mask
_OWNER = 0o600
_EVERYONE = 0o666
# First bytes of every zip archive
_ZIP = b"PK\x03\x04"
# Digits of the checksum of a name in the names of hidden files
_NAME_DIGITS = 16
# Bytes of the blocks that claim space on the disk
_BLOCK = 2**16
# Seconds after which a hidden file is taken to be left by a save that was killed; no save takes as long
_ABANDONED = 600


def require_writable(path: str | os.PathLike[str]) -> Path:
    """Return the path of the file that a save would write, checked before any budget is spent.

    A link to a file is followed.

    Raises
    ------
    ReleaseFileError
        The folder does not exist or cannot be written, or the path is not a regular file.
    """
    target = file_path("path", path)
    try:
        if target.is_symlink():
            target = target.resolve(strict=True)
        folder = target.parent
        if target.is_dir():
            raise ReleaseFileError(f"`path` must name a file, got the folder {str(target)!r}.")
        if target.exists() and not target.is_file():
            what = f"a regular file or a new one, got {str(target)!r}, a device, a pipe or a socket"
            raise ReleaseFileError(f"`path` must name {what}; choose another name.")
        if not folder.is_dir():
            what = f"an existing folder, got {str(folder)!r}"
            raise ReleaseFileError(f"`path` must lie in {what}; make it first.")
        with tempfile.TemporaryFile(dir=folder):
            pass
        if target.exists():
            with target.open("r+b"):
                pass
    except (OSError, RuntimeError) as error:  # a link that leads to itself raises a RuntimeError
        raise _unwritten("`path` must be writable", path, error) from None
    return target


def _unwritten(what: str, path: Any, error: Exception) -> ReleaseFileError:
    return ReleaseFileError(f"{what}, got {str(path)!r} ({reason_of(error)}); {remedy_of(error)}.")


@contextmanager
def reserved_space(target: Path, size: int) -> Iterator[None]:
    """Reserve disk space beside a path inside this context, so that a release can be written when it ends.

    Raises
    ------
    ReleaseFileError
        The disk has less free space than `size` bytes.
    """
    with tempfile.TemporaryFile(dir=target.parent) as filler:
        try:
            block = os.urandom(_BLOCK)  # random bytes, which no file system can compress
            for _ in range(-(-size // len(block))):
                filler.write(block)
            filler.flush()
            os.fsync(filler.fileno())
        except OSError as error:
            what = f"`path` must have space for a release of up to {size:,} bytes"
            raise _unwritten(what, target, error) from None
        yield


def packed(content: dict[str, Any], numbers: np.ndarray, version: int) -> bytes:
    """Return the bytes of a release's file."""
    array = io.BytesIO()
    whole = io.BytesIO()
    np.save(array, numbers, allow_pickle=False)
    digest = checksum_of(content, array.getvalue())
    document = {"format": FORMAT_NAME, "version": version, "sha256": digest, "content": content}
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
        archive.writestr(zipfile.ZipInfo(_DOCUMENT, _EPOCH), text, zipfile.ZIP_DEFLATED)
        archive.writestr(zipfile.ZipInfo(_ARRAY, _EPOCH), array.getvalue(), zipfile.ZIP_DEFLATED)
    return whole.getvalue()


def write_file(whole: bytes, target: Path, *, overwrite: bool, is_private: bool) -> None:
    """Write the bytes of a release; the file appears complete or not at all. Only its owner can read a private file.

    If several processes write to one new path without `overwrite`, one of them succeeds. Without `overwrite`, a file
    at the path is only replaced if it is empty or has the same bytes.

    Raises
    ------
    ReleaseFileError
        The file cannot be written, or the path holds another file and `overwrite` is False.
    """
    unfinished = _unfinished_saves(target)
    if is_private:
        mode = _OWNER
    else:
        mode = _EVERYONE & ~current_umask()

    def put(temporary: str, path: Path) -> None:
        is_put = not overwrite and _is_put(temporary, path)
        if not is_put and not overwrite:
            with path.open("rb") as held:
                is_free = held.read(len(whole) + 1) in (b"", whole)
            what = f"{str(path)!r} holds another release or file"
            remedy = (
                "a release cannot be made again without spending budget, so choose another name"
            )
            if not is_free:
                raise ReleaseFileError(f"{what}; {remedy}, or pass `overwrite=True`.")
        if not is_put:
            os.replace(temporary, path)

    try:
        with written_beside(target, _prefix(target), mode, put) as file:
            file.write(whole)
    except OSError as error:
        what = f"{str(target)!r} cannot be written ({reason_of(error)})"
        remedy = f"{remedy_of(error)}, or save it elsewhere"
        raise ReleaseFileError(f"{what}; the release is unchanged: {remedy}.") from error
    # only now, because a filter that turns this warning into an error must not lose the release
    if unfinished:
        warn_caller(_recovery(target, unfinished[0]), UnfinishedSaveWarning)


def require_no_unfinished_save(target: Path) -> None:
    """Raise an error if an earlier save to this path was killed and left a file, whose budget may be spent.

    Raises
    ------
    ReleaseFileError
        Such a file exists; the message says how to recover it.
    """
    # of any age, even below 0 by another clock: a run that is repeated at once must not spend the budget again
    if unfinished := _unfinished_saves(target, least_age=-math.inf):
        raise ReleaseFileError(_recovery(target, unfinished[0]))


def _recovery(target: Path, left: Path) -> str:
    what = f"an earlier save to {str(target)!r} was killed and left {str(left)!r}, whose budget may be spent"
    return f"{what}. Rename that file if `load_release` reads it, or delete it."


def _prefix(target: Path) -> str:
    """Return the prefix of the hidden files that saves to a path write; its length does not depend on the path."""
    return f".release-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:_NAME_DIGITS]}-"


def _unfinished_saves(target: Path, least_age: float = _ABANDONED) -> list[Path]:
    """Return the files that killed saves to a path left behind; nothing is read, and nothing is removed."""
    found = []
    for path in target.parent.glob(f"{_prefix(target)}*"):
        with suppress(OSError):  # another process was faster
            found += [path] * (time.time() - path.lstat().st_mtime >= least_age)
    return sorted(found)


def _is_put(temporary: str, target: Path) -> bool:
    """Move a file to a path in one step if the path is free, and return True if it was."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError:
        # without links in this file system, a file that no other save replaces claims the name first
        try:
            with target.open("xb") as claim:
                claim.write(b"A release of bayesprivmrf is being saved here.\n")
        except FileExistsError:
            return False
        os.replace(temporary, target)
    return True


def unpacked(file: BinaryIO, target: Path, largest: int) -> tuple[Any, np.ndarray]:
    """Return the content and the array of an open file."""
    try:
        # every zip archive begins with these bytes; a truncated release may have only some of them
        if not _ZIP.startswith(file.read(len(_ZIP))):
            raise _foreign(target)
        with zipfile.ZipFile(file) as archive:
            if _DOCUMENT not in archive.namelist():
                raise _foreign(target)
            document = json.loads(_member(archive, _DOCUMENT, target, largest // _DOCUMENT_SHARE))
            array = _member(archive, _ARRAY, target, largest)
        if document["format"] != FORMAT_NAME:
            raise _foreign(target)
        version = document["version"]
        content = document["content"]
        if type(version) is int and version > FORMAT_VERSION:
            what = f"format version {version}, newer than {FORMAT_VERSION}, the newest that this bayesprivmrf reads"
            raise NewerFormatError(f"{str(target)!r} has {what}; upgrade it.")
        is_version = type(version) is int and version >= 1
        if not is_version or document["sha256"] != checksum_of(content, array):
            raise _damaged(target)
        numbers = np.load(io.BytesIO(array), allow_pickle=False)
        if numbers.dtype.kind not in "iuf" or numbers.dtype.itemsize > DOUBLE:
            raise _damaged(target)
        return content, numbers.astype(numbers.dtype.newbyteorder("="), copy=False)
    except BayesPrivMRFError:
        raise
    except Exception as error:  # zip, JSON, NumPy and the decompressors raise many types
        raise _damaged(target) from error


def _member(archive: zipfile.ZipFile, name: str, target: Path, largest: int) -> bytes:
    """Return a member of the archive, after a check that it is no larger than its header states."""
    info = archive.getinfo(name)
    if info.file_size > largest:
        what = f"{info.file_size:,} bytes of {name}, more than the {largest:,} that are allowed"
        remedy = "if you trust the file, pass a larger `largest` to `load_release`"
        raise ReleaseFileError(f"{str(target)!r} unpacks to {what}; {remedy}.")
    with archive.open(info) as member:
        content = member.read(info.file_size + 1)
    if len(content) != info.file_size:
        raise _damaged(target)
    return content


def _damaged(target: Path) -> ReleaseFileError:
    what = "is not a complete release file: it was cut short or altered"
    return ReleaseFileError(f"{str(target)!r} {what}; take a fresh copy.")


def _foreign(target: Path) -> ReleaseFileError:
    remedy = "give a file that `release.save` or `bayesprivmrf release` wrote"
    return ForeignFileError(f"{str(target)!r} is not a release of bayesprivmrf; {remedy}.")


def checksum_of(content: Any, array: bytes) -> str:
    """Return the SHA-256 checksum of the JSON content and the bytes of the arrays."""
    text = json.dumps(
        content, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    return hashlib.sha256(text.encode() + b"\0" + array).hexdigest()
