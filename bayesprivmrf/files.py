"""Atomic writing of files, which appear complete or not at all, and the cache folder of compiled code.

Every file of this package is written by `replaced_when_whole`: beside its path, synced to the disk, and renamed. A
full disk, a killed process or a power cut therefore leaves the file that was there before.

numba keeps compiled functions in ``__pycache__`` beside the sources, or in the user's cache folder. If both are
read-only, as in many containers and services, numba refuses to define the functions. Compiled code then goes to a
private temporary folder for as long as the process runs.

numba executes the files of this folder, so that users who can write to it could run code in this process. The
temporary folder therefore belongs to the user alone, and so should a folder named by ``NUMBA_CACHE_DIR``.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from bayesprivmrf.errors import ArgumentError, warn_caller

# A value as a JSON file holds it
type Json = bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None

# Remedies of failed writes, by the number of the system's error
_REMEDIES = {
    errno.ENOSPC: "free some disk space",
    errno.EDQUOT: "free some disk space",
    errno.EFBIG: "raise the limit of file sizes (`ulimit -f`)",
    errno.ENOENT: "make its folder first",
    errno.EACCES: "choose a folder that you can write",
    errno.EPERM: "choose a folder that you can write",
    errno.EROFS: "choose a folder that you can write",
}


def reason_of(error: Exception) -> str:
    """Return the system's text of an error, or the type of an error that has none."""
    return getattr(error, "strerror", None) or type(error).__name__


def remedy_of(error: Exception) -> str:
    """Return the remedy of a failed write."""
    return _REMEDIES.get(getattr(error, "errno", None) or 0, "choose another path")


class _Writer(io.RawIOBase):
    """Binary file whose writes never fail; `settle` raises the first error afterwards.

    HDF5 ends the whole process if a write fails while it closes a file. Nothing is written after the first error.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._error: OSError | None = None

    def _try(self, act: Callable[[], Any]) -> None:
        """Do something with the file unless an earlier write failed, and keep the error."""
        if self._error is None:
            try:
                act()
            except OSError as error:
                self._error = error

    def _write_all(self, data: memoryview) -> None:
        # the system may write a part only, and raise at the next call
        while data:
            data = data[self._file.write(data) :]

    def write(self, data: Any, /) -> int:
        """Write all bytes, and return their number."""
        view = memoryview(data).cast("B")
        start = self._file.tell()
        self._try(lambda: self._write_all(view))
        self._file.seek(start + len(view))
        return len(view)

    def truncate(self, size: int | None = None, /) -> int:
        """Set the size of the file."""
        place = self.tell() if size is None else size
        self._try(lambda: self._file.truncate(place))
        return place

    def settle(self) -> None:
        """Wait until the disk has the file, close it, and raise the first error of all writes."""
        if not self._file.closed:
            self._try(lambda: os.fsync(self._file.fileno()))
            self._file.close()
        if self._error is not None:
            raise self._error

    def readinto(self, buffer: Any, /) -> int:
        """Read bytes that were written before."""
        return self._file.readinto(buffer)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a place in the file."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the place in the file."""
        return self._file.tell()

    def readable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True


