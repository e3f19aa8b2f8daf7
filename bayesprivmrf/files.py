"""Atomic writing of files, which appear complete or not at all, and the cache folder of compiled code.

numba keeps compiled functions in ``__pycache__`` beside the sources, or in the user's cache folder. If both are
read-only, as in many containers and services, numba refuses to define the functions. Compiled code then goes to a
private temporary folder for as long as the process runs.

numba executes the files of this folder, so that users who can write to it could run code in this process. The
temporary folder therefore belongs to the user alone, and so should a folder named by ``NUMBA_CACHE_DIR``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bayesprivmrf.errors import warn_caller


@contextmanager
def replaced_when_whole(path: Path) -> Iterator[Path]:
    """Yield a new file beside a path, and move it there when the block ends without an error.

    The file is created exclusively under a random name, so that a link which somebody planted in the folder is not
    followed.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".bayesprivmrf-", suffix=path.suffix)
    os.close(handle)
    try:
        yield Path(name)
        os.chmod(name, 0o666 & ~current_umask())
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


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