@contextmanager
def written_beside(
    target: Path, prefix: str, mode: int, put: Callable[[str, Path], Any] = os.replace
) -> Iterator[_Writer]:
    """Yield a new binary file beside a path, and put it there when the block ends without an error.

    The file is created exclusively under a random name, so that a link which somebody planted in the folder is not
    followed. Before `put` moves it, the disk has all of it; afterwards, the disk has the new name.

    Parameters
    ----------
    target
        Path of the final file.
    prefix
        Start of the temporary name.
    mode
        Permission bits of the file.
    put
        Function that moves the file, of its temporary name and the path; by default it replaces an old file.

    Raises
    ------
    OSError
        The file cannot be written; the path is as it was.
    """
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=prefix)
    try:
        with os.fdopen(handle, "w+b", buffering=0) as raw:
            writer = _Writer(raw)
            try:
                yield writer
            finally:
                # after a failed write HDF5 can read back what was never written, and raise an error of its own
                writer.settle()
        # some systems cannot rename an open file
        os.chmod(name, mode)
        put(name, target)
        _sync_folder(target.parent)
    finally:
        Path(name).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder, on systems that can open folders."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def replaced_when_whole(path: Path, name: str = "path") -> Iterator[_Writer]:
    """Yield a binary file that replaces the file at a path when the block ends without an error.

    An old file keeps its permissions. A link is replaced, not followed, because somebody else may have planted it.

    Parameters
    ----------
    path
        Path of the file.
    name
        Name of the argument that holds the path, for messages.

    Raises
    ------
    ArgumentError
        The file cannot be written, or the path is a folder or a device; the path is as it was.
    """
    try:
        if path.exists() and not path.is_file():
            raise ArgumentError(
                f"`{name}` must be a regular file or a new one, got {str(path)!r}, a folder or a device; choose "
                "another name."
            )
        mode = 0o666 & ~current_umask()
        if path.is_file() and not path.is_symlink():
            with path.open("r+b"):  # a rename would replace a file that is protected from writing
                mode = path.stat().st_mode & 0o777
        with written_beside(path, ".bayesprivmrf-", mode) as file:
            yield file
    except OSError as error:
        raise ArgumentError(
            f"`{name}` must be writable, got {str(path)!r} ({reason_of(error)}); {remedy_of(error)}. A file that was "
            "there is unchanged."
        ) from error


def write_whole(contents: Mapping[Path, str | bytes], name: str = "path") -> None:
    """Write files that belong together: all of them, or none; see `replaced_when_whole`. Text is encoded in UTF-8."""
    with ExitStack() as waiting:
        for path, content in contents.items():
            file = waiting.enter_context(replaced_when_whole(path, name))
            file.write(content.encode() if isinstance(content, str) else content)
            file.settle()
        # the stack replaces the files only now, when the disk has all of them


def current_umask() -> int:
    """Return the mode bits that this process withholds from new files."""
    # The mask can only be read by setting it. Meanwhile, files of other threads are readable by their owner alone.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# Environment variable that names numba's cache folder
_VARIABLE = "NUMBA_CACHE_DIR"


def ensure_cache_folder() -> None:
    """Choose a temporary folder for compiled code if numba cannot write to any; call this before importing numba.

    Warns
    -----
    RuntimeWarning
        Compiled code is lost when the process ends, or other users can write to its folder.
    """
    if named := os.environ.get(_VARIABLE):
        if _is_open_to_others(Path(named)):
            warn_caller(
                f"the folder that {_VARIABLE} names can be written by other users, who could run code in this "
                "process; name a private one.",
                RuntimeWarning,
            )
        return
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    if os.access(Path(__file__).parent, os.W_OK) or _can_be_written(user_cache / "numba"):
        return
    import atexit
    import shutil

    folder = tempfile.mkdtemp(prefix="bayesprivmrf-")  # only the user can read it
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[_VARIABLE] = folder
    if "numba" in sys.modules:
        sys.modules["numba"].config.CACHE_DIR = folder
    warn_caller(
        "neither the installation nor the user's cache folder can be written, so compiled code is lost when this "
        f"process ends, and each process compiles again; set {_VARIABLE} to a private folder that you can write.",
        RuntimeWarning,
    )


# Environment variable that makes numba's decorators return plain Python functions
_WITHOUT_COMPILER = "NUMBA_DISABLE_JIT"


def ensure_compiler() -> None:
    """Let numba compile in this process although NUMBA_DISABLE_JIT is set; call this before importing numba.

    The engines hand addresses to C code, which plain Python functions cannot, and would fail after the budget of a
    release is spent.

    Warns
    -----
    RuntimeWarning
        The variable was set.
    """
    if os.environ.get(_WITHOUT_COMPILER, "0") in ("", "0"):
        return
    os.environ[_WITHOUT_COMPILER] = "0"  # numba reads it again before it compiles
    if "numba" in sys.modules:
        sys.modules["numba"].config.DISABLE_JIT = 0
    warn_caller(
        f"{_WITHOUT_COMPILER} is ignored in this process, because the engines of bayesprivmrf work as compiled code "
        "only; to step through functions of your own, leave out their decorators.",
        RuntimeWarning,
    )


def _can_be_written(folder: Path) -> bool:
    """Return True if a file can be created in a folder, which not every file system's permissions show."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _is_open_to_others(folder: Path) -> bool:
    return os.name == "posix" and folder.is_dir() and bool(folder.stat().st_mode & 0o022)
